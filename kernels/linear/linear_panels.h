/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_quantized as products of op linear: some columns of y at a time, a
 * panel, whose part of w is made in the workspace by what the device has for
 * that, and multiplied by the device's own kernels. Shared by the processor's
 * and CUDA's kernel.
 */
#ifndef LOONG_LINEAR_PANELS_H
#define LOONG_LINEAR_PANELS_H

#include "loong/kernel.h"
#include "loong/ops.h"
#include "loong/quantize.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_linear_panels {
    int64_t elements; /* of a panel of w, about */
    /* Of op linear, best first, NULL behind the last. */
    const loong_kernel_t *const *kernels;
    /* Makes the part of w that columns col .. col + cols - 1 of y read: of w's
     * rows, dense, in the type of x, or with `transposed` of its columns. */
    loong_status_t (*make)(const loong_kernel_call_t *call, int64_t col,
                           int64_t cols, void *to);
} loong_linear_panels_t;

bool loongi_panels_support(const loong_linear_panels_t *panels,
                           const loong_kernel_query_t *query,
                           char reason[LOONG_REASON_SIZE]);
size_t loongi_panels_workspace(const loong_linear_panels_t *panels,
                               const loong_kernel_query_t *query);
LOONG_NODISCARD loong_status_t
loongi_panels_prepare(loong_context_t *ctx, const loong_linear_panels_t *panels,
                      const loong_kernel_query_t *query, void **state_p);
void loongi_panels_destroy(loong_context_t *ctx, void *state);
LOONG_NODISCARD loong_status_t loongi_panels_run(
    const loong_linear_panels_t *panels, const loong_kernel_call_t *call);

#ifdef __cplusplus
}
#endif

#endif
