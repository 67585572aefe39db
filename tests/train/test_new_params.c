/* SPDX-License-Identifier: Apache-2.0
 *
 * A model starts from files that lack a parameter, or have it in another
 * shape: it is refused by name, or starts as a rule of init.by_scope says,
 * equal in all layouts; all else is what the files have, bit for bit. */
#include "native.h"
#include "train_job.h"

/* One step at a rate of 0: the checkpoint has what the run started from. */
#define STILL "train.train_iters=1\noptimizer.lr=0\n"
#define TIED                                                  \
    STILL "~model.foundation\ninit.from_hf=" LOONG_SOURCE_DIR \
          "/tests/golden/fixtures/qwen3_gqa_tied\n"
#define UNTIE "model.foundation.untie_embeddings_and_output_weights=true\n"
#define RULE "init.by_scope=[{scope: lm_head, std: 0.5}]\n"
#define HEAD "foundation.lm_head.weight"

static void run(const job_place_t *p, int ranks, const char *keys,
                job_result_t *r)
{
    job_run(p, ranks, keys, r);
    if (r->status != LOONG_OK) {
        fail_msg("%s: %s", keys, r->error);
    }
}

static void refused(const job_place_t *p, const char *keys, const char *says)
{
    job_result_t r;
    job_run(p, 1, keys, &r);
    assert_int_not_equal(r.status, LOONG_OK);
    if (strstr(r.error, says) == NULL) {
        fail_msg("'%s' is not in: %s", says, r.error);
    }
}

/* Every parameter of checkpoint b is in a, bit for bit, but for `other`. */
static void same_params(const job_place_t *p, const char *a, const char *b,
                        const char *other)
{
    char path[128];
    loong_checkpoint_t *ck = NULL;
    int64_t compared = 0;
    snprintf(path, sizeof(path), "%s/%s", p->dir, b);
    assert_ok(p->ctx, loongi_checkpoint_open(p->ctx, path, &ck));
    for (int64_t i = 0; i < loongi_checkpoint_count(ck); i++) {
        const loong_checkpoint_tensor_t *t = loongi_checkpoint_get(ck, i);
        double *x = NULL;
        double *y = NULL;
        if (strcmp(t->kind, "param") != 0 || strcmp(t->name, other) == 0) {
            continue;
        }
        int64_t n = job_tensor(p, a, "param", t->name, &x);
        assert_int_equal(job_tensor(p, b, "param", t->name, &y), n);
        assert_memory_equal(x, y, (size_t)n * sizeof(*x));
        compared++;
        free(x);
        free(y);
    }
    assert_true(compared > 20);
    loongi_checkpoint_close(&ck);
}

static void a_head_that_a_directory_lacks(void **state)
{
    static const struct {
        int ranks;
        const char *keys;
    } layouts[] = {{1, ""},
                   {2, "parallel.tensor_model_parallel_size=2\n"},
                   {2, "parallel.pipeline_model_parallel_size=2\n"},
                   {2, "parallel.data_parallel_sharding=optim_grads_params\n"}};
    (void)state;
    job_place_t p = job_begin();
    job_result_t r;
    double *head = NULL;
    refused(&p, TIED UNTIE, "missing: lm_head.weight");
    refused(&p, TIED UNTIE "init.by_scope=[{scope: layers.0}]\n",
            "missing: lm_head.weight");
    refused(&p, TIED "init.by_scope=[{scope: layers.0}]\n",
            "init.by_scope: layers.0 has no effect");
    run(&p, 1, TIED "checkpoint.save=$DIR/tied\n", &r);
    assert_null(strstr(r.log, "initialised"));
    /* Of the seed alone: as in a run that loads nothing. */
    run(&p, 1,
        STILL UNTIE RULE
        "model.foundation.hidden_size=32\n"
        "model.foundation.vocab_size=97\ncheckpoint.save=$DIR/drawn\n",
        &r);
    int64_t n = job_tensor(&p, "drawn", "param", HEAD, &head);
    assert_int_equal(n, 97 * 32);
    for (int i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        char keys[512];
        char save[16];
        double *other = NULL;
        snprintf(save, sizeof(save), "untied%d", i);
        snprintf(keys, sizeof(keys),
                 TIED UNTIE RULE "checkpoint.save=$DIR/%s\n%s", save,
                 layouts[i].keys);
        run(&p, layouts[i].ranks, keys, &r);
        assert_non_null(strstr(r.log, "initialised by init.by_scope, not "
                                      "loaded: 1 parameters "
                                      "(lm_head.weight)"));
        same_params(&p, save, "tied", "");
        assert_int_equal(job_tensor(&p, save, "param", HEAD, &other), n);
        assert_memory_equal(other, head, (size_t)n * sizeof(*head));
        free(other);
    }
    free(head);
    job_end(&p);
}

/* Of a native checkpoint, which another layout has written. */
static void a_head_that_a_checkpoint_lacks(void **state)
{
    static const char *const keys[] = {
        UNTIE "resume.override=["
              "model.foundation.untie_embeddings_and_output_weights]\n",
        "checkpoint.no_load_optim=true\n"};
    (void)state;
    job_place_t p = job_begin();
    job_result_t r;
    char all[1024];
    double *head = NULL;
    double *same = NULL;
    run(&p, 2,
        TIED "checkpoint.save=$DIR/tied\n"
             "parallel.data_parallel_sharding=optim_grads_params\n",
        &r);
#define LOADS                                                                  \
    STILL "~model.foundation\nmodel.from_hf=" LOONG_SOURCE_DIR                 \
          "/tests/golden/fixtures/qwen3_gqa_tied\ncheckpoint.load=$DIR/tied\n" \
          "train.train_iters=2\n"
    snprintf(all, sizeof(all), LOADS "%s%s", keys[0], keys[1]);
    refused(&p, all, "missing: param " HEAD);
    snprintf(all, sizeof(all), LOADS RULE "%s", keys[0]);
    refused(&p, all, "missing: exp_avg " HEAD);
    for (int ranks = 1; ranks <= 2; ranks++) {
        snprintf(all, sizeof(all),
                 LOADS RULE "%s%sparallel.tensor_model_parallel_size=%d\n"
                            "checkpoint.save=$DIR/untied%d\n",
                 keys[0], keys[1], ranks, ranks);
        run(&p, ranks, all, &r);
        same_params(&p, ranks == 1 ? "untied1" : "untied2", "tied", "");
    }
    int64_t n = job_tensor(&p, "untied1", "param", HEAD, &head);
    assert_int_equal(job_tensor(&p, "untied2", "param", HEAD, &same), n);
    assert_memory_equal(head, same, (size_t)n * sizeof(*head));
    assert_true(head[0] != head[1]);
    free(head);
    free(same);
    job_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_that_a_directory_lacks),
        cmocka_unit_test(a_head_that_a_checkpoint_lacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
