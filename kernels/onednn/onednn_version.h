/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOONG_ONEDNN_VERSION_H
#define LOONG_ONEDNN_VERSION_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "2.6.3". Returns text. */
const char *loongi_onednn_version(char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
