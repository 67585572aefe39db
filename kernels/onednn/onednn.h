/* SPDX-License-Identifier: Apache-2.0
 *
 * A matrix product by oneDNN, made once and launched many times:
 *
 *     C [m,n] = A [m,k] B [k,n] (+ bias [n]) (+ C) (then gelu)
 *
 * Matrices are plain: rows (of the matrix or of its transpose) at a fixed
 * distance. Packed layouts were measured and are not used: weights change at
 * every step, and packing on use costs what it saves (docs/performance.md).
 *
 * m or k may be known at the launch alone (LOONG_PRODUCT_RUNTIME): rows that a
 * router decides on.
 */
#ifndef LOONG_ONEDNN_H
#define LOONG_ONEDNN_H

#include "base.h"
#include "loong/kernel.h"
#include "loong/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_product loong_product_t;

enum { LOONG_PRODUCT_RUNTIME = -1 };

/* One matrix in memory: element (i, j) stands at i * ld + j, or at j * ld + i
 * when transposed. */
typedef struct loong_product_matrix {
    loong_dtype_t dtype;
    int64_t ld;
    bool transposed;
} loong_product_matrix_t;

typedef struct loong_product_params {
    int64_t m, n, k; /* m or k: LOONG_PRODUCT_RUNTIME */
    loong_product_matrix_t a, b, c; /* c is not transposed */
    bool bias;                      /* wide vector */
    bool add;                       /* to what is in C */
    loong_activation_t activation;
    int threads;
} loong_product_params_t;

/* False, with the reason, when oneDNN has no fast product of these types on
 * this processor. */
bool loongi_product_support(const loong_product_params_t *params,
                            char reason[LOONG_REASON_SIZE]);

/* Bytes of workspace that run needs; params must be supported. */
size_t loongi_product_workspace(const loong_product_params_t *params);

/* NULL in *product_p when the product is empty. */
LOONG_NODISCARD loong_status_t loongi_product_create(
    loong_context_t *ctx, const loong_product_params_t *params,
    loong_product_t **product_p);
void loongi_product_destroy(loong_context_t *ctx, loong_product_t *product);

typedef struct loong_product_operands {
    const void *a;
    const void *b;
    const void *bias; /* NULL without */
    void *c;
    void *workspace; /* 64-byte aligned */
    int64_t runtime; /* m or k where it is LOONG_PRODUCT_RUNTIME, above 0 */
} loong_product_operands_t;

/* Allocates nothing of ours; oneDNN itself makes a few small allocations. */
LOONG_NODISCARD loong_status_t
loongi_product_run(loong_context_t *ctx, const loong_product_t *product,
                   const loong_product_operands_t *operands);

/* One product twice: it overwrites C, and, where launches may ask for that, it
 * adds to it (NULL where they do not). */
typedef struct loong_product_pair {
    loong_product_t *product[2];
} loong_product_pair_t;

/* Of params without `add`. */
LOONG_NODISCARD loong_status_t loongi_product_pair_create(
    loong_context_t *ctx, const loong_product_params_t *params, bool adds,
    loong_product_pair_t *pair_p);
void loongi_product_pair_destroy(loong_context_t *ctx,
                                 loong_product_pair_t *pair);

#ifdef __cplusplus
}
#endif

#endif
