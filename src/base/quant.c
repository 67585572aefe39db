/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantises rows and makes numbers of them again. Called by readers of weights
 * and by the kernels of linear_quantized. Read quant.h before. */
#include "quant.h"

#include <math.h>
#include <string.h>

#include "convert.h"
#include "port.h"

const float loongi_quant_normal[16] = {LOONG_QUANT_NORMAL};

static const char *const names[LOONG_QUANT_COUNT] = {"none", "nf4",
                                                     "nf4_double", "int8"};

const char *loongi_quant_name(loong_quant_t quant)
{
    return names[quant];
}

loong_quant_t loongi_quant_named(const char *name)
{
    int i = name != NULL ? LOONG_QUANT_COUNT - 1 : LOONG_QUANT_NONE;
    while (i > LOONG_QUANT_NONE && strcmp(names[i], name) != 0) {
        i--;
    }
    return (loong_quant_t)i;
}

/* So many nested scales can so many blocks have, wherever they begin. */
static int64_t nested_count(int64_t blocks)
{
    return (blocks + LOONG_QUANT_NESTED - 2) / LOONG_QUANT_NESTED + 1;
}

int64_t loongi_quant_row_bytes(loong_quant_t quant, int64_t cols)
{
    int64_t blocks = cols / LOONG_QUANT_BLOCK;
    int64_t size = loongi_quant_scales_at(quant, cols);
    if (quant == LOONG_QUANT_NF4) {
        size += blocks * (int64_t)sizeof(float);
    } else if (quant == LOONG_QUANT_NF4_DOUBLE) {
        size += loongi_quant_nested_at(blocks) +
                (2 + nested_count(blocks)) * (int64_t)sizeof(float);
    } else {
        size += (int64_t)sizeof(float);
    }
    return loongi_round_up(size, LOONG_QUANT_ROW_ALIGN);
}

/* Dettmers 2016: seven decades, of which each has twice the numbers of the one
 * below; the middles of equal steps from 0.1 to 1 of a decade. */
void loongi_quant_dynamic(float map[256])
{
    static const float low = 0.1f;
    int count = 0;
    map[127] = 0.0f;
    map[255] = 1.0f;
    for (int i = 0; i < 7; i++) {
        int steps = 1 << i;
        float decade = (float)pow(10.0, i - 6);
        float step = (1.0f - low) / (float)steps;
        float before = low;
        for (int k = 1; k <= steps; k++, count++) {
            double bound = 2 * k < steps + 1 ? (double)low + (double)step * k
                                             : 1.0 - (double)step * (steps - k);
            float middle = decade * ((before + (float)bound) / 2.0f);
            map[128 + count] = middle;
            map[126 - count] = -middle;
            before = (float)bound;
        }
    }
}

/* ---- quantising ---------------------------------------------------------- */

static float largest(const float *x, int64_t count)
{
    float most = 0.0f;
    for (int64_t i = 0; i < count; i++) {
        most = fmaxf(most, fabsf(x[i]));
    }
    return most;
}

void loongi_quant_absmax(const float *x, int64_t count, float *absmax)
{
    for (int64_t i = 0; i < count; i += LOONG_QUANT_BLOCK) {
        absmax[i / LOONG_QUANT_BLOCK] = largest(x + i, LOONG_QUANT_BLOCK);
    }
}

loong_quant_nested_t loongi_quant_nest(const float *absmax, int64_t blocks,
                                       float *room)
{
    double sum = 0.0;
    for (int64_t i = 0; i < blocks; i++) {
        sum += (double)absmax[i];
    }
    loong_quant_nested_t nested = {(float)(sum / (double)blocks), room};
    for (int64_t i = 0; i < blocks; i++) {
        float *most = &room[i / LOONG_QUANT_NESTED];
        float own = fabsf(absmax[i] - nested.offset);
        *most = i % LOONG_QUANT_NESTED == 0 ? own : fmaxf(*most, own);
    }
    return nested;
}

/* The number of middles between numbers that are below x. */
static int nearest(const float *map, int count, float x)
{
    int low = 0;
    int high = count - 1;
    while (low < high) {
        int at = (low + high) / 2;
        if ((map[at] + map[at + 1]) / 2.0f < x) {
            low = at + 1;
        } else {
            high = at;
        }
    }
    return low;
}

static float inverse(float absmax)
{
    return 1.0f / fmaxf(absmax, 1e-38f);
}

static float clamped(float x)
{
    return fminf(fmaxf(x, -1.0f), 1.0f);
}

/* Compares with all middles: a loop without branches. */
static LOONG_CLONES void encode_block(const float *x, float absmax,
                                      uint8_t *codes)
{
    uint8_t code[LOONG_QUANT_BLOCK] = {0};
    float over = inverse(absmax);
    for (int k = 0; k < 15; k++) {
        float middle =
            (loongi_quant_normal[k] + loongi_quant_normal[k + 1]) / 2.0f;
        for (int i = 0; i < LOONG_QUANT_BLOCK; i++) {
            code[i] = (uint8_t)(code[i] + (middle < x[i] * over));
        }
    }
    for (int i = 0; i < LOONG_QUANT_BLOCK / 2; i++) {
        codes[i] = (uint8_t)(code[2 * i] << 4 | code[2 * i + 1]);
    }
}

void loongi_quant_put_nested(const loong_quant_nested_t *nested, int64_t first,
                             int64_t blocks, void *at)
{
    char *to = at;
    int64_t group = first / LOONG_QUANT_NESTED;
    int32_t before = (int32_t)((group + 1) * LOONG_QUANT_NESTED - first);
    int64_t groups = (first + blocks - 1) / LOONG_QUANT_NESTED - group + 1;
    memcpy(to, &nested->offset, sizeof(float));
    memcpy(to + sizeof(float), &before, sizeof(before));
    memcpy(to + 2 * sizeof(float), nested->scale + group,
           (size_t)groups * sizeof(float));
}

static void encode_nf4(const loong_quant_row_t *r,
                       const loong_quant_nested_t *nested, uint8_t *to)
{
    int64_t blocks = r->count / LOONG_QUANT_BLOCK;
    int64_t first = (r->number * r->cols + r->begin) / LOONG_QUANT_BLOCK;
    uint8_t *scales = to + r->count / 2;
    float map[256];
    if (nested != NULL) {
        loongi_quant_dynamic(map);
        loongi_quant_put_nested(nested, first, blocks,
                                scales + loongi_quant_nested_at(blocks));
    }
    for (int64_t b = 0; b < blocks; b++) {
        const float *x = r->x + r->begin + b * LOONG_QUANT_BLOCK;
        float absmax = largest(x, LOONG_QUANT_BLOCK);
        encode_block(x, absmax, to + b * LOONG_QUANT_BLOCK / 2);
        if (nested != NULL) {
            float scale = nested->scale[(first + b) / LOONG_QUANT_NESTED];
            float over = (absmax - nested->offset) * inverse(scale);
            scales[b] = (uint8_t)nearest(map, 256, clamped(over));
        } else {
            memcpy(scales + b * (int64_t)sizeof(float), &absmax, sizeof(float));
        }
    }
}

/* bitsandbytes quantises what it has rounded to fp16. */
static void encode_int8(const loong_quant_row_t *r, uint8_t *to)
{
    float absmax = 0.0f;
    for (int64_t i = 0; i < r->cols; i++) {
        float x = loongi_f16_to_f32(loongi_f32_to_f16(r->x[i]));
        absmax = fmaxf(absmax, fabsf(x));
    }
    float over = absmax > 0.0f ? 1.0f / absmax * 127.0f : 0.0f;
    for (int64_t i = 0; i < r->count; i++) {
        float x = loongi_f16_to_f32(loongi_f32_to_f16(r->x[r->begin + i]));
        to[i] = (uint8_t)(int8_t)rintf(x * over);
    }
    memcpy(to + loongi_quant_scales_at(LOONG_QUANT_INT8, r->count), &absmax,
           sizeof(float));
}

void loongi_quant_encode(loong_quant_t quant, const loong_quant_row_t *row,
                         const loong_quant_nested_t *nested, void *bytes)
{
    memset(bytes, 0, (size_t)loongi_quant_row_bytes(quant, row->count));
    if (quant == LOONG_QUANT_INT8) {
        encode_int8(row, bytes);
    } else {
        encode_nf4(row, quant == LOONG_QUANT_NF4_DOUBLE ? nested : NULL, bytes);
    }
}

/* ---- back ---------------------------------------------------------------- */

static float absmax_of(const loong_quant_part_t *p, const float *map,
                       const uint8_t *scales, int64_t block)
{
    float scale = 0.0f;
    float offset = 0.0f;
    int32_t before = 0;
    if (p->quant == LOONG_QUANT_NF4) {
        memcpy(&scale, scales + block * (int64_t)sizeof(float), sizeof(scale));
        return scale;
    }
    const uint8_t *nested =
        scales + loongi_quant_nested_at(p->cols / LOONG_QUANT_BLOCK);
    memcpy(&offset, nested, sizeof(offset));
    memcpy(&before, nested + sizeof(offset), sizeof(before));
    int64_t group =
        block < before ? 0 : (block - before) / LOONG_QUANT_NESTED + 1;
    memcpy(&scale, nested + (2 + group) * (int64_t)sizeof(float),
           sizeof(scale));
    return map[scales[block]] * scale + offset;
}

static LOONG_CLONES void decode_block(const uint8_t *codes, float absmax,
                                      float *x)
{
    float number[16];
    for (int i = 0; i < 16; i++) {
        number[i] = loongi_quant_normal[i] * absmax;
    }
    for (int i = 0; i < LOONG_QUANT_BLOCK / 2; i++) {
        x[2 * i] = number[codes[i] >> 4];
        x[2 * i + 1] = number[codes[i] & 15];
    }
}

static LOONG_CLONES void decode_bytes(const int8_t *codes, float absmax,
                                      int64_t count, float *x)
{
    for (int64_t i = 0; i < count; i++) {
        x[i] = (float)codes[i] * absmax * LOONG_QUANT_INT8_STEP;
    }
}

static LOONG_CLONES void store(const float *x, int64_t count,
                               loong_dtype_t dtype, void *to)
{
    if (dtype == LOONG_F64) {
        for (int64_t i = 0; i < count; i++) {
            ((double *)to)[i] = (double)x[i];
        }
    } else if (dtype == LOONG_F32) {
        memcpy(to, x, (size_t)count * sizeof(*x));
    } else {
        const uint32_t *bits = (const uint32_t *)(const void *)x;
        for (int64_t i = 0; i < count; i++) { /* to the nearest, even */
            uint32_t w = bits[i];
            ((uint16_t *)to)[i] =
                (uint16_t)((w + 0x7fffu + (w >> 16 & 1u)) >> 16);
        }
    }
}

static void decode_row(const loong_quant_part_t *p, const float *map,
                       const uint8_t *row, loong_dtype_t dtype, char *to)
{
    float x[LOONG_QUANT_BLOCK];
    const uint8_t *scales = row + loongi_quant_scales_at(p->quant, p->cols);
    int64_t size = (int64_t)loong_dtype_size(dtype);
    float absmax = 0.0f;
    memcpy(&absmax, scales, sizeof(absmax));
    for (int64_t c = p->col; c < p->col + p->num_cols; c += LOONG_QUANT_BLOCK) {
        int64_t n =
            LOONG_MIN((int64_t)LOONG_QUANT_BLOCK, p->col + p->num_cols - c);
        if (p->quant == LOONG_QUANT_INT8) {
            decode_bytes((const int8_t *)row + c, absmax, n, x);
        } else {
            decode_block(row + c / 2,
                         absmax_of(p, map, scales, c / LOONG_QUANT_BLOCK), x);
        }
        store(x, n, dtype, to);
        to += n * size;
    }
}

void loongi_quant_decode(const loong_quant_part_t *part, loong_dtype_t dtype,
                         void *to, int64_t ld, int threads)
{
    const loong_quant_part_t *p = part;
    int64_t bytes = ld * (int64_t)loong_dtype_size(dtype);
    float map[256];
    if (p->quant == LOONG_QUANT_NF4_DOUBLE) {
        loongi_quant_dynamic(map);
    }
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t r = 0; r < p->num_rows; r++) {
        decode_row(p, map, (const uint8_t *)p->rows + (p->row + r) * p->ld,
                   dtype, (char *)to + r * bytes);
    }
}
