/* SPDX-License-Identifier: Apache-2.0
 *
 * What rank 0 tells of a run: log lines, metrics.jsonl, TensorBoard. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm_impl.h"
#include "expert_metrics.h"
#include "file.h"
#include "gemm_rate.h"
#include "set_aside.h"
#include "trainer_impl.h"

enum { MOST_GEMM_RATES = 3 };

double loongi_unix_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

loong_status_t loongi_report_open(loong_trainer_t *t)
{
    const char *dir = loong_recipe_text(t->recipe, "log.dir");
    char path[1024];
    if (dir == NULL || loong_comm_rank(t->comm) != 0 || t->plan.evaluate_only) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_dir_make(t->ctx, dir));
    if (t->state.step == 0) {
        LOONG_TRY(loongi_set_aside(t->ctx, dir));
    }
    snprintf(path, sizeof(path), "%s/metrics.jsonl", dir);
    LOONG_TRY(
        loongi_jsonl_open(t->ctx, path, t->state.step + 1, &t->report.jsonl));
    if (loong_recipe_bool(t->recipe, "log.tensorboard")) {
        LOONG_TRY(loongi_tensorboard_create(
            t->ctx, dir, t->state.step > 0 ? t->state.step + 1 : 0,
            &t->report.board));
    }
    const char *text = NULL;
    LOONG_TRY(loong_recipe_print(t->recipe, true, &text));
    snprintf(path, sizeof(path), "%s/recipe.yaml", dir);
    return loongi_file_write(t->ctx, path, text, strlen(text));
}

void loongi_report_close(loong_trainer_t *t)
{
    loongi_jsonl_destroy(&t->report.jsonl);
    loongi_tensorboard_destroy(&t->report.board);
}

/* Of ranks with devices: for the others, where it is the host that waits for
 * them and not a stream. What the lane does beside is not in it. */
double loongi_report_blocked(const loong_trainer_t *t)
{
    const loong_component_t *c = t->component;
    bool device = !loong_device_is_host(t->device);
    double seconds = loongi_groups_seconds(&c->comms.host, false);
    if (t->resources->device_world != NULL) {
        seconds += loongi_groups_seconds(&c->comms.device, device) +
                   loongi_links_seconds(c->comms.links, device);
    }
    if (t->resources->lane != NULL && !device) {
        loong_lane_stats_t s = loongi_lane_stats(t->resources->lane);
        seconds -= s.seconds - s.blocked;
    }
    return seconds;
}

static bool streams_wait(const loong_trainer_t *t)
{
    const loong_component_t *c = t->component;
    bool found = false;
    for (int g = 0; t->resources->device_world != NULL && g < LOONG_GROUP_COUNT;
         g++) {
        const loong_comm_t *comm = c->comms.device.comm[g];
        found = found || (loong_comm_size(comm) > 1 &&
                          !loongi_comm_is_on_host(comm));
    }
    return found && !loong_device_is_host(t->device);
}

void loongi_report_reset(loong_trainer_t *t)
{
    if (t->resources->replay != NULL) {
        t->report.replayed = loongi_replay_stats(t->resources->replay);
    }
    t->window.time = loongi_now();
    t->window.comm_seconds = loongi_report_blocked(t);
    t->window.data_seconds = 0.0;
    t->window.tokens = 0;
    t->window.steps = 0;
    t->window.loss_sum = 0.0;
    t->window.loss_weight = 0.0;
}

/* What is taken of the device's memory, or of the machine's. */
loong_status_t loongi_report_memory(loong_trainer_t *t)
{
    loong_device_usage_t u;
    size_t memory = 0;
    double taken = 0.0;
    if (loong_device_beside(t->device) != NULL) {
        LOONG_TRY(loong_device_usage(t->device, &u));
        taken = (double)u.total - (double)u.available;
        t->report.memory_total = (double)u.total;
        t->report.pool_most = LOONG_MAX(t->report.pool_most, u.pool_most);
    } else if (loongi_memory_used(t->ctx, &memory) == LOONG_OK) {
        taken = (double)memory;
        loongi_memory_give_back();
        t->report.memory_total = (double)sysconf(_SC_PHYS_PAGES) *
                                 (double)sysconf(_SC_PAGESIZE);
    } else {
        loong_context_clear_error(t->ctx); /* a figure less in the log */
    }
    t->report.memory_peak = LOONG_MAX(t->report.memory_peak, taken);
    return LOONG_OK;
}

double loongi_report_step_seconds(const loong_trainer_t *t)
{
    double seconds = 1e-3 * t->report.ms_per_step;
    if (seconds == 0.0 && t->window.steps > 0) {
        seconds = (loongi_now() - t->window.time) / (double)t->window.steps;
    }
    return seconds > 0.0 ? seconds : NAN;
}

double loongi_report_seconds_left(const loong_trainer_t *t)
{
    return loongi_report_step_seconds(t) *
           (double)(t->set.train_iters - t->state.step);
}

/* Of the rank that has least left of its own; their devices may differ. */
static loong_status_t measure_memory(loong_trainer_t *t, loong_metrics_t *m)
{
    LOONG_TRY(loongi_report_memory(t));
    double memory[2] = {t->report.memory_peak, t->report.memory_total};
    double own = memory[1] > 0.0 ? memory[0] / memory[1] : 0.0;
    double most = own;
    LOONG_TRY(loong_comm_all_reduce(t->comm, &most, 1, LOONG_F64,
                                    LOONG_REDUCE_MAX, "memory"));
    if (own < most) {
        memory[0] = memory[1] = 0.0;
    }
    LOONG_TRY(loong_comm_all_reduce(t->comm, memory, 2, LOONG_F64,
                                    LOONG_REDUCE_MAX, "memory"));
    if (memory[0] > 0.0) {
        m->memory_bytes = memory[0];
        m->memory_limit = memory[1];
    }
    return LOONG_OK;
}

/* What only all ranks together know. */
static loong_status_t measure_ranks(loong_trainer_t *t, loong_metrics_t *m)
{
    double gflops = m->gflops; /* by the clock of this rank */
    LOONG_TRY(measure_memory(t, m));
    LOONG_TRY(loongi_expert_metrics_measure(t, m));
    LOONG_TRY(loong_comm_all_reduce(t->comm, &gflops, 1, LOONG_F64,
                                    LOONG_REDUCE_MAX, "rate of steps"));
    /* Other programs may have been at work when products were measured. */
    if (gflops > t->report.gemm_gflops &&
        t->report.gemm_measured < MOST_GEMM_RATES) {
        double rate = 0.0;
        LOONG_TRY(loongi_gemm_rate(t, &rate));
        t->report.gemm_gflops = fmax(t->report.gemm_gflops, rate);
        t->report.gemm_measured++;
    }
    m->gemm_share = t->report.gemm_gflops > 0.0
                        ? m->gflops / t->report.gemm_gflops
                        : NAN;
    return LOONG_OK;
}

static double flops_per_token(const loong_component_t *c)
{
    const loong_family_t *family = c->params.family;
    int64_t length = c->params.request.seq_length;
    return c->facts.flops_per_token +
           (family->attention_flops != NULL
                ? family->attention_flops(c->params.config, length)
                : 0.0);
}

static void measure(loong_trainer_t *t, loong_metrics_t *m)
{
    double seconds = loongi_now() - t->window.time;
    double comm = loongi_report_blocked(t) - t->window.comm_seconds;
    loongi_metrics_clear(m);
    m->step = t->state.step;
    m->total_steps = t->set.train_iters;
    m->tokens = t->state.consumed_samples * t->set.seq_length;
    m->unix_time = loongi_unix_time();
    m->loss = t->window.loss_weight > 0.0
                  ? t->window.loss_sum / t->window.loss_weight
                  : NAN;
    m->loss_z = t->report.losses.z;
    m->updates = t->state.updates;
    m->skipped = t->report.skipped;
    m->grad_norm = t->state.grad_norm;
    for (int i = 1; i < t->component->num_losses; i++) {
        loong_metrics_loss_t loss = {t->component->losses[i].name,
                                     t->losses.value[i]};
        m->losses[m->num_losses++] = loss;
    }
    m->lr = t->frame.lr[0];
    m->tokens_per_second = (double)t->window.tokens / seconds;
    m->ms_per_step = 1e3 * seconds / (double)t->window.steps;
    m->data_share = t->window.data_seconds / seconds;
    if (!streams_wait(t)) { /* which the host does not see */
        m->comm_share = comm / seconds;
    }
    m->gflops = 1e-9 * m->tokens_per_second * flops_per_token(t->component);
    t->report.ms_per_step = m->ms_per_step;
    m->seconds_left = loongi_report_seconds_left(t);
    t->report.last_loss = m->loss;
    if (isfinite(m->loss) && (t->report.lowest_step == 0 ||
                              m->loss < t->report.lowest_loss)) {
        t->report.lowest_loss = m->loss;
        t->report.lowest_step = m->step;
    }
}

/* Once all that a step runs is captured: what that saves. */
static void tell_graphs(loong_trainer_t *t)
{
    const loong_replay_t *replay = t->resources->replay;
    const loong_replay_stats_t *then = &t->report.replayed;
    if (replay == NULL || t->window.steps == 0) {
        return;
    }
    loong_replay_stats_t now = loongi_replay_stats(replay);
    int64_t graphs = now.launches - then->launches;
    int64_t held = now.held - then->held;
    int64_t alone = now.steps - then->steps;
    bool settled = graphs > 0 && now.graphs == then->graphs;
    if (settled && now.graphs != t->report.graphs_told) {
        char bytes[LOONG_HUMAN_SIZE];
        loongi_human_bytes((double)now.bytes, bytes);
        t->report.graphs_told = now.graphs;
        loongi_log(t->ctx, LOONG_LOG_INFO,
                   "graphs: %lld of the device's, %s of its memory; a step "
                   "launches %.1f of them in place of %.1f kernels and "
                   "copies, and runs %.1f operations one by one",
                   (long long)now.graphs, bytes,
                   (double)graphs / (double)t->window.steps,
                   (double)held / (double)t->window.steps,
                   (double)alone / (double)t->window.steps);
    }
}

loong_status_t loongi_report_interval(loong_trainer_t *t)
{
    char line[LOONG_METRICS_LINE];
    loong_metrics_t m;
    measure(t, &m);
    tell_graphs(t);
    LOONG_TRY(measure_ranks(t, &m));
    loongi_report_reset(t);
    loongi_metrics_line(&m, line);
    loongi_log(t->ctx, LOONG_LOG_INFO, "%s", line);
    if (t->report.jsonl != NULL) {
        loongi_metrics_json(&m, line);
        LOONG_TRY(loongi_jsonl_add(t->report.jsonl, line));
    }
    LOONG_TRY(loongi_expert_metrics_tell(t, &m));
    return t->report.board != NULL
               ? loongi_tensorboard_metrics(t->report.board, &m)
               : LOONG_OK;
}

loong_status_t loongi_report_eval(loong_trainer_t *t,
                                  const loong_validation_t *v, int64_t count,
                                  double seconds)
{
    char line[LOONG_METRICS_LINE];
    bool tokens = t->plan.processor == &loong_token_processor;
    loong_metrics_eval_t e = {t->state.step,
                              loongi_unix_time(),
                              v->name,
                              v->loss,
                              count,
                              seconds,
                              tokens ? NULL
                                     : t->plan.processor->normalisers[0]};
    loongi_metrics_eval_line(&e, line);
    loongi_log(t->ctx, LOONG_LOG_INFO, "%s", line);
    if (t->report.jsonl != NULL) {
        loongi_metrics_eval_json(&e, line);
        LOONG_TRY(loongi_jsonl_add(t->report.jsonl, line));
    }
    return t->report.board != NULL
               ? loongi_tensorboard_eval(t->report.board, &e)
               : LOONG_OK;
}

loong_status_t loongi_report_save(loong_trainer_t *t)
{
    char line[LOONG_METRICS_LINE];
    loong_metrics_save_t m = {
        t->saved_step,
        loongi_unix_time(),
        loongi_checkpoint_save_bytes(t->save),
        loongi_checkpoint_save_seconds(t->save),
        loongi_checkpoint_save_cpu_seconds(t->save),
        t->save_stall,
        t->save_stall / loongi_report_step_seconds(t)};
    loongi_metrics_save_line(&m, line);
    loongi_log(t->ctx, LOONG_LOG_INFO, "%s", line);
    if (t->report.jsonl == NULL) {
        return LOONG_OK;
    }
    loongi_metrics_save_json(&m, line);
    return loongi_jsonl_add(t->report.jsonl, line);
}

void loongi_report_end(loong_trainer_t *t, bool stopped)
{
    char took[LOONG_TIME_SIZE];
    char tokens[LOONG_HUMAN_SIZE];
    char lowest[64] = "";
    const char *save = loong_recipe_text(t->recipe, "checkpoint.save");
    if (t->report.lowest_step > 0) {
        snprintf(lowest, sizeof(lowest), ", lowest %.4f at step %lld",
                 t->report.lowest_loss, (long long)t->report.lowest_step);
    }
    loongi_human_count(
        (double)(t->state.consumed_samples * t->set.seq_length), tokens);
    loongi_log(t->ctx, LOONG_LOG_INFO,
               "%s at step %lld of %lld | %s tokens | loss %.4f%s | this run "
               "took %s",
               stopped ? "stopped" : "finished", (long long)t->state.step,
               (long long)t->set.train_iters, tokens, t->report.last_loss,
               lowest, loongi_metrics_time(loongi_now() - t->start_time, took));
    if (t->report.skipped > 0) {
        loongi_log(t->ctx, LOONG_LOG_WARN,
                   "%lld steps were not applied, %lld updates were made with "
                   "these moments",
                   (long long)t->report.skipped, (long long)t->state.updates);
    }
    if (save == NULL && loong_comm_rank(t->comm) == 0) {
        loongi_log(t->ctx, LOONG_LOG_WARN,
                   "nothing is kept: checkpoint.save is not set");
    } else if (save != NULL && stopped) {
        loongi_log(t->ctx, LOONG_LOG_INFO,
                   "to go on: the same command with checkpoint.load=auto");
    }
}
