/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops whose first output may take the storage of an input: every kernel gives
 * the same bits either way. */
#include <math.h>

#include "convert.h"
#include "loong/kernel.h"
#include "loong/ops.h"
#include "loong/register.h"
#include "op_device.h"
#include "rng.h"
#include "test.h"

enum { ROWS = 37, COLS = 1056, MAX_ARGS = 9 };

/* One operand: f full, h of half its channels, w weights (wide), s statistic
 * (wide), t rope table (wide), k token keys, i flags, n and m operands of a
 * product, - absent ones. Inputs, then a bar, then outputs. */
typedef struct entry {
    const char *op;
    const void *attr;
    const char *operands;
} entry_t;

static const loong_gelu_attr_t gelu_erf = {LOONG_ACT_GELU};
static const loong_gelu_attr_t gelu_tanh = {LOONG_ACT_GELU_TANH};
static const loong_gelu_attr_t gelu_quick = {LOONG_ACT_QUICK_GELU};
static const loong_scale_attr_t factor = {0.7, 0.0};
static const loong_dropout_attr_t drop = {0.3, 2, 0};
static const loong_dropout_attr_t drop_rest = {0.3, 2, 5};
static const loong_linear_add_attr_t whole = {0, false};
static const loong_rope_attr_t halves = {96, false, false, 0};
static const loong_rope_attr_t pairs = {96, true, true, 0};

static const loong_select_rows_attr_t plain = {false};
static const loong_select_rows_attr_t inverse = {true};
static const loong_norm_attr_t large_eps = {30.0};

static const entry_t entries[] = {
    {"swiglu_grad", NULL, "hf|f"},
    {"gelu_grad", &gelu_erf, "ff|f"},
    {"gelu_grad", &gelu_tanh, "ff|f"},
    {"gelu_grad", &gelu_quick, "ff|f"},
    {"rmsnorm_grad", NULL, "ffws-|fw"},
    {"rmsnorm_grad", NULL, "ffwsf|fw"},
    {"layernorm_grad", NULL, "ffwss-|fww"},
    {"layernorm_grad", NULL, "ffwssf|f--"},
    {"rms_scale_grad", &large_eps, "ffsw|fsw"},
    {"add", NULL, "ff|f"},
    {"multiply", NULL, "ff|f"},
    {"scale", &factor, "f|f"},
    {"dropout", &drop, "fk|f"},
    {"dropout", &drop_rest, "fk|f"},
    {"linear_add", &whole, "fnm|f"},
    {"magnitude", NULL, "fcww|f"},
    {"magnitude", NULL, "fc|f"},
    {"rope", &halves, "ft|f"},
    {"rope", &pairs, "ft|f"},
    {"select_rows", &plain, "fif|f"},
    {"select_rows", &inverse, "fi|f"},
};

typedef struct memory {
    char bytes[MAX_ARGS][ROWS * COLS * 4];
} memory_t;

static loong_karg_t arg_of(char kind, loong_dtype_t dtype)
{
    loong_karg_t full = {dtype, 2, {ROWS, COLS, 0, 0}, COLS};
    loong_karg_t half = {dtype, 2, {ROWS, COLS / 2, 0, 0}, COLS / 2};
    loong_karg_t narrow = {dtype, 2, {ROWS, 33, 0, 0}, 33};
    loong_karg_t matrix = {dtype, 2, {COLS, 33, 0, 0}, 33};
    loong_karg_t weights = {LOONG_F32, 1, {COLS, 0, 0, 0}, COLS};
    loong_karg_t statistic = {LOONG_F32, 2, {ROWS, 1, 0, 0}, 1};
    loong_karg_t sums = {LOONG_F32, 2, {COLS, 1, 0, 0}, 1};
    loong_karg_t angles = {LOONG_F32, 2, {ROWS, 64, 0, 0}, 64};
    loong_karg_t keys = {LOONG_I64, 1, {ROWS, 0, 0, 0}, ROWS};
    loong_karg_t flags = {LOONG_I32, 1, {ROWS, 0, 0, 0}, ROWS};
    loong_karg_t absent = {0, 0, {0, 0, 0, 0}, 0};
    switch (kind) {
    case 'f':
        return full;
    case 'h':
        return half;
    case 'n':
        return narrow;
    case 'm':
        return matrix;
    case 'w':
        return weights;
    case 's':
        return statistic;
    case 'c':
        return sums;
    case 't':
        return angles;
    case 'k':
        return keys;
    case 'i':
        return flags;
    default:
        return absent;
    }
}

static loong_kernel_query_t query_of(const entry_t *e, loong_dtype_t dtype)
{
    loong_kernel_query_t q = {e->op, e->attr, 0, 0, 2, 0, {{0}}, {0}};
    int count = 0;
    q.num_in = (int)(strchr(e->operands, '|') - e->operands);
    for (const char *p = e->operands; *p != '\0'; p++) {
        if (*p != '|') {
            q.arg[count++] = arg_of(*p, dtype);
        }
    }
    q.num_out = count - q.num_in;
    return q;
}

static void fill(const loong_kernel_query_t *q, memory_t *m)
{
    memset(m, 0, sizeof(*m));
    for (int i = 0; i < q->num_in; i++) {
        int64_t n = loong_karg_rows(&q->arg[i]) *
                    loong_karg_cols(&q->arg[i]);
        bool keys = q->arg[i].dtype == LOONG_I64;
        bool flags = q->arg[i].dtype == LOONG_I32;
        for (int64_t k = 0; k < n && flags; k += 3) {
            m->bytes[i][k * (int64_t)sizeof(int32_t)] = 1;
        }
        for (int64_t k = 0; k < n && q->arg[i].rank > 0 && !keys && !flags;
             k++) {
            double v = loongi_rng_normal(4, (uint64_t)i, (uint64_t)k);
            v = q->arg[i].dim[1] == 1 ? fabs(v) : v;
            size_t size = loong_dtype_size(q->arg[i].dtype);
            assert_int_equal(loongi_convert(NULL, LOONG_F64, &v,
                                            q->arg[i].dtype,
                                            m->bytes[i] + (size_t)k * size, 1),
                             LOONG_OK);
        }
    }
}

typedef struct room {
    void *workspace;
    void *made; /* by prepare */
} room_t;

static void launch(loong_context_t *ctx, const loong_kernel_t *kernel,
                   const loong_kernel_query_t *q, const room_t *room,
                   memory_t *m, int overwrites)
{
    loong_frame_t frame = {.step = 1, .seed = 9};
    void *ptr[MAX_ARGS];
    fill(q, m);
    for (int i = 0; i < q->num_in + q->num_out; i++) {
        ptr[i] = q->arg[i].rank > 0 ? m->bytes[i] : NULL;
    }
    if (overwrites >= 0) {
        ptr[q->num_in] = ptr[overwrites];
    }
    loong_kernel_call_t call = {ctx, q,               room->made, &frame,
                                ptr, room->workspace, NULL, 0, 0, NULL,
                                NULL, NULL, NULL, false};
    assert_ok(ctx, op_device_run(kernel, &call));
}

static void check(loong_context_t *ctx, const loong_kernel_t *kernel,
                  const loong_kernel_query_t *q, memory_t *m)
{
    size_t size = kernel->workspace != NULL ? kernel->workspace(q) : 0;
    void *workspace = aligned_alloc(64, (size / 64 + 1) * 64);
    void *made = NULL;
    int overwrites = loong_find_op(ctx, q->op)->overwrites;
    assert_non_null(workspace);
    if (kernel->prepare != NULL) {
        assert_ok(ctx, kernel->prepare(ctx, q, &made));
    }
    room_t room = {workspace, made};
    launch(ctx, kernel, q, &room, &m[0], -1);
    launch(ctx, kernel, q, &room, &m[1], overwrites);
    if (kernel->prepare != NULL) {
        kernel->destroy(ctx, made);
    }
    if (memcmp(m[1].bytes[overwrites], m[0].bytes[q->num_in],
               sizeof(m->bytes[0])) != 0) {
        fail_msg("%s: another output in place", kernel->name);
    }
    for (int o = q->num_in + 1; o < q->num_in + q->num_out; o++) {
        if (memcmp(m[0].bytes[o], m[1].bytes[o], sizeof(m->bytes[o])) != 0) {
            fail_msg("%s: another output %d in place", kernel->name,
                     o - q->num_in);
        }
    }
    free(workspace);
}

static void test_in_place(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    memory_t *m = calloc(2, sizeof(*m));
    assert_non_null(m);
    assert_ok(ctx, loong_register_builtin(ctx));
    for (int i = 0; i < 2 * LOONG_COUNT_OF(entries); i++) {
        const entry_t *e = &entries[i / 2];
        loong_kernel_query_t q =
            query_of(e, i % 2 == 0 ? LOONG_F32 : LOONG_BF16);
        const loong_kernel_t *k = NULL;
        char reason[LOONG_REASON_SIZE];
        for (int n = 0;
             (k = loong_find_kernel(ctx, e->op, OP_DEVICE, n)) != NULL; n++) {
            if (k->support == NULL || k->support(&q, reason)) {
                check(ctx, k, &q, m);
            }
        }
    }
    free(m);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
