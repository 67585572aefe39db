/* SPDX-License-Identifier: Apache-2.0
 *
 * Integers that compressed-tensors has packed: a directory of them reads,
 * imports and converts to the bits of one with the products that its own code
 * makes (tests/oracle/packed_integers.py). What is not read, or lacks what
 * stands beside the words, is refused by its name. */
#include "test.h"

#include <string.h>

#include "file.h"
#include "hf_weights.h"
#include "loong/checkpoint.h"
#include "test_dir.h"

#define PACKED LOONG_SOURCE_DIR "/tests/fixtures/packed/"

#define UNREAD LOONG_ERR_UNSUPPORTED
#define WRONG LOONG_ERR_MISMATCH

TEST_DIR(dir)

static void compare(loong_context_t *ctx, const char *a, const char *b,
                    loong_dtype_t dtype)
{
    loong_hf_t *left = NULL, *right = NULL;
    assert_ok(ctx, loongi_hf_open(ctx, a, &left));
    assert_ok(ctx, loongi_hf_open(ctx, b, &right));
    const loong_hf_map_t *map = loongi_hf_get_map(left);
    for (int64_t i = 0; i < loongi_hf_map_count(map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        size_t bytes = (size_t)(p->shape[0] * p->shape[1]) * sizeof(double);
        void *x = calloc(bytes, 1), *y = calloc(bytes, 1);
        int64_t skip = p->shape[0] > 2; /* from the second row on */
        assert_int_equal(loongi_hf_dtype(left, p->name), dtype);
        assert_ok(ctx, loongi_hf_read(left, p->name, skip, p->shape[0] - skip,
                                      LOONG_F64, x));
        assert_ok(ctx, loongi_hf_read(right, p->name, skip, p->shape[0] - skip,
                                      LOONG_F64, y));
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
    (void)user, (void)line;
}

static void products_are_theirs(void **state)
{
    static const struct {
        const char *packed, *products;
        loong_dtype_t dtype;
    } cases[] = {{PACKED "int4/packed", PACKED "int4/products", LOONG_BF16},
                 {PACKED "int8/packed", PACKED "int8/products", LOONG_F32}};
    (void)state;
    loong_context_t *ctx = test_context();
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        const char *to = in_dir(i == 0 ? "four" : "eight");
        bool equal = false;
        compare(ctx, cases[i].packed, cases[i].products, cases[i].dtype);
        loong_checkpoint_convert_params_t convert = {
            .from = cases[i].packed, .to = to, .dtype = cases[i].dtype};
        assert_ok(ctx, loong_checkpoint_convert(ctx, &convert));
        loong_checkpoint_diff_params_t diff = {
            .a = cases[i].products, .b = to, .line = ignore_line};
        assert_ok(ctx, loong_checkpoint_diff(ctx, &diff, &equal));
        assert_true(equal);
    }
    test_context_end(&ctx);
}

/* A copy of int4/packed, in whose config.json or header of weights one text
 * stands for another of its length. */
static const char *copy(loong_context_t *ctx, const char *file,
                        const char *text, const char *by)
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    const char *to = in_dir("changed");
    assert_ok(ctx, loongi_dir_remove(ctx, to));
    assert_ok(ctx, loongi_dir_make(ctx, to));
    for (int i = 0; i < 2; i++) {
        char from[512], target[600];
        char *data = NULL;
        size_t size = 0;
        snprintf(from, sizeof(from), PACKED "int4/packed/%s", files[i]);
        snprintf(target, sizeof(target), "%s/%s", to, files[i]);
        assert_ok(ctx, loongi_file_read(ctx, from, &data, &size));
        if (strcmp(file, files[i]) == 0) {
            size_t length = strlen(text), at = 0;
            while (at + length < size && memcmp(data + at, text, length) != 0) {
                at++;
            }
            assert_true(at + length < size);
            assert_int_equal(length, strlen(by));
            memcpy(data + at, by, length);
        }
        assert_ok(ctx, loongi_file_write(ctx, target, data, size));
        loongi_free(ctx, data);
    }
    return to;
}

static void others_are_refused(void **state)
{
    static const char config[] = "config.json", tensors[] = "model.safetensors";
    static const struct {
        const char *file, *text, *by;
        loong_status_t status;
        const char *wanted;
    } cases[] = {
        {config, "\"num_bits\": 4", "\"num_bits\": 3", UNREAD,
         "num_bits 4 or 8"},
        {config, "\"num_bits\": 4", "\"num_bits\": 8", WRONG,
         "q_proj.weight_shape: missing, or not the rows and columns that "
         "model.layers.0.self_attn.q_proj.weight_packed, integers of 8 bits"},
        {config, "\"group_size\": 16", "\"group_size\": 32", WRONG,
         "32 elements with groups of 32 columns"},
        {config, "\"symmetric\": true", "\"symmetric\":false", UNREAD,
         "symmetric"},
        {config, "\"actorder\": null", "\"actorder\":\"grp\"", UNREAD,
         "actorder"},
        {config, "\"actorder\": null", "\"actorder\": true", UNREAD,
         "actorder"},
        {config, "\"kv_cache_scheme\": null", "\"transform_config\":   1",
         UNREAD, "transform_config"},
        {config, "\"type\": \"int\"", "\"type\": \"flo\"", UNREAD,
         "of type int"},
        {config, "pack-quantized", "pock-quantized", UNREAD,
         "pack-quantized and"},
        {config, "\"quantization_config\"", "\"finetuning_task\"    ", WRONG,
         "of which no quantization_config of config.json says"},
        {tensors, "up_proj.weight_scale", "up_proj.weight_scalf", WRONG,
         "missing: model.layers.0.mlp.up_proj.weight_scale, the scales of"},
        {tensors, "up_proj.weight_shape", "up_proj.weight_shapf", WRONG,
         "up_proj.weight_shape: missing, or not"},
        {tensors, "up_proj.weight_packed", "up_proj.weight_packet", WRONG,
         "missing: model.layers.0.mlp.up_proj.weight"},
        {tensors, "v_proj.weight_shape", "q_proj.weight_g_idx", WRONG,
         "q_proj.weight_g_idx stands beside"}};
    const loong_dtype_t dtype = LOONG_BF16;
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_context_t *ctx = test_context();
        loong_hf_t *hf = NULL;
        const char *changed =
            copy(ctx, cases[i].file, cases[i].text, cases[i].by);
        assert_fails(ctx, loongi_hf_open(ctx, changed, &hf),
                     cases[i].status, cases[i].wanted);
        loong_checkpoint_convert_params_t convert = {
            .from = changed, .to = in_dir("converted"), .dtype = dtype};
        if (loong_checkpoint_convert(ctx, &convert) == LOONG_OK) {
            fail_msg("converted in spite of: %s", cases[i].wanted);
        }
        test_context_end(&ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_are_theirs),
                                       cmocka_unit_test(others_are_refused)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
