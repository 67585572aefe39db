/* SPDX-License-Identifier: Apache-2.0
 *
 * Reduction in rank order. Each element type has an accumulator type: its own,
 * or fp32 for the two-byte floats. Called by shared.c and message.c. Read
 * inside/reduce.h before. */
#include <string.h>

#include "convert.h"
#include "port.h"
#include "reduce.h"

/* Elements whose accumulators stay in registers while all sources pass. */
enum { BLOCK = 64 };

typedef void (*reduce_fn)(const loong_reduction_t *reduction);

/* As loongi_bf16_to_f32 and back, where the compiler can make vectors. */
static inline float bf16_get(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint16_t bf16_put(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    uint32_t nan = bits | 0x400000;
    bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    return (uint16_t)((is_nan ? nan : rounded) >> 16);
}

#define SAME(x_) (x_)
/* Wrapping sums go through the unsigned type. */
#define ADD_FLOAT(type_, a_, b_) ((a_) + (b_))
#define ADD_INT(type_, a_, b_) ((type_)((uint64_t)(a_) + (uint64_t)(b_)))
/* x != x is true for NaN alone, and false for integers. */
#define MAX_OF(a_, x_) ((x_) > (a_) || (x_) != (x_) ? (x_) : (a_))
#define MIN_OF(a_, x_) ((x_) < (a_) || (x_) != (x_) ? (x_) : (a_))

/* A whole block at a time, so that its loops have a fixed length. */
#define DEFINE_REDUCE(name_, acc_t_, store_t_, get_, put_, expr_)          \
    static inline void name_##_part(const loong_reduction_t *r, int64_t i, \
                                    int64_t n)                             \
    {                                                                      \
        acc_t_ a[BLOCK];                                                   \
        const store_t_ *s = (const store_t_ *)r->sources[0] + i;           \
        for (int64_t k = 0; k < n; k++) {                                  \
            a[k] = get_(s[k]);                                             \
        }                                                                  \
        for (int p = 1; p < r->source_count; p++) {                        \
            s = (const store_t_ *)r->sources[p] + i;                       \
            for (int64_t k = 0; k < n; k++) {                              \
                acc_t_ x = get_(s[k]);                                     \
                a[k] = (expr_);                                            \
            }                                                              \
        }                                                                  \
        for (int p = 0; p < r->target_count; p++) {                        \
            store_t_ *t = (store_t_ *)r->targets[p] + i;                   \
            for (int64_t k = 0; k < n; k++) {                              \
                t[k] = put_(a[k]);                                         \
            }                                                              \
        }                                                                  \
    }                                                                      \
    LOONG_CLONES static void name_(const loong_reduction_t *r)             \
    {                                                                      \
        int64_t i = 0;                                                     \
        for (; i + BLOCK <= r->count; i += BLOCK) {                        \
            name_##_part(r, i, BLOCK);                                     \
        }                                                                  \
        name_##_part(r, i, r->count - i);                                  \
    }

#define DEFINE_ALL(name_, acc_t_, store_t_, get_, put_, add_)                 \
    DEFINE_REDUCE(name_##_sum, acc_t_, store_t_, get_, put_,                  \
                  add_(acc_t_, a[k], x))                                      \
    DEFINE_REDUCE(name_##_max, acc_t_, store_t_, get_, put_, MAX_OF(a[k], x)) \
    DEFINE_REDUCE(name_##_min, acc_t_, store_t_, get_, put_, MIN_OF(a[k], x))

DEFINE_ALL(f64, double, double, SAME, SAME, ADD_FLOAT)
DEFINE_ALL(f32, float, float, SAME, SAME, ADD_FLOAT)
DEFINE_ALL(bf16, float, uint16_t, bf16_get, bf16_put, ADD_FLOAT)
DEFINE_ALL(f16, float, uint16_t, loongi_f16_to_f32, loongi_f32_to_f16,
           ADD_FLOAT)
DEFINE_ALL(i64, int64_t, int64_t, SAME, SAME, ADD_INT)
DEFINE_ALL(i32, int32_t, int32_t, SAME, SAME, ADD_INT)
DEFINE_ALL(i16, int16_t, int16_t, SAME, SAME, ADD_INT)
DEFINE_ALL(i8, int8_t, int8_t, SAME, SAME, ADD_INT)
DEFINE_ALL(u16, uint16_t, uint16_t, SAME, SAME, ADD_INT)
DEFINE_ALL(u8, uint8_t, uint8_t, SAME, SAME, ADD_INT)

#define ALL(name_)                            \
    {                                         \
        name_##_sum, name_##_max, name_##_min \
    }

void loongi_reduce(const loong_reduction_t *reduction)
{
    static const reduce_fn table[LOONG_DTYPE_COUNT][LOONG_REDUCE_COUNT] = {
        [LOONG_F64] = ALL(f64),   [LOONG_F32] = ALL(f32),
        [LOONG_BF16] = ALL(bf16), [LOONG_F16] = ALL(f16),
        [LOONG_I64] = ALL(i64),   [LOONG_I32] = ALL(i32),
        [LOONG_I16] = ALL(i16),   [LOONG_I8] = ALL(i8),
        [LOONG_U16] = ALL(u16),   [LOONG_U8] = ALL(u8),
        [LOONG_BOOL] = ALL(u8),
    };
    table[reduction->dtype][reduction->reduce](reduction);
}

const char *loong_reduce_name(loong_reduce_t reduce)
{
    static const char *const names[] = {
#define LOONG_REDUCE_TEXT(name_, text_) text_,
        LOONG_REDUCE_LIST(LOONG_REDUCE_TEXT)
#undef LOONG_REDUCE_TEXT
    };
    bool inside = (int)reduce >= 0 && reduce < LOONG_REDUCE_COUNT;
    return inside ? names[reduce] : "unknown reduction";
}
