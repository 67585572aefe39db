/* SPDX-License-Identifier: Apache-2.0
 *
 * The evaluation of a model over its validation sets. Called by trainer_run.c
 * and by users' programs. Read losses.h and run_data.h before. */
#include <string.h>

#include "trainer_impl.h"

/* A step of an evaluation: one micro-batch of the component with the loss. */
typedef struct evaluation {
    loong_trainer_t *t;
    loong_loader_t *loader;
    int64_t consumed;
} evaluation_t;

static loong_status_t fill_entry(void *user, const loong_entry_t *entry)
{
    const evaluation_t *e = user;
    loong_trainer_t *t = e->t;
    loong_binding_t run =
        loongi_model_bind(t->model, LOONG_VARIANT_EVAL, entry);
    int stage = loongi_model_stage_number(t->model, entry);
    loong_input_source_t source = loongi_upstream_source(
        &t->upstream, loongi_model_component(t->model, entry)->index,
        e->loader);
    return loongi_inputs_fill(
        &t->inputs, loongi_inputs_of(&t->inputs, stage, LOONG_VARIANT_EVAL),
        &run, &source, e->consumed, entry->micro_batch);
}

static loong_status_t keep_losses(loong_trainer_t *t, loong_losses_t *losses)
{
    for (int i = 0; i < t->component->num_stages; i++) {
        const loong_stage_t *s = t->component->stages[i];
        LOONG_TRY(loongi_losses_keep(losses, &t->metrics, &s->run,
                                     s->chunk[LOONG_VARIANT_EVAL]));
    }
    return LOONG_OK;
}

static loong_status_t evaluate_set(loong_trainer_t *t, loong_validation_t *v)
{
    loong_frame_t frame;
    loong_blend_info_t info;
    int64_t sums[LOONG_STEP_SUMS][LOONG_EXACT_WORDS] = {{0}};
    loong_losses_t losses = t->losses;
    double begin = loongi_now();
    memset(&frame, 0, sizeof(frame));
    loong_blend_get_info(v->blend, &info);
    loongi_losses_begin(&losses);
    int64_t consumed = 0;
    int64_t wanted = info.max_samples;
    if (t->set.eval_iters > 0 &&
        t->set.eval_iters < wanted / t->set.global_batch_size) {
        wanted = t->set.eval_iters * t->set.global_batch_size;
    }
    while (consumed < wanted) {
        double own[LOONG_MAX_NORMALISERS];
        if (!t->plan.absent) {
            LOONG_TRY(loong_loader_check_step(v->loader, consumed, own));
        }
        loongi_upstream_begin(&t->upstream, v->images, consumed);
        evaluation_t step = {t, v->loader, consumed};
        LOONG_TRY(loongi_model_forward(t->model, LOONG_VARIANT_EVAL, &frame,
                                       fill_entry, &step));
        LOONG_TRY(keep_losses(t, &losses));
        LOONG_TRY(
            loongi_step_metrics_finish(&t->metrics, "losses of an evaluation"));
        loongi_losses_count(&losses, loongi_loader_sums(v->loader), sums);
        consumed += loong_loader_batch(v->loader, consumed);
    }
    LOONG_TRY(loong_comm_all_reduce(
        t->comm, sums, losses.num_normalisers * LOONG_EXACT_WORDS, LOONG_I64,
        LOONG_REDUCE_SUM, "validation loss"));
    loongi_losses_normalise(&losses, sums);
    double weight = losses.sum[losses.normaliser_of[0]];
    LOONG_CHECK(t->ctx, weight > 0.0, LOONG_ERR_CONFIG,
                "data '%s': nothing of it carries loss", v->name);
    LOONG_TRY(loongi_losses_end(&losses, t->comm, "validation loss"));
    return loongi_report_eval(
        &t->report, v->name, losses.value[0], (int64_t)weight,
        losses.normaliser[losses.normaliser_of[0]], loongi_now() - begin);
}

/* Averages to where programs read parameters, and back, bit for bit. */
static loong_status_t swap_averages(loong_trainer_t *t)
{
    if (!t->component->params.optimizer.ema.evaluates ||
        t->plan.evaluate_only) { /* which has loaded them in their place */
        return LOONG_OK;
    }
    if (t->saving.save != NULL) { /* what it writes stays until it is written */
        t->saving.stall += loongi_checkpoint_save_wait(t->saving.save);
    }
    for (int i = 0; i < t->model->num_stages; i++) {
        const loong_stage_t *s = t->model->stages[i];
        if (s->optimizer != NULL) {
            LOONG_TRY(
                loongi_program_run(&s->run, &s->optimizer->swap, &t->frame));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_trainer_evaluate(loong_trainer_t *t)
{
    LOONG_TRY(swap_averages(t));
    for (int i = 0; i < t->data.num_validation; i++) {
        LOONG_TRY(evaluate_set(t, &t->data.validation[i]));
    }
    LOONG_TRY(loongi_sample(&t->sampling, t->state.step));
    return swap_averages(t);
}
