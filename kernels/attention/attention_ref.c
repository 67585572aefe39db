/* SPDX-License-Identifier: Apache-2.0
 *
 * attention and attention_grad. For query row t of head h, with keys j in the
 * set that it sees (its segment, causal, window, key_ends), key head
 * h' = h / group, and m the dropout mask (0 or 1 / (1 - p); 1 without dropout):
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
 * ascending. A gradient whose keys are some of those that o and lse are of is
 * their part of it: a sum over all such parts is the whole.
 *
 * Listed as references in kernels/list.h; read attention.h and ref_dense.h
 * before. */
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
    double *scratch; /* max_seqlen per thread */
} reference_t;

/* cu: the operand that is cu_seqlens. */
static size_t bytes_of(const loong_kernel_query_t *query, int cu)
{
    const loong_attention_attr_t *attr = query->attr;
    size_t scores = (size_t)attr->max_seqlen * sizeof(double);
    return loongi_ref_workspace(query) +
           loongi_attention_sequence_bytes(query, cu) + REF_ALIGN +
           (size_t)query->threads * scores;
}

static size_t workspace(const loong_kernel_query_t *query)
{
    return bytes_of(query, 3);
}

static size_t grad_workspace(const loong_kernel_query_t *query)
{
    return bytes_of(query, 6);
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
    void *memory = loongi_ref_take(
        cursor, loongi_attention_sequence_bytes(query, cu));
    r->attr = query->attr;
    r->dropout = loongi_attention_dropout(r->attr, r->call->frame);
    return loongi_attention_sequence(r->call, cu, memory, &r->sequence);
}

/* Dropout factor of row k of the keys for query row t. */
static double factor(const reference_t *r, int64_t t, int head, int64_t k)
{
    int64_t j = r->sequence.key_place[k];
    uint32_t number[4];
    if (r->dropout.limit == 0) {
        return 1.0;
    }
    loongi_attention_random(&r->dropout, r->sequence.token_key[t], head, j / 4,
                            number);
    return number[j % 4] >> 8 >= r->dropout.limit ? r->dropout.keep_scale : 0.0;
}

typedef struct row {
    int64_t first;      /* row of k of the segment's first key */
    int64_t begin, end; /* keys, from there */
    int head;
    int kv_head;
    int64_t t; /* row of q */
} row_t;

/* Scores of the keys of one row into p[]; returns the largest. */
static double scores(const reference_t *r, const row_t *row, double *p)
{
    int d = r->attr->head_dim;
    int64_t q_ld = (int64_t)r->attr->heads * d;
    int64_t k_ld = (int64_t)r->attr->kv_heads * d;
    const double *q = r->q + row->t * q_ld + (int64_t)row->head * d;
    double top = -INFINITY;
    for (int64_t j = row->begin; j < row->end; j++) {
        const double *k =
            r->k + (row->first + j) * k_ld + (int64_t)row->kv_head * d;
        p[j] = r->attr->scale * dot(q, k, d);
        top = fmax(top, p[j]);
    }
    return top;
}

static void forward_row(const reference_t *r, const row_t *row, double *p)
{
    int d = loongi_attention_v_dim(r->attr);
    int64_t o_ld = (int64_t)r->attr->heads * d;
    int64_t v_ld = (int64_t)r->attr->kv_heads * d;
    double *o = r->o + row->t * o_ld + (int64_t)row->head * d;
    double top = scores(r, row, p);
    double sum = 0.0;
    for (int64_t j = row->begin; j < row->end; j++) {
        sum += exp(p[j] - top);
    }
    double lse = top + log(sum); /* minus infinity without a key */
    if (r->lse != NULL) {
        r->lse[row->t * r->attr->heads + row->head] = lse;
    }
    for (int64_t j = row->begin; j < row->end; j++) {
        const double *v =
            r->v + (row->first + j) * v_ld + (int64_t)row->kv_head * d;
        double weight =
            exp(p[j] - lse) * factor(r, row->t, row->head, row->first + j);
        for (int c = 0; c < d; c++) {
            o[c] += weight * v[c];
        }
    }
}

static void backward_row(const reference_t *r, const row_t *row, double *p)
{
    int d = r->attr->head_dim;
    int d_v = loongi_attention_v_dim(r->attr);
    int64_t at = row->t * r->attr->heads + row->head;
    const double *q = r->q + at * d;
    const double *grad_o = r->grad_o + at * d_v;
    double *dq = r->dq + at * d;
    double delta = dot(grad_o, r->o + at * d_v, d_v);
    (void)scores(r, row, p);
    for (int64_t j = row->begin; j < row->end; j++) {
        int64_t key = (row->first + j) * r->attr->kv_heads + row->kv_head;
        double m = factor(r, row->t, row->head, row->first + j);
        double prob = exp(p[j] - r->lse[at]);
        double dp = m * dot(grad_o, r->v + key * d_v, d_v);
        double ds = r->attr->scale * prob * (dp - delta);
        for (int c = 0; c < d_v; c++) {
            r->dv[key * d_v + c] += m * prob * grad_o[c];
        }
        for (int c = 0; c < d; c++) {
            dq[c] += ds * r->k[key * d + c];
            r->dk[key * d + c] += ds * q[c];
        }
    }
}

/* Query i of a run, and the keys that it sees. */
static row_t row_of(const reference_t *r, const loong_attention_run_t *run,
                    int64_t i)
{
    const loong_attention_sequence_t *s = &r->sequence;
    row_t row = {s->first_key[run->segment], 0, 0, 0, 0, run->row + i};
    loongi_attention_keys(r->attr, s, run->segment, run->begin + i, &row.begin,
                          &row.end);
    row.begin = loongi_attention_keys_before(s, run->segment, row.begin);
    row.end = loongi_attention_keys_before(s, run->segment, row.end);
    return row;
}

/* All rows of the heads of one key head. */
static void each_row(const reference_t *r, int kv_head,
                     void (*visit)(const reference_t *, const row_t *,
                                   double *))
{
    int group = r->attr->heads / r->attr->kv_heads;
    double *scratch =
        r->scratch + r->attr->max_seqlen * omp_get_thread_num();
    for (int h = kv_head * group; h < (kv_head + 1) * group; h++) {
        for (int64_t k = 0; k < r->sequence.num_runs; k++) {
            const loong_attention_run_t *run = &r->sequence.runs[k];
            for (int64_t i = 0; i < run->count; i++) {
                row_t row = row_of(r, run, i);
                row.head = h;
                row.kv_head = kv_head;
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
    r.o = loongi_ref_load(call, 4, &cursor);
    r.lse = loongi_ref_load(call, 5, &cursor);
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
    .workspace = grad_workspace,
    .run = grad_run,
};
