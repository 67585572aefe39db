/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-data inspect: what is in an indexed data set. Called by loong_data.c.
 * Read loong/dataset.h before. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loong/dataset.h"
#include "loong_data.h"
#include "options.h"

static const char help_text[] =
    "usage: loong-data inspect [OPTION]... PREFIX\n"
    "\n"
    "Checks the index of a data set completely and says what is in it.\n"
    "Exit code 1: it is damaged or, with --validate, holds a wrong id.\n"
    "\n"
    "  --documents N     show the head of the first N documents (default: 3)\n"
    "  --tokenizer FILE  show them as text: tokenizer.json, or 'bytes'\n"
    "  --validate        read every token: range of ids, entropy, mask\n"
    "  --vocab-size N    ids must be below N (default: of the tokenizer,\n"
    "                    else 100000000)\n";

/* MOST_IDS: of a vocabulary, as model.foundation.vocab_size has it. */
enum { CHUNK = 1 << 16, BUCKETS = 64, HEAD = 64, MAX_ID = INT32_MAX,
       MOST_IDS = 100000000 };

typedef struct options {
    const char *tokenizer;
    int64_t documents;
    bool validate;
    int64_t vocab_size;
} options_t;

static int bucket_of(int64_t length)
{
    int bucket = 0; /* 0: empty; b: lengths 2^(b-1) .. 2^b - 1 */
    while (length > 0) {
        length /= 2;
        bucket++;
    }
    return bucket;
}

static void print_lengths(const loong_dataset_t *ds, int64_t documents)
{
    static const char bar[] = "########################################";
    int64_t count[BUCKETS] = {0};
    int64_t most = 1;
    int64_t longest = 0;
    for (int64_t d = 0; d < documents; d++) {
        int64_t length =
            loong_dataset_get_start(ds, d + 1) - loong_dataset_get_start(ds, d);
        int64_t *c = &count[bucket_of(length)];
        longest = length > longest ? length : longest;
        (*c)++;
        most = *c > most ? *c : most;
    }
    printf("document lengths (tokens), longest %" PRId64 ":\n", longest);
    for (int b = 0; b < BUCKETS; b++) {
        if (count[b] > 0) {
            printf("  %10" PRId64 " - %-10" PRId64 " %10" PRId64 " %.*s\n",
                   b == 0 ? 0 : (int64_t)1 << (b - 1),
                   b == 0 ? 0 : ((int64_t)1 << (b - 1)) * 2 - 1, count[b],
                   (int)((count[b] * 40 + most - 1) / most), bar);
        }
    }
    if (count[0] > 0) {
        printf("problem: %" PRId64 " documents are empty\n", count[0]);
    }
}

/* Text on one line: control characters as escapes, the rest as it is. */
static void print_text(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n') {
            fputs("\\n", stdout);
        } else if (c < 0x20 || c == 0x7f) {
            printf("\\x%02x", c);
        } else {
            putchar(c);
        }
    }
}

static loong_status_t print_head(loong_context_t *ctx,
                                 const loong_dataset_t *ds, int64_t document,
                                 const data_tokenizer_t *tokenizer)
{
    int32_t ids[HEAD];
    int64_t start = loong_dataset_get_start(ds, document);
    int64_t length = loong_dataset_get_start(ds, document + 1) - start;
    int64_t n = length < HEAD ? length : HEAD;
    loong_status_t status = loong_dataset_read(ds, start, n, MAX_ID, ids);
    if (status != LOONG_OK) {
        return status;
    }
    printf("document %" PRId64 " (%" PRId64 " tokens): ", document, length);
    if (tokenizer == NULL) {
        for (int64_t i = 0; i < n; i++) {
            printf("%d ", ids[i]);
        }
    } else {
        char *text = NULL;
        size_t bytes = 0;
        status = data_tokenizer_decode(ctx, tokenizer, ids, n, &text, &bytes);
        if (status != LOONG_OK) {
            return status;
        }
        print_text(text, bytes);
        free(text);
    }
    printf("%s\n", n < length ? " ..." : "");
    return LOONG_OK;
}

/* Counts of ids below the vocabulary's size; memory only where there are
 * some. */
typedef struct census {
    int64_t *count;
    int64_t size; /* the largest id seen, and 1 */
    int64_t learned;
    int64_t tokens;
} census_t;

static void count_ids(census_t *c, const int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        c->count[ids[i]]++;
        c->size = ids[i] >= c->size ? ids[i] + 1 : c->size;
    }
    c->tokens += n;
}

static loong_status_t read_everything(const loong_dataset_t *ds,
                                      int64_t vocab_size, census_t *census)
{
    static int32_t ids[CHUNK];
    static uint8_t mask[CHUNK];
    loong_dataset_info_t info;
    loong_dataset_get_info(ds, &info);
    for (int64_t at = 0; at < info.tokens; at += CHUNK) {
        int64_t n = info.tokens - at < CHUNK ? info.tokens - at : CHUNK;
        loong_status_t status = loong_dataset_read(ds, at, n, vocab_size, ids);
        if (status == LOONG_OK) {
            status = loong_dataset_read_mask(ds, at, n, mask);
        }
        if (status != LOONG_OK) {
            return status;
        }
        for (int64_t i = 0; i < n; i++) {
            census->learned += mask[i];
        }
        count_ids(census, ids, n);
    }
    return LOONG_OK;
}

static void print_census(const census_t *c, bool has_mask)
{
    int64_t distinct = 0;
    int64_t low = -1;
    int64_t high = -1;
    double entropy = 0;
    for (int64_t id = 0; id < c->size; id++) {
        if (c->count[id] > 0) {
            double p = (double)c->count[id] / (double)c->tokens;
            entropy -= p * log(p);
            distinct++;
            low = low < 0 ? id : low;
            high = id;
        }
    }
    printf("ids: %" PRId64 " to %" PRId64 ", %" PRId64
           " different\nunigram entropy: %.4f nats a token\n",
           low, high, distinct, entropy);
    if (has_mask) {
        printf("loss mask: %" PRId64 " of %" PRId64 " tokens are learned\n",
               c->learned, c->tokens);
    }
}

static loong_status_t validate(const loong_dataset_t *ds, int64_t vocab_size)
{
    census_t census = {calloc((size_t)vocab_size, sizeof(int64_t)), 0, 0, 0};
    loong_dataset_info_t info;
    loong_dataset_get_info(ds, &info);
    loong_status_t status = census.count == NULL
                                ? LOONG_ERR_MEMORY
                                : read_everything(ds, vocab_size, &census);
    if (status == LOONG_OK && info.tokens > 0) {
        print_census(&census, info.has_mask);
    }
    free(census.count);
    return status;
}

static loong_status_t print_all(loong_context_t *ctx, const options_t *o,
                                const loong_dataset_t *ds,
                                const data_tokenizer_t *tokenizer)
{
    loong_dataset_info_t info;
    loong_dataset_get_info(ds, &info);
    printf("%s: %" PRId64 " documents, %" PRId64 " sequences, %" PRId64
           " tokens, %s, %s loss mask, hash %016" PRIx64 "\n",
           info.prefix, info.documents, info.sequences, info.tokens,
           loong_dtype_name(info.dtype), info.has_mask ? "with" : "without",
           info.hash);
    if (info.tokens == 0) {
        printf("problem: there are no tokens\n");
    }
    print_lengths(ds, info.documents);
    for (int64_t d = 0; d < o->documents && d < info.documents; d++) {
        loong_status_t status = print_head(ctx, ds, d, tokenizer);
        if (status != LOONG_OK) {
            return status;
        }
    }
    int64_t vocab_size = o->vocab_size;
    if (vocab_size == 0) {
        vocab_size = tokenizer != NULL ? tokenizer->vocab_size : MOST_IDS;
    }
    return o->validate ? validate(ds, vocab_size) : LOONG_OK;
}

static int run(loong_context_t *ctx, const options_t *o, const char *prefix)
{
    data_tokenizer_t tokenizer;
    loong_dataset_t *ds = NULL;
    loong_status_t status = loong_dataset_create(ctx, prefix, &ds);
    if (status == LOONG_OK) {
        status = loong_dataset_check_index(ds);
    }
    if (status == LOONG_OK && o->tokenizer == NULL) {
        status = print_all(ctx, o, ds, NULL);
    } else if (status == LOONG_OK) {
        status = data_tokenizer_open(ctx, o->tokenizer, &tokenizer);
        if (status == LOONG_OK) {
            status = print_all(ctx, o, ds, &tokenizer);
            data_tokenizer_close(ctx, &tokenizer);
        }
    }
    loong_dataset_destroy(&ds);
    fflush(stdout);
    return status == LOONG_OK ? LOONG_EXIT_OK : data_fail(ctx, status);
}

static const struct option long_options[] = {
    {"documents", required_argument, NULL, 'd'},
    {"tokenizer", required_argument, NULL, 't'},
    {"validate", no_argument, NULL, 'v'},
    {"vocab-size", required_argument, NULL, 'n'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}};

static bool take(options_t *o, int option)
{
    static const int64_t documents[] = {0, INT64_MAX};
    static const int64_t sizes[] = {1, MAX_ID};
    switch (option) {
    case 'd':
        return data_integer("inspect", "documents", optarg, documents,
                            &o->documents);
    case 'n':
        return data_integer("inspect", "vocab-size", optarg, sizes,
                            &o->vocab_size);
    case 't':
        o->tokenizer = optarg;
        return true;
    case 'v':
        o->validate = true;
        return true;
    default: /* getopt has said what is wrong */
        return false;
    }
}

int data_inspect(loong_context_t *ctx, int argc, char **argv)
{
    options_t o = {NULL, 3, false, 0};
    int option = 0;
    while ((option = options_next(argc, argv, long_options)) != -1) {
        if (option == 'h') {
            fputs(help_text, stdout);
            return LOONG_EXIT_OK;
        }
        if (!take(&o, option)) {
            return LOONG_EXIT_USAGE;
        }
    }
    if (argc - optind != 1) {
        return data_usage("inspect", "one PREFIX is expected, found %d",
                          argc - optind);
    }
    if (o.vocab_size > 0 && !o.validate) {
        return data_usage("inspect", "--vocab-size needs --validate");
    }
    return run(ctx, &o, argv[optind]);
}
