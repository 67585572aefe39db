/* SPDX-License-Identifier: Apache-2.0
 *
 * Fake ops: the families forward, gradient, loss in variants that differ in
 * what a kernel may do. */
#include <string.h>

#include "fake.h"
#include "op_impl.h"

/* ---- shapes ------------------------------------------------------------- */

static loong_status_t infer(const loong_op_call_t *call)
{
    const fake_attr_t *a = call->attr;
    for (int o = 0; o < call->num_out; o++) {
        call->out[o] = a->out[o];
    }
    return LOONG_OK;
}

static loong_tensor_type_t type_of(loong_graph_t *g, loong_val_t v)
{
    loong_tensor_type_t type = {loong_value_dtype(g, v),
                                loong_value_shape(g, v)};
    return type;
}

/* The gradient of a parameter is wide. */
static loong_tensor_type_t grad_type(loong_graph_t *g, loong_val_t v)
{
    loong_tensor_type_t type = type_of(g, v);
    if (g->values[v].kind == LOONG_VALUE_PARAM) {
        type.dtype = g->precision.wide;
    }
    return type;
}

/* ---- gradient ----------------------------------------------------------- */

static const loong_op_t grads[FAKE_VARIANTS];

/* The node for inputs [from, to); what the backward reads besides the
 * gradients is said by the forward's attributes. */
static void emit_grad(const loong_grad_call_t *call, int from, int to)
{
    const fake_attr_t *a = call->attr;
    loong_val_t in[LOONG_MAX_OPERANDS];
    loong_val_t out[FAKE_MAX_IN];
    int n = 0;
    fake_attr_t attr;
    memset(&attr, 0, sizeof(attr));
    attr.key = fake_mix(a->key, (uint64_t)from + 1);
    attr.variant = (int)(attr.key % FAKE_VARIANTS);
    attr.workspace = (int64_t)(attr.key >> 8) % 3 * 40;
    bool any = false;
    for (int i = from; i < to; i++) {
        if (call->wanted[i]) {
            attr.out[i - from] = grad_type(call->graph, call->in[i]);
            any = true;
        }
    }
    for (int o = 0; o < call->num_out; o++) {
        in[n++] = call->out_grad[o];
    }
    for (int i = 0; i < call->num_in; i++) {
        if (a->save_in >> i & 1) {
            in[n++] = call->in[i];
        }
    }
    for (int o = 0; o < call->num_out; o++) {
        if (a->save_out >> o & 1) {
            in[n++] = call->out[o];
        }
    }
    if (any) {
        loong_graph_apply(call->graph, &grads[attr.variant], &attr, n, in,
                          to - from, out);
    }
    for (int i = from; i < to && any; i++) {
        call->in_grad[i] = call->wanted[i] ? out[i - from] : LOONG_NONE;
    }
}

static loong_status_t grad(const loong_grad_call_t *call)
{
    const fake_attr_t *a = call->attr;
    int step = a->joint ? call->num_in : 1;
    for (int i = 0; i < call->num_in; i += LOONG_MAX(step, 1)) {
        emit_grad(call, i, LOONG_MIN(i + step, call->num_in));
    }
    return LOONG_OK;
}

static loong_status_t grad_loss(const loong_grad_call_t *call)
{
    call->in_grad[0] = call->wanted[0] ? call->out[1] : LOONG_NONE;
    call->in_grad[1] = call->wanted[1] ? call->out[2] : LOONG_NONE;
    return LOONG_OK;
}

/* ---- the families ------------------------------------------------------- */

#define FORWARD(name_, in_place_, strided_in_, strided_out_, optional_)       \
    {                                                                         \
        .name = name_, .attr_size = sizeof(fake_attr_t), .min_in = 0,         \
        .max_in = FAKE_MAX_IN, .num_out = FAKE_MAX_OUT,                       \
        .in_place = in_place_, .strided_in = strided_in_,                     \
        .strided_out = strided_out_, .optional_out = optional_,               \
        .infer = infer, .grad = grad                                          \
    }

static const loong_op_t forwards[FAKE_VARIANTS] = {
    FORWARD("fake0", 1, true, true, 0),
    FORWARD("fake1", 0, true, true, 0),
    FORWARD("fake2", 1, false, true, 0),
    FORWARD("fake3", 0, false, false, 4),
    FORWARD("fake4", 2, true, false, 0),
    FORWARD("fake5", 3, false, true, 2),
    FORWARD("fake6", 1, true, false, 6),
    FORWARD("fake7", 5, true, true, 0),
};

#define GRAD(name_, in_place_, strided_in_, strided_out_, accumulates_)       \
    {                                                                         \
        .name = name_, .attr_size = sizeof(fake_attr_t), .min_in = 0,         \
        .max_in = LOONG_MAX_OPERANDS - FAKE_MAX_IN, .num_out = FAKE_MAX_IN,   \
        .in_place = in_place_, .strided_in = strided_in_,                     \
        .strided_out = strided_out_, .accumulates = accumulates_,             \
        .infer = infer                                                        \
    }

static const loong_op_t grads[FAKE_VARIANTS] = {
    GRAD("fake_grad0", 0, true, true, 63),
    GRAD("fake_grad1", 1, true, true, 63),
    GRAD("fake_grad2", 0, false, false, 0),
    GRAD("fake_grad3", 1, false, true, 0),
    GRAD("fake_grad4", 3, true, true, 63),
    GRAD("fake_grad5", 0, true, false, 1),
    GRAD("fake_grad6", 7, false, true, 62),
    GRAD("fake_grad7", 1, true, false, 63),
};

static const loong_op_t loss = {
    .name = "fake_loss",
    .attr_size = sizeof(fake_attr_t),
    .min_in = 2,
    .max_in = 2,
    .num_out = 3,
    .accumulates = 4,
    .strided_in = true,
    .strided_out = true,
    .optional_out = 6,
    .infer = infer,
    .grad = grad_loss,
};

const loong_op_t *fake_op(int variant)
{
    return &forwards[variant];
}

const loong_op_t *fake_loss_op(void)
{
    return &loss;
}

/* ---- registration: one kernel per op ------------------------------------ */

bool fake_support(const loong_kernel_query_t *query,
                  char reason[LOONG_REASON_SIZE]);
size_t fake_workspace(const loong_kernel_query_t *query);
loong_status_t fake_run(const loong_kernel_call_t *call);
loong_status_t fake_run_builtin(const loong_kernel_call_t *call);

#define KERNEL(op_)                                                           \
    {                                                                         \
        .name = op_ "_on_fake", .op = op_, .device = FAKE_DEVICE,             \
        .support = fake_support, .workspace = fake_workspace, .run = fake_run \
    }
#define BUILTIN(op_)                                                          \
    {                                                                         \
        .name = op_ "_on_fake", .op = op_, .device = FAKE_DEVICE,             \
        .support = fake_support, .run = fake_run_builtin                      \
    }

static const loong_kernel_t kernels[] = {
    KERNEL("fake0"),      KERNEL("fake1"),      KERNEL("fake2"),
    KERNEL("fake3"),      KERNEL("fake4"),      KERNEL("fake5"),
    KERNEL("fake6"),      KERNEL("fake7"),      KERNEL("fake_grad0"),
    KERNEL("fake_grad1"), KERNEL("fake_grad2"), KERNEL("fake_grad3"),
    KERNEL("fake_grad4"), KERNEL("fake_grad5"), KERNEL("fake_grad6"),
    KERNEL("fake_grad7"), KERNEL("fake_loss"),  BUILTIN("add"),
    BUILTIN("copy"),      BUILTIN("concat"),    BUILTIN("slice_grad"),
    BUILTIN("accumulate"), BUILTIN("zero"),
};

loong_status_t fake_register(loong_context_t *ctx)
{
    LOONG_TRY(loongi_register_ops(ctx));
    for (int i = 0; i < FAKE_VARIANTS; i++) {
        LOONG_TRY(loong_register_op(ctx, &forwards[i]));
        LOONG_TRY(loong_register_op(ctx, &grads[i]));
    }
    LOONG_TRY(loong_register_op(ctx, &loss));
    for (int i = 0; i < LOONG_COUNT_OF(kernels); i++) {
        LOONG_TRY(loong_register_kernel(ctx, &kernels[i]));
    }
    return LOONG_OK;
}
