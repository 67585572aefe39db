/* SPDX-License-Identifier: Apache-2.0
 *
 * The save directory of native checkpoints: which steps are kept, and that a
 * killed or failed save leaves the one before. */
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "file.h"
#include "native_case.h"
#include "test.h"
#include "test_dir.h"

TEST_DIR(dir)

static void same_step_is_replaced(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    native_save_ok(in_dir("same"), 7, 3, false);
    native_save_ok(in_dir("same"), 7, 2, true);
    native_check(ctx, in_dir("same"), 7);
    assert_false(
        loongi_file_exists(in_dir("same/step_00000007/rank_00002.h5")));
    test_context_end(&ctx);
}

static void last_ones_are_kept(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    native_job_t job = {0};
    job.dir = in_dir("keep");
    job.keep_last = 2;
    int64_t steps[] = {10, 20, 30, 15}; /* 15: a run begun again from 10 */
    assert_ok(ctx, loongi_dir_make(ctx, in_dir("keep/.tmp_step_00000005/x")));
    for (int i = 0; i < 4; i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s", in_dir("keep"));
        job.dir = path;
        job.step = steps[i];
        assert_int_equal(native_save(&job, 2), LOONG_OK);
        usleep(20000); /* distinct times */
    }
    assert_true(loongi_dir_exists(in_dir("keep/step_00000015")));
    assert_true(loongi_dir_exists(in_dir("keep/step_00000030")));
    assert_int_equal(native_count_entries(in_dir("keep")), 3); /* and latest */
    native_check(ctx, in_dir("keep"), 15);
    test_context_end(&ctx);
}

/* A process that saves step after step is killed at any moment: there always
 * is a complete latest checkpoint, and the next save cleans up. */
static void kill_leaves_the_previous(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    char save[64];
    snprintf(save, sizeof(save), "%s/kill", dir);
    native_save_ok(save, 0, 1, false);
    for (int round = 0; round < 25; round++) {
        pid_t child = fork();
        if (child == 0) {
            for (int64_t step = 1;; step++) {
                native_job_t job = {0};
                job.dir = save;
                job.step = step % 4; /* replaces older ones too */
                job.keep_last = 2;
                job.async = step % 2 == 0;
                if (native_save(&job, 1) != LOONG_OK) {
                    _exit(1);
                }
            }
        }
        usleep(3000 + 7919 * (round * 5 % 17));
        kill(child, SIGKILL);
        int code = 0;
        waitpid(child, &code, 0);
        assert_true(WIFSIGNALED(code)); /* no save failed */
        loong_checkpoint_t *checkpoint = NULL;
        assert_ok(ctx, loongi_checkpoint_open(ctx, save, &checkpoint));
        int64_t step = loongi_checkpoint_step(checkpoint);
        loongi_checkpoint_close(&checkpoint);
        native_check(ctx, save, step);
    }
    native_save_ok(save, 100, 1, false);
    native_check(ctx, save, 100);
    test_context_end(&ctx);
}

/* A limit on file sizes stands for the disk; with the right to mount, a real
 * full disk does. */
static void full_disk_is_clean(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    struct rlimit old, small;
    native_job_t job = {0};
    char save[64];
    int failures = 0;
    snprintf(save, sizeof(save), "%s/full", dir);
    native_save_ok(save, 1, 1, false);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    for (rlim_t limit = 512; limit <= 65536; limit += 4096) {
        small = old;
        small.rlim_cur = limit;
        job = (native_job_t){0};
        job.dir = save;
        job.step = 2;
        job.async = limit % 8192 == 512;
        setrlimit(RLIMIT_FSIZE, &small);
        loong_status_t status = native_save(&job, 2);
        setrlimit(RLIMIT_FSIZE, &old);
        if (status == LOONG_OK) { /* the largest file fits */
            break;
        }
        failures++;
        assert_int_equal(status, LOONG_ERR_IO);
        assert_non_null(strstr(job.error, "cannot save step 2 to"));
        assert_int_equal(native_count_entries(save), 2); /* step_..1, latest */
        native_check(ctx, save, 1);
    }
    assert_true(failures >= 5);
    native_save_ok(save, 2, 2, true); /* with space again all is well */
    native_check(ctx, save, 2);
    test_context_end(&ctx);
}

static void full_tmpfs_is_clean(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof(path), "%s/tmpfs", dir);
    mkdir(path, 0777);
    if (mount("tmpfs", path, "tmpfs", 0, "size=256k") != 0) {
        skip(); /* no right to mount */
    }
    loong_context_t *ctx = test_context();
    loong_status_t status = LOONG_OK;
    native_job_t job = {0};
    int64_t step = 0;
    while (status == LOONG_OK && step < 100) {
        job = (native_job_t){0};
        job.dir = path;
        job.step = ++step;
        status = native_save(&job, 1);
    }
    loong_checkpoint_t *checkpoint = NULL;
    loong_status_t opened = loongi_checkpoint_open(ctx, path, &checkpoint);
    loong_status_t verified = LOONG_ERR_IO;
    int64_t latest = -1;
    if (opened == LOONG_OK) {
        latest = loongi_checkpoint_step(checkpoint);
        verified = loongi_checkpoint_verify(checkpoint, 0, 1);
        loongi_checkpoint_close(&checkpoint);
    }
    int entries = native_count_entries(path);
    umount2(path, MNT_DETACH); /* before anything is asserted */
    assert_int_equal(status, LOONG_ERR_IO);
    assert_non_null(strstr(job.error, "No space left on device"));
    assert_true(step > 1);
    assert_int_equal(latest, step - 1);
    assert_int_equal(verified, LOONG_OK);
    assert_int_equal(entries, step); /* the steps before, and latest */
    test_context_end(&ctx);
}

/* The n-th allocation fails, for every n: an error, no leak, no crash, and
 * the checkpoint of before stays. */
static void memory_runs_out(void **state)
{
    (void)state;
    loong_status_t status = LOONG_ERR_MEMORY;
    float value = 3;
    for (uint64_t n = 1; status != LOONG_OK; n++) {
        loong_context_t *ctx = test_context();
        loong_checkpoint_save_params_t params = {0};
        loong_checkpoint_save_t *save = NULL;
        loong_checkpoint_t *checkpoint = NULL;
        loong_checkpoint_piece_t piece = {0};
        params.dir = in_dir("memory");
        params.step = 1;
        piece.kind = "param";
        piece.name = "a";
        piece.dtype = LOONG_F32;
        piece.data = &value;
        loong_context_fail_alloc(ctx, n);
        status = loongi_checkpoint_save_begin(ctx, &params, &save);
        if (status == LOONG_OK) {
            status = loongi_checkpoint_save_add(save, &piece);
        }
        if (status == LOONG_OK) {
            status = loongi_checkpoint_save_start(save);
        }
        if (status == LOONG_OK) {
            status = loongi_checkpoint_save_commit(save);
        }
        loongi_checkpoint_save_destroy(&save);
        if (status == LOONG_OK) {
            status = loongi_checkpoint_open(ctx, params.dir, &checkpoint);
        }
        loongi_checkpoint_close(&checkpoint);
        test_context_end(&ctx);
        assert_true(n < 100000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_step_is_replaced),
        cmocka_unit_test(last_ones_are_kept),
        cmocka_unit_test(kill_leaves_the_previous),
        cmocka_unit_test(full_disk_is_clean),
        cmocka_unit_test(full_tmpfs_is_clean),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
