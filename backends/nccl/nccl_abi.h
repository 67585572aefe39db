/* SPDX-License-Identifier: Apache-2.0
 *
 * What is called of NCCL 2.22 and later, as its binary interface has it: the
 * library is loaded at run time and its header is in no toolkit. */
#ifndef LOONG_NCCL_ABI_H
#define LOONG_NCCL_ABI_H

#include <limits.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *ncclStream_t; /* a cudaStream_t */

typedef struct {
    char internal[128];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7
} ncclResult_t;

typedef enum { ncclSum = 0, ncclMax = 2, ncclMin = 3 } ncclRedOp_t;

typedef enum {
    ncclInt8 = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt64 = 4,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclFloat64 = 8,
    ncclBfloat16 = 9
} ncclDataType_t;

/* As of 2.18; for fields that came later the library takes its defaults. */
typedef struct {
    size_t size;
    unsigned int magic;   /* LOONG_NCCL_MAGIC */
    unsigned int version; /* LOONG_NCCL_VERSION */
    int blocking;         /* LOONG_NCCL_DEFAULT, as of all that follow */
    int cgaClusterSize;
    int minCTAs;
    int maxCTAs;
    const char *netName; /* NULL: the default */
    int splitShare;
} ncclConfig_t;
#define LOONG_NCCL_MAGIC 0xcafebeefu
#define LOONG_NCCL_VERSION 21800u
#define LOONG_NCCL_DEFAULT INT_MIN
/* From 2.22 on the aborts of a group go on together. */
#define LOONG_NCCL_LEAST 22200

ncclResult_t ncclGetVersion(int *version);
const char *ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size,
                                    ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count,
                           ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, ncclStream_t stream);
ncclResult_t ncclReduce(const void *send, void *receive, size_t count,
                        ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, ncclStream_t stream);
ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t count,
                               ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, ncclStream_t stream);
ncclResult_t ncclAllGather(const void *send, void *receive, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           ncclStream_t stream);
ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           ncclStream_t stream);
ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, ncclStream_t stream);
ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, ncclStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
