/* SPDX-License-Identifier: Apache-2.0
 *
 * Trains a few steps of a recipe in one layout on threads, and compares two
 * such jobs. Called by loong-bench parity and tests of layouts. Read
 * loong/trainer.h before. */
#include "layout_job.h"

#include <math.h>
#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "loong/comm.h"
#include "loong/dataset.h"
#include "loong/register.h"
#include "native.h"
#include "trainer_impl.h"

/* ---- data ---------------------------------------------------------------- */

static loong_status_t write_documents(const layout_data_t *data,
                                      loong_dataset_writer_t *writer,
                                      int32_t *ids, uint8_t *mask)
{
    uint32_t state = data->seed != 0 ? data->seed : 7;
    int32_t vocab = (int32_t)data->vocab_size;
    for (int d = 0; d < data->documents; d++) {
        int length =
            data->length + (data->cycle > 0 ? d % data->cycle : d);
        for (int i = 0; i < length; i++) {
            state = state * 1664525u + 1013904223u;
            ids[i] = i % 3 == 0 && i > 0
                         ? (int32_t)(((int64_t)ids[i - 1] * 5 + 1) % vocab)
                         : (int32_t)(state >> 8) % vocab;
        }
        for (int i = 0; i < length; i++) {
            mask[i] = d % 2 == 0 || i % 5 > 1;
        }
        LOONG_TRY(loong_dataset_writer_add(
            writer, ids, data->masked ? mask : NULL, length));
        LOONG_TRY(loong_dataset_writer_end_document(writer));
    }
    return loong_dataset_writer_commit(writer);
}

loong_status_t layout_data_write(loong_context_t *ctx,
                                 const layout_data_t *data)
{
    loong_dataset_writer_params_t params = {
        data->prefix, loong_dataset_dtype(data->vocab_size), data->masked};
    loong_dataset_writer_t *writer = NULL;
    int32_t *ids = NULL;
    size_t most = (size_t)(data->length + data->documents);
    LOONG_TRY(loongi_calloc(ctx, most, sizeof(*ids) + 1, "tokens", &ids));
    loong_status_t status = loong_dataset_writer_create(ctx, &params, &writer);
    if (status == LOONG_OK) {
        status = write_documents(data, writer, ids, (uint8_t *)(ids + most));
    }
    loong_dataset_writer_destroy(&writer);
    loongi_free(ctx, ids);
    return status;
}

/* ---- a training ---------------------------------------------------------- */

typedef struct shared {
    layout_job_t *job;
    atomic_bool begun; /* of any rank */
} shared_t;

static void keep_loss(void *user, const loong_trainer_progress_t *now)
{
    const layout_job_t *job = user;
    if (job->losses != NULL) {
        job->losses[now->step - 1] = now->loss;
    }
}

static loong_status_t train(shared_t *shared, loong_context_t *ctx,
                            loong_comm_t *comm, loong_recipe_t *recipe)
{
    layout_job_t *job = shared->job;
    loong_trainer_t *trainer = NULL;
    loong_trainer_params_t params = {.comm = comm, .recipe = recipe,
                                     .progress = keep_loss,
                                     .progress_user = job};
    LOONG_TRY(loong_trainer_create(ctx, &params, &trainer));
    trainer->report.gemm_gflops = INFINITY; /* nobody asks: not measured */
    atomic_store(&shared->begun, true);
    loong_status_t status =
        job->work != NULL ? job->work(trainer) : loong_trainer_run(trainer);
    if (status == LOONG_ERR_INTERRUPTED) {
        status = LOONG_OK;
    }
    if (status != LOONG_OK) { /* or the others wait for this rank */
        loong_comm_abort(comm, loong_context_error(ctx));
    }
    if (status == LOONG_OK && loong_comm_rank(comm) == 0) {
        loong_trainer_state_t state = loong_trainer_get_state(trainer);
        job->step = state.step;
        job->loss = state.loss;
        job->grad_norm = state.grad_norm;
    }
    loong_trainer_destroy(&trainer);
    return status;
}

static loong_status_t load(loong_context_t *ctx, const layout_job_t *job,
                           loong_recipe_t **recipe_p)
{
    LOONG_TRY(loong_register_builtin(ctx));
    LOONG_TRY(job->enter != NULL ? job->enter(ctx) : LOONG_OK);
    return job->text != NULL
               ? loong_recipe_parse(ctx, job->path, job->text, &job->params,
                                    recipe_p)
               : loong_recipe_load(ctx, job->path, &job->params, recipe_p);
}

static loong_status_t run_rank(loong_context_t *ctx, loong_comm_t *comm,
                               void *user)
{
    shared_t *shared = user;
    loong_recipe_t *recipe = NULL;
    omp_set_num_threads(1);
    LOONG_TRY(load(ctx, shared->job, &recipe));
    loong_status_t status = train(shared, ctx, comm, recipe);
    loong_recipe_destroy(&recipe);
    return status;
}

/* One rank asks whether the layout is possible, before all are started. */
static loong_status_t plan(loong_context_t *ctx, loong_comm_t *comm,
                           void *user)
{
    const shared_t *shared = user;
    loong_recipe_t *recipe = NULL;
    loong_trainer_t *trainer = NULL;
    LOONG_TRY(load(ctx, shared->job, &recipe));
    loong_trainer_params_t params = {.comm = comm,
                                     .recipe = recipe,
                                     .plan_only = true,
                                     .plan_ranks = shared->job->ranks};
    /* Most impossible draws end here: the trainer would look for others. */
    loong_status_t status = loong_recipe_check(recipe, shared->job->ranks);
    if (status == LOONG_OK) {
        status = loong_trainer_create(ctx, &params, &trainer);
    }
    loong_trainer_destroy(&trainer);
    loong_recipe_destroy(&recipe);
    return status;
}

loong_status_t layout_job_run(loong_context_t *ctx, layout_job_t *job)
{
    shared_t shared = {job, false};
    loong_threads_params_t params;
    memset(&params, 0, sizeof(params));
    params.size = 1;
    loong_status_t status = loong_threads_run(ctx, &params, plan, &shared);
    if (status == LOONG_OK && !job->plan_only) {
        params.size = job->ranks;
        status = loong_threads_run(ctx, &params, run_rank, &shared);
    }
    job->refused = status != LOONG_OK && !atomic_load(&shared.begun);
    return status;
}

/* ---- comparison ---------------------------------------------------------- */

/* One real step would move an element by about 1e-3. */
static double least_norm(const char *kind)
{
    if (strcmp(kind, "param") == 0) {
        return 1e-3;
    }
    return strcmp(kind, "exp_avg_sq") == 0 ? 1e-16 : 1e-8;
}

typedef struct pair {
    loong_context_t *ctx;
    loong_checkpoint_t *of[2];
} pair_t;

static int64_t elements_of(const loong_checkpoint_tensor_t *x)
{
    int64_t elements = 1;
    for (int d = 0; d < x->ndim; d++) {
        elements *= x->shape[d];
    }
    return elements;
}

/* A gradient that is zero in exact arithmetic (of a bias of keys in channels
 * that no rotary position turns, which shifts all scores alike) is rounding
 * noise: its terms, at most 1 by clipping, cancel to units in their last place,
 * 2^-52, of which 2^6 are granted. Adam's epsilon does not hold such an element
 * where it was, so there is nothing to compare in it, but it must be noise on
 * both sides: an element of a bias by itself, any other tensor as a whole. */
static bool is_noise(double square)
{
    return square > 0.0 && square <= 0x1p-46 * 0x1p-46;
}

static bool ends_with(const char *name, const char *ending)
{
    size_t length = strlen(name), n = strlen(ending);
    return length >= n && strcmp(name + length - n, ending) == 0;
}

/* squares[i]: the larger one of both sides of the gradient of an element of
 * `name`, 0 where none is kept in fp64; `values` has room for the elements. */
static loong_status_t find_squares(const pair_t *pair, const char *name,
                                   int64_t elements, double *values,
                                   double *squares)
{
    for (int k = 0; k < 2; k++) {
        const loong_checkpoint_tensor_t *v =
            loongi_checkpoint_find(pair->of[k], "exp_avg_sq", name);
        bool squared = v != NULL;
        if (v == NULL) { /* of sgd */
            v = loongi_checkpoint_find(pair->of[k], "momentum_buffer", name);
        }
        const loong_checkpoint_tensor_t *param =
            loongi_checkpoint_find(pair->of[k], "param", name);
        if (v == NULL || param == NULL || param->dtype != LOONG_F64 ||
            elements_of(v) != elements) {
            memset(squares, 0, sizeof(*squares) * (size_t)elements);
            return LOONG_OK;
        }
        LOONG_TRY(loongi_checkpoint_read_rows(pair->of[k], v, 0, v->shape[0],
                                              LOONG_F64, values));
        for (int64_t i = 0; i < elements; i++) {
            double square = squared ? values[i] : values[i] * values[i];
            squares[i] = fmax(k == 0 ? 0.0 : squares[i], square);
        }
    }
    if (!ends_with(name, ".bias")) {
        double most = 0.0;
        for (int64_t i = 0; i < elements; i++) {
            most = fmax(most, squares[i]);
        }
        for (int64_t i = 0; i < elements; i++) {
            squares[i] = most;
        }
    }
    return LOONG_OK;
}

/* |x - y| / |y|, y of the second checkpoint; `values` has room for both and for
 * the squares of gradients. */
static loong_status_t compare_values(const pair_t *pair,
                                     const loong_checkpoint_tensor_t *x,
                                     int64_t elements, double *values,
                                     double *difference_p)
{
    const loong_checkpoint_tensor_t *y =
        loongi_checkpoint_find(pair->of[1], x->kind, x->name);
    double diff = 0.0;
    double norm = 0.0;
    double *squares = values + 2 * elements;
    LOONG_TRY(find_squares(pair, x->name, elements, values, squares));
    LOONG_CHECK(pair->ctx, y != NULL && y->ndim == x->ndim &&
                               memcmp(y->shape, x->shape, sizeof(x->shape)) ==
                                   0,
                LOONG_ERR_MISMATCH, "%s has no %s of %s of that shape",
                loongi_checkpoint_path(pair->of[1]), x->kind, x->name);
    LOONG_TRY(loongi_checkpoint_read_rows(pair->of[0], x, 0, x->shape[0],
                                          LOONG_F64, values));
    LOONG_TRY(loongi_checkpoint_read_rows(pair->of[1], y, 0, y->shape[0],
                                          LOONG_F64, values + elements));
    for (int64_t k = 0; k < elements; k++) {
        double want = values[elements + k];
        if (is_noise(squares[k])) {
            continue;
        }
        diff += (values[k] - want) * (values[k] - want);
        norm += want * want;
    }
    *difference_p = sqrt(diff) / fmax(sqrt(norm), least_norm(x->kind));
    return LOONG_OK;
}

static loong_status_t compare_tensor(const pair_t *pair,
                                     const loong_checkpoint_tensor_t *x,
                                     layout_difference_t *worst)
{
    bool moment = strcmp(x->kind, "param") != 0;
    double *largest = moment ? &worst->moment : &worst->param;
    double difference = 0.0;
    double *values = NULL;
    int64_t elements = elements_of(x);
    LOONG_TRY(loongi_calloc(pair->ctx, (size_t)elements, 3 * sizeof(*values),
                            "values", &values));
    loong_status_t status =
        compare_values(pair, x, elements, values, &difference);
    loongi_free(pair->ctx, values);
    LOONG_TRY(status);
    if (!(difference <= *largest) && !isnan(*largest)) {
        *largest = difference;
        snprintf(worst->worst[moment], sizeof(worst->worst[moment]),
                 "%s of %s", x->kind, x->name);
    }
    return LOONG_OK;
}

static loong_status_t compare(const pair_t *pair, layout_difference_t *worst)
{
    int64_t count = loongi_checkpoint_count(pair->of[0]);
    int64_t other = loongi_checkpoint_count(pair->of[1]);
    LOONG_CHECK(pair->ctx, count == other && count > 0, LOONG_ERR_MISMATCH,
                "%s has %lld tensors, %s %lld",
                loongi_checkpoint_path(pair->of[0]), (long long)count,
                loongi_checkpoint_path(pair->of[1]), (long long)other);
    for (int64_t i = 0; i < count; i++) {
        LOONG_TRY(compare_tensor(pair, loongi_checkpoint_get(pair->of[0], i),
                                 worst));
    }
    return LOONG_OK;
}

loong_status_t layout_job_compare(loong_context_t *ctx, const char *dir,
                                  const char *one,
                                  layout_difference_t *difference_p)
{
    pair_t pair = {ctx, {NULL, NULL}};
    layout_difference_t worst;
    memset(&worst, 0, sizeof(worst));
    loong_status_t status = loongi_checkpoint_open(ctx, dir, &pair.of[0]);
    if (status == LOONG_OK) {
        status = loongi_checkpoint_open(ctx, one, &pair.of[1]);
    }
    if (status == LOONG_OK) {
        status = compare(&pair, &worst);
    }
    loongi_checkpoint_close(&pair.of[0]);
    loongi_checkpoint_close(&pair.of[1]);
    LOONG_TRY(status);
    *difference_p = worst;
    return LOONG_OK;
}
