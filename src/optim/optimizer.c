/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans states and masters of a stage, and builds the programs of the norm and
 * of the update. Called by src/component/stage.c. Read shards.h and
 * optimizer_class.h before. */
#include "optimizer.h"

#include <assert.h>

#include "exact_sum.h"
#include "loong/moe.h"
#include "loong/ops.h"
#include "muon_steps.h"
#include "param_slice.h"
#include "rng.h"
#include "steps.h"

enum { OPTIM_ALIGN = 64 };

/* ---- memory -------------------------------------------------------------- */

static int64_t take(loong_optimizer_t *o, int64_t bytes)
{
    int64_t at = o->optim_bytes;
    o->optim_bytes += loongi_round_up(bytes, OPTIM_ALIGN);
    return at;
}

static const loong_optimizer_class_t *class_of(const loong_optimizer_t *o,
                                               const loong_bucket_t *b)
{
    int group = o->shards->flats[b->flat].optimizer;
    return loongi_optimizer_class(o->params.group[group].kind);
}

static loong_dtype_t state_dtype(const loong_optimizer_t *o,
                                 const loong_bucket_t *b, int k)
{
    return loongi_state_dtype(&o->params, class_of(o, b)->states[k],
                              o->shards->wide);
}

/* What is frozen has neither states nor a master. */
static void place_states(loong_optimizer_t *o, loong_bucket_t *b)
{
    const loong_flat_t *flat = &o->shards->flats[b->flat];
    int64_t n = b->update_end - b->update_begin;
    if (flat->sign_rate > 0.0 || flat->frozen) {
        return;
    }
    for (int k = 0; k < class_of(o, b)->num_states; k++) {
        b->state[k] =
            take(o, n * (int64_t)loong_dtype_size(state_dtype(o, b, k)));
    }
    b->low = flat->dtype == LOONG_BF16 ? take(o, n * 2) : -1;
    b->ema = o->params.ema.decay > 0.0
                 ? take(o, n * (int64_t)loong_dtype_size(o->shards->wide))
                 : -1;
}

static loong_operand_t grad_at(const loong_optimizer_t *o,
                               const loong_bucket_t *b, int64_t element)
{
    return loongi_at(LOONG_BASE_GRAD,
                     loongi_shards_grad(o->shards, b, element));
}

static loong_operand_t param_at(const loong_optimizer_t *o,
                                const loong_bucket_t *b, int64_t element)
{
    return loongi_at(LOONG_BASE_PARAM,
                     loongi_shards_param(o->shards, b->flat, element));
}

static loong_status_t append(loong_optimizer_t *o, loong_program_t *program,
                             const loong_step_t *step)
{
    return loongi_program_append(o->ctx, program, o->shards->params.device,
                                 step, o->arena);
}

/* ---- steps --------------------------------------------------------------- */

/* The op of a class: gradient -> parameter, low halves, states. */
static loong_status_t add_step(loong_optimizer_t *o, const loong_bucket_t *b,
                               const void *attr)
{
    loong_step_t step;
    const loong_flat_t *flat = &o->shards->flats[b->flat];
    const loong_optimizer_class_t *class = class_of(o, b);
    int64_t n = b->update_end - b->update_begin;
    loongi_step_begin(&step, class->name, "optimizer", &o->shards->params);
    step.query.attr = attr;
    step.query.num_in = 1;
    step.query.num_out = 2 + class->num_states;
    step.query.arg[0] = loongi_flat_arg(o->shards->wide, n);
    step.operand[0] = grad_at(o, b, b->update_begin);
    step.query.arg[1] = loongi_flat_arg(flat->dtype, n);
    step.operand[1] = param_at(o, b, b->update_begin);
    if (b->low >= 0) {
        step.query.arg[2] = loongi_flat_arg(LOONG_U16, n);
        step.operand[2] = loongi_at(LOONG_BASE_OPTIM, b->low);
    }
    for (int k = 0; k < class->num_states; k++) {
        step.query.arg[3 + k] = loongi_flat_arg(state_dtype(o, b, k), n);
        step.operand[3 + k] = loongi_at(LOONG_BASE_OPTIM, b->state[k]);
    }
    return append(o, &o->update, &step);
}

/* Where elements of what the rank has of a parameter, from `begin` on, are in
 * the whole. */
static loong_update_piece_t locate(const loong_chunk_param_t *p, int64_t begin)
{
    loong_param_slice_t part = loongi_param_slice_of(p);
    loong_update_piece_t piece = {
        .stream = loongi_rng_name(p->name),
        .begin = begin,
        .first = part.row * part.all_cols + part.col,
        .run = part.cols,
        .stride = part.all_cols,
    };
    if (part.span > 0) {
        assert(part.cols == part.all_cols);
        piece.run *= part.span;
        piece.stride *= part.apart;
    } else if (part.cols == part.all_cols) {
        piece.run = piece.stride = LOONG_MAX(p->elements, 1);
    }
    return piece;
}

/* The pieces of what a bucket updates, one of each parameter, and one of the
 * padding that may stand before the first. */
static loong_status_t add_pieces(loong_optimizer_t *o, const loong_bucket_t *b,
                                 loong_update_attr_t *attr)
{
    loong_update_piece_t *pieces = NULL;
    LOONG_TRY(loongi_arena_alloc(
        o->arena, sizeof(*pieces) * (size_t)(o->chunk->num_params + 1),
        &pieces));
    attr->pieces = pieces;
    for (int64_t i = 0; i < o->chunk->num_params; i++) {
        const loong_chunk_param_t *p = &o->chunk->params[i];
        int64_t begin = LOONG_MAX(b->update_begin, p->flat_offset);
        int64_t end =
            LOONG_MIN(b->update_end, p->flat_offset + p->elements);
        if (p->flat == b->flat && begin < end) {
            int64_t at = begin - b->update_begin;
            if (attr->num_pieces == 0 && at > 0) {
                pieces[attr->num_pieces++] =
                    (loong_update_piece_t){.run = at, .stride = at};
            }
            loong_update_piece_t *piece = &pieces[attr->num_pieces++];
            *piece = locate(p, begin - p->flat_offset);
            piece->at = at;
            assert(at == 0 || at > piece[-1].at);
        }
    }
    return LOONG_OK;
}

static bool has_bf16_states(const loong_optimizer_t *o, const loong_bucket_t *b)
{
    bool found = false;
    for (int k = 0; k < class_of(o, b)->num_states; k++) {
        found = found || state_dtype(o, b, k) == LOONG_BF16;
    }
    return found;
}

static loong_status_t add_update(loong_optimizer_t *o,
                                 const loong_bucket_t *b)
{
    const loong_flat_t *flat = &o->shards->flats[b->flat];
    const loong_optimizer_group_t *g = &o->params.group[flat->optimizer];
    loong_update_attr_t *attr = NULL;
    if (b->update_begin == b->update_end) {
        return LOONG_OK;
    }
    if (class_of(o, b)->matrix) {
        return loongi_muon_add(o, b);
    }
    LOONG_TRY(loongi_arena_alloc(o->arena, sizeof(*attr), &attr));
    *attr = (loong_update_attr_t){
        .group = flat->optimizer,
        .beta1 = g->beta1,
        .beta2 = g->beta2,
        .eps = g->eps,
        .momentum = g->momentum,
        .nesterov = g->nesterov,
        .weight_decay = flat->weight_decay * g->weight_decay,
    };
    if (o->params.stochastic_rounding && has_bf16_states(o, b)) {
        LOONG_TRY(add_pieces(o, b, attr));
    }
    return add_step(o, b, attr);
}

/* Of a bucket whose parameters have an average: its step of a program. */
static loong_status_t add_ema(loong_optimizer_t *o, const loong_bucket_t *b,
                              const char *op, loong_program_t *program)
{
    const loong_ema_t *ema = &o->params.ema;
    const loong_flat_t *flat = &o->shards->flats[b->flat];
    int64_t n = b->update_end - b->update_begin;
    loong_operand_t average = loongi_at(LOONG_BASE_OPTIM, b->ema);
    loong_update_attr_t *attr = NULL;
    loong_step_t step;
    if (b->ema < 0 || n == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_arena_alloc(o->arena, sizeof(*attr), &attr));
    *attr = (loong_update_attr_t){.ema_decay = ema->decay,
                                  .ema_start = ema->start,
                                  .ema_warmup = ema->warmup};
    loongi_step_begin(&step, op, "optimizer", &o->shards->params);
    step.query.attr = attr;
    step.query.num_in = 1;
    step.query.num_out = 3;
    step.query.arg[0] = step.query.arg[3] = loongi_flat_arg(o->shards->wide, n);
    step.operand[0] = step.operand[3] = average;
    step.query.arg[1] = loongi_flat_arg(flat->dtype, n);
    step.operand[1] = param_at(o, b, b->update_begin);
    if (b->low >= 0) {
        step.query.arg[2] = loongi_flat_arg(LOONG_U16, n);
        step.operand[2] = loongi_at(LOONG_BASE_OPTIM, b->low);
    }
    return append(o, program, &step);
}

/* A step against the sign. */
static loong_status_t add_sign_update(loong_optimizer_t *o,
                                      const loong_bucket_t *b)
{
    loong_step_t step;
    loong_sign_step_attr_t *attr = NULL;
    const loong_flat_t *flat = &o->shards->flats[b->flat];
    int64_t n = b->update_end - b->update_begin;
    if (n == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_arena_alloc(o->arena, sizeof(*attr), &attr));
    attr->rate = flat->sign_rate;
    loongi_step_begin(&step, "sign_step", "optimizer", &o->shards->params);
    step.query.attr = attr;
    step.query.num_in = step.query.num_out = 1;
    step.query.arg[0] = loongi_flat_arg(o->shards->wide, n);
    step.operand[0] = grad_at(o, b, b->update_begin);
    step.query.arg[1] = loongi_flat_arg(flat->dtype, n);
    step.operand[1] = param_at(o, b, b->update_begin);
    return append(o, &o->update, &step);
}

static loong_status_t add_norm(loong_optimizer_t *o, const loong_bucket_t *b)
{
    loong_step_t step;
    const loong_flat_t *flat = &o->shards->flats[b->flat];
    int64_t n = b->own_end - b->own_begin;
    if (n == 0 || flat->copy || flat->sign_rate > 0.0) {
        return LOONG_OK;
    }
    loongi_step_begin(&step, "sumsq", "gradient norm", &o->shards->params);
    step.query.num_in = 1;
    step.query.num_out = 1;
    step.query.accumulate = 1;
    step.add = 1; /* the record is cleared by the caller */
    step.query.arg[0] = loongi_flat_arg(o->shards->wide, n);
    step.operand[0] = grad_at(o, b, b->own_begin);
    step.query.arg[1] = loongi_flat_arg(LOONG_I64, LOONG_EXACT_WORDS);
    step.operand[1] = loongi_at(LOONG_BASE_OPTIM, o->record_offset);
    return append(o, &o->norm, &step);
}

static loong_status_t add_gather(loong_optimizer_t *o, const loong_bucket_t *b,
                                 loong_program_t *program)
{
    loong_step_t step;
    LOONG_TRY(loongi_step_collective(o->shards, "flat_all_gather", b->group,
                                     b, &step));
    step.query.arg[0] = loongi_flat_arg(o->shards->flats[b->flat].dtype,
                                        b->end - b->begin);
    step.operand[0] = param_at(o, b, b->begin);
    return append(o, program, &step);
}

/* ---- object -------------------------------------------------------------- */

static loong_status_t plan(loong_optimizer_t *o, loong_shards_t *shards)
{
    bool gathers = shards->params.sharding == LOONG_SHARDING_OPTIM ||
                   shards->params.sharding == LOONG_SHARDING_GRADS;
    LOONG_TRY(loongi_arena_create(o->ctx, "optimizer", &o->arena));
    o->norm.kind = o->update.kind = o->swap.kind = LOONG_PROGRAM_U;
    o->record_offset =
        take(o, LOONG_EXACT_WORDS * (int64_t)sizeof(int64_t));
    o->room_offset = take(o, loongi_muon_room(o));
    for (int64_t i = 0; i < shards->num_buckets; i++) {
        loong_bucket_t *b = &shards->buckets[i];
        place_states(o, b);
        if (shards->flats[b->flat].frozen) {
            continue;
        }
        LOONG_TRY(add_norm(o, b));
        LOONG_TRY(shards->flats[b->flat].sign_rate > 0.0
                      ? add_sign_update(o, b)
                      : add_update(o, b));
        LOONG_TRY(add_ema(o, b, "ema", &o->update));
        LOONG_TRY(add_ema(o, b, "ema_swap", &o->swap));
        if (gathers) {
            LOONG_TRY(add_gather(o, b, &o->update));
        }
        if (gathers && b->ema >= 0) {
            LOONG_TRY(add_gather(o, b, &o->swap));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_optimizer_create(const loong_model_chunk_t *chunk,
                                       loong_shards_t *shards,
                                       const loong_optimizer_params_t *params,
                                       loong_optimizer_t **optimizer_p)
{
    loong_optimizer_t *o = NULL;
    LOONG_TRY(loongi_alloc(shards->ctx, sizeof(*o), "optimizer", &o));
    o->ctx = shards->ctx;
    o->chunk = chunk;
    o->shards = shards;
    o->params = *params;
    loong_status_t status = plan(o, shards);
    if (status != LOONG_OK) {
        loongi_optimizer_destroy(&o);
        return status;
    }
    *optimizer_p = o;
    return LOONG_OK;
}

void loongi_optimizer_destroy(loong_optimizer_t **optimizer_p)
{
    loong_optimizer_t *o = *optimizer_p;
    if (o == NULL) {
        return;
    }
    loongi_program_clear(o->ctx, &o->norm);
    loongi_program_clear(o->ctx, &o->update);
    loongi_program_clear(o->ctx, &o->swap);
    loongi_arena_destroy(&o->arena);
    loongi_free(o->ctx, o);
    *optimizer_p = NULL;
}
