/* SPDX-License-Identifier: Apache-2.0
 *
 * What rank 0 tells of a run: log lines, metrics.jsonl, TensorBoard. Called by
 * trainer_create.c and trainer_run.c, by saves and by evaluations. Read
 * report.h and src/metrics/metrics.h before. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm_run.h"
#include "file.h"
#include "host_kernel.h"
#include "report.h"

enum { MOST_GEMM_RATES = 3 };

double loongi_unix_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static loong_status_t open_files(loong_report_t *r)
{
    const char *dir = r->plan->set->log_dir;
    char path[1024];
    if (dir == NULL || loong_comm_rank(r->plan->comm) != 0 ||
        r->plan->evaluate_only) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_dir_make(r->ctx, dir));
    if (r->state->step == 0) {
        LOONG_TRY(loongi_set_aside(r->ctx, dir));
    }
    snprintf(path, sizeof(path), "%s/metrics.jsonl", dir);
    LOONG_TRY(loongi_jsonl_open(r->ctx, path, r->state->step + 1, &r->jsonl));
    if (r->plan->set->tensorboard) {
        LOONG_TRY(loongi_tensorboard_create(
            r->ctx, dir, r->state->step > 0 ? r->state->step + 1 : 0,
            &r->board));
    }
    const char *text = NULL;
    LOONG_TRY(loong_recipe_print(r->plan->recipe, true, &text));
    snprintf(path, sizeof(path), "%s/recipe.yaml", dir);
    return loongi_file_write(r->ctx, path, text, strlen(text));
}

loong_status_t loongi_report_open(loong_report_t *r,
                                  const loong_resources_t *resources)
{
    r->component = r->plan->component;
    r->device = r->plan->device;
    r->resources = resources;
    LOONG_TRY(open_files(r));
    LOONG_TRY(loongi_tensors_open(r));
    return loongi_expert_metrics_open(r);
}

void loongi_report_close(loong_report_t *r)
{
    loongi_jsonl_destroy(&r->jsonl);
    loongi_tensorboard_destroy(&r->board);
    loongi_profiler_destroy(&r->profiler);
    loongi_tensors_close(r);
    loongi_expert_metrics_close(r);
}

/* Of ranks with devices: for the others, where it is the host that waits for
 * them and not a stream. What the lane does beside is not in it. */
double loongi_report_blocked(const loong_report_t *r)
{
    const loong_component_t *c = r->component;
    bool device = !loong_device_is_host(r->device);
    double seconds = loongi_groups_seconds(&c->comms.host, false);
    if (c->comms.ranks[0] != NULL || c->params.absent) { /* and of all ranks */
        seconds += loong_comm_stats(r->plan->comm).seconds;
    }
    if (r->resources->device_world != NULL) {
        seconds += loongi_groups_seconds(&c->comms.device, device) +
                   loongi_links_seconds(c->comms.links, device) +
                   loongi_links_seconds(r->resources->edges, device);
    }
    if (r->resources->lane != NULL && !device) {
        loong_lane_stats_t s = loongi_lane_stats(r->resources->lane);
        seconds -= s.seconds - s.blocked;
    }
    return seconds;
}

/* Of messages that this rank's device sends and receives. */
static void add_links(const loong_report_t *r, double times[2])
{
    loongi_links_add_times(r->component->comms.links, times);
    loongi_links_add_times(r->resources->edges, times);
}

static bool streams_wait(const loong_report_t *r)
{
    const loong_component_t *c = r->component;
    bool found = false;
    for (int g = 0; r->resources->device_world != NULL && g < LOONG_GROUP_COUNT;
         g++) {
        const loong_comm_t *comm = c->comms.device.comm[g];
        found = found || (comm != NULL && loong_comm_size(comm) > 1 &&
                          !loongi_comm_is_on_host(comm));
    }
    return found && !loong_device_is_host(r->device);
}

void loongi_report_reset(loong_report_t *r)
{
    if (r->resources->replay != NULL) {
        r->replayed = loongi_replay_stats(r->resources->replay);
    }
    r->window.time = loongi_now();
    r->window.comm_seconds = loongi_report_blocked(r);
    memset(r->window.links, 0, sizeof(r->window.links));
    add_links(r, r->window.links);
    r->window.host_seconds = loongi_host_kernels_seconds(r->ctx);
    r->window.data_seconds = 0.0;
    r->window.tokens = 0;
    r->window.steps = 0;
    r->window.loss_sum = 0.0;
    r->window.loss_weight = 0.0;
}

/* What is taken of the device's memory, or of the machine's. */
loong_status_t loongi_report_memory(loong_report_t *r)
{
    loong_device_usage_t u;
    size_t memory = 0;
    double taken = 0.0;
    if (loong_device_get_overhead(r->device) != NULL) {
        LOONG_TRY(loong_device_usage(r->device, &u));
        taken = (double)u.total - (double)u.available;
        r->memory_total = (double)u.total;
        r->pool_most = LOONG_MAX(r->pool_most, u.pool_most);
    } else if (loongi_memory_used(r->ctx, &memory) == LOONG_OK) {
        taken = (double)memory;
        loongi_memory_give_back();
        r->memory_total =
            (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    } else {
        loong_context_clear_error(r->ctx); /* a figure less in the log */
    }
    r->memory_peak = LOONG_MAX(r->memory_peak, taken);
    return LOONG_OK;
}

double loongi_report_step_seconds(const loong_report_t *r)
{
    double seconds = 1e-3 * r->ms_per_step;
    if (seconds == 0.0 && r->window.steps > 0) {
        seconds = (loongi_now() - r->window.time) / (double)r->window.steps;
    }
    return seconds > 0.0 ? seconds : NAN;
}

double loongi_report_seconds_left(const loong_report_t *r)
{
    return loongi_report_step_seconds(r) *
           (double)(r->plan->set->train_iters - r->state->step);
}

/* Of the rank that has least left of its own; their devices may differ. */
static loong_status_t measure_memory(loong_report_t *r, loong_metrics_t *m)
{
    LOONG_TRY(loongi_report_memory(r));
    double memory[2] = {r->memory_peak, r->memory_total};
    double own = memory[1] > 0.0 ? memory[0] / memory[1] : 0.0;
    double most = own;
    LOONG_TRY(loong_comm_all_reduce(r->plan->comm, &most, 1, LOONG_F64,
                                    LOONG_REDUCE_MAX, "memory"));
    if (own < most) {
        memory[0] = memory[1] = 0.0;
    }
    LOONG_TRY(loong_comm_all_reduce(r->plan->comm, memory, 2, LOONG_F64,
                                    LOONG_REDUCE_MAX, "memory"));
    if (memory[0] > 0.0) {
        m->memory_bytes = memory[0];
        m->memory_limit = memory[1];
    }
    return LOONG_OK;
}

/* All ranks have a communicator of devices, or none has. */
static loong_status_t measure_links(loong_report_t *r, loong_metrics_t *m)
{
    double times[2] = {-r->window.links[0], -r->window.links[1]};
    if (r->resources->device_world == NULL) {
        return LOONG_OK;
    }
    add_links(r, times);
    LOONG_TRY(loong_comm_all_reduce(r->plan->comm, times, 2, LOONG_F64,
                                    LOONG_REDUCE_SUM, "links"));
    if (times[0] > 0.0) {
        m->links_ms = 1e3 * times[0] / (double)r->window.steps /
                      (double)r->plan->parallel.ranks;
        m->links_hidden = 1.0 - times[1] / times[0];
    }
    return LOONG_OK;
}

/* What only all ranks together know. */
static loong_status_t measure_ranks(loong_report_t *r, loong_metrics_t *m)
{
    double gflops = m->gflops; /* by the clock of this rank */
    LOONG_TRY(measure_memory(r, m));
    LOONG_TRY(measure_links(r, m));
    LOONG_TRY(loongi_expert_metrics_measure(r, m));
    LOONG_TRY(loong_comm_all_reduce(r->plan->comm, &gflops, 1, LOONG_F64,
                                    LOONG_REDUCE_MAX, "rate of steps"));
    /* Other programs may have been at work when products were measured. */
    if (gflops > r->gemm_gflops && r->gemm_measured < MOST_GEMM_RATES) {
        double rate = 0.0;
        LOONG_TRY(loongi_gemm_rate(r->component, r->plan->comm, &rate));
        r->gemm_gflops = fmax(r->gemm_gflops, rate);
        r->gemm_measured++;
    }
    m->gemm_share = r->gemm_gflops > 0.0 ? m->gflops / r->gemm_gflops : NAN;
    return LOONG_OK;
}

static double flops_per_row(const loong_component_t *c)
{
    const loong_family_t *family = c->params.family;
    int64_t length = c->params.request.seq_length;
    return c->facts.flops_per_row +
           (family->attention_flops != NULL
                ? family->attention_flops(c->params.config, length)
                : 0.0);
}

static void measure(loong_report_t *r, loong_metrics_t *m)
{
    double seconds = loongi_now() - r->window.time;
    double comm = loongi_report_blocked(r) - r->window.comm_seconds;
    loongi_metrics_clear(m);
    m->step = r->state->step;
    m->total_steps = r->plan->set->train_iters;
    m->tokens = r->state->consumed_samples * r->plan->set->seq_length;
    m->unix_time = loongi_unix_time();
    m->loss = r->window.loss_weight > 0.0
                  ? r->window.loss_sum / r->window.loss_weight
                  : NAN;
    m->loss_z = r->losses.z;
    m->updates = r->state->updates;
    m->skipped = r->skipped;
    m->grad_norm = r->state->grad_norm;
    for (int i = 1; i < r->component->num_losses; i++) {
        loong_metrics_loss_t loss = {r->component->losses[i].name, r->loss[i]};
        m->losses[m->num_losses++] = loss;
    }
    m->lr = r->frame->lr[0];
    m->tokens_per_second = (double)r->window.tokens / seconds;
    m->ms_per_step = 1e3 * seconds / (double)r->window.steps;
    m->data_share = r->window.data_seconds / seconds;
    m->host_share = (loongi_host_kernels_seconds(r->ctx) -
                     r->window.host_seconds) /
                    seconds;
    if (!streams_wait(r)) { /* which the host does not see */
        m->comm_share = comm / seconds;
    }
    m->gflops = 1e-9 * m->tokens_per_second * flops_per_row(r->component);
    r->ms_per_step = m->ms_per_step;
    m->seconds_left = loongi_report_seconds_left(r);
    r->last_loss = m->loss;
    if (isfinite(m->loss) &&
        (r->lowest_step == 0 || m->loss < r->lowest_loss)) {
        r->lowest_loss = m->loss;
        r->lowest_step = m->step;
    }
}

/* Once all that a step runs is captured: what that saves. */
static void tell_graphs(loong_report_t *r)
{
    const loong_replay_t *replay = r->resources->replay;
    const loong_replay_stats_t *then = &r->replayed;
    if (replay == NULL || r->window.steps == 0) {
        return;
    }
    loong_replay_stats_t now = loongi_replay_stats(replay);
    int64_t graphs = now.launches - then->launches;
    int64_t held = now.held - then->held;
    int64_t alone = now.steps - then->steps;
    bool settled = graphs > 0 && now.graphs == then->graphs;
    if (settled && now.graphs != r->graphs_told) {
        char bytes[LOONG_HUMAN_SIZE];
        loongi_human_bytes((double)now.bytes, bytes);
        r->graphs_told = now.graphs;
        loongi_log(r->ctx, LOONG_LOG_INFO,
                   "graphs: %lld of the device's, %s of its memory; a step "
                   "launches %.1f of them in place of %.1f kernels and "
                   "copies, and runs %.1f operations one by one",
                   (long long)now.graphs, bytes,
                   (double)graphs / (double)r->window.steps,
                   (double)held / (double)r->window.steps,
                   (double)alone / (double)r->window.steps);
    }
}

loong_status_t loongi_report_interval(loong_report_t *r)
{
    char line[LOONG_METRICS_LINE];
    loong_metrics_t m;
    measure(r, &m);
    tell_graphs(r);
    LOONG_TRY(measure_ranks(r, &m));
    loongi_report_reset(r);
    loongi_metrics_line(&m, line);
    loongi_log(r->ctx, LOONG_LOG_INFO, "%s", line);
    if (r->jsonl != NULL) {
        loongi_metrics_json(&m, line);
        LOONG_TRY(loongi_jsonl_add(r->jsonl, line));
    }
    LOONG_TRY(loongi_expert_metrics_tell(r, &m));
    return r->board != NULL ? loongi_tensorboard_metrics(r->board, &m)
                            : LOONG_OK;
}

loong_status_t loongi_report_eval(loong_report_t *r, const char *name,
                                  double loss, int64_t weight,
                                  const char *normaliser, double seconds)
{
    char line[LOONG_METRICS_LINE];
    bool is_text =
        loongi_plan_reader(r->plan)->processor == &loong_token_processor;
    bool counted =
        r->plan->set->loss_normalization == LOONG_NORMALIZE_TOKEN;
    const char *unit = is_text && counted ? NULL : normaliser;
    loong_metrics_eval_t e = {
        r->state->step, loongi_unix_time(), name, loss, weight, seconds, unit};
    loongi_metrics_eval_line(&e, line);
    loongi_log(r->ctx, LOONG_LOG_INFO, "%s", line);
    if (r->jsonl != NULL) {
        loongi_metrics_eval_json(&e, line);
        LOONG_TRY(loongi_jsonl_add(r->jsonl, line));
    }
    return r->board != NULL ? loongi_tensorboard_eval(r->board, &e) : LOONG_OK;
}

loong_status_t loongi_report_save(loong_report_t *r,
                                  loong_checkpoint_save_t *save, int64_t step,
                                  double stall)
{
    char line[LOONG_METRICS_LINE];
    loong_metrics_save_t m = {step,
                              loongi_unix_time(),
                              loongi_checkpoint_save_bytes(save),
                              loongi_checkpoint_save_seconds(save),
                              loongi_checkpoint_save_cpu_seconds(save),
                              stall,
                              stall / loongi_report_step_seconds(r)};
    loongi_metrics_save_line(&m, line);
    loongi_log(r->ctx, LOONG_LOG_INFO, "%s", line);
    if (r->jsonl == NULL) {
        return LOONG_OK;
    }
    loongi_metrics_save_json(&m, line);
    return loongi_jsonl_add(r->jsonl, line);
}

/* What the processor did in place of the device. */
static void tell_host_ops(const loong_report_t *r)
{
    double all = loongi_now() - r->start_time;
    double seconds = loongi_host_kernels_seconds(r->ctx);
    loong_text_t each = loongi_text_begin(r->ctx);
    loongi_host_kernels_describe(r->ctx, &each);
    if (seconds > 0.0 && loong_comm_rank(r->plan->comm) == 0) {
        loongi_log(r->ctx, LOONG_LOG_WARN,
                   "train.host_ops took %.1f %% of this run: %s",
                   100.0 * seconds / all, loongi_text_get(&each));
    }
    loongi_text_free(&each);
}

void loongi_report_end(loong_report_t *r, bool stopped)
{
    char took[LOONG_TIME_SIZE];
    char tokens[LOONG_HUMAN_SIZE];
    char lowest[64] = "";
    char loss[64] = "";
    const char *save = r->plan->set->save_dir;
    if (r->lowest_step > 0) {
        snprintf(lowest, sizeof(lowest), ", lowest %.4f at step %lld",
                 r->lowest_loss, (long long)r->lowest_step);
    }
    if (r->ms_per_step > 0.0) { /* there was a step */
        snprintf(loss, sizeof(loss), " | loss %.4f%s", r->last_loss, lowest);
    }
    loongi_human_count(
        (double)(r->state->consumed_samples * r->plan->set->seq_length),
        tokens);
    loongi_log(r->ctx, LOONG_LOG_INFO,
               "%s at step %lld of %lld | %s tokens%s | this run took %s",
               stopped ? "stopped" : "finished", (long long)r->state->step,
               (long long)r->plan->set->train_iters, tokens, loss,
               loongi_metrics_time(loongi_now() - r->start_time, took));
    tell_host_ops(r);
    if (r->skipped > 0) {
        loongi_log(r->ctx, LOONG_LOG_WARN,
                   "%lld steps were not applied, %lld updates were made with "
                   "these moments",
                   (long long)r->skipped, (long long)r->state->updates);
    }
    if (save == NULL && loong_comm_rank(r->plan->comm) == 0) {
        loongi_log(r->ctx, LOONG_LOG_WARN,
                   "nothing is kept: checkpoint.save is not set");
    } else if (save != NULL && stopped) {
        loongi_log(r->ctx, LOONG_LOG_INFO,
                   "to go on: the same command with checkpoint.load=auto");
    }
}
