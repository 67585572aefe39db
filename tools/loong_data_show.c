/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-data show: a page of what a recipe's run would read. Called by
 * loong_data.c. Read loong/trainer.h before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loong/recipe.h"
#include "loong/register.h"
#include "loong/trainer.h"
#include "loong_data.h"
#include "options.h"
#include "tool_configs.h"

static const char help_text[] =
    "usage: loong-data show RECIPE.yaml [a.b=c ...] [OPTION]...\n"
    "\n"
    "Writes the first samples of a training, as its programs would get them,\n"
    "to one HTML file: tokens, which of them are learned, where samples and\n"
    "pictures stand, and what the image encoder is given of these. Layout and\n"
    "devices of the recipe are left out: they change none of it.\n"
    "\n"
    "  --samples N  so many (default 8)\n"
    "  --out FILE   where to write (default page.html)\n";

static const struct option long_options[] = {
    {"samples", required_argument, NULL, 'n'},
    {"out", required_argument, NULL, 'o'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}};

typedef struct options {
    int64_t samples;
    const char *out, *recipe;
    int num_overrides;
    const char *const *overrides;
} options_t;

/* ---- one rank, wherever the recipe would run ----------------------------- */

enum { ROOM = 64, MAX_REMOVED = 16 };

typedef struct removed {
    int count;
    char text[MAX_REMOVED][ROOM];
} removed_t;

static loong_status_t found(void *user, const char *key, const char *value)
{
    (void)key;
    (void)value;
    *(bool *)user = true;
    return LOONG_OK;
}

static void remove_key(const loong_recipe_t *recipe, const char *path,
                       removed_t *removed)
{
    bool is_set = false;
    loong_status_t status = loong_recipe_each(recipe, path, found, &is_set);
    if (status == LOONG_OK && is_set && removed->count < MAX_REMOVED) {
        snprintf(removed->text[removed->count++], ROOM, "~%s", path);
    }
}

static void remove_layout(const loong_recipe_t *recipe, removed_t *removed)
{
    static const char *const keys[] = {"parallel", "devices"};
    static const char *const own[] = {"parallel", "ranks"};
    char path[ROOM - 1];
    const char *role = NULL;
    for (int k = 0; k < 2; k++) {
        remove_key(recipe, keys[k], removed);
        for (int64_t i = 0; (role = loong_recipe_component(recipe, i)) != NULL;
             i++) {
            snprintf(path, sizeof(path), "model.%s.%s", role, own[k]);
            remove_key(recipe, path, removed);
        }
    }
}

static loong_status_t show(loong_context_t *ctx, const options_t *o,
                           const loong_recipe_t *whole, loong_comm_t *comm)
{
    removed_t removed = {.count = 0};
    const char *overrides[MAX_REMOVED + 1] = {"++device=cpu"};
    loong_recipe_t *recipe = NULL;
    loong_trainer_t *trainer = NULL;
    remove_layout(whole, &removed);
    for (int i = 0; i < removed.count; i++) {
        overrides[i + 1] = removed.text[i];
    }
    loong_status_t status =
        loong_recipe_derive(ctx, whole, removed.count + 1, overrides, &recipe);
    if (status == LOONG_OK) {
        const loong_trainer_params_t params = {.comm = comm,
                                               .recipe = recipe,
                                               .plan_only = true,
                                               .reads_data = true};
        status = loong_trainer_create(ctx, &params, &trainer);
    }
    if (status == LOONG_OK) {
        status = loong_trainer_show(trainer, o->samples, o->out);
    }
    loong_trainer_destroy(&trainer);
    loong_recipe_destroy(&recipe);
    return status;
}

static int run(loong_context_t *ctx, const options_t *o)
{
    char configs[PATH_MAX];
    const loong_recipe_params_t params = {
        tool_configs(configs), o->num_overrides, o->overrides, 0, NULL};
    const loong_comm_params_t alone = {.timeout = 0.0};
    loong_recipe_t *recipe = NULL;
    loong_comm_t *comm = NULL;
    loong_status_t status = loong_register_builtin(ctx);
    if (status == LOONG_OK) {
        status = loong_recipe_load_unjudged(ctx, o->recipe, &params, &recipe);
    }
    if (status == LOONG_OK) {
        status = loong_comm_create_self(ctx, &alone, &comm);
    }
    if (status == LOONG_OK) {
        status = show(ctx, o, recipe, comm);
    }
    loong_comm_destroy(&comm);
    loong_recipe_destroy(&recipe);
    return status == LOONG_OK ? LOONG_EXIT_OK : data_fail(ctx, status);
}

int data_show(loong_context_t *ctx, int argc, char **argv)
{
    static const int64_t counts[] = {1, INT64_MAX};
    options_t o = {.samples = 8, .out = "page.html"};
    int option = 0;
    while ((option = options_next(argc, argv, long_options)) != -1) {
        if (option == 'h') {
            fputs(help_text, stdout);
            return LOONG_EXIT_OK;
        }
        if (option == '?' ||
            (option == 'n' &&
             !data_integer("show", "samples", optarg, counts, &o.samples))) {
            return LOONG_EXIT_USAGE;
        }
        o.out = option == 'o' ? optarg : o.out;
    }
    if (optind == argc || strchr(argv[optind], '=') != NULL) {
        return data_usage("show", "no recipe given");
    }
    o.recipe = argv[optind];
    o.num_overrides = argc - optind - 1;
    o.overrides = (const char *const *)argv + optind + 1;
    return data_can_write("show", o.out) ? run(ctx, &o)
                                         : LOONG_EXIT_CANNOT_WRITE;
}
