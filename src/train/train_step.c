/* SPDX-License-Identifier: Apache-2.0
 *
 * One optimizer step: agree on it, run the schedule, clip, update. Called by
 * trainer_run.c. Read trainer_run.c before. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "timeline.h"
#include "trainer_impl.h"

/* ---- step header --------------------------------------------------------- */

/* Reads the samples of the step that components of this rank do. */
static loong_status_t check_data(loong_trainer_t *t, unsigned *flags)
{
    double sums[LOONG_MAX_NORMALISERS];
    int64_t consumed = t->state.consumed_samples;
    loongi_upstream_begin(&t->upstream, t->data.images, consumed);
    if (!t->plan.absent) {
        LOONG_TRY(loong_loader_check_step(t->data.loader, consumed, sums));
    }
    for (int e = 0; e < t->plan.num_encoders; e++) {
        bool any = false;
        if (t->data.images[e].loader != NULL) {
            LOONG_TRY(loong_loader_check_step(t->data.images[e].loader,
                                              consumed, sums));
        }
        LOONG_TRY(loongi_upstream_any(
            &t->upstream, e,
            loong_loader_micro_batches(t->data.loader, consumed), &any));
        *flags |= any ? (unsigned)LOONG_STEP_IMAGES << e : 0u;
    }
    return LOONG_OK;
}

/* Lets the next step's samples be read. */
static void prefetch(const loong_trainer_t *t)
{
    int64_t next = t->state.consumed_samples;
    next += loong_loader_batch(t->data.loader, next);
    if (!t->plan.absent) {
        loong_loader_prefetch(t->data.loader, next);
    }
    for (int e = 0; e < t->plan.num_encoders; e++) {
        if (t->data.images[e].loader != NULL) {
            loong_loader_prefetch(t->data.images[e].loader, next);
        }
    }
}

/* What this rank knows goes out, what all agree on comes back: what losses are
 * divided by, requests, and any error of any rank. */
static loong_status_t agree_on_step(loong_trainer_t *t)
{
    loong_step_report_t mine;
    loong_step_header_t agreed;
    double begin = loongi_now();
    memset(&mine, 0, sizeof(mine));
    mine.step = t->state.step;
    mine.recipe_hash = t->recipe_hash;
    mine.status = check_data(t, &mine.flags);
    if (mine.status == LOONG_OK) {
        mine.status = loongi_router_replay_check(t->router_replay,
                                                 t->state.consumed_samples);
    }
    loongi_losses_count(&t->losses, loongi_loader_sums(t->data.loader),
                        mine.sums);
    mine.flags |= loongi_trainer_requests(t) | t->saving.asked;
    t->saving.asked = 0;
    if (loongi_fault_due(t->supervision.faults, LOONG_FAULT_IO_ERROR,
                         t->state.step)) {
        mine.status = LOONG_FAIL(t->ctx, LOONG_ERR_IO,
                                 "cannot read the samples (on request)");
    }
    if (mine.status != LOONG_OK) {
        const char *trail = loong_context_error(t->ctx);
        strncpy(mine.message, trail, sizeof(mine.message) - 1);
    }
    prefetch(t);
    t->report.window.data_seconds += loongi_now() - begin;
    LOONG_TRY(loongi_step_exchange_run(t->exchange, &mine, &agreed));
    t->flags = agreed.flags;
    loongi_losses_normalise(&t->losses, agreed.sums);
    LOONG_CHECK(t->ctx, agreed.error_rank < 0, agreed.status,
                "step %lld, rank %d: %s", (long long)t->state.step,
                agreed.error_rank, agreed.message);
    return LOONG_OK;
}

/* ---- the schedule -------------------------------------------------------- */

/* What a program reads: messages, scales, the loader's inputs. */
static loong_status_t before_program(loong_trainer_t *t,
                                     const loong_entry_t *entry,
                                     loong_frame_t *frame)
{
    const loong_stage_t *s = loongi_model_stage(t->model, entry);
    *frame = t->frame;
    frame->micro_batch = entry->micro_batch;
    frame->first = entry->micro_batch == 0;
    frame->last =
        entry->micro_batch + 1 ==
        loongi_model_component(t->model, entry)->schedule->params.micro_batches;
    if (s->params == &t->component->params) {
        loongi_losses_scale(&t->losses, s->chunk[LOONG_VARIANT_TRAIN], frame);
    }
    LOONG_TRY(loongi_model_need(t->model, LOONG_VARIANT_TRAIN, entry));
    LOONG_TRY(loongi_model_frame(t->model, entry, frame));
    if (frame->hollow ||
        (entry->kind != LOONG_ENTRY_F && entry->kind != LOONG_ENTRY_E)) {
        return LOONG_OK;
    }
    double begin = loongi_now();
    loong_binding_t run =
        loongi_model_bind(t->model, LOONG_VARIANT_TRAIN, entry);
    int stage = loongi_model_stage_number(t->model, entry);
    loong_input_source_t source = loongi_upstream_source(
        &t->upstream, loongi_model_component(t->model, entry)->index,
        t->data.loader);
    LOONG_TRY(loongi_inputs_fill(
        &t->inputs, loongi_inputs_of(&t->inputs, stage, LOONG_VARIANT_TRAIN),
        &run, &source, t->state.consumed_samples, entry->micro_batch));
    if (entry->kind == LOONG_ENTRY_F) {
        LOONG_TRY(loongi_router_replay_give(t->router_replay, s, &run,
                                            t->state.consumed_samples,
                                            entry->micro_batch));
    }
    t->report.window.data_seconds += loongi_now() - begin;
    return LOONG_OK;
}

static loong_status_t after_program(loong_trainer_t *t,
                                    const loong_entry_t *entry)
{
    const loong_stage_t *s = loongi_model_stage(t->model, entry);
    if (entry->kind != LOONG_ENTRY_F || s->params != &t->component->params) {
        return LOONG_OK;
    }
    loong_binding_t run =
        loongi_model_bind(t->model, LOONG_VARIANT_TRAIN, entry);
    LOONG_TRY(loongi_losses_keep(&t->losses, &t->metrics, &run,
                                 s->chunk[LOONG_VARIANT_TRAIN]));
    return loongi_router_replay_take(t->router_replay, s, &run,
                                     t->state.consumed_samples,
                                     entry->micro_batch);
}

/* A program; the first of a pair runs both. */
static loong_status_t run_program(loong_trainer_t *t, int64_t index)
{
    const loong_entry_t *list =
        loongi_model_entries(t->model, LOONG_VARIANT_TRAIN)->entries;
    const loong_entry_t *entry = &list[index];
    const loong_entry_t *pair =
        entry->pair > index ? &list[entry->pair] : NULL;
    loong_frame_t frame[2];
    const loong_frame_t *frames[2] = {&frame[0], &frame[1]};
    if (entry->pair >= 0 && pair == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(before_program(t, entry, &frame[0]));
    if (pair != NULL) {
        LOONG_TRY(before_program(t, pair, &frame[1]));
    }
    double begin = loongi_now();
    LOONG_TRY(loongi_model_run(t->model, LOONG_VARIANT_TRAIN, index, frames));
    if (!frame[0].hollow) {
        loongi_timeline_mark(&t->plan, index, begin);
    }
    LOONG_TRY(after_program(t, entry));
    return pair != NULL ? after_program(t, pair) : LOONG_OK;
}

static loong_status_t reduce(loong_trainer_t *t, int64_t index,
                             const loong_entry_t *entry)
{
    double begin = loongi_now();
    LOONG_TRY(loongi_model_reduce(t->model, entry, &t->frame));
    loongi_timeline_mark(&t->plan, index, begin);
    return LOONG_OK;
}

static loong_status_t run_entry(loong_trainer_t *t, int64_t index)
{
    const loong_entry_t *entry =
        &loongi_model_entries(t->model, LOONG_VARIANT_TRAIN)->entries[index];
    if (entry->kind == LOONG_ENTRY_U) { /* behind clipping: update() */
        return LOONG_OK;
    }
    if (entry->kind < (loong_entry_kind_t)LOONG_PROGRAM_COUNT) {
        return run_program(t, index);
    }
    if (entry->kind == LOONG_ENTRY_REDUCE) {
        return reduce(t, index, entry);
    }
    return loongi_model_begin(t->model, LOONG_VARIANT_TRAIN, entry);
}

static loong_status_t plan_schedule(loong_trainer_t *t)
{
    int micro_batches = 0;
    LOONG_TRY(loongi_to_int(
        t->ctx,
        loong_loader_micro_batches(t->data.loader, t->state.consumed_samples),
        "micro-batches of a step", &micro_batches));
    return loongi_model_plan_step(t->model, micro_batches);
}

enum { ASK_EVERY = 16 }; /* micro-batches */

/* Before some micro-batches all ranks ask each other whether to stop: until the
 * update nothing has changed that a checkpoint holds. A pipeline, or components
 * that read each other, would leave messages behind; ranks with shares of their
 * own do not meet before the end. */
static loong_status_t ask_to_stop(loong_trainer_t *t,
                                  const loong_entry_t *entry)
{
    if (entry->kind != LOONG_ENTRY_F || entry->micro_batch == 0 ||
        entry->micro_batch % ASK_EVERY != 0 || entry->pair >= 0 ||
        t->model->num_components > 1 || t->plan.mesh.size[LOONG_AXIS_PP] > 1 ||
        t->plan.shares.weights != NULL) {
        return LOONG_OK;
    }
    unsigned requests = loongi_trainer_requests(t);
    int64_t stop = (requests & LOONG_STEP_STOP) != 0;
    t->saving.asked |= requests & LOONG_STEP_SAVE; /* behind this step */
    LOONG_TRY(loong_comm_all_reduce(t->comm, &stop, 1, LOONG_I64,
                                    LOONG_REDUCE_MAX, "a request to stop"));
    t->flags |= stop != 0 ? LOONG_STEP_STOP : 0;
    return LOONG_OK;
}

static loong_status_t run_schedule(loong_trainer_t *t)
{
    const loong_rank_schedule_t *list =
        loongi_model_entries(t->model, LOONG_VARIANT_TRAIN);
    loongi_timeline_begin(&t->plan);
    for (int64_t i = 0; i < list->num_entries; i++) {
        LOONG_TRY(ask_to_stop(t, &list->entries[i]));
        if ((t->flags & LOONG_STEP_STOP) != 0) {
            break;
        }
        LOONG_TRY(run_entry(t, i));
    }
    return loongi_model_finish(t->model, LOONG_VARIANT_TRAIN);
}

/* ---- norm and loss ------------------------------------------------------- */

/* Adds the squares of the gradients of a stage. */
static loong_status_t add_norm(loong_trainer_t *t, const loong_stage_t *s)
{
    loong_operand_t record = {LOONG_BASE_OPTIM, s->optimizer->record_offset};
    LOONG_TRY(loong_device_fill(t->plan.device,
                                s->run.base[record.base] + record.offset, 0,
                                LOONG_EXACT_WORDS * sizeof(int64_t)));
    LOONG_TRY(loongi_program_run(&s->run, &s->optimizer->norm, &t->frame));
    return loongi_step_metrics_add_record(&t->metrics, &s->run, record,
                                          loongi_losses_norm(&t->losses));
}

/* Exact sums, so that every layout gets the same bits. */
static loong_status_t reduce_records(loong_trainer_t *t)
{
    for (int i = 0; i < t->model->num_stages; i++) {
        if (t->model->stages[i]->optimizer != NULL) {
            LOONG_TRY(add_norm(t, t->model->stages[i]));
        }
    }
    LOONG_TRY(loongi_step_metrics_finish(&t->metrics, "norm and loss"));
    LOONG_TRY(loongi_losses_end(&t->losses, t->comm, "norm and loss"));
    double weight = t->losses.sum[t->losses.normaliser_of[0]];
    t->state.grad_norm =
        sqrt(loongi_exact_value(loongi_losses_norm(&t->losses)));
    t->state.loss = t->losses.value[0];
    loongi_window_add(&t->report.losses, t->state.loss);
    if (isfinite(t->state.loss)) {
        t->report.window.loss_sum += t->state.loss * weight;
        t->report.window.loss_weight += weight;
    }
    return loongi_binding_record(&t->model->run); /* all devices are idle */
}

/* The gradients [begin, end) of a bucket are finite. */
static loong_status_t look_at(const loong_stage_t *s, const loong_bucket_t *b,
                              int64_t begin, int64_t end, bool *finite_p)
{
    enum { BLOCK = 4096 };
    double values[BLOCK];
    loong_dtype_t wide = s->shards->wide;
    for (int64_t e = begin; e < end && *finite_p; e += BLOCK) {
        int64_t n = LOONG_MIN(end - e, (int64_t)BLOCK);
        loong_operand_t from = {LOONG_BASE_GRAD,
                                loongi_shards_grad(s->shards, b, e)};
        LOONG_TRY(loongi_binding_read(&s->run, from, values,
                                      (size_t)n * loong_dtype_size(wide),
                                      "gradients that are not finite"));
        for (int64_t i = 0; i < n; i++) {
            double v = wide == LOONG_F64
                           ? values[i]
                           : (double)((const float *)(void *)values)[i];
            *finite_p = *finite_p && isfinite(v);
        }
    }
    return LOONG_OK;
}

/* The first parameter with a gradient that is not finite, in this rank's
 * part; "" when there is none. */
static loong_status_t find_offender(const loong_stage_t *s,
                                    const char **name_p)
{
    const loong_model_chunk_t *c = s->chunk[LOONG_VARIANT_TRAIN];
    for (int64_t i = 0; i < c->num_params; i++) {
        const loong_chunk_param_t *p = &c->params[i];
        const loong_bucket_t *b =
            loongi_shards_bucket(s->shards, p->flat, p->flat_offset);
        if (p->params.frozen) {
            continue;
        }
        bool finite = true;
        LOONG_TRY(look_at(s, b, LOONG_MAX(p->flat_offset, b->own_begin),
                          LOONG_MIN(p->flat_offset + p->elements, b->own_end),
                          &finite));
        if (!finite) {
            *name_p = p->name;
            return LOONG_OK;
        }
    }
    return LOONG_OK;
}

/* The lowest rank for which `mine` holds, on every rank; the number of ranks
 * when there is none. */
static loong_status_t lowest_rank(loong_trainer_t *t, bool mine, int *rank_p)
{
    int64_t rank = mine ? loong_comm_rank(t->comm) : loong_comm_size(t->comm);
    LOONG_TRY(loong_comm_all_reduce(t->comm, &rank, 1, LOONG_I64,
                                    LOONG_REDUCE_MIN, "numbers"));
    *rank_p = (int)rank;
    return LOONG_OK;
}

/* The step is not applied; the recipe says whether the run goes on. A rank
 * whose own loss is not finite is where it came from; else the gradient is, on
 * the first rank that finds such a parameter in its part. */
static loong_status_t handle_nan(loong_trainer_t *t)
{
    char name[256] = "";
    char text[512];
    int rank = 0;
    int size = loong_comm_size(t->comm);
    const char *offender = "";
    for (int i = 0; i < t->model->num_stages && offender[0] == '\0'; i++) {
        if (t->model->stages[i]->optimizer != NULL) {
            LOONG_TRY(find_offender(t->model->stages[i], &offender));
        }
    }
    snprintf(name, sizeof(name), "%s", offender);
    LOONG_TRY(lowest_rank(t, !t->losses.own_finite, &rank));
    if (rank == size) {
        LOONG_TRY(lowest_rank(t, name[0] != '\0', &rank));
    }
    rank = LOONG_MIN(rank, size - 1);
    LOONG_TRY(loong_comm_broadcast(t->comm, name, sizeof(name), rank,
                                   "numbers"));
    snprintf(text, sizeof(text),
             "step %lld, rank %d: loss %g, gradient norm %g; first parameter "
             "with a gradient that is not finite: %s",
             (long long)t->state.step + 1, rank, t->state.loss,
             t->state.grad_norm, name[0] != '\0' ? name : "none");
    LOONG_CHECK(t->ctx, t->set.skip_nan, LOONG_ERR_NUMERIC,
                "%s; train.on_nan is stop", text);
    if (loong_comm_rank(t->comm) == 0) {
        loongi_log(t->ctx, LOONG_LOG_WARN, "%s; the step is not applied",
                   text);
    }
    t->report.skipped++;
    return LOONG_OK;
}

/* A step without a row of a loss of items has nothing to apply. */
static void leave_out(loong_trainer_t *t)
{
    if (loong_comm_rank(t->comm) == 0) {
        loongi_log(t->ctx, LOONG_LOG_WARN,
                   "step %lld: no row of its samples counts in the loss; "
                   "the step is not applied",
                   (long long)t->state.step + 1);
    }
    t->report.skipped++;
}

/* ---- update -------------------------------------------------------------- */

/* A component that got no row in the step, on any rank, stays as it is, and its
 * age too. */
static loong_status_t update_component(loong_trainer_t *t,
                                       const loong_component_t *c)
{
    loong_frame_t frame = t->frame;
    int64_t *idle = &t->upstream.idle[c->index];
    if (loongi_plan_is_upstream(&t->plan, c->index) &&
        (t->flags & LOONG_STEP_IMAGES << c->index / 2) == 0) {
        ++*idle;
        return LOONG_OK;
    }
    frame.updates -= *idle;
    for (int i = 0; i < c->num_stages; i++) {
        const loong_stage_t *s = c->stages[i];
        if (s->optimizer != NULL) {
            LOONG_TRY(
                loongi_program_run(&s->run, &s->optimizer->update, &frame));
        }
    }
    return LOONG_OK;
}

/* U is the last entry of all, of a rank on which something is trained. */
static void mark_update(loong_trainer_t *t, double begin)
{
    const loong_rank_schedule_t *list =
        loongi_model_entries(t->model, LOONG_VARIANT_TRAIN);
    int64_t last = list->num_entries - 1;
    if (list->entries[last].kind == LOONG_ENTRY_U) {
        loongi_timeline_mark(&t->plan, last, begin);
    }
}

static loong_status_t update(loong_trainer_t *t)
{
    double clip = t->set.clip_grad;
    t->frame.grad_scale = 1.0;
    if (clip > 0.0) {
        t->frame.grad_scale = fmin(1.0, clip / (t->state.grad_norm + 1e-6));
    }
    if (t->saving.save != NULL) {
        t->saving.stall += loongi_checkpoint_save_wait(t->saving.save);
    }
    double begin = loongi_now();
    for (int i = 0; i < t->model->num_components; i++) {
        LOONG_TRY(update_component(t, t->model->components[i]));
    }
    mark_update(t, begin);
    t->state.updates++;
    return LOONG_OK;
}

loong_status_t loongi_train_begin(loong_trainer_t *t)
{
    LOONG_TRY(plan_schedule(t));
    loongi_losses_begin(&t->losses);
    loong_comm_set_step(t->comm, t->state.step);
    LOONG_TRY(loongi_fault_begin_step(t->supervision.faults, t->state.step));
    return agree_on_step(t);
}

static void set_rates(loong_trainer_t *t)
{
    const loong_optimizer_params_t *p = &t->component->params.optimizer;
    double lr = loongi_lr(&t->set.lr, t->state.step);
    for (int i = 0; i < p->num_groups; i++) {
        t->frame.lr[i] = p->group[i].lr * lr;
    }
}

static loong_status_t train_step(loong_trainer_t *t)
{
    t->frame.step = t->state.step;
    t->frame.updates = t->state.updates;
    t->frame.seed = t->set.seed;
    t->frame.log_tensors = loongi_tensors_due(&t->report);
    set_rates(t);
    bool fault = loongi_fault_due(t->supervision.faults,
                                  LOONG_FAULT_NAN_GRADIENT, t->state.step);
    t->losses.scale = fault ? NAN : 1.0;
    LOONG_TRY(run_schedule(t));
    if ((t->flags & LOONG_STEP_STOP) != 0) {
        return LOONG_OK;
    }
    LOONG_TRY(reduce_records(t));
    if (t->frame.log_tensors) {
        LOONG_TRY(loongi_tensors_report(&t->report));
    }
    if (!loongi_losses_any(&t->losses)) {
        leave_out(t);
    } else if (isfinite(t->state.loss) && isfinite(t->state.grad_norm)) {
        LOONG_TRY(update(t));
    } else {
        LOONG_TRY(handle_nan(t));
    }
    int64_t batch =
        loong_loader_batch(t->data.loader, t->state.consumed_samples);
    t->state.consumed_samples += batch;
    if (t->set.num_samples > 0) { /* the rest of the last batch is empty */
        t->state.consumed_samples =
            LOONG_MIN(t->state.consumed_samples, t->set.num_samples);
    }
    t->state.step++;
    t->report.window.tokens += batch * t->set.seq_length;
    t->report.window.steps++;
    return LOONG_OK;
}

loong_status_t loongi_train_step(loong_trainer_t *t)
{
    loong_device_range_begin(t->plan.device, "step");
    loong_status_t status = train_step(t);
    loong_device_range_end(t->plan.device);
    return status;
}
