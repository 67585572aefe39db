/* SPDX-License-Identifier: Apache-2.0
 *
 * The replay: the lists of a schedule on several ranks of one process, with
 * the library's own compiler, memory plan and executor, on exactly the memory
 * that was planned. Bytes are spoilt as soon as the plan gives them up.
 * Messages arrive at once or at the last moment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_replay.h"

static bool fail(replay_t *r, const char *what, int stage, int micro_batch,
                 const char *name)
{
    fake_world_fail(&r->world, "step %d, stage %d, micro-batch %d: %s %s",
                    r->step, stage, micro_batch, what, name);
    return false;
}

static int draw(replay_t *r, int bound)
{
    return (int)fake_draw(r->model->seed ^ 0x5eed, r->drawn++,
                          (uint64_t)bound);
}

static const loong_entry_t *entry_of(const replay_t *r, int rank, int64_t at)
{
    return &r->schedule->ranks[rank].entries[at];
}

/* ---- ports -------------------------------------------------------------- */

static char *port_data(const loong_binding_t *run, const loong_port_t *port)
{
    return run->base[port->operand.base] + port->operand.offset;
}

static int64_t port_bytes(const loong_port_t *port)
{
    return loongi_shape_elements(&port->shape) *
           (int64_t)loong_dtype_size(port->dtype);
}

/* What a port holds, against what the reference had there. */
static bool check_port(replay_t *r, const loong_binding_t *run, int stage,
                       int micro_batch, const loong_port_t *port)
{
    const loong_shape_t *s = &port->shape;
    int64_t cols = s->dim[s->rank - 1];
    int64_t rows = loongi_shape_elements(s) / cols;
    int64_t stride = cols * (int64_t)loong_dtype_size(port->dtype);
    uint64_t want = 0;
    if (!fake_world_read(&r->world, port_data(run, port), port_bytes(port),
                         port->name)) {
        return false;
    }
    if (!fake_table_get(&r->reference->results,
                        fake_message_key(stage, r->step, micro_batch,
                                         port->name),
                        &want)) {
        return fail(r, "the reference does not have", stage, micro_batch,
                    port->name);
    }
    uint64_t got = fake_digest(port_data(run, port), rows, cols,
                               loong_dtype_size(port->dtype), stride);
    return got == want || fail(r, "there is something else in", stage,
                               micro_batch, port->name);
}

/* ---- messages ----------------------------------------------------------- */

static bool copy_tensor(replay_t *r, int from_stage, int micro_batch,
                        const message_t *m, const loong_port_t *from,
                        const loong_port_t *to)
{
    int64_t bytes = port_bytes(from);
    if (!fake_world_read(&r->world, port_data(&m->from, from), bytes,
                         from->name) ||
        !check_port(r, &m->from, from_stage, micro_batch, from) ||
        !fake_world_write(&r->world, port_data(&m->to, to), bytes,
                          to->name)) {
        return false;
    }
    memcpy(port_data(&m->to, to), port_data(&m->from, from), (size_t)bytes);
    return true;
}

static bool deliver(replay_t *r, int backward, int stage, int micro_batch)
{
    message_t *m = &r->messages[backward][stage][micro_batch];
    int from_stage = stage + (backward ? 1 : -1);
    const loong_model_chunk_t *from = fake_chunk_of(r, from_stage);
    const loong_model_chunk_t *to = fake_chunk_of(r, stage);
    if (m->delivered) {
        return true;
    }
    m->delivered = true;
    r->counters->messages++;
    for (int i = 0; i < to->num_inputs; i++) {
        const loong_port_t *in = &to->inputs[i];
        bool grad = strstr(in->name, ".grad") != NULL;
        if (grad != (backward == 1) || strcmp(in->name, "ids") == 0) {
            continue;
        }
        const loong_port_t *out = loongi_model_chunk_output(from, in->name);
        if (out == NULL) {
            return fail(r, "nobody sends", stage, micro_batch, in->name);
        }
        if (!copy_tensor(r, from_stage, micro_batch, m, out, in)) {
            return false;
        }
    }
    return true;
}

/* Some messages arrive as soon as they can. */
static bool maybe_deliver(replay_t *r, int backward, int stage,
                          int micro_batch)
{
    message_t *m = &r->messages[backward][stage][micro_batch];
    if (m->sent && m->received && draw(r, 2) == 0) {
        return deliver(r, backward, stage, micro_batch);
    }
    return true;
}

/* 1: the message is there, 0: wait, -1: wrong. */
static int want_message(replay_t *r, int backward, int stage, int micro_batch)
{
    int stages = loongi_schedule_stages(r->schedule);
    int from = stage + (backward ? 1 : -1);
    if (stage < 0 || stage >= stages || from < 0 || from >= stages) {
        return 1;
    }
    message_t *m = &r->messages[backward][stage][micro_batch];
    if (!m->sent || !m->received) {
        return 0;
    }
    return deliver(r, backward, stage, micro_batch) ? 1 : -1;
}

/* ---- slots -------------------------------------------------------------- */

/* What was declared as output or loss is there until the slot is given up. */
static bool check_kept(replay_t *r, int rank, int chunk, int slot,
                       int micro_batch)
{
    loong_entry_t e = loongi_entry(LOONG_ENTRY_F, chunk, micro_batch);
    e.slot = slot;
    loong_binding_t run =
        loongi_memory_plan_bind(r->ranks[rank], 0, &r->run[rank], &e);
    int stage = loongi_schedule_stage(r->schedule, rank, chunk);
    const loong_model_chunk_t *c = r->chunks[rank][chunk];
    for (int i = 0; i < c->num_outputs; i++) {
        if (!check_port(r, &run, stage, micro_batch, &c->outputs[i])) {
            return false;
        }
    }
    for (int i = 0; i < c->num_losses; i++) {
        if (!check_port(r, &run, stage, micro_batch, &c->losses[i].port)) {
            return false;
        }
    }
    return true;
}

static void spoil_area(replay_t *r, int rank, loong_base_t base, int chunk,
                       int64_t index, int64_t bytes)
{
    fake_region_poison(r->base[rank][base],
                       r->ranks[rank]->places[chunk].begin[base] +
                           index * bytes,
                       bytes);
}

/* As want_message. */
static int take_over(replay_t *r, int rank, const loong_entry_t *e)
{
    int stage = loongi_schedule_stage(r->schedule, rank, e->chunk);
    int32_t *holder = &r->holder[stage][e->slot];
    const loong_model_chunk_t *c = r->chunks[rank][e->chunk];
    if (*holder == e->micro_batch) {
        return 1;
    }
    if (*holder >= 0) {
        int forward = want_message(r, 0, stage + 1, *holder);
        int backward = want_message(r, 1, stage - 1, *holder);
        if (forward < 1 || backward < 1) {
            return LOONG_MIN(forward, backward);
        }
        if (!check_kept(r, rank, e->chunk, e->slot, *holder)) {
            return -1;
        }
        r->counters->reused++;
    }
    *holder = e->micro_batch;
    spoil_area(r, rank, LOONG_BASE_SLOT, e->chunk, e->slot, c->slot_bytes);
    spoil_area(r, rank, LOONG_BASE_INPUT, e->chunk, e->slot, c->input_bytes);
    return 1;
}

/* ---- entries ------------------------------------------------------------ */

static bool fill_ids(replay_t *r, int stage, int micro_batch,
                     const loong_binding_t *run)
{
    const loong_port_t *ids =
        loongi_model_chunk_input(fake_chunk_of(r, stage), "ids");
    if (ids == NULL) {
        return true;
    }
    char *data = port_data(run, ids);
    if (!fake_world_write(&r->world, data, port_bytes(ids), "ids")) {
        return false;
    }
    fake_fill(data, (size_t)port_bytes(ids),
              fake_message_key(stage, r->step, micro_batch, "ids"));
    return true;
}

/* What must be there before a program starts; as want_message. */
static int ready(replay_t *r, int rank, const loong_entry_t *e)
{
    int stage = loongi_schedule_stage(r->schedule, rank, e->chunk);
    int state = 1;
    if (e->kind == LOONG_ENTRY_F || e->kind == LOONG_ENTRY_B) {
        state = want_message(r, e->kind == LOONG_ENTRY_B, stage,
                             e->micro_batch);
    }
    if (state == 1 && e->slot >= 0) {
        state = take_over(r, rank, e);
    }
    return state;
}

static bool prepare(replay_t *r, int rank, const loong_entry_t *e)
{
    int stage = loongi_schedule_stage(r->schedule, rank, e->chunk);
    loong_binding_t run =
        loongi_memory_plan_bind(r->ranks[rank], 0, &r->run[rank], e);
    if (e->kind != LOONG_ENTRY_F) {
        return true;
    }
    return fill_ids(r, stage, e->micro_batch, &run);
}

static loong_frame_t frame_of(const replay_t *r, int rank,
                              const loong_entry_t *e)
{
    return fake_model_frame(
        loongi_schedule_stage(r->schedule, rank, e->chunk), r->step,
        LOONG_MAX(e->micro_batch, 0), r->schedule->params.micro_batches);
}

static int run_program(replay_t *r, int rank, int64_t at)
{
    const loong_entry_t *e = entry_of(r, rank, at);
    const loong_entry_t *pair =
        e->pair > at ? entry_of(r, rank, e->pair) : NULL;
    int state = ready(r, rank, e);
    if (state == 1 && pair != NULL) {
        state = ready(r, rank, pair);
    }
    if (state < 1 || (e->pair >= 0 && e->pair < at)) {
        return state;
    }
    fake_region_t *scratch = r->base[rank][LOONG_BASE_SCRATCH];
    fake_region_poison(scratch, 0, scratch->bytes);
    loong_frame_t frame = frame_of(r, rank, e);
    loong_frame_t pair_frame = frame_of(r, rank, pair != NULL ? pair : e);
    if (!prepare(r, rank, e) ||
        (pair != NULL && !prepare(r, rank, pair))) {
        return -1;
    }
    r->counters->pairs += pair != NULL;
    const loong_frame_t *frames[2] = {&frame, &pair_frame};
    return loongi_memory_plan_run(r->ranks[rank], 0, &r->run[rank], at,
                                  frames) == LOONG_OK
               ? 1
               : -1;
}

static int run_transfer(replay_t *r, int rank, const loong_entry_t *e)
{
    int stage = loongi_schedule_stage(r->schedule, rank, e->chunk);
    int state = take_over(r, rank, e);
    loong_binding_t run =
        loongi_memory_plan_bind(r->ranks[rank], 0, &r->run[rank], e);
    bool receive = e->kind == LOONG_ENTRY_RECV_FORWARD ||
                   e->kind == LOONG_ENTRY_RECV_BACKWARD;
    int backward = e->kind == LOONG_ENTRY_SEND_BACKWARD ||
                   e->kind == LOONG_ENTRY_RECV_BACKWARD;
    int to = receive ? stage : stage + (backward ? -1 : 1);
    message_t *m = &r->messages[backward][to][e->micro_batch];
    if (state < 1) {
        return state;
    }
    if (receive) {
        m->received = true;
        m->to = run;
    } else {
        m->sent = true;
        m->from = run;
    }
    return maybe_deliver(r, backward, to, e->micro_batch) ? 1 : -1;
}

static int run_entry(replay_t *r, int rank)
{
    const loong_entry_t *e = entry_of(r, rank, r->at[rank]);
    switch (e->kind) {
    case LOONG_ENTRY_F:
    case LOONG_ENTRY_B:
    case LOONG_ENTRY_W:
        return run_program(r, rank, r->at[rank]);
    case LOONG_ENTRY_REDUCE: /* by finish_step, when all are done */
    case LOONG_ENTRY_U:
        return 1;
    default:
        return run_transfer(r, rank, e);
    }
}

/* ---- steps -------------------------------------------------------------- */

/* Ranks advance in random order, some entries at a time. */
static bool run_lists(replay_t *r)
{
    int ranks = r->schedule->params.ranks;
    int waiting = 0;
    for (int rank = draw(r, ranks); waiting < 2 * ranks;
         rank = (rank + 1) % ranks) {
        int entries = 1 + draw(r, 6);
        bool moved = false;
        while (entries-- > 0 &&
               r->at[rank] < r->schedule->ranks[rank].num_entries) {
            int state = run_entry(r, rank);
            if (state < 0) {
                return false;
            }
            if (state == 0) {
                break;
            }
            r->at[rank]++;
            moved = true;
        }
        waiting = moved ? 0 : waiting + 1;
    }
    for (int rank = 0; rank < ranks; rank++) {
        if (r->at[rank] < r->schedule->ranks[rank].num_entries) {
            return fail(r, "waits for ever", rank, -1, "in the replay");
        }
    }
    return true;
}

/* Outputs of those that hold a slot at the end. */
static bool check_holders(replay_t *r)
{
    const loong_schedule_params_t *p = &r->schedule->params;
    for (int rank = 0; rank < p->ranks; rank++) {
        for (int c = 0; c < p->chunks; c++) {
            int stage = loongi_schedule_stage(r->schedule, rank, c);
            for (int s = 0; s < r->schedule->ranks[rank].chunks[c].slots;
                 s++) {
                if (!check_kept(r, rank, c, s, r->holder[stage][s])) {
                    return false;
                }
            }
        }
    }
    return true;
}

/* One gradient: the elements of all members of its pack. */
typedef struct gradient {
    const char *name;
    char *param;
    char *grad;
    size_t param_size;
    size_t grad_size;
    int64_t elements;
    bool begun;
} gradient_t;

static bool get_gradient(replay_t *r, int stage, int64_t p, gradient_t *g)
{
    const loong_model_chunk_t *c = fake_chunk_of(r, stage);
    const loong_chunk_param_t *place = &c->params[p];
    const loong_flat_t *flat = &c->flats[place->flat];
    int64_t begin = 0;
    if (!place->begins_pack || flat->frozen) {
        return false;
    }
    g->name = place->name;
    g->elements = 0;
    for (int64_t m = p; m < c->num_params &&
                        (m == p || !c->params[m].begins_pack); m++) {
        g->elements += c->params[m].elements;
    }
    g->param_size = loong_dtype_size(flat->dtype);
    g->grad_size = loong_dtype_size(c->precision.wide);
    fake_region_t *region = fake_region_of(r, stage, LOONG_BASE_PARAM, &begin);
    g->param = region->data + begin + flat->param_offset +
               place->flat_offset * (int64_t)g->param_size;
    region = fake_region_of(r, stage, LOONG_BASE_GRAD, &begin);
    int64_t at = begin + flat->grad_offset +
                 place->flat_offset * (int64_t)g->grad_size;
    g->grad = region->data + at;
    g->begun = region->valid[at];
    return true;
}

static bool find_tied(replay_t *r, int stage, gradient_t *g)
{
    const loong_model_chunk_t *c = fake_chunk_of(r, stage);
    for (int64_t p = 0; p < c->num_params; p++) {
        if (strcmp(c->params[p].name, FAKE_TIED) == 0) {
            return get_gradient(r, stage, p, g) && g->begun;
        }
    }
    return false;
}

static void reduce_tied(replay_t *r)
{
    gradient_t a;
    gradient_t b;
    int last = loongi_schedule_stages(r->schedule) - 1;
    if (last > 0 && find_tied(r, 0, &a) && find_tied(r, last, &b)) {
        fake_combine(a.grad, b.grad, a.grad_size, a.elements);
        memcpy(b.grad, a.grad, a.grad_size * (size_t)a.elements);
        r->counters->tied++;
    }
}

/* Every gradient that either side has must be the same on the other. */
static bool check_gradients(replay_t *r, int stage)
{
    const loong_model_chunk_t *c = fake_chunk_of(r, stage);
    gradient_t g;
    for (int64_t p = 0; p < c->num_params; p++) {
        uint64_t want = 0;
        if (!get_gradient(r, stage, p, &g)) {
            continue;
        }
        bool there = fake_table_get(&r->reference->results,
                                    fake_result_key(stage, r->step, g.name),
                                    &want);
        uint64_t got =
            fake_digest(g.grad, 1, g.elements, g.grad_size,
                        g.elements * (int64_t)g.grad_size);
        if (there != g.begun || (there && got != want)) {
            return fail(r, "another gradient of", stage, -1, g.name);
        }
        if (there) {
            fake_update(g.param, g.param_size, g.grad, g.grad_size,
                        g.elements);
        }
    }
    return true;
}

/* States lie one after the other in the order of the graph. */
static bool check_states(replay_t *r, int stage)
{
    loong_graph_t *graph = NULL;
    int64_t at = 0;
    bool same = fake_model_build(r->ctx, r->model, stage, &graph) == LOONG_OK;
    fake_region_t *region = fake_region_of(r, stage, LOONG_BASE_STATE, &at);
    for (int64_t s = 0; same && s < graph->num_states; s++) {
        const loong_value_t *v = &graph->values[graph->states[s]];
        size_t size = loong_dtype_size(v->dtype);
        int64_t n = loongi_shape_elements(&v->shape);
        uint64_t got = fake_digest(region->data + at, 1, n, size,
                                   n * (int64_t)size);
        uint64_t want = 0;
        fake_table_get(&r->reference->results,
                       fake_result_key(stage, r->step, v->name), &want);
        same = got == want || fail(r, "another state", stage, -1, v->name);
        at += loongi_round_up(n * (int64_t)size, 64);
    }
    loong_graph_destroy(&graph);
    return same;
}

static bool run_step(replay_t *r)
{
    int stages = loongi_schedule_stages(r->schedule);
    memset(r->messages, 0, sizeof(r->messages));
    memset(r->holder, -1, sizeof(r->holder));
    memset(r->at, 0, sizeof(r->at));
    for (int rank = 0; rank < r->schedule->params.ranks; rank++) {
        fake_region_t *grad = r->base[rank][LOONG_BASE_GRAD];
        fake_region_poison(grad, 0, grad->bytes);
    }
    if (!run_lists(r) || !check_holders(r)) {
        return false;
    }
    reduce_tied(r);
    for (int s = 0; s < stages; s++) {
        if (!check_gradients(r, s) || !check_states(r, s)) {
            return false;
        }
    }
    return true;
}

bool fake_replay_run(loong_context_t *ctx, const fake_model_t *model,
                     const fake_options_t *options,
                     const fake_reference_t *reference,
                     fake_counters_t *counters, char error[FAKE_ERROR_SIZE])
{
    replay_t *r = calloc(1, sizeof(*r));
    r->ctx = ctx;
    r->model = model;
    r->options = options;
    r->reference = reference;
    r->counters = counters;
    bool good = fake_plan_create(r) == LOONG_OK;
    for (r->step = 0; good && r->step < options->steps; r->step++) {
        good = run_step(r);
    }
    if (good) {
        good = fake_plan_exact(r);
    }
    snprintf(error, FAKE_ERROR_SIZE, "%.300s %.600s", r->world.error,
             good ? "" : loong_context_error(ctx));
    fake_plan_destroy(r);
    free(r);
    return good;
}
