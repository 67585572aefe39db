/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of measured algorithms: what was put is found, by several processes
 * at once; damage and foreign files are told and do no harm. */
#include "cublaslt/algorithms.h"

#include <sys/wait.h>
#include <unistd.h>

#include "test_dir.h"

TEST_DIR(dir)

static char path[96];
static char said[4096]; /* warnings */

static void keep(void *user, loong_log_level_t level, const char *line)
{
    size_t length = strlen(said);
    (void)user;
    (void)level;
    snprintf(said + length, sizeof(said) - length, "%s\n", line);
}

static loong_context_t *begin(void)
{
    loong_context_params_t params = {keep, NULL, LOONG_LOG_WARN};
    loong_context_t *ctx = NULL;
    said[0] = '\0';
    assert_int_equal(loong_context_create(&params, &ctx), LOONG_OK);
    return ctx;
}

/* A file of its own for each test. */
static int name_file(void **state)
{
    static int number = 0;
    (void)state;
    snprintf(path, sizeof(path), "%s/file%d", dir, number++);
    return 0;
}

static loong_algorithm_t algorithm_of(uint64_t seed)
{
    loong_algorithm_t a;
    for (int i = 0; i < LOONG_COUNT_OF(a.word); i++) {
        a.word[i] = (seed + 1) * 0x9e3779b97f4a7c15u * (uint64_t)(i + 1);
    }
    return a;
}

static void put(loong_context_t *ctx, const char *key, uint64_t seed)
{
    loong_algorithm_t a = algorithm_of(seed);
    int lock = -1;
    assert_ok(ctx, loongi_algorithms_lock(ctx, path, &lock));
    assert_ok(ctx, loongi_algorithms_put(ctx, path, key, &a));
    loongi_algorithms_unlock(lock);
}

static bool has(loong_context_t *ctx, const char *key, uint64_t seed)
{
    loong_algorithm_t want = algorithm_of(seed);
    loong_algorithm_t a = algorithm_of(~seed);
    bool found = false;
    assert_ok(ctx, loongi_algorithms_find(ctx, path, key, &a, &found));
    if (found) {
        assert_memory_equal(&a, &want, sizeof(a));
    }
    return found;
}

static void test_keys(void **state)
{
    loong_context_t *ctx = begin();
    (void)state;
    assert_false(has(ctx, "a", 1));
    put(ctx, "NVIDIA H200, m 4096", 1);
    put(ctx, "NVIDIA H200, m 4096, epilogue 1", 2);
    assert_true(has(ctx, "NVIDIA H200, m 4096", 1));
    assert_true(has(ctx, "NVIDIA H200, m 4096, epilogue 1", 2));
    assert_false(has(ctx, "NVIDIA H200, m 409", 1));
    put(ctx, "NVIDIA H200, m 4096", 3);
    assert_true(has(ctx, "NVIDIA H200, m 4096", 3));
    assert_true(has(ctx, "NVIDIA H200, m 4096, epilogue 1", 2));
    assert_string_equal(said, "");
    test_context_end(&ctx);
}

static void write_file(loong_context_t *ctx, const char *text, size_t length)
{
    assert_ok(ctx, loongi_file_write(ctx, path, text, length));
}

/* Every byte of the file in turn becomes another one: a key is found as it was
 * put, or not at all. */
static void test_damage(void **state)
{
    loong_context_t *ctx = begin();
    char *text = NULL;
    size_t length = 0;
    (void)state;
    put(ctx, "one", 1);
    put(ctx, "two", 2);
    assert_ok(ctx, loongi_file_read(ctx, path, &text, &length));
    for (size_t i = 0; i < length; i++) {
        text[i] ^= 0x11;
        write_file(ctx, text, length);
        bool one = has(ctx, "one", 1);
        bool two = has(ctx, "two", 2);
        assert_false(one && two);
        text[i] ^= 0x11;
    }
    for (size_t cut = 0; cut < length - 1; cut++) { /* a torn write */
        write_file(ctx, text, cut);
        assert_false(has(ctx, "two", 2));
    }
    assert_string_equal(said, "");
    /* Whoever writes next says so, and leaves the line out. */
    text[length - 2] ^= 0x11;
    write_file(ctx, text, length);
    put(ctx, "three", 3);
    assert_non_null(strstr(said, ":3: damaged"));
    assert_true(has(ctx, "one", 1));
    assert_true(has(ctx, "three", 3));
    said[0] = '\0';
    put(ctx, "two", 2);
    assert_string_equal(said, "");
    loongi_free(ctx, text);
    test_context_end(&ctx);
}

static void test_foreign(void **state)
{
    static const char recipe[] = "version: 1\ndevice: cuda\n";
    loong_context_t *ctx = begin();
    char aside[128];
    char *text = NULL;
    size_t length = 0;
    (void)state;
    write_file(ctx, recipe, sizeof(recipe) - 1);
    assert_false(has(ctx, "version: 1", 1));
    put(ctx, "one", 1);
    assert_true(has(ctx, "one", 1));
    assert_non_null(strstr(said, "is no file of algorithms"));
    snprintf(aside, sizeof(aside), "%s.bad", path);
    assert_non_null(strstr(said, aside));
    assert_ok(ctx, loongi_file_read(ctx, aside, &text, &length));
    assert_string_equal(text, recipe);
    loongi_free(ctx, text);
    test_context_end(&ctx);
}

static void test_refused(void **state)
{
    loong_context_t *ctx = begin();
    int lock = -1;
    (void)state;
    assert_fails(ctx,
                 loongi_algorithms_lock(ctx, "/nowhere/at/all", &lock),
                 LOONG_ERR_IO, "cannot lock '/nowhere/at/all.lock': No such");
    assert_int_equal(lock, -1);
    test_context_end(&ctx);
}

/* Processes that add keys at the same time lose none. */
static void test_processes(void **state)
{
    enum { PROCESSES = 4, KEYS = 8 };
    pid_t child[PROCESSES];
    char key[32];
    (void)state;
    for (int p = 0; p < PROCESSES; p++) {
        child[p] = fork();
        assert_true(child[p] >= 0);
        for (int k = 0; child[p] == 0 && k < KEYS; k++) {
            loong_context_t *ctx = begin();
            snprintf(key, sizeof(key), "process %d, key %d", p, k);
            put(ctx, key, (uint64_t)(p * KEYS + k));
            loong_context_destroy(&ctx);
        }
        if (child[p] == 0) {
            _exit(said[0] == '\0' ? 0 : 1);
        }
    }
    for (int p = 0; p < PROCESSES; p++) {
        int status = 0;
        assert_int_equal(waitpid(child[p], &status, 0), child[p]);
        assert_int_equal(status, 0);
    }
    loong_context_t *ctx = begin();
    for (int i = 0; i < PROCESSES * KEYS; i++) {
        snprintf(key, sizeof(key), "process %d, key %d", i / KEYS, i % KEYS);
        assert_true(has(ctx, key, (uint64_t)i));
    }
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_keys, name_file),
        cmocka_unit_test_setup(test_damage, name_file),
        cmocka_unit_test_setup(test_foreign, name_file),
        cmocka_unit_test_setup(test_refused, name_file),
        cmocka_unit_test_setup(test_processes, name_file),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
