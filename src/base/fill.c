/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills operands of a measurement with normal numbers. Called by
 * src/report/gemm_rate.c and where a device chooses among algorithms. Read
 * rng.h before. */
#include "fill.h"

#include <string.h>

#include "convert.h"
#include "rng.h"

void loongi_fill_normal(loong_dtype_t dtype, void *values)
{
    size_t size = loong_dtype_size(dtype);
    for (int64_t i = 0; i < LOONG_FILL_COUNT; i++) {
        double x = loongi_rng_normal(1, 1, (uint64_t)i);
        float single = (float)x;
        uint16_t half = loongi_f64_to_bf16(x);
        memcpy((char *)values + (size_t)i * size,
               dtype == LOONG_F64   ? (const void *)&x
               : dtype == LOONG_F32 ? (const void *)&single
                                    : (const void *)&half, size);
    }
}
