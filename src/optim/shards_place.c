/* SPDX-License-Identifier: Apache-2.0
 *
 * The collectives of data parallelism in the programs of a chunk. Time is the
 * order of the steps of all programs of one micro-batch; what is in COMM for
 * a while, gradients of a bucket or its gathered parameters, gets a place
 * there for that time. Called by src/component/stage.c. Read shards.h and
 * shards_place.h before. */
#include <string.h>

#include "passes.h"
#include "shards_place.h"

/* A bucket stays gathered while no more others than this were read since. */
enum { KEEP = 2 };

loong_dtype_t loongi_span_dtype(const placer_t *k, const span_t *span)
{
    const loong_bucket_t *b = &k->s->buckets[span->bucket];
    return span->half   ? LOONG_BF16
           : span->grad ? k->s->wide
                        : k->s->flats[b->flat].dtype;
}

static int64_t element_size(const placer_t *k, const span_t *span)
{
    return (int64_t)loong_dtype_size(loongi_span_dtype(k, span));
}

/* ---- touches ------------------------------------------------------------- */

static int64_t extent(const loong_karg_t *arg)
{
    return (loong_karg_rows(arg) - 1) * arg->ld +
           loong_karg_cols(arg);
}

/* The flat buffer and element at an offset of PARAM or GRAD. */
static int locate(const placer_t *k, bool grad, int64_t offset,
                  int64_t *element_p)
{
    for (int f = 0; f < k->s->num_flats; f++) {
        const loong_flat_t *flat = &k->s->flats[f];
        int64_t begin = grad ? flat->grad_offset : flat->param_offset;
        int64_t size =
            (int64_t)loong_dtype_size(grad ? k->s->wide : flat->dtype);
        if (begin >= 0 && offset >= begin &&
            offset < begin + flat->elements * size) {
            *element_p = (offset - begin) / size;
            return f;
        }
    }
    return -1;
}

static loong_status_t add_touch(placer_t *k, touch_t touch)
{
    const loong_step_t *step =
        &k->c->programs[touch.program].steps[touch.step];
    loong_operand_t at = step->operand[touch.arg];
    touch.grad = at.base == LOONG_BASE_GRAD;
    if (!touch.grad && (at.base != LOONG_BASE_PARAM ||
                        k->s->params.sharding < LOONG_SHARDING_PARAMS)) {
        return LOONG_OK;
    }
    int flat = locate(k, touch.grad, at.offset, &touch.begin);
    const loong_bucket_t *b =
        flat >= 0 ? loongi_shards_bucket(k->s, flat, touch.begin) : NULL;
    touch.end = touch.begin + extent(&step->query.arg[touch.arg]);
    LOONG_CHECK(k->c->ctx, b != NULL && touch.end <= b->end,
                LOONG_ERR_INTERNAL,
                "%s of scope '%s': operand %d lies in no bucket",
                step->query.op, step->scope, touch.arg);
    touch.bucket = b - k->s->buckets;
    touch.span = -1;
    LOONG_TRY(loongi_grow(k->c->ctx, &k->touches, &k->cap_touches,
                          k->num_touches + 1, sizeof(*k->touches),
                          "operands in buckets"));
    k->touches[k->num_touches++] = touch;
    return LOONG_OK;
}

/* The end of the part run in rounds that begins at a step. */
static int64_t end_of_rounds(const loong_program_t *program, int64_t step)
{
    while (!(program->steps[step].repeat & LOONG_REPEAT_ENDS)) {
        step++;
    }
    return step;
}

static loong_status_t collect(placer_t *k)
{
    for (int p = 0; p < LOONG_PROGRAM_COUNT; p++) {
        const loong_program_t *program = &k->c->programs[p];
        int64_t first = 0;
        int64_t last = -1;
        k->start[p + 1] = k->start[p] + program->num_steps;
        for (int64_t i = 0; i < program->num_steps; i++) {
            const loong_kernel_query_t *q = &program->steps[i].query;
            if (i > last) {
                first = last = i;
                if (program->steps[i].repeat & LOONG_REPEAT_BEGINS) {
                    last = end_of_rounds(program, i);
                }
            }
            for (int a = 0; a < q->num_in + q->num_out; a++) {
                touch_t touch = {.program = p, .step = i, .arg = a,
                                 .first = first, .last = last,
                                 .at = k->start[p] + last};
                LOONG_TRY(add_touch(k, touch));
            }
        }
    }
    return LOONG_OK;
}

/* ---- what is in COMM, and when ------------------------------------------- */

loong_status_t loongi_add_span(placer_t *k, const touch_t *t, int64_t before)
{
    LOONG_TRY(loongi_grow(k->c->ctx, &k->spans, &k->cap_spans,
                          k->num_spans + 1, sizeof(*k->spans),
                          "times of buckets"));
    span_t span = {.bucket = t->bucket, .grad = t->grad,
                   .program = t->program, .first = t->first, .last = t->last,
                   .begin = k->start[t->program] + before, .end = t->at,
                   .before = before};
    k->spans[k->num_spans++] = span;
    return LOONG_OK;
}

static void use_span(placer_t *k, touch_t *t, int64_t span)
{
    t->span = span;
    k->spans[span].program = t->program;
    k->spans[span].last = t->last;
    k->spans[span].end = t->at;
}

/* Gradients: from the first writer of a micro-batch to the last. */
static loong_status_t span_gradients(placer_t *k, int64_t bucket)
{
    int64_t span = -1;
    for (int64_t i = 0; i < k->num_touches; i++) {
        touch_t *t = &k->touches[i];
        if (!t->grad || t->bucket != bucket) {
            continue;
        }
        if (span < 0) {
            span = k->num_spans;
            LOONG_TRY(loongi_add_span(k, t, t->first));
        }
        use_span(k, t, span);
    }
    return LOONG_OK;
}

/* Other buckets read since this span was used last. */
static int others_since(const placer_t *k, const span_t *span)
{
    int count = 0;
    for (int64_t b = 0; b < k->s->num_buckets; b++) {
        count += b != span->bucket && k->open[b] >= 0 &&
                 k->spans[k->open[b]].end > span->end;
    }
    return count;
}

/* Parameters: from where the bucket before is first read to the last use that
 * is near. */
static loong_status_t span_parameters(placer_t *k)
{
    int64_t previous = -1;
    for (int64_t i = 0; i < k->num_touches; i++) {
        touch_t *t = &k->touches[i];
        int64_t span = t->grad ? -1 : k->open[t->bucket];
        if (t->grad) {
            continue;
        }
        if (span < 0 || k->spans[span].program != t->program ||
            others_since(k, &k->spans[span]) > KEEP) {
            bool ahead = previous >= 0 &&
                         k->spans[previous].program == t->program;
            span = k->num_spans;
            LOONG_TRY(loongi_add_span(
                k, t, ahead ? k->spans[previous].first : t->first));
            k->open[t->bucket] = previous = span;
        }
        use_span(k, t, span);
    }
    return LOONG_OK;
}

int64_t loongi_span_bytes(const placer_t *k, const span_t *span)
{
    const loong_bucket_t *b = &k->s->buckets[span->bucket];
    return (b->end - b->begin) * element_size(k, span);
}

static loong_status_t lay_out(placer_t *k)
{
    loong_interval_t *intervals = NULL;
    int64_t peak = 0;
    LOONG_TRY(loongi_calloc(k->c->ctx, (size_t)k->num_spans + 1,
                            sizeof(*intervals), "times of buckets",
                            &intervals));
    for (int64_t i = 0; i < k->num_spans; i++) {
        intervals[i].begin = (int32_t)k->spans[i].begin;
        intervals[i].end = (int32_t)k->spans[i].end;
        intervals[i].bytes = loongi_span_bytes(k, &k->spans[i]);
    }
    loong_status_t status =
        loongi_place_intervals(k->c->ctx, k->num_spans, intervals, &peak);
    for (int64_t i = 0; i < k->num_spans && status == LOONG_OK; i++) {
        k->spans[i].offset = intervals[i].offset;
    }
    loongi_free(k->c->ctx, intervals);
    return status;
}

/* What each program needs of COMM. */
static void count_bytes(placer_t *k)
{
    for (int p = 0; p < LOONG_PROGRAM_COUNT; p++) {
        int64_t *most = &k->c->programs[p].comm_bytes;
        for (int64_t i = 0; i < k->num_spans; i++) {
            const span_t *span = &k->spans[i];
            if (span->begin < k->start[p + 1] && span->end >= k->start[p]) {
                int64_t end = span->offset + loongi_span_bytes(k, span);
                *most = LOONG_MAX(*most, loongi_round_up(end, 64));
            }
        }
    }
}

/* ---- rewriting ----------------------------------------------------------- */

/* Where an element is while its span lasts. */
loong_operand_t loongi_in_comm(const placer_t *k, const span_t *span,
                               int64_t element)
{
    const loong_bucket_t *b = &k->s->buckets[span->bucket];
    int64_t inside = (element - b->begin) * element_size(k, span);
    return loongi_at(LOONG_BASE_COMM, span->offset + inside);
}

/* A micro-batch begins its gradients anew. */
static void move_operands(placer_t *k)
{
    for (int64_t i = 0; i < k->num_touches; i++) {
        const touch_t *t = &k->touches[i];
        if (t->span < 0) {
            continue;
        }
        loong_step_t *step = &k->c->programs[t->program].steps[t->step];
        step->operand[t->arg] = loongi_in_comm(k, &k->spans[t->span], t->begin);
        if (t->grad) {
            step->add_later &= ~(1u << (t->arg - step->query.num_in));
        }
    }
}

/* ---- steps that are put in ----------------------------------------------- */

loong_status_t loongi_put_step(placer_t *k, int program, int64_t key,
                               const loong_step_t *step)
{
    loong_program_t *p = &k->added[program];
    LOONG_TRY(loongi_grow(k->c->ctx, &k->keys[program], &k->cap_keys[program],
                          p->num_steps + 1, sizeof(*k->keys[program]),
                          "places of steps"));
    k->keys[program][p->num_steps] = key;
    loong_step_t put = *step;
    put.hollow = LOONG_MAX(step->hollow, LOONG_HOLLOW_RUNS);
    return loongi_program_append(k->c->ctx, p, k->s->params.device, &put,
                                 k->s->arena);
}

/* This rank's part of the parameters goes to its place, the others' come. */
static loong_status_t put_gather(placer_t *k, const span_t *span)
{
    const loong_bucket_t *b = &k->s->buckets[span->bucket];
    loong_dtype_t dtype = k->s->flats[b->flat].dtype;
    int64_t n = b->own_end - b->own_begin;
    loong_step_t step;
    if (n > 0) {
        loongi_step_move(k->s, "copy", dtype, n, &step);
        step.operand[0] = loongi_at(LOONG_BASE_PARAM, b->param);
        step.operand[1] = loongi_in_comm(k, span, b->own_begin);
        LOONG_TRY(loongi_put_step(k, span->program, 2 * span->before, &step));
    }
    LOONG_TRY(loongi_step_collective(k->s, "flat_all_gather", b->group, b,
                                     &step));
    step.query.arg[0] = loongi_flat_arg(dtype, b->end - b->begin);
    step.operand[0] = loongi_in_comm(k, span, b->begin);
    return loongi_put_step(k, span->program, 2 * span->before, &step);
}

static loong_status_t put_gathers(placer_t *k)
{
    for (int64_t i = 0; i < k->num_spans; i++) {
        if (!k->spans[i].grad) {
            LOONG_TRY(put_gather(k, &k->spans[i]));
        }
    }
    return LOONG_OK;
}

/* The steps of a program and those that were put in, in one array. */
static loong_status_t merge(placer_t *k, int program)
{
    loong_program_t *p = &k->c->programs[program];
    const loong_program_t *added = &k->added[program];
    loong_step_t *steps = NULL;
    int64_t count = p->num_steps + added->num_steps;
    int64_t n = 0;
    if (added->num_steps == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_calloc(k->c->ctx, (size_t)count, sizeof(*steps),
                            "program", &steps));
    for (int64_t i = 0; i < p->num_steps; i++) {
        for (int behind = 0; behind < 2; behind++) {
            for (int64_t a = 0; a < added->num_steps; a++) {
                if (k->keys[program][a] == 2 * i + behind) {
                    steps[n++] = added->steps[a];
                }
            }
            if (behind == 0) {
                steps[n++] = p->steps[i];
            }
        }
    }
    loongi_free(k->c->ctx, p->steps);
    p->steps = steps;
    p->num_steps = p->cap_steps = count;
    return LOONG_OK;
}

/* ---- the whole ----------------------------------------------------------- */

static loong_status_t find_spans(placer_t *k)
{
    bool in_comm_too = k->s->params.sharding >= LOONG_SHARDING_GRADS;
    LOONG_TRY(loongi_calloc(k->c->ctx, (size_t)k->s->num_buckets + 1,
                            sizeof(*k->open), "spans of buckets", &k->open));
    for (int64_t b = 0; b < k->s->num_buckets; b++) {
        k->open[b] = -1;
        if (in_comm_too) {
            LOONG_TRY(span_gradients(k, b));
        }
        LOONG_TRY(loongi_span_sum(k, b));
    }
    return span_parameters(k);
}

static loong_status_t place(placer_t *k)
{
    LOONG_TRY(collect(k));
    LOONG_TRY(find_spans(k));
    LOONG_TRY(lay_out(k));
    count_bytes(k);
    move_operands(k);
    LOONG_TRY(loongi_put_sums(k));
    LOONG_TRY(put_gathers(k));
    for (int p = 0; p < LOONG_PROGRAM_COUNT; p++) {
        LOONG_TRY(merge(k, p));
    }
    return LOONG_OK;
}

/* Offsets in buffers that are not there any more. */
static void forget_flats(const loong_shards_t *s, loong_model_chunk_t *c)
{
    c->param_bytes = s->param_bytes;
    c->grad_bytes = s->grad_bytes;
    for (int f = 0; f < c->num_flats; f++) {
        if (s->params.sharding >= LOONG_SHARDING_GRADS) {
            c->flats[f].grad_offset = -1;
        }
        if (s->params.sharding >= LOONG_SHARDING_PARAMS) {
            c->flats[f].param_offset = -1;
        }
    }
}

loong_status_t loongi_shards_place(const loong_shards_t *shards,
                                   loong_model_chunk_t *chunk)
{
    placer_t k;
    memset(&k, 0, sizeof(k));
    k.s = shards;
    k.c = chunk;
    loong_status_t status = place(&k);
    for (int p = 0; p < LOONG_PROGRAM_COUNT; p++) {
        loongi_free(chunk->ctx, k.added[p].steps);
        loongi_free(chunk->ctx, k.keys[p]);
    }
    loongi_free(chunk->ctx, k.touches);
    loongi_free(chunk->ctx, k.spans);
    loongi_free(chunk->ctx, k.open);
    if (status == LOONG_OK) {
        forget_flats(shards, chunk);
    }
    return status;
}
