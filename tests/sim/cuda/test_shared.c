/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels on devices whose blocks have 227 KiB of shared memory (sm_90,
 * sm_100), 163 (sm_80) and 99 (sm_86, sm_89), with different numbers of
 * multiprocessors: each against the reference, and sums of norms with the same
 * bits on all. Products of experts with more tiles
 * of rows than a grid may have are refused. */
#include "cudasim.h"
#include "loong/moe.h"
#include "loong/register.h"
#include "op_case.h"
#include "op_launch.h"

static const size_t limits[] = {227 * 1024, 163 * 1024, 99 * 1024};
static const int processors[] = {4, 1, 7};

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
    cudasim_processors(processors[0]);
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
        cudasim_processors(processors[l]);
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

/* ---- what launches allow ------------------------------------------------- */

static void launch(const op_case_t *c, const char *name)
{
    char text[512];
    assert_int_equal(op_case_status(c, name, text), LOONG_OK);
}

/* A launch that wants less leaves its kernel as much: a graph may hold one that
 * wants more. The device tells. */
static void test_allowed(void **state)
{
    static const int64_t cols[] = {20000, 14000};
    static const int dims[] = {640, 480};
    (void)state;
    for (int i = 0; i < 2; i++) {
        op_case_t norm = norm_case(0, 3, cols[i]);
        op_case_t scale = norm_case(2, 3, cols[i]);
        launch(&norm, "rmsnorm_grad_cuda");
        launch(&scale, "rms_scale_grad_cuda");
        loong_attention_attr_t a = {.heads = 1, .kv_heads = 1,
                                    .head_dim = dims[i], .max_seqlen = 3,
                                    .scale = 0.1};
        static const int32_t one[2] = {0, 3};
        op_arg_t x = op_mat(LOONG_F32, 3, dims[i]);
        op_case_t c = {.op = "attention", .attr = &a, .num_in = 7,
                       .num_out = 2, .arg = {x, x, x, op_vec(LOONG_I32, 2)}};
        c.arg[3].values = one;
        c.arg[7] = x;
        c.arg[8] = op_mat(LOONG_F32, 3, 1);
        launch(&c, "attention_cuda");
        c.op = "attention_grad";
        c.num_in = 10;
        c.num_out = 3;
        c.arg[4] = c.arg[7];
        c.arg[5] = c.arg[8];
        c.arg[6] = c.arg[3];
        memset(c.arg + 7, 0, 3 * sizeof(x));
        c.arg[3] = c.arg[10] = c.arg[11] = c.arg[12] = x;
        launch(&c, "attention_grad_cuda");
    }
}

/* ---- grids --------------------------------------------------------------- */

/* As large as the device wants. */
static void test_grids(void **state)
{
    static const loong_scale_attr_t half = {0.5, 0.0};
    (void)state;
    for (int l = 0; l < LOONG_COUNT_OF(processors); l++) {
        op_case_t c = {.op = "scale", .attr = &half, .num_in = 1,
                       .num_out = 1};
        c.arg[0] = c.arg[1] = op_mat(LOONG_BF16, 300, 1024);
        cudasim_processors(processors[l]);
        launch(&c, "scale_cuda");
        assert_int_equal(cudasim_blocks(), 16 * processors[l]);
    }
}

/* ---- loss ---------------------------------------------------------------- */

/* Chunks of rows, as many as simulated: a multiple of 4, 8 to 64, with 2^15
 * logits or so. dw is read and written again by all but the first. */
static void test_loss_chunks(void **state)
{
    enum { HIDDEN = 24, TOKENS_OF_ALL = 200 };
    static const struct {
        int64_t vocab, rows, chunks;
    } cases[] = {{6000, 8, 25}, {1024, 32, 7}, {2496, 12, 17}, {128, 64, 4}};
    loong_context_t *ctx = test_context();
    (void)state;
    assert_ok(ctx, loong_register_builtin(ctx));
    const loong_kernel_t *k = loong_find_kernel(ctx, "cross_entropy", "cuda",
                                                0);
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        int64_t vocab = cases[i].vocab;
        loong_cross_entropy_attr_t a = {.vocab = vocab, .size = 1};
        loong_karg_t x = {LOONG_BF16, 2, {TOKENS_OF_ALL, HIDDEN}, HIDDEN};
        loong_karg_t w = {LOONG_BF16, 2, {vocab, HIDDEN}, HIDDEN};
        loong_karg_t dw = {LOONG_F32, 2, {vocab, HIDDEN}, HIDDEN};
        loong_karg_t ids = {LOONG_I32, 1, {TOKENS_OF_ALL}, 1};
        loong_karg_t loss = {LOONG_F32, 1, {TOKENS_OF_ALL}, 1};
        loong_kernel_query_t q = {.op = "cross_entropy", .attr = &a,
                                  .num_in = 4, .num_out = 3,
                                  .arg = {x, w, ids, loss, loss, x, dw}};
        loong_kernel_query_t none = q;
        none.arg[5].rank = none.arg[6].rank = 0;
        none.arg[0].dim[0] = none.arg[2].dim[0] = 1;
        size_t row = 4 * (size_t)vocab; /* fp32 */
        size_t rest = k->workspace(&none) - row;
        assert_int_equal(k->workspace(&q) - rest, cases[i].rows * (int64_t)row);
        double bytes = (double)TOKENS_OF_ALL * (double)vocab * 18.0 +
                       (double)(cases[i].chunks - 1) * 8.0 * HIDDEN *
                           (double)vocab;
        assert_true(k->more_bytes(&q) == bytes);
    }
    test_context_end(&ctx);
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

/* ---- experts ------------------------------------------------------------- */

/* The most rows that a grid has tiles for, and one more, by each kernel. */
static void test_grouped(void **state)
{
    static const int heights[] = {128, 32}; /* bf16, fp32 */
    static const loong_grouped_linear_attr_t plain = {false, 1.0};
    enum { EXPERTS = 3, MOST = 65535 - (EXPERTS + 1) };
    loong_context_t *ctx = op_context();
    (void)state;
    for (int i = 0; i < 4; i++) {
        const char *op = i < 2 ? "grouped_linear" : "grouped_linear_dw";
        loong_dtype_t dtype = i % 2 == 0 ? LOONG_BF16 : LOONG_F32;
        loong_dtype_t wide = i < 2 ? dtype : LOONG_F32;
        int64_t rows = (int64_t)MOST * heights[i % 2];
        char reason[LOONG_REASON_SIZE] = "";
        for (int more = 0; more < 2; more++) {
            op_case_t c = {.op = op, .attr = &plain, .num_in = 3,
                           .num_out = 1};
            const loong_kernel_t *k = NULL;
            int count = 0;
            c.arg[0] = c.arg[1] = op_mat(dtype, rows + more, 8);
            c.arg[2] = op_vec(LOONG_I32, EXPERTS + 1);
            c.arg[3] = op_mat(wide, rows + more, 8);
            loong_kernel_query_t q = op_query(&c, false);
            for (int n = 0;
                 (k = loong_find_kernel(ctx, op, "cuda", n)) != NULL; n++) {
                bool is_ours = strcmp(k->device, "cuda") == 0;
                count += is_ours && k->support(&q, reason);
            }
            assert_int_equal(count, 1 - more);
        }
    }
    op_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_norms, begin, end),
        cmocka_unit_test_setup_teardown(test_attention, begin, end),
        cmocka_unit_test_setup_teardown(test_grids, begin, end),
        cmocka_unit_test_setup_teardown(test_loss_chunks, begin, end),
        cmocka_unit_test_setup_teardown(test_allowed, begin, end),
        cmocka_unit_test_setup_teardown(test_router, begin, end),
        cmocka_unit_test_setup_teardown(test_grouped, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
