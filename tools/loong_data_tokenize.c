/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-data tokenizer encode and decode; train is in loong_data_train.c.
 * Called by loong_data.c. Read loong/tokenizer.h before. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loong/tokenizer.h"
#include "loong_data.h"
#include "options.h"

static const char help_text[] =
    "usage: loong-data tokenizer train [OPTION]... --output FILE PATH...\n"
    "       loong-data tokenizer encode --tokenizer FILE [PATH]\n"
    "       loong-data tokenizer decode --tokenizer FILE [PATH]\n"
    "\n"
    "encode writes the ids of a text, one a line; decode writes the text of\n"
    "ids. Both read PATH or standard input.\n"
    "\n"
    "  --tokenizer FILE  tokenizer.json, its directory, or 'bytes'\n"
    "  --add-special     encode: with the tokens at the beginning and end\n"
    "                    that the tokenizer asks for\n"
    "  --skip-special    decode: leave special tokens out\n"
    "\n"
    "loong-data tokenizer train --help lists the options of train.\n";

typedef struct input {
    char *bytes; /* with a NUL behind */
    size_t length;
} input_t;

static int read_all(const char *path, input_t *in)
{
    FILE *file = path != NULL ? fopen(path, "rb") : stdin;
    size_t capacity = 1 << 16;
    size_t got = 0;
    if (file == NULL) {
        fprintf(stderr, "loong-data tokenizer: cannot open '%s': %s\n", path,
                strerror(errno));
        return LOONG_EXIT_NO_INPUT;
    }
    in->length = 0;
    in->bytes = malloc(capacity);
    while (in->bytes != NULL &&
           (got = fread(in->bytes + in->length, 1, capacity - in->length - 1,
                        file)) > 0) {
        in->length += got;
        if (in->length + 1 == capacity) {
            char *grown = realloc(in->bytes, capacity *= 2);
            if (grown == NULL) {
                free(in->bytes);
            }
            in->bytes = grown;
        }
    }
    bool failed = ferror(file) != 0;
    if (path != NULL) {
        fclose(file);
    }
    if (in->bytes == NULL || failed) {
        fprintf(stderr, "loong-data tokenizer: reading '%s': %s\n",
                path != NULL ? path : "standard input",
                failed ? strerror(errno) : "out of memory");
        return failed ? LOONG_EXIT_IO : LOONG_EXIT_FAILED;
    }
    in->bytes[in->length] = '\0';
    return LOONG_EXIT_OK;
}

/* Output that could not be written is not a success. */
static int finish(void)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "loong-data tokenizer: writing: %s\n", strerror(errno));
        return LOONG_EXIT_CANNOT_WRITE;
    }
    return LOONG_EXIT_OK;
}

static int encode(loong_context_t *ctx, const loong_tokenizer_t *t,
                  const input_t *in, bool special)
{
    loong_text_encoder_t *encoder = NULL;
    const int32_t *ids = NULL;
    int64_t count = 0;
    loong_status_t status = loong_text_encoder_create(ctx, t, &encoder);
    if (status == LOONG_OK) {
        status = loong_text_encode(encoder, in->bytes, in->length, special,
                                   &ids, &count);
    }
    for (int64_t i = 0; i < count; i++) {
        printf("%" PRId32 "\n", ids[i]);
    }
    loong_text_encoder_destroy(&encoder);
    return status == LOONG_OK ? finish() : data_fail(ctx, status);
}

/* The numbers of the input; NULL after saying what is wrong. */
static int32_t *read_ids(const input_t *in, int64_t *count_p)
{
    int32_t *ids = malloc((in->length / 2 + 1) * sizeof(*ids));
    int64_t count = 0;
    const char *at = in->bytes + strspn(in->bytes, " \t\r\n,");
    while (ids != NULL && at < in->bytes + in->length) {
        char *end = NULL;
        long value = strtol(at, &end, 10);
        if (end == at || value < 0 || value > INT32_MAX ||
            (*end == '\0' && end < in->bytes + in->length) ||
            strchr(" \t\r\n,", *end) == NULL) {
            fprintf(stderr,
                    "loong-data tokenizer decode: '%.20s' (number %" PRId64
                    ") is no id\n",
                    at, count + 1);
            free(ids);
            return NULL;
        }
        ids[count++] = (int32_t)value;
        at = end + strspn(end, " \t\r\n,");
    }
    *count_p = count;
    return ids;
}

static int decode(loong_context_t *ctx, const loong_tokenizer_t *t,
                  const input_t *in, bool special)
{
    char *text = NULL;
    size_t length = 0;
    int64_t count = 0;
    int32_t *ids = read_ids(in, &count);
    if (ids == NULL) {
        return LOONG_EXIT_FAILED;
    }
    loong_status_t status =
        loong_tokenizer_decode(ctx, t, ids, count, special, &text, &length);
    free(ids);
    if (status != LOONG_OK) { /* ids are data: not the command line's fault */
        (void)data_fail(ctx, status);
        return LOONG_EXIT_FAILED;
    }
    fwrite(text, 1, length, stdout);
    loong_tokenizer_free_text(ctx, &text);
    return finish();
}

typedef struct options {
    const char *tokenizer;
    bool special;
} options_t;

static int run(loong_context_t *ctx, const options_t *o, bool encoding,
               const char *path)
{
    loong_tokenizer_t *t = NULL;
    input_t in = {NULL, 0};
    loong_status_t status = strcmp(o->tokenizer, "bytes") == 0
                                ? loong_tokenizer_bytes(ctx, &t)
                                : loong_tokenizer_load(ctx, o->tokenizer, &t);
    if (status != LOONG_OK) {
        return data_fail(ctx, status);
    }
    int code = read_all(path, &in);
    if (code == LOONG_EXIT_OK) {
        code = encoding ? encode(ctx, t, &in, o->special)
                        : decode(ctx, t, &in, o->special);
    }
    loong_tokenizer_destroy(&t);
    free(in.bytes);
    return code;
}

static const struct option encode_options[] = {
    {"tokenizer", required_argument, NULL, 't'},
    {"add-special", no_argument, NULL, 's'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}};

static const struct option decode_options[] = {
    {"tokenizer", required_argument, NULL, 't'},
    {"skip-special", no_argument, NULL, 's'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}};

static int encode_or_decode(loong_context_t *ctx, bool encoding, int argc,
                            char **argv)
{
    options_t o = {NULL, false};
    int option = 0;
    while ((option = options_next(
                argc, argv, encoding ? encode_options : decode_options)) !=
           -1) {
        if (option == 'h') {
            fputs(help_text, stdout);
            return LOONG_EXIT_OK;
        }
        if (option == '?') {
            return LOONG_EXIT_USAGE;
        }
        o.tokenizer = option == 't' ? optarg : o.tokenizer;
        o.special = option == 's' ? true : o.special;
    }
    if (o.tokenizer == NULL) {
        return data_usage("tokenizer", "--tokenizer FILE is missing");
    }
    if (argc - optind > 1) {
        return data_usage("tokenizer", "one PATH is expected, found %d",
                          argc - optind);
    }
    return run(ctx, &o, encoding, optind < argc ? argv[optind] : NULL);
}

int data_tokenizer(loong_context_t *ctx, int argc, char **argv)
{
    char name[64]; /* for what getopt says */
    const char *verb = argc > 1 ? argv[1] : "";
    if (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0) {
        fputs(help_text, stdout);
        return LOONG_EXIT_OK;
    }
    bool encoding = strcmp(verb, "encode") == 0;
    bool training = strcmp(verb, "train") == 0;
    if (encoding || training || strcmp(verb, "decode") == 0) {
        snprintf(name, sizeof(name), "%s %s", argv[0], verb);
        argv[1] = name;
        return training ? data_tokenizer_train(ctx, argc - 1, argv + 1)
                        : encode_or_decode(ctx, encoding, argc - 1, argv + 1);
    }
    return data_usage("tokenizer",
                      argc > 1 ? "'%s': must be train, encode or decode"
                               : "train, encode or decode is missing%s",
                      verb);
}
