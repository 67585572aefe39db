/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints docs/recipe-reference.md from the schema. The test recipe_reference
 * compares; `build/recipe_reference > docs/recipe-reference.md` renews. */
#include <stdio.h>
#include <string.h>

#include "loong/recipe.h"

static const char *type_text(loong_recipe_type_t type)
{
    switch (type) {
    case LOONG_RECIPE_INT:
        return "whole number";
    case LOONG_RECIPE_REAL:
        return "number";
    case LOONG_RECIPE_BOOL:
        return "true or false";
    case LOONG_RECIPE_TEXT:
        return "text";
    case LOONG_RECIPE_CHOICE:
        return "one of";
    case LOONG_RECIPE_SECONDS:
        return "time";
    case LOONG_RECIPE_AMOUNT:
        return "amount";
    case LOONG_RECIPE_BYTES:
        return "size";
    case LOONG_RECIPE_INTS:
        return "list of whole numbers";
    case LOONG_RECIPE_TEXTS:
        return "list of texts";
    }
    return "";
}

/* "model" of "model.foundation.num_layers", with its dots. */
static size_t section_length(const char *path)
{
    return strncmp(path, "model.image_encoder.", 20) == 0 ? 19
           : strncmp(path, "model.foundation.", 17) == 0  ? 16
           : strchr(path, '.') != NULL                 ? strcspn(path, ".")
                                                       : 0;
}

static void print_key(const loong_recipe_key_t *key)
{
    printf("| `%s` | %s", key->path, type_text(key->type));
    for (const char *c = key->choices; c != NULL && *c != '\0';) {
        size_t n = strcspn(c, " ");
        printf(" `%.*s`", (int)n, c);
        c += n + (c[n] == ' ');
    }
    printf(" | ");
    if (key->max >= 9e15) {
        printf("from %.12g", key->min);
    } else if (key->min != 0.0 || key->max != 0.0) {
        printf("%.12g to %.12g", key->min, key->max);
    }
    const char *quote = key->fallback != NULL ? "`" : "";
    printf(" | %s%s%s", quote, loong_recipe_default_text(key), quote);
    printf(" | %s | %s |\n",
           key->resume == LOONG_RESUME_FREE ? "may change" : "same", key->help);
}

int main(void)
{
    const char *before = "";
    size_t before_length = 0;
    printf("# Recipe reference\n\n"
           "Made from the schema by `recipe_reference`; do not edit.\n\n"
           "A key such as `data.train[].path` belongs to every item of a "
           "list. A time is a\nnumber of seconds, or a number with `ms`, `s`, "
           "`m`, `h` or `d`; an amount a whole\nnumber, or a number with `k`, "
           "`M`, `B` or `T` (thousands of each other); a size\nbytes, or a "
           "number with `kB`, `MB`, `GB`, `KiB`, `MiB` or `GiB`. The "
           "default\n*none* stands at keys that are optional or, where a run "
           "cannot do without them, have\nto be given; *of the family*: what "
           "`model.foundation.family` is decides; a key: its "
           "value. The column\n*resume* says "
           "whether a key may change when a run is resumed; the others have "
           "to\nstay the same unless `resume.override` names them, or a map "
           "or list they are in.\n");
    for (int64_t i = 0; i < loong_recipe_num_keys(); i++) {
        const loong_recipe_key_t *key = loong_recipe_key(i);
        size_t n = section_length(key->path);
        if (i == 0 || n != before_length ||
            strncmp(before, key->path, n) != 0) {
            printf(n > 0 ? "\n## %.*s\n\n" : "\n## The run%.*s\n\n", (int)n,
                   key->path);
            printf("| key | type | range | default | resume | meaning |\n"
                   "|---|---|---|---|---|---|\n");
        }
        print_key(key);
        before = key->path;
        before_length = n;
    }
    return 0;
}
