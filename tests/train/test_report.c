/* SPDX-License-Identifier: Apache-2.0
 *
 * What a training tells of itself, and the directories it tells it in. */
#define _GNU_SOURCE
#include "train_job.h"

#include <fcntl.h>
#include <math.h>
#include <sys/file.h>
#include <unistd.h>

#include "file.h"
#include "json.h"
#include "metrics.h"
#include "rng.h"
#include "top_k.h"

enum { ROOM = 64 };

static void run_ok(const job_place_t *p, int ranks, const char *overrides,
                   job_result_t *r)
{
    job_run(p, ranks, overrides, r);
    if (r->status != LOONG_OK) {
        fail_msg("status %s\n%s", loong_status_text(r->status), r->error);
    }
}

/* Every key of every line stands in docs/metrics.md, in backticks. */
static void lines_have_documented_keys(void **state)
{
    (void)state;
    char *doc = NULL;
    char *text = NULL;
    char *rest = NULL;
    size_t length = 0;
    char path[1024];
    int lines = 0;
    job_place_t p = job_begin();
    job_result_t r;
    run_ok(&p, 2,
           "data.validation=[{name: held, path: $DIR/data}]\n"
           "eval.interval=2\neval.iters=2\n",
           &r);
    snprintf(path, sizeof(path), "%s/docs/metrics.md", LOONG_SOURCE_DIR);
    assert_ok(p.ctx, loongi_file_read(p.ctx, path, &doc, &length));
    snprintf(path, sizeof(path), "%s/log/metrics.jsonl", p.dir);
    assert_ok(p.ctx, loongi_file_read(p.ctx, path, &text, &length));
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        loong_json_t *json = NULL;
        lines++;
        assert_ok(p.ctx, loongi_json_parse(p.ctx, line, strlen(line), path,
                                           &json));
        for (const loong_json_member_t *m = loongi_json_first(json); m != NULL;
             m = loongi_json_next(json, m)) {
            char key[128];
            snprintf(key, sizeof(key), "`%s`", loongi_json_member_key(m));
            if (strstr(doc, key) == NULL) {
                fail_msg("docs/metrics.md has no %s", key);
            }
        }
        loongi_json_destroy(&json);
    }
    assert_int_equal(lines, 4 + 2 + 1); /* steps, evaluations, checkpoint */
    loongi_free(p.ctx, doc);
    loongi_free(p.ctx, text);
    job_end(&p);
}

/* The stall of every save, as seconds and as share of a step, in the log and
 * beside it; a save that does not go on behind training is all stall. */
/* Whether a rank logged what the file of metrics says, to the figures that a
 * line has. */
static bool log_tells_wait(const char *log, int step, double seconds,
                           double percent)
{
    char begin[64];
    snprintf(begin, sizeof(begin), "step %d | checkpoint saved", step);
    for (const char *at = strstr(log, begin); at != NULL;
         at = strstr(at + 1, begin)) {
        double s = 0.0, p = 0.0;
        const char *waited = strstr(at, "waited ");
        if (waited != NULL &&
            sscanf(waited, "waited %lf s, %lf%% of a step", &s, &p) == 2 &&
            fabs(s - seconds) < 0.51e-4 && fabs(p - percent) < 0.51e-2) {
            return true;
        }
    }
    print_error("step %d waited %.9g s, %.9g %%; logged: %s", step, seconds,
                percent, log);
    return false;
}

static void a_save_tells_what_it_cost(void **state)
{
    (void)state;
    for (int async = 0; async < 2; async++) {
        double step[ROOM];
        double stall[ROOM];
        double share[ROOM];
        double took[ROOM];
        double cpu[ROOM];
        double bytes[ROOM];
        job_place_t p = job_begin();
        job_result_t r;
        run_ok(&p, 2,
               async ? "train.train_iters=12\ncheckpoint.save_interval=4\n"
                     : "train.train_iters=12\ncheckpoint.save_interval=4\n"
                       "checkpoint.async=false\n",
               &r);
        assert_int_equal(job_saves(&p, "step", step, ROOM), 3);
        const char *saved = strstr(r.log, "step 4 | checkpoint saved");
        const char *next = strstr(r.log, "step 5/");
        assert_true(saved != NULL && next != NULL);
        assert_true(async || saved < next);
        job_saves(&p, "save_bytes", bytes, ROOM);
        job_saves(&p, "save_seconds", took, ROOM);
        job_saves(&p, "save_cpu_seconds", cpu, ROOM);
        job_saves(&p, "save_stall_seconds", stall, ROOM);
        job_saves(&p, "save_stall_share", share, ROOM);
        for (int i = 0; i < 3; i++) {
            assert_true(step[i] == 4.0 * (i + 1));
            assert_true(bytes[i] > 10000.0);
            assert_true(cpu[i] > 0.0 && cpu[i] <= took[i] + 1e-3);
            assert_true(stall[i] > 0.0 && share[i] > 0.0);
            assert_true(async || stall[i] >= took[i]);
            assert_true(
                log_tells_wait(r.log, 4 * (i + 1), stall[i], 100.0 * share[i]));
        }
        job_end(&p);
    }
}

static void figures_fit_each_other(void **state)
{
    (void)state;
    /* Layers, the head; scores of 3 heads of 8 channels for 8.5 keys. */
    const double flops_per_row =
        6.0 * (2 * (24 * (2 * 24 + 2 * 8) + 3 * 24 * 40) + 24 * 61) +
        6.0 * 2 * 3 * (8 + 8) * 8.5;
    double gflops[ROOM];
    double share[ROOM];
    double tokens[ROOM];
    double ms[ROOM];
    double left[ROOM];
    double memory[ROOM];
    double limit[ROOM];
    job_place_t p = job_begin();
    job_result_t r;
    job_run(&p, 2, "train.train_iters=40\ntrain.exit_interval=4\n", &r);
    assert_int_equal(r.status, LOONG_ERR_INTERRUPTED);
    run_ok(&p, 2,
           "train.train_iters=40\ncheckpoint.load=auto\n"
           "log.interval=2\n",
           &r);
    int n = job_metrics(&p, NULL, "gflops", gflops, ROOM);
    job_metrics(&p, NULL, "gemm_share", share, ROOM);
    job_metrics(&p, NULL, "tokens_per_second", tokens, ROOM);
    job_metrics(&p, NULL, "ms_per_step", ms, ROOM);
    job_metrics(&p, NULL, "seconds_left", left, ROOM);
    job_metrics(&p, NULL, "memory_bytes", memory, ROOM);
    job_metrics(&p, NULL, "memory_limit", limit, ROOM);
    assert_int_equal(n, 4 + 18); /* 4 single steps, then 6, 8 ... 40 */
    for (int i = 0; i < n; i++) {
        int step = i < 4 ? i + 1 : 6 + 2 * (i - 4);
        assert_true(share[i] > 0.0 && share[i] < 1.0);
        double flops = 1e9 * gflops[i] / tokens[i];
        assert_true(fabs(flops - flops_per_row) < 1e-6 * flops);
        /* One rate of products a run. */
        int first = i < 4 ? 0 : 4;
        double rate = gflops[first] / share[first];
        assert_true(fabs(gflops[i] / share[i] - rate) < 1e-6 * rate);
        /* Also right after the resume: steps that are left x their time. */
        assert_true(fabs(left[i] - 1e-3 * ms[i] * (40 - step)) <=
                    1e-6 * left[i]);
        assert_true(memory[i] > 1e6 && memory[i] < limit[i]);
        assert_true(i == 0 || i == 4 || memory[i] >= memory[i - 1]);
    }
    job_end(&p);
}

/* Losses are exact sums: the same bits on any number of ranks. */
static void evaluation_is_the_same_on_all_ranks(void **state)
{
    (void)state;
    double loss[2][ROOM];
    double perplexity[ROOM];
    job_place_t p = job_begin();
    job_result_t r;
    const char *sets = "data.validation=[{name: one, path: $DIR/data}, "
                       "{name: two, path: $DIR/data}]\n"
                       "train.train_iters=3\neval.interval=3\n";
    run_ok(&p, 1, sets, &r);
    assert_int_equal(job_metrics(&p, "one", "loss", &loss[0][0], ROOM), 1);
    assert_int_equal(job_metrics(&p, "two", "loss", &loss[1][0], ROOM), 1);
    job_metrics(&p, "two", "perplexity", perplexity, ROOM);
    assert_true(loss[0][0] == loss[1][0]);
    assert_true(fabs(perplexity[0] - exp(loss[1][0])) < 1e-6 * perplexity[0]);
    char line[64];
    snprintf(line, sizeof(line), "eval two | loss %.4f", loss[0][0]);
    for (int ranks = 1; ranks <= 3; ranks++) {
        char all[512];
        snprintf(all, sizeof(all), "%scheckpoint.load=auto\n", sets);
        job_evaluate(&p, ranks, all, &r);
        assert_int_equal(r.status, LOONG_OK);
        if (strstr(r.log, line) == NULL) {
            fail_msg("%d ranks: no \"%s\" in\n%s", ranks, line, r.log);
        }
    }
    /* It wrote no lines of its own. */
    assert_int_equal(job_metrics(&p, "one", "loss", &loss[0][0], ROOM), 1);
    job_evaluate(&p, 1, "checkpoint.load=auto\n", &r);
    assert_int_equal(r.status, LOONG_ERR_CONFIG);
    assert_non_null(strstr(r.error, "nothing to evaluate"));
    job_end(&p);
}

static void assert_refused(const job_place_t *p, const char *overrides,
                           loong_status_t status, const char *what)
{
    job_result_t r;
    job_run(p, 2, overrides, &r);
    if (r.status != status || strstr(r.error, what) == NULL) {
        fail_msg("%s, wanted: %s, found: %s", loong_status_text(r.status),
                 what, r.error);
    }
}

static void directories_are_tried_and_held(void **state)
{
    (void)state;
    char path[128];
    job_place_t p = job_begin();
    job_result_t r;
    run_ok(&p, 2, "train.train_iters=1\n", &r);
    assert_refused(&p, "train.train_iters=2\n", LOONG_ERR_CONFIG,
                   "has checkpoints of an earlier run: checkpoint.load=auto "
                   "goes on with it");
    run_ok(&p, 2, "train.train_iters=2\ncheckpoint.load=auto\n", &r);
    assert_refused(&p, "checkpoint.save=$DIR/data.bin/save\n",
                   LOONG_ERR_CANNOT_WRITE, "data.bin/save cannot be made");
    assert_refused(&p, "log.dir=/proc/loong\ncheckpoint.save=$DIR/b\n",
                   LOONG_ERR_CANNOT_WRITE, "/proc/loong");
    snprintf(path, sizeof(path), "%s/save/lock", p.dir);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
    assert_refused(&p, "checkpoint.load=auto\n", LOONG_ERR_CONFIG,
                   "checkpoint.save: another run writes into ");
    close(fd);
    run_ok(&p, 2, "checkpoint.load=auto\nlog.dir=$DIR/save\n", &r);
    job_end(&p);
}

/* Nothing of an earlier run is lost, and each has its own files. */
static void an_earlier_run_is_set_aside(void **state)
{
    (void)state;
    job_place_t p = job_begin();
    job_result_t r;
    for (int run = 0; run < 3; run++) {
        char path[1024];
        run_ok(&p, 1, "train.train_iters=1\n~checkpoint.save\n", &r);
        assert_true((strstr(r.log, "files of an earlier run") != NULL) ==
                    (run > 0));
        for (int n = 1; n <= 3; n++) {
            snprintf(path, sizeof(path), "%s/log/earlier_%d/metrics.jsonl",
                     p.dir, n);
            assert_int_equal(access(path, R_OK) == 0, n <= run);
        }
        snprintf(path, sizeof(path), "%s/log/metrics.jsonl", p.dir);
        assert_int_equal(access(path, R_OK), 0);
    }
    job_end(&p);
}

/* Of steps, not of lines. */
static void the_loss_is_judged_by_steps(void **state)
{
    (void)state;
    job_place_t p = job_begin();
    job_result_t r;
    run_ok(&p, 1, "train.train_iters=20\nlog.interval=10\n", &r);
    const char *first = strstr(r.log, "step 10/20 | loss ");
    const char *second = strstr(r.log, "step 20/20 | loss ");
    assert_true(first != NULL && second != NULL);
    assert_null(memmem(first, strcspn(first, "\n"), "z) | gnorm", 10));
    assert_non_null(memmem(second, strcspn(second, "\n"), "z) | gnorm", 10));
    job_end(&p);
}

/* A run that goes on judges as one that did not stop. */
static void the_judgement_goes_on(void **state)
{
    (void)state;
    double whole[ROOM];
    double again[ROOM];
    job_place_t p = job_begin();
    job_result_t r;
    run_ok(&p, 2, "train.train_iters=22\ncheckpoint.save=$DIR/one\n", &r);
    assert_int_equal(job_metrics(&p, NULL, "loss_z", whole, ROOM), 22);
    job_run(&p, 2, "train.train_iters=22\ntrain.exit_interval=18\n", &r);
    assert_int_equal(r.status, LOONG_ERR_INTERRUPTED);
    run_ok(&p, 2, "train.train_iters=22\ncheckpoint.load=auto\n", &r);
    assert_int_equal(job_metrics(&p, NULL, "loss_z", again, ROOM), 22);
    for (int i = 0; i < 22; i++) {
        assert_true(i < LOONG_WINDOW_LEAST ? isnan(again[i])
                                           : again[i] == whole[i]);
    }
    job_end(&p);
}

static int by_logit(const void *a, const void *b, void *logits)
{
    const double *l = logits;
    int32_t x = *(const int32_t *)a;
    int32_t y = *(const int32_t *)b;
    return l[x] != l[y] ? (l[x] < l[y] ? 1 : -1) : (x < y ? -1 : 1);
}

/* The likeliest tokens as a sort finds them, in a large vocabulary too. */
static void top_k_is_that_of_a_sort(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{1, 1},     {7, 3},         {7, 7},
                                       {1000, 50}, {151936, 1},
                                       {151936, 40}, {151936, 151936}};
    double *logits = malloc(151936 * sizeof(*logits));
    int32_t *sorted = malloc(151936 * sizeof(*sorted));
    int32_t *ids = malloc(151936 * sizeof(*ids));
    double begin = loongi_now();
    for (int64_t s = 0; s < LOONG_COUNT_OF(sizes); s++) {
        int64_t n = sizes[s][0];
        int64_t k = sizes[s][1];
        for (int64_t i = 0; i < n; i++) { /* with ties */
            logits[i] = floor(1e4 * loongi_rng_uniform(7, 1, (uint64_t)i));
            sorted[i] = (int32_t)i;
        }
        qsort_r(sorted, (size_t)n, sizeof(*sorted), by_logit, logits);
        loongi_top_k(logits, n, k, ids);
        assert_memory_equal(ids, sorted, (size_t)k * sizeof(*ids));
    }
    assert_true(loongi_now() - begin < 5.0); /* pair by pair: a minute */
    free(logits);
    free(sorted);
    free(ids);
}

static void a_device_that_is_not_there_is_named(void **state)
{
    (void)state;
    job_place_t p = job_begin();
    assert_refused(&p, "device=xpu\n", LOONG_ERR_NOT_FOUND, "no device xpu");
    job_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_have_documented_keys),
        cmocka_unit_test(a_save_tells_what_it_cost),
        cmocka_unit_test(figures_fit_each_other),
        cmocka_unit_test(evaluation_is_the_same_on_all_ranks),
        cmocka_unit_test(directories_are_tried_and_held),
        cmocka_unit_test(an_earlier_run_is_set_aside),
        cmocka_unit_test(the_loss_is_judged_by_steps),
        cmocka_unit_test(the_judgement_goes_on),
        cmocka_unit_test(top_k_is_that_of_a_sort),
        cmocka_unit_test(a_device_that_is_not_there_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
