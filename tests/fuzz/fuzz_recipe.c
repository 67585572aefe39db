/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a recipe: refused with a message, or its print reads back as
 * the same recipe. The first line, when it starts with '!', is an override. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "loong/recipe.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void round_trip(loong_context_t *ctx, loong_recipe_t *recipe)
{
    loong_recipe_t *again = NULL;
    const char *first = NULL;
    const char *second = NULL;
    uint64_t a = 0;
    uint64_t b = 1;
    assert(loong_recipe_hash(recipe, &a) == LOONG_OK);
    assert(loong_recipe_print(recipe, false, &first) == LOONG_OK);
    assert(loong_recipe_parse(ctx, "again", first, NULL, &again) == LOONG_OK);
    assert(loong_recipe_print(again, false, &second) == LOONG_OK);
    assert(strcmp(first, second) == 0);
    assert(loong_recipe_hash(again, &b) == LOONG_OK && a == b);
    loong_recipe_destroy(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    loong_context_t *ctx = NULL;
    loong_recipe_t *recipe = NULL;
    loong_recipe_params_t params;
    char *text = malloc(size + 1);
    const char *override = text + 1;
    memset(&params, 0, sizeof(params));
    if (text == NULL || loong_context_create(NULL, &ctx) != LOONG_OK) {
        free(text);
        return 0;
    }
    memcpy(text, bytes, size);
    text[size] = '\0';
    char *body = text;
    char *line = strchr(text, '\n');
    if (text[0] == '!' && line != NULL) {
        *line = '\0';
        body = line + 1;
        params.num_overrides = 1;
        params.overrides = &override;
    }
    if (strstr(body, "defaults") != NULL) {
        body[0] = '\0'; /* names files: not this test's */
    }
    if (loong_recipe_parse(ctx, "fuzz", body, &params, &recipe) == LOONG_OK) {
        round_trip(ctx, recipe);
        loong_status_t status = loong_recipe_check(recipe, 4);
        assert(status == LOONG_OK || status == LOONG_ERR_CONFIG);
    } else {
        assert(loong_context_error(ctx)[0] != '\0');
    }
    loong_recipe_destroy(&recipe);
    assert(loong_context_alloc_bytes(ctx) == 0);
    loong_context_destroy(&ctx);
    free(text);
    return 0;
}
