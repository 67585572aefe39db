/* SPDX-License-Identifier: Apache-2.0
 *
 * One GPU: memory from the driver's stream-ordered pool, which keeps what is
 * freed; streams that do not wait for the default stream; pinned host memory.
 * A thread may call for any device: each call names the device first. Its table
 * is entered by registry_builtin.c and called by src/device/device.c. Read
 * loong/device.h before. */
#define _GNU_SOURCE /* strcasestr, dlinfo */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base.h"
#include "cuda_device.h"
#include "device_error.h"
#include "nccl_comm.h"
#include "object.h"

enum { OLDEST = 8 }; /* compute capability 8.0: bf16 */

/* Estimates for the dry run, not measured yet: 480 MiB of context and 100 of
 * code of kernels, ours and cuBLASLt's; of a communicator of NCCL 16 channels
 * with a receive buffer for each protocol (0.5, 4.7 and 4 MiB by default). */
#ifndef LOONG_CUDA_CONTEXT_BYTES
#define LOONG_CUDA_CONTEXT_BYTES ((size_t)580 << 20)
#define LOONG_CUDA_PIECE_BYTES ((size_t)2 << 10)
#define LOONG_CUDA_COMMUNICATOR_BYTES ((size_t)147 << 20)
#endif
static const loong_device_overhead_t cuda_overhead = {
    LOONG_CUDA_CONTEXT_BYTES, LOONG_CUDA_PIECE_BYTES,
    LOONG_CUDA_COMMUNICATOR_BYTES};

typedef struct cuda_data {
    loong_context_t *ctx;
    int index;
    cudaStream_t compute;
    loong_device_error_t *error; /* pinned: kernels write it */
    char name[256];
    int major;
    int minor;
    size_t memory;
    int processors;
    size_t block_shared;
    uint64_t identity;
} cuda_data_t;

static loong_status_t status_of(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? LOONG_ERR_MEMORY
                                              : LOONG_ERR_DEVICE;
}

static loong_status_t failed(loong_context_t *ctx, int index,
                             const char *call, cudaError_t error)
{
    return LOONG_FAIL(ctx, status_of(error), "cuda:%d: %s: %s (%s)", index,
                      call, cudaGetErrorString(error),
                      cudaGetErrorName(error));
}

/* A call of the runtime, on the device of `data`. */
#define CUDA_TRY(data_, call_)                                                \
    do {                                                                      \
        cudaError_t error_ = cudaSetDevice((data_)->index);                   \
        error_ = error_ == cudaSuccess ? (call_) : error_;                    \
        if (error_ != cudaSuccess) {                                          \
            return failed((data_)->ctx, (data_)->index, #call_, error_);      \
        }                                                                     \
    } while (0)

/* ---- finding devices ----------------------------------------------------- */

/* Kunlun's driver brings libraries of CUDA's names, which find its devices
 * and then load no kernel. A container may have any one of its devices, but
 * the control device always. */
static bool is_kunlun_host(void)
{
    return access("/dev/xpu0", F_OK) == 0 ||
           access("/dev/xpuctrl", F_OK) == 0;
}

/* In a container without those devices its driver still has NVIDIA's name, and
 * its own behind the link. */
static bool is_kunlun_driver(char *path, size_t size)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    struct link_map *map = NULL;
    char real[PATH_MAX] = "";
    if (driver == NULL) {
        return false;
    }
    if (dlinfo(driver, RTLD_DI_LINKMAP, &map) == 0 &&
        realpath(map->l_name, real) == NULL) {
        real[0] = '\0';
    }
    snprintf(path, size, "%.*s", (int)size - 1, real);
    dlclose(driver);
    return strstr(real, "xpucuda") != NULL ||
           strcasestr(real, "kunlun") != NULL;
}

static bool is_kunlun_name(const char *name)
{
    return strcasestr(name, "kunlun") != NULL || strstr(name, "P800") != NULL;
}

/* The first call of the driver in a process, which reads its settings then. A
 * stream that waits shall not hold up another one in its queue: the links of a
 * pipeline have a stream each. What the user set stays. */
static int cuda_count(char *reason, size_t size)
{
    int count = 0;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (is_kunlun_host()) {
        snprintf(reason, size, "the CUDA libraries of this machine are those "
                               "of its Kunlun XPUs (/dev/xpu0, /dev/xpuctrl)");
        return 0;
    }
    if (!loongi_object_is_whole("libcuda.so.1", reason, size)) {
        return 0;
    }
    char driver[200];
    if (is_kunlun_driver(driver, sizeof(driver))) {
        snprintf(reason, size, "%s, which is libcuda.so.1 here, is Kunlun's: "
                               "its devices are of kind xpu", driver);
        return 0;
    }
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) {
        snprintf(reason, size, "%s%s", cudaGetErrorString(error),
                 error == cudaErrorInsufficientDriver
                     ? " (no NVIDIA driver, or one older than this build)"
                     : "");
        return 0;
    }
    if (count == 0) {
        snprintf(reason, size, "the driver shows no GPU; see "
                               "CUDA_VISIBLE_DEVICES");
    }
    return count;
}

/* ---- one device ---------------------------------------------------------- */

static loong_status_t open_device(cuda_data_t *d)
{
    struct cudaDeviceProp prop;
    cudaMemPool_t pool = NULL;
    uint64_t keep = UINT64_MAX;
    CUDA_TRY(d, cudaGetDeviceProperties(&prop, d->index));
    snprintf(d->name, sizeof(d->name), "%s", prop.name);
    d->major = prop.major;
    d->minor = prop.minor;
    d->memory = prop.totalGlobalMem;
    d->processors = prop.multiProcessorCount;
    d->block_shared = prop.sharedMemPerBlockOptin;
    uint64_t half[2];
    memcpy(half, prop.uuid.bytes, sizeof(half));
    d->identity = half[0] ^ half[1];
    LOONG_CHECK(d->ctx, !is_kunlun_name(prop.name), LOONG_ERR_UNSUPPORTED,
                "cuda:%d: %s is a Kunlun XPU: the CUDA libraries of this "
                "machine are its own and load no kernel of CUDA",
                d->index, d->name);
    LOONG_CHECK(d->ctx, prop.major >= OLDEST, LOONG_ERR_UNSUPPORTED,
                "cuda:%d: %s has compute capability %d.%d, at least %d.0 is "
                "needed",
                d->index, d->name, d->major, d->minor, (int)OLDEST);
    CUDA_TRY(d, cudaDeviceGetDefaultMemPool(&pool, d->index));
    CUDA_TRY(d, cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold,
                                        &keep));
    CUDA_TRY(d, cudaStreamCreateWithFlags(&d->compute, cudaStreamNonBlocking));
    CUDA_TRY(d, cudaMallocHost((void **)&d->error, sizeof(*d->error)));
    memset(d->error, 0, sizeof(*d->error));
    return LOONG_OK;
}

static void cuda_destroy(loong_context_t *ctx, void *data)
{
    cuda_data_t *d = data;
    cudaSetDevice(d->index);
    if (d->compute != NULL) {
        cudaStreamSynchronize(d->compute);
        cudaStreamDestroy(d->compute);
    }
    if (d->error != NULL) {
        cudaFreeHost(d->error);
    }
    loongi_free(ctx, d);
}

static loong_status_t cuda_create(loong_context_t *ctx, int index,
                                  void **data_p)
{
    cuda_data_t *d = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*d), "cuda device", &d));
    d->ctx = ctx;
    d->index = index;
    loong_status_t status = open_device(d);
    if (status != LOONG_OK) {
        cuda_destroy(ctx, d);
        return status;
    }
    *data_p = d;
    return LOONG_OK;
}

/* cuDNN's attention uses instructions of Hopper and Blackwell that ours does
 * not. */
static void cuda_caps(const void *data, loong_device_caps_t *caps)
{
    const cuda_data_t *d = data;
    loongi_cuda_caps(caps);
    if (d != NULL && (d->major == 9 || d->major == 10)) {
        caps->features |= 1u << LOONG_FEATURE_FUSED_FIRST;
    }
    if (d != NULL) {
        caps->processors = d->processors;
        caps->block_shared = d->block_shared;
    }
}

static void cuda_describe(void *data, char *text, size_t size)
{
    const cuda_data_t *d = data;
    snprintf(text, size, "%s, %.1f GiB of memory, compute capability %d.%d",
             d->name, (double)d->memory / (1024.0 * 1024.0 * 1024.0),
             d->major, d->minor);
}

static uint64_t cuda_identity(void *data)
{
    return ((const cuda_data_t *)data)->identity;
}

/* ---- memory -------------------------------------------------------------- */

/* With what the pool keeps and nobody uses. */
static loong_status_t cuda_available(void *data, size_t *bytes_p)
{
    cuda_data_t *d = data;
    cudaMemPool_t pool = NULL;
    uint64_t reserved = 0;
    uint64_t used = 0;
    size_t available = 0;
    size_t total = 0;
    CUDA_TRY(d, cudaMemGetInfo(&available, &total));
    CUDA_TRY(d, cudaDeviceGetDefaultMemPool(&pool, d->index));
    CUDA_TRY(d, cudaMemPoolGetAttribute(
                    pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    CUDA_TRY(d, cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent,
                                        &used));
    *bytes_p = available + (size_t)(reserved - used);
    return LOONG_OK;
}

static loong_status_t cuda_usage(void *data, loong_device_usage_t *u)
{
    cuda_data_t *d = data;
    cudaMemPool_t pool = NULL;
    uint64_t reserved = 0;
    uint64_t most = 0;
    CUDA_TRY(d, cudaMemGetInfo(&u->available, &u->total));
    CUDA_TRY(d, cudaDeviceGetDefaultMemPool(&pool, d->index));
    CUDA_TRY(d, cudaMemPoolGetAttribute(
                    pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    CUDA_TRY(d, cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh,
                                        &most));
    u->pool = (size_t)reserved;
    u->pool_most = (size_t)most;
    return LOONG_OK;
}

static loong_status_t cuda_trim(void *data)
{
    cuda_data_t *d = data;
    cudaMemPool_t pool = NULL;
    uint64_t anew = 0; /* all that may be set: from what is used now */
    CUDA_TRY(d, cudaDeviceGetDefaultMemPool(&pool, d->index));
    CUDA_TRY(d, cudaMemPoolTrimTo(pool, 0));
    CUDA_TRY(d, cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh,
                                        &anew));
    return LOONG_OK;
}

static loong_status_t cuda_alloc(loong_context_t *ctx, void *data,
                                 size_t bytes, const char *what, void **ptr_p)
{
    cuda_data_t *d = data;
    void *ptr = NULL;
    size_t available = 0;
    size_t total = 0;
    (void)ctx;
    CUDA_TRY(d, cudaMemGetInfo(&available, &total));
    cudaError_t error =
        cudaMallocAsync(&ptr, LOONG_MAX(bytes, 1), d->compute);
    if (error != cudaSuccess) {
        cudaGetLastError(); /* it is told here */
        return LOONG_FAIL(d->ctx, status_of(error),
                          "cuda:%d: %zu bytes for %s: %s; %zu of %zu bytes "
                          "are free",
                          d->index, bytes, what, cudaGetErrorString(error),
                          available, total);
    }
    error = cudaMemsetAsync(ptr, 0, bytes, d->compute);
    if (error != cudaSuccess) {
        cudaFreeAsync(ptr, d->compute);
        return failed(d->ctx, d->index, "clearing of memory", error);
    }
    *ptr_p = ptr;
    return LOONG_OK;
}

static void cuda_free(loong_context_t *ctx, void *data, void *ptr,
                      size_t bytes)
{
    cuda_data_t *d = data;
    (void)ctx;
    (void)bytes;
    cudaSetDevice(d->index);
    cudaFreeAsync(ptr, d->compute);
}

static loong_status_t cuda_host_alloc(loong_context_t *ctx, void *data,
                                      size_t bytes, const char *what,
                                      void **ptr_p)
{
    cuda_data_t *d = data;
    void *ptr = NULL;
    (void)ctx;
    cudaError_t error = cudaSetDevice(d->index);
    if (error == cudaSuccess) {
        error = cudaMallocHost(&ptr, LOONG_MAX(bytes, 1));
    }
    LOONG_CHECK(d->ctx, error == cudaSuccess, status_of(error),
                "cuda:%d: %zu bytes of pinned host memory for %s: %s",
                d->index, bytes, what, cudaGetErrorString(error));
    memset(ptr, 0, bytes);
    *ptr_p = ptr;
    return LOONG_OK;
}

static void cuda_host_free(loong_context_t *ctx, void *data, void *ptr)
{
    cuda_data_t *d = data;
    (void)ctx;
    cudaSetDevice(d->index);
    cudaFreeHost(ptr);
}

static loong_status_t cuda_copy(void *data, void *stream, void *dst,
                                const void *src, size_t bytes)
{
    cuda_data_t *d = data;
    CUDA_TRY(d, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream));
    return LOONG_OK;
}

static loong_status_t cuda_copy_rows(void *data, void *stream,
                                     const loong_device_rows_t *r)
{
    cuda_data_t *d = data;
    CUDA_TRY(d, cudaMemcpy2DAsync(r->dst, r->dst_apart, r->src, r->src_apart,
                                  r->bytes, r->rows, cudaMemcpyDefault,
                                  stream));
    return LOONG_OK;
}

static loong_status_t cuda_fill(void *data, void *stream, void *dst, int byte,
                                size_t bytes)
{
    cuda_data_t *d = data;
    CUDA_TRY(d, cudaMemsetAsync(dst, byte, bytes, stream));
    return LOONG_OK;
}

/* ---- streams, events, peers ---------------------------------------------- */

/* Also tells what kernels found wrong meanwhile. */
static loong_status_t cuda_synchronize(void *data, void *stream)
{
    cuda_data_t *d = data;
    CUDA_TRY(d, cudaStreamSynchronize(stream));
    return stream == d->compute
               ? loongi_device_error_take(d->ctx, "cuda", d->index, d->error)
               : LOONG_OK;
}

static void *cuda_compute_stream(void *data)
{
    return ((cuda_data_t *)data)->compute;
}

static loong_device_error_t *cuda_get_error(void *data)
{
    return ((cuda_data_t *)data)->error;
}

/* Beside the compute stream there are copies and communication, which others
 * wait for: they go before what has not begun of a product. */
static loong_status_t cuda_stream_create(void *data, void **stream_p)
{
    cuda_data_t *d = data;
    cudaStream_t stream = NULL;
    int least = 0;
    int greatest = 0;
    CUDA_TRY(d, cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_TRY(d, cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                             greatest));
    *stream_p = stream;
    return LOONG_OK;
}

static void cuda_stream_destroy(void *data, void *stream)
{
    cudaSetDevice(((cuda_data_t *)data)->index);
    cudaStreamDestroy(stream);
}

static loong_status_t cuda_event_create(void *data, void **event_p)
{
    cuda_data_t *d = data;
    cudaEvent_t event = NULL;
    CUDA_TRY(d, cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    *event_p = event;
    return LOONG_OK;
}

static void cuda_event_destroy(void *data, void *event)
{
    cudaSetDevice(((cuda_data_t *)data)->index);
    cudaEventDestroy(event);
}

static loong_status_t cuda_event_record(void *data, void *event, void *stream)
{
    cuda_data_t *d = data;
    CUDA_TRY(d, cudaEventRecord(event, stream));
    return LOONG_OK;
}

static loong_status_t cuda_event_wait(void *data, void *event, void *stream)
{
    cuda_data_t *d = data;
    CUDA_TRY(d, cudaStreamWaitEvent(stream, event, 0));
    return LOONG_OK;
}

/* ---- graphs -------------------------------------------------------------- */

/* Other threads, the writer of checkpoints, may wait and allocate meanwhile. */
static loong_status_t cuda_capture_begin(void *data, void *stream)
{
    cuda_data_t *d = data;
    cudaError_t error = cudaSetDevice(d->index);
    if (error == cudaSuccess) {
        error =
            cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    }
    if (error != cudaSuccess) {
        cudaGetLastError(); /* it is told here, and no launch's */
        return failed(d->ctx, d->index, "cudaStreamBeginCapture", error);
    }
    return LOONG_OK;
}

static loong_status_t make_graph(cuda_data_t *d, cudaGraph_t captured,
                                 void **graph_p, int64_t *launches_p)
{
    size_t nodes = 0;
    cudaGraphExec_t graph = NULL;
    CUDA_TRY(d, cudaGraphGetNodes(captured, NULL, &nodes));
    if (nodes > 0) {
        CUDA_TRY(d, cudaGraphInstantiate(&graph, captured, 0));
    }
    *graph_p = graph;
    *launches_p = (int64_t)nodes;
    return LOONG_OK;
}

static loong_status_t cuda_capture_end(void *data, void *stream,
                                       void **graph_p, int64_t *launches_p)
{
    cuda_data_t *d = data;
    cudaGraph_t captured = NULL;
    cudaError_t error = cudaStreamEndCapture(stream, &captured);
    loong_status_t status = LOONG_OK;
    if (graph_p != NULL && error != cudaSuccess) {
        status = failed(d->ctx, d->index, "cudaStreamEndCapture", error);
    } else if (graph_p != NULL) {
        status = make_graph(d, captured, graph_p, launches_p);
    }
    if (captured != NULL) {
        cudaGraphDestroy(captured);
    }
    cudaGetLastError(); /* told here or before, and no launch's */
    return status;
}

static loong_status_t cuda_graph_launch(void *data, void *graph, void *stream)
{
    cuda_data_t *d = data;
    CUDA_TRY(d, cudaGraphLaunch(graph, stream));
    return LOONG_OK;
}

static void cuda_graph_destroy(void *data, void *graph)
{
    cudaSetDevice(((cuda_data_t *)data)->index);
    cudaGraphExecDestroy(graph);
}

static void cuda_range_begin(void *data, const char *name)
{
    (void)data;
    nvtxRangePushA(name);
}

static void cuda_range_end(void *data)
{
    (void)data;
    nvtxRangePop();
}

static loong_status_t cuda_event_done(void *data, void *event, bool *done_p)
{
    cuda_data_t *d = data;
    cudaError_t error = cudaEventQuery(event);
    if (error != cudaSuccess && error != cudaErrorNotReady) {
        return failed(d->ctx, d->index, "cudaEventQuery", error);
    }
    cudaGetLastError(); /* not to be ready is none */
    *done_p = error == cudaSuccess;
    return LOONG_OK;
}

static loong_status_t cuda_peer_enable(void *data, int other, bool *granted_p)
{
    cuda_data_t *d = data;
    int can = 0;
    cudaMemPool_t pool = NULL;
    struct cudaMemAccessDesc access;
    CUDA_TRY(d, cudaDeviceCanAccessPeer(&can, d->index, other));
    if (can != 0) { /* all memory is of pools */
        memset(&access, 0, sizeof(access));
        access.location.type = cudaMemLocationTypeDevice;
        access.location.id = d->index;
        access.flags = cudaMemAccessFlagsProtReadWrite;
        CUDA_TRY(d, cudaDeviceGetDefaultMemPool(&pool, other));
        CUDA_TRY(d, cudaMemPoolSetAccess(pool, &access, 1));
    }
    *granted_p = can != 0;
    return LOONG_OK;
}

const loong_device_ops_t loongi_cuda_device = {
    .name = "cuda",
    .caps = cuda_caps,
    .rates = loongi_cuda_rates,
    .driver = LOONG_CUDA_DRIVER,
    .count = cuda_count,
    .create = cuda_create,
    .destroy = cuda_destroy,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .copy = cuda_copy,
    .copy_rows = cuda_copy_rows,
    .fill = cuda_fill,
    .synchronize = cuda_synchronize,
    .compute_stream = cuda_compute_stream,
    .describe = cuda_describe,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .event_done = cuda_event_done,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .graph_launch = cuda_graph_launch,
    .graph_destroy = cuda_graph_destroy,
    .peer_enable = cuda_peer_enable,
    .error = cuda_get_error,
    .identity = cuda_identity,
    .communicator = loongi_nccl_create,
    .range_begin = cuda_range_begin,
    .range_end = cuda_range_end,
    .available = cuda_available,
    .overhead = &cuda_overhead,
    .usage = cuda_usage,
    .trim = cuda_trim,
};
