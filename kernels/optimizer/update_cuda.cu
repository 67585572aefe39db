/* SPDX-License-Identifier: Apache-2.0
 *
 * adamw, lion, sgd, ema and ema_swap in one pass over memory; the formulas
 * stand in loong/update.h. Number of updates, learning rate and scale come from
 * the frame on the device. Where random bits depend on parameters, a launch
 * takes as many as its arguments hold.
 *
 * Bytes a parameter of adamw: 28 with bf16 parameters and moments of fp32, 20
 * with moments of bf16; some 60 instructions, and 40 more for random bits:
 * bound by memory. A thread has 96 to 128 bytes under way, of its eight
 * parameters. */
#include "ema.h"
#include "map.cuh"
#include "stochastic.h"

using namespace loong_cuda;

namespace
{

/* The factors of one step, rounded once. */
struct factors_t {
    float grad_scale, beta1, beta2;
    float rest1, rest2;     /* 1 - beta */
    float unbias1, unbias2; /* 1 / (1 - beta^t) */
    float eps, lr, weight_decay, momentum;
    float ema_rest; /* 1 - the decay of ema */
    bool nesterov;
};

__device__ factors_t make_factors(const loong_update_attr_t &a,
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
    f.momentum = (float)a.momentum;
    f.ema_rest = (float)loongi_ema_rest(&a, frame->updates);
    f.nesterov = a.nesterov;
    return f;
}

/* Rules: the parameter p after its update by a gradient, which is scaled; x and
 * y: states of it that change. */
struct adamw_t {
    enum { STATES = 2 };
    static __device__ __forceinline__ float apply(const factors_t &f, float g,
                                                  float p, float *x, float *y)
    {
        float m = f.beta1 * *x + f.rest1 * g;
        float v = f.beta2 * *y + f.rest2 * g * g;
        *x = m;
        *y = v;
        float change = m * f.unbias1 / (sqrtf(v * f.unbias2) + f.eps);
        return p - f.lr * (change + f.weight_decay * p);
    }
};

struct lion_t {
    enum { STATES = 1 };
    static __device__ __forceinline__ float apply(const factors_t &f, float g,
                                                  float p, float *x, float *)
    {
        float c = f.beta1 * *x + f.rest1 * g;
        float sign = c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : c; /* c: 0 or NaN */
        *x = f.beta2 * *x + f.rest2 * g;
        return p - f.lr * (sign + f.weight_decay * p);
    }
};

struct sgd_t {
    enum { STATES = 1 };
    static __device__ __forceinline__ float apply(const factors_t &f, float g,
                                                  float p, float *x, float *)
    {
        float d = g + f.weight_decay * p;
        float b = f.momentum * *x + d;
        *x = b;
        return p - f.lr * (f.nesterov ? d + f.momentum * b : b);
    }
};

struct ema_t {
    enum { STATES = 1 };
    static __device__ __forceinline__ float apply(const factors_t &f, float,
                                                  float p, float *x, float *)
    {
        *x = f.ema_rest < 1.0f ? *x + f.ema_rest * (p - *x) : p;
        return p;
    }
};

struct ema_swap_t {
    enum { STATES = 1 };
    static __device__ __forceinline__ float apply(const factors_t &, float,
                                                  float p, float *x, float *)
    {
        float average = *x;
        *x = p;
        return average;
    }
};

struct update_t {
    mat_t grad, param, low, state[2];
    loong_update_attr_t attr;
    int packed;         /* all of them */
    int64_t begin, end; /* elements of this launch; begin: a whole pack's */
};

/* The parameters of a launch. */
struct pieces_t {
    enum { MOST = 64 }; /* arguments are 4 KiB at most */
    int count;
    loong_update_piece_t of[MOST];
};

struct no_pieces_t {
};

/* A parameter in both halves of its bits, and back; see loong/update.h. */
__device__ __forceinline__ pack_t join(const raw_t<half_t> &high,
                                       const raw_t<half_t> &low)
{
    pack_t p;
    for (int i = 0; i < PACK; i++) {
        unsigned l = low.word[i / 2] >> i % 2 * 16 & 0xffffu;
        unsigned h = high.word[i / 2] >> i % 2 * 16 & 0xffffu;
        p.v[i] = __uint_as_float((h - (l >> 15)) << 16 | l);
    }
    return p;
}

__device__ __forceinline__ void split(const pack_t &p, raw_t<half_t> *high,
                                      raw_t<half_t> *low)
{
    for (int i = 0; i < PACK; i += 2) {
        unsigned a = __float_as_uint(p.v[i]);
        unsigned b = __float_as_uint(p.v[i + 1]);
        low->word[i / 2] = (a & 0xffffu) | b << 16;
        high->word[i / 2] = (((a >> 16) + (a >> 15 & 1u)) & 0xffffu) |
                            ((b >> 16) + (b >> 15 & 1u)) << 16;
    }
}

/* ---- states -------------------------------------------------------------- */

struct words_t {
    unsigned v[PACK];
};

struct no_words_t {
};

/* Random words of elements i .. i + PACK - 1, *piece_p: a piece that is not
 * behind them. Two blocks where they begin one and follow one another in the
 * whole parameter. */
__device__ __forceinline__ words_t draw(const pieces_t &pieces, int *piece_p,
                                        const loong_frame_t *frame, int64_t i)
{
    int k = loongi_moments_piece(pieces.of, pieces.count, *piece_p, i);
    const loong_update_piece_t &piece = pieces.of[k];
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

/* A state in its storage: by the random bits from `shift` on, or to nearest.
 */
template <class T>
__device__ __forceinline__ raw_t<T> rounded(const pack_t &x, const no_words_t &,
                                            int)
{
    return packed_as<T>(x);
}

template <class T>
__device__ __forceinline__ raw_t<T> rounded(const pack_t &x, const words_t &w,
                                            int shift)
{
    raw_t<T> y = packed_as<T>(x);
    for (int i = 0; sizeof(T) == sizeof(half_t) && i < PACK; i += 2) {
        unsigned low =
            loongi_round_by_chance(__float_as_uint(x.v[i]), w.v[i] >> shift);
        unsigned high = loongi_round_by_chance(__float_as_uint(x.v[i + 1]),
                                               w.v[i + 1] >> shift);
        y.word[i / 2] = low | high << 16;
    }
    return y;
}

/* ---- the kernels --------------------------------------------------------- */

/* Eight elements of each operand. P: the parameter, X and Y: its states. */
template <class P, class X, class Y> struct read_t {
    raw_t<float> grad;
    raw_t<P> param;
    raw_t<half_t> low; /* of a parameter in bf16 */
    raw_t<X> x;
    raw_t<Y> y;
};

template <class T> __device__ __forceinline__ T *at(const mat_t &m, int64_t c)
{
    return static_cast<T *>(m.p) + c;
}

template <class P, class X, class Y, class Rule>
__device__ __forceinline__ read_t<P, X, Y> read(const update_t &a, int64_t c,
                                                int n, bool whole)
{
    const bool halves = sizeof(P) == sizeof(half_t);
    const bool two = Rule::STATES > 1;
    read_t<P, X, Y> r;
    if (whole) {
        r.grad = fetch(at<float>(a.grad, c));
        r.x = fetch(at<X>(a.state[0], c));
        if (two) {
            r.y = fetch(at<Y>(a.state[1], c));
        }
        r.param = fetch(at<P>(a.param, c));
        if (halves) {
            r.low = fetch(at<half_t>(a.low, c));
        }
    } else {
        r.grad = gather(at<float>(a.grad, c), n);
        r.x = gather(at<X>(a.state[0], c), n);
        if (two) {
            r.y = gather(at<Y>(a.state[1], c), n);
        }
        r.param = gather(at<P>(a.param, c), n);
        if (halves) {
            r.low = gather(at<half_t>(a.low, c), n);
        }
    }
    return r;
}

__device__ __forceinline__ pack_t master(const raw_t<float> &param,
                                         const raw_t<half_t> &)
{
    return unpack(param);
}

__device__ __forceinline__ pack_t master(const raw_t<half_t> &param,
                                         const raw_t<half_t> &low)
{
    return join(param, low);
}

__device__ __forceinline__ void store_master(const update_t &a, int64_t c,
                                             const pack_t &p, int n, bool whole,
                                             float *)
{
    store(at<float>(a.param, c), p, n, whole);
}

__device__ __forceinline__ void store_master(const update_t &a, int64_t c,
                                             const pack_t &p, int n, bool whole,
                                             half_t *)
{
    raw_t<half_t> high;
    raw_t<half_t> low;
    split(p, &high, &low);
    store_raw(at<half_t>(a.param, c), high, n, whole);
    store_raw(at<half_t>(a.low, c), low, n, whole);
}

template <class P, class X, class Y, class Rule, class Pieces>
__global__ void __launch_bounds__(BLOCK)
    update_kernel(update_t a, Pieces pieces, const loong_frame_t *frame)
{
    LOONG_SHARED(factors_t, shared, 1);
    if (threadIdx.x == 0) { /* powers in double: once a block */
        *shared = make_factors(a.attr, frame);
    }
    __syncthreads();
    const factors_t f = *shared;
    const bool two = Rule::STATES > 1;
    int64_t cols = a.grad.cols;
    int64_t end = cols < a.end ? cols : a.end;
    int piece = 0;
    int64_t step = (int64_t)gridDim.x * BLOCK * PACK;
    for (int64_t c =
             a.begin + ((int64_t)blockIdx.x * BLOCK + threadIdx.x) * PACK;
         c < end; c += step) {
        int n = least(PACK, end - c);
        bool whole = a.packed && n == PACK;
        read_t<P, X, Y> r = read<P, X, Y, Rule>(a, c, n, whole);
        auto w = draw(pieces, &piece, frame, c); /* while that is under way */
        pack_t g = unpack(r.grad);
        pack_t x = unpack(r.x);
        pack_t y = two ? unpack(r.y) : x;
        pack_t p = master(r.param, r.low);
        for (int i = 0; i < PACK; i++) {
            p.v[i] =
                Rule::apply(f, g.v[i] * f.grad_scale, p.v[i], &x.v[i], &y.v[i]);
        }
        store_raw(at<X>(a.state[0], c), rounded<X>(x, w, 0), n, whole);
        if (two) {
            store_raw(at<Y>(a.state[1], c), rounded<Y>(y, w, 16), n, whole);
        }
        store_master(a, c, p, n, whole, static_cast<P *>(NULL));
    }
}

/* From a.begin on, as far as the pieces go that fit, whole packs but at the
 * end; a.end: where. *first: the piece of a.begin. */
pieces_t take_pieces(update_t *a, int *first, int64_t n)
{
    const loong_update_attr_t &attr = a->attr;
    pieces_t p;
    *first =
        loongi_moments_piece(attr.pieces, attr.num_pieces, *first, a->begin);
    int rest = attr.num_pieces - *first;
    p.count = LOONG_MIN(rest, (int)pieces_t::MOST);
    memcpy(p.of, attr.pieces + *first, sizeof(*p.of) * (size_t)p.count);
    a->end =
        rest > p.count ? attr.pieces[*first + p.count].at / PACK * PACK : n;
    return p;
}

template <class P, class X, class Y, class Rule, class Pieces>
loong_status_t launch_as(const loong_kernel_call_t *call, const update_t &a,
                         const Pieces &pieces)
{
    int64_t packs = (a.end - a.begin + PACK - 1) / PACK;
    LOONG_LAUNCH((update_kernel<P, X, Y, Rule, Pieces>),
                 grid_of(call, (packs + BLOCK - 1) / BLOCK), dim3(BLOCK), 0,
                 stream_of(call), a, pieces, call->device_frame);
    return launched(call);
}

/* The type of the second state, which is the first's where there is none. */
template <class P, class X, class Pieces>
loong_status_t launch_second(const loong_kernel_call_t *call, const update_t &a,
                             const Pieces &pieces, adamw_t)
{
    return a.state[1].half ? launch_as<P, X, half_t, adamw_t>(call, a, pieces)
                           : launch_as<P, X, float, adamw_t>(call, a, pieces);
}

template <class P, class X, class Pieces, class Rule>
loong_status_t launch_second(const loong_kernel_call_t *call, const update_t &a,
                             const Pieces &pieces, Rule)
{
    return launch_as<P, X, X, Rule>(call, a, pieces);
}

template <class P, class Rule, class Pieces>
loong_status_t launch_with(const loong_kernel_call_t *call, const update_t &a,
                           const Pieces &pieces)
{
    return a.state[0].half ? launch_second<P, half_t>(call, a, pieces, Rule())
                           : launch_second<P, float>(call, a, pieces, Rule());
}

template <class Rule, class Pieces>
loong_status_t launch(const loong_kernel_call_t *call, const update_t &a,
                      const Pieces &pieces)
{
    return a.param.half ? launch_with<half_t, Rule>(call, a, pieces)
                        : launch_with<float, Rule>(call, a, pieces);
}

} // namespace

template <class Rule> static loong_status_t run(const loong_kernel_call_t *call)
{
    update_t a = {mat_arg(call, 0),
                  mat_out(call, 0),
                  mat_out(call, 1),
                  {mat_out(call, 2), mat_out(call, Rule::STATES + 1)},
                  *static_cast<const loong_update_attr_t *>(call->query->attr),
                  0,
                  0,
                  0};
    int64_t n = a.grad.cols;
    a.packed = a.grad.packed && a.param.packed && a.low.packed &&
               a.state[0].packed && a.state[1].packed;
    if (a.attr.num_pieces == 0) {
        a.end = n;
        return launch<Rule>(call, a, no_pieces_t());
    }
    for (int first = 0; a.end < n; a.begin = a.end) {
        pieces_t pieces = take_pieces(&a, &first, n);
        LOONG_TRY(launch<Rule>(call, a, pieces));
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

CUDA_KERNEL(adamw, support, NULL, run<adamw_t>);
CUDA_KERNEL(lion, support, NULL, run<lion_t>);
CUDA_KERNEL(sgd, support, NULL, run<sgd_t>);
CUDA_KERNEL(ema, support, NULL, run<ema_t>);
CUDA_KERNEL(ema_swap, support, NULL, run<ema_swap_t>);
