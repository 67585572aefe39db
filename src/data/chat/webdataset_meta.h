/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands in .nv-meta of a set of tar shards. */
#ifndef LOONG_WEBDATASET_META_H
#define LOONG_WEBDATASET_META_H

#include "loong/webdataset.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Errors: LOONG_ERR_ARG, where it is not as train=0.9,val=0.1. */
LOONG_NODISCARD loong_status_t loongi_webdataset_check_split(
    loong_context_t *ctx, const char *split);

/* Writes it for shards of so many samples, counts[info->shards], and tells what
 * each part of a split has. Errors: LOONG_ERR_ARG (a part without shards),
 * LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t loongi_webdataset_put_meta(
    loong_context_t *ctx, const loong_webdataset_params_t *params,
    const loong_webdataset_info_t *info, const int64_t *counts);

#ifdef __cplusplus
}
#endif

#endif
