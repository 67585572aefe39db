/* SPDX-License-Identifier: Apache-2.0
 *
 * train.kl_loss_coeff: a frozen copy of the model as it was at the start runs
 * in every step beside it. Ten steps are those of transformers
 * (tests/golden/kl_train.py), on several ranks and through a resume; what does
 * not go with it is refused. */
#include <math.h>

#include "loong/dataset.h"
#include "train_job.h"

enum { TEN = 10, TOKENS = 65, VOCAB = 97 };

#define KL                                                       \
    "~model\ndata.train=[{path: $DIR/kl}]\ndata.seq_length=16\n" \
    "train.global_batch_size=4\ntrain.micro_batch_size=1\n"      \
    "train.train_iters=10\ntrain.kl_loss_coeff=0.3\n"            \
    "optimizer.lr=0.01\noptimizer.lr_decay_style=constant\n"     \
    "optimizer.clip_grad=0\noptimizer.weight_decay=0\n"          \
    "init.from_hf=" LOONG_SOURCE_DIR                             \
    "/tests/golden/fixtures/llama3_gqa_tied\n"

static job_place_t begin(void)
{
    job_place_t p = job_begin();
    int32_t ids[TOKENS];
    char prefix[300];
    snprintf(prefix, sizeof(prefix), "%s/kl", p.dir);
    loong_dataset_writer_params_t params = {prefix, loong_dataset_dtype(VOCAB),
                                            false};
    loong_dataset_writer_t *writer = NULL;
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = (7 * i * i + 3 * i + 1) % VOCAB;
    }
    assert_ok(p.ctx, loong_dataset_writer_create(p.ctx, &params, &writer));
    assert_ok(p.ctx, loong_dataset_writer_add(writer, ids, NULL, TOKENS));
    assert_ok(p.ctx, loong_dataset_writer_end_document(writer));
    assert_ok(p.ctx, loong_dataset_writer_commit(writer));
    loong_dataset_writer_destroy(&writer);
    return p;
}

static void run(const job_place_t *p, int ranks, const char *keys)
{
    job_result_t r;
    char all[2048];
    snprintf(all, sizeof(all), KL "%s", keys);
    job_run(p, ranks, all, &r);
    if (r.status != LOONG_OK && r.status != LOONG_ERR_INTERRUPTED) {
        fail_msg("status %d: %s %s", (int)r.status, r.error, r.log);
    }
}

static void compare(const job_place_t *p, const char *what)
{
    static const char *const keys[] = {"loss", "kl_loss", "grad_norm"};
    double got[3][TEN + 1];
    FILE *file = fopen(LOONG_SOURCE_DIR "/tests/golden/kl_train.txt", "r");
    assert_non_null(file);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(job_metrics(p, NULL, keys[k], got[k], TEN + 1), TEN);
    }
    for (int i = 0; i < TEN; i++) {
        for (int k = 0; k < 3; k++) {
            double wanted = NAN;
            assert_int_equal(fscanf(file, "%lf", &wanted), 1);
            if (!(fabs(got[k][i] - wanted) <= 1e-8 * fabs(wanted))) {
                fail_msg("%s, %s of step %d: %.12g, wanted %.12g", what,
                         keys[k], i, got[k][i], wanted);
            }
        }
    }
    fclose(file);
}

static void ten_steps_are_those_of_transformers(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *keys;
    } layouts[] = {
        {1, ""},
        {1, "train.micro_batch_size=4\nrecompute.granularity=full\n"},
        {2, "parallel.data_parallel_sharding=optim_grads_params\n"},
        {2, "parallel.tensor_model_parallel_size=2\n"
            "parallel.sequence_parallel=true\n"},
        {4, "parallel.tensor_model_parallel_size=2\n"
            "parallel.context_parallel_size=2\n"},
    };
    for (int i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        job_place_t p = begin();
        run(&p, layouts[i].ranks, layouts[i].keys);
        compare(&p, layouts[i].keys);
        job_end(&p);
    }
}

/* Samples are the model's alone. */
static void the_model_is_sampled(void **state)
{
    (void)state;
    static const char *const methods[] = {"", "finetune.method=lora\n"};
    for (int i = 0; i < LOONG_COUNT_OF(methods); i++) {
        job_place_t p = job_begin();
        job_result_t r;
        char keys[512];
        snprintf(keys, sizeof(keys),
                 "model.foundation.vocab_size=257\ndata.tokenizer=bytes\n"
                 "training_phase=pretrain\ntrain.train_iters=2\n"
                 "train.kl_loss_coeff=0.5\neval.interval=2\n"
                 "eval.sample.prompts=[ab]\neval.sample.max_new_tokens=4\n"
                 "parallel.tensor_model_parallel_size=2\n%s",
                 methods[i]);
        job_run(&p, 2, keys, &r);
        if (r.status != LOONG_OK || strstr(r.log, "ab") == NULL) {
            fail_msg("status %d: %s %s", (int)r.status, r.error, r.log);
        }
        job_end(&p);
    }
}

/* Its parameters have no masters: in bf16 they are saved as they are. */
static void a_resume_keeps_the_start_in_bf16(void **state)
{
    (void)state;
    double kl[2][TEN + 1];
    static const char *const ranks[] = {
        "", "parallel.data_parallel_sharding=optim_grads_params\n"};
    for (int i = 0; i < 2; i++) {
        char keys[512];
        job_place_t p = begin();
        snprintf(keys, sizeof(keys), "precision.params_dtype=bf16\n%s%s",
                 ranks[i],
                 i == 1 ? "train.exit_interval=4\ncheckpoint.save_interval=4\n"
                        : "");
        run(&p, 1 + i, keys);
        if (i == 1) {
            run(&p, 2,
                "precision.params_dtype=bf16\ncheckpoint.load=auto\n"
                "parallel.data_parallel_sharding=optim_grads_params\n");
        }
        assert_int_equal(job_metrics(&p, NULL, "kl_loss", kl[i], TEN + 1), TEN);
        job_end(&p);
    }
    for (int i = 0; i < TEN; i++) {
        assert_true(fabs(kl[0][i] - kl[1][i]) <= 0.05 * (1.0 + kl[0][i]));
    }
}

/* The start is saved: it is not where the resume begins. */
static void a_resume_keeps_the_start(void **state)
{
    (void)state;
    job_place_t p = begin();
    run(&p, 1, "train.exit_interval=4\ncheckpoint.save_interval=4\n");
    run(&p, 2,
        "checkpoint.load=auto\n"
        "parallel.tensor_model_parallel_size=2\n");
    compare(&p, "resumed");
    job_end(&p);
}

static void what_does_not_go_with_it_is_refused(void **state)
{
    (void)state;
    job_place_t p = begin();
    job_result_t r;
    job_run(&p, 2, KL "parallel.pipeline_model_parallel_size=2\n", &r);
    assert_int_not_equal(r.status, LOONG_OK);
    if (strstr(r.error, "train.kl_loss_coeff: the reference is a copy of "
                        "the model in one stage, so "
                        "that parallel.pipeline_model_parallel_size 2 does not "
                        "go with it") == NULL) {
        fail_msg("%s", r.error);
    }
    job_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_steps_are_those_of_transformers),
        cmocka_unit_test(the_model_is_sampled),
        cmocka_unit_test(a_resume_keeps_the_start),
        cmocka_unit_test(a_resume_keeps_the_start_in_bf16),
        cmocka_unit_test(what_does_not_go_with_it_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
