/* SPDX-License-Identifier: Apache-2.0
 *
 * y[t] = table[ids[t]]; d table[v] = sum over t with ids[t] = v of dy[t], in
 * the order of t. With a part of the table, v counts from the part's first id
 * and y[t] = 0 for ids of other parts. Listed as references in kernels/list.h;
 * read ref.h and embedding.h before. */
#include "embedding.h"
#include "list.h"
#include "ref.h"

static loong_status_t forward(const loong_kernel_call_t *call)
{
    const loong_embedding_attr_t *attr = call->query->attr;
    const int32_t *ids = ref_i32(call, 0);
    ref_mat_t table = ref_arg(call, 1);
    ref_mat_t y = ref_out(call, 0);
    LOONG_TRY(loongi_embedding_check(call, ids, y.rows));
    for (int64_t t = 0; t < y.rows; t++) {
        int64_t row = loongi_embedding_row(attr, ids[t]);
        for (int64_t c = 0; c < y.cols; c++) {
            ref_put(&y, t, c, row < 0 ? 0.0 : ref_at(&table, row, c));
        }
    }
    return LOONG_OK;
}

static loong_status_t backward(const loong_kernel_call_t *call)
{
    const loong_embedding_attr_t *attr = call->query->attr;
    const int32_t *ids = ref_i32(call, 0);
    ref_mat_t dy = ref_arg(call, 1);
    ref_mat_t dtable = ref_out(call, 0);
    LOONG_TRY(loongi_embedding_check(call, ids, dy.rows));
    if (!(call->accumulate & 1)) {
        for (int64_t v = 0; v < dtable.rows; v++) {
            for (int64_t c = 0; c < dtable.cols; c++) {
                ref_put(&dtable, v, c, 0.0);
            }
        }
    }
    for (int64_t t = 0; t < dy.rows; t++) {
        int64_t row = loongi_embedding_row(attr, ids[t]);
        for (int64_t c = 0; c < (row < 0 ? 0 : dy.cols); c++) {
            ref_put(&dtable, row, c,
                    ref_at(&dtable, row, c) + ref_at(&dy, t, c));
        }
    }
    return LOONG_OK;
}

const loong_kernel_t loongi_embedding_ref = {
    .name = "embedding_ref", .op = "embedding", .device = "cpu",
    .run = forward};
const loong_kernel_t loongi_embedding_grad_ref = {
    .name = "embedding_grad_ref", .op = "embedding_grad", .device = "cpu",
    .run = backward};
