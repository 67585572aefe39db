/* SPDX-License-Identifier: Apache-2.0
 *
 * concat, slice_grad, zigzag, repeat_heads, sum_heads, select_rows, sum_rows
 * and zero; the formulas stand in elementwise_ref.c. */
#include "copy.cuh"
#include "fold.cuh"
#include "loong/collective.h"
#include "map.cuh"
#include "zigzag.h"

using namespace loong_cuda;

namespace {

/* x in columns begin .., zero elsewhere. */
template <class T> struct slice_grad_fn {
    mat_t x;
    int64_t begin;
    bool aligned() const
    {
        return x.packed && begin % PACK == 0 && x.cols % PACK == 0;
    }
    template <bool WHOLE>
    __device__ pack_t at(int64_t row, int64_t col, int n,
                         const loong_frame_t *) const
    {
        int64_t from = col - begin;
        pack_t y;
        if (from >= 0 && from + n <= x.cols) {
            return load_as<T, WHOLE>(x, row, from, n);
        }
        for (int i = 0; i < PACK; i++) {
            bool inside = i < n && from + i >= 0 && from + i < x.cols;
            y.v[i] = inside ? widen(row_of<T>(x, row)[from + i]) : 0.0f;
        }
        return y;
    }
};

/* Row t of rank's rows stands in row `place` of the samples. */
template <class T> struct zigzag_fn {
    mat_t x;
    loong_zigzag_attr_t attr;
    int64_t samples;
    bool aligned() const
    {
        return x.packed;
    }
    template <bool WHOLE>
    __device__ pack_t at(int64_t row, int64_t col, int n,
                         const loong_frame_t *) const
    {
        int64_t own = attr.length / attr.ranks;
        if (attr.inverse) {
            int rank = (int)(row / (samples * own));
            int64_t place =
                row / own % samples * attr.length +
                loongi_zigzag_place(rank, attr.ranks, attr.length, row % own);
            return load_as<T, WHOLE>(x, place, col, n);
        }
        /* The chunk of the sample says the rank, and which half it is. */
        int64_t chunk = own / 2;
        int64_t sample = row / attr.length;
        int64_t c = row % attr.length / chunk;
        bool late = c >= attr.ranks;
        int64_t rank = late ? 2 * attr.ranks - 1 - c : c;
        int64_t from = (rank * samples + sample) * own +
                       (late ? chunk : 0) + row % chunk;
        return load_as<T, WHOLE>(x, from, col, n);
    }
};

template <class T> struct repeat_heads_fn {
    mat_t x;
    int64_t d, times;
    bool aligned() const
    {
        return x.packed && d % PACK == 0;
    }
    template <bool WHOLE>
    __device__ pack_t at(int64_t row, int64_t col, int n,
                         const loong_frame_t *) const
    {
        pack_t y;
        bool within = WHOLE || d % PACK == 0; /* one head */
        if (within) {
            return load_as<T, WHOLE>(
                x, row, col / (d * times) * d + col % d, n);
        }
        for (int i = 0; i < PACK; i++) {
            int64_t c = col + i;
            int64_t from = c / (d * times) * d + c % d;
            y.v[i] = i < n ? widen(row_of<T>(x, row)[from]) : 0.0f;
        }
        return y;
    }
};

template <class T> struct sum_heads_fn {
    mat_t x;
    int64_t d, times;
    bool aligned() const
    {
        return x.packed && d % PACK == 0;
    }
    template <bool WHOLE>
    __device__ pack_t at(int64_t row, int64_t col, int n,
                         const loong_frame_t *) const
    {
        pack_t y;
        bool within = WHOLE || d % PACK == 0; /* one head */
        for (int i = 0; i < PACK; i++) {
            y.v[i] = 0.0f;
        }
        for (int64_t k = 0; k < times; k++) {
            if (within) {
                pack_t p = load_as<T, WHOLE>(
                    x, row, (col / d * times + k) * d + col % d, n);
                for (int i = 0; i < PACK; i++) {
                    y.v[i] += p.v[i];
                }
                continue;
            }
#pragma unroll
            for (int i = 0; i < PACK && i < n; i++) {
                int64_t c = col + i;
                int64_t from = (c / d * times + k) * d + c % d;
                y.v[i] += widen(row_of<T>(x, row)[from]);
            }
        }
        return y;
    }
};

template <class T> struct select_rows_fn {
    mat_t x, features; /* without features: zeros */
    const int32_t *is_feature;
    bool inverse;
    bool aligned() const
    {
        return x.packed && features.packed;
    }
    template <bool WHOLE>
    __device__ pack_t at(int64_t row, int64_t col, int n,
                         const loong_frame_t *) const
    {
        const mat_t &from = (is_feature[row] != 0) != inverse ? features : x;
        pack_t zero = {{0}};
        return from.p == NULL ? zero : load_as<T, WHOLE>(from, row, col, n);
    }
};

template <class T> struct zero_fn {
    bool aligned() const
    {
        return true;
    }
    template <bool WHOLE>
    __device__ pack_t at(int64_t, int64_t, int, const loong_frame_t *) const
    {
        pack_t zero = {{0}};
        return zero;
    }
};

} // namespace

static loong_status_t run_zero(const loong_kernel_call_t *call)
{
    return generate<zero_fn>(call, mat_out(call, 0));
}

static loong_status_t run_concat(const loong_kernel_call_t *call)
{
    mat_t y = mat_out(call, 0);
    int64_t column = 0;
    for (int i = 0; i < call->query->num_in; i++) {
        mat_t x = mat_arg(call, i);
        LOONG_TRY(copy(call, x, mat_columns(y, column, x.cols), false));
        column += x.cols;
    }
    return LOONG_OK;
}

static loong_status_t run_slice_grad(const loong_kernel_call_t *call)
{
    const loong_slice_grad_attr_t *a =
        static_cast<const loong_slice_grad_attr_t *>(call->query->attr);
    return generate<slice_grad_fn>(call, mat_out(call, 0), mat_arg(call, 0),
                                   a->begin);
}

static loong_status_t run_zigzag(const loong_kernel_call_t *call)
{
    const loong_zigzag_attr_t *a =
        static_cast<const loong_zigzag_attr_t *>(call->query->attr);
    mat_t x = mat_arg(call, 0);
    return generate<zigzag_fn>(call, mat_out(call, 0), x, *a,
                               x.rows / a->length);
}

static loong_status_t run_repeat_heads(const loong_kernel_call_t *call)
{
    const loong_repeat_heads_attr_t *a =
        static_cast<const loong_repeat_heads_attr_t *>(call->query->attr);
    return generate<repeat_heads_fn>(call, mat_out(call, 0), mat_arg(call, 0),
                                     (int64_t)a->head_dim, (int64_t)a->times);
}

static loong_status_t run_sum_heads(const loong_kernel_call_t *call)
{
    const loong_repeat_heads_attr_t *a =
        static_cast<const loong_repeat_heads_attr_t *>(call->query->attr);
    return generate<sum_heads_fn>(call, mat_out(call, 0), mat_arg(call, 0),
                                  (int64_t)a->head_dim, (int64_t)a->times);
}

static loong_status_t run_select_rows(const loong_kernel_call_t *call)
{
    const loong_select_rows_attr_t *a =
        static_cast<const loong_select_rows_attr_t *>(call->query->attr);
    mat_t features = call->query->num_in > 2 ? mat_arg(call, 2) : mat_none();
    return generate<select_rows_fn>(
        call, mat_out(call, 0), mat_arg(call, 0), features,
        static_cast<const int32_t *>(call->ptr[1]), a->inverse);
}

static loong_status_t run_sum_rows(const loong_kernel_call_t *call)
{
    return sum_rows(call, 0, 0, static_cast<float *>(call->workspace));
}

static size_t sum_rows_workspace(const loong_kernel_query_t *query)
{
    return fold_bytes(loong_karg_cols(&query->arg[0]));
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 0, 0, reason);
}

static bool support_same(const loong_kernel_query_t *query,
                         char reason[LOONG_REASON_SIZE])
{
    return support(query, reason) && cuda_support_same(query, 0, reason);
}

static bool support_select(const loong_kernel_query_t *query,
                           char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 0, 1u << 1, reason) &&
           cuda_support_same(query, 1u << 1, reason);
}

CUDA_KERNEL(zero, support, NULL, run_zero);
CUDA_KERNEL(concat, support, NULL, run_concat);
CUDA_KERNEL(slice_grad, support_same, NULL, run_slice_grad);
CUDA_KERNEL(zigzag, support_same, NULL, run_zigzag);
CUDA_KERNEL(repeat_heads, support_same, NULL, run_repeat_heads);
CUDA_KERNEL(sum_heads, support_same, NULL, run_sum_heads);
CUDA_KERNEL(select_rows, support_select, NULL, run_select_rows);
CUDA_KERNEL(sum_rows, support, sum_rows_workspace, run_sum_rows);
