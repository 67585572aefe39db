/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_quantized as products of op linear, or of grouped_linear: some columns
 * of y at a time, a panel, whose part of w, of all experts, is made in the
 * workspace by what the device has for that, and multiplied by the device's own
 * kernels. Shared by the processor's and CUDA's kernel.
 */
#ifndef LOONG_LINEAR_PANELS_H
#define LOONG_LINEAR_PANELS_H

#include "loong/kernel.h"
#include "loong/ops.h"
#include "loong/quantize.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What columns of y read of w: of each expert's matrix (of one without experts)
 * so many rows from `row` on, and of these columns from `col` on. */
typedef struct loong_panel {
    int64_t experts, each; /* matrices, rows of each */
    int64_t row, rows;
    int64_t col, cols;
} loong_panel_t;

typedef struct loong_linear_panels {
    int64_t elements; /* of a panel of w, about */
    /* Of op linear and of grouped_linear, best first, NULL behind the last. */
    const loong_kernel_t *const *kernels;
    const loong_kernel_t *const *grouped;
    /* Makes a panel: rows behind one another, dense, in the type of x. */
    loong_status_t (*make)(const loong_kernel_call_t *call,
                           const loong_panel_t *panel, void *to);
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
