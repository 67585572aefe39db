/* SPDX-License-Identifier: Apache-2.0
 *
 * The join that fills the gaps of the last component's pipeline, which runs as
 * if it were alone, but later: before it stand only the forwards that no gap
 * before their readers has room for. Whatever replica is free first reads the
 * next micro-batch, and makes its backward as soon as the gradient is there and
 * a gap has room, or behind the pipeline. Of all lengths of the front, and of
 * shares of the micro-batches that a replica may have, the one is taken of
 * which the step is shortest, by the work that configuration states: all ranks
 * find the same. Called by cell_lists.c. Read cell_impl.h before. */
#include <stdlib.h>
#include <string.h>

#include "cell_impl.h"

typedef struct interval {
    int64_t begin, end;
} interval_t;

/* The replicas that read a micro-batch together, on their ranks. */
typedef struct reader {
    int64_t count, own; /* busy intervals, ascending; of the last component */
    interval_t *busy;
    int64_t at;    /* what is placed next begins then or later, */
    int64_t next;  /* before this interval or behind it */
    int64_t start; /* of a forward, the earliest */
    int taken;     /* micro-batches */
} reader_t;

typedef struct filling {
    const loong_join_t *join;
    int head; /* the component that the last one reads */
    bool trained;
    int total;                 /* its micro-batches */
    int64_t forward, backward; /* work of one, with all that leads to it */
    int64_t *wanted, *made;    /* when it is read, and its gradient made */
    int num_readers;
    reader_t *readers;
    int64_t length; /* of the last component */
} filling_t;

/* Where micro-batches of the head are. */
typedef struct trial {
    int64_t front; /* before the last component begins */
    int most;      /* micro-batches of a reader */
    bool behind;   /* all backwards are */
    int64_t length;
    int64_t *begin[2]; /* forward and backward, from the last's beginning on */
    int32_t *reader;
} trial_t;

static const loong_cell_component_t *component_of(const filling_t *f, int c)
{
    return &f->join->cell->params.components[c];
}

/* ---- gaps ---------------------------------------------------------------- */

/* When a reader is free for so long, from `from` and from `at` on. */
static int64_t find_gap(reader_t *r, int64_t from, int64_t work)
{
    r->at = LOONG_MAX(r->at, from);
    while (r->next < r->count && r->busy[r->next].begin < r->at + work) {
        r->at = LOONG_MAX(r->at, r->busy[r->next].end);
        r->next++;
    }
    return r->at;
}

/* Behind find_gap: the gap is taken. */
static void take_gap(reader_t *r, int64_t work)
{
    memmove(&r->busy[r->next + 1], &r->busy[r->next],
            (size_t)(r->count - r->next) * sizeof(*r->busy));
    r->busy[r->next++] = (interval_t){r->at, r->at + work};
    r->at += work;
    r->count++;
}

/* ---- a trial ------------------------------------------------------------- */

static void begin_trial(const filling_t *f, const trial_t *t,
                        interval_t *const *own)
{
    for (int i = 0; i < f->num_readers; i++) {
        reader_t *r = &f->readers[i];
        memcpy(r->busy, own[i], (size_t)r->own * sizeof(*r->busy));
        r->count = r->own;
        r->next = 0;
        r->taken = 0;
        r->at = -t->front;
        r->start = find_gap(r, r->at, f->forward);
    }
}

/* Forwards, the earliest gap first. Are all there before they are read? */
static bool place_forwards(const filling_t *f, trial_t *t)
{
    for (int m = 0; m < f->total; m++) {
        int best = -1;
        for (int i = 0; i < f->num_readers; i++) {
            const reader_t *r = &f->readers[i];
            if (r->taken < t->most &&
                (best < 0 || r->start < f->readers[best].start)) {
                best = i;
            }
        }
        reader_t *r = &f->readers[best];
        t->begin[0][m] = r->start;
        t->reader[m] = best;
        if (r->start + f->forward > f->wanted[m]) {
            return false;
        }
        take_gap(r, f->forward);
        r->taken++;
        r->start = find_gap(r, r->at, f->forward);
    }
    return true;
}

/* Backwards in gaps, ascending, until one stands behind the pipeline: those
 * behind it do as well, and the last one, in which replicas meet. */
static void place_backwards(const filling_t *f, trial_t *t)
{
    int64_t last = 0;
    bool behind = t->behind;
    t->length = f->length;
    for (int i = 0; i < f->num_readers; i++) {
        f->readers[i].at = f->readers[i].next = 0;
    }
    for (int m = 0; m < f->total && f->trained; m++) {
        reader_t *r = &f->readers[t->reader[m]];
        int64_t end = r->own > 0 ? r->busy[r->count - 1].end : 0;
        int64_t begin = find_gap(r,
                                 behind ? LOONG_MAX(f->made[m], end)
                                        : LOONG_MAX(f->made[m], last),
                                 f->backward);
        behind = behind || begin >= end || m + 1 == f->total;
        t->begin[1][m] = behind ? INT64_MAX : begin;
        r->at = last = begin + f->backward;
        t->length = LOONG_MAX(t->length, r->at);
    }
    t->length += t->front;
}

/* ---- what is placed ------------------------------------------------------ */

static int by_begin(const void *a, const void *b)
{
    const interval_t *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Intervals that overlap become one. */
static int64_t unite(interval_t *list, int64_t count)
{
    int64_t n = 0;
    qsort(list, (size_t)count, sizeof(*list), by_begin);
    for (int64_t i = 0; i < count; i++) {
        if (n > 0 && list[i].begin <= list[n - 1].end) {
            list[n - 1].end = LOONG_MAX(list[n - 1].end, list[i].end);
        } else {
            list[n++] = list[i];
        }
    }
    return n;
}

/* The replicas of a component that have a micro-batch together. */
static int num_groups(const loong_cell_t *cell, int component)
{
    const loong_cell_component_t *of = &cell->params.components[component];
    return cell->reader[component] == NULL
               ? 1
               : (of->replicas + of->turn - 1) / of->turn;
}

static int first_of(const loong_cell_t *cell, int component, int group)
{
    const loong_cell_component_t *of = &cell->params.components[component];
    return cell->reader[component] == NULL
               ? 0
               : LOONG_MIN(group * of->turn, of->replicas - of->turn);
}

/* Is a rank one of a group's? */
static bool has_rank(const loong_cell_t *cell, int component, int group,
                     int rank)
{
    const loong_cell_component_t *of = &cell->params.components[component];
    int first = first_of(cell, component, group);
    int count = cell->reader[component] == NULL ? of->replicas : of->turn;
    for (int i = first * of->params.ranks;
         i < (first + count) * of->params.ranks; i++) {
        if (of->rank[i] == rank) {
            return true;
        }
    }
    return false;
}

/* When the last component computes on any rank of a reader. */
static loong_status_t list_busy(filling_t *f, int reader, interval_t **own_p)
{
    const loong_cell_t *cell = f->join->cell;
    int last = cell->num_own - 1;
    const loong_cell_component_t *of = component_of(f, last);
    const loong_schedule_t *s = cell->schedules[last];
    reader_t *r = &f->readers[reader];
    int64_t count = loongi_schedule_spans(s->ranks, s->params.ranks);
    interval_t *own = NULL;
    LOONG_TRY(loongi_arena_alloc(
        cell->arena, (size_t)LOONG_MAX(count, 1) * sizeof(*own), &own));
    count = 0;
    for (int p = 0; p < s->params.ranks; p++) {
        const loong_span_t *spans =
            f->join->spans + loongi_schedule_spans(s->ranks, p);
        bool shared = false;
        for (int k = 0; k < of->replicas; k++) {
            shared = shared || has_rank(cell, f->head, reader,
                                        of->rank[k * s->params.ranks + p]);
        }
        for (int64_t i = 0; i < s->ranks[p].num_entries && shared; i++) {
            if (loongi_entry_computes(&s->ranks[p].entries[i])) {
                own[count++] = (interval_t){(int64_t)spans[i].begin,
                                            (int64_t)spans[i].end};
            }
        }
    }
    r->own = unite(own, count);
    *own_p = own;
    return loongi_arena_alloc(
        cell->arena, (size_t)(r->own + f->total + 1) * sizeof(*r->busy),
        &r->busy);
}

/* When the last component reads a micro-batch, and has made its gradient. */
static void list_times(filling_t *f)
{
    const loong_cell_t *cell = f->join->cell;
    const loong_cell_params_t *p = &cell->params;
    int last = cell->num_own - 1;
    int total = component_of(f, last)->params.micro_batches;
    const loong_schedule_t *s = cell->schedules[last];
    for (int m = 0; m < f->total; m++) {
        f->wanted[m] = INT64_MAX;
        f->made[m] = 0;
    }
    for (int64_t i = 0; i < p->num_messages; i++) {
        const loong_message_t *m = &p->messages[i];
        const loong_cell_edge_t *e = &p->edges[m->edge];
        if (e->from != f->head || e->to != last) {
            continue;
        }
        int64_t *const *keys =
            m->backward ? f->join->backward : f->join->forward;
        int read = m->backward ? m->from_micro_batch : m->to_micro_batch;
        int own = m->backward ? m->to_micro_batch : m->from_micro_batch;
        int64_t begin =
            keys[last][e->to_stage * total + read] / LOONG_JOIN_STEP;
        const loong_stage_work_t *w = &f->join->work[last][e->to_stage];
        int64_t end = begin + w->backward + (s->kind->split ? 0 : w->weights);
        f->wanted[own] =
            m->backward ? f->wanted[own] : LOONG_MIN(f->wanted[own], begin);
        f->made[own] =
            m->backward ? LOONG_MAX(f->made[own], end) : f->made[own];
    }
    for (int m = f->total - 2; m >= 0; m--) {
        f->wanted[m] = LOONG_MIN(f->wanted[m], f->wanted[m + 1]);
    }
    for (int m = 1; m < f->total; m++) {
        f->made[m] = LOONG_MAX(f->made[m], f->made[m - 1]);
    }
}

/* The head's work with that of all before it, for one of its micro-batches. */
static void sum_work(filling_t *f)
{
    const loong_cell_t *cell = f->join->cell;
    f->forward = f->backward = 0;
    for (int c = 0; c <= f->head; c++) {
        const loong_schedule_t *s = cell->schedules[c];
        int64_t forward = 0, backward = 0;
        for (int i = 0; i < loongi_schedule_stages(s); i++) {
            const loong_stage_work_t *w = &f->join->work[c][i];
            forward += w->forward;
            backward += s->kind->evaluate ? 0 : w->backward + w->weights;
        }
        int64_t times = s->params.micro_batches;
        f->forward += (forward * times + f->total - 1) / f->total;
        f->backward += (backward * times + f->total - 1) / f->total;
    }
}

static loong_status_t begin_filling(loong_join_t *j, int head, filling_t *f,
                                    interval_t ***own_p)
{
    const loong_cell_t *cell = j->cell;
    size_t total = (size_t)cell->params.components[head].params.micro_batches;
    interval_t **own = NULL;
    *f = (filling_t){.join = j,
                     .head = head,
                     .trained = !cell->schedules[head]->kind->evaluate,
                     .total = (int)total,
                     .num_readers = num_groups(cell, head)};
    size_t readers = (size_t)f->num_readers;
    LOONG_TRY(
        loongi_arena_alloc(cell->arena, total * sizeof(int64_t), &f->wanted));
    LOONG_TRY(
        loongi_arena_alloc(cell->arena, total * sizeof(int64_t), &f->made));
    LOONG_TRY(loongi_arena_alloc(cell->arena, readers * sizeof(*f->readers),
                                 &f->readers));
    LOONG_TRY(loongi_arena_alloc(cell->arena, readers * sizeof(*own), &own));
    sum_work(f);
    list_times(f);
    for (int i = 0; i < f->num_readers; i++) {
        LOONG_TRY(list_busy(f, i, &own[i]));
    }
    const loong_schedule_t *s = cell->schedules[cell->num_own - 1];
    int64_t spans = loongi_schedule_spans(s->ranks, s->params.ranks);
    for (int64_t i = 0; i < spans; i++) {
        f->length = LOONG_MAX(f->length, (int64_t)j->spans[i].end);
    }
    *own_p = own;
    return LOONG_OK;
}

static loong_status_t begin_trials(const filling_t *f, trial_t *t)
{
    size_t total = (size_t)f->total;
    loong_arena_t *arena = f->join->cell->arena;
    memset(t, 0, sizeof(*t));
    for (int i = 0; i < 2; i++) {
        LOONG_TRY(
            loongi_arena_alloc(arena, total * sizeof(int64_t), &t->begin[i]));
    }
    return loongi_arena_alloc(arena, total * sizeof(*t->reader), &t->reader);
}

static void copy_trial(const filling_t *f, const trial_t *from, trial_t *to)
{
    size_t total = (size_t)f->total;
    to->front = from->front;
    to->length = from->length;
    memcpy(to->begin[0], from->begin[0], total * sizeof(*to->begin[0]));
    memcpy(to->begin[1], from->begin[1], total * sizeof(*to->begin[1]));
    memcpy(to->reader, from->reader, total * sizeof(*to->reader));
}

/* Even shares with all in front is possible always. */
static loong_status_t find_best(const filling_t *f, interval_t *const *own,
                                trial_t *best)
{
    trial_t t;
    int even = (f->total + f->num_readers - 1) / f->num_readers;
    LOONG_TRY(begin_trials(f, &t));
    LOONG_TRY(begin_trials(f, best));
    best->length = INT64_MAX;
    for (int front = 0; front <= even; front++) {
        for (int most = even; most <= f->total;
             most += LOONG_MAX(even / 2, 1)) {
            t.front = front * f->forward;
            t.most = most;
            begin_trial(f, &t, own);
            bool possible = place_forwards(f, &t);
            for (int k = 0; k < 2 && possible; k++) {
                t.behind = k == 1;
                place_backwards(f, &t);
                if (t.length < best->length) {
                    copy_trial(f, &t, best);
                }
            }
        }
    }
    return LOONG_OK;
}

/* ---- keys ---------------------------------------------------------------- */

/* The last component begins behind the front. */
static void shift_last(loong_join_t *j, int64_t front)
{
    const loong_cell_t *cell = j->cell;
    int last = cell->num_own - 1;
    int64_t stages = loongi_schedule_stages(cell->schedules[last]);
    int64_t count = stages * cell->params.components[last].params.micro_batches;
    for (int64_t i = 0; i < count; i++) {
        j->forward[last][i] += LOONG_JOIN_STEP * front;
        j->backward[last][i] += LOONG_JOIN_STEP * front;
        j->weights[i] += LOONG_JOIN_STEP * front;
    }
}

/* As long as nothing is read later than it is there. Behind the pipeline one
 * micro-batch follows the other through all components. */
static void set_keys(loong_join_t *j, const filling_t *f, const trial_t *t)
{
    int64_t *forward = j->forward[f->head];
    int64_t *backward = j->backward[f->head];
    for (int m = 0; m < f->total; m++) {
        int64_t begin = LOONG_JOIN_STEP * (t->begin[0][m] + t->front);
        forward[m] = LOONG_MIN(forward[m], begin);
    }
    loongi_join_behind(j, f->head);
    for (int m = 0; m < f->total && f->trained; m++) {
        int64_t begin = t->begin[1][m] == INT64_MAX
                            ? LOONG_JOIN_LAST + LOONG_JOIN_STEP * (int64_t)m
                            : LOONG_JOIN_STEP * (t->begin[1][m] + t->front);
        backward[m] = LOONG_MAX(backward[m], begin);
    }
}

/* Components that lead to the head read its micro-batches on its ranks. */
static void set_readers(const filling_t *f, const trial_t *t)
{
    const loong_cell_t *cell = f->join->cell;
    for (int c = 0; c <= f->head; c++) {
        int total = component_of(f, c)->params.micro_batches;
        int groups = num_groups(cell, c);
        for (int m = 0; m < total && groups > 1; m++) {
            int reader = t->reader[(int64_t)m * f->total / total];
            int first = first_of(cell, f->head, reader);
            int rank =
                component_of(f, f->head)
                    ->rank[first * component_of(f, f->head)->params.ranks];
            int group = 0;
            while (group + 1 < groups && !has_rank(cell, c, group, rank)) {
                group++;
            }
            group = has_rank(cell, c, group, rank) ? group : m % groups;
            cell->reader[c][m] = first_of(cell, c, group);
        }
    }
}

/* The last one of those that the last component reads; -1: none. */
static int head_of(const loong_cell_t *cell)
{
    int head = -1;
    for (int e = 0; e < cell->params.num_edges; e++) {
        const loong_cell_edge_t *edge = &cell->params.edges[e];
        head =
            edge->to == cell->num_own - 1 ? LOONG_MAX(head, edge->from) : head;
    }
    return head;
}

static loong_status_t place(loong_join_t *j)
{
    const loong_cell_t *cell = j->cell;
    int head = head_of(cell);
    filling_t f;
    trial_t best;
    interval_t **own = NULL;
    if (head >= 0) {
        LOONG_TRY(begin_filling(j, head, &f, &own));
        LOONG_TRY(find_best(&f, own, &best));
        set_readers(&f, &best);
        shift_last(j, best.front);
    }
    loongi_join_couple(j, head + 1, cell->num_own - 2);
    if (head >= 0) {
        loongi_join_before(j, head);
        set_keys(j, &f, &best);
    }
    loongi_join_couple(j, 0, head - 1);
    return LOONG_OK;
}

const loong_join_kind_t loongi_join_bubbles = {
    "bubbles",
    "forwards and backwards in the gaps of the last component's pipeline, the "
    "replicas of a component apart from each other",
    false, true, place};
