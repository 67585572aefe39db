/* SPDX-License-Identifier: Apache-2.0
 *
 * adamw in one pass over memory; the formula stands in loong/ops.h. Number of
 * updates, learning rate and scale come from the frame on the device. Where
 * random bits depend on parameters, a launch takes as many as its arguments
 * hold. */
#include "map.cuh"
#include "stochastic.h"

using namespace loong_cuda;

namespace {

/* The factors of one step, rounded once. */
struct factors_t {
    float grad_scale, beta1, beta2;
    float rest1, rest2;     /* 1 - beta */
    float unbias1, unbias2; /* 1 / (1 - beta^t) */
    float eps, lr, weight_decay;
};

__device__ factors_t make_factors(const loong_adamw_attr_t &a,
                                  const loong_frame_t *frame)
{
    double t = (double)frame->updates + 1.0;
    factors_t f;
    f.grad_scale = (float)frame->grad_scale;
    f.beta1 = (float)a.beta1;
    f.beta2 = (float)a.beta2;
    f.rest1 = (float)(1.0 - a.beta1);
    f.rest2 = (float)(1.0 - a.beta2);
    f.unbias1 = (float)(1.0 / (1.0 - pow(a.beta1, t)));
    f.unbias2 = (float)(1.0 / (1.0 - pow(a.beta2, t)));
    f.eps = (float)a.eps;
    f.lr = (float)frame->lr[a.group];
    f.weight_decay = (float)a.weight_decay;
    return f;
}

__device__ __forceinline__ float updated(const factors_t &f, float grad,
                                         float p, float *m_p, float *v_p)
{
    float g = grad * f.grad_scale;
    float m = f.beta1 * *m_p + f.rest1 * g;
    float v = f.beta2 * *v_p + f.rest2 * g * g;
    *m_p = m;
    *v_p = v;
    float change = m * f.unbias1 / (sqrtf(v * f.unbias2) + f.eps);
    return p - f.lr * (change + f.weight_decay * p);
}

struct adamw_t {
    mat_t grad, param, low, exp_avg, exp_avg_sq;
    loong_adamw_attr_t attr;
    int64_t begin, end; /* elements of this launch; begin: a whole pack's */
};

/* The parameters of a launch. */
struct pieces_t {
    enum { MOST = 64 }; /* arguments are 4 KiB at most */
    int count;
    loong_adamw_piece_t of[MOST];
};

struct no_pieces_t {};

/* Bits of both halves of n parameters, and back; see loong/ops.h. */
__device__ __forceinline__ pack_t join(const half_t *high, const half_t *low,
                                       int n)
{
    pack_t p;
    for (int i = 0; i < PACK; i++) {
        unsigned l = i < n ? low[i] : 0;
        unsigned h = i < n ? high[i] : 0;
        p.v[i] = __uint_as_float((h - (l >> 15)) << 16 | l);
    }
    return p;
}

__device__ __forceinline__ void split(const pack_t &p, half_t *high,
                                      half_t *low)
{
    for (int i = 0; i < PACK; i++) {
        unsigned bits = __float_as_uint(p.v[i]);
        low[i] = (half_t)bits;
        high[i] = (half_t)((bits >> 16) + (bits >> 15 & 1u));
    }
}

/* n 16-bit words as they are, all at once where they are a whole pack. */
__device__ __forceinline__ void words_in(const half_t *from, half_t *to,
                                         int n, bool packed)
{
    if (packed && n == PACK) {
        uint4 w = *reinterpret_cast<const uint4 *>(from);
        unsigned word[4] = {w.x, w.y, w.z, w.w};
        for (int i = 0; i < PACK; i++) {
            to[i] = (half_t)(word[i / 2] >> i % 2 * 16);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < PACK && i < n; i++) {
        to[i] = from[i];
    }
}

__device__ __forceinline__ void words_out(const half_t *from, half_t *to,
                                          int n, bool packed)
{
    if (packed && n == PACK) {
        uint4 w = {from[0] | (unsigned)from[1] << 16,
                   from[2] | (unsigned)from[3] << 16,
                   from[4] | (unsigned)from[5] << 16,
                   from[6] | (unsigned)from[7] << 16};
        *reinterpret_cast<uint4 *>(to) = w;
        return;
    }
#pragma unroll
    for (int i = 0; i < PACK && i < n; i++) {
        to[i] = from[i];
    }
}

/* ---- moments ------------------------------------------------------------- */

struct words_t {
    unsigned v[PACK];
};

struct no_words_t {};

/* Random words of elements i .. i + PACK - 1, *piece_p: a piece that is not
 * behind them. Two blocks where they begin one and follow one another in the
 * whole parameter. */
__device__ __forceinline__ words_t draw(const pieces_t &pieces, int *piece_p,
                                        const loong_frame_t *frame, int64_t i)
{
    int k = loongi_moments_piece(pieces.of, pieces.count, *piece_p, i);
    const loong_adamw_piece_t &piece = pieces.of[k];
    int64_t e = loongi_moments_element(&piece, i);
    bool ends = k + 1 < pieces.count && pieces.of[k + 1].at < i + PACK;
    words_t w;
    uint32_t one[4];
    *piece_p = k;
    if (e % 4 == 0 && !ends && loongi_moments_together(&piece, i) >= PACK) {
        uint64_t key = loongi_moments_key(&piece, frame->seed);
#pragma unroll
        for (int b = 0; b < PACK / 4; b++) {
            loongi_moments_counter(frame->step, e / 4 + b, one);
            loongi_philox(one, key);
            for (int j = 0; j < 4; j++) {
                w.v[4 * b + j] = one[j];
            }
        }
        return w;
    }
#pragma unroll
    for (int j = 0; j < PACK; j++) {
        k = loongi_moments_piece(pieces.of, pieces.count, k, i + j);
        e = loongi_moments_element(&pieces.of[k], i + j);
        loongi_moments_counter(frame->step, e / 4, one);
        loongi_philox(one, loongi_moments_key(&pieces.of[k], frame->seed));
        unsigned first = e % 2 == 0 ? one[0] : one[1];
        unsigned second = e % 2 == 0 ? one[2] : one[3];
        w.v[j] = e % 4 < 2 ? first : second;
    }
    return w;
}

__device__ __forceinline__ no_words_t draw(const no_pieces_t &, int *,
                                           const loong_frame_t *, int64_t)
{
    return no_words_t();
}

/* A moment: by the random bits from `shift` on, or to nearest. */
__device__ __forceinline__ void store_moment(const mat_t &m, int64_t c,
                                             const pack_t &x, int n,
                                             const words_t &w, int shift)
{
    half_t h[PACK];
    if (!m.half) {
        store_at(m, 0, c, x, n);
        return;
    }
    for (int i = 0; i < PACK; i++) {
        h[i] = loongi_round_by_chance(__float_as_uint(x.v[i]),
                                      w.v[i] >> shift);
    }
    words_out(h, row_of<half_t>(m, 0) + c, n, m.packed && c % PACK == 0);
}

__device__ __forceinline__ void store_moment(const mat_t &m, int64_t c,
                                             const pack_t &x, int n,
                                             const no_words_t &, int)
{
    store_at(m, 0, c, x, n);
}

/* ---- the kernel ---------------------------------------------------------- */

template <class Pieces>
__global__ void __launch_bounds__(BLOCK)
    adamw_kernel(adamw_t a, Pieces pieces, const loong_frame_t *frame)
{
    LOONG_SHARED(factors_t, shared, 1);
    if (threadIdx.x == 0) { /* powers in double: once a block */
        *shared = make_factors(a.attr, frame);
    }
    __syncthreads();
    const factors_t f = *shared;
    int64_t cols = cols_of(a.grad, frame);
    int64_t end = cols < a.end ? cols : a.end;
    int k = 0;
    int64_t step = (int64_t)gridDim.x * BLOCK * PACK;
    half_t *high = static_cast<half_t *>(a.param.p);
    half_t *low = static_cast<half_t *>(a.low.p);
    bool packed = a.param.packed && a.low.packed;
    for (int64_t c =
             a.begin + ((int64_t)blockIdx.x * BLOCK + threadIdx.x) * PACK;
         c < end; c += step) {
        int n = least(PACK, end - c);
        half_t h[PACK];
        half_t l[PACK];
        pack_t g = load_at(a.grad, 0, c, n);
        pack_t m = load_at(a.exp_avg, 0, c, n);
        pack_t v = load_at(a.exp_avg_sq, 0, c, n);
        pack_t p;
        if (a.param.half) {
            words_in(high + c, h, n, packed);
            words_in(low + c, l, n, packed);
            p = join(h, l, n);
        } else {
            p = load_at(a.param, 0, c, n);
        }
        for (int i = 0; i < PACK; i++) {
            p.v[i] = updated(f, g.v[i], p.v[i], &m.v[i], &v.v[i]);
        }
        auto w = draw(pieces, &k, frame, c);
        store_moment(a.exp_avg, c, m, n, w, 0);
        store_moment(a.exp_avg_sq, c, v, n, w, 16);
        if (a.param.half) {
            split(p, h, l);
            words_out(h, high + c, n, packed);
            words_out(l, low + c, n, packed);
        } else {
            store_at(a.param, 0, c, p, n);
        }
    }
}

/* From a.begin on, as far as the pieces go that fit, whole packs but at the
 * end; a.end: where. *first: the piece of a.begin. */
pieces_t take_pieces(adamw_t *a, int *first, int64_t n)
{
    const loong_adamw_attr_t &attr = a->attr;
    pieces_t p;
    *first = loongi_moments_piece(attr.pieces, attr.num_pieces, *first,
                                  a->begin);
    int rest = attr.num_pieces - *first;
    p.count = LOONG_MIN(rest, (int)pieces_t::MOST);
    memcpy(p.of, attr.pieces + *first, sizeof(*p.of) * (size_t)p.count);
    a->end = rest > p.count ? attr.pieces[*first + p.count].at / PACK * PACK
                            : n;
    return p;
}

template <class Pieces>
loong_status_t launch(const loong_kernel_call_t *call, const adamw_t &a,
                      const Pieces &pieces)
{
    int64_t packs = (a.end - a.begin + PACK - 1) / PACK;
    LOONG_LAUNCH((adamw_kernel<Pieces>), grid_of((packs + BLOCK - 1) / BLOCK),
                 dim3(BLOCK), 0, stream_of(call), a, pieces,
                 call->device_frame);
    return launched(call);
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    adamw_t a = {mat_arg(call, 0), mat_out(call, 0), mat_out(call, 1),
                 mat_out(call, 2), mat_out(call, 3),
                 *static_cast<const loong_adamw_attr_t *>(call->query->attr),
                 0, 0};
    int64_t n = a.grad.cols;
    if (a.attr.num_pieces == 0) {
        a.end = n;
        return launch(call, a, no_pieces_t());
    }
    for (int first = 0; a.end < n; a.begin = a.end) {
        pieces_t pieces = take_pieces(&a, &first, n);
        LOONG_TRY(launch(call, a, pieces));
    }
    return LOONG_OK;
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    if (query->arg[1].dtype == LOONG_BF16 && query->arg[2].rank == 0) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "a bf16 parameter needs the low half of its master");
        return false;
    }
    return cuda_support(query, 1u << 0, 1u << 2, reason);
}

CUDA_KERNEL(adamw, support, NULL, run);
