/* SPDX-License-Identifier: Apache-2.0
 *
 * megatron-energon's metadata of tar shards, and which of them are which part
 * of a split. Called by webdataset.c. Read webdataset_meta.h before. */
#include "webdataset_meta.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "file.h"

/* So much more or less than its share a part may have without a warning. */
#define MOST_OFF 0.1

typedef struct meta {
    loong_context_t *ctx;
    const loong_webdataset_params_t *params;
    const loong_webdataset_info_t *info;
    const int64_t *counts; /* samples of each shard */
} meta_t;

/* A part of a split: "train=0.9". */
typedef struct part {
    const char *name;
    int length;
    double share;
} part_t;

/* The next of "train=0.9,val=0.1"; *at_p goes behind it. */
static loong_status_t next_part(loong_context_t *ctx, const char *split,
                                const char **at_p, part_t *part)
{
    const char *at = *at_p;
    char *end = NULL;
    part->name = at;
    part->length = (int)strspn(at, "abcdefghijklmnopqrstuvwxyz_");
    part->share = at[part->length] == '='
                      ? strtod(at + part->length + 1, &end)
                      : 0.0;
    LOONG_CHECK(ctx,
                part->length > 0 && part->share > 0.0 &&
                    (*end == ',' || *end == '\0'),
                LOONG_ERR_ARG, "--split '%s': must be as train=0.9,val=0.1",
                split);
    *at_p = *end == ',' ? end + 1 : end;
    return LOONG_OK;
}

static loong_status_t sum_shares(loong_context_t *ctx, const char *split,
                                 double *sum_p)
{
    *sum_p = 0.0;
    for (const char *at = split; *at != '\0';) {
        part_t part;
        LOONG_TRY(next_part(ctx, split, &at, &part));
        *sum_p += part.share;
    }
    LOONG_CHECK(ctx, *sum_p > 0.0 && isfinite(*sum_p), LOONG_ERR_ARG,
                "--split '%s': must be as train=0.9,val=0.1", split);
    return LOONG_OK;
}

loong_status_t loongi_webdataset_check_split(loong_context_t *ctx,
                                             const char *split)
{
    double sum = 0.0;
    return sum_shares(ctx, split, &sum);
}

static loong_status_t write_meta(const meta_t *m, const char *name,
                                 const loong_text_t *text)
{
    loong_text_t path = loongi_text_begin(m->ctx);
    loongi_text_printf(&path, "%s/.nv-meta/%s", m->params->out, name);
    loong_status_t status =
        text->status != LOONG_OK ? text->status : path.status;
    if (status == LOONG_OK) {
        status = loongi_file_write(m->ctx, path.data, text->data, text->length);
    }
    loongi_text_free(&path);
    return status;
}

/* Parts are whole shards, so that few shards make other shares. */
static void tell_part(const meta_t *m, const part_t *part, double share,
                      int64_t first, int64_t end)
{
    int64_t samples = 0;
    for (int64_t i = first; i < end; i++) {
        samples += m->counts[i];
    }
    double found = (double)samples / (double)LOONG_MAX(m->info->samples, 1);
    bool off = fabs(found - share) > MOST_OFF * share;
    loongi_log(m->ctx, off ? LOONG_LOG_WARN : LOONG_LOG_INFO,
               "--split: '%.*s' has %" PRId64 " samples, %.1f %%, in %" PRId64
               " shards%s",
               part->length, part->name, samples, 100.0 * found, end - first,
               off ? "; parts are whole shards, a smaller --maxcount comes "
                     "closer to its share"
                   : "");
}

/* The shards of a part end behind this share of them all. */
static loong_status_t put_part(const meta_t *m, const part_t *part,
                               double share, int64_t *shard,
                               loong_text_t *text)
{
    int64_t end = (int64_t)(share * (double)m->info->shards + 0.5);
    LOONG_CHECK(m->ctx, end > *shard, LOONG_ERR_ARG,
                "--split %s: of %" PRId64 " shards none is left for '%.*s', "
                "--maxcount or --maxsize makes more",
                m->params->split, m->info->shards, part->length, part->name);
    loongi_text_printf(text, "  %.*s:\n", part->length, part->name);
    for (; *shard < end; ++*shard) {
        loongi_text_printf(text, "  - shard-%06" PRId64 ".tar\n", *shard);
    }
    return text->status;
}

static loong_status_t put_split(const meta_t *m, loong_text_t *text)
{
    double sum = 0.0, all = 0.0;
    int64_t shard = 0;
    LOONG_TRY(sum_shares(m->ctx, m->params->split, &all));
    loongi_text_printf(text, "split_parts:\n");
    for (const char *at = m->params->split; *at != '\0';) {
        part_t part;
        int64_t first = shard;
        LOONG_TRY(next_part(m->ctx, m->params->split, &at, &part));
        sum += part.share;
        LOONG_TRY(put_part(m, &part, sum / all, &shard, text));
        if (part.share < all) { /* there are several */
            tell_part(m, &part, part.share / all, first, shard);
        }
    }
    loongi_text_printf(text, "exclude: []\n");
    return text->status;
}

static loong_status_t put_counts(const meta_t *m, loong_text_t *text)
{
    loongi_text_printf(text, "shard_counts:\n");
    for (int64_t i = 0; i < m->info->shards; i++) {
        loongi_text_printf(text, "  shard-%06" PRId64 ".tar: %" PRId64 "\n", i,
                           m->counts[i]);
    }
    return text->status;
}

loong_status_t loongi_webdataset_put_meta(
    loong_context_t *ctx, const loong_webdataset_params_t *params,
    const loong_webdataset_info_t *info, const int64_t *counts)
{
    const meta_t m = {ctx, params, info, counts};
    loong_text_t set = loongi_text_begin(ctx);
    loong_text_t split = loongi_text_begin(ctx);
    loong_text_t shards = loongi_text_begin(ctx);
    loongi_text_printf(&set, "__module__: megatron.energon\n"
                             "__class__: CrudeWebdataset\n");
    loong_status_t status = put_split(&m, &split);
    if (status == LOONG_OK) {
        status = put_counts(&m, &shards);
    }
    if (status == LOONG_OK) {
        status = write_meta(&m, "dataset.yaml", &set);
    }
    if (status == LOONG_OK) {
        status = write_meta(&m, "split.yaml", &split);
    }
    if (status == LOONG_OK) {
        status = write_meta(&m, ".info.yaml", &shards);
    }
    loongi_text_free(&set);
    loongi_text_free(&split);
    loongi_text_free(&shards);
    return status;
}
