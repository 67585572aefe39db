/* SPDX-License-Identifier: Apache-2.0
 *
 * Small matrix products on packed tiles, and the vector operations around
 * them, for kernels that are compiled per instruction set level (isa.h).
 *
 * A tile element (elem_t) is bf16 where the level multiplies bf16, else fp32.
 * The unit of a product is 32 bits: one fp32, or a pair of bf16 neighbours in
 * the summed dimension (TILE_PAIR elements).
 *
 *     C [m,n] (+)= A [m,k] B [k,n],   C fp32
 *
 * A is row-major. B is in panels of TILE_N columns: panel p holds, for each
 * unit of k, its columns one after the other. The last panel is as many vectors
 * wide as it needs. k is padded with zeros to whole units, n to whole vectors.
 */
#ifndef LOONG_TILE_H
#define LOONG_TILE_H

#include "vec.h"

#if defined(__AVX512F__)
enum { TILE_NV = 4 };
#else
enum { TILE_NV = 2 };
#endif
enum { TILE_MR = 6, TILE_N = VEC_SIZE * TILE_NV };

#if defined(__AVX512BF16__)
typedef uint16_t elem_t;
enum { TILE_PAIR = 2 };
#else
typedef float elem_t;
enum { TILE_PAIR = 1 };
#endif

VEC_INLINE vec_t vec_load_elem(const elem_t *p)
{
#if defined(__AVX512BF16__)
    __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return (vec_t)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
#else
    return vec_load(p);
#endif
}

/* Stores a vector as row-major elements. */
VEC_INLINE void vec_store_elem(elem_t *p, vec_t v)
{
#if defined(__AVX512BF16__)
    vec_store_bf16(p, v);
#else
    vec_store(p, v);
#endif
}

/* Stores one vector of each of TILE_PAIR rows of B as units; `next` is not
 * used where a unit is one element. */
VEC_INLINE void vec_store_units(elem_t *p, vec_t v, vec_t next)
{
#if defined(__AVX512BF16__)
    __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(v));
    __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(next));
    _mm512_storeu_si512(p, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
#else
    (void)next;
    vec_store(p, v);
#endif
}

/* acc += the unit at a, for all columns of one vector of B at b. */
VEC_INLINE vec_t tile_fma(const elem_t *a, const elem_t *b, vec_t acc)
{
#if defined(__AVX512BF16__)
    int32_t unit;
    memcpy(&unit, a, sizeof(unit));
    return _mm512_dpbf16_ps(acc, (__m512bh)_mm512_set1_epi32(unit),
                            (__m512bh)_mm512_loadu_si512(b));
#else
    return acc + *a * vec_load(b);
#endif
}

/* Memory that is needed next, fetched while a product runs: `rows` rows of
 * `lines` cache lines, `ld` bytes apart; `each` lines with every TILE_FETCH
 * units of k. The product moves it on. */
typedef struct tile_prefetch {
    const char *at;
    int64_t ld;
    int64_t rows;
    int64_t lines;
    int64_t line; /* the next one of the row */
    int64_t each;
} tile_prefetch_t;

enum { TILE_FETCH = 16, TILE_LINE = 64 };

VEC_INLINE void tile_fetch(tile_prefetch_t *prefetch)
{
    for (int64_t i = 0; i < prefetch->each && prefetch->rows > 0; i++) {
        __builtin_prefetch(prefetch->at + prefetch->line * TILE_LINE);
        if (++prefetch->line == prefetch->lines) {
            prefetch->line = 0;
            prefetch->at += prefetch->ld;
            prefetch->rows--;
        }
    }
}

typedef struct tile_product {
    int64_t m, n, k; /* n: columns, a multiple of VEC_SIZE; k: elements, a
                        multiple of TILE_PAIR */
    const elem_t *a;
    int64_t lda;
    const elem_t *b;
    int64_t panel; /* elements from one panel of B to the next */
    float *c;
    int64_t ldc;
    bool add;
    tile_prefetch_t *prefetch; /* NULL: nothing */
} tile_product_t;

/* MR rows of A against one panel of NV vectors; both are constants. */
VEC_INLINE void tile_micro(int mr, int nv, const tile_product_t *t,
                           const elem_t *a, const elem_t *b, float *c)
{
    vec_t acc[TILE_MR][TILE_NV];
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++) {
            acc[i][j] = t->add ? vec_load(c + i * t->ldc + j * VEC_SIZE)
                               : vec_set(0.0f);
        }
    }
    for (int64_t p = 0, end = t->k; p < t->k;) {
        if (t->prefetch != NULL) {
            tile_fetch(t->prefetch);
            end = p + TILE_FETCH * TILE_PAIR;
            end = end < t->k ? end : t->k;
        }
        for (; p < end; p += TILE_PAIR) {
#pragma GCC unroll 8
            for (int i = 0; i < mr; i++) {
#pragma GCC unroll 4
                for (int j = 0; j < nv; j++) {
                    acc[i][j] =
                        tile_fma(a + i * t->lda + p,
                                 b + j * VEC_SIZE * TILE_PAIR, acc[i][j]);
                }
            }
            b += nv * VEC_SIZE * TILE_PAIR;
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++) {
            vec_store(c + i * t->ldc + j * VEC_SIZE, acc[i][j]);
        }
    }
}

#define TILE_ROWS_CASE(mr_, nv_)          \
    case mr_:                             \
        tile_micro(mr_, nv_, t, a, b, c); \
        break;

#define TILE_WIDTH(nv_)                                                    \
    static void tile_width_##nv_(const tile_product_t *t, const elem_t *b, \
                                 float *c)                                 \
    {                                                                      \
        const elem_t *a = t->a;                                            \
        int64_t rows = t->m;                                               \
        for (; rows >= TILE_MR; rows -= TILE_MR) {                         \
            tile_micro(TILE_MR, nv_, t, a, b, c);                          \
            a += TILE_MR * t->lda;                                         \
            c += TILE_MR * t->ldc;                                         \
        }                                                                  \
        switch (rows) {                                                    \
            TILE_ROWS_CASE(5, nv_)                                         \
            TILE_ROWS_CASE(4, nv_)                                         \
            TILE_ROWS_CASE(3, nv_)                                         \
            TILE_ROWS_CASE(2, nv_)                                         \
            TILE_ROWS_CASE(1, nv_)                                         \
        default:                                                           \
            break;                                                         \
        }                                                                  \
    }

TILE_WIDTH(1)
TILE_WIDTH(2)
#if defined(__AVX512F__)
TILE_WIDTH(3)
TILE_WIDTH(4)
#endif

static inline void tile_multiply(const tile_product_t *t)
{
    const elem_t *b = t->b;
    for (int64_t n = 0; n < t->n; n += TILE_N) {
        int64_t vectors = (t->n - n) / VEC_SIZE;
        switch (vectors) {
        case 1:
            tile_width_1(t, b, t->c + n);
            break;
#if defined(__AVX512F__)
        case 2:
            tile_width_2(t, b, t->c + n);
            break;
        case 3:
            tile_width_3(t, b, t->c + n);
            break;
        default:
            tile_width_4(t, b, t->c + n);
#else
        default:
            tile_width_2(t, b, t->c + n);
#endif
        }
        b += t->panel;
    }
}

#endif
