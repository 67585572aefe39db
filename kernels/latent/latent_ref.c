/* SPDX-License-Identifier: Apache-2.0
 *
 * latent_keys and its gradient. Of head h, with n, r and v channels:
 *
 *     keys_h = (kv_h[0 .. n-1], shared)       values_h = kv_h[n .. n+v-1]
 *     dkv_h = (dkeys_h[0 .. n-1], dvalues_h)
 *     dshared = sum over h of dkeys_h[n .. n+r-1], heads ascending
 *
 * Listed as references in kernels/list.h; read loong/latent.h before. */
#include "list.h"
#include "loong/latent.h"
#include "ref.h"

static loong_status_t keys(const loong_kernel_call_t *call)
{
    const loong_latent_attr_t *a = call->query->attr;
    ref_mat_t kv = ref_arg(call, 0);
    ref_mat_t shared = ref_arg(call, 1);
    ref_mat_t k = ref_out(call, 0);
    ref_mat_t v = ref_out(call, 1);
    for (int64_t t = 0; t < kv.rows; t++) {
        for (int h = 0; h < a->heads; h++) {
            int64_t from = (int64_t)h * (a->nope + a->v);
            int64_t to = (int64_t)h * (a->nope + a->rope);
            for (int i = 0; i < a->nope; i++) {
                ref_put(&k, t, to + i, ref_at(&kv, t, from + i));
            }
            for (int i = 0; i < a->rope; i++) {
                ref_put(&k, t, to + a->nope + i, ref_at(&shared, t, i));
            }
            for (int i = 0; i < a->v; i++) {
                ref_put(&v, t, (int64_t)h * a->v + i,
                        ref_at(&kv, t, from + a->nope + i));
            }
        }
    }
    return LOONG_OK;
}

static loong_status_t keys_grad(const loong_kernel_call_t *call)
{
    const loong_latent_attr_t *a = call->query->attr;
    ref_mat_t k = ref_arg(call, 0);
    ref_mat_t v = ref_arg(call, 1);
    ref_mat_t kv = ref_out(call, 0);
    ref_mat_t shared = ref_out(call, 1);
    for (int64_t t = 0; t < k.rows; t++) {
        for (int h = 0; h < a->heads; h++) {
            int64_t to = (int64_t)h * (a->nope + a->v);
            int64_t from = (int64_t)h * (a->nope + a->rope);
            for (int i = 0; i < a->nope; i++) {
                ref_put(&kv, t, to + i, ref_at(&k, t, from + i));
            }
            for (int i = 0; i < a->v; i++) {
                ref_put(&kv, t, to + a->nope + i,
                        ref_at(&v, t, (int64_t)h * a->v + i));
            }
        }
        for (int i = 0; i < a->rope; i++) {
            double sum = 0.0;
            for (int h = 0; h < a->heads; h++) {
                sum += ref_at(&k, t,
                              (int64_t)h * (a->nope + a->rope) + a->nope + i);
            }
            ref_put(&shared, t, i, sum);
        }
    }
    return LOONG_OK;
}

const loong_kernel_t loongi_latent_keys_ref = {.name = "latent_keys_ref",
                                               .op = "latent_keys",
                                               .device = "cpu",
                                               .run = keys};
const loong_kernel_t loongi_latent_keys_grad_ref = {.name =
                                                        "latent_keys_grad_ref",
                                                    .op = "latent_keys_grad",
                                                    .device = "cpu",
                                                    .run = keys_grad};
