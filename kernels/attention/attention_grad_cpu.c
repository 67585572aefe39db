/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_grad in tiles (formula: attention_ref.c). One task is one key head
 * of one segment: it alone sums dk and dv, over the heads of its group, then
 * blocks of queries, then blocks of keys, so the order is fixed.
 *
 * Operands: 0 do, 1 q, 2 k, 3 v, 4 o, 5 lse, 6 cu_seqlens, 7 token_key,
 * 8 rows, 9 key_rows.
 *
 * Listed in kernels/list.h; read attention_block.h before. */
#include "attention_block.h"

typedef struct scratch {
    elem_t *q_rows;    /* [QUERIES, width] */
    elem_t *do_rows;   /* [QUERIES, v.width] */
    elem_t *o_rows;    /* likewise */
    elem_t *q_transposed;  /* B over channels: for scores */
    elem_t *do_transposed; /* likewise, for dp */
    elem_t *q_units;   /* B over queries: for dk */
    elem_t *do_units;  /* likewise, for dv */
    word_t *words;
    float *s;         /* [KEYS, QUERIES] scores, then ds */
    float *dp;        /* likewise */
    elem_t *p;        /* [KEYS, QUERIES] row-major */
    elem_t *ds;       /* likewise */
    elem_t *ds_units; /* B over keys: for dq */
    float *dq;        /* [d, QUERIES] */
    float *out;       /* [QUERIES, d] */
    float *top;       /* [QUERIES] lse in powers of two */
    float *delta;
    float *drawn; /* [4, QUERIES] */
    float *dk;    /* [max_seqlen, width] */
    float *dv;    /* [max_seqlen, v.width] */
} scratch_t;

static scratch_t take_scratch(const job_t *j, pieces_t *from)
{
    scratch_t w;
    int64_t queries = QUERIES * j->qk.width;
    int64_t outputs = QUERIES * j->v.width;
    w.q_rows = take_elems(from, queries);
    w.do_rows = take_elems(from, outputs);
    w.o_rows = take_elems(from, outputs);
    w.q_transposed = take_elems(from, queries);
    w.do_transposed = take_elems(from, outputs);
    w.q_units = take_elems(from, queries);
    w.do_units = take_elems(from, outputs);
    w.words = take(from, KEYS * j->qk.width / TILE_PAIR * 4);
    w.s = take_floats(from, KEYS * QUERIES);
    w.dp = take_floats(from, KEYS * QUERIES);
    w.p = take_elems(from, KEYS * QUERIES);
    w.ds = take_elems(from, KEYS * QUERIES);
    w.ds_units = take_elems(from, KEYS * QUERIES);
    w.dq = take_floats(from, j->qk.d * QUERIES);
    w.out = take_floats(from, j->qk.d * QUERIES);
    w.top = take_floats(from, QUERIES);
    w.delta = take_floats(from, QUERIES);
    w.drawn = take_floats(from, 4 * QUERIES);
    w.dk = take_floats(from, j->attr->max_seqlen * j->qk.width);
    w.dv = take_floats(from, j->attr->max_seqlen * j->v.width);
    return w;
}

static void take_shared(job_t *j, pieces_t *from)
{
    int64_t heads = j->attr->kv_heads;
    j->transposed_d = j->qk.d;
    j->k_rows = take_elems(from, heads * j->num_keys * j->qk.width);
    j->v_rows = take_elems(from, heads * j->num_keys * j->v.width);
    j->transposed =
        take_elems(from, heads * transposed_keys(j->num_keys, j->entries) *
                             j->transposed_d);
}

static size_t workspace(const loong_kernel_query_t *q)
{
    job_t j = job_of(q, 6);
    pieces_t shared = {NULL, 0};
    pieces_t own = {NULL, 0};
    (void)take_sequence(q, 6, &shared);
    take_shared(&j, &shared);
    (void)take_scratch(&j, &own);
    return (size_t)(shared.used + q->threads * own.used);
}

static bool support(const loong_kernel_query_t *q,
                    char reason[LOONG_REASON_SIZE])
{
    return tiles_support(q, reason);
}

/* delta = do . o, lse as a power of two; queries that are not there, or saw no
 * key, get a probability of 0. */
static void row_constants(const job_t *j, const block_t *b, scratch_t *w)
{
    const loong_karg_t *lse = &j->call->query->arg[5];
    const float *from = j->call->ptr[5];
    place_t at = place_of(b, j->v.d);
    tile_source_t o = source_of(j, 4, &at);
    tile_copy(&o, b->queries, j->v.d, w->o_rows, j->v.width, QUERIES);
    for (int64_t c = 0; c < QUERIES; c++) {
        vec_t sum = vec_set(0.0f);
        for (int64_t i = c * j->v.width; i < (c + 1) * j->v.width;
             i += VEC_SIZE) {
            sum += vec_load_elem(w->do_rows + i) * vec_load_elem(w->o_rows + i);
        }
        w->delta[c] = vec_sum(sum);
        w->top[c] = INFINITY;
        if (c < b->queries) {
            float top = from[(at.row + c) * lse->ld + at.head];
            w->top[c] = top > -INFINITY ? top * 1.44269504088896340736f
                                        : INFINITY;
        }
    }
}

static void pack_block(const job_t *j, const block_t *b, scratch_t *w)
{
    pack_queries(j, b, 1, j->qk, w->q_rows, w->q_transposed);
    pack_queries(j, b, 0, j->v, w->do_rows, w->do_transposed);
    tile_pack(w->q_rows, j->qk.width, QUERIES, j->qk.width, w->q_units);
    tile_pack(w->do_rows, j->v.width, QUERIES, j->v.width, w->do_units);
    row_constants(j, b, w);
    memset(w->dq, 0, sizeof(float) * (size_t)(j->qk.d * QUERIES));
}

/* p and ds of one key from its scores and dp; mask: factors of dropout or
 * NULL. ds is also left in s. */
VEC_INLINE void key_row(const job_t *j, scratch_t *w, int64_t r,
                        const float *mask)
{
    vec_t factor = vec_set(j->factor);
    vec_t scale = vec_set((float)j->attr->scale);
    for (int v = 0; v < COLUMNS; v++) {
        int64_t at = r * QUERIES + v * VEC_SIZE;
        vec_t p = vec_exp2(vec_load(w->s + at) * factor -
                           vec_load(w->top + v * VEC_SIZE));
        vec_t dp = vec_load(w->dp + at);
        vec_t kept = p;
        if (mask != NULL) {
            vec_t m = vec_load(mask + v * VEC_SIZE);
            dp = dp * m;
            kept = p * m;
        }
        vec_t ds = p * (dp - vec_load(w->delta + v * VEC_SIZE)) * scale;
        vec_store_elem(w->p + at, kept);
        vec_store_elem(w->ds + at, ds);
        vec_store(w->s + at, ds);
    }
}

static void make_weights(const job_t *j, const block_t *b, scratch_t *w)
{
    for (int64_t r = 0; r < b->keys; r++) {
        if (j->dropout.limit == 0) {
            key_row(j, w, r, NULL);
        } else {
            key_row(j, w, r, dropout_row(j, b, r, w->drawn));
        }
    }
    store_units(w->s, b->keys, w->ds_units);
}

/* Rows of dk (or dv) += weights [keys, QUERIES] times units of q (or do). */
static void add_rows(int64_t width, int64_t keys, const elem_t *weights,
                     const elem_t *units, float *c)
{
    tile_product_t t = {keys,  width,            QUERIES, weights, QUERIES,
                        units, QUERIES * TILE_N, c,       width,   true, NULL};
    tile_multiply(&t);
}

static void backward_block(const job_t *j, const block_t *queries,
                           scratch_t *w)
{
    block_t b = *queries;
    const part_t *p = &b.part;
    place_t to = place_of(&b, j->qk.d);
    int64_t width = j->qk.width;
    int64_t v_width = j->v.width;
    int64_t begin = 0;
    int64_t end = 0;
    key_range(j, &b, &begin, &end);
    pack_block(j, &b, w);
    for (int64_t first = begin / KEYS * KEYS; first < end; first += KEYS) {
        int64_t ld = 0;
        clip_keys(&b, first, begin, end);
        const elem_t *transposed =
            transposed_block(j, p, first, &ld) + (b.key0 - first);
        scores(width, rows_of(j, j->k_rows, width, p) + b.key0 * width, b.keys,
               w->q_transposed, w->s);
        scores(v_width, rows_of(j, j->v_rows, v_width, p) + b.key0 * v_width,
               b.keys, w->do_transposed, w->dp);
        mask_scores(j, &b, w->s);
        make_weights(j, &b, w);
        add_rows(v_width, b.keys, w->p, w->do_units, w->dv + b.key0 * v_width);
        add_rows(width, b.keys, w->ds, w->q_units, w->dk + b.key0 * width);
        gather(j, transposed, ld, b.keys, w->ds_units, w->dq);
    }
    tile_transpose((const word_t *)(const void *)w->dq, QUERIES, j->qk.d,
                   QUERIES, (word_t *)(void *)w->out, j->qk.d);
    store_rows(j, j->call->query->num_in, &to, w->out, j->qk.d);
}

/* One key head of one segment. */
static void backward_part(const job_t *j, int64_t segment, int kv_head,
                          scratch_t *w)
{
    int group = j->attr->heads / j->attr->kv_heads;
    int out = j->call->query->num_in;
    int64_t first = loongi_attention_first_run(&j->sequence, segment);
    int64_t behind = loongi_attention_first_run(&j->sequence, segment + 1);
    part_t p = part_of(j, segment, kv_head * group);
    place_t to_k = {p.first, p.keys, kv_head, j->qk.d};
    place_t to_v = {p.first, p.keys, kv_head, j->v.d};
    packing_t keys = {2, j->qk, j->k_rows, NULL, w->words};
    packing_t values = {3, j->v, j->v_rows, NULL, NULL};
    memset(w->dk, 0, sizeof(float) * (size_t)(p.keys * j->qk.width));
    memset(w->dv, 0, sizeof(float) * (size_t)(p.keys * j->v.width));
    pack_part(j, &p, &keys);
    pack_part(j, &p, &values);
    for (; p.head < (kv_head + 1) * group; p.head++) {
        for (int64_t r = first; r < behind; r++) {
            const loong_attention_run_t *run = &j->sequence.runs[r];
            for (int64_t at = 0; at < run->count; at += QUERIES) {
                block_t queries = block_of(&p, run, at);
                backward_block(j, &queries, w);
            }
        }
    }
    store_rows(j, out + 1, &to_k, w->dk, j->qk.width);
    store_rows(j, out + 2, &to_v, w->dv, j->v.width);
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    job_t j = job_of(call->query, 6);
    pieces_t pieces = {call->workspace, 0};
    LOONG_TRY(begin_job(&j, call, 6, &pieces));
    take_shared(&j, &pieces);
    pieces_t size = {NULL, 0};
    (void)take_scratch(&j, &size);
    int kv_heads = j.attr->kv_heads;
#pragma omp parallel num_threads(call->query->threads)
    {
        pieces_t own = {pieces.base,
                        pieces.used + size.used * omp_get_thread_num()};
        scratch_t w = take_scratch(&j, &own);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < j.sequence.segments * kv_heads; i++) {
            backward_part(&j, i / kv_heads, (int)(i % kv_heads), &w);
        }
    }
    return LOONG_OK;
}

const loong_kernel_t LOONG_ISA_NAME(loongi_attention_grad) = {
    .name = LOONG_ISA_STRING("attention_grad"),
    .op = "attention_grad",
    .device = "cpu",
    .support = support,
    .workspace = workspace,
    .run = run,
};
