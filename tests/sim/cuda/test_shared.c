/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels on devices whose blocks have 227 KiB of shared memory (sm_90,
 * sm_100), 163 (sm_80) and 99 (sm_86, sm_89): each against the reference, and
 * sums of norms with the same bits on all. */
#include "cudasim.h"
#include "loong/moe.h"
#include "op_case.h"

static const size_t limits[] = {227 * 1024, 163 * 1024, 99 * 1024};

static int begin(void **state)
{
    (void)state;
    cudasim_reset();
    return 0;
}

static int end(void **state)
{
    (void)state;
    assert_string_equal(cudasim_report(), "");
    cudasim_shared_limit(limits[0]);
    return 0;
}

/* Kernel `name` on each of the devices. */
static void check(const op_case_t *c, const char *name, bool same_bits)
{
    int64_t bytes = 0;
    double *first[LOONG_MAX_OPERANDS] = {NULL};
    for (int l = 0; l < LOONG_COUNT_OF(limits); l++) {
        double *out[LOONG_MAX_OPERANDS] = {NULL};
        cudasim_shared_limit(limits[l]);
        assert_true(op_case_reference(c) > 0);
        op_case_outputs(c, name, out);
        for (int o = 0; o < c->num_out; o++) {
            const op_arg_t *a = &c->arg[c->num_in + o];
            bytes = (int64_t)sizeof(double) * a->dim[0] *
                    (a->rank > 1 ? a->dim[1] : 1);
            if (l > 0 && same_bits && a->rank > 0) {
                assert_memory_equal(out[o], first[o], (size_t)bytes);
            }
            if (l > 0) {
                free(out[o]);
            } else {
                first[o] = out[o];
            }
        }
    }
    for (int o = 0; o < c->num_out; o++) {
        free(first[o]);
    }
}

/* ---- norms --------------------------------------------------------------- */

/* On both sides of what fits, for one sum and for two. */
static const int64_t widths[][2] = {{9, 1000}, {5, 1024},  {5, 1043},
                                    {3, 9000}, {6, 14603}, {3, 30008}};
static const loong_norm_attr_t attr = {1e-5};
static const loong_norm_attr_t large_eps = {30.0}; /* keeps the root real */

static op_case_t norm_case(int op, int64_t rows, int64_t cols)
{
    op_arg_t x = op_mat(LOONG_BF16, rows, cols);
    op_arg_t w = op_vec(LOONG_F32, cols);
    op_arg_t s = op_mat(LOONG_F32, rows, 1);
    const op_case_t cases[] = {
        {.op = "rmsnorm_grad", .attr = &attr, .num_in = 4, .num_out = 2,
         .arg = {x, x, w, s, x, w}},
        {.op = "layernorm_grad", .attr = &attr, .num_in = 5, .num_out = 3,
         .arg = {x, x, w, s, s, x, w, w}},
        {.op = "rms_scale_grad", .attr = &large_eps, .num_in = 4,
         .num_out = 3, .arg = {x, x, s, w, x, s, w}},
    };
    op_case_t c = cases[op];
    c.bound.roundings = 3;
    c.bound.terms = LOONG_MAX(rows, cols);
    return c;
}

static void test_norms(void **state)
{
    static const char *const names[] = {
        "rmsnorm_grad_cuda", "layernorm_grad_cuda", "rms_scale_grad_cuda"};
    (void)state;
    for (int op = 0; op < LOONG_COUNT_OF(names); op++) {
        for (int i = 0; i < LOONG_COUNT_OF(widths); i++) {
            op_case_t c = norm_case(op, widths[i][0], widths[i][1]);
            check(&c, names[op], true);
        }
    }
}

/* ---- attention ----------------------------------------------------------- */

enum { TOKENS = 90, HEADS = 2, DIM = 232 };

static const int32_t cu_seqlens[3] = {0, 20, TOKENS};

static op_case_t forward_case(const loong_attention_attr_t *a)
{
    op_arg_t q = op_mat(LOONG_BF16, TOKENS, (int64_t)HEADS * DIM);
    op_arg_t k = op_mat(LOONG_BF16, TOKENS, DIM);
    op_case_t c = {.op = "attention", .attr = a, .num_in = 7, .num_out = 2,
                   .arg = {q, k, k, op_vec(LOONG_I32, 3)}};
    c.arg[3].values = cu_seqlens;
    c.arg[7] = q;
    c.arg[8] = op_mat(LOONG_F32, TOKENS, HEADS);
    c.bound.roundings = 2;
    c.bound.terms = DIM + TOKENS;
    return c;
}

static void test_attention(void **state)
{
    double *out[LOONG_MAX_OPERANDS] = {NULL};
    loong_attention_attr_t a;
    (void)state;
    memset(&a, 0, sizeof(a));
    a.heads = HEADS;
    a.kv_heads = 1;
    a.head_dim = DIM;
    a.causal = true;
    a.max_seqlen = TOKENS;
    a.scale = 1.0 / sqrt((double)DIM);
    op_case_t f = forward_case(&a);
    check(&f, "attention_tiles_cuda", true);
    for (int i = 0; i < 3; i++) {
        f.arg[i].stream = i + 2; /* the values of q, k, v below */
    }
    op_case_outputs(&f, "attention_ref", out);
    op_case_t c = {.op = "attention_grad", .attr = &a, .num_in = 10,
                   .num_out = 3,
                   .arg = {f.arg[7], f.arg[0], f.arg[1], f.arg[2], f.arg[7],
                           f.arg[8], f.arg[3]}};
    c.arg[4].wide_values = out[0];
    c.arg[5].wide_values = out[1];
    for (int i = 0; i < 3; i++) {
        c.arg[1 + i].stream = i + 2;
        c.arg[10 + i] = f.arg[i];
    }
    c.bound.roundings = 4;
    c.bound.terms = HEADS * TOKENS + DIM;
    check(&c, "attention_grad_tiles_cuda", false); /* tiles of 16 or 32 */
    free(out[0]);
    free(out[1]);
}

/* ---- router -------------------------------------------------------------- */

/* As many experts as the kernel takes, and a few. */
static void test_router(void **state)
{
    static const int64_t experts[] = {1728, 300, 16};
    static const loong_router_attr_t router = {
        4, LOONG_SCORE_SIGMOID, false, 4, 2, 2, 2.5, false, 0, 0,
        LOONG_WEIGHTS_AUTO};
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(experts); i++) {
        op_case_t c = {.op = "topk_router", .attr = &router, .num_in = 2,
                       .num_out = 2};
        c.arg[0] = op_mat(LOONG_F32, 9, experts[i]);
        c.arg[2] = op_mat(LOONG_F32, 9, router.topk);
        c.arg[3] = op_mat(LOONG_I32, 9, router.topk);
        c.bound.roundings = 4;
        check(&c, "topk_router_cuda", true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_norms, begin, end),
        cmocka_unit_test_setup_teardown(test_attention, begin, end),
        cmocka_unit_test_setup_teardown(test_router, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
