/* SPDX-License-Identifier: Apache-2.0 */
#include "plant.h"

#include "executor.h"
#include "fake.h"
#include "passes.h"
#include "schedule_impl.h"

plant_state_t plant_state;

const char *plant_text(plant_t plant)
{
    static const char *const texts[] = {
#define PLANT_TEXT(name_, text_) text_,
        PLANT_LIST(PLANT_TEXT)
#undef PLANT_TEXT
    };
    return texts[plant];
}

static bool is(plant_t plant)
{
    return plant_state.plant == plant;
}

/* A number below bound; counts as planted. */
static int64_t choose(int64_t bound)
{
    uint64_t at = (uint64_t)plant_state.planted++;
    return (int64_t)fake_draw(plant_state.seed, 9000 + at, (uint64_t)bound);
}

/* ---- memory ------------------------------------------------------------- */

loong_status_t __real_loongi_place_intervals(loong_context_t *ctx,
                                             int64_t count,
                                             loong_interval_t *intervals,
                                             int64_t *peak_p);
loong_status_t __wrap_loongi_place_intervals(loong_context_t *ctx,
                                             int64_t count,
                                             loong_interval_t *intervals,
                                             int64_t *peak_p);

loong_status_t __wrap_loongi_place_intervals(loong_context_t *ctx,
                                             int64_t count,
                                             loong_interval_t *intervals,
                                             int64_t *peak_p)
{
    for (int64_t i = 0; i < count && (is(PLANT_END) || is(PLANT_BEGIN)); i++) {
        loong_interval_t *one = &intervals[i];
        if (one->begin < one->end && one->end < INT32_MAX && choose(4) == 0) {
            one->end -= is(PLANT_END);
            one->begin += is(PLANT_BEGIN);
        }
    }
    LOONG_TRY(__real_loongi_place_intervals(ctx, count, intervals, peak_p));
    if (is(PLANT_OFFSET) && count > 1) {
        intervals[choose(count)].offset = 0;
    }
    if ((is(PLANT_PEAK) || is(PLANT_WASTE)) && *peak_p > 0) {
        plant_state.planted++;
        *peak_p += is(PLANT_WASTE) ? LOONG_PLACE_ALIGN : -LOONG_PLACE_ALIGN;
    }
    return LOONG_OK;
}

loong_status_t __real_loongi_pass_memory(loong_graph_t *g,
                                         const loong_layout_params_t *params,
                                         loong_layout_t *layout);
loong_status_t __wrap_loongi_pass_memory(loong_graph_t *g,
                                         const loong_layout_params_t *params,
                                         loong_layout_t *layout);

static bool read_later(const loong_graph_t *g, const loong_layout_params_t *p,
                       int64_t position, loong_val_t v)
{
    for (int64_t k = position + 1; k < p->num_order; k++) {
        const loong_node_t *node = &g->nodes[p->order[k]];
        for (int i = 0; i < node->num_in; i++) {
            if (node->in[i] == v) {
                return true;
            }
        }
    }
    return false;
}

loong_status_t __wrap_loongi_pass_memory(loong_graph_t *g,
                                         const loong_layout_params_t *params,
                                         loong_layout_t *layout)
{
    LOONG_TRY(__real_loongi_pass_memory(g, params, layout));
    for (int64_t k = 0; k < params->num_order && is(PLANT_IN_PLACE); k++) {
        const loong_node_t *node = &g->nodes[params->order[k]];
        bool may = (node->op->in_place & 1) && node->num_in > 0 &&
                   node->in[0] >= 0 && node->out[0] >= 0;
        if (may && g->values[node->in[0]].root == node->in[0] &&
            g->values[node->in[0]].kind == LOONG_VALUE_NODE &&
            g->values[node->out[0]].root == node->out[0] &&
            g->values[node->out[0]].into < 0 &&
            loongi_value_bytes(g, node->in[0]) ==
                loongi_value_bytes(g, node->out[0]) &&
            read_later(g, params, k, node->in[0])) {
            layout->place[node->out[0]] = layout->place[node->in[0]];
            plant_state.planted++;
        }
    }
    return LOONG_OK;
}

/* ---- slots -------------------------------------------------------------- */

loong_status_t __real_loongi_schedule_colour(const loong_entry_writer_t *w,
                                             loong_chunk_slots_t *chunks);
loong_status_t __wrap_loongi_schedule_colour(const loong_entry_writer_t *w,
                                             loong_chunk_slots_t *chunks);

loong_status_t __wrap_loongi_schedule_colour(const loong_entry_writer_t *w,
                                             loong_chunk_slots_t *chunks)
{
    loong_rank_schedule_t *r = w->list;
    LOONG_TRY(__real_loongi_schedule_colour(w, chunks));
    for (int c = 0; c < w->schedule->params.chunks && is(PLANT_COLOUR); c++) {
        int32_t slots = chunks[c].slots - 1;
        for (int64_t k = 0; k < r->num_entries && slots > 0; k++) {
            loong_entry_t *e = &r->entries[k];
            if (e->chunk == c && e->slot >= 0) {
                e->slot = e->micro_batch % slots;
                plant_state.planted++;
            }
        }
        chunks[c].slots = LOONG_MAX(slots, 1);
    }
    return LOONG_OK;
}

/* ---- passes ------------------------------------------------------------- */

#define WRAP_PASS(name_)                                                      \
    loong_status_t __real_loongi_##name_(loong_graph_t *g);                   \
    loong_status_t __wrap_loongi_##name_(loong_graph_t *g);                   \
    loong_status_t __wrap_loongi_##name_(loong_graph_t *g)

WRAP_PASS(pass_split)
{
    LOONG_TRY(__real_loongi_pass_split(g));
    bool split = false;
    for (int64_t n = 0; n < g->num_nodes; n++) {
        split = split || g->nodes[n].program == LOONG_PROGRAM_W;
    }
    for (int64_t n = 0; n < g->num_nodes && split && is(PLANT_SPLIT); n++) {
        loong_node_t *node = &g->nodes[n];
        if (node->program == LOONG_PROGRAM_B && !node->dead &&
            node->num_out > 0 && choose(4) == 0) {
            node->program = LOONG_PROGRAM_W;
        }
    }
    return LOONG_OK;
}

WRAP_PASS(pass_gather)
{
    if (is(PLANT_GATHER)) {
        plant_state.planted++;
        return LOONG_OK;
    }
    return __real_loongi_pass_gather(g);
}

loong_status_t __real_loongi_pass_accumulate(loong_graph_t *g, bool direct);
loong_status_t __wrap_loongi_pass_accumulate(loong_graph_t *g, bool direct);

loong_status_t __wrap_loongi_pass_accumulate(loong_graph_t *g, bool direct)
{
    LOONG_TRY(__real_loongi_pass_accumulate(g, direct));
    for (int64_t v = 0; v < g->num_values; v++) {
        loong_value_t *value = &g->values[v];
        bool first = is(PLANT_FIRST) && value->write == LOONG_WRITE_FIRST;
        bool later = is(PLANT_LATER) && value->write == LOONG_WRITE_ADD;
        if (value->into >= 0 && (first || later)) {
            plant_state.planted++;
            value->write = first ? LOONG_WRITE_ADD : LOONG_WRITE_OWN;
        }
    }
    return LOONG_OK;
}

WRAP_PASS(pass_dense)
{
    if (is(PLANT_GAPS)) {
        plant_state.planted++;
        return LOONG_OK;
    }
    return __real_loongi_pass_dense(g);
}

WRAP_PASS(pass_assemble)
{
    LOONG_TRY(__real_loongi_pass_assemble(g));
    for (int64_t v = 0; v < g->num_values && is(PLANT_ASSEMBLE); v++) {
        const loong_node_t *node = loongi_producer(g, (loong_val_t)v);
        loong_value_t *value = &g->values[v];
        bool part = node != NULL && !node->op->view && value->root != v;
        if (part && value->column > 0) {
            plant_state.planted++;
            value->column--;
        }
    }
    return LOONG_OK;
}

loong_status_t __real_loongi_pass_recompute(loong_graph_t *g, int num_globs,
                                            const char *const *globs);
loong_status_t __wrap_loongi_pass_recompute(loong_graph_t *g, int num_globs,
                                            const char *const *globs);

loong_status_t __wrap_loongi_pass_recompute(loong_graph_t *g, int num_globs,
                                            const char *const *globs)
{
    LOONG_TRY(__real_loongi_pass_recompute(g, num_globs, globs));
    for (int64_t n = 0; n < g->num_nodes && is(PLANT_RECOMPUTE); n++) {
        loong_node_t *node = &g->nodes[n];
        if (node->recomputed && node->num_in > 1 && !node->op->assembles &&
            node->in[0] != node->in[1]) {
            loong_val_t swap = node->in[0];
            node->in[0] = node->in[1];
            node->in[1] = swap;
            plant_state.planted++;
        }
    }
    return LOONG_OK;
}

WRAP_PASS(graph_remove_dead)
{
    LOONG_TRY(__real_loongi_graph_remove_dead(g));
    for (int64_t n = 0; n < g->num_nodes && is(PLANT_DEAD); n++) {
        loong_node_t *node = &g->nodes[n];
        if (!node->dead && !node->op->view && choose(20) == 0) {
            node->dead = true;
        }
    }
    return LOONG_OK;
}

/* ---- executor ----------------------------------------------------------- */

loong_status_t __real_loongi_pair_run(const loong_binding_t run[2],
                                      const loong_program_pair_t *pair,
                                      const loong_frame_t *const frame[2]);
loong_status_t __wrap_loongi_pair_run(const loong_binding_t run[2],
                                      const loong_program_pair_t *pair,
                                      const loong_frame_t *const frame[2]);

loong_status_t __wrap_loongi_pair_run(const loong_binding_t run[2],
                                      const loong_program_pair_t *pair,
                                      const loong_frame_t *const frame[2])
{
    loong_binding_t both[2] = {run[0], run[1]};
    const loong_frame_t *frames[2] = {frame[0], frame[1]};
    if (is(PLANT_PAIR_SCRATCH)) {
        plant_state.planted++;
        both[1].base[LOONG_BASE_SCRATCH] = run[0].base[LOONG_BASE_SCRATCH];
    }
    if (is(PLANT_PAIR_FRAME)) {
        plant_state.planted++;
        frames[0] = frame[1];
        frames[1] = frame[0];
    }
    return __real_loongi_pair_run(both, pair, frames);
}

loong_status_t __real_loongi_program_run(const loong_binding_t *run,
                                         const loong_program_t *program,
                                         const loong_frame_t *frame);
loong_status_t __wrap_loongi_program_run(const loong_binding_t *run,
                                         const loong_program_t *program,
                                         const loong_frame_t *frame);

loong_status_t __wrap_loongi_program_run(const loong_binding_t *run,
                                         const loong_program_t *program,
                                         const loong_frame_t *frame)
{
    loong_frame_t copy = *frame;
    if (is(PLANT_STALE_FRAME) && !frame->first) {
        plant_state.planted++;
        copy.first = 1;
    }
    return __real_loongi_program_run(run, program, &copy);
}
