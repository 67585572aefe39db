/* SPDX-License-Identifier: Apache-2.0
 *
 * y = x / (1 - p) where the draw is >= p, else 0 (Srivastava et al. 2014). The
 * draw of a channel is 24 bits of word (channel mod 4) of the Philox block
 * with counter (key low, key high, channel / 4, step) and a key mixed of seed
 * and stream; the first channel of x is `first` of the whole. Listed as a
 * reference in kernels/list.h; read ref.h and dropout.h before. */
#include "dropout.h"
#include "list.h"
#include "ref.h"

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_dropout_attr_t *a = call->query->attr;
    ref_mat_t x = ref_arg(call, 0);
    const int64_t *keys = call->ptr[1];
    ref_mat_t y = ref_out(call, 0);
    uint64_t key = loongi_dropout_key(call->frame->seed, a->stream);
    uint32_t limit = loongi_dropout_limit(a->p);
    double factor = 1.0 / (1.0 - a->p);
#pragma omp parallel for
    for (int64_t t = 0; t < x.rows; t++) {
        uint32_t words[4];
        for (int64_t c = 0; c < x.cols; c++) {
            int64_t channel = a->first + c;
            if (c == 0 || channel % 4 == 0) {
                loongi_dropout_words(key, call->frame->step, keys[t],
                                     (uint32_t)(channel / 4), words);
            }
            bool keep = words[channel % 4] >> 8 >= limit;
            ref_put(&y, t, c, keep ? ref_at(&x, t, c) * factor : 0.0);
        }
    }
    return LOONG_OK;
}

const loong_kernel_t loongi_dropout_ref = {
    .name = "dropout_ref", .op = "dropout", .device = "cpu", .run = run};
