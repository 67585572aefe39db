/* SPDX-License-Identifier: Apache-2.0
 *
 * The names that safetensors files give to element types. */
#ifndef LOONG_SAFETENSORS_DTYPE_H
#define LOONG_SAFETENSORS_DTYPE_H

#include "loong/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline const char *loongi_safetensors_dtype(loong_dtype_t dtype)
{
    static const char *const names[] = {
#define LOONG_SAFETENSORS_NAME(name_, bytes_, text_) #name_,
        LOONG_DTYPE_LIST(LOONG_SAFETENSORS_NAME)
#undef LOONG_SAFETENSORS_NAME
    };
    return names[dtype];
}

#ifdef __cplusplus
}
#endif

#endif
