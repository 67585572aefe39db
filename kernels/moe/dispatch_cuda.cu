/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens to the ranks of their experts, as in window_ref.c and dispatch_comm.c.
 * Every rank knows what the tokens of all ranks chose, and finds on the device
 * which rows go and which come: a block takes 256 tokens of one rank on their
 * way to another, counts them, and, when one more block has summed the counts
 * up, puts each in its place.
 *
 * Sends and receives take their sizes from the host. The counts are copied
 * there as soon as they are summed up, in front of the rest; whoever exchanges
 * rows first waits for that copy, while the device goes on to gather these
 * rows. Afterwards, and in the backward, the host has them. */
#include "loong/device.h"
#include "moe/moe.cuh"

using namespace loong_cuda;

namespace {

/* Side 0: what goes; side 1: what comes. */
struct routes_t {
    const int32_t *all; /* [size, tokens, k] */
    int64_t tokens, k;
    int size, rank;
    int set, each, copies, experts; /* of a set, of it on a rank */
    int32_t none; /* choices of rows that no token comes to */
    int64_t rows, room;        /* of source, of arrived */
    int32_t *source, *dest, *counts, *arrived;
    int32_t *at;   /* [2, size, chunks]: rows before those of a chunk */
    int32_t *base; /* [2, size + 1]: rows before those with a rank, all */
    int64_t chunks;
    const char *op;
    loong_device_error_t *error;
};

/* What this block looks at: the tokens of one rank. */
struct part_t {
    const int32_t *chosen; /* [tokens, k] */
    int side, peer;
    int to; /* rank */
    int64_t token; /* of this thread */
    int64_t at;    /* index of the chunk's count */
};

__device__ part_t part_of(const routes_t &a)
{
    part_t p;
    p.side = (int)blockIdx.z;
    p.peer = (int)blockIdx.y;
    p.to = p.side == 0 ? p.peer : a.rank;
    int from = p.side == 0 ? a.rank : p.peer;
    p.chosen = a.all + from * a.tokens * a.k;
    p.token = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    p.at = ((int64_t)p.side * a.size + p.peer) * a.chunks + blockIdx.x;
    return p;
}

__device__ bool goes(const routes_t &a, const part_t &p)
{
    bool found = false;
    for (int64_t j = 0; j < a.k && p.token < a.tokens; j++) {
        int32_t e = p.chosen[p.token * a.k + j];
        found = found || (e >= 0 && e < a.experts &&
                          e % a.set / a.each == p.to / a.copies);
    }
    return found;
}

/* How many threads of lower number have one `here`; *all_p: of the block. */
__device__ int32_t place_of(bool here, int32_t *room, int32_t *all_p)
{
    int lane = (int)threadIdx.x % WARP;
    int warp = (int)threadIdx.x / WARP;
    unsigned vote = __ballot_sync(EACH, here);
    int32_t before = __popc(vote & ((1u << lane) - 1));
    if (lane == 0) {
        room[warp] = __popc(vote);
    }
    __syncthreads();
    *all_p = 0;
    for (int w = 0; w < WARPS; w++) {
        before += w < warp ? room[w] : 0;
        *all_p += room[w];
    }
    return before;
}

__device__ void check_choices(const routes_t &a, const part_t &p)
{
    for (int64_t j = 0; j < a.k && p.token < a.tokens; j++) {
        int32_t e = p.chosen[p.token * a.k + j];
        loong_device_error_t f = {
            LOONG_DEVICE_ERROR_EXPERT, 0, e, p.token, 0, a.experts, a.op};
        if (e < -1 || e >= a.experts) {
            tell_integer(a.error, f);
        }
    }
}

__global__ void __launch_bounds__(BLOCK) count_routes(routes_t a)
{
    LOONG_SHARED(int32_t, room, WARPS);
    int32_t all;
    part_t p = part_of(a);
    if (p.side == 0 && p.peer == 0) {
        check_choices(a, p);
    }
    place_of(goes(a, p), room, &all);
    if (threadIdx.x == 0) {
        a.at[p.at] = all;
    }
}

/* One block. */
__global__ void __launch_bounds__(BLOCK) sum_routes(routes_t a)
{
    for (int i = (int)threadIdx.x; i < 2 * a.size; i += BLOCK) {
        int32_t sum = 0;
        for (int64_t c = 0; c < a.chunks; c++) {
            int32_t n = a.at[i * a.chunks + c];
            a.at[i * a.chunks + c] = sum;
            sum += n;
        }
        a.counts[i] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 2) {
        const int32_t *counts = a.counts + (int)threadIdx.x * a.size;
        int32_t *base = a.base + (int)threadIdx.x * (a.size + 1);
        base[0] = 0;
        for (int r = 0; r < a.size; r++) {
            base[r + 1] = base[r] + counts[r];
        }
    }
}

__global__ void __launch_bounds__(BLOCK) place_routes(routes_t a)
{
    LOONG_SHARED(int32_t, room, WARPS);
    int32_t all;
    part_t p = part_of(a);
    const int32_t *base = a.base + p.side * (a.size + 1);
    bool here = goes(a, p);
    int64_t row = base[p.peer] + a.at[p.at] + place_of(here, room, &all);
    int64_t slot = p.token * a.size + p.peer;
    if (p.side == 0 && p.token < a.tokens) {
        a.dest[slot] = here ? (int32_t)row : -1;
    }
    if (p.side == 0 && here) {
        a.source[row] = (int32_t)slot;
    }
    for (int64_t j = 0; j < a.k && p.side == 1 && here && row < a.room;
         j++) {
        a.arrived[row * a.k + j] = p.chosen[p.token * a.k + j];
    }
    int32_t *rest = p.side == 0 ? a.source : a.arrived;
    int64_t width = p.side == 0 ? 1 : a.k;
    int64_t end = p.side == 0 ? a.rows : a.room * a.k;
    int64_t block = (int64_t)blockIdx.y * gridDim.x + blockIdx.x;
    int64_t step = (int64_t)gridDim.x * gridDim.y * BLOCK;
    for (int64_t i = base[a.size] * width + block * BLOCK + threadIdx.x;
         i < end; i += step) {
        rest[i] = p.side == 0 ? -1 : a.none;
    }
}

/* One thread: the host's sums against the device's. */
__global__ void __launch_bounds__(BLOCK)
    check_counts(const int32_t *counts, int size, int64_t go, int64_t come,
                 const char *op, loong_device_error_t *error)
{
    for (int side = 0; side < 2 && threadIdx.x == 0; side++) {
        int64_t wanted = side == 0 ? go : come;
        int64_t sum = 0;
        for (int r = 0; r < size; r++) {
            sum += counts[side * size + r];
        }
        loong_device_error_t f = {
            LOONG_DEVICE_ERROR_COUNTS, 1, sum, 0, 0, wanted, op};
        if (sum != wanted) {
            tell_integer(error, f);
        }
    }
}

int64_t chunks_of(const loong_kernel_query_t *query)
{
    return LOONG_MAX((query->arg[2].dim[0] + BLOCK - 1) / BLOCK, 1);
}

/* ---- the host's side ----------------------------------------------------- */

/* Elements of each rank's block: what goes, what comes. */
struct state_t {
    int64_t *go, *come;
};

const loong_collective_attr_t *at_of(const loong_kernel_query_t *query)
{
    return &static_cast<const loong_exchange_rows_attr_t *>(query->attr)->at;
}

loong_status_t prepare(loong_context_t *ctx, const loong_kernel_query_t *query,
                       void **state_p)
{
    void *memory = NULL;
    size_t size = (size_t)at_of(query)->size;
    LOONG_TRY(loongi_alloc(ctx, sizeof(state_t) + 2 * size * sizeof(int64_t),
                           "blocks of an all-to-all", &memory));
    state_t *s = static_cast<state_t *>(memory);
    s->go = reinterpret_cast<int64_t *>(s + 1);
    s->come = s->go + size;
    *state_p = s;
    return LOONG_OK;
}

void destroy(loong_context_t *ctx, void *state)
{
    loongi_free(ctx, state);
}

loong_status_t comm_of(const loong_kernel_call_t *call, loong_comm_t **comm_p)
{
    const loong_collective_attr_t *at = at_of(call->query);
    LOONG_CHECK(call->ctx, call->group != NULL, LOONG_ERR_INTERNAL,
                "%s: no communicator of group %s", call->query->op,
                loong_group_name(at->group));
    *comm_p = call->group[at->group];
    loong_comm_set_stream(*comm_p, call->stream);
    return LOONG_OK;
}

routes_t routes_of(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_expert_routes_attr_t *attr =
        static_cast<const loong_expert_routes_attr_t *>(q->attr);
    routes_t a;
    a.tokens = q->arg[2].dim[0];
    a.k = q->arg[0].dim[1];
    a.size = attr->size;
    a.rank = attr->rank;
    a.set = attr->experts / LOONG_MAX(attr->sets, 1);
    a.each = a.set / (attr->size / attr->copies);
    a.copies = attr->copies;
    a.experts = attr->experts;
    a.none = attr->sets > 1 ? -1 : LOONG_NO_TOKEN;
    a.rows = q->arg[1].dim[0];
    a.room = q->arg[4].dim[0];
    a.source = static_cast<int32_t *>(call->ptr[1]);
    a.dest = static_cast<int32_t *>(call->ptr[2]);
    a.counts = static_cast<int32_t *>(call->ptr[3]);
    a.arrived = static_cast<int32_t *>(call->ptr[4]);
    a.chunks = chunks_of(q);
    a.all = static_cast<const int32_t *>(call->ptr[0]);
    a.at = static_cast<int32_t *>(call->workspace);
    a.base = a.at + 2 * a.size * a.chunks;
    a.op = q->op;
    a.error = call->error;
    return a;
}

/* Elements of each block; *rows_p: rows of all, at most `most`. */
loong_status_t set_blocks(const loong_kernel_call_t *call,
                          const int32_t *count, int64_t most, int64_t *block,
                          int64_t *rows_p)
{
    int64_t cols = call->query->arg[0].dim[1];
    int64_t rows = 0;
    for (int r = 0; r < at_of(call->query)->size; r++) {
        LOONG_CHECK(call->ctx, count[r] >= 0 && rows + count[r] <= most,
                    LOONG_ERR_ARG,
                    "%s: %d rows with rank %d after %lld, room for %lld",
                    call->query->op, count[r], r, (long long)rows,
                    (long long)most);
        rows += count[r];
        block[r] = count[r] * cols;
    }
    *rows_p = rows;
    return LOONG_OK;
}

} // namespace

static size_t routes_room(const loong_kernel_query_t *query)
{
    size_t size = (size_t)query->arg[2].dim[1];
    return sizeof(int32_t) *
           (2 * size * (size_t)chunks_of(query) + 2 * (size + 1));
}

static loong_status_t run_routes(const loong_kernel_call_t *call)
{
    routes_t a = routes_of(call);
    dim3 parts((unsigned)a.chunks, (unsigned)a.size, 2);
    LOONG_LAUNCH((count_routes), parts, dim3(BLOCK), 0, stream_of(call), a);
    LOONG_LAUNCH((sum_routes), dim3(1), dim3(BLOCK), 0, stream_of(call), a);
    LOONG_TRY(loong_device_mirror(call->device, call->stream, a.counts,
                                  2 * (size_t)a.size * sizeof(int32_t)));
    LOONG_LAUNCH((place_routes), parts, dim3(BLOCK), 0, stream_of(call), a);
    return launched(call);
}

static void launch_check(const loong_kernel_call_t *call,
                         const int64_t rows[2])
{
    const loong_kernel_query_t *q = call->query;
    LOONG_LAUNCH((check_counts), dim3(1), dim3(WARP), 0, stream_of(call),
                 static_cast<const int32_t *>(call->ptr[1]), at_of(q)->size,
                 rows[0], rows[1], q->op, call->error);
}

static loong_status_t run_exchange(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_exchange_rows_attr_t *attr =
        static_cast<const loong_exchange_rows_attr_t *>(q->attr);
    const loong_karg_t *y = &q->arg[2];
    state_t *s = static_cast<state_t *>(call->state);
    int size = attr->at.size;
    int64_t rows[2] = {0, 0}; /* that go to the experts, that come */
    const void *copy = NULL;
    loong_comm_t *comm = NULL;
    if (call->load) { /* the host has no counts yet */
        launch_check(call, rows);
        return launched(call);
    }
    LOONG_TRY(comm_of(call, &comm));
    LOONG_TRY(loong_device_mirrored(call->device, call->ptr[1],
                                    2 * (size_t)size * sizeof(int32_t),
                                    "rows of experts", &copy));
    const int32_t *count = static_cast<const int32_t *>(copy);
    LOONG_TRY(set_blocks(call, count + attr->back * size, q->arg[0].dim[0],
                         s->go, &rows[attr->back]));
    LOONG_TRY(set_blocks(call, count + !attr->back * size, y->dim[0], s->come,
                         &rows[!attr->back]));
    const loong_all_to_all_t blocks = {call->ptr[0], s->go, call->ptr[2],
                                       s->come};
    LOONG_TRY(loong_comm_all_to_all(comm, &blocks, y->dtype, attr->at.label));
    launch_check(call, rows);
    return launched(call);
}

static bool support_routes(const loong_kernel_query_t *query,
                           char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 0, 0x1f, reason);
}

static bool support_exchange(const loong_kernel_query_t *query,
                             char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 0, 1u << 1, reason);
}

CUDA_KERNEL_SHOWS(expert_routes, support_routes, routes_room, run_routes);
CUDA_KERNEL_COMM(exchange_rows, support_exchange, NULL, prepare, destroy,
                 run_exchange);
