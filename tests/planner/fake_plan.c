/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles the stages of a model, plans the memory of all ranks and takes
 * exactly that. */
#include <string.h>

#include "fake_replay.h"
#include "passes.h"

loong_model_chunk_t *fake_chunk_of(replay_t *r, int stage)
{
    int ranks = r->schedule->params.ranks;
    return r->chunks[loongi_schedule_rank(r->schedule, stage)][stage / ranks];
}

fake_region_t *fake_region_of(replay_t *r, int stage, loong_base_t base,
                                int64_t *begin_p)
{
    int rank = loongi_schedule_rank(r->schedule, stage);
    int chunk = stage / r->schedule->params.ranks;
    *begin_p = r->ranks[rank]->places[chunk].begin[base];
    return r->base[rank][base];
}

/* ---- programs ----------------------------------------------------------- */

static loong_status_t compile_stage(replay_t *r, int rank, int chunk)
{
    const fake_options_t *o = r->options;
    loong_graph_t *graph = NULL;
    loong_compile_params_t p;
    memset(&p, 0, sizeof(p));
    p.device = FAKE_DEVICE;
    p.threads = 1;
    p.in_place = o->in_place;
    p.split = r->schedule->kind->split;
    p.ahead = loongi_schedule_ahead(r->schedule);
    p.no_direct = o->no_direct;
    p.no_assemble = o->no_assemble;
    p.num_recompute = o->num_recompute;
    p.recompute = o->recompute;
    loong_status_t status = fake_model_build(
        r->ctx, r->model, loongi_schedule_stage(r->schedule, rank, chunk),
        &graph);
    if (status == LOONG_OK) {
        status = loongi_model_chunk_compile(graph, true, &p,
                                            &r->chunks[rank][chunk]);
    }
    loong_graph_destroy(&graph);
    return status == LOONG_OK
               ? loongi_model_chunk_prepare(r->chunks[rank][chunk])
               : status;
}

static void count_step(fake_counters_t *n, const loong_step_t *step,
                       loong_program_kind_t kind)
{
    const loong_kernel_query_t *q = &step->query;
    n->steps_run++;
    n->recomputed += step->recomputed;
    n->weights += kind == LOONG_PROGRAM_W;
    n->direct += q->accumulate != 0 && strcmp(q->op, "accumulate") != 0;
    for (int i = 0; i < q->num_in + q->num_out; i++) {
        bool out = i >= q->num_in;
        n->strided += !out && !loong_karg_dense(&q->arg[i]);
        n->assembled += out && !loong_karg_dense(&q->arg[i]);
        n->in_place += out && q->num_in > 0 && q->arg[i].rank > 0 &&
                       step->operand[i].base != LOONG_BASE_NONE &&
                       step->operand[i].base == step->operand[0].base &&
                       step->operand[i].offset == step->operand[0].offset;
    }
}

static void count_chunk(fake_counters_t *n, const loong_model_chunk_t *c)
{
    for (int p = 0; p < LOONG_PROGRAM_COUNT; p++) {
        for (int64_t i = 0; i < c->programs[p].num_steps; i++) {
            count_step(n, &c->programs[p].steps[i], (loong_program_kind_t)p);
        }
    }
}

static void fill_params(replay_t *r, int stage)
{
    const loong_model_chunk_t *c = fake_chunk_of(r, stage);
    int64_t begin = 0;
    fake_region_t *region = fake_region_of(r, stage, LOONG_BASE_PARAM, &begin);
    for (int64_t p = 0; p < c->num_params; p++) {
        const loong_chunk_param_t *place = &c->params[p];
        const loong_flat_t *flat = &c->flats[place->flat];
        int64_t size = (int64_t)loong_dtype_size(flat->dtype);
        bool tied = strcmp(place->name, FAKE_TIED) == 0;
        char *data = region->data + begin + flat->param_offset +
                     place->flat_offset * size;
        int64_t bytes = place->elements * size;
        fake_fill(data, (size_t)bytes,
                  fake_result_key(tied ? 0 : stage, -1, place->name));
        fake_world_write(&r->world, data, bytes, "parameters");
    }
}

loong_status_t fake_plan_create(replay_t *r)
{
    const fake_options_t *o = r->options;
    LOONG_TRY(loongi_schedule_create(r->ctx, o->schedule, &o->params,
                                     &r->schedule));
    LOONG_TRY(o->unchecked ? LOONG_OK : loongi_schedule_check(r->schedule));
    r->seen = r->reference->seen;
    r->world.seen = &r->seen;
    for (int rank = 0; rank < o->params.ranks; rank++) {
        for (int c = 0; c < o->params.chunks; c++) {
            LOONG_TRY(compile_stage(r, rank, c));
            count_chunk(r->counters, r->chunks[rank][c]);
        }
        const int32_t first_chunk[] = {0, o->params.chunks}, itself[] = {0};
        loong_memory_plan_use_t use = {&r->schedule->ranks[rank],
                                       r->chunks[rank]};
        const loong_memory_plan_params_t params = {1, first_chunk, itself, NULL,
                                                   1, &use};
        LOONG_TRY(loongi_memory_plan_create(r->ctx, &params, &r->ranks[rank]));
        r->run[rank].ctx = r->ctx;
        r->run[rank].stream = &r->world;
        for (int b = 1; b < LOONG_BASE_COUNT; b++) {
            r->base[rank][b] = fake_world_add(
                &r->world, loongi_base_name((loong_base_t)b),
                r->ranks[rank]->bytes[b]);
            r->run[rank].base[b] = r->base[rank][b]->data;
        }
        fake_region_t *state = r->base[rank][LOONG_BASE_STATE];
        memset(state->data, 0, (size_t)state->bytes);
        memset(state->valid, 1, (size_t)state->bytes);
    }
    for (int s = 0; s < loongi_schedule_stages(r->schedule); s++) {
        fill_params(r, s);
    }
    return LOONG_OK;
}

void fake_plan_destroy(replay_t *r)
{
    for (int rank = 0; rank < MAX_RANKS; rank++) {
        loongi_memory_plan_destroy(&r->ranks[rank]);
        for (int c = 0; c < MAX_CHUNKS; c++) {
            loongi_model_chunk_destroy(&r->chunks[rank][c]);
        }
    }
    loongi_schedule_destroy(&r->schedule);
    fake_world_free(&r->world);
}

/* Planned = allocated = touched, where counts leave nothing untouched. */
bool fake_plan_exact(replay_t *r)
{
    static const loong_base_t bases[] = {LOONG_BASE_SCRATCH, LOONG_BASE_SLOT,
                                         LOONG_BASE_INPUT};
    bool exact = true;
    for (int rank = 0; rank < r->schedule->params.ranks; rank++) {
        for (int b = 0; b < LOONG_COUNT_OF(bases); b++) {
            fake_region_t *region = r->base[rank][bases[b]];
            int64_t align =
                bases[b] == LOONG_BASE_INPUT ? 64 : LOONG_PLACE_ALIGN;
            exact = exact &&
                    loongi_round_up(region->touched, align) == region->bytes;
            if (!exact) {
                fake_world_fail(&r->world,
                                "rank %d: %lld bytes of %s are planned, %lld "
                                "touched", rank, (long long)region->bytes,
                                region->name, (long long)region->touched);
            }
        }
    }
    return exact;
}
