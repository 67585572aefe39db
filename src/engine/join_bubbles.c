/* SPDX-License-Identifier: Apache-2.0
 *
 * The join that fills the gaps of the last component's pipeline, which runs as
 * if it were alone, but later: before it stand only the forwards that no gap
 * before their readers has room for. A micro-batch goes through stations, the
 * stages of all components that lead to the last one, each in a gap of the
 * ranks that have it there. The replicas that are through with it first read
 * it, and make its backward as soon as the gradient is there and gaps have
 * room, or behind the pipeline. Of all lengths of the front, and of shares of
 * the micro-batches that a replica may have, the one is taken of which the step
 * is shortest, by the work that configuration states: all ranks find the same.
 * Called by cell_lists.c. Read cell_impl.h before. */
#include <string.h>

#include "join_stations.h"

/* Where micro-batches of the head are. */
typedef struct trial {
    int64_t front; /* before the last component begins */
    int most;      /* micro-batches that take one route */
    bool behind;   /* all backwards are */
    bool each;     /* behind, each station has all micro-batches at once */
    int64_t length;
    int64_t *begin[2]; /* forward and backward, from the last's beginning on:
                          [station][micro-batch] */
    int32_t *route;
} trial_t;

static const loong_cell_component_t *component_of(const filling_t *f, int c)
{
    return &f->join->cell->params.components[c];
}

/* ---- gaps ---------------------------------------------------------------- */

/* The first interval that ends later. */
static int64_t find_interval(const timeline_t *line, int64_t at)
{
    int64_t low = 0, high = line->count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        bool later = line->busy[middle].end > at;
        high = later ? middle : high;
        low = later ? low : middle + 1;
    }
    return low;
}

/* When all of a crew are free for so long, from `at` on. */
static int64_t find_gap(const filling_t *f, const crew_t *crew, int64_t at,
                        int64_t work)
{
    int64_t from;
    do {
        from = at;
        for (int i = 0; i < crew->count; i++) {
            const timeline_t *line = &f->timelines[crew->rank[i]];
            int64_t n = find_interval(line, at);
            for (; n < line->count && line->busy[n].begin < at + work; n++) {
                at = line->busy[n].end;
            }
        }
    } while (at > from && crew->count > 1);
    return at;
}

static void take_gap(const filling_t *f, const crew_t *crew, int64_t at,
                     int64_t work)
{
    for (int i = 0; i < crew->count; i++) {
        timeline_t *line = &f->timelines[crew->rank[i]];
        int64_t n = find_interval(line, at);
        memmove(&line->busy[n + 1], &line->busy[n],
                (size_t)(line->count++ - n) * sizeof(*line->busy));
        line->busy[n] = (interval_t){at, at + work};
    }
}

/* ---- a trial ------------------------------------------------------------- */

static void begin_pass(const filling_t *f, int64_t floor)
{
    for (int k = 0; k < f->num_stations; k++) {
        f->stations[k].floor = floor;
        f->stations[k].behind = false;
    }
}

static const crew_t *crew_of(const filling_t *f, const trial_t *t, int station,
                             int m)
{
    return &f->crews[t->route[m] * f->num_stations + station];
}

/* Where the last component ends on the ranks of a crew, or all that stands
 * there. */
static int64_t end_of(const filling_t *f, const crew_t *crew, bool all)
{
    int64_t end = 0;
    for (int i = 0; i < crew->count; i++) {
        const timeline_t *line = &f->timelines[crew->rank[i]];
        end = LOONG_MAX(end, line->end);
        if (all && line->count > 0) {
            end = LOONG_MAX(end, line->busy[line->count - 1].end);
        }
    }
    return end;
}

static void begin_trial(const filling_t *f, const trial_t *t)
{
    for (int r = 0; r < f->join->cell->params.ranks; r++) {
        timeline_t *line = &f->timelines[r];
        line->count = line->own;
        memcpy(line->busy, f->own[r], (size_t)line->own * sizeof(*line->busy));
    }
    for (int i = 0; i < f->num_routes; i++) {
        f->routes[i].taken = 0;
    }
    begin_pass(f, -t->front);
}

/* Puts a micro-batch through the stations, from `at` on; when is it through?
 * Behind a backward that is behind the pipeline all are, each rank at its own
 * time, and so is the last one, in which replicas meet. */
static int64_t go_through(const filling_t *f, trial_t *t, int m, int back,
                          int64_t at)
{
    bool behind = back && (t->behind || m + 1 == f->total);
    for (int i = 0; i < f->num_stations; i++) {
        int k = back ? f->num_stations - 1 - i : i;
        const station_t *s = &f->stations[k];
        const crew_t *crew = crew_of(f, t, k, m);
        if (s->work[back] == 0) { /* frozen */
            continue;
        }
        behind = behind || s->behind;
        at = LOONG_MAX(at, behind ? end_of(f, crew, !t->each) : s->floor);
        at = find_gap(f, crew, at, s->work[back]);
        behind = back && at >= end_of(f, crew, false);
        t->begin[back][k * f->total + m] = at;
        at += s->work[back];
    }
    return at;
}

static void keep(const filling_t *f, const trial_t *t, int m, int back)
{
    for (int k = 0; k < f->num_stations; k++) {
        station_t *s = &f->stations[k];
        const crew_t *crew = crew_of(f, t, k, m);
        if (s->work[back] > 0) {
            s->floor = t->begin[back][k * f->total + m];
            s->behind = back && s->floor >= end_of(f, crew, false);
            take_gap(f, crew, s->floor, s->work[back]);
        }
    }
}

/* Who is through with a forward first, and with the fewest hops. */
static int64_t find_route(const filling_t *f, trial_t *t, int m)
{
    int64_t earliest = INT64_MAX;
    int best = 0;
    for (int i = 0; i < f->num_routes; i++) {
        const route_t *r = &f->routes[i];
        if (r->taken == t->most) {
            continue;
        }
        t->route[m] = i;
        int64_t end = go_through(f, t, m, 0, -t->front);
        bool better = end < earliest ||
                      (end == earliest && r->hops < f->routes[best].hops);
        best = better ? i : best;
        earliest = LOONG_MIN(earliest, end);
    }
    t->route[m] = best;
    return go_through(f, t, m, 0, -t->front);
}

/* Are all there before they are read? */
static bool place_forwards(const filling_t *f, trial_t *t)
{
    for (int m = 0; m < f->total; m++) {
        if (find_route(f, t, m) > f->wanted[m]) {
            return false;
        }
        f->routes[t->route[m]].taken++;
        keep(f, t, m, 0);
    }
    return true;
}

static void place_backwards(const filling_t *f, trial_t *t)
{
    t->length = f->length;
    begin_pass(f, 0);
    for (int m = 0; m < f->total; m++) {
        int64_t end = go_through(f, t, m, 1, f->made[m]);
        keep(f, t, m, 1);
        t->length = LOONG_MAX(t->length, end);
    }
    t->length += t->front;
}

static loong_status_t begin_trials(const filling_t *f, trial_t *t)
{
    size_t total = (size_t)f->total;
    size_t all = total * (size_t)f->num_stations;
    loong_arena_t *arena = f->join->cell->arena;
    memset(t, 0, sizeof(*t));
    t->length = INT64_MAX;
    for (int i = 0; i < 2; i++) {
        LOONG_TRY(
            loongi_arena_alloc(arena, all * sizeof(int64_t), &t->begin[i]));
        memset(t->begin[i], 0, all * sizeof(int64_t));
    }
    return loongi_arena_alloc(arena, total * sizeof(*t->route), &t->route);
}

/* Even shares with all in front is possible always, where no routes share a
 * rank; else a longer front is. A front has room for one stage or more. */
static loong_status_t find_best(const filling_t *f, trial_t *best)
{
    trial_t t;
    int even = (f->total + f->num_routes - 1) / f->num_routes;
    int64_t unit = 0;
    int parts = 1;
    for (int k = 0; k < f->num_stations; k++) {
        const station_t *s = &f->stations[k];
        unit += s->work[0];
        parts = LOONG_MAX(parts, component_of(f, s->component)->params.ranks);
    }
    unit = (unit + parts - 1) / parts;
    LOONG_TRY(begin_trials(f, &t));
    LOONG_TRY(begin_trials(f, best));
    for (int n = 0; n <= even * parts || best->length == INT64_MAX; n++) {
        if (f->length + n * unit >= best->length) {
            break; /* no step is shorter than its front and the pipeline */
        }
        for (int k = even; k <= f->total; k += LOONG_MAX(even / 2, 1)) {
            for (int i = 0; i < (f->hops ? 4 : 2); i++) {
                t.front = n * unit;
                t.most = k;
                t.behind = i % 2 == 1;
                t.each = i / 2 == 1;
                begin_trial(f, &t);
                if (!place_forwards(f, &t)) {
                    break;
                }
                place_backwards(f, &t);
                if (t.length < best->length) {
                    trial_t worse = *best;
                    *best = t;
                    t = worse;
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
 * micro-batch follows the other through all stations, or through each. */
static void set_forwards(const filling_t *f, const trial_t *t, int component)
{
    int total = component_of(f, component)->params.micro_batches;
    for (int k = 0; k < f->num_stations; k++) {
        const station_t *s = &f->stations[k];
        for (int m = 0; m < total && s->component == component; m++) {
            int64_t *key = &f->join->forward[component][s->stage * total + m];
            int64_t at = k * f->total + loongi_filling_first(f, component, m);
            *key =
                LOONG_MIN(*key, LOONG_JOIN_STEP * (t->begin[0][at] + t->front));
        }
    }
}

static void set_backwards(const filling_t *f, const trial_t *t, int component)
{
    int total = component_of(f, component)->params.micro_batches;
    for (int k = 0; k < f->num_stations; k++) {
        const station_t *s = &f->stations[k];
        for (int m = 0; m < total && s->component == component; m++) {
            int64_t *key = &f->join->backward[component][s->stage * total + m];
            int64_t read = loongi_filling_last(f, component, m);
            int64_t at = t->begin[1][k * f->total + read];
            const crew_t *crew = crew_of(f, t, k, (int)read);
            at = at < end_of(f, crew, false) ? LOONG_JOIN_STEP * (at + t->front)
                 : t->each                   ? LOONG_JOIN_LAST
                           : LOONG_JOIN_LAST + LOONG_JOIN_STEP * read;
            *key = LOONG_MAX(*key, at);
        }
    }
}

static void set_readers(const filling_t *f, const trial_t *t)
{
    const loong_cell_t *cell = f->join->cell;
    for (int c = 0; c <= f->head; c++) {
        int total = component_of(f, c)->params.micro_batches;
        for (int m = 0; m < total && cell->reader[c] != NULL; m++) {
            int route = t->route[loongi_filling_first(f, c, m)];
            cell->reader[c][m] =
                loongi_group_first(component_of(f, c),
                                   loongi_filling_group(f, c, route));
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
    if (head < 0) {
        loongi_join_couple(j, 0, cell->num_own - 2);
        return LOONG_OK;
    }
    LOONG_TRY(loongi_filling_begin(j, head, &f));
    LOONG_TRY(find_best(&f, &best));
    set_readers(&f, &best);
    shift_last(j, best.front);
    for (int c = cell->num_own - 2; c >= 0; c--) {
        loongi_join_before(j, c);
        set_forwards(&f, &best, c);
    }
    for (int c = cell->num_own - 2; c >= 0; c--) {
        loongi_join_behind(j, c);
        set_backwards(&f, &best, c);
    }
    return LOONG_OK;
}

const loong_join_kind_t loongi_join_bubbles = {
    "bubbles",
    "forwards and backwards in the gaps of the last component's pipeline, the "
    "replicas of a component apart from each other",
    false, true, place};
