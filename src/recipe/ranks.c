/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks that a component stands on, as its key `ranks` says. Called by
 * together.c and src/plan/parallel.c. Read recipe_impl.h before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "problems.h"
#include "recipe_impl.h"

typedef struct reader {
    const char *text; /* "0,2,4-7"; NULL: all */
    int world;
    bool *has;      /* by rank of the job */
    char wrong[96]; /* what is; "": nothing */
} reader_t;

/* A whole number of at most six digits; -1: there is none. */
static long read_number(const char **at_p)
{
    *at_p += strspn(*at_p, " ");
    size_t digits = strspn(*at_p, "0123456789");
    long value = digits > 0 && digits < 7 ? strtol(*at_p, NULL, 10) : -1;
    *at_p += digits;
    *at_p += strspn(*at_p, " ");
    return value;
}

/* "4", "0-3" or "4-", and a comma or the end, with spaces or without. */
static bool read_part(reader_t *r, const char **at_p)
{
    long first = read_number(at_p);
    long last = first;
    if (first >= 0 && **at_p == '-') {
        ++*at_p;
        bool open = **at_p == ',' || **at_p == '\0';
        last = open ? LOONG_MAX(r->world - 1, first) : read_number(at_p);
    }
    bool goes_on = **at_p == ',';
    *at_p += goes_on;
    if (first < 0 || last < first ||
        (goes_on ? **at_p == '\0' : **at_p != '\0')) {
        snprintf(r->wrong, sizeof(r->wrong),
                 "wanted ranks as in 0-3, \"0,2,4-7\" or 4-");
        return false;
    }
    for (long i = first; i <= last; i++) {
        if (i >= r->world || r->has[i]) {
            snprintf(r->wrong, sizeof(r->wrong),
                     i < r->world ? "rank %ld stands there twice"
                                  : "rank %ld, those of this job are 0 to %d",
                     i, r->world - 1);
            return false;
        }
        r->has[i] = true;
    }
    return true;
}

static loong_status_t read_ranks(const loong_recipe_t *recipe, const char *role,
                                 int world, reader_t *r)
{
    char path[LOONG_RECIPE_PATH];
    snprintf(path, sizeof(path), "model.%s.ranks", role);
    memset(r, 0, sizeof(*r));
    r->world = world;
    r->text = role[0] != '\0' ? loong_recipe_text(recipe, path) : NULL;
    LOONG_TRY(loongi_arena_alloc(recipe->arena, (size_t)world * sizeof(*r->has),
                                 &r->has));
    for (int i = 0; i < world; i++) {
        r->has[i] = r->text == NULL;
    }
    const char *at = r->text;
    while (at != NULL && read_part(r, &at) && *at != '\0') {
    }
    return LOONG_OK;
}

/* Of the component with the loss; "": the model is not known yet. */
static const char *last_role(const loong_recipe_t *recipe)
{
    const char *role = "";
    for (int64_t i = 0; loong_recipe_component(recipe, i) != NULL; i++) {
        role = loong_recipe_component(recipe, i);
    }
    return role;
}

loong_status_t loong_recipe_ranks(const loong_recipe_t *recipe,
                                  const char *role, int world_size,
                                  const int32_t **ranks_p, int *count_p)
{
    reader_t r;
    int32_t *ranks = NULL;
    int count = 0;
    role = role != NULL ? role : last_role(recipe);
    LOONG_TRY(read_ranks(recipe, role, world_size, &r));
    LOONG_TRY(loongi_arena_alloc(recipe->arena,
                                 (size_t)world_size * sizeof(*ranks), &ranks));
    for (int i = 0; i < world_size; i++) {
        if (r.has[i] || r.wrong[0] != '\0') {
            ranks[count++] = i;
        }
    }
    *ranks_p = count < world_size ? ranks : NULL;
    *count_p = count;
    return LOONG_OK;
}

void loongi_recipe_check_ranks(const loong_recipe_t *recipe, int world_size,
                               loong_problems_t *problems)
{
    const char *role = NULL;
    int alone = -1;
    bool whole = true;
    reader_t all = {.world = 0};
    for (int64_t i = 0; (role = loong_recipe_component(recipe, i)) != NULL;
         i++) {
        reader_t r;
        char path[LOONG_RECIPE_PATH];
        if (read_ranks(recipe, role, world_size, &r) != LOONG_OK) {
            return;
        }
        snprintf(path, sizeof(path), "model.%s.ranks", role);
        if (r.wrong[0] != '\0') {
            loongi_problems_add(problems, "%s: %s: found '%s', %s",
                                loong_recipe_where(recipe, path), path, r.text,
                                r.wrong);
            whole = false;
        }
        for (int k = 0; all.has != NULL && k < world_size; k++) {
            r.has[k] = r.has[k] || all.has[k];
        }
        all = r;
    }
    for (int k = world_size - 1; all.has != NULL && k >= 0; k--) {
        alone = all.has[k] ? alone : k;
    }
    if (whole && alone >= 0) {
        loongi_problems_add(problems,
                            "model: rank %d of %d has no component; ranks of "
                            "one of them must name it, or be left out, which "
                            "is all ranks",
                            alone, world_size);
    }
}
