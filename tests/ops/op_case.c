/* SPDX-License-Identifier: Apache-2.0 */
#include "op_case.h"

#include "convert.h"
#include "op_device.h"
#include "op_launch.h"
#include "loong/register.h"
#include "rng.h"

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
    int64_t rows = op_arg_rows(&c->arg[i]);
    int64_t cols = op_arg_cols(&c->arg[i]);
    double *copy = malloc(sizeof(double) * (size_t)(rows * cols + 1));
    for (int64_t r = 0; r < rows; r++) {
        widen(k->dtype,
              l->buffer[i].data +
                  (size_t)(r * k->ld) * loong_dtype_size(k->dtype),
              copy + r * cols, cols);
    }
    return copy;
}

/* Storage is the type of the first floating operand; where that is fp8, which
 * is read exactly, that of the output. Integers are exact. */
static double bound_of(const op_case_t *c)
{
    int first = 0;
    while (first < c->num_in + c->num_out &&
           !loongi_dtype_is_float(c->arg[first].dtype)) {
        first++;
    }
    if (first == c->num_in + c->num_out) {
        return 0.0;
    }
    first = loongi_dtype_is_fp8(c->arg[first].dtype) ? c->num_in : first;
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

/* The square of what errors are relative to beside the output itself. */
static double cancelled(const op_case_t *c, int64_t n)
{
    double norm = 0.0;
    for (int64_t i = 0; i < n && c->bound.cancels > 0; i++) {
        double term = op_value(c, c->bound.cancels - 1, i);
        norm += term * term;
    }
    return norm;
}

static void compare(const op_case_t *c, const char *kernel, int o,
                    const double *got, const double *want)
{
    const op_arg_t *a = &c->arg[c->num_in + o];
    int64_t cols = op_arg_cols(a);
    int64_t n = (op_arg_rows(a) - a->spare) * cols;
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
    norm = LOONG_MAX(norm, cancelled(c, n));
    double rms = sqrt(norm / (double)LOONG_MAX(n, 1));
    if (!(sqrt(error) <= bound * sqrt(norm))) {
        fail_msg("%s, output %d (%lld x %lld): relative error %.3g, bound "
                 "%.3g",
                 kernel, o, (long long)op_arg_rows(a), (long long)cols,
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
    launch_check_untouched(c, &l);
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
        int64_t n = op_arg_rows(a) * op_arg_cols(a);
        drawn[i] = malloc(sizeof(double) * (size_t)(n + 1));
        for (int64_t k = 0; k < n; k++) {
            drawn[i][k] = op_value(c, i, k);
        }
        a->wide_values = drawn[i];
    }
}

/* With OP_LACKS a device may have no kernel, which is told: they are of a
 * library that has what it has (tests/xpu/run.sh). */
static bool may_lack(const op_case_t *c)
{
    if (getenv("OP_LACKS") == NULL) {
        return false;
    }
    if (c->arg[0].dtype != LOONG_F64) {
        fprintf(stderr, "lacks %s of %s\n", c->op,
                loong_dtype_name(c->arg[0].dtype));
    }
    return true;
}

int op_case_reference(const op_case_t *given)
{
    op_case_t drawn_case = *given;
    const op_case_t *c = &drawn_case;
    double *drawn[LOONG_MAX_OPERANDS];
    draw(&drawn_case, drawn);
    loong_context_t *ctx = op_context();
    const loong_kernel_t *reference = reference_of(ctx, c->op);
    const loong_kernel_t *k = NULL;
    double *want[LOONG_MAX_OPERANDS] = {NULL};
    launch_t exact;
    int count = 0;
    launch_begin(c, ctx, reference, true, &exact);
    assert_ok(ctx, launch_run(c, &exact));
    launch_check_untouched(c, &exact);
    for (int o = 0; o < c->num_out; o++) {
        if (c->arg[c->num_in + o].rank > 0) {
            want[o] = dense(c, &exact, c->num_in + o);
        }
    }
    loong_kernel_query_t q = op_query(c, false);
    for (int i = 0; (k = loong_find_kernel(ctx, c->op, OP_DEVICE, i)) != NULL;
         i++) {
        if (op_supports(k, &q)) {
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
    op_context_end(&ctx);
    return count == 0 && may_lack(c) ? 1 : count;
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
    loong_context_t *ctx = op_context();
    loong_kernel_query_t q = op_query(c, false);
    const loong_kernel_t *k = NULL;
    for (int i = 0; (k = loong_find_kernel(ctx, c->op, OP_DEVICE, i)) != NULL;
         i++) {
        if (op_supports(k, &q)) {
            check_threads(c, ctx, k);
        }
    }
    op_context_end(&ctx);
}

static const loong_kernel_t *named(loong_context_t *ctx, const char *device,
                                   const char *op, const char *name)
{
    const loong_kernel_t *k = NULL;
    for (int i = 0; (k = loong_find_kernel(ctx, op, device, i)) != NULL; i++) {
        if (strcmp(k->name, name) == 0) {
            return k;
        }
    }
    return NULL;
}

/* The references are kernels of a CPU. */
static const loong_kernel_t *choose(loong_context_t *ctx, const op_case_t *c,
                                    const char *name)
{
    loong_kernel_query_t q = op_query(c, false);
    const loong_kernel_t *k = NULL;
    if (name != NULL) {
        k = named(ctx, OP_DEVICE, c->op, name);
        k = k != NULL ? k : named(ctx, "cpu", c->op, name);
    } else {
        int i = 0;
        do {
            k = loong_find_kernel(ctx, c->op, OP_DEVICE, i++);
        } while (k != NULL && !op_supports(k, &q));
    }
    if (k == NULL && may_lack(c)) {
        skip();
    } else if (k == NULL) {
        fail_msg("no kernel %s for %s", name != NULL ? name : "", c->op);
    }
    return k;
}

int64_t op_case_written(const op_case_t *given, int o)
{
    op_case_t c = *given;
    loong_context_t *ctx = op_context();
    int64_t rows = op_arg_rows(&c.arg[c.num_in + o]);
    int64_t written = 0;
    launch_t l;
    c.arg[c.num_in + o].spare = rows; /* all are as they were before */
    launch_begin(&c, ctx, choose(ctx, &c, NULL), false, &l);
    assert_ok(ctx, launch_run(&c, &l));
    for (int64_t r = 0; r < rows; r++) {
        written += launch_wrote(&c, &l, c.num_in + o, r);
    }
    launch_end(&l);
    op_context_end(&ctx);
    return written;
}

const char *op_case_chosen(const op_case_t *c)
{
    loong_context_t *ctx = op_context();
    const char *name = choose(ctx, c, NULL)->name;
    op_context_end(&ctx);
    return name;
}

loong_status_t op_case_status(const op_case_t *c, const char *name,
                              char text[512])
{
    loong_context_t *ctx = op_context();
    launch_t l;
    launch_begin(c, ctx, choose(ctx, c, name), false, &l);
    loong_status_t status = launch_run(c, &l);
    snprintf(text, 512, "%s", loong_context_error(ctx));
    launch_end(&l);
    op_context_end(&ctx);
    return status;
}

void op_case_outputs(const op_case_t *c, const char *name,
                     double *out[LOONG_MAX_OPERANDS])
{
    loong_context_t *ctx = op_context();
    launch_t l;
    launch_begin(c, ctx, choose(ctx, c, name), false, &l);
    assert_ok(ctx, launch_run(c, &l));
    for (int o = 0; o < c->num_out; o++) {
        out[o] =
            c->arg[c->num_in + o].rank > 0 ? dense(c, &l, c->num_in + o) : NULL;
    }
    launch_end(&l);
    op_context_end(&ctx);
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
        int64_t n = d->weights[o] != NULL ? op_arg_rows(a) * op_arg_cols(a) : 0;
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
    int64_t n = op_arg_rows(&c.arg[d->input]) * op_arg_cols(&c.arg[d->input]);
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
