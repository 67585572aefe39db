/* SPDX-License-Identifier: Apache-2.0
 *
 * attention and attention_grad. For query row t of head h, with keys j in the
 * set that it sees (its segment, causal, window), key head h' = h / group, and
 * m the dropout mask (0 or 1 / (1 - p); 1 without dropout):
 *
 *     s_j = scale q_t . k_j          lse = ln sum_j exp(s_j)
 *     p_j = exp(s_j - lse)           o_t = sum_j m_j p_j v_j
 *
 * With do_t the gradient of o_t:
 *
 *     dv_j += m_j p_j do_t           dp_j = m_j do_t . v_j
 *     ds_j = p_j (dp_j - delta),     delta = sum_j p_j dp_j = do_t . o_t
 *     dq_t = scale sum_j ds_j k_j    dk_j += scale ds_j q_t
 *
 * Sums over the queries of a key run over heads of the group, then rows, both
 * ascending. This reference takes the softmax from q and k alone; lse and o
 * are for kernels that need them.
 */
#include <math.h>
#include <omp.h>

#include "attention.h"
#include "ref_dense.h"

/* One launch: operands as doubles. */
typedef struct reference {
    const loong_kernel_call_t *call;
    const loong_attention_attr_t *attr;
    loong_attention_dropout_t dropout;
    loong_attention_sequence_t sequence;
    double *q, *k, *v, *o, *lse;
    double *grad_o, *dq, *dk, *dv;
    double *scratch; /* 2 x max_seqlen per thread */
} reference_t;

static size_t workspace(const loong_kernel_query_t *query)
{
    const loong_attention_attr_t *attr = query->attr;
    return loongi_ref_workspace(query) +
           (size_t)query->threads * (size_t)attr->max_seqlen * 2 *
               sizeof(double) +
           (size_t)loongi_attention_max_runs(query) *
               sizeof(loong_attention_run_t);
}

static double dot(const double *a, const double *b, int n)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static loong_status_t begin(reference_t *r, int cu, char **cursor)
{
    const loong_kernel_query_t *query = r->call->query;
    loong_attention_run_t *runs = (loong_attention_run_t *)(void *)*cursor;
    *cursor += (size_t)loongi_attention_max_runs(query) * sizeof(*runs);
    r->attr = query->attr;
    r->dropout = loongi_attention_dropout(r->attr, r->call->frame);
    return loongi_attention_sequence(r->call, cu, runs, &r->sequence);
}

/* Dropout factor of key j for query row t of a segment that begins at row
 * `first`. */
static double factor(const reference_t *r, int64_t t, int head, int64_t j)
{
    uint32_t number[4];
    if (r->dropout.limit == 0) {
        return 1.0;
    }
    loongi_attention_random(&r->dropout, r->sequence.token_key[t], head, j / 4,
                            number);
    return number[j % 4] >> 8 >= r->dropout.limit ? r->dropout.keep_scale : 0.0;
}

typedef struct row {
    int64_t first;      /* row where the segment begins */
    int64_t begin, end; /* keys, from there */
    int head;
    int kv_head;
    int64_t t; /* row of q */
} row_t;

/* Probabilities of the keys of one row into p[]; returns lse. */
static double probabilities(const reference_t *r, const row_t *row, double *p)
{
    int d = r->attr->head_dim;
    int64_t q_ld = (int64_t)r->attr->heads * d;
    int64_t k_ld = (int64_t)r->attr->kv_heads * d;
    const double *q = r->q + row->t * q_ld + (int64_t)row->head * d;
    double top = -INFINITY;
    double sum = 0.0;
    for (int64_t j = row->begin; j < row->end; j++) {
        const double *k =
            r->k + (row->first + j) * k_ld + (int64_t)row->kv_head * d;
        p[j] = r->attr->scale * dot(q, k, d);
        top = fmax(top, p[j]);
    }
    for (int64_t j = row->begin; j < row->end; j++) {
        sum += exp(p[j] - top);
    }
    double lse = top + log(sum);
    for (int64_t j = row->begin; j < row->end; j++) {
        p[j] = exp(p[j] - lse);
    }
    return lse;
}

static void forward_row(const reference_t *r, const row_t *row, double *p)
{
    int d = r->attr->head_dim;
    int64_t q_ld = (int64_t)r->attr->heads * d;
    int64_t k_ld = (int64_t)r->attr->kv_heads * d;
    double *o = r->o + row->t * q_ld + (int64_t)row->head * d;
    double lse = probabilities(r, row, p);
    if (r->lse != NULL) {
        r->lse[row->t * r->attr->heads + row->head] = lse;
    }
    for (int64_t j = row->begin; j < row->end; j++) {
        const double *v =
            r->v + (row->first + j) * k_ld + (int64_t)row->kv_head * d;
        double weight = p[j] * factor(r, row->t, row->head, j);
        for (int c = 0; c < d; c++) {
            o[c] += weight * v[c];
        }
    }
}

static void backward_row(const reference_t *r, const row_t *row, double *p)
{
    int d = r->attr->head_dim;
    double *dp = p + r->attr->max_seqlen;
    double delta = 0.0;
    int64_t q_at = (row->t * r->attr->heads + row->head) * d;
    (void)probabilities(r, row, p);
    for (int64_t j = row->begin; j < row->end; j++) {
        int64_t k_at =
            ((row->first + j) * r->attr->kv_heads + row->kv_head) * d;
        double m = factor(r, row->t, row->head, j);
        dp[j] = m * dot(r->grad_o + q_at, r->v + k_at, d);
        delta += p[j] * dp[j];
        for (int c = 0; c < d; c++) {
            r->dv[k_at + c] += m * p[j] * r->grad_o[q_at + c];
        }
    }
    for (int64_t j = row->begin; j < row->end; j++) {
        int64_t k_at =
            ((row->first + j) * r->attr->kv_heads + row->kv_head) * d;
        double ds = r->attr->scale * p[j] * (dp[j] - delta);
        for (int c = 0; c < d; c++) {
            r->dq[q_at + c] += ds * r->k[k_at + c];
            r->dk[k_at + c] += ds * r->q[q_at + c];
        }
    }
}

/* All rows of the heads of one key head. */
static void each_row(const reference_t *r, int kv_head,
                     void (*visit)(const reference_t *, const row_t *,
                                   double *))
{
    int group = r->attr->heads / r->attr->kv_heads;
    double *scratch =
        r->scratch + 2 * r->attr->max_seqlen * omp_get_thread_num();
    for (int h = kv_head * group; h < (kv_head + 1) * group; h++) {
        for (int64_t k = 0; k < r->sequence.num_runs; k++) {
            const loong_attention_run_t *run = &r->sequence.runs[k];
            const int32_t *cu = &r->sequence.cu_seqlens[run->segment];
            for (int64_t i = 0; i < run->count; i++) {
                row_t row = {cu[0], 0, 0, h, kv_head, run->row + i};
                loongi_attention_keys(r->attr, run->begin + i, cu[1] - cu[0],
                                      &row.begin, &row.end);
                visit(r, &row, scratch);
            }
        }
    }
}

static void all_rows(const reference_t *r,
                     void (*visit)(const reference_t *, const row_t *,
                                   double *))
{
#pragma omp parallel for schedule(dynamic, 1) \
    num_threads(r->call->query->threads)
    for (int kv_head = 0; kv_head < r->attr->kv_heads; kv_head++) {
        each_row(r, kv_head, visit);
    }
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    reference_t r = {.call = call};
    char *cursor = call->workspace;
    LOONG_TRY(begin(&r, 3, &cursor));
    r.q = loongi_ref_load(call, 0, &cursor);
    r.k = loongi_ref_load(call, 1, &cursor);
    r.v = loongi_ref_load(call, 2, &cursor);
    r.o = loongi_ref_output(call, 0, &cursor);
    r.lse = loongi_ref_output(call, 1, &cursor);
    r.scratch = (double *)(void *)cursor;
    all_rows(&r, forward_row);
    loongi_ref_store(call, 0, r.o);
    loongi_ref_store(call, 1, r.lse);
    return LOONG_OK;
}

static loong_status_t grad_run(const loong_kernel_call_t *call)
{
    reference_t r = {.call = call};
    char *cursor = call->workspace;
    LOONG_TRY(begin(&r, 6, &cursor));
    r.grad_o = loongi_ref_load(call, 0, &cursor);
    r.q = loongi_ref_load(call, 1, &cursor);
    r.k = loongi_ref_load(call, 2, &cursor);
    r.v = loongi_ref_load(call, 3, &cursor);
    r.dq = loongi_ref_output(call, 0, &cursor);
    r.dk = loongi_ref_output(call, 1, &cursor);
    r.dv = loongi_ref_output(call, 2, &cursor);
    r.scratch = (double *)(void *)cursor;
    all_rows(&r, backward_row);
    loongi_ref_store(call, 0, r.dq);
    loongi_ref_store(call, 1, r.dk);
    loongi_ref_store(call, 2, r.dv);
    return LOONG_OK;
}

const loong_kernel_t loongi_attention_ref = {
    .name = "attention_ref",
    .op = "attention",
    .device = "cpu",
    .workspace = workspace,
    .run = run,
};

const loong_kernel_t loongi_attention_grad_ref = {
    .name = "attention_grad_ref",
    .op = "attention_grad",
    .device = "cpu",
    .workspace = workspace,
    .run = grad_run,
};
