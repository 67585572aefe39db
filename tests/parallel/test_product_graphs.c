/* SPDX-License-Identifier: Apache-2.0
 *
 * Random graphs of products between gathers and scatters, on ranks that are
 * threads: with the products made rank by rank every output and gradient has
 * the bits of the graph as it was built, the program says in which order they
 * are made, and <A x, w> = <x, A' w> where the graph is linear. */
#include "executor.h"
#include "groups.h"
#include "isa.h"
#include "lane.h"
#include "loong/collective.h"
#include "loong/ops.h"
#include "loong/register.h"
#include "passes.h"
#include "rng.h"
#include "test.h"

enum { MAX_BLOCKS = 3 };

/* Everything about a case but the ranks' uneven shares of columns. */
typedef struct plan {
    uint64_t seed;
    loong_precision_t precision;
    int ranks;
    int threads;
    int64_t rows; /* of a rank */
    int64_t width;
    int64_t inner; /* columns of a product on rank 0, about */
    int blocks;
    bool linear; /* the graph is, in x */
    bool split;
    bool plain; /* no storage in place, nothing assembled or added directly */
    bool again; /* the blocks run again in the backward */
} plan_t;

static int64_t pick(uint64_t seed, int what, int64_t least, int64_t most)
{
    double u = loongi_rng_uniform(seed, 900, (uint64_t)what);
    return least + (int64_t)(u * (double)(most - least + 1));
}

static plan_t random_plan(uint64_t seed)
{
    /* Below AVX-512 oneDNN sums a row in an order that depends on how many
     * rows there are; our own products of fp64 never do. */
    static const loong_precision_t types[] = {{LOONG_F64, LOONG_F64},
                                              {LOONG_F32, LOONG_F32},
                                              {LOONG_BF16, LOONG_F32}};
    plan_t p = {.seed = seed};
    p.precision = types[loongi_isa() >= LOONG_ISA_LEVEL_avx512
                            ? pick(seed, 0, 0, 2)
                            : 0];
    p.ranks = (int)pick(seed, 1, 2, 4);
    p.threads = (int)pick(seed, 2, 1, 2);
    p.rows = pick(seed, 3, 1, 40);
    p.width = pick(seed, 4, 1, 50);
    p.inner = pick(seed, 5, 2, 40);
    p.blocks = (int)pick(seed, 6, 1, MAX_BLOCKS);
    p.linear = pick(seed, 7, 0, 1) == 0;
    p.split = pick(seed, 8, 0, 1) == 0;
    p.plain = pick(seed, 9, 0, 3) == 0;
    p.again = pick(seed, 10, 0, 2) == 0;
    return p;
}

/* ---- graphs -------------------------------------------------------------- */

static loong_val_t weight(loong_graph_t *g, const char *name, int64_t rows,
                          int64_t cols)
{
    char full[LOONG_MAX_SCOPE + 8];
    loong_param_params_t p;
    memset(&p, 0, sizeof(p));
    snprintf(full, sizeof(full), "%s.%.4s", g->scope, name);
    p.name = full;
    p.shape = cols > 0 ? loong_shape_2d(rows, cols) : loong_shape_1d(rows);
    p.dtype = cols > 0 ? g->precision.compute : g->precision.wide;
    p.init = LOONG_INIT_NORMAL;
    p.std = 1.0;
    return loong_graph_param(g, &p);
}

/* The library has another product for few rows of fp32 with gaps between
 * them, which rounds in another way. */
static bool same_product(const plan_t *p)
{
    return p->rows >= 16 || p->precision.compute != LOONG_F32;
}

/* Into the columns of this rank and back; what is drawn is drawn alike on all
 * ranks. Some blocks have a second reader of the gathered rows, a bias, a part
 * of a product, or a stream that goes around. */
static loong_val_t block(loong_graph_t *g, const plan_t *p, int index,
                         loong_val_t x)
{
    uint64_t seed = p->seed * 16 + (uint64_t)index + 1;
    int rank = loong_mesh_group_rank(&g->mesh, LOONG_GROUP_TP);
    int64_t inner = p->inner + (pick(seed, 0, 0, 1) ? 3 * rank : 0);
    loong_val_t bias =
        pick(seed, 1, 0, 1) ? weight(g, "b", inner, 0) : LOONG_NONE;
    loong_val_t all = loong_all_gather(
        g, p->linear ? loong_scale(g, x, 1.5)
                     : loong_rmsnorm(g, x, weight(g, "n", p->width, 0), 1e-5),
        LOONG_GROUP_TP);
    loong_val_t h = loong_linear(g, all, weight(g, "w", inner, p->width),
                                 p->linear ? LOONG_NONE : bias);
    if (pick(seed, 2, 0, 1)) {
        loong_val_t more = loong_linear(
            g, all, weight(g, "v", inner, p->width), LOONG_NONE);
        h = loong_add(g, h, more);
    }
    if (pick(seed, 3, 0, 1) && same_product(p)) {
        inner = inner / 2;
        h = loong_slice(g, h, inner > 1 ? 1 : 0, inner);
    }
    h = p->linear ? h : loong_gelu(g, h, LOONG_ACT_GELU_TANH);
    bias = !p->linear && rank == 0 && pick(seed, 4, 0, 1)
               ? weight(g, "c", p->width, 0)
               : LOONG_NONE;
    h = loong_linear(g, h, weight(g, "u", p->width, inner), bias);
    h = loong_reduce_scatter(g, h, LOONG_GROUP_TP);
    return pick(seed, 5, 0, 2) ? loong_add(g, x, h) : h;
}

typedef struct runner {
    loong_context_t *ctx;
    loong_mesh_t mesh;
    loong_groups_t groups;
    loong_lane_t *lane;
} runner_t;

/* One graph in one of the two ways, and its memory. */
typedef struct run {
    loong_model_chunk_t *chunk;
    loong_binding_t run;
    int64_t bytes[LOONG_BASE_COUNT];
} run_t;

static loong_status_t build(const runner_t *r, const plan_t *p, bool overlap,
                            loong_model_chunk_t **chunk_p)
{
    static const char *const again[] = {"block*"};
    loong_compile_params_t params = {
        .device = "cpu", .threads = p->threads, .fuse = true,
        .in_place = !p->plain, .split = p->split, .lanes = true,
        .overlap = overlap, .no_direct = p->plain, .no_assemble = p->plain,
        .num_recompute = p->again, .recompute = again};
    loong_graph_t *g = NULL;
    LOONG_TRY(loong_graph_create(r->ctx, p->precision, &g));
    loong_graph_set_mesh(g, &r->mesh);
    loong_val_t x =
        loong_graph_boundary_input(g, "x", p->precision.compute,
                                   loong_shape_2d(p->rows, p->width));
    for (int i = 0; i < p->blocks; i++) {
        loong_graph_push(g, "block%d", i);
        x = block(g, p, i, x);
        loong_graph_pop(g);
    }
    loong_graph_boundary_output(g, "y", loong_scale(g, x, 1.0));
    loong_status_t status = loong_graph_status(g);
    if (status == LOONG_OK) {
        status = loongi_model_chunk_compile(g, true, &params, chunk_p);
    }
    loong_graph_destroy(&g);
    return status;
}

static void fill(run_t *a, loong_base_t base, loong_dtype_t dtype, int stream,
                 int64_t from, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        double v = loongi_rng_normal((uint64_t)stream, 1, (uint64_t)i);
        void *at = a->run.base[base] + from;
        if (dtype == LOONG_F64) {
            ((double *)at)[i] = v;
        } else if (dtype == LOONG_F32) {
            ((float *)at)[i] = (float)v;
        } else {
            float f = (float)v;
            uint32_t bits;
            memcpy(&bits, &f, sizeof(bits));
            ((uint16_t *)at)[i] = (uint16_t)(bits >> 16);
        }
    }
}

static void fill_all(const runner_t *r, run_t *a)
{
    const loong_model_chunk_t *c = a->chunk;
    for (int64_t i = 0; i < c->num_params; i++) {
        const loong_chunk_param_t *p = &c->params[i];
        const loong_flat_t *flat = &c->flats[p->flat];
        fill(a, LOONG_BASE_PARAM, flat->dtype,
             (int)(100 * r->mesh.rank + i),
             flat->param_offset +
                 p->flat_offset * (int64_t)loong_dtype_size(flat->dtype),
             p->elements);
    }
    for (int i = 0; i < c->num_inputs; i++) {
        const loong_port_t *p = &c->inputs[i];
        fill(a, p->operand.base, p->dtype, 1000 + 100 * r->mesh.rank + i,
             p->operand.offset, loongi_shape_elements(&p->shape));
    }
}

static loong_status_t run_once(runner_t *r, const plan_t *p, bool overlap,
                               run_t *a)
{
    static const loong_program_kind_t kinds[] = {
        LOONG_PROGRAM_F, LOONG_PROGRAM_B, LOONG_PROGRAM_W};
    loong_frame_t frame = {.first = 1, .last = 1};
    memset(a, 0, sizeof(*a));
    LOONG_TRY(build(r, p, overlap, &a->chunk));
    LOONG_TRY(loongi_model_chunk_prepare(a->chunk));
    const int64_t bytes[LOONG_BASE_COUNT] = {
        [LOONG_BASE_PARAM] = a->chunk->param_bytes,
        [LOONG_BASE_GRAD] = a->chunk->grad_bytes,
        [LOONG_BASE_SLOT] = a->chunk->slot_bytes,
        [LOONG_BASE_SCRATCH] = a->chunk->scratch_bytes,
        [LOONG_BASE_INPUT] = a->chunk->input_bytes,
    };
    memcpy(a->bytes, bytes, sizeof(bytes));
    a->run.ctx = r->ctx;
    a->run.group = r->groups.comm;
    a->run.lane = r->lane;
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        LOONG_TRY(loongi_alloc(r->ctx, (size_t)bytes[b] + 64, "test",
                               &a->run.base[b]));
        memset(a->run.base[b], 0xff, (size_t)bytes[b] + 64); /* NaN */
    }
    fill_all(r, a);
    for (int i = 0; i < LOONG_COUNT_OF(kinds); i++) {
        loong_program_t *program = &a->chunk->programs[kinds[i]];
        loongi_pass_lanes(program, 0);
        LOONG_TRY(loongi_program_run(&a->run, program, &frame));
    }
    return LOONG_OK;
}

static void end_run(loong_context_t *ctx, run_t *a)
{
    loongi_model_chunk_destroy(&a->chunk);
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        loongi_free(ctx, a->run.base[b]);
    }
}

/* ---- what must hold ------------------------------------------------------ */

static const void *data_of(const run_t *a, const loong_port_t *port)
{
    return a->run.base[port->operand.base] + port->operand.offset;
}

static int64_t count(const run_t *a, const char *op)
{
    int64_t n = 0;
    for (int k = 0; k < LOONG_PROGRAM_COUNT; k++) {
        const loong_program_t *p = &a->chunk->programs[k];
        for (int64_t i = 0; i < p->num_steps; i++) {
            n += strcmp(p->steps[i].query.op, op) == 0;
        }
    }
    return n;
}

static loong_status_t check_same(const runner_t *r, const run_t *a,
                                 const run_t *b)
{
    static const char *const outputs[] = {"y", "x.grad"};
    for (int i = 0; i < LOONG_COUNT_OF(outputs); i++) {
        const loong_port_t *p = loongi_model_chunk_output(a->chunk, outputs[i]);
        const loong_port_t *q = loongi_model_chunk_output(b->chunk, outputs[i]);
        LOONG_CHECK(r->ctx,
                    memcmp(data_of(a, p), data_of(b, q),
                           (size_t)loongi_shape_elements(&p->shape) *
                               loong_dtype_size(p->dtype)) == 0,
                    LOONG_ERR_INTERNAL, "%s differs", outputs[i]);
    }
    for (int64_t i = 0; i < a->chunk->num_params; i++) {
        const loong_chunk_param_t *p = &a->chunk->params[i];
        const loong_flat_t *flat = &a->chunk->flats[p->flat];
        size_t size = loong_dtype_size(a->chunk->precision.wide);
        size_t at = (size_t)flat->grad_offset + (size_t)p->flat_offset * size;
        LOONG_CHECK(r->ctx,
                    memcmp(a->run.base[LOONG_BASE_GRAD] + at,
                           b->run.base[LOONG_BASE_GRAD] + at,
                           (size_t)p->elements * size) == 0,
                    LOONG_ERR_INTERNAL, "gradient of %s differs", p->name);
    }
    return LOONG_OK;
}

/* Gathers are gone; what was gathered is multiplied rank by rank, and the
 * forward sends what it scatters so. */
static loong_status_t check_program(const runner_t *r, const plan_t *p,
                                    const run_t *all, const run_t *rows)
{
    int64_t shifts = count(rows, "ring_shift");
    int64_t gone = count(all, "all_gather") + count(all, "reduce_scatter") -
                   count(rows, "all_gather") - count(rows, "reduce_scatter");
    int64_t products = count(rows, "linear") - count(all, "linear");
    LOONG_CHECK(r->ctx,
                gone >= p->blocks && shifts == gone * (p->ranks - 1) &&
                    products == shifts &&
                    count(rows, "linear_dw") == count(all, "linear_dw"),
                LOONG_ERR_INTERNAL,
                "%lld collectives of %d blocks became %lld shifts and %lld "
                "more products", (long long)gone, p->blocks,
                (long long)shifts, (long long)products);
    return LOONG_OK;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static loong_status_t check_adjoint(runner_t *r, const run_t *a)
{
    const loong_model_chunk_t *c = a->chunk;
    const loong_port_t *x = loongi_model_chunk_input(c, "x");
    int64_t n = loongi_shape_elements(&x->shape);
    double both[2] = {dot(data_of(a, loongi_model_chunk_output(c, "y")),
                          data_of(a, loongi_model_chunk_input(c, "y.grad")), n),
                      dot(data_of(a, x),
                          data_of(a, loongi_model_chunk_output(c, "x.grad")),
                          n)};
    double scale = 0.0;
    for (int64_t i = 0; i < n; i++) {
        scale += fabs(
            ((const double *)data_of(a, loongi_model_chunk_output(c, "y")))[i]);
    }
    double sums[3] = {both[0], both[1], scale};
    LOONG_TRY(loong_comm_all_reduce(r->groups.comm[LOONG_GROUP_WORLD], sums, 3,
                                    LOONG_F64, LOONG_REDUCE_SUM, "test"));
    LOONG_CHECK(r->ctx, fabs(sums[0] - sums[1]) <= 1e-12 * (1.0 + sums[2]),
                LOONG_ERR_INTERNAL, "<Ax,w> %.17g, <x,A'w> %.17g", sums[0],
                sums[1]);
    LOONG_CHECK(r->ctx, sums[2] > 1e-3, LOONG_ERR_INTERNAL, "nothing");
    return LOONG_OK;
}

static loong_status_t run_plan(runner_t *r, const plan_t *p)
{
    run_t all;
    run_t rows;
    LOONG_TRY(run_once(r, p, false, &all));
    LOONG_TRY(run_once(r, p, true, &rows));
    LOONG_TRY(check_same(r, &all, &rows));
    LOONG_TRY(check_program(r, p, &all, &rows));
    if (p->linear && p->precision.compute == LOONG_F64) {
        LOONG_TRY(check_adjoint(r, &rows));
    }
    end_run(r->ctx, &all);
    end_run(r->ctx, &rows);
    return LOONG_OK;
}

static loong_status_t run_rank(loong_context_t *ctx, loong_comm_t *comm,
                               void *user)
{
    const plan_t *p = user;
    loong_mesh_params_t mesh = {p->ranks, p->ranks, 1, 1, 1, 1, 0, 0};
    runner_t r;
    memset(&r, 0, sizeof(r));
    r.ctx = ctx;
    LOONG_TRY(loong_register_builtin(ctx));
    LOONG_TRY(
        loong_mesh_create(ctx, &mesh, loong_comm_rank(comm), &r.mesh));
    LOONG_TRY(loongi_groups_create(ctx, comm, &r.mesh, &r.groups));
    LOONG_TRY(loongi_lane_create(ctx, &r.lane));
    loong_status_t status = run_plan(&r, p);
    loongi_lane_destroy(&r.lane);
    loongi_groups_destroy(&r.groups);
    return status;
}

static void check_plan(const plan_t *plan)
{
    plan_t p = *plan;
    loong_context_t *ctx = test_context();
    loong_threads_params_t params = {
        .size = p.ranks, .context = {test_log, NULL, LOONG_LOG_WARN}};
    if (loong_threads_run(ctx, &params, run_rank, &p) != LOONG_OK) {
        fail_msg("seed %d, %s, %d ranks x %d threads, %d rows of %d, %d inner "
                 "columns, %d blocks%s%s%s%s: %s", (int)p.seed,
                 loong_dtype_name(p.precision.compute), p.ranks, p.threads,
                 (int)p.rows, (int)p.width, (int)p.inner, p.blocks,
                 p.linear ? ", linear" : "", p.split ? ", split" : "",
                 p.plain ? ", plain" : "", p.again ? ", again" : "",
                 loong_context_error(ctx));
    }
    test_context_end(&ctx);
}

static void test_random(void **state)
{
    (void)state;
    const char *most = getenv("LOONG_PRODUCT_SEEDS");
    uint64_t seeds = most != NULL ? (uint64_t)atoll(most) : 60;
    for (uint64_t seed = 0; seed < seeds; seed++) {
        plan_t p = random_plan(seed);
        check_plan(&p);
    }
}

/* Products large enough for what a library does with large ones. */
static void test_large(void **state)
{
    (void)state;
    static const struct {
        loong_precision_t precision;
        int threads;
        int64_t rows, width, inner;
    } sizes[] = {
        {{LOONG_BF16, LOONG_F32}, 1, 512, 512, 704},
        {{LOONG_F32, LOONG_F32}, 1, 512, 512, 704},
        {{LOONG_BF16, LOONG_F32}, 2, 96, 768, 1152},
        {{LOONG_F32, LOONG_F32}, 2, 96, 768, 1152},
        {{LOONG_F32, LOONG_F32}, 1, 33, 1100, 517},
    };
    if (loongi_isa() < LOONG_ISA_LEVEL_avx512) {
        skip(); /* see random_plan */
    }
    for (int i = 0; i < LOONG_COUNT_OF(sizes); i++) {
        plan_t p = {.seed = (uint64_t)i, .precision = sizes[i].precision,
                    .ranks = 2, .threads = sizes[i].threads,
                    .rows = sizes[i].rows, .width = sizes[i].width,
                    .inner = sizes[i].inner, .blocks = 1};
        check_plan(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
