/* SPDX-License-Identifier: Apache-2.0 */
#include "engine_run.h"

#include "convert.h"
#include "rng.h"

loong_decoder_config_t engine_model;

loong_component_params_t engine_params(loong_dtype_t compute)
{
    loong_component_params_t p;
    memset(&p, 0, sizeof(p));
    loong_decoder_config_t *c = &engine_model;
    memset(c, 0, sizeof(*c));
    p.config = c;
    p.mesh = loong_mesh_single();
    c->num_layers = 2;
    c->hidden_size = 48;
    c->ffn_hidden_size = 80;
    c->num_attention_heads = 4;
    c->num_query_groups = 2;
    c->kv_channels = 16;
    c->vocab_size = ENGINE_VOCAB;
    c->padded_vocab_size = 104;
    c->max_position_embeddings = ENGINE_TOKENS;
    c->rope.rotary_dim = 16;
    c->rope.base = 10000.0;
    c->normalization = LOONG_NORM_RMS;
    c->norm_eps = 1e-6;
    c->qk_norm = c->qkv_bias = true;
    c->mlp = LOONG_MLP_SWIGLU;
    c->init_std = 0.1;
    p.request.rows = ENGINE_TOKENS;
    p.request.max_seqlen = p.request.max_segments = ENGINE_TOKENS;
    p.precision.compute = compute;
    p.precision.wide = compute == LOONG_F64 ? LOONG_F64 : LOONG_F32;
    p.compile.device = p.shards.device = "cpu";
    p.compile.threads = p.shards.threads = 2;
    p.compile.fuse = p.compile.in_place = true;
    p.optimizer.group[0].beta1 = 0.9;
    p.optimizer.group[0].beta2 = 0.95;
    p.optimizer.group[0].eps = 1e-8;
    p.shards.bucket_bytes = 1 << 14;
    p.schedule = "auto";
    p.micro_batches = 1;
    p.train = true;
    return p;
}

void engine_begin(engine_run_t *run, const loong_component_params_t *params)
{
    memset(run, 0, sizeof(*run));
    run->ctx = test_context();
    assert_ok(run->ctx, loong_register_builtin(run->ctx));
    assert_ok(run->ctx, loong_comm_create_self(run->ctx, NULL, &run->comm));
    assert_ok(run->ctx, loong_device_create(run->ctx, "cpu", 0, &run->device));
    loong_component_params_t p = *params;
    p.family = loong_find_family(run->ctx, "qwen3");
    assert_ok(run->ctx, loongi_model_create(run->ctx, 1, &p, &run->model));
    run->component = run->model->components[0];
    run->stage = run->component->stages[0];
    assert_ok(run->ctx,
              loongi_resources_create(run->ctx, run->device, run->comm,
                                      &p.resources, &run->resources));
    assert_ok(run->ctx, loongi_model_allocate(run->model, run->resources));
    assert_ok(run->ctx, loongi_model_initialize(run->model, 5));
}

void engine_end(engine_run_t *run)
{
    loongi_model_destroy(&run->model);
    loongi_resources_destroy(&run->resources);
    loong_device_destroy(&run->device);
    loong_comm_destroy(&run->comm);
    test_context_end(&run->ctx);
}

static void *input(const engine_run_t *run, const char *name)
{
    const loong_model_chunk_t *c = run->stage->chunk[LOONG_VARIANT_TRAIN];
    return loongi_stage_port(run->stage, loongi_model_chunk_input(c, name));
}

static void fill(const engine_run_t *run)
{
    int32_t *tokens = input(run, "tokens");
    int32_t *labels = input(run, "labels");
    int32_t *positions = input(run, "positions");
    int32_t *segments = input(run, "cu_seqlens");
    void *weights = input(run, "loss_weight");
    bool f64 = run->stage->params->precision.wide == LOONG_F64;
    for (int i = 0; i < ENGINE_TOKENS; i++) {
        tokens[i] = (int32_t)((uint32_t)i * 2654435761u >> 8) % ENGINE_VOCAB;
        labels[i] = (tokens[i] * 7 + 3) % ENGINE_VOCAB;
        positions[i] = i;
        segments[i + 1] = ENGINE_TOKENS;
        if (f64) {
            ((double *)weights)[i] = 1.0;
        } else {
            ((float *)weights)[i] = 1.0f;
        }
    }
    segments[0] = 0;
}

double engine_step(engine_run_t *run, loong_frame_t *frame)
{
    const loong_port_t *loss =
        &run->stage->chunk[LOONG_VARIANT_TRAIN]->losses[0].port;
    double sum = 0.0;
    fill(run);
    frame->first = frame->last = 1;
    frame->loss_scale[0] = 1.0 / ENGINE_TOKENS;
    assert_ok(run->ctx, loongi_stage_execute(run->stage, LOONG_VARIANT_TRAIN,
                                             LOONG_PROGRAM_F, frame));
    const void *losses = loongi_stage_port(run->stage, loss);
    for (int i = 0; i < ENGINE_TOKENS; i++) {
        sum += loss->dtype == LOONG_F64 ? ((const double *)losses)[i]
                                        : ((const float *)losses)[i];
    }
    assert_ok(run->ctx, loongi_stage_execute(run->stage, LOONG_VARIANT_TRAIN,
                                             LOONG_PROGRAM_B, frame));
    return sum;
}

double *engine_read(const engine_run_t *run, const loong_chunk_param_t *p,
                    bool gradient)
{
    const loong_stage_t *s = run->stage;
    const loong_flat_t *flat = &s->chunk[LOONG_VARIANT_TRAIN]->flats[p->flat];
    loong_dtype_t dtype = gradient ? s->params->precision.wide : flat->dtype;
    const char *base =
        s->run.base[gradient ? LOONG_BASE_GRAD : LOONG_BASE_PARAM] +
        (gradient ? flat->grad_offset : flat->param_offset) +
        p->flat_offset * (int64_t)loong_dtype_size(dtype);
    double *values = calloc((size_t)p->elements, sizeof(*values));
    assert_non_null(values);
    assert_ok(run->ctx, loongi_convert(run->ctx, dtype, base, LOONG_F64,
                                       values, p->elements));
    return values;
}

void engine_copy_params(engine_run_t *to, const engine_run_t *from)
{
    const loong_model_chunk_t *a = from->stage->chunk[LOONG_VARIANT_TRAIN];
    const loong_model_chunk_t *b = to->stage->chunk[LOONG_VARIANT_TRAIN];
    assert_int_equal(a->num_params, b->num_params);
    assert_ok(to->ctx, loongi_stage_upload(to->stage));
    for (int64_t i = 0; i < a->num_params; i++) {
        double *values = engine_read(from, &a->params[i], false);
        assert_string_equal(a->params[i].name, b->params[i].name);
        assert_ok(to->ctx, loongi_stage_set_param(
                               to->stage, &b->params[i], 0,
                               a->params[i].elements, values));
        free(values);
    }
    assert_ok(to->ctx, loongi_stage_uploaded(to->stage, LOONG_OK));
}

void engine_make_data(loong_context_t *ctx, const char *dir, int vocab,
                      int64_t tokens)
{
    char prefix[300];
    snprintf(prefix, sizeof(prefix), "%s/data", dir);
    loong_dataset_writer_params_t params = {
        prefix, loong_dataset_dtype(vocab), false};
    loong_dataset_writer_t *writer = NULL;
    assert_ok(ctx, loong_dataset_writer_create(ctx, &params, &writer));
    for (int64_t done = 0; done < tokens; done += 256) {
        int32_t ids[256];
        for (int i = 0; i < 256; i++) {
            double u =
                loongi_rng_uniform(3, 1, (uint64_t)(done + i)) * vocab;
            ids[i] = (int32_t)u % vocab;
        }
        assert_ok(ctx, loong_dataset_writer_add(writer, ids, NULL, 256));
        assert_ok(ctx, loong_dataset_writer_end_document(writer));
    }
    assert_ok(ctx, loong_dataset_writer_commit(writer));
    loong_dataset_writer_destroy(&writer);
}
