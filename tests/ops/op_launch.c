/* SPDX-License-Identifier: Apache-2.0 */
#include "op_launch.h"

#include "convert.h"
#include "loong/register.h"
#include "op_device.h"
#include "rng.h"

enum { GUARD = 256 };

int64_t op_arg_rows(const op_arg_t *a)
{
    int64_t rows = 1;
    for (int d = 0; d + 1 < a->rank; d++) {
        rows *= a->dim[d];
    }
    return rows;
}

int64_t op_arg_cols(const op_arg_t *a)
{
    return a->dim[a->rank - 1];
}

static buffer_t buffer_make(size_t size)
{
    buffer_t b;
    size_t total = (size + 2 * GUARD + 63) / 64 * 64;
    b.base = aligned_alloc(64, total);
    assert_non_null(b.base);
    memset(b.base, OP_PATTERN, total);
    b.data = b.base + GUARD;
    b.size = size;
    return b;
}

static void buffer_check(const buffer_t *b, const char *kernel,
                         const char *what)
{
    for (size_t i = 0; i < GUARD; i++) {
        if ((unsigned char)b->base[i] != OP_PATTERN ||
            (unsigned char)b->data[b->size + i] != OP_PATTERN) {
            fail_msg("%s wrote outside of %s", kernel, what);
        }
    }
}

loong_kernel_query_t op_query(const op_case_t *c, bool wide)
{
    loong_kernel_query_t q;
    memset(&q, 0, sizeof(q));
    q.op = c->op;
    q.attr = c->attr;
    q.num_in = c->num_in;
    q.num_out = c->num_out;
    q.threads = c->threads > 0 ? c->threads : 2;
    q.accumulate = c->accumulate;
    q.policy.attention = c->attention;
    for (int i = 0; i < c->num_in + c->num_out; i++) {
        const op_arg_t *a = &c->arg[i];
        loong_karg_t *k = &q.arg[i];
        if (a->rank == 0) {
            continue;
        }
        k->dtype =
            wide && loongi_dtype_is_float(a->dtype) ? LOONG_F64 : a->dtype;
        k->rank = a->rank;
        memcpy(k->dim, a->dim, sizeof(k->dim));
        k->ld = op_arg_cols(a) + a->gap;
    }
    return q;
}

static double converted(loong_dtype_t from, const void *at)
{
    double value = 0.0;
    assert_int_equal(loongi_convert(NULL, from, at, LOONG_F64, &value, 1),
                     LOONG_OK);
    return value;
}

/* Value number n of operand i, as its own type holds it: the wide launch gets
 * the same. */
double op_value(const op_case_t *c, int i, int64_t n)
{
    const op_arg_t *a = &c->arg[i];
    char narrow[8];
    if (a->values != NULL) {
        return converted(a->dtype, (const char *)a->values +
                                       (size_t)n * loong_dtype_size(a->dtype));
    }
    uint64_t stream = (uint64_t)(a->stream > 0 ? a->stream : i + 1);
    double value = a->wide_values != NULL
                       ? a->wide_values[n]
                       : loongi_rng_normal(c->seed > 0 ? c->seed : 17, stream,
                                           (uint64_t)n) *
                             (a->scale > 0.0 ? a->scale : 1.0);
    if (a->step > 0.0) {
        value = a->step * fmax(-64.0, fmin(64.0, round(value / a->step)));
    }
    assert_int_equal(
        loongi_convert(NULL, LOONG_F64, &value, a->dtype, narrow, 1), LOONG_OK);
    return converted(a->dtype, narrow);
}

static void fill(const op_case_t *c, launch_t *l, int i)
{
    const op_arg_t *a = &c->arg[i];
    const loong_karg_t *k = &l->query.arg[i];
    size_t size = loong_dtype_size(k->dtype);
    int64_t cols = op_arg_cols(a);
    int64_t rows = op_arg_rows(a);
    int64_t elements = rows > 0 && a->within == 0
                           ? (rows - 1) * k->ld + cols : 0;
    l->buffer[i] = buffer_make((size_t)elements * size);
    if (a->within > 0) {
        assert_true(a->within <= i && k->ld == l->query.arg[a->within - 1].ld);
        return;
    }
    bool made = i >= c->num_in && !(c->accumulate & 1u << (i - c->num_in));
    if (made && !loongi_dtype_is_float(k->dtype)) {
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        char *row = l->buffer[i].data + (size_t)(r * k->ld) * size;
        if (r >= rows - a->spare && i >= c->num_in) {
            continue;
        }
        if (made || r >= rows - a->spare) { /* NaN: what is added to it shows */
            memset(row, 0xFF, (size_t)cols * size);
            continue;
        }
        if (!loongi_dtype_is_float(k->dtype) ||
            (a->values != NULL && k->dtype == a->dtype)) {
            memcpy(row, (const char *)a->values + (size_t)(r * cols) * size,
                   (size_t)cols * size);
            continue;
        }
        for (int64_t j = 0; j < cols; j++) {
            double value = op_value(c, i, r * cols + j);
            assert_int_equal(loongi_convert(NULL, LOONG_F64, &value, k->dtype,
                                            row + (size_t)j * size, 1),
                             LOONG_OK);
        }
    }
}

loong_context_t *op_context(void)
{
    loong_context_t *ctx = test_context();
    assert_ok(ctx, loong_register_builtin(ctx));
    return ctx;
}

void op_context_end(loong_context_t **ctx)
{
    test_context_end(ctx);
}

void launch_begin_query(const op_case_t *c, loong_context_t *ctx,
                        const loong_kernel_t *kernel,
                        const loong_kernel_query_t *query, launch_t *l)
{
    memset(l, 0, sizeof(*l));
    l->ctx = ctx;
    l->kernel = kernel;
    l->query = *query;
    l->frame = c->frame;
    for (int i = 0; i < c->num_in + c->num_out; i++) {
        if (c->arg[i].rank > 0) {
            fill(c, l, i);
        }
    }
    l->workspace = buffer_make(
        kernel->workspace != NULL ? kernel->workspace(&l->query) : 0);
    memset(l->workspace.data, 0xFF, l->workspace.size); /* NaN */
    if (kernel->prepare != NULL) {
        assert_ok(ctx, kernel->prepare(ctx, &l->query, &l->state));
    }
}

void launch_begin(const op_case_t *c, loong_context_t *ctx,
                  const loong_kernel_t *kernel, bool wide, launch_t *l)
{
    loong_kernel_query_t query = op_query(c, wide);
    launch_begin_query(c, ctx, kernel, &query, l);
}

loong_status_t launch_run(const op_case_t *c, launch_t *l)
{
    void *ptr[LOONG_MAX_OPERANDS];
    for (int i = 0; i < c->num_in + c->num_out; i++) {
        int from = c->arg[i].within > 0 ? c->arg[i].within - 1 : i;
        ptr[i] = l->buffer[from].data;
    }
    loong_kernel_call_t call = {l->ctx,    &l->query,     l->state,
                                &l->frame, ptr,           l->workspace.data,
                                NULL,      c->accumulate, c->round, NULL,
                                NULL,      NULL, NULL, false};
    return op_device_run(l->kernel, &call);
}

void launch_end(launch_t *l)
{
    if (l->kernel->destroy != NULL) {
        l->kernel->destroy(l->ctx, l->state);
    }
    for (int i = 0; i < LOONG_MAX_OPERANDS; i++) {
        free(l->buffer[i].base);
    }
    free(l->workspace.base);
}

bool launch_wrote(const op_case_t *c, const launch_t *l, int i, int64_t row)
{
    const loong_karg_t *k = &l->query.arg[i];
    size_t size = loong_dtype_size(k->dtype);
    const char *at = l->buffer[i].data + (size_t)(row * k->ld) * size;
    bool wrote = false;
    for (size_t b = 0; b < (size_t)op_arg_cols(&c->arg[i]) * size; b++) {
        wrote = wrote || (unsigned char)at[b] != OP_PATTERN;
    }
    return wrote;
}

static void check_spare(const op_case_t *c, const launch_t *l, int i)
{
    int64_t rows = op_arg_rows(&c->arg[i]);
    for (int64_t r = rows - c->arg[i].spare; r < rows; r++) {
        if (i >= c->num_in && launch_wrote(c, l, i, r)) {
            fail_msg("%s wrote row %lld of operand %d, which has %lld",
                     l->kernel->name, (long long)r, i,
                     (long long)(rows - c->arg[i].spare));
        }
    }
}

static void check_gaps(const op_case_t *c, const launch_t *l, int i)
{
    const loong_karg_t *k = &l->query.arg[i];
    size_t size = loong_dtype_size(k->dtype);
    for (int64_t r = 0; r + 1 < op_arg_rows(&c->arg[i]); r++) {
        const char *row = l->buffer[i].data + (size_t)(r * k->ld) * size;
        for (size_t b = (size_t)op_arg_cols(&c->arg[i]) * size;
             b < (size_t)k->ld * size; b++) {
            if ((unsigned char)row[b] != OP_PATTERN) {
                fail_msg("%s wrote between the rows of operand %d",
                         l->kernel->name, i);
            }
        }
    }
}

void launch_check_untouched(const op_case_t *c, const launch_t *l)
{
    char what[32];
    buffer_check(&l->workspace, l->kernel->name, "its workspace");
    for (int i = 0; i < c->num_in + c->num_out; i++) {
        if (c->arg[i].rank > 0 && c->arg[i].within == 0) {
            snprintf(what, sizeof(what), "operand %d", i);
            buffer_check(&l->buffer[i], l->kernel->name, what);
            check_gaps(c, l, i);
            check_spare(c, l, i);
        }
    }
}

bool op_supports(const loong_kernel_t *kernel, const loong_kernel_query_t *q)
{
    char reason[LOONG_REASON_SIZE] = "";
    bool ok = kernel->support == NULL || kernel->support(q, reason);
    if (!ok && reason[0] == '\0') {
        fail_msg("%s refuses without a reason", kernel->name);
    }
    return ok;
}
