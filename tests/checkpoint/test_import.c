/* SPDX-License-Identifier: Apache-2.0
 *
 * An import that was killed is gone on with: what was whole stays, the result
 * is that of one that was not, and nothing of another import is taken. */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loong/checkpoint.h"
#include "loong/version.h"
#include "native_dir.h"
#include "native_layout.h"
#include "native_save.h"
#include "native_write.h"
#include "test.h"
#include "test_dir.h"
#include "workdir.h"

#define FIXTURES LOONG_SOURCE_DIR "/tests/golden/fixtures"

TEST_DIR(dir)

/* Files of the import, so that there are some. */
#define FILE_BYTES 30000

typedef struct job {
    const char *from, *to;
    bool killed; /* as soon as the first file is whole and named */
} job_t;

static void die(void *user, int64_t done, int64_t total)
{
    char list[400];
    const job_t *job = user;
    snprintf(list, sizeof(list), "%s/" LOONG_TMP_PREFIX LOONG_STEP_FORMAT "/"
             LOONG_LIST_FORMAT, job->to, 0LL, 0);
    if (done < total && access(list, R_OK) == 0) {
        (void)raise(SIGKILL);
    }
}

/* In a process of its own. */
static void run(const job_t *job)
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        loong_context_t *ctx = NULL;
        loong_checkpoint_import_params_t in = {0};
        in.hf_dir = job->from;
        in.save_dir = job->to;
        in.max_file_bytes = FILE_BYTES;
        in.progress = job->killed ? die : NULL;
        in.user = (void *)(uintptr_t)job;
        bool good = loong_context_create(NULL, &ctx) == LOONG_OK &&
                    loong_checkpoint_import(ctx, &in) == LOONG_OK;
        if (!good) {
            fprintf(stderr, "%s\n", loong_context_error(ctx));
        }
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (job->killed) {
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    } else {
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

/* The n-th file: of the import, or still hidden. */
static struct stat file_of(const char *to, bool hidden, int n)
{
    struct stat info = {0};
    char path[500];
    snprintf(path, sizeof(path), "%s/%s" LOONG_STEP_FORMAT "/"
             LOONG_RANK_FORMAT, to, hidden ? LOONG_TMP_PREFIX : "", 0LL, n);
    if (stat(path, &info) != 0) {
        fail_msg("%s is not there", path);
    }
    return info;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static loong_layout_t *layout_of(loong_context_t *ctx, const char *to)
{
    loong_layout_t *layout = NULL;
    loong_pairs_t *metadata = NULL;
    char path[500];
    int64_t step = 0;
    snprintf(path, sizeof(path), "%s/" LOONG_STEP_FORMAT "/" LOONG_MANIFEST,
             to, 0LL);
    assert_ok(ctx, loongi_pairs_create(ctx, &metadata));
    assert_ok(ctx, loongi_layout_create(ctx, &layout));
    assert_ok(ctx, loongi_layout_read(layout, path, &step, metadata));
    assert_ok(ctx, loongi_layout_check(layout, 0, 1, path));
    loongi_pairs_destroy(&metadata);
    return layout;
}

static char *bytes_of(loong_context_t *ctx, const char *to,
                      const loong_layout_t *layout,
                      const loong_layout_piece_t *p, size_t *length_p)
{
    char path[500];
    size_t length = 0;
    char *file = NULL;
    snprintf(path, sizeof(path), "%s/" LOONG_STEP_FORMAT "/%s", to, 0LL,
             layout->files[p->file].name);
    assert_ok(ctx, loongi_file_read(ctx, path, &file, &length));
    *length_p = (size_t)loongi_shape_count(p->tensor.ndim, p->count) *
                loong_dtype_size(p->tensor.dtype);
    assert_true((size_t)p->offset + *length_p <= length);
    memmove(file, file + p->offset, *length_p);
    return file;
}

static void same_piece(loong_context_t *ctx, const char *const dirs[2],
                       loong_layout_t *const layouts[2],
                       const loong_layout_piece_t *p,
                       const loong_layout_piece_t *q)
{
    size_t length[2];
    char *mine = bytes_of(ctx, dirs[0], layouts[0], p, &length[0]);
    char *theirs = bytes_of(ctx, dirs[1], layouts[1], q, &length[1]);
    assert_string_equal(p->dataset, q->dataset);
    assert_int_equal(p->tensor.dtype, q->tensor.dtype);
    assert_int_equal(p->file, q->file);
    assert_int_equal(length[0], length[1]);
    if (memcmp(mine, theirs, length[0]) != 0) {
        fail_msg("%s is another one in %s and %s", p->dataset, dirs[0],
                 dirs[1]);
    }
    loongi_free(ctx, theirs);
    loongi_free(ctx, mine);
}

/* The same pieces in the same files, bit for bit: HDF5 itself notes seconds.
 * Returns how many files hold weights. */
static int64_t same_bits(loong_context_t *ctx, const char *a, const char *b)
{
    const char *dirs[2] = {a, b};
    loong_layout_t *layouts[2] = {layout_of(ctx, a), layout_of(ctx, b)};
    int64_t files = 0;
    assert_int_equal(layouts[0]->tensor_count, layouts[1]->tensor_count);
    for (int64_t t = 0; t < layouts[0]->tensor_count; t++) {
        const loong_layout_tensor_t *x = &layouts[0]->tensors[t];
        const loong_layout_tensor_t *y = &layouts[1]->tensors[t];
        assert_int_equal(x->count, y->count);
        for (int64_t i = 0; i < x->count; i++) {
            same_piece(ctx, dirs, layouts, &x->pieces[i], &y->pieces[i]);
            files = LOONG_MAX(files, x->pieces[i].file + 1);
        }
    }
    loongi_layout_destroy(&layouts[1]);
    loongi_layout_destroy(&layouts[0]);
    return files;
}

static void a_killed_one_is_gone_on_with(void **state)
{
    static const char *const made[] = {"whole", "killed", NULL};
    loong_context_t *ctx = test_context();
    const char *from = FIXTURES "/qwen3_gqa_tied";
    job_t whole = {from, in_dir("whole"), false};
    job_t killed = {from, in_dir("killed"), true};
    (void)state;
    run(&whole);
    run(&killed);
    assert_false(loongi_file_exists(in_dir("killed/" LOONG_LATEST)));
    struct stat before = file_of(killed.to, true, 0);
    killed.killed = false;
    run(&killed);
    struct stat after = file_of(killed.to, false, 0);
    assert_true(same_file(&before, &after));
    assert_true(same_bits(ctx, whole.to, killed.to) >= 4);
    remove_all(ctx, made);
    test_context_end(&ctx);
}

/* Another one may put the files together in another way. */
static void another_version_begins_anew(void **state)
{
    static const char *const made[] = {"killed", NULL};
    loong_context_t *ctx = test_context();
    job_t job = {FIXTURES "/qwen3_gqa_tied", in_dir("killed"), true};
    char path[500];
    char *key = NULL;
    size_t length = 0;
    (void)state;
    run(&job);
    struct stat before = file_of(job.to, true, 0);
    snprintf(path, sizeof(path),
             "%s/" LOONG_TMP_PREFIX LOONG_STEP_FORMAT "/" LOONG_WORKDIR_KEY,
             job.to, 0LL);
    assert_ok(ctx, loongi_file_read(ctx, path, &key, &length));
    char *version = strstr(key, loong_version());
    assert_non_null(version);
    version[0] = '?';
    assert_ok(ctx, loongi_file_write(ctx, path, key, length));
    loongi_free(ctx, key);
    job.killed = false;
    run(&job);
    struct stat after = file_of(job.to, false, 0);
    assert_false(same_file(&before, &after));
    remove_all(ctx, made);
    test_context_end(&ctx);
}

/* Another value in every tensor, and the same sizes. */
static void change_source(loong_context_t *ctx)
{
    char *bytes = NULL;
    size_t length = 0;
    uint64_t header = 0;
    const char *path = in_dir("source/model.safetensors");
    assert_ok(ctx, loongi_file_read(ctx, path, &bytes, &length));
    memcpy(&header, bytes, sizeof(header));
    for (size_t at = sizeof(header) + header; at < length; at += 64) {
        bytes[at] ^= 1;
    }
    assert_ok(ctx, loongi_file_write(ctx, path, bytes, length));
    loongi_free(ctx, bytes);
}

static void another_source_is_another_import(void **state)
{
    static const char *const made[] = {"source", "whole", "killed", NULL};
    loong_context_t *ctx = test_context();
    job_t killed = {in_dir("source"), in_dir("killed"), true};
    job_t whole = {killed.from, in_dir("whole"), false};
    (void)state;
    assert_ok(ctx, loongi_dir_make(ctx, in_dir("source")));
    assert_ok(ctx,
              loongi_file_copy(ctx, FIXTURES "/qwen3_gqa_tied/config.json",
                               in_dir("source/config.json")));
    assert_ok(ctx, loongi_file_copy(
                       ctx, FIXTURES "/qwen3_gqa_tied/model.safetensors",
                       in_dir("source/model.safetensors")));
    run(&killed);
    struct stat before = file_of(killed.to, true, 0);
    change_source(ctx);
    killed.killed = false;
    run(&killed);
    struct stat after = file_of(killed.to, false, 0);
    assert_false(same_file(&before, &after));
    assert_int_equal(before.st_size, after.st_size);
    run(&whole);
    assert_true(same_bits(ctx, whole.to, killed.to) >= 4);
    remove_all(ctx, made);
    test_context_end(&ctx);
}

typedef struct numbers {
    loong_context_t *ctx;
    loong_dtype_t dtype;
    int64_t end; /* the tensor that cannot be read */
} numbers_t;

static loong_status_t read_numbers(void *user, int64_t index, int64_t row,
                                   int64_t rows, void *buffer,
                                   const void **data_p)
{
    const numbers_t *n = user;
    (void)row;
    (void)data_p;
    LOONG_CHECK(n->ctx, index < n->end, LOONG_ERR_IO, "unreadable");
    memset(buffer, n->dtype == LOONG_BF16 ? 1 : 2, (size_t)rows * 2 * 8);
    return LOONG_OK;
}

static loong_status_t write_numbers(loong_context_t *ctx, loong_dtype_t dtype,
                                    const char *first, int64_t end)
{
    loong_checkpoint_tensor_t tensors[2];
    loong_native_write_params_t write = {0};
    loong_pairs_t *metadata = NULL;
    loong_meter_t meter = {NULL, NULL, 0, 0};
    numbers_t numbers = {ctx, dtype, end};
    memset(tensors, 0, sizeof(tensors));
    for (int i = 0; i < 2; i++) {
        tensors[i].kind = "param";
        tensors[i].name = i == 0 ? first : "foundation.last";
        tensors[i].dtype = dtype;
        tensors[i].ndim = 2;
        tensors[i].shape[0] = tensors[i].shape[1] = 8;
    }
    assert_ok(ctx, loongi_pairs_create(ctx, &metadata));
    write.dir = in_dir("plan");
    write.metadata = metadata;
    write.key = "always the same";
    write.file_bytes = 8 * 8 * 2;
    write.count = 2;
    write.tensors = tensors;
    write.source = read_numbers;
    write.user = &numbers;
    write.meter = &meter;
    loong_status_t status = loongi_native_write(ctx, &write);
    loongi_pairs_destroy(&metadata);
    return status;
}

/* A whole file of the right size is taken when it holds what it is to hold:
 * these tensors, these rows, in this type. */
static void other_files_are_made_again(void **state)
{
    static const struct {
        loong_dtype_t dtype;
        const char *first;
        bool taken;
    } cases[] = {{LOONG_BF16, "foundation.some", true},
                 {LOONG_F16, "foundation.some", false},
                 {LOONG_BF16, "foundation.note", false}};
    loong_context_t *ctx = test_context();
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        char path[300];
        snprintf(path, sizeof(path), "%s", in_dir("plan"));
        assert_fails(ctx,
                     write_numbers(ctx, LOONG_BF16, "foundation.some", 1),
                     LOONG_ERR_IO, "unreadable");
        struct stat before = file_of(path, true, 0);
        assert_ok(ctx, write_numbers(ctx, cases[i].dtype, cases[i].first, 2));
        struct stat after = file_of(path, false, 0);
        assert_int_equal(before.st_size, after.st_size);
        assert_int_equal(same_file(&before, &after), cases[i].taken);
        assert_ok(ctx, loongi_dir_remove(ctx, path));
    }
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_one_is_gone_on_with),
        cmocka_unit_test(another_version_begins_anew),
        cmocka_unit_test(another_source_is_another_import),
        cmocka_unit_test(other_files_are_made_again),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
