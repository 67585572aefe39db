/* SPDX-License-Identifier: Apache-2.0 */
#include "optimizer.h"

#include <string.h>

#include "exact_sum.h"
#include "loong/collective.h"
#include "loong/ops.h"

enum { OPTIM_ALIGN = 64 };

/* ---- buckets and parts --------------------------------------------------- */

/* The first element of a row at or after `target` within parameter p. */
static int64_t next_row(const loong_param_place_t *p, int64_t target)
{
    int64_t row = 1;
    for (int d = 1; d < p->shape.rank; d++) {
        row *= p->shape.dim[d];
    }
    int64_t inside = target - p->flat_offset;
    return p->flat_offset + loongi_round_up(inside, row);
}

/* The first cut between rows at or after `target`; padding belongs to what
 * stands before it. */
static int64_t cut_after(const loong_chunk_t *chunk, int flat, int64_t target,
                         int64_t end)
{
    for (int64_t i = 0; i < chunk->num_params; i++) {
        const loong_param_place_t *p = &chunk->params[i];
        if (p->flat != flat || target > p->flat_offset + p->elements) {
            continue;
        }
        if (target <= p->flat_offset) {
            return LOONG_MIN(p->flat_offset, end);
        }
        return LOONG_MIN(next_row(p, target), end);
    }
    return end;
}

/* Cuts a bucket into parts of nearly equal size, one per rank. */
static loong_status_t cut_bucket(loong_optimizer_t *o,
                                 const loong_chunk_t *chunk, bool shard,
                                 loong_bucket_t *b)
{
    int size = o->size;
    LOONG_TRY(loongi_arena_alloc(
        o->arena, (size_t)size * sizeof(*b->counts), &b->counts));
    int64_t at = b->begin;
    for (int r = 0; r < size; r++) {
        int64_t target = b->begin + (b->end - b->begin) * (r + 1) / size;
        int64_t next = r + 1 == size
                           ? b->end
                           : LOONG_MAX(at, cut_after(chunk, b->flat, target,
                                                     b->end));
        b->counts[r] = next - at;
        if (r == o->rank) {
            b->own_begin = at;
            b->own_end = next;
        }
        at = next;
    }
    b->update_begin = shard ? b->own_begin : b->begin;
    b->update_end = shard ? b->own_end : b->end;
    return LOONG_OK;
}

/* Splits every trained flat buffer at starts of packs. */
static loong_status_t make_buckets(loong_optimizer_t *o,
                                   const loong_chunk_t *chunk,
                                   const loong_optimizer_params_t *params)
{
    int64_t wide = (int64_t)loong_dtype_size(chunk->precision.wide);
    int64_t target = LOONG_MAX(params->bucket_bytes / wide, 1);
    LOONG_TRY(loongi_arena_alloc(
        o->arena,
        (size_t)(chunk->num_params + chunk->num_flats) * sizeof(*o->buckets),
        &o->buckets));
    for (int f = 0; f < chunk->num_flats; f++) {
        if (chunk->flats[f].frozen) {
            continue;
        }
        int64_t begin = 0;
        for (int64_t i = 0; i <= chunk->num_params; i++) {
            bool last = i == chunk->num_params;
            if (!last && (chunk->params[i].flat != f ||
                          !chunk->params[i].begins_pack)) {
                continue;
            }
            int64_t end = last ? chunk->flats[f].elements
                               : chunk->params[i].flat_offset;
            if (end == begin || (!last && end - begin < target)) {
                continue;
            }
            loong_bucket_t *b = &o->buckets[o->num_buckets++];
            b->flat = f;
            b->begin = begin;
            b->end = end;
            LOONG_TRY(cut_bucket(o, chunk, params->shard, b));
            begin = end;
        }
    }
    return LOONG_OK;
}

static int64_t take(loong_optimizer_t *o, int64_t bytes)
{
    int64_t at = o->optim_bytes;
    o->optim_bytes += loongi_round_up(bytes, OPTIM_ALIGN);
    return at;
}

static void place_moments(loong_optimizer_t *o, const loong_chunk_t *chunk)
{
    int64_t wide = (int64_t)loong_dtype_size(chunk->precision.wide);
    for (int64_t i = 0; i < o->num_buckets; i++) {
        loong_bucket_t *b = &o->buckets[i];
        int64_t n = b->update_end - b->update_begin;
        b->exp_avg = take(o, n * wide);
        b->exp_avg_sq = take(o, n * wide);
        bool half = chunk->flats[b->flat].dtype == LOONG_BF16;
        b->low = half ? take(o, n * 2) : -1;
    }
    o->record_offset = take(o, LOONG_EXACT_WORDS * (int64_t)sizeof(int64_t));
}

/* ---- steps --------------------------------------------------------------- */

static loong_karg_t flat_arg(loong_dtype_t dtype, int64_t n)
{
    loong_karg_t arg = {dtype, 1, -1, {n, 0, 0, 0}, n};
    return arg;
}

static loong_operand_t at_base(loong_base_t base, int64_t offset)
{
    loong_operand_t operand = {base, offset};
    return operand;
}

static int64_t param_at(const loong_chunk_t *chunk, int flat, int64_t element)
{
    const loong_flat_t *f = &chunk->flats[flat];
    return f->param_offset + element * (int64_t)loong_dtype_size(f->dtype);
}

static int64_t grad_at(const loong_chunk_t *chunk, int flat, int64_t element)
{
    return chunk->flats[flat].grad_offset +
           element * (int64_t)loong_dtype_size(chunk->precision.wide);
}

static void begin_step(loong_step_t *step, const char *op, const char *scope,
                       int threads)
{
    memset(step, 0, sizeof(*step));
    step->scope = scope;
    step->refusals = "";
    step->query.op = op;
    step->query.threads = threads;
}

static loong_status_t add_update(loong_optimizer_t *o,
                                 const loong_chunk_t *chunk,
                                 const loong_optimizer_params_t *params,
                                 const loong_bucket_t *b)
{
    loong_step_t step;
    loong_adamw_attr_t *attr = NULL;
    const loong_flat_t *flat = &chunk->flats[b->flat];
    int64_t n = b->update_end - b->update_begin;
    if (n == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_arena_alloc(o->arena, sizeof(*attr), &attr));
    attr->group = 0;
    attr->beta1 = params->beta1;
    attr->beta2 = params->beta2;
    attr->eps = params->eps;
    attr->weight_decay = flat->weight_decay * params->weight_decay;
    begin_step(&step, "adamw", "optimizer", params->threads);
    step.query.attr = attr;
    step.query.num_in = 1;
    step.query.num_out = 4;
    loong_dtype_t wide = chunk->precision.wide;
    step.query.arg[0] = flat_arg(wide, n);
    step.operand[0] =
        at_base(LOONG_BASE_GRAD, grad_at(chunk, b->flat, b->update_begin));
    step.query.arg[1] = flat_arg(flat->dtype, n);
    step.operand[1] =
        at_base(LOONG_BASE_PARAM, param_at(chunk, b->flat, b->update_begin));
    if (b->low >= 0) {
        step.query.arg[2] = flat_arg(LOONG_U16, n);
        step.operand[2] = at_base(LOONG_BASE_OPTIM, b->low);
    }
    step.query.arg[3] = flat_arg(wide, n);
    step.operand[3] = at_base(LOONG_BASE_OPTIM, b->exp_avg);
    step.query.arg[4] = flat_arg(wide, n);
    step.operand[4] = at_base(LOONG_BASE_OPTIM, b->exp_avg_sq);
    return loongi_program_append(o->ctx, &o->update, params->device, &step,
                                 o->arena);
}

static loong_status_t add_norm(loong_optimizer_t *o, const loong_chunk_t *chunk,
                               const loong_optimizer_params_t *params,
                               const loong_bucket_t *b)
{
    loong_step_t step;
    int64_t n = b->own_end - b->own_begin;
    if (n == 0 || chunk->flats[b->flat].copy) {
        return LOONG_OK;
    }
    begin_step(&step, "sumsq", "gradient norm", params->threads);
    step.query.num_in = 1;
    step.query.num_out = 1;
    step.query.accumulate = 1;
    step.add = 1; /* the record is cleared by the caller */
    step.query.arg[0] = flat_arg(chunk->precision.wide, n);
    step.operand[0] =
        at_base(LOONG_BASE_GRAD, grad_at(chunk, b->flat, b->own_begin));
    step.query.arg[1] = flat_arg(LOONG_I64, LOONG_EXACT_WORDS);
    step.operand[1] = at_base(LOONG_BASE_OPTIM, o->record_offset);
    return loongi_program_append(o->ctx, &o->norm, params->device, &step,
                                 o->arena);
}

/* Over data-parallel ranks, or over those that have parts of a sum. */
static loong_status_t collective_step(loong_optimizer_t *o, const char *op,
                                      loong_group_t group,
                                      const loong_bucket_t *b, int threads,
                                      loong_step_t *step)
{
    loong_collective_attr_t *attr = NULL;
    LOONG_TRY(loongi_arena_alloc(o->arena, sizeof(*attr), &attr));
    attr->group = group;
    attr->size = o->size;
    attr->rank = o->rank;
    attr->counts = b->counts;
    attr->label = op;
    begin_step(step, op,
               group == LOONG_GROUP_DP_CP ? "data parallel" : "parts of sums",
               threads);
    step->query.attr = attr;
    step->query.num_in = 1;
    step->lane = LOONG_LANE_COMM;
    return LOONG_OK;
}

static loong_status_t add_gather(loong_optimizer_t *o,
                                 const loong_chunk_t *chunk,
                                 const loong_optimizer_params_t *params,
                                 const loong_bucket_t *b)
{
    loong_step_t step;
    LOONG_TRY(collective_step(o, "flat_all_gather", LOONG_GROUP_DP_CP, b,
                              params->threads, &step));
    step.query.arg[0] =
        flat_arg(chunk->flats[b->flat].dtype, b->end - b->begin);
    step.operand[0] =
        at_base(LOONG_BASE_PARAM, param_at(chunk, b->flat, b->begin));
    return loongi_program_append(o->ctx, &o->gather, params->device, &step,
                                 o->arena);
}

/* ---- reductions inside the backward -------------------------------------- */

/* The last step of a program that writes into the bucket's gradients; -1 when
 * none does (the forward may have written it all). */
static int64_t last_writer(const loong_chunk_t *chunk,
                           const loong_program_t *p, const loong_bucket_t *b)
{
    int64_t begin = grad_at(chunk, b->flat, b->begin);
    int64_t end = grad_at(chunk, b->flat, b->end);
    for (int64_t i = p->num_steps - 1; i >= 0; i--) {
        const loong_kernel_query_t *q = &p->steps[i].query;
        for (int a = q->num_in; a < q->num_in + q->num_out; a++) {
            const loong_operand_t *at = &p->steps[i].operand[a];
            if (at->base == LOONG_BASE_GRAD && at->offset >= begin &&
                at->offset < end) {
                return i;
            }
        }
    }
    return -1;
}

/* Moves the step that was appended last to place `at`. */
static void move_last(loong_program_t *p, int64_t at)
{
    loong_step_t made = p->steps[p->num_steps - 1];
    memmove(&p->steps[at + 1], &p->steps[at],
            sizeof(made) * (size_t)(p->num_steps - 1 - at));
    p->steps[at] = made;
}

/* Where a bucket is reduced: behind its last gradient of the step, in W when
 * the weights have a program of their own. What both ends hold waits for the
 * whole pipeline: neither end may block the other. */
static loong_program_t *place_of(loong_optimizer_t *o, loong_chunk_t *chunk,
                                 const loong_bucket_t *b, int64_t *at_p)
{
    const loong_flat_t *flat = &chunk->flats[b->flat];
    loong_program_t *w = &chunk->programs[LOONG_PROGRAM_W];
    loong_program_t *backward = &chunk->programs[LOONG_PROGRAM_B];
    if (flat->partial && flat->sum_group == LOONG_GROUP_ENDS) {
        *at_p = o->late.num_steps;
        return &o->late;
    }
    if (w->num_steps > 0 && last_writer(chunk, w, b) >= 0) {
        backward = w;
    }
    *at_p = last_writer(chunk, backward, b) + 1;
    return backward;
}

/* Over ranks that each have a part of a sum first, then over data-parallel
 * ones. */
static loong_status_t insert_reduction(loong_optimizer_t *o,
                                       loong_chunk_t *chunk,
                                       const loong_optimizer_params_t *params,
                                       const loong_bucket_t *b)
{
    const loong_flat_t *flat = &chunk->flats[b->flat];
    loong_step_t step;
    int64_t at = 0;
    loong_program_t *p = place_of(o, chunk, b, &at);
    for (int over_data = 0; over_data < 2; over_data++) {
        if (!over_data && !flat->partial) {
            continue;
        }
        const char *op = over_data && params->shard ? "flat_reduce_scatter"
                                                    : "flat_all_reduce";
        LOONG_TRY(collective_step(
            o, op, over_data ? LOONG_GROUP_DP_CP : flat->sum_group, b,
            params->threads, &step));
        step.when = p == &o->late ? LOONG_WHEN_ALWAYS : LOONG_WHEN_LAST;
        step.query.arg[0] = flat_arg(chunk->precision.wide, b->end - b->begin);
        step.operand[0] =
            at_base(LOONG_BASE_GRAD, grad_at(chunk, b->flat, b->begin));
        LOONG_TRY(
            loongi_program_append(o->ctx, p, params->device, &step, o->arena));
        move_last(p, at++);
    }
    return LOONG_OK;
}

/* ---- object -------------------------------------------------------------- */

static loong_status_t plan(loong_optimizer_t *o, loong_chunk_t *chunk,
                           const loong_optimizer_params_t *params)
{
    LOONG_TRY(make_buckets(o, chunk, params));
    place_moments(o, chunk);
    o->norm.kind = o->update.kind = o->gather.kind = o->late.kind =
        LOONG_PROGRAM_U;
    for (int64_t i = 0; i < o->num_buckets; i++) {
        const loong_bucket_t *b = &o->buckets[i];
        LOONG_TRY(insert_reduction(o, chunk, params, b));
        LOONG_TRY(add_norm(o, chunk, params, b));
        LOONG_TRY(add_update(o, chunk, params, b));
        if (params->shard) {
            LOONG_TRY(add_gather(o, chunk, params, b));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_optimizer_create(loong_context_t *ctx,
                                       loong_chunk_t *chunk,
                                       const loong_mesh_t *mesh,
                                       const loong_optimizer_params_t *params,
                                       loong_optimizer_t **optimizer_p)
{
    loong_optimizer_t *o = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*o), "optimizer", &o));
    o->ctx = ctx;
    o->size = loong_mesh_group_size(mesh, LOONG_GROUP_DP_CP);
    o->rank = loong_mesh_group_rank(mesh, LOONG_GROUP_DP_CP);
    loong_status_t status = loongi_arena_create(ctx, "optimizer", &o->arena);
    if (status == LOONG_OK) {
        status = plan(o, chunk, params);
    }
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
    loongi_program_clear(o->ctx, &o->gather);
    loongi_program_clear(o->ctx, &o->late);
    loongi_arena_destroy(&o->arena);
    loongi_free(o->ctx, o);
    *optimizer_p = NULL;
}

/* ---- masters ------------------------------------------------------------- */

static void set_one(const loong_bucket_t *b, const loong_flat_t *flat,
                    char *const base[LOONG_BASE_COUNT], int64_t element,
                    double value)
{
    char *param = base[LOONG_BASE_PARAM] + flat->param_offset;
    if (flat->dtype == LOONG_F64) {
        ((double *)param)[element] = value;
        return;
    }
    float single = (float)value;
    if (flat->dtype == LOONG_F32) {
        ((float *)param)[element] = single;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &single, sizeof(bits));
    uint16_t low = (uint16_t)bits;
    ((uint16_t *)param)[element] = (uint16_t)((bits >> 16) + (low >> 15));
    if (b != NULL && base[LOONG_BASE_OPTIM] != NULL) {
        uint16_t *lows = (uint16_t *)(base[LOONG_BASE_OPTIM] + b->low);
        lows[element - b->update_begin] = low;
    }
}

void loongi_optimizer_set_master(const loong_optimizer_t *optimizer,
                                 const loong_chunk_t *chunk,
                                 char *const base[LOONG_BASE_COUNT], int flat,
                                 int64_t at, int64_t count,
                                 const double *values)
{
    const loong_bucket_t *b = NULL;
    for (int64_t i = 0; i < count; i++) {
        int64_t element = at + i;
        if (b == NULL || element >= b->update_end) {
            b = NULL;
            for (int64_t k = 0;
                 optimizer != NULL && k < optimizer->num_buckets; k++) {
                const loong_bucket_t *c = &optimizer->buckets[k];
                if (c->flat == flat && element >= c->update_begin &&
                    element < c->update_end) {
                    b = c;
                    break;
                }
            }
        }
        set_one(b, &chunk->flats[flat], base, element, values[i]);
    }
}
