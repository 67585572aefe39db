/* SPDX-License-Identifier: Apache-2.0
 *
 * A corpus: documents of text out of files and directories, plain or
 * compressed, one after the other.
 *
 * Compression (gzip, xz, zstd) is recognised by content. Without its .gz, .xz
 * or .zst, a name that ends in .jsonl, .ndjson or .json holds one JSON object a
 * line, or is one array of them, and each object is a document; every other
 * file is text, and is one document or, with split_blank_lines, one a
 * paragraph. A byte order mark is dropped.
 */
#ifndef LOONG_CORPUS_H
#define LOONG_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loong/context.h"
#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_corpus loong_corpus_t;

typedef struct loong_corpus_params {
    const char *const *paths; /* files, and directories taken recursively */
    int64_t num_paths;
    const char *suffixes;   /* for files in directories: ".rst,.txt", compared
                               without .gz, .xz and .zst; NULL: all */
    bool split_blank_lines; /* text: documents end at empty lines */
} loong_corpus_params_t;

/* Lists the files: those of a directory sorted by path, links to files
 * followed, links to directories not. Nothing is kept of params.
 * Errors: LOONG_ERR_NOT_FOUND (a path; no file at all), LOONG_ERR_IO. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_corpus_create(loong_context_t *ctx, const loong_corpus_params_t *params,
                    loong_corpus_t **corpus_p);

LOONG_API void loong_corpus_destroy(loong_corpus_t **corpus);

typedef struct loong_corpus_info {
    int64_t files;
    int64_t files_read; /* completely */
    int64_t empty; /* of these without a record */
    int64_t bytes;      /* of all files, as they are on disk */
    int64_t bytes_read; /* so far, as they are on disk */
} loong_corpus_info_t;

LOONG_API void loong_corpus_get_info(const loong_corpus_t *corpus,
                                     loong_corpus_info_t *info);

/* A document as it stands in the file. */
typedef struct loong_record {
    const char *bytes; /* NULL: there are no more */
    size_t length;
    const char *path; /* borrowed, as long as the corpus */
    int64_t line;     /* where it begins, from 1 */
    int64_t offset;   /* likewise, in bytes of the file when decompressed */
    bool json;        /* a JSON object: loong_record_text gets the text */
} loong_record_t;

/* The next record; bytes are valid until the next call. Empty lines and files
 * are passed over. Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_IO,
 * LOONG_ERR_FORMAT (compressed data broken or cut off). */
LOONG_API LOONG_NODISCARD loong_status_t
loong_corpus_next(loong_corpus_t *corpus, loong_record_t *record);

/* The text of a record, as a copy with a NUL behind it that is freed with
 * loong_record_free. For JSON it is the string under json_key. ctx may be
 * another than the corpus's: for worker threads.
 * Errors: LOONG_ERR_FORMAT (no JSON, no object, no such key, no string; names
 * file and line). */
LOONG_API LOONG_NODISCARD loong_status_t
loong_record_text(loong_context_t *ctx, const loong_record_t *record,
                  const char *json_key, char **text_p, size_t *length_p);
LOONG_API void loong_record_free(loong_context_t *ctx, char **text);

#ifdef __cplusplus
}
#endif

#endif
