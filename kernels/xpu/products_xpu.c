/* SPDX-License-Identifier: Apache-2.0
 *
 * linear, linear_dw, head_linear and head_linear_dw by libxpu_blas, which has
 * cuBLAS's names: sums in fp32, as asked for. A bias and an activation are the
 * shim's, behind the product; of operands of two types the narrow one is
 * widened before. Both go by chunks of rows. The formulas stand in linear_ref.c
 * and head_ref.c; entered by launch_xpu.c. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "loong/device.h"
#include "loong/latent.h"
#include "loong/ops.h"
#include "parts_xpu.h"
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
    int64_t
        first; /* row where head 0 begins, of a, or of c of head_linear_dw */
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

/* Rows first .. of each head of dw; the others are not its own. */
static product_t head_linear_dw_of(const loong_kernel_query_t *q)
{
    const loong_head_linear_attr_t *attr = q->attr;
    int left = attr->transposed ? 1 : 0; /* its channels are rows of dw */
    int64_t wide = loong_karg_cols(&q->arg[2]);
    const loong_karg_t *rows = &q->arg[left];
    const loong_karg_t *cols = &q->arg[1 - left];
    product_t p = {1 - left,
                   left,
                   2,
                   false,
                   true,
                   wide,
                   attr->count,
                   loong_karg_rows(&q->arg[0]) / attr->heads,
                   cols->ld * attr->heads,
                   rows->ld * attr->heads,
                   q->arg[2].ld,
                   attr->heads,
                   {cols->ld, rows->ld, q->arg[2].ld * attr->stride},
                   attr->first};
    return p;
}

static product_t product_of(const loong_kernel_query_t *q)
{
    return is(q, "linear")        ? linear_of(q)
           : is(q, "linear_dw")   ? linear_dw_of(q)
           : is(q, "head_linear") ? head_linear_of(q)
                                  : head_linear_dw_of(q);
}

/* ---- what is taken ------------------------------------------------------- */

bool loongi_xpu_has_blas(char reason[LOONG_REASON_SIZE])
{
    char why[LOONG_XPU_REASON] = "";
    loong_xpu_library_t lib;
    bool has =
        loongi_xpu_load(&lib, why, sizeof(why)) && lib.blas_handle != NULL;
    if (!has) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "libxpu_blas.so cannot be used, loongrun --doctor says why");
    }
    return has;
}

/* What is done beside a product of one type, by the shim. */
typedef struct extras {
    bool bias;  /* z + bias, an activation, the value before it */
    int narrow; /* this operand is widened; -1: none */
    bool sums;  /* z has a place of its own: y is narrow */
} extras_t;

static extras_t extras_of(const loong_kernel_query_t *q)
{
    const loong_linear_attr_t *attr = q->attr;
    bool linear = is(q, "linear");
    bool dw = is(q, "linear_dw");
    extras_t e = {linear &&
                      (attr->activation != LOONG_ACT_NONE ||
                       (q->num_in > 2 && q->arg[2].rank > 0) ||
                       (q->num_out > 1 && q->arg[q->num_in + 1].rank > 0)),
                  -1, false};
    int wide = linear ? 1 : 0;
    if ((linear || dw) && q->arg[wide].dtype == LOONG_F32 &&
        q->arg[1 - wide].dtype == LOONG_BF16) {
        e.narrow = 1 - wide;
    }
    e.sums = e.bias && q->arg[q->num_in].dtype != LOONG_F32;
    return e;
}

static bool shim_has(const char *op, const char *what,
                     char reason[LOONG_REASON_SIZE])
{
    char why[LOONG_XPU_REASON];
    const loong_xpu_shim_t *shim = loongi_xpu_shim(why, sizeof(why));
    if (shim == NULL || !shim->has(op)) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "%s, which libxpu_blas has not, and this kernel shim has no "
                 "%s for",
                 what, op);
        return false;
    }
    return true;
}

static bool support(const loong_kernel_query_t *q,
                    char reason[LOONG_REASON_SIZE])
{
    product_t p = product_of(q);
    extras_t e = extras_of(q);
    loong_dtype_t in = e.narrow >= 0 ? LOONG_F32 : q->arg[p.a].dtype;
    loong_dtype_t other = e.narrow >= 0 ? LOONG_F32 : q->arg[p.b].dtype;
    loong_dtype_t out = q->arg[p.c].dtype;
    int64_t most = LOONG_MAX(LOONG_MAX(p.m, p.n), p.k);
    most = LOONG_MAX(most, LOONG_MAX(p.lda, LOONG_MAX(p.ldb, p.ldc)));
    if ((in != LOONG_F32 && in != LOONG_BF16) ||
        (out != LOONG_F32 && out != in) || other != in) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "%s times %s to %s, libxpu_blas takes fp32 or bf16, and makes "
                 "that or fp32",
                 loong_dtype_name(in), loong_dtype_name(other),
                 loong_dtype_name(out));
    } else if (most > INT_MAX) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "a size of %lld, libxpu_blas counts up to %d", (long long)most,
                 INT_MAX);
    } else {
        return (!e.bias ||
                shim_has("bias", "with a bias or an activation", reason)) &&
               (e.narrow < 0 || shim_has("cast", "of two types", reason)) &&
               loongi_xpu_has_blas(reason);
    }
    return false;
}

/* Columns that a row of a launch has in the workspace. */
static int64_t spare_columns(const loong_kernel_query_t *q)
{
    extras_t e = extras_of(q);
    return (e.sums ? loong_karg_cols(&q->arg[q->num_in]) : 0) +
           (e.narrow >= 0 ? loong_karg_cols(&q->arg[e.narrow]) : 0);
}

/* Rows of a chunk. */
static int64_t chunk_of(const loong_kernel_query_t *q)
{
    int64_t cols = LOONG_MAX(spare_columns(q), 1);
    int64_t rows = LOONG_MAX(loongi_xpu_part_elements() / cols, 1);
    return LOONG_MIN(rows, loong_karg_rows(&q->arg[0]));
}

static size_t workspace(const loong_kernel_query_t *q)
{
    return sizeof(float) * (size_t)(chunk_of(q) * spare_columns(q));
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
static loong_status_t take_handles(loong_context_t *ctx, handles_t **handles_p)
{
    const loong_xpu_library_t *lib = NULL;
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
    *handles_p = slot->data;
    return LOONG_OK;
}

typedef struct state {
    handles_t *handles; /* the context's */
    void *bias, *cast;  /* the shim's */
} state_t;

static void destroy(loong_context_t *ctx, void *state)
{
    state_t *s = state;
    if (s != NULL) {
        loongi_xpu_raw.destroy(ctx, s->bias);
        loongi_xpu_raw.destroy(ctx, s->cast);
    }
    loongi_free(ctx, s);
}

static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *query, void **state_p)
{
    extras_t e = extras_of(query);
    state_t *s = NULL;
    LOONG_TRY(loongi_calloc(ctx, 1, sizeof(*s), "product", &s));
    loong_status_t status = take_handles(ctx, &s->handles);
    if (status == LOONG_OK && e.bias) {
        status = loongi_xpu_prepare_raw(ctx, "bias", &s->bias);
    }
    if (status == LOONG_OK && e.narrow >= 0) {
        status = loongi_xpu_prepare_raw(ctx, "cast", &s->cast);
    }
    if (status != LOONG_OK) {
        destroy(ctx, s);
        return status;
    }
    *state_p = s;
    return LOONG_OK;
}

/* ---- launch -------------------------------------------------------------- */

static int code_of(loong_dtype_t dtype)
{
    return dtype == LOONG_BF16 ? LOONG_XPU_BLAS_BF16 : LOONG_XPU_BLAS_F32;
}

static char *operand(const loong_kernel_call_t *call, const product_t *p, int i)
{
    const loong_karg_t *arg = &call->query->arg[i];
    bool dw = is(call->query, "head_linear_dw");
    int64_t first = i == (dw ? p->c : p->a) ? p->first : 0;
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

/* Of operands of one type. */
static loong_status_t run_plain(const loong_kernel_call_t *call, handles_t *h)
{
    product_t p = product_of(call->query);
    int index = loong_device_index(call->device);
    LOONG_CHECK(call->ctx, index < DEVICES, LOONG_ERR_UNSUPPORTED,
                "xpu:%d: at most %d devices of a process are used", index,
                (int)DEVICES);
    if (p.m == 0 || p.n == 0 || (call->load && h->handle[index] != NULL)) {
        return LOONG_OK;
    }
    if (p.k == 0 && !call->load) { /* a sum of nothing is not asked for */
        loong_xpu_mat_t c = loongi_xpu_rows(
            call, p.c, 0, loong_karg_rows(&call->query->arg[p.c]));
        return (call->accumulate & 1u) != 0 ? LOONG_OK
                                            : loongi_xpu_clear(call, &c);
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

/* Rows [first, first + rows) of linear or linear_dw, as a product of one type
 * into sums, and what comes behind it. */
static loong_status_t run_chunk(const loong_kernel_call_t *call,
                                const extras_t *e, int64_t first, int64_t rows)
{
    const loong_kernel_query_t *q = call->query;
    const state_t *s = call->state;
    bool dw = is(q, "linear_dw");
    int64_t cols = loong_karg_cols(&q->arg[q->num_in]);
    float *room = call->workspace;
    loong_xpu_mat_t m[3] = {
        loongi_xpu_rows(call, 0, first, rows),
        loongi_xpu_rows(call, 1, dw ? first : 0,
                        dw ? rows : loong_karg_rows(&q->arg[1])),
        loongi_xpu_rows(call, q->num_in, dw ? 0 : first,
                        dw ? loong_karg_rows(&q->arg[q->num_in]) : rows)};
    if (e->narrow >= 0) {
        int64_t own = loong_karg_cols(&m[e->narrow].arg);
        loong_xpu_part_t cast = {&loongi_xpu_raw, s->cast, "cast", NULL, 1, 1};
        loong_xpu_mat_t of[2] = {
            m[e->narrow], loongi_xpu_mat(LOONG_F32, rows, own, own, room)};
        LOONG_TRY(loongi_xpu_launch(call, &cast, of, false));
        m[e->narrow] = of[1];
        room += rows * own;
    }
    loong_xpu_mat_t y = m[2];
    if (e->sums) {
        m[2] = loongi_xpu_mat(LOONG_F32, rows, cols, cols, room);
    }
    loong_linear_attr_t attr = *(const loong_linear_attr_t *)q->attr;
    attr.activation = LOONG_ACT_NONE;
    loong_xpu_part_t product = {
        loongi_xpu_product(q->op), call->state, NULL, &attr, 2, 1};
    LOONG_TRY(loongi_xpu_launch(
        call, &product, m, (call->accumulate & 1u) != 0 || (dw && first > 0)));
    if (!e->bias) {
        return LOONG_OK;
    }
    bool biased = q->num_in > 2 && call->ptr[2] != NULL;
    bool kept = q->num_out > 1 && call->ptr[q->num_in + 1] != NULL;
    loong_xpu_mat_t none = loongi_xpu_mat_none();
    loong_xpu_mat_t of[4] = {
        m[2], biased ? loongi_xpu_rows(call, 2, 0, cols) : none, y,
        kept ? loongi_xpu_rows(call, q->num_in + 1, first, rows) : none};
    loong_xpu_part_t bias = {&loongi_xpu_raw, s->bias, "bias", q->attr, 2, 2};
    return loongi_xpu_launch(call, &bias, of, false);
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const state_t *s = call->state;
    extras_t e = extras_of(q);
    int64_t all = loong_karg_rows(&q->arg[0]);
    int64_t chunk = chunk_of(q);
    if (!e.bias && e.narrow < 0) {
        return run_plain(call, s->handles);
    }
    if (all == 0 && is(q, "linear_dw")) {
        return run_chunk(call, &e, 0, 0);
    }
    for (int64_t first = 0; first < all; first += chunk) {
        LOONG_TRY(run_chunk(call, &e, first, LOONG_MIN(chunk, all - first)));
    }
    return LOONG_OK;
}

/* What head_linear_dw leaves of dw: the rows that are of no product. */
static loong_status_t run_head_dw(const loong_kernel_call_t *call)
{
    const loong_head_linear_attr_t *attr = call->query->attr;
    const loong_karg_t *dw = &call->query->arg[2];
    bool all = attr->count == attr->stride;
    if (!all && (call->accumulate & 1u) == 0 && !call->load) {
        loong_xpu_mat_t m = loongi_xpu_rows(call, 2, 0, loong_karg_rows(dw));
        LOONG_TRY(loongi_xpu_clear(call, &m));
    }
    return run(call);
}

#define LOONG_XPU_PRODUCT(op_, run_)                                   \
    static const loong_kernel_t op_##_xblas = {.name = #op_ "_xblas",  \
                                               .op = #op_,             \
                                               .device = "xpu",        \
                                               .support = support,     \
                                               .workspace = workspace, \
                                               .prepare = prepare,     \
                                               .destroy = destroy,     \
                                               .run = run_};
LOONG_XPU_PRODUCT(linear, run)
LOONG_XPU_PRODUCT(linear_dw, run)
LOONG_XPU_PRODUCT(head_linear, run)
LOONG_XPU_PRODUCT(head_linear_dw, run_head_dw)

const loong_kernel_t *const loongi_xpu_products[] = {&linear_xblas,
                                                     &linear_dw_xblas,
                                                     &head_linear_xblas,
                                                     &head_linear_dw_xblas,
                                                     &loongi_xpu_grouped,
                                                     &loongi_xpu_grouped_dw,
                                                     NULL};
