/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of a checkpoint: which rectangle of which tensor is where. Each
 * rank leaves such a list of its file. Together they are checkpoint.json, which
 * names files and tensors, and pieces.json, which has a line for each tensor:
 * who loads reads the lines of the tensors that it wants. */
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
    int64_t reach; /* the check: furthest end in dimension 0 up to this one */
} loong_layout_piece_t;

typedef struct loong_layout_file {
    const char *name;
    int64_t bytes;
    uint64_t xxh3;
} loong_layout_file_t;

typedef struct loong_layout_tensor {
    loong_checkpoint_tensor_t tensor;
    int64_t count;                /* of its pieces */
    loong_layout_piece_t *pieces; /* by begin; NULL: not read yet */
    bool checked;
    int64_t offset; /* of its line in pieces.json */
    int64_t bytes;
    uint64_t xxh3;
} loong_layout_tensor_t;

typedef struct loong_layout {
    loong_context_t *ctx;
    loong_arena_t *arena; /* all texts, and pieces that are read by tensor */
    int64_t file_count;
    int64_t file_capacity;
    loong_layout_file_t *files;
    /* Those of hf/. Checkpoints of earlier versions do not list them. */
    bool lists_hf;
    int64_t hf_count;
    int64_t hf_capacity;
    loong_layout_file_t *hf_files;
    /* Those that were added one by one; the check sorts them. */
    int64_t piece_count;
    int64_t piece_capacity;
    loong_layout_piece_t *pieces;
    /* Sorted by kind and name: read, or made of the pieces by the check. */
    int64_t tensor_count;
    int64_t tensor_capacity;
    loong_layout_tensor_t *tensors;
    const char *lists;   /* path of pieces.json; NULL: all pieces are here */
    int lists_file;      /* its descriptor, or -1 */
    int64_t index_bytes; /* read of checkpoint.json and pieces.json */
} loong_layout_t;

LOONG_NODISCARD loong_status_t loongi_layout_create(loong_context_t *ctx,
                                                    loong_layout_t **layout_p);
void loongi_layout_destroy(loong_layout_t **layout);

LOONG_NODISCARD loong_status_t loongi_layout_add_file(loong_layout_t *layout,
                                                      const char *name,
                                                      int64_t bytes,
                                                      uint64_t xxh3);
/* A file of hf/. */
LOONG_NODISCARD loong_status_t loongi_layout_add_hf(loong_layout_t *layout,
                                                    const char *name,
                                                    int64_t bytes,
                                                    uint64_t xxh3);
/* Texts are copied. */
LOONG_NODISCARD loong_status_t loongi_layout_add_piece(
    loong_layout_t *layout, const loong_layout_piece_t *piece);

/* Reads and checks the tensors part, part + parts, ...: reports pieces that
 * disagree about their tensor, overlap, leave a hole, or lie outside of their
 * file. (0, 1) checks all, parts 0 none. */
LOONG_NODISCARD loong_status_t loongi_layout_check(loong_layout_t *layout,
                                                   int part, int parts,
                                                   const char *where);
/* The same for one tensor, unless that was done: then its pieces are there. */
LOONG_NODISCARD loong_status_t loongi_layout_load(loong_layout_t *layout,
                                                  int64_t tensor,
                                                  const char *where);
/* Positive dimensions whose bytes can be counted. */
bool loongi_layout_is_shape(const loong_checkpoint_tensor_t *tensor);

/* The list of one rank: complete text with its checksum. */
LOONG_NODISCARD loong_status_t
loongi_layout_write_list(loong_context_t *ctx, const loong_layout_t *layout,
                         int64_t step, const char *path);
/* pieces.json, then checkpoint.json, of a layout that has been checked. */
LOONG_NODISCARD loong_status_t loongi_layout_write_index(
    loong_layout_t *layout, int64_t step, const loong_pairs_t *metadata,
    const char *dir);
/* Reads a list or a checkpoint.json, also one that has all pieces in itself;
 * metadata may be NULL. Adds to what the layout has. */
LOONG_NODISCARD loong_status_t loongi_layout_read(loong_layout_t *layout,
                                                  const char *path,
                                                  int64_t *step_p,
                                                  loong_pairs_t *metadata);

/* pieces.json (native_pieces.c). Writing sets the tensors' lines. */
LOONG_NODISCARD loong_status_t
loongi_pieces_write(loong_layout_t *layout, const char *path);
/* Reads the tensor's line of layout->lists; it is not checked yet. */
LOONG_NODISCARD loong_status_t loongi_pieces_read(loong_layout_t *layout,
                                                  int64_t tensor);
/* A line: `bytes` bytes of text. */
LOONG_NODISCARD loong_status_t loongi_pieces_parse(loong_layout_t *layout,
                                                   int64_t tensor,
                                                   const char *text,
                                                   size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
