/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-head latent attention. Called by src/model/foundation/decoder.c. Read
 * loong/latent.h, context_attention.h and nn_impl.h before. */
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
    loong_nn_slice_t heads; /* of this rank */
} latent_t;

/* What attention works with. */
typedef struct head_sizes {
    int keys;    /* heads of them */
    int width;   /* of queries and keys */
    int v_width; /* of values and outputs */
} head_sizes_t;

/* x times a matrix that every rank of TP has. */
static loong_val_t shorten(latent_t *m, const char *name, loong_val_t x,
                           int64_t width)
{
    char full[LOONG_NN_NAME];
    loong_nn_start_t start = {LOONG_INIT_NORMAL, m->nn->init_std};
    loong_graph_push(m->g, "%s", name);
    loong_param_params_t p = loongi_nn_describe(
        m->nn, "weight", loong_shape_2d(width, m->p->hidden), start, full);
    p.place = loongi_nn_whole(m->nn, LOONG_GROUP_TP, m->nn->sequence_parallel);
    loongi_nn_quantize(m->nn, &p);
    loong_val_t w = loong_graph_param(m->g, &p);
    loong_val_t b = m->p->short_bias ? loong_nn_vector(m->nn, "bias", width,
                                                       LOONG_INIT_ZEROS)
                                     : LOONG_NONE;
    loong_nn_product_t product = loongi_nn_product(
        m->nn, &p, x, w, b, loongi_nn_has_magnitude(m->nn, ""));
    loong_val_t y = loongi_nn_adapt_stream(m->nn, &product);
    loong_graph_pop(m->g);
    return y;
}

/* To this rank's heads, `width` channels each. */
static loong_val_t spread(latent_t *m, const char *name, loong_val_t x,
                          int64_t width)
{
    loong_nn_column_t column = {name, loongi_nn_channels(m->heads, width),
                                false, LOONG_GROUP_TP, NULL};
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
    return loong_rope_partial(m->g, x, m->sequence->rope_table, &attr);
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

/* What keys and values are made of, on all rows: the short vector of each
 * token, and its rotated channels. */
static void short_keys(latent_t *m, loong_val_t x, loong_val_t *kv_p,
                       loong_val_t *shared_p)
{
    const loong_nn_latent_t *p = m->p;
    x = shorten(m, "kv_a_proj_with_mqa", x, p->kv_rank + p->rope);
    loong_val_t kv = loong_slice(m->g, x, 0, p->kv_rank);
    loong_val_t shared = loong_slice(m->g, x, p->kv_rank, p->rope);
    kv = norm(m, "kv_a_layernorm", kv, p->kv_rank);
    *kv_p = loong_nn_enter(m->nn, kv);
    *shared_p = rotate(m, loong_nn_enter(m->nn, shared), p->rope);
}

static loong_val_t attend(latent_t *m, const loong_val_t qkv[3],
                          const head_sizes_t *sizes)
{
    const loong_nn_latent_t *p = m->p;
    const loong_nn_sequence_t *s = m->sequence;
    loong_attention_attr_t attr;
    memset(&attr, 0, sizeof(attr));
    attr.heads = (int)m->heads.count;
    attr.kv_heads = sizes->keys;
    attr.first_head = (int)m->heads.begin;
    attr.head_dim = sizes->width;
    attr.v_head_dim = sizes->v_width;
    attr.causal = true;
    attr.max_seqlen = p->max_seqlen;
    attr.scale = p->scale;
    attr.dropout = p->dropout;
    attr.stream = p->stream;
    loong_attention_operands_t operands = {qkv[0],
                                           qkv[1],
                                           qkv[2],
                                           s->cu_seqlens,
                                           p->dropout > 0.0 ? s->token_key
                                                            : LOONG_NONE,
                                           LOONG_NONE,
                                           LOONG_NONE,
                                           s->key_ends};
    loong_graph_push(m->g, "core");
    loong_val_t o = loongi_context_attention(m->nn, &operands, &attr);
    loong_graph_pop(m->g);
    return o;
}

/* Keys and values of every head. */
static loong_val_t plain(latent_t *m, loong_val_t q, loong_val_t x)
{
    const loong_nn_latent_t *p = m->p;
    int heads = (int)m->heads.count;
    loong_latent_attr_t attr = {heads, p->nope, p->rope, p->v_head_dim};
    head_sizes_t sizes = {heads, p->nope + p->rope, p->v_head_dim};
    loong_val_t qkv[3] = {q, LOONG_NONE, LOONG_NONE};
    loong_val_t kv = LOONG_NONE;
    loong_val_t shared = LOONG_NONE;
    short_keys(m, x, &kv, &shared);
    kv = spread(m, "kv_b_proj", kv, p->nope + p->v_head_dim);
    loong_latent_keys(m->g, kv, shared, &attr, &qkv[1], &qkv[2]);
    return attend(m, qkv, &sizes);
}

/* ---- the absorbed form --------------------------------------------------- */

bool loong_nn_latent_absorbs(int64_t kv_rank, int nope, int v_head_dim)
{
    return 2 * kv_rank < nope + v_head_dim;
}

/* [T, heads * width] -> [T * heads, width], and back. */
static loong_val_t apart(latent_t *m, loong_val_t x, int64_t width)
{
    loong_shape_t shape = loong_value_shape(m->g, x);
    int64_t rows = shape.dim[0] * m->heads.count;
    return loong_reshape(m->g, x, loong_shape_2d(rows, width));
}

static loong_val_t together(latent_t *m, loong_val_t x)
{
    loong_shape_t shape = loong_value_shape(m->g, x);
    int64_t rows = shape.dim[0] / m->heads.count;
    return loong_reshape(
        m->g, x, loong_shape_2d(rows, shape.dim[1] * m->heads.count));
}

/* Through the key rows of each head's part of kv_b_proj, or its value rows. */
static loong_val_t through(latent_t *m, loong_val_t x, loong_val_t w,
                           bool values)
{
    const loong_nn_latent_t *p = m->p;
    loong_head_linear_attr_t attr = {
        (int)m->heads.count, p->nope + p->v_head_dim, values ? p->nope : 0,
        values ? p->v_head_dim : p->nope, !values};
    return loong_head_linear(m->g, x, w, &attr);
}

static loong_val_t absorbed(latent_t *m, loong_val_t q, loong_val_t x)
{
    const loong_nn_latent_t *p = m->p;
    int rank = (int)p->kv_rank;
    head_sizes_t sizes = {1, rank + p->rope, rank};
    loong_val_t key[2] = {LOONG_NONE, LOONG_NONE};
    if (loongi_nn_has_adapter(m->nn, "kv_b_proj")) {
        return loong_graph_fail(
            m->g, LOONG_ERR_UNSUPPORTED,
            "%s.kv_b_proj: no adapter goes with the absorbed form of latent "
            "attention, which does not multiply by this matrix: leave it out "
            "of finetune.target_modules, or take mla_absorb: false",
            loong_graph_scope(m->g));
    }
    short_keys(m, x, &key[0], &key[1]);
    loong_val_t w = loong_nn_table(
        m->nn, "kv_b_proj.weight",
        loongi_nn_channels(m->heads, p->nope + p->v_head_dim), p->kv_rank,
        m->nn->init_std);
    q = apart(m, q, p->nope + p->rope);
    loong_val_t query[2] = {
        through(m, loong_slice(m->g, q, 0, p->nope), w, false),
        loong_slice(m->g, q, p->nope, p->rope)};
    loong_val_t qkv[3] = {together(m, loong_concat(m->g, 2, query)),
                          loong_concat(m->g, 2, key), LOONG_NONE};
    loong_val_t o = attend(m, qkv, &sizes);
    return together(m, through(m, apart(m, o, rank), w, true));
}

loong_val_t loong_nn_latent_attention(loong_nn_t *nn, loong_val_t x,
                                      const loong_nn_latent_t *params,
                                      const loong_nn_sequence_t *sequence)
{
    const loong_nn_latent_t *p = params;
    latent_t m = {nn, nn->graph, p, sequence, loong_nn_slice(nn, p->heads)};
    loong_graph_push(m.g, "self_attn");
    loong_val_t q = queries(&m, x);
    loong_val_t o = p->absorb ? absorbed(&m, q, x) : plain(&m, q, x);
    o = loong_nn_row_linear(nn, "o_proj", o,
                            loongi_nn_channels(m.heads, p->v_head_dim),
                            p->hidden, p->output_bias);
    o = loong_nn_leave(nn, o);
    loong_graph_pop(m.g);
    return o;
}
