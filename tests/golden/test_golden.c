/* SPDX-License-Identifier: Apache-2.0
 *
 * Every fixture of transformers: logits, losses of tokens, the gradient of
 * every parameter, in f64 to 1e-9 and in f32 to 1e-5 (gradients 1e-4), with
 * and without passes. The bounds are those of the number formats. */
#include "test.h"

#include <dirent.h>

#include "decoder_config.h"
#include "hf_config.h"
#include "hf_weights.h"
#include "loong/register.h"
#include "safetensors.h"
#include "stage_load.h"

#define FIXTURES LOONG_SOURCE_DIR "/tests/golden/fixtures"

typedef struct fixture {
    loong_context_t *ctx;
    loong_comm_t *comm;
    loong_device_t *device;
    loong_safetensors_t *golden;
    loong_hf_t *hf;
    loong_stage_t *stage;
    int64_t batch, tokens;
    loong_precision_t precision;
} fixture_t;

typedef struct variant {
    const char *name;
    loong_dtype_t dtype;
    bool fuse;
    bool in_place;
    const char *recompute;
    double bound;
    double grad_bound;
} variant_t;

static const variant_t variants[] = {
    {"f64 plain", LOONG_F64, false, false, NULL, 1e-9, 1e-9},
    {"f64 fused", LOONG_F64, true, true, NULL, 1e-9, 1e-9},
    {"f64 recompute layers", LOONG_F64, true, true, "layers.*", 1e-9, 1e-9},
    {"f64 recompute core", LOONG_F64, false, true, "layers.*.self_attn.core",
     1e-9, 1e-9},
    {"f32 fused", LOONG_F32, true, true, NULL, 1e-5, 1e-4},
};

static const void *find(const fixture_t *f, const char *name, int64_t *count_p)
{
    const loong_safetensor_t *t = loongi_safetensors_find(f->golden, name);
    if (t == NULL) {
        return NULL;
    }
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++) {
        n *= t->shape[d];
    }
    *count_p = n;
    return t->data;
}

/* ||a - b|| / ||b||, or the plain norm of the difference when b is 0 (GPT-2's
 * key bias has no gradient). */
static double relative(const double *a, const double *b, int64_t n)
{
    double diff = 0.0;
    double norm = 0.0;
    for (int64_t i = 0; i < n; i++) {
        diff += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return norm > 1e-24 ? sqrt(diff / norm) : sqrt(diff);
}

static double wide_at(const fixture_t *f, const void *p, int64_t i)
{
    return f->precision.wide == LOONG_F64 ? ((const double *)p)[i]
                                          : (double)((const float *)p)[i];
}

static void compare(const fixture_t *f, const char *what, const void *mine,
                    const double *theirs, int64_t n, double bound)
{
    double *copy = malloc((size_t)n * sizeof(*copy));
    for (int64_t i = 0; i < n; i++) {
        copy[i] = wide_at(f, mine, i);
    }
    double error = relative(copy, theirs, n);
    free(copy);
    if (!(error <= bound)) {
        fail_msg("%s: relative error %.3g, bound %.3g", what, error, bound);
    }
}

static void open_fixture(fixture_t *f, const char *dir, const variant_t *v)
{
    char path[600];
    f->ctx = test_context();
    assert_ok(f->ctx, loong_register_builtin(f->ctx));
    assert_ok(f->ctx, loong_comm_create_self(f->ctx, NULL, &f->comm));
    assert_ok(f->ctx, loong_device_create(f->ctx, "cpu", 0, &f->device));
    snprintf(path, sizeof(path), "%s/golden.safetensors", dir);
    assert_ok(f->ctx, loongi_safetensors_open(f->ctx, path, &f->golden));
    assert_ok(f->ctx, loongi_hf_open(f->ctx, dir, &f->hf));
    const loong_safetensor_t *ids =
        loongi_safetensors_find(f->golden, "input_ids");
    f->batch = ids->shape[0];
    f->tokens = ids->shape[1];

    loong_stage_params_t p;
    memset(&p, 0, sizeof(p));
    assert_ok(f->ctx, loongi_decoder_configure(
                          f->ctx, loongi_hf_model(f->hf), &p.model));
    int64_t segments = f->batch;
    int64_t cu = 0;
    if (find(f, "cu_seqlens", &cu) != NULL) {
        segments = cu - 1;
    }
    p.batch.tokens = f->batch * f->tokens;
    p.batch.max_seqlen = f->tokens;
    p.batch.max_segments = segments + 2; /* padding is legal */
    p.logits_tokens = p.batch.tokens;
    f->precision.compute = v->dtype;
    f->precision.wide = v->dtype == LOONG_F64 ? LOONG_F64 : LOONG_F32;
    p.precision = f->precision;
    p.compile.device = "cpu";
    p.compile.threads = 2;
    p.compile.fuse = v->fuse;
    p.compile.in_place = v->in_place;
    p.compile.num_recompute = v->recompute != NULL ? 1 : 0;
    p.compile.recompute = &v->recompute;
    p.optimizer.device = "cpu";
    p.optimizer.threads = 2;
    p.optimizer.beta1 = 0.9;
    p.optimizer.beta2 = 0.95;
    p.optimizer.eps = 1e-8;
    p.optimizer.weight_decay = 0.1;
    p.optimizer.bucket_bytes = 1 << 16;
    p.train = true;
    assert_ok(f->ctx, loongi_stage_create(f->ctx, f->comm, &p, 1, &f->stage));
    assert_ok(f->ctx, loongi_stage_allocate(f->stage, f->device));
    assert_ok(f->ctx, loongi_stage_load_hf(f->stage, f->hf));
}

static void close_fixture(fixture_t *f)
{
    loongi_stage_destroy(&f->stage);
    loongi_hf_close(&f->hf);
    loongi_safetensors_close(&f->golden);
    loong_device_destroy(&f->device);
    loong_comm_destroy(&f->comm);
    test_context_end(&f->ctx);
}

static void *port(fixture_t *f, loong_stage_chunk_t chunk, const char *name)
{
    const loong_port_t *p = loongi_chunk_input(f->stage->chunk[chunk], name);
    return p != NULL ? loongi_stage_port(f->stage, p) : NULL;
}

static void copy_i32(const fixture_t *f, int32_t *to, const char *name)
{
    int64_t n = 0;
    const void *from = find(f, name, &n);
    for (int64_t i = 0; i < n && to != NULL; i++) {
        to[i] = (int32_t)((const int64_t *)from)[i];
    }
}

static double fill_inputs(fixture_t *f, loong_stage_chunk_t chunk)
{
    int64_t n = 0;
    int64_t cu_count = 0;
    const loong_decoder_batch_t *b = &f->stage->params.batch;
    copy_i32(f, port(f, chunk, "tokens"), "input_ids");
    copy_i32(f, port(f, chunk, "labels"), "labels");
    int32_t *positions = port(f, chunk, "positions");
    const void *given = find(f, "position_ids", &n);
    n = b->tokens;
    for (int64_t i = 0; i < n && positions != NULL; i++) {
        positions[i] = given != NULL ? (int32_t)((const int64_t *)given)[i]
                                     : (int32_t)(i % f->tokens);
    }
    const int64_t *cu = find(f, "cu_seqlens", &cu_count);
    int32_t *bounds = port(f, chunk, "cu_seqlens");
    for (int64_t i = 0; i <= b->max_segments; i++) {
        int64_t at = cu != NULL ? (i < cu_count ? cu[i] : n) : i * f->tokens;
        bounds[i] = (int32_t)LOONG_MIN(at, n);
    }
    const double *weights = find(f, "loss_weights", &n);
    void *mine = port(f, chunk, "loss_weight");
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += weights[i];
        if (mine != NULL && f->precision.wide == LOONG_F64) {
            ((double *)mine)[i] = weights[i];
        } else if (mine != NULL) {
            ((float *)mine)[i] = (float)weights[i];
        }
    }
    return sum;
}

static void check_logits(fixture_t *f, const variant_t *v)
{
    if (getenv("LOONG_EXPLAIN") != NULL) {
        loong_text_t text = loongi_text_begin(f->ctx);
        loongi_chunk_explain(f->stage->chunk[LOONG_STAGE_LOGITS], &text);
        loongi_chunk_explain(f->stage->chunk[LOONG_STAGE_TRAIN], &text);
        fprintf(stderr, "%s", loongi_text_get(&text));
        loongi_text_free(&text);
    }
    loong_frame_t frame;
    int64_t n = 0;
    memset(&frame, 0, sizeof(frame));
    fill_inputs(f, LOONG_STAGE_LOGITS);
    assert_ok(f->ctx, loongi_stage_execute(f->stage, LOONG_STAGE_LOGITS,
                                       LOONG_PROGRAM_E, 0, &frame));
    const double *logits = find(f, "logits", &n);
    const loong_port_t *out = loongi_chunk_output(
        f->stage->chunk[LOONG_STAGE_LOGITS], "logits");
    compare(f, "logits", loongi_stage_port(f->stage, out), logits, n,
            v->bound);
}

static void check_grads(fixture_t *f, const variant_t *v)
{
    const loong_chunk_t *c = f->stage->chunk[LOONG_STAGE_TRAIN];
    const loong_hf_map_t *map = loongi_hf_get_map(f->hf);
    for (int64_t i = 0; i < c->num_params; i++) {
        const loong_param_place_t *place = &c->params[i];
        const loong_flat_t *flat = &c->flats[place->flat];
        const loong_hf_param_t *hf = loongi_hf_map_find(map, place->name);
        char name[512];
        int64_t n = 0;
        snprintf(name, sizeof(name), "grad.%s%s",
                 hf->prefixed ? loongi_hf_map_prefix(map) : "", hf->hf_name);
        const double *theirs = find(f, name, &n);
        if (theirs == NULL) {
            fail_msg("%s is not in the golden file", name);
            return;
        }
        /* The file's layout: transposed, or a part of a fused tensor. */
        int64_t rows = place->params.shape.dim[0];
        int64_t cols = place->elements / rows;
        double *ours = malloc((size_t)place->elements * sizeof(*ours));
        const char *grad = f->stage->run.base[LOONG_BASE_GRAD] +
                           flat->grad_offset +
                           place->flat_offset *
                               (int64_t)loong_dtype_size(f->precision.wide);
        double *expected = malloc((size_t)place->elements * sizeof(*ours));
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t k = 0; k < cols; k++) {
                int64_t row = r + hf->part * rows;
                ours[r * cols + k] = wide_at(f, grad, r * cols + k);
                expected[r * cols + k] =
                    hf->transposed ? theirs[k * rows * hf->parts + row]
                                   : theirs[row * cols + k];
            }
        }
        double error = relative(ours, expected, place->elements);
        free(ours);
        free(expected);
        if (!(error <= v->grad_bound)) {
            fail_msg("gradient of %s: relative error %.3g, bound %.3g",
                     place->name, error, v->grad_bound);
        }
    }
}

static void check_training(fixture_t *f, const variant_t *v)
{
    loong_frame_t frame;
    int64_t n = 0;
    memset(&frame, 0, sizeof(frame));
    double sum = fill_inputs(f, LOONG_STAGE_TRAIN);
    frame.first = frame.last = 1;
    frame.loss_scale[0] = 1.0 / sum;
    assert_ok(f->ctx, loongi_stage_execute(f->stage, LOONG_STAGE_TRAIN,
                                       LOONG_PROGRAM_F, 0, &frame));
    const loong_port_t *loss = &f->stage->chunk[LOONG_STAGE_TRAIN]->losses[0];
    const void *mine = loongi_stage_port(f->stage, loss);
    const double *nll = find(f, "nll", &n);
    const double *weights = find(f, "loss_weights", &n);
    double *weighted = malloc((size_t)n * sizeof(*weighted));
    double total = 0.0;
    for (int64_t i = 0; i < n; i++) {
        weighted[i] = nll[i] * weights[i];
        total += wide_at(f, mine, i);
    }
    compare(f, "losses of tokens", mine, weighted, n, v->bound);
    const double *golden_sum = find(f, "loss_sum", &n);
    assert_true(fabs(total - *golden_sum) <= v->bound * fabs(*golden_sum));
    free(weighted);
    assert_ok(f->ctx, loongi_stage_execute(f->stage, LOONG_STAGE_TRAIN,
                                       LOONG_PROGRAM_B, 0, &frame));
    check_grads(f, v);
}

static void fixture_matches(const char *name, const variant_t *v)
{
    fixture_t f;
    char dir[512];
    memset(&f, 0, sizeof(f));
    snprintf(dir, sizeof(dir), "%s/%s", FIXTURES, name);
    print_message("%s, %s\n", name, v->name);
    open_fixture(&f, dir, v);
    check_logits(&f, v);
    check_training(&f, v);
    close_fixture(&f);
}

static void all_fixtures(void **state)
{
    const variant_t *v = *state;
    struct dirent **names = NULL;
    int count = scandir(FIXTURES, &names, NULL, alphasort);
    int seen = 0;
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        const char *only = getenv("LOONG_FIXTURE");
        bool wanted = only == NULL || strcmp(only, names[i]->d_name) == 0;
        if (names[i]->d_name[0] != '.' && wanted) {
            fixture_matches(names[i]->d_name, v);
            seen++;
        }
        free(names[i]);
    }
    free(names);
    assert_true(seen >= 17);
}

int main(void)
{
    struct CMUnitTest tests[LOONG_COUNT_OF(variants)];
    for (int64_t i = 0; i < LOONG_COUNT_OF(variants); i++) {
        struct CMUnitTest test = {variants[i].name, all_fixtures, NULL, NULL,
                                  (void *)(uintptr_t)&variants[i]};
        tests[i] = test;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
