/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands of loong-ckpt that write, and the progress they show. Called by
 * loong_ckpt.c. Read loong/checkpoint.h before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "loong/exit_code.h"
#include "loong/progress.h"
#include "loong/tokenizer.h"
#include "loong_ckpt.h"

/* ---- progress ---- */

/* On a terminal a bar, elsewhere a line every ten seconds. */
typedef struct meter {
    loong_progress_t screen;
    bool quiet;
    double begin;
    double last;   /* when something was shown */
    int64_t first; /* bytes that were there before */
    bool begun;
    int64_t done;
} meter_t;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void show(void *user, int64_t done, int64_t total)
{
    meter_t *m = user;
    char text[LOONG_PROGRESS_SIZE];
    char note[64];
    double now = seconds();
    if (!m->begun) { /* of the first call it is not known whether it is new */
        m->begun = true;
        m->first = done;
        m->begin = m->last = now;
    }
    m->done = done;
    double rate = (double)(done - m->first) / (now - m->begin + 1e-9);
    double left = rate > 0 ? (double)(total - done) / rate : 0;
    if (m->quiet || now - m->last < (m->screen.shown ? 0.1 : 10.0)) {
        return;
    }
    m->last = now;
    if (m->screen.shown) {
        snprintf(note, sizeof(note), "(MB, %.0f MB/s)", 1e-6 * rate);
        fputs(loong_progress_draw(&m->screen, done / 1000000, total / 1000000,
                                  left, note, text),
              stderr);
    } else {
        fprintf(stderr, "%lld of %lld MB, %.0f MB/s, %.0f s left\n",
                (long long)(done / 1000000), (long long)(total / 1000000),
                1e-6 * rate, left);
    }
}

static meter_t begin(const ckpt_arguments_t *a)
{
    meter_t meter;
    memset(&meter, 0, sizeof(meter));
    loong_progress_detect(STDERR_FILENO, &meter.screen);
    meter.quiet = a->quiet;
    meter.begin = seconds();
    return meter;
}

static int end(loong_context_t *ctx, const ckpt_arguments_t *a,
               const meter_t *m, loong_status_t status)
{
    double elapsed = seconds() - m->begin;
    if (!m->quiet) {
        fputs(loong_progress_wipe(&m->screen), stderr);
    }
    if (status == LOONG_OK && !m->quiet) {
        printf("%s: %.1f MB in %.2f s\n", a->places[a->count - 1],
               1e-6 * (double)m->done,
               elapsed);
    }
    return ckpt_finish(ctx, status, true);
}

/* ---- commands ---- */

enum { CKPT_PATH = 4096 };

int ckpt_import(loong_context_t *ctx, const ckpt_arguments_t *a)
{
    meter_t meter = begin(a);
    loong_checkpoint_import_params_t params = {a->places[0], a->places[1],
                                               a->names, show, &meter, 0};
    return end(ctx, a, &meter, loong_checkpoint_import(ctx, &params));
}

static void default_id(const loong_tokenizer_t *tokenizer,
                       loong_token_role_t role, int64_t *id)
{
    if (*id < 0) {
        *id = loong_tokenizer_get_role(tokenizer, role);
    }
}

/* Ids that were not given, from the tokenizer that was. */
static void read_ids(loong_context_t *ctx,
                     loong_checkpoint_export_params_t *params)
{
    loong_tokenizer_t *tokenizer = NULL;
    if (params->tokenizer_dir == NULL) {
        return;
    }
    if (loong_tokenizer_load(ctx, params->tokenizer_dir, &tokenizer) !=
        LOONG_OK) {
        fprintf(stderr, "warning: no token ids from %s: %s\n",
                params->tokenizer_dir, loong_context_error(ctx));
        loong_context_clear_error(ctx);
        return;
    }
    default_id(tokenizer, LOONG_TOKEN_BOS, &params->bos_token_id);
    default_id(tokenizer, LOONG_TOKEN_EOS, &params->eos_token_id);
    default_id(tokenizer, LOONG_TOKEN_EOD, &params->eos_token_id);
    default_id(tokenizer, LOONG_TOKEN_PAD, &params->pad_token_id);
    loong_tokenizer_destroy(&tokenizer);
}

int ckpt_export(loong_context_t *ctx, const ckpt_arguments_t *a)
{
    meter_t meter = begin(a);
    loong_checkpoint_export_params_t params;
    memset(&params, 0, sizeof(params));
    params.checkpoint = a->places[0];
    params.out_dir = a->places[1];
    params.component = a->component;
    params.convert = a->convert;
    params.dtype = a->dtype;
    params.max_shard_bytes = a->max_shard_bytes;
    params.tokenizer_dir = a->tokenizer;
    params.bos_token_id = a->ids[0];
    params.eos_token_id = a->ids[1];
    params.pad_token_id = a->ids[2];
    params.map = a->names.map;
    params.as = a->as;
    params.ema = a->ema;
    params.merge = a->merge;
    params.progress = show;
    params.user = &meter;
    read_ids(ctx, &params);
    return end(ctx, a, &meter, loong_checkpoint_export(ctx, &params));
}

/* "DIR=0.5": cuts the weight off. A directory of that name is itself. */
static double weight_of(const char *place, char dir[CKPT_PATH])
{
    const char *at = strrchr(place, '=');
    char *end = NULL;
    double weight = at != NULL ? strtod(at + 1, &end) : 1.0;
    bool whole = at == NULL || access(place, F_OK) == 0 || end == at + 1 ||
                 *end != '\0';
    snprintf(dir, CKPT_PATH, "%.*s",
             (int)(whole ? strlen(place) : (size_t)(at - place)), place);
    return whole ? 1.0 : weight;
}

int ckpt_merge(loong_context_t *ctx, const ckpt_arguments_t *a)
{
    static char dirs[CKPT_PLACES][CKPT_PATH];
    const char *inputs[CKPT_PLACES];
    double weights[CKPT_PLACES];
    meter_t meter = begin(a);
    for (int i = 0; i < a->count - 1; i++) {
        weights[i] = weight_of(a->places[i], dirs[i]);
        inputs[i] = dirs[i];
    }
    const loong_checkpoint_merge_params_t params = {
        .count = a->count - 1,
        .inputs = inputs,
        .weights = weights,
        .out_dir = a->places[a->count - 1],
        .linear = a->linear,
        .svd_rank = a->svd_rank,
        .convert = a->convert,
        .dtype = a->dtype,
        .max_shard_bytes = a->max_shard_bytes,
        .progress = show,
        .user = &meter};
    return end(ctx, a, &meter, loong_checkpoint_merge(ctx, &params));
}

int ckpt_convert(loong_context_t *ctx, const ckpt_arguments_t *a)
{
    meter_t meter = begin(a);
    loong_checkpoint_convert_params_t params = {
        a->places[0], a->places[1], a->dtype, a->max_shard_bytes, show,
        &meter};
    if (!a->convert) {
        fputs("loong-ckpt: convert needs --dtype fp32, bf16, fp16 or fp64\n",
              stderr);
        return LOONG_EXIT_USAGE;
    }
    return end(ctx, a, &meter, loong_checkpoint_convert(ctx, &params));
}
