/* SPDX-License-Identifier: Apache-2.0
 *
 * Element types: storage formats of tensors, in memory and in files.
 */
#ifndef LOONG_DTYPE_H
#define LOONG_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, bytes, text) */
#define LOONG_DTYPE_LIST(X)                                                   \
    X(F64, 8, "fp64")                                                         \
    X(F32, 4, "fp32")                                                         \
    X(BF16, 2, "bf16")                                                        \
    X(F16, 2, "fp16")                                                         \
    X(I64, 8, "int64")                                                        \
    X(I32, 4, "int32")                                                        \
    X(I16, 2, "int16")                                                        \
    X(I8, 1, "int8")                                                          \
    X(U16, 2, "uint16")                                                       \
    X(U8, 1, "uint8")                                                         \
    X(BOOL, 1, "bool")                                                        \
    X(F8_E4M3, 1, "fp8_e4m3") /* 4 bits of exponent, no infinity */           \
    X(F8_E5M2, 1, "fp8_e5m2") /* the upper half of fp16 */

typedef enum loong_dtype {
#define LOONG_DTYPE_ENUM(name_, bytes_, text_) LOONG_##name_,
    LOONG_DTYPE_LIST(LOONG_DTYPE_ENUM)
#undef LOONG_DTYPE_ENUM
    LOONG_DTYPE_COUNT
} loong_dtype_t;

/* How the rows of a matrix are stored where not element by element: codes, and
 * behind them the scales of the same row (src/base/quant.h). */
typedef enum loong_quant {
    LOONG_QUANT_NONE,
    LOONG_QUANT_NF4,
    LOONG_QUANT_NF4_DOUBLE, /* scales in 8 bits */
    LOONG_QUANT_INT8,
    LOONG_QUANT_COUNT
} loong_quant_t;

/* The label, among labels of int32, of what carries no loss. */
enum { LOONG_IGNORE_LABEL = -100 };

/* Bytes of one element; 0 for a value out of range. */
LOONG_API size_t loong_dtype_size(loong_dtype_t dtype);

/* The text of the list above, never NULL; "unknown dtype" out of range. */
LOONG_API const char *loong_dtype_name(loong_dtype_t dtype);

/* Finds a type by its text; false and nothing set when there is none. */
LOONG_API bool loong_dtype_from_name(const char *name, loong_dtype_t *dtype_p);

#ifdef __cplusplus
}
#endif

#endif
