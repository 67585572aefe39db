/* SPDX-License-Identifier: Apache-2.0
 *
 * linear, linear_dw and head_linear by libxpu_blas, which has cuBLAS's names:
 * sums in fp32, as asked for. What comes with a bias, an activation, two types
 * or rows of nobody is the shim's. The formulas stand in linear_ref.c and
 * head_ref.c; entered by launch_xpu.c. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "loong/device.h"
#include "loong/latent.h"
#include "loong/ops.h"
#include "slots.h"
#include "xpu_kernels.h"
#include "xpu_library.h"

enum { DEVICES = 64 }; /* of a process, the runtime's most */

/* Matrices by columns: c [m,n] (+)= op(a) op(b); a matrix by rows is its
 * transposed by columns. Operands by number. */
typedef struct product {
    int a, b, c;
    bool trans_a, trans_b;
    int64_t m, n, k;
    int64_t lda, ldb, ldc;
    int64_t batch; /* 0: one product */
    int64_t step[3];
    int64_t first; /* row of the table where head 0 begins */
} product_t;

static bool is(const loong_kernel_query_t *q, const char *op)
{
    return strcmp(q->op, op) == 0;
}

static product_t linear_of(const loong_kernel_query_t *q)
{
    const loong_linear_attr_t *attr = q->attr;
    const loong_karg_t *y = &q->arg[q->num_in];
    product_t p = {1,
                   0,
                   q->num_in,
                   !attr->transposed,
                   false,
                   loong_karg_cols(y),
                   loong_karg_rows(&q->arg[0]),
                   loong_karg_cols(&q->arg[0]),
                   q->arg[1].ld,
                   q->arg[0].ld,
                   y->ld,
                   0,
                   {0, 0, 0},
                   0};
    return p;
}

static product_t linear_dw_of(const loong_kernel_query_t *q)
{
    const loong_linear_attr_t *attr = q->attr;
    int a = attr->transposed ? 0 : 1;
    product_t p = {a,
                   1 - a,
                   2,
                   false,
                   true,
                   loong_karg_cols(&q->arg[a]),
                   loong_karg_cols(&q->arg[1 - a]),
                   loong_karg_rows(&q->arg[0]),
                   q->arg[a].ld,
                   q->arg[1 - a].ld,
                   q->arg[2].ld,
                   0,
                   {0, 0, 0},
                   0};
    return p;
}

/* The heads are one batch. */
static product_t head_linear_of(const loong_kernel_query_t *q)
{
    const loong_head_linear_attr_t *attr = q->attr;
    product_t p = {1,
                   0,
                   2,
                   !attr->transposed,
                   false,
                   loong_karg_cols(&q->arg[2]),
                   loong_karg_rows(&q->arg[0]) / attr->heads,
                   loong_karg_cols(&q->arg[0]),
                   q->arg[1].ld,
                   q->arg[0].ld * attr->heads,
                   q->arg[2].ld * attr->heads,
                   attr->heads,
                   {q->arg[1].ld * attr->stride, q->arg[0].ld, q->arg[2].ld},
                   attr->first};
    return p;
}

static product_t product_of(const loong_kernel_query_t *q)
{
    return is(q, "linear")      ? linear_of(q)
           : is(q, "linear_dw") ? linear_dw_of(q)
                                : head_linear_of(q);
}

/* ---- what is taken ------------------------------------------------------- */

bool loongi_xpu_has_blas(char reason[LOONG_REASON_SIZE])
{
    char why[LOONG_XPU_REASON] = "";
    loong_xpu_library_t lib;
    bool has = loongi_xpu_load(&lib, why, sizeof(why)) &&
               lib.blas_handle != NULL;
    if (!has) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "libxpu_blas.so cannot be used, loongrun --doctor says why");
    }
    return has;
}

static bool is_plain(const loong_kernel_query_t *q)
{
    const loong_linear_attr_t *attr = q->attr;
    return !is(q, "linear") ||
           (attr->activation == LOONG_ACT_NONE &&
            (q->num_in < 3 || q->arg[2].rank == 0) &&
            (q->num_out < 2 || q->arg[q->num_in + 1].rank == 0));
}

static bool support(const loong_kernel_query_t *q,
                    char reason[LOONG_REASON_SIZE])
{
    product_t p = product_of(q);
    loong_dtype_t in = q->arg[p.a].dtype;
    loong_dtype_t out = q->arg[p.c].dtype;
    int64_t most = LOONG_MAX(LOONG_MAX(p.m, p.n), p.k);
    most = LOONG_MAX(most, LOONG_MAX(p.lda, LOONG_MAX(p.ldb, p.ldc)));
    if (!is_plain(q)) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "with a bias or an activation, which libxpu_blas has not");
    } else if ((in != LOONG_F32 && in != LOONG_BF16) ||
               (out != LOONG_F32 && out != in) || q->arg[p.b].dtype != in) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "%s times %s to %s, libxpu_blas takes fp32 or bf16, and makes "
                 "that or fp32",
                 loong_dtype_name(in), loong_dtype_name(q->arg[p.b].dtype),
                 loong_dtype_name(out));
    } else if (most > INT_MAX) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "a size of %lld, libxpu_blas counts up to %d", (long long)most,
                 INT_MAX);
    } else {
        return loongi_xpu_has_blas(reason);
    }
    return false;
}

/* ---- handles ------------------------------------------------------------- */

/* One for each device of the context. */
typedef struct handles {
    loong_xpu_library_t lib; /* a copy: the context's may end before */
    void *handle[DEVICES];
} handles_t;

static void destroy_handles(loong_context_t *ctx, void *data)
{
    handles_t *h = data;
    (void)ctx;
    for (int i = 0; i < DEVICES; i++) {
        if (h->handle[i] != NULL) {
            int before = loongi_xpu_select(&h->lib, i);
            (void)h->lib.blas.Destroy(h->handle[i]);
            loongi_xpu_restore(&h->lib, i, before);
        }
    }
    free(h);
}

/* It is a part of the context, and so none of the memory that the context
 * counts. */
static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *query, void **state_p)
{
    const loong_xpu_library_t *lib = NULL;
    (void)query;
    LOONG_TRY(loongi_xpu_library(ctx, &lib));
    loong_slot_t *slot = loongi_context_slot(ctx, "XPU products");
    if (slot->data == NULL) {
        handles_t *h = calloc(1, sizeof(*h));
        LOONG_CHECK(ctx, h != NULL, LOONG_ERR_MEMORY,
                    "cannot allocate %zu bytes for libxpu_blas", sizeof(*h));
        h->lib = *lib;
        slot->data = h;
        slot->destroy = destroy_handles;
    }
    *state_p = slot->data;
    return LOONG_OK;
}

/* They are the context's. */
static void destroy(loong_context_t *ctx, void *state)
{
    (void)ctx;
    (void)state;
}

/* ---- launch -------------------------------------------------------------- */

static int code_of(loong_dtype_t dtype)
{
    return dtype == LOONG_BF16 ? LOONG_XPU_BLAS_BF16 : LOONG_XPU_BLAS_F32;
}

static char *operand(const loong_kernel_call_t *call, const product_t *p, int i)
{
    const loong_karg_t *arg = &call->query->arg[i];
    int64_t first = i == p->a ? p->first : 0;
    return (char *)call->ptr[i] +
           (size_t)(first * arg->ld) * loong_dtype_size(arg->dtype);
}

static int multiply(const loong_kernel_call_t *call, const handles_t *h,
                    void *handle, const product_t *p)
{
    const loong_karg_t *arg = call->query->arg;
    const float one = 1.0f;
    const float add = (call->accumulate & 1u) != 0 ? 1.0f : 0.0f;
    int type[3] = {code_of(arg[p->a].dtype), code_of(arg[p->b].dtype),
                   code_of(arg[p->c].dtype)};
    int op[2] = {p->trans_a ? LOONG_XPU_BLAS_T : LOONG_XPU_BLAS_N,
                 p->trans_b ? LOONG_XPU_BLAS_T : LOONG_XPU_BLAS_N};
    const void *a = operand(call, p, p->a);
    const void *b = operand(call, p, p->b);
    void *c = operand(call, p, p->c);
    if (p->batch > 0) {
        return h->lib.blas.GemmStridedBatchedEx(
            handle, op[0], op[1], (int)p->m, (int)p->n, (int)p->k, &one, a,
            type[0], (int)p->lda, p->step[0], b, type[1], (int)p->ldb,
            p->step[1], &add, c, type[2], (int)p->ldc, p->step[2],
            (int)p->batch, LOONG_XPU_BLAS_COMPUTE_F32, LOONG_XPU_BLAS_ALGO);
    }
    return h->lib.blas.GemmEx(
        handle, op[0], op[1], (int)p->m, (int)p->n, (int)p->k, &one, a, type[0],
        (int)p->lda, b, type[1], (int)p->ldb, &add, c, type[2], (int)p->ldc,
        LOONG_XPU_BLAS_COMPUTE_F32, LOONG_XPU_BLAS_ALGO);
}

/* A sum of nothing, which no product is asked for. */
static loong_status_t clear(const loong_kernel_call_t *call, const product_t *p)
{
    const loong_karg_t *c = &call->query->arg[p->c];
    size_t size = loong_dtype_size(c->dtype);
    for (int64_t r = 0; r < loong_karg_rows(c); r++) {
        LOONG_TRY(loong_device_fill(
            call->device, (char *)call->ptr[p->c] + (size_t)(r * c->ld) * size,
            0, (size_t)loong_karg_cols(c) * size));
    }
    return LOONG_OK;
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    handles_t *h = call->state;
    product_t p = product_of(call->query);
    int index = loong_device_index(call->device);
    LOONG_CHECK(call->ctx, index < DEVICES, LOONG_ERR_UNSUPPORTED,
                "xpu:%d: at most %d devices of a process are used", index,
                (int)DEVICES);
    if (p.m == 0 || p.n == 0 || (call->load && h->handle[index] != NULL)) {
        return LOONG_OK;
    }
    if (p.k == 0 && !call->load) {
        return (call->accumulate & 1u) != 0 ? LOONG_OK : clear(call, &p);
    }
    int before = loongi_xpu_select(&h->lib, index);
    int error = 0;
    if (h->handle[index] == NULL) {
        error = h->lib.blas.Create(&h->handle[index]);
    }
    if (error == 0 && !call->load) {
        error = h->lib.blas.SetStream(h->handle[index], call->stream);
    }
    if (error == 0 && !call->load) {
        error = multiply(call, h, h->handle[index], &p);
    }
    loongi_xpu_restore(&h->lib, index, before);
    LOONG_CHECK(call->ctx, error == 0, LOONG_ERR_DEVICE,
                "xpu:%d: %s of m %lld, n %lld, k %lld by libxpu_blas: %d",
                index, call->query->op, (long long)p.m, (long long)p.n,
                (long long)p.k, error);
    return LOONG_OK;
}

#define LOONG_XPU_PRODUCT(op_)                                        \
    static const loong_kernel_t op_##_xblas = {.name = #op_ "_xblas", \
                                               .op = #op_,            \
                                               .device = "xpu",       \
                                               .support = support,    \
                                               .prepare = prepare,    \
                                               .destroy = destroy,    \
                                               .run = run};
LOONG_XPU_PRODUCT(linear)
LOONG_XPU_PRODUCT(linear_dw)
LOONG_XPU_PRODUCT(head_linear)

const loong_kernel_t *const loongi_xpu_products[] = {
    &linear_xblas, &linear_dw_xblas, &head_linear_xblas, NULL};
