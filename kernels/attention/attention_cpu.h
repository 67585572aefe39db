/* SPDX-License-Identifier: Apache-2.0
 *
 * What the forward and the backward of the tiled attention share (compiled per
 * instruction set level). Everything is transposed so that the queries of a
 * block are the columns of tiles: scores S' = K Q' [keys, QUERIES], so that
 * maxima, sums and masks over keys are vector operations without shuffles, and
 * probabilities are stored in the layout of the next product at once.
 */
#ifndef LOONG_ATTENTION_CPU_H
#define LOONG_ATTENTION_CPU_H

#include <math.h>
#include <omp.h>
#include <stdio.h>

#include "attention.h"
#include "isa.h"
#include "pieces.h"
#include "tile_pack.h"

enum {
    QUERIES = 64, /* of a block: a multiple of TILE_N at every level */
    KEYS = 128,   /* of a block, at most */
    COLUMNS = QUERIES / VEC_SIZE /* vectors of a block of queries */
};

/* The channels of a head. */
typedef struct head {
    int64_t d;
    int64_t width; /* d in whole vectors */
} head_t;

/* One launch, forward or backward. */
typedef struct job {
    const loong_kernel_call_t *call;
    const loong_attention_attr_t *attr;
    loong_attention_dropout_t dropout;
    loong_attention_sequence_t sequence;
    int64_t entries; /* of cu_seqlens */
    int64_t num_keys;
    head_t qk;       /* of queries and keys */
    head_t v;        /* of values and outputs */
    bool half;     /* operands are bf16 */
    float factor;  /* scale * log2(e): scores to powers of two */
    /* Per key head: rows of keys (and of values), and blocks of keys transposed
     * over (forward: of V, backward: of K). */
    elem_t *k_rows;
    elem_t *v_rows;
    elem_t *transposed;
    int64_t transposed_d; /* channels of those blocks */
} job_t;

/* A segment, and one head in it. No query of it there: seen is 0. */
typedef struct part {
    int64_t segment;
    int64_t first; /* row of k of its first key */
    int64_t keys;  /* that are there */
    int64_t seen;  /* by any query that is there: the first ones */
    int head;
    int kv_head;
} part_t;

static inline part_t part_of(const job_t *j, int64_t segment, int head)
{
    const loong_attention_sequence_t *s = &j->sequence;
    int64_t first = s->first_key[segment];
    int64_t keys = s->first_key[segment + 1] - first;
    int64_t behind = loongi_attention_first_run(s, segment + 1);
    part_t p = {segment, first, keys, 0, head,
                head / (j->attr->heads / j->attr->kv_heads)};
    if (behind > 0 && s->runs[behind - 1].segment == segment) {
        const loong_attention_run_t *last = &s->runs[behind - 1];
        int64_t begin = 0;
        int64_t end = 0;
        loongi_attention_keys(j->attr, s, segment,
                              last->begin + last->count - 1, &begin, &end);
        p.seen = loongi_attention_keys_before(s, segment, end);
    }
    return p;
}

/* The operands' own conditions; q, k, v are operands first .. first + 2. */
static inline bool tiles_support(const loong_kernel_query_t *q,
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
    if (!(attr->scale > 0.0)) {
        snprintf(reason, LOONG_REASON_SIZE, "scale %g is not positive",
                 attr->scale);
        return false;
    }
    return true;
}

/* What a query alone determines; operand `cu` is cu_seqlens, operand 2 of both
 * ops has a row for each key. */
static inline job_t job_of(const loong_kernel_query_t *q, int cu)
{
    job_t j;
    memset(&j, 0, sizeof(j));
    j.attr = q->attr;
    j.entries = q->arg[cu].dim[0];
    j.num_keys = loong_karg_rows(&q->arg[2]);
    j.qk.d = j.attr->head_dim;
    j.qk.width = round_to(j.qk.d, VEC_SIZE);
    j.v.d = loongi_attention_v_dim(j.attr);
    j.v.width = round_to(j.v.d, VEC_SIZE);
    j.half = q->arg[0].dtype == LOONG_BF16;
    j.factor = (float)(j.attr->scale * 1.44269504088896340736);
    return j;
}

static inline void *take_sequence(const loong_kernel_query_t *q, int cu,
                                  pieces_t *from)
{
    return take(from, (int64_t)loongi_attention_sequence_bytes(q, cu));
}

/* Adds what belongs to a launch. */
static inline loong_status_t begin_job(job_t *j,
                                       const loong_kernel_call_t *call, int cu,
                                       pieces_t *from)
{
    j->call = call;
    j->dropout = loongi_attention_dropout(j->attr, call->frame);
    return loongi_attention_sequence(
        call, cu, take_sequence(call->query, cu, from), &j->sequence);
}

#endif
