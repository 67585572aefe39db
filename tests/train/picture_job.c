/* SPDX-License-Identifier: Apache-2.0 */
#include "picture_job.h"

#include "file.h"

#define FIXTURES LOONG_SOURCE_DIR "/tests/fixtures/images/"
#define GOLDEN LOONG_SOURCE_DIR "/tests/golden/vision/"

void pictures_copy(const job_place_t *place, const char *name,
                   const char *class)
{
    char path[256];
    char *bytes = NULL;
    size_t length = 0;
    snprintf(path, sizeof(path), FIXTURES "%s", name);
    assert_ok(place->ctx, loongi_file_read(place->ctx, path, &bytes, &length));
    snprintf(path, sizeof(path), "%s/pictures/%s", place->dir, class);
    assert_ok(place->ctx, loongi_dir_make(place->ctx, path));
    snprintf(path, sizeof(path), "%s/pictures/%s/%s", place->dir, class, name);
    assert_ok(place->ctx, loongi_file_write(place->ctx, path, bytes, length));
    loongi_free(place->ctx, bytes);
}

job_place_t pictures_begin(void)
{
    static const char *const classes[] = {"a", "b", "c"};
    static const char *const names[][4] = {
        {"rgb.png", "photo.jpg", "lossy.webp", "tall.jpg"},
        {"grey.png", "palette.png", "cmyk.jpg", "rgba.png"},
        {"j420.jpg", "lossless.webp", "rgb16.png", "progressive.jpg"}};
    job_place_t place = job_begin();
    for (int c = 0; c < 3; c++) {
        for (int i = 0; i < 4; i++) {
            pictures_copy(&place, names[c][i], classes[c]);
        }
    }
    return place;
}

void pictures_twenty_steps(const job_place_t *place, const char *model,
                           const char *overrides)
{
    enum { TWENTY = 20 };
    job_result_t r;
    double got[2][TWENTY + 1];
    char text[1024];
    snprintf(text, sizeof(text),
             "~model\n~data.seq_length\ninit.from_hf=" GOLDEN "%s\n"
             "data.train=[{path: $DIR/pictures}]\ntrain.train_iters=20\n"
             "optimizer.lr=0.01\noptimizer.lr_decay_style=constant\n"
             "optimizer.clip_grad=0\noptimizer.weight_decay=0\n%s",
             model, overrides);
    job_run(place, 1, text, &r);
    if (r.status != LOONG_OK) {
        fail_msg("%s", r.error);
    }
    assert_int_equal(job_metrics(place, NULL, "loss", got[0], TWENTY + 1),
                     TWENTY);
    assert_int_equal(job_metrics(place, NULL, "grad_norm", got[1], TWENTY + 1),
                     TWENTY);
    snprintf(text, sizeof(text), GOLDEN "%s/train.txt", model);
    FILE *file = fopen(text, "r");
    assert_non_null(file);
    for (int i = 0; i < TWENTY; i++) {
        double wanted[2];
        assert_int_equal(fscanf(file, "%lf %lf", &wanted[0], &wanted[1]), 2);
        for (int k = 0; k < 2; k++) {
            double error = fabs(got[k][i] / wanted[k] - 1.0);
            if (!(error <= 1e-8)) {
                fail_msg("%s, step %d: %.12g, wanted %.12g", model, i,
                         got[k][i], wanted[k]);
            }
        }
    }
    fclose(file);
}
