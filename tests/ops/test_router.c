/* SPDX-License-Identifier: Apache-2.0
 *
 * The router and its losses: choices against a plain second program, answers
 * worked out by hand, gradients against finite differences. */
#include "loong/moe.h"
#include "op_case.h"
#include "op_device.h"
#include "op_draw.h"

static const loong_dtype_t types[] = {LOONG_F64, LOONG_F32};

static op_arg_t integers(int64_t rows, int64_t cols, const int32_t *values)
{
    op_arg_t arg = op_mat(LOONG_I32, rows, cols);
    arg.values = values;
    return arg;
}

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

/* ---- router -------------------------------------------------------------- */

enum { TOKENS = 9, EXPERTS = 12 };

#define AUTO LOONG_WEIGHTS_AUTO
#define DIVIDED LOONG_WEIGHTS_DIVIDED
#define PLAIN LOONG_WEIGHTS_PLAIN
static const loong_router_attr_t routers[] = {
    {3, LOONG_SCORE_SOFTMAX, false, 0, 0, 0, 1.0, false, 0, 0, AUTO},
    {3, LOONG_SCORE_SOFTMAX, true, 0, 0, 0, 1.0, false, 0, 0, AUTO},
    {1, LOONG_SCORE_SOFTMAX, true, 0, 0, 0, 2.5, false, 0, 0, AUTO},
    {4, LOONG_SCORE_SIGMOID, false, 0, 0, 0, 2.5, false, 0, 0, AUTO},
    {1, LOONG_SCORE_SIGMOID, false, 0, 0, 0, 1.0, false, 0, 0, AUTO},
    {3, LOONG_SCORE_SQRTSOFTPLUS, false, 0, 0, 0, 1.5, false, 0, 0, AUTO},
    {4, LOONG_SCORE_SOFTMAX, true, 4, 2, 0, 16.0, false, 0, 0, AUTO},
    {4, LOONG_SCORE_SIGMOID, false, 3, 2, 0, 2.5, false, 0, 0, AUTO},
    {EXPERTS, LOONG_SCORE_SOFTMAX, false, 0, 0, 0, 1.0, false, 0, 0, AUTO},
    {5, LOONG_SCORE_SOFTMAX, false, 0, 0, 0, 1.0, false, 0, 0, AUTO},
    {5, LOONG_SCORE_SOFTMAX, true, 4, 2, 1, 3.0, false, 0, 0, AUTO},
    {3, LOONG_SCORE_SIGMOID, false, 3, 2, 2, 2.5, false, 0, 0, AUTO},
    {1, LOONG_SCORE_SIGMOID, false, 0, 0, 0, 2.5, false, 0, 0, DIVIDED},
    {4, LOONG_SCORE_SIGMOID, false, 3, 2, 2, 2.5, false, 0, 0, PLAIN},
    {3, LOONG_SCORE_SQRTSOFTPLUS, false, 0, 0, 0, 1.5, false, 0, 0, PLAIN},
};

static bool is_divided(const loong_router_attr_t *a)
{
    return a->score == LOONG_SCORE_SOFTMAX ? !a->pre_softmax
           : a->weights == AUTO            ? a->topk > 1
                                           : a->weights == DIVIDED;
}

/* Of softmax those that choose five. */
static bool takes_bias(const loong_router_attr_t *a)
{
    return a->score != LOONG_SCORE_SOFTMAX || a->topk == 5;
}

static op_case_t router_case(const loong_router_attr_t *attr,
                             loong_dtype_t dtype)
{
    op_case_t c = {.op = "topk_router", .attr = attr, .num_in = 2,
                   .num_out = 2};
    c.arg[0] = op_mat(dtype, TOKENS, EXPERTS);
    c.arg[0].scale = 2.0;
    if (takes_bias(attr)) {
        c.arg[1] = op_vec(dtype, EXPERTS);
        c.arg[1].scale = 0.2;
    }
    c.arg[2] = op_mat(dtype, TOKENS, attr->topk);
    c.arg[3] = op_mat(LOONG_I32, TOKENS, attr->topk);
    c.bound.roundings = 4;
    return c;
}

/* The choice once more, by sorting: scores of a token in falling order. */
static double score(const loong_router_attr_t *a, const double *x, int e)
{
    double sum = 0.0;
    switch (a->score) {
    case LOONG_SCORE_SIGMOID:
        return 1.0 / (1.0 + exp(-x[e]));
    case LOONG_SCORE_SQRTSOFTPLUS:
        return sqrt(log(1.0 + exp(x[e])));
    case LOONG_SCORE_SOFTMAX:
        break;
    }
    for (int i = 0; i < EXPERTS; i++) {
        sum += exp(x[i]);
    }
    return exp(x[e]) / sum;
}

static int by_falling(const void *a, const void *b)
{
    const double *x = a;
    const double *y = b;
    return (x[0] < y[0]) - (x[0] > y[0]);
}

/* key, expert; sorted. */
static void rank_experts(const loong_router_attr_t *a, const double *x,
                         const double *bias, double key[EXPERTS][2])
{
    for (int e = 0; e < EXPERTS; e++) {
        key[e][0] = score(a, x, e) + (bias != NULL ? bias[e] : 0.0);
        key[e][1] = e;
    }
    if (a->num_groups > 0) {
        int each = EXPERTS / a->num_groups;
        double group[EXPERTS][2];
        for (int g = 0; g < a->num_groups; g++) {
            double sorted[EXPERTS][2];
            memcpy(sorted, key[g * each], sizeof(key[0]) * (size_t)each);
            qsort(sorted, (size_t)each, sizeof(sorted[0]), by_falling);
            group[g][0] = 0.0;
            group[g][1] = g;
            int scores = a->group_scores > 0 ? a->group_scores
                                             : a->topk / a->group_topk;
            for (int j = 0; j < scores; j++) {
                group[g][0] += sorted[j][0];
            }
        }
        qsort(group, (size_t)a->num_groups, sizeof(group[0]), by_falling);
        for (int g = a->group_topk; g < a->num_groups; g++) {
            for (int i = 0; i < each; i++) {
                key[(int)group[g][1] * each + i][0] = -INFINITY;
            }
        }
    }
    qsort(key, EXPERTS, sizeof(key[0]), by_falling);
}

static void test_router(void **state)
{
    (void)state;
    double *x = op_normal((int64_t)TOKENS * EXPERTS, 5, 2.0);
    double *bias = op_normal(EXPERTS, 6, 0.2);
    for (int i = 0; i < LOONG_COUNT_OF(routers); i++) {
        const loong_router_attr_t *a = &routers[i];
        double *out[LOONG_MAX_OPERANDS];
        op_case_t c = router_case(a, LOONG_F64);
        c.arg[0].wide_values = x;
        c.arg[1].wide_values = takes_bias(a) ? bias : NULL;
        op_case_outputs(&c, "topk_router_ref", out);
        check_kernels(c);
        for (int t = 0; t < TOKENS; t++) {
            double key[EXPERTS][2];
            double sum = 0.0;
            rank_experts(a, x + t * EXPERTS, takes_bias(a) ? bias : NULL, key);
            for (int j = 0; j < a->topk; j++) {
                sum += score(a, x + t * EXPERTS, (int)key[j][1]);
            }
            bool divided = is_divided(a);
            for (int j = 0; j < a->topk; j++) {
                double w = score(a, x + t * EXPERTS, (int)key[j][1]) *
                           a->scaling_factor / (divided ? sum : 1.0);
                assert_int_equal((int)out[1][t * a->topk + j],
                                 (int)key[j][1]);
                assert_true(fabs(out[0][t * a->topk + j] - w) <= 1e-14 * w);
            }
        }
        free(out[0]);
        free(out[1]);
    }
    free(x);
    free(bias);
}

/* Equal scores: the lower index first; numbers that are none lose. */
static void test_router_ties(void **state)
{
    (void)state;
    static const double x[] = {1.0, 3.0, 3.0, 1.0, NAN, 2.0, NAN, 2.0};
    static const double want[] = {1, 2, 0, 1, 3, 0};
    loong_router_attr_t attr = {
        3, LOONG_SCORE_SOFTMAX, false, 0, 0, 0, 1.0, false, 0, 0,
        LOONG_WEIGHTS_AUTO};
    double *out[LOONG_MAX_OPERANDS];
    op_case_t c = {.op = "topk_router", .attr = &attr, .num_in = 1,
                   .num_out = 2};
    c.arg[0] = op_mat(LOONG_F64, 2, 4);
    c.arg[0].wide_values = x;
    c.arg[1] = op_mat(LOONG_F64, 2, 3);
    c.arg[2] = op_mat(LOONG_I32, 2, 3);
    op_case_outputs(&c, "topk_router_ref", out);
    for (int i = 0; i < 6; i++) {
        assert_int_equal((int)out[1][i], (int)want[i]);
    }
    free(out[0]);
    free(out[1]);
}

/* Experts in turn, with the weights that their scores give. */
static void test_forced(void **state)
{
    (void)state;
    loong_router_attr_t attr = {4, LOONG_SCORE_SIGMOID, false, 0, 0, 0, 1.0,
                                true, 5, 0, LOONG_WEIGHTS_AUTO};
    double *out[LOONG_MAX_OPERANDS];
    double *x = op_normal((int64_t)TOKENS * EXPERTS, 5, 2.0);
    op_case_t c = router_case(&attr, LOONG_F64);
    c.arg[0].wide_values = x;
    op_case_outputs(&c, "topk_router_ref", out);
    check_kernels(c);
    for (int t = 0; t < TOKENS; t++) {
        double sum = 0.0;
        for (int j = 0; j < 4; j++) {
            sum += score(&attr, x + t * EXPERTS, ((5 + t) * 4 + j) % EXPERTS);
        }
        for (int j = 0; j < 4; j++) {
            int e = ((5 + t) * 4 + j) % EXPERTS;
            assert_int_equal((int)out[1][t * 4 + j], e);
            assert_true(fabs(out[0][t * 4 + j] -
                             score(&attr, x + t * EXPERTS, e) / sum) <= 1e-14);
        }
    }
    free(out[0]);
    free(out[1]);
    free(x);
}

/* Replayed choices stay in their order, whatever groups and biases say, with
 * the weights that their scores give. */
static void test_replayed(void **state)
{
    (void)state;
    double *x = op_normal((int64_t)TOKENS * EXPERTS, 5, 2.0);
    double *bias = op_normal(EXPERTS, 6, 0.2);
    for (int i = 0; i < LOONG_COUNT_OF(routers); i++) {
        const loong_router_attr_t *a = &routers[i];
        double *out[LOONG_MAX_OPERANDS];
        int32_t given[TOKENS * EXPERTS];
        for (int s = 0; s < TOKENS * a->topk; s++) {
            given[s] = (s % a->topk * 5 + s / a->topk * 7) % EXPERTS;
        }
        op_case_t c = router_case(a, LOONG_F64);
        c.arg[4] = c.arg[3];
        c.arg[3] = c.arg[2];
        c.num_in = 3;
        c.arg[0].wide_values = x;
        c.arg[1].wide_values = takes_bias(a) ? bias : NULL;
        c.arg[2] = integers(TOKENS, a->topk, given);
        op_case_outputs(&c, "topk_router_ref", out);
        check_kernels(c);
        for (int t = 0; t < TOKENS; t++) {
            bool divided = is_divided(a);
            double sum = 0.0;
            for (int j = 0; j < a->topk; j++) {
                sum += score(a, x + t * EXPERTS, given[t * a->topk + j]);
            }
            for (int j = 0; j < a->topk; j++) {
                int e = given[t * a->topk + j];
                double w = score(a, x + t * EXPERTS, e) * a->scaling_factor /
                           (divided ? sum : 1.0);
                assert_int_equal((int)out[1][t * a->topk + j], e);
                assert_true(fabs(out[0][t * a->topk + j] - w) <= 1e-14 * w);
            }
        }
        free(out[0]);
        free(out[1]);
    }
    free(x);
    free(bias);
}

/* Weighted sum of the weights, differenced; logits so far apart that moving
 * one does not change the choice or its order. */
static void test_router_gradient(void **state)
{
    (void)state;
    double *x = op_normal((int64_t)TOKENS * EXPERTS, 5, 0.01);
    for (int i = 0; i < TOKENS * EXPERTS; i++) {
        x[i] += 0.3 * ((i % EXPERTS * 5 + i / EXPERTS * 7) % EXPERTS) - 1.5;
    }
    double *dw = op_normal((int64_t)TOKENS * EXPERTS, 7, 1.0);
    double *bias = op_normal(EXPERTS, 6, 0.2);
    for (int i = 0; i < LOONG_COUNT_OF(routers); i++) {
        double *out[LOONG_MAX_OPERANDS];
        double *grad[LOONG_MAX_OPERANDS];
        int32_t chosen[TOKENS * EXPERTS];
        op_case_t f = router_case(&routers[i], LOONG_F64);
        f.arg[0].wide_values = x;
        f.arg[1].wide_values = takes_bias(&routers[i]) ? bias : NULL;
        op_case_outputs(&f, "topk_router_ref", out);
        for (int k = 0; k < TOKENS * routers[i].topk; k++) {
            chosen[k] = (int32_t)out[1][k];
        }
        op_case_t b = {.op = "topk_router_grad", .attr = &routers[i],
                       .num_in = 3, .num_out = 1};
        b.arg[0] = f.arg[2];
        b.arg[0].wide_values = dw;
        b.arg[1] = f.arg[0];
        b.arg[2] = integers(TOKENS, routers[i].topk, chosen);
        b.arg[3] = op_mat(LOONG_F64, TOKENS, EXPERTS);
        op_case_outputs(&b, "topk_router_grad_ref", grad);
        check_kernels(f);
        check_kernels(b);
        op_difference_t d = {&f, 0, 1, 2, {dw, NULL}, grad[0], 1e-7};
        bool constant = is_divided(&routers[i]) && routers[i].topk == 1;
        for (int e = 0; constant && e < TOKENS * EXPERTS; e++) {
            assert_true(fabs(grad[0][e]) <= 1e-14); /* the weight is 1 */
        }
        if (!constant) {
            op_case_differences(&d);
        }
        free(out[0]);
        free(out[1]);
        free(grad[0]);
    }
    free(x);
    free(dw);
    free(bias);
}

static void test_router_types(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(routers); i++) {
        for (int t = 0; t < 2; t++) {
            op_case_t c = router_case(&routers[i], types[t]);
            c.compare = 1;
            op_case_reference(&c);
            op_case_threads(&c);
        }
    }
}

/* Logits so far apart that fp32 chooses as fp64 does, groups' sums too. */
static double *drawn_logits(op_draw_t *d, int64_t tokens, int groups, int each)
{
    double *x = malloc(sizeof(double) * (size_t)(tokens * groups * each));
    for (int64_t t = 0; t < tokens; t++) {
        int turn[2] = {op_draw_below(d, groups), op_draw_below(d, each)};
        for (int e = 0; e < groups * each; e++) {
            int g = (e / each + turn[0]) % groups;
            x[t * groups * each + e] =
                3.0643 * g / groups +
                3.0 * ((e + turn[1] * (g + 1)) % each) / each - 3.0;
        }
    }
    return x;
}

static void test_drawn(void **state)
{
    (void)state;
    op_draw_t d = op_draw_begin(8);
    while (op_draw_next(&d)) {
        loong_router_attr_t a = routers[op_draw_below(&d, 3) * 2 + 1];
        int groups = 1 << op_draw_below(&d, 4);
        int each = (int)op_draw_size(&d, 65);
        int64_t tokens = op_draw_size(&d, 70);
        a.num_groups = groups > 1 ? groups : 0;
        a.group_topk = groups > 1 ? 1 + op_draw_below(&d, groups) : 0;
        a.group_scores = groups > 1 ? 1 + op_draw_below(&d, each) : 0;
        a.topk = 1 + op_draw_below(
                         &d, LOONG_MIN(each * LOONG_MAX(a.group_topk, 1), 12));
        double *x = drawn_logits(&d, tokens, groups, each);
        double *out[LOONG_MAX_OPERANDS];
        op_case_t c = {.op = "topk_router", .attr = &a, .num_in = 1,
                       .num_out = 2, .seed = d.seed};
        c.arg[0] = op_mat(LOONG_F64, tokens, (int64_t)groups * each);
        c.arg[0].wide_values = x;
        c.arg[1] = op_mat(LOONG_F64, tokens, a.topk);
        c.arg[2] = op_mat(LOONG_I32, tokens, a.topk);
        check_kernels(c);
        op_case_outputs(&c, "topk_router_ref", out);
        int32_t *chosen = malloc(sizeof(*chosen) * (size_t)(tokens * a.topk));
        for (int64_t i = 0; i < tokens * a.topk; i++) {
            chosen[i] = (int32_t)out[1][i];
        }
        op_case_t g = {.op = "topk_router_grad", .attr = &a, .num_in = 3,
                       .num_out = 1, .seed = d.seed,
                       .arg = {c.arg[1], c.arg[0],
                               integers(tokens, a.topk, chosen), c.arg[0]}};
        g.bound.terms = (int64_t)groups * each;
        check_kernels(g);
        free(chosen);
        free(out[0]);
        free(out[1]);
        free(x);
    }
}

/* ---- losses of the router ------------------------------------------------ */

static const int32_t choices[TOKENS * 2] = {0, 3, 3, 1,  0, 2, 11, 3, 7,
                                            3, 0, 1, 10, 4, 3, 0,  5, 6};

/* Two spans of 8 tokens of which the rank has 5 to 13. */
static void test_counts(void **state)
{
    (void)state;
    static const int32_t kept[TOKENS * 2] = {
        -1, 3, 3, 1, 0, 2, 11, 3, 7, 3, 0, 1, 10, 4, 3, 0, 5, -1};
    loong_expert_counts_attr_t attr = {EXPERTS, 2, 8, 5};
    double *out[LOONG_MAX_OPERANDS];
    char text[512];
    op_case_t c = {.op = "expert_counts", .attr = &attr, .num_in = 1,
                   .num_out = 1};
    c.arg[0] = integers(TOKENS, 2, kept);
    c.arg[1] = op_mat(LOONG_F64, 2, EXPERTS);
    op_case_outputs(&c, "expert_counts_ref", out);
    check_kernels(c);
    static const double want[2 * EXPERTS] = {
        1, 1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0,
        2, 1, 0, 3, 1, 1, 0, 1, 0, 0, 1, 1};
    assert_memory_equal(out[0], want, sizeof(want));
    free(out[0]);
    attr.experts = 11;
    assert_int_equal(op_case_status(&c, "expert_counts_ref", text),
                     LOONG_ERR_ARG);
    assert_non_null(strstr(
        text, "expert_counts: operand 0 has 11 at 6, allowed -1 to 10"));
}

/* Experts of two tokens each, against counting those that come before. */
static void test_capacity(void **state)
{
    (void)state;
    double *w = op_normal((int64_t)TOKENS * 2, 12, 1.0);
    w[1] = w[2] = w[9] * (1.0 - 4e-16); /* of expert 3; equal in fp32 */
    for (int place = 0; place < 2; place++) {
        loong_expert_capacity_attr_t attr = {EXPERTS, 2, place != 0};
        double *out[LOONG_MAX_OPERANDS];
        int dropped = 0;
        op_case_t c = {.op = "expert_capacity", .attr = &attr, .num_in = 2,
                       .num_out = 1};
        c.arg[0] = integers(TOKENS, 2, choices);
        c.arg[1] = op_mat(LOONG_F64, TOKENS, 2);
        c.arg[1].wide_values = w;
        c.arg[2] = op_mat(LOONG_I32, TOKENS, 2);
        op_case_outputs(&c, "expert_capacity_ref", out);
        check_kernels(c);
        for (int s = 0; s < TOKENS * 2; s++) {
            int before = 0;
            for (int r = 0; r < TOKENS * 2; r++) {
                float more = place != 0 ? 0.0f : (float)w[r] - (float)w[s];
                before += choices[r] == choices[s] &&
                          (more > 0.0f || (more == 0.0f && r < s));
            }
            assert_int_equal((int)out[0][s], before < 2 ? choices[s] : -1);
            dropped += before >= 2;
        }
        assert_int_equal(dropped, 5); /* two of expert 0, three of 3 */
        free(out[0]);
    }
    free(w);
}

/* Expert 3 is chosen five times of 18, by twelve experts. */
static void test_excess(void **state)
{
    (void)state;
    static const double counts[EXPERTS] = {4, 2, 1, 5, 1, 1, 1, 1, 0, 0, 1, 1};
    loong_expert_excess_attr_t attr = {EXPERTS, 0};
    double *out[LOONG_MAX_OPERANDS];
    char text[512];
    op_case_t c = {.op = "expert_excess", .attr = &attr, .num_in = 1,
                   .num_out = 1};
    c.arg[0] = integers(TOKENS, 2, choices);
    c.arg[1] = op_vec(LOONG_F64, EXPERTS);
    op_case_outputs(&c, "expert_excess_ref", out);
    check_kernels(c);
    for (int e = 0; e < EXPERTS; e++) {
        assert_true(out[0][e] == EXPERTS * counts[e] - 2.0 * TOKENS);
    }
    free(out[0]);
    attr.experts = 11;
    assert_int_equal(op_case_status(&c, "expert_excess_ref", text),
                     LOONG_ERR_ARG);
    assert_non_null(
        strstr(text, "expert_excess: operand 0 has 11 at 6, allowed 0 to 10"));
}

/* One span, all tokens: Megatron's load balancing loss and z-loss. */
static void test_loss(void **state)
{
    (void)state;
    const double coeff = 0.01, z = 0.001;
    double *x = op_normal((int64_t)TOKENS * EXPERTS, 8, 1.0);
    double counts[EXPERTS] = {0};
    double sums[EXPERTS] = {0};
    double want = 0.0, got = 0.0;
    for (int i = 0; i < TOKENS * 2; i++) {
        counts[choices[i]] += 1.0;
    }
    for (int t = 0; t < TOKENS; t++) {
        double sum = 0.0;
        for (int e = 0; e < EXPERTS; e++) {
            sum += exp(x[t * EXPERTS + e]);
        }
        for (int e = 0; e < EXPERTS; e++) {
            sums[e] += exp(x[t * EXPERTS + e]) / sum;
        }
        want += z * log(sum) * log(sum) / TOKENS;
    }
    for (int e = 0; e < EXPERTS; e++) {
        want += sums[e] * counts[e] * EXPERTS * coeff /
                (2.0 * TOKENS * TOKENS);
    }
    loong_router_loss_attr_t attr = {LOONG_SCORE_SOFTMAX,
                                     coeff * EXPERTS / (2.0 * TOKENS), z,
                                     TOKENS, 0, 0, 0};
    double *out[LOONG_MAX_OPERANDS];
    op_case_t c = {.op = "router_loss", .attr = &attr, .num_in = 2,
                   .num_out = 1};
    c.arg[0] = op_mat(LOONG_F64, TOKENS, EXPERTS);
    c.arg[0].wide_values = x;
    c.arg[1] = op_mat(LOONG_F64, 1, EXPERTS);
    c.arg[1].wide_values = counts;
    c.arg[2] = op_vec(LOONG_F64, TOKENS);
    op_case_outputs(&c, "router_loss_ref", out);
    check_kernels(c);
    for (int t = 0; t < TOKENS; t++) {
        got += out[0][t] / TOKENS;
    }
    assert_true(fabs(got - want) <= 1e-14 * want);
    free(out[0]);
    free(x);
}

static void check_loss_gradient(const loong_router_loss_attr_t *attr)
{
    double *x = op_normal((int64_t)TOKENS * EXPERTS, 8, 1.0);
    double *dl = op_normal(TOKENS, 9, 1.0);
    double *counts = op_normal(2 * EXPERTS, 10, 3.0);
    double *grad[LOONG_MAX_OPERANDS];
    op_case_t f = {.op = "router_loss", .attr = attr, .num_in = 2,
                   .num_out = 1};
    f.arg[0] = op_mat(LOONG_F64, TOKENS, EXPERTS);
    f.arg[0].wide_values = x;
    if (attr->aux != 0.0) {
        f.arg[1] = op_mat(LOONG_F64, 2, EXPERTS);
        f.arg[1].wide_values = counts;
    }
    f.arg[2] = op_vec(LOONG_F64, TOKENS);
    op_case_t b = {.op = "router_loss_grad", .attr = attr, .num_in = 3,
                   .num_out = 1};
    b.arg[0] = f.arg[2];
    b.arg[0].wide_values = dl;
    b.arg[1] = f.arg[0];
    b.arg[2] = f.arg[1];
    b.arg[3] = op_mat(LOONG_F64, TOKENS, EXPERTS);
    op_case_outputs(&b, "router_loss_grad_ref", grad);
    op_difference_t d = {&f, 0, 1, 1, {dl}, grad[0], 1e-8};
    op_case_differences(&d);
    f.bound.terms = b.bound.terms = EXPERTS;
    check_kernels(f);
    check_kernels(b);
    free(grad[0]);
    free(x);
    free(dl);
    free(counts);
}

static void test_loss_gradient(void **state)
{
    (void)state;
    for (int s = LOONG_SCORE_SOFTMAX; s <= LOONG_SCORE_SQRTSOFTPLUS; s++) {
        loong_router_loss_attr_t both = {(loong_score_function_t)s, 0.7, 0.3,
                                         8, 5, 0, 0};
        loong_router_loss_attr_t z = {(loong_score_function_t)s, 0.0, 0.3, 8,
                                      5, 0, 0};
        check_loss_gradient(&both);
        check_loss_gradient(&z);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_router),
        cmocka_unit_test(test_router_ties),
        cmocka_unit_test(test_router_gradient),
        cmocka_unit_test(test_router_types),
        cmocka_unit_test(test_drawn),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_forced),
        cmocka_unit_test(test_replayed),
        cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_excess),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_loss_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
