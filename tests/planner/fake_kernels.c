/* SPDX-License-Identifier: Apache-2.0
 *
 * Fake kernels. They write over their outputs and workspace before they read
 * and over the workspace again at the end, as a real kernel might: what may not
 * overlap then shows. */
#include <stdio.h>
#include <string.h>

#include "fake.h"
#include "loong/ops.h"

enum { GARBAGE = 0xA5 };

uint64_t fake_mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2)));
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 32);
}

uint64_t fake_digest(const void *data, int64_t rows, int64_t cols, size_t size,
                     int64_t stride)
{
    uint64_t hash = fake_mix((uint64_t)rows, (uint64_t)cols);
    for (int64_t r = 0; r < rows; r++) {
        const char *row = (const char *)data + r * stride;
        for (int64_t c = 0; c < cols; c++) {
            uint64_t element = 0;
            memcpy(&element, row + c * (int64_t)size, size);
            hash = (hash ^ element) * 0x100000001b3u;
            hash ^= hash >> 29;
        }
    }
    return hash;
}

void fake_fill(void *data, size_t bytes, uint64_t key)
{
    for (size_t i = 0; i < bytes; i++) {
        uint64_t word = fake_mix(key, i / 8);
        ((char *)data)[i] = (char)(word >> (8 * (i % 8)));
    }
}

/* ---- operands ----------------------------------------------------------- */

typedef struct operand {
    char *data;
    int64_t rows;
    int64_t cols;
    int64_t size;
    int64_t stride; /* bytes */
} operand_t;

static operand_t operand_of(const loong_kernel_call_t *call, int i)
{
    const loong_karg_t *a = &call->query->arg[i];
    operand_t x = {call->ptr[i], 0, 0, 0, 0};
    if (a->rank > 0) {
        x.rows = loong_karg_rows(a);
        x.cols = loong_karg_cols(a);
        x.size = (int64_t)loong_dtype_size(a->dtype);
        x.stride = a->ld * x.size;
    }
    return x;
}

static uint64_t get(const operand_t *x, int64_t r, int64_t c)
{
    uint64_t element = 0;
    memcpy(&element, x->data + r * x->stride + c * x->size, (size_t)x->size);
    return element;
}

static void set(const operand_t *x, int64_t r, int64_t c, uint64_t element)
{
    memcpy(x->data + r * x->stride + c * x->size, &element, (size_t)x->size);
}

static void spoil(const operand_t *x)
{
    for (int64_t r = 0; r < x->rows; r++) {
        memset(x->data + r * x->stride, GARBAGE, (size_t)(x->cols * x->size));
    }
}

/* Every operand must lie in memory that is there, every input hold something.
 * Outputs hold something from now on. */
static bool check_operands(const loong_kernel_call_t *call)
{
    fake_world_t *world = call->stream;
    const loong_kernel_query_t *q = call->query;
    bool good = true;
    for (int i = 0; i < q->num_in + q->num_out && good; i++) {
        operand_t x = operand_of(call, i);
        bool adds = i >= q->num_in && (call->accumulate >> (i - q->num_in) & 1);
        char what[100];
        snprintf(what, sizeof(what), "stage %d, %s, %sput %d, micro-batch %d",
                 (int)call->frame->seed, q->op,
                 i < q->num_in ? "in" : "out",
                 i < q->num_in ? i : i - q->num_in,
                 (int)call->frame->micro_batch);
        for (int64_t r = 0; r < x.rows && good && x.size > 0; r++) {
            const char *row = x.data + r * x.stride;
            if (i < q->num_in || adds) {
                good = fake_world_read(world, row, x.cols * x.size, what);
            }
            if (i >= q->num_in && good) {
                good = fake_world_write(world, row, x.cols * x.size, what);
            }
        }
    }
    return good;
}

static bool spoil_workspace(const loong_kernel_call_t *call)
{
    const fake_attr_t *a = call->query->attr;
    if (a->workspace > 0 &&
        !fake_world_write(call->stream, call->workspace, a->workspace,
                          "workspace")) {
        return false;
    }
    if (a->workspace > 0) {
        memset(call->workspace, GARBAGE, (size_t)a->workspace);
    }
    return true;
}

/* ---- the family of fake ops --------------------------------------------- */

bool fake_support(const loong_kernel_query_t *query,
                  char reason[LOONG_REASON_SIZE]);
size_t fake_workspace(const loong_kernel_query_t *query);
loong_status_t fake_run(const loong_kernel_call_t *call);
loong_status_t fake_run_builtin(const loong_kernel_call_t *call);

/* The names say nothing about gaps: the passes promise, this checks. */
bool fake_support(const loong_kernel_query_t *query,
                  char reason[LOONG_REASON_SIZE])
{
    static const char *const dense_in[] = {"fake2",      "fake3",
                                           "fake5",      "fake_grad2",
                                           "fake_grad3", "fake_grad6"};
    static const char *const dense_out[] = {
        "fake3",      "fake4",      "fake6",      "fake_grad2",
        "fake_grad5", "fake_grad7", "slice_grad", "accumulate", "concat"};
    bool in = false;
    bool out = false;
    for (int i = 0; i < LOONG_COUNT_OF(dense_in); i++) {
        in = in || strcmp(query->op, dense_in[i]) == 0;
    }
    for (int i = 0; i < LOONG_COUNT_OF(dense_out); i++) {
        out = out || strcmp(query->op, dense_out[i]) == 0;
    }
    for (int i = 0; i < query->num_in + query->num_out; i++) {
        bool dense = loong_karg_dense(&query->arg[i]);
        if (!dense && (i < query->num_in ? in : out)) {
            snprintf(reason, LOONG_REASON_SIZE, "operand %d has gaps", i);
            return false;
        }
    }
    return true;
}

size_t fake_workspace(const loong_kernel_query_t *query)
{
    return (size_t)((const fake_attr_t *)query->attr)->workspace;
}

/* Compares what is read with what the reference read, or notes it. */
static bool compare(const loong_kernel_call_t *call, int i, uint64_t digest)
{
    fake_world_t *world = call->stream;
    const fake_attr_t *a = call->query->attr;
    uint64_t key = fake_mix(a->key, call->frame->seed);
    key = fake_mix(key, (uint64_t)call->frame->step);
    key = fake_mix(key, (uint64_t)call->frame->micro_batch);
    key = fake_mix(key, (uint64_t)i) | 1;
    uint64_t want = 0;
    if (world->record) {
        fake_table_put(world->seen, key, digest);
        return true;
    }
    if (!fake_table_get(world->seen, key, &want)) {
        fake_world_fail(world, "stage %d: %s runs in step %d on micro-batch "
                        "%d, which the reference does not",
                        (int)call->frame->seed, call->query->op,
                        (int)call->frame->step,
                        (int)call->frame->micro_batch);
        return false;
    }
    if (want != digest) {
        fake_world_fail(world, "stage %d: %s, input %d, step %d, micro-batch "
                        "%d: holds something else", (int)call->frame->seed,
                        call->query->op, i, (int)call->frame->step,
                        (int)call->frame->micro_batch);
        return false;
    }
    return true;
}

static bool in_first_input(const loong_kernel_call_t *call, int o)
{
    return call->query->num_in > 0 && call->ptr[0] != NULL &&
           call->ptr[call->query->num_in + o] == call->ptr[0];
}

/* Spoils the outputs that take over input 0, or those that do not. */
static void spoil_outputs(const loong_kernel_call_t *call, bool taken_over)
{
    const loong_kernel_query_t *q = call->query;
    for (int o = 0; o < q->num_out; o++) {
        operand_t x = operand_of(call, q->num_in + o);
        if (!(call->accumulate >> o & 1) &&
            in_first_input(call, o) == taken_over) {
            spoil(&x);
        }
    }
}

static bool read_inputs(const loong_kernel_call_t *call, uint64_t *hash_p)
{
    uint64_t hash = ((const fake_attr_t *)call->query->attr)->key;
    bool good = true;
    hash = fake_mix(hash, (uint64_t)call->frame->step);
    hash = fake_mix(hash, (uint64_t)call->frame->micro_batch);
    for (int i = 0; i < call->query->num_in && good; i++) {
        operand_t x = operand_of(call, i);
        uint64_t digest =
            fake_digest(x.data, x.rows, x.cols, (size_t)x.size, x.stride);
        if (i == 0) {
            spoil_outputs(call, true);
        }
        hash = fake_mix(hash, digest);
        good = compare(call, i, digest);
    }
    *hash_p = hash;
    return good;
}

static void write_output(const operand_t *x, uint64_t hash, bool add)
{
    for (int64_t r = 0; r < x->rows; r++) {
        for (int64_t c = 0; c < x->cols; c++) {
            uint64_t value = fake_mix(hash, (uint64_t)(r * x->cols + c));
            uint64_t old = add ? get(x, r, c) * 0x9e3779b97f4a7c15u : 0;
            set(x, r, c, old + value);
        }
    }
}

loong_status_t fake_run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    uint64_t hash = 0;
    bool good = check_operands(call) && spoil_workspace(call);
    if (good) {
        spoil_outputs(call, false);
        good = read_inputs(call, &hash);
    }
    for (int o = 0; o < q->num_out && good; o++) {
        operand_t x = operand_of(call, q->num_in + o);
        write_output(&x, fake_mix(hash, (uint64_t)o),
                     call->accumulate >> o & 1);
    }
    return good && spoil_workspace(call) ? LOONG_OK : LOONG_ERR_INTERNAL;
}

/* ---- built-in ops ------------------------------------------------------- */

static void run_add(const loong_kernel_call_t *call)
{
    operand_t a = operand_of(call, 0);
    operand_t b = operand_of(call, 1);
    operand_t y = operand_of(call, 2);
    for (int64_t r = 0; r < y.rows; r++) {
        for (int64_t c = 0; c < y.cols; c++) {
            set(&y, r, c, 3 * get(&a, r, c) + get(&b, r, c));
        }
    }
}

static void run_copy(const operand_t *x, const operand_t *y, int64_t column)
{
    for (int64_t r = 0; r < x->rows; r++) {
        for (int64_t c = 0; c < x->cols; c++) {
            set(y, r, column + c, get(x, r, c));
        }
    }
}

static void run_accumulate(const loong_kernel_call_t *call)
{
    operand_t x = operand_of(call, 0);
    operand_t y = operand_of(call, 1);
    bool add = call->accumulate & 1;
    for (int64_t r = 0; r < y.rows; r++) {
        for (int64_t c = 0; c < y.cols; c++) {
            uint64_t old = add ? get(&y, r, c) * 0x9e3779b97f4a7c15u : 0;
            set(&y, r, c, old + get(&x, r, c));
        }
    }
}

loong_status_t fake_run_builtin(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    operand_t x = operand_of(call, 0);
    operand_t y = operand_of(call, q->num_in);
    int64_t column = 0;
    if (!check_operands(call)) {
        return LOONG_ERR_INTERNAL;
    }
    if (!(call->accumulate & 1) && !in_first_input(call, 0)) {
        spoil(&y);
    }
    if (strcmp(q->op, "add") == 0) {
        run_add(call);
    } else if (strcmp(q->op, "copy") == 0) {
        run_copy(&x, &y, 0);
    } else if (strcmp(q->op, "accumulate") == 0) {
        run_accumulate(call);
    } else if (strcmp(q->op, "zero") == 0) {
        memset(y.data, 0, (size_t)(y.rows * y.stride));
    } else if (strcmp(q->op, "slice_grad") == 0) {
        for (int64_t r = 0; r < y.rows; r++) {
            memset(y.data + r * y.stride, 0, (size_t)(y.cols * y.size));
        }
        run_copy(&x, &y, ((const loong_slice_grad_attr_t *)q->attr)->begin);
    } else {
        for (int i = 0; i < q->num_in; i++) {
            operand_t part = operand_of(call, i);
            run_copy(&part, &y, column);
            column += part.cols;
        }
    }
    return LOONG_OK;
}
