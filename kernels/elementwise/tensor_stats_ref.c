/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_stats: s = (sum of squares of the finite x, max |x| of the finite x,
 * number of x that are not finite). Blocks of rows, added up in their order,
 * so that threads change nothing. It runs in logged steps only: no faster
 * kernel is wanted. Listed as a reference in kernels/list.h; read ref.h
 * before. */
#include "list.h"
#include "moe/moe.h"
#include "ref.h"

enum { BLOCKS = 64, STATS = 3 };

static void take_row(const ref_mat_t *x, int64_t row, double stats[STATS])
{
    for (int64_t c = 0; c < x->cols; c++) {
        double v = ref_at(x, row, c);
        if (isfinite(v)) {
            stats[0] += v * v;
            stats[1] = fmax(stats[1], fabs(v));
        } else {
            stats[2] += 1.0;
        }
    }
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    ref_mat_t x = ref_arg(call, 0);
    double *out = call->ptr[call->query->num_in];
    double (*block)[STATS] = call->workspace;
    LOONG_TRY(loongi_moe_count_rows(call, 1, x.rows, &x.rows));
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int b = 0; b < BLOCKS; b++) {
        double stats[STATS] = {0.0, 0.0, 0.0};
        for (int64_t t = x.rows * b / BLOCKS; t < x.rows * (b + 1) / BLOCKS;
             t++) {
            take_row(&x, t, stats);
        }
        memcpy(block[b], stats, sizeof(stats));
    }
    if ((call->accumulate & 1u) == 0) {
        memset(out, 0, STATS * sizeof(*out));
    }
    for (int b = 0; b < BLOCKS; b++) {
        out[0] += block[b][0];
        out[1] = fmax(out[1], block[b][1]);
        out[2] += block[b][2];
    }
    return LOONG_OK;
}

static size_t workspace(const loong_kernel_query_t *query)
{
    (void)query;
    return BLOCKS * STATS * sizeof(double);
}

const loong_kernel_t loongi_tensor_stats_ref = {.name = "tensor_stats_ref",
                                                .op = "tensor_stats",
                                                .device = "cpu",
                                                .workspace = workspace,
                                                .run = run};
