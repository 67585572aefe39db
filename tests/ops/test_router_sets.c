/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of experts for types of tokens: the router and its losses do with the
 * tokens of a type what they do without types on these tokens and the set's
 * experts alone. And whom experts keep, of drawn choices. */
#include "loong/moe.h"
#include "op_case.h"
#include "op_device.h"
#include "op_draw.h"

enum { TOKENS = 11, SETS = 2, EACH = 6, EXPERTS = SETS * EACH, K = 3 };

static const int32_t types[TOKENS] = {0, 1, 1, 0, 0, 1, 0, 0, 1, 0, 0};

static const loong_router_attr_t routers[] = {
    {K, LOONG_SCORE_SOFTMAX, false, 0, 0, 0, 1.0, false, 0, SETS,
     LOONG_WEIGHTS_AUTO},
    {K, LOONG_SCORE_SOFTMAX, true, 0, 0, 0, 2.5, false, 0, SETS,
     LOONG_WEIGHTS_AUTO},
    {K, LOONG_SCORE_SIGMOID, false, 3, 2, 2, 2.5, false, 0, SETS,
     LOONG_WEIGHTS_AUTO},
    {K, LOONG_SCORE_SQRTSOFTPLUS, false, 0, 0, 0, 1.0, false, 0, SETS,
     LOONG_WEIGHTS_AUTO},
    {K, LOONG_SCORE_SOFTMAX, false, 0, 0, 0, 1.0, true, 0, SETS,
     LOONG_WEIGHTS_AUTO},
};

/* Kernels of a device against the reference, in fp32. */
static void check_kernels(op_case_t c)
{
    for (int i = 0; i < c.num_in + c.num_out; i++) {
        c.arg[i].dtype =
            c.arg[i].dtype == LOONG_F64 ? LOONG_F32 : c.arg[i].dtype;
    }
    c.bound.roundings = 4;
    int kernels = op_case_reference(&c);
    if (strcmp(OP_DEVICE, "cpu") != 0 && kernels == 0) {
        fail_msg("no kernel of %s for %s", OP_DEVICE, c.op);
    }
}

static op_arg_t integers(int64_t rows, int64_t cols, const int32_t *values)
{
    op_arg_t arg = cols > 0 ? op_mat(LOONG_I32, rows, cols)
                            : op_vec(LOONG_I32, rows);
    arg.values = values;
    return arg;
}

static op_arg_t reals(int64_t rows, int64_t cols, const double *values)
{
    op_arg_t arg = op_mat(LOONG_F64, rows, cols);
    arg.wide_values = values;
    return arg;
}

/* Token t's logits and biases in its set. */
static const double *own(const double *row, int t)
{
    return row + types[t] * EACH;
}

/* One token and one set; *index receives experts of that set. */
static void route_alone(const loong_router_attr_t *sets, int t, const double *x,
                        const double *bias, double *out[])
{
    loong_router_attr_t attr = *sets;
    op_case_t c = {.op = "topk_router", .attr = &attr, .num_in = 2,
                   .num_out = 2};
    attr.sets = 0;
    attr.begin = t;
    c.arg[0] = reals(1, EACH, own(x + t * EXPERTS, t));
    c.arg[1] = op_vec(LOONG_F64, EACH);
    c.arg[1].wide_values = own(bias, t);
    c.arg[2] = op_mat(LOONG_F64, 1, K);
    c.arg[3] = op_mat(LOONG_I32, 1, K);
    op_case_outputs(&c, "topk_router_ref", out);
}

static op_case_t router_case(const loong_router_attr_t *attr, const double *x,
                             const double *bias)
{
    op_case_t c = {.op = "topk_router", .attr = attr, .num_in = 4,
                   .num_out = 2};
    c.arg[0] = reals(TOKENS, EXPERTS, x);
    c.arg[1] = op_vec(LOONG_F64, EXPERTS);
    c.arg[1].wide_values = bias;
    c.arg[3] = integers(TOKENS, 0, types);
    c.arg[4] = op_mat(LOONG_F64, TOKENS, K);
    c.arg[5] = op_mat(LOONG_I32, TOKENS, K);
    return c;
}

static void test_choice(void **state)
{
    (void)state;
    double *x = op_normal((int64_t)TOKENS * EXPERTS, 3, 2.0);
    double *bias = op_normal(EXPERTS, 4, 0.3);
    for (int64_t i = 0; i < LOONG_COUNT_OF(routers); i++) {
        double *out[LOONG_MAX_OPERANDS];
        op_case_t c = router_case(&routers[i], x, bias);
        op_case_outputs(&c, "topk_router_ref", out);
        op_case_threads(&c);
        check_kernels(c);
        for (int t = 0; t < TOKENS; t++) {
            double *alone[LOONG_MAX_OPERANDS];
            route_alone(&routers[i], t, x, bias, alone);
            for (int j = 0; j < K; j++) {
                assert_true(out[0][t * K + j] == alone[0][j]);
                assert_true(out[1][t * K + j] ==
                            alone[1][j] + types[t] * EACH);
            }
            free(alone[0]);
            free(alone[1]);
        }
        free(out[0]);
        free(out[1]);
    }
    free(x);
    free(bias);
}

/* Gradients of all logits, which are 0 in the other set. */
static void test_choice_gradient(void **state)
{
    (void)state;
    double *x = op_normal((int64_t)TOKENS * EXPERTS, 5, 2.0);
    double *bias = op_normal(EXPERTS, 6, 0.3);
    double *dw = op_normal((int64_t)TOKENS * K, 7, 1.0);
    for (int64_t i = 0; i < LOONG_COUNT_OF(routers); i++) {
        double *out[LOONG_MAX_OPERANDS];
        double *grad[LOONG_MAX_OPERANDS];
        int32_t index[TOKENS * K];
        op_case_t c = router_case(&routers[i], x, bias);
        op_case_outputs(&c, "topk_router_ref", out);
        for (int s = 0; s < TOKENS * K; s++) {
            index[s] = (int32_t)out[1][s];
        }
        op_case_t b = {.op = "topk_router_grad", .attr = &routers[i],
                       .num_in = 3, .num_out = 1};
        b.arg[0] = reals(TOKENS, K, dw);
        b.arg[1] = c.arg[0];
        b.arg[2] = integers(TOKENS, K, index);
        b.arg[3] = op_mat(LOONG_F64, TOKENS, EXPERTS);
        op_case_outputs(&b, "topk_router_grad_ref", grad);
        check_kernels(b);
        op_difference_t d = {&c, 0, 1, 1, {dw}, grad[0], 1e-8};
        op_case_differences(&d);
        free(out[0]);
        free(out[1]);
        free(grad[0]);
    }
    free(x);
    free(bias);
    free(dw);
}

/* By the reference kernel and by the device's. */
static void check_refused(op_case_t c, const char *text, const char *there)
{
    char said[512];
    assert_int_equal(op_case_status(&c, "topk_router_ref", said),
                     LOONG_ERR_ARG);
    assert_non_null(strstr(said, text));
    if (strcmp(OP_DEVICE, "cpu") != 0) {
        c.arg[0].dtype = c.arg[1].dtype = c.arg[4].dtype = LOONG_F32;
        assert_int_equal(op_case_status(&c, NULL, said), LOONG_ERR_ARG);
        /* Or as the processor's, where they are the simulator's. */
        assert_true(strstr(said, there) != NULL || strstr(said, text) != NULL);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const int32_t wrong[TOKENS] = {0, 1, 1, 0, 2};
    int32_t replayed[TOKENS * K];
    double *x = op_normal((int64_t)TOKENS * EXPERTS, 3, 2.0);
    double *bias = op_normal(EXPERTS, 4, 0.3);
    op_case_t c = router_case(&routers[0], x, bias);
    c.arg[3] = integers(TOKENS, 0, wrong);
    check_refused(c, "topk_router: operand 3 has 2 at 4, allowed 0 to 1",
                  "topk_router: operand 3 has 2 at 4, allowed 0 to 1");
    for (int s = 0; s < TOKENS * K; s++) {
        replayed[s] = types[s / K] * EACH + s % K;
    }
    replayed[5 * K + 1] = EACH - 1;
    c.arg[3] = integers(TOKENS, 0, types);
    c.arg[2] = integers(TOKENS, K, replayed);
    check_refused(c,
                  "topk_router: expert 5 for token 5 of type 1, which has 6 "
                  "to 11",
                  "topk_router: operand 2 has 5 at 16, allowed 6 to 11");
    free(x);
    free(bias);
}

/* How far each expert is above an even share in its set. */
static void test_excess(void **state)
{
    (void)state;
    static const int32_t index[4 * 2] = {0, 3, 5, 0, 7, 11, 0, 1};
    static const double want[EXPERTS] = {6 * 3 - 6, 0, -6, 0, -6, 0,
                                         -2, 4, -2, -2, -2, 4};
    loong_expert_excess_attr_t attr = {EXPERTS, SETS};
    double *out[LOONG_MAX_OPERANDS];
    op_case_t c = {.op = "expert_excess", .attr = &attr, .num_in = 1,
                   .num_out = 1};
    c.arg[0] = integers(4, 2, index);
    c.arg[1] = op_vec(LOONG_F64, EXPERTS);
    op_case_outputs(&c, "expert_excess_ref", out);
    check_kernels(c);
    for (int e = 0; e < EXPERTS; e++) {
        assert_true(out[0][e] == want[e]);
    }
    free(out[0]);
}

/* ---- losses -------------------------------------------------------------- */

/* What tokens of a type chose, of all sets. */
static void count(double counts[EXPERTS], int *tokens)
{
    memset(counts, 0, sizeof(double) * EXPERTS);
    tokens[0] = tokens[1] = 0;
    for (int t = 0; t < TOKENS; t++) {
        tokens[types[t]]++;
        for (int j = 0; j < K; j++) {
            counts[types[t] * EACH + (5 * t + 2 * j) % EACH] += 1.0;
        }
    }
}

static op_case_t loss_case(const loong_router_loss_attr_t *attr,
                           const double *x, const double *counts)
{
    op_case_t c = {.op = "router_loss", .attr = attr, .num_in = 3,
                   .num_out = 1};
    c.arg[0] = reals(TOKENS, EXPERTS, x);
    c.arg[1] = reals(1, EXPERTS, counts);
    c.arg[2] = integers(TOKENS, 0, types);
    c.arg[3] = op_vec(LOONG_F64, TOKENS);
    return c;
}

/* The loss of balance is, of each set, the mean over its own tokens of the loss
 * that they have when there are no others; the z-loss is that of each token. */
static void check_loss(double coeff, double z)
{
    double *x = op_normal((int64_t)TOKENS * EXPERTS, 8, 1.0);
    double counts[EXPERTS];
    int tokens[SETS];
    count(counts, tokens);
    for (int s = LOONG_SCORE_SOFTMAX; s <= LOONG_SCORE_SQRTSOFTPLUS; s++) {
        loong_router_loss_attr_t attr = {
            (loong_score_function_t)s, coeff * EACH / (K * TOKENS), z, TOKENS,
            0, SETS, (int64_t)K * TOKENS};
        double *out[LOONG_MAX_OPERANDS];
        double got[SETS] = {0.0}, want[SETS] = {0.0};
        op_case_t c = loss_case(&attr, x, counts);
        op_case_outputs(&c, "router_loss_ref", out);
        check_kernels(c);
        for (int t = 0; t < TOKENS; t++) {
            int n = tokens[types[t]];
            loong_router_loss_attr_t own_attr = {
                (loong_score_function_t)s, coeff * EACH / (K * (double)n), z,
                TOKENS, 0, 0, 0};
            double *alone[LOONG_MAX_OPERANDS];
            op_case_t o = {.op = "router_loss", .attr = &own_attr,
                           .num_in = 2, .num_out = 1};
            o.arg[0] = reals(1, EACH, own(x + t * EXPERTS, t));
            o.arg[1] = reals(1, EACH, own(counts, t));
            o.arg[2] = op_vec(LOONG_F64, 1);
            op_case_outputs(&o, "router_loss_ref", alone);
            got[types[t]] += out[0][t] / TOKENS;
            want[types[t]] += alone[0][0] / (z > 0.0 ? TOKENS : n);
            free(alone[0]);
        }
        for (int i = 0; i < SETS; i++) {
            assert_true(fabs(got[i] - want[i]) <= 1e-14 * want[i]);
        }
        free(out[0]);
    }
    free(x);
}

static void test_loss(void **state)
{
    (void)state;
    check_loss(0.01, 0.0);
    check_loss(0.0, 0.001);
}

static void test_loss_gradient(void **state)
{
    (void)state;
    double *x = op_normal((int64_t)TOKENS * EXPERTS, 8, 1.0);
    double *dl = op_normal(TOKENS, 9, 1.0);
    double counts[EXPERTS];
    int tokens[SETS];
    count(counts, tokens);
    for (int s = 0; s < 2 * (LOONG_SCORE_SQRTSOFTPLUS + 1); s++) {
        loong_router_loss_attr_t attr = {
            (loong_score_function_t)(s / 2), s % 2 == 0 ? 0.07 : 0.0, 0.3,
            TOKENS, 0, SETS, (int64_t)K * TOKENS};
        double *grad[LOONG_MAX_OPERANDS];
        op_case_t f = loss_case(&attr, x, counts);
        op_case_t b = {.op = "router_loss_grad", .attr = &attr, .num_in = 4,
                       .num_out = 1};
        b.arg[0] = op_vec(LOONG_F64, TOKENS);
        b.arg[0].wide_values = dl;
        b.arg[1] = f.arg[0];
        b.arg[2] = f.arg[1];
        b.arg[3] = f.arg[2];
        b.arg[4] = op_mat(LOONG_F64, TOKENS, EXPERTS);
        op_case_outputs(&b, "router_loss_grad_ref", grad);
        check_kernels(b);
        op_difference_t d = {&f, 0, 1, 1, {dl}, grad[0], 1e-8};
        op_case_differences(&d);
        free(grad[0]);
    }
    free(x);
    free(dl);
}

/* More slots than a block sorts; few different weights, of either sign, so that
 * many are equal. */
static void test_capacity_drawn(void **state)
{
    (void)state;
    op_draw_t d = op_draw_begin(6);
    while (op_draw_next(&d)) {
        int experts = (int)op_draw_size(&d, 70);
        int64_t tokens = op_draw_size(&d, 300);
        int k = 1 + op_draw_below(&d, LOONG_MIN(experts, 5));
        loong_expert_capacity_attr_t attr = {
            experts, op_draw_size(&d, (int)(tokens * k / experts) + 2),
            op_draw_below(&d, 4) == 0};
        int32_t *chosen = malloc(sizeof(*chosen) * (size_t)(tokens * k));
        double *w = malloc(sizeof(*w) * (size_t)(tokens * k));
        for (int64_t t = 0; t < tokens; t++) {
            int begin = op_draw_below(&d, 1 + experts / 2);
            for (int j = 0; j < k; j++) {
                chosen[t * k + j] = (begin + j) % experts;
                w[t * k + j] = (op_draw_below(&d, 9) - 3) * 0.125;
            }
        }
        op_case_t c = {.op = "expert_capacity", .attr = &attr, .num_in = 2,
                       .num_out = 1};
        c.arg[0] = integers(tokens, k, chosen);
        c.arg[1] = op_mat(LOONG_F64, tokens, k);
        c.arg[1].wide_values = w;
        c.arg[2] = op_mat(LOONG_I32, tokens, k);
        check_kernels(c);
        free(chosen);
        free(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_choice_gradient),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_excess),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_loss_gradient),
        cmocka_unit_test(test_capacity_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
