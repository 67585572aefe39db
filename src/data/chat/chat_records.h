/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of conversations and the records in them. A part of chat.h. */
#ifndef LOONG_CHAT_RECORDS_H
#define LOONG_CHAT_RECORDS_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct chat_energon;

typedef struct chat_file {
    char *path;
    /* Of a data set of megatron-energon: what its metadata say, which the list
     * of files has, the shard's name in them, and its samples; or NULL. */
    const struct chat_energon *energon;
    const char *shard;
    int64_t shard_samples;
    const struct chat_format *format; /* NULL: by its first record */
    int64_t size, changed_s, changed_ns;
    int64_t records, samples, refused, left_out;
} chat_file_t;

typedef struct chat_files {
    loong_context_t *ctx;
    chat_file_t *file;
    int64_t count, room;
    struct chat_energon *energon; /* or NULL */
    bool exact; /* no other part stands in for one that is not there */
} chat_files_t;

/* ".jsonl" and so on, what a name says without a compression's; NULL: nothing
 * that is read. */
const char *loongi_chat_kind(const char *path);
/* A file, or those of a directory whose names say what they are, sorted, or the
 * shards of a part ("train") that megatron-energon's metadata in it list.
 * Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_UNSUPPORTED (kinds that are not read,
 * with the command that converts). */
LOONG_NODISCARD loong_status_t loongi_chat_list(chat_files_t *files,
                                                const char *path,
                                                const char *part);
LOONG_NODISCARD loong_status_t loongi_chat_add_file(chat_files_t *files,
                                                    const char *path);
void loongi_chat_files_free(chat_files_t *files);

typedef struct chat_record {
    const char *bytes; /* NULL: there are no more */
    size_t length;
    int64_t line;
    bool plain;  /* a text; else JSON */
    bool broken; /* bytes say what is wrong with it */
} chat_record_t;

typedef struct chat_reader chat_reader_t;
LOONG_NODISCARD loong_status_t loongi_chat_reader_create(
    loong_context_t *ctx, const chat_file_t *file, chat_reader_t **reader_p);
void loongi_chat_reader_destroy(chat_reader_t **reader);
/* Bytes are valid until the next call. Errors: what is wrong with the file, so
 * that it has no records behind. */
LOONG_NODISCARD loong_status_t loongi_chat_reader_next(chat_reader_t *reader,
                                                       chat_record_t *record);

/* The next row as a JSON object of its columns, *whole_p false: what is wrong
 * with it; length 0: there are no more. Rows are what RFC 4180 says, cells of
 * columns that hold lists are JSON. */
typedef struct chat_csv chat_csv_t;
LOONG_NODISCARD loong_status_t loongi_chat_csv_create(loong_context_t *ctx,
                                                      const char *path,
                                                      char separator,
                                                      chat_csv_t **csv_p);
void loongi_chat_csv_destroy(chat_csv_t **csv);
LOONG_NODISCARD loong_status_t loongi_chat_csv_next(chat_csv_t *csv,
                                                    loong_text_t *row,
                                                    int64_t *line_p,
                                                    bool *whole_p);

/* The next sample of a tar file as a JSON object, with the names of its
 * pictures and videos as CHAT_MEMBERS, *whole_p false: what is wrong with it;
 * length 0: there are no more. */
#define CHAT_MEMBERS "__members__"
typedef struct chat_shard chat_shard_t;
LOONG_NODISCARD loong_status_t loongi_chat_shard_create(loong_context_t *ctx,
                                                        const chat_file_t *file,
                                                        chat_shard_t **shard_p);
void loongi_chat_shard_destroy(chat_shard_t **shard);
LOONG_NODISCARD loong_status_t loongi_chat_shard_next(chat_shard_t *shard,
                                                      loong_text_t *row,
                                                      int64_t *sample_p,
                                                      bool *whole_p);

/* Fields of megatron-energon's samples that are read. */
#define CHAT_FIELD_LIST(X) \
    X(image)               \
    X(video)               \
    X(caption)             \
    X(context)             \
    X(answers)             \
    X(answer_weights)
typedef enum chat_field {
#define CHAT_FIELD_ENUM(name_) CHAT_FIELD_##name_,
    CHAT_FIELD_LIST(CHAT_FIELD_ENUM)
#undef CHAT_FIELD_ENUM
        CHAT_FIELDS
} chat_field_t;
extern const char *const loongi_chat_field_names[CHAT_FIELDS];

/* Reads a directory's .nv-meta, where there is one, into files->energon, and
 * lists the shards of a part. */
LOONG_NODISCARD loong_status_t loongi_chat_energon_list(chat_files_t *files,
                                                        const char *path,
                                                        const char *part);
void loongi_chat_energon_free(chat_files_t *files);
/* What field_map makes it of, "json[question]"; NULL: nothing. */
const char *loongi_chat_energon_field(const struct chat_energon *energon,
                                      chat_field_t field);
/* Samples are as they come, without field_map. */
bool loongi_chat_energon_is_crude(const struct chat_energon *energon);
bool loongi_chat_energon_excludes(const struct chat_energon *energon,
                                  const char *shard, const char *key,
                                  size_t length);
/* How many names of samples of this shard are excluded. */
int64_t loongi_chat_energon_num_excluded(const struct chat_energon *energon,
                                         const char *shard);
uint64_t loongi_chat_energon_hash(const struct chat_energon *energon);

/* Whether .parquet, .arrow and .feather files can be read: the object that does
 * it is there. */
bool loongi_chat_arrow_loads(void);
/* The next row of one as a JSON object; length 0: there are no more. What JSON
 * has no type for is left out and told. Errors: LOONG_ERR_FORMAT. */
typedef struct chat_arrow chat_arrow_t;
LOONG_NODISCARD loong_status_t loongi_chat_arrow_create(loong_context_t *ctx,
                                                        const char *path,
                                                        chat_arrow_t **arrow_p);
void loongi_chat_arrow_destroy(chat_arrow_t **arrow);
LOONG_NODISCARD loong_status_t loongi_chat_arrow_next(chat_arrow_t *arrow,
                                                      loong_text_t *row,
                                                      int64_t *row_p);

#ifdef __cplusplus
}
#endif

#endif
