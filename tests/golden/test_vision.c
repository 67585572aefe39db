/* SPDX-License-Identifier: Apache-2.0
 *
 * Vision transformers against transformers (vision.py): logits, losses of
 * pictures and the gradient of every parameter, in f64 to 1e-9, f32 to 1e-5
 * (gradients 1e-4) and bf16 to 3e-2 (1e-1), which are the formats' own; on one
 * rank, tensor parallel with and without sequence parallelism, in stages. */
#include "convert.h"
#include "executor.h"
#include "groups.h"
#include "loong/family.h"
#include "loong/register.h"
#include "safetensors.h"
#include "test.h"
#include "vision.h"

/* Where it runs; devices but the processor have no fp64. */
#ifndef FIXTURE_DEVICE
#define FIXTURE_DEVICE "cpu"
#endif
#define ON_CPU (strcmp(FIXTURE_DEVICE, "cpu") == 0)
#define FIXTURES LOONG_SOURCE_DIR "/tests/golden/vision/"
enum { MAX_STAGES = 2, PICTURES = 3, LAYERS = 2 };

typedef struct model {
    const char *name;
    loong_pair_t keys[12];
} model_t;

#define SIZES                                                              \
    {"num_layers", "2"}, {"hidden_size", "16"}, {"ffn_hidden_size", "24"}, \
        {"num_attention_heads", "4"}, {"image_size", "12"},                \
    {                                                                      \
        "num_classes", "5"                                                 \
    }
static const model_t models[] = {
    {"vit", {{"family", "vit"}, {"patch_size", "4"}, SIZES}},
    {"clip", {{"family", "clip_vision_model"}, {"patch_size", "4"}, SIZES}},
    {"siglip", {{"family", "siglip_vision_model"}, {"patch_size", "6"}, SIZES}},
    {"masked",
     {{"family", "vit"},
      {"patch_size", "2"},
      {"num_layers", "2"},
      {"hidden_size", "8"},
      {"ffn_hidden_size", "8"},
      {"num_attention_heads", "4"},
      {"image_size", "6"},
      {"masked_image_modeling", "true"}}},
};

typedef struct job {
    const char *name;
    loong_dtype_t dtype;
    int tp;
    bool sequence_parallel;
    int stages;
    bool fuse;
    const char *recompute; /* NULL: nothing */
    double bound, grad_bound;
    const model_t *model;
} job_t;

static const job_t jobs[] = {
    {"one rank", LOONG_F64, 1, false, 1, false, NULL, 1e-9, 1e-9, NULL},
    {"fused", LOONG_F64, 1, false, 1, true, "layers.*", 1e-9, 1e-9, NULL},
    {"two stages", LOONG_F64, 1, false, 2, true, NULL, 1e-9, 1e-9, NULL},
    {"tensor parallel", LOONG_F64, 2, false, 1, true, NULL, 1e-9, 1e-9, NULL},
    {"and sequence parallel", LOONG_F64, 2, true, 1, true, NULL, 1e-9, 1e-9,
     NULL},
    {"four ranks, two stages", LOONG_F64, 4, true, 2, true, NULL, 1e-9, 1e-9,
     NULL},
    {"bf16", LOONG_BF16, 1, false, 2, true, NULL, 3e-2, 1e-1, NULL},
    {"f32", LOONG_F32, 1, false, 1, true, NULL, 1e-5, 1e-4, NULL},
};

/* Of a device `host` is what its bases hold, before a run and behind it. */
typedef struct chunk_run {
    loong_model_chunk_t *chunk;
    loong_binding_t run;
    char *host[LOONG_BASE_COUNT];
    int64_t bytes[LOONG_BASE_COUNT];
} chunk_run_t;

typedef struct runner {
    loong_context_t *ctx;
    const job_t *job;
    loong_mesh_t mesh;
    loong_groups_t groups;
    loong_device_t *device; /* NULL: the processor */
    loong_async_t *async;
    loong_safetensors_t *golden;
    loong_vision_config_t config;
    loong_precision_t precision;
    int64_t rows;  /* of a micro-batch */
    int64_t grads; /* elements of gradients that were compared */
} runner_t;

static const double *golden(const runner_t *r, const char *name, int64_t *n_p)
{
    const loong_safetensor_t *t = loongi_safetensors_find(r->golden, name);
    *n_p = t != NULL ? loongi_shape_count(t->ndim, t->shape) : 0;
    return t != NULL ? t->data : NULL;
}

static loong_status_t allocate(const runner_t *r, chunk_run_t *to)
{
    const loong_model_chunk_t *c = to->chunk;
    const int64_t bytes[LOONG_BASE_COUNT] = {
        [LOONG_BASE_PARAM] = c->param_bytes,
        [LOONG_BASE_GRAD] = c->grad_bytes,
        [LOONG_BASE_STATE] = c->state_bytes,
        [LOONG_BASE_SLOT] = c->slot_bytes,
        [LOONG_BASE_SCRATCH] = c->scratch_bytes,
        [LOONG_BASE_INPUT] = c->input_bytes};
    to->run.ctx = r->ctx;
    to->run.group = (loong_comm_t *const *)r->groups.comm;
    to->run.device = r->device;
    to->run.async = r->async;
    to->run.stream = r->device != NULL ? loong_device_stream(r->device) : NULL;
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        void *base = NULL;
        to->bytes[b] = bytes[b] + 64;
        LOONG_TRY(
            loongi_calloc(r->ctx, (size_t)to->bytes[b], 1, "test", &base));
        to->host[b] = to->run.base[b] = base;
        if (r->device != NULL) {
            LOONG_TRY(loong_device_alloc(r->device, (size_t)to->bytes[b],
                                         "test", &base));
            to->run.base[b] = base;
        }
    }
    return LOONG_OK;
}

/* Runs a program on what the host has set, which then has the results. */
static loong_status_t execute(const chunk_run_t *c, loong_program_kind_t kind,
                              const loong_frame_t *frame)
{
    bool away = c->run.device != NULL;
    for (int b = 0; b < (away ? LOONG_BASE_COUNT : 0); b++) {
        loong_operand_t at = {(loong_base_t)b, 0};
        LOONG_TRY(
            loongi_binding_write(&c->run, at, c->host[b], (size_t)c->bytes[b]));
    }
    LOONG_TRY(loongi_program_run(&c->run, &c->chunk->programs[kind], frame));
    for (int b = 0; b < (away ? LOONG_BASE_COUNT : 0); b++) {
        loong_operand_t at = {(loong_base_t)b, 0};
        LOONG_TRY(loongi_binding_read(&c->run, at, c->host[b],
                                      (size_t)c->bytes[b], "results"));
    }
    return LOONG_OK;
}

static loong_status_t compile(const runner_t *r, int stage, bool train,
                              chunk_run_t *to)
{
    const job_t *job = r->job;
    const loong_family_t *family =
        loong_find_family(r->ctx, job->model->keys[0].value);
    const loong_model_request_t request = {
        .rows = r->rows,
        .max_segments = PICTURES + 2,
        .max_seqlen = r->rows,
        .train = train,
        .sequence_parallel = job->sequence_parallel,
        .head = train ? LOONG_MODEL_LOSS : LOONG_MODEL_LOGITS,
        .first_layer = stage * LAYERS / job->stages,
        .num_layers = LAYERS / job->stages,
        .begins = stage == 0,
        .ends = stage == job->stages - 1};
    const loong_compile_params_t params = {.device = FIXTURE_DEVICE,
                                           .threads = 1,
                                           .fuse = job->fuse,
                                           .in_place = job->fuse,
                                           .num_recompute =
                                               job->recompute != NULL,
                                           .recompute = &job->recompute};
    loong_graph_t *g = NULL;
    LOONG_TRY(family->check_mesh(r->ctx, &r->config, &request, &r->mesh));
    LOONG_TRY(loong_graph_create(r->ctx, r->precision, &g));
    loong_graph_set_mesh(g, &r->mesh);
    LOONG_TRY(family->build(g, &r->config, &request));
    LOONG_TRY(loongi_model_chunk_compile(g, train, &params, &to->chunk));
    loong_graph_destroy(&g);
    LOONG_TRY(allocate(r, to));
    return loongi_model_chunk_prepare(to->chunk);
}

static void release(const runner_t *r, chunk_run_t *c)
{
    loongi_model_chunk_destroy(&c->chunk);
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        if (r->device != NULL) {
            loong_device_free(r->device, c->run.base[b], (size_t)c->bytes[b]);
        }
        loongi_free(r->ctx, c->host[b]);
    }
}

static void *address(const chunk_run_t *c, const loong_port_t *port)
{
    return c->host[port->operand.base] + port->operand.offset;
}

static int32_t *integers(const chunk_run_t *c, const char *name)
{
    const loong_port_t *port = loongi_model_chunk_input(c->chunk, name);
    return port != NULL ? address(c, port) : NULL;
}

static void put(const runner_t *r, void *to, int64_t i, double value)
{
    if (r->precision.wide == LOONG_F64) {
        ((double *)to)[i] = value;
    } else {
        ((float *)to)[i] = (float)value;
    }
}

static double get(const runner_t *r, const void *from, int64_t i)
{
    return r->precision.wide == LOONG_F64 ? ((const double *)from)[i]
                                          : (double)((const float *)from)[i];
}

/* Element of a gradient or parameter that is element i of this rank's part. */
static int64_t whole_index(const loong_chunk_param_t *p, int64_t i)
{
    const loong_placement_t *place = &p->params.place;
    const loong_shape_t *part = &p->shape;
    const loong_shape_t *whole = &p->params.shape;
    int64_t cols = part->rank > 1 ? part->dim[1] : 1;
    int64_t at[2] = {i / cols, i % cols};
    at[place->dim] += place->cut ? place->begin : 0;
    return at[0] * (whole->rank > 1 ? whole->dim[1] : 1) + at[1];
}

static loong_status_t set_params(const runner_t *r, const chunk_run_t *c)
{
    for (int64_t k = 0; k < c->chunk->num_params; k++) {
        const loong_chunk_param_t *p = &c->chunk->params[k];
        const loong_flat_t *flat = &c->chunk->flats[p->flat];
        char name[128];
        int64_t n = 0;
        snprintf(name, sizeof(name), "param.%s", p->name);
        const char *values = (const void *)golden(r, name, &n);
        LOONG_CHECK(r->ctx, n == loongi_shape_elements(&p->params.shape),
                    LOONG_ERR_MISMATCH, "%s: the file has %lld numbers", name,
                    (long long)n);
        loong_dtype_t dtype = loongi_safetensors_find(r->golden, name)->dtype;
        int64_t size = (int64_t)loong_dtype_size(dtype);
        char *to = c->host[LOONG_BASE_PARAM] + flat->param_offset +
                   p->flat_offset * (int64_t)loong_dtype_size(flat->dtype);
        for (int64_t i = 0; i < p->elements; i++) {
            LOONG_TRY(loongi_convert(
                r->ctx, dtype, values + whole_index(p, i) * size, flat->dtype,
                to + i * (int64_t)loong_dtype_size(flat->dtype), 1));
        }
    }
    return LOONG_OK;
}

/* Pixels of the patches, row by row; channel, row and column in a patch. */
static void fill_patches(const runner_t *r, void *to)
{
    const loong_vision_config_t *c = &r->config;
    int64_t s = c->image_size;
    int64_t p = c->patch_size;
    int64_t side = s / p;
    int64_t width = c->num_channels * p * p;
    int64_t first = c->class_token ? 1 : 0;
    int64_t n = 0;
    const double *pixels = golden(r, "pixel_values", &n);
    for (int64_t i = 0; i < n; i++) {
        int64_t x = i % s;
        int64_t y = i / s % s;
        int64_t channel = i / (s * s) % c->num_channels;
        int64_t picture = i / (s * s * c->num_channels);
        int64_t row =
            picture * loongi_vision_rows(c) + first + y / p * side + x / p;
        int64_t column = (channel * p + y % p) * p + x % p;
        put(r, to, row * width + column, pixels[i]);
    }
}

static void fill_rows(const runner_t *r, const chunk_run_t *c)
{
    const loong_vision_config_t *config = &r->config;
    int64_t each = loongi_vision_rows(config);
    int64_t room = r->rows / each;
    bool mean = config->pooling == LOONG_POOL_MEAN;
    int32_t *positions = integers(c, "positions");
    int32_t *is_class = integers(c, "is_class");
    int32_t *is_masked = integers(c, "is_masked");
    int32_t *pooled = integers(c, "pooled_picture");
    int32_t *segments = integers(c, "cu_seqlens");
    int64_t n = 0;
    const double *weights = golden(r, "loss_weights", &n);
    for (int64_t t = 0; t < r->rows; t++) {
        bool there = t < PICTURES * each;
        bool class_row = config->class_token && there && t % each == 0;
        if (positions != NULL) {
            positions[t] = there ? (int32_t)(t % each) : 0;
        }
        if (is_class != NULL) {
            is_class[t] = class_row;
        }
        if (is_masked != NULL) {
            is_masked[t] = t < n && weights[t] > 0.0;
        }
        if (pooled != NULL) {
            pooled[t] = (int32_t)(there && class_row != mean ? t / each : room);
        }
    }
    for (int64_t s = 0; s <= PICTURES + 2; s++) {
        segments[s] = (int32_t)LOONG_MIN(s * each, r->rows);
    }
}

static void fill_labels(const runner_t *r, const chunk_run_t *c)
{
    int64_t n = 0;
    const int64_t *labels = (const void *)golden(r, "labels", &n);
    const double *weights = golden(r, "loss_weights", &n);
    int32_t *to = integers(c, "labels");
    const loong_port_t *weight =
        loongi_model_chunk_input(c->chunk, "loss_weight");
    for (int64_t i = 0; to != NULL && i < weight->shape.dim[0]; i++) {
        to[i] = i < n ? (int32_t)labels[i] : LOONG_IGNORE_LABEL;
        put(r, address(c, weight), i, i < n ? weights[i] : 1.0);
    }
}

static void fill(const runner_t *r, const chunk_run_t *c)
{
    const loong_port_t *patches = loongi_model_chunk_input(c->chunk, "patches");
    if (patches != NULL) {
        fill_patches(r, address(c, patches));
    }
    fill_rows(r, c);
    fill_labels(r, c);
}

/* What crosses from a stage to the next one, or back. */
static void carry(const chunk_run_t *from, const chunk_run_t *to,
                  const char *name)
{
    const loong_port_t *out = loongi_model_chunk_output(from->chunk, name);
    const loong_port_t *in = loongi_model_chunk_input(to->chunk, name);
    memcpy(address(to, in), address(from, out),
           (size_t)loongi_shape_elements(&in->shape) *
               loong_dtype_size(in->dtype));
}

/* ||mine - theirs|| / ||theirs||; the plain norm where theirs are 0, as those
 * of the biases of keys. */
static loong_status_t compare(const runner_t *r, const char *what,
                              const double *mine, const double *theirs,
                              int64_t n, double bound)
{
    double diff = 0.0;
    double norm = 0.0;
    for (int64_t i = 0; i < n; i++) {
        diff += (mine[i] - theirs[i]) * (mine[i] - theirs[i]);
        norm += theirs[i] * theirs[i];
    }
    double error = norm > 1e-24 ? sqrt(diff / norm) : sqrt(diff);
    LOONG_CHECK(r->ctx, error <= bound, LOONG_ERR_MISMATCH,
                "%s, %s: %s: relative error %.3g, bound %.3g",
                r->job->model->name, r->job->name, what, error, bound);
    return LOONG_OK;
}

/* Gradients of the ranks of TP, put together. */
static loong_status_t check_grad(runner_t *r, const chunk_run_t *c,
                                 const loong_chunk_param_t *p)
{
    const loong_placement_t *place = &p->params.place;
    const loong_flat_t *flat = &c->chunk->flats[p->flat];
    char name[128];
    int64_t n = 0;
    double *mine = NULL;
    snprintf(name, sizeof(name), "grad.%s", p->name);
    const double *theirs = golden(r, name, &n);
    LOONG_CHECK(r->ctx, theirs != NULL, LOONG_ERR_MISMATCH, "no %s", name);
    LOONG_TRY(loongi_alloc(r->ctx, (size_t)n * sizeof(*mine), "test", &mine));
    const char *grad =
        c->host[LOONG_BASE_GRAD] + flat->grad_offset +
        p->flat_offset * (int64_t)loong_dtype_size(r->precision.wide);
    for (int64_t i = 0; i < p->elements; i++) {
        mine[whole_index(p, i)] = get(r, grad, i);
    }
    /* The bias that one rank alone holds is no part of the others' lists. */
    bool parts = place->cut || place->partial;
    loong_status_t status =
        parts ? loong_comm_all_reduce(r->groups.comm[LOONG_GROUP_TP], mine, n,
                                      LOONG_F64, LOONG_REDUCE_SUM, "test")
              : LOONG_OK;
    if (status == LOONG_OK) {
        status = compare(r, name, mine, theirs, n, r->job->grad_bound);
    }
    r->grads += n;
    loongi_free(r->ctx, mine);
    return status;
}

static loong_status_t check_port(const runner_t *r, const chunk_run_t *c,
                                 const loong_port_t *port, const char *name)
{
    double mine[512];
    double theirs[512];
    int64_t n = 0;
    int64_t weights = 0;
    const double *expected = golden(r, name, &n);
    const double *weight = golden(r, "loss_weights", &weights);
    int64_t own = loongi_shape_elements(&port->shape);
    int64_t begin = r->config.masked_image_modeling && r->job->sequence_parallel
                        ? own * r->mesh.coord[LOONG_AXIS_TP]
                        : 0;
    int64_t count = LOONG_MAX(LOONG_MIN(n - begin, own), 0);
    for (int64_t i = 0; i < count; i++) {
        LOONG_TRY(loongi_convert(r->ctx, port->dtype,
                                 (const char *)address(c, port) +
                                     i * (int64_t)loong_dtype_size(port->dtype),
                                 LOONG_F64, &mine[i], 1));
        theirs[i] =
            expected[begin + i] * (n == weights ? weight[begin + i] : 1.0);
    }
    return compare(r, name, mine, theirs, count, r->job->bound);
}

static loong_status_t run_logits(const runner_t *r)
{
    chunk_run_t c[MAX_STAGES];
    loong_frame_t frame = {.first = 1, .last = 1};
    memset(c, 0, sizeof(c));
    int last = r->job->stages - 1;
    for (int s = 0; s <= last; s++) {
        LOONG_TRY(compile(r, s, false, &c[s]));
        LOONG_TRY(set_params(r, &c[s]));
        fill(r, &c[s]);
        if (s > 0) {
            carry(&c[s - 1], &c[s], "hidden");
        }
        LOONG_TRY(execute(&c[s], LOONG_PROGRAM_E, &frame));
    }
    const char *name =
        r->config.masked_image_modeling ? "reconstruction" : "logits";
    LOONG_TRY(check_port(r, &c[last],
                         loongi_model_chunk_output(c[last].chunk, name), name));
    for (int s = 0; s <= last; s++) {
        release(r, &c[s]);
    }
    return LOONG_OK;
}

static loong_status_t run_training(runner_t *r)
{
    chunk_run_t c[MAX_STAGES];
    int64_t n = 0;
    double sum = 0.0;
    memset(c, 0, sizeof(c));
    const double *weights = golden(r, "loss_weights", &n);
    for (int64_t i = 0; i < n; i++) {
        sum += weights[i];
    }
    loong_frame_t frame = {.first = 1, .last = 1};
    frame.loss_scale[0] = 1.0 / sum;
    int last = r->job->stages - 1;
    for (int s = 0; s <= last; s++) {
        LOONG_TRY(compile(r, s, true, &c[s]));
        LOONG_TRY(set_params(r, &c[s]));
        fill(r, &c[s]);
        if (s > 0) {
            carry(&c[s - 1], &c[s], "hidden");
        }
        LOONG_TRY(execute(&c[s], LOONG_PROGRAM_F, &frame));
    }
    LOONG_CHECK(r->ctx, c[last].chunk->num_losses == 1, LOONG_ERR_MISMATCH,
                "%d losses", c[last].chunk->num_losses);
    LOONG_TRY(check_port(r, &c[last], &c[last].chunk->losses[0].port, "nll"));
    for (int s = last; s >= 0; s--) {
        if (s < last) {
            carry(&c[s + 1], &c[s], "hidden.grad");
        }
        LOONG_TRY(execute(&c[s], LOONG_PROGRAM_B, &frame));
        for (int64_t k = 0; k < c[s].chunk->num_params; k++) {
            LOONG_TRY(check_grad(r, &c[s], &c[s].chunk->params[k]));
        }
    }
    for (int s = 0; s <= last; s++) {
        release(r, &c[s]);
    }
    return LOONG_OK;
}

/* The file has no gradient that was not compared; of the biases that are added
 * once the first rank has all. */
static loong_status_t check_all(const runner_t *r)
{
    int64_t count = 0;
    for (int64_t i = 0; i < loongi_safetensors_count(r->golden); i++) {
        const loong_safetensor_t *t = loongi_safetensors_get(r->golden, i);
        count += strncmp(t->name, "grad.", 5) == 0
                     ? loongi_shape_count(t->ndim, t->shape)
                     : 0;
    }
    LOONG_CHECK(r->ctx, r->mesh.coord[LOONG_AXIS_TP] > 0 || r->grads == count,
                LOONG_ERR_MISMATCH, "%lld of %lld gradients",
                (long long)r->grads, (long long)count);
    return LOONG_OK;
}

static loong_status_t configure(runner_t *r)
{
    loong_pairs_t *pairs = NULL;
    LOONG_TRY(loongi_pairs_create(r->ctx, &pairs));
    for (const loong_pair_t *k = r->job->model->keys; k->key != NULL; k++) {
        LOONG_TRY(loongi_pairs_set(pairs, k->key, k->value));
    }
    LOONG_TRY(loongi_vision_configure(r->ctx, pairs, &r->config));
    loongi_pairs_destroy(&pairs);
    r->rows = loongi_round_up(PICTURES * loongi_vision_rows(&r->config) + 1, 4);
    return LOONG_OK;
}

static loong_status_t run_job(loong_context_t *ctx, loong_comm_t *comm,
                              void *user)
{
    const job_t *job = user;
    runner_t r = {.ctx = ctx, .job = job};
    const loong_mesh_params_t mesh = {job->tp, job->tp, 1, 1, 1, 1, 0, 0};
    char path[512];
    r.precision.compute = job->dtype;
    r.precision.wide = job->dtype == LOONG_F64 ? LOONG_F64 : LOONG_F32;
    snprintf(path, sizeof(path), FIXTURES "%s/golden.safetensors",
             job->model->name);
    LOONG_TRY(loong_register_builtin(ctx));
    LOONG_TRY(loong_mesh_create(ctx, &mesh, loong_comm_rank(comm), &r.mesh));
    LOONG_TRY(loongi_groups_create(ctx, comm, &r.mesh, &r.groups));
    if (!ON_CPU) {
        LOONG_TRY(loong_device_create(ctx, FIXTURE_DEVICE, 0, &r.device));
        LOONG_TRY(loongi_async_create(ctx, r.device, false, &r.async));
    }
    LOONG_TRY(loongi_safetensors_open(ctx, path, &r.golden));
    LOONG_TRY(configure(&r));
    LOONG_TRY(run_logits(&r));
    LOONG_TRY(run_training(&r));
    LOONG_TRY(check_all(&r));
    loongi_safetensors_close(&r.golden);
    loongi_async_destroy(&r.async);
    loong_device_destroy(&r.device);
    loongi_groups_destroy(&r.groups);
    return LOONG_OK;
}

static void test_golden(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (int m = 0; m < LOONG_COUNT_OF(models); m++) {
        for (int j = 0; j < LOONG_COUNT_OF(jobs); j++) {
            job_t job = jobs[j];
            if (!ON_CPU && job.dtype == LOONG_F64) {
                continue;
            }
            loong_threads_params_t params = {
                .size = job.tp, .context = {test_log, NULL, LOONG_LOG_WARN}};
            job.model = &models[m];
            print_message("%s, %s\n", job.model->name, job.name);
            assert_ok(ctx, loong_threads_run(ctx, &params, run_job, &job));
        }
    }
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
