/* SPDX-License-Identifier: Apache-2.0
 *
 * PREFIX.idx.digest: what a complete check of an index has found. One line of
 * text with the size and the last change (st_ctim) of the file that was
 * checked, so that it says nothing of any other. */
#ifndef LOONG_INDEX_DIGEST_H
#define LOONG_INDEX_DIGEST_H

#include <stdbool.h>

#include "loong/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

bool loongi_digest_same_file(const loong_index_digest_t *a,
                             const loong_index_digest_t *b);
/* False: there is none, or it is not whole. */
bool loongi_digest_read(const char *idx_path, loong_index_digest_t *digest_p);
/* Does nothing where the directory cannot be written, or where the index was
 * changed in these seconds: it might be again and show no later time. */
void loongi_digest_write(const char *idx_path,
                         const loong_index_digest_t *digest);

#ifdef __cplusplus
}
#endif

#endif
