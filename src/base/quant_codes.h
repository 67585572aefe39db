/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a row of bytes (quant.h) has what, and the numbers of its codes: for
 * kernels of devices as well. */
#ifndef LOONG_QUANT_CODES_H
#define LOONG_QUANT_CODES_H

#include <stdint.h>

#include "loong/dtype.h"
#include "port.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LOONG_QUANT_BLOCK = 64,   /* elements with one scale, of nf4 */
    LOONG_QUANT_NESTED = 256, /* scales with one scale */
    LOONG_QUANT_ROW_ALIGN = 16
};

/* Quantiles of a normal distribution over the largest (QLoRA, appendix E). */
#define LOONG_QUANT_NORMAL \
    -1.0f, -0.6961928009986877f, -0.5250730514526367f, \
    -0.39491748809814453f, -0.28444138169288635f, -0.18477343022823334f, \
    -0.09105003625154495f, 0.0f, 0.07958029955625534f, \
    0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f, \
    0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, \
    1.0f

#define LOONG_QUANT_INT8_STEP 7.874015718698502e-3f /* 1 / 127 */

/* Where the scales of a row of `cols` elements begin. */
LOONG_EVERYWHERE static inline int64_t
loongi_quant_scales_at(loong_quant_t quant, int64_t cols)
{
    return quant == LOONG_QUANT_INT8 ? (cols + 3) / 4 * 4 : cols / 2;
}

/* Of nf4 double: where the offset is behind the scales of so many blocks; the
 * number of blocks and the nested scales follow. */
LOONG_EVERYWHERE static inline int64_t loongi_quant_nested_at(int64_t blocks)
{
    return (blocks + 3) / 4 * 4;
}

#ifdef __cplusplus
}
#endif

#endif
