/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws and compiles the components of a cell. */
#include "fake_components.h"

#include <stdio.h>
#include <string.h>

#include "loong/ops.h"

typedef struct builder {
    const fake_components_t *fake;
    loong_graph_t *g;
    uint64_t seed;
    uint64_t drawn;
} builder_t;

static int draw(builder_t *b, int bound)
{
    return (int)fake_draw(b->seed, b->drawn++, (uint64_t)bound);
}

/* ---- graphs -------------------------------------------------------------- */

static loong_val_t node(builder_t *b, int num_in, const loong_val_t *in,
                        int rows)
{
    fake_attr_t a;
    loong_val_t out[FAKE_MAX_OUT];
    memset(&a, 0, sizeof(a));
    a.key = fake_mix(b->seed, b->drawn);
    a.variant = draw(b, FAKE_VARIANTS);
    a.workspace = draw(b, 3) * 16;
    a.save_in = (uint32_t)draw(b, 16);
    a.save_out = (uint32_t)draw(b, 2);
    a.out[0].dtype = LOONG_F32;
    a.out[0].shape = loong_shape_2d(rows, 4);
    loong_graph_apply(b->g, fake_op(a.variant), &a, num_in, in, FAKE_MAX_OUT,
                      out);
    return out[0];
}

static loong_val_t make_param(builder_t *b, const char *name, int rows)
{
    const loong_param_params_t p = {
        .name = name, .shape = loong_shape_2d(rows, 4), .dtype = LOONG_F32};
    return loong_graph_param(b->g, &p);
}

static loong_val_t param(builder_t *b)
{
    char name[16];
    snprintf(name, sizeof(name), "p%d", (int)b->g->num_params);
    return make_param(b, name, 2 + draw(b, 3));
}

/* What other stages and components make, one node for two of them. */
static loong_val_t build_begin(builder_t *b, int component, int stage)
{
    const fake_cell_t *f = &b->fake->drawn;
    loong_shape_t shape = loong_shape_2d(FAKE_EDGE_ROWS, 4);
    loong_val_t in[2] = {
        stage > 0
            ? loong_graph_boundary_input(b->g, "b0", LOONG_F32, shape)
            : loong_graph_input(b->g, "ids", LOONG_I32, loong_shape_1d(5)),
        param(b)};
    loong_val_t x = node(b, 2, in, FAKE_EDGE_ROWS);
    for (int e = 0; e < f->params.num_edges; e++) {
        char name[8];
        snprintf(name, sizeof(name), "e%d", e);
        if (f->edges[e].to == component && f->edges[e].to_stage == stage) {
            in[0] = x;
            in[1] = loong_graph_receive(b->g, name, LOONG_F32, shape);
            x = node(b, 2, in, FAKE_EDGE_ROWS);
        }
    }
    return x;
}

static void build_end(builder_t *b, int component, int stage, loong_val_t x)
{
    const fake_cell_t *f = &b->fake->drawn;
    const loong_schedule_t *s = b->fake->cell->schedules[component];
    for (int e = 0; e < f->params.num_edges; e++) {
        char name[8];
        snprintf(name, sizeof(name), "e%d", e);
        if (f->edges[e].from == component && f->edges[e].from_stage == stage) {
            loong_graph_send(b->g, name, node(b, 1, &x, FAKE_EDGE_ROWS));
        }
    }
    if (draw(b, 4) == 0) { /* which nobody reads */
        loong_graph_send(b->g, "dropped", node(b, 1, &x, FAKE_EDGE_ROWS));
        loongi_graph_stop_gradient(b->g, "dropped");
    }
    if (stage + 1 < loongi_schedule_stages(s)) {
        loong_graph_boundary_output(b->g, "b0", node(b, 1, &x, FAKE_EDGE_ROWS));
    } else if (s->kind->evaluate) {
        loong_graph_output(b->g, "probe", node(b, 1, &x, 2));
    } else {
        const loong_loss_params_t loss = {
            .name = "loss", .normaliser = "rows", .weight = 1.0};
        fake_attr_t a;
        loong_val_t in[2] = {x, param(b)};
        loong_val_t out[FAKE_MAX_OUT];
        memset(&a, 0, sizeof(a));
        a.key = fake_mix(b->seed, 4711);
        a.save_in = 3;
        a.out[0].dtype = LOONG_F32;
        a.out[0].shape = loong_shape_1d(FAKE_EDGE_ROWS);
        loong_graph_apply(b->g, fake_op(7), &a, 2, in, FAKE_MAX_OUT, out);
        loong_graph_loss(b->g, out[0], &loss);
    }
}

static loong_status_t build(builder_t *b, int component, int stage)
{
    const fake_cell_t *f = &b->fake->drawn;
    loong_val_t x = build_begin(b, component, stage);
    for (int i = draw(b, 4); i >= 0; i--) {
        loong_val_t in[2] = {x, param(b)};
        loong_val_t y = node(b, 2, in, FAKE_EDGE_ROWS);
        x = draw(b, 2) ? loong_add(b->g, x, y) : y;
    }
    if (b->fake->tie[component] >> stage & 1u) {
        loong_val_t in[2] = {x, make_param(b, FAKE_TIED, 3)};
        x = node(b, 2, in, FAKE_EDGE_ROWS);
    }
    build_end(b, component, stage, x);
    for (int e = 0; e < f->params.num_edges; e++) {
        char name[8];
        snprintf(name, sizeof(name), "e%d", e);
        if (!f->edges[e].gradient) {
            loongi_graph_stop_gradient(b->g, name);
        }
    }
    return loong_graph_status(b->g);
}

static loong_status_t compile(fake_components_t *f, int component, int stage)
{
    static const loong_precision_t precision = {LOONG_F32, LOONG_F32};
    const loong_schedule_t *s = f->cell->schedules[component];
    builder_t b = {f, NULL,
                   fake_mix(f->seed, (uint64_t)(64 * component + stage)), 0};
    loong_compile_params_t p = {.device = FAKE_DEVICE,
                                .threads = 1,
                                .in_place = draw(&b, 4) > 0,
                                .split = s->kind->split,
                                .ahead = true,
                                .no_direct = draw(&b, 2) > 0};
    loong_model_chunk_t **chunk = &f->chunks[component][stage];
    LOONG_TRY(loong_graph_create(f->ctx, precision, &b.g));
    loong_status_t status = build(&b, component, stage);
    if (status == LOONG_OK) {
        status = loongi_model_chunk_compile(b.g, !s->kind->evaluate, &p, chunk);
    }
    loong_graph_destroy(&b.g);
    LOONG_TRY(status);
    if (component + 1 < f->cell->num_own) {
        const loong_shards_params_t params = {.device = FAKE_DEVICE,
                                              .threads = 1,
                                              .bucket_bytes = 64,
                                              .hollow = true};
        const loong_mesh_t mesh = loong_mesh_single();
        loong_shards_t **shards = &f->shards[component][stage];
        LOONG_TRY(loongi_shards_create(*chunk, &mesh, &params, shards));
        LOONG_TRY(loongi_shards_place(*shards, *chunk));
    }
    return loongi_model_chunk_prepare(*chunk);
}

/* ---- messages ------------------------------------------------------------ */

static bool is_hollow(const fake_components_t *f, const loong_message_end_t *m)
{
    int replica = fake_replica(f, m->component, m->rank);
    return f->hollow[fake_own(f, m->component)][replica][m->micro_batch];
}

/* The message that was drawn, of one that is there for a double too. */
static int64_t first_of(const fake_components_t *f, const loong_message_t *m)
{
    const loong_message_t *all = f->cell->params.messages;
    int edge = loongi_cell_edge(f->cell, m->edge);
    int64_t i = 0;
    while (loongi_cell_edge(f->cell, all[i].edge) != edge || all[i].backward ||
           all[i].from_rank != m->from_rank || all[i].to_rank != m->to_rank ||
           all[i].from_micro_batch != m->from_micro_batch ||
           all[i].to_micro_batch != m->to_micro_batch) {
        i++;
    }
    return i;
}

/* The rows of a reader are dealt to its messages, some to none. */
void fake_components_plan(fake_components_t *fake, int step)
{
    fake_components_t *f = fake;
    const loong_message_t *all = f->cell->params.messages;
    int64_t count = f->cell->join->twice ? f->drawn.params.num_messages
                                         : f->cell->params.num_messages;
    uint64_t drawn = 0;
    uint64_t seed = fake_mix(f->seed, 900 + (uint64_t)step);
    memset(f->segments, 0, sizeof(f->segments));
    for (int64_t i = 0; i < count; i++) {
        int before = 0, total = 0;
        for (int64_t k = 0; k < count; k++) {
            bool same = all[k].edge == all[i].edge &&
                        all[k].backward == all[i].backward &&
                        all[k].to_rank == all[i].to_rank &&
                        all[k].to_micro_batch == all[i].to_micro_batch;
            total += same;
            before += same && k < i;
        }
        int begin = before * FAKE_EDGE_ROWS / total;
        int end = (before + 1) * FAKE_EDGE_ROWS / total;
        begin += end > begin && fake_draw(seed, drawn++, 3) == 0;
        if (is_hollow(f, &f->from[i]) || is_hollow(f, &f->to[i])) {
            continue;
        }
        int cut =
            begin + (int)fake_draw(seed, drawn++, (uint64_t)(end - begin + 1));
        const int rows[FAKE_SEGMENTS][2] = {{begin, cut}, {cut, end}};
        for (int k = 0; k < FAKE_SEGMENTS; k++) {
            int n = rows[k][1] - rows[k][0];
            int most = FAKE_EDGE_ROWS - n + 1;
            f->segments[i][k] = (fake_segment_t){
                (int)fake_draw(seed, drawn++, (uint64_t)most), rows[k][0], n};
        }
    }
    for (int64_t i = count; i < f->cell->params.num_messages; i++) {
        memcpy(f->segments[i], f->segments[first_of(f, &all[i])],
               sizeof(f->segments[i]));
    }
}

/* ---- places -------------------------------------------------------------- */

int fake_replica(const fake_components_t *fake, int component, int rank)
{
    const loong_cell_component_t *c = &fake->cell->params.components[component];
    int i = 0;
    while (c->rank[i] != rank) {
        i++;
    }
    return i / c->params.ranks;
}

fake_param_t fake_param_of(const loong_model_chunk_t *chunk,
                           const loong_binding_t *run, int64_t index)
{
    const loong_chunk_param_t *p = &chunk->params[index];
    const loong_flat_t *flat = &chunk->flats[p->flat];
    int64_t at = p->flat_offset * 4;
    return (fake_param_t){run->base[LOONG_BASE_PARAM] + flat->param_offset + at,
                          flat->grad_offset < 0 ? NULL
                                                : run->base[LOONG_BASE_GRAD] +
                                                      flat->grad_offset + at,
                          p->elements, 0};
}

int64_t fake_find_tied(const loong_model_chunk_t *chunk)
{
    int64_t i = chunk->num_params - 1;
    while (i >= 0 && strcmp(chunk->params[i].name, FAKE_TIED) != 0) {
        i--;
    }
    return i;
}

void fake_sum_tie(int count, const fake_param_t holders[FAKE_HOLDERS])
{
    int first[FAKE_HOLDERS] = {0}; /* of its rank */
    for (int k = 1; k < count; k++) {
        bool same = holders[k].rank == holders[k - 1].rank;
        first[k] = same ? first[k - 1] : k;
        if (same) {
            fake_combine(holders[first[k]].grad, holders[k].grad, 4,
                         holders[0].elements);
        }
    }
    for (int k = 1; k < count; k++) {
        if (first[k] == k) {
            fake_combine(holders[0].grad, holders[k].grad, 4,
                         holders[0].elements);
        }
    }
    for (int k = 1; k < count; k++) {
        memcpy(holders[k].grad, holders[0].grad,
               (size_t)holders[0].elements * 4);
    }
}

/* What is tied begins the same in all stages of a replica. */
uint64_t fake_param_key(const loong_model_chunk_t *chunk,
                        const loong_frame_t *frame, int64_t param)
{
    return param == fake_find_tied(chunk)
               ? fake_mix(frame->seed / FAKE_STAGES, 4)
               : fake_mix(frame->seed + 17, (uint64_t)param);
}

uint64_t fake_grad_key(const loong_frame_t *frame, int64_t param)
{
    return fake_mix(fake_mix(frame->seed + 99, (uint64_t)frame->step),
                    (uint64_t)param) |
           1;
}

uint64_t fake_ids_key(const loong_frame_t *frame)
{
    return fake_mix(fake_mix(frame->seed, (uint64_t)frame->step),
                    (uint64_t)frame->micro_batch);
}

loong_frame_t fake_component_frame(const fake_components_t *fake, int component,
                                   int replica, int stage, int step,
                                   int micro_batch)
{
    int micro_batches =
        fake->cell->params.components[component].params.micro_batches;
    loong_frame_t frame;
    memset(&frame, 0, sizeof(frame));
    frame.step = step;
    frame.micro_batch = micro_batch;
    frame.seed =
        (uint64_t)((component * FAKE_RANKS + replica) * FAKE_STAGES + stage);
    frame.first = micro_batch == 0;
    frame.last = micro_batch + 1 == micro_batches;
    frame.hollow =
        micro_batch >= 0 && fake->hollow[component][replica][micro_batch];
    return frame;
}

/* Gathers in all programs; sums behind each backward, or the last. */
int fake_collectives(const fake_components_t *fake, const loong_entry_t *entry,
                     int stage, const loong_frame_t *frame)
{
    int component = fake_own(fake, entry->component);
    const loong_schedule_t *s = fake->cell->schedules[component];
    loong_sharding_t sharding = fake->sharding[component];
    bool forward = entry->kind == LOONG_ENTRY_F || entry->kind == LOONG_ENTRY_E;
    bool sums = entry->kind == (s->kind->split ? LOONG_ENTRY_W : LOONG_ENTRY_B);
    int most = 1 + (int)fake_draw(fake->seed, 700 + (uint64_t)stage, 3);
    if (sums && sharding < LOONG_SHARDING_GRADS) {
        return frame->last ? most : 0;
    }
    return sums || ((forward || entry->kind == LOONG_ENTRY_B) &&
                    sharding == LOONG_SHARDING_PARAMS)
               ? most
               : 0;
}

const loong_port_t *fake_message_port(const fake_components_t *fake,
                                      int message, bool from)
{
    const loong_message_t *m = &fake->cell->params.messages[message];
    const loong_message_end_t *end =
        from ? &fake->from[message] : &fake->to[message];
    const loong_model_chunk_t *c =
        fake->chunks[fake_own(fake, end->component)][end->stage];
    char name[16];
    snprintf(name, sizeof(name), "e%d%s", loongi_cell_edge(fake->cell, m->edge),
             m->backward ? ".grad" : "");
    return from ? loongi_model_chunk_output(c, name)
                : loongi_model_chunk_input(c, name);
}

/* ---- the whole ----------------------------------------------------------- */

static void draw_hollow(fake_components_t *f)
{
    const loong_cell_params_t *p = &f->cell->params;
    uint64_t drawn = 0;
    bool any = fake_draw(f->seed, 880, 3) > 0;
    for (int c = 0; c < f->cell->num_own - 1 && any; c++) {
        const loong_schedule_params_t *sizes = &p->components[c].params;
        for (int r = 0; r < p->components[c].replicas; r++) {
            for (int m = 0; m < sizes->micro_batches; m++) {
                f->hollow[c][r][m] = fake_draw(f->seed, 1000 + drawn++, 3) == 0;
            }
        }
    }
}

/* And those that others read. */
static void mark_hollow(fake_components_t *f)
{
    const loong_cell_params_t *p = &f->cell->params;
    for (int c = 0; c < f->cell->num_own - 1 && f->cell->join->apart; c++) {
        for (int r = 0; r < p->components[c].replicas; r++) {
            for (int m = 0; m < p->components[c].params.micro_batches; m++) {
                f->hollow[c][r][m] = f->hollow[c][r][m] ||
                                     !loongi_cell_reads(f->cell, c, r, m);
            }
        }
    }
}

/* Two to four stages of a trained pipeline, or none. */
static uint32_t draw_tie(const fake_components_t *f, int component)
{
    const loong_schedule_t *s = f->cell->schedules[component];
    int stages = loongi_schedule_stages(s);
    uint64_t seed = fake_mix(f->seed, 650 + (uint64_t)component);
    int first = (int)fake_draw(seed, 0, (uint64_t)stages);
    uint32_t tie = 1u << first;
    int count = 1;
    for (int i = first + 1; i < stages && count < FAKE_HOLDERS; i++) {
        bool holds = fake_draw(seed, (uint64_t)i, 2) == 0;
        tie |= holds ? 1u << i : 0;
        count += holds;
    }
    return count > 1 && !s->kind->evaluate ? tie : 0;
}

/* Of the stages that were drawn. */
static loong_status_t find_ties(fake_components_t *f, int component)
{
    static const char *const name = FAKE_TIED;
    bool held[FAKE_STAGES];
    for (int s = 0; s < FAKE_STAGES; s++) {
        held[s] = f->tie[component] >> s & 1u;
    }
    const loong_holdings_t holdings = {1, &name, held};
    return loongi_ties_find(f->ctx, f->cell->schedules[component], &holdings,
                            f->arena, &f->ties[component]);
}

loong_status_t fake_components_create(loong_context_t *ctx, uint64_t seed,
                                      const char *join, fake_components_t *fake)
{
    fake_components_t *f = fake;
    memset(f, 0, sizeof(*f));
    f->ctx = ctx;
    f->seed = fake_mix(seed, 4242);
    fake_cell_draw(seed, join, &f->drawn);
    fake_cell_cover(f->seed, &f->drawn);
    LOONG_TRY(loongi_arena_create(ctx, "ties", &f->arena));
    LOONG_TRY(loongi_cell_create(ctx, &f->drawn.params, &f->cell));
    const loong_cell_params_t *p = &f->cell->params;
    for (int64_t i = 0; i < p->num_messages; i++) {
        f->from[i] = loongi_message_from(f->cell, &p->messages[i]);
        f->to[i] = loongi_message_to(f->cell, &p->messages[i]);
    }
    draw_hollow(f);
    mark_hollow(f);
    for (int c = 0; c < f->cell->num_own; c++) {
        f->sharding[c] = (loong_sharding_t)fake_draw(f->seed, 600 + (uint64_t)c,
                                                     LOONG_SHARDING_COUNT);
        f->tie[c] = draw_tie(f, c);
        LOONG_TRY(find_ties(f, c));
        for (int s = 0; s < loongi_schedule_stages(f->cell->schedules[c]);
             s++) {
            LOONG_TRY(compile(f, c, s));
        }
    }
    return LOONG_OK;
}

void fake_components_destroy(fake_components_t *fake)
{
    for (int c = 0; c < FAKE_COMPONENTS; c++) {
        for (int s = 0; s < FAKE_STAGES; s++) {
            loongi_model_chunk_destroy(&fake->chunks[c][s]);
            loongi_shards_destroy(&fake->shards[c][s]);
        }
    }
    loongi_cell_destroy(&fake->cell);
    loongi_arena_destroy(&fake->arena);
}
