/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys of recipes that fill a struct: a row of a table says type, range, help
 * and member of a key. The table stands beside its struct and is a part of the
 * schema (loongi_recipe_tables). What a run is asked for is filled from the
 * recipe (LOONG_FILL). The configuration of a family is set from texts, which
 * come from a recipe or a config.json, and is written as texts again. */
#ifndef LOONG_FIELDS_H
#define LOONG_FIELDS_H

#include <stddef.h>

#include "loong/recipe.h"
#include "pairs.h"
#include "problems.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of the member. */
typedef enum loong_field_kind {
    LOONG_FIELD_NONE, /* there is no member */
    LOONG_FIELD_INT,
    LOONG_FIELD_INT64,
    LOONG_FIELD_REAL,
    LOONG_FIELD_WHOLE, /* double, which holds whole numbers */
    LOONG_FIELD_BOOL,  /* of choices: the second word is true */
    LOONG_FIELD_NOT,   /* bool, the opposite of the key */
    LOONG_FIELD_CHOICE, /* enum, values[i] for the i-th word of choices, i
                           without values */
    LOONG_FIELD_STRING  /* const char *, borrowed from the recipe */
} loong_field_kind_t;

typedef struct loong_recipe_field {
    loong_recipe_key_t key; /* its path begins with the table's prefix */
    loong_field_kind_t kind;
    size_t offset;
    const int *values;
    bool needed;      /* no family has a default */
    const char *type; /* of a struct that LOONG_FILL fills; NULL: of none */
} loong_recipe_field_t;

typedef struct loong_recipe_table {
    const char *prefix; /* of a family's; NULL: of keys with defaults */
    const loong_recipe_field_t *rows;
    int64_t count;
} loong_recipe_table_t;

/* The schema, in the order of the reference, NULL at the end. It is defined
 * where all tables are known, in src/registry/recipe_tables.c. */
extern const loong_recipe_table_t *const loongi_recipe_tables[];
/* Those of this module. */
extern const loong_recipe_table_t loongi_recipe_run_keys;
/* Of the image encoder, the projector and the foundation, whatever family. */
extern const loong_recipe_table_t loongi_recipe_component_keys[];

/* Sets members of a struct from the keys below a prefix ("", "optimizer.",
 * "fault[2].") that fill its type. A member whose key is not set and has no
 * default stays as it is. */
#define LOONG_FILL(recipe_, prefix_, type_, at_) \
    loongi_recipe_fields_fill(recipe_, prefix_, #type_,  \
                              1 ? (at_) : (type_ *)NULL)
/* From an item of a list of maps. */
#define LOONG_FILL_ITEM(recipe_, list_, item_, type_, at_) \
    loongi_recipe_fields_fill_item(recipe_, list_, item_, #type_, \
                                   1 ? (at_) : (type_ *)NULL)
void loongi_recipe_fields_fill(const loong_recipe_t *recipe, const char *prefix,
                               const char *type, void *at);
void loongi_recipe_fields_fill_item(const loong_recipe_t *recipe,
                                    const char *list, int64_t item,
                                    const char *type, void *at);

/* Sets the member of a pair's key; `what` has no such key otherwise. Adds what
 * is wrong with the text. */
void loongi_recipe_field_set(loong_problems_t *problems,
                             const loong_recipe_table_t *table,
                             const char *what, const loong_pair_t *pair,
                             void *config);

/* The row of a key without prefix; NULL: there is none. */
const loong_recipe_field_t *
loongi_recipe_field_find(const loong_recipe_table_t *table, const char *name);

enum { LOONG_FIELD_TEXT = 64 };

/* What loongi_recipe_field_set takes for the member as it is; "" without one.
 */
void loongi_recipe_field_text(const loong_recipe_field_t *field,
                              const void *config, char text[LOONG_FIELD_TEXT]);

/* Calls add for all that have a member. */
LOONG_NODISCARD loong_status_t loongi_recipe_fields_each(
    const loong_recipe_table_t *table, const void *config,
    loong_status_t (*add)(void *user, const char *key, const char *value),
    void *user);

/* loong_recipe_each_family_key as pairs. */
LOONG_NODISCARD loong_status_t
loongi_recipe_fields_read(loong_context_t *ctx, const loong_recipe_t *recipe,
                          const char *component, loong_pairs_t **pairs_p);
/* Behind problems of a component's keys: adds where those are from that they
 * mention, or else the component. */
void loongi_recipe_fields_note(const loong_recipe_t *recipe,
                               const char *component,
                               const loong_pairs_t *keys);

#ifdef __cplusplus
}
#endif

#endif
