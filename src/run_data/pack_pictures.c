/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples with pictures share rows: what these have room for, and how a picture
 * is measured before the model is planned, whose segments follow from the rows.
 * Called by trainer_create.c and open_data.c. Read run_data.h before. */
#include <string.h>

#include "loong/image.h"
#include "run_data.h"

loong_picture_rows_t loongi_encoders_rows(const void *encoders,
                                          const loong_item_t *picture)
{
    const loong_encoders_t *e = encoders;
    int number = picture->frames > 0 ? e->count - 1 : 0;
    loong_picture_rows_t rows = loong_picture_rows(&e->of[number], picture);
    rows.encoder_number = number;
    return rows;
}

bool loongi_pictures_differ(const loong_encoders_t *encoders)
{
    bool differ = false;
    for (int i = 0; i < encoders->count; i++) {
        differ = differ || encoders->of[i].image_size == 0 ||
                 encoders->of[i].max_tiles > 1;
    }
    return differ;
}

/* One of two components reads pictures, the other one makes a row of several
 * patches. */
static loong_status_t describe_encoder(loong_run_data_t *d, int number,
                                       const loong_component_params_t asked[2],
                                       loong_patch_params_t *config)
{
    int64_t merge = 1;
    memset(config, 0, sizeof(*config));
    for (int i = 0; i < 2; i++) {
        loong_model_facts_t facts = {0};
        asked[i].family->facts(asked[i].config, &facts);
        merge *= LOONG_MAX(facts.merge_size, 1);
        config->packed_tiles =
            LOONG_MAX(config->packed_tiles, facts.packed_tiles);
        config->latents = LOONG_MAX(config->latents, facts.latents);
        config->merge_frames =
            LOONG_MAX(config->merge_frames, facts.merge_frames);
        if (facts.patch_size > 0) {
            LOONG_TRY(loongi_run_data_any_image_processor(
                d, number, asked[i].family, facts.image_size));
            config->processor = d->image_processor[number];
            config->max_tiles = d->plan->pictures[number].tiles;
            config->image_size = facts.image_size;
            config->cut.patch = facts.patch_size;
            config->cut.inner = facts.merge_size;
            config->cut.chunk = facts.chunk_frames;
            config->cut.frames = facts.temporal_patch_size;
            config->tokens_per_second = facts.tokens_per_second;
            config->class_token = facts.class_token;
            config->sends_class_token = facts.sends_class_token;
        }
    }
    config->cut.merge = merge;
    config->video = d->video_processor;
    return LOONG_OK;
}

loong_status_t
loongi_run_data_describe_pictures(loong_run_data_t *d, int count,
                                  const loong_component_params_t *asked,
                                  loong_encoders_t *encoders)
{
    encoders->count = count / 2;
    LOONG_TRY(loongi_run_data_video_processor(d));
    for (int i = 0; i < encoders->count; i++) {
        LOONG_TRY(
            describe_encoder(d, i, &asked[2 * i], &encoders->of[i]));
    }
    return LOONG_OK;
}

static loong_status_t find_room(loong_run_data_t *d,
                                const loong_encoders_t *encoders)
{
    const loong_train_settings_t *s = d->plan->set;
    loong_packed_pictures_t *p = &d->packed;
    LOONG_CHECK(d->plan->ctx, s->row_images > 0, LOONG_ERR_CONFIG,
                "%s: data.packing: samples with pictures that share rows want "
                "data.row_images, the pictures of a row at most",
                loong_recipe_where(d->plan->recipe, "data.packing"));
    p->images = (int32_t)s->row_images;
    p->patches = s->row_patches > 0 ? (int32_t)s->row_patches : INT32_MAX;
    p->reader = (loong_picture_reader_t){encoders, loongi_encoders_rows,
                                         loongi_pictures_differ(encoders)};
    return LOONG_OK;
}

static loong_status_t check_unpacked(const loong_run_data_t *d)
{
    static const char *const keys[] = {"data.row_images", "data.row_patches"};
    for (int i = 0; i < LOONG_COUNT_OF(keys); i++) {
        LOONG_CHECK(d->plan->ctx,
                    !loong_recipe_is_set(d->plan->recipe, keys[i]),
                    LOONG_ERR_CONFIG,
                    "%s: %s: is of rows that samples with pictures share; "
                    "data.packing makes such rows, of a model that reads "
                    "pictures",
                    loong_recipe_where(d->plan->recipe, keys[i]), keys[i]);
    }
    return LOONG_OK;
}

loong_status_t
loongi_run_data_pack_pictures(loong_run_data_t *d, int count,
                              const loong_component_params_t *asked,
                              loong_arena_t *arena)
{
    loong_encoders_t *encoders = NULL;
    if (count < 2 || d->plan->set->packing == LOONG_PACK_NONE) {
        return check_unpacked(d);
    }
    LOONG_TRY(loongi_arena_alloc(arena, sizeof(*encoders), &encoders));
    LOONG_TRY(loongi_run_data_describe_pictures(d, count, asked, encoders));
    return find_room(d, encoders);
}
