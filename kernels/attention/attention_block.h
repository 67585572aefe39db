/* SPDX-License-Identifier: Apache-2.0
 *
 * Work on one block of queries: packing operands, products of tiles, masks,
 * dropout, writing results. See attention_cpu.h for how tiles lie. */
#ifndef LOONG_ATTENTION_BLOCK_H
#define LOONG_ATTENTION_BLOCK_H

#include "attention_cpu.h"

/* Rows of one head in an operand [T, heads * d]. */
typedef struct place {
    int64_t row;
    int64_t rows;
    int head;
    int64_t d;
} place_t;

/* A block of queries of one head, and a block of the keys that it sees. */
typedef struct block {
    part_t part;
    int64_t row; /* of q, of the first query */
    int64_t q0;  /* its place in the segment */
    int64_t queries;
    int64_t key0; /* the first key, counted from the first of the part */
    int64_t keys;
} block_t;

/* The queries of a run from number `at` on. */
static inline block_t block_of(const part_t *p,
                               const loong_attention_run_t *run, int64_t at)
{
    int64_t rest = run->count - at;
    block_t b = {*p, run->row + at, run->begin + at,
                 rest < QUERIES ? rest : QUERIES, 0, 0};
    return b;
}

static inline place_t place_of(const block_t *b, int64_t d)
{
    place_t at = {b->row, b->queries, b->part.head, d};
    return at;
}

static inline tile_source_t source_of(const job_t *j, int i, const place_t *at)
{
    const loong_karg_t *arg = &j->call->query->arg[i];
    size_t size = j->half ? 2 : 4;
    tile_source_t s = {(const char *)j->call->ptr[i] +
                           (size_t)(at->row * arg->ld + at->head * at->d) *
                               size,
                       j->half, arg->ld};
    return s;
}

/* Where a segment's transposed blocks begin: whole units, also at its end. */
static inline int64_t transposed_offset(const job_t *j, int64_t segment)
{
    return round_to(j->sequence.first_key[segment] +
                        segment * (TILE_PAIR - 1),
                    TILE_PAIR);
}

static inline int64_t transposed_keys(int64_t keys, int64_t entries)
{
    return keys + entries * TILE_PAIR;
}

/* The transposed block [d, keys] that begins at key `begin` (a multiple of
 * KEYS) of a segment; its rows are *ld apart. */
static inline elem_t *transposed_block(const job_t *j, const part_t *p,
                                       int64_t begin, int64_t *ld)
{
    int64_t keys = p->seen - begin < KEYS ? p->seen - begin : KEYS;
    int64_t all = transposed_keys(j->num_keys, j->entries);
    *ld = round_to(keys, TILE_PAIR);
    return j->transposed +
           (p->kv_head * all + transposed_offset(j, p->segment) + begin) *
               j->transposed_d;
}

static inline elem_t *rows_of(const job_t *j, elem_t *rows, int64_t width,
                              const part_t *p)
{
    return rows + (p->kv_head * j->num_keys + p->first) * width;
}

/* How the keys of a part that are seen are packed. */
typedef struct packing {
    int operand;
    head_t head;
    elem_t *rows;  /* all rows, or NULL: not kept */
    elem_t *local; /* without rows: room for [KEYS, width] */
    word_t *words; /* blocks are transposed with this room; NULL: not */
} packing_t;

static inline void pack_part(const job_t *j, const part_t *p,
                             const packing_t *pack)
{
    for (int64_t begin = 0; begin < p->seen; begin += KEYS) {
        int64_t keys = p->seen - begin < KEYS ? p->seen - begin : KEYS;
        int64_t ld = 0;
        int64_t d = pack->head.d;
        int64_t width = pack->head.width;
        place_t at = {p->first + begin, keys, p->kv_head, d};
        elem_t *to = pack->rows != NULL
                         ? rows_of(j, pack->rows, width, p) + begin * width
                         : pack->local;
        tile_source_t s = source_of(j, pack->operand, &at);
        tile_copy(&s, keys, d, to, width, keys);
        if (pack->words != NULL) {
            tile_rows_t rows = {to, width, keys, d};
            elem_t *block = transposed_block(j, p, begin, &ld);
            tile_turn(&rows, block, ld, pack->words);
        }
    }
}

/* The rows of operand `i` for a block of queries: row-major (`rows`, zero
 * beyond the last query) and as B of a product over channels (`transposed`). */
static inline void pack_queries(const job_t *j, const block_t *b, int i,
                                head_t head, elem_t *rows, elem_t *transposed)
{
    place_t at = place_of(b, head.d);
    tile_source_t s = source_of(j, i, &at);
    tile_copy(&s, b->queries, head.d, rows, head.width, QUERIES);
    tile_pack_transposed(rows, QUERIES, head.width, transposed);
}

/* C [keys, QUERIES] = rows of keys (or values) times transposed queries. */
static inline void scores(int64_t width, const elem_t *rows, int64_t keys,
                          const elem_t *transposed, float *c)
{
    tile_product_t t = {keys,       QUERIES,        width, rows,    width,
                        transposed, width * TILE_N, c,     QUERIES, false,
                        NULL};
    tile_multiply(&t);
}

/* C [d, QUERIES] += transposed keys (or values) times weights in units. */
static inline void gather(const job_t *j, const elem_t *transposed, int64_t ld,
                          int64_t keys, const elem_t *weights, float *c)
{
    int64_t k = round_to(keys, TILE_PAIR);
    tile_product_t t = {
        j->transposed_d, QUERIES, k,       transposed, ld,  weights,
        k * TILE_N,      c,       QUERIES, true,       NULL};
    tile_multiply(&t);
}

/* Where vector `v` of the units of row `row` (of `keys`) stands in B. */
static inline elem_t *unit_at(elem_t *b, int64_t keys, int64_t row, int v)
{
    int64_t k = round_to(keys, TILE_PAIR);
    return b + v / TILE_NV * k * TILE_N + row * TILE_N +
           v % TILE_NV * VEC_SIZE * TILE_PAIR;
}

/* s [keys, QUERIES] as units of B. */
static inline void store_units(const float *s, int64_t keys, elem_t *b)
{
    for (int64_t r = 0; r < keys; r += TILE_PAIR) {
        for (int v = 0; v < COLUMNS; v++) {
            const float *at = s + r * QUERIES + v * VEC_SIZE;
            vec_t next = r + 1 < keys ? vec_load(at + QUERIES) : vec_set(0.0f);
            vec_store_units(unit_at(b, keys, r, v), vec_load(at), next);
        }
    }
}

/* Keys that a block of queries sees: [*begin, *end) of the part. */
static inline void key_range(const job_t *j, const block_t *b, int64_t *begin,
                             int64_t *end)
{
    const loong_attention_sequence_t *s = &j->sequence;
    int64_t segment = b->part.segment;
    int64_t first = 0;
    int64_t last = 0;
    int64_t unused = 0;
    loongi_attention_keys(j->attr, s, segment, b->q0, &first, &unused);
    loongi_attention_keys(j->attr, s, segment, b->q0 + b->queries - 1, &unused,
                          &last);
    *begin = loongi_attention_keys_before(s, segment, first) / TILE_PAIR *
             TILE_PAIR;
    *end = loongi_attention_keys_before(s, segment, last);
}

/* Places in the segment of a block's keys. */
static inline const int32_t *places_of(const job_t *j, const block_t *b)
{
    return j->sequence.key_place + b->part.first + b->key0;
}

/* The part of keys [begin, end) that lies in the block from `first` on. */
static inline void clip_keys(block_t *b, int64_t first, int64_t begin,
                             int64_t end)
{
    b->key0 = first > begin ? first : begin;
    b->keys = (end < first + KEYS ? end : first + KEYS) - b->key0;
}

/* The first query of a block that sees the key at a place of the segment,
 * where ends are given; queries and ends ascend. */
static inline int64_t first_query(const job_t *j, const block_t *b,
                                  int64_t place, int64_t from)
{
    int64_t first = j->sequence.cu_seqlens[b->part.segment];
    const int32_t *ends = j->sequence.key_ends + first + b->q0;
    while (from < b->queries && ends[from] - first <= place) {
        from++;
    }
    return from;
}

/* Sets scores that no probability belongs to to minus infinity. */
static inline void mask_scores(const job_t *j, const block_t *b, float *s)
{
    int64_t window = j->attr->window;
    const int32_t *place = places_of(j, b);
    bool future = j->attr->causal && place[b->keys - 1] > b->q0;
    bool past = window > 0 && place[0] - b->q0 + window < QUERIES;
    int64_t seen = 0;
    for (int64_t r = 0; r < b->keys && (future || past); r++) {
        int64_t ahead = place[r] - b->q0;
        int64_t low = future ? ahead : 0;
        if (j->sequence.key_ends != NULL) {
            seen = first_query(j, b, place[r], seen);
            low = seen;
        }
        int64_t high = past ? ahead + window : QUERIES;
        for (int64_t c = 0; c < QUERIES; c++) {
            if (c < low || c >= high) {
                s[r * QUERIES + c] = -INFINITY;
            }
        }
    }
}

/* Factors of dropout for row `r` of a block's keys: those of four keys are
 * drawn together. drawn has 4 x QUERIES floats. */
static inline const float *dropout_row(const job_t *j, const block_t *b,
                                       int64_t r, float *drawn)
{
    const int32_t *place = places_of(j, b);
    int64_t key = place[r];
    bool fresh = r == 0 || key / 4 != place[r - 1] / 4;
    for (int64_t c = 0; c < QUERIES && fresh; c++) {
        uint32_t number[4];
        int64_t row = b->row + (c < b->queries ? c : 0);
        loongi_attention_random(&j->dropout, j->sequence.token_key[row],
                                b->part.head, key / 4, number);
        for (int i = 0; i < 4; i++) {
            drawn[i * QUERIES + c] = number[i] >> 8 >= j->dropout.limit
                                         ? (float)j->dropout.keep_scale
                                         : 0.0f;
        }
    }
    return drawn + key % 4 * QUERIES;
}

/* Writes src (rows `ld` apart) to a place of operand i. */
static inline void store_rows(const job_t *j, int i, const place_t *at,
                              const float *src, int64_t ld)
{
    const loong_karg_t *arg = &j->call->query->arg[i];
    int64_t first = at->row * arg->ld + at->head * at->d;
    for (int64_t r = 0; r < at->rows; r++) {
        const float *from = src + r * ld;
        if (!j->half) {
            memcpy((float *)j->call->ptr[i] + first + r * arg->ld, from,
                   sizeof(float) * (size_t)at->d);
            continue;
        }
        uint16_t *to = (uint16_t *)j->call->ptr[i] + first + r * arg->ld;
        int64_t c = 0;
        for (; c + VEC_SIZE <= at->d; c += VEC_SIZE) {
            vec_store_bf16(to + c, vec_load(from + c));
        }
        for (; c < at->d; c++) {
            float lanes[VEC_SIZE] = {from[c]};
            uint16_t narrow[VEC_SIZE];
            vec_store_bf16(narrow, vec_load(lanes));
            to[c] = narrow[0];
        }
    }
}

#endif
