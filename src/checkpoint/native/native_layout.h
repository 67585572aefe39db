/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of a checkpoint: which rectangle of which tensor is where. Each
 * rank leaves such a list of its file; together they are checkpoint.json. */
#ifndef LOONG_NATIVE_LAYOUT_H
#define LOONG_NATIVE_LAYOUT_H

#include "checksum.h"
#include "json.h"
#include "native.h"
#include "problems.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_layout_piece {
    loong_checkpoint_tensor_t tensor;
    int64_t begin[LOONG_TENSOR_MAX_DIMS];
    int64_t count[LOONG_TENSOR_MAX_DIMS];
    int64_t file;
    int64_t offset;      /* of the data in the file */
    const char *dataset; /* path in the HDF5 file */
} loong_layout_piece_t;

typedef struct loong_layout_file {
    const char *name;
    int64_t bytes;
    uint64_t xxh3;
} loong_layout_file_t;

typedef struct loong_layout {
    loong_context_t *ctx;
    loong_arena_t *arena; /* all texts */
    int64_t file_count;
    int64_t file_capacity;
    loong_layout_file_t *files;
    int64_t piece_count;
    int64_t piece_capacity;
    loong_layout_piece_t *pieces;
    /* after loongi_layout_check: sorted pieces, one entry for each tensor */
    int64_t tensor_count;
    int64_t *first; /* piece of each tensor; first[tensor_count] = all */
} loong_layout_t;

LOONG_NODISCARD loong_status_t loongi_layout_create(loong_context_t *ctx,
                                                    loong_layout_t **layout_p);
void loongi_layout_destroy(loong_layout_t **layout);

LOONG_NODISCARD loong_status_t loongi_layout_add_file(loong_layout_t *layout,
                                                      const char *name,
                                                      int64_t bytes,
                                                      uint64_t xxh3);
/* Texts are copied. */
LOONG_NODISCARD loong_status_t loongi_layout_add_piece(
    loong_layout_t *layout, const loong_layout_piece_t *piece);

/* Sorts and groups; reports pieces that disagree about their tensor, overlap,
 * leave a hole, or lie outside of their file. */
LOONG_NODISCARD loong_status_t loongi_layout_check(loong_layout_t *layout,
                                                   const char *where);

/* checkpoint.json, or the list of one rank: complete text with its checksum,
 * and back; metadata may be NULL. Writing takes the caller's context. Reading
 * adds to what the layout has: files and pieces. */
LOONG_NODISCARD loong_status_t loongi_layout_write(
    loong_context_t *ctx, const loong_layout_t *layout, int64_t step,
    const loong_pairs_t *metadata, const char *path);
LOONG_NODISCARD loong_status_t loongi_layout_read(loong_layout_t *layout,
                                                  const char *path,
                                                  int64_t *step_p,
                                                  loong_pairs_t *metadata);

#ifdef __cplusplus
}
#endif

#endif
