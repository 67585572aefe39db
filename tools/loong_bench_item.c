/* SPDX-License-Identifier: Apache-2.0
 *
 * One kernel launch with buffers, and times. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "loong_bench.h"

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void *bench_memory(size_t size)
{
    const size_t huge = (size_t)2 << 20;
    size_t total = (size + huge - 1) / huge * huge;
    void *memory = aligned_alloc(huge, total > 0 ? total : huge);
    if (memory == NULL) {
        fprintf(stderr, "loong-bench: cannot allocate %zu bytes\n", total);
        exit(LOONG_EXIT_FAILED);
    }
    (void)madvise(memory, total, MADV_HUGEPAGE);
    memset(memory, 0, total);
    return memory;
}

void bench_times_add(bench_times_t *times, double ms)
{
    if (times->count == times->capacity) {
        times->capacity = times->capacity * 2 + 64;
        times->ms =
            realloc(times->ms, sizeof(double) * (size_t)times->capacity);
        if (times->ms == NULL) {
            exit(LOONG_EXIT_FAILED);
        }
    }
    times->ms[times->count++] = ms;
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(bench_times_t *times)
{
    int n = times->count;
    if (n == 0) {
        return 0.0;
    }
    qsort(times->ms, (size_t)n, sizeof(double), compare_double);
    return n % 2 == 1 ? times->ms[n / 2]
                      : 0.5 * (times->ms[n / 2 - 1] + times->ms[n / 2]);
}

double bench_best(const bench_times_t *times)
{
    double best = times->count > 0 ? times->ms[0] : 0.0;
    for (int i = 1; i < times->count; i++) {
        best = times->ms[i] < best ? times->ms[i] : best;
    }
    return best;
}

bool bench_dtype(const char *command, const char *text, loong_dtype_t *dtype)
{
    if (loong_dtype_from_name(text, dtype) &&
        (*dtype == LOONG_F64 || *dtype == LOONG_F32 || *dtype == LOONG_BF16)) {
        return true;
    }
    bench_usage(command, "--dtype '%s': must be fp64, fp32 or bf16", text);
    return false;
}

loong_dtype_t bench_wide(loong_dtype_t dtype)
{
    return dtype == LOONG_F64 ? LOONG_F64 : LOONG_F32;
}

int bench_shape(const char *command, const char *text,
                int64_t shape[BENCH_SHAPE])
{
    const char *at = text;
    int count = 0;
    for (;;) {
        char *end = NULL;
        errno = 0;
        long long value = strtoll(at, &end, 10);
        if (errno != 0 || end == at || value < 1 || count == BENCH_SHAPE ||
            (*end != ',' && *end != '\0')) {
            bench_usage(command,
                        "--shape '%s': must be 1 to %d whole numbers "
                        "separated by commas",
                        text, BENCH_SHAPE);
            return 0;
        }
        shape[count++] = value;
        if (*end == '\0') {
            return count;
        }
        at = end + 1;
    }
}

int bench_threads(void)
{
    const char *set = getenv("OMP_NUM_THREADS");
    int threads = set != NULL ? atoi(set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return threads > 0 ? threads : 1;
}

/* ---- items ------------------------------------------------------------- */

static loong_karg_t karg_of(const loong_tensor_type_t *type)
{
    loong_karg_t arg;
    memset(&arg, 0, sizeof(arg));
    arg.count = -1;
    if (type->shape.rank > 0) {
        arg.dtype = type->dtype;
        arg.rank = type->shape.rank;
        memcpy(arg.dim, type->shape.dim, sizeof(arg.dim));
        arg.ld = arg.dim[arg.rank - 1];
    }
    return arg;
}

static loong_status_t infer(loong_context_t *ctx, const loong_op_t *op,
                            const bench_spec_t *spec, bench_item_t *item,
                            loong_tensor_type_t *out)
{
    loong_op_call_t call;
    memset(&call, 0, sizeof(call));
    call.ctx = ctx;
    call.op = op->name;
    call.precision.compute = spec->in[0].dtype;
    call.precision.wide = bench_wide(spec->in[0].dtype);
    call.attr = item->attr;
    call.num_in = spec->num_in;
    call.num_out = op->num_out;
    call.in = spec->in;
    call.out = out;
    return op->infer(&call);
}

loong_status_t bench_item_describe(loong_context_t *ctx,
                                   const bench_spec_t *spec, bench_item_t *item)
{
    loong_tensor_type_t out[LOONG_MAX_OPERANDS];
    const loong_op_t *op = loong_find_op(ctx, spec->op);
    if (op == NULL) {
        return LOONG_ERR_NOT_FOUND;
    }
    memset(item, 0, sizeof(*item));
    memset(out, 0, sizeof(out));
    item->cu_operand = -1;
    item->ids = 1;
    for (int i = 0; i < LOONG_MAX_LOSSES; i++) {
        item->frame.loss_scale[i] = 1.0;
    }
    if (op->attr_size > 0) {
        memcpy(item->attr, spec->attr, op->attr_size);
    }
    loong_status_t status = infer(ctx, op, spec, item, out);
    if (status != LOONG_OK) {
        return status;
    }
    item->query.op = op->name;
    item->query.num_in = spec->num_in;
    item->query.num_out = op->num_out;
    item->query.threads = spec->threads;
    for (int i = 0; i < spec->num_in; i++) {
        item->query.arg[i] = karg_of(&spec->in[i]);
    }
    for (int o = 0; o < op->num_out; o++) {
        item->query.arg[spec->num_in + o] = karg_of(&out[o]);
    }
    return LOONG_OK;
}

/* A cheap sequence of numbers in [-1, 1). */
static double next_number(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 8) * 0x1p-23 - 1.0;
}

static void fill(const bench_item_t *item, int i)
{
    const loong_karg_t *arg = &item->query.arg[i];
    int64_t n = loong_karg_rows(arg, NULL) * loong_karg_cols(arg, NULL);
    uint32_t state = (uint32_t)i * 77u + 1u;
    for (int64_t k = 0; k < n; k++) {
        double value = next_number(&state);
        float single = (float)value;
        uint32_t bits;
        memcpy(&bits, &single, sizeof(bits));
        int64_t whole =
            i == item->cu_operand
                ? k * item->segment
                : (int64_t)((value + 1.0) * 0.5 * (double)item->ids);
        switch (arg->dtype) {
        case LOONG_F64:
            ((double *)item->ptr[i])[k] = value;
            break;
        case LOONG_F32:
            ((float *)item->ptr[i])[k] = single;
            break;
        case LOONG_BF16:
            ((uint16_t *)item->ptr[i])[k] = (uint16_t)(bits >> 16);
            break;
        case LOONG_I32:
            ((int32_t *)item->ptr[i])[k] = (int32_t)whole;
            break;
        case LOONG_I64:
            ((int64_t *)item->ptr[i])[k] = k;
            break;
        default:
            break;
        }
    }
}

static const loong_kernel_t *choose(loong_context_t *ctx,
                                    const loong_kernel_query_t *query)
{
    char reason[LOONG_REASON_SIZE];
    for (int i = 0;; i++) {
        const loong_kernel_t *k = loong_find_kernel(ctx, query->op, "cpu", i);
        if (k == NULL || k->support == NULL || k->support(query, reason)) {
            return k;
        }
    }
}

loong_status_t bench_item_prepare(loong_context_t *ctx, bench_item_t *item,
                                  const loong_kernel_t *kernel)
{
    loong_kernel_query_t *q = &item->query;
    const loong_op_t *op = loong_find_op(ctx, q->op);
    q->attr = item->attr;
    item->kernel = kernel != NULL ? kernel : choose(ctx, q);
    if (item->kernel == NULL) {
        return LOONG_ERR_NOT_FOUND;
    }
    if (op->cost != NULL) {
        op->cost(q, &item->cost);
    }
    for (int i = 0; i < q->num_in + q->num_out; i++) {
        const loong_karg_t *arg = &q->arg[i];
        size_t size = (size_t)loong_karg_rows(arg, NULL) * (size_t)arg->ld *
                      loong_dtype_size(arg->dtype);
        if (arg->rank == 0 || item->ptr[i] != NULL) {
            continue;
        }
        item->ptr[i] = bench_memory(size);
        item->owned[i] = true;
        if (i < q->num_in) {
            fill(item, i);
        }
        if (i < q->num_in && op->example != NULL &&
            (arg->dtype == LOONG_I32 || arg->dtype == LOONG_I64)) {
            op->example(q, i, item->ptr[i]);
        }
    }
    size_t scratch =
        item->kernel->workspace != NULL ? item->kernel->workspace(q) : 0;
    item->workspace = bench_memory(scratch);
    return item->kernel->prepare != NULL
               ? item->kernel->prepare(ctx, q, &item->state)
               : LOONG_OK;
}

loong_status_t bench_item_run(loong_context_t *ctx, const bench_item_t *item)
{
    loong_kernel_call_t call;
    memset(&call, 0, sizeof(call));
    call.ctx = ctx;
    call.query = &item->query;
    call.state = item->state;
    call.frame = &item->frame;
    call.ptr = item->ptr;
    call.workspace = item->workspace;
    call.accumulate = item->accumulate;
    return item->kernel->run(&call);
}

void bench_item_end(loong_context_t *ctx, bench_item_t *item)
{
    if (item->kernel != NULL && item->kernel->destroy != NULL) {
        item->kernel->destroy(ctx, item->state);
    }
    for (int i = 0; i < LOONG_MAX_OPERANDS; i++) {
        if (item->owned[i]) {
            free(item->ptr[i]);
        }
        item->ptr[i] = NULL;
        item->owned[i] = false;
    }
    free(item->workspace);
    item->workspace = NULL;
    item->state = NULL;
}
