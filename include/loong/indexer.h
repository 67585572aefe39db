/* SPDX-License-Identifier: Apache-2.0
 *
 * From a corpus to an indexed data set: reading and writing in the calling
 * thread, JSON and tokenisation in worker threads. Documents are written in
 * the order of the corpus, or shuffled, whatever the number of threads.
 */
#ifndef LOONG_INDEXER_H
#define LOONG_INDEXER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loong/context.h"
#include "loong/corpus.h"
#include "loong/dtype.h"
#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How text becomes ids. Each worker thread makes one encoder, on a context of
 * its own, to which its errors go. */
typedef struct loong_encoder_ops {
    loong_status_t (*create)(void *user, loong_context_t *ctx,
                             void **encoder_p);
    /* *ids_p is borrowed until the next call on this encoder. */
    loong_status_t (*encode)(void *encoder, const char *text, size_t length,
                             const int32_t **ids_p, int64_t *count_p);
    void (*destroy)(void *encoder);
} loong_encoder_ops_t;

typedef struct loong_index_result {
    int64_t documents;
    int64_t tokens; /* with the appended ones */
    int64_t text_bytes;
    int64_t not_utf8; /* documents with bytes that are not UTF-8 */
    int64_t empty;   /* documents that gave no token, and were left out */
    int64_t skipped; /* JSON lines that gave no text, and were left out */
} loong_index_result_t;

typedef struct loong_index_params {
    loong_corpus_t *corpus; /* borrowed, read to its end */
    const char *json_key;
    const char *prefix; /* PREFIX.bin, PREFIX.idx */
    loong_dtype_t dtype;
    int64_t append_id; /* end-of-document token, behind each document; -1:
                          none */
    int threads;       /* workers, 1 .. 256 */
    const loong_encoder_ops_t *encoder;
    void *encoder_user;
    /* Called now and then by the calling thread; a status other than LOONG_OK
     * stops the work with it (LOONG_ERR_INTERRUPTED). May be NULL. */
    loong_status_t (*progress)(void *user, const loong_index_result_t *so_far);
    void *progress_user;
    bool skip_broken; /* leave out JSON lines that give no text: each is
                         counted, the first 20 are warnings with file and line;
                         false: the first one ends the work */
    bool shuffle; /* documents in an order of the seed alone; takes the data
                     set's size again while it is written */
    uint64_t seed;
} loong_index_params_t;

/* Writes the data set; on failure nothing is left of it. Not collective.
 * Errors: those of loong_corpus_next, loong_record_text (see skip_broken), the
 * encoder and loong_dataset_writer_add; LOONG_ERR_FORMAT (not a single
 * token). */
LOONG_API LOONG_NODISCARD loong_status_t
loong_index_build(loong_context_t *ctx, const loong_index_params_t *params,
                  loong_index_result_t *result);

#ifdef __cplusplus
}
#endif

#endif
