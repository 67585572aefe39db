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

#ifdef __cplusplus
}
#endif

#endif
