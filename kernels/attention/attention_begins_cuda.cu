/* SPDX-License-Identifier: Apache-2.0
 *
 * Two kernels beside cuDNN's: one checks segments and writes their lengths and
 * begins as cuDNN reads them, one moves lse between its layout and ours. Called
 * by attention_cudnn_cuda.c. Read attention_cudnn.h before. */
#include "attention_cudnn.h"
#include "attention_spans.cuh"

using namespace loong_cuda;

namespace {

/* A wrong entry is told; what it makes of lengths stays within the rows. */
__global__ void __launch_bounds__(BLOCK)
    find_begins(sequence_t s, loong_attention_begins_t b)
{
    LOONG_SHARED(int, worst, 1);
    int64_t rows = s.side[1].rows;
    if (blockIdx.x == 0) {
        check_segments(s, rows, worst);
    }
    if (b.lengths == NULL) {
        return;
    }
    int64_t places = b.launches * (b.segments + 1);
    for (int64_t j = (int64_t)blockIdx.x * BLOCK + threadIdx.x; j < places;
         j += (int64_t)gridDim.x * BLOCK) {
        int64_t launch = j / (b.segments + 1);
        int64_t k = j % (b.segments + 1);
        int64_t i = launch * b.segments + k;
        int64_t row = s.cu_seqlens[least(i, s.entries - 1)];
        row = row < 0 ? 0 : row > rows ? rows : row;
        for (int o = 0; o < LOONG_CUDNN_OPERANDS; o++) {
            if (b.begin[o] != NULL) {
                b.begin[o][launch * b.begin_pitch + k] = row * b.ld[o];
            }
        }
        if (k < b.segments) {
            int64_t end = s.cu_seqlens[least(i + 1, s.entries - 1)];
            int64_t n = (end > rows ? rows : end) - row;
            b.lengths[launch * b.lengths_pitch + k] =
                n < 0 ? 0 : least(n, s.attr.max_seqlen);
        }
    }
}

/* When kernels are only loaded, this file's too, the library runs all the same,
 * on whatever the operands hold: so segments are made to have no rows. */
void make_empty(const loong_kernel_call_t *call,
                const loong_attention_begins_t *b)
{
    (void)cudaMemsetAsync(b->lengths, 0,
                          sizeof(*b->lengths) *
                              (size_t)(b->launches * b->lengths_pitch),
                          stream_of(call));
    for (int o = 0; o < LOONG_CUDNN_OPERANDS; o++) {
        if (b->begin[o] != NULL) {
            (void)cudaMemsetAsync(b->begin[o], 0,
                                  sizeof(*b->begin[o]) *
                                      (size_t)(b->launches * b->begin_pitch),
                                  stream_of(call));
        }
    }
}

/* Threads that follow one another have rows that do. */
__global__ void __launch_bounds__(BLOCK)
    turn_lse(mat_t m, loong_attention_lse_t lse)
{
    int64_t values = m.rows * m.cols;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < values;
         i += (int64_t)gridDim.x * BLOCK) {
        int64_t row = i % lse.length;
        int64_t head = i / lse.length % m.cols;
        int64_t segment = i / lse.length / m.cols;
        float *one =
            row_of<float>(m, segment * lse.length + row) + head;
        float *other =
            lse.by_heads + (segment * m.cols + head) * lse.pitch + row;
        *(lse.back ? one : other) = *(lse.back ? other : one);
    }
}

} // namespace

extern "C" loong_status_t
loongi_attention_turn_lse(const loong_kernel_call_t *call,
                          const loong_attention_lse_t *lse)
{
    mat_t m = mat_arg(call, lse->operand);
    dim3 grid = grid_of(call, (m.rows * m.cols + BLOCK - 1) / BLOCK);
    LOONG_LAUNCH((turn_lse), grid, dim3(BLOCK), 0, stream_of(call), m, *lse);
    return launched(call);
}

extern "C" loong_status_t
loongi_attention_begins(const loong_kernel_call_t *call, int cu, int keys,
                        const loong_attention_begins_t *begins)
{
    const loong_kernel_query_t *query = call->query;
    sequence_t s;
    memset(&s, 0, sizeof(s));
    s.cu_seqlens = static_cast<const int32_t *>(call->ptr[cu]);
    s.entries = (int)query->arg[cu].dim[0];
    s.side[1] = mat_arg(call, keys);
    s.attr = *static_cast<const loong_attention_attr_t *>(query->attr);
    s.error = call->error;
    int64_t places = begins->launches * (begins->segments + 1);
    LOONG_LAUNCH((find_begins), grid_of(call, places / BLOCK + 1), dim3(BLOCK),
                 0, stream_of(call), s, *begins);
    if (call->load && begins->lengths != NULL) {
        make_empty(call, begins);
    }
    return launched(call);
}
