/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversion, JSON and files of the base module. */
#include <float.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert.h"
#include "file.h"
#include "json.h"
#include "test.h"

/* Every 16-bit pattern survives widening and narrowing; NaN stays NaN. */
static void halves_round_trip(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float wide = loongi_bf16_to_f32((uint16_t)bits);
        if (isnan(wide)) {
            assert_true(isnan(loongi_bf16_to_f32(loongi_f32_to_bf16(wide))));
            assert_true(isnan(loongi_bf16_to_f32(loongi_f64_to_bf16(wide))));
        } else {
            assert_int_equal(loongi_f32_to_bf16(wide), bits);
            assert_int_equal(loongi_f64_to_bf16(wide), bits);
        }
        wide = loongi_f16_to_f32((uint16_t)bits);
        if (isnan(wide)) {
            assert_true(isnan(loongi_f16_to_f32(loongi_f32_to_f16(wide))));
        } else {
            assert_int_equal(loongi_f32_to_f16(wide), bits);
        }
    }
}

/* Between two neighbours the nearer one is taken, at the middle the even. */
static void narrowing_rounds_to_even(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x7c00; bits++) { /* up to the largest */
        double low = loongi_f16_to_f32((uint16_t)bits);
        double high =
            bits + 1 == 0x7c00 ? 65536.0 : loongi_f16_to_f32(bits + 1);
        double middle = (low + high) / 2;
        uint16_t even = (uint16_t)(bits % 2 == 0 ? bits : bits + 1);
        assert_int_equal(loongi_f64_to_f16(middle), even);
        assert_int_equal(loongi_f64_to_f16(nextafter(middle, 0)), bits);
        assert_int_equal(loongi_f64_to_f16(nextafter(middle, 1e9)), bits + 1);
        assert_int_equal(loongi_f64_to_f16(-middle), even | 0x8000);
    }
    for (uint32_t bits = 0; bits < 0x7f80; bits++) {
        double low = loongi_bf16_to_f32((uint16_t)bits);
        double high =
            bits + 1 == 0x7f80 ? 0x1p128 : loongi_bf16_to_f32(bits + 1);
        double middle = (low + high) / 2;
        uint16_t even = (uint16_t)(bits % 2 == 0 ? bits : bits + 1);
        assert_int_equal(loongi_f64_to_bf16(middle), even);
        assert_int_equal(loongi_f64_to_bf16(nextafter(middle, 0)), bits);
        assert_int_equal(loongi_f32_to_bf16((float)middle), even);
    }
    assert_int_equal(loongi_f64_to_f16(INFINITY), 0x7c00);
    assert_int_equal(loongi_f64_to_bf16(-1e300), 0xff80);
}

static void rows_convert_unaligned(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    enum { N = 1300 };
    char wide[8 * N + 1], half[2 * N + 3], back[8 * N + 1];
    for (int i = 0; i < N; i++) {
        double value = (i - 600) * 0.03125; /* exact in bf16 up to 8 bits */
        value = loongi_bf16_to_f32(loongi_f64_to_bf16(value));
        memcpy(wide + 1 + 8 * i, &value, 8);
    }
    assert_ok(
        ctx, loongi_convert(ctx, LOONG_F64, wide + 1, LOONG_BF16, half + 3, N));
    assert_ok(
        ctx, loongi_convert(ctx, LOONG_BF16, half + 3, LOONG_F64, back + 1, N));
    assert_memory_equal(wide + 1, back + 1, 8 * N);
    assert_fails(ctx, loongi_convert(ctx, LOONG_I64, wide, LOONG_F32, back, 1),
                 LOONG_ERR_UNSUPPORTED, "from int64 to fp32");
    test_context_end(&ctx);
}

/* Python's integers have no limit, its files have them. */
static void json_takes_integers_of_any_size(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    static const struct {
        const char *text;
        loong_json_kind_t kind;
        double value;
    } cases[] = {
        {"9223372036854775807", LOONG_JSON_INT, 9223372036854775807.0},
        {"-9223372036854775808", LOONG_JSON_INT, -9223372036854775808.0},
        {"9223372036854775808", LOONG_JSON_REAL, 9223372036854775808.0},
        {"-9223372036854775809", LOONG_JSON_REAL, -9223372036854775808.0},
        {"1000000000000000019884624838656", LOONG_JSON_REAL, 1e30},
        {"1000000000000000019884624838656.5", LOONG_JSON_REAL, 1e30},
        {"100000000000000001988462483865e1", LOONG_JSON_REAL, 1e30},
        {"1e400", LOONG_JSON_REAL, DBL_MAX}, /* may be unused */
        {"-12.5E+999", LOONG_JSON_REAL, -DBL_MAX},
    };
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        char text[256];
        loong_json_t *json = NULL;
        /* one of them in a string stays what it is */
        snprintf(text, sizeof(text),
                 "{\"q\\\" 99999999999999999999 \":[%s,1],"
                 "\"w\":18446744073709551616}", cases[i].text);
        assert_ok(ctx, loongi_json_parse(ctx, text, strlen(text), "t", &json));
        const loong_json_t *list =
            loongi_json_get(json, "q\" 99999999999999999999 ");
        const loong_json_t *value = loongi_json_at(list, 0);
        assert_int_equal(loongi_json_kind(value), cases[i].kind);
        assert_true(loongi_json_real(value) == cases[i].value);
        assert_int_equal(loongi_json_int(loongi_json_at(list, 1)), 1);
        loongi_json_destroy(&json);
    }
    loong_json_t *json = NULL;
    const char *twice = "{\"a\":99999999999999999999,\n\"a\":2}";
    assert_fails(ctx, loongi_json_parse(ctx, twice, strlen(twice), "d", &json),
                 LOONG_ERR_FORMAT, "d: line 2, column 3: duplicate");
    const char *cut = "[99999999999999999999, 1";
    assert_fails(ctx, loongi_json_parse(ctx, cut, strlen(cut), "d", &json),
                 LOONG_ERR_FORMAT, "d: column");
    const char *wrong[] = {"[1.e999]", "[01e999]", "[+1e999]", "[1e999e]"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(wrong); i++) {
        assert_fails(ctx, loongi_json_parse(ctx, wrong[i], strlen(wrong[i]),
                                            "d", &json),
                     LOONG_ERR_FORMAT, "d: column");
    }
    char digits[512] = "";
    memset(digits, '9', 500);
    assert_ok(ctx, loongi_json_parse(ctx, digits, 500, "d", &json));
    assert_true(loongi_json_real(json) == DBL_MAX);
    loongi_json_destroy(&json);
    test_context_end(&ctx);
}

static void json_reads_and_writes(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_json_t *json = NULL;
    const char *text = "{\"b\":[1,2.5,null],\"a\":{\"x\":true},"
                       "\"s\":\"q\\\"\\u0001\\n\"}";
    assert_ok(ctx, loongi_json_parse(ctx, text, strlen(text), "t", &json));
    const loong_json_member_t *member = loongi_json_first(json);
    assert_string_equal(loongi_json_member_key(member), "b");
    const loong_json_t *list = loongi_json_member_value(member);
    assert_int_equal(loongi_json_count(list), 3);
    assert_int_equal(loongi_json_int(loongi_json_at(list, 0)), 1);
    assert_true(loongi_json_real(loongi_json_at(list, 0)) == 1.0);
    assert_true(loongi_json_real(loongi_json_at(list, 1)) == 2.5);
    assert_null(loongi_json_at(list, 3));
    assert_true(
        loongi_json_bool(loongi_json_get(loongi_json_get(json, "a"), "x")));
    loong_text_t out = loongi_text_begin(ctx);
    loongi_text_json(&out, list);
    loongi_text_json_string(&out,
                            loongi_json_string(loongi_json_get(json, "s")));
    assert_string_equal(loongi_text_get(&out),
                        "[1,2.5,null]\"q\\\"\\u0001\\u000a\"");
    loongi_text_free(&out);
    loongi_json_destroy(&json);
    assert_fails(
        ctx, loongi_json_parse(ctx, "{\"a\":1,\"a\":2}", 13, "d.json", &json),
        LOONG_ERR_FORMAT, "d.json: column 10");
    test_context_end(&ctx);
}

static void files_are_whole(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    char dir[] = "/tmp/loong_file_XXXXXX";
    char path[64], deep[64];
    char *text = NULL;
    size_t length = 0;
    assert_non_null(mkdtemp(dir));
    snprintf(deep, sizeof(deep), "%s/a/b/", dir);
    assert_ok(ctx, loongi_dir_make(ctx, deep));
    snprintf(path, sizeof(path), "%s/a/b/f", dir);
    assert_ok(ctx, loongi_file_write(ctx, path, "hello", 5));
    assert_ok(ctx, loongi_file_write(ctx, path, "world!", 6));
    assert_ok(ctx, loongi_file_read(ctx, path, &text, &length));
    assert_int_equal(length, 6);
    assert_string_equal(text, "world!");
    loongi_free(ctx, text);
    assert_fails(ctx, loongi_file_read(ctx, deep, &text, &length), LOONG_ERR_IO,
                 "not a regular file");
    assert_fails(ctx, loongi_dir_make(ctx, path), LOONG_ERR_CANNOT_WRITE,
                 "is not a directory");
    assert_ok(ctx, loongi_dir_remove(ctx, dir));
    assert_false(loongi_dir_exists(dir));
    assert_ok(ctx, loongi_dir_remove(ctx, dir));
    assert_fails(ctx, loongi_file_read(ctx, path, &text, &length),
                 LOONG_ERR_NOT_FOUND, path);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_round_trip),
        cmocka_unit_test(narrowing_rounds_to_even),
        cmocka_unit_test(rows_convert_unaligned),
        cmocka_unit_test(json_reads_and_writes),
        cmocka_unit_test(json_takes_integers_of_any_size),
        cmocka_unit_test(files_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
