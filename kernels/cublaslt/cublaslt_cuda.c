/* SPDX-License-Identifier: Apache-2.0 */
#include "cublaslt.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <string.h>

/* X(name after cublasLt): every function that is called. */
#define FUNCTIONS(X)             \
    X(Create)                    \
    X(Destroy)                   \
    X(GetStatusString)           \
    X(Matmul)                    \
    X(MatmulAlgoGetHeuristic)    \
    X(MatmulDescCreate)          \
    X(MatmulDescDestroy)         \
    X(MatmulDescSetAttribute)    \
    X(MatmulPreferenceCreate)    \
    X(MatmulPreferenceDestroy)   \
    X(MatmulPreferenceSetAttribute) \
    X(MatrixLayoutCreate)        \
    X(MatrixLayoutDestroy)       \
    X(MatrixLayoutSetAttribute)

typedef struct library {
    void *handle;
#define POINTER(name_) __typeof__(&cublasLt##name_) name_;
    FUNCTIONS(POINTER)
#undef POINTER
} library_t;

/* Operands that all begin, row by row, at multiples of this. */
enum { WIDE = 16, CLASSES = 2 };

struct loong_cublaslt {
    library_t lib;
    loong_cublaslt_params_t params;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layout[3]; /* a, b, c */
    int64_t n; /* as the layouts have them */
    int64_t k;
    /* For operands at multiples of WIDE bytes, and for others. */
    bool found[CLASSES];
    cublasLtMatmulAlgo_t algo[CLASSES];
};

#define LT_TRY(ctx_, lib_, call_)                                             \
    do {                                                                      \
        cublasStatus_t status_ = (lib_)->call_;                               \
        LOONG_CHECK(ctx_, status_ == CUBLAS_STATUS_SUCCESS, LOONG_ERR_DEVICE, \
                    "cublasLt%s: %s", #call_,                                 \
                    (lib_)->GetStatusString(status_));                        \
    } while (0)

static loong_status_t load(loong_context_t *ctx, library_t *lib)
{
    static const char *const places[] = {"libcublasLt.so.13",
                                         LOONG_CUBLASLT_LIBRARY};
    for (int i = 0; i < LOONG_COUNT_OF(places) && lib->handle == NULL; i++) {
        lib->handle = dlopen(places[LOONG_COUNT_OF(places) - 1 - i],
                             RTLD_NOW | RTLD_LOCAL);
    }
    LOONG_CHECK(ctx, lib->handle != NULL, LOONG_ERR_UNSUPPORTED,
                "matrix products need cuBLASLt: %s", dlerror());
#define LOAD(name_)                                                           \
    *(void **)(void *)&lib->name_ = dlsym(lib->handle, "cublasLt" #name_);    \
    LOONG_CHECK(ctx, lib->name_ != NULL, LOONG_ERR_UNSUPPORTED,               \
                "%s has no cublasLt" #name_, places[0]);
    FUNCTIONS(LOAD)
#undef LOAD
    return LOONG_OK;
}

static cudaDataType_t type_of(loong_dtype_t dtype)
{
    return dtype == LOONG_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static loong_status_t make_layouts(loong_context_t *ctx, loong_cublaslt_t *s)
{
    const loong_cublaslt_params_t *p = &s->params;
    const library_t *l = &s->lib;
    int32_t trans[2] = {p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                        p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N};
    LT_TRY(ctx, l,
           MatmulDescCreate(&s->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    LT_TRY(ctx, l, MatmulDescSetAttribute(s->desc, CUBLASLT_MATMUL_DESC_TRANSA,
                                          &trans[0], sizeof(trans[0])));
    LT_TRY(ctx, l, MatmulDescSetAttribute(s->desc, CUBLASLT_MATMUL_DESC_TRANSB,
                                          &trans[1], sizeof(trans[1])));
    LT_TRY(ctx, l,
           MatrixLayoutCreate(&s->layout[0], type_of(p->in),
                              (uint64_t)(p->trans_a ? p->k : p->m),
                              (uint64_t)(p->trans_a ? p->m : p->k), p->lda));
    LT_TRY(ctx, l,
           MatrixLayoutCreate(&s->layout[1], type_of(p->in),
                              (uint64_t)(p->trans_b ? p->n : p->k),
                              (uint64_t)(p->trans_b ? p->k : p->n), p->ldb));
    LT_TRY(ctx, l, MatrixLayoutCreate(&s->layout[2], type_of(p->out),
                                      (uint64_t)p->m, (uint64_t)p->n, p->ldc));
    s->n = p->n;
    s->k = p->k;
    return LOONG_OK;
}

/* The library's first choice for operands at multiples of `bytes`. */
static loong_status_t choose(loong_context_t *ctx, loong_cublaslt_t *s,
                             cublasLtMatmulPreference_t wish, int class,
                             uint32_t bytes)
{
    static const cublasLtMatmulPreferenceAttributes_t place[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const library_t *l = &s->lib;
    cublasLtMatmulHeuristicResult_t result;
    size_t room = LOONG_CUBLASLT_WORKSPACE;
    int count = 0;
    LT_TRY(ctx, l, MatmulPreferenceSetAttribute(
                       wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room,
                       sizeof(room)));
    for (int i = 0; i < LOONG_COUNT_OF(place); i++) {
        LT_TRY(ctx, l, MatmulPreferenceSetAttribute(wish, place[i], &bytes,
                                                    sizeof(bytes)));
    }
    cublasStatus_t status = l->MatmulAlgoGetHeuristic(
        s->handle, s->desc, s->layout[0], s->layout[1], s->layout[2],
        s->layout[2], wish, 1, &result, &count);
    s->found[class] = status == CUBLAS_STATUS_SUCCESS && count > 0;
    if (s->found[class]) {
        s->algo[class] = result.algo;
    }
    return LOONG_OK;
}

static loong_status_t choose_all(loong_context_t *ctx, loong_cublaslt_t *s)
{
    const loong_cublaslt_params_t *p = &s->params;
    const library_t *l = &s->lib;
    cublasLtMatmulPreference_t wish = NULL;
    LT_TRY(ctx, l, MatmulPreferenceCreate(&wish));
    loong_status_t status = choose(ctx, s, wish, 0, WIDE);
    if (status == LOONG_OK) {
        status = choose(ctx, s, wish, 1,
                        (uint32_t)loong_dtype_size(p->in));
    }
    l->MatmulPreferenceDestroy(wish);
    LOONG_TRY(status);
    LOONG_CHECK(ctx, s->found[0] || s->found[1], LOONG_ERR_UNSUPPORTED,
                "cuBLASLt has no product of %s to %s for m %lld, n %lld, k "
                "%lld, strides %lld, %lld, %lld",
                loong_dtype_name(p->in), loong_dtype_name(p->out),
                (long long)p->m, (long long)p->n, (long long)p->k,
                (long long)p->lda, (long long)p->ldb, (long long)p->ldc);
    return LOONG_OK;
}

loong_status_t loongi_cublaslt_create(loong_context_t *ctx,
                                      const loong_cublaslt_params_t *params,
                                      loong_cublaslt_t **product_p)
{
    loong_cublaslt_t *s = NULL;
    loong_status_t status = LOONG_OK;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*s), "product of cuBLASLt", &s));
    s->params = *params;
    LOONG_TRY_GOTO(load(ctx, &s->lib), status, err_product);
    if (s->lib.Create(&s->handle) != CUBLAS_STATUS_SUCCESS) {
        s->handle = NULL;
        status = LOONG_FAIL(ctx, LOONG_ERR_DEVICE, "cublasLtCreate failed");
        goto err_product;
    }
    LOONG_TRY_GOTO(make_layouts(ctx, s), status, err_product);
    LOONG_TRY_GOTO(choose_all(ctx, s), status, err_product);
    *product_p = s;
    return LOONG_OK;
err_product:
    loongi_cublaslt_destroy(ctx, s);
    return status;
}

void loongi_cublaslt_destroy(loong_context_t *ctx, loong_cublaslt_t *product)
{
    if (product == NULL) {
        return;
    }
    const library_t *l = &product->lib;
    for (int i = 0; i < 3; i++) {
        if (product->layout[i] != NULL) {
            l->MatrixLayoutDestroy(product->layout[i]);
        }
    }
    if (product->desc != NULL) {
        l->MatmulDescDestroy(product->desc);
    }
    if (product->handle != NULL) {
        l->Destroy(product->handle);
    }
    if (l->handle != NULL) {
        dlclose(l->handle);
    }
    loongi_free(ctx, product);
}

/* ---- running ------------------------------------------------------------- */

static loong_status_t set_size(loong_context_t *ctx, loong_cublaslt_t *s,
                               int layout, bool rows, int64_t size)
{
    uint64_t value = (uint64_t)size;
    LT_TRY(ctx, &s->lib,
           MatrixLayoutSetAttribute(s->layout[layout],
                                    rows ? CUBLASLT_MATRIX_LAYOUT_ROWS
                                         : CUBLASLT_MATRIX_LAYOUT_COLS,
                                    &value, sizeof(value)));
    return LOONG_OK;
}

static loong_status_t resize(loong_context_t *ctx, loong_cublaslt_t *s,
                             int64_t n, int64_t k)
{
    const loong_cublaslt_params_t *p = &s->params;
    if (n != s->n) {
        LOONG_TRY(set_size(ctx, s, 1, p->trans_b, n));
        LOONG_TRY(set_size(ctx, s, 2, false, n));
    }
    if (k != s->k) {
        LOONG_TRY(set_size(ctx, s, 0, p->trans_a, k));
        LOONG_TRY(set_size(ctx, s, 1, !p->trans_b, k));
    }
    s->n = n;
    s->k = k;
    return LOONG_OK;
}

static bool is_wide(const loong_cublaslt_t *s,
                    const loong_cublaslt_operands_t *o)
{
    const loong_cublaslt_params_t *p = &s->params;
    size_t in = loong_dtype_size(p->in);
    size_t out = loong_dtype_size(p->out);
    return ((uintptr_t)o->a | (uintptr_t)o->b | (uintptr_t)o->c |
            (uintptr_t)((size_t)p->lda * in) |
            (uintptr_t)((size_t)p->ldb * in) |
            (uintptr_t)((size_t)p->ldc * out)) %
               WIDE ==
           0;
}

loong_status_t loongi_cublaslt_run(loong_context_t *ctx,
                                   loong_cublaslt_t *product,
                                   const loong_cublaslt_operands_t *operands)
{
    const loong_cublaslt_operands_t *o = operands;
    const float one = 1.0f;
    const float beta = o->add ? 1.0f : 0.0f;
    int class = product->found[0] && is_wide(product, o) ? 0 : 1;
    LOONG_CHECK(ctx, product->found[class], LOONG_ERR_UNSUPPORTED,
                "cuBLASLt has no product for operands that do not begin at "
                "multiples of %d bytes", (int)WIDE);
    LOONG_TRY(resize(ctx, product, o->n, o->k));
    LT_TRY(ctx, &product->lib,
           Matmul(product->handle, product->desc, &one, o->a,
                  product->layout[0], o->b, product->layout[1], &beta, o->c,
                  product->layout[2], o->c, product->layout[2],
                  &product->algo[class], o->workspace,
                  LOONG_CUBLASLT_WORKSPACE, o->stream));
    return LOONG_OK;
}
