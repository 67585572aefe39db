/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize and dequantize: every kernel with the bytes that PyTorch's casts
 * have (quantize_oracle.py), among them those of all numbers of bf16; with the
 * bits of the reference over shapes, blocks, gaps and transposed copies; what
 * is not finite; what is refused. linear_quantized: every kernel against the
 * reference, of one panel and of several; a plain loop over the bytes says what
 * they stand for. */
#include "loong/quantize.h"

#include "convert.h"
#include "loong/register.h"
#include "op_case.h"
#include "op_device.h"
#include "op_draw.h"
#include "quant.h"

enum { NUMBERS = 65536, ROWS = 200, COLS = 300 };

typedef struct expected {
    loong_dtype_t dtype;
    int block_rows;
    float scale;
    uint64_t q, scales; /* FNV-1a of their bytes */
} expected_t;

static const expected_t oracle[] = {
    {LOONG_F8_E4M3, 0, 1.0f, 0xd8b2feb674a31125, 0},
    {LOONG_F8_E4M3, 0, 0.37f, 0x45aae1e7ce82d225, 0},
    {LOONG_F8_E4M3, 0, 3e-05f, 0x84281067e36e24d, 0},
    {LOONG_F8_E4M3, 1, 0.0f, 0xc0a314a52cc547a9, 0xb8272d7a32cc4b8},
    {LOONG_F8_E4M3, 128, 0.0f, 0x6dc20b3b42e23883, 0x49de21a1a74d529},
    {LOONG_F8_E5M2, 0, 1.0f, 0x22c10a2b6f34bb85, 0},
    {LOONG_F8_E5M2, 0, 0.37f, 0x263835cb65a11c1d, 0},
    {LOONG_F8_E5M2, 0, 3e-05f, 0x2b717d128ddcfc01, 0},
    {LOONG_F8_E5M2, 1, 0.0f, 0x911b5d2867c7a7af, 0xd2f5b5a28e4b5c4d},
    {LOONG_F8_E5M2, 128, 0.0f, 0x631abfe4870eea42, 0x88cbe574a8b44af9},
};

static uint16_t every[NUMBERS];
static uint16_t mixed[ROWS * COLS];

static uint64_t add_bytes(uint64_t sum, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        sum = (sum ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
    }
    return sum;
}

static const uint64_t no_bytes = 0xcbf29ce484222325;

static double number_of(loong_dtype_t dtype, int code)
{
    return (double)(dtype == LOONG_F8_E4M3
                        ? loongi_e4m3_to_f32((uint8_t)code)
                        : loongi_e5m2_to_f32((uint8_t)code));
}

/* The bits of a number that was read; NaN has one pattern here. */
static uint8_t code_of(const double numbers[256], double x)
{
    int code = 0;
    while (code < 256 && memcmp(&numbers[code], &x, sizeof(x)) != 0) {
        code++;
    }
    assert_true(code < 256 || isnan(x));
    return (uint8_t)(isnan(x) ? 0x7f : code);
}

static uint64_t sum_of(loong_dtype_t dtype, const double *q, int64_t n)
{
    double numbers[256];
    uint64_t sum = no_bytes;
    for (int i = 0; i < 256; i++) {
        numbers[i] = number_of(dtype, i);
    }
    for (int64_t i = 0; i < n; i++) {
        uint8_t code = code_of(numbers, q[i]);
        sum = add_bytes(sum, &code, 1);
    }
    return sum;
}

static int64_t blocks_of(int64_t n, int64_t each)
{
    return (n + each - 1) / each;
}

/* q, scales, amax, q'. */
static op_case_t quantize_case(const loong_quantize_attr_t *a, op_arg_t x,
                               const float *scale)
{
    op_case_t c = {.op = "quantize", .attr = a, .num_in = 2, .num_out = 4};
    c.arg[0] = x;
    if (a->block_rows == 0) {
        c.arg[1] = op_vec(LOONG_F32, 1);
        c.arg[1].values = scale;
    } else {
        c.arg[3] = op_mat(LOONG_F32, blocks_of(x.dim[0], a->block_rows),
                          blocks_of(x.dim[1], LOONG_QUANTIZE_BLOCK));
    }
    c.arg[2] = op_mat(a->dtype, x.dim[0], x.dim[1]);
    c.arg[2].gap = x.gap > 0 ? x.gap + 2 : 0;
    c.arg[4] = op_vec(LOONG_F32, 1);
    if (a->transposed) {
        c.arg[5] = op_mat(a->dtype, x.dim[1], x.dim[0]);
        c.arg[5].gap = c.arg[2].gap;
    }
    return c;
}

static void release(double *out[4])
{
    for (int o = 0; o < 4; o++) {
        free(out[o]);
    }
}

static void check_oracle(const expected_t *e, const char *kernel)
{
    loong_quantize_attr_t a = {e->dtype, e->block_rows, false};
    bool blocks = e->block_rows > 0;
    op_arg_t x = blocks ? op_mat(LOONG_BF16, ROWS, COLS)
                        : op_mat(LOONG_BF16, 256, 256);
    x.values = blocks ? mixed : every;
    op_case_t c = quantize_case(&a, x, &e->scale);
    double *out[LOONG_MAX_OPERANDS] = {NULL};
    op_case_outputs(&c, kernel, out);
    assert_true(sum_of(e->dtype, out[0], x.dim[0] * x.dim[1]) == e->q);
    uint64_t sum = no_bytes;
    int64_t n = blocks ? c.arg[3].dim[0] * c.arg[3].dim[1] : 0;
    for (int64_t i = 0; i < n; i++) {
        float scale = (float)out[1][i];
        sum = add_bytes(sum, &scale, sizeof(scale));
    }
    assert_true(n == 0 || sum == e->scales);
    assert_true(blocks ? out[2][0] > 0.0 : isnan(out[2][0]));
    release(out);
}

static void test_oracle(void **state)
{
    uint32_t random = 1;
    (void)state;
    for (int i = 0; i < NUMBERS; i++) {
        every[i] = (uint16_t)i;
    }
    for (int i = 0; i < ROWS * COLS; i++) {
        random = random * 1664525u + 1013904223u;
        uint32_t u = random >> 16;
        mixed[i] = (uint16_t)((u & 0x807f) | (115 + (u >> 7 & 15)) << 7);
    }
    for (int i = 0; i < LOONG_COUNT_OF(oracle); i++) {
        check_oracle(&oracle[i], "quantize_ref");
        check_oracle(&oracle[i], NULL);
    }
}

/* ---- shapes -------------------------------------------------------------- */

static const int64_t shapes[][2] = {{1, 1},    {3, 17},   {5, 128},  {130, 129},
                                    {257, 40}, {64, 320}, {131, 516}};

static void same_numbers(const double *a, const double *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        assert_true(isnan(a[i]) ? isnan(b[i])
                                : memcmp(&a[i], &b[i], sizeof(a[i])) == 0);
    }
}

/* The device's kernel with the bits of the reference; q' is q turned over. */
static void check_shape(const loong_quantize_attr_t *a, op_arg_t x)
{
    static const float scale = 0.011f;
    op_case_t c = quantize_case(a, x, &scale);
    double *ref[LOONG_MAX_OPERANDS] = {NULL};
    double *out[LOONG_MAX_OPERANDS] = {NULL};
    op_case_outputs(&c, "quantize_ref", ref);
    op_case_outputs(&c, NULL, out);
    op_case_threads(&c);
    for (int o = 0; o < 4; o++) {
        const op_arg_t *y = &c.arg[2 + o];
        assert_true((out[o] == NULL) == (ref[o] == NULL));
        if (out[o] != NULL) {
            same_numbers(out[o], ref[o],
                         y->dim[0] * (y->rank > 1 ? y->dim[1] : 1));
        }
    }
    for (int64_t i = 0; i < x.dim[0] && a->transposed; i++) {
        for (int64_t j = 0; j < x.dim[1]; j++) {
            same_numbers(&out[0][i * x.dim[1] + j], &out[3][j * x.dim[0] + i],
                         1);
        }
    }
    release(ref);
    release(out);
}

static const loong_quantize_attr_t attrs[] = {
    {LOONG_F8_E4M3, 0, false},   {LOONG_F8_E5M2, 0, true},
    {LOONG_F8_E4M3, 1, false},   {LOONG_F8_E5M2, 1, false},
    {LOONG_F8_E4M3, 128, false}, {LOONG_F8_E4M3, 128, true},
    {LOONG_F8_E5M2, 128, true},
};

static void test_shapes(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(shapes); i++) {
        for (int k = 0; k < LOONG_COUNT_OF(attrs); k++) {
            op_arg_t x = op_mat((i + k) % 2 == 0 ? LOONG_BF16 : LOONG_F32,
                                shapes[i][0], shapes[i][1]);
            x.gap = k % 3 == 1 ? 5 : k % 3 == 2 ? 8 : 0;
            check_shape(&attrs[k], x);
        }
    }
}

static void test_drawn(void **state)
{
    (void)state;
    op_draw_t d = op_draw_begin(8);
    while (op_draw_next(&d)) {
        op_arg_t x = op_mat(op_draw_dtype(&d), op_draw_size(&d, 300),
                            op_draw_size(&d, 300));
        double *values = op_normal(x.dim[0] * x.dim[1], (int)(d.seed % 65536),
                                   exp2(op_draw_below(&d, 40) - 20.0));
        x.wide_values = values;
        x.gap = op_draw_gap(&d);
        check_shape(&attrs[op_draw_below(&d, LOONG_COUNT_OF(attrs))], x);
        free(values);
    }
}

/* Zeros, the smallest numbers, and what is none, each in a block of its own. */
static void test_odd(void **state)
{
    static float x[4 * 512];
    (void)state;
    for (int i = 0; i < 4 * 512; i++) {
        int block = i % 512 / 128;
        x[i] = block == 0   ? (i % 2 == 0 ? 0.0f : -0.0f)
               : block == 1 ? 0x1p-149f * (float)(i % 5)
               : block == 2 ? (i % 128 == 77 ? INFINITY : (float)i)
                            : (i % 128 == 5 ? NAN : (float)-i);
    }
    for (int k = 0; k < LOONG_COUNT_OF(attrs); k++) {
        op_arg_t m = op_mat(LOONG_F32, 4, 512);
        m.values = x;
        check_shape(&attrs[k], m);
    }
}

/* ---- dequantize ---------------------------------------------------------- */

static op_case_t dequantize_case(const loong_quantize_attr_t *a,
                                 loong_dtype_t q, const int64_t shape[2],
                                 const uint8_t *bytes)
{
    op_case_t c = {.op = "dequantize", .attr = a, .num_in = 2, .num_out = 1};
    c.arg[0] = op_mat(q, shape[0], shape[1]);
    c.arg[0].values = bytes;
    c.arg[1] = a->block_rows == 0
                   ? op_vec(LOONG_F32, 1)
                   : op_mat(LOONG_F32, blocks_of(shape[0], a->block_rows),
                            blocks_of(shape[1], LOONG_QUANTIZE_BLOCK));
    c.arg[2] = op_mat(a->dtype, shape[0], shape[1]);
    c.bound.roundings = 1;
    return c;
}

/* Every number there is. */
static void test_numbers(void **state)
{
    static const int64_t shape[2] = {16, 16};
    static const float one = 1.0f;
    uint8_t bytes[256];
    (void)state;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (uint8_t)i;
    }
    for (int t = LOONG_F8_E4M3; t <= LOONG_F8_E5M2; t++) {
        static const loong_quantize_attr_t a = {LOONG_F32, 0, false};
        op_case_t c = dequantize_case(&a, (loong_dtype_t)t, shape, bytes);
        double *out[LOONG_MAX_OPERANDS] = {NULL};
        c.arg[1].values = &one;
        op_case_outputs(&c, NULL, out);
        for (int i = 0; i < 256; i++) {
            double x = number_of((loong_dtype_t)t, i);
            same_numbers(&x, &out[0][i], 1);
        }
        free(out[0]);
    }
}

static void test_dequantize(void **state)
{
    static uint8_t bytes[131 * 516];
    (void)state;
    for (int i = 0; i < 131 * 516; i++) { /* numbers alone */
        bytes[i] = (uint8_t)((i * 37 + i / 7) % 0x78 | (i % 3 == 0 ? 0x80 : 0));
    }
    for (int i = 0; i < LOONG_COUNT_OF(shapes); i++) {
        for (int k = 0; k < LOONG_COUNT_OF(attrs); k++) {
            loong_quantize_attr_t a = attrs[k];
            a.dtype = (i + k) % 2 == 0 ? LOONG_BF16 : LOONG_F32;
            a.transposed = false;
            op_case_t c =
                dequantize_case(&a, attrs[k].dtype, shapes[i], bytes);
            c.arg[0].gap = k % 3 == 1 ? 3 : 0;
            c.arg[2].gap = k % 3 == 1 ? 5 : 0;
            assert_true(op_case_reference(&c) > 0);
            op_case_threads(&c);
        }
    }
}

/* ---- what is refused ----------------------------------------------------- */

static void refused(const loong_quantize_attr_t *a, loong_dtype_t dtype,
                    bool scale, const char *text)
{
    loong_context_t *ctx = test_context();
    loong_precision_t precision = {LOONG_BF16, LOONG_F32};
    loong_graph_t *g = NULL;
    assert_ok(ctx, loong_register_builtin(ctx));
    assert_ok(ctx, loong_graph_create(ctx, precision, &g));
    loong_val_t x =
        loong_graph_input(g, "x", dtype, loong_shape_2d(256, 256));
    loong_val_t s =
        loong_graph_input(g, "s", LOONG_F32, loong_shape_1d(1));
    if (loongi_dtype_is_fp8(dtype)) {
        loong_dequantize(g, x, s, a);
    } else {
        loong_quantize(g, x, scale ? s : LOONG_NONE, a);
    }
    if (strstr(loong_context_error(ctx), text) == NULL) {
        fail_msg("'%s' instead of '%s'", loong_context_error(ctx), text);
    }
    loong_graph_destroy(&g);
    test_context_end(&ctx);
}

/* ---- products with codes ------------------------------------------------- */

static uint8_t *encoded(loong_quant_t quant, int64_t rows, int64_t cols)
{
    int64_t size = loongi_quant_row_bytes(quant, cols);
    int64_t blocks = rows * cols / LOONG_QUANT_BLOCK;
    double *values = op_normal(rows * cols, 5, 0.05);
    float *x = calloc((size_t)(rows * cols), sizeof(float));
    float *absmax = calloc((size_t)(2 * blocks + 1), sizeof(float));
    uint8_t *bytes = calloc((size_t)rows, (size_t)size);
    for (int64_t i = 0; i < rows * cols; i++) {
        x[i] = i < LOONG_QUANT_BLOCK ? 0.0f : (float)values[i];
    }
    loongi_quant_absmax(x, blocks * LOONG_QUANT_BLOCK, absmax);
    loong_quant_nested_t nested =
        loongi_quant_nest(absmax, blocks, absmax + blocks);
    for (int64_t r = 0; r < rows; r++) {
        loong_quant_row_t row = {x + r * cols, r, cols, 0, cols};
        loongi_quant_encode(quant, &row, &nested, bytes + r * size);
    }
    free(absmax);
    free(x);
    free(values);
    return bytes;
}

/* A matrix of rows x cols, or one of each expert: the second has no rows of x,
 * and behind those of the last there is one more. */
typedef struct codes {
    loong_quant_t quant;
    int64_t rows, cols;
    int experts; /* 0: none */
} codes_t;

static void check_product(const codes_t *p, loong_dtype_t dtype,
                          bool transposed)
{
    enum { TOKENS = 5 };
    static const int32_t offsets[] = {0, 1, 1, 4};
    loong_linear_quantized_attr_t a = {p->quant, p->cols, transposed, 1.0};
    op_case_t c = {.op = "linear_quantized", .attr = &a, .num_in = 3,
                   .num_out = 1};
    int64_t size = loongi_quant_row_bytes(p->quant, p->cols);
    uint8_t *bytes = encoded(p->quant, LOONG_MAX(p->experts, 1) * p->rows,
                             p->cols);
    op_arg_t *y = &c.arg[3];
    c.arg[0] = op_mat(dtype, TOKENS, transposed ? p->rows : p->cols);
    c.arg[0].gap = p->rows % 3;
    c.arg[1] = op_mat(LOONG_U8, p->rows, size);
    if (p->experts > 0) {
        c.num_in = 4;
        c.arg[1] = op_mat(LOONG_U8, p->experts, p->rows);
        c.arg[1].rank = 3;
        c.arg[1].dim[2] = size;
        c.arg[3] = op_vec(LOONG_I32, p->experts + 1);
        c.arg[3].values = offsets;
        y = &c.arg[4];
    } else if (!transposed) {
        c.arg[2] = op_vec(LOONG_F32, p->rows);
    }
    c.arg[1].values = bytes;
    *y = op_mat(dtype, TOKENS, transposed ? p->cols : p->rows);
    y->gap = p->cols % 5;
    c.arg[0].spare = y->spare = p->experts > 0 ? 1 : 0;
    c.bound.roundings = 2;
    c.bound.terms = c.arg[0].dim[1];
    assert_true(op_case_reference(&c) > 0);
    free(bytes);
}

static void test_products_with_codes(void **state)
{
    (void)state;
    static const codes_t sizes[] = {
        {LOONG_QUANT_NF4, 70, 192, 0},
        {LOONG_QUANT_NF4, 2100, 256, 0},
        {LOONG_QUANT_NF4, 4000, 192, 0},
        {LOONG_QUANT_NF4_DOUBLE, 70, 1088, 0},
        {LOONG_QUANT_NF4_DOUBLE, 3, 20480, 0},
        {LOONG_QUANT_INT8, 70, 203, 0},
        {LOONG_QUANT_INT8, 4000, 161, 0},
        {LOONG_QUANT_NF4, 192, 256, 3},
        {LOONG_QUANT_NF4, 1500, 192, 3},
        {LOONG_QUANT_NF4_DOUBLE, 6, 20480, 3},
        {LOONG_QUANT_INT8, 70, 203, 3},
    };
    for (int i = 0; i < LOONG_COUNT_OF(sizes); i++) {
        for (int k = 0; k < 4; k++) {
            check_product(&sizes[i], k & 1 ? LOONG_BF16 : LOONG_F32, k & 2);
        }
    }
}

/* Every kernel makes the bytes' numbers, which are exact but for their own
 * rounding. */
static void test_dequantize_blockwise(void **state)
{
    (void)state;
    enum { ROWS_OF = 5, WIDTH = 192 };
    for (int q = LOONG_QUANT_NF4; q < LOONG_QUANT_COUNT; q++) {
        uint8_t *bytes = encoded((loong_quant_t)q, ROWS_OF, WIDTH);
        int64_t size = loongi_quant_row_bytes((loong_quant_t)q, WIDTH);
        for (int t = 0; t < 3; t++) {
            static const loong_dtype_t types[] = {LOONG_F64, LOONG_F32,
                                                  LOONG_BF16};
            loong_dequantize_blockwise_attr_t a = {(loong_quant_t)q, WIDTH,
                                                   types[t]};
            op_case_t c = {.op = "dequantize_blockwise", .attr = &a,
                           .num_in = 1, .num_out = 1};
            double *got[LOONG_MAX_OPERANDS] = {NULL};
            double want[ROWS_OF * WIDTH];
            loong_quant_part_t all = {(loong_quant_t)q, bytes, size, WIDTH, 0,
                                      ROWS_OF, 0, WIDTH};
            c.arg[0] = op_mat(LOONG_U8, ROWS_OF, size);
            c.arg[0].values = bytes;
            c.arg[1] = op_mat(types[t], ROWS_OF, WIDTH);
            c.arg[1].gap = 8;
            c.bound.roundings = 1;
            op_case_reference(&c);
            op_case_outputs(&c, "dequantize_blockwise_ref", got);
            loongi_quant_decode(&all, LOONG_F64, want, WIDTH, 1);
            for (int i = 0; i < ROWS_OF * WIDTH; i++) {
                assert_true(fabs(got[0][i] - want[i]) <=
                            (t == 2 ? 0x1p-8 : 0.0) * fabs(want[i]));
            }
            free(got[0]);
        }
        free(bytes);
    }
}

/* What the reference makes of the bytes is what quant.h says. */
static void test_numbers_of_codes(void **state)
{
    (void)state;
    enum { ROWS_OF = 6, WIDTH = 4160 };
    float dynamic[256];
    double got[WIDTH];
    loongi_quant_dynamic(dynamic);
    for (int q = LOONG_QUANT_NF4; q < LOONG_QUANT_COUNT; q++) {
        loong_quant_t quant = (loong_quant_t)q;
        int64_t size = loongi_quant_row_bytes(quant, WIDTH);
        uint8_t *bytes = encoded(quant, ROWS_OF, WIDTH);
        for (int64_t r = 0; r < ROWS_OF; r++) {
            const uint8_t *row = bytes + r * size;
            loong_quant_part_t part = {quant, bytes, size, WIDTH, r, 1, 64,
                                       WIDTH - 64};
            loongi_quant_decode(&part, LOONG_F64, got, WIDTH, 1);
            for (int64_t c = 64; c < WIDTH; c++) {
                float scale[64];
                int code = row[c / 2] >> (c % 2 == 0 ? 4 : 0) & 15;
                const uint8_t *at = row + (q == LOONG_QUANT_INT8 ? WIDTH
                                                                 : WIDTH / 2);
                float want = loongi_quant_normal[code];
                memcpy(scale, at, sizeof(scale));
                if (q == LOONG_QUANT_INT8) {
                    want = (float)(int8_t)row[c] * scale[0] *
                           7.874015718698502e-3f;
                } else if (q == LOONG_QUANT_NF4) {
                    memcpy(scale, at + c / 64 * 4, sizeof(float));
                    want *= scale[0];
                } else { /* 65 blocks a row, of 256 in order */
                    int32_t before;
                    int64_t nested = (r * 65 + c / 64) / 256 - r * 65 / 256;
                    memcpy(scale, at + 68, 5 * sizeof(float));
                    memcpy(&before, at + 72, sizeof(before));
                    assert_int_equal(before, 256 - r * 65 % 256);
                    want *= dynamic[at[c / 64]] * scale[2 + nested] + scale[0];
                }
                assert_true((double)want == got[c - 64]);
            }
        }
        free(bytes);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const loong_quantize_attr_t a[] = {
        {LOONG_BF16, 0, false},  {LOONG_F8_E4M3, 64, false},
        {LOONG_F8_E4M3, 1, true}, {LOONG_F8_E4M3, 0, false},
        {LOONG_F8_E4M3, 1, false}, {LOONG_BF16, 128, false},
        {LOONG_BF16, 0, true}};
    refused(&a[0], LOONG_BF16, true,
            "quantize: to bf16; fp8_e4m3 or fp8_e5m2 wanted");
    refused(&a[1], LOONG_BF16, false,
            "quantize: blocks of 64 rows, 1 or 128 wanted, or 0 for one "
            "scale");
    refused(&a[2], LOONG_BF16, false,
            "quantize: a transposed copy with blocks of 1 row");
    refused(&a[3], LOONG_BF16, false, "quantize: no scale and blocks of 0");
    refused(&a[4], LOONG_BF16, true, "quantize: a scale and blocks of 1");
    refused(&a[3], LOONG_I32, true,
            "quantize: x is int32; fp64, fp32 or bf16 wanted");
    refused(&a[3], LOONG_F8_E4M3, true,
            "dequantize: to fp8_e4m3; fp64, fp32 or bf16 wanted");
    refused(&a[5], LOONG_F8_E4M3, true,
            "dequantize: scale has 1 dimensions, 2 wanted");
    refused(&a[6], LOONG_F8_E5M2, true,
            "dequantize: a transposed copy, which quantize alone makes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracle),  cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_odd),
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_dequantize),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_drawn),
        cmocka_unit_test(test_products_with_codes),
        cmocka_unit_test(test_dequantize_blockwise),
        cmocka_unit_test(test_numbers_of_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
