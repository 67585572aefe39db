/* SPDX-License-Identifier: Apache-2.0
 *
 * A vision transformer learns to find the pixels of masked patches: equal
 * masks and losses on several layouts; what it learns begins a classifier. */
#include "picture_job.h"

enum { STEPS = 4 };

#define GOLDEN LOONG_SOURCE_DIR "/tests/golden/vision/"
#define DATA                                \
    "~model.foundation\n~data.seq_length\n" \
    "data.train=[{path: $DIR/pictures}]\n"  \
    "data.validation=[{name: all, path: $DIR/pictures}]\n"
#define MASKED                                                                \
    DATA "model.image_encoder={family: vit, num_layers: 2, hidden_size: 24, " \
         "num_attention_heads: 4, ffn_hidden_size: 40, image_size: 24, "      \
         "patch_size: 8, masked_image_modeling: true}\n"

static void run(const job_place_t *p, int ranks, const char *first,
                const char *keys, job_result_t *r)
{
    char all[2048];
    snprintf(all, sizeof(all), "%s%s", first, keys);
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
        {1, ""},
        {1, "data.num_workers=0\ntrain.micro_batch_size=4\n"},
        {2, "train.micro_batch_size=3\nrecompute.granularity=full\n"
            "parallel.data_parallel_sharding=optim\n"},
        {2, "parallel.tensor_model_parallel_size=2\n"},
        {2, "parallel.tensor_model_parallel_size=2\n"
            "parallel.sequence_parallel=true\ntrain.micro_batch_size=3\n"},
        {2, "parallel.data_parallel_sharding=optim_grads\n"},
        {4, "parallel.tensor_model_parallel_size=2\n"
            "parallel.sequence_parallel=true\n"
            "parallel.data_parallel_sharding=optim_grads_params\n"},
        {2, "parallel.pipeline_model_parallel_size=2\n"}};
    static const char *const names[] = {"loss", "grad_norm"};
    double one[3][STEPS + 1];
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        job_place_t p = pictures_begin();
        job_result_t r;
        run(&p, layouts[i].ranks, MASKED, layouts[i].keys, &r);
        /* 12 pictures of 9 patches, of which 5 are masked */
        assert_non_null(strstr(r.log, "60 masked_patches"));
        for (int n = 0; n < 3; n++) {
            double other[STEPS + 1];
            double *to = i == 0 ? one[n] : other;
            int count = n < 2 ? STEPS : 1;
            assert_int_equal(job_metrics(&p, n < 2 ? NULL : "all", names[n % 2],
                                         to, STEPS + 1),
                             count);
            for (int k = 0; k < count; k++) {
                if (!(fabs(one[n][k] - to[k]) <= 1e-12 * fabs(to[k]))) {
                    fail_msg("%s: %.12g, not %.12g", layouts[i].keys, to[k],
                             one[n][k]);
                }
            }
        }
        job_end(&p);
    }
    assert_true(one[0][STEPS - 1] < one[0][0]);
}

static void resumes_with_the_masks_that_follow(void **state)
{
    double whole[STEPS + 1];
    double parts[STEPS + 1];
    (void)state;
    for (int i = 0; i < 2; i++) {
        job_place_t p = pictures_begin();
        job_result_t r;
        if (i > 0) {
            job_run(&p, 1, MASKED "train.exit_interval=2\n", &r);
            assert_int_equal(r.state.step, 2);
        }
        run(&p, 1 + i, MASKED, "checkpoint.load=auto\n", &r);
        assert_int_equal(
            job_metrics(&p, NULL, "loss", i > 0 ? parts : whole, STEPS + 1),
            STEPS);
        job_end(&p);
    }
    for (int i = 0; i < STEPS; i++) {
        assert_true(fabs(parts[i] - whole[i]) <= 1e-12 * fabs(whole[i]));
    }
}

static void twenty_steps_are_those_of_transformers(void **state)
{
    job_place_t p = job_begin();
    (void)state;
    pictures_copy(&p, "rgb.png", "a");
    pictures_twenty_steps(&p, "masked",
                          "train.global_batch_size=4\n"
                          "train.micro_batch_size=2\n");
    job_end(&p);
}

/* A classifier in place of the decoder, and the other way; all that both have
 * is the directory's. */
static void goes_on_as_another(void **state)
{
    static const struct {
        const char *from;
        const char *keys;
        const char *news;
    } cases[] = {
        {"masked",
         "model.image_encoder.masked_image_modeling=false\n"
         "model.image_encoder.num_classes=3\n"
         "init.by_scope=[{scope: classifier}]\n",
         "2 parameters (classifier.weight, classifier.bias)"},
        {"vit",
         "model.image_encoder.masked_image_modeling=true\n"
         "model.image_encoder.num_classes=0\n"
         "init.by_scope=[{scope: mask_token}, {scope: decoder}]\n",
         "3 parameters (mask_token.weight, decoder.weight, decoder.bias)"}};
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        job_place_t p = pictures_begin();
        job_result_t r;
        char keys[1024];
        snprintf(keys, sizeof(keys), "%sinit.from_hf=" GOLDEN "%s\n",
                 cases[i].keys, cases[i].from);
        run(&p, 1, DATA, keys, &r);
        if (strstr(r.log, cases[i].news) == NULL ||
            strstr(r.log, "the model has another head") == NULL) {
            fail_msg("%s", r.log);
        }
        job_end(&p);
    }
}

static void refused(const char *keys, const char *says)
{
    job_place_t p = pictures_begin();
    job_result_t r;
    char all[2048];
    snprintf(all, sizeof(all), MASKED "%s", keys);
    job_run(&p, 1, all, &r);
    assert_int_not_equal(r.status, LOONG_OK);
    if (strstr(r.error, says) == NULL) {
        fail_msg("'%s' is not in: %s", says, r.error);
    }
    job_end(&p);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    refused("data.mask_ratio=0.05\n",
            "mask_ratio 0.05 masks none of the 9 patches of a picture");
    refused("model.image_encoder.num_classes=3\n",
            "masked_image_modeling stands in place of a classifier, "
            "num_classes 3");
    refused("model.image_encoder.family=siglip_vision_model\n"
            "export.hf=$DIR/hf\n",
            "masked_image_modeling = true: model type siglip_vision_model has "
            "false");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_one_rank),
        cmocka_unit_test(resumes_with_the_masks_that_follow),
        cmocka_unit_test(twenty_steps_are_those_of_transformers),
        cmocka_unit_test(goes_on_as_another),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
