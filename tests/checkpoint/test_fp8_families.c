/* SPDX-License-Identifier: Apache-2.0
 *
 * e4m3 weights in blocks, of every family: in one file and in several a
 * directory of them reads and imports to the bits of one with the products,
 * also where the experts of a layer are one tensor. Scales that are missing
 * or do not fit are refused by their name. */
#include "test.h"

#include "base.h"
#include "families.h"
#include "file.h"
#include "fp8_files.h"
#include "loong/checkpoint.h"
#include "test_dir.h"

TEST_DIR(dir)

/* Experts of each layer in two tensors, those behind [in, out]. */
static const char stacked_map[] =
    "tensors:\n"
    "  model.layers.#.mlp.experts.gate_up_proj:\n"
    "    holds: [layers.#.mlp.experts.@.gate_proj.weight,\n"
    "            layers.#.mlp.experts.@.up_proj.weight]\n"
    "  model.layers.#.mlp.experts.down_proj:\n"
    "    holds: [layers.#.mlp.experts.@.down_proj.weight]\n"
    "    transposed: true\n";

/* config.json of a fixture, with the type that its weights have here; of a
 * model with pictures, whose encoder is not written, the texts' alone. */
static char *config_of(loong_context_t *ctx, const char *fixture,
                       const char *dtype)
{
    char path[400];
    char *text = NULL;
    size_t size = 0;
    loong_text_t out = loongi_text_begin(ctx);
    snprintf(path, sizeof(path),
             LOONG_SOURCE_DIR "/tests/golden/fixtures/%s/config.json",
             fixture);
    assert_ok(ctx, loongi_file_read(ctx, path, &text, &size));
    char *vision = strstr(text, ",\n  \"vision_config\""); /* the last one */
    assert_true((vision != NULL) == (strstr(fixture, "_vl_") != NULL));
    if (vision != NULL) {
        memcpy(vision, "\n}", 3);
    }
    const char *at = text;
    for (const char *f = at; (f = strstr(at, "\"float32\"")) != NULL;
         at = f + strlen("\"float32\"")) {
        loongi_text_printf(&out, "%.*s\"%s\"", (int)(f - at), at, dtype);
    }
    loongi_text_printf(&out, "%s", at);
    assert_ok(ctx, out.status);
    char *copy = strdup(loongi_text_get(&out));
    loongi_text_free(&out);
    loongi_free(ctx, text);
    return copy;
}

static loong_status_t open_dir(loong_context_t *ctx, const fp8_files_t *f,
                               loong_hf_t **hf_p)
{
    loong_hf_open_params_t p = {.dir = f->dir, .map = f->map};
    return loongi_hf_open_as(ctx, &p, hf_p);
}

/* Every parameter, bit for bit. */
static void compare_read(loong_context_t *ctx, const fp8_files_t *a,
                         const fp8_files_t *b)
{
    loong_hf_t *left = NULL, *right = NULL;
    assert_ok(ctx, open_dir(ctx, a, &left));
    assert_ok(ctx, open_dir(ctx, b, &right));
    const loong_hf_map_t *map = loongi_hf_get_map(left);
    for (int64_t i = 0; i < loongi_hf_map_count(map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        loong_dtype_t dtype = loongi_hf_dtype(right, p->name);
        size_t bytes = (size_t)(p->shape[0] * p->shape[1]) *
                       loong_dtype_size(dtype);
        void *x = malloc(bytes), *y = malloc(bytes);
        assert_int_equal(loongi_hf_dtype(left, p->name), dtype);
        assert_ok(ctx, loongi_hf_read(left, p->name, 0, p->shape[0], dtype,
                                      x));
        assert_ok(ctx, loongi_hf_read(right, p->name, 0, p->shape[0], dtype,
                                      y));
        if (memcmp(x, y, bytes) != 0) {
            fail_msg("%s differs", p->name);
        }
        free(x);
        free(y);
    }
    loongi_hf_close(&left);
    loongi_hf_close(&right);
}

static void ignore_line(void *user, const char *line)
{
    (void)user;
    (void)line;
}

/* As `loong-ckpt import` and `diff` do it. */
static void compare_imported(loong_context_t *ctx, const fp8_files_t *a,
                             const fp8_files_t *b)
{
    const fp8_files_t *from[2] = {a, b};
    char to[2][300];
    bool equal = false;
    for (int i = 0; i < 2; i++) {
        loong_checkpoint_import_params_t p = {0};
        snprintf(to[i], sizeof(to[i]), "%s.native", from[i]->dir);
        assert_ok(ctx, loongi_dir_remove(ctx, to[i]));
        p.hf_dir = from[i]->dir;
        p.save_dir = to[i];
        p.names.map = from[i]->map;
        assert_ok(ctx, loong_checkpoint_import(ctx, &p));
    }
    loong_checkpoint_diff_params_t diff = {.a = to[0], .b = to[1],
                                           .line = ignore_line};
    assert_ok(ctx, loong_checkpoint_diff(ctx, &diff, &equal));
    assert_true(equal);
}

static void find_scale(void *user, const char *line)
{
    *(bool *)user = *(bool *)user || strstr(line, "_scale_inv") != NULL;
}

/* A draft leaves scales to the tensors that they belong to. */
static void draft_has_no_scales(loong_context_t *ctx, const fp8_files_t *f)
{
    bool found = false;
    loong_checkpoint_draft_params_t p = {f->dir, NULL, find_scale, &found,
                                         NULL};
    assert_ok(ctx, loong_checkpoint_draft(ctx, &p));
    assert_false(found);
}

static void refuses(loong_context_t *ctx, fp8_files_t f)
{
    char wanted[600];
    loong_hf_t *hf = NULL;
    f.flaw = FP8_NO_SCALE;
    fp8_written_t w = fp8_write(ctx, &f);
    snprintf(wanted, sizeof(wanted),
             "missing: %s_scale_inv or %s_scale", w.last, w.last);
    assert_fails(ctx, open_dir(ctx, &f, &hf), LOONG_ERR_MISMATCH, wanted);
    f.flaw = FP8_WRONG_SCALE;
    w = fp8_write(ctx, &f);
    snprintf(wanted, sizeof(wanted), "shape: %s_scale_inv is fp32 [", w.last);
    assert_fails(ctx, open_dir(ctx, &f, &hf), LOONG_ERR_MISMATCH, wanted);
}

/* Blocks that divide no size of the fixtures' tensors. */
static void reads_alike(const char *fixture, const char *map,
                        loong_dtype_t dtype)
{
    loong_context_t *ctx = test_context();
    char a[200], b[200];
    const char *named = dtype == LOONG_F32 ? "float32" : "bfloat16";
    char *config = config_of(ctx, fixture, named);
    snprintf(a, sizeof(a), "%s/fp8", dir);
    snprintf(b, sizeof(b), "%s/products", dir);
    fp8_files_t fp8 = {.dir = a, .config = config, .map = map, .fp8 = true,
                       .dtype = dtype, .block = {10, 14},
                       .max_shard_bytes = 3000};
    fp8_files_t products = fp8;
    products.dir = b;
    products.fp8 = false;
    fp8_written_t w = fp8_write(ctx, &products);
    /* The least that a layer has: qkv, o, gate and up, down. */
    const char *layers = strstr(config, "\"num_hidden_layers\": ");
    layers = layers != NULL ? layers : strstr(config, "\"n_layer\": ");
    assert_non_null(layers);
    assert_true(w.scaled >= 4 * strtol(strchr(layers, ':') + 1, NULL, 10));
    print_message("%s%s, %s: %d tensors in blocks\n", fixture,
                  map != NULL ? ", experts stacked" : "", named, w.scaled);
    (void)fp8_write(ctx, &fp8);
    compare_read(ctx, &fp8, &products);
    compare_imported(ctx, &fp8, &products);
    fp8.max_shard_bytes = 1 << 30;
    (void)fp8_write(ctx, &fp8);
    compare_read(ctx, &fp8, &products);
    draft_has_no_scales(ctx, &fp8);
    refuses(ctx, fp8);
    free(config);
    test_context_end(&ctx);
}

static void family(void **state)
{
    const family_case_t *f = *state;
    reads_alike(f->fixture, NULL, LOONG_BF16);
}

static void float32(void **state)
{
    (void)state;
    reads_alike("qwen3_moe", NULL, LOONG_F32);
}

static void stacked(void **state)
{
    (void)state;
    static const char *const fixtures[] = {
        "mixtral",         "qwen2_moe",    "qwen3_moe", "deepseek_v2_lite",
        "deepseek_v3_groups", "ernie4_5_moe", "minimax_m2"};
    char map[200];
    loong_context_t *ctx = test_context();
    snprintf(map, sizeof(map), "%s/stacked.yaml", dir);
    assert_ok(ctx, loongi_file_write(ctx, map, stacked_map,
                                     strlen(stacked_map)));
    for (int64_t i = 0; i < LOONG_COUNT_OF(fixtures); i++) {
        reads_alike(fixtures[i], map, LOONG_BF16);
    }
    test_context_end(&ctx);
}

int main(void)
{
    enum { CASES = LOONG_COUNT_OF(family_cases) };
    struct CMUnitTest tests[CASES + 2];
    const struct CMUnitTest others[] = {cmocka_unit_test(float32),
                                        cmocka_unit_test(stacked)};
    for (int i = 0; i < CASES; i++) {
        struct CMUnitTest test = {family_cases[i].model_type, family, NULL,
                                  NULL, (void *)(uintptr_t)&family_cases[i]};
        tests[i] = test;
    }
    tests[CASES] = others[0];
    tests[CASES + 1] = others[1];
    return _cmocka_run_group_tests("fp8_families", tests, CASES + 2, make_dir,
                                   remove_dir);
}
