/* SPDX-License-Identifier: Apache-2.0
 *
 * Files whose tensors are of several types, as published ones are that keep
 * norms or routers in fp32: nothing is lost on the way in and out. */
#include <stdlib.h>

#include "convert.h"
#include "file.h"
#include "hf_weights.h"
#include "loong/checkpoint.h"
#include "safetensors.h"
#include "test.h"
#include "test_dir.h"

#define FIXTURES LOONG_SOURCE_DIR "/tests/golden/fixtures"

TEST_DIR(dir)

typedef struct copy {
    loong_context_t *ctx;
    const loong_safetensor_t *from[256];
    loong_dtype_t dtype[256];
} copy_t;

static const char *at(const char *name)
{
    static char path[2][300];
    static int turn;
    turn = 1 - turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", dir, name);
    return path[turn];
}

/* Norms and routers wide, biases half, the rest bf16. */
static loong_dtype_t by_name(const char *name)
{
    return strstr(name, "norm") != NULL || strstr(name, "ln_") != NULL ||
                   strstr(name, ".gate.") != NULL ||
                   strstr(name, "e_score") != NULL
               ? LOONG_F32
           : strstr(name, ".bias") != NULL ? LOONG_F16
                                           : LOONG_BF16;
}

static loong_dtype_t one_expert(const char *name)
{
    return strstr(name, ".experts.1.") != NULL ? LOONG_F32 : LOONG_BF16;
}

static loong_status_t give(void *user, int64_t index, int64_t row,
                           int64_t rows, void *buffer, const void **data_p)
{
    const copy_t *c = user;
    const loong_safetensor_t *t = c->from[index];
    int64_t length = loongi_safetensors_row(t->ndim, t->shape);
    (void)data_p;
    return loongi_convert(c->ctx, t->dtype,
                          (const char *)t->data +
                              (size_t)(row * length) *
                                  loong_dtype_size(t->dtype),
                          c->dtype[index], buffer, rows * length);
}

static void write_mixed(loong_context_t *ctx, const char *fixture,
                        loong_dtype_t (*type)(const char *name))
{
    copy_t c;
    char from[512];
    loong_safetensors_set_t *set = NULL;
    loong_safetensors_set_writer_t *out = NULL;
    loong_safetensors_set_params_t params = {at("mixed"), 1 << 30, ""};
    loong_meter_t meter = {NULL, NULL, 0, 0};
    loong_safetensors_source_t source = {give, &c, &meter};
    c.ctx = ctx;
    snprintf(from, sizeof(from), FIXTURES "/%s", fixture);
    assert_ok(ctx, loongi_dir_make(ctx, at("mixed")));
    assert_ok(ctx, loongi_safetensors_set_open(ctx, from, &set));
    assert_ok(ctx, loongi_safetensors_set_create(ctx, &params, &out));
    for (int64_t i = 0; i < loongi_safetensors_set_count(set); i++) {
        const loong_safetensor_t *t = loongi_safetensors_set_get(set, i);
        int64_t handle = 0;
        assert_ok(ctx, loongi_safetensors_set_declare(out, t->name,
                                                      type(t->name), t->ndim,
                                                      t->shape, &handle));
        assert_true(handle < LOONG_COUNT_OF(c.from));
        c.from[handle] = t;
        c.dtype[handle] = type(t->name);
    }
    assert_ok(ctx, loongi_safetensors_set_fill(out, &source));
    assert_ok(ctx, loongi_safetensors_set_commit(out));
    loongi_safetensors_set_destroy(&out);
    loongi_safetensors_set_close(&set);
    snprintf(from, sizeof(from), FIXTURES "/%s/config.json", fixture);
    assert_ok(ctx, loongi_file_copy(ctx, from, at("mixed/config.json")));
}

/* Of tensors in both: their types, unless widened ones are expected, and
 * their values. */
static void compare(loong_context_t *ctx, bool same_types)
{
    loong_safetensors_set_t *mixed = NULL;
    loong_safetensors_set_t *back = NULL;
    assert_ok(ctx, loongi_safetensors_set_open(ctx, at("mixed"), &mixed));
    assert_ok(ctx, loongi_safetensors_set_open(ctx, at("back"), &back));
    assert_int_equal(loongi_safetensors_set_count(mixed),
                     loongi_safetensors_set_count(back));
    for (int64_t i = 0; i < loongi_safetensors_set_count(mixed); i++) {
        const loong_safetensor_t *a = loongi_safetensors_set_get(mixed, i);
        const loong_safetensor_t *b = loongi_safetensors_set_find(back,
                                                                  a->name);
        int64_t count = 1;
        assert_non_null(b);
        for (int d = 0; d < a->ndim; d++) {
            count *= a->shape[d];
        }
        double *x = malloc((size_t)count * 2 * sizeof(*x));
        assert_non_null(x);
        assert_ok(ctx, loongi_convert(ctx, a->dtype, a->data, LOONG_F64, x,
                                      count));
        assert_ok(ctx, loongi_convert(ctx, b->dtype, b->data, LOONG_F64,
                                      x + count, count));
        if ((same_types && a->dtype != b->dtype) ||
            memcmp(x, x + count, (size_t)count * sizeof(*x)) != 0) {
            fail_msg("%s: %s became %s", a->name, loong_dtype_name(a->dtype),
                     loong_dtype_name(b->dtype));
        }
        free(x);
    }
    loongi_safetensors_set_close(&back);
    loongi_safetensors_set_close(&mixed);
}

static void there_and_back(loong_context_t *ctx, const loong_dtype_t *dtype)
{
    loong_checkpoint_import_params_t in = {0};
    loong_checkpoint_export_params_t out = {0};
    char native[300], back[300];
    snprintf(native, sizeof(native), "%s/native", dir);
    snprintf(back, sizeof(back), "%s/back", dir);
    in.hf_dir = at("mixed");
    in.save_dir = native;
    out.checkpoint = native;
    out.out_dir = back;
    out.bos_token_id = out.eos_token_id = out.pad_token_id = -1;
    out.convert = dtype != NULL;
    out.dtype = dtype != NULL ? *dtype : LOONG_F32;
    assert_ok(ctx, loong_checkpoint_import(ctx, &in));
    assert_ok(ctx, loong_checkpoint_export(ctx, &out));
}

static void clean(loong_context_t *ctx)
{
    assert_ok(ctx, loongi_dir_remove(ctx, at("native")));
    assert_ok(ctx, loongi_dir_remove(ctx, at("back")));
    assert_ok(ctx, loongi_dir_remove(ctx, at("mixed")));
}

static void types_stay(void **state)
{
    static const char *const names[] = {"gpt2_untied", "llama_bias_mqa",
                                        "qwen2_moe", "ernie4_5_moe_all",
                                        "minimax_m2_all",
                                        "deepseek_v3_groups"};
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(names); i++) {
        loong_context_t *ctx = test_context();
        write_mixed(ctx, names[i], by_name);
        there_and_back(ctx, NULL);
        compare(ctx, true);
        clean(ctx);
        test_context_end(&ctx);
    }
}

/* All experts are one parameter: of the widest type. */
static void nothing_is_lost(void **state)
{
    loong_context_t *ctx = test_context();
    (void)state;
    write_mixed(ctx, "mixtral_all", one_expert);
    there_and_back(ctx, NULL);
    compare(ctx, false);
    clean(ctx);
    test_context_end(&ctx);
}

/* --dtype bf16 leaves in fp32 what transformers' class keeps there. */
static void routers_stay_wide(void **state)
{
    static const loong_dtype_t narrow = LOONG_BF16;
    loong_context_t *ctx = test_context();
    loong_safetensors_set_t *set = NULL;
    (void)state;
    write_mixed(ctx, "ernie4_5_moe_all", by_name);
    there_and_back(ctx, &narrow);
    assert_ok(ctx, loongi_safetensors_set_open(ctx, at("back"), &set));
    const loong_safetensor_t *t = loongi_safetensors_set_find(
        set, "model.layers.0.mlp.gate.weight");
    assert_true(t != NULL && t->dtype == LOONG_F32);
    t = loongi_safetensors_set_find(set,
                                    "model.layers.0.input_layernorm.weight");
    assert_true(t != NULL && t->dtype == LOONG_BF16);
    loongi_safetensors_set_close(&set);
    clean(ctx);
    test_context_end(&ctx);
}

static loong_dtype_t table_half(const char *name)
{
    return strstr(name, "embed_tokens") != NULL ? LOONG_BF16 : LOONG_F32;
}

static loong_dtype_t table_wide(const char *name)
{
    return strstr(name, "embed_tokens") != NULL ? LOONG_F32 : LOONG_BF16;
}

/* config.json names the type of most weights, not of the first. */
static void config_names_most(void **state)
{
    static const struct {
        loong_dtype_t (*type)(const char *name);
        const char *text;
    } cases[] = {{table_half, "\"torch_dtype\": \"float32\""},
                 {table_wide, "\"torch_dtype\": \"bfloat16\""}};
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_context_t *ctx = test_context();
        char *text = NULL;
        size_t length = 0;
        write_mixed(ctx, "llama_bias_mqa", cases[i].type);
        there_and_back(ctx, NULL);
        compare(ctx, true);
        assert_ok(ctx, loongi_file_read(ctx, at("back/config.json"), &text,
                                        &length));
        assert_non_null(strstr(text, cases[i].text));
        loongi_free(ctx, text);
        clean(ctx);
        test_context_end(&ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(types_stay),
                                       cmocka_unit_test(nothing_is_lost),
                                       cmocka_unit_test(routers_stay_wide),
                                       cmocka_unit_test(config_names_most)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
