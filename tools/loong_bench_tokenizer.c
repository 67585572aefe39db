/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-bench tokenizer: how fast one core turns documents into ids, and how
 * long a tokenizer takes to load. Times are processor time of the thread, so
 * that other programs disturb less. Called by loong_bench.c. Read
 * loong/tokenizer.h before. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "loong/corpus.h"
#include "loong/tokenizer.h"
#include "loong_bench.h"
#include "options.h"

enum { MAX_ROUNDS = 1000 };

static const char help_text[] =
    "usage: loong-bench tokenizer [OPTION]... TOKENIZER PATH...\n"
    "\n"
    "Loads a tokenizer.json, then encodes the documents of files and\n"
    "directories (as loong-data index reads them) again and again, each round\n"
    "with an empty word cache.\n"
    "\n"
    "  --rounds N       how often (default: 9)\n"
    "  --suffixes LIST  files taken in directories, e.g. .rst,.txt\n"
    "  --json-key KEY   the text of a JSON line (default: text)\n";

typedef struct options {
    int rounds;
    const char *json_key;
    loong_corpus_params_t corpus;
} options_t;

typedef struct round {
    double seconds;
    int64_t bytes;
    int64_t ids;
} round_t;

static loong_status_t encode_all(loong_context_t *ctx, const options_t *o,
                                 loong_corpus_t *corpus,
                                 loong_text_encoder_t *encoder, round_t *r)
{
    loong_record_t record;
    loong_status_t status = loong_corpus_next(corpus, &record);
    while (status == LOONG_OK && record.bytes != NULL) {
        char *text = NULL;
        size_t length = 0;
        const int32_t *ids = NULL;
        int64_t count = 0;
        status = loong_record_text(ctx, &record, o->json_key, &text, &length);
        if (status == LOONG_OK) {
            double begin = bench_cpu_now();
            status = loong_text_encode(encoder, text, length, false, &ids,
                                       &count);
            r->seconds += bench_cpu_now() - begin;
            r->bytes += (int64_t)length;
            r->ids += count;
        }
        loong_record_free(ctx, &text);
        if (status == LOONG_OK) {
            status = loong_corpus_next(corpus, &record);
        }
    }
    return status;
}

static loong_status_t one_round(loong_context_t *ctx, const options_t *o,
                                const loong_tokenizer_t *t, round_t *r)
{
    loong_corpus_t *corpus = NULL;
    loong_text_encoder_t *encoder = NULL;
    r->seconds = 0;
    r->bytes = r->ids = 0;
    loong_status_t status = loong_corpus_create(ctx, &o->corpus, &corpus);
    if (status == LOONG_OK) {
        status = loong_text_encoder_create(ctx, t, &encoder);
    }
    if (status == LOONG_OK) {
        status = encode_all(ctx, o, corpus, encoder, r);
    }
    loong_text_encoder_destroy(&encoder);
    loong_corpus_destroy(&corpus);
    return status;
}

static int by_seconds(const void *a, const void *b)
{
    const round_t *x = a;
    const round_t *y = b;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

static loong_status_t run(loong_context_t *ctx, const options_t *o,
                          const char *path)
{
    static round_t rounds[MAX_ROUNDS];
    loong_tokenizer_t *t = NULL;
    double begin = bench_cpu_now();
    loong_status_t status = loong_tokenizer_load(ctx, path, &t);
    double load = bench_cpu_now() - begin;
    for (int i = 0; i < o->rounds && status == LOONG_OK; i++) {
        status = one_round(ctx, o, t, &rounds[i]);
    }
    if (status == LOONG_OK) {
        qsort(rounds, (size_t)o->rounds, sizeof(*rounds), by_seconds);
        const round_t *best = &rounds[0];
        double megabytes = 1e-6 * (double)best->bytes;
        printf("%s: %" PRId64 " ids, loaded in %.2f s\n", path,
               loong_tokenizer_get_vocab_size(t), load);
        printf("%.1f MB, %.2f bytes an id, %.1f MB/s (median of %d; best "
               "%.1f)\n",
               megabytes, (double)best->bytes / (double)best->ids,
               megabytes / rounds[o->rounds / 2].seconds, o->rounds,
               megabytes / best->seconds);
    }
    loong_tokenizer_destroy(&t);
    return status;
}

static const struct option long_options[] = {
    {"rounds", required_argument, NULL, 'n'},
    {"suffixes", required_argument, NULL, 's'},
    {"json-key", required_argument, NULL, 'k'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}};

int bench_tokenizer(loong_context_t *ctx, int argc, char **argv)
{
    options_t o = {9, "text", {NULL, 0, NULL, false}};
    int option = 0;
    while ((option = options_next(argc, argv, long_options)) != -1) {
        if (option == 'h') {
            fputs(help_text, stdout);
            return LOONG_EXIT_OK;
        }
        if (option == '?') {
            return LOONG_EXIT_USAGE;
        }
        o.rounds = option == 'n' ? atoi(optarg) : o.rounds;
        o.corpus.suffixes = option == 's' ? optarg : o.corpus.suffixes;
        o.json_key = option == 'k' ? optarg : o.json_key;
    }
    if (o.rounds < 1 || o.rounds > MAX_ROUNDS) {
        return bench_usage("tokenizer", "--rounds must be 1 to %d", MAX_ROUNDS);
    }
    if (argc - optind < 2) {
        return bench_usage("tokenizer", "TOKENIZER and PATH are expected");
    }
    o.corpus.paths = (const char *const *)argv + optind + 1;
    o.corpus.num_paths = argc - optind - 1;
    loong_status_t status = run(ctx, &o, argv[optind]);
    return status == LOONG_OK ? LOONG_EXIT_OK : bench_fail(ctx, status);
}
