/* SPDX-License-Identifier: Apache-2.0 */
#include "op_case.h"

#include "convert.h"
#include "loong/register.h"
#include "registry.h"
#include "rng.h"

enum { GUARD = 256, PATTERN = 0xA5 };

/* One operand in memory, guarded. */
typedef struct buffer {
    char *base;
    char *data;
    size_t size;
} buffer_t;

typedef struct launch {
    loong_context_t *ctx;
    const loong_kernel_t *kernel;
    loong_kernel_query_t query;
    loong_frame_t frame;
    void *state;
    buffer_t buffer[LOONG_MAX_OPERANDS];
    buffer_t workspace;
} launch_t;

static int64_t rows_of(const op_arg_t *a)
{
    int64_t rows = 1;
    for (int d = 0; d + 1 < a->rank; d++) {
        rows *= a->dim[d];
    }
    return rows;
}

static int64_t cols_of(const op_arg_t *a)
{
    return a->dim[a->rank - 1];
}

static buffer_t buffer_make(size_t size)
{
    buffer_t b;
    size_t total = (size + 2 * GUARD + 63) / 64 * 64;
    b.base = aligned_alloc(64, total);
    assert_non_null(b.base);
    memset(b.base, PATTERN, total);
    b.data = b.base + GUARD;
    b.size = size;
    return b;
}

static void buffer_check(const buffer_t *b, const char *kernel,
                         const char *what)
{
    for (size_t i = 0; i < GUARD; i++) {
        if ((unsigned char)b->base[i] != PATTERN ||
            (unsigned char)b->data[b->size + i] != PATTERN) {
            fail_msg("%s wrote outside of %s", kernel, what);
        }
    }
}

static loong_kernel_query_t make_query(const op_case_t *c, bool wide)
{
    loong_kernel_query_t q;
    memset(&q, 0, sizeof(q));
    q.op = c->op;
    q.attr = c->attr;
    q.num_in = c->num_in;
    q.num_out = c->num_out;
    q.threads = c->threads > 0 ? c->threads : 2;
    q.accumulate = c->accumulate;
    for (int i = 0; i < c->num_in + c->num_out; i++) {
        const op_arg_t *a = &c->arg[i];
        loong_karg_t *k = &q.arg[i];
        k->count = -1;
        if (a->rank == 0) {
            continue;
        }
        k->dtype =
            wide && loongi_dtype_is_float(a->dtype) ? LOONG_F64 : a->dtype;
        k->rank = a->rank;
        memcpy(k->dim, a->dim, sizeof(k->dim));
        k->ld = cols_of(a) + a->gap;
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
static double value_of(const op_case_t *c, int i, int64_t n)
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
                       : loongi_rng_normal(17, stream, (uint64_t)n) *
                             (a->scale > 0.0 ? a->scale : 1.0);
    assert_int_equal(
        loongi_convert(NULL, LOONG_F64, &value, a->dtype, narrow, 1), LOONG_OK);
    return converted(a->dtype, narrow);
}

static void fill(const op_case_t *c, launch_t *l, int i)
{
    const op_arg_t *a = &c->arg[i];
    const loong_karg_t *k = &l->query.arg[i];
    size_t size = loong_dtype_size(k->dtype);
    int64_t cols = cols_of(a);
    int64_t rows = rows_of(a);
    int64_t elements = rows > 0 ? (rows - 1) * k->ld + cols : 0;
    l->buffer[i] = buffer_make((size_t)elements * size);
    if (i >= c->num_in && !(c->accumulate & 1u << (i - c->num_in))) {
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        char *row = l->buffer[i].data + (size_t)(r * k->ld) * size;
        if (!loongi_dtype_is_float(k->dtype)) {
            memcpy(row, (const char *)a->values + (size_t)(r * cols) * size,
                   (size_t)cols * size);
            continue;
        }
        for (int64_t j = 0; j < cols; j++) {
            double value = value_of(c, i, r * cols + j);
            assert_int_equal(loongi_convert(NULL, LOONG_F64, &value, k->dtype,
                                            row + (size_t)j * size, 1),
                             LOONG_OK);
        }
    }
}

static loong_context_t *new_context(void)
{
    loong_context_t *ctx = test_context();
    assert_ok(ctx, loong_register_builtin(ctx));
    return ctx;
}

/* Reports leaks; the registry's own memory belongs to the context. */
static void end_context(loong_context_t **ctx)
{
    loongi_registry_clear(*ctx);
    test_context_end(ctx);
}

static void launch_begin(const op_case_t *c, loong_context_t *ctx,
                         const loong_kernel_t *kernel, bool wide, launch_t *l)
{
    memset(l, 0, sizeof(*l));
    l->ctx = ctx;
    l->kernel = kernel;
    l->query = make_query(c, wide);
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

static loong_status_t launch_run(const op_case_t *c, launch_t *l)
{
    void *ptr[LOONG_MAX_OPERANDS];
    for (int i = 0; i < c->num_in + c->num_out; i++) {
        ptr[i] = l->buffer[i].data;
    }
    loong_kernel_call_t call = {l->ctx,    &l->query,    l->state,
                                &l->frame, ptr,          l->workspace.data,
                                NULL,      c->accumulate, NULL};
    uint64_t before = loong_context_alloc_count(l->ctx);
    loong_status_t status = l->kernel->run(&call);
    assert_int_equal(loong_context_alloc_count(l->ctx), before);
    return status;
}

static void launch_end(launch_t *l)
{
    if (l->kernel->destroy != NULL) {
        l->kernel->destroy(l->ctx, l->state);
    }
    for (int i = 0; i < LOONG_MAX_OPERANDS; i++) {
        free(l->buffer[i].base);
    }
    free(l->workspace.base);
}

static void check_gaps(const op_case_t *c, const launch_t *l, int i)
{
    const loong_karg_t *k = &l->query.arg[i];
    size_t size = loong_dtype_size(k->dtype);
    for (int64_t r = 0; r + 1 < rows_of(&c->arg[i]); r++) {
        const char *row = l->buffer[i].data + (size_t)(r * k->ld) * size;
        for (size_t b = (size_t)cols_of(&c->arg[i]) * size;
             b < (size_t)k->ld * size; b++) {
            if ((unsigned char)row[b] != PATTERN) {
                fail_msg("%s wrote between the rows of operand %d",
                         l->kernel->name, i);
            }
        }
    }
}

static void check_untouched(const op_case_t *c, const launch_t *l)
{
    char what[32];
    buffer_check(&l->workspace, l->kernel->name, "its workspace");
    for (int i = 0; i < c->num_in + c->num_out; i++) {
        if (c->arg[i].rank > 0) {
            snprintf(what, sizeof(what), "operand %d", i);
            buffer_check(&l->buffer[i], l->kernel->name, what);
            check_gaps(c, l, i);
        }
    }
}

static void widen(loong_dtype_t dtype, const char *from, double *to, int64_t n)
{
    for (int64_t i = 0; i < n && dtype == LOONG_I32; i++) {
        int32_t value;
        memcpy(&value, from + 4 * i, 4);
        to[i] = value;
    }
    if (dtype != LOONG_I32) {
        assert_int_equal(loongi_convert(NULL, dtype, from, LOONG_F64, to, n),
                         LOONG_OK);
    }
}

static double *dense(const op_case_t *c, const launch_t *l, int i)
{
    const loong_karg_t *k = &l->query.arg[i];
    int64_t rows = rows_of(&c->arg[i]);
    int64_t cols = cols_of(&c->arg[i]);
    double *copy = malloc(sizeof(double) * (size_t)(rows * cols + 1));
    for (int64_t r = 0; r < rows; r++) {
        widen(k->dtype,
              l->buffer[i].data +
                  (size_t)(r * k->ld) * loong_dtype_size(k->dtype),
              copy + r * cols, cols);
    }
    return copy;
}

/* Storage is the type of the first floating operand. */
static double bound_of(const op_case_t *c)
{
    int first = 0;
    while (!loongi_dtype_is_float(c->arg[first].dtype)) {
        first++;
    }
    switch (c->arg[first].dtype) {
    case LOONG_BF16:
        return c->bound.roundings * 0x1p-8 +
               sqrt((double)c->bound.terms + 1.0) * 0x1p-23;
    case LOONG_F32:
        return (c->bound.roundings + sqrt((double)c->bound.terms + 1.0)) *
               0x1p-23;
    default:
        return (c->bound.roundings + sqrt((double)c->bound.terms + 1.0)) *
               0x1p-52;
    }
}

static void compare(const op_case_t *c, const char *kernel, int o,
                    const double *got, const double *want)
{
    const op_arg_t *a = &c->arg[c->num_in + o];
    int64_t cols = cols_of(a);
    int64_t n = rows_of(a) * cols;
    double bound = bound_of(c);
    double error = 0.0;
    double norm = 0.0;
    for (int64_t i = 0; i < n; i++) {
        if (isinf(want[i]) && got[i] == want[i]) {
            continue;
        }
        error += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    double rms = sqrt(norm / (double)LOONG_MAX(n, 1));
    if (!(sqrt(error) <= bound * sqrt(norm))) {
        fail_msg("%s, output %d (%lld x %lld): relative error %.3g, bound "
                 "%.3g",
                 kernel, o, (long long)rows_of(a), (long long)cols,
                 sqrt(error / norm), bound);
    }
    for (int64_t i = 0; i < n; i++) {
        if (got[i] != want[i] &&
            !(fabs(got[i] - want[i]) <= 16.0 * bound * (fabs(want[i]) + rms))) {
            fail_msg("%s, output %d [%lld,%lld]: %.9g, reference %.9g", kernel,
                     o, (long long)(i / cols), (long long)(i % cols), got[i],
                     want[i]);
        }
    }
}

static bool supports(const loong_kernel_t *kernel,
                     const loong_kernel_query_t *q)
{
    char reason[LOONG_REASON_SIZE] = "";
    bool ok = kernel->support == NULL || kernel->support(q, reason);
    if (!ok && reason[0] == '\0') {
        fail_msg("%s refuses without a reason", kernel->name);
    }
    return ok;
}

static const loong_kernel_t *reference_of(loong_context_t *ctx, const char *op)
{
    const loong_kernel_t *last = NULL;
    const loong_kernel_t *k = NULL;
    for (int i = 0; (k = loong_find_kernel(ctx, op, "cpu", i)) != NULL; i++) {
        last = k;
    }
    assert_non_null(last);
    assert_non_null(strstr(last->name, "_ref"));
    return last;
}

/* A second launch gives the same bits, whatever the workspace held. */
static void check_repeat(const op_case_t *c, const launch_t *first)
{
    launch_t again;
    launch_begin(c, first->ctx, first->kernel, false, &again);
    memset(again.workspace.data, 0x3B, again.workspace.size);
    assert_ok(first->ctx, launch_run(c, &again));
    for (int i = c->num_in; i < c->num_in + c->num_out; i++) {
        if (c->arg[i].rank > 0 &&
            memcmp(again.buffer[i].data, first->buffer[i].data,
                   again.buffer[i].size) != 0) {
            fail_msg("%s: output %d differs between two launches",
                     first->kernel->name, i - c->num_in);
        }
    }
    launch_end(&again);
}

static void check_kernel(const op_case_t *c, loong_context_t *ctx,
                         const loong_kernel_t *kernel, double *const *want)
{
    launch_t l;
    launch_begin(c, ctx, kernel, false, &l);
    assert_ok(ctx, launch_run(c, &l));
    check_untouched(c, &l);
    for (int o = 0; o < c->num_out; o++) {
        if (want[o] != NULL && (c->compare == 0 || c->compare & 1u << o)) {
            double *got = dense(c, &l, c->num_in + o);
            compare(c, kernel->name, o, got, want[o]);
            free(got);
        }
    }
    check_repeat(c, &l);
    launch_end(&l);
}

/* Draws the random operands once for all launches. */
static void draw(op_case_t *c, double **drawn)
{
    for (int i = 0; i < c->num_in + c->num_out; i++) {
        op_arg_t *a = &c->arg[i];
        bool used = i < c->num_in || c->accumulate & 1u << (i - c->num_in);
        drawn[i] = NULL;
        if (a->rank == 0 || !used || a->values != NULL ||
            a->wide_values != NULL || !loongi_dtype_is_float(a->dtype)) {
            continue;
        }
        int64_t n = rows_of(a) * cols_of(a);
        drawn[i] = malloc(sizeof(double) * (size_t)(n + 1));
        for (int64_t k = 0; k < n; k++) {
            drawn[i][k] = value_of(c, i, k);
        }
        a->wide_values = drawn[i];
    }
}

int op_case_reference(const op_case_t *given)
{
    op_case_t drawn_case = *given;
    const op_case_t *c = &drawn_case;
    double *drawn[LOONG_MAX_OPERANDS];
    draw(&drawn_case, drawn);
    loong_context_t *ctx = new_context();
    const loong_kernel_t *reference = reference_of(ctx, c->op);
    const loong_kernel_t *k = NULL;
    double *want[LOONG_MAX_OPERANDS] = {NULL};
    launch_t exact;
    int count = 0;
    launch_begin(c, ctx, reference, true, &exact);
    assert_ok(ctx, launch_run(c, &exact));
    check_untouched(c, &exact);
    for (int o = 0; o < c->num_out; o++) {
        if (c->arg[c->num_in + o].rank > 0) {
            want[o] = dense(c, &exact, c->num_in + o);
        }
    }
    loong_kernel_query_t q = make_query(c, false);
    for (int i = 0; (k = loong_find_kernel(ctx, c->op, "cpu", i)) != NULL;
         i++) {
        if (supports(k, &q)) {
            check_kernel(c, ctx, k, want);
            count += k != reference;
        }
    }
    for (int o = 0; o < c->num_out; o++) {
        free(want[o]);
    }
    for (int i = 0; i < c->num_in + c->num_out; i++) {
        free(drawn[i]);
    }
    launch_end(&exact);
    end_context(&ctx);
    return count;
}

static void check_threads(const op_case_t *c, loong_context_t *ctx,
                          const loong_kernel_t *kernel)
{
    op_case_t one = *c;
    launch_t first;
    one.threads = 1;
    launch_begin(&one, ctx, kernel, false, &first);
    assert_ok(ctx, launch_run(&one, &first));
    for (int threads = 2; threads <= 3; threads++) {
        op_case_t more = *c;
        launch_t l;
        more.threads = threads;
        launch_begin(&more, ctx, kernel, false, &l);
        assert_ok(ctx, launch_run(&more, &l));
        for (int i = c->num_in; i < c->num_in + c->num_out; i++) {
            if (c->arg[i].rank > 0 &&
                memcmp(l.buffer[i].data, first.buffer[i].data,
                       first.buffer[i].size) != 0) {
                fail_msg("%s: output %d differs between 1 and %d threads",
                         kernel->name, i - c->num_in, threads);
            }
        }
        launch_end(&l);
    }
    launch_end(&first);
}

void op_case_threads(const op_case_t *c)
{
    loong_context_t *ctx = new_context();
    loong_kernel_query_t q = make_query(c, false);
    const loong_kernel_t *k = NULL;
    for (int i = 0; (k = loong_find_kernel(ctx, c->op, "cpu", i)) != NULL;
         i++) {
        if (supports(k, &q)) {
            check_threads(c, ctx, k);
        }
    }
    end_context(&ctx);
}

static const loong_kernel_t *choose(loong_context_t *ctx, const op_case_t *c,
                                    const char *name)
{
    loong_kernel_query_t q = make_query(c, false);
    const loong_kernel_t *k = NULL;
    for (int i = 0; (k = loong_find_kernel(ctx, c->op, "cpu", i)) != NULL;
         i++) {
        if (name != NULL ? strcmp(k->name, name) == 0 : supports(k, &q)) {
            return k;
        }
    }
    fail_msg("no kernel %s for %s", name != NULL ? name : "", c->op);
    return NULL;
}

const char *op_case_chosen(const op_case_t *c)
{
    loong_context_t *ctx = new_context();
    const char *name = choose(ctx, c, NULL)->name;
    end_context(&ctx);
    return name;
}

loong_status_t op_case_status(const op_case_t *c, const char *name,
                              char text[512])
{
    loong_context_t *ctx = new_context();
    launch_t l;
    launch_begin(c, ctx, choose(ctx, c, name), false, &l);
    loong_status_t status = launch_run(c, &l);
    snprintf(text, 512, "%s", loong_context_error(ctx));
    launch_end(&l);
    end_context(&ctx);
    return status;
}

void op_case_outputs(const op_case_t *c, const char *name,
                     double *out[LOONG_MAX_OPERANDS])
{
    loong_context_t *ctx = new_context();
    launch_t l;
    launch_begin(c, ctx, choose(ctx, c, name), false, &l);
    assert_ok(ctx, launch_run(c, &l));
    for (int o = 0; o < c->num_out; o++) {
        out[o] =
            c->arg[c->num_in + o].rank > 0 ? dense(c, &l, c->num_in + o) : NULL;
    }
    launch_end(&l);
    end_context(&ctx);
}

double *op_normal(int64_t count, int stream, double deviation)
{
    double *values = malloc(sizeof(double) * (size_t)(count + 1));
    for (int64_t i = 0; i < count; i++) {
        values[i] =
            deviation * loongi_rng_normal(23, (uint64_t)stream, (uint64_t)i);
    }
    return values;
}

static double weighted_outputs(const op_difference_t *d, const op_case_t *c,
                               const char *kernel)
{
    double *out[LOONG_MAX_OPERANDS] = {NULL};
    double sum = 0.0;
    op_case_outputs(c, kernel, out);
    for (int o = 0; o < d->num_weights; o++) {
        const op_arg_t *a = &c->arg[c->num_in + o];
        int64_t n = d->weights[o] != NULL ? rows_of(a) * cols_of(a) : 0;
        for (int64_t i = 0; i < n; i++) {
            sum += d->weights[o][i] * out[o][i];
        }
    }
    for (int o = 0; o < c->num_out; o++) {
        free(out[o]);
    }
    return sum;
}

void op_case_differences(const op_difference_t *d)
{
    enum { POINTS = 4 };
    static const double at[POINTS] = {-2.0, -1.0, 1.0, 2.0};
    static const double weight[POINTS] = {1.0, -8.0, 8.0, -1.0};
    const double h = 1e-3;
    op_case_t c = *d->forward;
    char kernel[64];
    snprintf(kernel, sizeof(kernel), "%s_ref", c.op);
    int64_t n = rows_of(&c.arg[d->input]) * cols_of(&c.arg[d->input]);
    double *moved = malloc(sizeof(double) * (size_t)n);
    double norm = 0.0;
    memcpy(moved, c.arg[d->input].wide_values, sizeof(double) * (size_t)n);
    c.arg[d->input].wide_values = moved;
    for (int64_t i = 0; i < n; i++) {
        norm += d->grad[i] * d->grad[i];
    }
    double rms = sqrt(norm / (double)n);
    assert_true(rms > 0.0);
    for (int64_t i = 0; i < n; i += d->stride) {
        double value = moved[i];
        double slope = 0.0; /* error of order h^4 */
        for (int k = 0; k < POINTS; k++) {
            moved[i] = value + at[k] * h;
            slope += weight[k] * weighted_outputs(d, &c, kernel);
        }
        slope /= 12.0 * h;
        moved[i] = value;
        if (!(fabs(slope - d->grad[i]) <= d->bound * rms)) {
            fail_msg("%s, input %d, element %lld: gradient %.12g, difference "
                     "%.12g (rms %.3g)",
                     c.op, d->input, (long long)i, d->grad[i], slope, rms);
        }
    }
    free(moved);
}
