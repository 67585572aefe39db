/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-bench costs: what the parts of a step's cost take on this machine, for
 * data.costs. Steps of a recipe on its own data, timed one by one; of the rates
 * none of which is negative those that fit the times best. Called by
 * loong_bench.c. Read src/run_data/costs.c before. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deals.h"
#include "loong/comm.h"
#include "loong_bench.h"
#include "options.h"
#include "trainer_impl.h"

enum { WARM_UP = 2, PARTS = LOONG_COST_PARTS };

/* ---- the fit ------------------------------------------------------------- */

/* Of all steps: the products of parts with each other and with the seconds. */
typedef struct sums {
    double parts[PARTS][PARTS];
    double times[PARTS];
    double squares; /* of the seconds */
} sums_t;

static void add(sums_t *s, const double parts[PARTS], double seconds)
{
    for (int i = 0; i < PARTS; i++) {
        for (int j = 0; j < PARTS; j++) {
            s->parts[i][j] += parts[i] * parts[j];
        }
        s->times[i] += parts[i] * seconds;
    }
    s->squares += seconds * seconds;
}

/* Solves for the parts of a set, by elimination; false: the data cannot tell
 * them apart. Rates of other parts are 0. */
static bool solve(const sums_t *s, unsigned set, double rate[PARTS])
{
    double m[PARTS][PARTS + 1] = {{0.0}};
    for (int i = 0; i < PARTS; i++) {
        for (int j = 0; j < PARTS; j++) {
            bool both = (set >> i & 1) != 0 && (set >> j & 1) != 0;
            m[i][j] = both ? s->parts[i][j] : i == j ? 1.0 : 0.0;
        }
        m[i][PARTS] = (set >> i & 1) != 0 ? s->times[i] : 0.0;
    }
    for (int k = 0; k < PARTS; k++) { /* positive: it needs no pivots */
        double whole = (set >> k & 1) != 0 ? s->parts[k][k] : 1.0;
        if (!(m[k][k] > 1e-9 * whole)) {
            return false;
        }
        for (int i = 0; i < PARTS; i++) {
            double by = i != k ? m[i][k] / m[k][k] : 0.0;
            for (int j = k; j <= PARTS; j++) {
                m[i][j] -= by * m[k][j];
            }
        }
    }
    bool positive = true;
    for (int k = 0; k < PARTS; k++) {
        rate[k] = m[k][PARTS] / m[k][k];
        positive = positive && rate[k] >= 0.0;
    }
    return positive;
}

static double error_of(const sums_t *s, const double rate[PARTS])
{
    double error = s->squares;
    for (int i = 0; i < PARTS; i++) {
        error -= 2.0 * rate[i] * s->times[i];
        for (int j = 0; j < PARTS; j++) {
            error += rate[i] * rate[j] * s->parts[i][j];
        }
    }
    return fmax(error, 0.0);
}

/* Seconds of a thousand operations of each part; what is left of the times,
 * against these. */
static double fit(const sums_t *s, double best[PARTS])
{
    double least = s->squares;
    memset(best, 0, PARTS * sizeof(*best));
    for (unsigned set = 1; set < 1u << PARTS; set++) {
        double rate[PARTS];
        if (solve(s, set, rate) && error_of(s, rate) < least * (1.0 - 1e-9)) {
            least = error_of(s, rate);
            memcpy(best, rate, sizeof(rate));
        }
    }
    return sqrt(least / s->squares);
}

/* ---- the steps ----------------------------------------------------------- */

/* The parts of the step that is to come. */
static loong_status_t measure(loong_trainer_t *t, loong_deals_t *deals,
                              double parts[PARTS])
{
    int64_t each = t->set.micro_batch_size;
    int64_t begin = t->state.consumed_samples;
    int64_t end = begin + t->set.global_batch_size;
    memset(parts, 0, PARTS * sizeof(*parts));
    for (int64_t g = begin; g < end; g += each) {
        int64_t of[PARTS];
        LOONG_TRY(loongi_deals_measure(deals, g, of));
        for (int i = 0; i < PARTS; i++) {
            parts[i] += (double)of[i];
        }
    }
    return LOONG_OK;
}

static loong_status_t time_steps(loong_trainer_t *t, int steps, sums_t *sums)
{
    loong_loader_params_t p = {.blend = t->data.blend,
                               .micro_batch_size = t->set.micro_batch_size,
                               .global_batch_size = t->set.global_batch_size,
                               .data_parallel_size = 1,
                               .num_samples = t->set.num_samples};
    loong_deals_t deals = {0};
    LOONG_TRY(loongi_run_data_find_costs(&t->data, &p.costs));
    LOONG_TRY(loongi_deals_create(t->ctx, &p, &deals));
    loong_status_t status = LOONG_OK;
    for (int i = 0; i < WARM_UP + steps && status == LOONG_OK; i++) {
        double parts[PARTS];
        status = measure(t, &deals, parts);
        status = status == LOONG_OK ? loongi_train_begin(t) : status;
        double begin = bench_now();
        status = status == LOONG_OK ? loongi_train_step(t) : status;
        if (i >= WARM_UP) {
            add(sums, parts, bench_now() - begin);
        }
    }
    loongi_deals_destroy(&deals);
    return status;
}

static loong_status_t write_costs(loong_context_t *ctx, const char *path,
                                  const double rate[PARTS])
{
    FILE *file = path != NULL ? fopen(path, "w") : stdout;
    LOONG_CHECK(ctx, file != NULL, LOONG_ERR_IO, "%s: cannot be written", path);
    fprintf(file, "{\"rates\": {");
    for (int i = 0; i < PARTS; i++) {
        fprintf(file, "%s\"%s\": %" PRId64, i > 0 ? ", " : "",
                loongi_cost_parts[i], (int64_t)llround(1e15 * rate[i]));
    }
    fprintf(file, "}}\n");
    LOONG_CHECK(ctx, path == NULL || fclose(file) == 0, LOONG_ERR_IO,
                "%s: cannot be written", path);
    return LOONG_OK;
}

/* ---- deals --------------------------------------------------------------- */

/* A step lasts as long as its rank with most to do. */
static loong_status_t deal(loong_trainer_t *t,
                           const loong_sample_costs_t *costs, int steps,
                           int ranks)
{
    loong_loader_params_t p = {.blend = t->data.blend,
                               .micro_batch_size = t->set.micro_batch_size,
                               .global_batch_size =
                                   t->set.global_batch_size * ranks,
                               .data_parallel_size = ranks,
                               .num_samples = t->set.num_samples,
                               .costs = costs};
    loong_deals_t deals = {0};
    double most[2] = {0.0, 0.0};
    double mean = 0.0;
    loong_status_t status = loongi_deals_create(t->ctx, &p, &deals);
    for (int i = 0; i < steps && status == LOONG_OK; i++) {
        const loong_balance_t *b = NULL;
        double all = 0.0;
        status = loongi_deals_get(&deals, i * p.global_batch_size,
                                  p.global_batch_size, &b);
        for (int64_t k = 0; status == LOONG_OK && k < b->count; k++) {
            all += (double)b->micro[k].cost / ranks;
        }
        mean += all;
        most[0] += status == LOONG_OK ? all * b->drawn : 0.0;
        most[1] += status == LOONG_OK ? all * b->dealt : 0.0;
    }
    loongi_deals_destroy(&deals);
    LOONG_TRY(status);
    printf("%5d ranks: most to do / mean %.3f as drawn, %.3f dealt: a step is "
           "%.3f times as fast\n",
           ranks, most[0] / mean, most[1] / mean, most[0] / most[1]);
    return LOONG_OK;
}

static loong_status_t deal_all(loong_trainer_t *t, const bench_asked_t *asked)
{
    const loong_sample_costs_t *costs = NULL;
    LOONG_TRY(loongi_run_data_find_costs(&t->data, &costs));
    for (const char *at = asked->ranks; at != NULL;) {
        int64_t ranks = options_number(&at, BENCH_RANKS);
        LOONG_TRY(deal(t, costs, asked->steps, (int)ranks));
    }
    if (!loong_recipe_bool(t->recipe, "data.balance")) {
        fprintf(stderr, "data.balance: false (%s): a run takes them as drawn\n",
                loong_recipe_where(t->recipe, "data.balance"));
    }
    return LOONG_OK;
}

static int64_t most_ranks(const char *ranks)
{
    int64_t most = 1;
    while (ranks != NULL) {
        int64_t next = options_number(&ranks, BENCH_RANKS);
        most = LOONG_MAX(most, next);
    }
    return most;
}

static loong_status_t run(void *user, loong_trainer_t *trainer)
{
    const bench_asked_t *asked = user;
    sums_t sums = {{{0.0}}, {0.0}, 0.0};
    double rate[PARTS];
    LOONG_CHECK(trainer->ctx, loong_comm_size(trainer->comm) == 1,
                LOONG_ERR_ARG, "%d ranks, one is wanted",
                loong_comm_size(trainer->comm));
    if (asked->ranks != NULL) {
        return deal_all(trainer, asked);
    }
    LOONG_TRY(time_steps(trainer, asked->steps, &sums));
    double left = fit(&sums, rate);
    LOONG_TRY(write_costs(trainer->ctx, asked->path, rate));
    fprintf(stderr, "%d steps; they took %.1f %% else than these rates say\n",
            asked->steps, 100.0 * left);
    return LOONG_OK;
}

/* ---- the command --------------------------------------------------------- */

static int help(void)
{
    printf("usage: loong-bench costs [OPTION]... RECIPE [a.b=c]...\n\n"
           "Trains the recipe on one rank and its own data, times each step "
           "after %d to warm up,\nand writes what a thousand operations of "
           "each part of its cost take: rows of texts,\nattention in texts, "
           "the image encoder, attention in pictures. data.costs names the\n"
           "file: micro-batches are then dealt to ranks by them. Parts that "
           "the data cannot tell\napart are told as one of them.\n\n"
           "  --steps N     to measure; 40\n"
           "  --out FILE    in place of the output\n"
           "  --ranks N,... no step is run: what data.balance makes of steps "
           "of so many data-\n                parallel ranks, each with as "
           "many micro-batches as the recipe has, by the\n                "
           "costs that data.costs names\n",
           WARM_UP);
    return LOONG_EXIT_OK;
}

int bench_costs(loong_context_t *ctx, int argc, char **argv)
{
    bench_asked_t asked = {40, NULL, NULL};
    int code = bench_training_options("costs", help, argc, argv, &asked);
    if (code >= 0) {
        return code;
    }
    loong_status_t status =
        bench_training(ctx, (WARM_UP + asked.steps) * most_ranks(asked.ranks),
                       argc - optind, argv + optind, run, &asked);
    return status == LOONG_OK ? LOONG_EXIT_OK : bench_fail(ctx, status);
}
