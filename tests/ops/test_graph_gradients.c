/* SPDX-License-Identifier: Apache-2.0
 *
 * What differentiation makes of the builders: a graph of one is compiled and
 * run, and the gradients of its inputs are finite differences in fp64 of what
 * its own forward makes. In bf16 a gradient has the type of its input. */
#include "executor.h"
#include "loong/extension.h"
#include "loong/ops.h"
#include "loong/register.h"
#include "rng.h"
#include "test.h"

enum { T = 6, H = 4, S = 3, MAX_IN = 3, MOST = 64 };

typedef struct rule {
    const char *name;
    int num_in;
    bool wide; /* the inputs are of the wide type */
    loong_shape_t in[MAX_IN];
    int num_numbers; /* of an input of integers */
    int32_t numbers[8];
    loong_val_t (*build)(loong_graph_t *g, const loong_val_t *in,
                         loong_val_t numbers);
    /* Element k of the output; NULL: tests of its op say it. */
    double (*formula)(double *const *in, const int32_t *numbers, int64_t k);
} rule_t;

/* ---- rules --------------------------------------------------------------- */

/* x is read twice: the types of both gradients meet in a sum. */
static loong_val_t gather_rows(loong_graph_t *g, const loong_val_t *in,
                               loong_val_t index)
{
    loong_val_t x = loong_scale(g, in[0], 2.0);
    return loong_add(g, loong_gather_rows(g, x, index), x);
}

static double gathered(double *const *in, const int32_t *index, int64_t k)
{
    return 2.0 * (in[0][index[k / H] * H + k % H] + in[0][k]);
}

static loong_val_t select_rows(loong_graph_t *g, const loong_val_t *in,
                               loong_val_t is_feature)
{
    return loong_select_rows(g, in[0], in[1], is_feature);
}

static loong_val_t mask_rows(loong_graph_t *g, const loong_val_t *in,
                             loong_val_t mask)
{
    return loong_select_rows(g, in[0], LOONG_NONE, mask);
}

static loong_val_t segment_sum(loong_graph_t *g, const loong_val_t *in,
                               loong_val_t offsets)
{
    return loong_segment_sum(g, in[0], offsets);
}

static loong_val_t segment_repeat(loong_graph_t *g, const loong_val_t *in,
                                  loong_val_t offsets)
{
    return loong_segment_repeat(g, in[0], offsets, T);
}

static loong_val_t multiply(loong_graph_t *g, const loong_val_t *in,
                            loong_val_t none)
{
    (void)none;
    return loong_multiply(g, in[0], in[1]);
}

static loong_val_t kl_estimate(loong_graph_t *g, const loong_val_t *in,
                               loong_val_t none)
{
    (void)none;
    return loong_kl_estimate(g, in[0], in[1]);
}

static loong_val_t squared_error(loong_graph_t *g, const loong_val_t *in,
                                 loong_val_t none)
{
    (void)none;
    return loong_squared_error(g, in[0], in[1]);
}

static double squares(double *const *in, const int32_t *none, int64_t k)
{
    double sum = 0.0;
    (void)none;
    for (int64_t i = k * H; i < (k + 1) * H; i++) {
        sum += (in[0][i] - in[1][i]) * (in[0][i] - in[1][i]);
    }
    return sum / H;
}

/* The example's op: examples/extension. */
extern const loong_op_t rings_hinge;
const loong_extension_t *loong_extension(void);

static loong_val_t hinge(loong_graph_t *g, const loong_val_t *in,
                         loong_val_t labels)
{
    const double margin = 0.7;
    loong_val_t with[] = {loong_reshape(g, in[0], loong_shape_2d(T, 1)),
                          labels};
    loong_val_t y;
    loong_graph_apply(g, &rings_hinge, &margin, 2, with, 1, &y);
    return y;
}

static double hinge_formula(double *const *in, const int32_t *labels,
                            int64_t k)
{
    double gap = fmax(0.0, 0.7 - (labels[k] > 0 ? 1.0 : -1.0) * in[0][k]);
    return labels[k] < 0 ? 0.0 : gap * gap;
}

#define MAT {2, {T, H}}
#define VEC(size_) {1, {size_}}

static const rule_t rules[] = {
    {"gather_rows", 1, false, {MAT}, T, {5, 0, 0, 2, 5, 1}, gather_rows,
     gathered},
    {"select_rows", 2, false, {MAT, MAT}, T, {0, 1, 1, 0, 2, 0}, select_rows,
     NULL},
    {"mask_rows", 1, false, {MAT}, T, {0, 1, 1, 0, 2, 0}, mask_rows, NULL},
    {"segment_sum", 1, true, {VEC(T)}, S + 1, {1, 3, 3, 5}, segment_sum, NULL},
    {"segment_repeat", 1, true, {VEC(S)}, S + 1, {1, 3, 3, 5}, segment_repeat,
     NULL},
    {"multiply", 2, false, {MAT, MAT}, 0, {0}, multiply, NULL},
    {"kl_estimate", 2, true, {VEC(T), VEC(T)}, 0, {0}, kl_estimate, NULL},
    {"squared_error", 2, false, {MAT, MAT}, 0, {0}, squared_error, squares},
    {"hinge", 1, true, {VEC(T)}, T, {0, 1, 1, -1, 0, 1}, hinge, hinge_formula},
};

/* ---- a graph of one ------------------------------------------------------ */

static const char *const names[MAX_IN] = {"a", "b", "c"};
static const char *const grads[MAX_IN] = {"a.grad", "b.grad", "c.grad"};

static loong_model_chunk_t *compile(loong_context_t *ctx, const rule_t *r,
                                    loong_dtype_t compute)
{
    loong_precision_t precision = {compute, compute == LOONG_F64 ? LOONG_F64
                                                                 : LOONG_F32};
    loong_compile_params_t params = {
        .device = "cpu", .threads = 1, .fuse = true, .in_place = true};
    loong_val_t in[MAX_IN] = {LOONG_NONE, LOONG_NONE, LOONG_NONE};
    loong_val_t numbers = LOONG_NONE;
    loong_graph_t *g = NULL;
    loong_model_chunk_t *chunk = NULL;
    assert_ok(ctx, loong_graph_create(ctx, precision, &g));
    for (int i = 0; i < r->num_in; i++) {
        in[i] = loong_graph_boundary_input(
            g, names[i], r->wide ? precision.wide : compute, r->in[i]);
    }
    if (r->num_numbers > 0) {
        numbers = loong_graph_input(g, "numbers", LOONG_I32,
                                    loong_shape_1d(r->num_numbers));
    }
    loong_graph_boundary_output(g, "y", r->build(g, in, numbers));
    assert_ok(ctx, loong_graph_status(g));
    assert_ok(ctx, loongi_model_chunk_compile(g, true, &params, &chunk));
    loong_graph_destroy(&g);
    return chunk;
}

static double *data_of(const loong_binding_t *run, const loong_port_t *port)
{
    assert_non_null(port);
    return (double *)(void *)(run->base[port->operand.base] +
                              port->operand.offset);
}

static void bind(loong_binding_t *run, const loong_model_chunk_t *c,
                 const rule_t *r)
{
    int64_t bytes[LOONG_BASE_COUNT] = {
        [LOONG_BASE_SLOT] = c->slot_bytes,
        [LOONG_BASE_SCRATCH] = c->scratch_bytes,
        [LOONG_BASE_INPUT] = c->input_bytes,
    };
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        assert_ok(run->ctx, loongi_alloc(run->ctx, (size_t)bytes[b] + 64,
                                         "test", &run->base[b]));
    }
    for (int i = 0; i < c->num_inputs; i++) {
        const loong_port_t *port = &c->inputs[i];
        int64_t count = loongi_shape_elements(&port->shape);
        double *data = data_of(run, port);
        if (port->dtype == LOONG_I32) {
            memcpy(data, r->numbers, sizeof(int32_t) * (size_t)count);
            continue;
        }
        for (int64_t k = 0; k < count; k++) {
            data[k] = loongi_rng_normal(3, (uint64_t)i, (uint64_t)k);
        }
    }
}

/* The sum of y . dy. */
static double forward(const loong_binding_t *run, const loong_model_chunk_t *c)
{
    loong_frame_t frame = {.first = 1, .last = 1};
    const loong_port_t *port = loongi_model_chunk_output(c, "y");
    const double *dy = data_of(run, loongi_model_chunk_input(c, "y.grad"));
    double sum = 0.0;
    assert_ok(run->ctx,
              loongi_program_run(run, &c->programs[LOONG_PROGRAM_F], &frame));
    const double *y = data_of(run, port);
    for (int64_t k = 0; k < loongi_shape_elements(&port->shape); k++) {
        sum += y[k] * dy[k];
    }
    return sum;
}

static void check_formula(const loong_binding_t *run,
                          const loong_model_chunk_t *c, const rule_t *r)
{
    const loong_port_t *port = loongi_model_chunk_output(c, "y");
    const double *y = data_of(run, port);
    double *in[MAX_IN] = {NULL};
    for (int i = 0; i < r->num_in; i++) {
        in[i] = data_of(run, loongi_model_chunk_input(c, names[i]));
    }
    for (int64_t k = 0; k < loongi_shape_elements(&port->shape); k++) {
        double wanted = r->formula(in, r->numbers, k);
        if (!(fabs(y[k] - wanted) <= 1e-14 * (1.0 + fabs(wanted)))) {
            fail_msg("%s: element %lld is %.17g, not %.17g", r->name,
                     (long long)k, y[k], wanted);
        }
    }
}

static void check_values(loong_context_t *ctx, const rule_t *r)
{
    const double step = 1e-5;
    loong_frame_t frame = {.first = 1, .last = 1};
    loong_model_chunk_t *c = compile(ctx, r, LOONG_F64);
    loong_binding_t run = {.ctx = ctx};
    double grad[MAX_IN][MOST];
    assert_ok(ctx, loongi_model_chunk_prepare(c));
    bind(&run, c, r);
    forward(&run, c);
    if (r->formula != NULL) {
        check_formula(&run, c, r);
    }
    assert_ok(ctx,
              loongi_program_run(&run, &c->programs[LOONG_PROGRAM_B], &frame));
    for (int i = 0; i < r->num_in; i++) {
        int64_t n = loongi_shape_elements(&r->in[i]);
        memcpy(grad[i], data_of(&run, loongi_model_chunk_output(c, grads[i])),
               sizeof(double) * (size_t)n);
    }
    for (int i = 0; i < r->num_in; i++) {
        double *x = data_of(&run, loongi_model_chunk_input(c, names[i]));
        for (int64_t k = 0; k < loongi_shape_elements(&r->in[i]); k++) {
            double before = x[k];
            x[k] = before + step;
            double above = forward(&run, c);
            x[k] = before - step;
            double slope = (above - forward(&run, c)) / (2.0 * step);
            x[k] = before;
            if (!(fabs(grad[i][k] - slope) <= 1e-8 * (1.0 + fabs(slope)))) {
                fail_msg("%s: input %s: gradient %lld is %.12g, not %.12g",
                         r->name, names[i], (long long)k, grad[i][k], slope);
            }
        }
    }
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        loongi_free(ctx, run.base[b]);
    }
    loongi_model_chunk_destroy(&c);
}

static void test_values(void **state)
{
    loong_context_t *ctx = *state;
    for (int i = 0; i < LOONG_COUNT_OF(rules); i++) {
        check_values(ctx, &rules[i]);
    }
}

static void test_types(void **state)
{
    loong_context_t *ctx = *state;
    for (int i = 0; i < LOONG_COUNT_OF(rules); i++) {
        loong_model_chunk_t *c = compile(ctx, &rules[i], LOONG_BF16);
        for (int k = 0; k < rules[i].num_in; k++) {
            assert_int_equal(loongi_model_chunk_output(c, grads[k])->dtype,
                             loongi_model_chunk_input(c, names[k])->dtype);
        }
        loongi_model_chunk_destroy(&c);
    }
}

/* Operands that do not fit are refused by name. */
static void test_refused(void **state)
{
    loong_context_t *ctx = *state;
    static const char *const told[] = {
        "kl_estimate: reference is bf16, fp32 wanted",
        "mean_squares: x has 1 dimensions, 2 wanted",
        "multiply: dimension 1 of b is 5, 4 wanted"};
    for (int i = 0; i < LOONG_COUNT_OF(told); i++) {
        loong_precision_t precision = {LOONG_BF16, LOONG_F32};
        loong_graph_t *g = NULL;
        loong_context_clear_error(ctx);
        assert_ok(ctx, loong_graph_create(ctx, precision, &g));
        loong_shape_t shape = i < 2 ? loong_shape_1d(T) : loong_shape_2d(T, H);
        loong_shape_t other = i < 2 ? shape : loong_shape_2d(T, H + 1);
        loong_val_t a = loong_graph_input(g, "a", LOONG_F32, shape);
        loong_val_t b =
            loong_graph_input(g, "b", i > 0 ? LOONG_F32 : LOONG_BF16, other);
        loong_val_t y = i == 0   ? loong_kl_estimate(g, a, b)
                        : i == 1 ? loong_squared_error(g, a, b)
                                 : loong_multiply(g, a, b);
        assert_int_equal(y, LOONG_NONE);
        assert_int_equal(loong_graph_status(g), LOONG_ERR_ARG);
        if (strstr(loong_context_error(ctx), told[i]) == NULL) {
            fail_msg("%s, not %s", loong_context_error(ctx), told[i]);
        }
        loong_graph_destroy(&g);
    }
}

static int setup(void **state)
{
    loong_context_t *ctx = test_context();
    assert_ok(ctx, loong_register_builtin(ctx));
    assert_ok(ctx, loong_extension()->enter(ctx));
    *state = ctx;
    return 0;
}

static int teardown(void **state)
{
    loong_context_t *ctx = *state;
    test_context_end(&ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
