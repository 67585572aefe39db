/* SPDX-License-Identifier: Apache-2.0
 *
 * The registry of a context: ops, kernels (and, from their own headers, model
 * families, devices, schedules) by name. The built-in ones are entered by
 * loong_register_builtin; a user's own are entered the same way and are
 * searched first, so that they can also replace a built-in kernel.
 * Not collective.
 */
#ifndef LOONG_REGISTER_H
#define LOONG_REGISTER_H

#include "loong/kernel.h"
#include "loong/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Enters an op; the struct is borrowed and must outlive the context. A second
 * op of the same name is LOONG_ERR_ARG. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_register_op(loong_context_t *ctx, const loong_op_t *op);

/* Enters a kernel (borrowed) before those of its op and device that are
 * there already. Its op need not be registered yet. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_register_kernel(loong_context_t *ctx, const loong_kernel_t *kernel);

/* Enters everything the library brings. Called by loong_context_create's
 * users once; a second call is harmless. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_register_builtin(loong_context_t *ctx);

/* NULL when there is none. */
LOONG_API const loong_op_t *loong_find_op(const loong_context_t *ctx,
                                          const char *name);

/* The i-th kernel of an op on a device, best first; NULL after the last. */
LOONG_API const loong_kernel_t *loong_find_kernel(const loong_context_t *ctx,
                                                  const char *op,
                                                  const char *device, int i);

/* The name of the i-th kind of device, "auto"'s first choice first; NULL after
 * the last. */
LOONG_API const char *loong_device_kind(const loong_context_t *ctx, int i);

#ifdef __cplusplus
}
#endif

#endif
