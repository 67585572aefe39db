/* SPDX-License-Identifier: Apache-2.0
 *
 * The image and the video processor of a run, named by its recipe or its
 * encoder's class, and whether the encoder takes what they make. Called by
 * open_data.c, plan_data.c and pack_pictures.c. Read run_data.h before. */
#include "run_data.h"

loong_status_t loongi_run_data_image_processor(loong_run_data_t *d)
{
    static const char key[] = "data.image_processor";
    const char *path = loong_recipe_text(d->plan->recipe, key);
    loong_status_t status = LOONG_OK;
    if (path != NULL && d->image_processor[0] == NULL) {
        status = loong_image_processor_create(d->plan->ctx, path,
                                              &d->image_processor[0]);
    }
    if (status != LOONG_OK) {
        loongi_error_note(d->plan->ctx, "wanted by %s (%s)", key,
                          loong_recipe_where(d->plan->recipe, key));
        return status;
    }
    int64_t most = d->plan->set->max_tiles;
    const loong_image_processor_t *first = d->image_processor[0];
    int64_t there =
        first != NULL ? loong_image_processor_max_tiles(first) - 1 : 0;
    bool tiles = there > 0;
    LOONG_CHECK(d->plan->ctx,
                most == 0 || !tiles ||
                    !loong_image_processor_tiles(first, 1, 1, true)
                         .whole_first,
                LOONG_ERR_CONFIG,
                "%s: data.max_tiles: found %lld, the image processor lists its "
                "grids (image_grid_pinpoints)",
                loong_recipe_where(d->plan->recipe, "data.max_tiles"),
                (long long)most);
    LOONG_CHECK(d->plan->ctx, most <= 1 || tiles, LOONG_ERR_CONFIG,
                "%s: data.max_tiles: found %lld, the image processor cuts no "
                "pictures into tiles (crop_to_patches)",
                loong_recipe_where(d->plan->recipe, "data.max_tiles"),
                (long long)most);
    LOONG_CHECK(d->plan->ctx, !tiles || most <= there, LOONG_ERR_CONFIG,
                "%s: data.max_tiles: found %lld, the image processor makes up "
                "to %lld (max_patches)",
                loong_recipe_where(d->plan->recipe, "data.max_tiles"),
                (long long)most, (long long)there);
    if (tiles) {
        loong_image_processor_limit_tiles(d->image_processor[0], most);
        d->plan->pictures[0].tiles =
            LOONG_MAX(loong_image_processor_max_tiles(d->image_processor[0]),
                      d->plan->pictures[0].tiles);
    }
    return LOONG_OK;
}

loong_status_t loongi_run_data_video_processor(loong_run_data_t *d)
{
    static const char key[] = "data.video_processor";
    const loong_recipe_t *r = d->plan->recipe;
    const char *own = loong_recipe_text(r, "model.video_encoder.family");
    const char *name =
        own != NULL ? own : loong_recipe_text(r, "model.image_encoder.family");
    const char *path = loong_recipe_text(r, key);
    const loong_family_t *family =
        name != NULL ? loong_find_family(d->plan->ctx, name) : NULL;
    LOONG_CHECK(d->plan->ctx,
                own == NULL || family == NULL ||
                    family->video_processor != NULL,
                LOONG_ERR_CONFIG,
                "%s: model.video_encoder.family: %s reads pictures, and no "
                "videos",
                loong_recipe_where(r, "model.video_encoder.family"), own);
    if (d->video_processor != NULL || family == NULL ||
        family->video_processor == NULL) {
        return LOONG_OK;
    }
    loong_status_t status = loong_video_processor_create(
        d->plan->ctx, path, family->video_processor, &d->video_processor);
    if (status != LOONG_OK) {
        loongi_error_note(d->plan->ctx, "wanted by %s (%s)", key,
                          loong_recipe_where(r, key));
        return status;
    }
    return loong_video_processor_sample(
        d->video_processor, d->plan->set->video_fps,
        d->plan->set->video_frames);
}

loong_status_t loongi_run_data_any_image_processor(
    loong_run_data_t *d, int encoder, const loong_family_t *family,
    int64_t image_size)
{
    bool named =
        encoder == 0 &&
        loong_recipe_text(d->plan->recipe, "data.image_processor") != NULL;
    if (!named && d->image_processor[encoder] == NULL) {
        LOONG_TRY(loong_image_processor_create_default(
            d->plan->ctx, family->image_processor, image_size,
            &d->image_processor[encoder]));
    }
    return loongi_run_data_image_processor(d);
}

loong_status_t
loongi_run_data_check_processor(const loong_run_data_t *d,
                                const loong_component_t *c,
                                const loong_patch_params_t *config)
{
    static const char key[] = "data.image_processor";
    const loong_recipe_t *r = d->plan->recipe;
    loong_status_t status =
        d->image_processor[0] == config->processor
            ? loong_patch_check(d->plan->ctx, config, c->params.name)
            : LOONG_OK; /* an encoder of videos reads no pictures */
    if (status != LOONG_OK && loong_recipe_text(r, key) != NULL) {
        loongi_error_note(d->plan->ctx, "wanted by %s (%s)", key,
                          loong_recipe_where(r, key));
    } else if (status != LOONG_OK) {
        loongi_error_note(d->plan->ctx,
                          "%s names no preprocessor_config.json: %s has the "
                          "defaults of %sImageProcessor",
                          key, c->params.family->name,
                          c->params.family->image_processor);
    }
    return status;
}
