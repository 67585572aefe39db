/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in CPU kernels: the fast ones, best first, then the references.
 * Entered by src/registry/registry_builtin.c. Read list.h before. */
#include "list.h"

#include <stddef.h>

const loong_kernel_t *const loongi_cpu_kernels[] = {
#define LOONG_FAST_LIST(symbol_) &symbol_,
    LOONG_FAST_KERNELS(LOONG_FAST_LIST)
#undef LOONG_FAST_LIST
#define LOONG_REF_LIST(name_) &loongi_##name_##_ref,
    LOONG_REF_KERNELS(LOONG_REF_LIST)
#undef LOONG_REF_LIST
#define LOONG_COMM_LIST(name_) &loongi_##name_##_comm,
    LOONG_COMM_KERNELS(LOONG_COMM_LIST)
#undef LOONG_COMM_LIST
    NULL,
};
