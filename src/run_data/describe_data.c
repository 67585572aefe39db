/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run tells of its data before it starts. Called by trainer_run.c. Read
 * loong/source.h and run_data.h before. */
#include <stdio.h>
#include <string.h>

#include "run_data.h"

/* Tokens of a source, of all its samples; 0: it has other things. */
static double ids_of(const loong_source_info_t *info)
{
    return info->pack != NULL ? (double)(info->pack->ids - info->pack->cut_ids)
                              : (double)info->tokens;
}

/* Tokens of what the run takes of a source: of rows that are not full, those
 * that they have on average. */
static double taken_ids(const loong_source_info_t *info, int64_t seq_length,
                        double samples)
{
    return info->pack != NULL ? samples / (double)info->samples * ids_of(info)
                              : samples * (double)seq_length;
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

/* "rows: 980 samples, 120K tokens, 40K learned, the longest 2100; best_fit into
 * 61 rows of 2049, up to 31 in one: 98.9 % full, 1.1 % padding; 0.01 s" */
static void describe_rows(const loong_pack_info_t *p, loong_text_t *text)
{
    static const char *const packings[] = {"none", "greedy", "best_fit"};
    static const char *const cuts[] = {"refuse", "left", "right", "turn"};
    char human[3][LOONG_HUMAN_SIZE];
    double full = (double)(p->ids - p->cut_ids) /
                  ((double)LOONG_MAX(p->rows, 1) * (double)p->room);
    loongi_text_printf(text, "    %s sample%s, %s tokens, ",
                       loongi_human_count((double)p->samples, human[0]),
                       plural(p->samples),
                       loongi_human_count((double)p->ids, human[1]));
    if (p->learned >= 0) {
        loongi_text_printf(
            text, "%s learned, ",
            loongi_human_count((double)(p->learned - p->cut_learned),
                               human[0]));
    }
    loongi_text_printf(
        text,
        "the longest %lld\n"
        "    packing %s: %s row%s of %lld, up to %lld sample%s in one, %.2f "
        "%% full, %.2f %% padding; %.2f s\n",
        (long long)p->longest, packings[p->packing],
        loongi_human_count((double)p->rows, human[0]), plural(p->rows),
        (long long)p->room, (long long)p->most, plural(p->most), 100.0 * full,
        100.0 * (1.0 - full), p->seconds);
    if (p->patch_room > 0) {
        loongi_text_printf(
            text,
            "    pictures: %s rows of the image encoder, %.2f "
            "%% of the %lld that a row of samples has\n",
            loongi_human_count((double)p->patches, human[0]),
            100.0 * (double)p->patches /
                ((double)LOONG_MAX(p->rows, 1) * (double)p->patch_room),
            (long long)p->patch_room);
    }
    if (p->cut_samples > 0) {
        loongi_text_printf(
            text,
            "    truncation %s: %s samples are cut, by %s tokens of which %s "
            "are learned\n",
            cuts[p->truncation],
            loongi_human_count((double)p->cut_samples, human[0]),
            loongi_human_count((double)p->cut_ids, human[1]),
            loongi_human_count((double)p->cut_learned, human[2]));
    }
}

static void describe_source(const loong_run_data_t *d, int64_t i, bool tokens,
                            loong_text_t *text)
{
    char human[LOONG_HUMAN_SIZE];
    loong_blend_info_t blend;
    loong_blend_source_info_t source;
    loong_blend_get_info(d->blend, &blend);
    loong_blend_get_source(d->blend, i, &source);
    int64_t samples = loongi_settings_samples(d->plan->set);
    double taken = (double)loong_blend_count(d->blend, i, samples);
    double there = tokens ? ids_of(&source.info) : (double)source.info.samples;
    double epochs = taken / (double)source.info.samples;
    loongi_text_printf(text, "  %5.1f %% %s: %s %s, %.3g epoch%s\n",
                       100.0 * (double)source.share / (double)blend.period,
                       source.info.path, loongi_human_count(there, human),
                       tokens ? "tokens" : "samples", epochs,
                       epochs == 1.0 ? "" : "s");
    if (source.info.refused > 0) {
        loongi_text_printf(text,
                           "    %lld of %lld records are refused and left "
                           "out, listed in %s\n",
                           (long long)source.info.refused,
                           (long long)source.info.records,
                           source.info.refused_file);
    }
    if (source.info.pack != NULL) {
        describe_rows(source.info.pack, text);
    }
}

/* "3 epochs are 183 rows, 23 steps; the last one has 7 of 8" */
static void describe_length(const loong_run_data_t *d, loong_text_t *text)
{
    int64_t samples = d->plan->set->num_samples;
    int64_t rest = samples % d->plan->set->global_batch_size;
    int64_t steps = d->plan->set->train_iters;
    double epochs = d->plan->set->epochs;
    if (samples == 0) {
        return;
    }
    loongi_text_printf(text, "  %g epoch%s %lld %s%s, %lld step%s", epochs,
                       epochs == 1.0 ? " is" : "s are", (long long)samples,
                       loongi_blend_packs(d->blend) ? "row" : "sample",
                       plural(samples), (long long)steps, plural(steps));
    if (rest > 0 && d->plan->set->rampup.start == 0) {
        loongi_text_printf(text, "; the last one has %lld of %lld",
                           (long long)rest,
                           (long long)d->plan->set->global_batch_size);
    }
    loongi_text_printf(text, "\n");
}

/* "balance of 8 ranks: ..." */
static void describe_balance(const loong_run_data_t *d, loong_text_t *text)
{
    double dealt = 1.0;
    double drawn = 1.0;
    if (d->loader == NULL) {
        return;
    }
    if (loong_loader_get_balance(d->loader, 0, &dealt, &drawn) !=
        LOONG_OK) { /* the step tells */
        loong_context_clear_error(d->plan->ctx);
    } else if (drawn > 1.0) {
        loongi_text_printf(text,
                           "  balance of %d data-parallel ranks: most to do / "
                           "mean by planned cost %.3f, as drawn %.3f (first "
                           "step)\n",
                           d->plan->mesh.size[LOONG_AXIS_DP], dealt, drawn);
    }
}

static void describe_ids(const loong_run_data_t *d, loong_text_t *text)
{
    char read[LOONG_HUMAN_SIZE];
    char human[LOONG_HUMAN_SIZE];
    if (d->ids.read > 0) {
        loongi_text_printf(
            text,
            "  token ids up to %lld in %s of %s tokens%s, the model "
            "knows 0 to %lld\n",
            (long long)d->ids.largest,
            loongi_human_count((double)d->ids.read, read),
            loongi_human_count((double)d->ids.there, human),
            d->num_validation > 0 ? ", with validation sets" : "",
            (long long)d->plan->component->facts.vocab_size - 1);
    }
}

/* "data: 2 sources, 1.20B tokens", and for each its part of the run. A batch
 * that grows takes less than is told. */
void loongi_run_data_describe(const loong_run_data_t *d, loong_text_t *text)
{
    char human[LOONG_HUMAN_SIZE];
    loong_blend_info_t blend;
    double all = 0.0;
    double taken = 0.0;
    int64_t samples = loongi_settings_samples(d->plan->set);
    if (d->blend == NULL || samples == 0) {
        return;
    }
    loong_blend_get_info(d->blend, &blend);
    for (int64_t i = 0; i < blend.num_sources; i++) {
        loong_blend_source_info_t source;
        loong_blend_get_source(d->blend, i, &source);
        all += ids_of(&source.info);
        taken += taken_ids(&source.info, blend.seq_length,
                           (double)loong_blend_count(d->blend, i, samples));
    }
    bool tokens = all > 0.0;
    loongi_text_printf(
        text, "data: %lld source%s, %s %s; ", (long long)blend.num_sources,
        plural(blend.num_sources),
        loongi_human_count(tokens ? all : (double)blend.epoch_samples, human),
        tokens ? "tokens" : "samples");
    loongi_text_printf(
        text, "the run takes %s%s, %d validation set%s\n",
        d->plan->set->rampup.start > 0 ? "up to " : "",
        loongi_human_count(tokens ? taken : (double)samples, human),
        d->num_validation, plural(d->num_validation));
    for (int64_t i = 0; i < blend.num_sources; i++) {
        describe_source(d, i, tokens, text);
    }
    describe_length(d, text);
    describe_balance(d, text);
    describe_ids(d, text);
}
