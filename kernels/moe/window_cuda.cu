/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_rounds and expert_window, as in window_ref.c. Blocks count the rows of
 * each rank in a chunk of tokens, one block sums the counts up, blocks go
 * through their chunk again. A thread has a rank and goes through the chunk,
 * which lies in shared memory: nothing is added atomically. The host is shown
 * how many rounds there are. */
#include "loong/device.h"
#include "moe/moe.cuh"

using namespace loong_cuda;

namespace {

#ifdef CUDASIM
enum { CHUNK = 16 };
#else
enum { CHUNK = 1024 }; /* slots of a block at most */
#endif

struct window_t {
    const int32_t *index;
    int64_t slots, k;
    int64_t chunk; /* slots of a block: whole tokens */
    int64_t chunks;
    int64_t room; /* slots of a round */
    int64_t round;
    int experts, set, each, ranks;
    int32_t *at; /* [chunks, ranks]: rows, then those of earlier chunks */
    int32_t *rounds;
    float *more; /* NULL: nobody asks */
    int32_t *kept;
    loong_device_error_t *error;
};

/* Who holds each choice of the chunk; none: -1. */
__device__ void fetch_ranks(const window_t &a, int32_t *room)
{
    int64_t first = (int64_t)blockIdx.x * a.chunk;
    for (int i = (int)threadIdx.x; i < a.chunk; i += BLOCK) {
        int32_t e = first + i < a.slots ? a.index[first + i] : -1;
        room[i] = e >= 0 && e < a.experts ? e % a.set / a.each : -1;
    }
    __syncthreads();
}

__device__ void check_choices(const window_t &a)
{
    int64_t first = (int64_t)blockIdx.x * a.chunk;
    for (int i = (int)threadIdx.x; i < a.chunk && first + i < a.slots;
         i += BLOCK) {
        int32_t e = a.index[first + i];
        loong_device_error_t f = {LOONG_DEVICE_ERROR_EXPERT,
                                  0,
                                  e,
                                  (first + i) / a.k,
                                  0,
                                  a.experts,
                                  NULL};
        if (e < -1 || e >= a.experts) {
            tell_integer(a.error, f);
        }
    }
}

__global__ void __launch_bounds__(BLOCK) count_window(window_t a)
{
    LOONG_SHARED(int32_t, room, CHUNK);
    check_choices(a);
    fetch_ranks(a, room);
    for (int r = (int)threadIdx.x; r < a.ranks; r += BLOCK) {
        int32_t n = 0;
        for (int i = 0; i < a.chunk; i++) {
            n += room[i] == r;
        }
        a.at[(int64_t)blockIdx.x * a.ranks + r] = n;
    }
}

/* One block. */
__global__ void __launch_bounds__(BLOCK) sum_window(window_t a)
{
    LOONG_SHARED(int32_t, room, BLOCK);
    int32_t most = 1;
    for (int r = (int)threadIdx.x; r < a.ranks; r += BLOCK) {
        int32_t sum = 0;
        for (int64_t c = 0; c < a.chunks; c++) {
            int32_t n = a.at[c * a.ranks + r];
            a.at[c * a.ranks + r] = sum;
            sum += n;
        }
        most = most > sum ? most : sum;
    }
    room[threadIdx.x] = most;
    __syncthreads();
    if (threadIdx.x == 0 && a.rounds != NULL) {
        for (int i = 1; i < BLOCK; i++) {
            most = most > room[i] ? most : room[i];
        }
        int32_t rounds = (int32_t)((most + a.room - 1) / a.room);
        *a.rounds = rounds;
        if (a.more != NULL) {
            *a.more = (float)(rounds - 1);
        }
    }
}

__global__ void __launch_bounds__(BLOCK) keep_window(window_t a)
{
    LOONG_SHARED(int32_t, room, CHUNK);
    int64_t first = (int64_t)blockIdx.x * a.chunk;
    fetch_ranks(a, room);
    for (int i = (int)threadIdx.x; i < a.chunk && first + i < a.slots;
         i += BLOCK) {
        if (room[i] < 0) {
            a.kept[first + i] = -1;
        }
    }
    for (int r = (int)threadIdx.x; r < a.ranks; r += BLOCK) {
        int64_t rows = a.at[(int64_t)blockIdx.x * a.ranks + r];
        int64_t token = -1;
        bool now = false;
        for (int i = 0; i < a.chunk; i++) {
            if (room[i] != r) {
                continue;
            }
            if (i / a.k != token) { /* all its rows are of one round */
                token = i / a.k;
                now = rows / a.room == a.round;
            }
            a.kept[first + i] = now ? a.index[first + i] : -1;
            rows++;
        }
    }
}

window_t window_of(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_expert_window_attr_t *attr =
        static_cast<const loong_expert_window_attr_t *>(q->attr);
    window_t a;
    memset(&a, 0, sizeof(a));
    a.index = static_cast<const int32_t *>(call->ptr[0]);
    a.k = q->arg[0].dim[1];
    a.slots = q->arg[0].dim[0] * a.k;
    a.chunk = CHUNK / a.k * a.k;
    a.chunks = LOONG_MAX((a.slots + a.chunk - 1) / a.chunk, 1);
    a.room = attr->slots;
    a.round = call->round;
    a.experts = attr->experts;
    a.set = attr->experts / LOONG_MAX(attr->sets, 1);
    a.each = a.set / attr->ranks;
    a.ranks = attr->ranks;
    a.at = static_cast<int32_t *>(call->workspace);
    a.error = call->error;
    return a;
}

void count(const loong_kernel_call_t *call, const window_t &a)
{
    LOONG_LAUNCH((count_window), dim3((unsigned)a.chunks), dim3(BLOCK), 0,
                 stream_of(call), a);
    LOONG_LAUNCH((sum_window), dim3(1), dim3(BLOCK), 0, stream_of(call), a);
}

} // namespace

static size_t window_room(const loong_kernel_query_t *query)
{
    const loong_expert_window_attr_t *attr =
        static_cast<const loong_expert_window_attr_t *>(query->attr);
    int64_t k = query->arg[0].dim[1];
    int64_t tokens = LOONG_MAX(CHUNK / k, 1);
    int64_t chunks = (query->arg[0].dim[0] + tokens - 1) / tokens;
    return sizeof(int32_t) * (size_t)LOONG_MAX(chunks, 1) *
           (size_t)attr->ranks;
}

static loong_status_t run_rounds(const loong_kernel_call_t *call)
{
    window_t a = window_of(call);
    a.rounds = static_cast<int32_t *>(call->ptr[1]);
    a.more = static_cast<float *>(call->ptr[2]);
    count(call, a);
    LOONG_TRY(launched(call));
    return loong_device_mirror(call->device, call->stream, a.rounds,
                               sizeof(*a.rounds));
}

static loong_status_t run_window(const loong_kernel_call_t *call)
{
    window_t a = window_of(call);
    a.kept = static_cast<int32_t *>(call->ptr[1]);
    count(call, a);
    LOONG_LAUNCH((keep_window), dim3((unsigned)a.chunks), dim3(BLOCK), 0,
                 stream_of(call), a);
    return launched(call);
}

static bool support_window(const loong_kernel_query_t *query,
                           char reason[LOONG_REASON_SIZE])
{
    if (query->arg[0].dim[1] > CHUNK) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "%lld experts a token, this kernel takes %d",
                 (long long)query->arg[0].dim[1], (int)CHUNK);
        return false;
    }
    return cuda_support(query, 1u << 2, 0x3, reason);
}

CUDA_KERNEL_SHOWS(expert_rounds, support_window, window_room, run_rounds);
CUDA_KERNEL(expert_window, support_window, window_room, run_window);
