/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products on a GPU by cuBLASLt: the one place that knows the library.
 * It is loaded when the first product is made, so that neither the start of a
 * program nor a machine without CUDA pays for it. */
#ifndef LOONG_CUBLASLT_H
#define LOONG_CUBLASLT_H

#include "base.h"
#include "loong/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of workspace of one product: what Hopper's kernels can use. */
#ifndef LOONG_CUBLASLT_WORKSPACE
#define LOONG_CUBLASLT_WORKSPACE (32 * 1024 * 1024)
#endif

typedef struct loong_cublaslt loong_cublaslt_t;

/* Matrices by columns: c [m,n] (+)= op(a) op(b), op(a) [m,k], op(b) [k,n]. A
 * row-major matrix is its transposed by columns. */
typedef struct loong_cublaslt_params {
    int64_t m, n, k; /* the largest; n or k may be less in a launch */
    bool trans_a;
    bool trans_b;
    loong_dtype_t in; /* of a and b: bf16 or fp32 */
    loong_dtype_t out;
    int64_t lda, ldb, ldc;
} loong_cublaslt_params_t;

typedef struct loong_cublaslt_operands {
    const void *a;
    const void *b;
    void *c;
    int64_t n; /* of this launch */
    int64_t k;
    bool add; /* to c */
    void *workspace;
    void *stream;
} loong_cublaslt_operands_t;

/* Loads the library, chooses algorithms on the current device. Errors:
 * LOONG_ERR_UNSUPPORTED when the library is not found or has no algorithm. */
LOONG_NODISCARD loong_status_t
loongi_cublaslt_create(loong_context_t *ctx,
                       const loong_cublaslt_params_t *params,
                       loong_cublaslt_t **product_p);
void loongi_cublaslt_destroy(loong_context_t *ctx, loong_cublaslt_t *product);
LOONG_NODISCARD loong_status_t
loongi_cublaslt_run(loong_context_t *ctx, loong_cublaslt_t *product,
                    const loong_cublaslt_operands_t *operands);

#ifdef __cplusplus
}
#endif

#endif
