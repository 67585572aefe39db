/* SPDX-License-Identifier: Apache-2.0
 *
 * What the forward and the backward of the tiled attention share (compiled per
 * instruction set level). Everything is turned so that the queries of a block
 * are the columns of tiles: scores S' = K Q' [keys, QUERIES], so that maxima,
 * sums and masks over keys are vector operations without shuffles, and
 * probabilities are stored in the layout of the next product at once.
 */
#ifndef LOONG_ATTENTION_CPU_H
#define LOONG_ATTENTION_CPU_H

#include <math.h>
#include <omp.h>
#include <stdio.h>

#include "attention.h"
#include "isa.h"
#include "tile.h"

enum {
    QUERIES = 64,  /* of a block: a multiple of TILE_N at every level */
    KEYS = 128,    /* of a block, at most */
    COLUMNS = QUERIES / VEC_SIZE, /* vectors of a block of queries */
    LINE = 64      /* bytes to which pieces of workspace are aligned */
};

/* One launch, forward or backward. */
typedef struct job {
    const loong_kernel_call_t *call;
    const loong_attention_attr_t *attr;
    loong_attention_dropout_t dropout;
    const int32_t *cu_seqlens;
    const int64_t *token_key;
    int64_t entries; /* of cu_seqlens */
    int64_t segments;
    int64_t tokens;
    int64_t d;     /* head_dim */
    int64_t width; /* d in whole vectors */
    bool half;     /* operands are bf16 */
    float factor;  /* scale * log2(e): scores to powers of two */
    /* Per key head: rows of keys (and of values), and blocks of keys turned
     * over (forward: of V, backward: of K). */
    elem_t *k_rows;
    elem_t *v_rows;
    elem_t *turned;
} job_t;

/* A segment, and one head in it. */
typedef struct part {
    int64_t segment;
    int64_t first; /* row of the whole input */
    int64_t length;
    int head;
    int kv_head;
} part_t;

static inline int64_t round_to(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Hands pieces of workspace out; without a base it only counts. */
typedef struct pieces {
    char *base;
    int64_t used;
} pieces_t;

static inline void *take(pieces_t *from, int64_t bytes)
{
    void *p = from->base != NULL ? from->base + from->used : NULL;
    from->used += round_to(bytes, LINE);
    return p;
}

static inline elem_t *take_elems(pieces_t *from, int64_t count)
{
    return take(from, count * (int64_t)sizeof(elem_t));
}

static inline float *take_floats(pieces_t *from, int64_t count)
{
    return take(from, count * (int64_t)sizeof(float));
}

/* Operand i, from row and head on. */
static inline tile_source_t source_of(const job_t *j, int i, int64_t row,
                                      int head)
{
    const loong_karg_t *arg = &j->call->query->arg[i];
    size_t size = j->half ? 2 : 4;
    tile_source_t s = {(const char *)j->call->ptr[i] +
                           (size_t)(row * arg->ld + head * j->d) * size,
                       j->half, arg->ld};
    return s;
}

/* Where a segment's turned blocks begin: whole units, also at its end. */
static inline int64_t turned_offset(const job_t *j, int64_t segment)
{
    return round_to(j->cu_seqlens[segment] + segment * (TILE_PAIR - 1),
                    TILE_PAIR);
}

static inline int64_t turned_tokens(int64_t tokens, int64_t entries)
{
    return tokens + entries * TILE_PAIR;
}

/* The turned block [d, keys] that begins at key `begin` (a multiple of KEYS)
 * of a segment; its rows are *ld apart. */
static inline elem_t *turned_block(const job_t *j, const part_t *p,
                                   int64_t begin, int64_t *ld)
{
    int64_t keys = p->length - begin < KEYS ? p->length - begin : KEYS;
    int64_t all = turned_tokens(j->tokens, j->entries);
    *ld = round_to(keys, TILE_PAIR);
    return j->turned +
           (p->kv_head * all + turned_offset(j, p->segment) + begin) * j->d;
}

static inline elem_t *rows_of(const job_t *j, elem_t *rows, const part_t *p)
{
    return rows + (p->kv_head * j->tokens + p->first) * j->width;
}

/* Packs one key head of one segment: rows of operand `i` into `rows`, and
 * turned over when `turn`. */
static inline void pack_part(const job_t *j, const part_t *p, int i,
                             elem_t *rows, bool turn, elem_t *local,
                             word_t *words)
{
    for (int64_t begin = 0; begin < p->length; begin += KEYS) {
        int64_t keys = p->length - begin < KEYS ? p->length - begin : KEYS;
        int64_t ld = 0;
        elem_t *to = rows != NULL
                         ? rows_of(j, rows, p) + begin * j->width
                         : local;
        tile_source_t s = source_of(j, i, p->first + begin, p->kv_head);
        tile_copy(&s, keys, j->d, to, j->width, keys);
        if (turn) {
            elem_t *block = turned_block(j, p, begin, &ld);
            tile_turn(to, j->width, keys, j->d, block, ld, words);
        }
    }
}

/* The rows of operand `i` for a block of queries: row-major (`rows`, zero
 * beyond `count`) and as B of a product over channels (`turned`). */
static inline void pack_queries(const job_t *j, int i, int64_t row, int head,
                                int64_t count, elem_t *rows, elem_t *turned)
{
    tile_source_t s = source_of(j, i, row, head);
    tile_copy(&s, count, j->d, rows, j->width, QUERIES);
    tile_pack_transposed(rows, QUERIES, j->width, turned);
}

/* C [keys, QUERIES] = rows of keys (or values) times turned queries. */
static inline void scores(const job_t *j, const elem_t *rows, int64_t keys,
                          const elem_t *turned, float *c)
{
    tile_product_t t = {keys,   QUERIES,           j->width, rows, j->width,
                        turned, j->width * TILE_N, c,        QUERIES, false};
    tile_multiply(&t);
}

/* C [d, QUERIES] += turned keys (or values) times weights in units. */
static inline void gather(const job_t *j, const elem_t *turned, int64_t ld,
                          int64_t keys, const elem_t *weights, float *c)
{
    int64_t k = round_to(keys, TILE_PAIR);
    tile_product_t t = {j->d,    QUERIES,    k, turned,  ld,
                        weights, k * TILE_N, c, QUERIES, true};
    tile_multiply(&t);
}

/* Where vector `v` of the units of row `row` (of `keys`) stands in B. */
static inline elem_t *unit_at(elem_t *b, int64_t keys, int64_t row, int v)
{
    int64_t k = round_to(keys, TILE_PAIR);
    return b + v / TILE_NV * k * TILE_N + row * TILE_N +
           v % TILE_NV * VEC_SIZE * TILE_PAIR;
}

/* Keys that a block of queries sees: [*begin, *end) of the segment. */
static inline void key_range(const job_t *j, const part_t *p, int64_t q0,
                             int64_t count, int64_t *begin, int64_t *end)
{
    int64_t unused = 0;
    loongi_attention_keys(j->attr, q0, p->length, begin, &unused);
    loongi_attention_keys(j->attr, q0 + count - 1, p->length, &unused, end);
    *begin = *begin / TILE_PAIR * TILE_PAIR;
}

/* Sets scores that no probability belongs to to minus infinity. s holds keys
 * key0 ... key0 + keys - 1 against the queries from q0 on. */
static inline void mask_scores(const job_t *j, float *s, int64_t key0,
                               int64_t keys, int64_t q0)
{
    int64_t window = j->attr->window;
    bool future = j->attr->causal && key0 + keys - 1 > q0;
    bool past = window > 0 && key0 + window < q0 + QUERIES;
    for (int64_t r = 0; r < keys && (future || past); r++) {
        int64_t low = future ? key0 + r - q0 : 0;
        int64_t high = past ? key0 + r + window - q0 : QUERIES;
        for (int64_t c = 0; c < QUERIES; c++) {
            if (c < low || c >= high) {
                s[r * QUERIES + c] = -INFINITY;
            }
        }
    }
}

/* Factors of dropout for key `key` of the segment and a block of queries:
 * those of four keys are drawn together, when key is the first of them or
 * `fresh`. drawn has 4 x QUERIES floats. */
static inline const float *dropout_row(const job_t *j, const part_t *p,
                                       int64_t q0, int64_t count, int64_t key,
                                       bool fresh, float *drawn)
{
    if (fresh || key % 4 == 0) {
        for (int64_t c = 0; c < QUERIES; c++) {
            uint32_t number[4];
            int64_t row = p->first + q0 + (c < count ? c : 0);
            loongi_attention_random(&j->dropout, j->token_key[row], p->head,
                                    key / 4, number);
            for (int i = 0; i < 4; i++) {
                drawn[i * QUERIES + c] = number[i] >> 8 >= j->dropout.limit
                                             ? (float)j->dropout.keep_scale
                                             : 0.0f;
            }
        }
    }
    return drawn + key % 4 * QUERIES;
}

/* Writes rows x d of src (rows `ld` apart) to operand i from row and head on.
 */
static inline void store_rows(const job_t *j, int i, int64_t row, int head,
                              int64_t rows, const float *src, int64_t ld)
{
    const loong_karg_t *arg = &j->call->query->arg[i];
    int64_t at = row * arg->ld + head * j->d;
    for (int64_t r = 0; r < rows; r++) {
        const float *from = src + r * ld;
        if (!j->half) {
            memcpy((float *)j->call->ptr[i] + at + r * arg->ld, from,
                   sizeof(float) * (size_t)j->d);
            continue;
        }
        uint16_t *to = (uint16_t *)j->call->ptr[i] + at + r * arg->ld;
        for (int64_t c = 0; c < j->d; c++) {
            uint32_t bits;
            memcpy(&bits, from + c, sizeof(bits));
            uint32_t even = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
            bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
            to[c] = (uint16_t)(nan ? bits >> 16 | 0x40u : even);
        }
    }
}

static inline part_t part_of(const job_t *j, int64_t segment, int head)
{
    int64_t first = j->cu_seqlens[segment];
    part_t p = {segment, first, j->cu_seqlens[segment + 1] - first, head,
                head / (j->attr->heads / j->attr->kv_heads)};
    return p;
}

/* The operands' own conditions; q, k, v are operands first .. first + 2. */
static inline bool tiles_support(const loong_kernel_query_t *q, int operands,
                                 char reason[LOONG_REASON_SIZE])
{
    const loong_attention_attr_t *attr = q->attr;
    loong_dtype_t dtype = q->arg[0].dtype;
    if (!loongi_isa_support(LOONG_ISA_LEVEL, reason)) {
        return false;
    }
    bool typed = TILE_PAIR == 2 ? dtype == LOONG_BF16
                                : dtype == LOONG_BF16 || dtype == LOONG_F32;
    if (!typed) {
        snprintf(reason, LOONG_REASON_SIZE, "operands of type %s",
                 loong_dtype_name(dtype));
        return false;
    }
    for (int i = 0; i < operands; i++) {
        if (q->arg[i].rank > 0 && q->arg[i].count >= 0) {
            snprintf(reason, LOONG_REASON_SIZE,
                     "operand %d has a run-time row count", i);
            return false;
        }
    }
    if (!(attr->scale > 0.0)) {
        snprintf(reason, LOONG_REASON_SIZE, "scale %g is not positive",
                 attr->scale);
        return false;
    }
    return true;
}

/* What a query alone determines; operand `cu` is cu_seqlens. */
static inline job_t job_of(const loong_kernel_query_t *q, int cu)
{
    job_t j;
    memset(&j, 0, sizeof(j));
    j.attr = q->attr;
    j.entries = q->arg[cu].dim[0];
    j.tokens = loong_karg_rows(&q->arg[0], NULL);
    j.d = j.attr->head_dim;
    j.width = round_to(j.d, VEC_SIZE);
    j.half = q->arg[0].dtype == LOONG_BF16;
    j.factor = (float)(j.attr->scale * 1.44269504088896340736);
    return j;
}

/* Adds what belongs to a launch; operand cu + 1 is token_key. */
static inline loong_status_t begin_job(job_t *j,
                                       const loong_kernel_call_t *call, int cu)
{
    j->call = call;
    j->dropout = loongi_attention_dropout(j->attr, call->frame);
    j->cu_seqlens = call->ptr[cu];
    j->token_key = cu + 1 < call->query->num_in ? call->ptr[cu + 1] : NULL;
    return loongi_attention_segments(j->call->ctx, j->cu_seqlens, j->entries,
                                     j->tokens, j->attr->max_seqlen,
                                     &j->segments);
}

#endif
