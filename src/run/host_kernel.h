/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that a device lacks, done by the processor: where a recipe allows it. */
#ifndef LOONG_HOST_KERNEL_H
#define LOONG_HOST_KERNEL_H

#include "base.h"
#include "loong/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Enters kernel "<op>_host" of a device: it waits for the device, copies what
 * the op reads to the host, has it done by the processor's kernel, and copies
 * back what came out. It stands behind the device's own kernels of the op, for
 * what these refuse. Once for an op and a device. Errors: LOONG_ERR_NOT_FOUND,
 * there is no such op. */
LOONG_NODISCARD loong_status_t
loongi_host_kernel_register(loong_context_t *ctx, const char *device,
                            const char *op);

/* Seconds that all of them took so far in this context: copies and the
 * processor's work, not what the device had still to do before. NAN: there are
 * none. */
double loongi_host_kernels_seconds(const loong_context_t *ctx);
/* "adamw 1.20 s in 40 launches, rope ...": of each that was launched. */
void loongi_host_kernels_describe(const loong_context_t *ctx,
                                  loong_text_t *text);

#ifdef __cplusplus
}
#endif

#endif
