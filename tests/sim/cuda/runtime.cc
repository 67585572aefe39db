// SPDX-License-Identifier: Apache-2.0
//
// Calls of the runtime on memory and on devices.
#include <cstring>
#include <string>

#include "nvtx3/nvToolsExt.h"
#include "sim.h"

using namespace cudasim;

// ---- copies -----------------------------------------------------------------

static cudaError_t copy_checked(const char *name, void *dst, const void *src,
                                size_t size)
{
    NEED(range_ok(dst, size), cudaErrorInvalidValue,
         "%s: writes %zu bytes from %s", name, size, where((uintptr_t)dst));
    NEED(src == nullptr || range_ok(src, size), cudaErrorInvalidValue,
         "%s: reads %zu bytes from %s", name, size, where((uintptr_t)src));
    return cudaSuccess;
}

static bool pageable(const void *ptr)
{
    return !is_device(ptr) && !is_pinned(ptr);
}

static cudaError_t copy(void *dst, const void *src, size_t size)
{
    memmove(dst, src, size);
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemcpyAsync(void *dst, const void *src,
                                       size_t size, enum cudaMemcpyKind kind,
                                       cudaStream_t stream)
{
    ENTER("cudaMemcpyAsync");
    sim.copies++;
    CUstream_st *s = stream_of(stream);
    NEED(known(s), cudaErrorInvalidResourceHandle, "unknown stream");
    bool to = is_device(dst);
    bool from = is_device(src);
    int wanted = (from ? 2 : 0) + (to ? 1 : 0);
    NEED(kind == cudaMemcpyDefault || (int)kind == wanted,
         cudaErrorInvalidValue, "cudaMemcpyAsync: kind %d, but from %s to %s",
         (int)kind, from ? "the device" : "the host",
         to ? "the device" : "the host");
    cudaError_t error = copy_checked("cudaMemcpyAsync", dst, src, size);
    if (error != cudaSuccess) {
        return error;
    }
    NEED((!pageable(src) && !pageable(dst)) || !is_captured(s) ||
             !breaks_capture(s),
         cudaErrorStreamCaptureUnsupported,
         "cudaMemcpyAsync: ordinary host memory, on a captured stream");
    if (pageable(src)) { // is taken at once
        std::string bytes(static_cast<const char *>(src), size);
        enqueue(s, [=] { return copy(dst, bytes.data(), size); });
    } else {
        enqueue(s, [=] { return copy(dst, src, size); });
    }
    if (pageable(dst)) { // is there on return
        drain(s, s->queue.size());
    }
    return fail(sim.sticky);
}

extern "C" cudaError_t cudaMemcpy2DAsync(
    void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
    size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    ENTER("cudaMemcpy2DAsync");
    NEED(kind == cudaMemcpyDefault && width <= dst_pitch &&
             width <= src_pitch && (is_device(dst) || is_device(src)),
         cudaErrorInvalidValue,
         "cudaMemcpy2DAsync: %zu bytes of pitches %zu and %zu, from %s to %s",
         width, src_pitch, dst_pitch, where((uintptr_t)src),
         where((uintptr_t)dst));
    size_t gaps = height > 0 ? height - 1 : 0;
    size_t bytes = height > 0 ? width : 0;
    NEED(range_ok(dst, gaps * dst_pitch + bytes) &&
             range_ok(src, gaps * src_pitch + bytes),
         cudaErrorInvalidValue, "cudaMemcpy2DAsync: %zu rows, from %s to %s",
         height, where((uintptr_t)src), where((uintptr_t)dst));
    CUstream_st *s = stream_of(stream);
    NEED((!pageable(src) && !pageable(dst)) || !is_captured(s) ||
             !breaks_capture(s),
         cudaErrorStreamCaptureUnsupported,
         "cudaMemcpy2DAsync: ordinary host memory, on a captured stream");
    enqueue(s, [=] {
        for (size_t i = 0; i < height; i++) {
            memcpy(static_cast<char *>(dst) + i * dst_pitch,
                   static_cast<const char *>(src) + i * src_pitch, width);
        }
        return cudaSuccess;
    });
    if (pageable(dst) || pageable(src)) { // is over on return
        drain(s, s->queue.size());
    }
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device,
                                           const void *src, int src_device,
                                           size_t size, cudaStream_t stream)
{
    ENTER("cudaMemcpyPeerAsync");
    NEED(device_of(dst) == dst_device && device_of(src) == src_device,
         cudaErrorInvalidValue, "cudaMemcpyPeerAsync: from device %d to %d, "
         "memory is of %d and %d", src_device, dst_device, device_of(src),
         device_of(dst));
    cudaError_t error = copy_checked("cudaMemcpyPeerAsync", dst, src, size);
    if (error == cudaSuccess) {
        enqueue(stream_of(stream), [=] { return copy(dst, src, size); });
    }
    return error;
}

extern "C" cudaError_t cudaMemsetAsync(void *dst, int byte, size_t size,
                                       cudaStream_t stream)
{
    ENTER("cudaMemsetAsync");
    NEED(is_device(dst), cudaErrorInvalidValue,
         "cudaMemsetAsync: memory of the host");
    cudaError_t error = copy_checked("cudaMemsetAsync", dst, nullptr, size);
    if (error == cudaSuccess) {
        enqueue(stream_of(stream), [=] {
            memset(dst, byte, size);
            return cudaSuccess;
        });
    }
    return error;
}

extern "C" cudaError_t cudaMemset2DAsync(void *dst, size_t pitch, int byte,
                                         size_t width, size_t height,
                                         cudaStream_t stream)
{
    ENTER("cudaMemset2DAsync");
    size_t size = height > 0 ? (height - 1) * pitch + width : 0;
    NEED(is_device(dst) && width <= pitch, cudaErrorInvalidValue,
         "cudaMemset2DAsync: width %zu of pitch %zu in %s", width, pitch,
         where((uintptr_t)dst));
    cudaError_t error = copy_checked("cudaMemset2DAsync", dst, nullptr, size);
    if (error == cudaSuccess) {
        enqueue(stream_of(stream), [=] {
            for (size_t i = 0; i < height; i++) {
                memset(static_cast<char *>(dst) + i * pitch, byte, width);
            }
            return cudaSuccess;
        });
    }
    return error;
}

// ---- memory -----------------------------------------------------------------

static cudaError_t take(const char *name, kind_t kind, void **ptr,
                        size_t size)
{
    bool fits = kind == PINNED ||
                used_bytes(current_device) + size <= sim.bytes;
    *ptr = fits ? allocate(kind, size, current_device) : nullptr;
    NEED(*ptr != nullptr, cudaErrorMemoryAllocation,
         "%s: %zu bytes, %zu of %zu in use", name, size,
         used_bytes(current_device), sim.bytes);
    return cudaSuccess;
}

static cudaError_t give(const char *name, kind_t kind, void *ptr)
{
    NEED(ptr == nullptr || release(kind, ptr), cudaErrorInvalidValue,
         "%s: %s is no live allocation", name, where((uintptr_t)ptr));
    return cudaSuccess;
}

extern "C" cudaError_t cudaMalloc(void **ptr, size_t size)
{
    ENTER_IDLE("cudaMalloc");
    return take("cudaMalloc", DEVICE, ptr, size);
}

extern "C" cudaError_t cudaFree(void *ptr)
{
    ENTER_IDLE("cudaFree");
    drain_all();
    return give("cudaFree", DEVICE, ptr);
}

static bool in_step();

// Waits for the device.
extern "C" cudaError_t cudaMallocHost(void **ptr, size_t size)
{
    ENTER_IDLE("cudaMallocHost");
    if (in_step()) {
        report("cudaMallocHost: %zu bytes within a step", size);
    }
    return take("cudaMallocHost", PINNED, ptr, size);
}

extern "C" cudaError_t cudaFreeHost(void *ptr)
{
    ENTER_IDLE("cudaFreeHost");
    drain_all();
    return give("cudaFreeHost", PINNED, ptr);
}

// Memory may be used in the order of the stream.
extern "C" cudaError_t cudaMallocAsync(void **ptr, size_t size,
                                       cudaStream_t stream)
{
    ENTER_IDLE("cudaMallocAsync");
    NEED(known(stream_of(stream)), cudaErrorInvalidResourceHandle,
         "unknown stream");
    return take("cudaMallocAsync", POOLED, ptr, size);
}

extern "C" cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream)
{
    ENTER_IDLE("cudaFreeAsync");
    NEED(is_device(ptr) && range_ok(ptr, 0), cudaErrorInvalidValue,
         "cudaFreeAsync: %s is no live allocation", where((uintptr_t)ptr));
    enqueue(stream_of(stream), [=] {
        return give("cudaFreeAsync", POOLED, ptr);
    });
    return cudaSuccess;
}

// Addresses of freed memory are never given out again here.
static char pools[64];

// NULL: no pool of a device.
static pool_t *pool_at(cudaMemPool_t pool)
{
    ptrdiff_t device = reinterpret_cast<char *>(pool) - pools;
    return device >= 0 && device < sim.devices ? pool_of((int)device)
                                               : nullptr;
}

extern "C" cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool,
                                                   int device)
{
    ENTER("cudaDeviceGetDefaultMemPool");
    NEED(device >= 0 && device < sim.devices, cudaErrorInvalidDevice,
         "cudaDeviceGetDefaultMemPool: %d of %d", device, sim.devices);
    *pool = reinterpret_cast<cudaMemPool_t>(pools + device);
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool,
                                               enum cudaMemPoolAttr attr,
                                               void *value)
{
    ENTER("cudaMemPoolSetAttribute");
    pool_t *p = pool_at(pool);
    bool high = attr == cudaMemPoolAttrUsedMemHigh;
    NEED(p != nullptr && value != nullptr &&
             (attr == cudaMemPoolAttrReleaseThreshold ||
              (high && *static_cast<uint64_t *>(value) == 0)),
         cudaErrorInvalidValue, "cudaMemPoolSetAttribute: attribute %d",
         (int)attr);
    p->most = high ? p->used : p->most;
    return cudaSuccess;
}

// It keeps what is freed, whatever the threshold.
extern "C" cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool,
                                               enum cudaMemPoolAttr attr,
                                               void *value)
{
    ENTER("cudaMemPoolGetAttribute");
    const pool_t *p = pool_at(pool);
    NEED(p != nullptr && value != nullptr, cudaErrorInvalidValue,
         "cudaMemPoolGetAttribute: unknown pool");
    *static_cast<uint64_t *>(value) =
        attr == cudaMemPoolAttrUsedMemHigh          ? p->most
        : attr == cudaMemPoolAttrReservedMemCurrent ? p->kept
                                                    : p->used;
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t kept)
{
    ENTER_IDLE("cudaMemPoolTrimTo");
    pool_t *p = pool_at(pool);
    NEED(p != nullptr, cudaErrorInvalidValue,
         "cudaMemPoolTrimTo: unknown pool");
    p->kept = std::max(p->used, std::min(kept, p->kept));
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemPoolSetAccess(
    cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t count)
{
    ENTER("cudaMemPoolSetAccess");
    int owner = (int)(reinterpret_cast<char *>(pool) - pools);
    for (size_t i = 0; i < count; i++) {
        int device = list[i].location.id;
        NEED(list[i].location.type == cudaMemLocationTypeDevice &&
                 list[i].flags == cudaMemAccessFlagsProtReadWrite &&
                 device >= 0 && device < sim.devices,
             cudaErrorInvalidDevice, "cudaMemPoolSetAccess: device %d",
             device);
        sim.peers[1].insert({device, owner});
    }
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    ENTER("cudaMemGetInfo");
    *total = sim.bytes;
    const pool_t *p = pool_of(current_device);
    size_t taken = used_bytes(current_device) + graph_bytes(current_device) +
                   (p->kept - p->used);
    *available = sim.bytes - std::min(taken, sim.bytes);
    return cudaSuccess;
}

// ---- devices ----------------------------------------------------------------

extern "C" cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

extern "C" cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGetDeviceCount(int *count)
{
    ENTER("cudaGetDeviceCount");
    *count = sim.devices;
    return cudaSuccess;
}

extern "C" cudaError_t cudaSetDevice(int device)
{
    ENTER("cudaSetDevice");
    NEED(device >= 0 && device < sim.devices, cudaErrorInvalidDevice,
         "cudaSetDevice: %d of %d", device, sim.devices);
    current_device = device;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGetDevice(int *device)
{
    ENTER("cudaGetDevice");
    sim.questions++;
    *device = current_device;
    return cudaSuccess;
}

extern "C" int64_t cudasim_questions(void)
{
    return sim.questions;
}

extern "C" cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop,
                                               int device)
{
    ENTER("cudaGetDeviceProperties");
    sim.questions++;
    NEED(device >= 0 && device < sim.devices, cudaErrorInvalidDevice,
         "cudaGetDeviceProperties: %d of %d", device, sim.devices);
    *prop = {"simulated device", {{(char)(device + 1)}}, sim.bytes, 9, 0,
             sim.processors,     sim.most_shared};
    const char *generation = getenv("CUDASIM_GENERATION");
    prop->major = generation != NULL ? atoi(generation) : prop->major;
    const char *name = getenv("CUDASIM_NAME");
    snprintf(prop->name, sizeof(prop->name), "%s",
             name != NULL ? name : "simulated device");
    return cudaSuccess;
}

extern "C" cudaError_t cudaDeviceGetAttribute(int *value,
                                              enum cudaDeviceAttr attr,
                                              int device)
{
    struct cudaDeviceProp prop;
    cudaError_t error = cudaGetDeviceProperties(&prop, device);
    *value = attr == cudaDevAttrComputeCapabilityMajor   ? prop.major
             : attr == cudaDevAttrComputeCapabilityMinor ? prop.minor
             : attr == cudaDevAttrMultiProcessorCount
                 ? prop.multiProcessorCount
                 : (int)sim.most_shared;
    return error;
}

extern "C" cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    ENTER("cudaDeviceCanAccessPeer");
    *can = device != peer && device < sim.devices && peer < sim.devices;
    return cudaSuccess;
}

extern "C" cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    ENTER("cudaDeviceEnablePeerAccess");
    NEED(peer >= 0 && peer < sim.devices && peer != current_device &&
             flags == 0,
         cudaErrorInvalidDevice, "cudaDeviceEnablePeerAccess: %d", peer);
    bool fresh = sim.peers[0].insert({current_device, peer}).second;
    return fresh ? cudaSuccess : fail(cudaErrorPeerAccessAlreadyEnabled);
}

enum { LEAST = 0, GREATEST = -5 };

extern "C" cudaError_t cudaDeviceGetStreamPriorityRange(int *least,
                                                        int *greatest)
{
    *least = LEAST;
    *greatest = GREATEST;
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream,
                                                    unsigned flags,
                                                    int priority)
{
    if (priority > LEAST || priority < GREATEST) {
        report("cudaStreamCreateWithPriority: %d", priority);
    }
    return cudaStreamCreateWithFlags(stream, flags);
}

bool cudasim::peer_allowed(int device, int other, bool pooled)
{
    return sim.peers[pooled].count({device, other}) > 0;
}

// ---- kernels ----------------------------------------------------------------

size_t cudasim::shared_limit(const void *kernel)
{
    auto at = sim.shared.find(kernel);
    return at != sim.shared.end() ? at->second : (size_t)STATIC_SHARED;
}

size_t cudasim::most_shared() { return sim.most_shared; }

static bool grid_ok(const cudasim_launch *l)
{
    const dim3 &g = l->grid;
    const dim3 &b = l->block;
    return g.x > 0 && g.y > 0 && g.z > 0 && g.x <= 0x7fffffffu &&
           g.y <= 65535 && g.z <= 65535 && b.x > 0 && b.y > 0 && b.z > 0 &&
           (uint64_t)b.x * b.y * b.z <= 1024;
}

// Kernels are loaded when they are first needed, for which CUDA may wait until
// nothing else is on the device: not while something there waits for others.
void cudasim::load_late(const std::string &key, const char *name, int device)
{
    if (sim.loaded.insert({device, key}).second &&
        sim.communicates[device] > 0) {
        report("%s is loaded by its first launch while %d operations of NCCL "
               "are under way on device %d: it may wait for them for ever",
               name, sim.communicates[device], device);
    }
}

static std::string key_of(const void *kernel)
{
    return std::string(reinterpret_cast<const char *>(&kernel),
                       sizeof(kernel));
}

extern "C" void cudasim_enqueue(const cudasim_launch *launch,
                                const void *arguments, size_t size)
{
    std::lock_guard<std::recursive_mutex> guard(sim.mutex);
    cudaError_t error = enter(launch->name);
    CUstream_st *s = stream_of(launch->stream);
    const dim3 &g = launch->grid;
    sim.blocks = std::max(sim.blocks, (int64_t)g.x * g.y * g.z);
    if (error == cudaSuccess && !known(s)) {
        report("kernel %s: unknown stream", launch->name);
        error = cudaErrorInvalidResourceHandle;
    }
    if (error == cudaSuccess &&
        (!grid_ok(launch) || launch->shared > shared_limit(launch->kernel))) {
        report("kernel %s: grid (%u,%u,%u), block (%u,%u,%u), %zu bytes of "
               "shared memory, at most %zu",
               launch->name, launch->grid.x, launch->grid.y, launch->grid.z,
               launch->block.x, launch->block.y, launch->block.z,
               launch->shared, shared_limit(launch->kernel));
        error = cudaErrorInvalidConfiguration;
    }
    if (fail(error) != cudaSuccess) {
        return;
    }
    std::string name = std::string("kernel ") + launch->name;
    load_late(key_of(launch->kernel), name.c_str(), s->device);
    cudasim_launch l = *launch;
    std::string bytes(static_cast<const char *>(arguments), size);
    int device = s->device;
    enqueue(s, [=] { return run_kernel(l, bytes.data(), size, device); });
}

extern "C" cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr,
                                             const void *kernel)
{
    ENTER("cudaFuncGetAttributes");
    attr->maxThreadsPerBlock = 1024;
    sim.loaded.insert({current_device, key_of(kernel)});
    return cudaSuccess;
}

extern "C" cudaError_t cudaFuncSetAttribute(const void *kernel,
                                            enum cudaFuncAttribute attr,
                                            int value)
{
    ENTER("cudaFuncSetAttribute");
    NEED(attr == cudaFuncAttributeMaxDynamicSharedMemorySize && value >= 0 &&
             (size_t)value <= sim.most_shared,
         cudaErrorInvalidValue, "cudaFuncSetAttribute: %d bytes", value);
    // Graphs hold launches that were allowed more.
    NEED((size_t)value >= shared_limit(kernel), cudaErrorInvalidValue,
         "cudaFuncSetAttribute: %d bytes of shared memory, after %zu", value,
         shared_limit(kernel));
    sim.shared[kernel] = (size_t)value;
    sim.loaded.insert({current_device, key_of(kernel)});
    return cudaSuccess;
}

// ---- ranges of a profiler ---------------------------------------------------

static std::map<std::string, int64_t> ranges;
static int open_ranges;
static thread_local std::vector<bool> steps; // of this thread's open ranges

static bool in_step()
{
    for (bool is : steps) {
        if (is) {
            return true;
        }
    }
    return false;
}

extern "C" int nvtxRangePushA(const char *name)
{
    std::lock_guard<std::recursive_mutex> guard(sim.mutex);
    ranges[name]++;
    steps.push_back(strcmp(name, "step") == 0);
    return open_ranges++;
}

extern "C" int nvtxRangePop(void)
{
    std::lock_guard<std::recursive_mutex> guard(sim.mutex);
    steps.pop_back();
    return --open_ranges;
}

extern "C" int64_t cudasim_ranges(const char *text)
{
    int64_t count = 0;
    for (const auto &r : ranges) {
        count += r.first.find(text) != std::string::npos ? r.second : 0;
    }
    return count;
}

extern "C" int cudasim_open_ranges(void)
{
    return open_ranges;
}
