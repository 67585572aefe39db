/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors in memory as what files are filled from. */
#ifndef LOONG_TEST_MEMORY_SOURCE_H
#define LOONG_TEST_MEMORY_SOURCE_H

#include <string.h>

#include "safetensors.h"

enum { MEMORY_TENSORS = 64 };

typedef struct memory {
    const void *data[MEMORY_TENSORS]; /* by handle */
    size_t row_bytes[MEMORY_TENSORS];
} memory_t;

static inline loong_status_t from_memory(void *user, int64_t index,
                                         int64_t row, int64_t rows,
                                         void *buffer, const void **data_p)
{
    const memory_t *m = user;
    size_t n = m->row_bytes[index];
    (void)data_p;
    memcpy(buffer, (const char *)m->data[index] + (size_t)row * n,
           (size_t)rows * n);
    return LOONG_OK;
}

#endif
