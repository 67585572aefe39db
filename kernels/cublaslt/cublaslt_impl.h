/* SPDX-License-Identifier: Apache-2.0
 *
 * A product of cuBLASLt: library_cuda.c opens the library, cublaslt_cuda.c
 * describes and runs the product, choose_cuda.c chooses its algorithms. */
#ifndef LOONG_CUBLASLT_IMPL_H
#define LOONG_CUBLASLT_IMPL_H

#include <cublasLt.h>

#include "cublaslt.h"

/* X(name after cublasLt): every function that is called. */
#define LOONG_CUBLASLT_FUNCTIONS(X) \
    X(Create)                       \
    X(Destroy)                      \
    X(GetStatusString)              \
    X(GetVersion)                   \
    X(Matmul)                       \
    X(MatmulAlgoCheck)              \
    X(MatmulAlgoGetHeuristic)       \
    X(MatmulDescCreate)             \
    X(MatmulDescDestroy)            \
    X(MatmulDescSetAttribute)       \
    X(MatmulPreferenceCreate)       \
    X(MatmulPreferenceDestroy)      \
    X(MatmulPreferenceSetAttribute) \
    X(MatrixLayoutCreate)           \
    X(MatrixLayoutDestroy)          \
    X(MatrixLayoutSetAttribute)

enum { LOONG_CUBLASLT_DEVICES = 64 };

/* Of a context. A handle belongs to a device. */
typedef struct loong_cublaslt_library {
    cublasLtHandle_t handle[LOONG_CUBLASLT_DEVICES]; /* NULL: none yet */
#define LOONG_CUBLASLT_POINTER(name_) __typeof__(&cublasLt##name_) name_;
    LOONG_CUBLASLT_FUNCTIONS(LOONG_CUBLASLT_POINTER)
#undef LOONG_CUBLASLT_POINTER
} loong_cublaslt_library_t;

/* Operands that all begin, row by row, at multiples of WIDE bytes; others. */
enum {
    LOONG_CUBLASLT_WIDE = 16,
    LOONG_CUBLASLT_CLASSES = 2,
    LOONG_CUBLASLT_SIZES = 8 /* that are remembered */
};

/* Algorithms for one size of launch. */
typedef struct loong_cublaslt_size {
    int64_t n; /* 0: none yet */
    int64_t k;
    bool found[LOONG_CUBLASLT_CLASSES];
    cublasLtMatmulAlgo_t algo[LOONG_CUBLASLT_CLASSES];
} loong_cublaslt_size_t;

struct loong_cublaslt {
    const loong_cublaslt_library_t *lib;
    cublasLtHandle_t handle; /* the library's */
    loong_cublaslt_params_t params;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layout[3]; /* a, b, c */
    int64_t n; /* as the layouts have them */
    int64_t k;
    loong_cublaslt_size_t size[LOONG_CUBLASLT_SIZES]; /* [0]: the largest */
    int replaced; /* of the others, last */
    cublasStatus_t refusal; /* of the last size without an algorithm */
};

#define LOONG_LT_TRY(ctx_, lib_, call_)                                       \
    do {                                                                      \
        cublasStatus_t status_ = (lib_)->call_;                               \
        if (status_ != CUBLAS_STATUS_SUCCESS) {                               \
            return loongi_cublaslt_failed(ctx_, lib_, #call_, status_);       \
        }                                                                     \
    } while (0)

/* ---- library_cuda.c ---- */
/* The context's library, with the handle for the current device. */
LOONG_NODISCARD loong_status_t
loongi_cublaslt_open(loong_context_t *ctx,
                     const loong_cublaslt_library_t **library_p,
                     cublasLtHandle_t *handle_p);
/* LOONG_ERR_DEVICE with the library's reason, and with CUDA's where the device
 * itself is lost. */
LOONG_NODISCARD loong_status_t
loongi_cublaslt_failed(loong_context_t *ctx,
                       const loong_cublaslt_library_t *library,
                       const char *call, cublasStatus_t status);
/* ---- cublaslt_cuda.c and choose_cuda.c ---- */
/* Bias and aux are part of the description. */
LOONG_NODISCARD loong_status_t
loongi_cublaslt_point(loong_context_t *ctx, const loong_cublaslt_t *product,
                      const void *bias, const void *aux);
/* For both classes of the largest size. */
LOONG_NODISCARD loong_status_t
loongi_cublaslt_choose(loong_context_t *ctx, loong_cublaslt_t *product);
/* The same for a smaller one, which the layouts have: the largest one's where
 * the library says that it runs, else the first suggestion. */
LOONG_NODISCARD loong_status_t
loongi_cublaslt_refit(loong_context_t *ctx, loong_cublaslt_t *product,
                      loong_cublaslt_size_t *size);
/* Fails: there is no algorithm for the size that the layouts have. */
LOONG_NODISCARD loong_status_t
loongi_cublaslt_none(loong_context_t *ctx, const loong_cublaslt_t *product);
/* The class of operands that lie at these addresses, or-ed together. */
int loongi_cublaslt_class(const loong_cublaslt_params_t *params,
                          uintptr_t addresses);

static inline bool loongi_epilogue_has_bias(loong_epilogue_t e)
{
    return e == LOONG_EPILOGUE_BIAS || e == LOONG_EPILOGUE_GELU_BIAS ||
           e == LOONG_EPILOGUE_GELU_AUX_BIAS || e == LOONG_EPILOGUE_SUM_A ||
           e == LOONG_EPILOGUE_SUM_B;
}

static inline bool loongi_epilogue_has_aux(loong_epilogue_t e)
{
    return e == LOONG_EPILOGUE_GELU_AUX ||
           e == LOONG_EPILOGUE_GELU_AUX_BIAS || e == LOONG_EPILOGUE_DGELU;
}

#endif
