/* SPDX-License-Identifier: Apache-2.0
 *
 * embedding and embedding_grad; the formulas stand in embedding_ref.c. Of the
 * gradient rows are sorted by id and place first. Then a thread adds up to
 * PIECE rows of an id, in their order, and where an id has more, another one
 * its pieces: of n rows of one id PIECE + n / PIECE sums are behind one
 * another, and what an id gets depends on its own rows alone. */
#include "embedding.h"
#include "map.cuh"
#include "sort.cuh"

using namespace loong_cuda;

namespace {

/* The row of an id; -1 for one of another part, or one that is none and is
 * told. */
__device__ __forceinline__ int64_t row_of_id(const loong_embedding_attr_t &a,
                                             int32_t id, int64_t row,
                                             loong_device_error_t *error)
{
    int64_t vocab = a.vocab > 0 ? a.vocab : a.rows;
    if (id < 0 || id >= vocab) {
        if (atomicCAS(&error->kind, 0, (int)LOONG_DEVICE_ERROR_ID) == 0) {
            error->value = id;
            error->place = row;
            error->end = vocab;
        }
        return -1;
    }
    return loongi_embedding_row(&a, id);
}

template <class T> struct embedding_fn {
    const int32_t *ids;
    mat_t table;
    loong_embedding_attr_t attr;
    loong_device_error_t *error;
    bool aligned() const
    {
        return table.packed;
    }
    template <bool WHOLE>
    __device__ pack_t at(int64_t row, int64_t col, int n,
                         const loong_frame_t *) const
    {
        int64_t from = row_of_id(attr, ids[row], row, error);
        pack_t zero = {{0}};
        return from < 0 ? zero : load_as<T, WHOLE>(table, from, col, n);
    }
};

/* ---- gradient ------------------------------------------------------------ */

#ifdef CUDASIM
enum { PIECE = 4 };
#else
enum { PIECE = 64 };
#endif

/* Tokens stand by id and place. Of each PIECE of them one at most is the first
 * of an id with several pieces, since these have as many rows between
 * them. */
struct embedding_grad_t {
    const int32_t *ids;
    mat_t dy, dtable;
    loong_embedding_attr_t attr;
    loong_device_error_t *error;
    uint64_t *keys; /* of each row: id, place; behind the last: all ones */
    int64_t count;  /* sort_size */
    int32_t *number; /* of a row among those of its id */
    int32_t *first;  /* [windows]: first row of several pieces there, or -1 */
    float *piece;    /* [windows, 2, cols]: sums of later and of first pieces */
};

__global__ void __launch_bounds__(BLOCK)
    make_keys(embedding_grad_t a)
{
    int64_t rows = a.dy.rows;
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t t = (int64_t)blockIdx.x * BLOCK + threadIdx.x; t < a.count;
         t += step) {
        uint64_t key = ~(uint64_t)0;
        if (t < rows) {
            row_of_id(a.attr, a.ids[t], t, a.error); /* tells of a wrong one */
            key = (uint64_t)(uint32_t)a.ids[t] << 32 | (uint64_t)t;
        }
        a.keys[t] = key;
    }
}

__device__ __forceinline__ uint64_t id_at(const embedding_grad_t &a, int64_t p)
{
    return a.keys[p] >> 32;
}

/* Whether the piece that begins with row p is followed by another one. */
__device__ __forceinline__ bool goes_on(const embedding_grad_t &a, int64_t p,
                                        int64_t rows)
{
    return p + PIECE < rows && id_at(a, p + PIECE) == id_at(a, p);
}

__device__ __forceinline__ float *piece_at(const embedding_grad_t &a,
                                           int64_t p, int64_t col)
{
    int64_t place = p / PIECE * 2 + (a.number[p] == 0);
    return a.piece + place * a.dy.cols + col;
}

__global__ void __launch_bounds__(BLOCK) number_rows(embedding_grad_t a)
{
    int64_t rows = a.dy.rows;
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t p = (int64_t)blockIdx.x * BLOCK + threadIdx.x; p < rows;
         p += step) {
        uint64_t id = id_at(a, p);
        int64_t low = 0; /* the first row of the id is in low .. high */
        int64_t high = p;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (id_at(a, middle) < id) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        a.number[p] = (int32_t)(p - low);
        if (p == low && goes_on(a, p, rows)) {
            a.first[p / PIECE] = (int32_t)p;
        }
    }
}

/* *sum: and the rows of the piece that begins with row p. Four reads are
 * under way at a time. */
__device__ __forceinline__ void add_rows(const embedding_grad_t &a, int64_t p,
                                         int64_t rows, int64_t col, pack_t *sum)
{
    enum { EACH_TIME = 4 };
    uint64_t id = id_at(a, p);
    int n = least(PACK, a.dy.cols - col);
    int64_t end = least(p + PIECE, rows);
    for (; p < end && id_at(a, p) == id; p += EACH_TIME) {
        pack_t dy[EACH_TIME];
        bool there[EACH_TIME];
#pragma unroll
        for (int i = 0; i < EACH_TIME; i++) {
            uint64_t key = p + i < end ? a.keys[p + i] : ~(uint64_t)0;
            there[i] = p + i < end && key >> 32 == id;
            if (there[i]) {
                dy[i] = load_at(a.dy, (int64_t)(key & 0xffffffffu), col, n);
            }
        }
#pragma unroll
        for (int i = 0; i < EACH_TIME; i++) {
            for (int c = 0; there[i] && c < PACK; c++) {
                sum->v[c] += dy[i].v[c];
            }
        }
    }
}

/* The first row of a piece adds it up. */
__global__ void __launch_bounds__(BLOCK)
    sum_pieces(embedding_grad_t a)
{
    int64_t packs = (a.dy.cols + PACK - 1) / PACK;
    int64_t rows = a.dy.rows;
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t u = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
         u < rows * packs; u += step) {
        int64_t p = u / packs;
        int64_t col = u % packs * PACK;
        int64_t row = row_of_id(a.attr, (int32_t)id_at(a, p),
                                (int64_t)(a.keys[p] & 0xffffffffu), a.error);
        int n = least(PACK, a.dy.cols - col);
        if (row < 0 || a.number[p] % PIECE != 0) {
            continue;
        }
        pack_t sum = {{0}};
        bool alone = a.number[p] == 0 && !goes_on(a, p, rows);
        if (alone) {
            sum = load_at(a.dtable, row, col, n);
        }
        add_rows(a, p, rows, col, &sum);
        if (alone) {
            store_at(a.dtable, row, col, sum, n);
        } else {
            store(piece_at(a, p, col), sum, n, false);
        }
    }
}

/* The pieces of ids that have several. */
__global__ void __launch_bounds__(BLOCK)
    add_pieces(embedding_grad_t a, int64_t windows)
{
    int64_t packs = (a.dy.cols + PACK - 1) / PACK;
    int64_t rows = a.dy.rows;
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t u = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
         u < windows * packs; u += step) {
        int64_t p = a.first[u / packs];
        int64_t col = u % packs * PACK;
        if (p < 0) {
            continue;
        }
        int64_t row = row_of_id(a.attr, (int32_t)id_at(a, p),
                                (int64_t)(a.keys[p] & 0xffffffffu), a.error);
        int n = least(PACK, a.dy.cols - col);
        if (row < 0) {
            continue;
        }
        uint64_t id = id_at(a, p);
        pack_t sum = load_at(a.dtable, row, col, n);
        for (; p < rows && id_at(a, p) == id; p += PIECE) {
            pack_t x = load(piece_at(a, p, col), n, false);
            for (int i = 0; i < PACK; i++) {
                sum.v[i] += x.v[i];
            }
        }
        store_at(a.dtable, row, col, sum, n);
    }
}

int64_t windows_of(int64_t rows)
{
    return (rows + PIECE - 1) / PIECE;
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_embedding_attr_t *attr =
        static_cast<const loong_embedding_attr_t *>(call->query->attr);
    return generate<embedding_fn>(call, mat_out(call, 0),
                                  static_cast<const int32_t *>(call->ptr[0]),
                                  mat_arg(call, 1), *attr, call->error);
}

static loong_status_t launch_grad(const loong_kernel_call_t *call,
                                  const embedding_grad_t &a)
{
    cudaStream_t stream = stream_of(call);
    int64_t windows = windows_of(a.dy.rows);
    cudaMemsetAsync(a.first, 0xff, sizeof(*a.first) * (size_t)windows, stream);
    LOONG_LAUNCH((make_keys), grid_of(call, (a.count + BLOCK - 1) / BLOCK),
                 dim3(BLOCK), 0, stream, a);
    LOONG_TRY(sort_keys(call, a.keys, a.count));
    LOONG_LAUNCH((number_rows), grid_of(call, (a.dy.rows + BLOCK - 1) / BLOCK),
                 dim3(BLOCK), 0, stream, a);
    LOONG_LAUNCH((sum_pieces), grid_for(call, a.dy), dim3(BLOCK), 0, stream, a);
    int64_t packs = (a.dy.cols + PACK - 1) / PACK;
    LOONG_LAUNCH((add_pieces),
                 grid_of(call, (windows * packs + BLOCK - 1) / BLOCK),
                 dim3(BLOCK), 0, stream, a, windows);
    return launched(call);
}

static loong_status_t run_grad(const loong_kernel_call_t *call)
{
    embedding_grad_t a;
    a.ids = static_cast<const int32_t *>(call->ptr[0]);
    a.dy = mat_arg(call, 1);
    a.dtable = mat_out(call, 0);
    a.attr = *static_cast<const loong_embedding_attr_t *>(call->query->attr);
    a.error = call->error;
    a.keys = static_cast<uint64_t *>(call->workspace);
    a.count = sort_size(a.dy.rows);
    a.number = reinterpret_cast<int32_t *>(a.keys + a.count);
    a.first = a.number + a.dy.rows;
    a.piece =
        reinterpret_cast<float *>(a.first + windows_of(a.dy.rows));
    if (!(call->accumulate & 1)) {
        cudaMemset2DAsync(a.dtable.p, (size_t)a.dtable.ld * sizeof(float), 0,
                          (size_t)a.dtable.cols * sizeof(float),
                          (size_t)a.dtable.rows, stream_of(call));
    }
    return launch_grad(call, a);
}

static size_t workspace(const loong_kernel_query_t *query)
{
    int64_t rows = loong_karg_rows(&query->arg[1]);
    int64_t windows = windows_of(rows);
    return sizeof(uint64_t) * (size_t)sort_size(rows) +
           sizeof(int32_t) * (size_t)(rows + windows) +
           sizeof(float) *
               (size_t)(windows * 2 * loong_karg_cols(&query->arg[1]));
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 0, 1u << 0, reason) &&
           cuda_support_same(query, 1u << 0, reason);
}

static bool support_grad(const loong_kernel_query_t *query,
                         char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 1u << 2, 1u << 0, reason);
}

CUDA_KERNEL(embedding, support, NULL, run);
CUDA_KERNEL(embedding_grad, support_grad, workspace, run_grad);
