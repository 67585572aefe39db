/* SPDX-License-Identifier: Apache-2.0
 *
 * embedding and embedding_grad; the formulas stand in embedding_ref.c. The
 * gradient of a row of the table is one thread's sum over its tokens, in their
 * order: a first kernel links each token to the next one of the same id. */
#include "embedding.h"
#include "map.cuh"

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
    int32_t *next;  /* [tokens]: the next of the same id, or -1 */
    int32_t *later; /* [tokens]: 1 when an earlier one has the id */
};

/* A warp looks through the tokens behind one, 32 at a time. */
__global__ void __launch_bounds__(BLOCK)
    link_tokens(embedding_grad_t a, const loong_frame_t *frame)
{
    int64_t tokens = rows_of(a.dy, frame);
    int lane = (int)threadIdx.x % WARP;
    for (int64_t t = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
         t < tokens; t += (int64_t)gridDim.x * WARPS) {
        int32_t id = a.ids[t];
        int64_t found = -1;
        for (int64_t from = t + 1; from < tokens && found < 0;
             from += WARP) {
            bool same = from + lane < tokens && a.ids[from + lane] == id;
            unsigned votes = __ballot_sync(EACH, same);
            found = votes != 0 ? from + __ffs((int)votes) - 1 : -1;
        }
        if (lane == 0) {
            a.next[t] = (int32_t)found;
            if (found >= 0) {
                a.later[found] = 1;
            }
            row_of_id(a.attr, id, t, a.flaw); /* tells of a wrong one */
        }
    }
}

/* The first token of an id adds all of them up. */
__global__ void __launch_bounds__(BLOCK)
    sum_tokens(embedding_grad_t a, const loong_frame_t *frame)
{
    int64_t packs = (a.dy.cols + PACK - 1) / PACK;
    int64_t units = rows_of(a.dy, frame) * packs;
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t u = (int64_t)blockIdx.x * BLOCK + threadIdx.x; u < units;
         u += step) {
        int64_t t = u / packs;
        int64_t col = u % packs * PACK;
        int64_t row = row_of_id(a.attr, a.ids[t], t, a.flaw);
        int n = least(PACK, a.dy.cols - col);
        if (row < 0 || a.later[t] != 0) {
            continue;
        }
        pack_t sum = load_at(a.dtable, row, col, n);
        for (; t >= 0; t = a.next[t]) {
            pack_t dy = load_at(a.dy, t, col, n);
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
    a.next = static_cast<int32_t *>(call->workspace);
    a.later = a.next + a.dy.rows;
    cudaStream_t stream = stream_of(call);
    if (!(call->accumulate & 1)) {
        cudaMemset2DAsync(a.dtable.p, (size_t)a.dtable.ld * sizeof(float), 0,
                          (size_t)a.dtable.cols * sizeof(float),
                          (size_t)a.dtable.rows, stream);
    }
    cudaMemsetAsync(a.later, 0, sizeof(int32_t) * (size_t)a.dy.rows, stream);
    LOONG_LAUNCH((link_tokens), grid_of((a.dy.rows + WARPS - 1) / WARPS),
                 dim3(BLOCK), 0, stream, a, call->device_frame);
    LOONG_LAUNCH((sum_tokens), grid_for(a.dy), dim3(BLOCK), 0, stream, a,
                 call->device_frame);
    return launched(call);
}

static size_t workspace(const loong_kernel_query_t *query)
{
    return 2 * sizeof(int32_t) *
           (size_t)loong_karg_rows(&query->arg[1], NULL);
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
