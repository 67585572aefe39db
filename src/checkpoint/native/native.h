/* SPDX-License-Identifier: Apache-2.0
 *
 * Native checkpoints: every parameter, in one or several kinds ("param",
 * "exp_avg", ...), stored by name and global shape, so that any number of
 * ranks loads what any number of ranks saved.
 *
 *   SAVE/latest                    the name of the newest complete step
 *   SAVE/step_00000100/
 *     checkpoint.json              metadata, files with size and checksum,
 *                                  tensors; has a checksum
 *     pieces.json                  pieces with their place, by tensor
 *     rank_00000.h5 ...            HDF5, /KIND/NAME: the rank's rectangles
 *     index.h5                     HDF5, /KIND/NAME: whole tensors (virtual)
 *     hf/                          tokenizer files (optional); checkpoint.json
 *                                  has their sizes and checksums
 *
 * A directory gets its name only when all of it is on the disk: before that
 * it is SAVE/.tmp_step_..., which readers ignore and the next save removes.
 */
#ifndef LOONG_NATIVE_H
#define LOONG_NATIVE_H

#include "file_set.h"
#include "loong/dtype.h"
#include "pairs.h"
#include "safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a save needs from the ranks: two collectives, root rank 0. A NULL
 * table means one rank. */
typedef struct loong_checkpoint_comm {
    int rank;
    int size;
    void *user;
    /* Every rank gives `bytes` bytes; all (size x bytes, by rank) is used on
     * rank 0 only. */
    loong_status_t (*gather)(void *user, const void *mine, size_t bytes,
                             void *all);
    loong_status_t (*broadcast)(void *user, void *data, size_t bytes);
} loong_checkpoint_comm_t;

/* Fills dst with rows [row, row + rows) of a piece, in the piece's type.
 * Called from the writing thread. */
typedef loong_status_t (*loong_checkpoint_fetch_fn)(void *user, int64_t row,
                                                    int64_t rows, void *dst);

/* A rectangle of a global tensor that this rank holds. */
typedef struct loong_checkpoint_piece {
    const char *kind; /* "param", "exp_avg", "exp_avg_sq", ... */
    const char *name; /* "foundation.layers.0.mlp.up_proj.weight" */
    loong_dtype_t dtype;
    int ndim;
    int64_t shape[LOONG_TENSOR_MAX_DIMS]; /* of the whole tensor */
    int64_t begin[LOONG_TENSOR_MAX_DIMS];
    int64_t count[LOONG_TENSOR_MAX_DIMS]; /* a 0 makes it no piece at all */
    /* The elements, dense; live memory, read until wait returns. NULL: they
     * come from fetch (master weights in two halves, device memory). */
    const void *data;
    loong_checkpoint_fetch_fn fetch;
    void *user;
} loong_checkpoint_piece_t;

typedef struct loong_checkpoint_save_params {
    const char *dir; /* SAVE */
    int64_t step;
    const loong_checkpoint_comm_t *comm;
    const loong_pairs_t *metadata; /* rank 0's is stored */
    const loong_file_set_t *files; /* rank 0: to keep in hf/; or NULL */
    bool async;            /* helper threads write and assemble */
    int keep_last;         /* steps kept, this one included; 0: all */
} loong_checkpoint_save_params_t;

typedef struct loong_checkpoint_save loong_checkpoint_save_t;

/* Opens a save. The ranks must see one file system. One save at a time for a
 * directory. Collective on: params->comm; all ranks return one status. */
LOONG_NODISCARD loong_status_t loongi_checkpoint_save_begin(
    loong_context_t *ctx, const loong_checkpoint_save_params_t *params,
    loong_checkpoint_save_t **save_p);
/* Texts are copied. Not collective. */
LOONG_NODISCARD loong_status_t loongi_checkpoint_save_add(
    loong_checkpoint_save_t *save, const loong_checkpoint_piece_t *piece);
/* Starts to write (async) or writes. Failures of writing are reported by
 * advance, on all ranks. Not collective. */
LOONG_NODISCARD loong_status_t
loongi_checkpoint_save_start(loong_checkpoint_save_t *save);
/* Returns when the pieces' memory is no longer read; call it before anything
 * changes them. Returns the seconds that it blocked. Not collective. */
double loongi_checkpoint_save_wait(loong_checkpoint_save_t *save);
/* True when advance would not wait for this rank's disk. Not collective. */
bool loongi_checkpoint_save_ready(loong_checkpoint_save_t *save);
/* Takes the ranks over the end of a stage; when it is ready on every rank,
 * none waits for more than the others' word. First every rank writes its file;
 * then rank 0 checks that the pieces of all ranks cover every tensor exactly,
 * and makes the checkpoint visible and durable: *whole_p. On failure nothing
 * of it is left and older checkpoints are untouched.
 * Errors: LOONG_ERR_IO (a full disk too), LOONG_ERR_FORMAT (what the pieces
 * leave out is listed). Collective on: params->comm; all ranks return one
 * status. */
LOONG_NODISCARD loong_status_t loongi_checkpoint_save_advance(
    loong_checkpoint_save_t *save, bool *whole_p);
/* Waits until the checkpoint is whole. Collective, as advance. */
LOONG_NODISCARD loong_status_t
loongi_checkpoint_save_commit(loong_checkpoint_save_t *save);
/* Seconds this rank worked on the save, those of a processor, and the bytes of
 * its file; 0 while it works. */
double loongi_checkpoint_save_seconds(loong_checkpoint_save_t *save);
double loongi_checkpoint_save_cpu_seconds(loong_checkpoint_save_t *save);
int64_t loongi_checkpoint_save_bytes(loong_checkpoint_save_t *save);
void loongi_checkpoint_save_destroy(loong_checkpoint_save_t **save);

/* ---- loading; not collective, any number of ranks ---- */

typedef struct loong_checkpoint loong_checkpoint_t;

typedef struct loong_checkpoint_tensor {
    const char *kind;
    const char *name;
    loong_dtype_t dtype;
    int ndim;
    int64_t shape[LOONG_TENSOR_MAX_DIMS];
} loong_checkpoint_tensor_t;

/* Opens a step directory, or a save directory at its `latest`. Checks
 * checkpoint.json, that every file is there with its size, and that the
 * pieces cover every tensor; problems are listed together.
 * Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_FORMAT. */
LOONG_NODISCARD loong_status_t loongi_checkpoint_open(
    loong_context_t *ctx, const char *path, loong_checkpoint_t **checkpoint_p);
/* The same for one of `parts` ranks: it looks at the files part, part + parts,
 * ... and the tensors part, part + parts, ...; parts 0: at checkpoint.json
 * alone. What a rank reads later is checked then. */
LOONG_NODISCARD loong_status_t
loongi_checkpoint_open_part(loong_context_t *ctx, const char *path, int part,
                            int parts, loong_checkpoint_t **checkpoint_p);
void loongi_checkpoint_close(loong_checkpoint_t **checkpoint);
/* The names of the complete steps in a save directory: what `latest` names
 * first, then those completed last. Errors: LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t
loongi_checkpoint_steps(loong_context_t *ctx, loong_arena_t *arena,
                        const char *dir, const char ***names_p,
                        int64_t *count_p);
/* Whether there is a checkpoint, or may be a model. Errors:
 * LOONG_ERR_NOT_FOUND, with what is there instead. */
LOONG_NODISCARD loong_status_t
loongi_checkpoint_check_place(loong_context_t *ctx, const char *path);
/* The same where a checkpoint is not wanted. Errors: LOONG_ERR_ARG too. */
LOONG_NODISCARD loong_status_t
loongi_checkpoint_check_model(loong_context_t *ctx, const char *path);
/* For a save directory: it holds no model. Errors: LOONG_ERR_ARG. */
LOONG_NODISCARD loong_status_t
loongi_checkpoint_check_no_model(loong_context_t *ctx, const char *path);
/* For a directory that is to be written: it is no step of a checkpoint, nor in
 * one, by links neither. Errors: LOONG_ERR_ARG. */
LOONG_NODISCARD loong_status_t
loongi_checkpoint_check_outside(loong_context_t *ctx, const char *path);
/* True when path looks like a step or save directory. */
bool loongi_checkpoint_is_native(const char *path);

const char *loongi_checkpoint_path(const loong_checkpoint_t *checkpoint);
int64_t loongi_checkpoint_step(const loong_checkpoint_t *checkpoint);
int loongi_checkpoint_ranks(const loong_checkpoint_t *checkpoint);
/* Of all tensors, and of what was read of them so far. */
int64_t loongi_checkpoint_bytes(const loong_checkpoint_t *checkpoint);
int64_t loongi_checkpoint_bytes_read(const loong_checkpoint_t *checkpoint);
/* Read of checkpoint.json and pieces.json so far. */
int64_t loongi_checkpoint_index_bytes(const loong_checkpoint_t *checkpoint);
const loong_pairs_t *
loongi_checkpoint_metadata(const loong_checkpoint_t *checkpoint);
/* Sorted by kind and name. */
int64_t loongi_checkpoint_count(const loong_checkpoint_t *checkpoint);
const loong_checkpoint_tensor_t *
loongi_checkpoint_get(const loong_checkpoint_t *checkpoint, int64_t index);
/* NULL when absent. */
const loong_checkpoint_tensor_t *
loongi_checkpoint_find(const loong_checkpoint_t *checkpoint, const char *kind,
                       const char *name);

/* Reads a rectangle, dense, converted to dtype when that differs (floating
 * point only). Errors: LOONG_ERR_ARG, LOONG_ERR_IO, LOONG_ERR_UNSUPPORTED. */
LOONG_NODISCARD loong_status_t loongi_checkpoint_read(
    loong_checkpoint_t *checkpoint, const loong_checkpoint_tensor_t *tensor,
    const int64_t *begin, const int64_t *count, loong_dtype_t dtype, void *dst);
/* Rows [row, row + rows) of the leading dimension. */
LOONG_NODISCARD loong_status_t loongi_checkpoint_read_rows(
    loong_checkpoint_t *checkpoint, const loong_checkpoint_tensor_t *tensor,
    int64_t row, int64_t rows, loong_dtype_t dtype, void *dst);

/* Maps all files. After it, rows can be read by several threads. */
LOONG_NODISCARD loong_status_t
loongi_checkpoint_map(loong_checkpoint_t *checkpoint);
/* Rows without a copy, as hf_weights.h has it; false when no piece has them
 * all. The checkpoint was mapped. */
bool loongi_checkpoint_lend(loong_checkpoint_t *checkpoint,
                            const loong_checkpoint_tensor_t *tensor,
                            int64_t row, int64_t rows,
                            loong_borrowed_t *borrowed);

/* Compares with what somebody wants to load (dtype is ignored): missing,
 * unexpected and mismatched tensors are listed together. A kind that nobody
 * wants, and components of which nobody wants anything, are not looked at.
 * Errors: LOONG_ERR_MISMATCH. */
LOONG_NODISCARD loong_status_t
loongi_checkpoint_check(const loong_checkpoint_t *checkpoint,
                        const loong_checkpoint_tensor_t *wanted, int64_t count);

/* Checksums of the files part, part + parts, ... and, for part 0, that HDF5
 * sees in index.h5 what checkpoint.json says. (0, 1) checks all, and that HDF5
 * sees every piece in its file.
 * Errors: LOONG_ERR_FORMAT, files and tensors are named. */
LOONG_NODISCARD loong_status_t
loongi_checkpoint_verify(loong_checkpoint_t *checkpoint, int part, int parts);

/* Reads the files that a step keeps in hf/, if it does. */
LOONG_NODISCARD loong_status_t loongi_checkpoint_read_hf(
    const loong_checkpoint_t *checkpoint, loong_file_set_t *files);
/* The checksums of the files that checkpoint.json lists of hf/; others: no more
 * may be there. Errors: LOONG_ERR_FORMAT, files are named. */
LOONG_NODISCARD loong_status_t loongi_checkpoint_verify_hf(
    const loong_checkpoint_t *checkpoint, bool others);
/* False: an earlier version saved it, so nothing is known of its hf/. */
bool loongi_checkpoint_lists_hf(const loong_checkpoint_t *checkpoint);

#ifdef __cplusplus
}
#endif

#endif
