/* SPDX-License-Identifier: Apache-2.0
 *
 * One kernel launch with buffers, and times. Called by loong-bench floor, op,
 * step and tokenizer. Read loong_bench.h before. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "loong_bench.h"
#include "op_impl.h"

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double bench_cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
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

/* Operand i, in host memory. */
static void fill(const bench_item_t *item, int i, void *to)
{
    const loong_karg_t *arg = &item->query.arg[i];
    int64_t n = loong_karg_rows(arg) * loong_karg_cols(arg);
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
            ((double *)to)[k] = value;
            break;
        case LOONG_F32:
            ((float *)to)[k] = single;
            break;
        case LOONG_BF16:
            ((uint16_t *)to)[k] = (uint16_t)(bits >> 16);
            break;
        case LOONG_I32:
            ((int32_t *)to)[k] = (int32_t)whole;
            break;
        case LOONG_I64:
            ((int64_t *)to)[k] = k;
            break;
        case LOONG_F8_E4M3:
            ((uint8_t *)to)[k] = (uint8_t)(k % 0x60); /* finite */
            break;
        default:
            break;
        }
    }
}

static const loong_kernel_t *choose(loong_context_t *ctx,
                                    const loong_device_t *device,
                                    const loong_kernel_query_t *query)
{
    char reason[LOONG_REASON_SIZE];
    for (int i = 0;; i++) {
        const loong_kernel_t *k =
            loong_find_kernel(ctx, query->op, loong_device_name(device), i);
        if (k == NULL || k->support == NULL || k->support(query, reason)) {
            return k;
        }
    }
}

/* Memory for operand i, and what an input holds. */
static loong_status_t make_operand(const loong_op_t *op, bench_item_t *item,
                                   int i)
{
    const loong_kernel_query_t *q = &item->query;
    const loong_karg_t *arg = &q->arg[i];
    size_t size = (size_t)loong_karg_rows(arg) * (size_t)arg->ld *
                  loong_dtype_size(arg->dtype);
    void *host = NULL;
    loong_status_t status = loong_device_alloc(item->device, size, "operand",
                                               &item->ptr[i]);
    if (status != LOONG_OK) {
        return status;
    }
    item->owned[i] = size;
    if (i >= q->num_in) {
        return LOONG_OK;
    }
    status = loong_device_host_alloc(item->device, size, "operand", &host);
    if (status != LOONG_OK) {
        return status;
    }
    fill(item, i, host);
    if (op->example != NULL &&
        (arg->dtype == LOONG_I32 || arg->dtype == LOONG_I64)) {
        op->example(q, i, host);
    }
    status = loong_device_copy(item->device, item->ptr[i], host, size);
    if (status == LOONG_OK) {
        status = loong_device_synchronize(item->device, "an op");
    }
    loong_device_host_free(item->device, host);
    return status;
}

/* What kernels use besides operands: workspace, and where frames are read on
 * the device a copy of this one's. */
static loong_status_t make_rest(bench_item_t *item)
{
    const loong_kernel_t *k = item->kernel;
    item->workspace_size =
        k->workspace != NULL ? k->workspace(&item->query) : 0;
    loong_status_t status = LOONG_OK;
    if (item->workspace_size > 0) {
        status = loong_device_alloc(item->device, item->workspace_size,
                                    "workspace", &item->workspace);
    }
    if (status == LOONG_OK && loong_device_get_error(item->device) != NULL) {
        status = loong_device_alloc(item->device, sizeof(item->frame), "frame",
                                    &item->device_frame);
        if (status == LOONG_OK) {
            status = loong_device_copy(item->device, item->device_frame,
                                       &item->frame, sizeof(item->frame));
        }
    }
    return status;
}

loong_status_t bench_item_prepare(loong_context_t *ctx, loong_device_t *device,
                                  const loong_kernel_t *kernel,
                                  bench_item_t *item)
{
    loong_kernel_query_t *q = &item->query;
    const loong_op_t *op = loong_find_op(ctx, q->op);
    loong_status_t status = LOONG_OK;
    q->attr = item->attr;
    item->device = device;
    item->kernel = kernel != NULL ? kernel : choose(ctx, device, q);
    if (item->kernel == NULL) {
        return LOONG_ERR_NOT_FOUND;
    }
    if (op->cost != NULL) {
        op->cost(q, &item->cost);
    } else {
        item->cost.bytes = loongi_cost_bytes(q);
    }
    for (int i = 0; status == LOONG_OK && i < q->num_in + q->num_out; i++) {
        if (q->arg[i].rank > 0 && item->ptr[i] == NULL) {
            status = make_operand(op, item, i);
        }
    }
    if (status == LOONG_OK) {
        status = make_rest(item);
    }
    return status == LOONG_OK && item->kernel->prepare != NULL
               ? item->kernel->prepare(ctx, q, &item->state)
               : status;
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
    call.device = item->device_frame != NULL ? item->device : NULL;
    call.stream = loong_device_stream(item->device);
    call.device_frame = item->device_frame;
    call.error = loong_device_get_error(item->device);
    return item->kernel->run(&call);
}

void bench_item_end(loong_context_t *ctx, bench_item_t *item)
{
    if (item->kernel != NULL && item->kernel->destroy != NULL) {
        item->kernel->destroy(ctx, item->state);
    }
    if (item->device == NULL) { /* never prepared */
        return;
    }
    for (int i = 0; i < LOONG_MAX_OPERANDS; i++) {
        if (item->owned[i] > 0) {
            loong_device_free(item->device, item->ptr[i], item->owned[i]);
        }
        item->ptr[i] = NULL;
        item->owned[i] = 0;
    }
    loong_device_free(item->device, item->workspace, item->workspace_size);
    loong_device_free(item->device, item->device_frame, sizeof(item->frame));
    item->device_frame = NULL;
    item->workspace = NULL;
    item->state = NULL;
}
