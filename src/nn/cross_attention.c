/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention whose queries are of other rows than its keys, which are of both.
 * Called by models that resample. Read nn_impl.h before. */
#include <string.h>

#include "loong/collective.h"
#include "nn_impl.h"

/* Rows of both, sorted by segment. */
static loong_val_t both_rows(loong_graph_t *g, loong_val_t x,
                             loong_val_t context,
                             const loong_nn_cross_rows_t *rows)
{
    return loong_select_rows(g, loong_gather_rows(g, context, rows->context),
                             loong_gather_rows(g, x, rows->own), rows->is_own);
}

loong_val_t loong_nn_cross_attention(loong_nn_t *nn, loong_val_t x,
                                     loong_val_t context,
                                     const loong_nn_attention_t *params,
                                     const loong_nn_cross_rows_t *rows)
{
    const loong_nn_attention_t *p = params;
    loong_graph_t *g = nn->graph;
    loong_nn_heads_t h =
        loong_nn_heads(loong_graph_mesh(g), p->heads, p->kv_heads);
    loong_nn_slice_t q = loongi_nn_channels(h.q, p->head_dim);
    loong_nn_slice_t kv = loongi_nn_channels(h.kv, p->head_dim);
    const loong_nn_column_t columns[3] = {
        {"q_proj", q, false, LOONG_GROUP_KV, NULL},
        {"k_proj", kv, h.shared, LOONG_GROUP_KV, NULL},
        {"v_proj", kv, h.shared, LOONG_GROUP_KV, NULL},
    };
    const loong_attention_attr_t attr = {
        .heads = (int)h.q.count,
        .kv_heads = (int)h.kv.count,
        .first_head = (int)h.q.begin,
        .head_dim = p->head_dim,
        .max_seqlen = p->max_seqlen,
        .scale = p->scale,
    };
    loong_graph_push(g, "self_attn");
    x = loong_nn_enter(nn, x);
    loong_val_t all = both_rows(g, x, loong_nn_enter(nn, context), rows);
    loong_val_t both =
        loong_nn_column_linear(nn, 2, columns + 1, all, p->qkv_bias);
    const loong_attention_operands_t operands = {
        loong_nn_column_linear(nn, 1, columns, x, p->qkv_bias),
        loong_slice(g, both, 0, kv.count),
        loong_slice(g, both, kv.count, kv.count),
        rows->cu_seqlens,
        LOONG_NONE,
        rows->places,
        LOONG_NONE,
        LOONG_NONE};
    loong_graph_push(g, "core");
    loong_val_t o = loong_attention(g, &operands, &attr);
    loong_graph_pop(g);
    o = loong_nn_row_linear(nn, "o_proj", o, q, p->hidden, p->output_bias);
    o = loong_nn_leave(nn, o);
    loong_graph_pop(g);
    return o;
}
