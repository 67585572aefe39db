/* SPDX-License-Identifier: Apache-2.0
 *
 * What is called of cuDNN 9.11 and later, as its binary interface has it: the
 * library is loaded at run time, and few machines have its headers. Names and
 * numbers are those of cudnn_graph.h (ctest -R cudnn_abi compares them where
 * that header is). */
#ifndef LOONG_CUDNN_ABI_H
#define LOONG_CUDNN_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cudnnContext *cudnnHandle_t;
typedef struct CUstream_st *cudnnStream_t; /* a cudaStream_t */
typedef void *cudnnBackendDescriptor_t;

/* X(name after CUDNN_, number) */
#define LOONG_CUDNN_STATUSES(X)    \
    X(STATUS_SUCCESS, 0)           \
    X(STATUS_NOT_INITIALIZED, 1001) \
    X(STATUS_BAD_PARAM, 2000)      \
    X(STATUS_NOT_SUPPORTED, 3000)  \
    X(STATUS_EXECUTION_FAILED, 5000)

#define LOONG_CUDNN_DATA_TYPES(X) \
    X(DATA_FLOAT, 0)              \
    X(DATA_INT32, 4)              \
    X(DATA_BFLOAT16, 9)           \
    X(DATA_INT64, 10)             \
    X(DATA_BOOLEAN, 11)

#define LOONG_CUDNN_MODES(X)         \
    X(POINTWISE_ADD, 0)              \
    X(POINTWISE_MUL, 1)              \
    X(POINTWISE_DIV, 6)              \
    X(POINTWISE_SUB, 9)              \
    X(POINTWISE_EXP, 13)             \
    X(POINTWISE_LOG, 15)             \
    X(POINTWISE_CMP_GT, 302)         \
    X(POINTWISE_CMP_GE, 303)         \
    X(POINTWISE_CMP_LT, 304)         \
    X(POINTWISE_LOGICAL_AND, 400)    \
    X(POINTWISE_GEN_INDEX, 501)      \
    X(POINTWISE_BINARY_SELECT, 601)

#define LOONG_CUDNN_REDUCTIONS(X) \
    X(REDUCE_TENSOR_ADD, 0)       \
    X(REDUCE_TENSOR_MAX, 3)

#define LOONG_CUDNN_HEURISTICS(X) \
    X(HEUR_MODE_FALLBACK, 2)      \
    X(HEUR_MODE_A, 3)

#define LOONG_CUDNN_NOTES(X)              \
    X(NUMERICAL_NOTE_NONDETERMINISTIC, 4) \
    X(NUMERICAL_NOTE_TYPE_COUNT, 10)

#define LOONG_CUDNN_TYPES(X)            \
    X(TYPE_HANDLE, 0)                   \
    X(TYPE_DATA_TYPE, 1)                \
    X(TYPE_BOOLEAN, 2)                  \
    X(TYPE_INT64, 3)                    \
    X(TYPE_FLOAT, 4)                    \
    X(TYPE_VOID_PTR, 6)                 \
    X(TYPE_HEUR_MODE, 8)                \
    X(TYPE_NUMERICAL_NOTE, 11)          \
    X(TYPE_POINTWISE_MODE, 14)          \
    X(TYPE_BACKEND_DESCRIPTOR, 15)      \
    X(TYPE_REDUCTION_OPERATOR_TYPE, 18) \
    X(TYPE_CHAR, 24)

#define LOONG_CUDNN_DESCRIPTORS(X)                  \
    X(BACKEND_POINTWISE_DESCRIPTOR, 0)              \
    X(BACKEND_ENGINE_DESCRIPTOR, 2)                 \
    X(BACKEND_ENGINECFG_DESCRIPTOR, 3)              \
    X(BACKEND_ENGINEHEUR_DESCRIPTOR, 4)             \
    X(BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)         \
    X(BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)   \
    X(BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)        \
    X(BACKEND_VARIANT_PACK_DESCRIPTOR, 16)          \
    X(BACKEND_TENSOR_DESCRIPTOR, 17)                \
    X(BACKEND_MATMUL_DESCRIPTOR, 18)                \
    X(BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)      \
    X(BACKEND_REDUCTION_DESCRIPTOR, 21)             \
    X(BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)   \
    X(BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 31)     \
    X(BACKEND_DEVICEPROP_DESCRIPTOR, 38)

#define LOONG_CUDNN_ATTRIBUTES(X)                        \
    X(ATTR_POINTWISE_MODE, 0)                            \
    X(ATTR_POINTWISE_MATH_PREC, 1)                       \
    X(ATTR_POINTWISE_AXIS, 9)                            \
    X(ATTR_ENGINEHEUR_MODE, 200)                         \
    X(ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)              \
    X(ATTR_ENGINEHEUR_RESULTS, 202)                      \
    X(ATTR_ENGINEHEUR_DEVICEPROP, 204)                   \
    X(ATTR_ENGINECFG_ENGINE, 300)                        \
    X(ATTR_EXECUTION_PLAN_HANDLE, 400)                   \
    X(ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)            \
    X(ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)           \
    X(ATTR_EXECUTION_PLAN_DEVICEPROP, 407)               \
    X(ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)       \
    X(ATTR_OPERATION_POINTWISE_XDESC, 751)               \
    X(ATTR_OPERATION_POINTWISE_BDESC, 752)               \
    X(ATTR_OPERATION_POINTWISE_YDESC, 753)               \
    X(ATTR_OPERATION_POINTWISE_TDESC, 758)               \
    X(ATTR_OPERATIONGRAPH_HANDLE, 800)                   \
    X(ATTR_OPERATIONGRAPH_OPS, 801)                      \
    X(ATTR_TENSOR_BYTE_ALIGNMENT, 900)                   \
    X(ATTR_TENSOR_DATA_TYPE, 901)                        \
    X(ATTR_TENSOR_DIMENSIONS, 902)                       \
    X(ATTR_TENSOR_STRIDES, 903)                          \
    X(ATTR_TENSOR_UNIQUE_ID, 906)                        \
    X(ATTR_TENSOR_IS_VIRTUAL, 907)                       \
    X(ATTR_TENSOR_IS_BY_VALUE, 908)                      \
    X(ATTR_TENSOR_RAGGED_OFFSET_DESC, 913)               \
    X(ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                \
    X(ATTR_VARIANT_PACK_DATA_POINTERS, 1001)             \
    X(ATTR_VARIANT_PACK_WORKSPACE, 1003)                 \
    X(ATTR_ENGINE_NUMERICAL_NOTE, 1303)                  \
    X(ATTR_MATMUL_COMP_TYPE, 1500)                       \
    X(ATTR_OPERATION_MATMUL_ADESC, 1520)                 \
    X(ATTR_OPERATION_MATMUL_BDESC, 1521)                 \
    X(ATTR_OPERATION_MATMUL_CDESC, 1522)                 \
    X(ATTR_OPERATION_MATMUL_DESC, 1523)                  \
    X(ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, 1525)  \
    X(ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, 1526)  \
    X(ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, 1527)  \
    X(ATTR_REDUCTION_OPERATOR, 1600)                     \
    X(ATTR_REDUCTION_COMP_TYPE, 1601)                    \
    X(ATTR_REDUCTION_IS_DETERMINISTIC, 1602)             \
    X(ATTR_OPERATION_REDUCTION_XDESC, 1610)              \
    X(ATTR_OPERATION_REDUCTION_YDESC, 1611)              \
    X(ATTR_OPERATION_REDUCTION_DESC, 1612)               \
    X(ATTR_OPERATION_RESHAPE_XDESC, 2200)                \
    X(ATTR_OPERATION_RESHAPE_YDESC, 2201)                \
    X(ATTR_DEVICEPROP_JSON_REPRESENTATION, 2702)

#define LOONG_CUDNN_NUMBER(name_, number_) CUDNN_##name_ = number_,
typedef enum {
    LOONG_CUDNN_STATUSES(LOONG_CUDNN_NUMBER)
} cudnnStatus_t;
typedef enum {
    LOONG_CUDNN_DATA_TYPES(LOONG_CUDNN_NUMBER)
} cudnnDataType_t;
typedef enum {
    LOONG_CUDNN_MODES(LOONG_CUDNN_NUMBER)
} cudnnPointwiseMode_t;
typedef enum {
    LOONG_CUDNN_REDUCTIONS(LOONG_CUDNN_NUMBER)
} cudnnReduceTensorOp_t;
typedef enum {
    LOONG_CUDNN_HEURISTICS(LOONG_CUDNN_NUMBER)
} cudnnBackendHeurMode_t;
typedef enum {
    LOONG_CUDNN_NOTES(LOONG_CUDNN_NUMBER)
} cudnnBackendNumericalNote_t;
typedef enum {
    LOONG_CUDNN_TYPES(LOONG_CUDNN_NUMBER)
} cudnnBackendAttributeType_t;
typedef enum {
    LOONG_CUDNN_DESCRIPTORS(LOONG_CUDNN_NUMBER)
} cudnnBackendDescriptorType_t;
typedef enum {
    LOONG_CUDNN_ATTRIBUTES(LOONG_CUDNN_NUMBER)
} cudnnBackendAttributeName_t;

size_t cudnnGetVersion(void);
const char *cudnnGetErrorString(cudnnStatus_t status);
void cudnnGetLastErrorString(char *message, size_t size);
cudnnStatus_t cudnnCreate(cudnnHandle_t *handle);
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudnnStream_t stream);
cudnnStatus_t
cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                             cudnnBackendDescriptor_t *descriptor);
cudnnStatus_t
cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor);
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor);
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type,
                                       int64_t count, const void *elements);
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type,
                                       int64_t wanted, int64_t *count,
                                       void *elements);
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle,
                                  cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack);

#ifdef __cplusplus
}
#endif

#endif
