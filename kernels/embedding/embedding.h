/* SPDX-License-Identifier: Apache-2.0
 *
 * What the embedding kernels share. */
#ifndef LOONG_EMBEDDING_H
#define LOONG_EMBEDDING_H

#include "loong/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every id lies in 0 .. rows - 1, else LOONG_ERR_ARG naming the token. */
loong_status_t loongi_embedding_check(const loong_kernel_call_t *call,
                                      const int32_t *ids, int64_t count,
                                      int64_t rows);

#ifdef __cplusplus
}
#endif

#endif
