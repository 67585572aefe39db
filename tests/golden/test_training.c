/* SPDX-License-Identifier: Apache-2.0
 *
 * Twenty AdamW steps in f64 against PyTorch's: loss and gradient norm of every
 * step, and the parameters at the end. */
#include "test.h"

#include "decoder_config.h"
#include "exact_sum.h"
#include "loong/register.h"
#include "model.h"
#include "safetensors.h"
#include "stage_load.h"

#define FIXTURES LOONG_SOURCE_DIR "/tests/golden/fixtures/"

enum { STEPS = 20, ROWS = 4, TOKENS = 24, MICRO = 2 };

typedef struct run {
    loong_context_t *ctx;
    loong_comm_t *comm;
    loong_resources_t *resources;
    loong_decoder_config_t config;
    loong_device_t *device;
    loong_hf_t *hf;
    loong_safetensors_t *golden;
    loong_model_t *model;
    loong_component_t *component; /* of it */
    loong_stage_t *stage; /* of it */
} run_t;

static const void *tensor(const run_t *r, const char *name)
{
    const loong_safetensor_t *t = loongi_safetensors_find(r->golden, name);
    assert_non_null(t);
    return t->data;
}

/* by_chance: moments of bf16, rounded so. */
static void open_run(run_t *r, const char *name, bool by_chance)
{
    char path[512];
    loong_component_params_t p;
    memset(&p, 0, sizeof(p));
    r->ctx = test_context();
    assert_ok(r->ctx, loong_register_builtin(r->ctx));
    assert_ok(r->ctx, loong_comm_create_self(r->ctx, NULL, &r->comm));
    assert_ok(r->ctx, loong_device_create(r->ctx, "cpu", 0, &r->device));
    snprintf(path, sizeof(path), FIXTURES "%s/train_golden.safetensors", name);
    assert_ok(r->ctx, loongi_safetensors_open(r->ctx, path, &r->golden));
    snprintf(path, sizeof(path), FIXTURES "%s", name);
    assert_ok(r->ctx, loongi_hf_open(r->ctx, path, &r->hf));
    assert_ok(r->ctx, loongi_decoder_configure(
                          r->ctx, loongi_hf_model(r->hf), &r->config));
    p.family = loong_find_family(r->ctx, "llama");
    p.config = &r->config;
    p.mesh = loong_mesh_single();
    p.schedule = "auto";
    p.micro_batches = 1;
    p.request.rows = ROWS / MICRO * TOKENS;
    p.request.max_seqlen = TOKENS;
    p.request.max_segments = ROWS / MICRO;
    p.precision.compute = p.precision.wide = LOONG_F64;
    p.compile.device = p.shards.device = "cpu";
    p.compile.threads = p.shards.threads = 2;
    p.compile.fuse = p.compile.in_place = true;
    p.optimizer.group[0].beta1 = 0.9;
    p.optimizer.group[0].beta2 = 0.95;
    p.optimizer.group[0].eps = 1e-8;
    p.optimizer.group[0].weight_decay = 0.1;
    p.optimizer.bf16[LOONG_STATE_EXP_AVG] = by_chance;
    p.optimizer.bf16[LOONG_STATE_EXP_AVG_SQ] = by_chance;
    p.optimizer.stochastic_rounding = by_chance;
    p.shards.bucket_bytes = 1 << 14;
    p.shards.sharding = LOONG_SHARDING_OPTIM;
    p.train = true;
    assert_ok(r->ctx, loongi_model_create(r->ctx, 1, &p, &r->model));
    r->component = r->model->components[0];
    r->stage = r->component->stages[0];
    assert_ok(r->ctx, loongi_resources_create(r->ctx, r->device, r->comm,
                                              &p.resources, &r->resources));
    assert_ok(r->ctx, loongi_model_allocate(r->model, r->resources));
    assert_ok(r->ctx, loongi_component_load_hf(r->component, r->hf, 0));
}

static void close_run(run_t *r)
{
    loongi_model_destroy(&r->model);
    loongi_resources_destroy(&r->resources);
    loongi_hf_close(&r->hf);
    loongi_safetensors_close(&r->golden);
    loong_device_destroy(&r->device);
    loong_comm_destroy(&r->comm);
    test_context_end(&r->ctx);
}

static void *port(run_t *r, const char *name)
{
    return loongi_stage_port(
        r->stage,
        loongi_model_chunk_input(r->stage->chunk[LOONG_VARIANT_TRAIN], name));
}

/* Half of the rows of a step; returns the labels that count. */
static int64_t fill(run_t *r, int step, int micro)
{
    int64_t n = ROWS / MICRO * TOKENS;
    int64_t at = ((int64_t)step * MICRO + micro) * n;
    const int64_t *ids = (const int64_t *)tensor(r, "input_ids") + at;
    const int64_t *labels = (const int64_t *)tensor(r, "labels") + at;
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        ((int32_t *)port(r, "tokens"))[i] = (int32_t)ids[i];
        ((int32_t *)port(r, "labels"))[i] = (int32_t)labels[i];
        ((int32_t *)port(r, "positions"))[i] = (int32_t)(i % TOKENS);
        ((double *)port(r, "loss_weight"))[i] = labels[i] >= 0 ? 1.0 : 0.0;
        count += labels[i] >= 0;
    }
    for (int i = 0; i <= ROWS / MICRO; i++) {
        ((int32_t *)port(r, "cu_seqlens"))[i] = i * TOKENS;
    }
    return count;
}

static double step_loss(run_t *r, loong_frame_t *frame, int step)
{
    int64_t tokens = 0;
    double sum = 0.0;
    const loong_port_t *loss =
        &r->stage->chunk[LOONG_VARIANT_TRAIN]->losses[0].port;
    for (int m = 0; m < MICRO; m++) {
        tokens += fill(r, step, m);
    }
    frame->step = 3 * step + 7; /* updates count, not steps */
    frame->updates = step;
    frame->lr[0] = 1e-3;
    frame->loss_scale[0] = 1.0 / (double)tokens;
    for (int m = 0; m < MICRO; m++) {
        frame->micro_batch = m;
        frame->first = m == 0;
        frame->last = m + 1 == MICRO;
        fill(r, step, m);
        assert_ok(r->ctx, loongi_stage_execute(r->stage, LOONG_VARIANT_TRAIN,
                                               LOONG_PROGRAM_F, frame));
        const double *losses = loongi_stage_port(r->stage, loss);
        for (int64_t i = 0; i < loss->shape.dim[0]; i++) {
            sum += losses[i];
        }
        assert_ok(r->ctx, loongi_stage_execute(r->stage, LOONG_VARIANT_TRAIN,
                                               LOONG_PROGRAM_B, frame));
    }
    return sum / (double)tokens;
}

static double update(run_t *r, loong_frame_t *frame)
{
    loong_optimizer_t *o = r->stage->optimizer;
    int64_t *record = (int64_t *)(void *)(r->stage->run.base[LOONG_BASE_OPTIM] +
                                          o->record_offset);
    memset(record, 0, sizeof(int64_t) * LOONG_EXACT_WORDS);
    assert_ok(r->ctx, loongi_program_run(&r->stage->run, &o->norm, frame));
    double norm = sqrt(loongi_exact_value(record));
    frame->grad_scale = fmin(1.0, 1.0 / (norm + 1e-6));
    assert_ok(r->ctx, loongi_program_run(&r->stage->run, &o->update, frame));
    return norm;
}

/* Whole tensors by norm: GPT-2's key bias moves by rounding noise alone. */
static void check_parameters(run_t *r)
{
    const loong_model_chunk_t *c = r->stage->layout;
    const loong_hf_map_t *map = loongi_hf_get_map(r->hf);
    for (int64_t i = 0; i < c->num_params; i++) {
        const loong_chunk_param_t *p = &c->params[i];
        const loong_hf_param_t *hf = loongi_hf_map_find(map, p->name);
        char name[512];
        snprintf(name, sizeof(name), "final.%s%s",
                 hf->prefixed ? loongi_hf_map_prefix(map) : "", hf->hf_name);
        const double *theirs = tensor(r, name);
        const double *mine =
            (const double *)(void *)(r->stage->run.base[LOONG_BASE_PARAM] +
                                     c->flats[p->flat].param_offset) +
            p->flat_offset;
        int64_t rows = p->params.shape.dim[0];
        int64_t width = loongi_hf_file_rows(hf);
        int64_t cols = p->elements / rows;
        double diff = 0.0;
        double norm = 0.0;
        for (int64_t k = 0; k < p->elements; k++) {
            int64_t row = loongi_hf_file_row(hf, k / cols);
            double want = hf->transposed
                              ? theirs[k % cols * width + row]
                              : theirs[row * cols + k % cols];
            diff += (mine[k] - want) * (mine[k] - want);
            norm += want * want;
        }
        if (!(sqrt(diff) <= 1e-9 * sqrt(norm) + 1e-10)) {
            fail_msg("%s after %d steps: relative error %.3g", p->name, STEPS,
                     sqrt(diff / norm));
        }
    }
}

static void twenty_steps(void **state)
{
    run_t r;
    loong_frame_t frame;
    memset(&r, 0, sizeof(r));
    memset(&frame, 0, sizeof(frame));
    open_run(&r, *state, false);
    const double *losses = tensor(&r, "loss");
    const double *norms = tensor(&r, "grad_norm");
    for (int step = 0; step < STEPS; step++) {
        double loss = step_loss(&r, &frame, step);
        double norm = update(&r, &frame);
        if (!(fabs(loss - losses[step]) <= 1e-9 * losses[step] &&
              fabs(norm - norms[step]) <= 1e-9 * norms[step])) {
            fail_msg("step %d: loss %.15g, PyTorch %.15g; norm %.15g, %.15g",
                     step, loss, losses[step], norm, norms[step]);
        }
    }
    check_parameters(&r);
    close_run(&r);
}

/* Random bits depend on parameters: their update takes no more steps. */
static void test_update_steps(void **state)
{
    int64_t steps[2];
    (void)state;
    for (int by_chance = 0; by_chance < 2; by_chance++) {
        run_t r;
        memset(&r, 0, sizeof(r));
        open_run(&r, "gpt2_tied", by_chance != 0);
        steps[by_chance] = r.stage->optimizer->update.num_steps;
        assert_true(steps[by_chance] < r.stage->layout->num_params);
        close_run(&r);
    }
    assert_int_equal(steps[0], steps[1]);
}

int main(void)
{
    struct CMUnitTest tests[] = {
        {"gpt2", twenty_steps, NULL, NULL, (void *)(uintptr_t)"gpt2_tied"},
        {"qwen3", twenty_steps, NULL, NULL,
         (void *)(uintptr_t)"qwen3_gqa_tied"},
        cmocka_unit_test(test_update_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
