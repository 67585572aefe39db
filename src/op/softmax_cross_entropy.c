/* SPDX-License-Identifier: Apache-2.0
 *
 * softmax_cross_entropy and its gradient; formulas in
 * kernels/cross_entropy/logits_ref.c. Called through the ops' tables and by
 * src/model/vision/vision.c. Read op_impl.h before. */
#include "op_impl.h"

static loong_status_t want_logits(const loong_op_call_t *call)
{
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_float(call, 0, "x"));
    LOONG_TRY(loongi_want_rank(call, 1, "labels", 1));
    LOONG_TRY(loongi_want_dtype(call, 1, "labels", LOONG_I32));
    LOONG_TRY(loongi_want_rows(call, 1, "labels", 0));
    return loongi_want_vector(call, 2, "loss_weight", call->in[0].shape.dim[0]);
}

static loong_status_t infer(const loong_op_call_t *call)
{
    LOONG_TRY(want_logits(call));
    call->out[0] = call->in[2];
    call->out[1] = call->in[2];
    return LOONG_OK;
}

static loong_status_t infer_grad(const loong_op_call_t *call)
{
    int64_t rows = call->in[0].shape.dim[0];
    LOONG_TRY(want_logits(call));
    LOONG_TRY(loongi_want_vector(call, 3, "lse", rows));
    LOONG_TRY(loongi_want_vector(call, 4, "dloss", rows));
    call->out[0] = call->in[0];
    return LOONG_OK;
}

/* Classes in turn. */
static void example(const loong_kernel_query_t *q, int i, void *data)
{
    const loong_karg_t *x = &q->arg[0];
    int32_t *labels = data;
    (void)i;
    for (int64_t t = 0; t < loong_karg_rows(x); t++) {
        labels[t] = (int32_t)(t % loong_karg_cols(x));
    }
}

static const loong_op_t softmax_cross_entropy_grad = {
    .name = "softmax_cross_entropy_grad",
    .min_in = 5,
    .max_in = 5,
    .num_out = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_grad,
    .example = example,
};
const loong_op_t *const loongi_op_softmax_cross_entropy_grad =
    &softmax_cross_entropy_grad;

static loong_status_t grad(const loong_grad_call_t *call)
{
    loong_val_t in[5] = {call->in[0], call->in[1], call->in[2], call->out[1],
                         call->out_grad[0]};
    LOONG_CHECK(loong_graph_context(call->graph),
                call->out_grad[1] == LOONG_NONE, LOONG_ERR_UNSUPPORTED,
                "softmax_cross_entropy: a gradient of lse, only that of the "
                "loss is taken");
    loong_graph_apply(call->graph, &softmax_cross_entropy_grad, NULL, 5, in, 1,
                      &call->in_grad[0]);
    return LOONG_OK;
}

static const loong_op_t softmax_cross_entropy = {
    .name = "softmax_cross_entropy",
    .min_in = 3,
    .max_in = 3,
    .num_out = 2,
    .strided_in = true,
    .infer = infer,
    .grad = grad,
    .example = example,
};
const loong_op_t *const loongi_op_softmax_cross_entropy =
    &softmax_cross_entropy;

loong_val_t loong_softmax_cross_entropy(loong_graph_t *g, loong_val_t x,
                                        loong_val_t labels,
                                        loong_val_t loss_weight)
{
    loong_val_t in[3] = {x, labels, loss_weight};
    loong_val_t loss = LOONG_NONE;
    return loong_graph_apply(g, &softmax_cross_entropy, NULL, 3, in, 1, &loss);
}
