/* SPDX-License-Identifier: Apache-2.0
 *
 * A vision transformer trains from a recipe: pictures of several formats in a
 * directory for each class, on several layouts, with and without threads that
 * read ahead; saved, resumed on another layout, evaluated; what is wrong with
 * recipe or pictures is named. */
#include "picture_job.h"

#include "file.h"

#define FIXTURES LOONG_SOURCE_DIR "/tests/fixtures/images/"

enum { STEPS = 4 };

#define VIT                                                                \
    "~model.foundation\n~data.seq_length\n"                                \
    "model.image_encoder={family: vit, num_layers: 2, hidden_size: 24, "   \
    "num_attention_heads: 4, ffn_hidden_size: 40, image_size: 24, "        \
    "patch_size: 8, num_classes: 3}\ndata.train=[{path: $DIR/pictures}]\n" \
    "log.tensorboard=false\n"

static void run(const job_place_t *p, int ranks, const char *keys,
                job_result_t *r)
{
    char all[2048];
    snprintf(all, sizeof(all), VIT "%s", keys);
    job_run(p, ranks, all, r);
    if (r->status != LOONG_OK) {
        fail_msg("%s: %s", keys, r->error);
    }
}

static void losses_are_those_of_one_rank(void **state)
{
    static const struct {
        int ranks;
        const char *keys;
    } layouts[] = {
        {1, "data.num_workers=0\ntrain.micro_batch_size=4\n"},
        {2, "train.micro_batch_size=3\n"},
        {2, "parallel.tensor_model_parallel_size=2\n"},
        {2, "parallel.tensor_model_parallel_size=2\n"
            "parallel.sequence_parallel=true\ntrain.micro_batch_size=3\n"},
        {4, "parallel.tensor_model_parallel_size=2\n"
            "parallel.sequence_parallel=true\n"
            "parallel.data_parallel_sharding=optim_grads_params\n"},
        {2, "parallel.data_parallel_sharding=optim\n"
            "recompute.granularity=full\n"},
        {2, "parallel.pipeline_model_parallel_size=2\n"}};
    double one[STEPS + 1];
    double other[STEPS + 1];
    (void)state;
    for (int i = -1; i < LOONG_COUNT_OF(layouts); i++) {
        job_place_t p = pictures_begin();
        job_result_t r;
        double *to = i < 0 ? one : other;
        run(&p, i < 0 ? 1 : layouts[i].ranks, i < 0 ? "" : layouts[i].keys, &r);
        assert_int_equal(job_metrics(&p, NULL, "loss", to, STEPS + 1), STEPS);
        for (int k = 0; k < STEPS && i >= 0; k++) {
            assert_true(fabs(one[k] - other[k]) <= 1e-12 * fabs(one[k]));
        }
        job_end(&p);
    }
    assert_true(one[STEPS - 1] < one[0]);
}

static void resumes_on_another_layout(void **state)
{
    (void)state;
    job_place_t p = pictures_begin();
    job_result_t r;
    double whole[STEPS + 1];
    double parts[STEPS + 1];
    double eval[2];
    run(&p, 1, "", &r);
    assert_int_equal(job_metrics(&p, NULL, "loss", whole, STEPS + 1), STEPS);
    job_end(&p);
    p = pictures_begin();
    job_run(&p, 2,
            VIT "train.exit_interval=2\n"
                "parallel.tensor_model_parallel_size=2\n",
            &r);
    assert_int_equal(r.state.step, 2);
    run(&p, 1,
        "checkpoint.load=auto\n"
        "data.validation=[{name: all, path: $DIR/pictures}]\n",
        &r);
    assert_int_equal(job_metrics(&p, NULL, "loss", parts, STEPS + 1), STEPS);
    assert_int_equal(job_metrics(&p, "all", "loss", eval, 2), 1);
    for (int i = 0; i < STEPS; i++) {
        assert_true(fabs(parts[i] - whole[i]) <= 1e-12 * fabs(whole[i]));
    }
    assert_non_null(strstr(r.log, "12 pictures"));
    assert_null(strstr(r.log, "ppl"));
    double *weight = NULL;
    int64_t n = job_tensor(&p, "save", "param",
                           "image_encoder.classifier.weight", &weight);
    assert_int_equal(n, 3 * 24);
    free(weight);
    /* A picture that was replaced is another one. */
    char path[128];
    snprintf(path, sizeof(path), "%s/pictures/b/grey.png", p.dir);
    assert_ok(p.ctx, loongi_file_copy(p.ctx, FIXTURES "rgb.png", path));
    job_run(&p, 1, VIT "checkpoint.load=auto\n", &r);
    assert_int_equal(r.status, LOONG_ERR_MISMATCH);
    assert_non_null(strstr(r.error, "is not what the earlier run used"));
    job_end(&p);
}

static void twenty_steps_are_those_of_transformers(void **state)
{
    static const char *const names[] = {
        "rgb.png",  "j420.jpg", "grey.png",   "progressive.jpg", "palette.png",
        "cmyk.jpg", "rgba.png", "lossy.webp", "j444.jpg",        "rgb16.png"};
    static const char *const models[] = {"vit", "clip", "siglip"};
    (void)state;
    for (int m = 0; m < LOONG_COUNT_OF(models); m++) {
        job_place_t p = job_begin();
        for (int i = 0; i < LOONG_COUNT_OF(names); i++) {
            pictures_copy(&p, names[i], (char[]){(char)('a' + i / 2), '\0'});
        }
        pictures_twenty_steps(&p, models[m],
                              "train.global_batch_size=10\n"
                              "train.micro_batch_size=5\n");
        job_end(&p);
    }
}

/* Classes of one's own on a published encoder: its classifier has another
 * shape than the directory's. */
static void a_new_classifier_on_a_published_encoder(void **state)
{
    enum { STARTS = 3 * 16 };
    static const char *const layouts[] = {
        "", "parallel.tensor_model_parallel_size=2\n"};
    static const char keys[] =
        "~model.image_encoder\nmodel.image_encoder.num_classes=3\n"
        "init.from_hf=" LOONG_SOURCE_DIR "/tests/golden/vision/clip\n"
        "optimizer.lr=0\n";
    double *weight[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        char all[1024];
        job_place_t p = pictures_begin();
        job_result_t r;
        snprintf(all, sizeof(all), VIT "%s", keys);
        job_run(&p, 1, all, &r);
        assert_non_null(strstr(r.error, "shape: classifier.weight is [5, 16] "
                                        "in the directory, [3, 16] in the "
                                        "model"));
        snprintf(all, sizeof(all), "%sinit.by_scope=[{scope: classifier}]\n%s",
                 keys, layouts[i]);
        run(&p, i + 1, all, &r);
        assert_non_null(strstr(r.log, "2 parameters (classifier.weight, "
                                      "classifier.bias)"));
        assert_int_equal(job_tensor(&p, "save", "param",
                                    "image_encoder.classifier.weight",
                                    &weight[i]),
                         STARTS);
        job_end(&p);
    }
    assert_memory_equal(weight[0], weight[1], STARTS * sizeof(double));
    free(weight[0]);
    free(weight[1]);
}

static void refused(const char *keys, const char *says)
{
    job_place_t p = pictures_begin();
    job_result_t r;
    char all[2048];
    snprintf(all, sizeof(all), VIT "%s", keys);
    job_run(&p, 1, all, &r);
    assert_int_not_equal(r.status, LOONG_OK);
    if (strstr(r.error, says) == NULL) {
        fail_msg("'%s' is not in: %s", says, r.error);
    }
    assert_int_equal(r.state.step, 0);
    assert_null(strstr(r.error, ".idx")); /* nothing that follows from it */
    assert_true(strstr(keys, "model.foundation") != NULL ||
                strstr(r.error, "data.seq_length: not set") == NULL);
    job_end(&p);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    refused("data.seq_length=16\n", "found 16, a picture of 24 pixels a side "
                                    "has 10 rows");
    refused("model.image_encoder.num_classes=2\ntrain.micro_batch_size=1\n"
            "train.global_batch_size=1\ntrain.train_iters=1\nseed=1\n",
            "is of class 2"); /* which the one step would not have met */
    refused("model.image_encoder.patch_size=25\n", "is less than patch_size");
    refused("data.validation_split=0.1\n", "are not split");
    refused("data.train=[{path: $DIR/data, source: tokens}]\n",
            "has texts, which the model does not read");
    refused("data.train=[{path: $DIR/pictures, source: films}]\n",
            "no source of class 'films', there are tokens, documents, images");
    refused("data.image_processor=" FIXTURES "siglip.json\n",
            "becomes 40 x 33 pixels, the model takes 24 x 24");
    refused("data.image_processor=none.json\n",
            "wanted by data.image_processor");
    refused("data.image_processor=" FIXTURES "raw.json\n",
            "data 'train': every picture: becomes 16 x 16 pixels");
    refused("train.kl_loss_coeff=0.1\n", "family vit has no vocabulary");
    refused("train.z_loss_coeff=0.1\n", "family vit has no vocabulary");
    refused("eval.sample.prompts=[a]\n", "family vit has no vocabulary");
    refused("model.image_encoder.feature_layer=0\n", "the first layer is 1");
    refused("~model.image_encoder.num_classes\n"
            "model.image_encoder.masked_image_modeling=true\n"
            "model.image_encoder.feature_layer=1\n",
            "of which nobody reads a layer");
    refused("model.image_encoder.parallel.tensor_model_parallel_size=1\n",
            "has no effect on a model of one component");
    refused("model.foundation={family: qwen3}\n",
            "image_encoder and foundation; pictures reach a foundation");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_one_rank),
        cmocka_unit_test(resumes_on_another_layout),
        cmocka_unit_test(twenty_steps_are_those_of_transformers),
        cmocka_unit_test(a_new_classifier_on_a_published_encoder),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
