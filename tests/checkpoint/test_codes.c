/* SPDX-License-Identifier: Apache-2.0
 *
 * bitsandbytes' codes (tests/golden/qlora.py): those that are made here of the
 * same bf16 are its bytes, and files of codes read as the numbers that they
 * stand for. Files with something else beside their codes are refused. */
#include "test.h"

#include "hf_quantize.h"
#include "hf_weights.h"
#include "quant.h"
#include "test_dir.h"

#define QLORA LOONG_SOURCE_DIR "/tests/golden/qlora/"

static const char *const matrices[] = {
    "layers.0.self_attn.q_proj.weight", "layers.0.self_attn.k_proj.weight",
    "layers.1.self_attn.o_proj.weight", "layers.0.mlp.up_proj.weight",
    "layers.1.mlp.down_proj.weight"};

/* Of the columns from `begin` on. */
static uint8_t *codes_of(loong_context_t *ctx, const loong_hf_t *hf,
                         const char *name, loong_quant_t quant, int64_t begin,
                         int64_t *bytes_p)
{
    const loong_hf_param_t *p = loongi_hf_map_find(loongi_hf_get_map(hf), name);
    int64_t count = p->shape[1] - begin;
    loong_hf_quantizer_t *q = NULL;
    *bytes_p = p->shape[0] * loongi_quant_row_bytes(quant, count);
    uint8_t *bytes = calloc((size_t)*bytes_p, 1);
    assert_ok(ctx, loongi_hf_quantizer_create(hf, name, quant, &q));
    assert_ok(ctx,
              loongi_hf_quantizer_read(q, 0, p->shape[0], begin, count, bytes));
    loongi_hf_quantizer_destroy(&q);
    return bytes;
}

static void compare(loong_context_t *ctx, const loong_hf_t *plain,
                    const loong_hf_t *theirs, const char *name,
                    loong_quant_t quant)
{
    int64_t size[2];
    int64_t begin = strstr(name, "down_proj") != NULL ? 64 : 0;
    uint8_t *made = codes_of(ctx, plain, name, quant, begin, &size[0]);
    uint8_t *read = codes_of(ctx, theirs, name, quant, begin, &size[1]);
    int64_t row = loongi_quant_row_bytes(quant, 64);
    assert_int_equal(size[0], size[1]);
    for (int64_t i = 0; i < size[0]; i++) {
        /* Of double quantisation the 8 bits: the processor's version looks the
         * nearest number up in a table, and is beside it at times. */
        bool coarse = quant == LOONG_QUANT_NF4_DOUBLE && i % row == 32;
        if (coarse ? abs(made[i] - read[i]) > 2 : made[i] != read[i]) {
            fail_msg("%s as %s, byte %d: %d, wanted %d", name,
                     loongi_quant_name(quant), (int)i, made[i], read[i]);
        }
    }
    free(made);
    free(read);
}

/* The columns are 64 or, of the last matrix, the second 64. */
static void codes_are_those_of_bitsandbytes(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_hf_t *plain = NULL;
    assert_ok(ctx, loongi_hf_open(ctx, QLORA "plain", &plain));
    for (int k = LOONG_QUANT_NF4; k < LOONG_QUANT_COUNT; k++) {
        loong_quant_t quant = (loong_quant_t)k;
        loong_hf_t *theirs = NULL;
        char dir[400];
        snprintf(dir, sizeof(dir), QLORA "%s", loongi_quant_name(quant));
        assert_ok(ctx, loongi_hf_open(ctx, dir, &theirs));
        for (int i = 0; i < LOONG_COUNT_OF(matrices); i++) {
            compare(ctx, plain, theirs, matrices[i], quant);
        }
        loongi_hf_close(&theirs);
    }
    loongi_hf_close(&plain);
    test_context_end(&ctx);
}

/* As numbers: any run of them, in the type that config.json names. */
static void codes_are_read_as_numbers(void **state)
{
    (void)state;
    enum { COLS = 64, ROWS = 64 };
    loong_context_t *ctx = test_context();
    for (int k = LOONG_QUANT_NF4; k < LOONG_QUANT_COUNT; k++) {
        loong_hf_t *hf = NULL;
        char dir[400];
        int64_t size = 0;
        double all[ROWS * COLS];
        double want[ROWS * COLS];
        float few[3 * COLS];
        snprintf(dir, sizeof(dir), QLORA "%s",
                 loongi_quant_name((loong_quant_t)k));
        assert_ok(ctx, loongi_hf_open(ctx, dir, &hf));
        assert_int_equal(loongi_hf_dtype(hf, matrices[0]), LOONG_BF16);
        uint8_t *bytes =
            codes_of(ctx, hf, matrices[0], (loong_quant_t)k, 0, &size);
        loong_quant_part_t part = {
            (loong_quant_t)k, bytes, size / ROWS, COLS, 0, ROWS, 0, COLS};
        loongi_quant_decode(&part, LOONG_F64, want, COLS, 1);
        assert_ok(ctx,
                  loongi_hf_read(hf, matrices[0], 0, ROWS, LOONG_F64, all));
        assert_memory_equal(all, want, sizeof(all));
        assert_ok(ctx, loongi_hf_read(hf, matrices[0], 5, 3, LOONG_F32, few));
        for (int i = 0; i < 3 * COLS; i++) {
            assert_true((double)few[i] == want[5 * COLS + i]);
        }
        free(bytes);
        loongi_hf_close(&hf);
    }
    test_context_end(&ctx);
}

TEST_DIR(dir)

/* Writes a directory like nf4_double whose header has `to` for `from`. */
static void changed(loong_context_t *ctx, const char *from, const char *to)
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    for (int i = 0; i < 2; i++) {
        char path[400];
        char *text = NULL;
        size_t size = 0;
        snprintf(path, sizeof(path), QLORA "nf4_double/%s", files[i]);
        assert_ok(ctx, loongi_file_read(ctx, path, &text, &size));
        size_t at = 0;
        while (i == 1 && at + strlen(from) < size &&
               memcmp(text + at, from, strlen(from)) != 0) {
            at++;
        }
        if (i == 1) {
            assert_true(at + strlen(from) < size);
            memcpy(text + at, to, strlen(to));
        }
        snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
        assert_ok(ctx, loongi_file_write(ctx, path, text, size));
        loongi_free(ctx, text);
    }
}

static void what_is_not_read_is_refused(void **state)
{
    (void)state;
    static const char *const changes[][3] = {
        {"\"blocksize\": 64", "\"blocksize\": 32", "blocksize 32; 64 is read"},
        {"\"nested_blocksize\": 256", "\"nested_blocksize\": 128",
         "nested_blocksize 128; 256 is read"},
        {"k_proj.weight.absmax", "k_proj.weight.absmux",
         "missing: .absmax beside the codes of"},
        {"v_proj.weight.nested_absmax", "v_proj.weight.nested_abs_ax",
         "missing: .nested_absmax beside the codes of"},
    };
    loong_context_t *ctx = test_context();
    loong_hf_t *hf = NULL;
    loong_hf_quantizer_t *q = NULL;
    for (int i = 0; i < LOONG_COUNT_OF(changes); i++) {
        changed(ctx, changes[i][0], changes[i][1]);
        assert_fails(ctx, loongi_hf_open(ctx, dir, &hf),
                     i < 2 ? LOONG_ERR_UNSUPPORTED : LOONG_ERR_MISMATCH,
                     changes[i][2]);
    }
    assert_ok(ctx, loongi_hf_open(ctx, QLORA "int8", &hf));
    assert_fails(
        ctx, loongi_hf_quantizer_create(hf, matrices[0], LOONG_QUANT_NF4, &q),
        LOONG_ERR_MISMATCH, "is quantised as int8, and is asked for as nf4");
    loongi_hf_close(&hf);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_those_of_bitsandbytes),
        cmocka_unit_test(codes_are_read_as_numbers),
        cmocka_unit_test_setup_teardown(what_is_not_read_is_refused, make_dir,
                                        remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
