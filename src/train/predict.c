/* SPDX-License-Identifier: Apache-2.0
 *
 * The step time that --dry-run tells: kernels timed at the shapes of the plan,
 * added up along the schedule of a step. */
#include <string.h>

#include "calibrate.h"
#include "trainer_impl.h"
#include "zigzag.h"

/* Seconds of measuring; of a model that cannot run here a rough figure does. */
static const double BUDGET = 15.0;
static const double SHORT_BUDGET = 5.0;
/* What a prediction may take, whatever the model would: a launch, and the
 * inputs of a micro-batch. */
static const int64_t LAUNCH_BYTES = 1 << 30;
static const int64_t INPUT_BYTES = 64 << 20;

/* Where token k of a micro-batch, counted rank after rank, stands among those
 * of all context parallel ranks. */
static int64_t place_of(const loong_trainer_t *t, int64_t k)
{
    int ranks = t->mesh.size[LOONG_AXIS_CP];
    int64_t length = t->set.seq_length;
    int64_t own = length / ranks; /* of a sample */
    int64_t each = t->set.micro_batch_size * own;
    return k % each / own * length +
           loongi_zigzag_place((int)(k / each), ranks, length, k % own);
}

static void fill_input(const loong_trainer_t *t, const loong_port_t *p,
                       void *at)
{
    const loong_component_t *c = t->component;
    int64_t length = t->set.seq_length;
    bool segments = strcmp(p->name, "cu_seqlens") == 0;
    bool positions = strcmp(p->name, "positions") == 0;
    bool places = strcmp(p->name, "places") == 0;
    for (int64_t k = 0; k < p->shape.dim[0]; k++) {
        int64_t token = k * 7919 % c->facts.vocab_size;
        int64_t bound =
            LOONG_MIN(k * length, t->set.micro_batch_size * length);
        switch (p->dtype) {
        case LOONG_I32:
            ((int32_t *)at)[k] =
                (int32_t)(segments    ? bound
                          : positions ? k % length
                          : places    ? place_of(t, k)
                                      : token);
            break;
        case LOONG_I64:
            ((int64_t *)at)[k] = k;
            break;
        case LOONG_F64:
            ((double *)at)[k] = 1.0;
            break;
        default:
            ((float *)at)[k] = 1.0f;
            break;
        }
    }
}

/* What a loader would give: any tokens, whole samples. */
static void fill_inputs(const loong_trainer_t *t, const loong_chunk_t *c,
                        char *inputs)
{
    for (int i = 0; i < c->num_inputs; i++) {
        fill_input(t, &c->inputs[i], inputs + c->inputs[i].operand.offset);
    }
}

/* Seconds of the parts of a step. */
typedef struct prediction {
    double forward;
    double backward;
    double update;
} prediction_t;

static loong_status_t add_up(const loong_stage_t *s, loong_calibration_t *c,
                             int64_t micro_batches, prediction_t *p)
{
    const loong_chunk_t *chunk = s->chunk[LOONG_STAGE_TRAIN];
    const loong_optimizer_t *o = s->optimizer;
    loong_frame_t frame;
    memset(&frame, 0, sizeof(frame));
    frame.loss_scale[0] = frame.grad_scale = 1.0;
    frame.lr[0] = 1e-3;
    /* All but the first and the last micro-batch are alike. */
    for (int64_t m = 0; m < LOONG_MIN(micro_batches, 3); m++) {
        int64_t times = m == 1 && micro_batches > 3 ? micro_batches - 2 : 1;
        frame.first = m == 0;
        frame.last = m + 1 == LOONG_MIN(micro_batches, 3);
        LOONG_TRY(loongi_calibration_program(
            c, &chunk->programs[LOONG_PROGRAM_F], &frame, times, &p->forward));
        LOONG_TRY(loongi_calibration_program(
            c, &chunk->programs[LOONG_PROGRAM_B], &frame, times,
            &p->backward));
    }
    LOONG_TRY(loongi_calibration_program(c, &o->norm, &frame, 1, &p->update));
    LOONG_TRY(
        loongi_calibration_program(c, &o->update, &frame, 1, &p->update));
    return loongi_calibration_program(c, &o->gather, &frame, 1, &p->update);
}

static void tell(loong_trainer_t *t, const prediction_t *p,
                 loong_calibration_figures_t figures)
{
    double seconds = p->forward + p->backward + p->update;
    double tokens = (double)(t->set.global_batch_size * t->set.seq_length);
    loongi_text_printf(&t->text,
                       "predicted step: %.1f ms (%.*f tokens/s): forward "
                       "%.1f, backward %.1f, optimizer %.1f\n",
                       1e3 * seconds, tokens < 100.0 * seconds ? 3 : 0,
                       tokens / seconds, 1e3 * p->forward,
                       1e3 * p->backward, 1e3 * p->update);
    loongi_text_printf(&t->text,
                       "  from %lld launches timed in %.1f s",
                       (long long)figures.measured, figures.seconds);
    if (figures.shrunk > 0) {
        loongi_text_printf(&t->text, ", %lld of them on fewer rows",
                           (long long)figures.shrunk);
    }
    if (figures.scaled > 0) {
        loongi_text_printf(&t->text, ", %lld scaled from others",
                           (long long)figures.scaled);
    }
    if (loong_comm_size(t->comm) > 1) {
        loongi_text_printf(&t->text, "; %lld collectives are not in it",
                           (long long)figures.collectives);
    }
    loongi_text_printf(&t->text, "\n");
}

static loong_status_t predict(loong_trainer_t *t, loong_device_t *device,
                              char *inputs)
{
    loong_calibration_params_t params = {
        device, inputs, loongi_room_suffices(t) ? BUDGET : SHORT_BUDGET,
        LAUNCH_BYTES, t->component->params.precision};
    loong_calibration_t *c = NULL;
    prediction_t p = {0.0, 0.0, 0.0};
    loong_status_t status = LOONG_OK;
    LOONG_TRY(loongi_calibration_create(t->ctx, &params, &c));
    for (int i = 0; i < t->component->num_stages && status == LOONG_OK; i++) {
        const loong_stage_t *s = t->component->stages[i];
        if (inputs != NULL) {
            fill_inputs(t, s->chunk[LOONG_STAGE_TRAIN], inputs);
        }
        status = add_up(s, c, t->component->params.micro_batches, &p);
    }
    if (status == LOONG_OK) {
        tell(t, &p, loongi_calibration_get(c));
    }
    loongi_calibration_destroy(&c);
    return status;
}

loong_status_t loong_trainer_predict(loong_trainer_t *trainer,
                                     const char **text_p)
{
    loong_trainer_t *t = trainer;
    loong_device_t *device = NULL;
    void *inputs = NULL;
    size_t bytes = (size_t)t->component->bytes[LOONG_BASE_INPUT];
    loongi_text_free(&t->text);
    t->text = loongi_text_begin(t->ctx);
    LOONG_TRY(loong_device_create(t->ctx, "cpu", 0, &device));
    loong_status_t status = LOONG_OK;
    if (bytes <= (size_t)INPUT_BYTES) {
        status = loong_device_alloc(device, bytes, "inputs", &inputs);
    }
    if (status == LOONG_OK) {
        status = predict(t, device, inputs);
    }
    if (inputs != NULL) {
        loong_device_free(device, inputs, bytes);
    }
    loong_device_destroy(&device);
    LOONG_TRY(status);
    *text_p = loongi_text_get(&t->text);
    return t->text.status;
}
