/* SPDX-License-Identifier: Apache-2.0
 *
 * Products whose rows belong to experts, by offsets that only the device knows:
 * what the kernels of bf16 and of fp32 share. The host knows no offset: the
 * grid has as many tiles of rows as there can be, each block finds its own tile
 * in the offsets (one read of each and a sum over the block; a table would take
 * a kernel before each product and two reads, one behind the other), and blocks
 * behind the last tile end at once. */
#ifndef LOONG_GROUPED_CUH
#define LOONG_GROUPED_CUH

#include "moe/moe.cuh"

namespace loong_cuda {

/* y = x w', y = x w, dw = dy' x */
enum grouped_kind_t { GROUPED_PLAIN, GROUPED_TRANSPOSED, GROUPED_DW };

/* A tile of rows; `expert` -1: no tile. */
struct row_tile_t {
    int32_t expert;
    int32_t first;
};

struct grouped_t {
    mat_t a, b, c; /* operands 0, 1 and the output */
    const int32_t *offset;
    int experts;
    int height; /* rows of a tile */
    int64_t rows; /* of x */
    int64_t count; /* of tiles, at most */
    int add; /* to dw */
    loong_device_error_t *error;
};

static inline int64_t row_tiles(const loong_kernel_query_t *query, int height)
{
    int64_t rows = query->arg[0].dim[0];
    return (rows + height - 1) / height + query->arg[2].dim[0];
}

static inline grouped_t grouped_of(const loong_kernel_call_t *call, int height)
{
    const loong_kernel_query_t *q = call->query;
    grouped_t g;
    g.a = mat_arg(call, 0);
    g.b = mat_arg(call, 1);
    g.c = mat_out(call, 0);
    g.offset = static_cast<const int32_t *>(call->ptr[2]);
    g.experts = (int)q->arg[2].dim[0] - 1;
    g.height = height;
    g.rows = q->arg[0].dim[0];
    g.count = row_tiles(q, height);
    g.add = (call->accumulate & 1u) != 0;
    g.error = call->error;
    return g;
}

/* Offsets begin with 0, do not fall, and end within the rows. The first wrong
 * one is reported; then there is no tile, and no expert has rows. */
static __device__ bool offsets_fit(const grouped_t &g, int *wrong)
{
    if (threadIdx.x == 0) {
        *wrong = g.experts + 1;
    }
    __syncthreads();
    for (int e = (int)threadIdx.x; e <= g.experts; e += (int)blockDim.x) {
        int64_t before = e > 0 ? g.offset[e - 1] : 0;
        if (g.offset[e] < before || g.offset[e] > g.rows ||
            (e == 0 && g.offset[0] != 0)) {
            atomicMin(wrong, e);
        }
    }
    __syncthreads();
    int e = *wrong;
    if (threadIdx.x == 0 && e <= g.experts) {
        loong_device_error_t f = {
            LOONG_DEVICE_ERROR_OFFSET,   2,      g.offset[e], e,
            e > 0 ? g.offset[e - 1] : 0, g.rows, NULL};
        tell_integer(g.error, f);
    }
    return e > g.experts;
}

/* Tiles of the rows of expert e. */
static __device__ __forceinline__ int64_t tiles_of(const grouped_t &g, int e)
{
    return (g.offset[e + 1] - g.offset[e] + g.height - 1) / g.height;
}

/* Tile number `number`, by all threads of a block of TEAM warps. */
template <int TEAM>
static __device__ row_tile_t find_rows(const grouped_t &g, int number)
{
    enum { THREADS = TEAM * WARP };
    LOONG_SHARED(int, wrong, 1);
    LOONG_SHARED(int, sums, TEAM);
    LOONG_SHARED(row_tile_t, found, 1);
    row_tile_t none = {-1, 0};
    if (!offsets_fit(g, wrong)) { /* has barriers */
        return none;
    }
    if (threadIdx.x == 0) {
        *found = none;
    }
    int at = 0; /* tiles of earlier experts */
    for (int first = 0; first < g.experts && at <= number; first += THREADS) {
        int e = first + (int)threadIdx.x;
        int n = e < g.experts ? (int)tiles_of(g, e) : 0;
        int all = 0;
        int begin = at + sum_before<TEAM>(n, sums, &all); /* has barriers */
        if (number >= begin && number < begin + n) {
            found->expert = e;
            found->first = g.offset[e] + (number - begin) * g.height;
        }
        at += all;
    }
    __syncthreads();
    return *found;
}

/* Tiles of rows that are taken side by side. Of Mixtral's experts (4096 by
 * 28672) 264 blocks at a time read 34 MB so, row by row 236. */
#ifdef CUDASIM
constexpr unsigned BAND = 2;
#else
constexpr unsigned BAND = 16;
#endif

/* Tile of rows, *column of tiles: band by band, columns in it, rows in these.
 * The second level cache holds what a band's blocks read. */
static __device__ __forceinline__ unsigned find_tile(unsigned *column)
{
    unsigned at = blockIdx.y * gridDim.x + blockIdx.x;
    unsigned first = at / (BAND * gridDim.x) * BAND;
    unsigned left = gridDim.y - first;
    unsigned height = left < BAND ? left : BAND;
    *column = at % (BAND * gridDim.x) / height;
    return first + at % (BAND * gridDim.x) % height;
}

/* Rows of expert e; none where offsets are wrong. */
static __device__ __forceinline__ int64_t rows_of_expert(const grouped_t &g,
                                                         int64_t e)
{
    LOONG_SHARED(int, wrong, 1);
    return offsets_fit(g, wrong) ? g.offset[e + 1] - g.offset[e] : 0;
}

/* What a block makes of the result. */
struct work_t {
    int64_t expert;
    int64_t row, rows; /* of the result: the first, one behind the last */
    int64_t col;
    int64_t depth;
    int64_t a_row, b_row; /* where the expert's rows of operands begin */
};

/* Of a block whose tile has g.height rows and `width` columns; false: nothing.
 * All threads of its TEAM warps come. */
template <int KIND, int TEAM>
static __device__ __forceinline__ bool find_work(const grouped_t &g, int width,
                                                 work_t *w)
{
    if (KIND == GROUPED_DW) {
        w->expert = blockIdx.z;
        w->row = (int64_t)blockIdx.y * g.height;
        w->rows = g.a.cols;
        w->col = (int64_t)blockIdx.x * width;
        w->a_row = w->b_row = g.offset[w->expert];
        w->depth = rows_of_expert(g, w->expert);
        return true;
    }
    unsigned column = 0;
    row_tile_t tile = find_rows<TEAM>(g, (int)find_tile(&column));
    w->expert = tile.expert;
    if (tile.expert < 0) {
        return false;
    }
    w->row = tile.first;
    w->rows = g.offset[tile.expert + 1];
    w->col = (int64_t)column * width;
    w->depth = g.a.cols;
    w->a_row = 0;
    w->b_row = w->expert * (g.b.rows / g.experts);
    return true;
}

static inline unsigned tiles_in(int64_t n, int64_t side)
{
    return (unsigned)((n + side - 1) / side);
}

static inline bool is_transposed(const loong_kernel_query_t *query)
{
    return static_cast<const loong_grouped_linear_attr_t *>(query->attr)
        ->transposed;
}

/* dtype: of x, w, dy and y; height: rows of a tile. */
static inline bool grouped_support(const loong_kernel_query_t *query,
                                   loong_dtype_t dtype, int height,
                                   char reason[LOONG_REASON_SIZE])
{
    enum { MOST = 65535 }; /* of a grid, but in its first direction */
    bool dw = strcmp(query->op, "grouped_linear_dw") == 0;
    for (int i = 0; i < 4; i++) {
        loong_dtype_t want = i == 3 && dw ? LOONG_F32 : dtype;
        if (i != 2 && query->arg[i].dtype != want) {
            snprintf(reason, LOONG_REASON_SIZE,
                     "operand %d is %s, this kernel takes %s", i,
                     loong_dtype_name(query->arg[i].dtype),
                     loong_dtype_name(want));
            return false;
        }
    }
    if (row_tiles(query, height) > MOST) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "%lld rows of %lld experts, this kernel takes %d tiles of %d",
                 (long long)query->arg[0].dim[0],
                 (long long)query->arg[2].dim[0] - 1, (int)MOST, height);
        return false;
    }
    return true;
}

} // namespace loong_cuda

#endif
