/* SPDX-License-Identifier: Apache-2.0
 *
 * The feed-forward layer. Called by decoders, vision transformers and moe.c.
 * Read loong/nn.h and nn_impl.h before. */
#include "nn_impl.h"

/* Of [T, 2 width], gate beside up. */
static loong_val_t gated(loong_graph_t *g, loong_mlp_kind_t kind, loong_val_t x,
                         int64_t width)
{
    if (kind == LOONG_MLP_SWIGLU) {
        return loong_swiglu(g, x, LOONG_NONE);
    }
    loong_val_t gate = loong_slice(g, x, 0, width);
    loong_val_t up = loong_slice(g, x, width, width);
    return loong_multiply(g, loong_gelu(g, gate, LOONG_ACT_GELU_TANH), up);
}

loong_val_t loongi_nn_feed_forward(loong_nn_t *nn, loong_val_t x,
                                   const loong_nn_feed_forward_t *params)
{
    const loong_nn_feed_forward_t *p = params;
    int64_t ffn = p->ffn;
    loong_nn_slice_t share = loong_nn_slice(nn, ffn);
    const loong_nn_column_t columns[2] = {
        {"gate_proj", share, false, LOONG_GROUP_TP, "gate_up_proj"},
        {"up_proj", share, false, LOONG_GROUP_TP, "gate_up_proj"},
    };
    static const loong_activation_t forms[] = {
        [LOONG_MLP_GELU] = LOONG_ACT_GELU,
        [LOONG_MLP_GELU_TANH] = LOONG_ACT_GELU_TANH,
        [LOONG_MLP_QUICK_GELU] = LOONG_ACT_QUICK_GELU};
    loong_graph_t *g = nn->graph;
    loong_val_t h;
    loong_graph_push(g, "%s", p->scope);
    x = loong_nn_enter(nn, x);
    if (p->kind == LOONG_MLP_SWIGLU || p->kind == LOONG_MLP_GEGLU_TANH) {
        h = loong_nn_column_linear(nn, 2, columns, x, p->bias);
        h = gated(g, p->kind, h, share.count);
    } else {
        loong_nn_column_t up = columns[1];
        up.fused = NULL;
        h = loong_nn_column_linear(nn, 1, &up, x, p->bias);
        h = loong_gelu(g, h, forms[p->kind]);
    }
    h = loong_nn_row_linear(nn, "down_proj", h, share, p->hidden, p->bias);
    h = loong_nn_leave(nn, h);
    loong_graph_pop(g);
    return h;
}

loong_val_t loong_nn_mlp(loong_nn_t *nn, loong_val_t x, loong_mlp_kind_t kind,
                          int64_t hidden, int64_t ffn, bool bias)
{
    loong_nn_feed_forward_t p = {"mlp", kind, hidden, ffn, bias};
    return loongi_nn_feed_forward(nn, x, &p);
}
