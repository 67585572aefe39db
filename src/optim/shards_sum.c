/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of gradients over data-parallel ranks: where they begin, and where what
 * comes out is used. Called by shards_place.c. Read shards_place.h before. */
#include "shards_place.h"

/* ---- time ---------------------------------------------------------------- */

/* The last that writes gradients of a bucket; NULL: nothing does. */
static const touch_t *last_writer(const placer_t *k, int64_t bucket)
{
    const touch_t *last = NULL;
    for (int64_t i = 0; i < k->num_touches; i++) {
        const touch_t *t = &k->touches[i];
        last = t->grad && t->bucket == bucket ? t : last;
    }
    return last;
}

/* The step behind which a sum that began behind `last` is used: the one behind
 * which the next sum of the program begins. What is between runs beside it. */
static int64_t finish_behind(const placer_t *k, const touch_t *last)
{
    int64_t found = k->c->programs[last->program].num_steps - 1;
    if (!k->s->params.lanes) {
        return last->last;
    }
    for (int64_t b = 0; b < k->s->num_buckets; b++) {
        const touch_t *t = last_writer(k, b);
        if (t != NULL && t->program == last->program &&
            t->last > last->last) {
            found = LOONG_MIN(found, t->last);
        }
    }
    return found;
}

/* Not where the sum is a load of experts: its sign counts. */
static bool rounds(const placer_t *k, const loong_bucket_t *b)
{
    return k->s->params.reduce_bf16 && b->size > 1 &&
           k->s->flats[b->flat].sign_rate == 0.0;
}

/* What is summed stays until the sum is used. */
loong_status_t loongi_span_sum(placer_t *k, int64_t bucket)
{
    const touch_t *last = last_writer(k, bucket);
    if (last == NULL) {
        return LOONG_OK;
    }
    int64_t end = k->start[last->program] + finish_behind(k, last);
    if (rounds(k, &k->s->buckets[bucket])) {
        LOONG_TRY(loongi_add_span(k, last, last->last));
        k->spans[k->num_spans - 1].half = true;
        k->spans[k->num_spans - 1].end = end;
    } else if (last->span >= 0) {
        k->spans[last->span].end = end;
    }
    return LOONG_OK;
}

/* ---- steps --------------------------------------------------------------- */

/* The gradients of a bucket in COMM, or what they are rounded to; NULL: they
 * are not there. */
static const span_t *span_of(const placer_t *k, const loong_bucket_t *b,
                             bool half)
{
    for (int64_t i = 0; i < k->num_spans; i++) {
        const span_t *span = &k->spans[i];
        if (span->grad && span->half == half &&
            &k->s->buckets[span->bucket] == b) {
            return span;
        }
    }
    return NULL;
}

static loong_when_t when_summed(const placer_t *k)
{
    return k->s->params.sharding >= LOONG_SHARDING_GRADS ? LOONG_WHEN_ALWAYS
                                                         : LOONG_WHEN_LAST;
}

static loong_status_t put_collective(placer_t *k, const loong_bucket_t *b,
                                     bool over_data, const loong_step_t *where,
                                     const touch_t *last)
{
    bool scatter = k->s->params.sharding >= LOONG_SHARDING_OPTIM;
    loong_step_t step;
    LOONG_TRY(loongi_step_collective(
        k->s,
        over_data && scatter ? "flat_reduce_scatter" : "flat_all_reduce",
        over_data ? b->group : k->s->flats[b->flat].sum_group, b, &step));
    step.when = when_summed(k);
    step.query.arg[0] = where->query.arg[0];
    step.operand[0] = where->operand[0];
    return loongi_put_step(k, last->program, 2 * last->last + 1, &step);
}

/* Sums a bucket behind its last gradient: over ranks that each have a part of
 * a sum first, then over data-parallel ones. */
static loong_status_t put_sum(placer_t *k, const loong_bucket_t *b,
                              const touch_t *last)
{
    const loong_flat_t *flat = &k->s->flats[b->flat];
    const span_t *span = span_of(k, b, false);
    const span_t *half = span_of(k, b, true);
    loong_step_t where;
    loongi_step_move(k->s, "cast", k->s->wide, b->end - b->begin, &where);
    where.operand[0] = span != NULL ? loongi_in_comm(k, span, b->begin)
                                    : loongi_at(LOONG_BASE_GRAD, b->grad);
    where.query.arg[0] = loongi_flat_arg(k->s->wide, b->end - b->begin);
    if (flat->partial) {
        LOONG_TRY(put_collective(k, b, false, &where, last));
    }
    if (half != NULL) {
        loong_step_t round;
        loongi_step_move(k->s, "cast", k->s->wide, b->end - b->begin, &round);
        round.when = when_summed(k);
        round.query.arg[1].dtype = LOONG_BF16;
        round.operand[0] = where.operand[0];
        round.operand[1] = loongi_in_comm(k, half, b->begin);
        LOONG_TRY(loongi_put_step(k, last->program, 2 * last->last + 1,
                                  &round));
        where.operand[0] = round.operand[1];
        where.query.arg[0].dtype = LOONG_BF16;
    }
    return b->size > 1 ? put_collective(k, b, true, &where, last) : LOONG_OK;
}

/* Without rows the gradients of a bucket are zero: those of the micro-batch, or
 * where micro-batches add up, in the first one those that the others add to. */
static loong_status_t put_zero(placer_t *k, const loong_bucket_t *b)
{
    const span_t *span = span_of(k, b, false);
    const touch_t *t = k->touches;
    loong_step_t step;
    while (!t->grad || t->bucket != b - k->s->buckets) {
        t++;
    }
    loongi_step_move(k->s, "zero", k->s->wide, b->end - b->begin, &step);
    step.query.num_in = 0;
    step.hollow = LOONG_HOLLOW_ONLY;
    step.when = span != NULL ? LOONG_WHEN_ALWAYS : LOONG_WHEN_FIRST;
    step.operand[0] = span != NULL ? loongi_in_comm(k, span, b->begin)
                                   : loongi_at(LOONG_BASE_GRAD, b->grad);
    return loongi_put_step(k, t->program, 2 * t->first, &step);
}

/* The first stretch at or after `at` that gradients of a bucket were written
 * to; what is between is padding. */
static bool next_written(const placer_t *k, int64_t bucket, int64_t at,
                         int64_t *begin_p, int64_t *end_p)
{
    int64_t begin = INT64_MAX;
    for (int64_t i = 0; i < k->num_touches; i++) {
        const touch_t *t = &k->touches[i];
        if (t->grad && t->bucket == bucket && t->end > at) {
            begin = LOONG_MIN(begin, LOONG_MAX(t->begin, at));
        }
    }
    int64_t end = begin;
    for (bool more = begin < INT64_MAX; more;) {
        more = false;
        for (int64_t i = 0; i < k->num_touches; i++) {
            const touch_t *t = &k->touches[i];
            if (t->grad && t->bucket == bucket && t->begin <= end &&
                t->end > end) {
                end = t->end;
                more = true;
            }
        }
    }
    *begin_p = begin;
    *end_p = end;
    return begin < INT64_MAX;
}

/* Elements of a sum go to the main gradient: this rank's part is added to what
 * earlier micro-batches left there, or the sum of all is put back. */
static loong_status_t put_back(placer_t *k, const span_t *span,
                               const touch_t *last, int64_t begin, int64_t end)
{
    const loong_bucket_t *b = &k->s->buckets[span->bucket];
    bool every = when_summed(k) == LOONG_WHEN_ALWAYS;
    loong_step_t step;
    loongi_step_move(k->s, every ? "accumulate" : "cast", k->s->wide,
                     end - begin, &step);
    step.when = when_summed(k);
    step.query.arg[0].dtype = loongi_span_dtype(k, span);
    step.query.accumulate = step.add_later = every;
    step.operand[0] = loongi_in_comm(k, span, begin);
    step.operand[1] = loongi_at(LOONG_BASE_GRAD,
                                loongi_shards_grad(k->s, b, begin));
    return loongi_put_step(k, last->program, 2 * finish_behind(k, last) + 1,
                           &step);
}

static loong_status_t put_finish(placer_t *k, const loong_bucket_t *b,
                                 const touch_t *last)
{
    const span_t *half = span_of(k, b, true);
    const span_t *span = half != NULL ? half : span_of(k, b, false);
    bool every = when_summed(k) == LOONG_WHEN_ALWAYS;
    int64_t stop = every ? b->own_end : b->update_end;
    int64_t begin = 0;
    int64_t end = every ? b->own_begin : b->update_begin;
    while (span != NULL &&
           next_written(k, b - k->s->buckets, end, &begin, &end) &&
           begin < stop) {
        LOONG_TRY(put_back(k, span, last, begin, LOONG_MIN(end, stop)));
    }
    return LOONG_OK;
}

loong_status_t loongi_put_sums(placer_t *k)
{
    for (int64_t i = 0; i < k->s->num_buckets; i++) {
        const loong_bucket_t *b = &k->s->buckets[i];
        const touch_t *last = last_writer(k, i);
        if (last != NULL) {
            LOONG_TRY(k->s->params.hollow ? put_zero(k, b) : LOONG_OK);
            LOONG_TRY(put_sum(k, b, last));
            LOONG_TRY(put_finish(k, b, last));
        }
    }
    return LOONG_OK;
}
