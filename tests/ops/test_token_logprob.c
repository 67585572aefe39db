/* SPDX-License-Identifier: Apache-2.0
 *
 * token_logprob and its gradient: every kernel against the reference, with
 * padded vocabulary, ignored labels, absent gradients, several chunks; the
 * reference against the formula, finite differences and cross_entropy. A
 * vocabulary that ranks share: tests/parallel/test_token_logprob.c. */
#include "op_case.h"
#include "op_device.h"
#include "op_draw.h"

enum { MAX_TOKENS = 500 };

typedef struct setting {
    int64_t tokens, hidden, rows, vocab;
    bool add;
} setting_t;

static const setting_t settings[] = {
    {1, 1, 1, 1, false},
    {33, 24, 100, 97, true},
    {64, 48, 300, 290, false},
};
static const loong_dtype_t types[] = {LOONG_F64, LOONG_F32, LOONG_BF16};

static int32_t labels[MAX_TOKENS];

static op_case_t forward_case(const setting_t *s,
                              const loong_cross_entropy_attr_t *attr,
                              loong_dtype_t dtype)
{
    loong_dtype_t wide = dtype == LOONG_F64 ? LOONG_F64 : LOONG_F32;
    op_case_t c = {
        .op = "token_logprob", .attr = attr, .num_in = 3, .num_out = 2};
    for (int64_t t = 0; t < s->tokens; t++) {
        labels[t] =
            t % 5 == 3 ? LOONG_IGNORE_LABEL : (int32_t)(t * 7919 % s->vocab);
    }
    c.arg[0] = op_mat(dtype, s->tokens, s->hidden);
    c.arg[1] = op_mat(dtype, s->rows, s->hidden);
    c.arg[1].scale = 2.0 / sqrt((double)s->hidden);
    c.arg[2] = op_vec(LOONG_I32, s->tokens);
    c.arg[2].values = labels;
    c.arg[3] = c.arg[4] = op_vec(wide, s->tokens);
    c.bound.roundings = 2;
    c.bound.terms = s->hidden + s->vocab + s->tokens;
    return c;
}

/* With a second pair of this width. */
static void add_second(op_case_t *c, const setting_t *s, int64_t width)
{
    c->num_in = 5;
    c->arg[5] = c->arg[6] = c->arg[3];
    c->arg[3] = op_mat(c->arg[0].dtype, s->tokens, width);
    c->arg[4] = op_mat(c->arg[0].dtype, s->rows, width);
    c->bound.terms += width;
}

/* What the forward made is read, and a gradient that some tokens have not. */
typedef struct backward {
    double *out[LOONG_MAX_OPERANDS];
    double dlogp[MAX_TOKENS];
} backward_t;

static op_case_t backward_case(const setting_t *s, const op_case_t *forward,
                               backward_t *b)
{
    op_case_t c = *forward;
    memset(b, 0, sizeof(*b));
    op_case_outputs(forward, "token_logprob_ref", b->out);
    for (int64_t t = 0; t < s->tokens; t++) {
        b->dlogp[t] = t % 4 == 1 ? 0.0 : 0.37 * (double)(2 - t % 3);
    }
    op_arg_t value = forward->arg[forward->num_in];
    op_arg_t *to = &c.arg[6];
    bool second = forward->num_in == 5;
    c.op = "token_logprob_grad";
    c.num_in = second ? 8 : 6;
    c.num_out = second ? 4 : 2;
    c.arg[3] = c.arg[4] = c.arg[5] = value;
    c.arg[3].wide_values = b->out[0];
    c.arg[4].wide_values = b->out[1];
    c.arg[5].wide_values = b->dlogp;
    for (int i = 3; second && i < 5; i++) { /* the same numbers */
        *to = forward->arg[i];
        (to++)->stream = i + 1;
    }
    *to++ = op_mat(c.arg[0].dtype, s->tokens, s->hidden);
    *to++ = op_mat(value.dtype, s->rows, s->hidden);
    if (second) {
        to[0] = op_mat(c.arg[0].dtype, s->tokens, forward->arg[3].dim[1]);
        to[1] = op_mat(value.dtype, s->rows, forward->arg[3].dim[1]);
    }
    c.accumulate = s->add ? 1u << 1 | (second ? 1u << 3 : 0) : 0;
    return c;
}

static void backward_end(backward_t *b)
{
    free(b->out[0]);
    free(b->out[1]);
}

static loong_cross_entropy_attr_t attr_of(const setting_t *s)
{
    loong_cross_entropy_attr_t attr = {.loss = -1, .vocab = s->vocab};
    return attr;
}

static void expect(const op_case_t *c)
{
    int kernels = op_case_reference(c);
    if (c->arg[0].dtype != LOONG_F64 && kernels < 1) {
        fail_msg("only the reference supports %s",
                 loong_dtype_name(c->arg[0].dtype));
    }
}

/* Both ops, of operands with gaps. */
static void check(const setting_t *s, loong_dtype_t dtype, int64_t gap,
                  int threads, uint64_t seed)
{
    loong_cross_entropy_attr_t attr = attr_of(s);
    backward_t b;
    op_case_t c = forward_case(s, &attr, dtype);
    c.arg[0].gap = c.arg[1].gap = gap;
    c.threads = threads;
    c.seed = seed;
    expect(&c);
    op_case_t two = c;
    c = backward_case(s, &c, &b);
    c.arg[6].gap = c.arg[7].gap = gap;
    expect(&c);
    backward_end(&b);
    add_second(&two, s, 1 + s->hidden % 6);
    expect(&two);
    c = backward_case(s, &two, &b);
    c.arg[6].gap = c.arg[10].gap = gap;
    expect(&c);
    backward_end(&b);
}

static void test_kernels(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(settings); i++) {
        for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
            check(&settings[i], types[t], i % 2 * 3, 1 + (i + t) % 3, 0);
        }
    }
}

/* A gradient of few numbers may be a sum that cancels, which the bound does not
 * know: tokens are some. */
static void test_drawn(void **state)
{
    (void)state;
    op_draw_t d = op_draw_begin(4);
    while (op_draw_next(&d)) {
        setting_t s = {8 + op_draw_size(&d, 142), op_draw_size(&d, 70), 0,
                       op_draw_size(&d, 520), op_draw_below(&d, 2) == 1};
        s.rows = s.vocab + op_draw_below(&d, 20);
        loong_dtype_t dtype = op_draw_dtype(&d);
        check(&s, dtype, op_draw_gap(&d), 1 + op_draw_below(&d, 3), d.seed);
    }
}

/* Chunks of a processor, and the smaller ones of a simulated device. */
static void test_chunks(void **state)
{
    (void)state;
    bool cpu = strcmp(OP_DEVICE, "cpu") == 0;
    setting_t s = cpu ? (setting_t){170, 3, 100000, 99990, false}
                      : (setting_t){13, 3, 6000, 5990, false};
    check(&s, LOONG_BF16, 1, 2, 0);
}

static void test_absent(void **state)
{
    (void)state;
    for (int mask = 1; mask < 3; mask++) {
        loong_cross_entropy_attr_t attr = attr_of(&settings[2]);
        backward_t b;
        op_case_t c = forward_case(&settings[2], &attr, LOONG_F32);
        c = backward_case(&settings[2], &c, &b);
        memset(&c.arg[5 + mask], 0, sizeof(c.arg[5 + mask]));
        expect(&c);
        backward_end(&b);
    }
}

/* logp and lse by the formula, from all logits. */
static void check_values(const setting_t *s, const double *x, const double *w,
                         double *const *out)
{
    for (int64_t t = 0; t < s->tokens; t++) {
        double logit = 0.0;
        double sum = 0.0;
        for (int64_t v = 0; v < s->vocab; v++) {
            double a = 0.0;
            for (int64_t i = 0; i < s->hidden; i++) {
                a += x[t * s->hidden + i] * w[v * s->hidden + i];
            }
            logit = v == labels[t] ? a : logit;
            sum += exp(a);
        }
        bool none = labels[t] == LOONG_IGNORE_LABEL;
        double lse = none ? 0.0 : log(sum);
        assert_true(fabs(out[1][t] - lse) <= 1e-13);
        assert_true(fabs(out[0][t] - (none ? 0.0 : logit - lse)) <= 1e-13);
    }
}

/* dx and dw are the gradients of sum dlogp . logp; tokens without label have
 * none, and neither has padding. */
static void test_differences(void **state)
{
    (void)state;
    setting_t s = {6, 5, 9, 8, false};
    loong_cross_entropy_attr_t attr = attr_of(&s);
    backward_t b;
    double *grad[LOONG_MAX_OPERANDS] = {NULL};
    op_case_t c = forward_case(&s, &attr, LOONG_F64);
    double *x = op_normal(s.tokens * s.hidden, 1, 1.0);
    double *w = op_normal(s.rows * s.hidden, 2, 1.0);
    c.arg[0].wide_values = x;
    c.arg[1].wide_values = w;
    op_case_t back = backward_case(&s, &c, &b);
    check_values(&s, x, w, b.out);
    op_case_outputs(&back, "token_logprob_grad_ref", grad);
    op_difference_t d = {&c, 0, 1, 1, {b.dlogp}, grad[0], 1e-8};
    op_case_differences(&d);
    d.input = 1;
    d.grad = grad[1];
    op_case_differences(&d);
    for (int i = 0; i < s.hidden; i++) {
        assert_true(grad[1][8 * s.hidden + i] == 0.0); /* padding */
        assert_true(grad[0][3 * s.hidden + i] == 0.0); /* no label */
    }
    free(grad[0]);
    free(grad[1]);
    free(x);
    free(w);
    backward_end(&b);
}

static void assert_near(const double *a, const double *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs(a[i] - b[i]) <= 1e-12 * (1.0 + fabs(b[i])))) {
            fail_msg("element %lld: %.17g is not %.17g", (long long)i, a[i],
                     b[i]);
        }
    }
}

/* The sum of -weight . logp has the value and gradients of cross_entropy. */
static void test_cross_entropy(void **state)
{
    (void)state;
    const setting_t *s = &settings[2];
    loong_cross_entropy_attr_t attr = attr_of(s);
    loong_cross_entropy_attr_t loss = {.loss = 1, .vocab = s->vocab};
    double weight[MAX_TOKENS];
    double *one[LOONG_MAX_OPERANDS] = {NULL};
    double *other[LOONG_MAX_OPERANDS] = {NULL};
    backward_t b;
    op_case_t c = forward_case(s, &attr, LOONG_F64);
    op_case_t back = backward_case(s, &c, &b);
    op_case_outputs(&back, "token_logprob_grad_ref", one);
    c.op = "cross_entropy";
    c.attr = &loss;
    c.frame.loss_scale[1] = 1.0;
    c.num_in = 4;
    c.num_out = 3;
    c.arg[3].wide_values = weight;
    c.arg[5] = back.arg[6];
    c.arg[6] = back.arg[7];
    for (int64_t t = 0; t < s->tokens; t++) {
        weight[t] = -b.dlogp[t];
    }
    op_case_outputs(&c, "cross_entropy_ref", other);
    assert_near(one[0], other[1], s->tokens * s->hidden);
    assert_near(one[1], other[2], s->rows * s->hidden);
    for (int64_t t = 0; t < s->tokens; t++) {
        b.out[0][t] *= b.dlogp[t];
    }
    assert_near(b.out[0], other[0], s->tokens);
    for (int o = 0; o < 3; o++) {
        free(one[o]);
        free(other[o]);
    }
    backward_end(&b);
}

static void test_bad_label(void **state)
{
    (void)state;
    const setting_t *s = &settings[1];
    loong_cross_entropy_attr_t attr = attr_of(s);
    backward_t b;
    op_case_t c = forward_case(s, &attr, LOONG_F32);
    op_case_t back = backward_case(s, &c, &b);
    labels[4] = 97;
    for (int i = 0; i < 2; i++) {
        char text[512];
        assert_int_equal(op_case_status(i == 0 ? &c : &back, NULL, text),
                         LOONG_ERR_ARG);
        if (strstr(text, "label of row 4 is 97, must be in 0..96") == NULL) {
            fail_msg("%s", text);
        }
    }
    backward_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels),   cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_absent),    cmocka_unit_test(test_differences),
        cmocka_unit_test(test_bad_label), cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
