/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors and operations of a cuDNN graph, by its backend API; errors are kept
 * until the graph ends. Called by attention_cuda.c and cudnn_plan_cuda.c. Read
 * cudnn_graph.h before. */
#include "cudnn_graph.h"

#include <stdio.h>
#include <string.h>

const char *loongi_cudnn_reason(const struct loong_cudnn *lib,
                                cudnnStatus_t status,
                                char text[LOONG_CUDNN_REASON])
{
    char why[LOONG_CUDNN_REASON / 2] = "";
    lib->GetLastErrorString(why, sizeof(why));
    why[sizeof(why) - 1] = '\0';
    for (size_t i = strlen(why); i > 0 && why[i - 1] <= ' '; i--) {
        why[i - 1] = '\0';
    }
    snprintf(text, LOONG_CUDNN_REASON, "%s%s%s", lib->GetErrorString(status),
             why[0] != '\0' ? ", " : "", why);
    return text;
}

static void check(loong_cudnn_graph_t *g, cudnnStatus_t status,
                  const char *what)
{
    char text[LOONG_CUDNN_REASON];
    if (status != CUDNN_STATUS_SUCCESS) {
        g->status = LOONG_FAIL(g->ctx, LOONG_ERR_UNSUPPORTED, "cuDNN, %s: %s",
                               what, loongi_cudnn_reason(g->lib, status, text));
    }
}

void loongi_cudnn_graph_begin(loong_context_t *ctx,
                              const struct loong_cudnn *lib,
                              loong_cudnn_graph_t *graph)
{
    memset(graph, 0, sizeof(*graph));
    graph->ctx = ctx;
    graph->lib = lib;
}

void loongi_cudnn_graph_end(loong_cudnn_graph_t *graph)
{
    while (graph->num_made > 0) {
        graph->lib->BackendDestroyDescriptor(
            graph->made[--graph->num_made]);
    }
}

/* ---- descriptors --------------------------------------------------------- */

cudnnBackendDescriptor_t
loongi_cudnn_make(loong_cudnn_graph_t *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;
    if (g->status == LOONG_OK) {
        if (g->num_made == LOONG_CUDNN_DESCRIPTORS) {
            g->status = LOONG_FAIL(g->ctx, LOONG_ERR_UNSUPPORTED,
                                   "cuDNN: a graph of more than %d descriptors",
                                   (int)LOONG_CUDNN_DESCRIPTORS);
            return NULL;
        }
        check(g, g->lib->BackendCreateDescriptor(type, &d), "a descriptor");
    }
    if (g->status == LOONG_OK) {
        g->made[g->num_made++] = d;
    }
    return d;
}

void loongi_cudnn_set(loong_cudnn_graph_t *g, cudnnBackendDescriptor_t d,
                      cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type, int64_t count,
                      const void *elements)
{
    char what[48];
    if (g->status == LOONG_OK) {
        snprintf(what, sizeof(what), "attribute %d of a descriptor", (int)name);
        check(g, g->lib->BackendSetAttribute(d, name, type, count, elements),
              what);
    }
}

void loongi_cudnn_finalize(loong_cudnn_graph_t *g, cudnnBackendDescriptor_t d,
                           const char *what)
{
    if (g->status == LOONG_OK) {
        check(g, g->lib->BackendFinalize(d), what);
    }
}

static void set_type(loong_cudnn_graph_t *g, cudnnBackendDescriptor_t d,
                     cudnnBackendAttributeName_t name, cudnnDataType_t type)
{
    loongi_cudnn_set(g, d, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

/* LOONG_CUDNN_NONE: nothing. */
static void set_tensor(loong_cudnn_graph_t *g, cudnnBackendDescriptor_t d,
                       cudnnBackendAttributeName_t name, int tensor)
{
    if (tensor >= 0) {
        loongi_cudnn_set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                         &g->tensor[tensor].descriptor);
    }
}

static void add(loong_cudnn_graph_t *g, cudnnBackendDescriptor_t operation,
                const char *what)
{
    loongi_cudnn_finalize(g, operation, what);
    if (g->status == LOONG_OK && g->num_operations == LOONG_CUDNN_OPERATIONS) {
        g->status = LOONG_FAIL(g->ctx, LOONG_ERR_UNSUPPORTED,
                               "cuDNN: a graph of more than %d operations",
                               (int)LOONG_CUDNN_OPERATIONS);
    }
    if (g->status == LOONG_OK) {
        g->operation[g->num_operations++] = operation;
    }
}

/* ---- tensors ------------------------------------------------------------- */

int loongi_cudnn_tensor(loong_cudnn_graph_t *g,
                        const loong_cudnn_tensor_t *tensor)
{
    int at = g->num_tensors;
    int64_t id = LOONG_CUDNN_ID(at);
    int64_t align = LOONG_CUDNN_ALIGN;
    bool is_virtual = tensor->place == LOONG_CUDNN_VIRTUAL;
    bool by_value = tensor->place == LOONG_CUDNN_VALUE;
    char what[32];
    cudnnBackendDescriptor_t d =
        loongi_cudnn_make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    if (g->status == LOONG_OK && at == LOONG_CUDNN_TENSORS) {
        g->status = LOONG_FAIL(g->ctx, LOONG_ERR_UNSUPPORTED,
                               "cuDNN: a graph of more than %d tensors",
                               (int)LOONG_CUDNN_TENSORS);
    }
    if (g->status != LOONG_OK) {
        return LOONG_CUDNN_NONE;
    }
    g->tensor[at] = *tensor;
    g->tensor[at].descriptor = d;
    g->num_tensors++;
    set_type(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, tensor->type);
    loongi_cudnn_set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4,
                     tensor->dim);
    loongi_cudnn_set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4,
                     tensor->stride);
    loongi_cudnn_set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1,
                     &id);
    loongi_cudnn_set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64,
                     1, &align);
    if (is_virtual) {
        loongi_cudnn_set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL,
                         CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    }
    if (by_value) {
        loongi_cudnn_set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE,
                         CUDNN_TYPE_BOOLEAN, 1, &by_value);
    }
    set_tensor(g, d, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, tensor->ragged);
    snprintf(what, sizeof(what), "tensor %d", at);
    loongi_cudnn_finalize(g, d, what);
    return at;
}

static loong_cudnn_tensor_t shape_of(const loong_cudnn_graph_t *g, int tensor)
{
    loong_cudnn_tensor_t none = {CUDNN_DATA_FLOAT, LOONG_CUDNN_VIRTUAL,
                                 {1, 1, 1, 1}, {1, 1, 1, 1},
                                 LOONG_CUDNN_NONE, NULL};
    return tensor >= 0 ? g->tensor[tensor] : none;
}

static int between(loong_cudnn_graph_t *g, loong_cudnn_tensor_t t,
                   cudnnDataType_t type)
{
    t.type = type;
    t.place = LOONG_CUDNN_VIRTUAL;
    t.ragged = LOONG_CUDNN_NONE;
    t.stride[3] = 1;
    for (int i = 3; i > 0; i--) {
        t.stride[i - 1] = t.stride[i] * t.dim[i];
    }
    return loongi_cudnn_tensor(g, &t);
}

int loongi_cudnn_like(loong_cudnn_graph_t *g, int shape, cudnnDataType_t type)
{
    return between(g, shape_of(g, shape), type);
}

int loongi_cudnn_column(loong_cudnn_graph_t *g, int shape)
{
    loong_cudnn_tensor_t t = shape_of(g, shape);
    t.dim[3] = 1;
    return between(g, t, CUDNN_DATA_FLOAT);
}

int loongi_cudnn_value(loong_cudnn_graph_t *g, cudnnDataType_t type)
{
    loong_cudnn_tensor_t t = {type, LOONG_CUDNN_VALUE, {1, 1, 1, 1},
                              {1, 1, 1, 1}, LOONG_CUDNN_NONE, NULL};
    return loongi_cudnn_tensor(g, &t);
}

/* ---- operations ---------------------------------------------------------- */

void loongi_cudnn_matmul(loong_cudnn_graph_t *g, int a, int b, int c,
                         const loong_cudnn_sizes_t *sizes)
{
    cudnnBackendDescriptor_t how =
        loongi_cudnn_make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_type(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    loongi_cudnn_finalize(g, how, "how a product is made");
    cudnnBackendDescriptor_t d =
        loongi_cudnn_make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    loongi_cudnn_set(g, d, CUDNN_ATTR_OPERATION_MATMUL_DESC,
                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC,
               sizes->m);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC,
               sizes->n);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC,
               sizes->k);
    add(g, d, "a product");
}

void loongi_cudnn_pointwise(loong_cudnn_graph_t *g,
                            const loong_cudnn_pointwise_t *op, int y)
{
    char what[32];
    int64_t axis = op->axis;
    cudnnBackendDescriptor_t how =
        loongi_cudnn_make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    loongi_cudnn_set(g, how, CUDNN_ATTR_POINTWISE_MODE,
                     CUDNN_TYPE_POINTWISE_MODE, 1, &op->mode);
    set_type(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, op->math);
    if (axis >= 0) {
        loongi_cudnn_set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64,
                         1, &axis);
    }
    snprintf(what, sizeof(what), "pointwise operation %d", (int)op->mode);
    loongi_cudnn_finalize(g, how, what);
    cudnnBackendDescriptor_t d =
        loongi_cudnn_make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    loongi_cudnn_set(g, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, op->x);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, op->b);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, op->t);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add(g, d, what);
}

int loongi_cudnn_binary(loong_cudnn_graph_t *g, cudnnPointwiseMode_t mode,
                        int x, int b)
{
    loong_cudnn_pointwise_t op = {mode, CUDNN_DATA_FLOAT, x, b,
                                  LOONG_CUDNN_NONE, -1};
    int y = loongi_cudnn_like(g, x, CUDNN_DATA_FLOAT);
    loongi_cudnn_pointwise(g, &op, y);
    return y;
}

int loongi_cudnn_unary(loong_cudnn_graph_t *g, cudnnPointwiseMode_t mode,
                       int x)
{
    return loongi_cudnn_binary(g, mode, x, LOONG_CUDNN_NONE);
}

void loongi_cudnn_reduce(loong_cudnn_graph_t *g, cudnnReduceTensorOp_t op,
                         int x, int y)
{
    bool in_order = true;
    cudnnBackendDescriptor_t how =
        loongi_cudnn_make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set_type(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    loongi_cudnn_set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR,
                     CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
    loongi_cudnn_set(g, how, CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC,
                     CUDNN_TYPE_BOOLEAN, 1, &in_order);
    loongi_cudnn_finalize(g, how, "how a sum is made");
    cudnnBackendDescriptor_t d =
        loongi_cudnn_make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    loongi_cudnn_set(g, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC,
                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add(g, d, "a sum");
}

void loongi_cudnn_reshape(loong_cudnn_graph_t *g, int x, int y)
{
    cudnnBackendDescriptor_t d =
        loongi_cudnn_make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add(g, d, "a reshape");
}
