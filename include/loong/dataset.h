/* SPDX-License-Identifier: Apache-2.0
 *
 * Indexed data sets: token ids on disk in Megatron's MMIDIDX format, read
 * through a memory map and written as a stream.
 *
 *   PREFIX.bin       token ids of all documents back to back, little-endian
 *   PREFIX.idx       lengths, offsets, document starts (docs/data.md)
 *   PREFIX.mask.bin  optional loss mask, one u8 a token: 1 = the token is
 *                    learned, 0 = it is context only
 *
 * Tokens are numbered 0 .. tokens-1 over the whole file: a position in that
 * numbering is what "token" means below. A document is one or more sequences.
 */
#ifndef LOONG_DATASET_H
#define LOONG_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loong/context.h"
#include "loong/dtype.h"
#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_dataset loong_dataset_t;

enum { LOONG_INDEX_WINDOW = 256, LOONG_INDEX_WINDOWS = 13 };

/* What a complete check of an index has found, and of which file. */
typedef struct loong_index_digest {
    uint64_t size;     /* bytes of the .idx file; 0: nothing is known */
    int64_t changed_s; /* when it was changed last: st_ctim */
    int64_t changed_ns;
    int64_t tokens;
    uint64_t hash; /* of the .idx file */
    /* [k]: the most documents that begin within LOONG_INDEX_WINDOW << k tokens
     * in a row, empty ones too. */
    int64_t starts[LOONG_INDEX_WINDOWS];
} loong_index_digest_t;

typedef struct loong_dataset_info {
    const char *prefix; /* borrowed from the data set */
    loong_dtype_t dtype;
    int64_t sequences;
    int64_t documents;
    int64_t tokens;
    bool has_mask;
    uint64_t hash; /* of the index, the sizes and samples of the content */
    loong_index_digest_t index;
} loong_dataset_info_t;

/* Maps PREFIX.bin and PREFIX.idx, and PREFIX.mask.bin when it is there. Magic,
 * version, type and the sizes of all files are checked; the index completely,
 * every length, offset and document start, when neither `known` (may be NULL)
 * nor PREFIX.idx.digest tells that this was done since the file was changed
 * last. The digest is left beside it then, where the directory can be written.
 * Otherwise opening reads a fixed number of pages, and entries are checked when
 * they are read, as token ids are. The files must not change while the data set
 * is open.
 * Not collective. *dataset_p is owned by the caller.
 * Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_IO, LOONG_ERR_FORMAT (what is broken
 * and where), LOONG_ERR_UNSUPPORTED (multimodal index), LOONG_ERR_MEMORY. */
LOONG_API LOONG_NODISCARD loong_status_t loong_dataset_create_known(
    loong_context_t *ctx, const char *prefix, const loong_index_digest_t *known,
    loong_dataset_t **dataset_p);

/* The same with nothing known. */
LOONG_API LOONG_NODISCARD loong_status_t loong_dataset_create(
    loong_context_t *ctx, const char *prefix, loong_dataset_t **dataset_p);

/* Checks the index completely, whatever was known of it.
 * Errors: LOONG_ERR_FORMAT (what is broken and where). */
LOONG_API LOONG_NODISCARD loong_status_t
loong_dataset_check_index(const loong_dataset_t *dataset);

/* Unmaps; NULL is accepted, *dataset becomes NULL. */
LOONG_API void loong_dataset_destroy(loong_dataset_t **dataset);

LOONG_API void loong_dataset_get_info(const loong_dataset_t *dataset,
                                      loong_dataset_info_t *info);

/* First token of a document, 0 <= document <= documents; `documents` gives
 * the end of the last one. Documents may be empty. -1: the index is damaged
 * there, which stands in the context's error. */
LOONG_API int64_t loong_dataset_get_start(const loong_dataset_t *dataset,
                                          int64_t document);

/* The document that holds a token, 0 <= token < tokens; -1 as above.
 * O(log documents). */
LOONG_API int64_t loong_dataset_find_document(const loong_dataset_t *dataset,
                                              int64_t token);

/* At most so many documents have a part in any `tokens` tokens in a row. O(1):
 * that of the next power of two, or of several of the largest windows. */
LOONG_API int64_t loong_dataset_most_documents(const loong_dataset_t *dataset,
                                               int64_t tokens);

/* Copies `count` ids from `token` on. Every id must lie in 0 .. vocab_size-1.
 * Errors: LOONG_ERR_ARG (range outside the data set), LOONG_ERR_FORMAT (id out
 * of range: file, document, position in it, id). */
LOONG_API LOONG_NODISCARD loong_status_t
loong_dataset_read(const loong_dataset_t *dataset, int64_t token, int64_t count,
                   int64_t vocab_size, int32_t *ids);

/* Copies `count` mask values (0 or 1); all 1 without a mask column.
 * Errors: LOONG_ERR_ARG, LOONG_ERR_FORMAT (another value). */
LOONG_API LOONG_NODISCARD loong_status_t
loong_dataset_read_mask(const loong_dataset_t *dataset, int64_t token,
                        int64_t count, uint8_t *mask);

/* Asks the system to read `count` tokens ahead; returns at once. */
LOONG_API void loong_dataset_prefetch(const loong_dataset_t *dataset,
                                      int64_t token, int64_t count);

/* Megatron's choice of type: LOONG_U16 below 65500 entries, else LOONG_I32. */
LOONG_API loong_dtype_t loong_dataset_dtype(int64_t vocab_size);

typedef struct loong_dataset_writer loong_dataset_writer_t;

typedef struct loong_dataset_writer_params {
    const char *prefix;  /* copied */
    loong_dtype_t dtype; /* an integer type */
    bool with_mask;
} loong_dataset_writer_params_t;

/* Begins PREFIX.{bin,idx,mask.bin} under temporary names. Only one writer of
 * a prefix at a time. Token ids are streamed to disk; 12 bytes a document
 * (4 a sequence, 8 a document) stay in memory until the commit.
 * Errors: LOONG_ERR_ARG, LOONG_ERR_IO, LOONG_ERR_MEMORY. */
LOONG_API LOONG_NODISCARD loong_status_t loong_dataset_writer_create(
    loong_context_t *ctx, const loong_dataset_writer_params_t *params,
    loong_dataset_writer_t **writer_p);

/* Appends one sequence. mask (u8 [count]) is given if and only if the writer
 * has a mask. Errors: LOONG_ERR_ARG (id does not fit the type), LOONG_ERR_IO
 * (full disk), LOONG_ERR_MEMORY. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_dataset_writer_add(loong_dataset_writer_t *writer, const int32_t *ids,
                         const uint8_t *mask, int64_t count);

/* Ends a document: the sequences since the last end belong to it. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_dataset_writer_end_document(loong_dataset_writer_t *writer);

/* Writes the index, makes everything durable and moves it into place,
 * replacing a data set of the same name. Until then an old data set is
 * untouched; a crash in between leaves no index or a complete new one. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_dataset_writer_commit(loong_dataset_writer_t *writer);

/* Frees; without a commit the temporary files are removed. */
LOONG_API void loong_dataset_writer_destroy(loong_dataset_writer_t **writer);

#ifdef __cplusplus
}
#endif

#endif
