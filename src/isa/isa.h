/* SPDX-License-Identifier: Apache-2.0
 *
 * Instruction set levels. A file kernels/<op>/<op>_cpu.c is compiled once for
 * each level (cmake/LoongIsa.cmake) and defines one kernel per copy; list.c
 * names them best first, and each copy refuses a processor below its level.
 */
#ifndef LOONG_ISA_H
#define LOONG_ISA_H

#include "loong/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum loong_isa {
    LOONG_ISA_LEVEL_base,
    LOONG_ISA_LEVEL_avx2,   /* with FMA */
    LOONG_ISA_LEVEL_avx512, /* F, BW, DQ, VL */
    LOONG_ISA_LEVEL_avx512_bf16
} loong_isa_t;

/* The level of this processor, lowered by ONEDNN_MAX_CPU_ISA (the variable of
 * oneDNN, so that one setting serves both). */
loong_isa_t loongi_isa(void);

/* False when ONEDNN_MAX_CPU_ISA is set to what limits nothing here though its
 * name says otherwise: no name that oneDNN knows. *value_p is what it is set
 * to, NULL when it is not. */
bool loongi_isa_limit(const char **value_p);

const char *loongi_isa_name(loong_isa_t level);

/* False, with the reason, when this processor is below the level. */
bool loongi_isa_support(loong_isa_t level, char reason[LOONG_REASON_SIZE]);

#define LOONG_ISA_JOIN_(a_, b_) a_##_##b_
#define LOONG_ISA_JOIN(a_, b_) LOONG_ISA_JOIN_(a_, b_)
#define LOONG_ISA_TEXT_(a_) #a_
#define LOONG_ISA_TEXT(a_) LOONG_ISA_TEXT_(a_)

/* Inside a file that is compiled per level: the copy's own names. */
#define LOONG_ISA_NAME(name_) LOONG_ISA_JOIN(name_, LOONG_ISA)
#define LOONG_ISA_STRING(name_) name_ "_" LOONG_ISA_TEXT(LOONG_ISA)
#define LOONG_ISA_LEVEL LOONG_ISA_JOIN(LOONG_ISA_LEVEL, LOONG_ISA)

/* The kernels that one file defines, declared and listed best first. */
#if defined(__x86_64__)
#define LOONG_ISA_EACH(X, name_) \
    X(name_##_avx512_bf16)       \
    X(name_##_avx512) X(name_##_avx2) X(name_##_base)
#else
#define LOONG_ISA_EACH(X, name_) X(name_##_base)
#endif

#ifdef __cplusplus
}
#endif

#endif
