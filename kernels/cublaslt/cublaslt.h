/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products on a GPU by cuBLASLt: the one place that knows the library.
 * It is loaded when the first product is made, so that neither the start of a
 * program nor a machine without CUDA pays for it. */
#ifndef LOONG_CUBLASLT_H
#define LOONG_CUBLASLT_H

#include "base.h"
#include "loong/dtype.h"
#include "loong/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of workspace of one product: what Hopper's kernels can use. */
#ifndef LOONG_CUBLASLT_WORKSPACE
#define LOONG_CUBLASLT_WORKSPACE (32 * 1024 * 1024)
#endif

typedef struct loong_cublaslt loong_cublaslt_t;

/* What the product itself does with its sums, before it rounds them. */
typedef enum loong_epilogue {
    LOONG_EPILOGUE_NONE,
    LOONG_EPILOGUE_BIAS,          /* c + bias, of each row of c */
    LOONG_EPILOGUE_GELU,          /* tanh form */
    LOONG_EPILOGUE_GELU_BIAS,     /* gelu(c + bias) */
    LOONG_EPILOGUE_GELU_AUX,      /* and aux = c */
    LOONG_EPILOGUE_GELU_AUX_BIAS, /* and aux = c + bias */
    LOONG_EPILOGUE_DGELU,         /* c times the slope of GELU at aux */
    LOONG_EPILOGUE_SUM_A, /* bias = the sums of op(a) over k, [m]; not added */
    LOONG_EPILOGUE_SUM_B, /* bias = the sums of op(b) over k, [n]; not added */
    LOONG_EPILOGUE_COUNT
} loong_epilogue_t;

/* Matrices by columns: c [m,n] (+)= op(a) op(b), op(a) [m,k], op(b) [k,n]. A
 * row-major matrix is its transposed by columns. */
typedef struct loong_cublaslt_params {
    int64_t m, n, k; /* the largest; n or k may be less in a launch */
    bool trans_a;
    bool trans_b;
    loong_dtype_t in; /* of a and b: bf16 or fp32 */
    loong_dtype_t out; /* of c, bias and aux */
    int64_t lda, ldb, ldc;
    int64_t ld_aux;
    int64_t batch;   /* 0: one product */
    int64_t step[3]; /* elements from one a, b, c of the batch to the next */
    loong_epilogue_t epilogue;
    loong_kernel_policy_t policy;
} loong_cublaslt_params_t;

typedef struct loong_cublaslt_operands {
    const void *a;
    const void *b;
    void *c;
    int64_t n; /* of this launch */
    int64_t k;
    bool add; /* to c, before the epilogue */
    void *workspace;
    void *stream;
    const void *bias; /* the sums are written there */
    void *aux;
} loong_cublaslt_operands_t;

static inline loong_cublaslt_params_t
loongi_cublaslt_begin(const loong_kernel_policy_t *policy)
{
    loong_cublaslt_params_t p = {
        0, 0, 0, false, false,     LOONG_F32,           LOONG_F32, 0,
        0, 0, 0, 0,     {0, 0, 0}, LOONG_EPILOGUE_NONE, *policy};
    return p;
}

/* Loads the library, chooses algorithms on the current device, as the policy
 * says; where they are to be measured and are not in the file,
 * takes memory for the operands meanwhile, and waits for the device. Errors:
 * LOONG_ERR_UNSUPPORTED when the library is not found or has no algorithm; with
 * an epilogue it may have none, as loongi_cublaslt_can says then. */
LOONG_NODISCARD loong_status_t
loongi_cublaslt_create(loong_context_t *ctx,
                       const loong_cublaslt_params_t *params,
                       loong_cublaslt_t **product_p);
void loongi_cublaslt_destroy(loong_context_t *ctx, loong_cublaslt_t *product);
/* There is an algorithm for this size and operands that lie so; NULL: for the
 * largest one, wherever they lie. */
LOONG_NODISCARD loong_status_t
loongi_cublaslt_can(loong_context_t *ctx, loong_cublaslt_t *product,
                    const loong_cublaslt_operands_t *operands, bool *can_p);
LOONG_NODISCARD loong_status_t
loongi_cublaslt_run(loong_context_t *ctx, loong_cublaslt_t *product,
                    const loong_cublaslt_operands_t *operands);

#ifdef __cplusplus
}
#endif

#endif
