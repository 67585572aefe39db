/* SPDX-License-Identifier: Apache-2.0
 *
 * Which types of operands the CUDA kernels take. */
#ifndef LOONG_SUPPORT_CUH
#define LOONG_SUPPORT_CUH

#include <stdio.h>

#include "loong/kernel.h"

namespace loong_cuda {

/* True when all operands but those in the bits of `typed` are fp32 or bf16,
 * and those in the bits of `wide` are fp32. */
static inline bool cuda_support(const loong_kernel_query_t *query,
                                uint32_t wide, uint32_t typed,
                                char reason[LOONG_REASON_SIZE])
{
    for (int i = 0; i < query->num_in + query->num_out; i++) {
        const loong_karg_t *arg = &query->arg[i];
        bool half = arg->dtype == LOONG_BF16 && !(wide >> i & 1u);
        if (arg->rank > 0 && !(typed >> i & 1u) && !half &&
            arg->dtype != LOONG_F32) {
            snprintf(reason, LOONG_REASON_SIZE,
                     "operand %d is %s, this kernel takes %s", i,
                     loong_dtype_name(arg->dtype),
                     wide >> i & 1u ? "fp32" : "fp32 and bf16");
            return false;
        }
    }
    return true;
}

/* True when all operands but those in the bits of `other` are of one type,
 * which their kernel is compiled for. */
static inline bool cuda_support_same(const loong_kernel_query_t *query,
                                     uint32_t other,
                                     char reason[LOONG_REASON_SIZE])
{
    int first = -1;
    for (int i = 0; i < query->num_in + query->num_out; i++) {
        if (query->arg[i].rank == 0 || (other >> i & 1u)) {
            continue;
        }
        first = first < 0 ? i : first;
        if (query->arg[i].dtype != query->arg[first].dtype) {
            snprintf(reason, LOONG_REASON_SIZE,
                     "operand %d is %s, operand %d %s: this kernel takes them "
                     "in one type",
                     first, loong_dtype_name(query->arg[first].dtype), i,
                     loong_dtype_name(query->arg[i].dtype));
            return false;
        }
    }
    return true;
}

} // namespace loong_cuda

#endif
