/* SPDX-License-Identifier: Apache-2.0
 *
 * The checks that rules of shapes share: rank, type, dimension. Called by the
 * files of ops. Read op_impl.h before. */
#include "op_impl.h"

loong_status_t loongi_want_rank(const loong_op_call_t *call, int i,
                                const char *name, int rank)
{
    LOONG_CHECK(call->ctx, call->in[i].shape.rank == rank, LOONG_ERR_ARG,
                "%s: %s has %d dimensions, %d wanted", call->op, name,
                call->in[i].shape.rank, rank);
    return LOONG_OK;
}

loong_status_t loongi_want_dtype(const loong_op_call_t *call, int i,
                                 const char *name, loong_dtype_t dtype)
{
    LOONG_CHECK(call->ctx, call->in[i].dtype == dtype, LOONG_ERR_ARG,
                "%s: %s is %s, %s wanted", call->op, name,
                loong_dtype_name(call->in[i].dtype), loong_dtype_name(dtype));
    return LOONG_OK;
}

loong_status_t loongi_want_float(const loong_op_call_t *call, int i,
                                 const char *name)
{
    loong_dtype_t t = call->in[i].dtype;
    LOONG_CHECK(call->ctx,
                t == LOONG_F64 || t == LOONG_F32 || t == LOONG_BF16,
                LOONG_ERR_ARG, "%s: %s is %s; fp64, fp32 or bf16 wanted",
                call->op, name, loong_dtype_name(t));
    return LOONG_OK;
}

loong_status_t loongi_want_dim(const loong_op_call_t *call, int i,
                               const char *name, int d, int64_t size)
{
    LOONG_CHECK(call->ctx,
                d < call->in[i].shape.rank &&
                    call->in[i].shape.dim[d] == size,
                LOONG_ERR_ARG, "%s: dimension %d of %s is %lld, %lld wanted",
                call->op, d, name,
                d < call->in[i].shape.rank
                    ? (long long)call->in[i].shape.dim[d]
                    : -1LL,
                (long long)size);
    return LOONG_OK;
}

loong_status_t loongi_want_like(const loong_op_call_t *call, int i,
                                const char *name, int j)
{
    LOONG_TRY(loongi_want_rank(call, i, name, call->in[j].shape.rank));
    for (int d = 0; d < call->in[j].shape.rank; d++) {
        LOONG_TRY(
            loongi_want_dim(call, i, name, d, call->in[j].shape.dim[d]));
    }
    return LOONG_OK;
}

loong_status_t loongi_want_rows(const loong_op_call_t *call, int i,
                                const char *name, int j)
{
    return loongi_want_dim(call, i, name, 0, call->in[j].shape.dim[0]);
}

loong_status_t loongi_want_vector(const loong_op_call_t *call, int i,
                                  const char *name, int64_t size)
{
    LOONG_TRY(loongi_want_rank(call, i, name, 1));
    LOONG_TRY(loongi_want_dtype(call, i, name, call->precision.wide));
    return loongi_want_dim(call, i, name, 0, size);
}

int64_t loongi_type_cols(const loong_tensor_type_t *type)
{
    return type->shape.rank > 0 ? type->shape.dim[type->shape.rank - 1] : 0;
}

int64_t loongi_type_rows(const loong_tensor_type_t *type)
{
    int64_t rows = type->shape.rank > 0 ? 1 : 0;
    for (int d = 0; d + 1 < type->shape.rank; d++) {
        rows *= type->shape.dim[d];
    }
    return rows;
}

double loongi_cost_bytes(const loong_kernel_query_t *query)
{
    double bytes = 0.0;
    for (int i = 0; i < query->num_in + query->num_out; i++) {
        const loong_karg_t *arg = &query->arg[i];
        if (arg->rank > 0) {
            bytes += (double)loong_dtype_size(arg->dtype) *
                     (double)loong_karg_rows(arg) *
                     (double)loong_karg_cols(arg);
        }
    }
    return bytes;
}

loong_status_t loongi_infer_same(const loong_op_call_t *call)
{
    LOONG_TRY(loongi_want_float(call, 0, "x"));
    call->out[0] = call->in[0];
    return LOONG_OK;
}
