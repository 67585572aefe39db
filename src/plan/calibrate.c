/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures each distinct launch of a plan once, on smaller operands where need
 * be, and adds up programs. Called by predict.c. Read timing.h before. */
#include "calibrate.h"

#include <stdlib.h>
#include <string.h>

#include "executor.h"
#include "timing.h"

enum { ALIGN = 64 };
/* Of the work above which a launch is timed on smaller operands, these take
 * so much. */
static const double SMALL = 0.04;

/* One distinct launch. */
typedef struct item {
    const loong_step_t *step;
    uint32_t accumulate;
    double seconds;
    double share; /* of its work that was timed; 0: not timed */
} item_t;

struct loong_calibration {
    loong_context_t *ctx;
    loong_calibration_params_t params;
    loong_calibration_counts_t figures;
    item_t *items;
    int64_t num_items, cap_items;
    char *memory;
    size_t bytes;
};

loong_status_t
loongi_calibration_create(loong_context_t *ctx,
                          const loong_calibration_params_t *params,
                          loong_calibration_t **calibration_p)
{
    loong_calibration_t *c = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*c), "calibration", &c));
    c->ctx = ctx;
    c->params = *params;
    *calibration_p = c;
    return LOONG_OK;
}

void loongi_calibration_destroy(loong_calibration_t **calibration_p)
{
    loong_calibration_t *c = *calibration_p;
    if (c != NULL) {
        if (c->memory != NULL) {
            loong_device_free(c->params.device, c->memory, c->bytes);
        }
        loongi_free(c->ctx, c->items);
        loongi_free(c->ctx, c);
        *calibration_p = NULL;
    }
}

loong_calibration_counts_t
loongi_calibration_get(const loong_calibration_t *calibration)
{
    return calibration->figures;
}

/* ---- equal launches ------------------------------------------------------ */

static bool same_arg(const loong_karg_t *a, const loong_karg_t *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && a->ld == b->ld &&
           memcmp(a->dim, b->dim, sizeof(a->dim)) == 0;
}

static bool same_launch(const loong_step_t *a, const loong_step_t *b)
{
    const loong_kernel_query_t *p = &a->query;
    const loong_kernel_query_t *q = &b->query;
    bool same = a->kernel == b->kernel && a->op == b->op &&
                p->num_in == q->num_in && p->num_out == q->num_out;
    for (int i = 0; same && i < p->num_in + p->num_out; i++) {
        same = same_arg(&p->arg[i], &q->arg[i]) &&
               loongi_timing_is_hot(a->operand[i].base) ==
                   loongi_timing_is_hot(b->operand[i].base);
    }
    if (same && a->op != NULL && a->op->attr_size > 0) {
        same = memcmp(p->attr, q->attr, a->op->attr_size) == 0;
    }
    return same;
}

/* ---- memory -------------------------------------------------------------- */

static loong_status_t reserve(loong_calibration_t *c, size_t bytes)
{
    void *memory = NULL;
    if (bytes <= c->bytes) {
        return LOONG_OK;
    }
    if (c->memory != NULL) {
        loong_device_free(c->params.device, c->memory, c->bytes);
        c->memory = NULL;
        c->bytes = 0;
    }
    LOONG_TRY(loong_device_alloc(c->params.device, bytes, "calibration",
                                 &memory));
    c->memory = memory;
    c->bytes = bytes;
    return LOONG_OK;
}

static bool reads_input(const loong_step_t *step)
{
    bool reads = false;
    for (int i = 0; i < step->query.num_in; i++) {
        reads = reads || (step->query.arg[i].rank > 0 &&
                          step->operand[i].base == LOONG_BASE_INPUT);
    }
    return reads;
}

/* ---- smaller operands ---------------------------------------------------- */

/* The share of the work of `all` that `part` is. */
static double share_of(const loong_cost_t *part, const loong_cost_t *all)
{
    return all->flops > 0.0 ? part->flops / all->flops
                            : part->bytes / LOONG_MAX(all->bytes, 1.0);
}

/* Do the op and its kernel take operands of these shapes? An op that is in no
 * graph has no rule of shapes: there all operands must be flat. What integers
 * say of other operands would no longer hold. */
static bool takes(loong_calibration_t *c, const loong_step_t *step)
{
    const loong_kernel_query_t *q = &step->query;
    loong_tensor_type_t types[LOONG_MAX_OPERANDS];
    loong_tensor_type_t out[LOONG_MAX_OPERANDS];
    char reason[LOONG_REASON_SIZE];
    bool flat = true;
    memset(types, 0, sizeof(types));
    memset(out, 0, sizeof(out));
    for (int i = 0; i < q->num_in + q->num_out; i++) {
        const loong_karg_t *arg = &q->arg[i];
        if (arg->rank > 0 &&
            (arg->dtype == LOONG_I32 || arg->dtype == LOONG_I64)) {
            return false;
        }
        flat = flat && arg->rank <= 1;
        types[i].dtype = arg->dtype;
        types[i].shape.rank = arg->rank;
        memcpy(types[i].shape.dim, arg->dim, sizeof(arg->dim));
    }
    if (step->kernel->support != NULL && !step->kernel->support(q, reason)) {
        return false;
    }
    if (flat || step->op == NULL) {
        return flat;
    }
    loong_op_call_t call = {c->ctx, q->op, c->params.precision, q->attr,
                            q->num_in, q->num_out, types, out};
    if (step->op->infer(&call) != LOONG_OK) {
        loong_context_clear_error(c->ctx);
        return false;
    }
    for (int o = 0; o < q->num_out; o++) {
        const loong_karg_t *arg = &q->arg[q->num_in + o];
        for (int d = 0; d < arg->rank; d++) {
            if (arg->dim[d] != out[o].shape.dim[d]) {
                return false;
            }
        }
    }
    return true;
}

/* A size, wherever it stands, becomes another one. */
static void resize(loong_kernel_query_t *q, int64_t from, int64_t to)
{
    for (int i = 0; i < q->num_in + q->num_out; i++) {
        loong_karg_t *arg = &q->arg[i];
        bool dense = loong_karg_dense(arg);
        for (int d = 0; d < arg->rank; d++) {
            arg->dim[d] = arg->dim[d] == from ? to : arg->dim[d];
        }
        if (dense && arg->rank > 1) {
            arg->ld = arg->dim[arg->rank - 1];
        }
    }
}

/* Halves the largest number of rows that can be; false: none can. */
static bool halve(loong_calibration_t *c, loong_step_t *step)
{
    const loong_kernel_query_t *q = &step->query;
    int64_t below = INT64_MAX;
    for (;;) {
        loong_step_t less = *step;
        int64_t rows = 0;
        for (int i = 0; i < q->num_in + q->num_out; i++) {
            int64_t n = q->arg[i].rank > 0 ? q->arg[i].dim[0] : 0;
            rows = n < below ? LOONG_MAX(rows, n) : rows;
        }
        if (rows < 2 * ALIGN) {
            return false;
        }
        resize(&less.query, rows, loongi_round_up(rows / 2, ALIGN));
        if (takes(c, &less)) {
            *step = less;
            return true;
        }
        below = rows;
    }
}

/* Makes a launch fit into the limits of memory and of work. */
static bool shrink(loong_calibration_t *c, loong_step_t *step)
{
    double most = c->params.work;
    most *= loongi_timing_cost(step).flops > most ? SMALL : 1.0;
    while (loongi_timing_bytes(step) > c->params.memory ||
           loongi_timing_cost(step).flops > most) {
        if (!halve(c, step)) {
            return false;
        }
    }
    return true;
}

/* ---- timing -------------------------------------------------------------- */

static loong_status_t measure(loong_calibration_t *c, item_t *item,
                              const loong_frame_t *frame)
{
    loong_step_t small = *item->step;
    const loong_step_t *step = &small;
    double begin = loongi_now();
    if ((c->params.inputs == NULL && reads_input(step)) ||
        !shrink(c, &small)) {
        return LOONG_OK;
    }
    /* As many neighbours as there is memory for. */
    int64_t bytes = loongi_timing_bytes(step);
    int64_t neighbours = LOONG_MIN((int64_t)c->params.num_neighbours,
                                   c->params.memory / bytes - 1);
    LOONG_TRY(reserve(c, (size_t)(bytes * (1 + neighbours))));
    loong_timing_t t = {c->ctx,
                        step,
                        item->accumulate,
                        frame,
                        c->memory,
                        c->params.inputs,
                        loong_device_stream(c->params.device),
                        c->params.group,
                        (int)neighbours,
                        c->params.neighbours};
    loong_status_t status = loongi_timing_run(&t, &item->seconds);
    if (status != LOONG_OK) {
        loongi_error_note(c->ctx, "while timing kernel %s of scope '%s'",
                          step->kernel->name, step->scope);
        return status;
    }
    loong_cost_t part = loongi_timing_cost(step);
    loong_cost_t all = loongi_timing_cost(item->step);
    item->share = share_of(&part, &all);
    item->seconds /= item->share;
    c->figures.measured++;
    c->figures.shrunk += item->share < 1.0;
    c->figures.seconds += loongi_now() - begin;
    return LOONG_OK;
}

/* By the work of the largest timed launch of the kernel; without one by the
 * best rates that any kernel showed: that is too fast, and it is told. */
static double guess(const loong_calibration_t *c, const item_t *item)
{
    loong_cost_t mine = loongi_timing_cost(item->step);
    const item_t *like = NULL;
    double flops = 1e9; /* a second */
    double bytes = 1e9;
    for (int64_t i = 0; i < c->num_items; i++) {
        const item_t *other = &c->items[i];
        if (other->share == 0.0) {
            continue;
        }
        loong_cost_t cost = loongi_timing_cost(other->step);
        if (other->step->kernel == item->step->kernel &&
            (like == NULL || other->seconds > like->seconds)) {
            like = other;
        }
        flops = LOONG_MAX(flops, cost.flops / other->seconds);
        bytes = LOONG_MAX(bytes, cost.bytes / other->seconds);
    }
    if (like == NULL) {
        return LOONG_MAX(mine.flops / flops, mine.bytes / bytes);
    }
    loong_cost_t timed = loongi_timing_cost(like->step);
    return like->seconds * share_of(&mine, &timed);
}

/* ---- programs ------------------------------------------------------------ */

static item_t *find(const loong_calibration_t *c, const loong_step_t *step,
                    uint32_t accumulate)
{
    for (int64_t i = 0; i < c->num_items; i++) {
        if (c->items[i].accumulate == accumulate &&
            same_launch(c->items[i].step, step)) {
            return &c->items[i];
        }
    }
    return NULL;
}

static uint32_t accumulates(const loong_step_t *step,
                            const loong_frame_t *frame)
{
    return step->add | (frame->first ? 0 : step->add_later);
}

/* Times a launch that was not met before, while there is time. */
static loong_status_t meet(loong_calibration_t *c, const loong_step_t *step,
                           const loong_frame_t *frame)
{
    uint32_t accumulate = accumulates(step, frame);
    if (find(c, step, accumulate) != NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_grow(c->ctx, &c->items, &c->cap_items, c->num_items + 1,
                          sizeof(*c->items), "timed launches"));
    item_t *item = &c->items[c->num_items++];
    memset(item, 0, sizeof(*item));
    item->step = step;
    item->accumulate = accumulate;
    if (c->figures.seconds < c->params.budget) {
        LOONG_TRY(measure(c, item, frame));
    }
    c->figures.scaled += item->share == 0.0;
    return LOONG_OK;
}

loong_status_t loongi_calibration_program(loong_calibration_t *calibration,
                                          const loong_program_t *program,
                                          const loong_frame_t *frame,
                                          int64_t times, double *seconds_p)
{
    loong_calibration_t *c = calibration;
    double sum = 0.0;
    /* First all are timed, then those that could not be are guessed. */
    for (int64_t i = 0; i < program->num_steps; i++) {
        const loong_step_t *step = &program->steps[i];
        if (!loongi_step_runs(step, frame)) {
            continue;
        }
        if (step->kernel->communicates) {
            c->figures.collectives += times;
        } else {
            LOONG_TRY(meet(c, step, frame));
        }
    }
    for (int64_t i = 0; i < program->num_steps; i++) {
        const loong_step_t *step = &program->steps[i];
        if (loongi_step_runs(step, frame) && !step->kernel->communicates) {
            const item_t *item = find(c, step, accumulates(step, frame));
            sum += item->share > 0.0 ? item->seconds : guess(c, item);
        }
    }
    *seconds_p += (double)times * sum;
    return LOONG_OK;
}
