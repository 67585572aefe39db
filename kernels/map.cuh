/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of one pass over rows and columns, eight elements (a pack) at a time:
 * `map` where all operands have one shape, `generate` where an element of the
 * output depends on its place.
 *
 * They are bound by memory: operands are read and written once, a few FLOP an
 * element. Types are template parameters, and a thread of map issues the reads
 * of 32 bytes of each input before it uses any: with 3 to 5 blocks of 256
 * threads on a multiprocessor 24 to 40 KiB are in flight for each input. */
#ifndef LOONG_MAP_CUH
#define LOONG_MAP_CUH

#include "cuda.cuh"

namespace loong_cuda {

/* Elements 0 .. n - 1 from `col` of a row, of either type. */
static __device__ __forceinline__ pack_t load_at(const mat_t &m, int64_t row,
                                                 int64_t col, int n)
{
    bool packed = m.packed && col % PACK == 0;
    return m.half ? load(row_of<half_t>(m, row) + col, n, packed)
                  : load(row_of<float>(m, row) + col, n, packed);
}

static __device__ __forceinline__ float load_one(const mat_t &m, int64_t row,
                                                 int64_t col)
{
    return m.half ? widen(row_of<half_t>(m, row)[col])
                  : row_of<float>(m, row)[col];
}

static __device__ __forceinline__ void store_at(const mat_t &m, int64_t row,
                                                int64_t col, const pack_t &x,
                                                int n)
{
    bool packed = m.packed && col % PACK == 0;
    if (m.half) {
        store(row_of<half_t>(m, row) + col, x, n, packed);
    } else {
        store(row_of<float>(m, row) + col, x, n, packed);
    }
}

template <int NUM> struct mats_t {
    mat_t arg[NUM];
    int packed; /* all of them */
    const int32_t *rows; /* of this run; NULL: all */
};

/* Blocks for the packs of an operand. */
static inline dim3 grid_for(const loong_kernel_call_t *call, const mat_t &m)
{
    int64_t packs = m.rows * ((m.cols + PACK - 1) / PACK);
    return grid_of(call, (packs + BLOCK - 1) / BLOCK);
}

/* ---- a walk over packs --------------------------------------------------- */

/* Unit number `at` of rows of `width` units, and so many on: one division at
 * the start instead of one a step. */
struct walk_t {
    int64_t at, row, col;
    int64_t step, rows, cols, width;
};

static __device__ __forceinline__ walk_t walk_of(int64_t at, int64_t step,
                                                 int64_t width)
{
    walk_t w = {at, 0, 0, step, 0, 0, width > 0 ? width : 1};
    w.row = at / w.width;
    w.col = at % w.width;
    w.rows = step / w.width;
    w.cols = step % w.width;
    return w;
}

static __device__ __forceinline__ void advance(walk_t *w)
{
    bool over = w->col + w->cols >= w->width;
    w->at += w->step;
    w->row += w->rows + over;
    w->col += w->cols - (over ? w->width : 0);
}

/* ---- map: fn(in, out) ---------------------------------------------------- */

/* Inputs of type In, outputs of type Out; ADD: they are added to. A thread
 * takes PACKS packs of each at a time. */
template <class In, class Out, bool ADD, int IN, int OUT, class Fn>
__global__ void __launch_bounds__(BLOCK)
    map_kernel(Fn fn, mats_t<IN + OUT> m)
{
    enum { PACKS = 4 / sizeof(In), READS = ADD ? OUT : 1 };
    const mat_t &y = m.arg[IN];
    int64_t cols = y.cols;
    int64_t packs = (cols + PACK - 1) / PACK;
    int64_t rows = y.rows;
    int64_t units = (m.rows != NULL ? least(*m.rows, rows) : rows) * packs;
    walk_t w = walk_of((int64_t)blockIdx.x * BLOCK + threadIdx.x,
                       (int64_t)gridDim.x * BLOCK, packs);
    while (w.at < units) {
        int64_t row[PACKS];
        int64_t col[PACKS];
        int n[PACKS]; /* 0: none, read again and not written */
        bool whole = m.packed;
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            bool there = k == 0 || w.at < units;
            row[k] = there ? w.row : row[0];
            col[k] = there ? w.col * PACK : col[0];
            n[k] = there ? least(PACK, cols - col[k]) : 0;
            whole = whole && col[k] + PACK <= cols;
            advance(&w);
        }
        raw_t<In> in[PACKS][IN];
        raw_t<Out> old[PACKS][READS];
        if (whole) {
#pragma unroll
            for (int k = 0; k < PACKS; k++) {
#pragma unroll
                for (int i = 0; i < IN; i++) {
                    in[k][i] = fetch(row_of<In>(m.arg[i], row[k]) + col[k]);
                }
#pragma unroll
                for (int o = 0; ADD && o < OUT; o++) {
                    old[k][o] =
                        fetch(row_of<Out>(m.arg[IN + o], row[k]) + col[k]);
                }
            }
        } else {
#pragma unroll
            for (int k = 0; k < PACKS; k++) {
#pragma unroll
                for (int i = 0; i < IN; i++) {
                    in[k][i] =
                        gather(row_of<In>(m.arg[i], row[k]) + col[k], n[k]);
                }
#pragma unroll
                for (int o = 0; ADD && o < OUT; o++) {
                    old[k][o] = gather(
                        row_of<Out>(m.arg[IN + o], row[k]) + col[k], n[k]);
                }
            }
        }
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            pack_t from[IN];
            pack_t to[OUT];
            for (int i = 0; i < IN; i++) {
                from[i] = unpack(in[k][i]);
            }
            fn(from, to);
            for (int o = 0; o < OUT; o++) {
                if (ADD) {
                    pack_t before = unpack(old[k][ADD ? o : 0]);
                    for (int i = 0; i < PACK; i++) {
                        to[o].v[i] += before.v[i];
                    }
                }
                Out *at = row_of<Out>(m.arg[IN + o], row[k]) + col[k];
                store_raw(at, packed_as<Out>(to[o]), n[k], whole);
            }
        }
    }
}

/* arg: IN inputs, then OUT outputs; an output may be the memory of an input.
 * rows: how many of them, on the device; NULL: all. Dense operands are one long
 * row. */
template <class In, class Out, bool ADD, int IN, int OUT, class Fn>
loong_status_t map_as(const loong_kernel_call_t *call, Fn fn, const mat_t *arg,
                      const int32_t *rows = NULL)
{
    mats_t<IN + OUT> m;
    bool dense = rows == NULL;
    m.packed = true;
    m.rows = rows;
    for (int i = 0; i < IN + OUT; i++) {
        m.arg[i] = arg[i];
        dense = dense && arg[i].ld == arg[i].cols;
    }
    for (int i = 0; i < IN + OUT; i++) {
        mat_t *a = &m.arg[i];
        if (dense) {
            a->packed = (uintptr_t)a->p % 16 == 0;
            a->cols *= a->rows;
            a->ld = a->cols;
            a->rows = 1;
        }
        m.packed = m.packed && a->packed;
    }
    LOONG_LAUNCH((map_kernel<In, Out, ADD, IN, OUT, Fn>),
                 grid_for(call, m.arg[IN]), dim3(BLOCK), 0, stream_of(call), fn,
                 m);
    return launched(call);
}

/* All operands of one type. */
template <int IN, int OUT, class Fn>
loong_status_t map(const loong_kernel_call_t *call, Fn fn, const mat_t *arg)
{
    return arg[0].half
               ? map_as<half_t, half_t, false, IN, OUT>(call, fn, arg)
               : map_as<float, float, false, IN, OUT>(call, fn, arg);
}

/* ---- generate: y = fn(row, col, n, frame) -------------------------------- */

/* Elements 0 .. n - 1 from `col` of a row of type T; WHOLE: a pack that begins
 * at a multiple of 16 bytes. */
template <class T, bool WHOLE>
static __device__ __forceinline__ pack_t load_as(const mat_t &m, int64_t row,
                                                 int64_t col, int n)
{
    const T *x = row_of<T>(m, row) + col;
    return WHOLE ? unpack(fetch(x))
                 : load(x, n, m.packed && col % PACK == 0);
}

/* fn.at<WHOLE> makes a pack; with WHOLE it reads whole ones alone, without a
 * branch. A thread makes PACKS of them before it writes any. */
template <class T, class Fn>
__global__ void __launch_bounds__(BLOCK)
    generate_kernel(Fn fn, mat_t y, bool aligned, const loong_frame_t *frame)
{
    enum { PACKS = 4 / sizeof(T) };
    int64_t packs = (y.cols + PACK - 1) / PACK;
    int64_t units = y.rows * packs;
    walk_t w = walk_of((int64_t)blockIdx.x * BLOCK + threadIdx.x,
                       (int64_t)gridDim.x * BLOCK, packs);
    while (w.at < units) {
        int64_t row[PACKS];
        int64_t col[PACKS];
        int n[PACKS]; /* 0: none, made again and not written */
        pack_t out[PACKS];
        bool whole = aligned;
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            bool there = k == 0 || w.at < units;
            row[k] = there ? w.row : row[0];
            col[k] = there ? w.col * PACK : col[0];
            n[k] = there ? least(PACK, y.cols - col[k]) : 0;
            whole = whole && col[k] + PACK <= y.cols;
            advance(&w);
        }
        if (whole) {
#pragma unroll
            for (int k = 0; k < PACKS; k++) {
                out[k] = fn.template at<true>(row[k], col[k], PACK, frame);
            }
        } else {
#pragma unroll
            for (int k = 0; k < PACKS; k++) {
                out[k] = fn.template at<false>(row[k], col[k], n[k], frame);
            }
        }
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            store(row_of<T>(y, row[k]) + col[k], out[k], n[k], y.packed);
        }
    }
}

template <class T, class Fn>
loong_status_t generate_as(const loong_kernel_call_t *call, Fn fn, mat_t y)
{
    LOONG_LAUNCH((generate_kernel<T, Fn>), grid_for(call, y), dim3(BLOCK), 0,
                 stream_of(call), fn, y, y.packed && fn.aligned(),
                 call->device_frame);
    return launched(call);
}

/* Fn<T> of these members, T the type of y. fn.aligned(): where y's packs are
 * whole, so are those that they are made of. */
template <template <class> class Fn, class... Members>
loong_status_t generate(const loong_kernel_call_t *call, mat_t y,
                        Members... members)
{
    return y.half ? generate_as<half_t>(call, Fn<half_t>{members...}, y)
                  : generate_as<float>(call, Fn<float>{members...}, y);
}

} // namespace loong_cuda

#endif
