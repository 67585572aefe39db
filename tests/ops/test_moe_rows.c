/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of experts: which of them are of a round, and that the rows behind the
 * last are neither read nor written. */
#include "loong/moe.h"
#include "moe_case.h"
#include "op_draw.h"

/* ---- rounds -------------------------------------------------------------- */

/* Of the case of a window. A device shows its host the number, from memory that
 * it takes when it is loaded; tests/sim/cuda/test_dispatch.c has it. */
static int64_t rounds_of(op_case_t c)
{
    double *out[LOONG_MAX_OPERANDS];
    c.op = "expert_rounds";
    c.arg[1] = op_vec(LOONG_I32, 1);
    if (strcmp(OP_DEVICE, "cpu") == 0) {
        op_case_reference(&c);
    }
    op_case_outputs(&c, "expert_rounds_ref", out);
    int64_t rounds = (int64_t)out[0][0];
    free(out[0]);
    return rounds;
}

/* 6 experts on 3 ranks, 3 slots a round: what the tokens chose of rank 0 is 7
 * rows, so its rows 0 .. 2, those of the next tokens, and what is left. */
static void test_window(void **state)
{
    (void)state;
    enum { TOKENS = 7, EACH = 2, ROUNDS = 3 };
    static const int32_t chosen[TOKENS * EACH] = {0, 1,  0, 2, 1, 0, 5,
                                                  4, -1, 3, 1, 0, 3, -1};
    /* the round of each: rows of ranks 0, 1, 2 before it are 0 0 0, 2 0 0,
     * 3 1 0, 5 1 0, 5 1 2, 5 2 2, 7 2 2 */
    static const int32_t of[TOKENS * EACH] = {0, 0,  0, 0, 1, 1, 0,
                                              0, -1, 0, 1, 1, 0, -1};
    static const loong_expert_window_attr_t attr = {6, 0, 3, 3};
    double *out[LOONG_MAX_OPERANDS];
    op_case_t c = {.op = "expert_window", .attr = &attr, .num_in = 1,
                   .num_out = 1};
    c.arg[0] = integers(TOKENS, EACH, chosen);
    c.arg[1] = op_mat(LOONG_I32, TOKENS, EACH);
    for (c.round = 0; c.round < ROUNDS; c.round++) {
        op_case_reference(&c);
        op_case_outputs(&c, "expert_window_ref", out);
        for (int s = 0; s < TOKENS * EACH; s++) {
            assert_int_equal((int)out[0][s],
                             of[s] == c.round ? chosen[s] : -1);
        }
        free(out[0]);
    }
    assert_int_equal(rounds_of(c), ROUNDS);
}

/* How tokens choose: anyhow, all the same experts, those of one rank alone, or
 * none at all. */
static int32_t choice_of(op_draw_t *d, int kind, int experts, int64_t j)
{
    switch (kind) {
    case 0:
        return (int32_t)op_draw_below(d, experts + 1) - 1;
    case 1:
        return (int32_t)(j % experts);
    case 2:
        return j == 0 ? 0 : -1;
    default:
        return -1;
    }
}

/* Each choice is of one round, of the same as the token's others on the rank,
 * of no earlier one than those of tokens before; no round has more than slots
 * + k - 1 rows of a rank. There are as many rounds as a rank's rows fill: the
 * last has rows, but where those of one token begin in the round before it. */
static void check_rounds(op_case_t c, int64_t rounds)
{
    const loong_expert_window_attr_t *a = c.attr;
    const int32_t *chosen = c.arg[0].values;
    int64_t tokens = c.arg[0].dim[0];
    int64_t k = c.arg[0].dim[1];
    int *of = malloc(sizeof(*of) * (size_t)(tokens * k));
    double *out[LOONG_MAX_OPERANDS];
    for (int64_t s = 0; s < tokens * k; s++) {
        of[s] = -1;
    }
    for (c.round = 0; c.round < rounds; c.round++) {
        op_case_reference(&c);
        op_case_outputs(&c, "expert_window_ref", out);
        for (int64_t s = 0; s < tokens * k; s++) {
            if (out[0][s] >= 0.0) {
                assert_int_equal((int)out[0][s], chosen[s]);
                assert_int_equal(of[s], -1);
                of[s] = (int)c.round;
            }
        }
        free(out[0]);
    }
    int64_t last = 0;
    int64_t filled = 1;
    for (int r = 0; r < a->ranks; r++) {
        int64_t rows = 0;
        int64_t all = 0;
        int now = 0;
        for (int64_t s = 0; s < tokens * k; s++) {
            int each = a->experts / a->ranks;
            if (chosen[s] < 0 || chosen[s] / each != r) {
                assert_true(chosen[s] >= 0 || of[s] == -1);
                continue;
            }
            assert_true(of[s] >= now);
            rows = of[s] > now ? 1 : rows + 1;
            now = of[s];
            all++;
            assert_true(rows <= a->slots + k - 1);
        }
        last = LOONG_MAX(last, now);
        filled = LOONG_MAX(filled, (all + a->slots - 1) / a->slots);
    }
    assert_int_equal(rounds, filled);
    assert_in_range(last, LOONG_MAX(rounds - 1 - (k - 1), 0), rounds - 1);
    free(of);
}

static void test_window_drawn(void **state)
{
    (void)state;
    op_draw_t d = op_draw_begin(8);
    for (int i = 0; op_draw_next(&d); i++) {
        int ranks = 1 + op_draw_below(&d, 4);
        int experts = ranks * (1 + op_draw_below(&d, 4));
        int64_t tokens = op_draw_size(&d, 60);
        int64_t k = 1 + op_draw_below(&d, LOONG_MIN(experts, 4));
        loong_expert_window_attr_t attr = {experts, 0, ranks,
                                           op_draw_size(&d, 30)};
        int32_t *chosen = malloc(sizeof(*chosen) * (size_t)(tokens * k));
        for (int64_t s = 0; s < tokens * k; s++) {
            chosen[s] = choice_of(&d, i % 4, experts, s % k);
        }
        op_case_t c = {.op = "expert_window", .attr = &attr, .num_in = 1,
                       .num_out = 1};
        c.arg[0] = integers(tokens, k, chosen);
        c.arg[1] = op_mat(LOONG_I32, tokens, k);
        check_rounds(c, rounds_of(c));
        free(chosen);
    }
}

/* ---- counted rows -------------------------------------------------------- */

/* swiglu and its gradient of the rows before the last offset. */
static op_case_t swiglu_case(bool grad, loong_dtype_t dtype, int64_t cols,
                             const int32_t end[3])
{
    op_case_t c = {.op = grad ? "swiglu_grad" : "swiglu", .num_in = 2 + grad,
                   .num_out = 1};
    int64_t rows = end[0];
    c.arg[0] = op_mat(dtype, rows, grad ? cols : 2 * cols);
    c.arg[1] = op_mat(dtype, rows, 2 * cols);
    c.arg[c.num_in - 1] = integers(2, 0, end + 1);
    c.arg[c.num_in] = op_mat(dtype, rows, grad ? 2 * cols : cols);
    for (int i = 0; i <= c.num_in; i++) {
        c.arg[i].spare = i == c.num_in - 1 ? 0 : rows - end[2];
    }
    c.bound.roundings = 4;
    return c;
}

static void test_counted_swiglu(void **state)
{
    (void)state;
    static const int32_t ends[][3] = {
        {37, 0, 23}, {37, 5, 37}, {37, 0, 0}, {1, 0, 1}, {300, 100, 211}};
    static const int64_t widths[] = {40, 7, 512};
    for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
        for (int i = 0; i < LOONG_COUNT_OF(ends) * 2; i++) {
            op_case_t c = swiglu_case(i & 1, types[t], widths[i / 2 % 3],
                                      ends[i / 2]);
            c.arg[0].gap = i % 5 == 0 ? 3 : 0;
            expect(op_case_reference(&c), &c, types[t]);
            op_case_threads(&c);
        }
    }
}

static void test_counted_refusals(void **state)
{
    (void)state;
    static const int32_t wrong[][3] = {{9, 0, 10}, {9, 0, -1}};
    static const char *const text[] = {
        "swiglu: offset 1 is 10, there are 9 rows",
        "swiglu_grad: offset 1 is -1, there are 9 rows"};
    char got[512];
    for (int i = 0; i < 4 && strcmp(OP_DEVICE, "cpu") == 0; i++) {
        op_case_t c = swiglu_case(i & 1, LOONG_F32, 8, wrong[i & 1]);
        c.arg[0].spare = c.arg[1].spare = 0;
        c.arg[c.num_in].spare = 0;
        const char *name = i < 2 ? NULL : i & 1 ? "swiglu_grad_ref"
                                                : "swiglu_ref";
        assert_int_equal(op_case_status(&c, name, got), LOONG_ERR_ARG);
        assert_non_null(strstr(got, text[i & 1]));
    }
}

/* The first of 8 ranks with 8 of 64 experts each, when the choices of all
 * tokens are spread evenly and 1.5 times their rows are laid out: bytes that
 * permute, swiglu and their gradients move, counted by the rows that their
 * kernels write, against those of the rows that there are. */
static void test_bytes_of_even_routing(void **state)
{
    (void)state;
    enum { RANKS = 8, TOKENS = 256, EACH = 8, PLAN = 3 * TOKENS / 2 + EACH - 1,
           H = 96, F = 48, SLOTS = TOKENS * EACH };
    loong_expert_order_attr_t attr = {RANKS * EACH, 0, EACH, PLAN};
    double *out[LOONG_MAX_OPERANDS];
    int32_t chosen[SLOTS];
    int64_t moved = 0;
    for (int i = 0; i < SLOTS; i++) {
        chosen[i] = (i / EACH + i % EACH * EACH) % (RANKS * EACH);
    }
    op_case_t order = {.op = "expert_order", .attr = &attr, .num_in = 1,
                       .num_out = 3};
    order.arg[0] = integers(TOKENS, EACH, chosen);
    order.arg[1] = op_vec(LOONG_I32, EACH + 1);
    order.arg[2] = op_vec(LOONG_I32, PLAN);
    order.arg[3] = op_mat(LOONG_I32, TOKENS, EACH);
    op_case_outputs(&order, "expert_order_ref", out);
    int32_t end[3] = {PLAN, 0, (int32_t)out[0][EACH]};
    assert_int_equal(end[2], TOKENS);
    free(out[0]);
    int32_t *source = whole_numbers(out[1], PLAN);
    int32_t *dest = whole_numbers(out[2], SLOTS);
    /* permute, and the gradient of unpermute, which weighs */
    for (int weighted = 0; weighted < 2; weighted++) {
        op_case_t c = {.op = "permute", .num_in = 3 + weighted, .num_out = 1};
        c.arg[0] = op_mat(LOONG_BF16, TOKENS, H);
        c.arg[1] = integers(PLAN, 0, source);
        c.arg[2] = integers(TOKENS, EACH, dest);
        c.arg[3] = op_mat(LOONG_F32, TOKENS, EACH);
        c.arg[c.num_in] = op_mat(LOONG_BF16, PLAN, H);
        moved += 2 * H * op_case_written(&c, 0);
    }
    for (int grad = 0; grad < 2; grad++) {
        op_case_t c = swiglu_case(grad, LOONG_BF16, F, end);
        moved += (grad ? 5 : 3) * F * op_case_written(&c, 0);
    }
    int64_t even = TOKENS * (4 * H + 8 * F);
    print_message("%lld elements moved, %lld of an even share\n",
                  (long long)moved, (long long)even);
    assert_true(10 * moved <= 13 * even);
    free(source);
    free(dest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_window_drawn),
        cmocka_unit_test(test_counted_swiglu),
        cmocka_unit_test(test_counted_refusals),
        cmocka_unit_test(test_bytes_of_even_routing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
