/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole vision-language models against transformers (whole_models.py): loss and
 * the gradient of every tensor of a step on texts and pictures, in f64 to 1e-9,
 * in bf16 inside what the type allows (test_bf16.c has the reasons of the
 * bound), in fp32 to 1e-5 of their norms (of one that nearly cancels, of a
 * hundredth of the whole gradient's), or inside what that type allows where it
 * is more: the same roundings, each 2^-16 as large. Gradients are read from the
 * first moments of a checkpoint.
 *
 *   test_whole_models FAMILY...   all without arguments */
#include <math.h>

#include "file.h"
#include "json.h"
#include "loong/register.h"
#include "loong/trainer.h"
#include "native.h"
#include "test.h"

#define GOLDEN LOONG_SOURCE_DIR "/tests/golden/"
#define ALLOWED 3.0

enum { PRECISIONS = 3, F64 = 0, F32 = 1, BF16 = 2, PATH = 512 };

static const char *const precisions[PRECISIONS] = {"fp64", "fp32", "bf16"};
static const double beta1 = 0.9;

static const char *const families[] = {
    "llava",    "llava_onevision", "paligemma", "qwen2_vl", "qwen2_5_vl",
    "qwen3_vl", "qwen3_vl_moe",    "internvl",  "kimi_k25",
    "llavaonevision1_5", "siglip2", "ernie4_5_vl", "glm4v"};

typedef struct place {
    loong_context_t *ctx;
    char dir[PATH];
    const char *family;
    loong_json_t *golden;
    double norm;  /* of the whole gradient */
    int narrowest; /* precision that the golden file has scales of */
    double loss[PRECISIONS];
} place_t;

/* ---- runs ---------------------------------------------------------------- */

/* One step that changes nothing; its log is the last one that says a loss. */
static void step(place_t *at, int precision)
{
    char lines[8][PATH + 64];
    const char *overrides[8];
    char recipe[PATH];
    loong_recipe_t *parsed = NULL;
    loong_trainer_t *trainer = NULL;
    loong_comm_t *comm = NULL;
    loong_context_t *ctx = test_context();
    int count = 7;
    int texts =
        (int)loongi_json_count(loongi_json_get(at->golden, "texts"));
    const char *p = precisions[precision];
    snprintf(recipe, PATH, GOLDEN "%s_train.yaml", at->family);
    snprintf(lines[0], sizeof(*lines), "precision.params_dtype=%s", p);
    snprintf(lines[1], sizeof(*lines), "data.tokenizer=%s", at->dir);
    snprintf(lines[2], sizeof(*lines),
             "data.train=[{path: %s/texts.jsonl, source: image_text}]",
             at->dir);
    snprintf(lines[3], sizeof(*lines), "checkpoint.save=%s/%s", at->dir, p);
    snprintf(lines[4], sizeof(*lines), "log.dir=%s/log_%s", at->dir, p);
    snprintf(lines[5], sizeof(*lines),
             "train={global_batch_size: %d, micro_batch_size: %d, "
             "train_iters: 1}",
             texts, texts % 2 == 0 ? 2 : 1);
    snprintf(lines[6], sizeof(*lines), "optimizer.lr=1e-30");
    if (loongi_json_kind(loongi_json_get(at->golden, "processor")) ==
        LOONG_JSON_OBJECT) {
        snprintf(lines[count++], sizeof(*lines),
                 "data.image_processor=%s/processor.json", at->dir);
    }
    for (int i = 0; i < count; i++) {
        overrides[i] = lines[i];
    }
    const loong_recipe_params_t params = {NULL, count, overrides, 0, NULL};
    assert_ok(ctx, loong_register_builtin(ctx));
    assert_ok(ctx, loong_comm_create_self(ctx, NULL, &comm));
    assert_ok(ctx, loong_recipe_load(ctx, recipe, &params, &parsed));
    loong_trainer_params_t own = {.comm = comm, .recipe = parsed};
    assert_ok(ctx, loong_trainer_create(ctx, &own, &trainer));
    assert_ok(ctx, loong_trainer_run(trainer));
    loong_trainer_destroy(&trainer);
    loong_recipe_destroy(&parsed);
    loong_comm_destroy(&comm);
    test_context_end(&ctx);
}

static double loss_of(const place_t *at, int precision)
{
    char path[PATH + 64];
    char *text = NULL;
    size_t length = 0;
    double loss = NAN;
    snprintf(path, sizeof(path), "%s/log_%s/metrics.jsonl", at->dir,
             precisions[precision]);
    assert_ok(at->ctx, loongi_file_read(at->ctx, path, &text, &length));
    const char *found = strstr(text, "\"loss\":");
    assert_non_null(found);
    assert_int_equal(sscanf(found, "\"loss\":%lf", &loss), 1);
    loongi_free(at->ctx, text);
    return loss;
}

/* The gradient of a tensor, to be freed; of a step its first moment is
 * 1 - beta1 times it. */
static double *gradient(const place_t *at, int precision, const char *name,
                        int64_t *count_p)
{
    char path[PATH + 16];
    loong_checkpoint_t *ck = NULL;
    double *values = NULL;
    snprintf(path, sizeof(path), "%s/%s", at->dir, precisions[precision]);
    assert_ok(at->ctx, loongi_checkpoint_open(at->ctx, path, &ck));
    const loong_checkpoint_tensor_t *t =
        loongi_checkpoint_find(ck, "exp_avg", name);
    if (t == NULL) {
        fail_msg("%s: there is no %s", at->family, name);
    }
    *count_p = t->shape[0] * (t->ndim > 1 ? t->shape[1] : 1);
    values = malloc((size_t)*count_p * sizeof(*values));
    assert_ok(at->ctx, loongi_checkpoint_read_rows(ck, t, 0, t->shape[0],
                                                   LOONG_F64, values));
    for (int64_t i = 0; i < *count_p; i++) {
        values[i] /= 1 - beta1;
    }
    loongi_checkpoint_close(&ck);
    return values;
}

/* ---- comparisons --------------------------------------------------------- */

/* whole_models.py has the same. */
static double direction(int64_t i, int which)
{
    uint64_t x = (uint64_t)i * 2654435761u;
    x = (x + (uint64_t)which * 40503u) * 2246822519u;
    return (double)(x >> 16 & 0xffff) / 32768 - 1;
}

static double number(const loong_json_t *list, int i)
{
    return loongi_json_real(loongi_json_at(list, i));
}

/* What a narrower type has made of it: the worst of its errors, in units of
 * what is allowed. */
typedef struct worst {
    double ratio;
    char what[256];
} worst_t;

static void note(worst_t *w, const char *name, const char *kind, double found,
                 double scale)
{
    double ratio = found == 0.0 ? 0.0 : fabs(found) / scale;
    if (!(ratio <= w->ratio)) {
        w->ratio = ratio;
        snprintf(w->what, sizeof(w->what), "%s: %s %.3g, scale %.3g", name,
                 kind, found, scale);
    }
}

static double norm_of(const loong_json_t *tensors)
{
    double squares = 0;
    for (const loong_json_member_t *m = loongi_json_first(tensors); m != NULL;
         m = loongi_json_next(tensors, m)) {
        double norm = number(loongi_json_member_value(m), 0);
        squares += norm * norm;
    }
    return sqrt(squares);
}

/* A tensor in three precisions. */
typedef struct tensor {
    const char *name;
    const loong_json_t *golden;
    int64_t count;
    double *of[PRECISIONS];
} tensor_t;

static void compare_exact(const place_t *at, const tensor_t *t)
{
    const double *g = t->of[F64];
    double found[3] = {0};
    for (int64_t i = 0; i < t->count; i++) {
        found[0] += g[i] * g[i];
        found[1] += g[i] * direction(i, 1);
        found[2] += g[i] * direction(i, 2);
    }
    found[0] = sqrt(found[0]);
    for (int k = 0; k < 3; k++) {
        if (!(fabs(found[k] - number(t->golden, k)) <= 1e-9)) {
            fail_msg("%s: f64: gradient of %s: %s is %.12g, not %.12g",
                     at->family, t->name, k == 0 ? "norm" : "product", found[k],
                     number(t->golden, k));
        }
    }
}

static void compare_narrow(const place_t *at, const tensor_t *t, int precision,
                           worst_t *worst)
{
    const double *exact = t->of[F64], *g = t->of[precision];
    double squares = 0, dot = 0, norm = 0;
    for (int64_t i = 0; i < t->count; i++) {
        double e = g[i] - exact[i];
        squares += e * e;
        dot += e * exact[i];
        norm += exact[i] * exact[i];
    }
    if (precision == F32) {
        double own = at->narrowest == BF16 ? number(t->golden, 3) * 0x1p-16 : 0;
        note(worst, t->name, "error", sqrt(squares),
             fmax(1e-5 * fmax(sqrt(norm), 0.01 * at->norm), ALLOWED * own));
        return;
    }
    double along = norm > 1e-24 ? dot / sqrt(norm) : 0;
    note(worst, t->name, "error", sqrt(squares), number(t->golden, 3));
    note(worst, t->name, "along", along, number(t->golden, 4));
}

static void compare_tensors(place_t *at, worst_t worst[PRECISIONS])
{
    const loong_json_t *tensors = loongi_json_get(at->golden, "tensors");
    at->norm = norm_of(tensors);
    for (const loong_json_member_t *m = loongi_json_first(tensors); m != NULL;
         m = loongi_json_next(tensors, m)) {
        tensor_t t = {.name = loongi_json_member_key(m),
                      .golden = loongi_json_member_value(m)};
        for (int p = 0; p <= at->narrowest; p++) {
            t.of[p] = gradient(at, p, t.name, &t.count);
        }
        compare_exact(at, &t);
        for (int p = F32; p <= at->narrowest; p++) {
            compare_narrow(at, &t, p, &worst[p]);
        }
        for (int p = 0; p <= at->narrowest; p++) {
            free(t.of[p]);
        }
    }
}

static void compare(place_t *at)
{
    const loong_json_t *loss = loongi_json_get(at->golden, "loss");
    double wanted = number(loss, 0);
    worst_t worst[PRECISIONS] = {{0, ""}};
    for (int p = 0; p <= at->narrowest; p++) {
        at->loss[p] = loss_of(at, p);
    }
    if (!(fabs(at->loss[F64] - wanted) <= 5e-9 * wanted)) {
        fail_msg("%s: f64: loss %.10g, not %.10g", at->family, at->loss[F64],
                 wanted);
    }
    note(&worst[F32], "loss", "error", at->loss[F32] - wanted, 1e-5 * wanted);
    if (at->narrowest == BF16) {
        note(&worst[BF16], "loss", "error", at->loss[BF16] - wanted,
             number(loss, 1));
    }
    compare_tensors(at, worst);
    print_message("%s: fp32 %.2f of 1 (%s), bf16 %.2f of %.0f (%s)\n",
                  at->family, worst[F32].ratio, worst[F32].what,
                  worst[BF16].ratio, ALLOWED, worst[BF16].what);
    if (!(worst[F32].ratio <= 1)) {
        fail_msg("%s: fp32: %s", at->family, worst[F32].what);
    }
    if (!(worst[BF16].ratio <= ALLOWED)) {
        fail_msg("%s: outside the envelope of bf16: %s", at->family,
                 worst[BF16].what);
    }
}

/* ---- tests --------------------------------------------------------------- */

static void write_text(const place_t *at, const char *name, loong_text_t *text)
{
    char path[PATH + 32];
    snprintf(path, sizeof(path), "%s/%s", at->dir, name);
    assert_ok(at->ctx, loongi_file_write(at->ctx, path, loongi_text_get(text),
                                         text->length));
    loongi_text_free(text);
}

static void write_files(const place_t *at)
{
    const loong_json_t *texts = loongi_json_get(at->golden, "texts");
    loong_text_t text = loongi_text_begin(at->ctx);
    loongi_text_json(&text, loongi_json_get(at->golden, "processor"));
    write_text(at, "processor.json", &text);
    text = loongi_text_begin(at->ctx);
    for (int64_t i = 0; i < loongi_json_count(texts); i++) {
        loongi_text_json(&text, loongi_json_at(texts, i));
        loongi_text_printf(&text, "\n");
    }
    write_text(at, "texts.jsonl", &text);
}

/* The second picture is higher than wide. */
static void losses_and_gradients(void **state)
{
    char path[PATH];
    char command[2 * PATH];
    place_t at = {.ctx = test_context(),
                  .dir = "/tmp/loong_whole_XXXXXX",
                  .family = *state};
    assert_non_null(mkdtemp(at.dir));
    snprintf(command, sizeof(command),
             "bash -c '. \"$0/tests/train/texts_with_pictures.sh\" && "
             "write_texts \"$0\" \"$1\" && "
             "cp \"$0/tests/fixtures/images/tall.jpg\" \"$1/j420.jpg\"' '"
             LOONG_SOURCE_DIR "' '%s'",
             at.dir);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof(path), GOLDEN "whole_models/%s.json", at.family);
    assert_ok(at.ctx, loongi_json_load(at.ctx, path, &at.golden));
    write_files(&at);
    at.narrowest = number(loongi_json_get(at.golden, "loss"), 1) > 0 ? BF16
                                                                     : F32;
    for (int p = 0; p <= at.narrowest; p++) {
        step(&at, p);
    }
    compare(&at);
    loongi_json_destroy(&at.golden);
    assert_ok(at.ctx, loongi_dir_remove(at.ctx, at.dir));
    test_context_end(&at.ctx);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[LOONG_COUNT_OF(families)];
    size_t count = 0;
    for (size_t i = 0; i < LOONG_COUNT_OF(families); i++) {
        bool wanted = argc < 2;
        for (int a = 1; a < argc; a++) {
            wanted = wanted || strcmp(argv[a], families[i]) == 0;
        }
        struct CMUnitTest test = {families[i], losses_and_gradients, NULL, NULL,
                                  (void *)(uintptr_t)families[i]};
        if (wanted) {
            tests[count++] = test;
        }
    }
    return _cmocka_run_group_tests("whole_models", tests, count, NULL, NULL);
}
