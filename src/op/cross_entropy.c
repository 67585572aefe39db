/* SPDX-License-Identifier: Apache-2.0
 *
 * cross_entropy; formulas in kernels/cross_entropy/cross_entropy_ref.c. */
#include "graph_impl.h"
#include "graph_impl.h"
#include "op_impl.h"

static loong_status_t infer(const loong_op_call_t *call)
{
    const loong_cross_entropy_attr_t *a = call->attr;
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_rank(call, 1, "w", 2));
    LOONG_TRY(loongi_want_dim(call, 1, "w", 1, call->in[0].shape.dim[1]));
    LOONG_TRY(loongi_want_dtype(call, 1, "w", call->in[0].dtype));
    LOONG_TRY(loongi_want_rank(call, 2, "labels", 1));
    LOONG_TRY(loongi_want_rows(call, 2, "labels", 0));
    LOONG_TRY(loongi_want_dtype(call, 2, "labels", LOONG_I32));
    LOONG_TRY(loongi_want_rank(call, 3, "loss_weight", 1));
    LOONG_TRY(loongi_want_rows(call, 3, "loss_weight", 0));
    LOONG_TRY(loongi_want_dtype(call, 3, "loss_weight", call->precision.wide));
    int64_t rows = call->in[1].shape.dim[0];
    bool whole = a->size <= 1;
    LOONG_CHECK(call->ctx,
                a->vocab >= 1 && a->begin >= 0 && a->begin < a->vocab &&
                    (!whole || (a->begin == 0 && a->vocab <= rows)),
                LOONG_ERR_ARG, "%s: vocab %lld, w has %lld rows from %lld on",
                call->op, (long long)a->vocab, (long long)rows,
                (long long)a->begin);
    LOONG_CHECK(call->ctx, a->loss >= 0 && a->loss < LOONG_MAX_LOSSES,
                LOONG_ERR_ARG, "%s: loss %d, at most %d are allowed", call->op,
                a->loss, LOONG_MAX_LOSSES);
    call->out[0] = call->in[3];
    call->out[1] = call->in[0];
    call->out[2].dtype = call->precision.wide;
    call->out[2].shape = call->in[1].shape;
    return LOONG_OK;
}

/* The forward has made the gradients already. */
static loong_status_t grad(const loong_grad_call_t *call)
{
    LOONG_CHECK(loong_graph_context(call->graph),
                call->out_grad[0] == LOONG_NONE, LOONG_ERR_UNSUPPORTED,
                "cross_entropy: its loss must not be computed with: declare "
                "it with loong_graph_loss and scale it there");
    call->in_grad[0] = call->wanted[0] ? call->out[1] : LOONG_NONE;
    call->in_grad[1] = call->wanted[1] ? call->out[2] : LOONG_NONE;
    return LOONG_OK;
}

static void cost(const loong_kernel_query_t *q, loong_cost_t *cost)
{
    const loong_karg_t *x = &q->arg[0];
    int products =
        1 + (q->arg[q->num_in + 1].rank > 0) + (q->arg[q->num_in + 2].rank > 0);
    cost->flops = 2.0 * products * (double)loong_karg_rows(x) *
                  (double)loong_karg_cols(x) *
                  (double)loong_karg_rows(&q->arg[1]);
    cost->bytes = loongi_cost_bytes(q);
}

/* The ranks that share the vocabulary have the losses of the whole of it. */
static uint32_t same(const void *attr, int o, uint32_t in)
{
    const loong_cross_entropy_attr_t *a = attr;
    return o == 0 && a->size > 1 ? in | loongi_same_group(a->group) : in;
}

static const loong_op_t cross_entropy = {
    .name = "cross_entropy",
    .attr_size = sizeof(loong_cross_entropy_attr_t),
    .min_in = 4,
    .max_in = 4,
    .num_out = 3,
    .accumulates = 1u << 2,
    .strided_in = true,
    .strided_out = true,
    .optional_out = 1u << 1 | 1u << 2,
    .infer = infer,
    .same = same,
    .grad = grad,
    .cost = cost,
};
const loong_op_t *const loongi_op_cross_entropy = &cross_entropy;

loong_val_t loong_cross_entropy(loong_graph_t *g, loong_val_t x, loong_val_t w,
                                loong_val_t labels, loong_val_t loss_weight,
                                const loong_cross_entropy_params_t *params)
{
    const loong_cross_entropy_params_t *p = params;
    const loong_mesh_t *mesh = loong_graph_mesh(g);
    loong_cross_entropy_attr_t attr = {
        .loss = g->num_losses, .vocab = p->vocab, .z_loss = p->z_loss,
        .begin = p->begin, .group = p->group, .size = 1};
    loong_val_t in[4] = {x, w, labels, loss_weight};
    loong_val_t rows = LOONG_NONE;
    loong_loss_params_t loss = p->loss;
    if (p->shared) {
        loss.same |= loongi_same_group(p->group);
        attr.size = loong_mesh_group_size(mesh, p->group);
        attr.rank = loong_mesh_group_rank(mesh, p->group);
    }
    loong_graph_apply(g, &cross_entropy, &attr, 4, in, 1, &rows);
    loong_graph_loss(g, rows, &loss);
    return rows;
}
