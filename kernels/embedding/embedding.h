/* SPDX-License-Identifier: Apache-2.0
 *
 * What the embedding kernels share. */
#ifndef LOONG_EMBEDDING_H
#define LOONG_EMBEDDING_H

#include "loong/ops.h"
#include "port.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every id lies in the vocabulary, else LOONG_ERR_ARG naming the token. */
loong_status_t loongi_embedding_check(const loong_kernel_call_t *call,
                                      const int32_t *ids, int64_t count);

/* The row of an id, or -1 when another part of the table has it. */
LOONG_EVERYWHERE static inline int64_t
loongi_embedding_row(const loong_embedding_attr_t *attr, int32_t id)
{
    int64_t row = id - attr->begin;
    return row >= 0 && row < attr->rows ? row : -1;
}

#ifdef __cplusplus
}
#endif

#endif
