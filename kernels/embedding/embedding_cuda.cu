/* SPDX-License-Identifier: Apache-2.0
 *
 * embedding and embedding_grad; the formulas stand in embedding_ref.c. The
 * gradient of a row of the table is one thread's sum over its tokens, in their
 * order: tokens are sorted by id and place first. */
#include "embedding.h"
#include "map.cuh"
#include "sort.cuh"

using namespace loong_cuda;

namespace {

/* The row of an id; -1 for one of another part, or one that is none and is
 * told. */
__device__ __forceinline__ int64_t row_of_id(const loong_embedding_attr_t &a,
                                             int32_t id, int64_t token,
                                             loong_flaw_t *flaw)
{
    int64_t vocab = a.vocab > 0 ? a.vocab : a.rows;
    if (id < 0 || id >= vocab) {
        if (atomicCAS(&flaw->kind, 0, (int)LOONG_FLAW_ID) == 0) {
            flaw->value = id;
            flaw->place = token;
            flaw->end = vocab;
        }
        return -1;
    }
    return loongi_embedding_row(&a, id);
}

struct embedding_fn {
    const int32_t *ids;
    mat_t table;
    loong_embedding_attr_t attr;
    loong_flaw_t *flaw;
    __device__ pack_t operator()(int64_t row, int64_t col, int n,
                                 const loong_frame_t *) const
    {
        int64_t at = row_of_id(attr, ids[row], row, flaw);
        pack_t zero = {{0}};
        return at < 0 ? zero : load_at(table, at, col, n);
    }
};

/* ---- gradient ------------------------------------------------------------ */

struct embedding_grad_t {
    const int32_t *ids;
    mat_t dy, dtable;
    loong_embedding_attr_t attr;
    loong_flaw_t *flaw;
    uint64_t *keys; /* of each token: id, place; behind the last: all ones */
    int64_t count;  /* sort_size */
};

__global__ void __launch_bounds__(BLOCK)
    make_keys(embedding_grad_t a, const loong_frame_t *frame)
{
    int64_t tokens = rows_of(a.dy, frame);
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t t = (int64_t)blockIdx.x * BLOCK + threadIdx.x; t < a.count;
         t += step) {
        uint64_t key = ~(uint64_t)0;
        if (t < tokens) {
            row_of_id(a.attr, a.ids[t], t, a.flaw); /* tells of a wrong one */
            key = (uint64_t)(uint32_t)a.ids[t] << 32 | (uint64_t)t;
        }
        a.keys[t] = key;
    }
}

/* The first token of an id adds all of them up. */
__global__ void __launch_bounds__(BLOCK)
    sum_tokens(embedding_grad_t a, const loong_frame_t *frame)
{
    int64_t packs = (a.dy.cols + PACK - 1) / PACK;
    int64_t tokens = rows_of(a.dy, frame);
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t u = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
         u < tokens * packs; u += step) {
        int64_t p = u / packs;
        int64_t col = u % packs * PACK;
        uint64_t id = a.keys[p] >> 32;
        int64_t row = row_of_id(a.attr, (int32_t)id,
                                (int64_t)(a.keys[p] & 0xffffffffu), a.flaw);
        int n = least(PACK, a.dy.cols - col);
        if (row < 0 || (p > 0 && a.keys[p - 1] >> 32 == id)) {
            continue;
        }
        pack_t sum = load_at(a.dtable, row, col, n);
        for (; p < tokens && a.keys[p] >> 32 == id; p++) {
            pack_t dy =
                load_at(a.dy, (int64_t)(a.keys[p] & 0xffffffffu), col, n);
            for (int i = 0; i < PACK; i++) {
                sum.v[i] += dy.v[i];
            }
        }
        store_at(a.dtable, row, col, sum, n);
    }
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_embedding_attr_t *attr =
        static_cast<const loong_embedding_attr_t *>(call->query->attr);
    embedding_fn fn = {static_cast<const int32_t *>(call->ptr[0]),
                       mat_arg(call, 1), *attr, call->flaw};
    return generate(call, fn, mat_out(call, 0));
}

static loong_status_t run_grad(const loong_kernel_call_t *call)
{
    embedding_grad_t a;
    a.ids = static_cast<const int32_t *>(call->ptr[0]);
    a.dy = mat_arg(call, 1);
    a.dtable = mat_out(call, 0);
    a.attr = *static_cast<const loong_embedding_attr_t *>(call->query->attr);
    a.flaw = call->flaw;
    a.keys = static_cast<uint64_t *>(call->workspace);
    a.count = sort_size(a.dy.rows);
    cudaStream_t stream = stream_of(call);
    if (!(call->accumulate & 1)) {
        cudaMemset2DAsync(a.dtable.p, (size_t)a.dtable.ld * sizeof(float), 0,
                          (size_t)a.dtable.cols * sizeof(float),
                          (size_t)a.dtable.rows, stream);
    }
    LOONG_LAUNCH((make_keys), grid_of(call, (a.count + BLOCK - 1) / BLOCK),
                 dim3(BLOCK), 0, stream, a, call->device_frame);
    LOONG_TRY(sort_keys(call, a.keys, a.count));
    LOONG_LAUNCH((sum_tokens), grid_for(call, a.dy), dim3(BLOCK), 0, stream, a,
                 call->device_frame);
    return launched(call);
}

static size_t workspace(const loong_kernel_query_t *query)
{
    return sizeof(uint64_t) *
           (size_t)sort_size(loong_karg_rows(&query->arg[1], NULL));
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 0, 1u << 0, reason);
}

static bool support_grad(const loong_kernel_query_t *query,
                         char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 1u << 2, 1u << 0, reason);
}

CUDA_KERNEL(embedding, support, NULL, run);
CUDA_KERNEL(embedding_grad, support_grad, workspace, run_grad);
