/* SPDX-License-Identifier: Apache-2.0
 *
 * latent_keys; formulas in kernels/latent/latent_ref.c. Called through the ops'
 * tables and by src/nn/latent.c. Read loong/latent.h and op_impl.h before. */
#include "loong/latent.h"
#include "op_impl.h"

static loong_status_t want_attr(const loong_op_call_t *call)
{
    const loong_latent_attr_t *a = call->attr;
    LOONG_CHECK(call->ctx,
                a->heads > 0 && a->nope > 0 && a->rope > 0 && a->v > 0,
                LOONG_ERR_ARG,
                "%s: %d heads of %d and %d channels with values of %d, all "
                "must be positive",
                call->op, a->heads, a->nope, a->rope, a->v);
    return LOONG_OK;
}

/* Operand i is [T, width], like operand 0 in rows and type. */
static loong_status_t want_width(const loong_op_call_t *call, int i,
                                 const char *name, int64_t width)
{
    LOONG_TRY(loongi_want_rank(call, i, name, 2));
    LOONG_TRY(loongi_want_float(call, i, name));
    LOONG_TRY(loongi_want_dtype(call, i, name, call->in[0].dtype));
    LOONG_TRY(loongi_want_rows(call, i, name, 0));
    return loongi_want_dim(call, i, name, 1, width);
}

static void set_width(const loong_op_call_t *call, int out, int64_t width)
{
    call->out[out] = call->in[0];
    call->out[out].shape.dim[1] = width;
}

static loong_status_t infer(const loong_op_call_t *call)
{
    const loong_latent_attr_t *a = call->attr;
    LOONG_TRY(want_attr(call));
    LOONG_TRY(want_width(call, 0, "kv", (int64_t)a->heads * (a->nope + a->v)));
    LOONG_TRY(want_width(call, 1, "shared", a->rope));
    set_width(call, 0, (int64_t)a->heads * (a->nope + a->rope));
    set_width(call, 1, (int64_t)a->heads * a->v);
    return LOONG_OK;
}

static loong_status_t infer_grad(const loong_op_call_t *call)
{
    const loong_latent_attr_t *a = call->attr;
    LOONG_TRY(want_attr(call));
    LOONG_TRY(
        want_width(call, 0, "dkeys", (int64_t)a->heads * (a->nope + a->rope)));
    LOONG_TRY(want_width(call, 1, "dvalues", (int64_t)a->heads * a->v));
    set_width(call, 0, (int64_t)a->heads * (a->nope + a->v));
    set_width(call, 1, a->rope);
    return LOONG_OK;
}

static const loong_op_t latent_keys_grad = {
    .name = "latent_keys_grad",
    .attr_size = sizeof(loong_latent_attr_t),
    .min_in = 2,
    .max_in = 2,
    .num_out = 2,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_grad,
};
const loong_op_t *const loongi_op_latent_keys_grad = &latent_keys_grad;

static loong_status_t grad(const loong_grad_call_t *call)
{
    loong_graph_apply(call->graph, &latent_keys_grad, call->attr, 2,
                      call->out_grad, 2, call->in_grad);
    return loong_graph_status(call->graph);
}

static const loong_op_t latent_keys = {
    .name = "latent_keys",
    .attr_size = sizeof(loong_latent_attr_t),
    .min_in = 2,
    .max_in = 2,
    .num_out = 2,
    .strided_in = true,
    .strided_out = true,
    .infer = infer,
    .grad = grad,
};
const loong_op_t *const loongi_op_latent_keys = &latent_keys;

void loong_latent_keys(loong_graph_t *g, loong_val_t kv, loong_val_t shared,
                       const loong_latent_attr_t *attr, loong_val_t *keys_p,
                       loong_val_t *values_p)
{
    loong_val_t in[2] = {kv, shared};
    loong_val_t out[2] = {LOONG_NONE, LOONG_NONE};
    loong_graph_apply(g, &latent_keys, attr, 2, in, 2, out);
    *keys_p = out[0];
    *values_p = out[1];
}
