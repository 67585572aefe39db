/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops of rotary positions: checks, shapes, gradients, scalings. Called
 * through the op's table. Read op_impl.h before, and kernels/rope/rope_ref.c
 * for the formulas. */
#include "op_impl.h"

/* What the scaling divides by or takes the logarithm of. */
static loong_status_t check_scaling(const loong_op_call_t *call)
{
    const loong_rope_table_attr_t *a = call->attr;
    double length = a->original_max_position_embeddings;
    if (a->scaling == LOONG_ROPE_DEFAULT || a->scaling == LOONG_ROPE_LINEAR) {
        return LOONG_OK;
    }
    LOONG_CHECK(call->ctx, length > 0.0, LOONG_ERR_ARG,
                "%s: original_max_position_embeddings is %g, a positive "
                "number wanted",
                call->op, length);
    if (a->scaling == LOONG_ROPE_DYNAMIC) {
        LOONG_CHECK(call->ctx,
                    a->rotary_dim > 2 && a->factor >= 1.0 && a->length >= 0.0,
                    LOONG_ERR_ARG,
                    "%s: dynamic, rotary_dim is %d, factor is %g, length is "
                    "%g; more than 2, at least 1 and not negative wanted",
                    call->op, a->rotary_dim, a->factor, a->length);
        return LOONG_OK;
    }
    if (a->scaling == LOONG_ROPE_LLAMA3) {
        LOONG_CHECK(call->ctx,
                    a->low_freq_factor > 0.0 &&
                        a->high_freq_factor > a->low_freq_factor,
                    LOONG_ERR_ARG,
                    "%s: low_freq_factor is %g, high_freq_factor is %g; "
                    "positive, and the high one above the low one",
                    call->op, a->low_freq_factor, a->high_freq_factor);
        return LOONG_OK;
    }
    LOONG_CHECK(call->ctx, a->base > 1.0, LOONG_ERR_ARG,
                "%s: base is %g, more than 1 wanted", call->op, a->base);
    LOONG_CHECK(call->ctx, a->beta_slow > 0.0 && a->beta_fast >= a->beta_slow,
                LOONG_ERR_ARG,
                "%s: beta_fast is %g, beta_slow is %g; positive, and the fast "
                "one not below the slow one",
                call->op, a->beta_fast, a->beta_slow);
    LOONG_CHECK(call->ctx,
                a->attention_factor >= 0.0 && a->mscale >= 0.0 &&
                    a->mscale_all_dim >= 0.0,
                LOONG_ERR_ARG,
                "%s: attention_factor is %g, mscale is %g, mscale_all_dim is "
                "%g; none may be negative",
                call->op, a->attention_factor, a->mscale, a->mscale_all_dim);
    return LOONG_OK;
}

static loong_status_t check_axes(const loong_op_call_t *call)
{
    const loong_rope_table_attr_t *a = call->attr;
    int pairs = 0;
    bool good = a->axes == 0
                    ? a->order != LOONG_ROPE_SEPARATE &&
                          a->order != LOONG_ROPE_ALTERNATE
                    : a->axes >= (a->order == LOONG_ROPE_SPACE_FIRST ? 3 : 2) &&
                          a->axes <= LOONG_MAX_ROPE_AXES;
    good = good && (a->axes == 0 || a->order != LOONG_ROPE_SPACE_FIRST ||
                    a->sections[1] == a->sections[2]);
    for (int i = 0; good && i < a->axes; i++) {
        pairs += a->sections[i];
        good = a->sections[i] > 0 && (a->order != LOONG_ROPE_ALTERNATE ||
                                      a->sections[i] == a->sections[0]);
    }
    LOONG_CHECK(call->ctx, good && (a->axes == 0 || 2 * pairs == a->rotary_dim),
                LOONG_ERR_ARG,
                "%s: %d axes with %d pairs of %d channels: 2 or 3 with some "
                "each, which make up all",
                call->op, a->axes, pairs, a->rotary_dim);
    return loongi_want_rank(call, 0, "positions", a->axes == 0 ? 1 : 2);
}

static loong_status_t infer_table(const loong_op_call_t *call)
{
    const loong_rope_table_attr_t *a = call->attr;
    LOONG_TRY(check_axes(call));
    LOONG_CHECK(call->ctx,
                a->axes == 0 || call->in[0].shape.dim[0] == a->axes,
                LOONG_ERR_ARG, "%s: positions of %lld axes, %d wanted",
                call->op, (long long)call->in[0].shape.dim[0], a->axes);
    LOONG_TRY(loongi_want_dtype(call, 0, "positions", LOONG_I32));
    LOONG_CHECK(call->ctx, a->rotary_dim > 0 && a->rotary_dim % 2 == 0,
                LOONG_ERR_ARG, "%s: rotary_dim is %d, an even number wanted",
                call->op, a->rotary_dim);
    LOONG_CHECK(call->ctx,
                a->base > 0.0 &&
                    (a->scaling == LOONG_ROPE_DEFAULT || a->factor > 0.0),
                LOONG_ERR_ARG, "%s: base is %g, factor is %g; both positive",
                call->op, a->base, a->factor);
    LOONG_TRY(check_scaling(call));
    call->out[0].dtype = call->precision.wide;
    call->out[0].shape =
        loong_shape_2d(call->in[0].shape.dim[a->axes == 0 ? 0 : 1],
                       a->rotary_dim);
    return LOONG_OK;
}

static const loong_op_t rope_table = {
    .name = "rope_table",
    .attr_size = sizeof(loong_rope_table_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .infer = infer_table,
};
const loong_op_t *const loongi_op_rope_table = &rope_table;

/* ---- rope_angles --------------------------------------------------------- */

static loong_status_t infer_angles(const loong_op_call_t *call)
{
    LOONG_TRY(loongi_want_rank(call, 0, "angles", 2));
    LOONG_TRY(loongi_want_dtype(call, 0, "angles", call->precision.wide));
    call->out[0] = call->in[0];
    call->out[0].shape.dim[1] *= 2;
    return LOONG_OK;
}

/* Of the cosines c and the sines s: c ds - s dc. */
static loong_status_t grad_angles(const loong_grad_call_t *call)
{
    loong_graph_t *g = call->graph;
    int64_t half = loong_value_shape(g, call->in[0]).dim[1];
    loong_val_t c = loong_slice(g, call->out[0], 0, half);
    loong_val_t s = loong_slice(g, call->out[0], half, half);
    loong_val_t dc = loong_slice(g, call->out_grad[0], 0, half);
    loong_val_t ds = loong_slice(g, call->out_grad[0], half, half);
    loong_val_t less = loong_scale(g, loong_multiply(g, s, dc), -1.0);
    call->in_grad[0] = loong_add(g, loong_multiply(g, c, ds), less);
    return LOONG_OK;
}

static const loong_op_t rope_angles = {
    .name = "rope_angles",
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .infer = infer_angles,
    .grad = grad_angles,
};
const loong_op_t *const loongi_op_rope_angles = &rope_angles;

loong_val_t loong_rope_angles(loong_graph_t *g, loong_val_t angles)
{
    loong_val_t y;
    return loong_graph_apply(g, &rope_angles, NULL, 1, &angles, 1, &y);
}

/* ---- rope ---------------------------------------------------------------- */

/* Input `table` and the rows before it. */
static loong_status_t check_rotation(const loong_op_call_t *call, int table)
{
    const loong_rope_attr_t *a = call->attr;
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_float(call, 0, "x"));
    LOONG_TRY(loongi_want_rank(call, table, "table", 2));
    LOONG_TRY(loongi_want_dtype(call, table, "table", call->precision.wide));
    LOONG_TRY(loongi_want_rows(call, table, "table", 0));
    int64_t cols = loongi_type_cols(&call->in[0]);
    int64_t rotary = loongi_type_cols(&call->in[table]);
    LOONG_CHECK(call->ctx,
                a->head_dim > 0 && cols % a->head_dim == 0 && a->begin >= 0 &&
                    rotary <= a->head_dim - a->begin,
                LOONG_ERR_ARG,
                "%s: %lld channels, heads of %d, %lld rotated from %d on: "
                "heads must divide the channels and hold the rotated ones",
                call->op, (long long)cols, a->head_dim, (long long)rotary,
                a->begin);
    return LOONG_OK;
}

static loong_status_t infer(const loong_op_call_t *call)
{
    LOONG_TRY(check_rotation(call, 1));
    call->out[0] = call->in[0];
    return LOONG_OK;
}

/* dy, x, table -> dtable. */
static loong_status_t infer_table_grad(const loong_op_call_t *call)
{
    LOONG_TRY(check_rotation(call, 2));
    LOONG_TRY(loongi_want_like(call, 1, "x", 0));
    call->out[0] = call->in[2];
    return LOONG_OK;
}

static const loong_op_t rope_table_grad = {
    .name = "rope_table_grad",
    .attr_size = sizeof(loong_rope_attr_t),
    .min_in = 3,
    .max_in = 3,
    .num_out = 1,
    .accumulates = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_table_grad,
};
const loong_op_t *const loongi_op_rope_table_grad = &rope_table_grad;

static loong_status_t grad(const loong_grad_call_t *call);

static const loong_op_t rope = {
    .name = "rope",
    .attr_size = sizeof(loong_rope_attr_t),
    .min_in = 2,
    .max_in = 2,
    .num_out = 1,
    .in_place = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer,
    .grad = grad,
};
const loong_op_t *const loongi_op_rope = &rope;

static loong_status_t grad(const loong_grad_call_t *call)
{
    loong_rope_attr_t attr = *(const loong_rope_attr_t *)call->attr;
    loong_val_t in[2] = {call->out_grad[0], call->in[1]};
    attr.inverse = !attr.inverse;
    loong_graph_apply(call->graph, &rope, &attr, 2, in, 1, &call->in_grad[0]);
    if (call->wanted[1]) {
        loong_val_t of[3] = {call->out_grad[0], call->in[0], call->in[1]};
        loong_graph_apply(call->graph, &rope_table_grad, call->attr, 3, of, 1,
                          &call->in_grad[1]);
    }
    return LOONG_OK;
}

loong_val_t loong_rope_table(loong_graph_t *g, loong_val_t positions,
                             const loong_rope_table_attr_t *attr)
{
    loong_val_t y;
    return loong_graph_apply(g, &rope_table, attr, 1, &positions, 1, &y);
}

loong_val_t loong_rope(loong_graph_t *g, loong_val_t x, loong_val_t table,
                       int head_dim, bool interleaved)
{
    loong_rope_attr_t attr = {head_dim, interleaved, false, 0};
    return loong_rope_partial(g, x, table, &attr);
}

loong_val_t loong_rope_partial(loong_graph_t *g, loong_val_t x,
                               loong_val_t table, const loong_rope_attr_t *attr)
{
    loong_val_t in[2] = {x, table};
    loong_val_t y;
    return loong_graph_apply(g, &rope, attr, 2, in, 1, &y);
}
