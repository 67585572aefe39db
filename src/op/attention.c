/* SPDX-License-Identifier: Apache-2.0
 *
 * attention and attention_grad; formulas in
 * kernels/attention/attention_ref.c. Called through the ops' tables and by
 * src/nn/context_attention.c and attention_ring.c. Read op_impl.h before. */
#include <string.h>

#include "op_impl.h"

/* Values of the attributes that need no operand to be judged. */
static loong_status_t check_attr(const loong_op_call_t *call)
{
    const loong_attention_attr_t *a = call->attr;
    LOONG_CHECK(call->ctx,
                a->heads > 0 && a->kv_heads > 0 && a->head_dim > 0 &&
                    a->v_head_dim >= 0 && a->heads % a->kv_heads == 0,
                LOONG_ERR_ARG,
                "%s: %d heads of %d channels with %d key heads; heads must be "
                "a multiple of key heads, all positive",
                call->op, a->heads, a->head_dim, a->kv_heads);
    LOONG_CHECK(call->ctx, a->window >= 0 && (a->window == 0 || a->causal),
                LOONG_ERR_ARG,
                "%s: window %lld; must be 0 or positive, and only with causal",
                call->op, (long long)a->window);
    LOONG_CHECK(call->ctx, a->dropout >= 0.0 && a->dropout < 1.0, LOONG_ERR_ARG,
                "%s: dropout %g, must be in [0, 1)", call->op, a->dropout);
    return LOONG_OK;
}

static int64_t v_dim(const loong_attention_attr_t *a)
{
    return a->v_head_dim > 0 ? a->v_head_dim : a->head_dim;
}

/* Operand i is [T, width], of the type of operand 0, T that of operand
 * `like`. */
static loong_status_t want_heads(const loong_op_call_t *call, int i,
                                 const char *name, int like, int64_t width)
{
    LOONG_TRY(loongi_want_rank(call, i, name, 2));
    LOONG_TRY(loongi_want_rows(call, i, name, like));
    LOONG_TRY(loongi_want_dtype(call, i, name, call->in[0].dtype));
    return loongi_want_dim(call, i, name, 1, width);
}

/* Optional operand i numbers the rows of operand `of`. */
static loong_status_t check_rows(const loong_op_call_t *call, int i,
                                 const char *name, int of)
{
    if (!loongi_has(call, i)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_want_rank(call, i, name, 1));
    LOONG_TRY(loongi_want_rows(call, i, name, of));
    return loongi_want_dtype(call, i, name, LOONG_I32);
}

/* Optional operand i has an end for each key, none of which is left out. */
static loong_status_t check_ends(const loong_op_call_t *call, int i)
{
    const loong_attention_attr_t *a = call->attr;
    if (!loongi_has(call, i)) {
        return LOONG_OK;
    }
    LOONG_CHECK(call->ctx,
                a->causal && a->window == 0 && !loongi_has(call, i - 1),
                LOONG_ERR_ARG,
                "%s: key_ends goes with causal, without window and key_rows",
                call->op);
    return check_rows(call, i, "key_ends", 2);
}

/* cu_seqlens, token_key, rows, key_rows and key_ends are operands cu .. cu + 4;
 * operand 0 has a row for each query, operand 2 one for each key. */
static loong_status_t check_sequence(const loong_op_call_t *call, int cu)
{
    const loong_attention_attr_t *a = call->attr;
    int64_t keys = call->in[2].shape.dim[0];
    int key = cu + 1;
    bool some_keys = loongi_has(call, cu + 3);
    LOONG_TRY(loongi_want_rank(call, cu, "cu_seqlens", 1));
    LOONG_TRY(loongi_want_dtype(call, cu, "cu_seqlens", LOONG_I32));
    LOONG_CHECK(call->ctx, call->in[cu].shape.dim[0] >= 2, LOONG_ERR_ARG,
                "%s: cu_seqlens has %lld entries, must be at least 2", call->op,
                (long long)call->in[cu].shape.dim[0]);
    LOONG_CHECK(call->ctx,
                a->max_seqlen >= 1 && (some_keys || a->max_seqlen <= keys),
                LOONG_ERR_ARG, "%s: max_seqlen %lld, must be in 1..%lld",
                call->op, (long long)a->max_seqlen, (long long)keys);
    LOONG_CHECK(call->ctx, loongi_has(call, key) == (a->dropout > 0.0),
                LOONG_ERR_ARG,
                "%s: token_key belongs to dropout %g: both or none", call->op,
                a->dropout);
    if (loongi_has(call, key)) {
        LOONG_TRY(loongi_want_rank(call, key, "token_key", 1));
        LOONG_TRY(loongi_want_rows(call, key, "token_key", 0));
        LOONG_TRY(loongi_want_dtype(call, key, "token_key", LOONG_I64));
    }
    if (!loongi_has(call, cu + 2) && !some_keys) {
        LOONG_TRY(loongi_want_rows(call, 0, "q", 2));
    }
    LOONG_TRY(check_rows(call, cu + 2, "rows", 0));
    LOONG_TRY(check_rows(call, cu + 3, "key_rows", 2));
    return check_ends(call, cu + 4);
}

static loong_tensor_type_t lse_type(const loong_op_call_t *call)
{
    const loong_attention_attr_t *a = call->attr;
    loong_tensor_type_t type = call->in[0];
    type.dtype = call->precision.wide;
    type.shape.dim[1] = a->heads;
    return type;
}

static loong_status_t attention_infer(const loong_op_call_t *call)
{
    const loong_attention_attr_t *a = call->attr;
    LOONG_TRY(check_attr(call));
    LOONG_TRY(want_heads(call, 0, "q", 0, (int64_t)a->heads * a->head_dim));
    LOONG_TRY(want_heads(call, 1, "k", 1, (int64_t)a->kv_heads * a->head_dim));
    LOONG_TRY(want_heads(call, 2, "v", 1, a->kv_heads * v_dim(a)));
    LOONG_TRY(check_sequence(call, 3));
    call->out[0] = call->in[0];
    call->out[0].shape.dim[1] = a->heads * v_dim(a);
    call->out[1] = lse_type(call);
    return LOONG_OK;
}

static loong_status_t attention_grad_infer(const loong_op_call_t *call)
{
    const loong_attention_attr_t *a = call->attr;
    LOONG_TRY(check_attr(call));
    LOONG_TRY(want_heads(call, 0, "do", 0, a->heads * v_dim(a)));
    LOONG_TRY(want_heads(call, 1, "q", 0, (int64_t)a->heads * a->head_dim));
    LOONG_TRY(want_heads(call, 2, "k", 2, (int64_t)a->kv_heads * a->head_dim));
    LOONG_TRY(want_heads(call, 3, "v", 2, a->kv_heads * v_dim(a)));
    LOONG_TRY(want_heads(call, 4, "o", 0, a->heads * v_dim(a)));
    LOONG_TRY(loongi_want_rank(call, 5, "lse", 2));
    LOONG_TRY(loongi_want_rows(call, 5, "lse", 0));
    LOONG_TRY(loongi_want_dim(call, 5, "lse", 1, a->heads));
    LOONG_TRY(loongi_want_dtype(call, 5, "lse", call->precision.wide));
    LOONG_TRY(check_sequence(call, 6));
    call->out[0] = call->in[1];
    call->out[1] = call->in[2];
    call->out[2] = call->in[3];
    return LOONG_OK;
}

/* Keys that a query sees on average, segments being as long as allowed. */
static double mean_keys(const loong_attention_attr_t *a)
{
    double n = (double)a->max_seqlen;
    double w = (double)a->window;
    if (!a->causal) {
        return n;
    }
    return a->window == 0 || w >= n ? (n + 1.0) / 2.0
                                    : w - w * (w - 1.0) / (2.0 * n);
}

/* Of so many products over the channels of keys, and of values. */
static double product_flops(const loong_kernel_query_t *q, double keys,
                            double values)
{
    const loong_attention_attr_t *a = q->attr;
    return 2.0 * (double)loong_karg_rows(&q->arg[0]) * a->heads *
           (keys * a->head_dim + values * (double)v_dim(a)) * mean_keys(a);
}

/* Two products forward, five backward (the scores are made again). */
static void attention_cost(const loong_kernel_query_t *q, loong_cost_t *cost)
{
    cost->flops = product_flops(q, 1.0, 1.0);
    cost->bytes = loongi_cost_bytes(q);
}

static void attention_grad_cost(const loong_kernel_query_t *q,
                                loong_cost_t *cost)
{
    cost->flops = product_flops(q, 3.0, 2.0);
    cost->bytes = loongi_cost_bytes(q);
}

static const loong_op_t attention_grad = {
    .name = "attention_grad",
    .attr_size = sizeof(loong_attention_attr_t),
    .min_in = 7,
    .max_in = 11,
    .num_out = 3,
    .strided_in = true,
    .strided_out = true,
    .infer = attention_grad_infer,
    .cost = attention_grad_cost,
};

const loong_op_t *const loongi_op_attention_grad = &attention_grad;

static loong_status_t differentiate(const loong_grad_call_t *call)
{
    loong_graph_t *g = call->graph;
    if (call->out_grad[0] == LOONG_NONE) {
        return LOONG_OK;
    }
    loong_val_t in[11] = {
        call->out_grad[0], call->in[0],  call->in[1],
        call->in[2],       call->out[0], call->out[1]};
    for (int i = 3; i < 8; i++) {
        in[i + 3] = i < call->num_in ? call->in[i] : LOONG_NONE;
    }
    loong_graph_apply(g, &attention_grad, call->attr, 11, in, 3,
                      call->in_grad);
    return loong_graph_status(g);
}

static const loong_op_t attention = {
    .name = "attention",
    .attr_size = sizeof(loong_attention_attr_t),
    .min_in = 4,
    .max_in = 8,
    .num_out = 2,
    .strided_in = true,
    .strided_out = true,
    .optional_out = 1u << 1,
    .infer = attention_infer,
    .grad = differentiate,
    .cost = attention_cost,
};

const loong_op_t *const loongi_op_attention = &attention;

loong_val_t loong_attention(loong_graph_t *g,
                            const loong_attention_operands_t *operands,
                            const loong_attention_attr_t *attr)
{
    loong_val_t out[2];
    return loongi_attention(g, operands, attr, out);
}

loong_val_t loongi_attention(loong_graph_t *g,
                             const loong_attention_operands_t *operands,
                             const loong_attention_attr_t *attr,
                             loong_val_t out[2])
{
    const loong_attention_operands_t *x = operands;
    loong_val_t in[8] = {x->q,         x->k,    x->v,        x->cu_seqlens,
                         x->token_key, x->rows, x->key_rows, x->key_ends};
    int count = 8;
    while (in[count - 1] == LOONG_NONE && count > 4) {
        count--;
    }
    return loong_graph_apply(g, &attention, attr, count, in, 2, out);
}
