/* SPDX-License-Identifier: Apache-2.0
 *
 * What a raw kernel sees of a simulated cluster, by the names of the vendor's
 * toolchain (its public guide to XPU C/C++, and public kernels that ran on a
 * P800): its core, copies between memories, fences, the barrier of its cluster,
 * and how it is launched. A .xpu file is compiled as C++ with this folder where
 * the vendor's headers would be. */
#ifndef CLUSTERSIM_XTDK_H
#define CLUSTERSIM_XTDK_H

#include <cstddef>
#include <cstdint>
#include <type_traits>

#define CLUSTERSIM 1
#define __global__
#define __device__
/* Address spaces are no types here: every access is checked instead. */
#define __global_ptr__
#define __shared_ptr__

struct clustersim_place {
    const char *file;
    int line;
};
#define CLUSTERSIM_HERE (clustersim_place{__FILE__, __LINE__})

/* Memories: global, of the cluster, of the core. */
enum clustersim_copy_t {
    CLUSTERSIM_GM2LM,
    CLUSTERSIM_LM2GM,
    CLUSTERSIM_GM2SM,
    CLUSTERSIM_SM2GM
};
/* Which memory a fence orders, by bits. */
enum { CLUSTERSIM_LM = 1, CLUSTERSIM_SM = 2, CLUSTERSIM_GM = 4 };

/* The running core's. */
struct clustersim_ids {
    int core, cores, cluster, clusters;
};

struct clustersim_launch {
    const char *name;
    int clusters, cores;
    void *stream;
    void (*run)(const void *arguments);
};

extern "C" {
extern clustersim_ids clustersim_now;
void clustersim_copy(clustersim_place place, clustersim_copy_t kind,
                     const void *from, void *to, long long size, bool async);
void clustersim_fence(clustersim_place place, int memories);
void clustersim_barrier(clustersim_place place);
/* Of the core, or of the cluster; the same for the same key. */
void *clustersim_local(clustersim_place place, const void *key, size_t size);
void *clustersim_shared(clustersim_place place, const void *key, size_t size);
/* 0, or an error of the runtime's. */
int clustersim_enqueue(const clustersim_launch *launch, const void *arguments,
                       size_t size);
}

inline int core_id()
{
    return clustersim_now.core;
}
inline int core_num()
{
    return clustersim_now.cores;
}
inline int cluster_id()
{
    return clustersim_now.cluster;
}
inline int cluster_num()
{
    return clustersim_now.clusters;
}

#define CLUSTERSIM_COPY(kind_, from_, to_, size_, async_)                   \
    clustersim_copy(CLUSTERSIM_HERE, CLUSTERSIM_##kind_, from_, to_, size_, \
                    async_)
#define GM2LM(from_, to_, size_) \
    CLUSTERSIM_COPY(GM2LM, from_, to_, size_, false)
#define LM2GM(from_, to_, size_) \
    CLUSTERSIM_COPY(LM2GM, from_, to_, size_, false)
#define GM2SM(from_, to_, size_) \
    CLUSTERSIM_COPY(GM2SM, from_, to_, size_, false)
#define SM2GM(from_, to_, size_) \
    CLUSTERSIM_COPY(SM2GM, from_, to_, size_, false)
#define GM2LM_ASYNC(from_, to_, size_) \
    CLUSTERSIM_COPY(GM2LM, from_, to_, size_, true)
#define LM2GM_ASYNC(from_, to_, size_) \
    CLUSTERSIM_COPY(LM2GM, from_, to_, size_, true)
#define GM2SM_ASYNC(from_, to_, size_) \
    CLUSTERSIM_COPY(GM2SM, from_, to_, size_, true)
#define SM2GM_ASYNC(from_, to_, size_) \
    CLUSTERSIM_COPY(SM2GM, from_, to_, size_, true)

#define mfence()                      \
    clustersim_fence(CLUSTERSIM_HERE, \
                     CLUSTERSIM_LM | CLUSTERSIM_SM | CLUSTERSIM_GM)
#define mfence_lm() clustersim_fence(CLUSTERSIM_HERE, CLUSTERSIM_LM)
#define mfence_sm() clustersim_fence(CLUSTERSIM_HERE, CLUSTERSIM_SM)
#define mfence_lm_gm() \
    clustersim_fence(CLUSTERSIM_HERE, CLUSTERSIM_LM | CLUSTERSIM_GM)
#define sync_cluster() clustersim_barrier(CLUSTERSIM_HERE)

/* ---- launches and arrays, as kernels/cluster.xpuh has them ----------------
 */

template <class Call> void clustersim_run(const void *arguments)
{
    (*static_cast<const Call *>(arguments))();
}

template <class... P, class... A>
int clustersim_start(clustersim_launch launch, void (*kernel)(P...), A... args)
{
    auto call = [=] { kernel(static_cast<P>(args)...); };
    static_assert(std::is_trivially_copyable<decltype(call)>::value,
                  "arguments of kernels are plain data");
    launch.run = clustersim_run<decltype(call)>;
    return clustersim_enqueue(&launch, &call, sizeof(call));
}

#define LOONG_KERNEL(...) __VA_ARGS__
#define LOONG_START(kernel_, clusters_, cores_, stream_, ...)         \
    clustersim_start({#kernel_, clusters_, cores_, stream_, nullptr}, \
                     LOONG_KERNEL kernel_, __VA_ARGS__)
#define LOONG_LOCAL(type_, name_, count_)                       \
    static const char name_##_key = 0;                          \
    type_ *const name_ = static_cast<type_ *>(clustersim_local( \
        CLUSTERSIM_HERE, &name_##_key, sizeof(type_) * (count_)))
#define LOONG_SHARED(type_, name_, count_)                       \
    static const char name_##_key = 0;                           \
    type_ *const name_ = static_cast<type_ *>(clustersim_shared( \
        CLUSTERSIM_HERE, &name_##_key, sizeof(type_) * (count_)))

#endif
