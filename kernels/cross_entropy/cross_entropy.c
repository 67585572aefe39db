/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels of the fused loss share on a processor: roles of operands,
 * the check of labels, sizes of chunks, the exchange between ranks that share
 * the vocabulary. Called by the oneDNN kernels, the reference and CUDA's
 * kernels. Read cross_entropy_ref.c for the formulas. */
#include "cross_entropy.h"

#include <math.h>
#include <string.h>

const loong_head_roles_t *
loongi_cross_entropy_roles(const loong_kernel_query_t *query)
{
    enum { LOSS, LOGPROB, GRADIENT, OPS };
    static const struct {
        int num_in; /* with one pair */
        loong_head_roles_t roles[LOONG_HEAD_PAIRS];
    } ops[OPS] = {
        [LOSS] = {4,
                  {{3, 4, 0, 1, {{0, 1, 5, 6}}, 1.0, false},
                   {3, 6, 0, 2, {{0, 1, 7, 8}, {4, 5, 9, 10}}, 1.0, false}}},
        [LOGPROB] = {3,
                     {{0, 3, 4, 1, {{0, 1, 0, 0}}, -1.0, false},
                      {0, 5, 6, 2, {{0, 1, 0, 0}, {3, 4, 0, 0}}, -1.0,
                       false}}},
        [GRADIENT] = {6,
                      {{5, 3, 4, 1, {{0, 1, 6, 7}}, -1.0, true},
                       {5, 3, 4, 2, {{0, 1, 8, 9}, {6, 7, 10, 11}}, -1.0,
                        true}}},
    };
    /* A step calls no strcmp. */
    int i = query->op[0] == 'c'                    ? LOSS
            : query->num_in < ops[GRADIENT].num_in ? LOGPROB
                                                   : GRADIENT;
    return &ops[i].roles[query->num_in > ops[i].num_in];
}

loong_status_t loongi_cross_entropy_labels(const loong_kernel_call_t *call)
{
    const loong_cross_entropy_attr_t *attr = call->query->attr;
    const int32_t *labels = call->ptr[2];
    int64_t rows = loong_karg_rows(&call->query->arg[0]);
    for (int64_t t = 0; t < rows; t++) {
        LOONG_CHECK(call->ctx,
                    labels[t] == LOONG_IGNORE_LABEL ||
                        (labels[t] >= 0 && labels[t] < attr->vocab),
                    LOONG_ERR_ARG,
                    "label of row %lld is %d, must be in 0..%lld or %d "
                    "(no loss)",
                    (long long)t, labels[t], (long long)attr->vocab - 1,
                    LOONG_IGNORE_LABEL);
    }
    return LOONG_OK;
}

int64_t loongi_cross_entropy_columns(const loong_kernel_query_t *query)
{
    const loong_cross_entropy_attr_t *attr = query->attr;
    return LOONG_MIN(loong_karg_rows(&query->arg[1]),
                     attr->vocab - attr->begin);
}

/* Bytes of logits of a chunk: larger chunks read w and dw less often, beyond
 * CHUNK_ROWS that gains nothing. A GPU may be among ranks that share a
 * vocabulary: more, in steps of its tiles. */
#define CHUNK_BYTES ((int64_t)64 << 20)
#define SHARED_BYTES ((int64_t)256 << 20)
enum { CHUNK_STEP = 16, CHUNK_ROWS = 512, SHARED_STEP = 256 };

/* A rank whose part of the vocabulary is padded has fewer columns, not more
 * rows. */
int64_t loongi_cross_entropy_chunk(const loong_kernel_query_t *query)
{
    const loong_cross_entropy_attr_t *attr = query->attr;
    int64_t tokens = loong_karg_rows(&query->arg[0]);
    bool shared = attr->size > 1;
    int64_t step = shared ? SHARED_STEP : CHUNK_STEP;
    int64_t columns = shared ? loong_karg_rows(&query->arg[1])
                             : loongi_cross_entropy_columns(query);
    int64_t most = (shared ? SHARED_BYTES : CHUNK_BYTES) /
                   (columns * (int64_t)sizeof(float));
    most = LOONG_MAX(most / step * step, step);
    most = shared ? most : LOONG_MIN(most, (int64_t)CHUNK_ROWS);
    int64_t chunks = LOONG_MAX((tokens + most - 1) / most, (int64_t)1);
    /* Of about equal size. */
    return LOONG_MIN(loongi_round_up((tokens + chunks - 1) / chunks, step),
                     tokens);
}

int64_t loongi_cross_entropy_list(const loong_kernel_call_t *call, int64_t rows,
                                  int32_t *token)
{
    const loong_cross_entropy_attr_t *attr = call->query->attr;
    const int32_t *labels = call->ptr[2];
    int64_t tokens = loong_karg_rows(&call->query->arg[0]);
    int64_t count = 0;
    for (int64_t t = 0; t < tokens; t++) {
        if (attr->size > 1 || labels[t] != LOONG_IGNORE_LABEL) {
            token[count++] = (int32_t)t;
        }
    }
    for (int64_t r = count; r < loongi_round_up(count, rows); r++) {
        token[r] = -1;
    }
    return count;
}

/* ---- a shared vocabulary ------------------------------------------------ */

/* The room holds, one behind the other: the statistics of each rank, their
 * sums, the sizes of the pieces. */
enum { FIELDS = sizeof(loong_softmax_stats_t) / sizeof(double) };

static int64_t ranks_of(const loong_kernel_query_t *query)
{
    const loong_cross_entropy_attr_t *attr = query->attr;
    return LOONG_MAX(attr->size, 1);
}

size_t loongi_cross_entropy_room(const loong_kernel_query_t *query,
                                 int64_t rows)
{
    int64_t ranks = ranks_of(query);
    int64_t copies = ranks > 1 ? ranks + 1 : 1;
    return (size_t)loongi_round_up(
        copies * rows * (int64_t)sizeof(loong_softmax_stats_t) +
            ranks * (int64_t)sizeof(int64_t), 64);
}

loong_softmax_stats_t *
loongi_cross_entropy_own(const loong_kernel_query_t *query, void *room,
                         int64_t rows)
{
    const loong_cross_entropy_attr_t *attr = query->attr;
    loong_softmax_stats_t *stats = room;
    return stats + (attr->size > 1 ? attr->rank * rows : 0);
}

const loong_softmax_stats_t *
loongi_cross_entropy_all(const loong_kernel_query_t *query, void *room,
                         int64_t rows)
{
    const loong_softmax_stats_t *stats = room;
    int64_t ranks = ranks_of(query);
    return stats + (ranks > 1 ? ranks * rows : 0);
}

static loong_softmax_stats_t combine(const loong_softmax_stats_t *stats,
                                     int64_t ranks, int64_t rows, int64_t row)
{
    loong_softmax_stats_t all = {-INFINITY, 0.0, 0.0};
    for (int64_t r = 0; r < ranks; r++) {
        all.top = fmax(all.top, stats[r * rows + row].top);
    }
    for (int64_t r = 0; r < ranks; r++) {
        const loong_softmax_stats_t *one = &stats[r * rows + row];
        all.sum += one->sum * exp(one->top - all.top);
        all.logit += one->logit;
    }
    return all;
}

loong_status_t
loongi_cross_entropy_exchange(const loong_kernel_call_t *call, void *room,
                              int64_t rows)
{
    const loong_cross_entropy_attr_t *attr = call->query->attr;
    loong_softmax_stats_t *stats = room;
    int64_t ranks = ranks_of(call->query);
    if (ranks == 1) {
        return LOONG_OK;
    }
    LOONG_CHECK(call->ctx, call->group != NULL, LOONG_ERR_INTERNAL,
                "%s: no communicator of group %s", call->query->op,
                loong_group_name(attr->group));
    loong_softmax_stats_t *all = stats + ranks * rows;
    int64_t *counts = (int64_t *)(void *)(all + rows);
    for (int64_t r = 0; r < ranks; r++) {
        counts[r] = rows * FIELDS;
    }
    LOONG_TRY(loong_comm_all_gather(call->group[attr->group], stats, counts,
                                    LOONG_F64, "cross entropy"));
    for (int64_t row = 0; row < rows; row++) {
        all[row] = combine(stats, ranks, rows, row);
    }
    return LOONG_OK;
}
