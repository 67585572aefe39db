/* SPDX-License-Identifier: Apache-2.0
 *
 * What there is instead of a model that has no file under models/. Called by
 * recipe.c. Read recipe_impl.h before. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe_impl.h"

enum { NAME_LENGTH = 128 };

/* Called for "qwen3/qwen3_8b" of each file, in the order of the alphabet. */
typedef struct visitor {
    void (*visit)(struct visitor *v, const char *name);
    const char *wanted;
    size_t group; /* length of what is before the slash of wanted */
    char near[NAME_LENGTH];
    int distance;
    loong_text_t *text;
    int64_t listed;
} visitor_t;

/* Entries of a directory, NULL when there is none. */
static struct dirent **list(const char *path, int *count_p)
{
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, NULL, alphasort);
    *count_p = LOONG_MAX(count, 0);
    return count >= 0 ? entries : NULL;
}

static void visit_family(visitor_t *v, const char *models, const char *family)
{
    char path[LOONG_RECIPE_PATH * 8];
    int count = 0;
    snprintf(path, sizeof(path), "%s/%s", models, family);
    struct dirent **files = list(path, &count);
    for (int i = 0; i < count; i++) {
        char name[NAME_LENGTH];
        char *end = strrchr(files[i]->d_name, '.');
        if (end != NULL && end != files[i]->d_name &&
            strcmp(end, ".yaml") == 0) {
            *end = '\0';
            snprintf(name, sizeof(name), "%.60s/%.60s", family,
                     files[i]->d_name);
            v->visit(v, name);
        }
        free(files[i]);
    }
    free(files);
}

static void visit_all(visitor_t *v, const char *models)
{
    int count = 0;
    struct dirent **families = list(models, &count);
    for (int i = 0; i < count; i++) {
        if (families[i]->d_name[0] != '.') {
            visit_family(v, models, families[i]->d_name);
        }
        free(families[i]);
    }
    free(families);
}

static void keep_nearest(visitor_t *v, const char *name)
{
    int distance = loongi_edit_distance(v->wanted, name, v->distance);
    const char *size = strchr(name, '/') + 1;
    if (strcmp(size, v->wanted) == 0) {
        distance = 0; /* its family is missing */
    }
    if (distance < v->distance) {
        v->distance = distance;
        snprintf(v->near, sizeof(v->near), "%s", name);
    }
}

static void add_family(visitor_t *v, const char *name)
{
    if (strncmp(name, v->wanted, v->group) == 0 && name[v->group] == '/') {
        loongi_text_printf(v->text, "%s%s", v->listed++ > 0 ? ", " : "", name);
    }
}

static void add_directory(visitor_t *v, const char *name)
{
    size_t n = strcspn(name, "/");
    if (strlen(v->near) != n || strncmp(v->near, name, n) != 0) {
        snprintf(v->near, sizeof(v->near), "%.*s", (int)n, name);
        loongi_text_printf(v->text, "%s%s", v->listed++ > 0 ? ", " : "",
                           v->near);
    }
}

void loongi_recipe_suggest_preset(const char *config_dir, const char *wanted,
                                  loong_text_t *text)
{
    char models[LOONG_RECIPE_PATH * 4];
    visitor_t v = {keep_nearest, wanted, strcspn(wanted, "/"), "", 0, text, 0};
    snprintf(models, sizeof(models), "%s/models", config_dir);
    /* Half of it right, the family's sizes are all alike. */
    v.distance = LOONG_MIN((int)strlen(wanted) / 3, 6) + 1;
    visit_all(&v, models);
    if (v.near[0] != '\0') {
        loongi_text_printf(text, "; did you mean %s?", v.near);
    }
    loongi_text_printf(text, "%s are ",
                       v.near[0] != '\0' ? " There" : "; there");
    v.visit = add_family;
    visit_all(&v, models);
    if (v.listed == 0) {
        v.near[0] = '\0';
        v.visit = add_directory;
        visit_all(&v, models);
    }
}
