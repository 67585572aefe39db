/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations as samples: files of records in the usual formats, rendered by
 * a chat template and tokenised as transformers' apply_chat_template does, one
 * sample a conversation, with a weight of 1 or 0 for each token.
 *
 * What was tokenised is kept in a directory, so that it is made once: an
 * indexed data set (loong/dataset.h) with a loss mask, and beside it the file
 * and line of each sample and what was refused. Its name is a digest of the
 * files' sizes and times, the tokenizer, the template and the options.
 *
 * Not collective.
 */
#ifndef LOONG_CHAT_H
#define LOONG_CHAT_H

#include <stdbool.h>

#include "loong/source.h"
#include "loong/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All zero: recognised formats, the model's own template, assistants' turns.
 * Texts are borrowed until the source is open. */
typedef struct loong_chat_options {
    /* "openai", "sharegpt", "alpaca", "prompt_completion", "preference",
     * "kto", "vqa", "caption", "text"; NULL or "auto": by the keys of a file's
     * first record, of each sample's in tar files. */
    const char *format;
    /* The name of one of the model's templates or of a built-in one, or the
     * path of a .jinja; NULL: the model's own. */
    const char *template_name;
    const char *template_kwargs; /* a JSON object; NULL: none */
    const char *date; /* of strftime_now, as 2026-01-31; NULL: today */
    const char *train_on;        /* "assistant" (NULL), "all", "last" */
    bool train_on_tool_results;
    bool use_chosen;   /* preference pairs, KTO: learns what was preferred */
    bool skip_refused; /* records that cannot be used are left out */
    /* Every picture and video is decoded once, so that a record with a broken
     * one is refused; else reading such a sample is an error. */
    bool decode;
    /* Records have pictures (loong_source_params_t says by which token). */
    bool images;
    /* Of sharegpt, as "user=human": names of keys and roles. */
    const char *const *tags;
    int64_t num_tags;
    /* The directory for what was tokenised; NULL: libloong below
     * $XDG_CACHE_HOME or $HOME/.cache. */
    const char *cache;
} loong_chat_options_t;

typedef struct loong_chat loong_chat_t;

/* Opens a file or a directory of files. params->chat may be NULL. It writes
 * into the directory of options->cache where nothing was kept of the same.
 * Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_IO, LOONG_ERR_CONFIG (options; no
 * tokenizer or template), LOONG_ERR_UNSUPPORTED (a kind of file, or what a
 * template or tokenizer does), LOONG_ERR_FORMAT (a file that cannot be cut into
 * records; refused records, with file, line and why of the first, and how many
 * there are). */
LOONG_API LOONG_NODISCARD loong_status_t
loong_chat_open(loong_context_t *ctx, const loong_source_params_t *params,
                loong_chat_t **chat_p);
LOONG_API void loong_chat_close(loong_chat_t **chat);

typedef struct loong_chat_info {
    int64_t files, records, samples;
    int64_t refused;
    int64_t left_out; /* by use_chosen: what was not preferred */
    int64_t tokens, learned;
    int64_t shortest, median, longest; /* tokens of a sample */
    const char *template_name;         /* borrowed, as all texts */
    const char *refused_file;          /* a line for each: file:line: why */
    const char *cache;                 /* what was tokenised */
    bool found;                        /* it was there already */
} loong_chat_info_t;

typedef struct loong_chat_file {
    const char *path, *format;
    int64_t records, samples, refused, left_out;
} loong_chat_file_t;

LOONG_API void loong_chat_get_info(const loong_chat_t *chat,
                                   loong_chat_info_t *info);
/* 0 <= file < files. */
LOONG_API void loong_chat_get_file(const loong_chat_t *chat, int64_t file,
                                   loong_chat_file_t *info);
/* Sample i as one item TOKENS, named "file:line", and an item IMAGE for each of
 * its pictures, which stands at one token. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_chat_read(const loong_chat_t *chat, int64_t i, loong_items_t *items);
LOONG_API const loong_tokenizer_t *
loong_chat_tokenizer(const loong_chat_t *chat);

#ifdef __cplusplus
}
#endif

#endif
