/* SPDX-License-Identifier: Apache-2.0
 *
 * Videos: tests/fixtures/videos/expected.txt has what transformers' processors
 * make of the files beside it (tests/oracle/videos.py); what is no video, or
 * cut off, is refused by its name. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "loong/video.h"
#include "test_dir.h"

TEST_DIR(dir)

#define VIDEOS LOONG_SOURCE_DIR "/tests/fixtures/videos/"

enum { MAX_FRAMES = 64 };

/* A line of expected.txt. */
typedef struct wanted {
    char file[64], kind[16];
    double fps, seconds, mean[3];
    long long num_frames, width, height, total, size[2];
    int count, numbers[MAX_FRAMES];
} wanted_t;

static bool read_line(FILE *f, wanted_t *w)
{
    int fields = fscanf(
        f, "%63s %15s %lf %lld %lld %lld %lld %lld %lld %lf %lf %lf %lf %d",
        w->file, w->kind, &w->fps, &w->num_frames, &w->width, &w->height,
        &w->total, &w->size[0], &w->size[1], &w->seconds, &w->mean[0],
        &w->mean[1], &w->mean[2], &w->count);
    for (int i = 0; fields == 14 && i < w->count; i++) {
        assert_int_equal(fscanf(f, "%d", &w->numbers[i]), 1);
    }
    return fields == 14;
}

/* As CASES of the script have them. */
static loong_image_processor_t *open_processor(loong_context_t *ctx,
                                               const wanted_t *w)
{
    loong_image_processor_t *p = NULL;
    char path[512];
    snprintf(path, sizeof(path), VIDEOS "%s.json", w->kind);
    for (char *c = path + strlen(VIDEOS); *c != '\0'; c++) {
        *c = (char)tolower(*c);
    }
    assert_ok(ctx, loong_video_processor_create(ctx, path, "Qwen2VL", &p));
    assert_ok(ctx, loong_video_processor_sample(p, w->fps, w->num_frames));
    return p;
}

static double mean_of(const float *values, int64_t first, int64_t end)
{
    double sum = 0.0;
    for (int64_t i = first; i < end; i++) {
        sum += (double)values[i];
    }
    return sum / (double)(end - first);
}

/* As numpy's array_split cuts rows into three. */
static void check_patches(const wanted_t *w, const float *patches, int64_t rows,
                          int64_t width)
{
    int64_t first = 0;
    for (int i = 0; i < 3; i++) {
        int64_t count = rows / 3 + (i < rows % 3 ? 1 : 0);
        double mean = mean_of(patches, first * width, (first + count) * width);
        if (fabs(mean - w->mean[i]) > 0.01) {
            fail_msg("%s, %s: mean %g, wanted %g", w->file, w->kind, mean,
                     w->mean[i]);
        }
        first += count;
    }
}

static void check_frames(loong_context_t *ctx, const loong_image_processor_t *p,
                         const wanted_t *w, const char *path,
                         const loong_video_t *video)
{
    bool single = strncmp(w->kind, "Qwen", 4) != 0 && /* frames of patches */
                  strcmp(w->kind, "Glm4v") != 0;
    int64_t patch = strcmp(w->kind, "Qwen3VL") == 0 ? 16 : 14;
    int64_t each = single ? 1 : 2;
    const loong_patch_cut_t cut = {patch, single ? 1 : 2, each, 0, false, 0,
                                    0};
    int64_t size[2];
    float *patches = NULL;
    loong_item_t item = {.type = LOONG_ITEM_IMAGE,
                         .size = {video->width, video->height},
                         .frames = video->frames};
    loong_video_size(p, video->width, video->height, video->frames, size);
    assert_int_equal(size[0], w->size[0]);
    assert_int_equal(size[1], w->size[1]);
    int64_t rows = (video->frames + each - 1) / each * (size[0] / patch) *
                   (size[1] / patch);
    int64_t width = 3 * each * patch * patch;
    size_t bytes = (size_t)(video->frames * size[0] * size[1]) * 3;
    assert_ok(ctx, loongi_alloc(ctx, bytes, "test", &item.pixels));
    assert_ok(ctx, loongi_calloc(ctx, (size_t)(rows * width), sizeof(float),
                                 "test", &patches));
    assert_ok(ctx, loong_video_read(ctx, p, path, video, item.pixels));
    assert_ok(ctx, loong_video_process(ctx, p, &item, &cut, patches));
    check_patches(w, patches, rows, width);
    loongi_free(ctx, patches);
    loongi_free(ctx, item.pixels);
}

static void test_as_transformers(void **state)
{
    loong_context_t *ctx = test_context();
    (void)state;
    FILE *f = fopen(VIDEOS "expected.txt", "r");
    wanted_t w;
    int cases = 0;
    assert_non_null(f);
    for (; read_line(f, &w); cases++) {
        char path[512];
        loong_video_t video;
        loong_image_processor_t *p = open_processor(ctx, &w);
        snprintf(path, sizeof(path), VIDEOS "%s", w.file);
        assert_ok(ctx, loong_video_measure(ctx, p, path, &video));
        assert_int_equal(video.width, w.width);
        assert_int_equal(video.height, w.height);
        assert_int_equal(video.total, w.total);
        assert_int_equal(video.frames, w.count);
        assert_true(fabs(video.seconds - w.seconds) < 1e-9);
        for (int k = 0; k < w.count; k++) {
            assert_int_equal(loong_video_frame(p, &video, k), w.numbers[k]);
        }
        check_frames(ctx, p, &w, path, &video);
        loong_image_processor_destroy(&p);
    }
    fclose(f);
    assert_true(cases >= 24);
    test_context_end(&ctx);
}

static void refuse(loong_context_t *ctx, const char *path, const char *why)
{
    loong_image_processor_t *p = NULL;
    loong_video_t video;
    uint8_t *pixels = NULL;
    assert_ok(ctx, loong_video_processor_create(ctx, VIDEOS "qwen2vl.json",
                                                "Qwen2VL", &p));
    loong_status_t status = loong_video_measure(ctx, p, path, &video);
    if (status == LOONG_OK) {
        int64_t size[2];
        loong_video_size(p, video.width, video.height, video.frames, size);
        assert_ok(ctx, loongi_alloc(
                           ctx, (size_t)(video.frames * size[0] * size[1]) * 3,
                           "test", &pixels));
        status = loong_video_read(ctx, p, path, &video, pixels);
    }
    assert_int_not_equal(status, LOONG_OK);
    const char *error = loong_context_error(ctx);
    if (strstr(error, path) == NULL || strstr(error, why) == NULL) {
        fail_msg("'%s' is not said of %s: %s", why, path, error);
    }
    loong_context_clear_error(ctx);
    loongi_free(ctx, pixels);
    loong_image_processor_destroy(&p);
}

/* The first part of a file. */
static void cut(loong_context_t *ctx, const char *name, double share,
                const char *to)
{
    char path[512];
    char *bytes = NULL;
    size_t length = 0;
    snprintf(path, sizeof(path), VIDEOS "%s", name);
    assert_ok(ctx, loongi_file_read(ctx, path, &bytes, &length));
    assert_ok(ctx, loongi_file_write(ctx, to, bytes,
                                     (size_t)((double)length * share)));
    loongi_free(ctx, bytes);
}

static void test_refused(void **state)
{
    loong_context_t *ctx = test_context();
    (void)state;
    refuse(ctx, in_dir("none.mp4"), "No such file");
    assert_ok(ctx,
              loongi_file_write(ctx, in_dir("text.mp4"), "hello, hello", 12));
    refuse(ctx, in_dir("text.mp4"), "is no video that is known");
    assert_ok(ctx, loongi_file_write(ctx, in_dir("empty.mp4"), "", 0));
    refuse(ctx, in_dir("empty.mp4"), "is empty");
    refuse(ctx, VIDEOS, "no regular file");
    cut(ctx, "h264.mp4", 0.5, in_dir("half.mp4"));
    refuse(ctx, in_dir("half.mp4"), "is no video that is known");
    cut(ctx, "mpeg4.avi", 0.9, in_dir("half.avi"));
    refuse(ctx, in_dir("half.avi"), "is cut off or broken");
    /* The numbers of frames are the processor's to say. */
    loong_image_processor_t *p = NULL;
    loong_video_t video;
    assert_ok(ctx, loong_video_processor_create(ctx, VIDEOS "internvl.json",
                                                "Qwen2VL", &p));
    assert_ok(ctx, loong_video_processor_sample(p, 0.0, 99));
    assert_int_equal(loong_video_measure(ctx, p, VIDEOS "h264.mp4", &video),
                     LOONG_ERR_FORMAT);
    assert_non_null(
        strstr(loong_context_error(ctx), "99 of its 30 frames are wanted"));
    loong_context_clear_error(ctx);
    assert_int_equal(loong_video_processor_sample(p, 2.0, 4), LOONG_ERR_CONFIG);
    loong_context_clear_error(ctx);
    loong_image_processor_destroy(&p);
    assert_ok(ctx, loong_video_processor_create(ctx, VIDEOS "qwen3vl.json",
                                                "Qwen2VL", &p));
    assert_ok(ctx, loong_video_processor_sample(p, 0.0, 1));
    assert_int_equal(loong_video_measure(ctx, p, VIDEOS "h264.mp4", &video),
                     LOONG_ERR_FORMAT);
    assert_non_null(strstr(loong_context_error(ctx),
                           "1 of its 30 frames are taken, the video processor "
                           "wants at least 2"));
    loong_context_clear_error(ctx);
    loong_image_processor_destroy(&p);
    assert_int_equal(
        loong_video_processor_create(ctx, NULL, "LlavaNextVideo", &p),
        LOONG_ERR_UNSUPPORTED);
    loong_context_clear_error(ctx);
    test_context_end(&ctx);
}

int main(void)
{
    if (!loong_video_loads()) {
        puts("SKIPPED: this build reads no videos");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_transformers),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
