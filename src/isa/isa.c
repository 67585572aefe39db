/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks oneDNN, so that its limit holds for our own kernels too. Called by
 * kernels and the planner. Read isa.h before. */
#include "isa.h"

#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

loong_isa_t loongi_isa(void)
{
    /* Each value of dnnl_cpu_isa_t is the set of what it contains. */
    static const struct {
        unsigned needs;
        loong_isa_t level;
    } levels[] = {{dnnl_cpu_isa_avx512_core_bf16, LOONG_ISA_LEVEL_avx512_bf16},
                  {dnnl_cpu_isa_avx512_core, LOONG_ISA_LEVEL_avx512},
                  {dnnl_cpu_isa_avx2, LOONG_ISA_LEVEL_avx2}};
    unsigned have = (unsigned)dnnl_get_effective_cpu_isa();
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        if ((have & levels[i].needs) == levels[i].needs) {
            return levels[i].level;
        }
    }
    return LOONG_ISA_LEVEL_base;
}

bool loongi_isa_limit(const char **value_p)
{
    static const struct {
        const char *name;
        unsigned isa;
    } limits[] = {{"SSE41", dnnl_cpu_isa_sse41},
                  {"AVX", dnnl_cpu_isa_avx},
                  {"AVX2", dnnl_cpu_isa_avx2},
                  {"AVX2_VNNI", dnnl_cpu_isa_avx2_vnni},
                  {"AVX512_CORE", dnnl_cpu_isa_avx512_core},
                  {"AVX512_CORE_VNNI", dnnl_cpu_isa_avx512_core_vnni},
                  {"AVX512_CORE_BF16", dnnl_cpu_isa_avx512_core_bf16},
                  {"AVX512_CORE_AMX", dnnl_cpu_isa_avx512_core_amx}};
    unsigned have = (unsigned)dnnl_get_effective_cpu_isa();
    const char *value = getenv("ONEDNN_MAX_CPU_ISA");
    *value_p = value;
    bool known = value == NULL || value[0] == '\0' ||
                 strcmp(value, "ALL") == 0 || strcmp(value, "DEFAULT") == 0;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]) && !known; i++) {
        known = strcmp(limits[i].name, value) == 0 &&
                (have & ~limits[i].isa) == 0;
    }
    return known;
}

const char *loongi_isa_name(loong_isa_t level)
{
    static const char *const names[] = {"base", "avx2", "avx512",
                                        "avx512_bf16"};
    return names[level];
}

bool loongi_isa_support(loong_isa_t level, char reason[LOONG_REASON_SIZE])
{
    loong_isa_t have = loongi_isa();
    if (have >= level) {
        return true;
    }
    snprintf(reason, LOONG_REASON_SIZE,
             "needs %s, the processor (or ONEDNN_MAX_CPU_ISA) gives %s",
             loongi_isa_name(level), loongi_isa_name(have));
    return false;
}
