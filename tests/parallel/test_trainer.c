/* SPDX-License-Identifier: Apache-2.0
 *
 * The trainer on 1 to 4 data-parallel ranks (threads of this process) in f64:
 * the same losses, norms and parameters whatever the number of ranks; bit
 * for bit the same with and without ZeRO-1, with ZeRO-2 and 3 when each rank
 * has one micro-batch, when run twice, and after a resume. */
#include "test.h"

#include <unistd.h>

#include "file.h"
#include "loong/checkpoint.h"
#include "loong/comm.h"
#include "loong/dataset.h"
#include "loong/register.h"
#include "loong/trainer.h"
#include "native.h"
#include "trainer_impl.h"

enum { VOCAB = 61, DOCUMENTS = 40 };

/* Of a run; LOONG_LAYOUT_STEPS for more. */
static int steps(void)
{
    const char *text = getenv("LOONG_LAYOUT_STEPS");
    return text != NULL ? atoi(text) : 60;
}

typedef struct job {
    char dir[256];
    const char *save;
    const char *sharding;
    int batch; /* samples of a step, one to a micro-batch */
    const char *load; /* NULL: from the start */
    int stop_at;      /* 0: not */
    const char *dropout;
    const char *dtype;
    double loss;
    double grad_norm;
} job_t;

static void make_data(loong_context_t *ctx, const char *dir)
{
    char prefix[300];
    uint32_t state = 7;
    snprintf(prefix, sizeof(prefix), "%s/data", dir);
    loong_dataset_writer_params_t params = {prefix, LOONG_U16, false};
    loong_dataset_writer_t *writer = NULL;
    assert_ok(ctx, loong_dataset_writer_create(ctx, &params, &writer));
    for (int d = 0; d < DOCUMENTS; d++) {
        int32_t ids[200];
        for (int i = 0; i < 200; i++) {
            state = state * 1664525u + 1013904223u;
            ids[i] = (i % 3 == 0 && i > 0) ? (ids[i - 1] * 5 + 1) % VOCAB
                                           : (int32_t)(state >> 16) % VOCAB;
        }
        assert_ok(ctx, loong_dataset_writer_add(writer, ids, NULL, 120 + d));
        assert_ok(ctx, loong_dataset_writer_end_document(writer));
    }
    assert_ok(ctx, loong_dataset_writer_commit(writer));
    loong_dataset_writer_destroy(&writer);
}

static void recipe_text(const job_t *job, char *text, size_t size)
{
    snprintf(
        text, size,
        "seed: 11\n"
        "model:\n"
        "  foundation: {family: qwen3, num_layers: 2, hidden_size: 24,\n"
        "    ffn_hidden_size: 40, num_attention_heads: 3,\n"
        "    num_query_groups: 1, kv_channels: 8, vocab_size: %d,\n"
        "    make_vocab_size_divisible_by: 8, max_position_embeddings: 64,\n"
        "    qk_layernorm: true, add_qkv_bias: true, hidden_dropout: %s,\n"
        "    activation: swiglu,\n"
        "    untie_embeddings_and_output_weights: false}\n"
        "precision: {params_dtype: %s}\n"
        "data:\n"
        "  seq_length: 16\n"
        "  train: [{path: %s/data}]\n"
        "  reset_position_ids: true\n"
        "  reset_attention_mask: true\n"
        "train: {micro_batch_size: 1, global_batch_size: %d,\n"
        "  train_iters: %d, exit_interval: %d}\n"
        "optimizer: {lr: 3e-3, lr_warmup_iters: 10}\n"
        "parallel: {data_parallel_sharding: %s, bucket_bytes: 8192}\n"
        "checkpoint: {save: %s/%s%s%s}\n",
        VOCAB, job->dropout, job->dtype, job->dir, job->batch, steps(),
        job->stop_at,
        job->sharding, job->dir, job->save,
        job->load != NULL ? ", load: " : "",
        job->load != NULL ? job->load : "");
}

static loong_status_t train(loong_context_t *ctx, loong_comm_t *comm,
                            void *user)
{
    job_t *job = user;
    char text[4096];
    loong_recipe_t *recipe = NULL;
    loong_trainer_t *trainer = NULL;
    recipe_text(job, text, sizeof(text));
    LOONG_TRY(loong_register_builtin(ctx));
    LOONG_TRY(loong_recipe_parse(ctx, "test", text, NULL, &recipe));
    loong_trainer_params_t params = {.comm = comm, .recipe = recipe};
    loong_status_t status = loong_trainer_create(ctx, &params, &trainer);
    if (status == LOONG_OK) {
        trainer->report.gemm_gflops = INFINITY; /* not measured */
        status = loong_trainer_run(trainer);
    }
    if (status == LOONG_ERR_INTERRUPTED && job->stop_at > 0) {
        status = LOONG_OK;
    }
    if (status == LOONG_OK && loong_comm_rank(comm) == 0) {
        loong_trainer_state_t state = loong_trainer_get_state(trainer);
        job->loss = state.loss;
        job->grad_norm = state.grad_norm;
    }
    loong_trainer_destroy(&trainer);
    loong_recipe_destroy(&recipe);
    return status;
}

static void run_job(loong_context_t *ctx, job_t *job, int ranks)
{
    loong_threads_params_t params = {0};
    params.size = ranks;
    assert_ok(ctx, loong_threads_run(ctx, &params, train, job));
}

/* Largest relative difference of a kind of tensor, by norm. */
static double difference(loong_context_t *ctx, const job_t *a, const job_t *b,
                         const char *kind)
{
    loong_checkpoint_t *ck[2] = {NULL, NULL};
    const job_t *jobs[2] = {a, b};
    double worst = 0.0;
    for (int i = 0; i < 2; i++) {
        char path[600];
        snprintf(path, sizeof(path), "%s/%s", jobs[i]->dir, jobs[i]->save);
        assert_ok(ctx, loongi_checkpoint_open(ctx, path, &ck[i]));
    }
    for (int64_t i = 0; i < loongi_checkpoint_count(ck[0]); i++) {
        const loong_checkpoint_tensor_t *x = loongi_checkpoint_get(ck[0], i);
        const loong_checkpoint_tensor_t *y =
            loongi_checkpoint_find(ck[1], x->kind, x->name);
        if (strcmp(x->kind, kind) != 0) {
            continue;
        }
        int64_t n = x->shape[0] * (x->ndim > 1 ? x->shape[1] : 1);
        double *p = calloc((size_t)n, 2 * sizeof(*p));
        assert_non_null(y);
        assert_ok(ctx, loongi_checkpoint_read_rows(ck[0], x, 0, x->shape[0],
                                                   LOONG_F64, p));
        assert_ok(ctx, loongi_checkpoint_read_rows(ck[1], y, 0, y->shape[0],
                                                   LOONG_F64, p + n));
        double diff = 0.0;
        double norm = 0.0;
        for (int64_t k = 0; k < n; k++) {
            diff += (p[k] - p[n + k]) * (p[k] - p[n + k]);
            norm += p[n + k] * p[n + k];
        }
        worst = fmax(worst, norm > 0.0 ? sqrt(diff / norm) : sqrt(diff));
        free(p);
    }
    loongi_checkpoint_close(&ck[0]);
    loongi_checkpoint_close(&ck[1]);
    return worst;
}

static job_t make_job(const char *dir, const char *save)
{
    job_t job = {"", save, "optim", 12, NULL, 0, "0.0", "fp64", 0.0, 0.0};
    snprintf(job.dir, sizeof(job.dir), "%s", dir);
    return job;
}

typedef struct place {
    loong_context_t *ctx;
    char dir[64];
} place_t;

static place_t begin(void)
{
    place_t p = {test_context(), "/tmp/loong_trainer_XXXXXX"};
    assert_non_null(mkdtemp(p.dir));
    make_data(p.ctx, p.dir);
    return p;
}

static void end(place_t *p)
{
    assert_ok(p->ctx, loongi_dir_remove(p->ctx, p->dir));
    test_context_end(&p->ctx);
}

static void ranks_agree(void **state)
{
    static const char *const names[] = {"r1", "r2", "r3", "r4"};
    (void)state;
    place_t p = begin();
    job_t one = make_job(p.dir, names[0]);
    one.dropout = "0.1"; /* every layout draws the same mask */
    run_job(p.ctx, &one, 1);
    assert_true(one.loss < log(VOCAB) - 0.2); /* it learns */
    for (int ranks = 2; ranks <= 4; ranks++) {
        job_t many = make_job(p.dir, names[ranks - 1]);
        many.dropout = "0.1";
        run_job(p.ctx, &many, ranks);
        assert_true(fabs(many.loss - one.loss) <= 1e-9 * one.loss);
        assert_true(fabs(many.grad_norm - one.grad_norm) <=
                    1e-9 * one.grad_norm);
        assert_true(difference(p.ctx, &many, &one, "param") <= 1e-9);
    }
    end(&p);
}

static void sharding_and_repetition_are_bit_equal(void **state)
{
    static const char *const dtypes[] = {"fp64", "fp32", "bf16"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        place_t p = begin();
        job_t a = make_job(p.dir, "a");
        job_t b = make_job(p.dir, "b");
        job_t c = make_job(p.dir, "c");
        a.dtype = b.dtype = c.dtype = dtypes[i];
        c.sharding = "none";
        run_job(p.ctx, &a, 2);
        run_job(p.ctx, &b, 2);
        run_job(p.ctx, &c, 2);
        assert_true(a.loss == b.loss && a.grad_norm == b.grad_norm);
        assert_true(a.loss == c.loss && a.grad_norm == c.grad_norm);
        assert_true(difference(p.ctx, &a, &b, "param") == 0.0);
        assert_true(difference(p.ctx, &a, &c, "param") == 0.0);
        assert_true(difference(p.ctx, &a, &c, "exp_avg_sq") == 0.0);
        end(&p);
    }
}

/* Without accumulation, by every level of sharding, on ranks whose parts are
 * of unlike sizes. */
static void levels_are_bit_equal(void **state)
{
    static const char *const dtypes[] = {"fp64", "fp32", "bf16"};
    static const char *const levels[] = {"optim", "none", "optim_grads",
                                         "optim_grads_params"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        place_t p = begin();
        job_t first = make_job(p.dir, levels[0]);
        for (int k = 0; k < LOONG_COUNT_OF(levels); k++) {
            job_t job = make_job(p.dir, levels[k]);
            job.dtype = dtypes[i];
            job.sharding = levels[k];
            job.batch = 3;
            job.stop_at = 10;
            run_job(p.ctx, &job, 3);
            first = k == 0 ? job : first;
            assert_true(job.loss == first.loss);
            assert_true(job.grad_norm == first.grad_norm);
            assert_true(difference(p.ctx, &job, &first, "param") == 0.0);
            assert_true(difference(p.ctx, &job, &first, "exp_avg") == 0.0);
            assert_true(difference(p.ctx, &job, &first, "exp_avg_sq") == 0.0);
        }
        end(&p);
    }
}

static void resume_is_bit_equal(void **state)
{
    static const struct {
        const char *dtype;
        const char *sharding;
    } cases[] = {{"fp64", "optim"}, {"bf16", "optim"},
                 {"fp32", "optim_grads"}, {"bf16", "optim_grads_params"}};
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        place_t p = begin();
        job_t whole = make_job(p.dir, "whole");
        job_t first = make_job(p.dir, "parts");
        job_t second = make_job(p.dir, "parts");
        whole.dtype = first.dtype = second.dtype = cases[i].dtype;
        whole.sharding = first.sharding = second.sharding = cases[i].sharding;
        first.stop_at = 27;
        second.load = "auto";
        run_job(p.ctx, &whole, 2);
        run_job(p.ctx, &first, 2);
        run_job(p.ctx, &second, 2);
        assert_true(whole.loss == second.loss);
        assert_true(whole.grad_norm == second.grad_norm);
        assert_true(difference(p.ctx, &whole, &second, "param") == 0.0);
        assert_true(difference(p.ctx, &whole, &second, "exp_avg") == 0.0);
        end(&p);
    }
}

static void resume_on_other_ranks_goes_on(void **state)
{
    (void)state;
    place_t p = begin();
    job_t whole = make_job(p.dir, "whole");
    job_t first = make_job(p.dir, "parts");
    job_t second = make_job(p.dir, "parts");
    first.stop_at = 30;
    second.load = "auto";
    run_job(p.ctx, &whole, 1);
    run_job(p.ctx, &first, 3);
    run_job(p.ctx, &second, 4);
    assert_true(fabs(whole.loss - second.loss) <= 1e-9 * whole.loss);
    assert_true(difference(p.ctx, &whole, &second, "param") <= 1e-9);
    end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_agree),
        cmocka_unit_test(sharding_and_repetition_are_bit_equal),
        cmocka_unit_test(levels_are_bit_equal),
        cmocka_unit_test(resume_is_bit_equal),
        cmocka_unit_test(resume_on_other_ranks_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
