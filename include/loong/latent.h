/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-head latent attention (DeepSeek-V2, 2024): keys and values of all heads
 * are made from one short vector of the token, positions enter by a few
 * channels of their own, which all heads share.
 */
#ifndef LOONG_LATENT_H
#define LOONG_LATENT_H

#include "loong/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* latent_keys: kv [T,heads*(n+v)] (n channels of a key, then v of a value, head
 * after head), shared [T,r] -> keys [T,heads*(n+r)], of which every head ends
 * with the shared channels, and values [T,heads*v].
 * latent_keys_grad: dkeys, dvalues -> dkv, dshared, which sums over heads. */
typedef struct loong_latent_attr {
    int heads;
    int nope; /* n */
    int rope; /* r */
    int v;
} loong_latent_attr_t;
LOONG_API void loong_latent_keys(loong_graph_t *g, loong_val_t kv,
                                 loong_val_t shared,
                                 const loong_latent_attr_t *attr,
                                 loong_val_t *keys_p, loong_val_t *values_p);

/* head_linear: every head has rows of its own in one matrix. x [T*heads,K], the
 * heads of a token one below the other; w [heads*stride,R], of which head h has
 * the rows w_h = w[h*stride + first ..] of `count`:
 *     y_h = x_h w_h' [T*heads,count], K = R; with `transposed`
 *     y_h = x_h w_h  [T*heads,R],     K = count.
 * head_linear_dw: dy, x -> dw [heads*stride,R], wide; the other rows are 0, or
 * as they were when it adds. */
typedef struct loong_head_linear_attr {
    int heads;
    int64_t stride;
    int64_t first;
    int64_t count;
    bool transposed;
} loong_head_linear_attr_t;
LOONG_API loong_val_t loong_head_linear(loong_graph_t *g, loong_val_t x,
                                        loong_val_t w,
                                        const loong_head_linear_attr_t *attr);

#ifdef __cplusplus
}
#endif

#endif
