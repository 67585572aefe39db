/* SPDX-License-Identifier: Apache-2.0
 *
 * Asynchronous saves: the training thread does nothing that waits for a disk,
 * from begin to the checkpoint that is whole, and a disk that fails at any
 * moment leaves a whole checkpoint. The linker sends the library's calls of
 * the functions below through wrappers (checkpoint.cmake). */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "native.h"
#include "test.h"

static struct {
    pthread_t training;
    char names[256];  /* what the training thread called */
    atomic_int count; /* of calls of any thread */
    int fails;        /* the call with this number does; 0: none */
    bool all;         /* and all calls after it */
} disk;

/* True when the call is to fail. */
static bool call(const char *name)
{
    int n = atomic_fetch_add(&disk.count, 1) + 1;
    if (pthread_equal(pthread_self(), disk.training)) {
        size_t used = strlen(disk.names);
        snprintf(disk.names + used, sizeof(disk.names) - used, " %s", name);
    }
    errno = EIO;
    return disk.fails > 0 && (n == disk.fails || (disk.all && n > disk.fails));
}

/* X(type, name, parameters, arguments, failure); a call of fsync is enough to
 * be seen, disks need not be waited for. */
#define WRAPPED(X)                                                            \
    X(ssize_t, pwrite, (int fd, const void *p, size_t n, off_t at),           \
      (fd, p, n, at), -1)                                                     \
    X(int, posix_fallocate, (int fd, off_t at, off_t n), (fd, at, n), EIO)    \
    X(int, rename, (const char *from, const char *to), (from, to), -1)        \
    X(int, unlink, (const char *path), (path), -1)                            \
    X(int, rmdir, (const char *path), (path), -1)
#define WRAP(type_, name_, parameters_, arguments_, failure_)                 \
    type_ __real_##name_ parameters_;                                         \
    type_ __wrap_##name_ parameters_;                                         \
    type_ __wrap_##name_ parameters_                                          \
    {                                                                         \
        return call(#name_) ? failure_ : __real_##name_ arguments_;           \
    }
WRAPPED(WRAP)
#undef WRAP

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    (void)fd;
    return call("fsync") ? -1 : 0;
}

static void watch(int fails, bool all)
{
    disk.training = pthread_self();
    disk.names[0] = '\0';
    atomic_store(&disk.count, 0);
    disk.fails = fails;
    disk.all = all;
}

/* ---- a save -------------------------------------------------------------- */

enum { ROWS = 64, COLS = 1000 };

static float values[ROWS * COLS];

static loong_status_t begin(loong_context_t *ctx, const char *dir,
                            int64_t step, bool async,
                            loong_checkpoint_save_t **save_p)
{
    loong_checkpoint_save_params_t params = {0};
    loong_checkpoint_piece_t piece = {0};
    loong_checkpoint_save_t *save = NULL;
    params.dir = dir;
    params.step = step;
    params.async = async;
    params.keep_last = 1;
    LOONG_TRY(loongi_checkpoint_save_begin(ctx, &params, &save));
    for (int i = 0; i < ROWS * COLS; i++) {
        values[i] = (float)(step * 1000000 + i);
    }
    piece.kind = "param";
    piece.name = "a";
    piece.dtype = LOONG_F32;
    piece.ndim = 2;
    piece.shape[0] = piece.count[0] = ROWS;
    piece.shape[1] = piece.count[1] = COLS;
    piece.data = values;
    loong_status_t status = loongi_checkpoint_save_add(save, &piece);
    if (status == LOONG_OK) {
        status = loongi_checkpoint_save_start(save);
    }
    if (status != LOONG_OK) {
        loongi_checkpoint_save_destroy(&save);
        return status;
    }
    *save_p = save;
    return LOONG_OK;
}

static loong_status_t save_step(loong_context_t *ctx, const char *dir,
                                int64_t step, bool async)
{
    loong_checkpoint_save_t *save = NULL;
    LOONG_TRY(begin(ctx, dir, step, async, &save));
    loong_status_t status = loongi_checkpoint_save_commit(save);
    loongi_checkpoint_save_destroy(&save);
    return status;
}

/* The newest checkpoint of dir: its step; all of it is as it was saved. */
static int64_t newest(loong_context_t *ctx, const char *dir)
{
    static float read[ROWS * COLS];
    loong_checkpoint_t *ck = NULL;
    assert_ok(ctx, loongi_checkpoint_open(ctx, dir, &ck));
    assert_ok(ctx, loongi_checkpoint_verify(ck, 0, 1));
    int64_t step = loongi_checkpoint_step(ck);
    const loong_checkpoint_tensor_t *a =
        loongi_checkpoint_find(ck, "param", "a");
    assert_non_null(a);
    assert_ok(ctx, loongi_checkpoint_read_rows(ck, a, 0, ROWS, LOONG_F32,
                                               read));
    for (int i = 0; i < ROWS * COLS; i++) {
        assert_true(read[i] == (float)(step * 1000000 + i));
    }
    loongi_checkpoint_close(&ck);
    return step;
}

static void make_place(char dir[64])
{
    strcpy(dir, "/tmp/loong_async_XXXXXX");
    assert_non_null(mkdtemp(dir));
}

static void wait_ready(loong_checkpoint_save_t *save)
{
    for (int i = 0; i < 30000 && !loongi_checkpoint_save_ready(save); i++) {
        usleep(1000);
    }
    assert_true(loongi_checkpoint_save_ready(save));
}

/* ---- tests --------------------------------------------------------------- */

/* Two saves, so that the first is removed by the second. */
static void training_waits_for_no_disk(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    char dir[64];
    make_place(dir);
    for (int64_t step = 1; step <= 2; step++) {
        loong_checkpoint_save_t *save = NULL;
        bool whole = true;
        watch(0, false);
        assert_ok(ctx, begin(ctx, dir, step, true, &save));
        (void)loongi_checkpoint_save_wait(save);
        wait_ready(save);
        assert_true(loongi_checkpoint_save_bytes(save) > 4 * ROWS * COLS);
        double written = loongi_checkpoint_save_seconds(save);
        assert_ok(ctx, loongi_checkpoint_save_advance(save, &whole));
        assert_false(whole);
        wait_ready(save);
        assert_ok(ctx, loongi_checkpoint_save_advance(save, &whole));
        assert_true(whole);
        assert_true(loongi_checkpoint_save_seconds(save) > written);
        assert_fails(ctx, loongi_checkpoint_save_advance(save, &whole),
                     LOONG_ERR_ARG, "not started, or is over");
        loongi_checkpoint_save_destroy(&save);
        assert_string_equal(disk.names, "");
        assert_true(atomic_load(&disk.count) > 10); /* the wrappers work */
        assert_int_equal(newest(ctx, dir), step);
    }
    /* Done here, the same is seen. */
    watch(0, false);
    assert_ok(ctx, save_step(ctx, dir, 3, false));
    assert_non_null(strstr(disk.names, " fsync"));
    assert_non_null(strstr(disk.names, " rename"));
    assert_non_null(strstr(disk.names, " unlink"));
    watch(0, false);
    assert_ok(ctx, loongi_dir_remove(ctx, dir));
    test_context_end(&ctx);
}

/* A save that is given up half-way joins its thread. */
static void abandoned(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    char dir[64];
    make_place(dir);
    watch(0, false);
    assert_ok(ctx, save_step(ctx, dir, 1, true));
    for (int stages = 0; stages < 2; stages++) {
        loong_checkpoint_save_t *save = NULL;
        bool whole = false;
        assert_ok(ctx, begin(ctx, dir, 2 + stages, true, &save));
        if (stages == 1) {
            assert_ok(ctx, loongi_checkpoint_save_advance(save, &whole));
        }
        loongi_checkpoint_save_destroy(&save);
        (void)newest(ctx, dir);
    }
    assert_ok(ctx, loongi_dir_remove(ctx, dir));
    test_context_end(&ctx);
}

/* The n-th call fails, for every n, alone or with all that follow: an error
 * or a whole checkpoint, and always one that loads. */
static void disks_fail(bool async, bool all)
{
    loong_context_t *ctx = test_context();
    char dir[64];
    int failed = 0;
    bool more = true;
    make_place(dir);
    watch(0, false);
    assert_ok(ctx, save_step(ctx, dir, 1, async));
    for (int n = 1; more; n++) {
        watch(n, all);
        loong_status_t status = save_step(ctx, dir, n + 1, async);
        more = atomic_load(&disk.count) >= n;
        watch(0, false);
        int64_t step = newest(ctx, dir);
        if (status == LOONG_OK) {
            assert_int_equal(step, n + 1);
        } else {
            assert_int_equal(status, LOONG_ERR_IO);
            assert_non_null(strstr(loong_context_error(ctx),
                                   "Input/output error"));
            assert_true(step <= n + 1);
            failed++;
        }
        loong_context_clear_error(ctx);
        assert_true(n < 1000);
    }
    assert_true(failed > 8);
    assert_ok(ctx, loongi_dir_remove(ctx, dir));
    test_context_end(&ctx);
}

static void one_call_fails(void **state)
{
    (void)state;
    disks_fail(false, false);
    disks_fail(true, false);
}

static void the_disk_is_gone(void **state)
{
    (void)state;
    disks_fail(false, true);
    disks_fail(true, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_waits_for_no_disk),
        cmocka_unit_test(abandoned),
        cmocka_unit_test(one_call_fails),
        cmocka_unit_test(the_disk_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
