/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of 8 bits with scales beside them (Micikevicius et al. 2022):
 * fp8_e4m3 up to 448, fp8_e5m2 up to 57344.
 *
 * quantize: x [R,C] -> q [R,C], x = q s about: x / s in fp32, rounded to
 * nearest even; what is beyond the largest number becomes that, NaN stays NaN.
 * The scale s is given (wide [1]), or is found for each block of block_rows x
 * 128 elements (the last ones of a row or column may be smaller), as
 * DeepSeek-V3 does: the largest magnitude of the block over the type's largest
 * number; 1 where that is 0. Formulas: kernels/quantize/quantize_ref.c. No
 * gradient: what a product makes of it belongs to the product.
 */
#ifndef LOONG_QUANTIZE_H
#define LOONG_QUANTIZE_H

#include "loong/graph.h"
#include "loong/moe.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_QUANTIZE_BLOCK = 128 };

typedef struct loong_quantize_attr {
    loong_dtype_t dtype; /* of the result */
    int block_rows; /* 1, 128 (R is known then); 0: one scale, which is given */
    bool transposed; /* quantize: also q' [C,R]; block_rows 0 or 128, R known */
} loong_quantize_attr_t;

typedef struct loong_quantized {
    loong_val_t q;
    loong_val_t scales;     /* wide [blocks of R, blocks of C], or none */
    loong_val_t amax;       /* wide [1]: the largest magnitude of x */
    loong_val_t transposed; /* or none */
} loong_quantized_t;

/* x fp64, fp32 or bf16; attr->dtype fp8_e4m3 or fp8_e5m2. */
LOONG_API loong_quantized_t loong_quantize(loong_graph_t *g, loong_val_t x,
                                           loong_val_t scale,
                                           const loong_quantize_attr_t *attr);

/* The product with a matrix that stays fixed and is stored as codes (QLoRA,
 * Dettmers et al. 2023): x [T,K], w uint8 [N,B], whose rows are K elements in
 * the bytes of src/base/quant.h, bias wide [N] or none -> y = x w' + bias, like
 * x. With `transposed` x is [T,N] and y = x w [T,K], without a bias. Some
 * columns of y at a time are made: their part of w is put into the workspace in
 * the type of x, not all of it. w has no gradient.
 * With a fourth operand, offsets i32 [n+1], w is [n,N,B] and y what
 * grouped_linear makes: rows of expert e are x w[e]', without a bias. */
typedef struct loong_linear_quantized_attr {
    loong_quant_t quant;
    int64_t cols; /* K */
    bool transposed;
    double share; /* of T that costs are told for; 1 without experts */
} loong_linear_quantized_attr_t;
LOONG_API loong_val_t loong_linear_quantized(loong_graph_t *g, loong_val_t x,
                                             loong_val_t w, loong_val_t bias,
                                             loong_quant_t quant);
LOONG_API loong_val_t loong_grouped_linear_quantized(
    loong_graph_t *g, loong_val_t x, loong_val_t w,
    const loong_expert_rows_t *rows, loong_quant_t quant);

/* w as above, [N,B], -> what its codes stand for, [N,K] in `dtype`: fp64, fp32
 * or bf16. No gradient. */
typedef struct loong_dequantize_blockwise_attr {
    loong_quant_t quant;
    int64_t cols; /* K */
    loong_dtype_t dtype;
} loong_dequantize_blockwise_attr_t;
LOONG_API loong_val_t
loong_dequantize_blockwise(loong_graph_t *g, loong_val_t w,
                           const loong_dequantize_blockwise_attr_t *attr);

/* q [R,C] and its scale or scales -> q s in attr->dtype: fp64, fp32 or bf16. */
LOONG_API loong_val_t loong_dequantize(loong_graph_t *g, loong_val_t q,
                                       loong_val_t scale,
                                       const loong_quantize_attr_t *attr);

#ifdef __cplusplus
}
#endif

#endif
