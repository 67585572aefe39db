/* SPDX-License-Identifier: Apache-2.0
 *
 * Native checkpoints: any number of ranks saves, any rectangle is read back
 * bit-equal; what is damaged is refused and named; a killed or failed save
 * leaves the one before. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convert.h"
#include "file.h"
#include "native.h"
#include "test.h"
#include "test_dir.h"

TEST_DIR(dir)

/* ---- ranks as threads ---- */

typedef struct team {
    pthread_barrier_t barrier;
    int size;
    char *buffer;
} team_t;

typedef struct member {
    team_t *team;
    int rank;
} member_t;

static loong_status_t team_gather(void *user, const void *mine, size_t bytes,
                                  void *all)
{
    member_t *m = user;
    if (m->rank == 0) {
        m->team->buffer = all;
    }
    pthread_barrier_wait(&m->team->barrier);
    memcpy(m->team->buffer + bytes * (size_t)m->rank, mine, bytes);
    pthread_barrier_wait(&m->team->barrier);
    return LOONG_OK;
}

static loong_status_t team_broadcast(void *user, void *data, size_t bytes)
{
    member_t *m = user;
    if (m->rank == 0) {
        m->team->buffer = data;
    }
    pthread_barrier_wait(&m->team->barrier);
    if (m->rank != 0) {
        memcpy(data, m->team->buffer, bytes);
    }
    pthread_barrier_wait(&m->team->barrier);
    return LOONG_OK;
}

/* ---- a small model: values are a function of (tensor, element, step) ---- */

enum { ROWS = 23, COLUMNS = 40, TENSORS = 4 };

static const struct {
    const char *kind, *name;
    loong_dtype_t dtype;
    int ndim;
    int64_t shape[3];
} tensors[TENSORS] = {
    {"param", "m.up.weight", LOONG_F32, 2, {ROWS, COLUMNS, 0}},
    {"exp_avg", "m.up.weight", LOONG_F32, 2, {ROWS, COLUMNS, 0}},
    {"param", "m.experts", LOONG_BF16, 3, {ROWS, 3, 5}},
    {"param", "m.scale", LOONG_F64, 0, {0, 0, 0}},
};

static int64_t row_count(int t)
{
    return tensors[t].ndim == 0 ? 1 : tensors[t].shape[0];
}

static int64_t row_length(int t)
{
    int64_t length = 1;
    for (int d = 1; d < tensors[t].ndim; d++) {
        length *= tensors[t].shape[d];
    }
    return length;
}

static void fill(int t, int64_t step, int64_t row, int64_t rows, char *dst)
{
    size_t size = loong_dtype_size(tensors[t].dtype);
    for (int64_t i = 0; i < rows * row_length(t); i++) {
        uint64_t bits = (uint64_t)(row * row_length(t) + i) * 7 +
                        (uint64_t)t * 1000003 + (uint64_t)step * 31;
        memcpy(dst + (size_t)i * size, &bits, size);
    }
}

typedef struct fetch {
    int t;
    int64_t step;
    int64_t row;
    int calls;
} fetch_t;

static loong_status_t fetch_rows(void *user, int64_t row, int64_t rows,
                                 void *dst)
{
    fetch_t *f = user;
    f->calls++;
    fill(f->t, f->step, f->row + row, rows, dst);
    return LOONG_OK;
}

typedef struct job {
    member_t member;
    const char *dir;
    int64_t step;
    int keep_last;
    bool async;
    bool skip_rank_1;   /* its pieces are left out */
    bool double_rank_1; /* and here they are there twice */
    loong_status_t status;
    char error[4096];
    pthread_t thread;
} job_t;

static void add_pieces(loong_context_t *ctx, job_t *job,
                       loong_checkpoint_save_t *save, char *memory,
                       fetch_t *fetches)
{
    int size = job->member.team->size;
    int rank = job->member.rank;
    for (int t = 0; t < TENSORS; t++) {
        loong_checkpoint_piece_t piece = {0};
        int64_t first = row_count(t) * rank / size;
        int64_t last = row_count(t) * (rank + 1) / size;
        piece.kind = tensors[t].kind;
        piece.name = tensors[t].name;
        piece.dtype = tensors[t].dtype;
        piece.ndim = tensors[t].ndim;
        memcpy(piece.shape, tensors[t].shape, sizeof(tensors[t].shape));
        memcpy(piece.count, tensors[t].shape, sizeof(tensors[t].shape));
        if (piece.ndim == 0 && rank != size - 1) {
            continue;
        }
        piece.begin[0] = first;
        piece.count[0] = last - first;
        if (t == 1) { /* through a callback */
            fetches[0] = (fetch_t){t, job->step, first, 0};
            piece.fetch = fetch_rows;
            piece.user = &fetches[0];
        } else {
            piece.data = memory;
            fill(t, job->step, first, last - first, memory);
            memory += 8192;
        }
        if (job->skip_rank_1 && rank == 1 && t == 0) {
            continue;
        }
        assert_ok(ctx, loongi_checkpoint_save_add(save, &piece));
        if (job->double_rank_1 && rank == 1 && t == 0) {
            assert_ok(ctx, loongi_checkpoint_save_add(save, &piece));
        }
    }
}

static void *save_rank(void *user)
{
    job_t *job = user;
    loong_context_t *ctx = test_context();
    loong_checkpoint_comm_t comm = {job->member.rank, job->member.team->size,
                                    &job->member, team_gather, team_broadcast};
    loong_checkpoint_save_params_t params = {0};
    loong_checkpoint_save_t *save = NULL;
    loong_pairs_t *metadata = NULL;
    fetch_t fetches[1];
    static _Thread_local char memory[5 * 8192];
    assert_ok(ctx, loongi_pairs_create(ctx, &metadata));
    assert_ok(ctx, loongi_pairs_set_int(metadata, "seed", 1234));
    assert_ok(ctx, loongi_pairs_set(metadata, "recipe", "a: \"1\"\nb: é\n"));
    params.dir = job->dir;
    params.step = job->step;
    params.comm = &comm;
    params.metadata = metadata;
    params.async = job->async;
    params.keep_last = job->keep_last;
    job->status = loongi_checkpoint_save_begin(ctx, &params, &save);
    if (job->status == LOONG_OK) {
        add_pieces(ctx, job, save, memory, fetches);
        assert_ok(ctx, loongi_checkpoint_save_start(save));
        assert_true(loongi_checkpoint_save_wait(save) >= 0);
        memset(memory, 0xff, sizeof(memory)); /* the next step begins */
        job->status = loongi_checkpoint_save_commit(save);
        loongi_checkpoint_save_destroy(&save);
    }
    snprintf(job->error, sizeof(job->error), "%s", loong_context_error(ctx));
    loongi_pairs_destroy(&metadata);
    test_context_end(&ctx);
    return NULL;
}

/* Saves with `size` ranks from a pattern of settings; the status is equal on
 * all ranks. Returns rank 0's error in *pattern. */
static loong_status_t save_ranks(job_t *pattern, int size)
{
    static job_t jobs[8];
    team_t team = {0};
    team.size = size;
    pthread_barrier_init(&team.barrier, NULL, (unsigned)size);
    for (int r = 0; r < size; r++) {
        jobs[r] = *pattern;
        jobs[r].member.team = &team;
        jobs[r].member.rank = r;
        assert_int_equal(
            pthread_create(&jobs[r].thread, NULL, save_rank, &jobs[r]), 0);
    }
    for (int r = 0; r < size; r++) {
        pthread_join(jobs[r].thread, NULL);
        assert_int_equal(jobs[r].status, jobs[0].status);
    }
    pthread_barrier_destroy(&team.barrier);
    *pattern = jobs[0];
    return jobs[0].status;
}

static void save_ok(const char *path, int64_t step, int size, bool async)
{
    job_t job = {0};
    job.dir = path;
    job.step = step;
    job.async = async;
    if (save_ranks(&job, size) != LOONG_OK) {
        fail_msg("%s", job.error);
    }
}

static void check_content(loong_context_t *ctx, const char *path, int64_t step)
{
    static char read[16384], wanted[16384];
    loong_checkpoint_t *checkpoint = NULL;
    assert_ok(ctx, loongi_checkpoint_open(ctx, path, &checkpoint));
    assert_int_equal(loongi_checkpoint_step(checkpoint), step);
    assert_int_equal(loongi_checkpoint_count(checkpoint), TENSORS);
    for (int t = 0; t < TENSORS; t++) {
        const loong_checkpoint_tensor_t *tensor = loongi_checkpoint_find(
            checkpoint, tensors[t].kind, tensors[t].name);
        assert_non_null(tensor);
        assert_int_equal(tensor->dtype, tensors[t].dtype);
        for (int64_t row = 0; row < row_count(t); row += 5) {
            int64_t n = LOONG_MIN((int64_t)5, row_count(t) - row);
            assert_ok(ctx, loongi_checkpoint_read_rows(checkpoint, tensor, row,
                                                       n, tensor->dtype, read));
            fill(t, step, row, n, wanted);
            assert_memory_equal(read, wanted,
                                (size_t)(n * row_length(t)) *
                                    loong_dtype_size(tensor->dtype));
        }
    }
    assert_string_equal(
        loongi_pairs_get(loongi_checkpoint_metadata(checkpoint), "recipe"),
        "a: \"1\"\nb: é\n");
    assert_ok(ctx, loongi_checkpoint_verify(checkpoint, 0, 1));
    loongi_checkpoint_close(&checkpoint);
}

static void ranks_round_trip(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (int size = 1; size <= 5; size++) {
        char path[64];
        snprintf(path, sizeof(path), "%s/trip%d", dir, size);
        save_ok(path, 100, size, size % 2 == 0);
        check_content(ctx, path, 100);
    }
    test_context_end(&ctx);
}

static void rectangles_and_types(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_checkpoint_t *checkpoint = NULL;
    static char whole[16384];
    static uint16_t part[512];
    static float wide[512];
    save_ok(in_dir("rect"), 1, 3, false);
    assert_ok(ctx, loongi_checkpoint_open(ctx, in_dir("rect"), &checkpoint));
    const loong_checkpoint_tensor_t *t =
        loongi_checkpoint_find(checkpoint, "param", "m.experts");
    fill(2, 1, 0, ROWS, whole);
    int64_t begin[] = {4, 1, 2};
    int64_t count[] = {15, 2, 2}; /* across the three ranks */
    assert_ok(ctx, loongi_checkpoint_read(checkpoint, t, begin, count,
                                          LOONG_BF16, part));
    assert_ok(ctx, loongi_checkpoint_read(checkpoint, t, begin, count,
                                          LOONG_F32, wide));
    for (int i = 0; i < 60; i++) {
        int64_t at = (4 + i / 4) * 15 + (1 + i / 2 % 2) * 5 + 2 + i % 2;
        uint16_t expected;
        memcpy(&expected, whole + 2 * at, 2);
        assert_int_equal(part[i], expected);
        float value = loongi_bf16_to_f32(expected);
        assert_memory_equal(&wide[i], &value, 4);
    }
    count[0] = 20;
    assert_fails(
        ctx,
        loongi_checkpoint_read(checkpoint, t, begin, count, LOONG_BF16, part),
        LOONG_ERR_ARG, "m.experts: 4 + 20 of 23 in dimension 0");
    count[0] = 1;
    assert_fails(
        ctx,
        loongi_checkpoint_read(checkpoint, t, begin, count, LOONG_I32, part),
        LOONG_ERR_UNSUPPORTED, "from bf16 to int32");
    loongi_checkpoint_close(&checkpoint);
    test_context_end(&ctx);
}

static void holes_and_overlaps_are_refused(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    job_t job = {0};
    save_ok(in_dir("hole"), 1, 2, false);
    job.dir = in_dir("hole");
    job.step = 2;
    job.skip_rank_1 = true;
    assert_int_equal(save_ranks(&job, 3), LOONG_ERR_FORMAT);
    assert_non_null(strstr(job.error, "param m.up.weight [23, 40]: "
                                      "600 of 920 elements are there"));
    job = (job_t){0};
    job.dir = in_dir("hole");
    job.step = 2;
    job.double_rank_1 = true;
    assert_int_equal(save_ranks(&job, 3), LOONG_ERR_FORMAT);
    assert_non_null(strstr(job.error, "overlap"));
    assert_false(loongi_dir_exists(in_dir("hole/step_00000002")));
    assert_false(loongi_dir_exists(in_dir("hole/.tmp_step_00000002")));
    check_content(ctx, in_dir("hole"), 1);
    test_context_end(&ctx);
}

static void same_step_is_replaced(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    save_ok(in_dir("same"), 7, 3, false);
    save_ok(in_dir("same"), 7, 2, true);
    check_content(ctx, in_dir("same"), 7);
    assert_false(
        loongi_file_exists(in_dir("same/step_00000007/rank_00002.h5")));
    test_context_end(&ctx);
}

static int count_entries(const char *path)
{
    int count = 0;
    struct dirent *entry = NULL;
    DIR *folder = opendir(path);
    while ((entry = readdir(folder)) != NULL) {
        count += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
    }
    closedir(folder);
    return count;
}

static void last_ones_are_kept(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    job_t job = {0};
    job.dir = in_dir("keep");
    job.keep_last = 2;
    int64_t steps[] = {10, 20, 30, 15}; /* 15: a run begun again from 10 */
    assert_ok(ctx, loongi_dir_make(ctx, in_dir("keep/.tmp_step_00000005/x")));
    for (int i = 0; i < 4; i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s", in_dir("keep"));
        job.dir = path;
        job.step = steps[i];
        assert_int_equal(save_ranks(&job, 2), LOONG_OK);
        usleep(20000); /* distinct times */
    }
    assert_true(loongi_dir_exists(in_dir("keep/step_00000015")));
    assert_true(loongi_dir_exists(in_dir("keep/step_00000030")));
    assert_int_equal(count_entries(in_dir("keep")), 3); /* and latest */
    check_content(ctx, in_dir("keep"), 15);
    test_context_end(&ctx);
}

/* Damages one file of a good checkpoint: cut, change a byte, or remove. */
static void damage(loong_context_t *ctx, const char *file, int64_t cut,
                   int64_t flip)
{
    char *bytes = NULL;
    size_t length = 0;
    assert_ok(ctx, loongi_file_read(ctx, file, &bytes, &length));
    if (flip >= 0) {
        bytes[flip] ^= 1;
    }
    assert_ok(ctx, loongi_file_write(ctx, file, bytes,
                                     cut >= 0 ? (size_t)cut : length));
    loongi_free(ctx, bytes);
}

static void damage_is_named(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_checkpoint_t *checkpoint = NULL;
    char save[64], file[128];
    snprintf(save, sizeof(save), "%s/bad", dir);
    snprintf(file, sizeof(file), "%s/step_00000003/rank_00001.h5", save);

    save_ok(save, 3, 2, false);
    damage(ctx, file, 5000, -1);
    assert_fails(ctx, loongi_checkpoint_open(ctx, save, &checkpoint),
                 LOONG_ERR_FORMAT, "rank_00001.h5 has 5000 bytes instead of");
    unlink(file);
    assert_fails(ctx, loongi_checkpoint_open(ctx, save, &checkpoint),
                 LOONG_ERR_FORMAT, "rank_00001.h5 is missing");

    save_ok(save, 3, 2, false);
    damage(ctx, file, -1, 4200); /* one bit of the data */
    assert_ok(ctx, loongi_checkpoint_open(ctx, save, &checkpoint));
    assert_fails(ctx, loongi_checkpoint_verify(checkpoint, 0, 1),
                 LOONG_ERR_FORMAT, "rank_00001.h5: checksum");
    assert_ok(ctx, loongi_checkpoint_verify(checkpoint, 0, 3));
    loongi_checkpoint_close(&checkpoint);

    snprintf(file, sizeof(file), "%s/step_00000003/checkpoint.json", save);
    save_ok(save, 3, 2, false);
    char *text = NULL;
    size_t length = 0;
    assert_ok(ctx, loongi_file_read(ctx, file, &text, &length));
    loongi_free(ctx, text);
    for (size_t at = 0; at < length; at += 37) { /* any bit, any cut */
        damage(ctx, file, -1, (int64_t)at);
        assert_int_equal(loongi_checkpoint_open(ctx, save, &checkpoint),
                         LOONG_ERR_FORMAT);
        damage(ctx, file, -1, (int64_t)at);
        loong_context_clear_error(ctx);
    }
    check_content(ctx, save, 3);
    damage(ctx, file, (int64_t)length / 2, -1);
    assert_fails(ctx, loongi_checkpoint_open(ctx, save, &checkpoint),
                 LOONG_ERR_FORMAT, "truncated or changed");
    unlink(file);
    assert_fails(ctx, loongi_checkpoint_open(ctx, save, &checkpoint),
                 LOONG_ERR_NOT_FOUND, "steps there: step_00000003");
    assert_fails(ctx, loongi_checkpoint_open(ctx, "/nowhere", &checkpoint),
                 LOONG_ERR_NOT_FOUND, "/nowhere");
    assert_fails(ctx, loongi_checkpoint_open(ctx, dir, &checkpoint),
                 LOONG_ERR_NOT_FOUND, "neither checkpoint.json nor latest");
    test_context_end(&ctx);
}

static void differences_are_listed(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_checkpoint_t *checkpoint = NULL;
    save_ok(in_dir("diff"), 1, 2, false);
    assert_ok(ctx, loongi_checkpoint_open(ctx, in_dir("diff"), &checkpoint));
    loong_checkpoint_tensor_t wanted[] = {
        {"param", "m.up.weight", LOONG_F32, 2, {ROWS, COLUMNS + 1}},
        {"param", "m.down.weight", LOONG_F32, 2, {COLUMNS, ROWS}},
        {"param", "m.scale", LOONG_F64, 0, {0}},
    };
    assert_int_equal(loongi_checkpoint_check(checkpoint, wanted, 3),
                     LOONG_ERR_MISMATCH);
    const char *trail = loong_context_error(ctx);
    assert_non_null(strstr(trail, "3 problems"));
    assert_non_null(strstr(trail, "shape: param m.up.weight is [23, 40] in the "
                                  "checkpoint, [23, 41] in the model"));
    assert_non_null(strstr(trail, "missing: param m.down.weight [40, 23]"));
    assert_non_null(strstr(trail, "unexpected: param m.experts [23, 3, 5]"));
    assert_null(strstr(trail, "exp_avg"));
    loongi_checkpoint_close(&checkpoint);
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
    save_ok(save, 0, 1, false);
    for (int round = 0; round < 25; round++) {
        pid_t child = fork();
        if (child == 0) {
            for (int64_t step = 1;; step++) {
                job_t job = {0};
                job.dir = save;
                job.step = step % 4; /* replaces older ones too */
                job.keep_last = 2;
                job.async = step % 2 == 0;
                if (save_ranks(&job, 1) != LOONG_OK) {
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
        check_content(ctx, save, step);
    }
    save_ok(save, 100, 1, false);
    check_content(ctx, save, 100);
    test_context_end(&ctx);
}

/* A limit on file sizes stands for the disk; with the right to mount, a real
 * full disk does. */
static void full_disk_is_clean(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    struct rlimit old, small;
    job_t job = {0};
    char save[64];
    int failures = 0;
    snprintf(save, sizeof(save), "%s/full", dir);
    save_ok(save, 1, 1, false);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    for (rlim_t limit = 512; limit <= 65536; limit += 4096) {
        small = old;
        small.rlim_cur = limit;
        job = (job_t){0};
        job.dir = save;
        job.step = 2;
        job.async = limit % 8192 == 512;
        setrlimit(RLIMIT_FSIZE, &small);
        loong_status_t status = save_ranks(&job, 2);
        setrlimit(RLIMIT_FSIZE, &old);
        if (status == LOONG_OK) { /* the largest file fits */
            break;
        }
        failures++;
        assert_int_equal(status, LOONG_ERR_IO);
        assert_non_null(strstr(job.error, "cannot save step 2 to"));
        assert_int_equal(count_entries(save), 2); /* step_..1, latest */
        check_content(ctx, save, 1);
    }
    assert_true(failures >= 5);
    save_ok(save, 2, 2, true); /* with space again all is well */
    check_content(ctx, save, 2);
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
    job_t job = {0};
    int64_t step = 0;
    while (status == LOONG_OK && step < 100) {
        job = (job_t){0};
        job.dir = path;
        job.step = ++step;
        status = save_ranks(&job, 1);
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
    int entries = count_entries(path);
    umount2(path, MNT_DETACH); /* before anything is asserted */
    assert_int_equal(status, LOONG_ERR_IO);
    assert_non_null(strstr(job.error, "No space left on device"));
    assert_true(step > 1);
    assert_int_equal(latest, step - 1);
    assert_int_equal(verified, LOONG_OK);
    assert_int_equal(entries, step); /* the steps before, and latest */
    test_context_end(&ctx);
}

static void pieces_are_checked(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_checkpoint_save_params_t params = {0};
    loong_checkpoint_save_t *save = NULL;
    loong_checkpoint_piece_t piece = {0};
    params.dir = in_dir("pieces");
    assert_ok(ctx, loongi_checkpoint_save_begin(ctx, &params, &save));
    piece.kind = "param";
    piece.name = "a";
    piece.ndim = 1;
    piece.shape[0] = 4;
    piece.begin[0] = 2;
    piece.count[0] = 3;
    piece.data = &piece;
    assert_fails(ctx, loongi_checkpoint_save_add(save, &piece), LOONG_ERR_ARG,
                 "piece of 'a': 2 + 3 of 4 in dimension 0");
    piece.count[0] = 0; /* an empty shard is no piece */
    assert_ok(ctx, loongi_checkpoint_save_add(save, &piece));
    piece.count[0] = 2;
    piece.name = "a/b";
    assert_fails(ctx, loongi_checkpoint_save_add(save, &piece), LOONG_ERR_ARG,
                 "'a/b' cannot be");
    assert_fails(ctx, loongi_checkpoint_save_commit(save), LOONG_ERR_ARG,
                 "not started");
    loongi_checkpoint_save_destroy(&save);
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
        cmocka_unit_test(ranks_round_trip),
        cmocka_unit_test(rectangles_and_types),
        cmocka_unit_test(holes_and_overlaps_are_refused),
        cmocka_unit_test(same_step_is_replaced),
        cmocka_unit_test(last_ones_are_kept),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(differences_are_listed),
        cmocka_unit_test(kill_leaves_the_previous),
        cmocka_unit_test(full_disk_is_clean),
        cmocka_unit_test(full_tmpfs_is_clean),
        cmocka_unit_test(pieces_are_checked),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
