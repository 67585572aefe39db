/* SPDX-License-Identifier: Apache-2.0
 *
 * Reduction in rank order. Each element type has an accumulator type: its own,
 * or fp32 for the two-byte floats. */
#include <string.h>

#include "convert.h"
#include "reduce.h"

enum { CHUNK = 2048 }; /* elements: an accumulator stays in the L1 cache */

typedef void (*fold_fn)(void *acc, const void *source, int64_t n);

typedef struct kernels {
    fold_fn load; /* acc = source */
    fold_fn fold[LOONG_REDUCE_COUNT];
    void (*store)(void *target, const void *acc, int64_t n);
} kernels_t;

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

#define DEFINE_FOLD(name_, acc_t_, store_t_, get_, expr_)       \
    static void name_(void *acc, const void *source, int64_t n) \
    {                                                           \
        acc_t_ *a = acc;                                        \
        const store_t_ *s = source;                             \
        for (int64_t i = 0; i < n; i++) {                       \
            acc_t_ x = get_(s[i]);                              \
            a[i] = (expr_);                                     \
        }                                                       \
    }

#define DEFINE_KERNELS(name_, acc_t_, store_t_, get_, put_, add_)           \
    DEFINE_FOLD(name_##_load, acc_t_, store_t_, get_, x)                    \
    DEFINE_FOLD(name_##_sum, acc_t_, store_t_, get_, add_(acc_t_, a[i], x)) \
    DEFINE_FOLD(name_##_max, acc_t_, store_t_, get_, MAX_OF(a[i], x))       \
    DEFINE_FOLD(name_##_min, acc_t_, store_t_, get_, MIN_OF(a[i], x))       \
    static void name_##_store(void *target, const void *acc, int64_t n)     \
    {                                                                       \
        const acc_t_ *a = acc;                                              \
        store_t_ *t = target;                                               \
        for (int64_t i = 0; i < n; i++) {                                   \
            t[i] = put_(a[i]);                                              \
        }                                                                   \
    }

DEFINE_KERNELS(f64, double, double, SAME, SAME, ADD_FLOAT)
DEFINE_KERNELS(f32, float, float, SAME, SAME, ADD_FLOAT)
DEFINE_KERNELS(bf16, float, uint16_t, bf16_get, bf16_put, ADD_FLOAT)
DEFINE_KERNELS(f16, float, uint16_t, loongi_f16_to_f32, loongi_f32_to_f16,
               ADD_FLOAT)
DEFINE_KERNELS(i64, int64_t, int64_t, SAME, SAME, ADD_INT)
DEFINE_KERNELS(i32, int32_t, int32_t, SAME, SAME, ADD_INT)
DEFINE_KERNELS(i16, int16_t, int16_t, SAME, SAME, ADD_INT)
DEFINE_KERNELS(i8, int8_t, int8_t, SAME, SAME, ADD_INT)
DEFINE_KERNELS(u16, uint16_t, uint16_t, SAME, SAME, ADD_INT)
DEFINE_KERNELS(u8, uint8_t, uint8_t, SAME, SAME, ADD_INT)

#define KERNELS(name_)                                                       \
    {                                                                        \
        name_##_load, {name_##_sum, name_##_max, name_##_min}, name_##_store \
    }

static kernels_t kernels_of(loong_dtype_t dtype)
{
    static const kernels_t table[LOONG_DTYPE_COUNT] = {
        [LOONG_F64] = KERNELS(f64),   [LOONG_F32] = KERNELS(f32),
        [LOONG_BF16] = KERNELS(bf16), [LOONG_F16] = KERNELS(f16),
        [LOONG_I64] = KERNELS(i64),   [LOONG_I32] = KERNELS(i32),
        [LOONG_I16] = KERNELS(i16),   [LOONG_I8] = KERNELS(i8),
        [LOONG_U16] = KERNELS(u16),   [LOONG_U8] = KERNELS(u8),
        [LOONG_BOOL] = KERNELS(u8),
    };
    return table[dtype];
}

void loongi_reduce(const loong_reduction_t *reduction)
{
    const loong_reduction_t *r = reduction;
    kernels_t k = kernels_of(r->dtype);
    size_t size = loong_dtype_size(r->dtype);
    _Alignas(64) unsigned char acc[CHUNK * sizeof(double)];
    for (int64_t begin = 0; begin < r->count; begin += CHUNK) {
        int64_t n = LOONG_MIN(r->count - begin, (int64_t)CHUNK);
        size_t at = (size_t)begin * size;
        k.load(acc, (const char *)r->sources[0] + at, n);
        for (int s = 1; s < r->source_count; s++) {
            k.fold[r->reduce](acc, (const char *)r->sources[s] + at, n);
        }
        for (int t = 0; t < r->target_count; t++) {
            k.store((char *)r->targets[t] + at, acc, n);
        }
    }
}
