/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops of loong-bench op and their operands. Called by loong_bench_op.c.
 * Read loong_bench_ops.h before. */
#include "loong_bench_ops.h"

#include <math.h>
#include <string.h>

#include "loong/latent.h"
#include "loong/moe.h"
#include "loong/quantize.h"
#include "loong/rope.h"

static loong_tensor_type_t mat(loong_dtype_t dtype, int64_t rows, int64_t cols)
{
    loong_tensor_type_t t = {dtype, loong_shape_2d(rows, cols)};
    return t;
}

static loong_tensor_type_t vec(loong_dtype_t dtype, int64_t size)
{
    loong_tensor_type_t t = {dtype, loong_shape_1d(size)};
    return t;
}

static loong_status_t describe_linear(loong_context_t *ctx,
                                      const bench_request_t *o,
                                      bench_item_t *item)
{
    const int64_t *s = o->shape;
    loong_linear_attr_t attr = {false, LOONG_ACT_NONE};
    loong_tensor_type_t in[2] = {mat(o->dtype, s[0], s[2]),
                                 mat(o->dtype, s[1], s[2])};
    bench_spec_t spec = {o->op, &attr, 2, in, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

/* The gradient of x: a linear that takes w transposed. */
static loong_status_t describe_linear_dx(loong_context_t *ctx,
                                         const bench_request_t *o,
                                         bench_item_t *item)
{
    const int64_t *s = o->shape;
    loong_linear_attr_t attr = {true, LOONG_ACT_NONE};
    loong_tensor_type_t in[2] = {mat(o->dtype, s[0], s[1]),
                                 mat(o->dtype, s[1], s[2])};
    bench_spec_t spec = {"linear", &attr, 2, in, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

static loong_status_t describe_linear_dw(loong_context_t *ctx,
                                         const bench_request_t *o,
                                         bench_item_t *item)
{
    const int64_t *s = o->shape;
    loong_linear_attr_t attr = {false, LOONG_ACT_NONE};
    loong_tensor_type_t in[2] = {mat(o->dtype, s[0], s[1]),
                                 mat(o->dtype, s[0], s[2])};
    bench_spec_t spec = {o->op, &attr, 2, in, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

static loong_status_t describe_linear_add(loong_context_t *ctx,
                                          const bench_request_t *o,
                                          bench_item_t *item)
{
    const int64_t *s = o->shape;
    loong_linear_add_attr_t attr = {0, strcmp(o->op, "linear_add") != 0};
    loong_tensor_type_t in[3] = {mat(o->dtype, s[0], s[1]),
                                 mat(o->dtype, s[0], s[2]),
                                 attr.transposed ? mat(o->dtype, s[2], s[1])
                                                 : mat(o->dtype, s[1], s[2])};
    bench_spec_t spec = {"linear_add", &attr, 3, in, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

static loong_status_t describe_attention(loong_context_t *ctx,
                                         const bench_request_t *o,
                                         bench_item_t *item)
{
    const int64_t *s = o->shape; /* B, T, heads, kv heads, q and k, v */
    bool grad = strstr(o->op, "_grad") != NULL;
    loong_attention_attr_t attr;
    memset(&attr, 0, sizeof(attr));
    attr.heads = (int)s[2];
    attr.kv_heads = (int)s[3];
    attr.head_dim = (int)s[4];
    attr.v_head_dim = (int)s[5];
    attr.causal = strstr(o->op, "_full") == NULL;
    attr.max_seqlen = s[1];
    attr.scale = 1.0 / sqrt((double)s[4]);
    loong_tensor_type_t q = mat(o->dtype, s[0] * s[1], s[2] * s[4]);
    loong_tensor_type_t k = mat(o->dtype, s[0] * s[1], s[3] * s[4]);
    loong_tensor_type_t v = mat(o->dtype, s[0] * s[1], s[3] * s[5]);
    loong_tensor_type_t out = mat(o->dtype, s[0] * s[1], s[2] * s[5]);
    loong_tensor_type_t lse = mat(bench_wide(o->dtype), s[0] * s[1], s[2]);
    loong_tensor_type_t cu = vec(LOONG_I32, s[0] + 1);
    loong_tensor_type_t forward[4] = {q, k, v, cu};
    loong_tensor_type_t backward[7] = {out, q, k, v, out, lse, cu};
    bench_spec_t spec = {grad ? "attention_grad" : "attention", &attr,
                         grad ? 7 : 4, grad ? backward : forward, o->threads};
    loong_status_t status = bench_item_describe(ctx, &spec, item);
    item->query.policy.attention = strstr(o->op, "fused") != NULL
                                       ? LOONG_ATTENTION_FUSED
                                       : LOONG_ATTENTION_LOCAL;
    item->cu_operand = grad ? 6 : 3;
    item->segment = s[1];
    return status;
}

static loong_status_t describe_loss(loong_context_t *ctx,
                                    const bench_request_t *o,
                                    bench_item_t *item)
{
    const int64_t *s = o->shape; /* T, vocab, hidden */
    loong_cross_entropy_attr_t attr = {.vocab = s[1]};
    loong_tensor_type_t in[4] = {
        mat(o->dtype, s[0], s[2]), mat(o->dtype, s[1], s[2]),
        vec(LOONG_I32, s[0]), vec(bench_wide(o->dtype), s[0])};
    bench_spec_t spec = {o->op, &attr, 4, in, o->threads};
    loong_status_t status = bench_item_describe(ctx, &spec, item);
    item->ids = s[1];
    return status;
}

/* Experts with equal numbers of rows. */
static loong_status_t describe_grouped(loong_context_t *ctx,
                                       const bench_request_t *o,
                                       bench_item_t *item)
{
    const int64_t *s = o->shape; /* experts, rows of each, N, K */
    bool dw = strcmp(o->op, "grouped_linear_dw") == 0;
    bool dx = strcmp(o->op, "grouped_linear_dx") == 0;
    loong_grouped_linear_attr_t attr = {dx, 1.0};
    loong_tensor_type_t x = mat(o->dtype, s[0] * s[1], s[3]);
    loong_tensor_type_t y = mat(o->dtype, s[0] * s[1], s[2]);
    loong_tensor_type_t w = {o->dtype, {3, {s[0], s[2], s[3], 0}}};
    loong_tensor_type_t offsets = vec(LOONG_I32, s[0] + 1);
    loong_tensor_type_t forward[3] = {x, w, offsets};
    loong_tensor_type_t grad_x[3] = {y, w, offsets};
    loong_tensor_type_t grad_w[3] = {y, x, offsets};
    bench_spec_t spec = {dx ? "grouped_linear" : o->op, &attr, 3,
                         dx   ? grad_x
                         : dw ? grad_w
                              : forward,
                         o->threads};
    return bench_item_describe(ctx, &spec, item);
}

static loong_status_t describe_permute(loong_context_t *ctx,
                                       const bench_request_t *o,
                                       bench_item_t *item)
{
    const int64_t *s = o->shape; /* T, experts of a token, H */
    bool back = strcmp(o->op, "unpermute") == 0;
    loong_tensor_type_t in[4] = {mat(o->dtype, back ? s[0] * s[1] : s[0], s[2]),
                                 vec(LOONG_I32, s[0] * s[1]),
                                 mat(LOONG_I32, s[0], s[1]),
                                 mat(bench_wide(o->dtype), s[0], s[1])};
    bench_spec_t spec = {o->op, NULL, back ? 4 : 3, in, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

/* Ops of one or two tensors [T,H]. */
static loong_status_t describe_pointwise(loong_context_t *ctx,
                                         const bench_request_t *o,
                                         bench_item_t *item)
{
    loong_gelu_attr_t attr = {LOONG_ACT_GELU_TANH};
    loong_tensor_type_t x = mat(o->dtype, o->shape[0], o->shape[1]);
    loong_tensor_type_t in[2] = {x, x};
    const loong_op_t *op = loong_find_op(ctx, o->op);
    if (strcmp(o->op, "swiglu_grad") == 0) {
        in[0] = mat(o->dtype, o->shape[0], o->shape[1] / 2);
    }
    bench_spec_t spec = {o->op, &attr, op->min_in, in, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

/* To the wide type. */
static loong_status_t describe_cast(loong_context_t *ctx,
                                    const bench_request_t *o,
                                    bench_item_t *item)
{
    loong_cast_attr_t attr = {bench_wide(o->dtype)};
    loong_tensor_type_t in[1] = {mat(o->dtype, o->shape[0], o->shape[1])};
    bench_spec_t spec = {o->op, &attr, 1, in, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

static loong_status_t describe_rope(loong_context_t *ctx,
                                    const bench_request_t *o,
                                    bench_item_t *item)
{
    const int64_t *s = o->shape; /* T, heads, head_dim */
    loong_rope_attr_t attr = {(int)s[2], false, false, 0};
    loong_tensor_type_t in[2] = {mat(o->dtype, s[0], s[1] * s[2]),
                                 mat(bench_wide(o->dtype), s[0], s[2])};
    bench_spec_t spec = {o->op, &attr, 2, in, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

static loong_status_t describe_norm(loong_context_t *ctx,
                                    const bench_request_t *o,
                                    bench_item_t *item)
{
    loong_norm_attr_t attr = {1e-6};
    loong_dtype_t wide = bench_wide(o->dtype);
    loong_tensor_type_t x = mat(o->dtype, o->shape[0], o->shape[1]);
    loong_tensor_type_t w = vec(wide, o->shape[1]);
    loong_tensor_type_t one = mat(wide, o->shape[0], 1);
    loong_tensor_type_t plain[3] = {x, w, w};
    loong_tensor_type_t add[4] = {x, x, w, w};
    loong_tensor_type_t rms_grad[4] = {x, x, w, one};
    loong_tensor_type_t layer_grad[5] = {x, x, w, one, one};
    bool layer = strstr(o->op, "layer") != NULL;
    const loong_tensor_type_t *in = plain;
    int count = layer ? 3 : 2;
    if (strncmp(o->op, "add_", 4) == 0) {
        in = add;
        count++;
    } else if (strstr(o->op, "_grad") != NULL) {
        in = layer ? layer_grad : rms_grad;
        count = layer ? 5 : 4;
    }
    bench_spec_t spec = {o->op, &attr, count, in, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

/* A step of update programs, with moments as the name says: no shape rule. */
static loong_status_t describe_adamw(loong_context_t *ctx,
                                     const bench_request_t *o,
                                     bench_item_t *item)
{
    int64_t n = o->shape[0];
    static loong_update_piece_t whole;
    bool bf16 = strcmp(o->op, "adamw") != 0;
    loong_update_attr_t attr = {.beta1 = 0.9,
                                .beta2 = 0.95,
                                .eps = 1e-8,
                                .weight_decay = 0.1,
                                .num_pieces =
                                    strcmp(o->op, "adamw_stochastic") == 0,
                                .pieces = &whole};
    loong_dtype_t wide = bench_wide(o->dtype);
    loong_dtype_t moment = bf16 ? LOONG_BF16 : wide;
    const loong_dtype_t dtypes[] = {wide, o->dtype, LOONG_U16, moment, moment};
    (void)ctx;
    whole.run = whole.stride = n;
    memset(item, 0, sizeof(*item));
    memcpy(item->attr, &attr, sizeof(attr));
    item->cu_operand = -1;
    item->frame.grad_scale = 1.0;
    item->frame.lr[0] = 1e-3;
    item->query.op = "adamw";
    item->query.num_in = 1;
    item->query.num_out = 4;
    item->query.threads = o->threads;
    for (int i = 0; i < 5; i++) {
        int rank = i != 2 || o->dtype == LOONG_BF16;
        item->query.arg[i] =
            (loong_karg_t){dtypes[i], rank, {n, 0, 0, 0}, n};
    }
    return LOONG_OK;
}

/* fp8 by blocks, as DeepSeek-V3 has activations; quantize also turned about. */
static loong_status_t describe_quantize(loong_context_t *ctx,
                                        const bench_request_t *o,
                                        bench_item_t *item)
{
    const int64_t *s = o->shape; /* T, H */
    enum { BLOCK = LOONG_QUANTIZE_BLOCK };
    bool back = strcmp(o->op, "dequantize") == 0;
    loong_quantize_attr_t attr = {back ? o->dtype : LOONG_F8_E4M3, 1, false};
    loong_tensor_type_t x = mat(o->dtype, s[0], s[1]);
    loong_tensor_type_t q[2] = {
        mat(LOONG_F8_E4M3, s[0], s[1]),
        mat(bench_wide(o->dtype), s[0], (s[1] + BLOCK - 1) / BLOCK)};
    bench_spec_t spec = {o->op, &attr, back ? 2 : 1, back ? q : &x, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

static loong_status_t describe_router(loong_context_t *ctx,
                                      const bench_request_t *o,
                                      bench_item_t *item)
{
    const int64_t *s = o->shape; /* T, experts, k */
    bool grad = strcmp(o->op, "topk_router_grad") == 0;
    loong_dtype_t wide = bench_wide(o->dtype);
    loong_router_attr_t attr = {.topk = (int)s[2],
                                .score = LOONG_SCORE_SOFTMAX,
                                .pre_softmax = true,
                                .scaling_factor = 1.0};
    loong_tensor_type_t logits = mat(wide, s[0], s[1]);
    loong_tensor_type_t back[3] = {mat(wide, s[0], s[2]), logits,
                                   mat(LOONG_I32, s[0], s[2])};
    bench_spec_t spec = {o->op, &attr, grad ? 3 : 1, grad ? back : &logits,
                         o->threads};
    loong_status_t status = bench_item_describe(ctx, &spec, item);
    item->ids = s[1];
    return status;
}

static loong_status_t describe_embedding(loong_context_t *ctx,
                                         const bench_request_t *o,
                                         bench_item_t *item)
{
    const int64_t *s = o->shape; /* T, V, H */
    bool grad = strcmp(o->op, "embedding_grad") == 0;
    loong_embedding_attr_t attr = {.rows = s[1]};
    loong_tensor_type_t in[2] = {vec(LOONG_I32, s[0]),
                                 mat(o->dtype, grad ? s[0] : s[1], s[2])};
    bench_spec_t spec = {o->op, &attr, 2, in, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

static loong_status_t describe_dropout(loong_context_t *ctx,
                                       const bench_request_t *o,
                                       bench_item_t *item)
{
    loong_dropout_attr_t attr = {.p = 0.1, .stream = 1};
    loong_tensor_type_t in[2] = {mat(o->dtype, o->shape[0], o->shape[1]),
                                 vec(LOONG_I64, o->shape[0])};
    bench_spec_t spec = {o->op, &attr, 2, in, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

/* Queries into the latent, as latent attention absorbs them. */
static loong_status_t describe_head_linear(loong_context_t *ctx,
                                           const bench_request_t *o,
                                           bench_item_t *item)
{
    const int64_t *s = o->shape; /* T, heads, N, K */
    bool dw = strcmp(o->op, "head_linear_dw") == 0;
    loong_head_linear_attr_t attr = {(int)s[1], s[2], 0, s[2], false};
    loong_tensor_type_t x = mat(o->dtype, s[0] * s[1], s[3]);
    loong_tensor_type_t forward[2] = {x, mat(o->dtype, s[1] * s[2], s[3])};
    loong_tensor_type_t back[2] = {mat(o->dtype, s[0] * s[1], s[2]), x};
    bench_spec_t spec = {o->op, &attr, 2, dw ? back : forward, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

static const bench_op_kind_t ops[] = {
    {"linear", "T,N,K", 3, "2048,2816,512", describe_linear},
    {"linear_dx", "T,N,K", 3, "2048,2816,512", describe_linear_dx},
    {"linear_dw", "T,N,K", 3, "2048,2816,512", describe_linear_dw},
    {"linear_add", "T,N,K", 3, "2048,2816,16", describe_linear_add},
    {"linear_add_dx", "T,N,K", 3, "2048,2816,16", describe_linear_add},
    {"grouped_linear", "E,rows,N,K", 4, "32,64,1536,512", describe_grouped},
    {"grouped_linear_dx", "E,rows,N,K", 4, "32,64,1536,512", describe_grouped},
    {"grouped_linear_dw", "E,rows,N,K", 4, "32,64,1536,512", describe_grouped},
    {"permute", "T,k,H", 3, "1024,8,512", describe_permute},
    {"unpermute", "T,k,H", 3, "1024,8,512", describe_permute},
    {"attention", "B,T,heads,kv,d,v", 6, "4,512,8,4,64,64", describe_attention},
    {"attention_grad", "B,T,heads,kv,d,v", 6, "4,512,8,4,64,64",
     describe_attention},
    {"attention_full", "B,T,heads,kv,d,v", 6, "4,512,8,8,64,64",
     describe_attention},
    {"attention_full_grad", "B,T,heads,kv,d,v", 6, "4,512,8,8,64,64",
     describe_attention},
    {"attention_fused", "B,T,heads,kv,d,v", 6, "4,512,8,4,64,64",
     describe_attention},
    {"attention_fused_grad", "B,T,heads,kv,d,v", 6, "4,512,8,4,64,64",
     describe_attention},
    {"cross_entropy", "T,V,H", 3, "2048,32000,512", describe_loss},
    {"swiglu", "T,2F", 2, "2048,2816", describe_pointwise},
    {"swiglu_grad", "T,2F", 2, "2048,2816", describe_pointwise},
    {"gelu", "T,H", 2, "1024,3072", describe_pointwise},
    {"gelu_grad", "T,H", 2, "1024,3072", describe_pointwise},
    {"add", "T,H", 2, "2048,512", describe_pointwise},
    {"copy", "T,H", 2, "2048,512", describe_pointwise},
    {"cast", "T,H", 2, "2048,512", describe_cast},
    {"rope", "T,heads,d", 3, "2048,8,64", describe_rope},
    {"sum_rows", "T,H", 2, "1024,3072", describe_pointwise},
    {"rmsnorm", "T,H", 2, "2048,512", describe_norm},
    {"add_rmsnorm", "T,H", 2, "2048,512", describe_norm},
    {"rmsnorm_grad", "T,H", 2, "2048,512", describe_norm},
    {"layernorm", "T,H", 2, "1024,768", describe_norm},
    {"add_layernorm", "T,H", 2, "1024,768", describe_norm},
    {"layernorm_grad", "T,H", 2, "1024,768", describe_norm},
    {"adamw", "N", 1, "67108864", describe_adamw},
    {"adamw_bf16", "N", 1, "67108864", describe_adamw},
    {"adamw_stochastic", "N", 1, "67108864", describe_adamw},
    {"quantize", "T,H", 2, "2048,512", describe_quantize},
    {"dequantize", "T,H", 2, "2048,512", describe_quantize},
    {"topk_router", "T,E,k", 3, "2048,64,8", describe_router},
    {"topk_router_grad", "T,E,k", 3, "2048,64,8", describe_router},
    {"embedding", "T,V,H", 3, "2048,32000,512", describe_embedding},
    {"embedding_grad", "T,V,H", 3, "2048,32000,512", describe_embedding},
    {"dropout", "T,H", 2, "2048,512", describe_dropout},
    {"head_linear", "T,heads,N,K", 4, "1024,16,512,128", describe_head_linear},
    {"head_linear_dw", "T,heads,N,K", 4, "1024,16,512,128",
     describe_head_linear},
};

const bench_op_kind_t *bench_op_kind(int i)
{
    return i < (int)(sizeof(ops) / sizeof(ops[0])) ? &ops[i] : NULL;
}
