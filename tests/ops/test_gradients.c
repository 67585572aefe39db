/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient ops against finite differences of their forward ops, in fp64 on the
 * reference kernels (to which test_pointwise.c holds all others). */
#include "loong/collective.h"
#include "loong/latent.h"
#include "op_case.h"

enum { ROWS = 4, COLS = 6, MAX_FEED = 6 };

/* What a gradient op reads: input i of the forward op, its output, or the
 * gradient of an output. */
enum { END = 0, IN = 1, OUT = 17, DY = 33 };

typedef struct gradient {
    const char *forward;
    const char *backward;
    const void *attr;
    const void *backward_attr;
    int num_in;
    int num_out;
    uint32_t weighted; /* outputs that the loss reads */
    int feed[MAX_FEED];
    int num_grads;
    int of[3]; /* output k of the gradient op is that of this input */
    op_arg_t arg[LOONG_MAX_OPERANDS];
} gradient_t;

static const int32_t ids[ROWS] = {2, 0, 2, 1};
static const int64_t keys[ROWS] = {7, 8, 1, 90000000000};

#define MAT(rows_, cols_)                                                     \
    {LOONG_F64, 2, {rows_, cols_, 0, 0}, 0, 0, 0, 0, 0, 0, 0, 0}
#define VEC(size_)                                                            \
    {LOONG_F64, 1, {size_, 0, 0, 0}, 0, 0, 0, 0, 0, 0, 0, 0}
#define IDS {LOONG_I32, 1, {ROWS, 0, 0, 0}, 0, 0, ids, 0, 0, 0, 0, 0}
#define KEYS {LOONG_I64, 1, {ROWS, 0, 0, 0}, 0, 0, keys, 0, 0, 0, 0, 0}
#define FULL MAT(ROWS, COLS)
#define STAT MAT(ROWS, 1)

static const loong_norm_attr_t norm = {1e-2};
static const loong_norm_attr_t large = {30.0}; /* keeps the root real */
static const loong_mean_squares_attr_t third = {1.0 / 3.0};
static const loong_gelu_attr_t gelu_erf = {LOONG_ACT_GELU};
static const loong_gelu_attr_t gelu_tanh = {LOONG_ACT_GELU_TANH};
static const loong_gelu_attr_t gelu_quick = {LOONG_ACT_QUICK_GELU};
static const loong_scale_attr_t factor = {-1.7, 0.0};
static const loong_dropout_attr_t drop = {0.4, 5, 3};
static const loong_linear_attr_t as_is = {false, LOONG_ACT_NONE};
static const loong_linear_attr_t flipped = {true, LOONG_ACT_NONE};
static const loong_linear_add_attr_t added = {0, false};
static const loong_linear_add_attr_t added_flipped = {0, true};
static const loong_embedding_attr_t table = {3, 0, 0};
static const loong_repeat_heads_attr_t thrice = {2, 3};
static const loong_latent_attr_t latent = {2, 3, 2, 4};
static const loong_head_linear_attr_t onto = {2, 5, 1, 3, false};
static const loong_head_linear_attr_t onto_transposed = {2, 5, 1, 3, true};
static const loong_rope_attr_t halves = {6, false, false, 0};
static const loong_rope_attr_t halves_back = {6, false, true, 0};
static const loong_rope_attr_t pairs = {3, true, false, 0};
static const loong_rope_attr_t pairs_back = {3, true, true, 0};

static const loong_segment_attr_t segments = {7};
static const int32_t offsets[] = {1, 3, 3, 6};
static const loong_select_rows_attr_t plain = {false};
static const loong_select_rows_attr_t inverse = {true};
static const int32_t flags[ROWS] = {0, 1, 1, 0};
#define FLAGS {LOONG_I32, 1, {ROWS, 0, 0, 0}, 0, 0, flags, 0, 0, 0, 0, 0}
#define OFFSETS {LOONG_I32, 1, {4, 0, 0, 0}, 0, 0, offsets, 0, 0, 0, 0, 0}

static const double sums[COLS] = {0.5, 1.0, 4.0, 0.3, 2.0, 9.0};
#define SUMS {LOONG_F64, 2, {COLS, 1, 0, 0}, 0, 0, 0, sums, 0, 0, 0, 0}

static const gradient_t gradients[] = {
    {"embedding", "embedding_grad", &table, &table, 2, 1, 1,
     {IN, DY}, 1, {1}, {IDS, MAT(3, COLS), FULL}},
    {"embedding_grad", "embedding", &table, &table, 2, 1, 1, /* sums by id */
     {IN, DY}, 1, {1}, {IDS, FULL, MAT(3, COLS)}},
    {"softmax_cross_entropy", "softmax_cross_entropy_grad", NULL, NULL, 3, 2, 1,
     {IN, IN + 1, IN + 2, OUT + 1, DY}, 1, {0},
     {FULL, IDS, VEC(ROWS), VEC(ROWS), VEC(ROWS)}},
    {"rmsnorm", "rmsnorm_grad", &norm, NULL, 2, 2, 1,
     {DY, IN, IN + 1, OUT + 1}, 2, {0, 1},
     {FULL, VEC(COLS), FULL, STAT}},
    {"rmsnorm", "rmsnorm_grad", &norm, NULL, 2, 2, 1, /* groups */
     {DY, IN, IN + 1, OUT + 1}, 2, {0, 1},
     {FULL, VEC(3), FULL, MAT(ROWS, 2)}},
    {"add_rmsnorm", "rmsnorm_grad", &norm, NULL, 3, 3, 5,
     {DY, OUT + 2, IN + 2, OUT + 1, DY + 2}, 2, {0, 2},
     {FULL, FULL, VEC(COLS), FULL, STAT, FULL}},
    {"add_rmsnorm", "rmsnorm_grad", &norm, NULL, 3, 3, 5, /* the residual */
     {DY, OUT + 2, IN + 2, OUT + 1, DY + 2}, 1, {1},
     {FULL, FULL, VEC(COLS), FULL, STAT, FULL}},
    {"mean_squares", "mean_squares_grad", &third, &third, 1, 1, 1,
     {IN, DY}, 1, {0}, {FULL, STAT}},
    {"rms_scale", "rms_scale_grad", &large, &large, 3, 1, 1,
     {DY, IN, IN + 1, IN + 2}, 3, {0, 1, 2},
     {FULL, STAT, VEC(COLS), FULL}},
    {"layernorm", "layernorm_grad", &norm, NULL, 3, 3, 1,
     {DY, IN, IN + 1, OUT + 1, OUT + 2}, 3, {0, 1, 2},
     {FULL, VEC(COLS), VEC(COLS), FULL, STAT, STAT}},
    {"add_layernorm", "layernorm_grad", &norm, NULL, 4, 4, 9,
     {DY, OUT + 3, IN + 2, OUT + 1, OUT + 2, DY + 3}, 3, {0, 2, 3},
     {FULL, FULL, VEC(COLS), VEC(COLS), FULL, STAT, STAT, FULL}},
    {"rope", "rope", &halves, &halves_back, 2, 1, 1,
     {DY, IN + 1}, 1, {0}, {FULL, MAT(ROWS, 4), FULL}},
    {"rope", "rope", &pairs, &pairs_back, 2, 1, 1,
     {DY, IN + 1}, 1, {0}, {FULL, MAT(ROWS, 2), FULL}},
    {"rope", "rope_table_grad", &halves, &halves, 2, 1, 1,
     {DY, IN, IN + 1}, 1, {1}, {FULL, MAT(ROWS, 4), FULL}},
    {"rope", "rope_table_grad", &pairs_back, &pairs_back, 2, 1, 1,
     {DY, IN, IN + 1}, 1, {1}, {FULL, MAT(ROWS, 2), FULL}},
    {"latent_keys", "latent_keys_grad", &latent, &latent, 2, 2, 3,
     {DY, DY + 1}, 2, {0, 1},
     {MAT(ROWS, 14), MAT(ROWS, 2), MAT(ROWS, 10), MAT(ROWS, 8)}},
    {"head_linear", "head_linear", &onto, &onto_transposed, 2, 1, 1,
     {DY, IN + 1}, 1, {0}, {MAT(ROWS, 4), MAT(10, 4), MAT(ROWS, 3)}},
    {"head_linear", "head_linear_dw", &onto, &onto, 2, 1, 1,
     {DY, IN}, 1, {1}, {MAT(ROWS, 4), MAT(10, 4), MAT(ROWS, 3)}},
    {"head_linear", "head_linear", &onto_transposed, &onto, 2, 1, 1,
     {DY, IN + 1}, 1, {0}, {MAT(ROWS, 3), MAT(10, 4), MAT(ROWS, 4)}},
    {"head_linear", "head_linear_dw", &onto_transposed, &onto_transposed, 2, 1,
     1,
     {DY, IN}, 1, {1}, {MAT(ROWS, 3), MAT(10, 4), MAT(ROWS, 4)}},
    {"swiglu", "swiglu_grad", NULL, NULL, 1, 1, 1,
     {DY, IN}, 1, {0}, {FULL, MAT(ROWS, COLS / 2)}},
    {"gelu", "gelu_grad", &gelu_erf, &gelu_erf, 1, 1, 1,
     {DY, IN}, 1, {0}, {FULL, FULL}},
    {"gelu", "gelu_grad", &gelu_tanh, &gelu_tanh, 1, 1, 1,
     {DY, IN}, 1, {0}, {FULL, FULL}},
    {"gelu", "gelu_grad", &gelu_quick, &gelu_quick, 1, 1, 1,
     {DY, IN}, 1, {0}, {FULL, FULL}},
    {"repeat_heads", "sum_heads", &thrice, &thrice, 1, 1, 1,
     {DY}, 1, {0}, {FULL, MAT(ROWS, 3 * COLS)}},
    {"sum_heads", "repeat_heads", &thrice, &thrice, 1, 1, 1,
     {DY}, 1, {0}, {MAT(ROWS, 3 * COLS), FULL}},
    {"segment_sum", "segment_repeat", &segments, &segments, 2, 1, 1,
     {DY, IN + 1}, 1, {0}, {VEC(7), OFFSETS, VEC(3)}},
    {"segment_repeat", "segment_sum", &segments, &segments, 2, 1, 1,
     {DY, IN + 1}, 1, {0}, {VEC(3), OFFSETS, VEC(7)}},
    {"select_rows", "select_rows", &plain, &plain, 3, 1, 1,
     {DY, IN + 1}, 1, {0}, {FULL, FLAGS, FULL, FULL}},
    {"select_rows", "select_rows", &plain, &inverse, 3, 1, 1,
     {DY, IN + 1}, 1, {2}, {FULL, FLAGS, FULL, FULL}},
    {"multiply", "multiply", NULL, NULL, 2, 1, 1,
     {DY, IN + 1}, 1, {0}, {FULL, FULL, FULL}},
    {"kl_estimate", "kl_estimate_grad", NULL, NULL, 2, 1, 1,
     {DY, IN, IN + 1}, 1, {0}, {VEC(7), VEC(7), VEC(7)}},
    {"linear_add", "linear", &added, &flipped, 3, 1, 1,
     {DY, IN + 2}, 1, {1}, {FULL, MAT(ROWS, 3), MAT(COLS, 3), FULL}},
    {"linear_add", "linear_dw", &added, &as_is, 3, 1, 1,
     {DY, IN + 1}, 1, {2}, {FULL, MAT(ROWS, 3), MAT(COLS, 3), FULL}},
    {"linear_add", "linear", &added_flipped, &as_is, 3, 1, 1,
     {DY, IN + 2}, 1, {1}, {FULL, MAT(ROWS, 3), MAT(3, COLS), FULL}},
    {"linear_add", "linear_dw", &added_flipped, &flipped, 3, 1, 1,
     {DY, IN + 1}, 1, {2}, {FULL, MAT(ROWS, 3), MAT(3, COLS), FULL}},
    {"magnitude", "magnitude", NULL, NULL, 4, 1, 1,
     {DY, IN + 1, IN + 2}, 1, {0}, {FULL, SUMS, VEC(COLS), VEC(COLS), FULL}},
    {"scale", "scale", &factor, &factor, 1, 1, 1,
     {DY}, 1, {0}, {FULL, FULL}},
    {"dropout", "dropout", &drop, &drop, 2, 1, 1,
     {DY, IN + 1}, 1, {0}, {FULL, KEYS, FULL}},
};

static int64_t size_of(const op_arg_t *a)
{
    return a->dim[0] * (a->rank > 1 ? a->dim[1] : 1);
}

static op_case_t forward_case(const gradient_t *g, double **values)
{
    op_case_t c = {.op = g->forward,
                   .attr = g->attr,
                   .num_in = g->num_in,
                   .num_out = g->num_out};
    c.frame.seed = 3;
    c.frame.step = 2;
    memcpy(c.arg, g->arg, sizeof(c.arg));
    for (int i = 0; i < g->num_in + g->num_out; i++) {
        values[i] = op_normal(size_of(&c.arg[i]), i + 1, 1.0);
        if (i < g->num_in && c.arg[i].values == NULL &&
            c.arg[i].wide_values == NULL) {
            c.arg[i].wide_values = values[i];
        }
    }
    return c;
}

static op_case_t backward_case(const gradient_t *g, const op_case_t *forward,
                               double *const *out, double *const *dy)
{
    op_case_t c = {.op = g->backward,
                   .attr = g->backward_attr,
                   .num_out = g->num_grads,
                   .frame = forward->frame};
    for (; c.num_in < MAX_FEED && g->feed[c.num_in] != END; c.num_in++) {
        int feed = g->feed[c.num_in];
        int o = feed >= DY ? feed - DY : feed - OUT;
        op_arg_t *a = &c.arg[c.num_in];
        if (feed < OUT) {
            *a = forward->arg[feed - IN];
        } else {
            *a = forward->arg[g->num_in + o];
            a->wide_values = feed >= DY ? dy[o] : out[o];
        }
    }
    for (int k = 0; k < g->num_grads; k++) {
        c.arg[c.num_in + k] = g->arg[g->of[k]];
    }
    return c;
}

static void check_gradient(const gradient_t *g)
{
    double *values[LOONG_MAX_OPERANDS] = {NULL};
    double *out[LOONG_MAX_OPERANDS] = {NULL};
    double *grad[LOONG_MAX_OPERANDS] = {NULL};
    char kernel[64];
    op_case_t forward = forward_case(g, values);
    double *const *dy = values + g->num_in;
    snprintf(kernel, sizeof(kernel), "%s_ref", g->forward);
    op_case_outputs(&forward, kernel, out);
    op_case_t backward = backward_case(g, &forward, out, dy);
    /* The gradient op has more outputs than asked for: they are absent. */
    backward.num_out = 3;
    snprintf(kernel, sizeof(kernel), "%s_ref", g->backward);
    op_case_outputs(&backward, kernel, grad);
    op_difference_t d = {.forward = &forward,
                         .stride = 1,
                         .num_weights = g->num_out,
                         .bound = 1e-8};
    for (int o = 0; o < g->num_out; o++) {
        d.weights[o] = g->weighted & 1u << o ? dy[o] : NULL;
    }
    for (int k = 0; k < g->num_grads; k++) {
        d.input = g->of[k];
        d.grad = grad[k];
        op_case_differences(&d);
    }
    for (int i = 0; i < LOONG_MAX_OPERANDS; i++) {
        free(values[i]);
        free(out[i]);
        free(grad[i]);
    }
}

static void test_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(gradients); i++) {
        check_gradient(&gradients[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
