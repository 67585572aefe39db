/* SPDX-License-Identifier: Apache-2.0
 *
 * The time of a program by the rates of a device. Called by predict_rates.c and
 * predict.c. Read loong_cost_t in loong/op.h before. */
#include "rates.h"

#include <string.h>

#include "executor.h"
#include "loong/moe.h"
#include "timing.h"

const loong_device_rates_t *loongi_rates_find(const loong_context_t *ctx,
                                              const char *kind,
                                              const char *name)
{
    const loong_device_ops_t *of = loong_device_find_kind(ctx, kind);
    const loong_device_rates_t *r = of != NULL ? of->rates : NULL;
    while (r != NULL && r->name != NULL && name != NULL &&
           strcmp(r->name, name) != 0) {
        r++;
    }
    return r != NULL && r->name != NULL ? r : NULL;
}

/* ---- one step ------------------------------------------------------------ */

/* By a library, which was asked for first and refused nothing. */
static bool is_fused(const loong_step_t *step)
{
    return step->query.policy.attention != LOONG_ATTENTION_LOCAL &&
           step->refusals[0] == '\0';
}

/* Operations a second of what a step multiplies. */
static double rate_of(const loong_rates_params_t *p, const loong_step_t *step,
                      bool attention)
{
    const loong_device_rates_t *r = p->rates;
    const loong_karg_t *arg = step->query.arg;
    if (arg[0].dtype != arg[1].dtype) { /* a product made of two */
        return r->products * r->bf16 / 2.0;
    }
    if (arg[0].dtype == LOONG_BF16) {
        bool back = strcmp(step->query.op, "attention_grad") == 0;
        return r->bf16 * (!attention ? r->products
                          : !is_fused(step)
                              ? (back ? r->attention_grad : r->attention)
                          : back ? r->fused_grad
                                 : r->fused);
    }
    /* Attention of fp32 uses no tensor cores. */
    return r->products * (p->tf32 && !attention ? r->tf32 : r->fp32);
}

/* Kernels and copies of a step of a program, on the mean: those that the
 * simulated device counted were 1.3 of llama's, 1.9 of GPT-2's. */
static const double LAUNCHES = 1.6;

/* What other ops compute hides behind their passes over memory. */
static bool multiplies(const char *op)
{
    return strstr(op, "linear") != NULL || strcmp(op, "cross_entropy") == 0 ||
           strncmp(op, "token_logprob", 13) == 0;
}

static double compute(const loong_rates_params_t *p, const loong_step_t *step,
                      int64_t times)
{
    loong_rates_sum_t *sum = p->sum;
    const char *op = step->query.op;
    loong_cost_t cost = loongi_timing_cost(step);
    bool back = strcmp(op, "attention_grad") == 0;
    bool attention = back || strcmp(op, "attention") == 0;
    double flops = attention || multiplies(op) ? cost.flops : 0.0;
    double bytes = cost.bytes + (step->kernel->more_bytes != NULL
                                     ? step->kernel->more_bytes(&step->query)
                                     : 0.0);
    double products = flops / rate_of(p, step, attention);
    double passes = bytes / (p->rates->copy * p->rates->passes);
    double gap = LAUNCHES * (p->graphs ? p->rates->gap : p->rates->launch);
    *(attention ? &sum->attention : &sum->products) += (double)times * products;
    sum->passes += (double)times * passes;
    sum->gaps += (double)times * gap;
    if (!step->recomputed) {
        sum->flops += (double)times * flops * (back ? 0.8 : 1.0);
    }
    return products + passes + gap;
}

double loongi_rates_launches(const loong_program_t *program,
                             const loong_frame_t *frame)
{
    double steps = 0.0;
    for (int64_t i = 0; i < program->num_steps; i++) {
        steps += loongi_step_runs(&program->steps[i], frame) ? 1.0 : 0.0;
    }
    return LAUNCHES * steps;
}

/* ---- between ranks ------------------------------------------------------- */

/* Members of a group on the machine of its first one. */
static int neighbours(const loong_device_rates_t *r, const loong_mesh_t *mesh,
                      loong_group_t group)
{
    int machine = loong_mesh_member(mesh, group, 0) / r->machine;
    int count = 0;
    for (int i = 0; i < loong_mesh_group_size(mesh, group); i++) {
        count += loong_mesh_member(mesh, group, i) / r->machine == machine;
    }
    return count;
}

/* As if every token went to as many ranks as it chooses experts, or to all;
 * some choose two of one rank. */
static double exchanged(const loong_step_t *step)
{
    const loong_exchange_rows_attr_t *a = step->query.attr;
    const loong_karg_t *x = &step->query.arg[0];
    double rows = (double)LOONG_MIN(a->rows, a->back_rows);
    return rows * (double)loong_karg_cols(x) *
           (double)loong_dtype_size(x->dtype);
}

/* Bytes of all ranks' parts together. */
static double volume(const loong_step_t *step)
{
    const loong_kernel_query_t *q = &step->query;
    double most = 0.0;
    if (strcmp(q->op, "exchange_rows") == 0) {
        return exchanged(step);
    }
    for (int i = 0; i < q->num_in + q->num_out; i++) {
        double bytes =
            q->arg[i].rank > 0 ? (double)loongi_timing_extent(&q->arg[i]) : 0.0;
        most = LOONG_MAX(most, bytes);
    }
    return most;
}

/* A ring, whose machines pass it on by all cards of their members; where each
 * sends to each, every one by its own card. */
static double collective(const loong_rates_params_t *p,
                         const loong_step_t *step)
{
    const loong_device_rates_t *r =
        p->crosses[step->group] ? p->between : p->rates;
    const char *op = step->query.op;
    int size = loong_mesh_group_size(p->mesh, step->group);
    int near = neighbours(r, p->mesh, step->group);
    double far = (double)(size - near);
    double n = (double)size;
    double bytes = volume(step);
    double ring = far > 0.0 ? LOONG_MIN(r->link, near * r->network) : r->link;
    bool sums = strstr(op, "all_reduce") != NULL;
    if (size < 2) {
        return 0.0;
    }
    if (strcmp(op, "ring_shift") == 0) {
        return r->latency + bytes / (far > 0.0 ? r->network : r->link);
    }
    if (strncmp(op, "all_to_all", 10) == 0 ||
        strcmp(op, "exchange_rows") == 0) {
        return r->latency + LOONG_MAX(bytes * (near - 1) / n / r->link,
                                      bytes * far / n / r->network);
    }
    double steps = (n - 1.0) * (sums ? 2.0 : 1.0);
    return steps * (r->latency + bytes / n / ring);
}

double loongi_rates_message(const loong_device_rates_t *rates, int from, int to,
                            double bytes)
{
    bool far = from / rates->machine != to / rates->machine;
    return rates->latency + bytes / (far ? rates->network : rates->link);
}

/* ---- programs ------------------------------------------------------------ */

/* The streams of computation and of collectives; done[k]: when collective k + 1
 * of the program was. */
typedef struct clocks {
    double compute;
    double comm;
    double *done;
    int64_t begun;
} clocks_t;

static void await(clocks_t *c, double until, double times,
                  loong_rates_sum_t *sum)
{
    sum->exposed += times * LOONG_MAX(until - c->compute, 0.0);
    c->compute = LOONG_MAX(c->compute, until);
}

static void run_kernel(const loong_rates_params_t *p, const loong_program_t *at,
                       const loong_step_t *step, bool runs, int64_t times,
                       clocks_t *c)
{
    loong_rates_sum_t *sum = p->sum;
    bool apart = at->placed && step->lane == LOONG_LANE_COMM;
    if (apart && !runs) {
        c->done[c->begun++] = c->comm;
        return;
    }
    if (!runs) {
        return;
    }
    if (step->kernel->communicates) {
        double seconds = collective(p, step);
        c->comm = LOONG_MAX(c->comm, c->compute) + seconds;
        sum->collectives += (double)times * seconds;
        if (apart) {
            c->done[c->begun++] = c->comm;
        } else {
            await(c, c->comm, (double)times, sum);
        }
        return;
    }
    if (at->placed && (step->await > 0 || step->kernel->joins)) {
        await(c, step->kernel->joins ? c->comm : c->done[step->await - 1],
              (double)times, sum);
    }
    c->compute += compute(p, step, times);
}

static void run_step(const loong_rates_params_t *p, const loong_program_t *at,
                     const loong_step_t *step, bool runs, int64_t times,
                     clocks_t *c)
{
    double since = c->compute;
    run_kernel(p, at, step, runs, times, c);
    if (strncmp(step->scope, "layers.", 7) == 0) {
        p->sum->layers += (double)times * (c->compute - since);
    }
}

loong_status_t loongi_rates_program(const loong_rates_params_t *params,
                                    const loong_program_t *program,
                                    const loong_frame_t *frame, int64_t times,
                                    double *seconds_p)
{
    clocks_t c = {0.0, 0.0, NULL, 0};
    LOONG_TRY(loongi_calloc(params->ctx, (size_t)program->num_steps + 1,
                            sizeof(*c.done), "collectives", &c.done));
    for (int64_t i = 0; i < program->num_steps; i++) {
        const loong_step_t *step = &program->steps[i];
        run_step(params, program, step, loongi_step_runs(step, frame), times,
                 &c);
    }
    await(&c, c.comm, (double)times, params->sum);
    loongi_free(params->ctx, c.done);
    *seconds_p += (double)times * c.compute;
    return LOONG_OK;
}
