/* SPDX-License-Identifier: Apache-2.0
 *
 * How operands get into the layouts of tile.h: copied, transposed, paired. */
#ifndef LOONG_TILE_PACK_H
#define LOONG_TILE_PACK_H

#include "tile.h"

/* Elements of storage: fp32 or bf16, rows ld apart. */
typedef struct tile_source {
    const void *data;
    bool half; /* bf16 */
    int64_t ld;
} tile_source_t;

/* Copies rows x cols into row-major elements, `width` (>= cols) apart, with
 * zeros in the rest of each row and in rows up to `all`. */
static inline void tile_copy(const tile_source_t *s, int64_t rows, int64_t cols,
                             elem_t *dst, int64_t width, int64_t all)
{
    for (int64_t r = 0; r < rows; r++) {
        elem_t *to = dst + r * width;
#if defined(__AVX512BF16__)
        memcpy(to, (const uint16_t *)s->data + r * s->ld,
               sizeof(elem_t) * (size_t)cols);
#else
        if (s->half) {
            const uint16_t *from = (const uint16_t *)s->data + r * s->ld;
            for (int64_t c = 0; c < cols; c++) {
                uint32_t bits = (uint32_t)from[c] << 16;
                memcpy(to + c, &bits, sizeof(bits));
            }
        } else {
            memcpy(to, (const float *)s->data + r * s->ld,
                   sizeof(elem_t) * (size_t)cols);
        }
#endif
        memset(to + cols, 0, sizeof(elem_t) * (size_t)(width - cols));
    }
    memset(dst + rows * width, 0,
           sizeof(elem_t) * (size_t)((all - rows) * width));
}

#if defined(__AVX512F__)
/* Transposes 16 x 16 words in registers. */
VEC_INLINE void tile_transpose_16(const word_t *src, int64_t src_ld,
                                  word_t *dst, int64_t dst_ld)
{
    __m512i a[16], b[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        a[i] = _mm512_loadu_si512(src + i * src_ld);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        b[2 * i] = _mm512_unpacklo_epi32(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm512_unpackhi_epi32(a[2 * i], a[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        a[4 * i] = _mm512_unpacklo_epi64(b[4 * i], b[4 * i + 2]);
        a[4 * i + 1] = _mm512_unpackhi_epi64(b[4 * i], b[4 * i + 2]);
        a[4 * i + 2] = _mm512_unpacklo_epi64(b[4 * i + 1], b[4 * i + 3]);
        a[4 * i + 3] = _mm512_unpackhi_epi64(b[4 * i + 1], b[4 * i + 3]);
    }
    /* a[4 g + c] holds, in lane l, column 4 l + c of rows 4 g .. 4 g + 3. */
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        __m512i p = _mm512_shuffle_i32x4(a[c], a[4 + c], 0x88);
        __m512i q = _mm512_shuffle_i32x4(a[c], a[4 + c], 0xdd);
        __m512i r = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0x88);
        __m512i s = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0xdd);
        _mm512_storeu_si512(dst + c * dst_ld, _mm512_shuffle_i32x4(p, r, 0x88));
        _mm512_storeu_si512(dst + (4 + c) * dst_ld,
                            _mm512_shuffle_i32x4(q, s, 0x88));
        _mm512_storeu_si512(dst + (8 + c) * dst_ld,
                            _mm512_shuffle_i32x4(p, r, 0xdd));
        _mm512_storeu_si512(dst + (12 + c) * dst_ld,
                            _mm512_shuffle_i32x4(q, s, 0xdd));
    }
}
#endif

/* dst [cols, rows] = src [rows, cols] transposed, words of 32 bits. */
static inline void tile_transpose(const word_t *src, int64_t src_ld,
                                  int64_t rows, int64_t cols, word_t *dst,
                                  int64_t dst_ld)
{
    for (int64_t r = 0; r < rows; r += 16) {
        for (int64_t c = 0; c < cols; c += 16) {
            const word_t *from = src + r * src_ld + c;
            word_t *to = dst + c * dst_ld + r;
#if defined(__AVX512F__)
            if (r + 16 <= rows && c + 16 <= cols) {
                tile_transpose_16(from, src_ld, to, dst_ld);
                continue;
            }
#endif
            for (int64_t j = 0; j < 16 && c + j < cols; j++) {
                for (int64_t i = 0; i < 16 && r + i < rows; i++) {
                    to[j * dst_ld + i] = from[i * src_ld + j];
                }
            }
        }
    }
}

/* B [k,n] from its transpose: row-major elements src [n,k], k a multiple of
 * TILE_PAIR, n a multiple of TILE_N; panels k * TILE_N elements apart. */
static inline void tile_pack_transposed(const elem_t *src, int64_t n, int64_t k,
                                        elem_t *dst)
{
    int64_t units = k / TILE_PAIR;
    for (int64_t p = 0; p < n; p += TILE_N) {
        tile_transpose((const word_t *)(const void *)(src + p * k), units,
                       TILE_N, units, (word_t *)(void *)(dst + p * k), TILE_N);
    }
}

/* B [k,n] from row-major elements src [k,ld], k a multiple of TILE_PAIR; n
 * columns (a multiple of VEC_SIZE, at most ld); panels k * TILE_N apart. */
static inline void tile_pack(const elem_t *src, int64_t ld, int64_t k,
                             int64_t n, elem_t *dst)
{
    for (int64_t p = 0; p < n; p += TILE_N) {
        int64_t width = n - p < TILE_N ? n - p : TILE_N;
        elem_t *to = dst + p * k;
        for (int64_t i = 0; i < k; i += TILE_PAIR) {
            const elem_t *from = src + i * ld + p;
            for (int64_t c = 0; c < width; c++) {
                for (int64_t u = 0; u < TILE_PAIR; u++) {
                    to[c * TILE_PAIR + u] = from[u * ld + c];
                }
            }
            to += width * TILE_PAIR;
        }
    }
}

/* Row-major elements, rows `width` apart (a multiple of TILE_PAIR). */
typedef struct tile_rows {
    const elem_t *data;
    int64_t width;
    int64_t rows;
    int64_t cols;
} tile_rows_t;

/* Row-major elements dst [cols,ld] = src transposed; columns from rows up to ld
 * become zero. `words` has room for width / TILE_PAIR * ld. */
static inline void tile_turn(const tile_rows_t *src, elem_t *dst, int64_t ld,
                             word_t *words)
{
    int64_t units = src->width / TILE_PAIR;
    int64_t rows = src->rows;
    tile_transpose((const word_t *)(const void *)src->data, units, rows, units,
                   words, ld);
    for (int64_t c = 0; c < src->cols; c++) {
        const word_t *from = words + c / TILE_PAIR * ld;
        elem_t *to = dst + c * ld;
        if (TILE_PAIR == 1) {
            memcpy(to, from, sizeof(elem_t) * (size_t)rows);
        } else {
            int shift = 16 * (int)(c % 2);
            for (int64_t r = 0; r < rows; r++) {
                to[r] = (elem_t)(from[r] >> shift);
            }
        }
        memset(to + rows, 0, sizeof(elem_t) * (size_t)(ld - rows));
    }
}

#endif
