/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases of raw kernels of experts; read raw_cases.h before. Called by
 * test_raw.c. */
#include "loong/moe.h"
#include "raw_cases.h"

static op_arg_t like(const variant_t *v)
{
    return raw_mat(v, v->rows, v->cols);
}

static op_arg_t wide(int64_t n)
{
    return op_vec(LOONG_F32, n);
}

static op_arg_t ints(int64_t rows, int64_t cols, const int32_t *values)
{
    op_arg_t a = op_mat(LOONG_I32, rows, cols);
    a.values = values;
    return a;
}

static void operands(op_case_t *c, int num_in, int num_out)
{
    c->num_in = num_in;
    c->num_out = num_out;
}

/* ---- experts ------------------------------------------------------------- */

enum { EXPERTS = 12, CHOSEN = 3 };

static int32_t chosen[MOST * CHOSEN];

/* Different ones for each token; every fourth last choice is none, unless all
 * are wanted. */
static op_arg_t choices(const variant_t *v, bool all)
{
    for (int32_t t = 0; t < v->rows; t++) {
        for (int32_t j = 0; j < CHOSEN; j++) {
            bool none = !all && j == CHOSEN - 1 && t % 4 == 1;
            chosen[t * CHOSEN + j] = none ? -1 : (t * 5 + 4 * j) % EXPERTS;
        }
    }
    return ints(v->rows, CHOSEN, chosen);
}

static op_arg_t logits(const variant_t *v)
{
    op_arg_t a = op_mat(LOONG_F32, v->rows, EXPERTS);
    a.scale = 2.0;
    return a;
}

static const loong_router_attr_t routers[] = {
    {.topk = CHOSEN, .score = LOONG_SCORE_SOFTMAX, .scaling_factor = 1.0},
    {.topk = CHOSEN,
     .score = LOONG_SCORE_SOFTMAX,
     .pre_softmax = true,
     .scaling_factor = 2.0},
    {.topk = CHOSEN,
     .score = LOONG_SCORE_SIGMOID,
     .num_groups = 4,
     .group_topk = 2,
     .group_scores = 2,
     .scaling_factor = 2.5},
    {.topk = CHOSEN, .score = LOONG_SCORE_SQRTSOFTPLUS, .scaling_factor = 1.5},
};

static void router(const variant_t *v, op_case_t *c)
{
    c->attr = &routers[v->bits / OPTION];
    operands(c, 2, 2);
    c->arg[0] = logits(v);
    if (v->bits / OPTION >= 2) {
        c->arg[1] = wide(EXPERTS);
    }
    c->arg[2] = op_mat(LOONG_F32, v->rows, CHOSEN);
    c->arg[3] = op_mat(LOONG_I32, v->rows, CHOSEN);
    c->bound.roundings = 4;
}

static void router_grad(const variant_t *v, op_case_t *c)
{
    c->attr = &routers[v->bits / OPTION];
    operands(c, 3, 1);
    c->arg[0] = op_mat(LOONG_F32, v->rows, CHOSEN);
    c->arg[1] = c->arg[3] = logits(v);
    c->arg[2] = choices(v, true);
    c->bound.roundings = 4;
}

static void router_loss(const variant_t *v, op_case_t *c)
{
    static loong_router_loss_attr_t attr;
    attr = (loong_router_loss_attr_t){
        .score = v->bits & OPTION ? LOONG_SCORE_SIGMOID : LOONG_SCORE_SOFTMAX,
        .aux = 0.3,
        .z = 0.2,
        .span = 1000,
    };
    c->attr = &attr;
    operands(c, 2, 1);
    c->arg[0] = logits(v);
    c->arg[1] = op_mat(LOONG_F32, 1, EXPERTS);
    c->arg[2] = wide(v->rows);
    c->bound.roundings = 4;
    c->bound.terms = EXPERTS;
}

static void router_loss_grad(const variant_t *v, op_case_t *c)
{
    op_case_t f = {.op = "router_loss"};
    router_loss(v, &f);
    c->attr = f.attr;
    operands(c, 3, 1);
    c->arg[0] = f.arg[2];
    c->arg[1] = c->arg[3] = f.arg[0];
    c->arg[2] = f.arg[1];
    c->bound = f.bound;
}

static void expert_counts(const variant_t *v, op_case_t *c)
{
    static loong_expert_counts_attr_t attr;
    attr = (loong_expert_counts_attr_t){EXPERTS, 3, v->rows / 2 + 1, 1};
    c->attr = &attr;
    operands(c, 1, 1);
    c->arg[0] = choices(v, false);
    c->arg[1] = op_mat(LOONG_F32, 3, EXPERTS);
}

static void expert_excess(const variant_t *v, op_case_t *c)
{
    static const loong_expert_excess_attr_t attr = {EXPERTS, 2};
    c->attr = &attr;
    operands(c, 1, 1);
    c->arg[0] = choices(v, true);
    c->arg[1] = wide(EXPERTS);
}

/* Weights of few values, so that many are equal; with the option the first
 * slots stay, whatever they weigh. */
static void expert_capacity(const variant_t *v, op_case_t *c)
{
    static loong_expert_capacity_attr_t attr;
    static double weights[MOST * CHOSEN];
    attr = (loong_expert_capacity_attr_t){EXPERTS, v->rows / 5 + 1,
                                          (v->bits & OPTION) != 0};
    for (int i = 0; i < MOST * CHOSEN; i++) {
        weights[i] = (i * 7 % 9 - 3) * 0.125;
    }
    c->attr = &attr;
    operands(c, 2, 1);
    c->arg[0] = choices(v, true);
    c->arg[1] = op_mat(LOONG_F32, v->rows, CHOSEN);
    c->arg[1].wide_values = weights;
    c->arg[2] = op_mat(LOONG_I32, v->rows, CHOSEN);
}

static void expert_order(const variant_t *v, op_case_t *c)
{
    static loong_expert_order_attr_t attr;
    attr = (loong_expert_order_attr_t){EXPERTS, v->bits & OPTION ? 4 : 0,
                                       v->bits & OPTION ? 6 : EXPERTS, 0};
    c->attr = &attr;
    operands(c, 1, 3);
    c->arg[0] = choices(v, false);
    c->arg[1] = op_vec(LOONG_I32, attr.count + 1);
    c->arg[2] = op_vec(LOONG_I32, v->rows * CHOSEN);
    c->arg[3] = op_mat(LOONG_I32, v->rows, CHOSEN);
}

static const loong_expert_window_attr_t window_attr = {EXPERTS, 0, 4, 5};

static void expert_rounds(const variant_t *v, op_case_t *c)
{
    c->attr = &window_attr;
    operands(c, 1, 2);
    c->arg[0] = choices(v, false);
    c->arg[1] = op_vec(LOONG_I32, 1);
    c->arg[2] = wide(1);
}

static void expert_window(const variant_t *v, op_case_t *c)
{
    c->attr = &window_attr;
    operands(c, 1, 1);
    c->arg[0] = choices(v, false);
    c->arg[1] = op_mat(LOONG_I32, v->rows, CHOSEN);
    c->round = v->bits & OPTION ? 1 : 0;
}

/* The second of two ranks that have half of the tokens each. */
static void expert_routes(const variant_t *v, op_case_t *c)
{
    static const loong_expert_routes_attr_t attr = {
        .size = 2, .rank = 1, .experts = EXPERTS, .copies = 1};
    variant_t even = *v;
    even.rows = (v->rows + 1) / 2 * 2;
    int64_t own = even.rows / 2;
    c->attr = &attr;
    operands(c, 1, 4);
    c->arg[0] = choices(&even, false);
    c->arg[1] = op_vec(LOONG_I32, 2 * own);
    c->arg[2] = op_mat(LOONG_I32, own, 2);
    c->arg[3] = op_mat(LOONG_I32, 2, 2);
    c->arg[4] = op_mat(LOONG_I32, even.rows, CHOSEN);
}

static void unpermute_dw(const variant_t *v, op_case_t *c)
{
    static int32_t dest[2 * MOST];
    int32_t rows = 0;
    for (int64_t s = 0; s < 2 * v->rows; s++) {
        dest[s] = s % 3 == 2 ? -1 : rows++;
    }
    operands(c, 3, 1);
    c->arg[0] = like(v);
    c->arg[1] = raw_mat(v, rows, v->cols);
    c->arg[2] = ints(v->rows, 2, dest);
    c->arg[3] = op_mat(LOONG_F32, v->rows, 2);
    c->accumulate = v->bits & SUM ? 1 : 0;
}

static void sigmoid_gate(const variant_t *v, op_case_t *c)
{
    operands(c, 2, 1);
    c->arg[0] = c->arg[2] = like(v);
    c->arg[1] = raw_mat(v, v->rows, 1);
}

static void sigmoid_gate_grad(const variant_t *v, op_case_t *c)
{
    operands(c, 3, 2);
    c->arg[0] = c->arg[1] = c->arg[3] = like(v);
    c->arg[2] = c->arg[4] = raw_mat(v, v->rows, 1);
}

const raw_case_t raw_cases_experts[] = {
    {"topk_router", router},
    {"topk_router_grad", router_grad},
    {"router_loss", router_loss},
    {"router_loss_grad", router_loss_grad},
    {"expert_counts", expert_counts},
    {"expert_excess", expert_excess},
    {"expert_capacity", expert_capacity},
    {"expert_order", expert_order},
    {"expert_rounds", expert_rounds},
    {"expert_window", expert_window},
    {"expert_routes", expert_routes},
    {"unpermute_dw", unpermute_dw},
    {"sigmoid_gate", sigmoid_gate},
    {"sigmoid_gate_grad", sigmoid_gate_grad},
    {NULL, NULL},
};
