/* SPDX-License-Identifier: Apache-2.0 */
#include "layout_run.h"

#include <unistd.h>

#include "file.h"
#include "loong/comm.h"
#include "loong/dataset.h"
#include "loong/register.h"
#include "loong/trainer.h"
#include "native.h"
#include "trainer_impl.h"

enum { DOCUMENTS = 40 };

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
            ids[i] = (i % 3 == 0 && i > 0)
                         ? (ids[i - 1] * 5 + 1) % LAYOUT_VOCAB
                         : (int32_t)(state >> 16) % LAYOUT_VOCAB;
        }
        assert_ok(ctx, loong_dataset_writer_add(writer, ids, NULL, 120 + d));
        assert_ok(ctx, loong_dataset_writer_end_document(writer));
    }
    assert_ok(ctx, loong_dataset_writer_commit(writer));
    loong_dataset_writer_destroy(&writer);
}

layout_place_t layout_begin(void)
{
    layout_place_t place = {test_context(), "/tmp/loong_layout_XXXXXX"};
    assert_non_null(mkdtemp(place.dir));
    make_data(place.ctx, place.dir);
    return place;
}

void layout_end(layout_place_t *place)
{
    assert_ok(place->ctx, loongi_dir_remove(place->ctx, place->dir));
    test_context_end(&place->ctx);
}

/* ---- a run -------------------------------------------------------------- */

typedef struct job {
    const layout_place_t *place;
    layout_run_t *run;
} job_t;

static void recipe_text(const job_t *job, char *text, size_t size)
{
    const layout_run_t *r = job->run;
    int length = snprintf(
        text, size,
        "seed: 11\n"
        "model: {foundation: %s}\n"
        "precision: {params_dtype: %s}\n"
        "data:\n"
        "  seq_length: 16\n"
        "  train: [{path: %s/data}]\n"
        "  reset_position_ids: true\n"
        "  reset_attention_mask: true\n"
        "train: {micro_batch_size: %d, global_batch_size: 24,\n"
        "  train_iters: %d, exit_interval: %d}\n"
        "optimizer: {lr: 3e-3, lr_warmup_iters: 2}\n"
        "parallel: %s\n"
        "checkpoint: {save: %s/%s%s%s}\n"
        "%s\n",
        r->model, r->dtype, job->place->dir, r->micro_batch_size, r->steps,
        r->stop_at, r->parallel, job->place->dir, r->save,
        r->load != NULL ? ", load: " : "", r->load != NULL ? r->load : "",
        r->more);
    assert_true(length > 0 && (size_t)length < size);
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
    if (status == LOONG_OK && job->run->save_only) {
        trainer->saved_step = -1;
        status = loongi_trainer_save(trainer);
        if (status == LOONG_OK) {
            status = loongi_trainer_finish_save(trainer);
        }
    } else if (status == LOONG_OK) {
        status = loong_trainer_run(trainer);
    }
    if (status == LOONG_ERR_INTERRUPTED && job->run->stop_at > 0) {
        status = LOONG_OK;
    }
    if (status == LOONG_OK && loong_comm_rank(comm) == 0) {
        loong_trainer_state_t state = loong_trainer_get_state(trainer);
        job->run->loss = state.loss;
        job->run->grad_norm = state.grad_norm;
    }
    loong_trainer_destroy(&trainer);
    loong_recipe_destroy(&recipe);
    return status;
}

void layout_run(const layout_place_t *place, layout_run_t *run)
{
    job_t job = {place, run};
    loong_threads_params_t params = {0};
    params.size = run->ranks;
    loong_status_t status =
        loong_threads_run(place->ctx, &params, train, &job);
    const char *trail = loong_context_error(place->ctx);
    if (run->refusal != NULL) {
        assert_int_equal(status, LOONG_ERR_CONFIG);
        if (strstr(trail, run->refusal) == NULL) {
            fail_msg("'%s' is not in: %s", run->refusal, trail);
        }
        loong_context_clear_error(place->ctx);
    } else if (status != LOONG_OK) {
        fail_msg("%d ranks, %s: %s", run->ranks, run->parallel,
                 trail);
    }
}

/* ---- comparison --------------------------------------------------------- */

/* Gradients that are zero in exact arithmetic (a bias of keys without rotary
 * positions shifts all scores alike) are noise: far below the epsilon of Adam,
 * 1e-8, so that the parameter stays where it began, at zero. One real step
 * would move an element by about 1e-3. */
static double least_norm(const char *kind)
{
    if (strcmp(kind, "param") == 0) {
        return 1e-3;
    }
    return strcmp(kind, "exp_avg") == 0 ? 1e-8 : 1e-16;
}

static double tensor_difference(loong_context_t *ctx,
                                loong_checkpoint_t *const ck[2],
                                const loong_checkpoint_tensor_t *x)
{
    const loong_checkpoint_tensor_t *y =
        loongi_checkpoint_find(ck[1], x->kind, x->name);
    int64_t n = x->shape[0] * (x->ndim > 1 ? x->shape[1] : 1);
    double *p = calloc((size_t)n, 2 * sizeof(*p));
    double diff = 0.0;
    double norm = 0.0;
    assert_non_null(y);
    assert_ok(ctx, loongi_checkpoint_read_rows(ck[0], x, 0, x->shape[0],
                                               LOONG_F64, p));
    assert_ok(ctx, loongi_checkpoint_read_rows(ck[1], y, 0, y->shape[0],
                                               LOONG_F64, p + n));
    for (int64_t k = 0; k < n; k++) {
        diff += (p[k] - p[n + k]) * (p[k] - p[n + k]);
        norm += p[n + k] * p[n + k];
    }
    free(p);
    double scale = fmax(sqrt(norm), least_norm(x->kind));
    return scale > 0.0 ? sqrt(diff) / scale : sqrt(diff);
}

static void check_scalar(const layout_run_t *run, const char *what, double got,
                         double want, double bound)
{
    if (!(fabs(got - want) <= bound * fabs(want))) {
        fail_msg("%d ranks, %s: %s %.17g, one rank has %.17g", run->ranks,
                 run->parallel, what, got, want);
    }
}

void layout_compare(const layout_place_t *place, const layout_run_t *run,
                    const layout_run_t *one, double bound)
{
    loong_checkpoint_t *ck[2] = {NULL, NULL};
    const layout_run_t *runs[2] = {run, one};
    check_scalar(run, "loss", run->loss, one->loss, bound);
    check_scalar(run, "gradient norm", run->grad_norm, one->grad_norm, bound);
    for (int i = 0; i < 2; i++) {
        char path[600];
        snprintf(path, sizeof(path), "%s/%s", place->dir, runs[i]->save);
        assert_ok(place->ctx, loongi_checkpoint_open(place->ctx, path,
                                                     &ck[i]));
    }
    assert_int_equal(loongi_checkpoint_count(ck[0]),
                     loongi_checkpoint_count(ck[1]));
    for (int64_t i = 0; i < loongi_checkpoint_count(ck[0]); i++) {
        const loong_checkpoint_tensor_t *x = loongi_checkpoint_get(ck[0], i);
        double difference = tensor_difference(place->ctx, ck, x);
        if (!(difference <= bound)) {
            fail_msg("%d ranks, %s: %s of %s differs by %g", run->ranks,
                     run->parallel, x->kind, x->name, difference);
        }
    }
    loongi_checkpoint_close(&ck[0]);
    loongi_checkpoint_close(&ck[1]);
}
