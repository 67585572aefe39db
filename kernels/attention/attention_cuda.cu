/* SPDX-License-Identifier: Apache-2.0
 *
 * attention and attention_grad of fp32, and of bf16 where there are no tiles
 * for it (attention_tiles_cuda.cu, attention_wide_cuda.cu); the formulas stand
 * in attention_ref.c. A warp takes a query of a head (or a key of a key head)
 * and goes through what it sees 32 at a time: first each lane has one of them,
 * then each lane eight channels. All sums are of fp32. */
#include "attention.cuh"

using namespace loong_cuda;

namespace {

/* A warp's vectors in shared memory: up to four of a head's channels, and one
 * or two of weights. A block has at most the shared memory that every device
 * gives (sm_86, sm_89). */
enum { VECTORS = 4, WEIGHTS = 2, SHARED = 99 * 1024 };

__host__ __device__ int width_of(int d)
{
    return (d + PACK - 1) / PACK * PACK;
}

__host__ __device__ int room_of(const attention_t &a)
{
    int width = width_of(a.d > a.d_v ? a.d : a.d_v);
    return VECTORS * width + WEIGHTS * WARP;
}

/* Vector i of the running warp. */
__device__ __forceinline__ float *vector_of(const attention_t &a, float *room,
                                            int i)
{
    int width = width_of(a.d > a.d_v ? a.d : a.d_v);
    return room + (int)threadIdx.x / WARP * room_of(a) + i * width;
}

__device__ __forceinline__ float *weights_of(const attention_t &a, float *room,
                                             int i)
{
    return vector_of(a, room, VECTORS) + i * WARP;
}

/* A pack into shared memory. */
__device__ __forceinline__ void keep_pack(float *to, const pack_t &x)
{
    for (int i = 0; i < 2; i++) {
        float4 w = {x.v[4 * i], x.v[4 * i + 1], x.v[4 * i + 2],
                    x.v[4 * i + 3]};
        reinterpret_cast<float4 *>(to)[i] = w;
    }
}

/* d channels of a head into shared memory, zeros up to a whole pack. */
__device__ void fetch(const mat_t &m, int64_t row, int head, int d, float *to)
{
    int lane = (int)threadIdx.x % WARP;
    for (int c = lane * PACK; c < d; c += WARP * PACK) {
        keep_pack(to + c, load_at(m, row, (int64_t)head * d + c,
                                  least(PACK, d - c)));
    }
}

__device__ void zero(int d, float *to)
{
    pack_t none = {{0}};
    for (int c = (int)threadIdx.x % WARP * PACK; c < d; c += WARP * PACK) {
        keep_pack(to + c, none);
    }
}

__device__ float dot(const mat_t &m, int64_t row, int head, int d,
                     const float *with)
{
    float sum = 0.0f;
    for (int c = 0; c < d; c += PACK) {
        pack_t p = load_at(m, row, (int64_t)head * d + c, least(PACK, d - c));
        pack_t w = load(with + c, PACK, true);
        for (int i = 0; i < PACK; i++) {
            sum += p.v[i] * w.v[i];
        }
    }
    return sum;
}

/* Rows of one head. */
struct rows_t {
    int64_t first;
    int n;
    int head, d;
};

/* sum = sum * decay + the rows by their weights. */
__device__ void gather(const mat_t &m, const rows_t &rows, const float *weight,
                       float decay, float *sum)
{
    int d = rows.d;
    int lane = (int)threadIdx.x % WARP;
    for (int c = lane * PACK; c < d; c += WARP * PACK) {
        int channels = least(PACK, d - c);
        pack_t s = load(sum + c, PACK, true);
        for (int i = 0; i < PACK; i++) {
            s.v[i] *= decay;
        }
        for (int j = 0; j < rows.n; j++) {
            pack_t p = load_at(m, rows.first + j, (int64_t)rows.head * d + c,
                               channels);
            for (int i = 0; i < PACK; i++) {
                s.v[i] += weight[j] * p.v[i];
            }
        }
        keep_pack(sum + c, s);
    }
}

__device__ void put(const mat_t &m, int64_t row, int head, int d,
                    const float *from, float factor)
{
    int lane = (int)threadIdx.x % WARP;
    for (int c = lane * PACK; c < d; c += WARP * PACK) {
        pack_t p = load(from + c, PACK, true);
        for (int i = 0; i < PACK; i++) {
            p.v[i] *= factor;
        }
        store_at(m, row, (int64_t)head * d + c, p, least(PACK, d - c));
    }
}

__device__ __forceinline__ float warp_max(float x)
{
    for (int lane = WARP / 2; lane > 0; lane /= 2) {
        x = fmaxf(x, __shfl_xor_sync(EACH, x, lane));
    }
    return x;
}

/* ---- forward ------------------------------------------------------------- */

__device__ void forward_row(const attention_t &a, const loong_frame_t *frame,
                            int64_t t, int head, float *room)
{
    int lane = (int)threadIdx.x % WARP;
    float *q = vector_of(a, room, 0);
    float *o = vector_of(a, room, 1);
    float *weight = weights_of(a, room, 0);
    span_t span = a.queries[t];
    int of = head / a.group;
    float top = -INFINITY;
    float sum = 0.0f;
    fetch(a.q, t, head, a.d, q);
    zero(a.d_v, o);
    __syncwarp();
    for (int first = span.begin; first < span.end; first += WARP) {
        int key = first + lane;
        bool seen = key < span.end;
        float s = seen ? a.scale * dot(a.k, key, of, a.d, q) : -INFINITY;
        float more = fmaxf(top, warp_max(s));
        float decay = expf(top - more);
        float p = expf(s - more);
        top = more;
        sum = sum * decay + warp_sum(p);
        if (a.chance.limit > 0 && seen) {
            p *= factor_of(a.chance, frame, t, head, a.keys[key].place);
        }
        weight[lane] = p;
        __syncwarp();
        rows_t rows = {first, least(WARP, span.end - first), of, a.d_v};
        gather(a.v, rows, weight, decay, o);
        __syncwarp();
    }
    put(a.o, t, head, a.d_v, o, sum > 0.0f ? 1.0f / sum : 0.0f);
    if (lane == 0 && a.lse.p != NULL) {
        row_of<float>(a.lse, t)[head] = top + logf(sum);
    }
    __syncwarp();
}

__global__ void __launch_bounds__(BLOCK)
    forward_rows(attention_t a, const loong_frame_t *frame)
{
    LOONG_SHARED_DYNAMIC(float, room);
    int64_t units = a.q.rows * a.heads;
    for (int64_t u = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
         u < units; u += (int64_t)gridDim.x * WARPS) {
        forward_row(a, frame, u / a.heads, (int)(u % a.heads), room);
    }
}

/* ---- backward ------------------------------------------------------------ */

/* One pair of query and key. */
struct pair_t {
    int64_t t;
    int64_t key;
    int head;
    float s;  /* scale times q k */
    float dp; /* do v */
};

/* Gives ds (times scale) and, in p_p, the probability with its mask. */
__device__ float ds_of(const attention_t &a, const loong_frame_t *frame,
                       const pair_t &x, float *p_p)
{
    int64_t at = x.t * a.heads + x.head;
    float p = expf(x.s - row_of<float>(a.lse, x.t)[x.head]);
    float factor = a.chance.limit > 0
                       ? factor_of(a.chance, frame, x.t, x.head,
                                   a.keys[x.key].place)
                       : 1.0f;
    *p_p = p * factor;
    return a.scale * p * (factor * x.dp - a.delta[at]);
}

__device__ void query_row(const attention_t &a, const loong_frame_t *frame,
                          int64_t t, int head, float *room)
{
    int lane = (int)threadIdx.x % WARP;
    float *q = vector_of(a, room, 0);
    float *grad = vector_of(a, room, 1);
    float *dq = vector_of(a, room, 2);
    float *weight = weights_of(a, room, 0);
    span_t span = a.queries[t];
    int of = head / a.group;
    fetch(a.q, t, head, a.d, q);
    fetch(a.grad_o, t, head, a.d_v, grad);
    zero(a.d, dq);
    __syncwarp();
    for (int first = span.begin; first < span.end; first += WARP) {
        int key = first + lane;
        float p = 0.0f;
        if (key < span.end) {
            pair_t x = {t, key, head, a.scale * dot(a.k, key, of, a.d, q),
                        dot(a.v, key, of, a.d_v, grad)};
            weight[lane] = ds_of(a, frame, x, &p);
        }
        __syncwarp();
        rows_t rows = {first, least(WARP, span.end - first), of, a.d};
        gather(a.k, rows, weight, 1.0f, dq);
        __syncwarp();
    }
    put(a.dq, t, head, a.d, dq, 1.0f);
    __syncwarp();
}

__global__ void __launch_bounds__(BLOCK)
    query_rows(attention_t a, const loong_frame_t *frame)
{
    LOONG_SHARED_DYNAMIC(float, room);
    int64_t units = a.q.rows * a.heads;
    for (int64_t u = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
         u < units; u += (int64_t)gridDim.x * WARPS) {
        query_row(a, frame, u / a.heads, (int)(u % a.heads), room);
    }
}

/* The queries of one head that see a key. */
__device__ void add_queries(const attention_t &a, const loong_frame_t *frame,
                            int64_t key, int head, float *room)
{
    int lane = (int)threadIdx.x % WARP;
    const float *k = vector_of(a, room, 0);
    const float *v = vector_of(a, room, 1);
    float *ds = weights_of(a, room, 0);
    float *weight = weights_of(a, room, 1);
    span_t span = a.keys[key];
    for (int first = span.begin; first < span.end; first += WARP) {
        int t = first + lane;
        rows_t rows = {first, least(WARP, span.end - first), head, a.d};
        if (t < span.end) {
            pair_t x = {t, key, head, a.scale * dot(a.q, t, head, a.d, k),
                        dot(a.grad_o, t, head, a.d_v, v)};
            ds[lane] = ds_of(a, frame, x, &weight[lane]);
        }
        __syncwarp();
        gather(a.q, rows, ds, 1.0f, vector_of(a, room, 2));
        rows.d = a.d_v;
        gather(a.grad_o, rows, weight, 1.0f, vector_of(a, room, 3));
        __syncwarp();
    }
}

__global__ void __launch_bounds__(BLOCK)
    key_rows(attention_t a, const loong_frame_t *frame)
{
    LOONG_SHARED_DYNAMIC(float, room);
    int heads = a.heads / a.group;
    int64_t units = a.k.rows * heads;
    for (int64_t u = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
         u < units; u += (int64_t)gridDim.x * WARPS) {
        int64_t key = u / heads;
        int of = (int)(u % heads);
        fetch(a.k, key, of, a.d, vector_of(a, room, 0));
        fetch(a.v, key, of, a.d_v, vector_of(a, room, 1));
        zero(a.d, vector_of(a, room, 2));
        zero(a.d_v, vector_of(a, room, 3));
        __syncwarp();
        for (int h = of * a.group; h < (of + 1) * a.group; h++) {
            add_queries(a, frame, key, h, room);
        }
        put(a.dk, key, of, a.d, vector_of(a, room, 2), 1.0f);
        put(a.dv, key, of, a.d_v, vector_of(a, room, 3), 1.0f);
        __syncwarp();
    }
}

dim3 grid_of_warps(const loong_kernel_call_t *call, int64_t units)
{
    return grid_of(call, (units + WARPS - 1) / WARPS);
}

size_t shared_of(const attention_t &a)
{
    return sizeof(float) * WARPS * (size_t)room_of(a);
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    attention_t a = forward_of(call);
    LOONG_TRY(make_spans(call, a, 3));
    LOONG_TRY(allow_shared(call, forward_rows, SHARED));
    LOONG_LAUNCH((forward_rows), grid_of_warps(call, a.q.rows * a.heads),
                 dim3(BLOCK), shared_of(a), stream_of(call), a,
                 call->device_frame);
    return launched(call);
}

static loong_status_t run_grad(const loong_kernel_call_t *call)
{
    attention_t a = gradient_of(call);
    int64_t rows = a.q.rows * a.heads;
    LOONG_TRY(make_spans(call, a, 6));
    LOONG_TRY(make_delta(call, a));
    LOONG_TRY(allow_shared(call, query_rows, SHARED));
    LOONG_TRY(allow_shared(call, key_rows, SHARED));
    LOONG_LAUNCH((query_rows), grid_of_warps(call, rows), dim3(BLOCK),
                 shared_of(a), stream_of(call), a, call->device_frame);
    LOONG_LAUNCH((key_rows), grid_of_warps(call, a.k.rows * a.heads / a.group),
                 dim3(BLOCK), shared_of(a), stream_of(call), a,
                 call->device_frame);
    return launched(call);
}

/* cu is the operand cu_seqlens; it and those behind it are integers. lse: that
 * operand is fp32. */
static bool support_rows(const loong_kernel_query_t *query, int cu, int lse,
                         char reason[LOONG_REASON_SIZE])
{
    const loong_attention_attr_t *attr =
        static_cast<const loong_attention_attr_t *>(query->attr);
    enum { ROOM = (SHARED / 4 / WARPS - WEIGHTS * WARP) / VECTORS,
           MOST = ROOM / PACK * PACK };
    int d = LOONG_MAX(attr->head_dim, loongi_attention_v_dim(attr));
    if (d > MOST) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "heads of %d channels, this kernel takes up to %d", d,
                 (int)MOST);
        return false;
    }
    return loongi_attention_local(query, reason) &&
           cuda_support(query, 1u << lse, (1u << query->num_in) - (1u << cu),
                        reason);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return support_rows(query, 3, query->num_in + 1, reason);
}

static bool support_grad(const loong_kernel_query_t *query,
                         char reason[LOONG_REASON_SIZE])
{
    return support_rows(query, 6, 5, reason);
}

CUDA_KERNEL(attention, support, attention_workspace, run);
CUDA_KERNEL(attention_grad, support_grad, attention_workspace, run_grad);
