/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives inside a layer: their values against sums made by hand, and
 * adjointness: with x and w drawn per rank (or equal on all ranks, where the
 * op says so), <A x, w> = <x, A' w>, summed over the ranks that count. */
#include "executor.h"
#include "groups.h"
#include "loong/collective.h"
#include "loong/device.h"
#include "loong/moe.h"
#include "loong/ops.h"
#include "loong/register.h"
#include "rng.h"
#include "test.h"

enum { ROWS = 12, COLS = 24, EXPERTS = 12 };

typedef loong_val_t (*region_fn)(loong_graph_t *g, loong_val_t x,
                                 loong_group_t group);

typedef struct region {
    const char *name;
    region_fn build;
    bool in_replicated;  /* x is equal on all ranks */
    bool out_replicated; /* so is A x */
} region_t;

static loong_val_t replicate_reduce(loong_graph_t *g, loong_val_t x,
                                    loong_group_t group)
{
    return loong_all_reduce(g, loong_replicate(g, x, group), group);
}

/* Two uses of a gathered value, whose gradients meet before one collective. */
static loong_val_t gather_twice(loong_graph_t *g, loong_val_t x,
                                loong_group_t group)
{
    loong_val_t a = loong_all_gather(g, x, group);
    loong_val_t b = loong_all_gather(g, x, group);
    return loong_reduce_scatter(g, loong_add(g, loong_scale(g, a, 3.0), b),
                                group);
}

/* Heads of 4 channels, three times each, to their rows. */
static loong_val_t repeat_and_exchange(loong_graph_t *g, loong_val_t x,
                                       loong_group_t group)
{
    return loong_all_to_all_rows(g, loong_repeat_heads(g, x, 4, 3), group);
}

/* Where tokens go depends on the rows, but not by a gradient. */
static loong_expert_routes_t routes_of(loong_graph_t *g, loong_val_t x,
                                       loong_group_t group)
{
    static const loong_router_attr_t attr = {
        .topk = 3, .pre_softmax = true, .scaling_factor = 1.0};
    static const loong_router_inputs_t none = {LOONG_NONE, LOONG_NONE,
                                               LOONG_NONE};
    loong_val_t indices = LOONG_NONE;
    loong_topk_router(g, loong_scale(g, loong_slice(g, x, 0, EXPERTS), 1.0),
                      &none, &attr, &indices);
    const loong_expert_routes_attr_t routes = {.experts = EXPERTS,
                                               .copies = 1};
    return loong_expert_routes(g, loong_all_gather(g, indices, group), group,
                               &routes);
}

static loong_val_t dispatch(loong_graph_t *g, loong_val_t x,
                            loong_group_t group)
{
    loong_expert_routes_t routes = routes_of(g, x, group);
    loong_graph_output(g, "counts", routes.counts);
    return loong_expert_dispatch(g, x, &routes);
}

/* Each rank does something else with what comes. */
static loong_val_t dispatch_combine(loong_graph_t *g, loong_val_t x,
                                    loong_group_t group)
{
    loong_expert_routes_t routes = routes_of(g, x, group);
    double factor = 1.0 + loong_mesh_group_rank(loong_graph_mesh(g), group);
    x = loong_scale(g, loong_expert_dispatch(g, x, &routes), factor);
    return loong_expert_combine(g, x, &routes);
}

static const region_t regions[] = {
    {"all_reduce", loong_all_reduce, false, true},
    {"replicate", loong_replicate, true, false},
    {"all_gather", loong_all_gather, false, false},
    {"reduce_scatter", loong_reduce_scatter, false, false},
    {"own_rows", loong_own_rows, true, false},
    {"all_to_all_rows", loong_all_to_all_rows, false, false},
    {"all_to_all_columns", loong_all_to_all_columns, false, false},
    {"replicate, all_reduce", replicate_reduce, true, true},
    {"gathers", gather_twice, false, false},
    {"repeated heads", repeat_and_exchange, false, false},
    {"expert_dispatch", dispatch, false, false},
    {"expert_dispatch, expert_combine", dispatch_combine, false, false},
};

typedef struct job {
    loong_mesh_params_t mesh;
    loong_group_t group;
    const region_t *region;
} job_t;

typedef struct runner {
    loong_context_t *ctx;
    loong_mesh_t mesh;
    loong_groups_t groups;
    loong_model_chunk_t *chunk;
    loong_binding_t run;
} runner_t;

static loong_status_t compile(runner_t *r, const job_t *job)
{
    loong_precision_t f64 = {LOONG_F64, LOONG_F64};
    loong_compile_params_t params = {.device = "cpu", .threads = 1,
                                     .fuse = true, .in_place = true};
    loong_graph_t *g = NULL;
    LOONG_TRY(loong_register_builtin(r->ctx));
    LOONG_TRY(loong_graph_create(r->ctx, f64, &g));
    loong_graph_set_mesh(g, &r->mesh);
    loong_val_t x = loong_graph_boundary_input(g, "x", LOONG_F64,
                                               loong_shape_2d(ROWS, COLS));
    /* Its own storage at both ends. */
    loong_val_t y = job->region->build(g, loong_scale(g, x, 1.0), job->group);
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
        /* Not a number, wherever nothing is written. */
        memset(r->run.base[b], 0xff, (size_t)bytes[b] + 64);
    }
    return LOONG_OK;
}

static void *data_of(const runner_t *r, const loong_port_t *port)
{
    return r->run.base[port->operand.base] + port->operand.offset;
}

/* Fills with numbers of a stream: each rank's own, or the group's. */
static int64_t fill(const runner_t *r, const job_t *job,
                    const loong_port_t *port, bool replicated, int stream)
{
    int64_t n = loongi_shape_elements(&port->shape);
    int of = replicated ? loong_mesh_member(&r->mesh, job->group, 0)
                        : r->mesh.rank;
    for (int64_t i = 0; i < n; i++) {
        ((double *)data_of(r, port))[i] = loongi_rng_normal(
            (uint64_t)stream, (uint64_t)of, (uint64_t)i);
    }
    return n;
}

/* Elements of y that are written: all, or the rows that came. */
static int64_t written(const runner_t *r, int64_t all)
{
    const loong_port_t *port = loongi_model_chunk_output(r->chunk, "counts");
    if (port == NULL) {
        return all;
    }
    const int32_t *came = (const int32_t *)data_of(r, port) +
                          port->shape.dim[1];
    int64_t rows = 0;
    for (int64_t i = 0; i < port->shape.dim[1]; i++) {
        rows += came[i];
    }
    return rows * COLS;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* Equal on all ranks of the group: counts once. */
static double counted(const runner_t *r, const job_t *job, bool replicated,
                      double value)
{
    return replicated && loong_mesh_group_rank(&r->mesh, job->group) > 0
               ? 0.0
               : value;
}

static loong_status_t check(runner_t *r, const job_t *job)
{
    const loong_model_chunk_t *c = r->chunk;
    const region_t *region = job->region;
    loong_frame_t frame = {.first = 1, .last = 1};
    const loong_port_t *x = loongi_model_chunk_input(c, "x");
    const loong_port_t *w = loongi_model_chunk_input(c, "y.grad");
    const loong_port_t *y = loongi_model_chunk_output(c, "y");
    const loong_port_t *dx = loongi_model_chunk_output(c, "x.grad");
    int64_t n = fill(r, job, x, region->in_replicated, 1);
    int64_t m = fill(r, job, w, region->out_replicated, 2);
    double both[2];
    LOONG_TRY(loongi_program_run(&r->run, &c->programs[LOONG_PROGRAM_F],
                                 &frame));
    both[0] = counted(r, job, region->out_replicated,
                      dot(data_of(r, y), data_of(r, w), written(r, m)));
    LOONG_TRY(loongi_program_run(&r->run, &c->programs[LOONG_PROGRAM_B],
                                 &frame));
    both[1] = counted(r, job, region->in_replicated,
                      dot(data_of(r, dx), data_of(r, x), n));
    LOONG_TRY(loong_comm_all_reduce(r->groups.comm[LOONG_GROUP_WORLD], both, 2,
                                    LOONG_F64, LOONG_REDUCE_SUM, "test"));
    LOONG_CHECK(r->ctx,
                fabs(both[0] - both[1]) <=
                    1e-12 * (1.0 + fabs(both[0])),
                LOONG_ERR_INTERNAL, "%s over %s: <Ax,w> %.17g, <x,A'w> %.17g",
                region->name, loong_group_name(job->group), both[0], both[1]);
    /* A sum over no rank at all would agree as well. */
    LOONG_CHECK(r->ctx, fabs(both[0]) > 1e-3, LOONG_ERR_INTERNAL,
                "%s: nothing", region->name);
    return LOONG_OK;
}

static loong_status_t run_job(loong_context_t *ctx, loong_comm_t *comm,
                              void *user)
{
    const job_t *job = user;
    runner_t r;
    memset(&r, 0, sizeof(r));
    r.ctx = ctx;
    LOONG_TRY(loong_mesh_create(ctx, &job->mesh, loong_comm_rank(comm),
                                &r.mesh));
    LOONG_TRY(loongi_groups_create(ctx, comm, &r.mesh, &r.groups));
    LOONG_TRY(compile(&r, job));
    LOONG_TRY(bind(&r));
    LOONG_TRY(check(&r, job));
    loongi_model_chunk_destroy(&r.chunk);
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        loongi_free(ctx, r.run.base[b]);
    }
    loongi_groups_destroy(&r.groups);
    return LOONG_OK;
}

static void test_adjoint(void **state)
{
    (void)state;
    static const job_t jobs[] = {
        {{1, 1, 1, 1, 1, 1, 0, 0}, LOONG_GROUP_TP, NULL},
        {{2, 2, 1, 1, 1, 1, 0, 0}, LOONG_GROUP_TP, NULL},
        {{3, 3, 1, 1, 1, 1, 0, 0}, LOONG_GROUP_TP, NULL},
        {{4, 2, 2, 1, 1, 1, 0, 0}, LOONG_GROUP_CP, NULL},
        {{8, 2, 1, 1, 4, 1, 0, 0}, LOONG_GROUP_ETP_EP, NULL},
        {{4, 2, 1, 1, 1, 1, 0, 0}, LOONG_GROUP_DP, NULL},
        {{12, 1, 6, 1, 1, 1, 0, 3}, LOONG_GROUP_CP_A2A, NULL},
        {{12, 1, 6, 1, 1, 1, 0, 3}, LOONG_GROUP_CP_P2P, NULL},
    };
    loong_context_t *ctx = test_context();
    for (int i = 0; i < LOONG_COUNT_OF(jobs); i++) {
        for (int k = 0; k < LOONG_COUNT_OF(regions); k++) {
            job_t job = jobs[i];
            job.region = &regions[k];
            loong_threads_params_t params = {
                .size = job.mesh.world,
                .context = {test_log, NULL, LOONG_LOG_WARN}};
            assert_ok(ctx, loong_threads_run(ctx, &params, run_job, &job));
        }
    }
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adjoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
