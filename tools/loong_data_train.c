/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-data tokenizer train: a corpus to a tokenizer.json. Called by
 * loong_data_tokenize.c. Read loong/tokenizer.h before. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loong/corpus.h"
#include "loong/tokenizer.h"
#include "loong_data.h"
#include "options.h"

static const char help_text[] =
    "usage: loong-data tokenizer train [OPTION]... --output FILE PATH...\n"
    "\n"
    "Learns a byte-level BPE vocabulary from files and directories (text, "
    "JSON\n"
    "lines; gzip, xz and zstd are unpacked) and writes a tokenizer.json.\n"
    "\n"
    "  --output FILE         where to write when all is learned; directories\n"
    "                        are made, an earlier file is replaced\n"
    "  --vocab-size N        tokens, special ones included (default: 32000)\n"
    "  --min-frequency N     rarer pairs are not merged (default: 2)\n"
    "  --pretokenizer NAME   gpt2, qwen2 (digits alone) or llama3 (digits by\n"
    "                        three); default: qwen2\n"
    "  --special TOKEN       a special token; may stand several times, the\n"
    "                        first gets id 0 (default: <|endoftext|>)\n"
    "  --suffixes LIST       files taken in directories, e.g. .rst,.txt\n"
    "  --json-key KEY        the text of a JSON line (default: text)\n"
    "  --skip-broken         leave out JSON lines that give no text\n"
    "  --max-bytes N         stop reading after this much text\n";

enum { MAX_SPECIAL = 256, MAX_NAMED = 20 };

typedef struct options {
    const char *output;
    const char *json_key;
    const char *special[MAX_SPECIAL];
    int64_t num_special;
    int64_t vocab_size;
    int64_t min_frequency;
    int64_t max_bytes;
    bool skip_broken;
    loong_pretokenizer_t pretokenizer;
    loong_corpus_params_t corpus;
} options_t;

typedef struct source {
    loong_context_t *ctx;
    const options_t *o;
    loong_corpus_t *corpus;
    char *text;
    int64_t documents;
    int64_t bytes;
    int64_t skipped;
} source_t;

/* The text of a JSON line; a broken one may be left out: text stays NULL. */
static loong_status_t take_line(source_t *s, const loong_record_t *record,
                                size_t *length_p)
{
    loong_status_t status = loong_record_text(s->ctx, record, s->o->json_key,
                                              &s->text, length_p);
    if (status != LOONG_ERR_FORMAT || !s->o->skip_broken) {
        return status;
    }
    if (s->skipped++ < MAX_NAMED) {
        fprintf(stderr, "warning: left out: %s\n",
                loong_context_error(s->ctx));
    }
    loong_context_clear_error(s->ctx);
    return LOONG_OK;
}

static loong_status_t next(void *user, const char **text_p, size_t *length_p)
{
    source_t *s = user;
    loong_record_t record;
    loong_record_free(s->ctx, &s->text);
    *text_p = NULL;
    if (s->bytes >= s->o->max_bytes) {
        return LOONG_OK;
    }
    while (*text_p == NULL) {
        loong_status_t status = loong_corpus_next(s->corpus, &record);
        if (status != LOONG_OK || record.bytes == NULL) {
            return status;
        }
        *text_p = record.bytes;
        *length_p = record.length;
        if (record.json) {
            status = take_line(s, &record, length_p);
            *text_p = s->text;
        }
        if (status != LOONG_OK) {
            return status;
        }
    }
    s->documents++;
    s->bytes += (int64_t)*length_p;
    return LOONG_OK;
}

static loong_status_t train(loong_context_t *ctx, const options_t *o,
                            source_t *source)
{
    loong_tokenizer_t *t = NULL;
    loong_tokenizer_train_params_t params = {o->vocab_size,   o->min_frequency,
                                             o->pretokenizer, o->special,
                                             o->num_special,  next,
                                             source};
    loong_status_t status = loong_tokenizer_train(ctx, &params, &t);
    if (status == LOONG_OK) {
        status = loong_tokenizer_save(ctx, t, o->output);
    }
    if (status == LOONG_OK) {
        int64_t size = loong_tokenizer_get_vocab_size(t);
        printf("%s: %" PRId64 " tokens from %" PRId64
               " documents, %.1f MB of text\n",
               o->output, size, source->documents,
               1e-6 * (double)source->bytes);
        if (source->skipped > 0) {
            printf("%s: %" PRId64 " broken lines were left out\n", o->output,
                   source->skipped);
        }
        if (size < o->vocab_size) {
            printf("%s: no pair is left that stands %" PRId64 " times\n",
                   o->output, o->min_frequency);
        }
    }
    loong_tokenizer_destroy(&t);
    return status;
}

/* No directory, and not the text itself: said before hours of learning. */
static int check_output(const options_t *o)
{
    struct stat out, in;
    if (stat(o->output, &out) != 0) {
        return LOONG_EXIT_OK;
    }
    if (S_ISDIR(out.st_mode)) {
        fprintf(stderr, "loong-data tokenizer train: cannot write '%s': it is "
                        "a directory, a file is wanted\n", o->output);
        return LOONG_EXIT_CANNOT_WRITE;
    }
    for (int64_t i = 0; i < o->corpus.num_paths; i++) {
        if (stat(o->corpus.paths[i], &in) == 0 && in.st_dev == out.st_dev &&
            in.st_ino == out.st_ino) {
            return data_usage("tokenizer train",
                              "--output %s is '%s', which is to be read",
                              o->output, o->corpus.paths[i]);
        }
    }
    return LOONG_EXIT_OK;
}

static int run(loong_context_t *ctx, const options_t *o)
{
    int code = check_output(o);
    if (code != LOONG_EXIT_OK) {
        return code;
    }
    if (!data_can_write("tokenizer train", o->output)) {
        return LOONG_EXIT_CANNOT_WRITE;
    }
    source_t source = {ctx, o, NULL, NULL, 0, 0, 0};
    loong_status_t status =
        loong_corpus_create(ctx, &o->corpus, &source.corpus);
    if (status == LOONG_OK) {
        status = train(ctx, o, &source);
    }
    loong_record_free(ctx, &source.text);
    loong_corpus_destroy(&source.corpus);
    return status == LOONG_OK ? LOONG_EXIT_OK : data_fail(ctx, status);
}

enum { OPT_JSON_KEY = 256, OPT_SUFFIXES, OPT_SKIP, OPT_MAX_BYTES };

static const struct option long_options[] = {
    {"output", required_argument, NULL, 'o'},
    {"vocab-size", required_argument, NULL, 'n'},
    {"min-frequency", required_argument, NULL, 'f'},
    {"pretokenizer", required_argument, NULL, 'p'},
    {"special", required_argument, NULL, 's'},
    {"suffixes", required_argument, NULL, OPT_SUFFIXES},
    {"json-key", required_argument, NULL, OPT_JSON_KEY},
    {"skip-broken", no_argument, NULL, OPT_SKIP},
    {"max-bytes", required_argument, NULL, OPT_MAX_BYTES},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}};

/* One option; false when it is wrong, which has been said. */
static bool take(options_t *o, int option)
{
    static const int64_t sizes[] = {257, 1 << 24};
    static const int64_t counts[] = {1, INT64_MAX};
    switch (option) {
    case 'o':
        o->output = optarg;
        return true;
    case 'n':
        return data_integer("tokenizer train", "vocab-size", optarg, sizes,
                            &o->vocab_size);
    case 'f':
        return data_integer("tokenizer train", "min-frequency", optarg, counts,
                            &o->min_frequency);
    case 'p':
        if (!loong_pretokenizer_from_name(optarg, &o->pretokenizer)) {
            data_usage("tokenizer train",
                       "--pretokenizer '%s': must be gpt2, qwen2 or llama3",
                       optarg);
            return false;
        }
        return true;
    case 's':
        if (o->num_special == MAX_SPECIAL) {
            data_usage("tokenizer train", "more than %d --special",
                       MAX_SPECIAL);
            return false;
        }
        o->special[o->num_special++] = optarg;
        return true;
    case OPT_SUFFIXES:
        o->corpus.suffixes = optarg;
        return true;
    case OPT_JSON_KEY:
        o->json_key = optarg;
        return true;
    case OPT_SKIP:
        o->skip_broken = true;
        return true;
    case OPT_MAX_BYTES:
        return data_integer("tokenizer train", "max-bytes", optarg, counts,
                            &o->max_bytes);
    default: /* getopt has said what is wrong */
        return false;
    }
}

int data_tokenizer_train(loong_context_t *ctx, int argc, char **argv)
{
    options_t o = {0};
    int option = 0;
    o.json_key = "text";
    o.vocab_size = 32000;
    o.min_frequency = 2;
    o.max_bytes = INT64_MAX;
    o.pretokenizer = LOONG_PRETOKENIZER_QWEN2;
    while ((option = options_next(argc, argv, long_options)) != -1) {
        if (option == 'h') {
            fputs(help_text, stdout);
            return LOONG_EXIT_OK;
        }
        if (!take(&o, option)) {
            return LOONG_EXIT_USAGE;
        }
    }
    if (o.num_special == 0) {
        o.special[o.num_special++] = "<|endoftext|>";
    }
    o.corpus.paths = (const char *const *)argv + optind;
    o.corpus.num_paths = argc - optind;
    bool named = o.output != NULL && o.output[0] != '\0';
    if (!named || o.corpus.num_paths == 0) {
        return data_usage("tokenizer train", "%s is missing",
                          !named ? "--output FILE"
                                           : "a file or directory");
    }
    return run(ctx, &o);
}
