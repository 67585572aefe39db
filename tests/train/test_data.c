/* SPDX-License-Identifier: Apache-2.0
 *
 * The data of a run: what is trained on and what is held out. */
#include "train_job.h"

#include <stdio.h>

#include "file.h"
#include "loong/dataset.h"

enum { ROOM = 8, SEQ_LENGTH = 16 };

/* Documents of one token each, said `length` times. */
static void make_dull(const job_place_t *p, const char *name, int documents,
                      int length)
{
    char prefix[128];
    loong_dataset_writer_t *writer = NULL;
    snprintf(prefix, sizeof(prefix), "%s/%s", p->dir, name);
    loong_dataset_writer_params_t params = {prefix, LOONG_U16, false};
    assert_ok(p->ctx, loong_dataset_writer_create(p->ctx, &params, &writer));
    for (int d = 0; d < documents; d++) {
        for (int i = 0; i < length; i++) {
            const int32_t id = d % JOB_VOCAB;
            assert_ok(p->ctx, loong_dataset_writer_add(writer, &id, NULL, 1));
        }
        assert_ok(p->ctx, loong_dataset_writer_end_document(writer));
    }
    assert_ok(p->ctx, loong_dataset_writer_commit(writer));
    loong_dataset_writer_destroy(&writer);
}

typedef struct held_out {
    double loss;
    double tokens;
} held_out_t;

/* The evaluation of the model as it was drawn: one step with no rate. */
static held_out_t evaluate(const job_place_t *p, int ranks, const char *train)
{
    char overrides[1024];
    char log[128];
    held_out_t found = {0, 0};
    job_result_t r;
    snprintf(overrides, sizeof(overrides),
             "data.train=%s\ndata.validation_split=0.25\noptimizer.lr=0\n"
             "train.train_iters=1\neval.interval=1\n~checkpoint.save\n",
             train);
    job_run(p, ranks, overrides, &r);
    if (r.status != LOONG_OK) {
        fail_msg("status %s\n%s", loong_status_text(r.status), r.error);
    }
    assert_int_equal(job_metrics(p, "held out", "loss", &found.loss, ROOM), 1);
    job_metrics(p, "held out", "tokens", &found.tokens, ROOM);
    snprintf(log, sizeof(log), "%s/log", p->dir);
    assert_ok(p->ctx, loongi_dir_remove(p->ctx, log));
    return found;
}

/* Without weights every held-out sample of every source counts once; with
 * weights the sources take turns until one has given all it has. */
static void every_source_is_held_out(void **state)
{
    (void)state;
    job_place_t p = job_begin();
    make_dull(&p, "dull", 20, 50); /* 5 documents: 15 samples */
    held_out_t a = evaluate(&p, 1, "[{path: $DIR/data}]");
    held_out_t b = evaluate(&p, 1, "[{path: $DIR/dull}]");
    /* the last 10 of documents of 120, 121 ... 159 tokens: 96 samples */
    assert_int_equal((int)a.tokens, 96 * SEQ_LENGTH);
    assert_int_equal((int)b.tokens, 15 * SEQ_LENGTH);
    assert_true(fabs(a.loss - b.loss) > 1e-3);
    double mean = (a.loss * a.tokens + b.loss * b.tokens) /
                  (a.tokens + b.tokens);
    for (int ranks = 1; ranks <= 2; ranks++) {
        held_out_t all = evaluate(&p, ranks,
                                  "[{path: $DIR/data}, {path: $DIR/dull}]");
        assert_int_equal((int)all.tokens, (int)(a.tokens + b.tokens));
        /* metrics.jsonl has 9 figures */
        assert_true(fabs(all.loss - mean) < 1e-8 * mean);
    }
    held_out_t turns = evaluate(&p, 1,
                                "[{path: $DIR/data, weight: 1}, "
                                "{path: $DIR/dull, weight: 1}]");
    /* data, dull, data, ...: the draw behind 15 pairs still has a sample */
    assert_int_equal((int)turns.tokens, 31 * SEQ_LENGTH);
    job_end(&p);
}

static void a_source_too_small_to_be_held_out_is_named(void **state)
{
    (void)state;
    job_place_t p = job_begin();
    job_result_t r;
    make_dull(&p, "short", 40, 3); /* 10 documents, 30 tokens: one sample */
    job_run(&p, 2,
            "data.train=[{path: $DIR/data}, {path: $DIR/short}]\n"
            "data.validation_split=0.1\n",
            &r);
    assert_int_equal(r.status, LOONG_ERR_FORMAT);
    if (strstr(r.error, "data 'held out': '") == NULL ||
        strstr(r.error, "/short' has 12 tokens in 4 of 40 documents, one "
                        "sample of seq_length 16 takes 17") == NULL) {
        fail_msg("%s", r.error);
    }
    job_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_source_is_held_out),
        cmocka_unit_test(a_source_too_small_to_be_held_out_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
