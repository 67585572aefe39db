/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of many lengths in rows: steps are those of transformers on each
 * sample alone (tests/golden/packed_train.py), for all normalisations of the
 * loss, packings and layouts. Trainings whose length is given in epochs, and
 * what is refused. */
#include <math.h>

#include "loong/dataset.h"
#include "train_job.h"

enum { STEPS = 4, SAMPLES = 24, VOCAB = 97, KINDS = 3, ROOM = 64 };

static const char *const kinds[KINDS] = {"token", "sample", "square_root"};

#define ROWS                                                      \
    "~model\ndata.train=[{path: $DIR/rows, source: documents}]\n" \
    "data.seq_length=40\ntrain.micro_batch_size=1\n"              \
    "optimizer.lr=0.01\noptimizer.lr_decay_style=constant\n"      \
    "optimizer.clip_grad=0\noptimizer.weight_decay=0\n"           \
    "init.from_hf=" LOONG_SOURCE_DIR                              \
    "/tests/golden/fixtures/llama3_gqa_tied\n"

static job_place_t begin(void)
{
    job_place_t p = job_begin();
    char prefix[300];
    snprintf(prefix, sizeof(prefix), "%s/rows", p.dir);
    loong_dataset_writer_params_t params = {prefix, LOONG_U16, true};
    loong_dataset_writer_t *writer = NULL;
    assert_ok(p.ctx, loong_dataset_writer_create(p.ctx, &params, &writer));
    for (int d = 0; d < SAMPLES; d++) {
        int n = 2 + (7 * d * d + 5 * d) % 31;
        for (int i = 0; i < n; i++) {
            int32_t id = (11 * d * d + 7 * i * i + 3 * i + 1) % VOCAB;
            uint8_t mask = (i * i + d) % 3 != 0;
            assert_ok(p.ctx, loong_dataset_writer_add(writer, &id, &mask, 1));
        }
        assert_ok(p.ctx, loong_dataset_writer_end_document(writer));
    }
    assert_ok(p.ctx, loong_dataset_writer_commit(writer));
    loong_dataset_writer_destroy(&writer);
    return p;
}

static void run(const job_place_t *p, int ranks, const char *keys,
                job_result_t *r)
{
    char all[2048];
    snprintf(all, sizeof(all), ROWS "%s", keys);
    job_run(p, ranks, all, r);
}

/* The figures of `steps` steps of kind k against the file's. */
static void compare(const job_place_t *p, int k, int steps, const char *what)
{
    static const char *const keys[] = {"loss", "grad_norm"};
    double got[2][ROOM];
    FILE *file = fopen(LOONG_SOURCE_DIR "/tests/golden/packed_train.txt", "r");
    assert_non_null(file);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(job_metrics(p, NULL, keys[i], got[i], ROOM), steps);
    }
    for (int line = 0; line < k * STEPS + steps; line++) {
        for (int i = 0; i < 2; i++) {
            int step = line - k * STEPS;
            double wanted = NAN;
            assert_int_equal(fscanf(file, "%lf", &wanted), 1);
            /* metrics.jsonl has 9 figures */
            if (step >= 0 &&
                !(fabs(got[i][step] - wanted) <= 1e-8 * fabs(wanted))) {
                fail_msg("%s, %s of step %d: %.12g, wanted %.12g", what,
                         keys[i], step, got[i][step], wanted);
            }
        }
    }
    fclose(file);
}

static void train(const char *packing, int rows, int epochs, int k, int ranks,
                  const char *layout)
{
    job_place_t p = begin();
    job_result_t r;
    char keys[1024];
    snprintf(keys, sizeof(keys),
             "data.packing=%s\ntrain.loss_normalization=%s\n"
             "train.global_batch_size=%d\ntrain.epochs=%d\n"
             "~train.train_iters\n%s",
             packing, kinds[k], rows, epochs, layout);
    run(&p, ranks, keys, &r);
    if (r.status != LOONG_OK) {
        fail_msg("status %d: %s %s", (int)r.status, r.error, r.log);
    }
    compare(&p, k, epochs, keys);
    job_end(&p);
}

/* best_fit makes 8 rows. */
static void steps_are_those_of_samples_alone(void **state)
{
    static const struct {
        int ranks;
        const char *keys;
    } layouts[] = {
        {1, ""},
        {1, "train.micro_batch_size=8\n"},
        {2, "parallel.data_parallel_sharding=optim_grads_params\n"},
        {2, "parallel.pipeline_model_parallel_size=2\n"},
        {4, "parallel.tensor_model_parallel_size=2\n"
            "parallel.sequence_parallel=true\ntrain.micro_batch_size=2\n"},
        {4, "parallel.tensor_model_parallel_size=2\n"
            "parallel.context_parallel_size=2\n"},
        {4, "parallel.context_parallel_size=2\n"
            "parallel.data_parallel_sharding=optim_grads\n"},
    };
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        train("best_fit", 8, i < KINDS ? STEPS : 2, i % KINDS, layouts[i].ranks,
              layouts[i].keys);
    }
    train("none", 24, 2, 2, 1, "train.micro_batch_size=8\n");
}

/* Of a batch that the data does not fill the rest is empty rows. */
static void a_last_batch_may_be_short(void **state)
{
    static const char *const packings[] = {"none", "greedy", "best_fit"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        train(packings[i], 28 - 16 * (i > 0), 1, (i + 1) % KINDS, 1 + i % 2,
              "train.micro_batch_size=2\n");
    }
}

/* Losses of a run of three epochs, 24 rows in steps of 7, from the state of
 * `load` on where that is not "". */
static void three_epochs(const job_place_t *p, int ranks, const char *keys)
{
    job_result_t r;
    char all[1024];
    snprintf(all, sizeof(all),
             "data.packing=best_fit\ntrain.global_batch_size=7\n"
             "train.epochs=3\n~train.train_iters\n"
             "train.loss_normalization=square_root\n%s",
             keys);
    run(p, ranks, all, &r);
    if (r.status != LOONG_OK && r.status != LOONG_ERR_INTERRUPTED) {
        fail_msg("status %d: %s %s", (int)r.status, r.error, r.log);
    }
}

/* A run that stops in an epoch and goes on in another layout is that of one
 * that never stopped; one that has ended goes on with the next epoch's first
 * row when it is to have more of them. */
static void epochs_are_resumed(void **state)
{
    double whole[ROOM];
    double parts[ROOM];
    job_result_t r;
    (void)state;
    job_place_t p = begin();
    three_epochs(&p, 1, "~checkpoint.save\n");
    assert_int_equal(job_metrics(&p, NULL, "loss", whole, ROOM), 4);
    job_end(&p);
    p = begin();
    three_epochs(&p, 1, "train.micro_batch_size=7\ntrain.exit_interval=2\n");
    three_epochs(&p, 4,
                 "parallel.tensor_model_parallel_size=2\n"
                 "parallel.context_parallel_size=2\n"
                 "checkpoint.load=auto\n");
    assert_int_equal(job_metrics(&p, NULL, "loss", parts, ROOM), 4);
    for (int i = 0; i < 4; i++) {
        assert_true(fabs(parts[i] - whole[i]) <= 1e-8 * whole[i]);
    }
    run(&p, 1,
        "data.packing=best_fit\ntrain.global_batch_size=7\n"
        "train.loss_normalization=square_root\n"
        "train.epochs=4\n~train.train_iters\ncheckpoint.load=auto\n",
        &r);
    if (r.status != LOONG_OK || r.state.consumed_samples != 32) {
        fail_msg("status %d: %lld rows, %s %s", (int)r.status,
                 (long long)r.state.consumed_samples, r.error, r.log);
    }
    job_end(&p);
}

/* Micro-batches on other ranks: the loss has the same bits, the gradient is
 * another order of the same sum. */
static void micro_batches_are_the_same_on_other_ranks(void **state)
{
    static const char *const keys[] = {"true", "false"};
    double loss[2];
    double norm[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        char all[512];
        job_result_t r;
        job_place_t p = begin();
        snprintf(all, sizeof(all),
                 "data.packing=best_fit\ndata.balance=%s\n"
                 "train.global_batch_size=8\ntrain.train_iters=1\n"
                 "train.loss_normalization=square_root\n",
                 keys[i]);
        run(&p, 4, all, &r);
        if (r.status != LOONG_OK) {
            fail_msg("status %d: %s %s", (int)r.status, r.error, r.log);
        }
        loss[i] = r.state.loss;
        norm[i] = r.state.grad_norm;
        job_end(&p);
    }
    assert_true(loss[0] == loss[1]);
    assert_true(fabs(norm[0] - norm[1]) <= 1e-9 * norm[1]);
}

static void refuse(const job_place_t *p, const char *keys, const char *reason)
{
    job_result_t r;
    run(p, 2, keys, &r);
    if (r.status != LOONG_ERR_CONFIG || strstr(r.error, reason) == NULL) {
        fail_msg("status %d, '%s' is not in %s", (int)r.status, reason,
                 r.error);
    }
}

static void what_does_not_fit_is_named(void **state)
{
    (void)state;
    job_place_t p = begin();
    refuse(&p, "data.seq_length=24\n",
           "2 of 24 samples are longer than the 25 ids of a row (seq_length 24 "
           "+ 1), and data.truncation: refuse cuts none");
    refuse(&p, "data.seq_length=24\n", "\n  sample 21: 32");
    refuse(&p, "data.seq_length=24\ndata.truncation=turn\n",
           "data.truncation: turn finds no turns to drop");
    refuse(&p, "data.train=[{path: $DIR/rows}]\ndata.packing=none\n",
           "data.packing: no source of data.train has texts");
    refuse(&p, "data.train=[{path: $DIR/rows}]\ndata.truncation=left\n",
           "data.truncation: no source of data.train has texts");
    refuse(&p, "train.epochs=0.001\n~train.train_iters\n",
           "0.001 of 24 samples is none");
    refuse(&p, "train.epochs=2\n", "set beside train.train_iters");
    job_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_samples_alone),
        cmocka_unit_test(a_last_batch_may_be_short),
        cmocka_unit_test(epochs_are_resumed),
        cmocka_unit_test(micro_batches_are_the_same_on_other_ranks),
        cmocka_unit_test(what_does_not_fit_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
