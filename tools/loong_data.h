/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands of loong-data share. */
#ifndef LOONG_DATA_TOOL_H
#define LOONG_DATA_TOOL_H

#include <stdbool.h>
#include <stdint.h>

#include "loong/context.h"
#include "loong/exit_code.h"
#include "loong/indexer.h"

/* A command gets its own name as argv[0] and returns an exit code. */
typedef struct data_command {
    const char *name;
    const char *summary;
    int (*run)(loong_context_t *ctx, int argc, char **argv);
} data_command_t;

int data_chat(loong_context_t *ctx, int argc, char **argv);
int data_index(loong_context_t *ctx, int argc, char **argv);
int data_inspect(loong_context_t *ctx, int argc, char **argv);
int data_merge(loong_context_t *ctx, int argc, char **argv);
int data_show(loong_context_t *ctx, int argc, char **argv);
int data_tokenizer(loong_context_t *ctx, int argc, char **argv);
int data_webdataset(loong_context_t *ctx, int argc, char **argv);
int data_tokenizer_train(loong_context_t *ctx, int argc, char **argv);

/* Prints the error trail to stderr; the exit code that fits the status. */
int data_fail(const loong_context_t *ctx, loong_status_t status);

/* Prints "loong-data COMMAND: message" to stderr; LOONG_EXIT_USAGE. */
int data_usage(const char *command, const char *fmt, ...) LOONG_PRINTF(2, 3);

/* A whole number in low .. high; false after saying what is wrong. */
bool data_integer(const char *command, const char *option, const char *text,
                  const int64_t range[2], int64_t *value_p);

/* Asked before an hour of work is lost: makes the directory that `path` is to
 * be in; false after saying why nothing can be written there. */
bool data_can_write(const char *command, const char *path);

/* The tokenizer of --tokenizer. "bytes" is built in: ids 0 .. 255 are the
 * bytes of the text, 256 ends a document. */
typedef struct data_tokenizer {
    int64_t vocab_size;
    int64_t eod_id; /* -1: the tokenizer has none */
    const loong_encoder_ops_t *encoder;
    void *encoder_user;
} data_tokenizer_t;

loong_status_t data_tokenizer_open(loong_context_t *ctx, const char *name,
                                   data_tokenizer_t *tokenizer);
/* The id of a token by its text, -1: there is none. */
int64_t data_tokenizer_id(const data_tokenizer_t *tokenizer, const char *text);
void data_tokenizer_close(loong_context_t *ctx, data_tokenizer_t *tokenizer);

/* Text of ids, freed with free(). */
loong_status_t data_tokenizer_decode(loong_context_t *ctx,
                                     const data_tokenizer_t *tokenizer,
                                     const int32_t *ids, int64_t count,
                                     char **text_p, size_t *length_p);

#endif
