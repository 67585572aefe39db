/* SPDX-License-Identifier: Apache-2.0
 *
 * What the attention kernels of CUDA share: their operands, dropout, and what
 * is made of the operands first. */
#ifndef LOONG_ATTENTION_CUH
#define LOONG_ATTENTION_CUH

#include "attention_spans.cuh"

namespace loong_cuda {

/* ---- dropout ------------------------------------------------------------- */

struct chance_t {
    const int64_t *token_key; /* NULL: none is dropped */
    uint64_t stream;
    int first_head;
    uint32_t limit;
    float keep;
};

/* Factor of the probability of a key for query t. */
static __device__ __forceinline__ float
factor_of(const chance_t &c, const loong_frame_t *frame, int64_t t, int head,
          int32_t place)
{
    loong_attention_dropout_t d = {loongi_dropout_key(frame->seed, c.stream),
                                   frame->step, c.first_head, c.limit, 1.0};
    uint32_t number[4];
    loongi_attention_random(&d, c.token_key[t], head, place / 4, number);
    /* An index would put the numbers into memory. */
    uint32_t first = place % 2 == 0 ? number[0] : number[1];
    uint32_t second = place % 2 == 0 ? number[2] : number[3];
    return (place % 4 < 2 ? first : second) >> 8 >= c.limit ? c.keep : 0.0f;
}

/* ---- a launch ------------------------------------------------------------ */

/* Operands of attention (o and lse are written) and of its gradient. */
struct attention_t {
    mat_t q, k, v, o, lse;
    mat_t grad_o, dq, dk, dv;
    const span_t *queries, *keys;
    float *delta; /* [queries, heads]: sum over channels of do and o */
    chance_t chance;
    int heads, group; /* query heads to one key head */
    int d, d_v;
    float scale;
};

/* Spans, then delta. */
static inline size_t attention_bytes(const loong_kernel_query_t *query,
                                     bool gradient)
{
    int64_t queries = loong_karg_rows(&query->arg[0]);
    int64_t keys = loong_karg_rows(&query->arg[2]);
    const loong_attention_attr_t *attr =
        static_cast<const loong_attention_attr_t *>(query->attr);
    return sizeof(span_t) * (size_t)(queries + keys) +
           (gradient ? sizeof(float) * (size_t)(queries * attr->heads) : 0);
}

static inline size_t attention_workspace(const loong_kernel_query_t *query)
{
    return attention_bytes(query, query->num_out > 2);
}

/* What all operands of a launch say; cu is the operand cu_seqlens, q the one
 * of queries. */
static inline attention_t attention_of(const loong_kernel_call_t *call, int q,
                                       int cu)
{
    const loong_kernel_query_t *query = call->query;
    const loong_attention_attr_t *attr =
        static_cast<const loong_attention_attr_t *>(query->attr);
    attention_t a;
    memset(&a, 0, sizeof(a));
    a.q = mat_arg(call, q);
    a.k = mat_arg(call, q + 1);
    a.v = mat_arg(call, q + 2);
    span_t *spans = static_cast<span_t *>(call->workspace);
    a.queries = spans;
    a.keys = spans + a.q.rows;
    a.delta = reinterpret_cast<float *>(spans + a.q.rows + a.k.rows);
    a.heads = attr->heads;
    a.group = attr->heads / attr->kv_heads;
    a.d = attr->head_dim;
    a.d_v = loongi_attention_v_dim(attr);
    a.scale = (float)attr->scale;
    a.chance.token_key =
        cu + 1 < query->num_in
            ? static_cast<const int64_t *>(call->ptr[cu + 1])
            : NULL;
    a.chance.stream = attr->stream;
    a.chance.first_head = attr->first_head;
    a.chance.limit = loongi_dropout_limit(attr->dropout);
    a.chance.keep = (float)(1.0 / (1.0 - attr->dropout));
    return a;
}

static inline attention_t forward_of(const loong_kernel_call_t *call)
{
    attention_t a = attention_of(call, 0, 3);
    a.o = mat_out(call, 0);
    a.lse = mat_out(call, 1);
    return a;
}

static inline attention_t gradient_of(const loong_kernel_call_t *call)
{
    attention_t a = attention_of(call, 1, 6);
    a.grad_o = mat_arg(call, 0);
    a.o = mat_arg(call, 4);
    a.lse = mat_arg(call, 5);
    a.dq = mat_out(call, 0);
    a.dk = mat_out(call, 1);
    a.dv = mat_out(call, 2);
    return a;
}

static inline loong_status_t make_spans(const loong_kernel_call_t *call,
                                        const attention_t &a, int cu)
{
    const loong_kernel_query_t *query = call->query;
    sequence_t s;
    s.cu_seqlens = static_cast<const int32_t *>(call->ptr[cu]);
    s.entries = (int)query->arg[cu].dim[0];
    for (int side = 0; side < 2; side++) {
        int operand = cu + 2 + side;
        s.rows[side] = operand < query->num_in
                           ? static_cast<const int32_t *>(call->ptr[operand])
                           : NULL;
    }
    s.ends = cu + 4 < query->num_in
                 ? static_cast<const int32_t *>(call->ptr[cu + 4])
                 : NULL;
    s.side[0] = a.q;
    s.side[1] = a.k;
    s.attr = *static_cast<const loong_attention_attr_t *>(query->attr);
    s.span[0] = const_cast<span_t *>(a.queries);
    s.span[1] = const_cast<span_t *>(a.keys);
    s.error = call->error;
    int64_t blocks = (a.q.rows + a.k.rows + BLOCK - 1) / BLOCK;
    LOONG_LAUNCH((find_spans), grid_of(call, blocks), dim3(BLOCK), 0,
                 stream_of(call), s);
    return launched(call);
}

/* ---- delta, for gradients ------------------------------------------------ */

static __global__ void __launch_bounds__(BLOCK)
    sum_deltas(attention_t a)
{
    int64_t units = a.q.rows * a.heads;
    for (int64_t u = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
         u < units; u += (int64_t)gridDim.x * WARPS) {
        int64_t t = u / a.heads;
        int64_t head = u % a.heads * a.d_v;
        float sum = 0.0f;
        for (int c = (int)threadIdx.x % WARP * PACK; c < a.d_v;
             c += WARP * PACK) {
            int n = least(PACK, a.d_v - c);
            pack_t x = load_at(a.grad_o, t, head + c, n);
            pack_t y = load_at(a.o, t, head + c, n);
            for (int i = 0; i < PACK; i++) {
                sum += x.v[i] * y.v[i];
            }
        }
        sum = warp_sum(sum);
        if (threadIdx.x % WARP == 0) {
            a.delta[u] = sum;
        }
    }
}

static inline loong_status_t make_delta(const loong_kernel_call_t *call,
                                        const attention_t &a)
{
    LOONG_LAUNCH((sum_deltas),
                 grid_of(call, (a.q.rows * a.heads + WARPS - 1) / WARPS),
                 dim3(BLOCK), 0, stream_of(call), a);
    return launched(call);
}

} // namespace loong_cuda

#endif
