/* SPDX-License-Identifier: Apache-2.0
 *
 * XXH3, 64 bits: of bytes, of a file, of what comes piece by piece. */
#ifndef LOONG_CHECKSUM_H
#define LOONG_CHECKSUM_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

uint64_t loongi_checksum(const void *bytes, size_t length);
LOONG_NODISCARD loong_status_t loongi_checksum_file(loong_context_t *ctx,
                                                    const char *path,
                                                    uint64_t *xxh3_p);

typedef struct loong_checksum loong_checksum_t;

LOONG_NODISCARD loong_status_t
loongi_checksum_create(loong_context_t *ctx, loong_checksum_t **sum_p);
void loongi_checksum_add(loong_checksum_t *sum, const void *bytes,
                         size_t length);
uint64_t loongi_checksum_get(const loong_checksum_t *sum);
void loongi_checksum_destroy(loong_checksum_t **sum);

#ifdef __cplusplus
}
#endif

#endif
