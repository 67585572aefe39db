/* SPDX-License-Identifier: Apache-2.0
 *
 * The schema as one list of all tables (src/registry/recipe_tables.c), and the
 * keys of a run as a whole. Names of keys are Megatron's where Megatron has
 * one. Read schema.h before. */
#include <string.h>

#include "schema.h"

static const loong_recipe_field_t run_keys[] = {
    INT("version", "1", 1, 1, SAME, "version of the schema"),
    TEXT("name", "run", FREE, "name of the run, for logs"),
    TEXTS("extensions", FREE,
          "shared objects with ops, families, sources and keys of the user's, "
          "as [./mine.so]; opened before the rest is read, and named by the "
          "recipe itself or the command line alone"),
    INT("seed", "1234", 0, BIG, SAME, "of initialisation, data, dropout"),
    CHOICE("training_phase", "pretrain", "pretrain midtrain sft", FREE,
           "midtrain: pretraining that goes on from trained weights, with the "
           "same data and loss; sft: fine-tuning on conversations, which the "
           "paths of data.train are then, and the default with finetune of a "
           "model that reads texts"),
    TEXT("device", "auto", FREE,
         "kind of device, of all ranks: cpu or another that this build or an "
         "extension has (loongrun --doctor lists them); auto: an accelerator "
         "where every rank finds one, else cpu"),
    TEXTS("devices", FREE,
          "kinds with their ranks, as [cuda:0-3, cpu:4-], in place of device: "
          "ranks of one job on devices of several kinds"),
};

const loong_recipe_table_t loongi_recipe_run_keys = LOONG_KEYS(run_keys);

/* The key that holds where one of a component is not given; NULL: none. */
static const char *common_key(const char *path)
{
    static const char *const sections[] = {"precision.", "recompute.",
                                           "optimizer."};
    const char *role = strncmp(path, "model.", 6) == 0 ? path + 6 : "";
    const char *own = strchr(role, '.');
    for (int64_t i = 0; i < LOONG_COUNT_OF(sections) && own != NULL; i++) {
        if (strncmp(own + 1, sections[i], strlen(sections[i])) == 0) {
            return own + 1;
        }
    }
    return NULL;
}

const char *loong_recipe_default_text(const loong_recipe_key_t *key)
{
    const loong_recipe_field_t *field = (const void *)key;
    const char *text = common_key(key->path);
    for (int64_t i = 0; loongi_recipe_tables[i] != NULL; i++) {
        const loong_recipe_table_t *table = loongi_recipe_tables[i];
        for (int64_t k = 0; table->prefix != NULL && k < table->count; k++) {
            text = &table->rows[k] == field && !field->needed ? "of the family"
                                                              : text;
        }
    }
    return key->fallback != NULL ? key->fallback : text != NULL ? text : "none";
}

int64_t loong_recipe_num_keys(void)
{
    int64_t count = 0;
    for (int64_t i = 0; loongi_recipe_tables[i] != NULL; i++) {
        count += loongi_recipe_tables[i]->count;
    }
    return count;
}

const loong_recipe_key_t *loong_recipe_key(int64_t index)
{
    const loong_recipe_table_t *const *table = loongi_recipe_tables;
    while (index >= 0 && *table != NULL && index >= (*table)->count) {
        index -= (*table++)->count;
    }
    return index >= 0 && *table != NULL ? &(*table)->rows[index].key : NULL;
}
