/* SPDX-License-Identifier: Apache-2.0
 *
 * attention in tiles (formula: attention_ref.c; running maximum and sum as in
 * Dao et al. 2022). Work is split over runs, blocks of queries and heads;
 * no result depends on who does which. Listed in kernels/list.h; read
 * attention_block.h before. */
#include "attention_block.h"

/* What one thread works with. */
typedef struct scratch {
    elem_t *rows;    /* [QUERIES, width], or [KEYS, v.width] of values */
    elem_t *queries; /* the queries as B */
    word_t *words;   /* for turning a block over */
    float *s;        /* [KEYS, QUERIES] */
    elem_t *p;       /* the same in units */
    float *o;        /* [v.d, QUERIES] */
    float *out;      /* [QUERIES, v.d] */
    float *top;      /* [QUERIES] largest score so far */
    float *sum;      /* [QUERIES] of probabilities */
    float *drawn;    /* [4, QUERIES] */
} scratch_t;

static scratch_t take_scratch(const job_t *j, pieces_t *from)
{
    scratch_t w;
    w.rows = take_elems(from, KEYS * LOONG_MAX(j->qk.width, j->v.width));
    w.queries = take_elems(from, QUERIES * j->qk.width);
    w.words = take(from, KEYS * j->v.width / TILE_PAIR * 4);
    w.s = take_floats(from, KEYS * QUERIES);
    w.p = take_elems(from, KEYS * QUERIES);
    w.o = take_floats(from, j->v.d * QUERIES);
    w.out = take_floats(from, j->v.d * QUERIES);
    w.top = take_floats(from, QUERIES);
    w.sum = take_floats(from, QUERIES);
    w.drawn = take_floats(from, 4 * QUERIES);
    return w;
}

/* What all threads share: packed keys and values, and the number of the first
 * block of queries of each run. */
static int64_t *take_shared(job_t *j, const loong_kernel_query_t *q,
                            pieces_t *from)
{
    int64_t heads = j->attr->kv_heads;
    j->transposed_d = j->v.d;
    j->k_rows = take_elems(from, heads * j->num_keys * j->qk.width);
    j->transposed =
        take_elems(from, heads * transposed_keys(j->num_keys, j->entries) *
                             j->transposed_d);
    return take(from, (loongi_attention_max_runs(q) + 1) *
                          (int64_t)sizeof(int64_t));
}

static size_t workspace(const loong_kernel_query_t *q)
{
    job_t j = job_of(q, 3);
    pieces_t shared = {NULL, 0};
    pieces_t own = {NULL, 0};
    (void)take_sequence(q, 3, &shared);
    (void)take_shared(&j, q, &shared);
    (void)take_scratch(&j, &own);
    return (size_t)(shared.used + q->threads * own.used);
}

static bool support(const loong_kernel_query_t *q,
                    char reason[LOONG_REASON_SIZE])
{
    return tiles_support(q, reason);
}

/* Maxima over the new scores; gives the factor for what was summed before. */
static void raise_top(const job_t *j, scratch_t *w, int64_t keys, float *decay)
{
    for (int v = 0; v < COLUMNS; v++) {
        const float *s = w->s + v * VEC_SIZE;
        vec_t old = vec_load(w->top + v * VEC_SIZE);
        vec_t top = old;
        for (int64_t r = 0; r < keys; r++) {
            top = vec_max(top, vec_load(s + r * QUERIES));
        }
        vec_store(w->top + v * VEC_SIZE, top);
        /* No score yet: any finite reference will do. */
        vec_t finite = vec_where_at_least(top, vec_set(-3e38f), top);
        vec_store(decay + v * VEC_SIZE,
                  vec_exp2((old - finite) * vec_set(j->factor)));
    }
}

/* Powers of the scores into p (in units), and their sums. */
static void make_probs(const job_t *j, scratch_t *w, int64_t keys,
                       const float *decay)
{
    vec_t factor = vec_set(j->factor);
    for (int v = 0; v < COLUMNS; v++) {
        const float *s = w->s + v * VEC_SIZE;
        vec_t top = vec_load(w->top + v * VEC_SIZE);
        vec_t base = vec_where_at_least(top, vec_set(-3e38f), top) * factor;
        vec_t sum =
            vec_load(w->sum + v * VEC_SIZE) * vec_load(decay + v * VEC_SIZE);
        for (int64_t r = 0; r < keys; r += TILE_PAIR) {
            vec_t a = vec_exp2(vec_load(s + r * QUERIES) * factor - base);
            vec_t b = vec_set(0.0f);
            if (TILE_PAIR == 2 && r + 1 < keys) {
                b = vec_exp2(vec_load(s + (r + 1) * QUERIES) * factor - base);
            }
            sum += a + b;
            vec_store_units(unit_at(w->p, keys, r, v), a, b);
        }
        vec_store(w->sum + v * VEC_SIZE, sum);
    }
}

/* The same with dropout: p is stored with its mask, summed without. */
static void make_dropped(const job_t *j, const block_t *b, scratch_t *w,
                         const float *decay)
{
    vec_t factor = vec_set(j->factor);
    for (int v = 0; v < COLUMNS; v++) {
        float *sum = w->sum + v * VEC_SIZE;
        vec_store(sum, vec_load(sum) * vec_load(decay + v * VEC_SIZE));
    }
    for (int64_t r = 0; r < b->keys; r++) {
        const float *mask = dropout_row(j, b, r, w->drawn);
        for (int v = 0; v < COLUMNS; v++) {
            float *s = w->s + r * QUERIES + v * VEC_SIZE;
            float *sum = w->sum + v * VEC_SIZE;
            vec_t top = vec_load(w->top + v * VEC_SIZE);
            top = vec_where_at_least(top, vec_set(-3e38f), top);
            vec_t a = vec_exp2((vec_load(s) - top) * factor);
            vec_store(sum, vec_load(sum) + a);
            vec_store(s, a * vec_load(mask + v * VEC_SIZE));
        }
    }
    store_units(w->s, b->keys, w->p);
}

static void scale_output(const job_t *j, float *o, const float *by)
{
    for (int64_t c = 0; c < j->v.d; c++) {
        for (int v = 0; v < COLUMNS; v++) {
            float *at = o + c * QUERIES + v * VEC_SIZE;
            vec_store(at, vec_load(at) * vec_load(by + v * VEC_SIZE));
        }
    }
}

static void finish(const job_t *j, const block_t *b, scratch_t *w)
{
    int out = j->call->query->num_in;
    const loong_karg_t *lse = &j->call->query->arg[out + 1];
    float *to = j->call->ptr[out + 1];
    place_t at = place_of(b, j->v.d);
    float inverse[QUERIES];
    for (int64_t c = 0; c < QUERIES; c++) {
        inverse[c] = w->sum[c] > 0.0f ? 1.0f / w->sum[c] : 0.0f;
    }
    scale_output(j, w->o, inverse);
    tile_transpose((const word_t *)(const void *)w->o, QUERIES, j->v.d,
                   QUERIES, (word_t *)(void *)w->out, j->v.d);
    store_rows(j, out, &at, w->out, j->v.d);
    for (int64_t c = 0; c < b->queries && to != NULL; c++) {
        to[(at.row + c) * lse->ld + at.head] =
            (float)(j->attr->scale * w->top[c] + log((double)w->sum[c]));
    }
}

/* One block of queries of one head. */
static void forward_block(const job_t *j, const block_t *queries,
                          scratch_t *w)
{
    block_t b = *queries;
    const part_t *p = &b.part;
    int64_t begin = 0;
    int64_t end = 0;
    float decay[QUERIES];
    key_range(j, &b, &begin, &end);
    pack_queries(j, &b, 0, j->qk, w->rows, w->queries);
    for (int64_t c = 0; c < QUERIES; c++) {
        w->top[c] = -INFINITY;
        w->sum[c] = 0.0f;
    }
    memset(w->o, 0, sizeof(float) * (size_t)(j->v.d * QUERIES));
    for (int64_t first = begin / KEYS * KEYS; first < end; first += KEYS) {
        int64_t ld = 0;
        clip_keys(&b, first, begin, end);
        const elem_t *transposed =
            transposed_block(j, p, first, &ld) + (b.key0 - first);
        scores(j->qk.width,
               rows_of(j, j->k_rows, j->qk.width, p) + b.key0 * j->qk.width,
               b.keys, w->queries, w->s);
        mask_scores(j, &b, w->s);
        raise_top(j, w, b.keys, decay);
        if (j->dropout.limit == 0) {
            make_probs(j, w, b.keys, decay);
        } else {
            make_dropped(j, &b, w, decay);
        }
        if (first > begin) {
            scale_output(j, w->o, decay);
        }
        gather(j, transposed, ld, b.keys, w->p, w->o);
    }
    finish(j, &b, w);
}

/* The run that holds block number b; first[r] is its first block. */
static int64_t run_of(const int64_t *first, int64_t runs, int64_t b)
{
    int64_t low = 0;
    int64_t high = runs;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (first[middle] <= b) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static void run_team(const job_t *j, const int64_t *first, const pieces_t *rest)
{
    int64_t heads = j->attr->heads;
    int64_t kv_heads = j->attr->kv_heads;
    const loong_attention_sequence_t *s = &j->sequence;
    int64_t blocks = first[s->num_runs];
    pieces_t size = {NULL, 0};
    (void)take_scratch(j, &size);
#pragma omp parallel num_threads(j->call->query->threads)
    {
        pieces_t own = {rest->base,
                        rest->used + size.used * omp_get_thread_num()};
        scratch_t w = take_scratch(j, &own);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < s->segments * kv_heads; i++) {
            part_t p = part_of(j, i / kv_heads,
                               (int)(i % kv_heads * (heads / kv_heads)));
            packing_t keys = {1, j->qk, j->k_rows, NULL, NULL};
            packing_t values = {2, j->v, NULL, w.rows, w.words};
            pack_part(j, &p, &keys);
            pack_part(j, &p, &values);
        }
        /* Late blocks see the most keys: they come first. */
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < blocks * heads; i++) {
            int64_t b = blocks - 1 - i / heads;
            int64_t r = run_of(first, s->num_runs, b);
            part_t p = part_of(j, s->runs[r].segment, (int)(i % heads));
            block_t queries =
                block_of(&p, &s->runs[r], (b - first[r]) * QUERIES);
            forward_block(j, &queries, &w);
        }
    }
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    job_t j = job_of(call->query, 3);
    pieces_t pieces = {call->workspace, 0};
    LOONG_TRY(begin_job(&j, call, 3, &pieces));
    int64_t *first = take_shared(&j, call->query, &pieces);
    first[0] = 0;
    for (int64_t r = 0; r < j.sequence.num_runs; r++) {
        int64_t count = j.sequence.runs[r].count;
        first[r + 1] = first[r] + (count + QUERIES - 1) / QUERIES;
    }
    run_team(&j, first, &pieces);
    return LOONG_OK;
}

const loong_kernel_t LOONG_ISA_NAME(loongi_attention) = {
    .name = LOONG_ISA_STRING("attention"),
    .op = "attention",
    .device = "cpu",
    .support = support,
    .workspace = workspace,
    .run = run,
};
