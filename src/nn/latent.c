/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-head latent attention. */
#include "loong/latent.h"

#include <string.h>

#include "context_attention.h"
#include "nn_impl.h"

/* What the published classes add to the variance of the short vectors,
 * whatever rms_norm_eps is. */
#define LATENT_EPS 1e-6

typedef struct latent {
    loong_nn_t *nn;
    loong_graph_t *g;
    const loong_nn_latent_t *p;
    const loong_nn_sequence_t *sequence;
    loong_nn_share_t heads; /* of this rank */
} latent_t;

/* x times a matrix that every rank of TP has. */
static loong_val_t shorten(latent_t *m, const char *name, loong_val_t x,
                           int64_t width)
{
    loong_graph_push(m->g, "%s", name);
    loong_val_t w =
        loong_nn_matrix(m->nn, "weight", width, m->p->hidden, m->nn->init_std);
    x = loong_linear(m->g, x, w, LOONG_NONE);
    loong_graph_pop(m->g);
    return x;
}

/* To this rank's heads, `width` channels each. */
static loong_val_t spread(latent_t *m, const char *name, loong_val_t x,
                          int64_t width)
{
    loong_nn_column_t column = {name, loongi_nn_channels(m->heads, width),
                                false, LOONG_GROUP_TP};
    return loong_nn_column_linear(m->nn, 1, &column, x, false);
}

static loong_val_t norm(latent_t *m, const char *name, loong_val_t x,
                        int64_t width)
{
    return loong_nn_norm(m->nn, name, LOONG_NORM_RMS, x, width, LATENT_EPS);
}

/* The last channels of every head. */
static loong_val_t rotate(latent_t *m, loong_val_t x, int head_dim)
{
    loong_rope_attr_t attr = {head_dim, m->p->interleaved, false,
                              head_dim - m->p->rope};
    return loong_rope_part(m->g, x, m->sequence->rope_table, &attr);
}

static loong_val_t queries(latent_t *m, loong_val_t x)
{
    const loong_nn_latent_t *p = m->p;
    int width = p->nope + p->rope;
    if (p->q_rank == 0) {
        x = spread(m, "q_proj", loong_nn_enter(m->nn, x), width);
    } else {
        x = shorten(m, "q_a_proj", x, p->q_rank);
        x = norm(m, "q_a_layernorm", x, p->q_rank);
        x = spread(m, "q_b_proj", loong_nn_enter(m->nn, x), width);
    }
    return rotate(m, x, width);
}

static void keys_and_values(latent_t *m, loong_val_t x, loong_val_t *k_p,
                            loong_val_t *v_p)
{
    const loong_nn_latent_t *p = m->p;
    loong_latent_attr_t attr = {(int)m->heads.count, p->nope, p->rope,
                                p->v_head_dim};
    x = shorten(m, "kv_a_proj_with_mqa", x, p->kv_rank + p->rope);
    loong_val_t kv = loong_slice(m->g, x, 0, p->kv_rank);
    loong_val_t shared = loong_slice(m->g, x, p->kv_rank, p->rope);
    kv = norm(m, "kv_a_layernorm", kv, p->kv_rank);
    kv = spread(m, "kv_b_proj", loong_nn_enter(m->nn, kv),
                p->nope + p->v_head_dim);
    shared = rotate(m, loong_nn_enter(m->nn, shared), p->rope);
    loong_latent_keys(m->g, kv, shared, &attr, k_p, v_p);
}

static loong_val_t attend(latent_t *m, loong_val_t q, loong_val_t k,
                          loong_val_t v)
{
    const loong_nn_latent_t *p = m->p;
    const loong_nn_sequence_t *s = m->sequence;
    loong_attention_attr_t attr;
    memset(&attr, 0, sizeof(attr));
    attr.heads = attr.kv_heads = (int)m->heads.count;
    attr.first_head = (int)m->heads.begin;
    attr.head_dim = p->nope + p->rope;
    attr.v_head_dim = p->v_head_dim;
    attr.causal = true;
    attr.max_seqlen = p->max_seqlen;
    attr.scale = p->scale;
    attr.dropout = p->dropout;
    attr.stream = p->stream;
    loong_attention_operands_t operands = {q,
                                           k,
                                           v,
                                           s->cu_seqlens,
                                           p->dropout > 0.0 ? s->token_key
                                                            : LOONG_NONE,
                                           LOONG_NONE,
                                           LOONG_NONE};
    loong_graph_push(m->g, "core");
    loong_val_t o = loongi_context_attention(m->nn, &operands, &attr);
    loong_graph_pop(m->g);
    return o;
}

loong_val_t loong_nn_latent_attention(loong_nn_t *nn, loong_val_t x,
                                      const loong_nn_latent_t *params,
                                      const loong_nn_sequence_t *sequence)
{
    const loong_nn_latent_t *p = params;
    latent_t m = {nn, nn->graph, p, sequence, loong_nn_share(nn, p->heads)};
    loong_val_t k = LOONG_NONE;
    loong_val_t v = LOONG_NONE;
    loong_graph_push(m.g, "self_attn");
    loong_val_t q = queries(&m, x);
    keys_and_values(&m, x, &k, &v);
    loong_val_t o = attend(&m, q, k, v);
    o = loong_nn_row_linear(nn, "o_proj", o,
                            loongi_nn_channels(m.heads, p->v_head_dim),
                            p->hidden, false);
    o = loong_nn_leave(nn, o);
    loong_graph_pop(m.g);
    return o;
}
