/* SPDX-License-Identifier: Apache-2.0 */
#include "attention.h"

static loong_status_t check_segments(loong_context_t *ctx, int64_t entries,
                                     int64_t max_seqlen,
                                     loong_attention_sequence_t *s)
{
    const int32_t *cu_seqlens = s->cu_seqlens;
    LOONG_CHECK(ctx, cu_seqlens[0] == 0, LOONG_ERR_ARG,
                "cu_seqlens[0] is %d, must be 0", cu_seqlens[0]);
    s->segments = 0;
    for (int64_t i = 0; i + 1 < entries; i++) {
        int64_t length = (int64_t)cu_seqlens[i + 1] - cu_seqlens[i];
        LOONG_CHECK(ctx, length >= 0 && length <= max_seqlen, LOONG_ERR_ARG,
                    "cu_seqlens[%lld] is %d after %d: a segment has 0 to %lld "
                    "rows",
                    (long long)i + 1, cu_seqlens[i + 1], cu_seqlens[i],
                    (long long)max_seqlen);
        if (length > 0) {
            s->segments = i + 1;
        }
    }
    LOONG_CHECK(ctx, cu_seqlens[entries - 1] == s->tokens, LOONG_ERR_ARG,
                "cu_seqlens ends with %d, must end with the %lld rows",
                cu_seqlens[entries - 1], (long long)s->tokens);
    return LOONG_OK;
}

/* rows NULL: query t is row t. */
static loong_status_t find_runs(loong_context_t *ctx, const int32_t *rows,
                                int64_t queries,
                                loong_attention_sequence_t *s)
{
    int64_t segment = 0;
    int64_t before = -1; /* row of the query before */
    loong_attention_run_t *run = NULL;
    s->num_runs = 0;
    for (int64_t t = 0; t < queries; t++) {
        int64_t row = rows != NULL ? rows[t] : t;
        LOONG_CHECK(ctx, row > before && row < s->tokens, LOONG_ERR_ARG,
                    "rows[%lld] is %lld after %lld, must ascend and be below "
                    "the %lld rows of keys",
                    (long long)t, (long long)row, (long long)before,
                    (long long)s->tokens);
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
        before = row;
    }
    return LOONG_OK;
}

int64_t loongi_attention_max_runs(const loong_kernel_query_t *query)
{
    return loong_karg_rows(&query->arg[0], NULL);
}

loong_status_t loongi_attention_sequence(
    const loong_kernel_call_t *call, int cu, loong_attention_run_t *runs,
    loong_attention_sequence_t *sequence_p)
{
    const loong_kernel_query_t *q = call->query;
    const loong_attention_attr_t *attr = q->attr;
    loong_attention_sequence_t s = {
        .cu_seqlens = call->ptr[cu],
        .token_key = cu + 1 < q->num_in ? call->ptr[cu + 1] : NULL,
        .tokens = loong_karg_rows(&q->arg[2], call->frame),
        .runs = runs};
    LOONG_TRY(check_segments(call->ctx, q->arg[cu].dim[0], attr->max_seqlen,
                             &s));
    LOONG_TRY(find_runs(call->ctx,
                        cu + 2 < q->num_in ? call->ptr[cu + 2] : NULL,
                        loong_karg_rows(&q->arg[0], call->frame), &s));
    *sequence_p = s;
    return LOONG_OK;
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
