/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by cuBLASLt: describes one, chooses its algorithm (choose_cuda.c),
 * runs it. Called by the CUDA kernels of linear, head_linear and cross_entropy.
 * Read cublaslt.h and cublaslt_impl.h before. */
#include "cublaslt_impl.h"

/* fp8 wants a scale of each operand, and comes with them. */
static bool is_made(loong_dtype_t dtype)
{
    return dtype == LOONG_BF16 || dtype == LOONG_F32;
}

static cudaDataType_t type_of(loong_dtype_t dtype)
{
    return dtype == LOONG_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* ---- description --------------------------------------------------------- */

#define SET(ctx_, s_, name_, value_)                                          \
    LOONG_LT_TRY(ctx_, (s_)->lib,                                            \
                 MatmulDescSetAttribute((s_)->desc,                           \
                                        CUBLASLT_MATMUL_DESC_##name_,         \
                                        &(value_), sizeof(value_)))

loong_status_t loongi_cublaslt_point(loong_context_t *ctx,
                                     const loong_cublaslt_t *product,
                                     const void *bias, const void *aux)
{
    if (loongi_epilogue_has_bias(product->params.epilogue)) {
        SET(ctx, product, BIAS_POINTER, bias);
    }
    if (loongi_epilogue_has_aux(product->params.epilogue)) {
        SET(ctx, product, EPILOGUE_AUX_POINTER, aux);
    }
    return LOONG_OK;
}

static loong_status_t describe_epilogue(loong_context_t *ctx,
                                        const loong_cublaslt_t *s)
{
    static const uint32_t names[LOONG_EPILOGUE_COUNT] = {
        CUBLASLT_EPILOGUE_DEFAULT,   CUBLASLT_EPILOGUE_BIAS,
        CUBLASLT_EPILOGUE_GELU,      CUBLASLT_EPILOGUE_GELU_BIAS,
        CUBLASLT_EPILOGUE_GELU_AUX,  CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        CUBLASLT_EPILOGUE_DGELU,     CUBLASLT_EPILOGUE_BGRADA,
        CUBLASLT_EPILOGUE_BGRADB};
    const loong_cublaslt_params_t *p = &s->params;
    SET(ctx, s, EPILOGUE, names[p->epilogue]);
    if (loongi_epilogue_has_bias(p->epilogue)) {
        int32_t type = type_of(p->out);
        SET(ctx, s, BIAS_DATA_TYPE, type);
    }
    if (loongi_epilogue_has_aux(p->epilogue)) {
        int32_t type = type_of(p->out);
        SET(ctx, s, EPILOGUE_AUX_DATA_TYPE, type);
        SET(ctx, s, EPILOGUE_AUX_LD, p->ld_aux);
    }
    return LOONG_OK;
}

static loong_status_t describe(loong_context_t *ctx, loong_cublaslt_t *s)
{
    const loong_cublaslt_params_t *p = &s->params;
    bool tf32 = s->params.policy.tf32 && p->in == LOONG_F32;
    int32_t trans[2] = {p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                        p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N};
    LOONG_LT_TRY(ctx, s->lib,
                 MatmulDescCreate(&s->desc,
                                  tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                       : CUBLAS_COMPUTE_32F,
                                  CUDA_R_32F));
    SET(ctx, s, TRANSA, trans[0]);
    SET(ctx, s, TRANSB, trans[1]);
    return describe_epilogue(ctx, s);
}

static loong_status_t set_layout(loong_context_t *ctx,
                                 const loong_cublaslt_t *s, int layout,
                                 cublasLtMatrixLayoutAttribute_t attribute,
                                 const void *value, size_t size)
{
    LOONG_LT_TRY(ctx, s->lib,
                 MatrixLayoutSetAttribute(s->layout[layout], attribute, value,
                                          size));
    return LOONG_OK;
}

static loong_status_t make_layout(loong_context_t *ctx, loong_cublaslt_t *s,
                                  int i, int64_t rows, int64_t cols)
{
    const loong_cublaslt_params_t *p = &s->params;
    const int64_t ld[3] = {p->lda, p->ldb, p->ldc};
    LOONG_LT_TRY(ctx, s->lib,
                 MatrixLayoutCreate(&s->layout[i],
                                    type_of(i < 2 ? p->in : p->out),
                                    (uint64_t)rows, (uint64_t)cols, ld[i]));
    if (p->batch > 0) {
        int32_t batch = 0;
        LOONG_TRY(loongi_to_int(ctx, p->batch, "products of a batch", &batch));
        LOONG_TRY(set_layout(ctx, s, i, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                             &batch, sizeof(batch)));
        LOONG_TRY(set_layout(ctx, s, i,
                             CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                             &p->step[i], sizeof(p->step[i])));
    }
    return LOONG_OK;
}

static loong_status_t make_layouts(loong_context_t *ctx, loong_cublaslt_t *s)
{
    const loong_cublaslt_params_t *p = &s->params;
    LOONG_TRY(make_layout(ctx, s, 0, p->trans_a ? p->k : p->m,
                          p->trans_a ? p->m : p->k));
    LOONG_TRY(make_layout(ctx, s, 1, p->trans_b ? p->n : p->k,
                          p->trans_b ? p->k : p->n));
    LOONG_TRY(make_layout(ctx, s, 2, p->m, p->n));
    s->n = p->n;
    s->k = p->k;
    return LOONG_OK;
}

loong_status_t loongi_cublaslt_create(loong_context_t *ctx,
                                      const loong_cublaslt_params_t *params,
                                      loong_cublaslt_t **product_p)
{
    loong_cublaslt_t *s = NULL;
    loong_status_t status = LOONG_OK;
    LOONG_CHECK(ctx, is_made(params->in) && is_made(params->out),
                LOONG_ERR_UNSUPPORTED,
                "products of cuBLASLt are made of fp32 and bf16, not of %s to "
                "%s", loong_dtype_name(params->in),
                loong_dtype_name(params->out));
    LOONG_TRY(loongi_alloc(ctx, sizeof(*s), "product of cuBLASLt", &s));
    s->params = *params;
    LOONG_TRY_GOTO(loongi_cublaslt_open(ctx, &s->lib, &s->handle), status,
                   err_product);
    LOONG_TRY_GOTO(describe(ctx, s), status, err_product);
    LOONG_TRY_GOTO(make_layouts(ctx, s), status, err_product);
    LOONG_TRY_GOTO(loongi_cublaslt_choose(ctx, s), status, err_product);
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
    const loong_cublaslt_library_t *l = product->lib;
    for (int i = 0; i < 3; i++) {
        if (product->layout[i] != NULL) {
            l->MatrixLayoutDestroy(product->layout[i]);
        }
    }
    if (product->desc != NULL) {
        l->MatmulDescDestroy(product->desc);
    }
    loongi_free(ctx, product);
}

/* ---- running ------------------------------------------------------------- */

static loong_status_t set_size(loong_context_t *ctx, const loong_cublaslt_t *s,
                               int layout, bool rows, int64_t size)
{
    uint64_t value = (uint64_t)size;
    return set_layout(ctx, s, layout,
                      rows ? CUBLASLT_MATRIX_LAYOUT_ROWS
                           : CUBLASLT_MATRIX_LAYOUT_COLS,
                      &value, sizeof(value));
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

/* Makes the layouts those of a launch, and finds what runs them: a size that
 * comes for the first time is asked for, in the place of the oldest one. */
static loong_status_t fit(loong_context_t *ctx, loong_cublaslt_t *s,
                          const loong_cublaslt_operands_t *o,
                          const loong_cublaslt_size_t **size_p)
{
    LOONG_TRY(resize(ctx, s, o->n, o->k));
    for (int i = 0; i < LOONG_CUBLASLT_SIZES; i++) {
        if (s->size[i].n == o->n && s->size[i].k == o->k) {
            *size_p = &s->size[i];
            return LOONG_OK;
        }
    }
    s->replaced = s->replaced % (LOONG_CUBLASLT_SIZES - 1) + 1;
    loong_cublaslt_size_t *size = &s->size[s->replaced];
    size->n = 0; /* until it is found */
    LOONG_TRY(loongi_cublaslt_refit(ctx, s, size));
    *size_p = size;
    return LOONG_OK;
}

int loongi_cublaslt_class(const loong_cublaslt_params_t *params,
                          uintptr_t addresses)
{
    const loong_cublaslt_params_t *p = params;
    size_t in = loong_dtype_size(p->in);
    size_t out = loong_dtype_size(p->out);
    int64_t inputs = p->lda | p->ldb | p->step[0] | p->step[1];
    int64_t outputs = p->ldc | p->step[2] | p->ld_aux;
    return (addresses | (size_t)inputs * in | (size_t)outputs * out) %
                       LOONG_CUBLASLT_WIDE == 0
               ? 0
               : 1;
}

static int class_of(const loong_cublaslt_t *s,
                    const loong_cublaslt_size_t *size,
                    const loong_cublaslt_operands_t *o)
{
    int class = loongi_cublaslt_class(
        &s->params, (uintptr_t)o->a | (uintptr_t)o->b | (uintptr_t)o->c |
                        (uintptr_t)o->bias | (uintptr_t)o->aux);
    return size->found[0] ? class : 1;
}

loong_status_t loongi_cublaslt_can(loong_context_t *ctx,
                                   loong_cublaslt_t *product,
                                   const loong_cublaslt_operands_t *operands,
                                   bool *can_p)
{
    const loong_cublaslt_size_t *size = &product->size[0];
    if (operands == NULL) {
        *can_p = size->found[0] && size->found[1];
        return LOONG_OK;
    }
    LOONG_TRY(fit(ctx, product, operands, &size));
    *can_p = size->found[class_of(product, size, operands)];
    return LOONG_OK;
}

loong_status_t loongi_cublaslt_run(loong_context_t *ctx,
                                   loong_cublaslt_t *product,
                                   const loong_cublaslt_operands_t *operands)
{
    const loong_cublaslt_operands_t *o = operands;
    const loong_cublaslt_size_t *size = NULL;
    const float one = 1.0f;
    const float beta = o->add ? 1.0f : 0.0f;
    LOONG_TRY(fit(ctx, product, o, &size));
    int class = class_of(product, size, o);
    if (!size->found[0] && !size->found[1]) {
        return loongi_cublaslt_none(ctx, product);
    }
    LOONG_CHECK(ctx, size->found[class], LOONG_ERR_UNSUPPORTED,
                "cuBLASLt has no product for operands that do not begin at "
                "multiples of %d bytes", (int)LOONG_CUBLASLT_WIDE);
    LOONG_TRY(loongi_cublaslt_point(ctx, product, o->bias, o->aux));
    LOONG_LT_TRY(ctx, product->lib,
                 Matmul(product->handle, product->desc, &one, o->a,
                        product->layout[0], o->b, product->layout[1], &beta,
                        o->c, product->layout[2], o->c, product->layout[2],
                        &size->algo[class], o->workspace,
                        LOONG_CUBLASLT_WORKSPACE, o->stream));
    return LOONG_OK;
}
