/* SPDX-License-Identifier: Apache-2.0
 *
 * What depends on processor and compiler, so that no other file has to ask. */
#ifndef LOONG_PORT_H
#define LOONG_PORT_H

/* Before a function of plain loops: compiled for several instruction sets,
 * the processor's best one is chosen when the program is loaded. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__)
#define LOONG_CLONES \
    __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define LOONG_CLONES
#endif

/* Before an inline function that kernels of a device call as well; some
 * devices say themselves what stands there. */
#if defined(LOONG_EVERYWHERE)
#elif defined(__CUDACC__)
#define LOONG_EVERYWHERE __host__ __device__
#else
#define LOONG_EVERYWHERE
#endif

#endif
