/* SPDX-License-Identifier: Apache-2.0
 *
 * Primitives, memory objects and threads of oneDNN 2.6 (its C API).
 *
 * oneDNN takes the size of the OpenMP team at creation and at execution from
 * omp_get_max_threads(), so both happen under `threads`. Called by the kernels
 * in *_onednn.c. Read onednn.h before. */
#include "onednn.h"

#include <dnnl.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "isa.h"

enum { MAX_ARGS = 5 };

struct loong_product {
    loong_product_params_t params; /* of a piece, where there are several */
    int64_t m;             /* of all pieces */
    loong_product_t *tail; /* the last piece; NULL: as the others */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    int threads;
    int num_args;
    dnnl_exec_arg_t args[MAX_ARGS];
};

static dnnl_data_type_t data_type(loong_dtype_t dtype)
{
    return dtype == LOONG_BF16 ? dnnl_bf16 : dnnl_f32;
}

static int enter_threads(int threads)
{
    int before = omp_get_max_threads();
    if (before != threads) {
        omp_set_num_threads(threads);
    }
    return before;
}

static void leave_threads(int threads, int before)
{
    if (before != threads) {
        omp_set_num_threads(before);
    }
}

static dnnl_status_t describe(dnnl_memory_desc_t *md, int64_t rows,
                              int64_t cols,
                              const loong_product_matrix_t *matrix)
{
    dnnl_dims_t dims = {
        rows == LOONG_PRODUCT_RUNTIME ? DNNL_RUNTIME_DIM_VAL : rows,
        cols == LOONG_PRODUCT_RUNTIME ? DNNL_RUNTIME_DIM_VAL : cols};
    dnnl_dims_t strides = {matrix->transposed ? 1 : matrix->ld,
                           matrix->transposed ? matrix->ld : 1};
    return dnnl_memory_desc_init_by_strides(md, 2, dims,
                                            data_type(matrix->dtype), strides);
}

/* oneDNN's older GEMM is faster than its default in bf16 in two cases, both
 * measured (docs/performance.md): gradients of weights (A transposed, fp32
 * result), and a sum much longer than the result is wide (gradient of the loss
 * head's input). The choice is a function of what describes the primitive, so
 * it agrees with oneDNN's cache, whose key knows no implementation. */
static bool prefers_gemm(const loong_product_params_t *p)
{
    bool weight =
        p->a.transposed && !p->b.transposed && p->c.dtype == LOONG_F32;
    bool deep = p->k / 8 >= LOONG_MAX(p->m, p->n);
    return p->a.dtype == LOONG_BF16 && !p->bias &&
           p->activation == LOONG_ACT_NONE && (weight || deep);
}

static dnnl_status_t describe_attr(const loong_product_params_t *p,
                                   dnnl_primitive_attr_t *attr_p)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(attr_p);
    if (status == dnnl_success) {
        status = dnnl_primitive_attr_set_scratchpad_mode(
            *attr_p, dnnl_scratchpad_mode_user);
    }
    if (status == dnnl_success) {
        status = dnnl_post_ops_create(&ops);
    }
    if (status == dnnl_success && p->add) {
        status = dnnl_post_ops_append_sum(ops, 1.0f);
    }
    if (status == dnnl_success && p->activation != LOONG_ACT_NONE) {
        status = dnnl_post_ops_append_eltwise(ops, 1.0f,
                                              p->activation == LOONG_ACT_GELU
                                                  ? dnnl_eltwise_gelu_erf
                                                  : dnnl_eltwise_gelu_tanh,
                                              0.0f, 0.0f);
    }
    if (status == dnnl_success) {
        status = dnnl_primitive_attr_set_post_ops(*attr_p, ops);
    }
    dnnl_post_ops_destroy(ops);
    return status;
}

/* The first implementation whose name begins with `name`. */
static dnnl_status_t pick(const dnnl_matmul_desc_t *desc,
                          const_dnnl_primitive_attr_t attr,
                          dnnl_engine_t engine, const char *name,
                          dnnl_primitive_desc_t *pd_p)
{
    dnnl_primitive_desc_iterator_t it = NULL;
    dnnl_status_t status =
        dnnl_primitive_desc_iterator_create(&it, desc, attr, engine, NULL);
    while (status == dnnl_success) {
        const char *found = "";
        dnnl_primitive_desc_t pd = dnnl_primitive_desc_iterator_fetch(it);
        dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &found);
        if (strncmp(found, name, strlen(name)) == 0) {
            *pd_p = pd;
            break;
        }
        dnnl_primitive_desc_destroy(pd);
        status = dnnl_primitive_desc_iterator_next(it);
    }
    dnnl_primitive_desc_iterator_destroy(it);
    return status;
}

static size_t scratch_bytes(const_dnnl_primitive_desc_t pd)
{
    const dnnl_memory_desc_t *md =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    return md != NULL ? dnnl_memory_desc_get_size(md) : 0;
}

static dnnl_status_t make_desc(const loong_product_params_t *p,
                               dnnl_engine_t engine,
                               dnnl_primitive_desc_t *pd_p)
{
    dnnl_memory_desc_t a, b, c, bias;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_dims_t bias_dims = {1, p->n};
    dnnl_status_t status = describe(&a, p->m, p->k, &p->a);
    if (status == dnnl_success) {
        status = describe(&b, p->k, p->n, &p->b);
    }
    if (status == dnnl_success) {
        status = describe(&c, p->m, p->n, &p->c);
    }
    if (status == dnnl_success && p->bias) {
        status = dnnl_memory_desc_init_by_tag(&bias, 2, bias_dims, dnnl_f32,
                                              dnnl_ab);
    }
    if (status == dnnl_success) {
        status =
            dnnl_matmul_desc_init(&desc, &a, &b, p->bias ? &bias : NULL, &c);
    }
    if (status == dnnl_success) {
        status = describe_attr(p, &attr);
    }
    *pd_p = NULL;
    if (status == dnnl_success && prefers_gemm(p)) {
        (void)pick(&desc, attr, engine, "gemm:jit", pd_p);
    }
    if (status == dnnl_success && *pd_p == NULL) {
        status = dnnl_primitive_desc_create(pd_p, &desc, attr, engine, NULL);
    }
    dnnl_primitive_attr_destroy(attr);
    return status;
}

static bool type_support(const loong_product_params_t *p,
                         char reason[LOONG_REASON_SIZE])
{
    bool f32 = p->a.dtype == LOONG_F32 && p->b.dtype == LOONG_F32 &&
               p->c.dtype == LOONG_F32;
    bool bf16 = p->a.dtype == LOONG_BF16 && p->b.dtype == LOONG_BF16 &&
                (p->c.dtype == LOONG_BF16 || p->c.dtype == LOONG_F32);
    if (!f32 && !bf16) {
        snprintf(reason, LOONG_REASON_SIZE, "no product %s x %s -> %s",
                 loong_dtype_name(p->a.dtype), loong_dtype_name(p->b.dtype),
                 loong_dtype_name(p->c.dtype));
        return false;
    }
    return f32 || loongi_isa_support(LOONG_ISA_LEVEL_avx512_bf16, reason);
}

static bool is_empty(const loong_product_params_t *p)
{
    return p->m == 0 || p->n == 0;
}

/* What oneDNN says of a product. Layers are alike, so a plan asks the same
 * again and again, a fifth of its time: the last answers are kept. */
typedef struct answer {
    loong_product_params_t params;
    bool is_known, ok;
    size_t bytes; /* of workspace */
} answer_t;

enum { ANSWERS = 64 };

static bool same_matrix(const loong_product_matrix_t *a,
                        const loong_product_matrix_t *b)
{
    return a->dtype == b->dtype && a->ld == b->ld &&
           a->transposed == b->transposed;
}

static bool same_product(const loong_product_params_t *p,
                         const loong_product_params_t *q)
{
    return p->m == q->m && p->n == q->n && p->k == q->k &&
           same_matrix(&p->a, &q->a) && same_matrix(&p->b, &q->b) &&
           same_matrix(&p->c, &q->c) && p->bias == q->bias &&
           p->add == q->add && p->activation == q->activation &&
           p->threads == q->threads;
}

static size_t slot_of(const loong_product_params_t *p)
{
    const int64_t of[] = {p->m, p->n, p->k, p->a.transposed, p->b.transposed,
                          p->add};
    uint64_t hash = 0;
    for (int i = 0; i < LOONG_COUNT_OF(of); i++) {
        hash = (hash ^ (uint64_t)of[i]) * 0x9e3779b97f4a7c15u;
    }
    return hash >> 32 & (ANSWERS - 1);
}

static const answer_t *ask(const loong_product_params_t *params)
{
    static _Thread_local answer_t answers[ANSWERS];
    answer_t *answer = &answers[slot_of(params)];
    dnnl_engine_t engine = NULL;
    dnnl_primitive_desc_t pd = NULL;
    if (answer->is_known && same_product(&answer->params, params)) {
        return answer;
    }
    int before = enter_threads(params->threads);
    bool ok = dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success &&
              make_desc(params, engine, &pd) == dnnl_success;
    leave_threads(params->threads, before);
    *answer = (answer_t){*params, true, ok, ok ? scratch_bytes(pd) : 0};
    dnnl_primitive_desc_destroy(pd);
    dnnl_engine_destroy(engine);
    return answer;
}

bool loongi_product_support(const loong_product_params_t *params,
                            char reason[LOONG_REASON_SIZE])
{
    if (!type_support(params, reason)) {
        return false;
    }
    if (params->k == 0) {
        snprintf(reason, LOONG_REASON_SIZE, "inner dimension is 0");
        return false;
    }
    if (is_empty(params)) {
        return true;
    }
    bool ok = ask(params)->ok;
    if (!ok) {
        snprintf(reason, LOONG_REASON_SIZE, "oneDNN has no such product");
    }
    return ok;
}

static bool is_runtime(const loong_product_params_t *p)
{
    return p->m == LOONG_PRODUCT_RUNTIME || p->k == LOONG_PRODUCT_RUNTIME;
}

/* ---- pieces -------------------------------------------------------------- */

/* Where rows have gaps, oneDNN makes a bf16 result in fp32 first: all of it,
 * once a thread. Beyond so many bytes a product of little depth is made in
 * pieces of rows, in half the time (docs/performance.md); deeper ones would be
 * slower, for each piece packs B. */
#define PIECE_BYTES ((int64_t)4 << 20)
enum { PIECE_DEPTH = 256, PIECE_STEP = 64 };

/* All rows where the product is made at once. */
static int64_t piece_rows(const loong_product_params_t *p)
{
    int64_t bytes = is_empty(p) || is_runtime(p) ? 0 : (int64_t)ask(p)->bytes;
    if (p->c.dtype != LOONG_BF16 || p->k > PIECE_DEPTH ||
        bytes <= PIECE_BYTES) {
        return p->m;
    }
    int64_t rows = PIECE_BYTES / (bytes / p->m) / PIECE_STEP * PIECE_STEP;
    return LOONG_MIN(LOONG_MAX(rows, (int64_t)PIECE_STEP), p->m);
}

static loong_product_params_t piece_of(const loong_product_params_t *p,
                                       int64_t rows)
{
    loong_product_params_t piece = *p;
    piece.m = rows;
    return piece;
}

/* The rows behind the last whole piece. */
static loong_product_params_t tail_of(const loong_product_params_t *p,
                                      int64_t rows)
{
    return piece_of(p, rows > 0 ? p->m % rows : 0);
}

size_t loongi_product_workspace(const loong_product_params_t *params)
{
    int64_t rows = piece_rows(params);
    loong_product_params_t piece = piece_of(params, rows);
    loong_product_params_t tail = tail_of(params, rows);
    size_t most = is_empty(&piece) ? 0 : ask(&piece)->bytes;
    size_t last = is_empty(&tail) ? 0 : ask(&tail)->bytes;
    return LOONG_MAX(most, last);
}

/* ---- primitives ---------------------------------------------------------- */

static dnnl_status_t add_memory(loong_product_t *product,
                                const_dnnl_primitive_desc_t pd,
                                dnnl_query_t what, int arg)
{
    const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, what, 0);
    dnnl_exec_arg_t *slot = &product->args[product->num_args];
    slot->arg = arg;
    dnnl_status_t status = dnnl_memory_create(
        &slot->memory, md, product->engine, DNNL_MEMORY_NONE);
    product->num_args += status == dnnl_success;
    return status;
}

/* Operands in the order in which run binds them; those of a size that comes
 * with the launch are made there. */
static dnnl_status_t build(loong_product_t *product,
                           const loong_product_params_t *p)
{
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = dnnl_engine_create(&product->engine, dnnl_cpu, 0);
    if (status == dnnl_success) {
        status = dnnl_stream_create(&product->stream, product->engine,
                                    dnnl_stream_default_flags);
    }
    if (status == dnnl_success) {
        status = make_desc(p, product->engine, &pd);
    }
    if (status == dnnl_success) {
        status = dnnl_primitive_create(&product->primitive, pd);
    }
    if (status != dnnl_success || is_runtime(p)) {
        dnnl_primitive_desc_destroy(pd);
        return status;
    }
    status = add_memory(product, pd, dnnl_query_src_md, DNNL_ARG_SRC);
    if (status == dnnl_success) {
        status =
            add_memory(product, pd, dnnl_query_weights_md, DNNL_ARG_WEIGHTS);
    }
    if (status == dnnl_success) {
        status = add_memory(product, pd, dnnl_query_dst_md, DNNL_ARG_DST);
    }
    if (status == dnnl_success) {
        status = add_memory(product, pd, dnnl_query_scratchpad_md,
                            DNNL_ARG_SCRATCHPAD);
    }
    if (status == dnnl_success && p->bias) {
        const dnnl_memory_desc_t *md =
            dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 1);
        dnnl_exec_arg_t *slot = &product->args[product->num_args];
        slot->arg = DNNL_ARG_BIAS;
        status = dnnl_memory_create(&slot->memory, md, product->engine,
                                    DNNL_MEMORY_NONE);
        product->num_args += status == dnnl_success;
    }
    dnnl_primitive_desc_destroy(pd);
    return status;
}

static loong_status_t create(loong_context_t *ctx,
                             const loong_product_params_t *params,
                             loong_product_t **product_p)
{
    loong_product_t *product = NULL;
    if (is_empty(params)) {
        *product_p = NULL;
        return LOONG_OK;
    }
    LOONG_TRY(loongi_alloc(ctx, sizeof(*product), "product", &product));
    product->params = *params;
    product->threads = params->threads;
    int before = enter_threads(params->threads);
    dnnl_status_t status = build(product, params);
    leave_threads(params->threads, before);
    if (status != dnnl_success) {
        loongi_product_destroy(ctx, product);
        return LOONG_FAIL(ctx,
                          status == dnnl_out_of_memory ? LOONG_ERR_MEMORY
                                                       : LOONG_ERR_DEVICE,
                          "oneDNN cannot make the product [%lld,%lld] x "
                          "[%lld,%lld] of %s: status %d",
                          (long long)params->m, (long long)params->k,
                          (long long)params->k, (long long)params->n,
                          loong_dtype_name(params->a.dtype), (int)status);
    }
    *product_p = product;
    return LOONG_OK;
}

loong_status_t loongi_product_create(loong_context_t *ctx,
                                     const loong_product_params_t *params,
                                     loong_product_t **product_p)
{
    int64_t rows = piece_rows(params);
    loong_product_params_t piece = piece_of(params, rows);
    loong_product_params_t tail = tail_of(params, rows);
    loong_product_t *product = NULL;
    LOONG_TRY(create(ctx, &piece, &product));
    if (product != NULL) {
        product->m = params->m;
        loong_status_t status = create(ctx, &tail, &product->tail);
        if (status != LOONG_OK) {
            loongi_product_destroy(ctx, product);
            return status;
        }
    }
    *product_p = product;
    return LOONG_OK;
}

void loongi_product_destroy(loong_context_t *ctx, loong_product_t *product)
{
    if (product == NULL) {
        return;
    }
    loongi_product_destroy(ctx, product->tail);
    for (int i = 0; i < product->num_args; i++) {
        dnnl_memory_destroy(product->args[i].memory);
    }
    dnnl_primitive_destroy(product->primitive);
    dnnl_stream_destroy(product->stream);
    dnnl_engine_destroy(product->engine);
    loongi_free(ctx, product);
}

static dnnl_status_t execute(const loong_product_t *product, int num_args,
                             const dnnl_exec_arg_t *args)
{
    int before = enter_threads(product->threads);
    dnnl_status_t status = dnnl_primitive_execute(
        product->primitive, product->stream, num_args, args);
    if (status == dnnl_success) {
        status = dnnl_stream_wait(product->stream);
    }
    leave_threads(product->threads, before);
    return status;
}

/* The pointer without its const: oneDNN has one kind of memory. */
static void *pointer_of(const void *handle)
{
    void *pointer;
    memcpy(&pointer, &handle, sizeof(pointer));
    return pointer;
}

/* With memory objects of this launch's size. */
static dnnl_status_t run_sized(const loong_product_t *product,
                               const loong_product_operands_t *o)
{
    enum { OPERANDS = 3 };
    const loong_product_params_t *p = &product->params;
    int64_t m = p->m == LOONG_PRODUCT_RUNTIME ? o->runtime : p->m;
    int64_t k = p->k == LOONG_PRODUCT_RUNTIME ? o->runtime : p->k;
    dnnl_memory_desc_t md[OPERANDS];
    dnnl_exec_arg_t args[OPERANDS] = {
        {DNNL_ARG_SRC, NULL}, {DNNL_ARG_WEIGHTS, NULL}, {DNNL_ARG_DST, NULL}};
    const void *handle[OPERANDS] = {o->a, o->b, o->c};
    dnnl_status_t status = describe(&md[0], m, k, &p->a);
    if (status == dnnl_success) {
        status = describe(&md[1], k, p->n, &p->b);
    }
    if (status == dnnl_success) {
        status = describe(&md[2], m, p->n, &p->c);
    }
    for (int i = 0; i < OPERANDS && status == dnnl_success; i++) {
        status = dnnl_memory_create(&args[i].memory, &md[i], product->engine,
                                    pointer_of(handle[i]));
    }
    if (status == dnnl_success) {
        status = execute(product, OPERANDS, args);
    }
    for (int i = 0; i < OPERANDS; i++) {
        dnnl_memory_destroy(args[i].memory);
    }
    return status;
}

static dnnl_status_t run_bound(const loong_product_t *product,
                               const loong_product_operands_t *o)
{
    const void *handle[MAX_ARGS] = {o->a, o->b, o->c, o->workspace, o->bias};
    for (int i = 0; i < product->num_args; i++) {
        dnnl_status_t status = dnnl_memory_set_data_handle(
            product->args[i].memory, pointer_of(handle[i]));
        if (status != dnnl_success) {
            return status;
        }
    }
    return execute(product, product->num_args, product->args);
}

static dnnl_status_t run_pieces(const loong_product_t *product,
                                const loong_product_operands_t *o)
{
    const loong_product_params_t *p = &product->params;
    size_t step =
        loong_dtype_size(p->a.dtype) *
        (size_t)(p->a.transposed ? 1 : p->a.ld);
    dnnl_status_t status = dnnl_success;
    loong_product_operands_t piece = *o;
    for (int64_t i = 0; i < product->m && status == dnnl_success; i += p->m) {
        piece.a = (const char *)o->a + (size_t)i * step;
        piece.c = (char *)o->c +
                  (size_t)(i * p->c.ld) * loong_dtype_size(p->c.dtype);
        status = run_bound(product->m - i < p->m ? product->tail : product,
                           &piece);
    }
    return status;
}

loong_status_t loongi_product_run(loong_context_t *ctx,
                                  const loong_product_t *product,
                                  const loong_product_operands_t *operands)
{
    if (product == NULL) {
        return LOONG_OK;
    }
    dnnl_status_t status = is_runtime(&product->params)
                               ? run_sized(product, operands)
                               : run_pieces(product, operands);
    LOONG_CHECK(ctx, status == dnnl_success, LOONG_ERR_DEVICE,
                "oneDNN failed to run a product: status %d", (int)status);
    return LOONG_OK;
}

/* ---- pairs --------------------------------------------------------------- */

loong_status_t loongi_product_pair_create(loong_context_t *ctx,
                                          const loong_product_params_t *params,
                                          bool adds,
                                          loong_product_pair_t *pair_p)
{
    loong_product_pair_t pair = {{NULL, NULL}};
    loong_product_params_t adding = *params;
    adding.add = true;
    LOONG_TRY(loongi_product_create(ctx, params, &pair.product[0]));
    loong_status_t status =
        adds ? loongi_product_create(ctx, &adding, &pair.product[1])
             : LOONG_OK;
    if (status != LOONG_OK) {
        loongi_product_pair_destroy(ctx, &pair);
        return status;
    }
    *pair_p = pair;
    return LOONG_OK;
}

void loongi_product_pair_destroy(loong_context_t *ctx,
                                 loong_product_pair_t *pair)
{
    for (int i = 0; i < 2; i++) {
        loongi_product_destroy(ctx, pair->product[i]);
        pair->product[i] = NULL;
    }
}
