/* SPDX-License-Identifier: Apache-2.0
 *
 * Native checkpoints: any number of ranks saves, any rectangle is read back
 * bit-equal; what is damaged, or is no checkpoint, is refused and named. */
#include <unistd.h>

#include "convert.h"
#include "file.h"
#include "native_case.h"
#include "test.h"
#include "test_dir.h"

TEST_DIR(dir)

static void ranks_round_trip(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (int size = 1; size <= 5; size++) {
        char path[64];
        snprintf(path, sizeof(path), "%s/trip%d", dir, size);
        native_save_ok(path, 100, size, size % 2 == 0);
        native_check(ctx, path, 100);
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
    native_save_ok(in_dir("rect"), 1, 3, false);
    assert_ok(ctx, loongi_checkpoint_open(ctx, in_dir("rect"), &checkpoint));
    const loong_checkpoint_tensor_t *t =
        loongi_checkpoint_find(checkpoint, "param", "m.experts");
    native_fill(2, 1, 0, ROWS, whole);
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
    native_job_t job = {0};
    native_save_ok(in_dir("hole"), 1, 2, false);
    job.dir = in_dir("hole");
    job.step = 2;
    job.skip_rank_1 = true;
    assert_int_equal(native_save(&job, 3), LOONG_ERR_FORMAT);
    assert_non_null(strstr(job.error, "param m.up.weight [23, 40]: "
                                      "600 of 920 elements are there"));
    job = (native_job_t){0};
    job.dir = in_dir("hole");
    job.step = 2;
    job.double_rank_1 = true;
    assert_int_equal(native_save(&job, 3), LOONG_ERR_FORMAT);
    assert_non_null(strstr(job.error, "overlap"));
    assert_false(loongi_dir_exists(in_dir("hole/step_00000002")));
    assert_false(loongi_dir_exists(in_dir("hole/.tmp_step_00000002")));
    native_check(ctx, in_dir("hole"), 1);
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

    native_save_ok(save, 3, 2, false);
    damage(ctx, file, 5000, -1);
    assert_fails(ctx, loongi_checkpoint_open(ctx, save, &checkpoint),
                 LOONG_ERR_FORMAT, "rank_00001.h5 has 5000 bytes instead of");
    unlink(file);
    assert_fails(ctx, loongi_checkpoint_open(ctx, save, &checkpoint),
                 LOONG_ERR_FORMAT, "rank_00001.h5 is missing");

    native_save_ok(save, 3, 2, false);
    damage(ctx, file, -1, 4200); /* one bit of the data */
    assert_ok(ctx, loongi_checkpoint_open(ctx, save, &checkpoint));
    assert_fails(ctx, loongi_checkpoint_verify(checkpoint, 0, 1),
                 LOONG_ERR_FORMAT, "rank_00001.h5: checksum");
    assert_ok(ctx, loongi_checkpoint_verify(checkpoint, 0, 3));
    loongi_checkpoint_close(&checkpoint);

    snprintf(file, sizeof(file), "%s/step_00000003/checkpoint.json", save);
    native_save_ok(save, 3, 2, false);
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
    native_check(ctx, save, 3);
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
    native_save_ok(in_dir("diff"), 1, 2, false);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_round_trip),
        cmocka_unit_test(rectangles_and_types),
        cmocka_unit_test(holes_and_overlaps_are_refused),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(differences_are_listed),
        cmocka_unit_test(pieces_are_checked),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
