/* SPDX-License-Identifier: Apache-2.0
 *
 * A program outside the library that brings its own op: squared ReLU (So et
 * al. 2021), y = max(x, 0)^2, with its gradient rule and a CPU kernel for each,
 * registered like a built-in one.
 *
 *   cc custom_op.c $(pkg-config --cflags --libs loong) -o custom_op
 */
#include <stdio.h>
#include <string.h>

#include <loong/context.h>
#include <loong/graph.h>
#include <loong/op.h>
#include <loong/ops.h>
#include <loong/register.h>

/* ---- the op: shape rule and gradient rule -------------------------------- */

static loong_status_t same(const loong_op_call_t *call)
{
    call->out[0] = call->in[call->num_in - 1];
    return LOONG_OK;
}

static const loong_op_t relu2_grad = {
    .name = "relu2_grad", .min_in = 2, .max_in = 2, .num_out = 1,
    .infer = same};

static loong_status_t grad(const loong_grad_call_t *call)
{
    loong_val_t in[2] = {call->out_grad[0], call->in[0]};
    loong_graph_apply(call->graph, &relu2_grad, NULL, 2, in, 1,
                      &call->in_grad[0]);
    return LOONG_OK;
}

static const loong_op_t relu2 = {.name = "relu2",
                                 .min_in = 1,
                                 .max_in = 1,
                                 .num_out = 1,
                                 .infer = same,
                                 .grad = grad};

/* ---- the kernels: raw pointers and sizes --------------------------------- */

static bool only_f32(const loong_kernel_query_t *query,
                     char reason[LOONG_REASON_SIZE])
{
    snprintf(reason, LOONG_REASON_SIZE, "fp32 only");
    return query->arg[0].dtype == LOONG_F32;
}

static loong_status_t run_forward(const loong_kernel_call_t *call)
{
    const loong_karg_t *x = &call->query->arg[0];
    int64_t n = loong_karg_rows(x, call->frame) *
                loong_karg_cols(x, call->frame);
    const float *in = call->ptr[0];
    float *out = call->ptr[1];
    for (int64_t i = 0; i < n; i++) {
        float v = in[i] > 0.0f ? in[i] : 0.0f;
        out[i] = v * v;
    }
    return LOONG_OK;
}

static loong_status_t run_backward(const loong_kernel_call_t *call)
{
    const loong_karg_t *x = &call->query->arg[1];
    int64_t n = loong_karg_rows(x, call->frame) *
                loong_karg_cols(x, call->frame);
    const float *dy = call->ptr[0];
    const float *in = call->ptr[1];
    float *dx = call->ptr[2];
    for (int64_t i = 0; i < n; i++) {
        dx[i] = in[i] > 0.0f ? 2.0f * in[i] * dy[i] : 0.0f;
    }
    return LOONG_OK;
}

static const loong_kernel_t kernels[] = {
    {.name = "relu2_plain",
     .op = "relu2",
     .device = "cpu",
     .support = only_f32,
     .run = run_forward},
    {.name = "relu2_grad_plain",
     .op = "relu2_grad",
     .device = "cpu",
     .support = only_f32,
     .run = run_backward},
};

/* ---- use ----------------------------------------------------------------- */

static loong_status_t register_all(loong_context_t *ctx)
{
    loong_status_t status = loong_register_builtin(ctx);
    const loong_op_t *const ops[] = {&relu2, &relu2_grad};
    for (int i = 0; i < 2 && status == LOONG_OK; i++) {
        status = loong_register_op(ctx, ops[i]);
        if (status == LOONG_OK) {
            status = loong_register_kernel(ctx, &kernels[i]);
        }
    }
    return status;
}

/* A graph of built-in ops and the new one. */
static loong_status_t build(loong_context_t *ctx)
{
    loong_precision_t precision = {LOONG_F32, LOONG_F32};
    loong_graph_t *g = NULL;
    loong_status_t status = loong_graph_create(ctx, precision, &g);
    if (status != LOONG_OK) {
        return status;
    }
    loong_val_t x =
        loong_graph_input(g, "x", LOONG_F32, loong_shape_2d(4, 8));
    loong_val_t y = LOONG_NONE;
    loong_graph_apply(g, &relu2, NULL, 1, &x, 1, &y);
    loong_graph_output(g, "y", loong_scale(g, y, 0.5));
    status = loong_graph_status(g);
    loong_shape_t shape = loong_value_shape(g, y);
    printf("relu2: [%lld, %lld]\n", (long long)shape.dim[0],
           (long long)shape.dim[1]);
    loong_graph_destroy(&g);
    return status;
}

int main(void)
{
    loong_context_t *ctx = NULL;
    if (loong_context_create(NULL, &ctx) != LOONG_OK) {
        return 1;
    }
    loong_status_t status = register_all(ctx);
    if (status == LOONG_OK) {
        status = build(ctx);
    }
    if (status != LOONG_OK) {
        fprintf(stderr, "%s\n", loong_context_error(ctx));
    }
    printf("kernel: %s\n", loong_find_kernel(ctx, "relu2", "cpu", 0)->name);
    loong_context_destroy(&ctx);
    return status == LOONG_OK ? 0 : 1;
}
