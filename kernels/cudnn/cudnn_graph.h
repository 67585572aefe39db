/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs of operations for cuDNN, by its backend descriptors. Whatever fails
 * first stays in `status`, and all that is added later does nothing: so a graph
 * is written down like a formula and judged at its end. */
#ifndef LOONG_CUDNN_GRAPH_H
#define LOONG_CUDNN_GRAPH_H

#include "base.h"
#include "cudnn_abi.h"

/* X(name after cudnn): every function that is called. */
#define LOONG_CUDNN_FUNCTIONS(X) \
    X(GetVersion)                \
    X(GetErrorString)            \
    X(GetLastErrorString)        \
    X(Create)                    \
    X(Destroy)                   \
    X(SetStream)                 \
    X(BackendCreateDescriptor)   \
    X(BackendDestroyDescriptor)  \
    X(BackendFinalize)           \
    X(BackendSetAttribute)       \
    X(BackendGetAttribute)       \
    X(BackendExecute)

/* The library, and what plans are made for: the current device by its handle,
 * or a device that need not be there by its description. */
struct loong_cudnn {
    void *library;
#define LOONG_CUDNN_POINTER(name_) __typeof__(&cudnn##name_) name_;
    LOONG_CUDNN_FUNCTIONS(LOONG_CUDNN_POINTER)
#undef LOONG_CUDNN_POINTER
    cudnnHandle_t handle;                 /* NULL: of the description */
    cudnnBackendDescriptor_t description; /* NULL: of the handle */
};

enum {
    LOONG_CUDNN_NONE = -1, /* no tensor */
    LOONG_CUDNN_TENSORS = 80,
    LOONG_CUDNN_OPERATIONS = 64,
    LOONG_CUDNN_DESCRIPTORS = 256,
    LOONG_CUDNN_ALIGN = 16 /* bytes that operands begin at multiples of */
};

typedef enum loong_cudnn_place {
    LOONG_CUDNN_VIRTUAL, /* between operations */
    LOONG_CUDNN_MEMORY,
    LOONG_CUDNN_VALUE /* one number of the host's */
} loong_cudnn_place_t;

typedef struct loong_cudnn_tensor {
    cudnnDataType_t type;
    loong_cudnn_place_t place;
    int64_t dim[4];
    int64_t stride[4];
    int ragged; /* tensor with the element where each of dim[0] begins */
    cudnnBackendDescriptor_t descriptor;
} loong_cudnn_tensor_t;

typedef struct loong_cudnn_graph {
    loong_context_t *ctx;
    const struct loong_cudnn *lib;
    loong_status_t status;
    int num_tensors;
    int num_operations;
    int num_made;
    loong_cudnn_tensor_t tensor[LOONG_CUDNN_TENSORS];
    cudnnBackendDescriptor_t operation[LOONG_CUDNN_OPERATIONS];
    cudnnBackendDescriptor_t made[LOONG_CUDNN_DESCRIPTORS]; /* all of them */
} loong_cudnn_graph_t;

void loongi_cudnn_graph_begin(loong_context_t *ctx,
                              const struct loong_cudnn *lib,
                              loong_cudnn_graph_t *graph);
void loongi_cudnn_graph_end(loong_cudnn_graph_t *graph);

/* Tensors are known by number; the library knows them by unique ids, which
 * are not 0. */
#define LOONG_CUDNN_ID(tensor_) ((int64_t)(tensor_) + 1)
int loongi_cudnn_tensor(loong_cudnn_graph_t *g,
                        const loong_cudnn_tensor_t *tensor);
/* Another tensor of this shape, without gaps, between operations. */
int loongi_cudnn_like(loong_cudnn_graph_t *g, int shape, cudnnDataType_t type);
/* [dim0, dim1, dim2, 1] of the first, likewise. */
int loongi_cudnn_column(loong_cudnn_graph_t *g, int shape);
int loongi_cudnn_value(loong_cudnn_graph_t *g, cudnnDataType_t type);

/* Sizes that hold in place of those of the tensors, each [dim0,1,1,1]. */
typedef struct loong_cudnn_sizes {
    int m, n, k;
} loong_cudnn_sizes_t;

/* c = a b over the last two dimensions. */
void loongi_cudnn_matmul(loong_cudnn_graph_t *g, int a, int b, int c,
                         const loong_cudnn_sizes_t *sizes);

typedef struct loong_cudnn_pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t math;
    int x, b, t; /* operands, as many as the mode has */
    int axis;    /* of CUDNN_POINTWISE_GEN_INDEX; else -1 */
} loong_cudnn_pointwise_t;

void loongi_cudnn_pointwise(loong_cudnn_graph_t *g,
                            const loong_cudnn_pointwise_t *op, int y);
/* y = x mode b, a new tensor like x of fp32. */
int loongi_cudnn_binary(loong_cudnn_graph_t *g, cudnnPointwiseMode_t mode,
                        int x, int b);
int loongi_cudnn_unary(loong_cudnn_graph_t *g, cudnnPointwiseMode_t mode,
                       int x);
/* Over the dimensions where y has 1, or fewer than x. */
void loongi_cudnn_reduce(loong_cudnn_graph_t *g, cudnnReduceTensorOp_t op,
                         int x, int y);
void loongi_cudnn_reshape(loong_cudnn_graph_t *g, int x, int y);

/* A descriptor of the graph's, not finalized yet; `what` names it in errors. */
cudnnBackendDescriptor_t
loongi_cudnn_make(loong_cudnn_graph_t *g, cudnnBackendDescriptorType_t type);
void loongi_cudnn_set(loong_cudnn_graph_t *g, cudnnBackendDescriptor_t d,
                      cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type, int64_t count,
                      const void *elements);
void loongi_cudnn_finalize(loong_cudnn_graph_t *g, cudnnBackendDescriptor_t d,
                           const char *what);

/* ---- plans --------------------------------------------------------------- */

/* The first plan of the heuristics that needs at most `room` bytes and gives
 * the same bits in every run; *plan_p is the caller's to destroy. */
LOONG_NODISCARD loong_status_t
loongi_cudnn_plan(loong_cudnn_graph_t *g, int64_t room,
                  cudnnBackendDescriptor_t *plan_p, int64_t *bytes_p);

/* Status and reason of the call before, in words. */
enum { LOONG_CUDNN_REASON = 512 };
const char *loongi_cudnn_reason(const struct loong_cudnn *lib,
                                cudnnStatus_t status,
                                char text[LOONG_CUDNN_REASON]);

#endif
