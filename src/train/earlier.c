/* SPDX-License-Identifier: Apache-2.0 */
#include "earlier.h"

#include <string.h>

#include "layer_kinds.h"
#include "recipe_impl.h"

#define KINDS "model.foundation.moe_layer_freq"

static bool read_kinds(const loong_recipe_t *recipe, loong_layer_kinds_t *kinds)
{
    char problem[128];
    memset(kinds, 0, sizeof(*kinds));
    return loongi_layer_kinds_parse(
        loong_recipe_text(recipe, KINDS),
        loong_recipe_int(recipe, "model.foundation.num_layers"), kinds,
        problem);
}

/* moe_layer_freq is written otherwise and means the same layers. */
static loong_status_t same_kinds(loong_context_t *ctx,
                                 const loong_recipe_t *before,
                                 const loong_recipe_t *after, bool *same_p)
{
    loong_layer_kinds_t *kinds = NULL;
    const char *a = loong_recipe_text(before, KINDS);
    const char *b = loong_recipe_text(after, KINDS);
    *same_p = false;
    if (a == NULL || b == NULL || strcmp(a, b) == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_calloc(ctx, 2, sizeof(*kinds), "layers with experts",
                            &kinds));
    *same_p = read_kinds(before, &kinds[0]) && read_kinds(after, &kinds[1]) &&
              memcmp(&kinds[0], &kinds[1], sizeof(*kinds)) == 0;
    loongi_free(ctx, kinds);
    return LOONG_OK;
}

loong_status_t loongi_earlier_recipe(loong_context_t *ctx, const char *text,
                                     const loong_recipe_t *now,
                                     loong_recipe_t **earlier_p)
{
    static const char name[] = "the checkpoint's recipe";
    loong_recipe_t *earlier = NULL;
    bool same = false;
    loong_recipe_params_t params = {NULL, 0, NULL, now->params.num_keys,
                                    now->params.keys};
    LOONG_TRY(loong_recipe_parse(ctx, name, text, &params, &earlier));
    loong_status_t status = same_kinds(ctx, earlier, now, &same);
    if (status != LOONG_OK || same) {
        loong_recipe_destroy(&earlier);
    }
    LOONG_TRY(status);
    if (same) {
        loong_text_t line = loongi_text_begin(ctx);
        loongi_text_printf(&line, KINDS "='%s'",
                           loong_recipe_text(now, KINDS));
        const char *override = loongi_text_get(&line);
        params.num_overrides = 1;
        params.overrides = &override;
        status = line.status != LOONG_OK
                     ? line.status
                     : loong_recipe_parse(ctx, name, text, &params,
                                          &earlier);
        loongi_text_free(&line);
        LOONG_TRY(status);
    }
    *earlier_p = earlier;
    return LOONG_OK;
}
