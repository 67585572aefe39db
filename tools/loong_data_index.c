/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-data index: text to an indexed data set. Called by loong_data.c. Read
 * loong/corpus.h and loong/dataset.h before. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "loong/corpus.h"
#include "loong/dataset.h"
#include "loong/progress.h"
#include "loong_data.h"
#include "options.h"

static const char help_text[] =
    "usage: loong-data index --tokenizer FILE --output-prefix PREFIX PATH...\n"
    "\n"
    "Turns the documents of files and directories (recursively) into\n"
    "PREFIX.bin and PREFIX.idx. Text files are one document each; .jsonl,\n"
    ".ndjson and .json files one a line, or one an element of an array. gzip,\n"
    "xz and zstd are unpacked.\n"
    "\n"
    "  --tokenizer FILE      tokenizer.json, or 'bytes'\n"
    "  --output-prefix PATH  where to write\n"
    "  --suffixes LIST       files taken in directories, e.g. .rst,.txt\n"
    "                        (compared without .gz, .xz, .zst; default: all)\n"
    "  --json-key KEY        the text of a JSON line (default: text)\n"
    "  --split-blank-lines   text files: a document ends at an empty line\n"
    "  --shuffle SEED        documents in a random order (default: as they\n"
    "                        come), so that a split by documents is one too;\n"
    "                        takes the size of the data set twice meanwhile\n"
    "  --skip-broken         leave out JSON lines that give no text, with a\n"
    "                        warning; without it the first one ends the work\n"
    "  --append-eod          the end-of-document token behind each document\n"
    "  --eod-token TEXT      which one (default: the one that is named so)\n"
    "  --dtype TYPE          uint16 or int32 (default: by vocabulary)\n"
    "  --workers N           threads (default: one a processor)\n"
    "  --quiet               no progress bar (it counts megabytes of files)\n";

typedef struct options {
    const char *tokenizer;
    const char *prefix;
    const char *dtype;
    const char *json_key;
    bool append_eod;
    const char *eod_token; /* NULL: the tokenizer's */
    bool skip_broken;
    bool shuffle;
    uint64_t seed;
    bool quiet;
    int64_t workers;
    loong_corpus_params_t corpus;
} options_t;

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

typedef struct bar {
    const loong_corpus_t *corpus;
    loong_progress_t screen;
    double begin;
    double last; /* when it was drawn; 0: not yet */
} bar_t;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static loong_status_t draw(void *user, const loong_index_result_t *done)
{
    bar_t *bar = user;
    double now = seconds();
    if (interrupted) {
        return LOONG_ERR_INTERRUPTED;
    }
    if (!bar->screen.shown || now - bar->last < 0.1) {
        return LOONG_OK;
    }
    char note[64];
    char text[LOONG_PROGRESS_SIZE];
    loong_corpus_info_t info;
    loong_corpus_get_info(bar->corpus, &info);
    double elapsed = now - bar->begin;
    double left = info.bytes_read > 0
                      ? elapsed * (double)(info.bytes - info.bytes_read) /
                            (double)info.bytes_read
                      : 0;
    snprintf(note, sizeof(note), "%.1fM tokens %.1f MB/s",
             1e-6 * (double)done->tokens,
             1e-6 * (double)done->text_bytes / elapsed);
    fputs(loong_progress_draw(&bar->screen, info.bytes_read / 1000000,
                              info.bytes / 1000000, left, note, text),
          stderr);
    bar->last = now;
    return LOONG_OK;
}

static int choose_dtype(const options_t *o, const data_tokenizer_t *tokenizer,
                        loong_dtype_t *dtype_p)
{
    *dtype_p = loong_dataset_dtype(tokenizer->vocab_size);
    if (o->dtype == NULL) {
        return LOONG_EXIT_OK;
    }
    if (!loong_dtype_from_name(o->dtype, dtype_p) ||
        (*dtype_p != LOONG_U16 && *dtype_p != LOONG_I32)) {
        return data_usage("index", "--dtype '%s': must be uint16 or int32",
                          o->dtype);
    }
    if (*dtype_p == LOONG_U16 && tokenizer->vocab_size > 65536) {
        return data_usage("index",
                          "--dtype uint16 holds ids up to 65535, the "
                          "vocabulary has %" PRId64,
                          tokenizer->vocab_size);
    }
    return LOONG_EXIT_OK;
}

static void report(const options_t *o, const loong_corpus_info_t *files,
                   const loong_index_result_t *r, loong_dtype_t dtype,
                   double elapsed)
{
    printf("%s: %" PRId64 " documents, %" PRId64 " tokens (%s) from %" PRId64
           " files, %.1f MB of text, %.2f bytes a token, %.1f s, %.1f MB/s\n",
           o->prefix, r->documents, r->tokens, loong_dtype_name(dtype),
           files->files, 1e-6 * (double)r->text_bytes,
           (double)r->text_bytes / (double)r->tokens, elapsed,
           1e-6 * (double)r->text_bytes / elapsed);
    if (files->empty > 0) {
        printf("%s: %" PRId64 " of the files are empty\n", o->prefix,
               files->empty);
    }
    if (r->empty > 0) {
        printf("%s: %" PRId64 " documents without a token were left out\n",
               o->prefix, r->empty);
    }
    if (r->not_utf8 > 0 && strcmp(o->tokenizer, "bytes") != 0) {
        printf("%s: %" PRId64 " documents are not UTF-8 throughout: U+FFFD "
               "took the place of other bytes\n",
               o->prefix, r->not_utf8);
    }
    if (r->skipped > 0) {
        printf("%s: %" PRId64 " broken lines were left out\n", o->prefix,
               r->skipped);
    }
}

static int build(loong_context_t *ctx, const options_t *o,
                 const data_tokenizer_t *tokenizer, loong_corpus_t *corpus)
{
    loong_dtype_t dtype;
    loong_index_result_t result;
    loong_corpus_info_t files;
    bar_t bar = {corpus, {false, false, 0}, seconds(), 0};
    int code = choose_dtype(o, tokenizer, &dtype);
    if (code != LOONG_EXIT_OK) {
        return code;
    }
    int64_t eod = -1;
    if (o->append_eod) {
        eod = o->eod_token == NULL ? tokenizer->eod_id
                                   : data_tokenizer_id(tokenizer, o->eod_token);
    }
    if (o->append_eod && eod < 0 && o->eod_token != NULL) {
        return data_usage("index", "--eod-token: tokenizer '%s' has no '%s'",
                          o->tokenizer, o->eod_token);
    }
    if (o->append_eod && eod < 0) {
        return data_usage("index",
                          "--append-eod: tokenizer '%s' names no end token, "
                          "--eod-token is wanted",
                          o->tokenizer);
    }
    if (!o->quiet) {
        loong_progress_detect(STDERR_FILENO, &bar.screen);
    }
    loong_index_params_t params = {corpus,
                                   o->json_key,
                                   o->prefix,
                                   dtype,
                                   eod,
                                   (int)o->workers,
                                   tokenizer->encoder,
                                   tokenizer->encoder_user,
                                   draw,
                                   &bar,
                                   o->skip_broken,
                                   o->shuffle,
                                   o->seed};
    loong_status_t status = loong_index_build(ctx, &params, &result);
    fputs(loong_progress_wipe(&bar.screen), stderr); /* the report stays */
    if (status != LOONG_OK) {
        return data_fail(ctx, status);
    }
    loong_corpus_get_info(corpus, &files);
    report(o, &files, &result, dtype, seconds() - bar.begin);
    return LOONG_EXIT_OK;
}

static int run(loong_context_t *ctx, const options_t *o)
{
    data_tokenizer_t tokenizer;
    loong_corpus_t *corpus = NULL;
    loong_status_t status = data_tokenizer_open(ctx, o->tokenizer, &tokenizer);
    if (status != LOONG_OK) {
        return data_fail(ctx, status);
    }
    status = loong_corpus_create(ctx, &o->corpus, &corpus);
    int code = status == LOONG_OK ? build(ctx, o, &tokenizer, corpus)
                                  : data_fail(ctx, status);
    loong_corpus_destroy(&corpus);
    data_tokenizer_close(ctx, &tokenizer);
    return code;
}

enum { OPT_EOD = 255, OPT_JSON_KEY, OPT_BLANK, OPT_SKIP, OPT_DTYPE, OPT_QUIET };

static const struct option long_options[] = {
    {"tokenizer", required_argument, NULL, 't'},
    {"output-prefix", required_argument, NULL, 'o'},
    {"suffixes", required_argument, NULL, 's'},
    {"json-key", required_argument, NULL, OPT_JSON_KEY},
    {"split-blank-lines", no_argument, NULL, OPT_BLANK},
    {"shuffle", required_argument, NULL, 'r'},
    {"skip-broken", no_argument, NULL, OPT_SKIP},
    {"append-eod", no_argument, NULL, 'e'},
    {"eod-token", required_argument, NULL, OPT_EOD},
    {"dtype", required_argument, NULL, OPT_DTYPE},
    {"workers", required_argument, NULL, 'w'},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}};

/* One option; false when it is wrong, which has been said. */
static bool take(options_t *o, int option)
{
    static const int64_t workers[] = {1, 256};
    static const int64_t seeds[] = {0, INT64_MAX};
    int64_t value = 0;
    switch (option) {
    case 't':
        o->tokenizer = optarg;
        return true;
    case 'o':
        o->prefix = optarg;
        return true;
    case 's':
        o->corpus.suffixes = optarg;
        return true;
    case OPT_JSON_KEY:
        o->json_key = optarg;
        return true;
    case OPT_BLANK:
        o->corpus.split_blank_lines = true;
        return true;
    case 'r':
        o->shuffle = true;
        if (!data_integer("index", "shuffle", optarg, seeds, &value)) {
            return false;
        }
        o->seed = (uint64_t)value;
        return true;
    case OPT_SKIP:
        o->skip_broken = true;
        return true;
    case 'e':
        o->append_eod = true;
        return true;
    case OPT_EOD:
        o->append_eod = true;
        o->eod_token = optarg;
        return true;
    case OPT_DTYPE:
        o->dtype = optarg;
        return true;
    case OPT_QUIET:
        o->quiet = true;
        return true;
    case 'w':
        return data_integer("index", "workers", optarg, workers, &o->workers);
    default: /* getopt has said what is wrong */
        return false;
    }
}

int data_index(loong_context_t *ctx, int argc, char **argv)
{
    options_t o = {0};
    int option = 0;
    o.json_key = "text";
    o.workers = sysconf(_SC_NPROCESSORS_ONLN);
    o.workers = o.workers < 1 ? 1 : o.workers > 256 ? 256 : o.workers;
    while ((option = options_next(argc, argv, long_options)) != -1) {
        if (option == 'h') {
            fputs(help_text, stdout);
            return LOONG_EXIT_OK;
        }
        if (!take(&o, option)) {
            return LOONG_EXIT_USAGE;
        }
    }
    o.corpus.paths = (const char *const *)argv + optind;
    o.corpus.num_paths = argc - optind;
    if (o.tokenizer == NULL || o.prefix == NULL || o.corpus.num_paths == 0) {
        return data_usage("index", "%s is missing",
                          o.tokenizer == NULL ? "--tokenizer FILE"
                          : o.prefix == NULL  ? "--output-prefix PREFIX"
                                              : "a file or directory");
    }
    if (!data_can_write("index", o.prefix)) {
        return LOONG_EXIT_CANNOT_WRITE;
    }
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    return run(ctx, &o);
}
