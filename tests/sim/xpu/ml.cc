// SPDX-License-Identifier: Apache-2.0
//
// libxpuml.so.1: how much memory the simulated devices have.
#include <cstring>

#include "xpu_abi.h"
#include "xpusim.h"

extern "C" {

XPUSIM_API void xpusim_memory(int device, uint64_t *total,
                              uint64_t *available);
XPUSIM_API int xpu_device_count(int *n);

XPUSIM_API int xpumlInit(void)
{
    return 0;
}

XPUSIM_API int xpumlDeviceGetCount(unsigned *count)
{
    int n = 0;
    int error = xpu_device_count(&n);
    *count = (unsigned)n;
    return error;
}

/* Not an address. */
XPUSIM_API int xpumlDeviceGetHandleByIndex(unsigned index, void **handle)
{
    *handle = (void *)(uintptr_t)(index + 1);
    return 0;
}

XPUSIM_API int xpumlDeviceGetMemoryInfo(void *handle, void *memory)
{
    loong_xpu_memory_t *m = (loong_xpu_memory_t *)memory;
    uint64_t total = 0;
    uint64_t available = 0;
    xpusim_memory((int)(uintptr_t)handle - 1, &total, &available);
    m->page_global = m->page_l3 = 4096;
    m->total_global = total;
    m->free_global = available;
    m->used_global = total - available;
    m->total_l3 = m->free_l3 = (unsigned long long)96 << 20;
    m->used_l3 = 0;
    if (xpusim_deviates("ml_fields")) {
        memmove(&m->total_global, &m->page_global, 7 * sizeof(m->page_l3));
    }
    return 0;
}
}
