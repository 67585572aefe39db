/* SPDX-License-Identifier: Apache-2.0
 *
 * attention and attention_grad: every kernel against the reference, over head
 * groupings, windows, packed segments, odd sizes, strides, some of the rows,
 * rows that see one another before a common end. */
#include "attention_case.h"

/* Prefixes of segments, and what stands in the middle of one. */
static const ranges_t prefixes = {{{0, 40}, {65, 66}, {130, 200}}};
static const ranges_t middle = {{{3, 90}, {120, 137}}};

static const setting_t settings[] = {
    {1, 1, 1, true, 0, 0.0, 2, {0, 1}, ALL, ALL, 0, NULL},
    {2, 1, 3, true, 0, 0.0, 2, {0, 5}, ALL, ALL, 0, NULL},
    {4, 2, 16, true, 0, 0.0, 2, {0, 64}, ALL, ALL, 0, NULL},
    {2, 2, 64, true, 0, 0.0, 2, {0, 130}, ALL, ALL, 0, NULL},
    {6, 2, 24, true, 0, 0.0, 3, {0, 65, 260}, ALL, ALL, 0, NULL},
    {3, 1, 40, false, 0, 0.0, 4, {0, 7, 7, 140}, ALL, ALL, 0, NULL},
    {2, 2, 80, true, 0, 0.0, 8, {0, 1, 1, 34, 163, 200, 200, 200}, ALL, ALL, 0,
     NULL},
    {2, 1, 32, true, 1, 0.0, 2, {0, 70}, ALL, ALL, 0, NULL},
    {2, 1, 32, true, 2, 0.0, 2, {0, 70}, ALL, ALL, 0, NULL},
    {2, 1, 32, true, 50, 0.0, 3, {0, 311, 330}, ALL, ALL, 0, NULL},
    {1, 1, 64, true, 128, 0.0, 2, {0, 390}, ALL, ALL, 0, NULL},
    {2, 1, 128, false, 0, 0.0, 3, {0, 129, 133}, ALL, ALL, 0, NULL},
    {4, 2, 16, true, 0, 0.25, 3, {0, 90, 135}, ALL, ALL, 0, NULL},
    {2, 2, 20, false, 0, 0.5, 2, {0, 37}, ALL, ALL, 0, NULL},
    {2, 1, 16, true, 33, 0.1, 2, {0, 210}, ALL, ALL, 0, NULL},
    {2, 1, 32, true, 0, 0.0, 2, {0, 320}, {{{40, 80}, {240, 280}}}, ALL, 0,
     NULL},
    {4, 2, 24, true, 0, 0.0, 5, {0, 65, 65, 190, 330},
     {{{70, 72}, {150, 200}, {329, 330}}}, ALL, 0, NULL},
    {2, 2, 16, true, 50, 0.2, 4, {0, 120, 250, 300}, {{{110, 240}, {260, 270}}},
     ALL, 0, NULL},
    {2, 1, 40, false, 0, 0.0, 4, {0, 130, 140, 270}, {{{3, 90}, {120, 150}}},
     ALL, 0, NULL},
    /* Some of the keys; some queries see none. */
    {2, 1, 32, true, 0, 0.0, 2, {0, 320}, {{{40, 80}, {240, 280}}},
     {{{80, 120}, {200, 240}}}, 0, NULL},
    {4, 2, 24, true, 0, 0.0, 5, {0, 65, 65, 190, 330},
     {{{70, 72}, {150, 200}, {329, 330}}}, {{{60, 67}, {90, 173}}}, 0, NULL},
    {2, 2, 16, true, 50, 0.2, 4, {0, 120, 250, 300}, {{{110, 240}, {260, 270}}},
     {{{101, 122}, {203, 266}}}, 0, NULL},
    {2, 1, 40, false, 0, 0.0, 4, {0, 130, 140, 270}, {{{3, 90}, {120, 150}}},
     {{{1, 50}, {77, 133}, {139, 142}}}, 0, NULL},
    {1, 1, 8, true, 0, 0.3, 2, {0, 350}, ALL, {{{33, 36}, {171, 350}}}, 0,
     NULL},
    /* Ends of their own. */
    {4, 2, 24, true, 0, 0.0, 5, {0, 65, 65, 130, 260}, ALL, ALL, 0, &prefixes},
    {1, 1, 64, true, 0, 0.0, 2, {0, 300}, ALL, ALL, 0, &middle},
    {2, 1, 32, true, 0, 0.2, 3, {0, 100, 140}, {{{20, 60}, {110, 139}}}, ALL,
     40, &middle},
    {2, 1, 192, true, 0, 0.0, 3, {0, 100, 140}, ALL, ALL, 128, &middle},
    /* Values narrower and wider than keys, as in latent attention. */
    {2, 2, 24, true, 0, 0.0, 3, {0, 65, 200}, ALL, ALL, 16, NULL},
    {3, 1, 16, true, 0, 0.0, 3, {0, 129, 150}, ALL, ALL, 40, NULL},
    {4, 2, 20, true, 30, 0.2, 3, {0, 90, 170}, {{{40, 80}, {100, 170}}},
     {{{20, 60}, {90, 160}}}, 12, NULL},
    {1, 1, 192, true, 0, 0.0, 2, {0, 140}, ALL, ALL, 128, NULL},
    /* Latent attention that is absorbed. */
    {2, 1, 576, true, 0, 0.0, 2, {0, 37}, ALL, ALL, 512, NULL},
    {1, 1, 400, false, 0, 0.2, 3, {0, 5, 35}, {{{3, 20}}}, ALL, 0, NULL},
};

/* For cuDNN beside the others: segments that are all alike, many and empty
 * ones, lengths that are no multiples of a tile. */
static const setting_t fused[] = {
    {4, 2, 64, true, 0, 0.0, 3, {0, 64, 128}, ALL, ALL, 0, NULL},
    {2, 2, 16, false, 0, 0.0, 5, {0, 33, 66, 99, 132}, ALL, ALL, 0, NULL},
    {6, 2, 32, true, 20, 0.0, 3, {0, 50, 100}, ALL, ALL, 0, NULL},
    {4, 1, 8, true, 0, 0.0, 7, {0, 1, 1, 30, 77, 78, 78}, ALL, ALL, 0, NULL},
    {4, 2, 24, true, 9, 0.0, 5, {0, 33, 60, 60, 61}, ALL, ALL, 40, NULL},
    {8, 8, 8, false, 0, 0.0, 4, {0, 21, 30, 160}, ALL, ALL, 0, NULL},
    {8, 2, 128, true, 0, 0.0, 2, {0, 2048}, ALL, ALL, 0, NULL}, /* OP_LARGE */
};

static void expect(int kernels, loong_dtype_t dtype)
{
    if (dtype != LOONG_F64 && kernels < 1) {
        fail_msg("only the reference supports %s", loong_dtype_name(dtype));
    }
}

static void forward(const setting_t *s, int i, int t)
{
    loong_attention_attr_t attr = attr_of(s);
    op_case_t c = forward_case(s, &attr, types[t], i % 2 == 1);
    c.threads = 1 + i % 3;
    expect(op_case_reference(&c), types[t]);
    memset(&c.arg[9], 0, sizeof(c.arg[9])); /* lse not wanted */
    if (i % 4 == t) {
        expect(op_case_reference(&c), types[t]);
    }
}

static void test_forward(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(settings); i++) {
        for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
            forward(&settings[i], i, t);
        }
    }
}

/* o and lse of the forward are operands of the backward: those of the
 * reference, rounded to the case's types. */
static void backward(const setting_t *s, loong_dtype_t dtype, bool gap,
                     int threads)
{
    loong_attention_attr_t attr = attr_of(s);
    op_case_t f = forward_case(s, &attr, dtype, false);
    double *out[LOONG_MAX_OPERANDS] = {NULL};
    op_case_t c = {
        .op = "attention_grad", .attr = &attr, .num_in = 11, .num_out = 3};
    c.attention = backend;
    c.arg[0] = outputs_arg(s, dtype, gap);
    c.arg[1] = queries_arg(s, dtype, gap);
    c.arg[2] = keys_arg(s, dtype, gap);
    c.arg[3] = latent ? channels_of(&c, 2, v_dim(s))
                      : values_arg(s, dtype, gap);
    c.arg[4] = outputs_arg(s, dtype, false);
    c.arg[5] = op_mat(wide(dtype), queries_of(s), s->heads);
    c.arg[6] = cu_arg(s);
    if (s->dropout > 0.0) {
        c.arg[7] = key_arg(s);
    }
    c.arg[8] = rows_arg(s, &s->queries, rows);
    c.arg[9] = rows_arg(s, &s->keys, key_rows);
    c.arg[10] = ends_arg(s);
    c.arg[11] = queries_arg(s, dtype, gap);
    c.arg[12] = keys_arg(s, dtype, gap);
    c.arg[13] = values_arg(s, dtype, gap);
    c.frame = f.frame;
    c.seed = seed;
    c.threads = threads;
    /* p, ds, o and the result; p and ds carry the error of a score. */
    c.bound.roundings = 4;
    c.bound.terms = s->heads / s->kv_heads * attr.max_seqlen + s->head_dim;
    for (int i = 0; i < 3; i++) {
        f.arg[i].stream = i + 2; /* the values of q, k, v in c */
    }
    op_case_outputs(&f, "attention_ref", out);
    c.arg[4].wide_values = out[0];
    c.arg[5].wide_values = out[1];
    expect(op_case_reference(&c), dtype);
    free(out[0]);
    free(out[1]);
}

static void test_backward(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(settings); i++) {
        for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
            if (settings[i].window != 1 && tokens_of(&settings[i]) > 1) {
                /* Else dq and dk are 0: nothing to be relative to. */
                backward(&settings[i], types[t], i % 2 == 1, 1 + i % 3);
            }
        }
    }
}

static void test_latent(void **state)
{
    (void)state;
    static const setting_t absorbed[] = {
        {1, 1, 576, true, 0, 0.0, 4, {0, 40, 40, 67}, ALL, ALL, 512, NULL},
        {2, 1, 300, true, 20, 0.2, 2, {0, 37}, ALL, ALL, 270, NULL},
        {1, 1, 40, false, 0, 0.0, 3, {0, 9, 20}, ALL, ALL, 32, NULL},
    };
    latent = true;
    for (int i = 0; i < 2 * LOONG_COUNT_OF(absorbed); i++) {
        forward(&absorbed[i / 2], i % 2, 1 + i % 2);
        backward(&absorbed[i / 2], types[1 + i % 2], i % 4 < 2, 2);
    }
    latent = false;
}

/* Up to three ranges of the rows, or all. */
static ranges_t drawn_ranges(op_draw_t *d, int32_t tokens)
{
    ranges_t r = ALL;
    int32_t at = op_draw_below(d, tokens);
    for (int i = 0; i < 3 && at < tokens && op_draw_below(d, 4) > 0; i++) {
        r.at[i][0] = at;
        r.at[i][1] = at + 1 + op_draw_below(d, tokens - at);
        at = r.at[i][1] + 1 + op_draw_below(d, tokens);
    }
    return r;
}

/* The first rows of up to three segments see one another. */
static const ranges_t *drawn_blocks(op_draw_t *d, const setting_t *s)
{
    static ranges_t blocks;
    memset(&blocks, 0, sizeof(blocks));
    for (int i = 0; i < 3 && i + 1 < s->entries; i++) {
        blocks.at[i][0] = s->cu_seqlens[i];
        blocks.at[i][1] =
            s->cu_seqlens[i] +
            op_draw_below(d, s->cu_seqlens[i + 1] - s->cu_seqlens[i] + 1);
    }
    return &blocks;
}

/* No few keys: gradients of scores would be what larger terms leave. */
static setting_t drawn_setting(op_draw_t *d)
{
    setting_t s = {0};
    s.kv_heads = 1 + op_draw_below(d, 2);
    s.heads = s.kv_heads * (1 + op_draw_below(d, 3));
    s.head_dim = (int)op_draw_size(d, op_draw_below(d, 4) == 0 ? 600 : 130);
    s.v_dim = op_draw_below(d, 3) == 0 ? (int)op_draw_size(d, 130) : 0;
    s.causal = op_draw_below(d, 3) > 0;
    s.window = op_draw_below(d, 4) == 0 ? 8 + op_draw_size(d, 60) : 0;
    s.window = s.causal ? s.window : 0;
    s.dropout = op_draw_below(d, 3) == 0 ? 0.2 : 0.0;
    s.entries = 2 + op_draw_below(d, MAX_ENTRIES - 1);
    for (int i = 1; i < s.entries; i++) {
        bool empty = op_draw_below(d, 4) == 0 && i > 1;
        s.cu_seqlens[i] = s.cu_seqlens[i - 1] +
                          (empty ? 0 : (int32_t)op_draw_size(d, 46) + 1) +
                          (i == 1 ? 8 : 0);
    }
    if (s.causal && s.window == 0 && op_draw_below(d, 3) == 0) {
        s.blocks = drawn_blocks(d, &s);
    }
    return s;
}

static void test_drawn(void **state)
{
    (void)state;
    op_draw_t d = op_draw_begin(4);
    while (op_draw_next(&d)) {
        setting_t s = drawn_setting(&d);
        int t = 1 + op_draw_below(&d, 2);
        int variant = op_draw_below(&d, 12);
        seed = d.seed;
        backward(&s, types[t], variant % 2 == 1, 1 + variant % 3);
        int32_t tokens = s.cu_seqlens[s.entries - 1];
        if (op_draw_below(&d, 2) == 0) {
            s.queries = drawn_ranges(&d, tokens);
            s.keys = s.blocks == NULL ? drawn_ranges(&d, tokens) : s.keys;
        }
        forward(&s, variant, t);
    }
    seed = 0;
}

/* Whatever the scale; tensor cores want a positive one. */
static void test_scales(void **state)
{
    (void)state;
    static const setting_t s = {2, 1, 20, true, 0, 0.0, 3, {0, 30, 41}, ALL,
                                ALL, 0, NULL};
    static const double scales[] = {0.0, -0.3};
    for (int i = 0; i < 2 * LOONG_COUNT_OF(scales); i++) {
        loong_dtype_t dtype = types[1 + i % 2];
        loong_attention_attr_t attr = attr_of(&s);
        attr.scale = scales[i / 2];
        op_case_t c = forward_case(&s, &attr, dtype, false);
        int kernels = op_case_reference(&c);
        expect(strcmp(OP_DEVICE, "cpu") == 0 ? 1 : kernels, dtype);
    }
}

/* dq, dk and dv of the reference against differences of its forward. */
static void differences(const setting_t *s)
{
    loong_attention_attr_t attr = attr_of(s);
    op_case_t f = forward_case(s, &attr, LOONG_F64, false);
    double *values[3];
    double *forward[LOONG_MAX_OPERANDS] = {NULL};
    double *grad[LOONG_MAX_OPERANDS] = {NULL};
    for (int i = 0; i < 3; i++) {
        values[i] = op_normal(f.arg[i].dim[0] * f.arg[i].dim[1], i + 1, 1.0);
        f.arg[i].wide_values = values[i];
    }
    double *weight = op_normal(f.arg[8].dim[0] * f.arg[8].dim[1], 9, 1.0);
    op_case_outputs(&f, "attention_ref", forward);
    op_case_t b = {.op = "attention_grad",
                   .attr = &attr,
                   .num_in = 11,
                   .num_out = 3,
                   .arg = {f.arg[8], f.arg[0], f.arg[1], f.arg[2], f.arg[8],
                           f.arg[9], f.arg[3], f.arg[4], f.arg[5], f.arg[6],
                           f.arg[7], f.arg[0], f.arg[1], f.arg[2]},
                   .frame = f.frame};
    b.arg[0].wide_values = weight;
    b.arg[4].wide_values = forward[0];
    b.arg[5].wide_values = forward[1];
    op_case_outputs(&b, "attention_grad_ref", grad);
    for (int i = 0; i < 3; i++) {
        op_difference_t d = {&f, i, 8, 1, {weight}, grad[i], 1e-8};
        op_case_differences(&d);
    }
    for (int i = 0; i < 3; i++) {
        free(values[i]);
        free(forward[i]);
        free(grad[i]);
    }
    free(weight);
}

static void test_differences(void **state)
{
    (void)state;
    static const ranges_t few = {{{0, 5}, {10, 13}}};
    static const setting_t small[] = {
        {4, 2, 6, true, 0, 0.0, 4, {0, 9, 9, 21}, ALL, ALL, 0, NULL},
        {2, 1, 5, false, 0, 0.0, 3, {0, 11, 14}, ALL, ALL, 0, NULL},
        {2, 2, 4, true, 3, 0.0, 2, {0, 13}, ALL, ALL, 0, NULL},
        {4, 1, 3, true, 0, 0.3, 3, {0, 8, 17}, ALL, ALL, 0, NULL},
        {2, 1, 4, true, 0, 0.2, 3, {0, 8, 17}, {{{1, 4}, {6, 11}, {16, 17}}},
         ALL, 0, NULL},
        {2, 1, 4, true, 0, 0.2, 3, {0, 8, 17}, {{{1, 4}, {6, 11}, {16, 17}}},
         {{{1, 2}, {5, 9}, {12, 15}}}, 0, NULL},
        {2, 1, 4, true, 0, 0.2, 3, {0, 8, 17}, ALL, ALL, 3, NULL},
        {2, 2, 3, true, 4, 0.0, 2, {0, 13}, ALL, ALL, 5, NULL},
        {2, 1, 4, true, 0, 0.0, 3, {0, 8, 17}, ALL, ALL, 0, &few},
    };
    for (int i = 0; i < LOONG_COUNT_OF(small); i++) {
        differences(&small[i]);
    }
}

/* cuDNN's kernel where it is, and others; bf16 alone is its own. */
static void test_fused(void **state)
{
    (void)state;
    enum { BF16 = 2 };
    backend = LOONG_ATTENTION_AUTO;
    for (int i = 0; i < LOONG_COUNT_OF(fused) - !OP_LARGE; i++) {
        forward(&fused[i], i, BF16);
        backward(&fused[i], LOONG_BF16, i % 2 == 0, 2);
    }
    backend = LOONG_ATTENTION_LOCAL;
}

static void test_bad_segments(void **state)
{
    (void)state;
    static const struct {
        int32_t cu_seqlens[3];
        const char *text;
    } bad[] = {
        {{1, 5, 9}, "cu_seqlens[0] is 1, must be 0"},
        {{0, 7, 9}, "cu_seqlens[1] is 7 after 0: a segment has 0 to 5 rows"},
        {{0, 5, 4}, "cu_seqlens[2] is 4 after 5"},
        {{0, 4, 8}, "cu_seqlens ends with 8, must end with the 9 rows"},
    };
    static const char *const kernels[] = {NULL, "attention_ref"};
    setting_t s = {1, 1, 8, true, 0, 0.0, 3, {0, 4, 9}, ALL, ALL, 0, NULL};
    loong_attention_attr_t attr = attr_of(&s);
    for (int i = 0; i < LOONG_COUNT_OF(bad); i++) {
        for (int k = 0; k < 2; k++) {
            char text[512];
            op_case_t c = forward_case(&s, &attr, LOONG_F32, false);
            c.arg[3].values = bad[i].cu_seqlens;
            assert_int_equal(op_case_status(&c, kernels[k], text),
                             LOONG_ERR_ARG);
            if (strstr(text, bad[i].text) == NULL) {
                fail_msg("'%s' is not in: %s", bad[i].text, text);
            }
        }
    }
}

static void test_bad_rows(void **state)
{
    (void)state;
    static const struct {
        int32_t rows[3];
        const char *text;
    } bad[] = {
        {{-1, 4, 8},
         "rows[0] is -1 after -1, must ascend and be below the end of "
         "cu_seqlens, 9"},
        {{0, 4, 4}, "rows[2] is 4 after 4"},
        {{0, 4, 9}, "rows[2] is 9 after 4"},
    };
    static const char *const kernels[] = {NULL, "attention_ref"};
    setting_t s = {1, 1, 8, true, 0, 0.0, 3, {0, 4, 9}, {{{0, 3}}}, ALL, 0,
                   NULL};
    loong_attention_attr_t attr = attr_of(&s);
    for (int i = 0; i < LOONG_COUNT_OF(bad); i++) {
        for (int k = 0; k < 2; k++) {
            char text[512];
            op_case_t c = forward_case(&s, &attr, LOONG_F32, false);
            c.arg[5].values = bad[i].rows;
            assert_int_equal(op_case_status(&c, kernels[k], text),
                             LOONG_ERR_ARG);
            if (strstr(text, bad[i].text) == NULL) {
                fail_msg("'%s' is not in: %s", bad[i].text, text);
            }
        }
    }
}

static void test_bad_ends(void **state)
{
    (void)state;
    static const struct {
        int32_t ends[5];
        const char *text;
    } bad[] = {
        {{1, 1, 3, 4, 5}, "key_ends[1] is 1 after 1, must ascend, be behind "
                          "its row and not behind its segment, 3"},
        {{3, 2, 3, 4, 5}, "key_ends[1] is 2 after 3"},
        {{4, 4, 4, 4, 5}, "and not behind its segment, 3"},
    };
    static const char *const kernels[] = {NULL, "attention_ref"};
    static const ranges_t first = {{{0, 2}}};
    setting_t s = {1, 1, 8, true, 0, 0.0, 3, {0, 3, 5}, ALL, ALL, 0, &first};
    loong_attention_attr_t attr = attr_of(&s);
    for (int i = 0; i < 2 * LOONG_COUNT_OF(bad); i++) {
        char text[512];
        op_case_t c = forward_case(&s, &attr, LOONG_F32, false);
        c.arg[7].values = bad[i / 2].ends;
        assert_int_equal(op_case_status(&c, kernels[i % 2], text),
                         LOONG_ERR_ARG);
        if (strstr(text, bad[i / 2].text) == NULL) {
            fail_msg("'%s' is not in: %s", bad[i / 2].text, text);
        }
    }
}

/* About p of the probabilities are dropped: with v = 1 the output is the sum
 * of the kept ones over 1 - p, whose mean is 1. */
static void test_dropout_rate(void **state)
{
    (void)state;
    setting_t s = {4, 4, 4, false, 0, 0.3, 2, {0, 200}, ALL, ALL, 0, NULL};
    loong_attention_attr_t attr = attr_of(&s);
    static float ones[200 * 16];
    static float zeros[200 * 16];
    double *out[LOONG_MAX_OPERANDS] = {NULL};
    op_case_t c = forward_case(&s, &attr, LOONG_F32, false);
    for (int i = 0; i < 200 * 16; i++) {
        ones[i] = 1.0f;
    }
    c.arg[0].values = zeros;
    c.arg[2].values = ones;
    op_case_outputs(&c, NULL, out);
    double mean = 0.0;
    for (int i = 0; i < 200 * 16; i++) {
        mean += out[0][i] / (200 * 16);
    }
    /* 200 * 4 rows of 200 independent draws: deviation of the mean */
    double deviation = sqrt(0.3 / 0.7 / (200.0 * 4.0 * 200.0));
    assert_true(fabs(mean - 1.0) < 5.0 * deviation);
    assert_true(fabs(out[0][0] - 1.0) > 1e-6);
    free(out[0]);
    free(out[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_backward),
        cmocka_unit_test(test_fused),
        cmocka_unit_test(test_latent),
        cmocka_unit_test(test_drawn),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_bad_segments),
        cmocka_unit_test(test_bad_rows),
        cmocka_unit_test(test_bad_ends),
        cmocka_unit_test(test_dropout_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
