/* SPDX-License-Identifier: Apache-2.0
 *
 * Blends: opening and checking the sources, and the way from a draw to a
 * sample. The formulas are in loong/blend.h; tables in apportion.c and
 * permutation.c, the fingerprint in blend_describe.c. Called by the loader,
 * batch_plan.c and the trainer. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "blend_impl.h"
#include "permutation.h"
#include "source_pack.h"

static loong_status_t check_source(const loong_blend_t *blend,
                                   const loong_blend_source_t *source)
{
    loong_context_t *ctx = blend->ctx;
    bool whole = source->split_begin == 0 && source->split_end == 0;
    LOONG_CHECK(ctx, source->path != NULL && source->path[0] != '\0',
                LOONG_ERR_CONFIG, "data '%s': a source without a path",
                blend->name);
    LOONG_CHECK(ctx, isfinite(source->weight) && source->weight >= 0,
                LOONG_ERR_CONFIG,
                "data '%s', source '%s': weight %g, must be above 0",
                blend->name, source->path, source->weight);
    LOONG_CHECK(ctx,
                whole || (source->split_begin >= 0 &&
                          source->split_begin < source->split_end &&
                          source->split_end <= 1),
                LOONG_ERR_CONFIG,
                "data '%s', source '%s': split %g to %g, allowed is "
                "0 <= begin < end <= 1",
                blend->name, source->path, source->split_begin,
                source->split_end);
    LOONG_CHECK(ctx, source->max_epochs >= 0, LOONG_ERR_CONFIG,
                "data '%s', source '%s': max_epochs %" PRId64
                ", must be 0 (no bound) or more",
                blend->name, source->path, source->max_epochs);
    return LOONG_OK;
}

/* Texts of lengths of their own are laid into rows. */
static loong_status_t lay_into_rows(loong_blend_t *blend,
                                    const loong_blend_params_t *of, int64_t s)
{
    blend_source_t *own = &blend->sources[s];
    uint64_t key = loongi_permutation_key(blend->seed, (uint64_t)s);
    const loong_pack_params_t params = {
        blend->name, blend->seq_length, of->packing, of->truncation,
        loongi_permutation_key(key, UINT64_MAX /* no epoch */),
        of->pictures, of->row_patches, of->row_images};
    return loongi_pack_source(blend->ctx, &params, &own->info.source_class,
                              &own->source);
}

static loong_status_t open_source(loong_blend_t *blend,
                                  const loong_blend_params_t *of, int64_t s)
{
    const loong_blend_source_t *source = &of->sources[s];
    blend_source_t *own = &blend->sources[s];
    loong_blend_source_info_t *info = &own->info;
    const char *name = source->class_name;
    const loong_source_params_t params = {
        .data = blend->name,
        .path = source->path,
        .seq_length = blend->seq_length,
        .split_begin = source->split_begin,
        .split_end = source->split_end,
        .known = source->known,
        .tokenizer = of->tokenizer,
        .image_token = of->image_token,
        .image_root = of->image_root,
        .image_processor = of->image_processor,
        .video_token = of->video_token,
        .video_processor = of->video_processor,
        .part = source->part,
        .chat = of->chat};
    LOONG_TRY(check_source(blend, source));
    LOONG_TRY(loong_find_source(blend->ctx, name != NULL ? name : "tokens",
                                &info->source_class));
    LOONG_TRY(info->source_class->open(blend->ctx, &params, &own->source));
    if (info->source_class->packs ||
        (of->pictures.rows != NULL && of->packing != LOONG_PACK_NONE &&
         info->source_class->peek != NULL)) {
        LOONG_TRY(lay_into_rows(blend, of, s));
    }
    info->source = own->source;
    info->source_class->get_info(own->source, &info->info);
    info->max_epochs = source->max_epochs;
    return LOONG_OK;
}

/* Samples that a source gives in an epoch. */
static double epoch_of(const loong_blend_t *blend,
                       const loong_blend_source_t *sources, int64_t s)
{
    double times = sources[s].repetitions;
    double samples = (double)blend->sources[s].info.info.samples;
    return times > 0.0 ? times * samples : samples;
}

static loong_status_t choose_weights(loong_blend_t *blend,
                                     const loong_blend_source_t *sources,
                                     double *weights)
{
    int64_t zeros = 0;
    for (int64_t s = 0; s < blend->num_sources; s++) {
        zeros += sources[s].weight == 0;
    }
    for (int64_t s = 0; s < blend->num_sources; s++) {
        LOONG_CHECK(blend->ctx, zeros == 0 || zeros == blend->num_sources,
                    LOONG_ERR_CONFIG,
                    "data '%s': %" PRId64 " of %" PRId64
                    " sources have no weight, give it to all or to none",
                    blend->name, zeros, blend->num_sources);
        weights[s] =
            zeros > 0 ? epoch_of(blend, sources, s) : sources[s].weight;
    }
    return loongi_apportion_create(blend->ctx, weights, blend->num_sources,
                                   &blend->table);
}

static loong_status_t share_out(loong_blend_t *blend,
                                const loong_blend_source_t *sources)
{
    double *weights = NULL;
    LOONG_TRY(loongi_calloc(blend->ctx, (size_t)blend->num_sources,
                            sizeof(*weights), "blend weights", &weights));
    loong_status_t status = choose_weights(blend, sources, weights);
    loongi_free(blend->ctx, weights);
    LOONG_TRY(status);
    double samples_of_all = 0.0;
    blend->max_samples = INT64_MAX;
    for (int64_t s = 0; s < blend->num_sources; s++) {
        loong_blend_source_info_t *info = &blend->sources[s].info;
        info->share = blend->table.share[s];
        int64_t samples = info->info.samples;
        samples_of_all += epoch_of(blend, sources, s);
        if (info->max_epochs > 0 &&
            info->max_epochs < INT64_MAX / APPORTION_MAX_PERIOD / samples) {
            int64_t end = loongi_apportion_find(&blend->table, s,
                                                info->max_epochs * samples);
            blend->max_samples = LOONG_MIN(blend->max_samples, end);
        }
    }
    blend->epoch_samples = LOONG_MAX(llround(samples_of_all), 1);
    return LOONG_OK;
}

static loong_status_t blend_open(loong_blend_t *blend,
                                 const loong_blend_params_t *params)
{
    loong_context_t *ctx = blend->ctx;
    LOONG_TRY(loongi_strdup(ctx, params->name, &blend->name));
    LOONG_CHECK(ctx,
                params->num_sources >= 1 &&
                    params->num_sources <= APPORTION_MAX_SOURCES,
                LOONG_ERR_CONFIG,
                "data '%s' has %" PRId64 " sources, allowed are 1 to %d",
                blend->name, params->num_sources, APPORTION_MAX_SOURCES);
    blend->seq_length = params->seq_length;
    blend->seed = params->seed;
    blend->shuffle = params->shuffle;
    LOONG_TRY(loongi_calloc(ctx, (size_t)params->num_sources,
                            sizeof(*blend->sources), "blend sources",
                            &blend->sources));
    blend->num_sources = params->num_sources;
    loong_status_t status = LOONG_OK;
    for (int64_t s = 0; s < params->num_sources; s++) { /* tells of all */
        loong_status_t opened = open_source(blend, params, s);
        status = status != LOONG_OK ? status : opened;
    }
    LOONG_TRY(status);
    LOONG_TRY(share_out(blend, params->sources));
    return loongi_blend_describe(blend);
}

loong_status_t loong_blend_create(loong_context_t *ctx,
                                  const loong_blend_params_t *params,
                                  loong_blend_t **blend_p)
{
    loong_blend_t *blend = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*blend), "blend", &blend));
    blend->ctx = ctx;
    loong_status_t status = blend_open(blend, params);
    if (status != LOONG_OK) {
        loong_blend_destroy(&blend);
        return status;
    }
    *blend_p = blend;
    return LOONG_OK;
}

void loong_blend_destroy(loong_blend_t **blend_p)
{
    loong_blend_t *blend = *blend_p;
    if (blend == NULL) {
        return;
    }
    for (int64_t s = 0; s < blend->num_sources; s++) {
        if (blend->sources[s].source != NULL) {
            blend->sources[s].info.source_class->close(
                blend->sources[s].source);
        }
    }
    loongi_apportion_destroy(blend->ctx, &blend->table);
    loongi_text_free(&blend->description);
    loongi_free(blend->ctx, blend->sources);
    loongi_free(blend->ctx, blend->name);
    loongi_free(blend->ctx, blend);
    *blend_p = NULL;
}

void loong_blend_get_info(const loong_blend_t *blend, loong_blend_info_t *info)
{
    info->name = blend->name;
    info->num_sources = blend->num_sources;
    info->seq_length = blend->seq_length;
    info->period = blend->table.period;
    info->epoch_samples = blend->epoch_samples;
    info->max_samples = blend->max_samples;
}

void loong_blend_get_source(const loong_blend_t *blend, int64_t source,
                            loong_blend_source_info_t *info)
{
    *info = blend->sources[source].info;
}

loong_status_t loong_blend_locate(const loong_blend_t *blend, int64_t g,
                                  loong_sample_t *sample)
{
    LOONG_CHECK(blend->ctx, g >= 0 && g < blend->max_samples, LOONG_ERR_ARG,
                "data '%s': sample %" PRId64
                ", max_epochs allows 0 to %" PRId64,
                blend->name, g, blend->max_samples - 1);
    const loong_apportion_t *table = &blend->table;
    int64_t slot = g % table->period;
    int64_t s = table->source[slot];
    int64_t samples = blend->sources[s].info.info.samples;
    sample->source = s;
    sample->draw = g / table->period * table->share[s] + table->rank[slot];
    sample->epoch = sample->draw / samples;
    sample->number = sample->draw % samples;
    if (blend->shuffle) {
        uint64_t key = loongi_permutation_key(blend->seed, (uint64_t)s);
        key = loongi_permutation_key(key, (uint64_t)sample->epoch);
        sample->number = loongi_permutation_get(key, samples, sample->number);
    }
    return LOONG_OK;
}

int64_t loong_blend_count(const loong_blend_t *blend, int64_t source, int64_t g)
{
    return loongi_apportion_count(&blend->table, source, g);
}

loong_status_t loong_blend_require(const loong_blend_t *blend, int64_t samples)
{
    if (samples <= blend->max_samples) {
        return LOONG_OK;
    }
    int64_t s = blend->table.source[blend->max_samples % blend->table.period];
    const loong_blend_source_info_t *info = &blend->sources[s].info;
    return LOONG_FAIL(
        blend->ctx, LOONG_ERR_CONFIG,
        "data '%s': %" PRId64 " samples are needed, there are %" PRId64
        " until '%s' is used up (%" PRId64 " samples x max_epochs %" PRId64
        ", share %" PRId64 "/%" PRId64 "): raise max_epochs, lower its weight "
        "or train less",
        blend->name, samples, blend->max_samples, info->info.path,
        info->info.samples, info->max_epochs, info->share, blend->table.period);
}
