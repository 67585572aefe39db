/* SPDX-License-Identifier: Apache-2.0
 *
 * Indexed data sets: what is written is read back in every type; no damaged
 * file is accepted. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "data_test.h"

static const loong_dtype_t integer_types[] = {LOONG_U8,  LOONG_I8,  LOONG_U16,
                                              LOONG_I16, LOONG_I32, LOONG_I64};

static void check_known(loong_context_t *ctx, const char *prefix,
                        int64_t documents, loong_dtype_t dtype)
{
    loong_dataset_t *ds = NULL;
    loong_dataset_info_t info;
    assert_ok(ctx, loong_dataset_create(ctx, prefix, &ds));
    loong_dataset_get_info(ds, &info);
    assert_int_equal(info.dtype, dtype);
    assert_int_equal(info.documents, documents);
    assert_int_equal(info.sequences, documents);
    int64_t token = 0;
    for (int64_t d = 0; d < documents; d++) {
        assert_int_equal(loong_dataset_get_start(ds, d), token);
        for (int64_t i = 0; i < known_length(d); i++, token++) {
            int32_t id = -1;
            uint8_t mask = 9;
            assert_int_equal(loong_dataset_find_document(ds, token), d);
            assert_ok(ctx, loong_dataset_read(ds, token, 1, 1000, &id));
            assert_int_equal(id, known_id(token) %
                                     (dtype == LOONG_I8 ? 128 : 1000) %
                                     (dtype == LOONG_U8 ? 256 : 1000));
            assert_ok(ctx, loong_dataset_read_mask(ds, token, 1, &mask));
            assert_int_equal(mask, info.has_mask ? known_mask(token) : 1);
        }
    }
    assert_int_equal(info.tokens, token);
    assert_int_equal(loong_dataset_get_start(ds, documents), token);
    loong_dataset_destroy(&ds);
}

static void test_round_trip(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    char dir[SCRATCH_SIZE];
    char prefix[SCRATCH_SIZE];
    scratch_make(dir);
    scratch_path(dir, "set", prefix);
    for (int i = 0; i < LOONG_COUNT_OF(integer_types); i++) {
        known_write(ctx, prefix, 50, integer_types[i], i % 2 == 1);
        check_known(ctx, prefix, 50, integer_types[i]);
    }
    known_write(ctx, prefix, 0, LOONG_U16, false);
    check_known(ctx, prefix, 0, LOONG_U16);
    scratch_remove(ctx, dir);
    test_context_end(&ctx);
}

/* The bytes of a small index, spelled out. */
static void test_layout(void **state)
{
    (void)state;
    static const uint8_t idx[] = {
        'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0,          /* magic */
        1,   0,   0,   0,   0,   0,   0,   0,             /* version */
        8,                                                /* u16 */
        3,   0,   0,   0,   0,   0,   0,   0,             /* sequences */
        3,   0,   0,   0,   0,   0,   0,   0,             /* document starts */
        2,   0,   0,   0,   1,   0,   0,   0, 0, 0, 0, 0, /* lengths */
        0,   0,   0,   0,   0,   0,   0,   0,             /* offsets */
        4,   0,   0,   0,   0,   0,   0,   0,             /* */
        6,   0,   0,   0,   0,   0,   0,   0,             /* */
        0,   0,   0,   0,   0,   0,   0,   0,             /* document starts */
        2,   0,   0,   0,   0,   0,   0,   0,             /* */
        3,   0,   0,   0,   0,   0,   0,   0};
    static const uint8_t bin[] = {1, 0, 0, 1, 255, 255};
    static const int32_t ids[] = {1, 256, 65535};
    loong_context_t *ctx = test_context();
    char dir[SCRATCH_SIZE];
    char path[SCRATCH_SIZE];
    char *text = NULL;
    size_t length = 0;
    loong_dataset_writer_t *w = NULL;
    scratch_make(dir);
    loong_dataset_writer_params_t params = {scratch_path(dir, "a", path),
                                            LOONG_U16, false};
    assert_ok(ctx, loong_dataset_writer_create(ctx, &params, &w));
    assert_ok(ctx, loong_dataset_writer_add(w, ids, NULL, 2));
    assert_ok(ctx, loong_dataset_writer_add(w, ids + 2, NULL, 1));
    assert_ok(ctx, loong_dataset_writer_end_document(w));
    assert_ok(ctx, loong_dataset_writer_add(w, ids, NULL, 0));
    assert_ok(ctx, loong_dataset_writer_end_document(w));
    assert_ok(ctx, loong_dataset_writer_commit(w));
    loong_dataset_writer_destroy(&w);
    assert_ok(ctx, loongi_file_read(ctx, scratch_path(dir, "a.idx", path),
                                    &text, &length));
    assert_int_equal(length, sizeof(idx));
    assert_memory_equal(text, idx, sizeof(idx));
    loongi_free(ctx, text);
    assert_ok(ctx, loongi_file_read(ctx, scratch_path(dir, "a.bin", path),
                                    &text, &length));
    assert_int_equal(length, sizeof(bin));
    assert_memory_equal(text, bin, sizeof(bin));
    loongi_free(ctx, text);
    scratch_remove(ctx, dir);
    test_context_end(&ctx);
}

typedef struct damage {
    size_t at;
    uint8_t value;
    loong_status_t status;
    const char *message;
} damage_t;

/* A two-document u16 set of lengths 3 and 2 with one byte changed. */
static void test_damaged_index(void **state)
{
    (void)state;
    static const damage_t damages[] = {
        {0, 'X', LOONG_ERR_FORMAT, "does not begin with MMIDIDX"},
        {9, 2, LOONG_ERR_FORMAT, "has version 2, supported is 1"},
        {17, 0, LOONG_ERR_FORMAT, "type code 0, known are 1 to 8"},
        {17, 9, LOONG_ERR_FORMAT, "type code 9"},
        {17, 4, LOONG_ERR_FORMAT, "begins at byte 6, the sequences before"},
        {18, 3, LOONG_ERR_FORMAT, "do not hold the 3 sequences"},
        {25, 255, LOONG_ERR_FORMAT, "is truncated"},
        {33, 255, LOONG_ERR_FORMAT, "is truncated"},
        {26, 2, LOONG_ERR_FORMAT, "8 bytes after its last table"},
        {37, 128, LOONG_ERR_FORMAT, "sequence 0 has length -2147483645"},
        {34, 4, LOONG_ERR_FORMAT, "sequence 1 begins at byte 6"},
        {38, 3, LOONG_ERR_FORMAT, "has 10 bytes, its index promises 12"},
        {50, 2, LOONG_ERR_FORMAT, "sequence 1 begins at byte 2"},
        {58, 1, LOONG_ERR_FORMAT, "first document starts at sequence 1"},
        {66, 9, LOONG_ERR_FORMAT, "document 1 starts at sequence 9"},
        {74, 1, LOONG_ERR_FORMAT, "documents end at sequence 1"},
        {81, 128, LOONG_ERR_FORMAT, "document 2 starts at sequence -"},
    };
    static const int32_t ids[] = {1, 2, 3, 4, 5};
    loong_context_t *ctx = test_context();
    char dir[SCRATCH_SIZE];
    char prefix[SCRATCH_SIZE];
    char path[SCRATCH_SIZE];
    char *text = NULL;
    size_t length = 0;
    loong_dataset_t *ds = NULL;
    loong_dataset_writer_t *w = NULL;
    scratch_make(dir);
    scratch_path(dir, "set", prefix);
    scratch_path(dir, "set.idx", path);
    loong_dataset_writer_params_t params = {prefix, LOONG_U16, false};
    assert_ok(ctx, loong_dataset_writer_create(ctx, &params, &w));
    assert_ok(ctx, loong_dataset_writer_add(w, ids, NULL, 3));
    assert_ok(ctx, loong_dataset_writer_end_document(w));
    assert_ok(ctx, loong_dataset_writer_add(w, ids + 3, NULL, 2));
    assert_ok(ctx, loong_dataset_writer_end_document(w));
    assert_ok(ctx, loong_dataset_writer_commit(w));
    loong_dataset_writer_destroy(&w);
    assert_ok(ctx, loongi_file_read(ctx, path, &text, &length));
    assert_int_equal(length, 82);
    for (int i = 0; i < LOONG_COUNT_OF(damages); i++) {
        char kept = text[damages[i].at];
        text[damages[i].at] = (char)damages[i].value;
        assert_ok(ctx, loongi_file_write(ctx, path, text, length));
        assert_fails(ctx, loong_dataset_create(ctx, prefix, &ds),
                     damages[i].status, damages[i].message);
        text[damages[i].at] = kept;
    }
    assert_ok(ctx, loongi_file_write(ctx, path, text, length));
    assert_ok(ctx, loong_dataset_create(ctx, prefix, &ds));
    loong_dataset_destroy(&ds);
    loongi_free(ctx, text);
    scratch_remove(ctx, dir);
    test_context_end(&ctx);
}

/* Every length of .idx, .bin and .mask.bin but the right one is refused. */
static void test_every_truncation(void **state)
{
    (void)state;
    static const char *const names[] = {"set.idx", "set.bin", "set.mask.bin"};
    loong_context_t *ctx = test_context();
    char dir[SCRATCH_SIZE];
    char prefix[SCRATCH_SIZE];
    char path[SCRATCH_SIZE];
    char *text = NULL;
    size_t length = 0;
    loong_dataset_t *ds = NULL;
    scratch_make(dir);
    scratch_path(dir, "set", prefix);
    known_write(ctx, prefix, 9, LOONG_I32, true);
    for (int f = 0; f < LOONG_COUNT_OF(names); f++) {
        scratch_path(dir, names[f], path);
        assert_ok(ctx, loongi_file_read(ctx, path, &text, &length));
        for (size_t n = 0; n < length; n++) {
            assert_ok(ctx, loongi_file_write(ctx, path, text, n));
            assert_fails(ctx, loong_dataset_create(ctx, prefix, &ds),
                         LOONG_ERR_FORMAT, names[f]);
        }
        assert_ok(ctx, loongi_file_write(ctx, path, text, length));
        assert_int_equal(truncate(path, (off_t)length + 1), 0);
        assert_fails(ctx, loong_dataset_create(ctx, prefix, &ds),
                     LOONG_ERR_FORMAT, names[f]);
        assert_int_equal(truncate(path, (off_t)length), 0);
        loongi_free(ctx, text);
    }
    check_known(ctx, prefix, 9, LOONG_I32);
    assert_int_equal(unlink(scratch_path(dir, "set.bin", path)), 0);
    assert_fails(ctx, loong_dataset_create(ctx, prefix, &ds),
                 LOONG_ERR_NOT_FOUND, "set.bin");
    assert_int_equal(mkdir(path, 0777), 0);
    assert_fails(ctx, loong_dataset_create(ctx, prefix, &ds), LOONG_ERR_IO,
                 "set.bin");
    assert_fails(ctx, loong_dataset_create(ctx, "nowhere/x", &ds),
                 LOONG_ERR_NOT_FOUND, "nowhere/x.idx");
    scratch_remove(ctx, dir);
    test_context_end(&ctx);
}

static void test_values(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    char dir[SCRATCH_SIZE];
    char prefix[SCRATCH_SIZE];
    int32_t ids[8];
    loong_dataset_t *ds = NULL;
    scratch_make(dir);
    scratch_path(dir, "set", prefix);
    known_write(ctx, prefix, 9, LOONG_I64, true);
    assert_ok(ctx, loong_dataset_create(ctx, prefix, &ds));
    assert_ok(ctx, loong_dataset_read(ds, 0, 4, 1000, ids));
    int32_t most = 0;
    int at = 0;
    for (int i = 3; i >= 0; i--) {
        most = ids[i] >= most ? ids[i] : most;
        at = ids[i] == most ? i : at;
    }
    char message[128];
    snprintf(message, sizeof(message),
             "(token %d): value %d, allowed is 0 to %d", at, most, most - 1);
    assert_fails(ctx, loong_dataset_read(ds, 0, 4, most, ids), LOONG_ERR_FORMAT,
                 message);
    loong_dataset_info_t info;
    loong_dataset_get_info(ds, &info);
    assert_fails(ctx, loong_dataset_read(ds, info.tokens - 1, 2, 1000, ids),
                 LOONG_ERR_ARG, "which has");
    assert_fails(ctx, loong_dataset_read(ds, -1, 2, 1000, ids), LOONG_ERR_ARG,
                 "which has");
    loong_dataset_destroy(&ds);
    scratch_remove(ctx, dir);
    test_context_end(&ctx);
}

static void test_mask_values(void **state)
{
    (void)state;
    uint8_t mask[8] = {0};
    loong_context_t *ctx = test_context();
    char dir[SCRATCH_SIZE];
    char prefix[SCRATCH_SIZE];
    char path[SCRATCH_SIZE];
    char *text = NULL;
    size_t length = 0;
    loong_dataset_t *ds = NULL;
    scratch_make(dir);
    scratch_path(dir, "set", prefix);
    known_write(ctx, prefix, 9, LOONG_I64, true);
    scratch_path(dir, "set.mask.bin", path);
    assert_ok(ctx, loongi_file_read(ctx, path, &text, &length));
    text[5] = 2;
    assert_ok(ctx, loongi_file_write(ctx, path, text, length));
    loongi_free(ctx, text);
    assert_ok(ctx, loong_dataset_create(ctx, prefix, &ds));
    assert_fails(ctx, loong_dataset_read_mask(ds, 0, 8, mask), LOONG_ERR_FORMAT,
                 "value 2, allowed is 0 to 1");
    loong_dataset_destroy(&ds);
    scratch_remove(ctx, dir);
    test_context_end(&ctx);
}

/* The bytes of a set of 64-bit ids, read as doubles. */
static void test_floating_point_ids(void **state)
{
    (void)state;
    int32_t ids[8];
    loong_context_t *ctx = test_context();
    char dir[SCRATCH_SIZE];
    char prefix[SCRATCH_SIZE];
    char path[SCRATCH_SIZE];
    char *text = NULL;
    size_t length = 0;
    loong_dataset_t *ds = NULL;
    scratch_make(dir);
    scratch_path(dir, "set", prefix);
    known_write(ctx, prefix, 9, LOONG_I64, true);
    scratch_path(dir, "set.bin", path);
    assert_ok(ctx, loongi_file_read(ctx, path, &text, &length));
    double values[] = {7.0, 999.0, 1.5};
    memcpy(text, values, sizeof(values));
    assert_ok(ctx, loongi_file_write(ctx, path, text, length));
    loongi_free(ctx, text);
    scratch_path(dir, "set.idx", path);
    assert_ok(ctx, loongi_file_read(ctx, path, &text, &length));
    text[17] = 6;
    assert_ok(ctx, loongi_file_write(ctx, path, text, length));
    loongi_free(ctx, text);
    assert_ok(ctx, loong_dataset_create(ctx, prefix, &ds));
    assert_ok(ctx, loong_dataset_read(ds, 0, 2, 1000, ids));
    assert_int_equal(ids[0], 7);
    assert_int_equal(ids[1], 999);
    assert_fails(ctx, loong_dataset_read(ds, 0, 3, 1000, ids), LOONG_ERR_FORMAT,
                 "position 1 (token 2): value 1.5");
    loong_dataset_destroy(&ds);
    scratch_remove(ctx, dir);
    test_context_end(&ctx);
}

static void test_writer_refuses(void **state)
{
    (void)state;
    static const int32_t ids[] = {1, 65536, -1};
    static const uint8_t mask[] = {1, 3};
    loong_context_t *ctx = test_context();
    char dir[SCRATCH_SIZE];
    char prefix[SCRATCH_SIZE];
    char path[SCRATCH_SIZE];
    loong_dataset_writer_t *w = NULL;
    loong_dataset_writer_t *second = NULL;
    scratch_make(dir);
    loong_dataset_writer_params_t params = {scratch_path(dir, "set", prefix),
                                            LOONG_F32, true};
    assert_fails(ctx, loong_dataset_writer_create(ctx, &params, &w),
                 LOONG_ERR_ARG, "fp32");
    params.dtype = LOONG_U16;
    assert_ok(ctx, loong_dataset_writer_create(ctx, &params, &w));
    assert_fails(ctx, loong_dataset_writer_create(ctx, &params, &second),
                 LOONG_ERR_IO, "being written by another");
    assert_fails(ctx, loong_dataset_writer_add(w, ids, NULL, 1), LOONG_ERR_ARG,
                 "mask missing");
    assert_fails(ctx, loong_dataset_writer_add(w, ids, mask, 2), LOONG_ERR_ARG,
                 "position 1: id 65536, uint16 holds 0 to 65535");
    assert_fails(ctx, loong_dataset_writer_add(w, ids + 2, mask, 1),
                 LOONG_ERR_ARG, "id -1");
    assert_fails(ctx, loong_dataset_writer_add(w, ids, mask + 1, 1),
                 LOONG_ERR_ARG, "mask value 3");
    assert_ok(ctx, loong_dataset_writer_add(w, ids, mask, 1));
    assert_fails(ctx, loong_dataset_writer_commit(w), LOONG_ERR_ARG,
                 "has not been ended");
    loong_dataset_writer_destroy(&w);
    assert_false(loongi_file_exists(scratch_path(dir, "set.bin", path)));
    assert_false(loongi_file_exists(scratch_path(dir, "set.bin.tmp", path)));
    params.prefix = "nowhere/set";
    assert_fails(ctx, loong_dataset_writer_create(ctx, &params, &w),
                 LOONG_ERR_IO, "nowhere/set.bin.tmp");
    params.prefix = prefix;
    for (uint64_t n = 1; n <= 8; n++) { /* each allocation in turn */
        loong_context_fail_alloc(ctx, n);
        assert_int_equal(loong_dataset_writer_create(ctx, &params, &w),
                         LOONG_ERR_MEMORY);
    }
    loong_context_fail_alloc(ctx, 0);
    scratch_remove(ctx, dir);
    test_context_end(&ctx);
}

/* The system refuses to store more: while streaming, and at the commit. The
 * old data set stays whole, nothing temporary is left. */
static void test_full_disk(void **state)
{
    (void)state;
    static const int64_t fitting[] = {2048, 5000}; /* sequences of 64 x 4 */
    loong_context_t *ctx = test_context();
    char dir[SCRATCH_SIZE];
    char prefix[SCRATCH_SIZE];
    char path[SCRATCH_SIZE];
    int32_t ids[64] = {0};
    struct rlimit limit;
    scratch_make(dir);
    known_write(ctx, scratch_path(dir, "set", prefix), 5, LOONG_I32, false);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int i = 0; i < LOONG_COUNT_OF(fitting); i++) {
        loong_dataset_writer_t *w = NULL;
        loong_dataset_writer_params_t params = {prefix, LOONG_I32, false};
        struct rlimit low = {(rlim_t)((i + 1) * 300000), limit.rlim_max};
        loong_status_t status = LOONG_OK;
        assert_ok(ctx, loong_dataset_writer_create(ctx, &params, &w));
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        for (int64_t n = 0; status == LOONG_OK && n < fitting[i]; n++) {
            status = loong_dataset_writer_add(w, ids, NULL, 64);
        }
        assert_int_equal(status, i == 0 ? LOONG_OK : LOONG_ERR_IO);
        if (i == 0) {
            assert_ok(ctx, loong_dataset_writer_end_document(w));
            status = loong_dataset_writer_commit(w);
        }
        loong_dataset_writer_destroy(&w);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        assert_int_equal(status, LOONG_ERR_IO);
        assert_non_null(
            strstr(loong_context_error(ctx), "set.bin.tmp': File too large"));
        loong_context_clear_error(ctx);
        assert_false(
            loongi_file_exists(scratch_path(dir, "set.bin.tmp", path)));
        check_known(ctx, prefix, 5, LOONG_I32);
    }
    scratch_remove(ctx, dir);
    test_context_end(&ctx);
}

/* Several 10^5 documents: opening validates all of them, look-ups are fast. */
static void test_many_documents(void **state)
{
    (void)state;
    enum { DOCUMENTS = 300000 };
    loong_context_t *ctx = test_context();
    char dir[SCRATCH_SIZE];
    char prefix[SCRATCH_SIZE];
    loong_dataset_t *ds = NULL;
    loong_dataset_info_t info;
    scratch_make(dir);
    known_write(ctx, scratch_path(dir, "set", prefix), DOCUMENTS, LOONG_U16,
                false);
    assert_ok(ctx, loong_dataset_create(ctx, prefix, &ds));
    loong_dataset_get_info(ds, &info);
    assert_int_equal(info.documents, DOCUMENTS);
    int64_t token = 0;
    for (int64_t d = 0; d < DOCUMENTS; d++) {
        int64_t n = known_length(d);
        assert_int_equal(loong_dataset_get_start(ds, d), token);
        if (n > 0) {
            assert_int_equal(loong_dataset_find_document(ds, token), d);
            assert_int_equal(loong_dataset_find_document(ds, token + n - 1), d);
        }
        token += n;
    }
    assert_int_equal(token, info.tokens);
    loong_dataset_destroy(&ds);
    scratch_remove(ctx, dir);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_damaged_index),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_mask_values),
        cmocka_unit_test(test_floating_point_ids),
        cmocka_unit_test(test_writer_refuses),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_many_documents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
