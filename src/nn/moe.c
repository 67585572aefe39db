/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixtures of experts. */
#include "loong/moe.h"

#include "loong/collective.h"
#include "nn_impl.h"

typedef struct moe {
    loong_nn_t *nn;
    loong_graph_t *g;
    const loong_nn_moe_t *p;
    loong_val_t logits;  /* wide [rows, E], of this rank's rows */
    loong_val_t weights; /* wide [rows, k] */
    loong_val_t indices; /* i32 [rows, k] */
} moe_t;

/* This rank's experts. */
static loong_nn_share_t share_of(const moe_t *m)
{
    const loong_mesh_t *mesh = loong_graph_mesh(m->g);
    int64_t size = mesh->size[LOONG_AXIS_EP];
    int64_t each = m->p->experts / size;
    loong_nn_share_t share = {each * mesh->coord[LOONG_AXIS_EP], each,
                              m->p->experts, 0};
    return share;
}

/* Router logits in the wide type. */
static void route(moe_t *m, loong_val_t x)
{
    const loong_nn_moe_t *p = m->p;
    loong_graph_push(m->g, "gate");
    loong_val_t w = loong_nn_wide_matrix(m->nn, "weight", p->experts,
                                         p->hidden, m->nn->init_std);
    loong_dtype_t wide = loong_graph_precision(m->g).wide;
    if (loong_value_dtype(m->g, x) != wide) {
        x = loong_cast(m->g, x, wide);
    }
    m->logits = loong_linear(m->g, x, w, LOONG_NONE);
    m->weights = loong_topk_router(m->g, m->logits, LOONG_NONE, &p->router,
                                   &m->indices);
    loong_graph_pop(m->g);
}

/* The losses of this rank's rows. Choices are counted over all ranks that have
 * rows of the micro-batch. */
static loong_val_t losses(moe_t *m)
{
    const loong_nn_moe_t *p = m->p;
    const loong_mesh_t *mesh = loong_graph_mesh(m->g);
    loong_val_t counts = LOONG_NONE;
    int64_t rows = loong_value_shape(m->g, m->logits).dim[0];
    int64_t tokens =
        rows * mesh->size[LOONG_AXIS_TP] * mesh->size[LOONG_AXIS_CP];
    int64_t first = rows * mesh->coord[LOONG_AXIS_TP];
    int64_t sequence = p->sequence > 0 ? p->sequence : tokens;
    loong_router_loss_attr_t attr = {
        .score = p->router.score, .z = p->z_loss, .span = sequence,
        .begin = first};
    if (p->aux_loss > 0.0) {
        loong_expert_counts_attr_t c = {
            p->experts, (int)(tokens / sequence), sequence, first};
        counts = loong_expert_counts(m->g, m->indices, &c);
        counts = loong_all_reduce(m->g, counts, LOONG_GROUP_TP);
        counts = loong_all_reduce(m->g, counts, LOONG_GROUP_CP);
        attr.aux = p->aux_loss * p->experts /
                   ((double)p->router.topk * (double)sequence);
    }
    return loong_router_loss(m->g, m->logits, counts, &attr);
}

/* The experts' part of the output. */
static loong_val_t experts(moe_t *m, loong_val_t x)
{
    const loong_nn_moe_t *p = m->p;
    loong_graph_t *g = m->g;
    loong_nn_share_t own = share_of(m);
    loong_expert_order_attr_t order = {p->experts, (int)own.begin,
                                       (int)own.count};
    loong_graph_push(g, "experts");
    x = loong_all_gather(g, x, LOONG_GROUP_EP);
    loong_val_t indices = loong_all_gather(g, m->indices, LOONG_GROUP_EP);
    loong_val_t weights = loong_all_gather(g, m->weights, LOONG_GROUP_EP);
    loong_expert_rows_t rows = loong_expert_order(g, indices, &order);
    loong_val_t w = loong_nn_experts(m->nn, "gate_up_proj", own, 2 * p->ffn,
                                     p->hidden, m->nn->init_std);
    loong_val_t h = loong_permute(g, x, &rows, LOONG_NONE);
    h = loong_swiglu(g, loong_grouped_linear(g, h, w, &rows));
    w = loong_nn_experts(m->nn, "down_proj", own, p->hidden, p->ffn,
                         m->nn->output_init_std);
    h = loong_grouped_linear(g, h, w, &rows);
    h = loong_unpermute(g, h, &rows, weights);
    h = loong_reduce_scatter(g, h, LOONG_GROUP_EP);
    loong_graph_pop(g);
    return h;
}

static loong_val_t shared_expert(moe_t *m, loong_val_t x)
{
    const loong_nn_moe_t *p = m->p;
    loong_nn_feed_forward_t ff = {"shared_expert", LOONG_MLP_SWIGLU, p->hidden,
                                  p->shared_ffn, false};
    loong_val_t y = loongi_nn_feed_forward(m->nn, x, &ff);
    if (!p->shared_gate) {
        return y;
    }
    loong_graph_push(m->g, "shared_expert_gate");
    loong_val_t w =
        loong_nn_matrix(m->nn, "weight", 1, p->hidden, m->nn->init_std);
    y = loong_sigmoid_gate(m->g, y, loong_linear(m->g, x, w, LOONG_NONE));
    loong_graph_pop(m->g);
    return y;
}

loong_val_t loong_nn_moe(loong_nn_t *nn, loong_val_t x,
                         const loong_nn_moe_t *params, loong_val_t *loss_p)
{
    moe_t m = {nn, nn->graph, params, LOONG_NONE, LOONG_NONE, LOONG_NONE};
    loong_graph_push(m.g, "mlp");
    route(&m, x);
    if (params->aux_loss > 0.0 || params->z_loss > 0.0) {
        loong_graph_push(m.g, "gate");
        loong_val_t loss = losses(&m);
        *loss_p = *loss_p == LOONG_NONE ? loss
                                        : loong_add(m.g, *loss_p, loss);
        loong_graph_pop(m.g);
    }
    loong_val_t y = experts(&m, x);
    if (params->shared_ffn > 0) {
        y = loong_add(m.g, y, shared_expert(&m, x));
    }
    loong_graph_pop(m.g);
    return y;
}
