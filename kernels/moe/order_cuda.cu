/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_order, a counting sort that keeps the order of the tokens: blocks
 * count the choices of a chunk of slots each, blocks find where the rows of 32
 * experts begin in each chunk, blocks place the slots of their chunk. A thread
 * has an expert and goes through the chunk, which lies in shared memory:
 * nothing is added atomically. expert_counts, expert_excess and expert_capacity
 * count on the same ground. */
#include "moe/moe.cuh"
#include "sort.cuh"

using namespace loong_cuda;

namespace {

#ifdef CUDASIM
enum { CHUNK = 16 };
#else
enum { CHUNK = 1024 }; /* slots of a block */
#endif

struct order_t {
    const int32_t *index;
    int64_t slots, k;
    int experts, begin, count;
    int64_t rows; /* there is room for */
    int32_t *offset, *source, *dest;
    int32_t *at; /* [chunks, count]: rows before, then where they go */
    int chunks;
    loong_device_error_t *error;
};

/* The experts of a chunk, counted from `begin`; none and others: -1. */
__device__ void fetch_chunk(const order_t &a, int32_t *room)
{
    int64_t first = (int64_t)blockIdx.x * CHUNK;
    for (int i = (int)threadIdx.x; i < CHUNK; i += BLOCK) {
        int32_t e = first + i < a.slots ? a.index[first + i] - a.begin : -1;
        room[i] = e >= 0 && e < a.count ? e : -1;
    }
    __syncthreads();
}

/* Of one slot: an expert that is none, or that the token has twice. */
__device__ void check_slot(const order_t &a, int64_t s)
{
    int32_t e = a.index[s];
    int64_t token = s / a.k;
    loong_device_error_t f = {
        LOONG_DEVICE_ERROR_EXPERT, 0, e, token, 0, a.experts, NULL};
    if (e < LOONG_NO_TOKEN || e >= a.experts) {
        tell_integer(a.error, f);
    }
    for (int64_t i = token * a.k; i < s && e >= 0; i++) {
        if (a.index[i] == e) {
            f.kind = LOONG_DEVICE_ERROR_EXPERT_TWICE;
            tell_integer(a.error, f);
        }
    }
}

__global__ void __launch_bounds__(BLOCK) count_chunk(order_t a)
{
    LOONG_SHARED(int32_t, room, CHUNK);
    int64_t first = (int64_t)blockIdx.x * CHUNK;
    for (int i = (int)threadIdx.x; i < CHUNK && first + i < a.slots;
         i += BLOCK) {
        check_slot(a, first + i);
    }
    fetch_chunk(a, room);
    for (int e = (int)threadIdx.x; e < a.count; e += BLOCK) {
        int32_t n = 0;
        for (int i = 0; i < CHUNK; i++) {
            n += room[i] == e;
        }
        a.at[(int64_t)blockIdx.x * a.count + e] = n;
    }
}

/* Rows of a lane's expert in chunks begin .. end - 1; or, from `sum` on, those
 * in earlier chunks in place of each. Eight reads are under way at a time. */
template <bool PLACE>
__device__ int32_t go_through(const order_t &a, int e, int begin, int end,
                              int32_t sum)
{
    enum { EACH_TIME = 8 };
    for (int c = begin; c < end; c += EACH_TIME) {
        int32_t n[EACH_TIME];
#pragma unroll
        for (int i = 0; i < EACH_TIME; i++) {
            n[i] = c + i < end ? a.at[(int64_t)(c + i) * a.count + e] : 0;
        }
#pragma unroll
        for (int i = 0; i < EACH_TIME; i++) {
            if (PLACE && c + i < end) {
                a.at[(int64_t)(c + i) * a.count + e] = sum;
            }
            sum += n[i];
        }
    }
    return sum;
}

/* A block has 32 experts, one a lane, a warp some of the chunks: rows of an
 * expert in earlier chunks, and in all. */
__global__ void __launch_bounds__(BLOCK) place_chunks(order_t a)
{
    LOONG_SHARED(int32_t, sums, WARPS * WARP);
    int warp = (int)threadIdx.x / WARP;
    int lane = (int)threadIdx.x % WARP;
    int e = (int)blockIdx.x * WARP + lane;
    int each = (a.chunks + WARPS - 1) / WARPS;
    int begin = least(warp * each, a.chunks);
    int end = e < a.count ? least(begin + each, a.chunks) : begin;
    int32_t sum = 0;
    sums[warp * WARP + lane] = go_through<false>(a, e, begin, end, 0);
    __syncthreads();
    for (int w = 0; w < warp; w++) {
        sum += sums[w * WARP + lane];
    }
    sum = go_through<true>(a, e, begin, end, sum);
    if (warp == WARPS - 1 && e < a.count) {
        a.offset[e + 1] = sum;
    }
}

/* One block: rows of earlier experts. */
__global__ void __launch_bounds__(BLOCK) place_experts(order_t a)
{
    LOONG_SHARED(int, room, WARPS);
    int before = 0;
    for (int first = 0; first < a.count; first += BLOCK) {
        int e = first + (int)threadIdx.x;
        int n = e < a.count ? a.offset[e + 1] : 0;
        int all = 0;
        int end = before + sum_before(n, room, &all) + n;
        if (e < a.count) {
            a.offset[e + 1] = end;
        }
        before += all;
    }
    if (threadIdx.x == 0) {
        a.offset[0] = 0;
        if (before > a.rows) {
            loong_device_error_t f = {
                LOONG_DEVICE_ERROR_EXPERT_ROOM, 0,      before, a.begin,
                a.begin + a.count - 1,          a.rows, NULL};
            tell_integer(a.error, f);
        }
    }
}

__global__ void __launch_bounds__(BLOCK) place_slots(order_t a)
{
    LOONG_SHARED(int32_t, room, CHUNK);
    int64_t first = (int64_t)blockIdx.x * CHUNK;
    fetch_chunk(a, room);
    for (int i = (int)threadIdx.x; i < CHUNK && first + i < a.slots;
         i += BLOCK) {
        if (room[i] < 0) {
            bool none = a.index[first + i] == LOONG_NO_TOKEN;
            a.dest[first + i] = none ? LOONG_NO_TOKEN : -1;
        }
    }
    for (int e = (int)threadIdx.x; e < a.count; e += BLOCK) {
        int64_t row = a.offset[e] + a.at[(int64_t)blockIdx.x * a.count + e];
        for (int i = 0; i < CHUNK; i++) {
            if (room[i] == e) {
                bool fits = row < a.rows;
                a.dest[first + i] = fits ? (int32_t)row : -1;
                if (fits) {
                    a.source[row] = (int32_t)(first + i);
                }
                row++;
            }
        }
    }
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t r = a.offset[a.count] + (int64_t)blockIdx.x * BLOCK +
                     threadIdx.x;
         r < a.rows; r += step) {
        a.source[r] = -1;
    }
}

loong_status_t make_order(const loong_kernel_call_t *call, const order_t &a)
{
    dim3 chunks((unsigned)a.chunks);
    LOONG_LAUNCH((count_chunk), chunks, dim3(BLOCK), 0, stream_of(call), a);
    LOONG_LAUNCH((place_chunks), dim3((unsigned)(a.count + WARP - 1) / WARP),
                 dim3(BLOCK), 0, stream_of(call), a);
    LOONG_LAUNCH((place_experts), dim3(1), dim3(BLOCK), 0, stream_of(call), a);
    LOONG_LAUNCH((place_slots), chunks, dim3(BLOCK), 0, stream_of(call), a);
    return launched(call);
}

int chunks_of(int64_t slots)
{
    return (int)LOONG_MAX((slots + CHUNK - 1) / CHUNK, 1);
}

int64_t slots_of(const loong_kernel_query_t *query)
{
    return query->arg[0].dim[0] * query->arg[0].dim[1];
}

/* ---- counts -------------------------------------------------------------- */

struct counts_t {
    indices_t index;
    int64_t slots, k;
    int64_t span, begin;
    int experts, spans;
    int32_t *count; /* [spans, experts] */
};

__global__ void __launch_bounds__(BLOCK) count_slots(counts_t a)
{
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t s = (int64_t)blockIdx.x * BLOCK + threadIdx.x; s < a.slots;
         s += step) {
        int32_t e = index_at(a.index, s);
        int64_t span = (a.begin + s / a.k) / a.span;
        if (e >= 0) {
            atomicAdd(&a.count[span * a.experts + e], 1);
        }
    }
}

/* Counts; of `set` experts each: times that, less what the set has in all. */
template <class T> struct counts_fn {
    const int32_t *count;
    int64_t experts;
    int64_t set; /* 0: as they are */
    __device__ float one(int64_t row, int64_t e) const
    {
        const int32_t *own = count + row * experts;
        int64_t all = 0;
        for (int64_t i = 0; i < set; i++) {
            all += own[e / set * set + i];
        }
        return set > 0 ? (float)(set * own[e] - all) : (float)own[e];
    }
    bool aligned() const
    {
        return true;
    }
    template <bool WHOLE>
    __device__ pack_t at(int64_t row, int64_t col, int n,
                         const loong_frame_t *) const
    {
        pack_t y = {{0}};
#pragma unroll
        for (int i = 0; i < PACK && i < n; i++) {
            y.v[i] = one(row, col + i);
        }
        return y;
    }
};

/* Of all slots by expert and span, as counts_fn makes them. */
loong_status_t run_counts_of(const loong_kernel_call_t *call, counts_t a,
                             int64_t set)
{
    a.index = indices_of(call, 0, set > 0 ? 0 : -1, a.experts);
    a.slots = slots_of(call->query);
    a.k = call->query->arg[0].dim[1];
    a.count = static_cast<int32_t *>(call->workspace);
    cudaMemsetAsync(a.count, 0,
                    sizeof(int32_t) * (size_t)a.spans * (size_t)a.experts,
                    stream_of(call));
    LOONG_LAUNCH((count_slots), grid_of(call, (a.slots + BLOCK - 1) / BLOCK),
                 dim3(BLOCK), 0, stream_of(call), a);
    return generate<counts_fn>(call, mat_out(call, 0), a.count, a.experts,
                               set);
}

/* ---- capacity ------------------------------------------------------------ */

/* Slots by priority are put in the order of the experts: where one stands among
 * those of its expert is what its expert keeps or drops. */
struct capacity_t {
    const int32_t *index;
    mat_t weight;
    int64_t slots, k, capacity;
    uint64_t *keys; /* by priority: 32 bits that fall with the weight, slot */
    int64_t size;   /* sort_size */
    int32_t *sorted; /* experts by priority; NULL: slots stand by priority */
    const int32_t *offset, *dest; /* of expert_order */
    int32_t *kept;
};

/* Bits that fall where x rises. */
__device__ __forceinline__ uint32_t falling(float x)
{
    uint32_t bits = __float_as_uint(x + 0.0f); /* -0 is 0 */
    return bits >> 31 != 0 ? bits : ~bits & 0x7fffffffu;
}

__global__ void __launch_bounds__(BLOCK) make_priorities(capacity_t a)
{
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t s = (int64_t)blockIdx.x * BLOCK + threadIdx.x; s < a.size;
         s += step) {
        a.keys[s] = s < a.slots
                        ? (uint64_t)falling(load_one(a.weight, s / a.k,
                                                     s % a.k)) << 32 |
                              (uint64_t)s
                        : ~(uint64_t)0;
    }
}

/* `given` has the choices as tokens stand, which are checked here. */
__global__ void __launch_bounds__(BLOCK)
    gather_experts(capacity_t a, order_t given)
{
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < a.slots;
         i += step) {
        int64_t s = (int64_t)(a.keys[i] & 0xffffffffu);
        check_slot(given, s);
        a.sorted[i] = a.index[s];
    }
}

__global__ void __launch_bounds__(BLOCK) keep_slots(capacity_t a)
{
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < a.slots;
         i += step) {
        int64_t s =
            a.sorted != NULL ? (int64_t)(a.keys[i] & 0xffffffffu) : i;
        int32_t e = a.index[s];
        int32_t row = a.dest[i];
        bool kept = row >= 0 && row - a.offset[e] < a.capacity;
        a.kept[s] = kept ? e : -1;
    }
}

/* From here on the order is that of the slots by priority. */
loong_status_t sort_slots(const loong_kernel_call_t *call,
                          const capacity_t &a, order_t *o)
{
    LOONG_LAUNCH((make_priorities),
                 grid_of(call, (a.size + BLOCK - 1) / BLOCK), dim3(BLOCK), 0,
                 stream_of(call), a);
    LOONG_TRY(sort_keys(call, a.keys, a.size));
    LOONG_LAUNCH((gather_experts),
                 grid_of(call, (a.slots + BLOCK - 1) / BLOCK), dim3(BLOCK), 0,
                 stream_of(call), a, *o);
    o->index = a.sorted;
    o->k = 1;
    return launched(call);
}

} // namespace

static loong_status_t run_order(const loong_kernel_call_t *call)
{
    const loong_expert_order_attr_t *attr =
        static_cast<const loong_expert_order_attr_t *>(call->query->attr);
    order_t a;
    a.index = static_cast<const int32_t *>(call->ptr[0]);
    a.slots = slots_of(call->query);
    a.k = call->query->arg[0].dim[1];
    a.experts = attr->experts;
    a.begin = attr->begin;
    a.count = attr->count;
    a.rows = call->query->arg[2].dim[0];
    a.offset = static_cast<int32_t *>(call->ptr[1]);
    a.source = static_cast<int32_t *>(call->ptr[2]);
    a.dest = static_cast<int32_t *>(call->ptr[3]);
    a.at = static_cast<int32_t *>(call->workspace);
    a.chunks = chunks_of(a.slots);
    a.error = call->error;
    return make_order(call, a);
}

static size_t order_room(const loong_kernel_query_t *query)
{
    const loong_expert_order_attr_t *attr =
        static_cast<const loong_expert_order_attr_t *>(query->attr);
    return sizeof(int32_t) * (size_t)chunks_of(slots_of(query)) *
           (size_t)attr->count;
}

static loong_status_t run_counts(const loong_kernel_call_t *call)
{
    const loong_expert_counts_attr_t *attr =
        static_cast<const loong_expert_counts_attr_t *>(call->query->attr);
    counts_t a;
    memset(&a, 0, sizeof(a));
    a.span = attr->span;
    a.begin = attr->begin;
    a.experts = attr->experts;
    a.spans = attr->spans;
    return run_counts_of(call, a, 0);
}

static loong_status_t run_excess(const loong_kernel_call_t *call)
{
    const loong_expert_excess_attr_t *attr =
        static_cast<const loong_expert_excess_attr_t *>(call->query->attr);
    counts_t a;
    memset(&a, 0, sizeof(a));
    a.span = INT64_MAX;
    a.experts = attr->experts;
    a.spans = 1;
    return run_counts_of(call, a,
                         attr->experts / LOONG_MAX(attr->sets, 1));
}

static size_t counts_room(const loong_kernel_query_t *query)
{
    const loong_karg_t *y = &query->arg[1];
    return sizeof(int32_t) * (size_t)(loong_karg_rows(y) *
                                      loong_karg_cols(y));
}

/* In the workspace: keys, experts by priority, then what expert_order makes of
 * them. */
static loong_status_t run_capacity(const loong_kernel_call_t *call)
{
    const loong_expert_capacity_attr_t *attr =
        static_cast<const loong_expert_capacity_attr_t *>(call->query->attr);
    capacity_t a;
    order_t o;
    a.index = static_cast<const int32_t *>(call->ptr[0]);
    a.weight = mat_arg(call, 1);
    a.slots = o.slots = slots_of(call->query);
    a.k = call->query->arg[0].dim[1];
    a.capacity = attr->capacity;
    a.keys = static_cast<uint64_t *>(call->workspace);
    a.size = attr->by_position ? 0 : sort_size(a.slots);
    int32_t *room = reinterpret_cast<int32_t *>(a.keys + a.size);
    a.sorted = attr->by_position ? NULL : room;
    a.kept = static_cast<int32_t *>(call->ptr[2]);
    o.index = a.index;
    o.k = a.k;
    o.experts = o.count = attr->experts;
    o.begin = 0;
    o.rows = o.slots;
    o.offset = room + a.slots;
    o.source = o.offset + o.experts + 1;
    o.dest = o.source + o.slots;
    o.at = o.dest + o.slots;
    o.chunks = chunks_of(o.slots);
    o.error = call->error;
    a.offset = o.offset;
    a.dest = o.dest;
    if (!attr->by_position) {
        LOONG_TRY(sort_slots(call, a, &o));
    }
    LOONG_TRY(make_order(call, o));
    LOONG_LAUNCH((keep_slots), grid_of(call, (o.slots + BLOCK - 1) / BLOCK),
                 dim3(BLOCK), 0, stream_of(call), a);
    return launched(call);
}

static size_t capacity_room(const loong_kernel_query_t *query)
{
    const loong_expert_capacity_attr_t *attr =
        static_cast<const loong_expert_capacity_attr_t *>(query->attr);
    size_t slots = (size_t)slots_of(query);
    size_t experts = (size_t)attr->experts;
    return sizeof(uint64_t) * (size_t)sort_size((int64_t)slots) +
           sizeof(int32_t) * (experts + 1 + 3 * slots +
                              (size_t)chunks_of((int64_t)slots) * experts);
}

static bool support_order(const loong_kernel_query_t *query,
                          char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 0, 0xf, reason);
}

static bool support_counts(const loong_kernel_query_t *query,
                           char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 1u << 1, 1u << 0, reason);
}

static bool support_capacity(const loong_kernel_query_t *query,
                             char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 1u << 1, 1u << 0 | 1u << 2, reason);
}

CUDA_KERNEL(expert_order, support_order, order_room, run_order);
CUDA_KERNEL(expert_counts, support_counts, counts_room, run_counts);
CUDA_KERNEL(expert_excess, support_counts, counts_room, run_excess);
CUDA_KERNEL(expert_capacity, support_capacity, capacity_room, run_capacity);
