/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes and names of element types. Called by all modules. Read loong/dtype.h
 * before. */
#include <string.h>

#include "loong/dtype.h"

static const struct {
    size_t size;
    const char *name;
} dtypes[] = {
#define LOONG_DTYPE_ROW(name_, bytes_, text_) {bytes_, text_},
    LOONG_DTYPE_LIST(LOONG_DTYPE_ROW)
#undef LOONG_DTYPE_ROW
};

static bool in_range(loong_dtype_t dtype)
{
    return (int)dtype >= 0 && dtype < LOONG_DTYPE_COUNT;
}

size_t loong_dtype_size(loong_dtype_t dtype)
{
    return in_range(dtype) ? dtypes[dtype].size : 0;
}

const char *loong_dtype_name(loong_dtype_t dtype)
{
    return in_range(dtype) ? dtypes[dtype].name : "unknown dtype";
}

bool loong_dtype_from_name(const char *name, loong_dtype_t *dtype_p)
{
    for (int i = 0; i < LOONG_DTYPE_COUNT; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            *dtype_p = (loong_dtype_t)i;
            return true;
        }
    }
    return false;
}
