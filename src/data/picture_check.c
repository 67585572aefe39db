/* SPDX-License-Identifier: Apache-2.0
 *
 * Every picture of data, decoded before a run: one that is cut off behind its
 * head would stop it at some step. Called by src/train/preflight.c. Read
 * data_check.h before. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data_check.h"
#include "problems.h"
#include "readers.h"

enum {
    CHUNK = 512,   /* samples that threads share out at once */
    LONG_TIME = 10 /* seconds that are told beforehand */
};

/* What threads do with samples first .. first + CHUNK - 1 of a source. */
enum { PICTURES, VIDEOS, KINDS };

typedef struct decoding {
    loong_blend_source_info_t source;
    int64_t first;
    loong_items_t *items; /* of each thread */
    int found[CHUNK][KINDS];
    loong_text_t broken[CHUNK]; /* a line for each that cannot be decoded */
} decoding_t;

/* All that was said of a picture in one line. */
static void keep_message(loong_context_t *ctx, loong_text_t *lines)
{
    for (const char *c = loong_context_error(ctx); *c != '\0'; c++) {
        loongi_text_append(lines, *c == '\n' ? ", " : c, *c == '\n' ? 2 : 1);
    }
    loongi_text_append(lines, "\n", 1);
    loong_context_clear_error(ctx);
}

/* One by one, so that each that is broken is told. */
static void decode_sample(void *user, int reader, int64_t i)
{
    decoding_t *d = user;
    loong_items_t *items = &d->items[reader];
    const loong_source_class_t *c = d->source.source_class;
    int *found = d->found[i];
    found[PICTURES] = found[VIDEOS] = 0;
    d->broken[i] = loongi_text_begin(items->ctx);
    if (c->peek(d->source.source, d->first + i, items) != LOONG_OK) {
        keep_message(items->ctx, &d->broken[i]);
        items->count = 0;
    }
    for (int k = 0; k < items->count; k++) {
        const loong_item_t *item = &items->item[k];
        found[item->frames > 0 ? VIDEOS : PICTURES] +=
            item->type == LOONG_ITEM_IMAGE;
    }
    for (int k = 1; k <= found[PICTURES] + found[VIDEOS]; k++) {
        items->picture = k;
        if (c->read(d->source.source, d->first + i, items) != LOONG_OK) {
            keep_message(items->ctx, &d->broken[i]);
        }
    }
}

static void take_problems(loong_text_t *lines, loong_problems_t *problems)
{
    char *line = lines->data;
    while (line != NULL && *line != '\0') {
        char *end = strchr(line, '\n');
        *end = '\0';
        loongi_problems_add(problems, "%s", line);
        line = end + 1;
    }
    loongi_text_free(lines);
}

static void tell_time(loong_context_t *ctx, const char *data, double seconds,
                      int64_t done, int64_t samples, bool *told)
{
    double left = seconds / (double)done * (double)(samples - done);
    char human[LOONG_HUMAN_SIZE];
    if (left > LONG_TIME && !*told) {
        *told = true;
        loongi_log(ctx, LOONG_LOG_INFO,
                   "data '%s': the pictures of %s samples are decoded, which "
                   "takes about %.0f s; --dry-run reads their heads alone",
                   data, loongi_human_count((double)samples, human), left);
    }
}

/* The samples of a source, by threads if it allows several; what they have is
 * added to `found`. */
static void decode_source(decoding_t *d, loong_readers_t *readers,
                          const char *data, loong_problems_t *problems,
                          int64_t found[KINDS])
{
    const loong_source_class_t *c = d->source.source_class;
    int64_t samples = c->peek != NULL ? d->source.info.samples : 0;
    double begun = loongi_now();
    bool told = false;
    for (d->first = 0; d->first < samples; d->first += CHUNK) {
        int64_t count = LOONG_MIN(CHUNK, samples - d->first);
        loongi_readers_start(readers, c->concurrent ? count : 0);
        for (int64_t i = 0; i < count && !c->concurrent; i++) {
            decode_sample(d, 0, i);
        }
        loongi_readers_wait(readers);
        for (int64_t i = 0; i < count; i++) {
            found[PICTURES] += d->found[i][PICTURES];
            found[VIDEOS] += d->found[i][VIDEOS];
            take_problems(&d->broken[i], problems);
        }
        tell_time(problems->text.ctx, data, loongi_now() - begun,
                  d->first + count, samples, &told);
    }
}

/* "3 pictures", "1 videos" or "3 pictures and 1 videos". */
static void describe(const int64_t found[KINDS], loong_text_t *text)
{
    char count[LOONG_HUMAN_SIZE];
    if (found[PICTURES] > 0 || found[VIDEOS] == 0) {
        loongi_text_printf(
            text, "%s pictures%s",
            loongi_human_count((double)found[PICTURES], count),
            found[VIDEOS] > 0 ? " and " : "");
    }
    if (found[VIDEOS] > 0) {
        loongi_text_printf(text, "%s videos",
                           loongi_human_count((double)found[VIDEOS], count));
    }
}

static loong_status_t decode_blend(const loong_blend_t *blend, decoding_t *d,
                                   loong_readers_t *readers,
                                   loong_context_t *ctx)
{
    loong_problems_t problems = loongi_problems_begin(ctx);
    loong_blend_info_t info;
    int64_t found[KINDS] = {0};
    double begun = loongi_now();
    loong_text_t of = loongi_text_begin(ctx);
    char what[256];
    loong_blend_get_info(blend, &info);
    for (int64_t s = 0; s < info.num_sources; s++) {
        loong_blend_get_source(blend, s, &d->source);
        decode_source(d, readers, info.name, &problems, found);
    }
    describe(found, &of);
    loongi_log(ctx, LOONG_LOG_INFO, "data '%s': %s decoded, %.1f s", info.name,
               loongi_text_get(&of), loongi_now() - begun);
    snprintf(what, sizeof(what), "data '%s': of %s", info.name,
             loongi_text_get(&of));
    loongi_text_free(&of);
    return loongi_problems_end(&problems, LOONG_ERR_FORMAT, what);
}

loong_status_t loongi_data_decode(loong_context_t *ctx,
                                  const loong_blend_t *blend, int threads)
{
    decoding_t *d = NULL;
    loong_readers_t *readers = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*d), "pictures to decode", &d));
    loong_status_t status = loongi_calloc(
        ctx, (size_t)threads, sizeof(*d->items), "reading threads", &d->items);
    for (int i = 0; i < threads && status == LOONG_OK; i++) {
        d->items[i].vocab_size = INT32_MAX;
        status = loong_context_create(NULL, &d->items[i].ctx);
    }
    if (status == LOONG_OK) {
        status =
            loongi_readers_create(ctx, threads, decode_sample, d, &readers);
    }
    if (status == LOONG_OK) {
        status = decode_blend(blend, d, readers, ctx);
    }
    loongi_readers_destroy(&readers);
    for (int i = 0; d->items != NULL && i < threads; i++) {
        loong_items_free(&d->items[i]);
        loong_context_destroy(&d->items[i].ctx);
    }
    loongi_free(ctx, d->items);
    loongi_free(ctx, d);
    return status;
}
