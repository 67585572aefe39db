/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_merge: attention over two sets of keys from the results over each,
 * o_a with lse_a and o_b with lse_b, by row and head:
 *
 *     lse = ln(exp(lse_a) + exp(lse_b))
 *     o = exp(lse_a - lse) o_a + exp(lse_b - lse) o_b
 *
 * lse is minus infinity and o zero where a query saw no key of a set. Listed as
 * a reference in kernels/list.h; read ref.h before. */
#include "ref.h"

static loong_status_t run(const loong_kernel_call_t *call)
{
    ref_mat_t a = ref_arg(call, 0);
    ref_mat_t lse_a = ref_arg(call, 1);
    ref_mat_t b = ref_arg(call, 2);
    ref_mat_t lse_b = ref_arg(call, 3);
    ref_mat_t o = ref_out(call, 0);
    ref_mat_t lse = ref_out(call, 1);
    int64_t width = o.cols / lse.cols;
    for (int64_t t = 0; t < o.rows; t++) {
        for (int64_t h = 0; h < lse.cols; h++) {
            double la = ref_at(&lse_a, t, h);
            double lb = ref_at(&lse_b, t, h);
            double top = fmax(la, lb);
            bool any = top > -INFINITY;
            double both =
                any ? top + log(exp(la - top) + exp(lb - top)) : top;
            double wa = any ? exp(la - both) : 0.0;
            double wb = any ? exp(lb - both) : 0.0;
            for (int64_t c = h * width; c < (h + 1) * width; c++) {
                ref_put(&o, t, c, wa * ref_at(&a, t, c) +
                                      wb * ref_at(&b, t, c));
            }
            ref_put(&lse, t, h, both);
        }
    }
    return LOONG_OK;
}

const loong_kernel_t loongi_attention_merge_ref = {
    .name = "attention_merge_ref",
    .op = "attention_merge",
    .device = "cpu",
    .run = run,
};
