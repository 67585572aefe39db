/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention as a graph of cuDNN. It takes no operation of that name: engines
 * are found by the pattern of products, sums and pointwise operations, which
 * therefore is as cudnn-frontend makes it. Tensors are [segments, heads, rows
 * of a segment, channels]; shapes of scores [segments, heads, rows, rows]. With
 *
 *     s = scale q k'        lse = ln sum exp(s)        p = exp(s - lse)
 *
 * the forward is o = p v, and the gradient, with e = do o summed by rows,
 *
 *     dv = p' do      ds = scale p (do v' - e)      dk = ds' q      dq = ds k
 *
 * Query heads that share a key head have dk and dv each; these are added up.
 * dq is made by a product with nothing added to memory: that is what asks for
 * the same bits in every run. Called by
 * kernels/attention/attention_cudnn_cuda.c. Read cudnn_attention.h and
 * cudnn_graph.h before. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cudnn_attention.h"
#include "cudnn_graph.h"

/* Numbers that graphs take from the host. */
typedef enum value { SCALE, MASKED, WINDOW, ONE, VALUES } value_t;

/* What a tensor in memory is at a run. */
typedef struct binding {
    int64_t id;
    enum { OPERAND, BEGIN, LENGTHS, VALUE, SUMS } kind;
    int index;
} binding_t;
enum { MOST_BINDINGS = 2 * LOONG_CUDNN_OPERANDS + VALUES + 3 };

struct loong_cudnn_attention {
    loong_cudnn_t *cudnn;
    cudnnBackendDescriptor_t plan;
    int64_t plan_bytes;
    int64_t sum_bytes; /* e, behind the plan's workspace */
    float value[VALUES];
    int num_bindings;
    binding_t binding[MOST_BINDINGS];
};

/* A graph under construction. */
typedef struct sketch {
    loong_cudnn_graph_t g;
    const loong_cudnn_attention_params_t *p;
    loong_cudnn_attention_t *a;
    int operand[LOONG_CUDNN_OPERANDS];
    int begin[LOONG_CUDNN_OPERANDS];
    int lengths[2]; /* of queries, of keys */
    int value[VALUES];
} sketch_t;

static void bind(sketch_t *s, int tensor, int kind, int index)
{
    loong_cudnn_attention_t *a = s->a;
    if (tensor >= 0) {
        binding_t b = {LOONG_CUDNN_ID(tensor), OPERAND, index};
        memcpy(&b.kind, &kind, sizeof(b.kind));
        a->binding[a->num_bindings++] = b;
    }
}

/* ---- tensors ------------------------------------------------------------- */

/* One number, or segment lengths. */
static int vector(sketch_t *s, cudnnDataType_t type, int64_t n)
{
    loong_cudnn_tensor_t t = {type, LOONG_CUDNN_MEMORY, {n, 1, 1, 1},
                              {1, 1, 1, 1}, LOONG_CUDNN_NONE, NULL};
    return loongi_cudnn_tensor(&s->g, &t);
}

static int value(sketch_t *s, value_t v)
{
    if (s->value[v] < 0) {
        s->value[v] = loongi_cudnn_value(&s->g, CUDNN_DATA_FLOAT);
        bind(s, s->value[v], VALUE, v);
    }
    return s->value[v];
}

static loong_cudnn_tensor_t describe(sketch_t *s, loong_cudnn_operand_t o)
{
    const loong_cudnn_attention_params_t *p = s->p;
    bool keys = o == LOONG_CUDNN_K || o == LOONG_CUDNN_V ||
                o == LOONG_CUDNN_DK || o == LOONG_CUDNN_DV;
    bool values = o == LOONG_CUDNN_V || o == LOONG_CUDNN_O ||
                  o == LOONG_CUDNN_GRAD_O || o == LOONG_CUDNN_DV;
    int64_t d = values ? p->v_head_dim : p->head_dim;
    loong_cudnn_tensor_t t = {
        CUDNN_DATA_BFLOAT16,
        LOONG_CUDNN_MEMORY,
        {p->segments, keys ? p->kv_heads : p->heads, p->length, d},
        {p->length * p->ld[o], d, p->ld[o], 1},
        LOONG_CUDNN_NONE,
        NULL};
    if (o == LOONG_CUDNN_LSE) {
        int64_t length = loongi_cudnn_attention_lse_length(p);
        t.type = CUDNN_DATA_FLOAT;
        t.dim[3] = 1;
        t.stride[1] = p->dense ? length : 1;
        t.stride[2] = p->dense ? 1 : p->ld[o];
        t.stride[0] = p->dense ? p->heads * length : p->length * p->ld[o];
    }
    return t;
}

static void swap(int64_t v[4])
{
    int64_t of_rows = v[2];
    v[2] = v[3];
    v[3] = of_rows;
}

/* `transposed`: channels before rows. */
static void operand(sketch_t *s, loong_cudnn_operand_t o, bool transposed)
{
    loong_cudnn_tensor_t t = describe(s, o);
    if (transposed) {
        swap(t.dim);
        swap(t.stride);
    }
    s->begin[o] = LOONG_CUDNN_NONE;
    if (!s->p->dense) {
        s->begin[o] = vector(s, CUDNN_DATA_INT64, s->p->segments + 1);
        bind(s, s->begin[o], BEGIN, (int)o);
        t.ragged = s->begin[o];
    }
    s->operand[o] = loongi_cudnn_tensor(&s->g, &t);
    bind(s, s->operand[o], OPERAND, (int)o);
}

static void lengths(sketch_t *s)
{
    for (int side = 0; side < 2; side++) {
        s->lengths[side] = LOONG_CUDNN_NONE;
        if (!s->p->dense) {
            s->lengths[side] = vector(s, CUDNN_DATA_INT32, s->p->segments);
            bind(s, s->lengths[side], LENGTHS, 0);
        }
    }
}

/* [segments, heads, rows, d] between operations. */
static int per_query(sketch_t *s, int64_t d)
{
    const loong_cudnn_attention_params_t *p = s->p;
    loong_cudnn_tensor_t t = {CUDNN_DATA_FLOAT,
                              LOONG_CUDNN_VIRTUAL,
                              {p->segments, p->heads, p->length, d},
                              {p->heads * p->length * d, p->length * d, d, 1},
                              LOONG_CUDNN_NONE,
                              NULL};
    return loongi_cudnn_tensor(&s->g, &t);
}

/* ---- scores -------------------------------------------------------------- */

static int point(sketch_t *s, cudnnPointwiseMode_t mode, cudnnDataType_t type,
                 int x, int b)
{
    loong_cudnn_pointwise_t op = {mode, type, x, b, LOONG_CUDNN_NONE, -1};
    int y = loongi_cudnn_like(&s->g, x, type);
    loongi_cudnn_pointwise(&s->g, &op, y);
    return y;
}

/* The row (axis 2) or column (3) of each score. */
static int number(sketch_t *s, int scores, int axis, cudnnDataType_t math)
{
    loong_cudnn_pointwise_t op = {CUDNN_POINTWISE_GEN_INDEX, math, scores,
                                  LOONG_CUDNN_NONE, LOONG_CUDNN_NONE, axis};
    int y = loongi_cudnn_like(&s->g, scores, CUDNN_DATA_INT32);
    loongi_cudnn_pointwise(&s->g, &op, y);
    return y;
}

/* Scores where `seen`, else minus infinity. */
static int select_seen(sketch_t *s, int scores, int seen)
{
    loong_cudnn_pointwise_t op = {CUDNN_POINTWISE_BINARY_SELECT,
                                  CUDNN_DATA_FLOAT, scores, value(s, MASKED),
                                  seen, -1};
    int y = loongi_cudnn_like(&s->g, scores, CUDNN_DATA_FLOAT);
    loongi_cudnn_pointwise(&s->g, &op, y);
    return y;
}

/* Within the segment. */
static int mask_lengths(sketch_t *s, int scores)
{
    if (s->p->dense) {
        return scores;
    }
    int row = number(s, scores, 2, CUDNN_DATA_INT32);
    int column = number(s, scores, 3, CUDNN_DATA_INT32);
    int rows = point(s, CUDNN_POINTWISE_CMP_LT, CUDNN_DATA_BOOLEAN, row,
                     s->lengths[0]);
    int columns = point(s, CUDNN_POINTWISE_CMP_LT, CUDNN_DATA_BOOLEAN, column,
                        s->lengths[1]);
    int both = point(s, CUDNN_POINTWISE_LOGICAL_AND, CUDNN_DATA_BOOLEAN, rows,
                     columns);
    return select_seen(s, scores, both);
}

/* Not behind the query, and in its window. */
static int mask_band(sketch_t *s, int scores)
{
    if (s->p->causal) {
        int row = number(s, scores, 2, CUDNN_DATA_FLOAT);
        int column = number(s, scores, 3, CUDNN_DATA_FLOAT);
        scores = select_seen(s, scores,
                             point(s, CUDNN_POINTWISE_CMP_GE,
                                   CUDNN_DATA_BOOLEAN, row, column));
    }
    if (s->p->window > 0) {
        int row = number(s, scores, 2, CUDNN_DATA_FLOAT);
        int column = number(s, scores, 3, CUDNN_DATA_FLOAT);
        int last = loongi_cudnn_binary(&s->g, CUDNN_POINTWISE_ADD, column,
                                       value(s, WINDOW));
        scores = select_seen(s, scores,
                             point(s, CUDNN_POINTWISE_CMP_GT,
                                   CUDNN_DATA_BOOLEAN, last, row));
    }
    return scores;
}

/* scale q k', masks not yet. */
static int scores_of(sketch_t *s)
{
    loong_cudnn_sizes_t sizes = {s->lengths[0], s->lengths[1],
                                 LOONG_CUDNN_NONE};
    int y = per_query(s, s->p->length);
    loongi_cudnn_matmul(&s->g, s->operand[LOONG_CUDNN_Q],
                        s->operand[LOONG_CUDNN_K], y, &sizes);
    return loongi_cudnn_binary(&s->g, CUDNN_POINTWISE_MUL, y,
                               value(s, SCALE));
}

/* ---- forward ------------------------------------------------------------- */

static void forward(sketch_t *s)
{
    loong_cudnn_graph_t *g = &s->g;
    lengths(s);
    operand(s, LOONG_CUDNN_Q, false);
    operand(s, LOONG_CUDNN_K, true);
    operand(s, LOONG_CUDNN_V, false);
    operand(s, LOONG_CUDNN_O, false);
    loong_cudnn_sizes_t sizes = {s->lengths[0], LOONG_CUDNN_NONE,
                                 s->lengths[1]};
    int x = mask_band(s, mask_lengths(s, scores_of(s)));
    int top = loongi_cudnn_column(g, x);
    loongi_cudnn_reduce(g, CUDNN_REDUCE_TENSOR_MAX, x, top);
    x = loongi_cudnn_binary(g, CUDNN_POINTWISE_SUB, x, top);
    x = loongi_cudnn_unary(g, CUDNN_POINTWISE_EXP, x);
    int sum = loongi_cudnn_column(g, x);
    loongi_cudnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, x, sum);
    operand(s, LOONG_CUDNN_LSE, false);
    int log_sum = loongi_cudnn_unary(g, CUDNN_POINTWISE_LOG, sum);
    loong_cudnn_pointwise_t add = {CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, top,
                                   log_sum, LOONG_CUDNN_NONE, -1};
    loongi_cudnn_pointwise(g, &add, s->operand[LOONG_CUDNN_LSE]);
    int p = loongi_cudnn_like(g, x, CUDNN_DATA_BFLOAT16);
    loong_cudnn_pointwise_t op = {CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, x,
                                  sum, LOONG_CUDNN_NONE, -1};
    loongi_cudnn_pointwise(g, &op, p);
    loongi_cudnn_matmul(g, p, s->operand[LOONG_CUDNN_V],
                        s->operand[LOONG_CUDNN_O], &sizes);
}

/* ---- gradient ------------------------------------------------------------ */

/* e, which stays in memory: two of the engine's kernels read it. */
static int sum_products(sketch_t *s)
{
    loong_cudnn_graph_t *g = &s->g;
    const loong_cudnn_attention_params_t *p = s->p;
    loong_cudnn_pointwise_t op = {CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT,
                                  s->operand[LOONG_CUDNN_GRAD_O],
                                  s->operand[LOONG_CUDNN_O], LOONG_CUDNN_NONE,
                                  -1};
    int products = per_query(s, p->v_head_dim);
    loongi_cudnn_pointwise(g, &op, products);
    int sum = per_query(s, 1);
    loongi_cudnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, products, sum);
    loong_cudnn_tensor_t t = describe(s, LOONG_CUDNN_LSE);
    t.ragged = s->begin[LOONG_CUDNN_LSE];
    int kept = loongi_cudnn_tensor(g, &t);
    bind(s, kept, SUMS, 0);
    loong_cudnn_pointwise_t keep = {CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT,
                                    sum, value(s, ONE), LOONG_CUDNN_NONE, -1};
    loongi_cudnn_pointwise(g, &keep, kept);
    return kept;
}

/* x' in bf16. */
static int turn(sketch_t *s, int x)
{
    const loong_cudnn_attention_params_t *p = s->p;
    int64_t n = p->length;
    loong_cudnn_tensor_t t = {CUDNN_DATA_BFLOAT16,
                              LOONG_CUDNN_VIRTUAL,
                              {p->segments, p->heads, n, n},
                              {p->heads * n * n, n * n, 1, n},
                              LOONG_CUDNN_NONE,
                              NULL};
    int y = loongi_cudnn_tensor(&s->g, &t);
    loongi_cudnn_reshape(&s->g, x, y);
    return y;
}

/* y = x b over the queries; one for each query head, added up to those of
 * keys. */
static void over_queries(sketch_t *s, int x, int b, loong_cudnn_operand_t y)
{
    const loong_cudnn_attention_params_t *p = s->p;
    loong_cudnn_sizes_t sizes = {s->lengths[1], LOONG_CUDNN_NONE,
                                 s->lengths[0]};
    int each = s->operand[y];
    if (p->heads != p->kv_heads) {
        loong_cudnn_tensor_t t = describe(s, y);
        t.dim[1] = p->heads;
        t.place = LOONG_CUDNN_VIRTUAL;
        t.stride[0] = p->heads * p->length * t.dim[3];
        t.stride[1] = p->length * t.dim[3];
        t.stride[2] = t.dim[3];
        each = loongi_cudnn_tensor(&s->g, &t);
    }
    loongi_cudnn_matmul(&s->g, x, b, each, &sizes);
    if (p->heads != p->kv_heads) {
        loongi_cudnn_reduce(&s->g, CUDNN_REDUCE_TENSOR_ADD, each,
                            s->operand[y]);
    }
}

/* k as it lies in memory; the operand has channels before rows. */
static int keys_again(sketch_t *s)
{
    loong_cudnn_tensor_t t = describe(s, LOONG_CUDNN_K);
    t.place = LOONG_CUDNN_VIRTUAL;
    t.ragged = s->begin[LOONG_CUDNN_K];
    int y = loongi_cudnn_tensor(&s->g, &t);
    loongi_cudnn_reshape(&s->g, s->operand[LOONG_CUDNN_K], y);
    return y;
}

static void gradient(sketch_t *s)
{
    loong_cudnn_graph_t *g = &s->g;
    lengths(s);
    for (int o = 0; o < LOONG_CUDNN_OPERANDS; o++) {
        operand(s, (loong_cudnn_operand_t)o,
                o == LOONG_CUDNN_K || o == LOONG_CUDNN_V);
    }
    const int *o = s->operand;
    int e = sum_products(s);
    int x = mask_lengths(s, scores_of(s));
    x = loongi_cudnn_binary(g, CUDNN_POINTWISE_SUB, x, o[LOONG_CUDNN_LSE]);
    int p = loongi_cudnn_unary(g, CUDNN_POINTWISE_EXP, mask_band(s, x));
    over_queries(s, turn(s, p), o[LOONG_CUDNN_GRAD_O], LOONG_CUDNN_DV);
    loong_cudnn_sizes_t sizes = {s->lengths[0], s->lengths[1],
                                 LOONG_CUDNN_NONE};
    int ds = per_query(s, s->p->length);
    loongi_cudnn_matmul(g, o[LOONG_CUDNN_GRAD_O], o[LOONG_CUDNN_V], ds,
                        &sizes);
    ds = loongi_cudnn_binary(g, CUDNN_POINTWISE_SUB, ds, e);
    ds = loongi_cudnn_binary(g, CUDNN_POINTWISE_MUL, ds, p);
    ds = loongi_cudnn_binary(g, CUDNN_POINTWISE_MUL, ds, value(s, SCALE));
    over_queries(s, turn(s, ds), o[LOONG_CUDNN_Q], LOONG_CUDNN_DK);
    loong_cudnn_sizes_t by_keys = {s->lengths[0], LOONG_CUDNN_NONE,
                                   s->lengths[1]};
    loongi_cudnn_matmul(g, ds, keys_again(s), o[LOONG_CUDNN_DQ], &by_keys);
}

/* ---- plans --------------------------------------------------------------- */

enum { PLAN_ALIGN = 256 };

static int64_t sum_bytes(const loong_cudnn_attention_params_t *p)
{
    int64_t sums = p->dense ? p->segments * p->heads *
                                  loongi_cudnn_attention_lse_length(p)
                            : p->rows * p->ld[LOONG_CUDNN_LSE];
    return p->gradient ? sums * (int64_t)sizeof(float) : 0;
}

/* Member by member: what stands between them does not survive a copy. */
bool loongi_cudnn_attention_is_alike(const loong_cudnn_attention_params_t *a,
                                     const loong_cudnn_attention_params_t *b)
{
    bool alike = a->gradient == b->gradient && a->dense == b->dense &&
                 a->causal == b->causal && a->window == b->window &&
                 a->segments == b->segments &&
                 a->length == b->length && a->rows == b->rows &&
                 a->heads == b->heads && a->kv_heads == b->kv_heads &&
                 a->head_dim == b->head_dim &&
                 a->v_head_dim == b->v_head_dim && a->scale == b->scale;
    return alike && memcmp(a->ld, b->ld, sizeof(a->ld)) == 0;
}

int64_t
loongi_cudnn_attention_lse_length(const loong_cudnn_attention_params_t *params)
{
    return loongi_round_up(params->length,
                           LOONG_CUDNN_ALIGN / (int)sizeof(float));
}

int64_t
loongi_cudnn_attention_scores(const loong_cudnn_attention_params_t *params)
{
    enum { TILE = 128 };
    const loong_cudnn_attention_params_t *p = params;
    int64_t length = loongi_round_up(p->length, TILE);
    return p->gradient ? p->segments * p->heads * length * length * 2 : 0;
}

/* Above what versions 9.19 ask for on GPUs of 8.0, 9.0 and 10.0 (tests/cudnn):
 * tables of 256 bytes for a segment; scores in bf16, rows rounded up to a tile
 * of 128; dk and dv of each query head in bf16. */
int64_t
loongi_cudnn_attention_room(const loong_cudnn_attention_params_t *params)
{
    enum { TILE = 128, TABLE = 512, MORE = 1024 * 1024 };
    const loong_cudnn_attention_params_t *p = params;
    int64_t length = loongi_round_up(p->length, TILE);
    int64_t bytes = MORE + TABLE * p->segments + sum_bytes(p) +
                    loongi_cudnn_attention_scores(p);
    if (p->gradient && p->heads != p->kv_heads) {
        bytes += p->segments * p->heads * length *
                 (p->head_dim + p->v_head_dim) * 2;
    }
    return bytes;
}

static loong_status_t draw(loong_context_t *ctx, sketch_t *s)
{
    loong_cudnn_attention_t *a = s->a;
    const loong_cudnn_attention_params_t *p = s->p;
    for (int v = 0; v < VALUES; v++) {
        s->value[v] = LOONG_CUDNN_NONE;
    }
    loongi_cudnn_graph_begin(ctx, a->cudnn, &s->g);
    if (p->gradient) {
        gradient(s);
    } else {
        forward(s);
    }
    a->sum_bytes = sum_bytes(p);
    return loongi_cudnn_plan(
        &s->g, loongi_cudnn_attention_room(p) - a->sum_bytes - PLAN_ALIGN,
        &a->plan, &a->plan_bytes);
}

loong_status_t loongi_cudnn_attention_create(
    loong_context_t *ctx, loong_cudnn_t *cudnn,
    const loong_cudnn_attention_params_t *params,
    loong_cudnn_attention_t **attention_p)
{
    loong_cudnn_attention_t *a = NULL;
    sketch_t *s = NULL;
    loong_status_t status = LOONG_OK;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*a), "attention of cuDNN", &a));
    LOONG_TRY_GOTO(loongi_alloc(ctx, sizeof(*s), "graph of cuDNN", &s), status,
                   err_attention);
    a->cudnn = cudnn;
    a->value[SCALE] = (float)params->scale;
    a->value[MASKED] = -INFINITY;
    a->value[WINDOW] = (float)params->window;
    a->value[ONE] = 1.0f;
    s->a = a;
    s->p = params;
    status = draw(ctx, s);
    loongi_cudnn_graph_end(&s->g);
    loongi_free(ctx, s);
    if (status == LOONG_OK) {
        *attention_p = a;
        return LOONG_OK;
    }
err_attention:
    loongi_cudnn_attention_destroy(ctx, a);
    return status;
}

void loongi_cudnn_attention_destroy(loong_context_t *ctx,
                                    loong_cudnn_attention_t *attention)
{
    if (attention != NULL && attention->plan != NULL) {
        attention->cudnn->BackendDestroyDescriptor(attention->plan);
    }
    loongi_free(ctx, attention);
}

int64_t loongi_cudnn_attention_bytes(const loong_cudnn_attention_t *attention)
{
    return loongi_round_up(attention->plan_bytes, PLAN_ALIGN) +
           attention->sum_bytes;
}

/* ---- running ------------------------------------------------------------- */

static void *address_of(loong_cudnn_attention_t *a,
                        const loong_cudnn_attention_operands_t *x,
                        const binding_t *b)
{
    switch (b->kind) {
    case OPERAND:
        return x->ptr[b->index];
    case BEGIN:
        return x->begin[b->index];
    case LENGTHS:
        return x->lengths;
    case VALUE:
        return &a->value[b->index];
    case SUMS:
        return x->workspace + loongi_round_up(a->plan_bytes, PLAN_ALIGN);
    }
    return NULL;
}

static cudnnStatus_t fill_pack(loong_cudnn_attention_t *a,
                               const loong_cudnn_attention_operands_t *x,
                               cudnnBackendDescriptor_t pack)
{
    const loong_cudnn_t *lib = a->cudnn;
    int64_t id[MOST_BINDINGS];
    void *address[MOST_BINDINGS];
    void *workspace = x->workspace;
    for (int i = 0; i < a->num_bindings; i++) {
        id[i] = a->binding[i].id;
        address[i] = address_of(a, x, &a->binding[i]);
    }
    cudnnStatus_t status = lib->BackendSetAttribute(
        pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
        a->num_bindings, id);
    if (status == CUDNN_STATUS_SUCCESS) {
        status = lib->BackendSetAttribute(
            pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
            a->num_bindings, address);
    }
    if (status == CUDNN_STATUS_SUCCESS) {
        status = lib->BackendSetAttribute(pack,
                                          CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                          CUDNN_TYPE_VOID_PTR, 1, &workspace);
    }
    return status == CUDNN_STATUS_SUCCESS ? lib->BackendFinalize(pack)
                                          : status;
}

loong_status_t loongi_cudnn_attention_run(
    loong_context_t *ctx, loong_cudnn_attention_t *attention,
    const loong_cudnn_attention_operands_t *operands)
{
    const loong_cudnn_t *lib = attention->cudnn;
    cudnnBackendDescriptor_t pack = NULL;
    char text[LOONG_CUDNN_REASON];
    cudnnStatus_t status = lib->SetStream(
        lib->handle, (cudnnStream_t)operands->stream);
    if (status == CUDNN_STATUS_SUCCESS) {
        status = lib->BackendCreateDescriptor(
            CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    }
    if (status == CUDNN_STATUS_SUCCESS) {
        status = fill_pack(attention, operands, pack);
    }
    if (status == CUDNN_STATUS_SUCCESS) {
        status = lib->BackendExecute(lib->handle, attention->plan, pack);
    }
    if (status != CUDNN_STATUS_SUCCESS) {
        (void)loongi_cudnn_reason(lib, status, text);
    }
    if (pack != NULL) {
        lib->BackendDestroyDescriptor(pack);
    }
    LOONG_CHECK(ctx, status == CUDNN_STATUS_SUCCESS, LOONG_ERR_DEVICE,
                "cuDNN, attention: %s", text);
    return LOONG_OK;
}
