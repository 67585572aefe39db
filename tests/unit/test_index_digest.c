/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of an index: it spares the check of that very file and of no
 * other, and damage is found where it is read. */
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "data_test.h"
#include "index_digest.h"
#include "index_format.h"
#include "loong/dataset_merge.h"

static void write_at(const char *path, const void *bytes, size_t size,
                     int64_t at)
{
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, size, (off_t)at), size);
    close(fd);
}

/* As if it had been checked in the state that it is in now. */
static void pretend_checked(const char *path, loong_index_digest_t *digest)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    digest->size = (uint64_t)info.st_size;
    digest->changed_s = (int64_t)info.st_ctim.tv_sec;
    digest->changed_ns = (int64_t)info.st_ctim.tv_nsec;
}

/* What is known of an index spares its check, and of another file nothing. An
 * entry that is damaged since is named when it is read. */
static void test_known_index(void **state)
{
    (void)state;
    enum { DOCUMENTS = 3000, BAD = 1700 };
    loong_context_t *ctx = test_context();
    char dir[SCRATCH_SIZE];
    char prefix[SCRATCH_SIZE];
    char idx[SCRATCH_SIZE];
    loong_dataset_t *ds = NULL;
    loong_dataset_info_t whole;
    loong_dataset_info_t info;
    uint8_t entry[8];
    scratch_make(dir);
    known_write(ctx, scratch_path(dir, "set", prefix), DOCUMENTS, LOONG_U16,
                false);
    scratch_path(dir, "set.idx", idx);
    assert_ok(ctx, loong_dataset_create(ctx, prefix, &ds));
    loong_dataset_get_info(ds, &whole);
    int64_t start = loong_dataset_get_start(ds, BAD);
    loong_dataset_destroy(&ds);
    assert_ok(ctx, loong_dataset_create_known(ctx, prefix, &whole.index, &ds));
    loong_dataset_get_info(ds, &info);
    assert_true(info.hash == whole.hash && info.tokens == whole.tokens);
    assert_int_equal(loong_dataset_get_start(ds, BAD), start);
    loong_dataset_destroy(&ds);
    /* The offset of one sequence. */
    index_put(entry, 8, (uint64_t)(2 * start + 2));
    write_at(idx, entry, 8, INDEX_HEADER + 4 * DOCUMENTS + 8 * BAD);
    assert_fails(ctx,
                 loong_dataset_create_known(ctx, prefix, &whole.index, &ds),
                 LOONG_ERR_FORMAT, "sequence 1700 begins at byte");
    loong_index_digest_t digest = whole.index;
    pretend_checked(idx, &digest);
    assert_ok(ctx, loong_dataset_create_known(ctx, prefix, &digest, &ds));
    assert_int_equal(loong_dataset_get_start(ds, BAD + 1),
                     start + known_length(BAD));
    assert_int_equal(loong_dataset_get_start(ds, BAD), -1);
    loong_context_clear_error(ctx);
    assert_fails(ctx, loong_dataset_check_index(ds), LOONG_ERR_FORMAT,
                 "sequence 1700 begins at byte");
    assert_int_equal(loong_dataset_get_start(ds, BAD), -1);
    assert_non_null(strstr(loong_context_error(ctx), "set.idx' has changed"));
    assert_non_null(strstr(loong_context_error(ctx), "document 1700 starts"));
    loong_context_clear_error(ctx);
    assert_int_equal(loong_dataset_find_document(ds, start), -1);
    loong_context_clear_error(ctx);
    loong_dataset_destroy(&ds);
    scratch_remove(ctx, dir);
    test_context_end(&ctx);
}

/* A source whose index was damaged since it was checked: a merge refuses it by
 * document, whichever end of one it reads, and leaves nothing. */
static void check_merge(loong_context_t *ctx, const char *dir,
                        const char *prefix, int bad)
{
    char output[SCRATCH_SIZE];
    char text[64];
    int64_t documents = 0;
    int64_t tokens = 0;
    loong_dataset_merge_params_t params = {
        .prefixes = &prefix, .num_prefixes = 1, .end = 1.0};
    params.output = scratch_path(dir, "merged", output);
    snprintf(text, sizeof(text), "document %d starts at sequence", bad);
    assert_fails(ctx, loong_dataset_merge(ctx, &params, &documents, &tokens),
                 LOONG_ERR_FORMAT, text);
    assert_true(documents == 0 && tokens == 0);
    assert_int_not_equal(access(scratch_path(dir, "merged.idx", output), F_OK),
                         0);
    assert_int_not_equal(access(scratch_path(dir, "merged.bin", output), F_OK),
                         0);
}

/* It is written once the index is old enough, read where it is whole and of
 * that very file, and does no harm where it is neither. */
static void test_digest_file(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    char dir[SCRATCH_SIZE];
    char prefix[SCRATCH_SIZE];
    char idx[SCRATCH_SIZE];
    char file[SCRATCH_SIZE];
    loong_dataset_t *ds = NULL;
    loong_index_digest_t kept;
    loong_dataset_info_t info;
    scratch_make(dir);
    known_write(ctx, scratch_path(dir, "set", prefix), 50, LOONG_U16, false);
    scratch_path(dir, "set.idx", idx);
    scratch_path(dir, "set.idx.digest", file);
    for (int old = 0; old < 2; old++) {
        assert_ok(ctx, loong_dataset_create(ctx, prefix, &ds));
        loong_dataset_get_info(ds, &info);
        loong_dataset_destroy(&ds);
        assert_int_equal(access(file, F_OK) == 0, old);
        struct timespec nap = {2, 100000000};
        nanosleep(&nap, NULL);
    }
    assert_true(loongi_digest_read(idx, &kept));
    assert_memory_equal(&kept, &info.index, sizeof(kept));
    /* Damaged behind its back: nobody looks before it is read. */
    loong_index_digest_t digest = info.index;
    write_at(idx, "\x7f", 1, INDEX_HEADER + 4 * 20);
    pretend_checked(idx, &digest);
    loongi_digest_write(idx, &digest); /* too young: the old one stays */
    assert_fails(ctx, loong_dataset_create(ctx, prefix, &ds), LOONG_ERR_FORMAT,
                 "sequence 21 begins at byte");
    digest.changed_s -= 10;
    loongi_digest_write(idx, &digest); /* of another file */
    assert_fails(ctx, loong_dataset_create(ctx, prefix, &ds), LOONG_ERR_FORMAT,
                 "sequence 21 begins at byte");
    assert_true(loongi_digest_read(idx, &kept));
    struct timespec nap = {2, 100000000};
    nanosleep(&nap, NULL);
    pretend_checked(idx, &digest);
    loongi_digest_write(idx, &digest);
    check_merge(ctx, dir, prefix, 20);
    write_at(file, "2", 1, 15); /* of its size */
    assert_false(loongi_digest_read(idx, &kept));
    scratch_remove(ctx, dir);
    test_context_end(&ctx);
}

/* The most documents that begin within `window` tokens in a row. */
static int64_t count_starts(int64_t documents, int64_t window)
{
    int64_t most = 0;
    for (int64_t d = 0; d < documents; d++) {
        int64_t count = 0;
        int64_t token = 0; /* from the first of document d on */
        for (int64_t e = d; e < documents && token < window; e++) {
            token += known_length(e);
            count++;
        }
        most = LOONG_MAX(most, count);
    }
    return most;
}

/* How many documents have a part in some tokens: of the next power of two. */
static void test_most_documents(void **state)
{
    (void)state;
    enum { DOCUMENTS = 3000 };
    static const int64_t sizes[][2] = {{1, 256},      {300, 512},
                                       {1024, 1024},  {4096, 4096},
                                       {4097, 8192},  {1 << 20, 1 << 20},
                                       {3 << 19, 2 << 20}};
    loong_context_t *ctx = test_context();
    char dir[SCRATCH_SIZE];
    char prefix[SCRATCH_SIZE];
    loong_dataset_t *ds = NULL;
    scratch_make(dir);
    known_write(ctx, scratch_path(dir, "set", prefix), DOCUMENTS, LOONG_U16,
                false);
    assert_ok(ctx, loong_dataset_create(ctx, prefix, &ds));
    for (int i = 0; i < LOONG_COUNT_OF(sizes); i++) {
        int64_t window = LOONG_MIN(sizes[i][1], 1 << 20);
        int64_t most = 1 + sizes[i][1] / window *
                               count_starts(DOCUMENTS, window);
        assert_int_equal(loong_dataset_most_documents(ds, sizes[i][0]),
                         LOONG_MIN(sizes[i][0], most));
    }
    loong_dataset_destroy(&ds);
    scratch_remove(ctx, dir);
    test_context_end(&ctx);
}

static int64_t resident_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_int_equal(fscanf(file, "%*d %ld", &pages), 1);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* 3 T tokens in 3 G documents, 60 GB of index, all but its ends a hole: a
 * known one is opened by reading some pages. */
static void test_huge_index(void **state)
{
    (void)state;
    const int64_t documents = INT64_C(3000000000);
    const int64_t tokens = INT64_C(3000000000000);
    loong_context_t *ctx = test_context();
    char dir[SCRATCH_SIZE];
    char prefix[SCRATCH_SIZE];
    char path[SCRATCH_SIZE];
    uint8_t head[INDEX_HEADER] = INDEX_MAGIC;
    uint8_t entry[8];
    loong_dataset_t *ds = NULL;
    loong_dataset_info_t info;
    loong_index_digest_t digest = {.tokens = tokens, .hash = 7};
    scratch_make(dir);
    scratch_path(dir, "set", prefix);
    known_write(ctx, prefix, 1, LOONG_U16, false);
    scratch_path(dir, "set.bin", path);
    if (truncate(path, 2 * tokens) != 0) {
        print_message("no files of 6 TB here\n");
        scratch_remove(ctx, dir);
        test_context_end(&ctx);
        skip();
    }
    scratch_path(dir, "set.idx", path);
    int64_t size = INDEX_HEADER + 12 * documents + 8 * (documents + 1);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(truncate(path, size), 0);
    index_put(head + INDEX_VERSION_AT, 8, INDEX_VERSION);
    head[INDEX_DTYPE_AT] = 8; /* u16 */
    index_put(head + INDEX_SEQUENCES_AT, 8, (uint64_t)documents);
    index_put(head + INDEX_STARTS_AT, 8, (uint64_t)documents + 1);
    write_at(path, head, sizeof(head), 0);
    index_put(entry, 8, 1000);
    write_at(path, entry, 4, INDEX_HEADER + 4 * (documents - 1));
    index_put(entry, 8, (uint64_t)(2 * (tokens - 1000)));
    write_at(path, entry, 8, INDEX_HEADER + 12 * documents - 8);
    index_put(entry, 8, (uint64_t)documents);
    write_at(path, entry, 8, size - 8);
    pretend_checked(path, &digest);
    int64_t before = resident_kib();
    double seconds = INFINITY; /* the least: a busy machine faults slowly */
    for (int i = 0; i < 3; i++) {
        loong_dataset_destroy(&ds);
        clock_t begin = clock(); /* of this process alone */
        assert_ok(ctx, loong_dataset_create_known(ctx, prefix, &digest, &ds));
        seconds = fmin(seconds, (double)(clock() - begin) / CLOCKS_PER_SEC);
    }
    int64_t resident = resident_kib() - before;
    print_message("opened in %.4f s of a processor, %lld KiB resident\n",
                  seconds, (long long)resident);
    loong_dataset_get_info(ds, &info);
    assert_int_equal(info.tokens, tokens);
    assert_int_equal(info.documents, documents);
    assert_true(seconds < 0.5);
    assert_in_range(resident, 0, 16 << 10);
    loong_dataset_destroy(&ds);
    scratch_remove(ctx, dir);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_index),
        cmocka_unit_test(test_digest_file),
        cmocka_unit_test(test_most_documents),
        cmocka_unit_test(test_huge_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
