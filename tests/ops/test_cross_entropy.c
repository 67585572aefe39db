/* SPDX-License-Identifier: Apache-2.0
 *
 * cross_entropy: every kernel against the reference, with padded vocabulary,
 * ignored labels, z-loss, absent gradients, several chunks. */
#include "op_case.h"
#include "op_device.h"
#include "op_draw.h"

enum { MAX_TOKENS = 500 };

typedef struct setting {
    int64_t tokens, hidden, rows, vocab;
    double z_loss;
    bool add;
} setting_t;

static const setting_t settings[] = {
    {1, 1, 1, 1, 0.0, false},         {7, 5, 13, 13, 0.0, false},
    {33, 24, 100, 97, 1e-2, true},    {64, 48, 300, 290, 1e-4, false},
    {130, 17, 2049, 2049, 0.0, true},
};

static const loong_dtype_t types[] = {LOONG_F64, LOONG_F32, LOONG_BF16};

static int32_t labels[MAX_TOKENS];
static double weights[MAX_TOKENS];

static op_case_t make_case(const setting_t *s,
                           const loong_cross_entropy_attr_t *attr,
                           loong_dtype_t dtype)
{
    loong_dtype_t wide = dtype == LOONG_F64 ? LOONG_F64 : LOONG_F32;
    op_case_t c = {
        .op = "cross_entropy", .attr = attr, .num_in = 4, .num_out = 3};
    for (int64_t t = 0; t < s->tokens; t++) {
        labels[t] =
            t % 5 == 3 ? LOONG_IGNORE_LABEL : (int32_t)(t * 7919 % s->vocab);
        weights[t] = t % 4 == 1 ? 0.0 : 1.0 + (double)(t % 3);
    }
    c.arg[0] = op_mat(dtype, s->tokens, s->hidden);
    c.arg[1] = op_mat(dtype, s->rows, s->hidden);
    c.arg[1].scale = 2.0 / sqrt((double)s->hidden);
    c.arg[2] = op_vec(LOONG_I32, s->tokens);
    c.arg[2].values = labels;
    c.arg[3] = op_vec(wide, s->tokens);
    c.arg[3].wide_values = weights;
    c.arg[4] = op_vec(wide, s->tokens);
    c.arg[5] = op_mat(dtype, s->tokens, s->hidden);
    c.arg[6] = op_mat(wide, s->rows, s->hidden);
    c.accumulate = s->add ? 1u << 2 : 0;
    c.frame.loss_scale[1] = 0.37;
    /* The gradient of the logits and dx are rounded. */
    c.bound.roundings = 2;
    c.bound.terms = s->hidden + s->vocab + s->tokens;
    return c;
}

/* With a second pair of this width, to which gradients belong. */
static void add_second(op_case_t *c, const setting_t *s, int64_t width)
{
    op_arg_t made[3] = {c->arg[4], c->arg[5], c->arg[6]};
    loong_dtype_t dtype = c->arg[0].dtype;
    c->num_in = 6;
    c->num_out = 5;
    c->arg[4] = op_mat(dtype, s->tokens, width);
    c->arg[5] = op_mat(dtype, s->rows, width);
    memcpy(&c->arg[6], made, sizeof(made));
    c->arg[9] = op_mat(dtype, s->tokens, width);
    c->arg[10] = op_mat(c->arg[6].dtype, s->rows, width);
    c->accumulate |= c->accumulate << 2;
    c->bound.terms += width;
}

static void expect(int kernels, loong_dtype_t dtype)
{
    if (dtype != LOONG_F64 && kernels < 1) {
        fail_msg("only the reference supports %s", loong_dtype_name(dtype));
    }
}

static void test_reference(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(settings); i++) {
        for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
            loong_cross_entropy_attr_t attr = {.loss = 1,
                                               .vocab = settings[i].vocab,
                                               .z_loss = settings[i].z_loss};
            op_case_t c = make_case(&settings[i], &attr, types[t]);
            c.threads = 1 + (i + t) % 3;
            if (i % 2 == 1) {
                c.arg[0].gap = 3;
                c.arg[1].gap = 2;
                c.arg[5].gap = 1;
                c.arg[6].gap = 5;
            }
            expect(op_case_reference(&c), types[t]);
            add_second(&c, &settings[i], 1 + 3 * i);
            c.arg[4].gap = c.arg[10].gap = i;
            expect(op_case_reference(&c), types[t]);
        }
    }
}

static void test_drawn(void **state)
{
    (void)state;
    op_draw_t d = op_draw_begin(8);
    while (op_draw_next(&d)) {
        setting_t s = {op_draw_size(&d, 150), op_draw_size(&d, 70), 0,
                       op_draw_size(&d, 520), 0.0, op_draw_below(&d, 2) == 1};
        loong_dtype_t dtype = op_draw_dtype(&d);
        s.rows = s.vocab + op_draw_below(&d, 20); /* padding */
        s.z_loss = op_draw_below(&d, 2) * 1e-2;
        loong_cross_entropy_attr_t attr = {.loss = 1, .vocab = s.vocab,
                                           .z_loss = s.z_loss};
        op_case_t c = make_case(&s, &attr, dtype);
        for (int i = 0; i < 7; i++) {
            c.arg[i].gap = c.arg[i].rank > 1 ? op_draw_gap(&d) : 0;
        }
        c.threads = 1 + op_draw_below(&d, 3);
        c.seed = d.seed;
        expect(op_case_reference(&c), dtype);
    }
}

/* A label that is nearly certain: what is left of p - 1 is as exact as other
 * gradients (values that a drawn case had). */
static void test_certain(void **state)
{
    (void)state;
    const setting_t s = {3, 44, 7, 3, 1e-2, false};
    loong_cross_entropy_attr_t attr = {.loss = 1, .vocab = s.vocab,
                                       .z_loss = s.z_loss};
    op_case_t c = make_case(&s, &attr, LOONG_F32);
    c.seed = 4412;
    expect(op_case_reference(&c), LOONG_F32);
}

/* Gradients that nobody wants are absent. */
static void test_absent(void **state)
{
    (void)state;
    for (int mask = 0; mask < 3; mask++) {
        loong_cross_entropy_attr_t attr = {.loss = 1, .vocab = 290};
        op_case_t c = make_case(&settings[3], &attr, LOONG_F32);
        for (int o = 1; o < 3; o++) {
            if (!(mask & 1 << (o - 1))) {
                memset(&c.arg[4 + o], 0, sizeof(c.arg[4 + o]));
            }
        }
        expect(op_case_reference(&c), LOONG_F32);
        add_second(&c, &settings[3], 5);
        memset(&c.arg[9 + mask % 2], 0, sizeof(c.arg[9]));
        expect(op_case_reference(&c), LOONG_F32);
    }
}

/* Tokens with labels: none, all, some that lie together, one in seven. */
static void test_labels(void **state)
{
    (void)state;
    static const int first[] = {130, 0, 40, 3}, stride[] = {1, 1, 1, 7};
    for (int i = 0; i < 8; i++) {
        setting_t s = {130, 17, 300, 290, 1e-2, i >= 4};
        loong_cross_entropy_attr_t attr = {.loss = 1, .vocab = s.vocab,
                                           .z_loss = s.z_loss};
        op_case_t c = make_case(&s, &attr, i % 2 ? LOONG_F32 : LOONG_BF16);
        for (int t = 0; t < s.tokens; t++) {
            bool kept = t >= first[i % 4] && t % stride[i % 4] == 0;
            labels[t] = kept ? t * 2 : LOONG_IGNORE_LABEL;
        }
        expect(op_case_reference(&c), c.arg[0].dtype);
    }
}

/* Enough logits for three chunks, the last one shorter; chunks of a simulated
 * device are small. */
static void test_chunks(void **state)
{
    (void)state;
    bool cpu = strcmp(OP_DEVICE, "cpu") == 0;
    setting_t s = cpu ? (setting_t){433, 3, 100000, 99990, 0.0, false}
                      : (setting_t){13, 3, 6000, 5990, 0.0, false};
    loong_cross_entropy_attr_t attr = {.loss = 1, .vocab = s.vocab,
                                       .z_loss = s.z_loss};
    op_case_t c = make_case(&s, &attr, LOONG_BF16);
    c.arg[6].gap = 1;
    add_second(&c, &s, 2);
    expect(op_case_reference(&c), LOONG_BF16);
}

/* dx and dw are the gradients of loss_scale times the sum of the losses. */
static void test_differences(void **state)
{
    (void)state;
    setting_t s = {6, 5, 9, 8, 3e-2, false};
    loong_cross_entropy_attr_t attr = {.loss = 1, .vocab = s.vocab,
                                       .z_loss = s.z_loss};
    double *out[LOONG_MAX_OPERANDS] = {NULL};
    double scale[6];
    op_case_t c = make_case(&s, &attr, LOONG_F64);
    double *x = op_normal(s.tokens * s.hidden, 1, 1.0);
    double *w = op_normal(s.rows * s.hidden, 2, 1.0);
    c.arg[0].wide_values = x;
    c.arg[1].wide_values = w;
    op_case_outputs(&c, "cross_entropy_ref", out);
    for (int t = 0; t < 6; t++) {
        scale[t] = c.frame.loss_scale[1];
    }
    op_difference_t d = {&c, 0, 1, 1, {scale}, out[1], 1e-8};
    op_case_differences(&d);
    d.input = 1;
    d.grad = out[2];
    op_case_differences(&d);
    for (int i = 0; i < s.hidden; i++) {
        assert_true(out[2][8 * s.hidden + i] == 0.0); /* padding */
    }
    for (int o = 0; o < 3; o++) {
        free(out[o]);
    }
    add_second(&c, &s, 2);
    double *h = op_normal(s.tokens * 2, 3, 1.0);
    double *u = op_normal(s.rows * 2, 4, 1.0);
    c.arg[4].wide_values = h;
    c.arg[5].wide_values = u;
    op_case_outputs(&c, "cross_entropy_ref", out);
    static const int inputs[4] = {0, 1, 4, 5};
    for (int k = 0; k < 4; k++) {
        d.input = inputs[k];
        d.grad = out[1 + k];
        op_case_differences(&d);
    }
    for (int o = 0; o < 5; o++) {
        free(out[o]);
    }
    free(h);
    free(u);
    free(x);
    free(w);
}

static void test_bad_label(void **state)
{
    (void)state;
    static const char *const kernels[] = {NULL, "cross_entropy_ref"};
    static const int32_t bad[] = {13, -1, -101, INT32_MAX};
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 2; k++) {
            char text[512];
            char want[128];
            loong_cross_entropy_attr_t attr = {.loss = 1, .vocab = 13};
            op_case_t c = make_case(&settings[1], &attr, LOONG_F32);
            labels[4] = bad[i];
            assert_int_equal(op_case_status(&c, kernels[k], text),
                             LOONG_ERR_ARG);
            snprintf(want, sizeof(want),
                     "label of row 4 is %d, must be in 0..12", bad[i]);
            if (strstr(text, want) == NULL) {
                fail_msg("'%s' is not in: %s", want, text);
            }
        }
    }
}

/* A NaN in x must reach the loss of its token, and of no other. */
static void test_nan(void **state)
{
    (void)state;
    static float x[64 * 48];
    double *out[LOONG_MAX_OPERANDS] = {NULL};
    loong_cross_entropy_attr_t attr = {.loss = 1, .vocab = 290};
    op_case_t c = make_case(&settings[3], &attr, LOONG_F32);
    memset(x, 0, sizeof(x));
    x[6 * 48 + 5] = NAN;
    c.arg[0].values = x;
    op_case_outputs(&c, NULL, out);
    for (int t = 0; t < 64; t++) {
        assert_true((isnan(out[0][t]) != 0) == (t == 6));
    }
    for (int o = 0; o < 3; o++) {
        free(out[o]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),   cmocka_unit_test(test_absent),
        cmocka_unit_test(test_chunks),      cmocka_unit_test(test_labels),
        cmocka_unit_test(test_differences), cmocka_unit_test(test_bad_label),
        cmocka_unit_test(test_nan),         cmocka_unit_test(test_certain),
        cmocka_unit_test(test_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
