/* SPDX-License-Identifier: Apache-2.0
 *
 * The HDF5 side of a checkpoint: files are laid out by HDF5, data is moved by
 * plain reads and writes at the offsets it chose. So HDF5, which is not made
 * for threads, is held for moments only. */
#ifndef LOONG_NATIVE_H5_H
#define LOONG_NATIVE_H5_H

#include "native_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a file with one contiguous dataset for each piece (in the piece's
 * `dataset`, of shape count) and sets the pieces' offsets. The disk is asked
 * for room for the data, or not when they may have holes (sparse). */
LOONG_NODISCARD loong_status_t
loongi_h5_create_rank(loong_context_t *ctx, const char *path,
                      loong_layout_piece_t *pieces, int64_t count,
                      bool sparse);

/* Creates the file of virtual datasets, /KIND/NAME, over all rank files, with
 * the metadata under /metadata. The layout has been checked. */
LOONG_NODISCARD loong_status_t loongi_h5_create_index(
    loong_context_t *ctx, const char *path, const loong_layout_t *layout,
    int64_t step, const loong_pairs_t *metadata);

/* Compares what HDF5 finds with the layout: every tensor in the index and, if
 * asked, every piece at its offset. */
LOONG_NODISCARD loong_status_t loongi_h5_check(loong_context_t *ctx,
                                               const char *dir,
                                               loong_layout_t *layout,
                                               bool pieces);

/* "1.10.8". Returns text. */
const char *loongi_h5_version(char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
