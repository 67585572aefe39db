/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixtures of experts. Called by src/model/foundation/decoder.c, for the names
 * of metrics by src/report. Read loong/moe.h and nn_impl.h before. */
#include "loong/moe.h"

#include <math.h>
#include <stdio.h>

#include "loong/collective.h"
#include "loong/register.h"
#include "moe_metrics.h"
#include "nn_impl.h"

typedef struct moe {
    loong_nn_t *nn;
    loong_graph_t *g;
    const loong_nn_moe_t *p;
    loong_val_t logits;  /* wide [rows, E of all sets], of this rank's rows */
    loong_val_t weights; /* wide [rows, k] */
    loong_val_t indices; /* i32 [rows, k] */
    loong_val_t kept;    /* of these, those that the experts have room for */
    int64_t capacity;    /* of an expert for these rows; 0: all */
    loong_val_t counts;  /* wide [1,E] of the indices; LOONG_NONE: not made */
    loong_val_t z;       /* wide [rows], z-losses; LOONG_NONE: not made */
} moe_t;

static loong_nn_slice_t share_of(const moe_t *m, loong_axis_t axis,
                                 int64_t total)
{
    const loong_mesh_t *mesh = loong_graph_mesh(m->g);
    int64_t begin = total * mesh->coord[axis] / mesh->size[axis];
    int64_t end = total * (mesh->coord[axis] + 1) / mesh->size[axis];
    loong_nn_slice_t share = {begin, end - begin, total, 0};
    return share;
}

/* As ops count them: 0 says that tokens have no types. */
static int sets_of(const moe_t *m)
{
    return m->p->num_sets > 1 ? m->p->num_sets : 0;
}

static int all_experts(const moe_t *m)
{
    return m->p->num_sets * m->p->experts;
}

static void push_set(const moe_t *m, int set)
{
    if (m->p->set[set].name[0] != '\0') {
        loong_graph_push(m->g, "%s", m->p->set[set].name);
    }
}

static void pop_set(const moe_t *m, int set)
{
    if (m->p->set[set].name[0] != '\0') {
        loong_graph_pop(m->g);
    }
}

/* The experts of each token: the best ones, or those of a record. */
static void choose(moe_t *m, loong_val_t bias)
{
    const loong_nn_moe_t *p = m->p;
    char port[32];
    int64_t rows = loong_value_shape(m->g, m->logits).dim[0];
    loong_router_attr_t router = p->router;
    loong_router_inputs_t in = {bias, LOONG_NONE, p->types};
    router.sets = sets_of(m);
    router.begin = rows * loong_graph_mesh(m->g)->coord[LOONG_AXIS_TP];
    snprintf(port, sizeof(port), LOONG_ROUTING_PORT, p->layer);
    if (p->routing == LOONG_ROUTING_REPLAY) {
        in.replayed = loong_graph_input(m->g, port, LOONG_I32,
                                        loong_shape_2d(rows, router.topk));
    }
    m->weights =
        loong_topk_router(m->g, m->logits, &in, &router, &m->indices);
    if (p->routing == LOONG_ROUTING_RECORD) {
        loong_graph_output(m->g, port, m->indices);
    }
}

/* Router logits in the wide type, which the weight has, of one set beside those
 * of the other. */
static loong_val_t score(moe_t *m, loong_val_t x)
{
    const loong_nn_moe_t *p = m->p;
    loong_val_t logits[LOONG_NN_MAX_EXPERT_SETS];
    for (int s = 0; s < p->num_sets; s++) {
        push_set(m, s);
        loong_graph_push(m->g, "gate");
        loong_val_t w = loong_nn_wide_matrix(m->nn, "weight", p->experts,
                                             p->hidden, m->nn->init_std);
        logits[s] = loong_linear(m->g, x, w, LOONG_NONE);
        loong_graph_pop(m->g);
        pop_set(m, s);
    }
    return p->num_sets > 1 ? loong_concat(m->g, p->num_sets, logits)
                           : logits[0];
}

static void route(moe_t *m, loong_val_t x)
{
    const loong_nn_moe_t *p = m->p;
    m->logits = score(m, x);
    loong_graph_push(m->g, "gate");
    loong_val_t bias =
        p->bias ? loongi_nn_sign_vector(m->nn, "e_score_correction_bias",
                                        all_experts(m), p->bias_rate)
                : LOONG_NONE;
    choose(m, bias);
    m->kept = m->indices;
    if (p->capacity_factor > 0.0) {
        int64_t rows = loong_value_shape(m->g, m->logits).dim[0];
        m->capacity = (int64_t)ceil((double)(rows * p->router.topk) /
                                    p->experts * p->capacity_factor);
        loong_expert_capacity_attr_t attr = {all_experts(m), m->capacity,
                                             p->drop_by_position};
        m->kept = loong_expert_capacity(m->g, m->indices, m->weights, &attr);
    }
    loong_graph_pop(m->g);
}

/* ---- metrics ------------------------------------------------------------- */

const char *loongi_moe_metric_name(loong_moe_metric_t kind)
{
    static const char *const names[] = {
#define NAME(name_, text_) text_,
        LOONG_MOE_METRIC_LIST(NAME)
#undef NAME
    };
    return names[kind];
}

/* Adds x to the state of a metric. */
static void add_metric(moe_t *m, loong_moe_metric_t kind, loong_val_t x)
{
    char port[48];
    loong_graph_t *g = m->g;
    snprintf(port, sizeof(port), LOONG_MOE_METRIC_PORT,
             loongi_moe_metric_name(kind), m->p->layer);
    loong_val_t state = loong_graph_state(g, port, loong_value_dtype(g, x),
                                          loong_value_shape(g, x));
    loong_val_t in[2] = {state, x};
    loong_graph_apply(g, loong_find_op(loong_graph_context(g), "accumulate"),
                      NULL, 2, in, 0, NULL);
    loong_graph_output(g, port, state);
}

static loong_val_t count_choices(moe_t *m, loong_val_t indices)
{
    int64_t rows = loong_value_shape(m->g, indices).dim[0];
    loong_expert_counts_attr_t attr = {all_experts(m), 1, rows, 0};
    return loong_value_moved(m->g,
                              loong_expert_counts(m->g, indices, &attr));
}

static void add_counts(moe_t *m, loong_moe_metric_t kind, loong_val_t counts)
{
    loong_shape_t sets = loong_shape_2d(m->p->num_sets, m->p->experts);
    add_metric(m, kind, loong_reshape(m->g, counts, sets));
}

/* Of all but the rounds. What the losses have made is not made again. */
static void add_metrics(moe_t *m)
{
    loong_graph_t *g = m->g;
    loong_router_loss_attr_t attr = {.z = m->p->z_loss, .span = 1,
                                     .sets = sets_of(m)};
    add_counts(m, LOONG_MOE_METRIC_LOAD,
               m->counts != LOONG_NONE ? m->counts
                                       : count_choices(m, m->indices));
    if (m->capacity > 0) {
        add_counts(m, LOONG_MOE_METRIC_KEPT, count_choices(m, m->kept));
    }
    if (attr.z > 0.0) {
        loong_val_t z = m->z;
        if (z == LOONG_NONE) {
            z = loong_router_loss(g, m->logits, LOONG_NONE, m->p->types,
                                  &attr);
            loong_value_moved(g, z);
        }
        int64_t rows = loong_value_shape(g, z).dim[0];
        z = loong_reshape(g, z, loong_shape_2d(rows, 1));
        add_metric(m, LOONG_MOE_METRIC_Z_LOSS,
                   loong_value_moved(g, loong_sum_rows(g, z)));
    }
}

/* ---- losses -------------------------------------------------------------- */

/* The experts that balance counts for: those with the best scores, without what
 * else takes part in the choice, as in Megatron-Core since 0.12. Of a record it
 * is the choice itself, which rounding does not change. */
static loong_val_t best_scored(const moe_t *m, loong_router_attr_t router)
{
    loong_router_inputs_t in = {LOONG_NONE, LOONG_NONE, m->p->types};
    loong_val_t indices = LOONG_NONE;
    if (router.forced || m->p->routing == LOONG_ROUTING_REPLAY ||
        (!m->p->bias && router.num_groups == 0)) {
        return m->indices;
    }
    router.num_groups = 0;
    router.sets = sets_of(m);
    loong_topk_router(m->g, m->logits, &in, &router, &indices);
    return indices;
}

static loong_val_t add_to(loong_graph_t *g, loong_val_t sum, loong_val_t x)
{
    return sum == LOONG_NONE ? x : loong_add(g, sum, x);
}

/* Over all ranks that have rows of the micro-batch. */
static loong_val_t all_counts(loong_graph_t *g, loong_val_t counts)
{
    counts = loong_all_reduce(g, counts, LOONG_GROUP_TP);
    return loong_all_reduce(g, counts, LOONG_GROUP_CP);
}

/* The losses of this rank's rows. Choices are counted over all ranks that have
 * rows of the micro-batch. A context parallel rank has the same part of every
 * sequence, one after the other: a span of its tokens. */
static void losses(moe_t *m, loong_val_t *loss_p)
{
    const loong_nn_moe_t *p = m->p;
    const loong_mesh_t *mesh = loong_graph_mesh(m->g);
    loong_val_t counts = LOONG_NONE;
    int64_t rows = loong_value_shape(m->g, m->logits).dim[0];
    int64_t tokens = rows * mesh->size[LOONG_AXIS_TP];
    int64_t first = rows * mesh->coord[LOONG_AXIS_TP];
    int contexts = mesh->size[LOONG_AXIS_CP];
    int64_t span = p->sequence > 0 ? p->sequence / contexts : tokens;
    loong_router_loss_attr_t attr = {
        .score = p->router.score, .z = p->z_loss, .span = span,
        .begin = first, .sets = sets_of(m),
        .choices = span * contexts * p->router.topk};
    if (p->aux_loss > 0.0 || p->pool != NULL) {
        loong_expert_counts_attr_t c = {
            all_experts(m), (int)(tokens / span), span, first};
        loong_val_t best = best_scored(m, p->router);
        counts = loong_expert_counts(m->g, best, &c);
        m->counts = best == m->indices && c.spans == 1 ? counts : LOONG_NONE;
    }
    if (p->pool != NULL) {
        p->pool->logits[p->pool->layers++] = m->logits;
        p->pool->counts = add_to(m->g, p->pool->counts, counts);
        p->pool->types = p->types;
        p->pool->num_sets = p->num_sets;
        p->pool->topk = p->router.topk;
        counts = LOONG_NONE;
    } else if (counts != LOONG_NONE) {
        counts = all_counts(m->g, counts);
        attr.aux = p->aux_loss * p->experts /
                   ((double)p->router.topk * (double)(span * contexts));
    }
    if (attr.aux > 0.0 || attr.z > 0.0) {
        loong_val_t own = loong_router_loss(m->g, m->logits, counts, p->types,
                                            &attr);
        *loss_p = add_to(m->g, *loss_p, own);
        m->z = attr.aux > 0.0 ? LOONG_NONE : own;
    }
}

/* An expert's choices are those of its namesakes in all sets together, and so
 * is their sum. */
static loong_val_t namesakes(loong_graph_t *g, loong_val_t counts, int sets)
{
    loong_val_t all[LOONG_NN_MAX_EXPERT_SETS];
    int64_t each = loong_value_shape(g, counts).dim[1] / sets;
    loong_val_t sum = LOONG_NONE;
    if (sets == 1) {
        return counts;
    }
    for (int s = 0; s < sets; s++) {
        sum = add_to(g, sum, loong_slice(g, counts, s * each, each));
    }
    for (int s = 0; s < sets; s++) {
        all[s] = sum;
    }
    return loong_concat(g, sets, all);
}

/* E sum over e of C_e / (L n) S_e / (L n), with C_e the choices and S_e the sum
 * of the softmax in L layers of n tokens: load_balancing_loss_func. Tokens of
 * several sets are pooled too. */
void loong_nn_pooled_loss(loong_nn_t *nn, const loong_nn_router_pool_t *pool,
                          double factor, loong_val_t *loss_p)
{
    loong_graph_t *g = nn->graph;
    const loong_mesh_t *mesh = loong_graph_mesh(g);
    int sets = pool->num_sets;
    loong_val_t counts = namesakes(g, all_counts(g, pool->counts), sets);
    for (int i = 0; i < pool->layers; i++) {
        loong_shape_t shape = loong_value_shape(g, pool->logits[i]);
        int64_t tokens = shape.dim[0] * mesh->size[LOONG_AXIS_TP];
        double n = (double)(tokens * mesh->size[LOONG_AXIS_CP]);
        loong_router_loss_attr_t attr = {
            .score = LOONG_SCORE_SOFTMAX, .span = tokens,
            .begin = shape.dim[0] * mesh->coord[LOONG_AXIS_TP],
            .sets = sets > 1 ? sets : 0,
            .choices = pool->layers * tokens * mesh->size[LOONG_AXIS_CP] *
                       pool->topk};
        attr.aux = factor * (double)shape.dim[1] / sets /
                   ((double)pool->layers * pool->layers * n);
        *loss_p = add_to(g, *loss_p,
                         loong_router_loss(g, pool->logits[i], counts,
                                           pool->types, &attr));
    }
}

/* Tokens as they came to the ranks of their experts. */
typedef struct routed {
    loong_val_t x;
    loong_val_t indices;
    loong_val_t weights;
} routed_t;

/* How many rows are laid out for this rank's experts: `planned` times an even
 * share of the choices, and a token's more, for no token is parted between
 * rounds. 0: as many as there can be, in one round. */
typedef struct room {
    int64_t slots; /* of a round, see expert_window */
    int64_t rows;
    int64_t most; /* that the capacity of experts allows; 0: all */
    double even;  /* rows with even routing */
} room_t;

static room_t plan_room(const moe_t *m, loong_val_t indices)
{
    const loong_mesh_t *mesh = loong_graph_mesh(m->g);
    loong_shape_t all = loong_value_shape(m->g, indices);
    int64_t count = m->p->experts / mesh->size[LOONG_AXIS_EP];
    int64_t each = LOONG_MIN(all.dim[1], count);
    int64_t bound = all.dim[0] * each;
    room_t room = {.even = (double)(all.dim[0] * all.dim[1]) *
                           (double)count / m->p->experts};
    if (m->capacity > 0) {
        room.most = m->capacity * count *
                    loong_mesh_group_size(mesh, LOONG_GROUP_ETP_EP);
        bound = LOONG_MIN(bound, room.most);
    }
    int64_t slots = (int64_t)ceil(m->nn->capacity_plan * room.even);
    if (slots > 0 && slots + each - 1 < bound) {
        room.slots = slots;
        room.rows = room.most = slots + each - 1;
    }
    return room;
}

/* From here on the layer runs in rounds, when its rows may not fit in one:
 * what the tokens of the group chose, in the round. */
static loong_val_t begin_rounds(moe_t *m, const room_t *room,
                                loong_val_t indices)
{
    loong_expert_window_attr_t attr = {
        all_experts(m), m->p->num_sets,
        loong_graph_mesh(m->g)->size[LOONG_AXIS_EP], room->slots};
    loong_val_t more = LOONG_NONE;
    if (room->slots == 0) {
        return indices;
    }
    loong_val_t rounds = loong_expert_rounds(m->g, indices, &attr, &more);
    if (m->p->metrics) {
        add_metric(m, LOONG_MOE_METRIC_ROUNDS, more);
    }
    loong_graph_repeat_begin(m->g, rounds);
    return loong_expert_window(m->g, indices, &attr);
}

/* This rank's experts of a set on the tokens that it has: [T,H]. */
static loong_val_t own_experts(moe_t *m, int set, const routed_t *tokens,
                               const room_t *room)
{
    const loong_nn_moe_t *p = m->p;
    loong_graph_t *g = m->g;
    loong_nn_experts_t own = {share_of(m, LOONG_AXIS_EP, p->experts),
                              share_of(m, LOONG_AXIS_ETP, p->set[set].ffn),
                              p->hidden};
    loong_expert_order_attr_t order = {
        all_experts(m), set * p->experts + (int)own.experts.begin,
        (int)own.experts.count, room->most};
    push_set(m, set);
    loong_graph_push(g, "experts");
    loong_expert_rows_t rows = loong_expert_order(g, tokens->indices, &order);
    double laid_out = (double)loong_value_shape(g, rows.source).dim[0];
    rows.share = LOONG_MIN(room->even / LOONG_MAX(laid_out, 1.0), 1.0);
    loong_val_t x = loong_permute(g, tokens->x, &rows, LOONG_NONE);
    loong_val_t h = loongi_nn_expert_linear(m->nn, 1, &own, &rows, x);
    x = loong_swiglu(g, h, rows.offsets);
    h = loongi_nn_expert_linear(m->nn, 2, &own, &rows, x);
    if (own.ffn.count < own.ffn.total) {
        loong_value_moved(g, h); /* a part of a sum that is not made here */
    }
    h = loong_unpermute(g, h, &rows, tokens->weights);
    loong_graph_pop(g);
    pop_set(m, set);
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

/* All tokens of the group to all its ranks, and the sums back. */
static loong_val_t gathered_experts(moe_t *m, const room_t *room,
                                    routed_t *tokens)
{
    loong_val_t y[LOONG_NN_MAX_EXPERT_SETS];
    loong_graph_push(m->g, "experts");
    tokens->indices = begin_rounds(m, room, tokens->indices);
    loong_graph_pop(m->g);
    for (int s = 0; s < m->p->num_sets; s++) {
        y[s] = own_experts(m, s, tokens, room);
    }
    loong_graph_repeat_set(m->g, 0);
    for (int s = 1; s < m->p->num_sets; s++) {
        y[0] = loong_add(m->g, y[0], y[s]);
    }
    loong_graph_push(m->g, "experts");
    y[0] = loong_reduce_scatter(m->g, y[0], LOONG_GROUP_ETP_EP);
    loong_graph_pop(m->g);
    return y[0];
}

/* Tokens to the ranks of their experts. */
static loong_expert_routes_t dispatch(moe_t *m, const room_t *room,
                                      loong_val_t x, routed_t *tokens)
{
    loong_expert_routes_attr_t attr = {
        .experts = all_experts(m), .sets = m->p->num_sets,
        .copies = loong_graph_mesh(m->g)->size[LOONG_AXIS_ETP],
        .rows = room->rows};
    loong_expert_routes_t routes = loong_expert_routes(
        m->g, begin_rounds(m, room, tokens->indices), LOONG_GROUP_ETP_EP,
        &attr);
    tokens->indices = routes.arrived;
    tokens->x = loong_expert_dispatch(m->g, x, &routes);
    tokens->weights = loong_expert_dispatch(m->g, m->weights, &routes);
    return routes;
}

/* And back. */
static loong_val_t combine(moe_t *m, const room_t *room,
                           const routed_t *tokens,
                           const loong_expert_routes_t *routes)
{
    loong_val_t y = own_experts(m, 0, tokens, room);
    for (int s = 1; s < m->p->num_sets; s++) {
        y = loong_add(m->g, y, own_experts(m, s, tokens, room));
    }
    loong_graph_push(m->g, "experts");
    y = loong_expert_combine(m->g, y, routes);
    loong_graph_pop(m->g);
    loong_graph_repeat_set(m->g, 0);
    return y;
}

/* The shared expert is made while tokens are on their way. */
static loong_val_t experts(moe_t *m, loong_val_t x)
{
    loong_graph_t *g = m->g;
    loong_group_t group = LOONG_GROUP_ETP_EP;
    loong_expert_routes_t routes;
    loong_val_t shared = LOONG_NONE;
    bool exchanged = m->nn->dispatcher == LOONG_DISPATCH_ALL_TO_ALL &&
                     loong_mesh_group_size(loong_graph_mesh(g), group) > 1;
    loong_graph_push(g, "experts");
    routed_t tokens = {LOONG_NONE, LOONG_NONE, LOONG_NONE};
    if (!exchanged) {
        tokens.x = loong_all_gather(g, x, group);
    }
    tokens.indices = loong_all_gather(g, m->kept, group);
    room_t room = plan_room(m, tokens.indices);
    if (exchanged) {
        routes = dispatch(m, &room, x, &tokens);
    } else {
        tokens.weights = loong_all_gather(g, m->weights, group);
    }
    loong_graph_pop(g);
    if (m->p->shared_ffn > 0) { /* once, whatever rounds there are */
        int part = loong_graph_repeat_set(g, 0);
        shared = shared_expert(m, x);
        loong_graph_repeat_set(g, part);
    }
    x = exchanged ? combine(m, &room, &tokens, &routes)
                  : gathered_experts(m, &room, &tokens);
    return shared != LOONG_NONE ? loong_add(g, x, shared) : x;
}

loong_val_t loong_nn_moe(loong_nn_t *nn, loong_val_t x,
                         const loong_nn_moe_t *params, loong_val_t *loss_p)
{
    moe_t m = {nn, nn->graph, params, LOONG_NONE, LOONG_NONE, LOONG_NONE,
               LOONG_NONE, 0, LOONG_NONE, LOONG_NONE};
    loong_graph_push(m.g, "mlp");
    route(&m, x);
    if (params->aux_loss > 0.0 || params->z_loss > 0.0 ||
        params->pool != NULL) {
        loong_graph_push(m.g, "gate");
        losses(&m, loss_p);
        loong_graph_pop(m.g);
    }
    if (params->metrics) {
        loong_graph_push(m.g, "gate");
        add_metrics(&m);
        loong_graph_pop(m.g);
    }
    loong_val_t y = experts(&m, x);
    loong_graph_pop(m.g);
    return y;
}
