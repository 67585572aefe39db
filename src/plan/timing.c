/* SPDX-License-Identifier: Apache-2.0
 *
 * One launch, timed: its operands laid out and filled, again and again, beside
 * threads that do the same. Called by calibrate.c and rates.c. Read timing.h
 * before. */
#include "timing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    COLD_BYTES = 64 << 20, /* more than a cache keeps */
    MAX_COPIES = 16,
    MIN_LAUNCHES = 3,
    MAX_LAUNCHES = 25,
    ALIGN = 64
};
static const double ENOUGH = 0.03; /* seconds of launches of one kernel */
static const double LONG = 1.0;    /* a launch this long needs no second */

/* ---- operands ------------------------------------------------------------ */

/* Does a step find this operand in a cache? What another program wrote, it
 * does not. */
bool loongi_timing_is_hot(loong_base_t base)
{
    return base == LOONG_BASE_SCRATCH || base == LOONG_BASE_INPUT;
}

int64_t loongi_timing_extent(const loong_karg_t *arg)
{
    int64_t elements = (loong_karg_rows(arg) - 1) * arg->ld +
                       loong_karg_cols(arg);
    return loongi_round_up(elements * (int64_t)loong_dtype_size(arg->dtype),
                           ALIGN);
}

loong_cost_t loongi_timing_cost(const loong_step_t *step)
{
    loong_cost_t cost = {0.0, 0.0};
    if (step->op != NULL && step->op->cost != NULL) {
        step->op->cost(&step->query, &cost);
        return cost;
    }
    for (int i = 0; i < step->query.num_in + step->query.num_out; i++) {
        if (step->query.arg[i].rank > 0) {
            cost.bytes += (double)loongi_timing_extent(&step->query.arg[i]);
        }
    }
    return cost;
}

/* Where the operands lie: hot ones once, then the workspace, then the cold
 * ones, one set after the other. */
typedef struct placement {
    int64_t offset[LOONG_MAX_OPERANDS];
    int64_t workspace;
    int64_t cold;       /* where the first set begins */
    int64_t cold_bytes; /* of one set */
    int64_t copies;
} placement_t;

/* Operands at one place, as an output in the place of an input, stay so. */
static bool is_shared(const loong_step_t *step, int i, int *with_p)
{
    for (*with_p = 0; *with_p < i; ++*with_p) {
        if (step->query.arg[*with_p].rank > 0 &&
            step->operand[*with_p].base == step->operand[i].base &&
            step->operand[*with_p].offset == step->operand[i].offset) {
            return true;
        }
    }
    return false;
}

static void place(const loong_step_t *step, placement_t *p)
{
    const loong_kernel_query_t *q = &step->query;
    int64_t at = 0;
    for (int hot = 1; hot >= 0; hot--) {
        for (int i = 0; i < q->num_in + q->num_out; i++) {
            loong_base_t base = step->operand[i].base;
            int with = 0;
            if (q->arg[i].rank == 0 || base == LOONG_BASE_INPUT ||
                loongi_timing_is_hot(base) != (hot == 1)) {
                continue;
            }
            bool shared = is_shared(step, i, &with);
            p->offset[i] = shared ? p->offset[with] : at;
            at += shared ? 0 : loongi_timing_extent(&q->arg[i]);
        }
        if (hot == 1) {
            p->workspace = at;
            at += step->kernel->workspace != NULL
                      ? loongi_round_up((int64_t)step->kernel->workspace(q),
                                        ALIGN)
                      : 0;
            p->cold = at;
        }
    }
    p->cold_bytes = at - p->cold;
    p->copies = LOONG_MIN(1 + COLD_BYTES / LOONG_MAX(p->cold_bytes, 1),
                          (int64_t)MAX_COPIES);
}

/* Numbers from 1/8 to 1/4, be they read as bf16 or fp32. */
static void fill(char *memory, int64_t bytes)
{
    uint16_t *words = (uint16_t *)(void *)memory;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < bytes / 2; i++) {
        words[i] = (uint16_t)(0x3e00u + ((uint64_t)i * 40503u >> 7 & 0x7fu));
    }
}

/* Integers that a kernel indexes with, in all sets. */
static void fill_integers(char *memory, const loong_step_t *step,
                          const placement_t *p)
{
    const loong_kernel_query_t *q = &step->query;
    for (int i = 0; i < q->num_in && step->op != NULL; i++) {
        bool integers = q->arg[i].rank > 0 &&
                        (q->arg[i].dtype == LOONG_I32 ||
                         q->arg[i].dtype == LOONG_I64);
        if (!integers || step->op->example == NULL ||
            step->operand[i].base == LOONG_BASE_INPUT) {
            continue;
        }
        int64_t sets =
            loongi_timing_is_hot(step->operand[i].base) ? 1 : p->copies;
        for (int64_t s = 0; s < sets; s++) {
            step->op->example(q, i,
                              memory + p->offset[i] + s * p->cold_bytes);
        }
    }
}

int64_t loongi_timing_bytes(const loong_step_t *step)
{
    placement_t p;
    memset(&p, 0, sizeof(p));
    place(step, &p);
    return LOONG_MAX(p.cold + p.copies * p.cold_bytes, (int64_t)ALIGN);
}

/* ---- one thread ---------------------------------------------------------- */

/* A launch on memory of its own. */
typedef struct launcher {
    const loong_step_t *step;
    placement_t place;
    char *memory;
    char *inputs;
    loong_kernel_call_t call;
    void *ptr[LOONG_MAX_OPERANDS];
    pthread_t thread; /* of a neighbour */
    _Atomic bool *over;
    loong_status_t status;
} launcher_t;

static loong_status_t begin(const loong_timing_t *t, int index, launcher_t *l)
{
    const loong_kernel_t *kernel = t->step->kernel;
    int64_t bytes = loongi_timing_bytes(t->step);
    memset(l, 0, sizeof(*l));
    l->step = t->step;
    l->memory = t->memory + index * bytes;
    l->inputs = t->inputs;
    place(t->step, &l->place);
    fill(l->memory, bytes);
    fill_integers(l->memory, t->step, &l->place);
    l->call.ctx = index > 0 ? t->neighbours[index - 1].ctx : t->ctx;
    l->call.group = index > 0 ? t->neighbours[index - 1].group : t->group;
    l->call.query = &t->step->query;
    l->call.frame = t->frame;
    l->call.workspace = l->memory + l->place.workspace;
    l->call.stream = t->stream;
    l->call.accumulate = t->accumulate;
    l->call.ptr = l->ptr;
    return kernel->prepare != NULL
               ? kernel->prepare(l->call.ctx, l->call.query, &l->call.state)
               : LOONG_OK;
}

static void end(launcher_t *l)
{
    if (l->step->kernel->destroy != NULL && l->call.state != NULL) {
        l->step->kernel->destroy(l->call.ctx, l->call.state);
    }
}

/* With one set of cold operands after the other. */
static loong_status_t launch(launcher_t *l, int64_t index)
{
    const loong_kernel_query_t *q = &l->step->query;
    int64_t set = index % l->place.copies * l->place.cold_bytes;
    for (int i = 0; i < q->num_in + q->num_out; i++) {
        loong_operand_t at = l->step->operand[i];
        if (q->arg[i].rank > 0) {
            l->ptr[i] = at.base == LOONG_BASE_INPUT
                            ? l->inputs + at.offset
                            : l->memory + l->place.offset[i] +
                                  (loongi_timing_is_hot(at.base) ? 0 : set);
        }
    }
    return l->step->kernel->run(&l->call);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A clock of launches. One thread alone is measured by its own time, in which
 * others that get its core do not count; several wait for each other. */
static double now(const loong_kernel_query_t *query)
{
    struct timespec t;
    if (query->threads == 1 &&
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0) {
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    }
    return loongi_now();
}

/* Of the launches after the first the median; of several threads the lower
 * quartile: what else the machine does in these few seconds should not
 * count. */
static loong_status_t measure(launcher_t *l, double *seconds_p)
{
    double times[MAX_LAUNCHES];
    double sum = 0.0;
    int n = 0;
    for (int r = -1; r < MAX_LAUNCHES; r++) {
        double since = now(l->call.query);
        LOONG_TRY(launch(l, r + 1));
        double seconds = now(l->call.query) - since;
        if (r >= 0 || seconds > LONG) {
            times[n++] = seconds;
            sum += seconds;
        }
        if ((n >= MIN_LAUNCHES && sum > ENOUGH) || sum > LONG) {
            break;
        }
    }
    qsort(times, (size_t)n, sizeof(times[0]), by_value);
    *seconds_p = times[n / (l->call.query->threads == 1 ? 2 : 4)];
    return LOONG_OK;
}

/* ---- neighbours ---------------------------------------------------------- */

static void *work(void *argument)
{
    launcher_t *l = argument;
    for (int64_t r = 0; !atomic_load(l->over) && l->status == LOONG_OK; r++) {
        l->status = launch(l, r);
    }
    return NULL;
}

/* Times launchers[0] while the others launch; returns what the first of these
 * that failed says. */
static loong_status_t measure_beside(launcher_t *launchers, int count,
                                     double *seconds_p)
{
    _Atomic bool over = false;
    int started = 1;
    while (started < count) {
        launcher_t *l = &launchers[started];
        l->over = &over;
        if (pthread_create(&l->thread, NULL, work, l) != 0) {
            break; /* timed with fewer beside it */
        }
        started++;
    }
    loong_status_t status = measure(&launchers[0], seconds_p);
    atomic_store(&over, true);
    for (int i = 1; i < started; i++) {
        pthread_join(launchers[i].thread, NULL);
        status = status == LOONG_OK ? launchers[i].status : status;
    }
    return status;
}

loong_status_t loongi_timing_run(const loong_timing_t *timing,
                                 double *seconds_p)
{
    launcher_t *launchers = NULL;
    int count = 1 + timing->num_neighbours;
    int begun = 0;
    LOONG_TRY(loongi_calloc(timing->ctx, (size_t)count, sizeof(*launchers),
                            "timed launches", &launchers));
    loong_status_t status = LOONG_OK;
    while (begun < count && status == LOONG_OK) {
        status = begin(timing, begun, &launchers[begun]);
        begun += status == LOONG_OK;
    }
    if (status == LOONG_OK) {
        status = measure_beside(launchers, count, seconds_p);
    }
    for (int i = 0; i < begun; i++) {
        end(&launchers[i]);
    }
    loongi_free(timing->ctx, launchers);
    return status;
}
