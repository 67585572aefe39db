/* SPDX-License-Identifier: Apache-2.0
 *
 * Records with pictures and videos as tar shards: WebDataset's convention with
 * megatron-energon's metadata. Sources of conversations read them.
 *
 * Not collective.
 */
#ifndef LOONG_WEBDATASET_H
#define LOONG_WEBDATASET_H

#include "loong/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero-initialise; zeros and NULL are the defaults. */
typedef struct loong_webdataset_params {
    /* Files of JSON records or tables, or directories of them, as sources of
     * conversations read them. */
    const char *const *paths;
    int64_t num_paths;
    const char *image_root; /* of relative paths; NULL: beside the record */
    const char *out;        /* a directory, absent or empty */
    /* A shard ends with this many samples (0: 10000), or where its samples have
     * this many bytes (0: 3e9). */
    int64_t max_count, max_size;
    const char *split; /* "train=0.9,val=0.1"; NULL: "train=1" */
} loong_webdataset_params_t;

typedef struct loong_webdataset_info {
    int64_t samples, files, shards; /* files: pictures and videos */
    int64_t bytes;                  /* of the shards */
} loong_webdataset_info_t;

/* Writes shard-%06d.tar, each with a .tar.idx, and .nv-meta: of each record its
 * JSON, in which paths are names of members, and these members, named by the
 * number of the record. The same records make the same bytes. Shares of a split
 * are whole shards, in their order. Errors leave no directory: LOONG_ERR_ARG,
 * LOONG_ERR_UNSUPPORTED, LOONG_ERR_FORMAT (names file and line),
 * LOONG_ERR_IO. */
LOONG_API LOONG_NODISCARD loong_status_t loong_webdataset_write(
    loong_context_t *ctx, const loong_webdataset_params_t *params,
    loong_webdataset_info_t *info);

#ifdef __cplusplus
}
#endif

#endif
