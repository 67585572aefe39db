/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers, estimates, merged attention and codes. Read raw_cases.h before;
 * called by test_raw.c. */
#include "raw_cases.h"

#include "loong/quantize.h"
#include "loong/update.h"
#include "quant.h"
#include "rng.h"

/* test_update.c and test_muon_ops.c compare values. */
static void update(const variant_t *v, op_case_t *c)
{
    static const loong_update_attr_t attr = {.group = 1,
                                             .beta1 = 0.9,
                                             .beta2 = 0.99,
                                             .momentum = 0.9,
                                             .nesterov = true,
                                             .weight_decay = 0.1,
                                             .ema_decay = 0.9};
    int64_t n = v->rows * v->cols;
    bool wide = strncmp(c->op, "ema", 3) == 0;
    c->attr = &attr;
    c->num_in = 1;
    c->num_out = 3;
    c->arg[0] = op_vec(LOONG_F32, n);
    c->arg[1] = op_vec(v->dtype, n);
    if (v->dtype == LOONG_BF16) {
        c->arg[2] = op_vec(LOONG_U16, n);
    }
    c->arg[3] = op_vec(wide ? LOONG_F32 : v->dtype, n);
    c->frame.updates = 3;
    c->frame.grad_scale = 0.5;
    c->frame.lr[1] = 1e-3;
}

/* Three parameters, the last of which the rank has every other run of. */
static void by_chance(const variant_t *v, op_case_t *c)
{
    static loong_update_piece_t pieces[3];
    static loong_update_attr_t attr;
    int64_t n = v->rows * v->cols;
    pieces[0] = (loong_update_piece_t){0, 11, 3, 0, n + 3, n + 3};
    pieces[1] = (loong_update_piece_t){n / 3, 12, 0, 5, n, n};
    pieces[2] = (loong_update_piece_t){n / 2, 13, 2, 7, 6, 12};
    attr = *(const loong_update_attr_t *)c->attr;
    attr.num_pieces = 3;
    attr.pieces = pieces;
    c->attr = &attr;
    for (int i = 3; i < c->num_in + c->num_out; i++) {
        c->arg[i].dtype = LOONG_BF16;
    }
    c->frame.seed = 77;
    c->frame.step = 5;
}

static void update_by_chance(const variant_t *v, op_case_t *c)
{
    update(v, c);
    by_chance(v, c);
}

static void adamw_by_chance(const variant_t *v, op_case_t *c)
{
    update(v, c);
    c->num_out = 4;
    c->arg[4] = c->arg[3];
    by_chance(v, c);
}

/* Near each other, where the estimate is a small part of the exponential, and
 * far from each other. */
static void kl_estimate(const variant_t *v, op_case_t *c)
{
    int64_t n = v->rows * v->cols;
    c->num_in = strcmp(c->op, "kl_estimate") == 0 ? 2 : 3;
    c->num_out = 1;
    for (int i = 0; i < 4; i++) {
        c->arg[i] = op_vec(LOONG_F32, n);
        c->arg[i].scale = v->bits & OPTION ? 0.001 : 3.0;
    }
    c->bound.terms = 1;
}

/* Rows and columns of a larger matrix. */
static const loong_muon_attr_t muon_attr = {.group = 1,
                                            .momentum = 0.9,
                                            .nesterov = true,
                                            .weight_decay = 0.1,
                                            .scale = 0.3,
                                            .row = 1,
                                            .span = 2,
                                            .apart = 3,
                                            .col = 3};

static void muon_momentum(const variant_t *v, op_case_t *c)
{
    c->attr = &muon_attr;
    c->num_in = 1;
    c->num_out = 2;
    c->arg[0] = c->arg[1] = op_mat(LOONG_F32, v->rows, v->cols);
    c->arg[2] = op_mat(LOONG_F32, 2 * v->rows + 3, v->cols + 5);
    c->frame.grad_scale = 0.5;
}

static void muon_step(const variant_t *v, op_case_t *c)
{
    c->attr = &muon_attr;
    c->num_in = 1;
    c->num_out = 2;
    c->arg[0] = op_mat(LOONG_F32, 2 * v->rows + 3, v->cols + 5);
    c->arg[1] = op_mat(v->dtype, v->rows, v->cols);
    if (v->dtype == LOONG_BF16) {
        c->arg[2] = op_mat(LOONG_U16, v->rows, v->cols);
    }
    c->frame.lr[1] = 1e-3;
}

static void muon_normalize(const variant_t *v, op_case_t *c)
{
    static double stats[3] = {7.0, 0.0, 0.0};
    c->num_in = 2;
    c->num_out = 1;
    c->arg[0] = c->arg[2] = raw_mat(v, v->rows, v->cols);
    c->arg[1] = op_vec(LOONG_F64, 3);
    c->arg[1].values = stats;
}

static void muon_polynomial(const variant_t *v, op_case_t *c)
{
    c->num_in = 2;
    c->num_out = 1;
    c->arg[0] = c->arg[1] = c->arg[2] = raw_mat(v, v->rows, v->cols);
    c->bound.terms = 8;
}

/* Rows and heads without a key on either side among them. */
static void attention_merge(const variant_t *v, op_case_t *c)
{
    static double lse[2][3 * MOST];
    op_arg_t o = raw_mat(v, v->rows, 3 * v->cols);
    op_arg_t sums = op_mat(LOONG_F32, v->rows, 3);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 3 * MOST; i++) {
            bool none = i % 5 == k || i % 7 == 0;
            lse[k][i] = none ? -INFINITY : 3.0 * sin(i * (k + 1.0));
        }
        c->arg[2 * k] = o;
        c->arg[2 * k + 1] = sums;
        c->arg[2 * k + 1].wide_values = lse[k];
    }
    c->num_in = 4;
    c->num_out = 2;
    c->arg[4] = o;
    c->arg[5] = sums;
    c->bound.terms = 8;
}

/* Of every kind, the columns in whole blocks. */
static void dequantize(const variant_t *v, op_case_t *c)
{
    static loong_dequantize_blockwise_attr_t attr;
    static unsigned char bytes[MOST][2048];
    static float x[2048], room[16];
    static const loong_quant_t kinds[] = {
        LOONG_QUANT_NF4_DOUBLE, LOONG_QUANT_NF4, LOONG_QUANT_INT8};
    int64_t cols = LOONG_MIN((v->cols / 64 + 1) * 64, 1024);
    attr = (loong_dequantize_blockwise_attr_t){kinds[v->bits % 3], cols,
                                               v->dtype};
    int64_t size = loongi_quant_row_bytes(attr.quant, cols);
    unsigned char *to = &bytes[0][0];
    float absmax[16];
    for (int64_t r = 0; r < v->rows; r++, to += size) {
        for (int64_t i = 0; i < cols; i++) {
            x[i] = (float)loongi_rng_normal(3, 1, (uint64_t)(r * cols + i));
        }
        loongi_quant_absmax(x, cols, absmax);
        loong_quant_nested_t nested =
            loongi_quant_nest(absmax, cols / 64, room);
        /* As of a matrix whose second nested scale begins in this row. */
        room[1] = 2.0f * room[0];
        loong_quant_row_t row = {x, 0, cols, 0, cols};
        loongi_quant_encode(attr.quant, &row, &nested, to);
        if (attr.quant == LOONG_QUANT_NF4_DOUBLE) {
            loongi_quant_put_nested(
                &nested, LOONG_QUANT_NESTED - cols / 128, cols / 64,
                to + loongi_quant_scales_at(attr.quant, cols) +
                    loongi_quant_nested_at(cols / 64));
        }
    }
    c->attr = &attr;
    c->num_in = 1;
    c->num_out = 1;
    c->arg[0] = op_mat(LOONG_U8, v->rows, size);
    c->arg[0].values = bytes;
    c->arg[1] = raw_mat(v, v->rows, cols);
}

/* With the option without a size, with the bit of gaps without a bias. */
static void magnitude(const variant_t *v, op_case_t *c)
{
    static double squares[2048];
    bool bias = (v->bits & GAPS) == 0;
    for (int i = 0; i < 2048; i++) {
        squares[i] = 0.5 + (double)(i % 13);
    }
    c->num_in = 4;
    c->num_out = 1;
    c->arg[0] = c->arg[4] = raw_mat(v, v->rows, v->cols);
    c->arg[1] = op_mat(LOONG_F32, v->cols, 1);
    c->arg[1].wide_values = squares;
    if ((v->bits & OPTION) == 0) {
        c->arg[2] = op_vec(LOONG_F32, v->cols);
    }
    if (bias) {
        c->arg[3] = op_vec(LOONG_F32, v->cols);
    }
    c->bound.terms = 8;
}

/* With the option of the first rows alone. */
static void tensor_stats(const variant_t *v, op_case_t *c)
{
    static int32_t counted[3];
    counted[2] = (int32_t)(v->rows + 1) / 2;
    c->num_in = v->bits & OPTION ? 2 : 1;
    c->num_out = 1;
    c->arg[0] = raw_mat(v, v->rows, v->cols);
    if (v->bits & OPTION) {
        c->arg[1] = op_vec(LOONG_I32, 3);
        c->arg[1].values = counted;
    }
    c->arg[c->num_in] = op_vec(LOONG_F64, 3);
    c->bound.terms = v->rows * v->cols;
}

const raw_case_t raw_cases_updates[] = {
    {"magnitude", magnitude},
    {"tensor_stats", tensor_stats},
    {"kl_estimate", kl_estimate},
    {"kl_estimate_grad", kl_estimate},
    {"adamw", adamw_by_chance},
    {"lion", update_by_chance},
    {"lion", update},
    {"sgd", update},
    {"ema", update},
    {"ema_swap", update},
    {"muon_momentum", muon_momentum},
    {"muon_step", muon_step},
    {"muon_normalize", muon_normalize},
    {"muon_polynomial", muon_polynomial},
    {"attention_merge", attention_merge},
    {"dequantize_blockwise", dequantize},
    {NULL, NULL},
};
