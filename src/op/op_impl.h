/* SPDX-License-Identifier: Apache-2.0
 *
 * What op files share: argument checks that read as one line, and small costs.
 */
#ifndef LOONG_OP_IMPL_H
#define LOONG_OP_IMPL_H

#include "base.h"
#include "loong/op.h"
#include "loong/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Enters every built-in op. */
loong_status_t loongi_register_ops(loong_context_t *ctx);

/* Input i must have this rank and type. The name appears in the message. */
loong_status_t loongi_want_rank(const loong_op_call_t *call, int i,
                                const char *name, int rank);
loong_status_t loongi_want_dtype(const loong_op_call_t *call, int i,
                                 const char *name, loong_dtype_t dtype);
loong_status_t loongi_want_float(const loong_op_call_t *call, int i,
                                 const char *name);
/* Dimension d of input i must be `size`. */
loong_status_t loongi_want_dim(const loong_op_call_t *call, int i,
                               const char *name, int d, int64_t size);
/* Input i must have the shape of input j. */
loong_status_t loongi_want_like(const loong_op_call_t *call, int i,
                                const char *name, int j);
/* Optional input i is there. */
static inline bool loongi_has(const loong_op_call_t *call, int i)
{
    return i < call->num_in && call->in[i].shape.rank > 0;
}
/* Input i must have the rows of input j. */
loong_status_t loongi_want_rows(const loong_op_call_t *call, int i,
                                const char *name, int j);
/* A vector of this length in the wide type. */
loong_status_t loongi_want_vector(const loong_op_call_t *call, int i,
                                  const char *name, int64_t size);

/* Last dimension, and product of the others. */
int64_t loongi_type_cols(const loong_tensor_type_t *type);
int64_t loongi_type_rows(const loong_tensor_type_t *type);

/* Bytes of all operands, each moved once. */
double loongi_cost_bytes(const loong_kernel_query_t *query);

/* Fills operand i, offsets of rows of experts, as if all had equal parts of
 * `share` of the rows of operand 0. */
void loongi_even_offsets(const loong_kernel_query_t *query, int i, double share,
                         int32_t *offsets);

extern const loong_op_t *const loongi_op_attention_grad;
extern const loong_op_t *const loongi_op_slice_grad;

/* loong_attention, with the log-sum-exp in out[1]. */
loong_val_t loongi_attention(loong_graph_t *g,
                             const loong_attention_operands_t *operands,
                             const loong_attention_attr_t *attr,
                             loong_val_t out[2]);

/* Shape rule of element-wise ops: output 0 like input 0. */
loong_status_t loongi_infer_same(const loong_op_call_t *call);

#ifdef __cplusplus
}
#endif

#endif
