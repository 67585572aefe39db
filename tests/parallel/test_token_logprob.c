/* SPDX-License-Identifier: Apache-2.0
 *
 * token_logprob over a vocabulary that ranks share: log-probabilities and both
 * gradients are those of one rank, by the reference (fp64) and by products of
 * oneDNN (fp32). */
#include "convert.h"
#include "executor.h"
#include "groups.h"
#include "loong/collective.h"
#include "loong/device.h"
#include "loong/ops.h"
#include "loong/register.h"
#include "rng.h"
#include "test.h"

enum { TOKENS = 7, HIDDEN = 5, ROWS = 12, VOCAB = 11 };

/* What one rank makes; then what others are compared with. */
typedef struct result {
    double logp[TOKENS];
    double dx[TOKENS * HIDDEN];
    double dw[ROWS * HIDDEN];
} result_t;

typedef struct job {
    loong_mesh_params_t mesh;
    loong_dtype_t dtype;
    double bound;
    result_t *one;
} job_t;

typedef struct runner {
    loong_context_t *ctx;
    loong_mesh_t mesh;
    loong_groups_t groups;
    loong_model_chunk_t *chunk;
    loong_binding_t run;
    const job_t *job;
    int64_t rows; /* of this rank */
} runner_t;

static loong_status_t compile(runner_t *r)
{
    loong_dtype_t dtype = r->job->dtype;
    loong_precision_t precision = {dtype, dtype};
    loong_compile_params_t params = {
        .device = "cpu", .threads = 1, .fuse = true, .in_place = true};
    loong_token_logprob_params_t vocab = {.vocab = VOCAB,
                                          .begin = r->rows * r->mesh.rank,
                                          .shared = true,
                                          .group = LOONG_GROUP_TP};
    loong_graph_t *g = NULL;
    LOONG_TRY(loong_register_builtin(r->ctx));
    LOONG_TRY(loong_graph_create(r->ctx, precision, &g));
    loong_graph_set_mesh(g, &r->mesh);
    loong_val_t x = loong_graph_boundary_input(g, "x", dtype,
                                               loong_shape_2d(TOKENS, HIDDEN));
    loong_val_t w = loong_graph_boundary_input(g, "w", dtype,
                                               loong_shape_2d(r->rows, HIDDEN));
    loong_val_t labels =
        loong_graph_input(g, "labels", LOONG_I32, loong_shape_1d(TOKENS));
    x = loong_replicate(g, x, LOONG_GROUP_TP);
    loong_val_t y = loong_token_logprob(g, x, w, labels, &vocab);
    loong_graph_boundary_output(g, "y", loong_scale(g, y, 1.0));
    LOONG_TRY(loong_graph_status(g));
    LOONG_TRY(loongi_model_chunk_compile(g, true, &params, &r->chunk));
    loong_graph_destroy(&g);
    return loongi_model_chunk_prepare(r->chunk);
}

static loong_status_t bind(runner_t *r)
{
    const loong_model_chunk_t *c = r->chunk;
    int64_t bytes[LOONG_BASE_COUNT] = {
        [LOONG_BASE_SLOT] = c->slot_bytes,
        [LOONG_BASE_SCRATCH] = c->scratch_bytes,
        [LOONG_BASE_INPUT] = c->input_bytes,
    };
    r->run.ctx = r->ctx;
    r->run.group = r->groups.comm;
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        LOONG_TRY(loongi_alloc(r->ctx, (size_t)bytes[b] + 64, "test",
                               &r->run.base[b]));
    }
    return LOONG_OK;
}

static void *data_of(const runner_t *r, const loong_port_t *port)
{
    return r->run.base[port->operand.base] + port->operand.offset;
}

/* Numbers of a stream from its number `first` on. */
static loong_status_t fill(const runner_t *r, const char *name, uint64_t first)
{
    const loong_port_t *port = loongi_model_chunk_input(r->chunk, name);
    char *data = data_of(r, port);
    for (int64_t i = 0; i < loongi_shape_elements(&port->shape); i++) {
        double v = loongi_rng_normal((uint64_t)name[0], 1, first + (uint64_t)i);
        LOONG_TRY(
            loongi_convert(r->ctx, LOONG_F64, &v, r->job->dtype, data, 1));
        data += loong_dtype_size(r->job->dtype);
    }
    return LOONG_OK;
}

static loong_status_t compare(const runner_t *r, const char *name,
                              double *wanted, int64_t n, bool keep)
{
    double data[ROWS * HIDDEN];
    LOONG_TRY(
        loongi_convert(r->ctx, r->job->dtype,
                       data_of(r, loongi_model_chunk_output(r->chunk, name)),
                       LOONG_F64, data, n));
    if (keep) {
        memcpy(wanted, data, sizeof(*data) * (size_t)n);
    }
    for (int64_t i = 0; i < n; i++) {
        LOONG_CHECK(r->ctx, fabs(data[i] - wanted[i]) <= r->job->bound,
                    LOONG_ERR_INTERNAL, "%s: element %lld is %.17g, not %.17g",
                    name, (long long)i, data[i], wanted[i]);
    }
    return LOONG_OK;
}

static loong_status_t check(runner_t *r)
{
    const job_t *job = r->job;
    loong_frame_t frame = {.first = 1, .last = 1};
    bool keep = job->mesh.world == 1;
    int64_t first = r->rows * r->mesh.rank * HIDDEN;
    int32_t *labels = data_of(r, loongi_model_chunk_input(r->chunk, "labels"));
    for (int t = 0; t < TOKENS; t++) {
        labels[t] = t == 2 ? LOONG_IGNORE_LABEL : t * 5 % VOCAB;
    }
    LOONG_TRY(fill(r, "x", 0));
    LOONG_TRY(fill(r, "w", (uint64_t)first));
    LOONG_TRY(fill(r, "y.grad", 0));
    LOONG_TRY(loongi_program_run(&r->run, &r->chunk->programs[LOONG_PROGRAM_F],
                                 &frame));
    LOONG_TRY(compare(r, "y", job->one->logp, TOKENS, keep));
    LOONG_TRY(loongi_program_run(&r->run, &r->chunk->programs[LOONG_PROGRAM_B],
                                 &frame));
    LOONG_TRY(compare(r, "x.grad", job->one->dx, TOKENS * HIDDEN, keep));
    return compare(r, "w.grad", job->one->dw + first, r->rows * HIDDEN, keep);
}

static loong_status_t run_job(loong_context_t *ctx, loong_comm_t *comm,
                              void *user)
{
    const job_t *job = user;
    runner_t r;
    memset(&r, 0, sizeof(r));
    r.ctx = ctx;
    r.job = job;
    r.rows = ROWS / job->mesh.world;
    LOONG_TRY(
        loong_mesh_create(ctx, &job->mesh, loong_comm_rank(comm), &r.mesh));
    LOONG_TRY(loongi_groups_create(ctx, comm, &r.mesh, &r.groups));
    LOONG_TRY(compile(&r));
    LOONG_TRY(bind(&r));
    LOONG_TRY(check(&r));
    loongi_model_chunk_destroy(&r.chunk);
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        loongi_free(ctx, r.run.base[b]);
    }
    loongi_groups_destroy(&r.groups);
    return LOONG_OK;
}

static void check_shared(loong_dtype_t dtype, double bound)
{
    static result_t one;
    loong_context_t *ctx = test_context();
    for (int ranks = 1; ranks <= 3; ranks++) {
        job_t job = {{ranks, ranks, 1, 1, 1, 1, 0, 0}, dtype, bound, &one};
        loong_threads_params_t params = {
            .size = ranks, .context = {test_log, NULL, LOONG_LOG_WARN}};
        assert_ok(ctx, loong_threads_run(ctx, &params, run_job, &job));
    }
    assert_true(one.logp[2] == 0.0 && one.logp[3] < 0.0);
    test_context_end(&ctx);
}

static void test_shared(void **state)
{
    (void)state;
    check_shared(LOONG_F64, 1e-13);
    check_shared(LOONG_F32, 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
