/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the integers of an attention call and finds the runs of queries and
 * the keys that each sees. Called by the CPU kernels and the reference. Read
 * attention.h before, and attention_ref.c for the formulas. */
#include "attention.h"

/* Also gives the number of segments. */
static loong_status_t check_segments(const loong_kernel_call_t *call, int cu,
                                     loong_attention_sequence_t *s)
{
    const loong_attention_attr_t *attr = call->query->attr;
    const int32_t *cu_seqlens = s->cu_seqlens;
    int64_t entries = call->query->arg[cu].dim[0];
    LOONG_CHECK(call->ctx, cu_seqlens[0] == 0, LOONG_ERR_ARG,
                "cu_seqlens[0] is %d, must be 0", cu_seqlens[0]);
    for (int64_t i = 0; i + 1 < entries; i++) {
        int64_t length = (int64_t)cu_seqlens[i + 1] - cu_seqlens[i];
        LOONG_CHECK(call->ctx, length >= 0 && length <= attr->max_seqlen,
                    LOONG_ERR_ARG,
                    "cu_seqlens[%lld] is %d after %d: a segment has 0 to %lld "
                    "rows",
                    (long long)i + 1, cu_seqlens[i + 1], cu_seqlens[i],
                    (long long)attr->max_seqlen);
        if (length > 0) {
            s->segments = i + 1;
        }
    }
    return LOONG_OK;
}

/* Rows of the sequence of queries or keys; values NULL: all. */
typedef struct rows {
    const char *name;
    const int32_t *values;
    int64_t count;
    int64_t end; /* rows there are */
} rows_t;

static rows_t rows_of(const loong_kernel_call_t *call, int operand, int of,
                      const loong_attention_sequence_t *s)
{
    const loong_kernel_query_t *q = call->query;
    rows_t r = {"rows", operand < q->num_in ? call->ptr[operand] : NULL,
                loong_karg_rows(&q->arg[of]),
                s->cu_seqlens[s->segments]};
    return r;
}

/* Row t, which must stand behind row `before`. */
static loong_status_t next_row(loong_context_t *ctx, const rows_t *r, int64_t t,
                               int64_t before, int64_t *row_p)
{
    int64_t row = r->values != NULL ? r->values[t] : t;
    LOONG_CHECK(ctx, row > before && row < r->end, LOONG_ERR_ARG,
                "%s[%lld] is %lld after %lld, must ascend and be below the end "
                "of cu_seqlens, %lld",
                r->name, (long long)t, (long long)row, (long long)before,
                (long long)r->end);
    *row_p = row;
    return LOONG_OK;
}

static loong_status_t find_runs(loong_context_t *ctx, const rows_t *rows,
                                loong_attention_sequence_t *s)
{
    int64_t segment = 0;
    int64_t row = -1;
    loong_attention_run_t *run = NULL;
    for (int64_t t = 0; t < rows->count; t++) {
        int64_t before = row;
        LOONG_TRY(next_row(ctx, rows, t, before, &row));
        while (row >= s->cu_seqlens[segment + 1]) {
            segment++;
        }
        if (run != NULL && row == before + 1 && run->segment == segment) {
            run->count++;
        } else {
            run = &s->runs[s->num_runs++];
            run->row = t;
            run->count = 1;
            run->segment = segment;
            run->begin = row - s->cu_seqlens[segment];
        }
    }
    return LOONG_OK;
}

static loong_status_t find_keys(loong_context_t *ctx, const rows_t *rows,
                                loong_attention_sequence_t *s)
{
    int64_t segment = 0;
    int64_t row = -1;
    s->first_key[0] = 0;
    for (int64_t t = 0; t < rows->count; t++) {
        LOONG_TRY(next_row(ctx, rows, t, row, &row));
        while (row >= s->cu_seqlens[segment + 1]) {
            s->first_key[++segment] = (int32_t)t;
        }
        s->key_place[t] = (int32_t)(row - s->cu_seqlens[segment]);
    }
    while (segment < s->segments) {
        s->first_key[++segment] = (int32_t)rows->count;
    }
    return LOONG_OK;
}

/* Each row sees itself and no less than the row before it. */
static loong_status_t check_ends(loong_context_t *ctx,
                                 const loong_attention_sequence_t *s)
{
    int64_t segment = 0;
    int32_t before = 0;
    for (int64_t t = 0; s->key_ends != NULL && t < s->keys; t++) {
        while (t >= s->cu_seqlens[segment + 1]) {
            segment++;
        }
        int32_t end = s->key_ends[t];
        LOONG_CHECK(ctx,
                    end > t && end >= before &&
                        end <= s->cu_seqlens[segment + 1],
                    LOONG_ERR_ARG,
                    "key_ends[%lld] is %d after %d, must ascend, be behind its "
                    "row and not behind its segment, %d",
                    (long long)t, end, before, s->cu_seqlens[segment + 1]);
        before = end;
    }
    return LOONG_OK;
}

int64_t loongi_attention_max_runs(const loong_kernel_query_t *query)
{
    return loong_karg_rows(&query->arg[0]);
}

size_t loongi_attention_sequence_bytes(const loong_kernel_query_t *query,
                                       int cu)
{
    size_t runs = (size_t)loongi_attention_max_runs(query);
    size_t keys = (size_t)loong_karg_rows(&query->arg[2]);
    return runs * sizeof(loong_attention_run_t) +
           (keys + (size_t)query->arg[cu].dim[0]) * sizeof(int32_t);
}

loong_status_t loongi_attention_sequence(
    const loong_kernel_call_t *call, int cu, void *memory,
    loong_attention_sequence_t *sequence_p)
{
    const loong_kernel_query_t *q = call->query;
    loong_attention_sequence_t s = {
        .cu_seqlens = call->ptr[cu],
        .token_key = cu + 1 < q->num_in ? call->ptr[cu + 1] : NULL,
        .key_ends = cu + 4 < q->num_in ? call->ptr[cu + 4] : NULL,
        .keys = loong_karg_rows(&q->arg[2]),
        .runs = memory};
    s.key_place =
        (int32_t *)(void *)(s.runs + loongi_attention_max_runs(q));
    s.first_key = s.key_place + s.keys;
    LOONG_TRY(check_segments(call, cu, &s));
    rows_t queries = rows_of(call, cu + 2, 0, &s);
    rows_t keys = rows_of(call, cu + 3, 2, &s);
    keys.name = "key_rows";
    LOONG_CHECK(call->ctx, keys.values != NULL || keys.end == s.keys,
                LOONG_ERR_ARG,
                "cu_seqlens ends with %lld, must end with the %lld rows",
                (long long)keys.end, (long long)s.keys);
    LOONG_TRY(find_runs(call->ctx, &queries, &s));
    LOONG_TRY(find_keys(call->ctx, &keys, &s));
    LOONG_TRY(check_ends(call->ctx, &s));
    *sequence_p = s;
    return LOONG_OK;
}

int64_t
loongi_attention_keys_before(const loong_attention_sequence_t *sequence,
                             int64_t segment, int64_t place)
{
    const loong_attention_sequence_t *s = sequence;
    int64_t first = s->first_key[segment];
    int64_t low = first;
    int64_t high = s->first_key[segment + 1];
    if (high - low == s->cu_seqlens[segment + 1] - s->cu_seqlens[segment]) {
        return LOONG_MIN(place, high - low); /* all of them are there */
    }
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (s->key_place[middle] < place) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low - first;
}

int64_t
loongi_attention_first_run(const loong_attention_sequence_t *sequence,
                           int64_t segment)
{
    int64_t low = 0;
    int64_t high = sequence->num_runs;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (sequence->runs[middle].segment < segment) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}
