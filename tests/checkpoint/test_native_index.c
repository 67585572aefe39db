/* SPDX-License-Identifier: Apache-2.0
 *
 * The index of a checkpoint of many ranks: a rank reads its part of it, all
 * ranks together find what is damaged anywhere, and checkpoints of version 1,
 * whose checkpoint.json has all pieces, are read as before.
 *
 *   test_native_index          everyday
 *   test_native_index big      10,240 ranks, with figures */
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native.h"
#include "native_dir.h"
#include "native_layout.h"
#include "test.h"
#include "test_dir.h"

TEST_DIR(dir)

/* ---- the index of a job whose tensors nobody wrote ----------------------- */

/* Ranks count tensor parallel first, then data parallel, then the pipeline. */
typedef struct job {
    int pipeline, tensor, data;
    int layers; /* of a stage */
    int64_t width;
} job_t;

static const job_t small_job = {4, 2, 8, 3, 16};
static const job_t big_job = {16, 8, 80, 8, 1280};

static const char *const kinds[] = {"exp_avg", "exp_avg_sq", "param"};
/* Each rank has rows of the first four, as buckets are cut; of the others the
 * first data parallel ranks have all. */
static const char *const matrices[] = {"mlp.down", "mlp.gate", "mlp.up",
                                       "self_attn.o", "self_attn.k",
                                       "self_attn.v"};
enum { CUT = 4, MATRICES = 6 };

static int ranks_of(const job_t *j)
{
    return j->pipeline * j->tensor * j->data;
}

static int64_t rows_of(const job_t *j, int matrix)
{
    return (int64_t)j->tensor * (matrix < CUT ? j->data : 1);
}

/* Pieces of a layer lie in a file one behind the other. */
static loong_status_t add_matrix(loong_layout_t *layout, const job_t *j,
                                 int layer, int kind, int matrix,
                                 int64_t offset)
{
    char name[96], dataset[128];
    loong_layout_piece_t piece;
    int64_t rows = rows_of(j, matrix);
    int stage = layer / j->layers;
    memset(&piece, 0, sizeof(piece));
    snprintf(name, sizeof(name), "foundation.layers.%d.%s_proj.weight", layer,
             matrices[matrix]);
    snprintf(dataset, sizeof(dataset), "/%s/%s", kinds[kind], name);
    piece.tensor = (loong_checkpoint_tensor_t){
        kinds[kind], name, LOONG_F32, 2, {rows, j->width}};
    piece.dataset = dataset;
    piece.offset = offset;
    piece.count[0] = 1;
    piece.count[1] = j->width;
    for (int64_t row = 0; row < rows; row++) {
        int64_t cut = matrix < CUT ? row % j->data : 0;
        int64_t part = matrix < CUT ? row / j->data : row;
        piece.begin[0] = row;
        piece.file = (stage * j->data + cut) * j->tensor + part;
        LOONG_TRY(loongi_layout_add_piece(layout, &piece));
    }
    return LOONG_OK;
}

static int64_t file_bytes(const job_t *j)
{
    return 4 * j->width * MATRICES * 3 * j->layers;
}

static loong_layout_t *make_layout(loong_context_t *ctx, const job_t *j)
{
    loong_layout_t *layout = NULL;
    char name[64];
    assert_ok(ctx, loongi_layout_create(ctx, &layout));
    for (int r = 0; r < ranks_of(j); r++) {
        snprintf(name, sizeof(name), "rank_%05d.h5", r);
        assert_ok(ctx, loongi_layout_add_file(layout, name, file_bytes(j), 7));
    }
    assert_ok(ctx, loongi_layout_add_file(layout, "index.h5", 0, 7));
    for (int layer = 0; layer < j->pipeline * j->layers; layer++) {
        int64_t offset = 0;
        for (int i = 0; i < 3 * MATRICES; i++) {
            assert_ok(ctx, add_matrix(layout, j, layer, i / MATRICES,
                                      i % MATRICES, offset));
            offset += 4 * j->width;
        }
    }
    return layout;
}

static void make_files(const char *step, const job_t *j)
{
    char path[600];
    for (int r = 0; r <= ranks_of(j); r++) {
        snprintf(path, sizeof(path), r < ranks_of(j) ? "%s/rank_%05d.h5"
                                                     : "%s/index.h5", step, r);
        int fd = open(path, O_CREAT | O_WRONLY, 0666);
        assert_true(fd >= 0);
        assert_int_equal(
            ftruncate(fd, r < ranks_of(j) ? file_bytes(j) : 0), 0);
        close(fd);
    }
}

static void make_step(loong_context_t *ctx, const char *step, const job_t *j)
{
    loong_pairs_t *metadata = NULL;
    loong_layout_t *layout = make_layout(ctx, j);
    assert_int_equal(mkdir(step, 0777), 0);
    make_files(step, j);
    assert_ok(ctx, loongi_pairs_create(ctx, &metadata));
    assert_ok(ctx, loongi_pairs_set_int(metadata, "step", 3));
    assert_ok(ctx, loongi_layout_check(layout, 0, 1, step));
    assert_ok(ctx, loongi_layout_write_index(layout, 3, metadata, step));
    loongi_pairs_destroy(&metadata);
    loongi_layout_destroy(&layout);
}

/* What rank `rank` does of it: opens its part, reads its rows of its stage.
 * Returns the bytes of the index that it read. */
static int64_t read_as(loong_context_t *ctx, const char *step, const job_t *j,
                       int rank)
{
    loong_checkpoint_t *ck = NULL;
    char name[96];
    int stage = rank / (j->tensor * j->data);
    int cut = rank / j->tensor % j->data;
    int part = rank % j->tensor;
    float *row = calloc((size_t)j->width, sizeof(*row));
    assert_ok(ctx, loongi_checkpoint_open_part(ctx, step, rank, ranks_of(j),
                                               &ck));
    for (int i = 0; i < 3 * MATRICES * j->layers; i++) {
        int matrix = i % MATRICES;
        snprintf(name, sizeof(name), "foundation.layers.%d.%s_proj.weight",
                 stage * j->layers + i / (3 * MATRICES), matrices[matrix]);
        const loong_checkpoint_tensor_t *t =
            loongi_checkpoint_find(ck, kinds[i / MATRICES % 3], name);
        assert_non_null(t);
        row[0] = 1;
        if (matrix < CUT || cut == 0) {
            int64_t at = matrix < CUT ? (int64_t)part * j->data + cut : part;
            assert_ok(ctx, loongi_checkpoint_read_rows(ck, t, at, 1, LOONG_F32,
                                                       row));
            assert_true(row[0] == 0);
        }
    }
    int64_t bytes = loongi_checkpoint_index_bytes(ck);
    loongi_checkpoint_close(&ck);
    free(row);
    return bytes;
}

static int64_t size_of(const char *step, const char *name)
{
    char path[600];
    struct stat info;
    snprintf(path, sizeof(path), "%s/%s", step, name);
    assert_int_equal(stat(path, &info), 0);
    return info.st_size;
}

/* ---- everyday ------------------------------------------------------------ */

/* checkpoint.json and the lines of its stage, a quarter of all, and of the few
 * tensors that it looks at for the others. */
static void a_rank_reads_its_part(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    const char *step = in_dir("part");
    make_step(ctx, step, &small_job);
    int64_t all = size_of(step, "pieces.json");
    for (int rank = 0; rank < ranks_of(&small_job); rank += 9) {
        int64_t bytes = read_as(ctx, step, &small_job, rank) -
                        size_of(step, LOONG_MANIFEST);
        assert_true(bytes > 0);
        assert_true(bytes <= all / 4 + 5 * all / 72 + 100);
    }
    test_context_end(&ctx);
}

static void flip(const char *path, int64_t at)
{
    char byte = 0;
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* How many of `parts` ranks cannot open it. */
static int refused(loong_context_t *ctx, const char *step, int parts)
{
    int count = 0;
    for (int part = 0; part < parts; part++) {
        loong_checkpoint_t *ck = NULL;
        loong_status_t status =
            loongi_checkpoint_open_part(ctx, step, part, parts, &ck);
        if (status != LOONG_OK) {
            assert_int_equal(status, LOONG_ERR_FORMAT);
            count++;
        }
        loong_context_clear_error(ctx);
        loongi_checkpoint_close(&ck);
    }
    return count;
}

/* One rank of all finds a changed line; the same for files. */
static void all_parts_find_all(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    const job_t job = {2, 1, 2, 1, 4};
    const char *step = in_dir("damaged");
    char path[600];
    loong_checkpoint_t *ck = NULL;
    make_step(ctx, step, &job);
    snprintf(path, sizeof(path), "%s/pieces.json", step);
    int64_t length = size_of(step, "pieces.json");
    assert_int_equal(refused(ctx, step, 3), 0);
    for (int64_t at = 3; at < length - 4; at += 7) {
        char bytes[3] = {0};
        int fd = open(path, O_RDONLY);
        assert_int_equal(pread(fd, bytes, 2, at), 2);
        close(fd);
        if (strchr(bytes, '\n') != NULL) {
            continue; /* between two lines */
        }
        flip(path, at);
        assert_int_equal(refused(ctx, step, 3), 1);
        flip(path, at);
    }
    flip(path, 5);
    assert_int_equal(refused(ctx, step, 3), 1);
    assert_int_equal(refused(ctx, step, 1), 1);
    /* who looks at nothing finds it when it reads */
    assert_ok(ctx, loongi_checkpoint_open_part(ctx, step, 0, 0, &ck));
    float row[4];
    assert_fails(ctx,
                 loongi_checkpoint_read_rows(ck, loongi_checkpoint_get(ck, 0),
                                             0, 1, LOONG_F32, row),
                 LOONG_ERR_FORMAT, "checksum");
    loongi_checkpoint_close(&ck);
    flip(path, 5);
    assert_int_equal(truncate(path, length / 2), 0);
    assert_fails(ctx, loongi_checkpoint_open(ctx, step, &ck), LOONG_ERR_FORMAT,
                 "truncated or changed");
    unlink(path);
    assert_fails(ctx, loongi_checkpoint_open(ctx, step, &ck), LOONG_ERR_FORMAT,
                 "pieces.json is missing");
    make_step(ctx, in_dir("lost"), &job);
    unlink(in_dir("lost/rank_00002.h5"));
    assert_int_equal(refused(ctx, in_dir("lost"), 4), 1);
    assert_int_equal(refused(ctx, in_dir("lost"), 1), 1);
    test_context_end(&ctx);
}

static int64_t element(int t, int64_t i)
{
    return i * 7 + (int64_t)t * 1000003 + 3 * 31;
}

/* Two ranks wrote it before there was a pieces.json. */
static void version_1_is_read(void **state)
{
    (void)state;
    static const char *const of[] = {"param", "exp_avg"};
    loong_context_t *ctx = test_context();
    loong_checkpoint_t *ck = NULL;
    const char *path = LOONG_SOURCE_DIR "/tests/fixtures/checkpoint_v1";
    assert_ok(ctx, loongi_checkpoint_open(ctx, path, &ck));
    assert_ok(ctx, loongi_checkpoint_verify(ck, 0, 1));
    assert_int_equal(loongi_checkpoint_step(ck), 3);
    assert_int_equal(loongi_checkpoint_ranks(ck), 2);
    assert_int_equal(loongi_checkpoint_count(ck), 4);
    for (int t = 0; t < 2; t++) {
        uint32_t values[23 * 40];
        const loong_checkpoint_tensor_t *tensor =
            loongi_checkpoint_find(ck, of[t], "m.up.weight");
        assert_non_null(tensor);
        assert_ok(ctx, loongi_checkpoint_read_rows(ck, tensor, 0, 23,
                                                   LOONG_F32, values));
        for (int64_t i = 0; i < 23 * 40; i++) {
            assert_int_equal(values[i], (uint32_t)element(t, i));
        }
    }
    loongi_checkpoint_close(&ck);
    for (int part = 0; part < 3; part++) {
        assert_ok(ctx, loongi_checkpoint_open_part(ctx, path, part, 3, &ck));
        loongi_checkpoint_close(&ck);
    }
    test_context_end(&ctx);
}

/* ---- 10,240 ranks, with figures ------------------------------------------ */

/* This program again, as a process whose memory counts alone. */
static long child(const char *what, const char *path)
{
    char *args[] = {(char *)(uintptr_t)"test_native_index",
                    (char *)(uintptr_t)what, (char *)(uintptr_t)path, NULL};
    extern char **environ;
    struct rusage usage;
    pid_t pid = 0;
    int code = 0;
    double begin = loongi_now();
    assert_int_equal(
        posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ), 0);
    assert_int_equal(wait4(pid, &code, 0, &usage), pid);
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 1e-6 * (double)(usage.ru_utime.tv_usec +
                                 usage.ru_stime.tv_usec);
    fflush(stdout);
    printf("%s: %.2f s, %.2f s of a processor, %ld MiB\n", what,
           loongi_now() - begin, cpu, usage.ru_maxrss / 1024);
    return usage.ru_maxrss / 1024;
}

static int make(const char *step)
{
    loong_context_t *ctx = test_context();
    char list[600];
    snprintf(list, sizeof(list), "%s/../whole.json", step);
    make_step(ctx, step, &big_job);
    loong_layout_t *layout = make_layout(ctx, &big_job);
    assert_ok(ctx, loongi_layout_write_list(ctx, layout, 3, list));
    printf("%" PRId64 " pieces\n", layout->piece_count);
    loongi_layout_destroy(&layout);
    test_context_end(&ctx);
    return 0;
}

/* As checkpoint.json of version 1. */
static int read_whole(const char *path)
{
    loong_context_t *ctx = test_context();
    loong_layout_t *layout = NULL;
    int64_t step = 0;
    assert_ok(ctx, loongi_layout_create(ctx, &layout));
    assert_ok(ctx, loongi_layout_read(layout, path, &step, NULL));
    assert_ok(ctx, loongi_layout_check(layout, 0, 1, path));
    loongi_layout_destroy(&layout);
    test_context_end(&ctx);
    return 0;
}

static int read_rank(const char *path)
{
    loong_context_t *ctx = test_context();
    int64_t bytes = read_as(ctx, path, &big_job, 5000);
    printf("a rank reads %" PRId64 " bytes of the index\n", bytes);
    assert_true(bytes < 6000000);
    test_context_end(&ctx);
    return 0;
}

static int read_all(const char *path)
{
    loong_context_t *ctx = test_context();
    loong_checkpoint_t *ck = NULL;
    assert_ok(ctx, loongi_checkpoint_open(ctx, path, &ck));
    loongi_checkpoint_close(&ck);
    test_context_end(&ctx);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(const char *path);
} children[] = {{"make", make},
                {"whole", read_whole},
                {"rank", read_rank},
                {"all", read_all}};

static void ten_thousand_ranks(void **state)
{
    (void)state;
    const char *step = in_dir("big");
    (void)child("make", step);
    printf("checkpoint.json %" PRId64 ", pieces.json %" PRId64
           ", in one file %" PRId64 " bytes\n",
           size_of(step, LOONG_MANIFEST), size_of(step, "pieces.json"),
           size_of(dir, "whole.json"));
    long whole = child("whole", in_dir("whole.json"));
    long rank = child("rank", step);
    (void)child("all", step);
    assert_true(rank < 100 && rank * 10 < whole);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest everyday[] = {
        cmocka_unit_test(a_rank_reads_its_part),
        cmocka_unit_test(all_parts_find_all),
        cmocka_unit_test(version_1_is_read),
    };
    const struct CMUnitTest big[] = {cmocka_unit_test(ten_thousand_ranks)};
    for (int i = 0; i < 4 && argc == 3; i++) {
        if (strcmp(argv[1], children[i].name) == 0) {
            return children[i].run(argv[2]);
        }
    }
    return argc > 1 ? cmocka_run_group_tests(big, make_dir, remove_dir)
                    : cmocka_run_group_tests(everyday, make_dir, remove_dir);
}
