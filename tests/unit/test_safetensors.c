/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors: what is written is read back, every malformed header is
 * refused by name, sharded directories. */
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "file.h"
#include "safetensors.h"
#include "memory_source.h"
#include "test.h"
#include "test_dir.h"

TEST_DIR(dir)

/* A file from a header text and a number of data bytes. */
static size_t build(char *bytes, const char *header, size_t data)
{
    size_t length = strlen(header);
    for (int i = 0; i < 8; i++) {
        bytes[i] = (char)(length >> (8 * i) & 0xff);
    }
    memcpy(bytes + 8, header, length);
    memset(bytes + 8 + length, 7, data);
    return 8 + length + data;
}

static const struct {
    const char *header;
    size_t data;
    loong_status_t status;
    const char *text;
} bad_headers[] = {
    {"[]", 0, LOONG_ERR_FORMAT, "does not begin with '{'"},
    {"{\"a\":", 0, LOONG_ERR_FORMAT, "t.safetensors: column 5"},
    {"{\"a\":3}", 0, LOONG_ERR_FORMAT, "tensor 'a' must have exactly"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, LOONG_ERR_FORMAT,
     "tensor 'a' must have exactly"},
    {"{\"a\":{\"dtype\":1,\"shape\":[],\"data_offsets\":[0,4]}}", 4,
     LOONG_ERR_FORMAT, "'a' has no dtype"},
    {"{\"a\":{\"dtype\":\"F8_E5M2\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
     LOONG_ERR_UNSUPPORTED, "'a' has dtype 'F8_E5M2'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4,
     LOONG_ERR_FORMAT, "'a' has a shape that is not"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4,
     LOONG_ERR_FORMAT, "'a' has a shape that is not"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],"
     "\"data_offsets\":[0,0]}}",
     0, LOONG_ERR_FORMAT, "shape of tensor 'a' overflows"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],"
     "\"data_offsets\":[0,1]}}",
     1, LOONG_ERR_UNSUPPORTED, "9 dimensions"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4,
     LOONG_ERR_FORMAT, "'a' has no data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4,
     LOONG_ERR_FORMAT, "'a' is at bytes 4 to 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", 4,
     LOONG_ERR_FORMAT, "holds 4 bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
     LOONG_ERR_FORMAT, "'a' fp32 [2] needs 8 bytes"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]}}",
     5, LOONG_ERR_FORMAT, "'b' begins at byte 3 of the data, leaving"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
     3, LOONG_ERR_FORMAT, "'b' begins at byte 1 of the data, inside"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 3,
     LOONG_ERR_FORMAT, "end at byte 2 of the data, the file has 3"},
    {"{\"__metadata__\":{\"x\":1}}", 0, LOONG_ERR_FORMAT,
     "'x' is not a string"},
    {"{\"\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2,
     LOONG_ERR_FORMAT, "empty name"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
     4, LOONG_ERR_FORMAT, "duplicate"},
};

static void headers_are_checked(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (int64_t i = 0; i < LOONG_COUNT_OF(bad_headers); i++) {
        char bytes[512];
        loong_safetensors_t *file = NULL;
        size_t size = build(bytes, bad_headers[i].header, bad_headers[i].data);
        assert_fails(
            ctx,
            loongi_safetensors_parse(ctx, bytes, size, "t.safetensors", &file),
            bad_headers[i].status, bad_headers[i].text);
    }
    test_context_end(&ctx);
}

static void lengths_are_checked(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_safetensors_t *file = NULL;
    char bytes[128];
    size_t size = build(bytes,
                        "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],"
                        "\"data_offsets\":[0,2]}}  ",
                        2);
    for (size_t cut = 0; cut < size; cut++) { /* every truncation fails */
        assert_int_equal(loongi_safetensors_parse(ctx, bytes, cut, "t", &file),
                         LOONG_ERR_FORMAT);
        loong_context_clear_error(ctx);
    }
    assert_ok(ctx, loongi_safetensors_parse(ctx, bytes, size, "t", &file));
    assert_int_equal(loongi_safetensors_find(file, "a")->bytes, 2);
    assert_null(loongi_safetensors_find(file, "b"));
    loongi_safetensors_close(&file);
    bytes[3] = 6; /* about 100.6 million */
    assert_fails(ctx, loongi_safetensors_parse(ctx, bytes, size, "t", &file),
                 LOONG_ERR_FORMAT, "at most 100000000 are allowed");
    assert_fails(ctx, loongi_safetensors_open(ctx, in_dir("none"), &file),
                 LOONG_ERR_NOT_FOUND, "none");
    test_context_end(&ctx);
}

static void file_round_trip(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_safetensors_writer_t *writer = NULL;
    loong_safetensors_t *file = NULL;
    const char *path = in_dir("round.safetensors");
    int64_t odd[] = {3}, matrix[] = {2, 5}, empty[] = {0, 4};
    int64_t a, b, c, d;
    memory_t source;
    loong_meter_t meter = {NULL, NULL, 0, 0};
    loong_safetensors_source_t from = {from_memory, &source, &meter};
    uint16_t halves[3] = {1, 2, 3};
    double wide[10];
    for (int i = 0; i < 10; i++) {
        wide[i] = i / 7.0;
    }
    assert_ok(ctx, loongi_safetensors_create(ctx, path, &writer));
    assert_ok(ctx, loongi_safetensors_declare(writer, "odd \"\\\n", LOONG_BF16,
                                              1, odd, &a));
    assert_ok(
        ctx, loongi_safetensors_declare(writer, "m", LOONG_F64, 2, matrix, &b));
    assert_ok(ctx, loongi_safetensors_declare(writer, "none", LOONG_F32, 2,
                                              empty, &c));
    assert_ok(ctx, loongi_safetensors_declare(writer, "scalar", LOONG_I32, 0,
                                              NULL, &d));
    source.data[a] = halves;
    source.row_bytes[a] = 2;
    source.data[b] = wide;
    source.row_bytes[b] = 40;
    source.data[d] = &a;
    source.row_bytes[d] = 4;
    assert_fails(ctx, loongi_safetensors_commit(writer), LOONG_ERR_ARG,
                 "was not filled");
    assert_ok(ctx, loongi_safetensors_fill(writer, &from));
    assert_int_equal(meter.done, 6 + 80 + 4);
    assert_fails(ctx, loongi_safetensors_fill(writer, &from), LOONG_ERR_ARG,
                 "filled before");
    assert_false(loongi_file_exists(path));
    assert_ok(ctx, loongi_safetensors_commit(writer));
    loongi_safetensors_destroy(&writer);

    assert_ok(ctx, loongi_safetensors_open(ctx, path, &file));
    assert_int_equal(loongi_safetensors_count(file), 4);
    const loong_safetensor_t *m = loongi_safetensors_find(file, "m");
    assert_int_equal(m->offset, 0); /* wide elements first */
    assert_int_equal(m->ndim, 2);
    assert_int_equal((uintptr_t)m->data % 8, 0);
    assert_memory_equal(m->data, wide, 80);
    assert_memory_equal(loongi_safetensors_find(file, "odd \"\\\n")->data,
                        halves, 6);
    assert_int_equal(loongi_safetensors_find(file, "none")->bytes, 0);
    assert_int_equal(loongi_safetensors_find(file, "scalar")->ndim, 0);
    loongi_safetensors_close(&file);
    test_context_end(&ctx);
}

/* Writes `count` tensors of 100 bytes with the given shard limit. */
static void write_set(loong_context_t *ctx, const char *path, int count,
                      int64_t limit)
{
    loong_safetensors_set_writer_t *writer = NULL;
    loong_safetensors_set_params_t params = {path, limit, ""};
    loong_meter_t meter = {NULL, NULL, 0, 0};
    memory_t source;
    loong_safetensors_source_t from = {from_memory, &source, &meter};
    char bytes[16][100];
    int64_t shape[] = {100}, handle = 0;
    assert_ok(ctx, loongi_safetensors_set_create(ctx, &params, &writer));
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof(name), "t%d", i);
        assert_ok(ctx, loongi_safetensors_set_declare(writer, name, LOONG_U8, 1,
                                                      shape, &handle));
        memset(bytes[i], i, sizeof(bytes[i]));
        source.data[handle] = bytes[i];
        source.row_bytes[handle] = 1;
    }
    assert_ok(ctx, loongi_safetensors_set_fill(writer, &from));
    assert_ok(ctx, loongi_safetensors_set_commit(writer));
    loongi_safetensors_set_destroy(&writer);
}

static void check_set(loong_context_t *ctx, const char *path, int count)
{
    loong_safetensors_set_t *set = NULL;
    assert_ok(ctx, loongi_safetensors_set_open(ctx, path, &set));
    assert_int_equal(loongi_safetensors_set_count(set), count);
    for (int i = 0; i < count; i++) {
        char name[16], bytes[100];
        snprintf(name, sizeof(name), "t%d", i);
        memset(bytes, i, sizeof(bytes));
        const loong_safetensor_t *t = loongi_safetensors_set_find(set, name);
        assert_non_null(t);
        assert_memory_equal(t->data, bytes, 100);
    }
    loongi_safetensors_set_close(&set);
}

static void sets_are_sharded(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    const char *path = in_dir("set");
    write_set(ctx, path, 7, 250); /* 2 + 2 + 2 + 1 */
    assert_true(
        loongi_file_exists(in_dir("set/model-00004-of-00004.safetensors")));
    check_set(ctx, in_dir("set"), 7);
    write_set(ctx, in_dir("set"), 3, 50); /* each larger than the limit */
    assert_false(
        loongi_file_exists(in_dir("set/model-00004-of-00004.safetensors")));
    check_set(ctx, in_dir("set"), 3);
    write_set(ctx, in_dir("set"), 5, 1000);
    assert_true(loongi_file_exists(in_dir("set/model.safetensors")));
    assert_false(
        loongi_file_exists(in_dir("set/model.safetensors.index.json")));
    check_set(ctx, in_dir("set"), 5);
    test_context_end(&ctx);
}

static void index_and_shards_agree(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_safetensors_set_t *set = NULL;
    char bad[128];
    const char *index = "{\"weight_map\":{\"t0\":\"%s\",\"%s\":\"%s\"}}";
    const char *file = "model-00001-of-00002.safetensors";
    static const struct {
        const char *a, *name, *b;
        loong_status_t status;
        const char *text;
    } cases[] = {
        {NULL, "t9", NULL, LOONG_ERR_FORMAT, "'t9' is not in"},
        {"../x", "t1", NULL, LOONG_ERR_FORMAT, "is not a file name"},
        {"gone.safetensors", "t1", NULL, LOONG_ERR_NOT_FOUND, "gone"},
    };
    write_set(ctx, in_dir("bad"), 4, 200);
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        snprintf(bad, sizeof(bad), index, cases[i].a ? cases[i].a : file,
                 cases[i].name, file);
        assert_ok(ctx, loongi_file_write(
                           ctx, in_dir("bad/model.safetensors.index.json"), bad,
                           strlen(bad)));
        assert_fails(ctx, loongi_safetensors_set_open(ctx, in_dir("bad"), &set),
                     cases[i].status, cases[i].text);
    }
    snprintf(bad, sizeof(bad), "{\"weight_map\":{\"t0\":\"%s\"}}", file);
    assert_ok(ctx,
              loongi_file_write(ctx, in_dir("bad/model.safetensors.index.json"),
                                bad, strlen(bad)));
    assert_fails(ctx, loongi_safetensors_set_open(ctx, in_dir("bad"), &set),
                 LOONG_ERR_FORMAT, "'t1' of");
    assert_fails(ctx, loongi_safetensors_set_open(ctx, in_dir("no"), &set),
                 LOONG_ERR_NOT_FOUND,
                 "neither model.safetensors nor model.safetensors.index.json "
                 "(pytorch_model.bin is not read");
    test_context_end(&ctx);
}

static void full_disk_is_an_error(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_safetensors_writer_t *writer = NULL;
    struct rlimit old, small = {4096, 4096};
    static char bytes[8192];
    int64_t shape[] = {8192}, handle;
    memory_t source;
    loong_meter_t meter = {NULL, NULL, 0, 0};
    loong_safetensors_source_t from = {from_memory, &source, &meter};
    const char *path = in_dir("full.safetensors");
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    assert_ok(ctx, loongi_safetensors_create(ctx, path, &writer));
    assert_ok(ctx, loongi_safetensors_declare(writer, "t", LOONG_U8, 1, shape,
                                              &handle));
    memset(bytes, 1, sizeof(bytes));
    source.data[handle] = bytes;
    source.row_bytes[handle] = 1;
    assert_fails(ctx, loongi_safetensors_fill(writer, &from), LOONG_ERR_IO,
                 "full.safetensors");
    loongi_safetensors_destroy(&writer);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_false(loongi_file_exists(path));
    assert_false(loongi_file_exists(in_dir("full.safetensors.tmp")));
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_checked),
        cmocka_unit_test(lengths_are_checked),
        cmocka_unit_test(file_round_trip),
        cmocka_unit_test(sets_are_sharded),
        cmocka_unit_test(index_and_shards_agree),
        cmocka_unit_test(full_disk_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
