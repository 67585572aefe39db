/* SPDX-License-Identifier: Apache-2.0
 *
 * A file into records: JSON by lines or as an array, rows of a table or of
 * columns, samples of a tar file, lines of a text. Called by prepare.c. Read
 * chat.h before. */
#include <string.h>

#include "chat.h"
#include "loong/corpus.h"
#include "stream.h"

enum { READ_SIZE = 1 << 16 };

struct chat_reader {
    loong_context_t *ctx;
    loong_corpus_t *corpus; /* of JSON */
    chat_csv_t *csv;
    chat_arrow_t *arrow;
    chat_shard_t *shard;
    loong_text_t row;
    loong_stream_t *stream; /* of text */
    loong_text_t buffer;
    size_t at;
    int64_t line; /* of what begins at `at` */
    bool ended;
};

static loong_status_t open_kind(chat_reader_t *r, const chat_file_t *file)
{
    const char *path = file->path;
    const char *kind = loongi_chat_kind(path);
    const loong_corpus_params_t params = {&path, 1, NULL, false};
    bool table = strcmp(kind, ".csv") == 0 || strcmp(kind, ".tsv") == 0;
    if (table) {
        return loongi_chat_csv_create(
            r->ctx, path, strcmp(kind, ".tsv") == 0 ? '\t' : ',', &r->csv);
    }
    if (strcmp(kind, ".parquet") == 0 || strcmp(kind, ".arrow") == 0 ||
        strcmp(kind, ".feather") == 0) {
        return loongi_chat_arrow_create(r->ctx, path, &r->arrow);
    }
    if (strcmp(kind, ".tar") == 0) {
        return loongi_chat_shard_create(r->ctx, file, &r->shard);
    }
    return strcmp(kind, ".txt") == 0
               ? loongi_stream_create(r->ctx, path, &r->stream)
               : loong_corpus_create(r->ctx, &params, &r->corpus);
}

loong_status_t loongi_chat_reader_create(loong_context_t *ctx,
                                         const chat_file_t *file,
                                         chat_reader_t **reader_p)
{
    chat_reader_t *r = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*r), "reader of records", &r));
    r->ctx = ctx;
    r->row = loongi_text_begin(ctx);
    r->buffer = loongi_text_begin(ctx);
    r->line = 1;
    loong_status_t status = open_kind(r, file);
    if (status != LOONG_OK) {
        loongi_chat_reader_destroy(&r);
        return status;
    }
    *reader_p = r;
    return LOONG_OK;
}

void loongi_chat_reader_destroy(chat_reader_t **reader)
{
    chat_reader_t *r = *reader;
    if (r == NULL) {
        return;
    }
    loong_corpus_destroy(&r->corpus);
    loongi_chat_csv_destroy(&r->csv);
    loongi_chat_arrow_destroy(&r->arrow);
    loongi_chat_shard_destroy(&r->shard);
    loongi_stream_destroy(&r->stream);
    loongi_text_free(&r->row);
    loongi_text_free(&r->buffer);
    loongi_free(r->ctx, r);
    *reader = NULL;
}

static loong_status_t next_json(chat_reader_t *r, chat_record_t *record)
{
    loong_record_t found;
    LOONG_TRY(loong_corpus_next(r->corpus, &found));
    *record = (chat_record_t){
        .bytes = found.bytes, .length = found.length, .line = found.line};
    while (record->bytes != NULL && record->length > 0 &&
           (unsigned char)record->bytes[record->length - 1] <= ' ') {
        record->length--;
    }
    return LOONG_OK;
}

static loong_status_t next_row(chat_reader_t *r, chat_record_t *record)
{
    bool whole = true;
    memset(record, 0, sizeof(*record));
    r->row.length = 0;
    LOONG_TRY(
        r->csv != NULL
            ? loongi_chat_csv_next(r->csv, &r->row, &record->line, &whole)
        : r->shard != NULL
            ? loongi_chat_shard_next(r->shard, &r->row, &record->line, &whole)
            : loongi_chat_arrow_next(r->arrow, &r->row, &record->line));
    record->bytes = r->row.length > 0 ? r->row.data : NULL;
    record->length = r->row.length;
    record->broken = !whole;
    return LOONG_OK;
}

/* Reads on behind what is there from `at`. */
static loong_status_t fill(chat_reader_t *r)
{
    char bytes[READ_SIZE];
    size_t length = 0;
    LOONG_TRY(loongi_stream_read(r->stream, bytes, sizeof(bytes), &length));
    if (r->at > 0) {
        r->buffer.length -= r->at;
        memmove(r->buffer.data, r->buffer.data + r->at, r->buffer.length);
        r->at = 0;
    }
    loongi_text_append(&r->buffer, bytes, length);
    r->ended = length == 0;
    return r->buffer.status;
}

/* A line that is not blank, without its end. */
static loong_status_t next_line(chat_reader_t *r, chat_record_t *record)
{
    size_t searched = 0;
    record->bytes = NULL;
    for (;;) {
        const char *begin = r->buffer.data + r->at;
        size_t length = r->buffer.length - r->at;
        const char *newline = length > searched ? memchr(begin + searched, '\n',
                                                         length - searched)
                                                : NULL;
        if (newline == NULL && !r->ended) {
            searched = length;
            LOONG_TRY(fill(r));
            continue;
        }
        if (length == 0) {
            return LOONG_OK;
        }
        size_t taken = newline != NULL ? (size_t)(newline - begin) : length;
        *record = (chat_record_t){
            .bytes = begin, .length = taken, .line = r->line, .plain = true};
        r->at += taken + (newline != NULL);
        r->line += newline != NULL;
        searched = 0;
        while (record->length > 0 &&
               (unsigned char)begin[record->length - 1] <= ' ') {
            record->length--;
        }
        if (record->length > 0) {
            return LOONG_OK;
        }
        record->bytes = NULL;
    }
}

loong_status_t loongi_chat_reader_next(chat_reader_t *reader,
                                       chat_record_t *record)
{
    return reader->corpus != NULL   ? next_json(reader, record)
           : reader->stream == NULL ? next_row(reader, record)
                                    : next_line(reader, record);
}
