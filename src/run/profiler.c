/* SPDX-License-Identifier: Apache-2.0
 *
 * Adds up times of steps by op, and writes them as a trace. Attached to
 * bindings by src/report/profile.c. Read loong_step_hook in
 * executor.h before. */
#include "profiler.h"

#include <stdlib.h>
#include <string.h>

#include "file.h"

enum { MAX_ROWS = 128 };

/* What a mixture of experts costs besides the experts. */
typedef enum part { PART_NONE, ROUTER, PERMUTE, DISPATCH, PARTS } part_t;

typedef struct row {
    const char *op;
    const char *kernel;
    int64_t count;
    double seconds;
    double blocked; /* of that, in which the rank did nothing else */
    bool comm;
    double moved; /* bytes of the buffers of collectives */
    double flops;
    double bytes;
} row_t;

typedef struct event {
    const loong_step_t *step;
    loong_program_kind_t program;
    double begin;
    double end;
} event_t;

struct loong_profiler {
    loong_context_t *ctx;
    double start;
    int num_rows;
    row_t rows[MAX_ROWS];
    double part[PARTS]; /* seconds that a rank spent or waited in each */
    int64_t num_events;
    int64_t max_events;
    event_t *events;
};

loong_status_t loongi_profiler_create(loong_context_t *ctx, int64_t max_events,
                                      loong_profiler_t **profiler_p)
{
    loong_profiler_t *p = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*p), "profiler", &p));
    p->ctx = ctx;
    p->start = loongi_now();
    p->max_events = max_events;
    loong_status_t status =
        loongi_calloc(ctx, (size_t)LOONG_MAX(max_events, 1),
                      sizeof(*p->events), "profiler events", &p->events);
    if (status != LOONG_OK) {
        loongi_free(ctx, p);
        return status;
    }
    *profiler_p = p;
    return LOONG_OK;
}

void loongi_profiler_destroy(loong_profiler_t **profiler_p)
{
    loong_profiler_t *p = *profiler_p;
    if (p != NULL) {
        loongi_free(p->ctx, p->events);
        loongi_free(p->ctx, p);
        *profiler_p = NULL;
    }
}

/* Rows beyond the last are counted in the last. */
static row_t *find_row(loong_profiler_t *p, const loong_step_t *step)
{
    for (int i = 0; i < p->num_rows; i++) {
        if (p->rows[i].kernel == step->kernel->name) {
            return &p->rows[i];
        }
    }
    p->num_rows += p->num_rows < MAX_ROWS;
    row_t *row = &p->rows[p->num_rows - 1];
    row->op = step->query.op;
    row->kernel = step->kernel->name;
    return row;
}

/* What a collective brings together: its larger operand. */
static double buffer_bytes(const loong_step_t *step)
{
    const loong_kernel_query_t *q = &step->query;
    double most = 0.0;
    for (int i = 0; i < q->num_in + q->num_out; i++) {
        const loong_karg_t *a = &q->arg[i];
        double bytes = (double)loong_karg_rows(a) *
                       (double)loong_karg_cols(a) *
                       (double)loong_dtype_size(a->dtype);
        most = a->rank > 0 ? LOONG_MAX(most, bytes) : most;
    }
    return most;
}

static part_t part_of(const loong_step_t *step)
{
    static const struct {
        const char *op;
        part_t part;
    } ops[] = {{"topk_router", ROUTER},      {"topk_router_grad", ROUTER},
               {"router_loss", ROUTER},      {"router_loss_grad", ROUTER},
               {"expert_counts", ROUTER},    {"expert_excess", ROUTER},
               {"expert_capacity", ROUTER},  {"expert_order", PERMUTE},
               {"expert_rounds", PERMUTE},   {"expert_window", PERMUTE},
               {"expert_routes", PERMUTE},
               {"permute", PERMUTE},         {"unpermute", PERMUTE},
               {"unpermute_dw", PERMUTE}};
    for (int i = 0; i < LOONG_COUNT_OF(ops); i++) {
        if (strcmp(step->query.op, ops[i].op) == 0) {
            return ops[i].part;
        }
    }
    if (step->kernel->communicates) {
        return step->group == LOONG_GROUP_ETP_EP ? DISPATCH : PART_NONE;
    }
    /* The router's own product and its gradients. */
    size_t length = strlen(step->scope);
    const char *end = step->scope + length - LOONG_MIN(length, 5);
    return strcmp(end, ".gate") == 0 ? ROUTER : PART_NONE;
}

static void record(void *user, const loong_program_t *program, int64_t index,
                   void *const *ptr, const loong_step_time_t *time)
{
    loong_profiler_t *p = user;
    const loong_step_t *step = &program->steps[index];
    row_t *row = find_row(p, step);
    (void)ptr;
    row->count++;
    bool comm = step->kernel->communicates;
    row->seconds += time->end - time->begin;
    row->comm = comm;
    double own = comm ? time->blocked : time->end - time->begin;
    row->blocked += own;
    p->part[part_of(step)] += own;
    row->moved += comm ? buffer_bytes(step) : 0.0;
    row->flops += step->cost.flops;
    row->bytes += step->cost.bytes;
    if (p->num_events < p->max_events) {
        event_t *event = &p->events[p->num_events++];
        event->step = step;
        event->program = program->kind;
        event->begin = time->begin;
        event->end = time->end;
    }
}

void loongi_profiler_attach(loong_profiler_t *profiler, loong_binding_t *run)
{
    run->hook = record;
    run->hook_user = profiler;
}

static int by_blocked(const void *a, const void *b)
{
    double x = ((const row_t *)a)->blocked;
    double y = ((const row_t *)b)->blocked;
    return (x < y) - (x > y);
}

void loongi_profiler_table(const loong_profiler_t *profiler,
                           loong_text_t *text)
{
    row_t rows[MAX_ROWS];
    double all = 0.0;
    memcpy(rows, profiler->rows, sizeof(rows));
    qsort(rows, (size_t)profiler->num_rows, sizeof(rows[0]), by_blocked);
    for (int i = 0; i < profiler->num_rows; i++) {
        all += rows[i].blocked;
    }
    loongi_text_printf(text, "%-18s %-34s %9s %10s %7s %9s %8s\n", "op",
                       "kernel", "count", "ms", "share", "GFLOP/s", "GB/s");
    for (int i = 0; i < profiler->num_rows; i++) {
        const row_t *r = &rows[i];
        double seconds = r->seconds > 0.0 ? r->seconds : 1e-9;
        loongi_text_printf(text,
                           "%-18s %-34s %9lld %10.1f %6.1f%% %9.1f %8.2f\n",
                           r->op, r->kernel, (long long)r->count,
                           1e3 * r->blocked, 100.0 * r->blocked / all,
                           1e-9 * r->flops / seconds,
                           1e-9 * r->bytes / seconds);
    }
    loongi_text_printf(text, "%-18s %-34s %9s %10.1f\n", "together", "", "",
                       1e3 * all);
    const double *part = profiler->part;
    if (part[PERMUTE] > 0.0) {
        loongi_text_printf(text,
                           "of which routing %.1f%%, moving rows %.1f%%, "
                           "waiting for rows of other ranks %.1f%%\n",
                           100.0 * part[ROUTER] / all,
                           100.0 * part[PERMUTE] / all,
                           100.0 * part[DISPATCH] / all);
    }
}

static void tell_traffic(const loong_traffic_t *t, loong_text_t *text)
{
    double hidden = LOONG_MAX(t->seconds - t->blocked, 0.0);
    loongi_text_printf(text, "%-24s %9lld %10.1f %10.1f %10.1f", t->name,
                       (long long)t->count, 1e-6 * t->bytes,
                       1e3 * t->seconds, 1e3 * t->blocked);
    if (t->seconds > 0.0) {
        loongi_text_printf(text, " %9.1f%%\n", 100.0 * hidden / t->seconds);
    } else {
        loongi_text_printf(text, " %10s\n", "-");
    }
}

double loongi_profiler_blocked(const loong_profiler_t *profiler)
{
    double seconds = 0.0;
    for (int i = 0; i < profiler->num_rows; i++) {
        const row_t *r = &profiler->rows[i];
        seconds += r->comm ? r->blocked : 0.0;
    }
    return seconds;
}

void loongi_profiler_traffic(const loong_profiler_t *profiler, int num_others,
                             const loong_traffic_t *others, loong_text_t *text)
{
    loongi_text_printf(text, "%-24s %9s %10s %10s %10s %10s\n",
                       "communication", "count", "MB", "ms", "ms waited",
                       "overlap");
    for (int i = 0; i < profiler->num_rows; i++) {
        const row_t *r = &profiler->rows[i];
        loong_traffic_t t = {r->op, r->count, r->moved, r->seconds,
                             r->blocked};
        if (r->comm) {
            tell_traffic(&t, text);
        }
    }
    for (int i = 0; i < num_others; i++) {
        if (others[i].count > 0) {
            tell_traffic(&others[i], text);
        }
    }
}

loong_status_t loongi_profiler_write(const loong_profiler_t *profiler,
                                     const char *path)
{
    loong_text_t text = loongi_text_begin(profiler->ctx);
    loongi_text_printf(&text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    for (int64_t i = 0; i < profiler->num_events; i++) {
        const event_t *e = &profiler->events[i];
        loongi_text_printf(
            &text,
            "%s\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":0,"
            "\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"scope\":\"%s\","
            "\"kernel\":\"%s\"}}",
            i > 0 ? "," : "", e->step->query.op,
            loongi_program_name(e->program), (int)e->step->lane,
            1e6 * (e->begin - profiler->start), 1e6 * (e->end - e->begin),
            e->step->scope, e->step->kernel->name);
    }
    loongi_text_printf(&text, "\n]}\n");
    loong_status_t status = text.status;
    if (status == LOONG_OK) {
        status = loongi_file_write(profiler->ctx, path, loongi_text_get(&text),
                                   text.length);
    }
    loongi_text_free(&text);
    return status;
}
