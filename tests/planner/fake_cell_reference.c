/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference of cells: every micro-batch of every stage has storage of its
 * own, and components run one after the other. It knows no lists, slots and
 * areas; programs are those of the compiler, which test_planner.c proves. */
#include <stdlib.h>
#include <string.h>

#include "fake_components.h"
#include "test.h"

/* A stage of one replica: its bases are once there, or per micro-batch. */
typedef struct store {
    char *base[FAKE_MICRO][LOONG_BASE_COUNT];
} store_t;

typedef struct reference {
    fake_components_t *fake;
    fake_table_t *grads;
    int step;
    fake_world_t world;
    store_t stores[FAKE_COMPONENTS][FAKE_RANKS][FAKE_STAGES];
} reference_t;

static bool is_own(loong_base_t base)
{
    return base == LOONG_BASE_SLOT || base == LOONG_BASE_INPUT ||
           base == LOONG_BASE_EDGE || base == LOONG_BASE_EDGE_GRAD;
}

static void make_store(const loong_model_chunk_t *c, store_t *store)
{
    const int64_t bytes[LOONG_BASE_COUNT] = {
        [LOONG_BASE_PARAM] = c->param_bytes,
        [LOONG_BASE_GRAD] = c->grad_bytes,
        [LOONG_BASE_STATE] = c->state_bytes,
        [LOONG_BASE_SLOT] = c->slot_bytes,
        [LOONG_BASE_INPUT] = c->input_bytes,
        [LOONG_BASE_SCRATCH] = c->scratch_bytes,
        [LOONG_BASE_EDGE] = c->edge_bytes[0],
        [LOONG_BASE_EDGE_GRAD] = c->edge_bytes[1]};
    for (int m = 0; m < FAKE_MICRO; m++) {
        for (int b = 0; b < LOONG_BASE_COUNT; b++) {
            store->base[m][b] = m > 0 && !is_own((loong_base_t)b)
                                    ? store->base[0][b]
                                    : calloc(1, (size_t)bytes[b] + 64);
        }
    }
}

static void free_store(store_t *store)
{
    for (int m = 0; m < FAKE_MICRO; m++) {
        for (int b = 0; b < LOONG_BASE_COUNT; b++) {
            if (m == 0 || is_own((loong_base_t)b)) {
                free(store->base[m][b]);
            }
        }
    }
}

static loong_binding_t bind(reference_t *f, int component, int replica,
                            int stage, int micro_batch)
{
    loong_binding_t run = {.ctx = f->fake->ctx, .stream = &f->world};
    memcpy(run.base,
           f->stores[component][replica][stage].base[LOONG_MAX(micro_batch, 0)],
           sizeof(run.base));
    return run;
}

/* Copies the ports that cross to the next stage, or the one before. */
static void pass_on(reference_t *f, int component, int replica, int stage,
                    int to, int micro_batch)
{
    const fake_components_t *fake = f->fake;
    const loong_model_chunk_t *a = fake->chunks[component][stage];
    loong_binding_t from = bind(f, component, replica, stage, micro_batch);
    bool hollow = fake->hollow[component][replica][micro_batch];
    for (int i = 0; i < a->num_outputs && !hollow; i++) {
        const loong_port_t *out = &a->outputs[i];
        if (out->edge || !(out->boundary || out->gradient) ||
            out->gradient != (to < stage)) {
            continue;
        }
        const loong_port_t *in =
            loongi_model_chunk_input(fake->chunks[component][to], out->name);
        loong_binding_t run = bind(f, component, replica, to, micro_batch);
        memcpy(fake_port_data(&run, in), fake_port_data(&from, out),
               (size_t)fake_port_bytes(out));
    }
}

/* Brings the segments of all messages to a micro-batch. */
static void bring(reference_t *f, int component, int replica, int stage,
                  int micro_batch, bool backward)
{
    const fake_components_t *fake = f->fake;
    for (int i = 0; i < (int)fake->cell->params.num_messages; i++) {
        loong_message_end_t from = fake->from[i], to = fake->to[i];
        from.component = fake_own(fake, from.component);
        to.component = fake_own(fake, to.component);
        if (to.component != component || to.stage != stage ||
            to.micro_batch != micro_batch ||
            fake->cell->params.messages[i].backward != backward ||
            fake_replica(fake, component, to.rank) != replica) {
            continue;
        }
        loong_binding_t a = bind(
            f, from.component, fake_replica(fake, from.component, from.rank),
            from.stage, from.micro_batch);
        loong_binding_t b = bind(f, component, replica, stage, micro_batch);
        const loong_port_t *out = fake_message_port(fake, i, true);
        const loong_port_t *in = fake_message_port(fake, i, false);
        for (int k = 0; k < FAKE_SEGMENTS; k++) {
            const fake_segment_t *s = &fake->segments[i][k];
            memcpy(fake_port_data(&b, in) + s->to_row * fake_row_bytes(in),
                   fake_port_data(&a, out) + s->from_row * fake_row_bytes(out),
                   (size_t)(s->rows * fake_row_bytes(in)));
        }
    }
}

static void run_reference(reference_t *f, int component, int replica, int stage,
                          int micro_batch, loong_program_kind_t kind)
{
    const fake_components_t *fake = f->fake;
    const loong_model_chunk_t *c = fake->chunks[component][stage];
    loong_frame_t frame = fake_component_frame(fake, component, replica, stage,
                                               f->step, micro_batch);
    loong_binding_t run = bind(f, component, replica, stage, micro_batch);
    const loong_port_t *ids = loongi_model_chunk_input(c, "ids");
    if (frame.hollow) {
        return;
    }
    if ((kind == LOONG_PROGRAM_F || kind == LOONG_PROGRAM_E) && ids != NULL) {
        fake_fill(fake_port_data(&run, ids), (size_t)fake_port_bytes(ids),
                  fake_ids_key(&frame));
    }
    if (loongi_program_run(&run, &c->programs[kind], &frame) != LOONG_OK) {
        fail_msg("the reference fails: %s", f->world.error);
    }
}

static void run_replica(reference_t *f, int component, int replica,
                        bool backward)
{
    const loong_schedule_t *s = f->fake->cell->schedules[component];
    int stages = loongi_schedule_stages(s);
    for (int m = 0; m < s->params.micro_batches; m++) {
        for (int i = 0; i < stages; i++) {
            int stage = backward ? stages - 1 - i : i;
            int next = backward ? stage - 1 : stage + 1;
            bring(f, component, replica, stage, m, backward);
            run_reference(f, component, replica, stage, m,
                          s->kind->evaluate ? LOONG_PROGRAM_E
                          : backward        ? LOONG_PROGRAM_B
                                            : LOONG_PROGRAM_F);
            if (backward && s->kind->split) {
                run_reference(f, component, replica, stage, m, LOONG_PROGRAM_W);
            }
            if (next >= 0 && next < stages) {
                pass_on(f, component, replica, stage, next, m);
            }
        }
    }
}

/* Notes the gradients, moves the parameters. */
static void finish_stage(reference_t *f, int component, int replica, int stage)
{
    const fake_components_t *fake = f->fake;
    const loong_model_chunk_t *c = fake->chunks[component][stage];
    loong_frame_t frame =
        fake_component_frame(fake, component, replica, stage, f->step, -1);
    loong_binding_t run = bind(f, component, replica, stage, 0);
    for (int64_t i = 0; i < c->num_params; i++) {
        fake_param_t p = fake_param_of(c, &run, i);
        fake_table_put(f->grads, fake_grad_key(&frame, i),
                       fake_digest(p.grad, 1, p.elements, 4, 0));
        fake_update(p.param, 4, p.grad, 4, p.elements);
    }
    memset(run.base[LOONG_BASE_GRAD], 0, (size_t)c->grad_bytes);
}

/* Nothing is there of the next step. */
static void finish_replica(reference_t *f, int component, int replica)
{
    const loong_schedule_t *s = f->fake->cell->schedules[component];
    fake_param_t holders[FAKE_HOLDERS];
    int count = 0;
    for (int i = 0; i < loongi_schedule_stages(s); i++) {
        int rank = i / s->params.chunks;
        int stage = loongi_schedule_stage(s, rank, i % s->params.chunks);
        const loong_model_chunk_t *chunk = f->fake->chunks[component][stage];
        loong_binding_t run = bind(f, component, replica, stage, 0);
        int64_t tied = fake_find_tied(chunk);
        if (tied >= 0) {
            holders[count] = fake_param_of(chunk, &run, tied);
            holders[count++].rank = rank;
        }
    }
    fake_sum_tie(count, holders);
    for (int i = 0; i < loongi_schedule_stages(s); i++) {
        const loong_model_chunk_t *chunk = f->fake->chunks[component][i];
        for (int m = 0; m < FAKE_MICRO; m++) {
            loong_binding_t run = bind(f, component, replica, i, m);
            memset(run.base[LOONG_BASE_EDGE], 0, (size_t)chunk->edge_bytes[0]);
            memset(run.base[LOONG_BASE_EDGE_GRAD], 0,
                   (size_t)chunk->edge_bytes[1]);
        }
        if (!s->kind->evaluate) {
            finish_stage(f, component, replica, i);
        }
    }
}

/* Forwards of all components, then backwards of those that are trained. */
static void run_step(reference_t *f)
{
    const fake_components_t *fake = f->fake;
    const loong_cell_params_t *p = &fake->cell->params;
    for (int pass = 0; pass < 3; pass++) {
        for (int i = 0; i < fake->cell->num_own; i++) {
            int c = pass == 1 ? fake->cell->num_own - 1 - i : i;
            const loong_schedule_t *s = fake->cell->schedules[c];
            for (int k = 0; k < p->components[c].replicas; k++) {
                if (pass == 2) {
                    finish_replica(f, c, k);
                } else if (pass == 0 || !s->kind->evaluate) {
                    run_replica(f, c, k, pass == 1);
                }
            }
        }
    }
}

/* Calls for each stage of each replica. */
static void each_store(reference_t *f, bool make)
{
    const fake_components_t *fake = f->fake;
    for (int c = 0; c < fake->cell->num_own; c++) {
        int stages = loongi_schedule_stages(fake->cell->schedules[c]);
        int replicas = fake->cell->params.components[c].replicas;
        for (int k = 0; k < replicas * stages; k++) {
            store_t *store = &f->stores[c][k / stages][k % stages];
            const loong_model_chunk_t *chunk = fake->chunks[c][k % stages];
            loong_frame_t frame =
                fake_component_frame(fake, c, k / stages, k % stages, 0, -1);
            if (!make) {
                free_store(store);
                continue;
            }
            make_store(chunk, store);
            loong_binding_t run = bind(f, c, k / stages, k % stages, 0);
            for (int64_t i = 0; i < chunk->num_params; i++) {
                fake_param_t p = fake_param_of(chunk, &run, i);
                fake_fill(p.param, (size_t)p.elements * 4,
                          fake_param_key(chunk, &frame, i));
            }
        }
    }
}

void fake_components_reference(fake_components_t *fake, fake_table_t *seen,
                               fake_table_t *grads)
{
    reference_t *f = calloc(1, sizeof(*f));
    f->fake = fake;
    f->grads = grads;
    f->world.seen = seen;
    f->world.record = true;
    each_store(f, true);
    for (f->step = 0; f->step < FAKE_STEPS; f->step++) {
        fake_components_plan(fake, f->step);
        run_step(f);
    }
    each_store(f, false);
    free(f);
}
