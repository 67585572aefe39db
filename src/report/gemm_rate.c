/* SPDX-License-Identifier: Apache-2.0
 *
 * The rate of matrix products of a machine, which report.c compares steps
 * with. Read report.h before. */
#include <math.h>
#include <string.h>

#include "fill.h"
#include "loong/ops.h"
#include "pool.h"
#include "report.h"

/* The matrices grow until a product takes so long that launching it and
 * waiting for it do not count. */
enum { SMALLEST = 128, LARGEST = 8192, MIN_RUNS = 10,
       ROOM_SHARE = 16 /* of what is free, one part: the rest is others' */ };
static const double enough = 0.001; /* seconds of a product */
static const double budget = 0.03;  /* of the products of one size */

static void set_arg(loong_step_t *step, int i, loong_dtype_t dtype, int64_t n)
{
    loong_karg_t arg = {dtype, 2, {n, n, 0, 0}, n};
    step->query.arg[i] = arg;
    step->operand[i].base = LOONG_BASE_INPUT;
    step->operand[i].offset =
        i * n * n * (int64_t)loong_dtype_size(dtype);
}

/* One product of n x n matrices as a program. */
static loong_status_t make_program(const loong_component_t *c, int64_t n,
                                   loong_arena_t *arena,
                                   loong_program_t *program)
{
    static const loong_linear_attr_t attr = {false, LOONG_ACT_NONE};
    loong_step_t step;
    memset(&step, 0, sizeof(step));
    step.scope = "rate of products";
    step.refusals = "";
    step.query.op = "linear";
    step.query.attr = &attr;
    step.query.num_in = 2;
    step.query.num_out = 1;
    step.query.threads = c->params.compile.threads;
    step.query.policy = c->params.compile.policy;
    for (int i = 0; i < 3; i++) {
        set_arg(&step, i, c->params.precision.compute, n);
    }
    LOONG_TRY(loongi_program_append(
        c->ctx, program, loong_device_name(c->run.device), &step, arena));
    return loongi_program_prepare(c->ctx, program);
}

static loong_status_t time_program(const loong_component_t *c,
                                   loong_binding_t *run,
                                   const loong_program_t *program, bool last,
                                   double *best_p)
{
    loong_frame_t frame;
    double begin = loongi_now();
    memset(&frame, 0, sizeof(frame));
    for (int i = 0; i <= MIN_RUNS || ((last || *best_p >= enough) &&
                                      loongi_now() - begin < budget); i++) {
        double at = loongi_now();
        LOONG_TRY(loongi_program_run(run, program, &frame));
        LOONG_TRY(loong_device_synchronize(c->run.device, "a product"));
        double seconds = loongi_now() - at;
        /* The first one warms up. */
        *best_p = i <= 1 ? seconds : LOONG_MIN(*best_p, seconds);
    }
    return LOONG_OK;
}

static loong_status_t fill(const loong_component_t *c, char *memory,
                           size_t bytes)
{
    loong_dtype_t dtype = c->params.precision.compute;
    char *values = NULL;
    size_t done = LOONG_MIN(bytes,
                            LOONG_FILL_COUNT * loong_dtype_size(dtype));
    LOONG_TRY(
        loongi_alloc(c->ctx, LOONG_FILL_BYTES, "rate of products", &values));
    loongi_fill_normal(dtype, values);
    loong_status_t status =
        loong_device_copy(c->run.device, memory, values, done);
    while (done < bytes && status == LOONG_OK) {
        size_t more = LOONG_MIN(bytes - done, done);
        status = loong_device_copy(c->run.device, memory + done, memory, more);
        done += more;
    }
    loongi_free(c->ctx, values);
    return status;
}

static loong_status_t measure(const loong_component_t *c, int64_t n,
                              loong_arena_t *arena, double *best_p)
{
    loong_program_t program;
    loong_binding_t run;
    void *memory[2] = {NULL, NULL}; /* matrices, workspace */
    memset(&program, 0, sizeof(program));
    memset(&run, 0, sizeof(run));
    run.ctx = c->ctx;
    run.stream = c->run.stream;
    run.device = c->run.device;
    run.async = c->run.async;
    size_t bytes[2] = {
        (size_t)(3 * n * n) * loong_dtype_size(c->params.precision.compute), 0};
    loong_status_t status = make_program(c, n, arena, &program);
    bytes[1] = (size_t)program.scratch_bytes;
    for (int i = 0; i < 2 && status == LOONG_OK; i++) {
        if (bytes[i] > 0) {
            status = loong_device_alloc(c->run.device, bytes[i],
                                        "rate of products", &memory[i]);
        }
    }
    if (status == LOONG_OK) {
        run.base[LOONG_BASE_INPUT] = memory[0];
        run.base[LOONG_BASE_SCRATCH] = memory[1];
        status = fill(c, memory[0], bytes[0]);
    }
    if (status == LOONG_OK) {
        status = time_program(c, &run, &program, n == LARGEST, best_p);
    }
    for (int i = 0; i < 2; i++) {
        loong_device_free(c->run.device, memory[i], bytes[i]);
    }
    loongi_program_clear(c->ctx, &program);
    return status;
}

/* NAN where not even small matrices find room: what is trained has it all. */
static loong_status_t measure_rank(const loong_component_t *c,
                                   loong_arena_t *arena, double *gflops_p)
{
    size_t element = loong_dtype_size(c->params.precision.compute);
    double seconds = 0.0;
    size_t room = 0;
    bool own = false;
    *gflops_p = NAN;
    LOONG_TRY(loong_device_available(c->run.device, &own, &room));
    for (int64_t n = SMALLEST;
         n <= LARGEST && seconds < enough &&
         (!own || 3 * (size_t)(n * n) * element <= room / ROOM_SHARE);
         n *= 2) {
        loong_status_t status = measure(c, n, arena, &seconds);
        if (status == LOONG_ERR_MEMORY) {
            loong_context_clear_error(c->ctx);
            break;
        }
        LOONG_TRY(status);
        *gflops_p = 2e-9 * (double)n * (double)n * (double)n / seconds;
    }
    return LOONG_OK;
}

loong_status_t loongi_gemm_rate(const loong_component_t *c, loong_comm_t *comm,
                                double *gflops_p)
{
    loong_arena_t *arena = NULL;
    /* A product that is loaded may wait for all that is on the device. */
    LOONG_TRY(loong_device_synchronize(c->run.device, "the rate of products"));
    LOONG_TRY(loongi_arena_create(c->ctx, "rate of products", &arena));
    loong_status_t status = measure_rank(c, arena, gflops_p);
    loongi_arena_destroy(&arena);
    LOONG_TRY(status);
    LOONG_TRY(loongi_device_trim(c->run.device)); /* of the matrices */
    loongi_memory_give_back();
    return loong_comm_all_reduce(comm, gflops_p, 1, LOONG_F64, LOONG_REDUCE_SUM,
                                 "rate of products");
}
