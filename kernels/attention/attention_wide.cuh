/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of wide heads in tiles on tensor cores: up to 576 channels of
 * queries and keys and 512 of values, as latent attention has in its absorbed
 * form, where a token's values are the first channels of its only key. Then a
 * tile of keys is read once for both. Sums of such a head do not fit into a
 * warp's registers: the eight warps of a block share the scores of a tile
 * first, each 16 by 16 of them, and then the channels; in between P and dS
 * stand in shared memory. */
#ifndef LOONG_ATTENTION_WIDE_CUH
#define LOONG_ATTENTION_WIDE_CUH

#include "attention_tiles.cuh"

namespace loong_cuda {

enum {
    WIDE = 576,        /* channels of queries and keys */
    WIDE_VALUES = 512, /* of values */
    WIDE_TILE = 32,    /* rows of a tile that is gone through */
    WIDE_WARPS = 8,
    WIDE_THREADS = WIDE_WARPS * WARP,
    /* Columns of a tile of P or dS, of which WIDE_TILE are used. */
    PROB_COLS = 64,
    /* What a warp sums: a quarter of the channels. */
    KEY_PART = WIDE / 4,
    VALUE_PART = WIDE_VALUES / 4
};

/* Columns of the tile that values are read from: the keys' own. */
template <bool LATENT> struct values_t {
    enum { COLS = LATENT ? WIDE : WIDE_VALUES };
};

/* c [16,16] += 16 rows of `left` times 16 rows of `right`, over K columns. */
template <int LEFT, int RIGHT, int K>
__device__ __forceinline__ void multiply_pair(float c[1][2][4], half_t *left,
                                              half_t *right)
{
#pragma unroll 4
    for (int k = 0; k < K / 16; k++) {
        unsigned a[4];
        unsigned b[4];
        load_left<LEFT>(a, left, 0, k * 2);
        load_right<RIGHT>(b, right, 0, k * 2);
        MMA(c[0][0], a, b);
        MMA(c[0][1], a, b + 2);
    }
}

/* c [MT * 16, N] += rows of a tile of P or dS (from row) times the WIDE_TILE
 * rows of another one, N columns from piece `piece` on. */
template <int COLS, int MT, int N>
__device__ __forceinline__ void multiply_probs(float c[MT][N / 8][4],
                                               half_t *probs, int row,
                                               half_t *tile, int piece)
{
#pragma unroll
    for (int k = 0; k < WIDE_TILE / 16; k++) {
        unsigned a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) {
            load_left<PROB_COLS>(a[m], probs, row + m * 16, k * 2);
        }
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            unsigned b[4];
            load_transposed<COLS>(b, tile, k * 16, piece + n * 2);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                MMA(c[m][2 * n], a[m], b);
                MMA(c[m][2 * n + 1], a[m], b + 2);
            }
        }
    }
}

/* ---- host ---------------------------------------------------------------- */

/* Values are channels of the only key. */
static inline bool is_latent(const attention_t &a)
{
    return a.v.p == a.k.p && a.v.ld == a.k.ld && a.group == a.heads &&
           a.d_v <= a.d;
}

static inline bool wide_support(const loong_kernel_query_t *query,
                                char reason[LOONG_REASON_SIZE])
{
    const loong_attention_attr_t *attr =
        static_cast<const loong_attention_attr_t *>(query->attr);
    int d_v = loongi_attention_v_dim(attr);
    if (LOONG_MAX(attr->head_dim, d_v) <= NARROW) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "heads of up to %d channels go in narrower tiles",
                 (int)NARROW);
        return false;
    }
    if (attr->head_dim > WIDE || d_v > WIDE_VALUES) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "heads of %d channels, values of %d, this kernel takes up to "
                 "%d and %d", attr->head_dim, d_v, (int)WIDE,
                 (int)WIDE_VALUES);
        return false;
    }
    return tensor_support(query, reason);
}

} // namespace loong_cuda

#endif
