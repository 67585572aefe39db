/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves a small model from any number of ranks, and looks at what was saved,
 * for the tests of native checkpoints. */
#include "native_case.h"

#include <dirent.h>

#include "test.h"

/* ---- ranks as threads ---- */

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

void native_fill(int t, int64_t step, int64_t row, int64_t rows, char *dst)
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
    native_fill(f->t, f->step, f->row + row, rows, dst);
    return LOONG_OK;
}

static void add_pieces(loong_context_t *ctx, native_job_t *job,
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
            native_fill(t, job->step, first, last - first, memory);
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
    native_job_t *job = user;
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

loong_status_t native_save(native_job_t *pattern, int size)
{
    static native_job_t jobs[8];
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

void native_save_ok(const char *path, int64_t step, int size, bool async)
{
    native_job_t job = {0};
    job.dir = path;
    job.step = step;
    job.async = async;
    if (native_save(&job, size) != LOONG_OK) {
        fail_msg("%s", job.error);
    }
}

void native_check(loong_context_t *ctx, const char *path, int64_t step)
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
            native_fill(t, step, row, n, wanted);
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

int native_count_entries(const char *path)
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
