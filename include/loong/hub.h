/* SPDX-License-Identifier: Apache-2.0
 *
 * A user's family in Hugging Face directories: the fields of its config.json
 * and the names of its tensors, as data. What is entered here is read by
 * model.from_hf and init.from_hf, and written by export.hf. The built-in
 * families have tables of their own.
 */
#ifndef LOONG_HUB_H
#define LOONG_HUB_H

#include <stddef.h>

#include "loong/recipe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A field of config.json and the key of the component that it is. Integers are
 * positive, numbers not negative. */
typedef struct loong_hub_field {
    const char *name;
    const char *key;          /* relative to the component: "hidden_size" */
    loong_recipe_type_t type; /* INT, REAL or BOOL */
    const char *fallback; /* what a file means that lacks it; NULL: refused */
} loong_hub_field_t;

/* A parameter and its tensor [rows, columns]; "#" in both names is the layer.
 * A size is a key of an integer among the fields, or a number. */
typedef struct loong_hub_tensor {
    const char *name;    /* of the parameter */
    const char *hf_name; /* in files; NULL: the same */
    const char *rows;
    const char *columns; /* NULL: a vector of so many rows */
} loong_hub_tensor_t;

typedef struct loong_hub_type {
    size_t struct_size;       /* of who filled it */
    const char *model_type;   /* in config.json; the name of the family */
    const char *architecture; /* the class there */
    const char *role;         /* of its components; NULL: foundation */
    const char *prefix;       /* of all names in files; NULL: none */
    const char *layers;       /* the key that counts "#"; NULL: there is none */
    int64_t num_fields;
    const loong_hub_field_t *fields;
    int64_t num_tensors; /* those with "#" of one layer stand together */
    const loong_hub_tensor_t *tensors;
} loong_hub_type_t;

/* Borrowed: it must outlive the context. Not collective. LOONG_ERR_ARG: of
 * another version, without what it needs, with too many different sizes, or a
 * type of that name is there already. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_register_hub_type(loong_context_t *ctx, const loong_hub_type_t *type);

#ifdef __cplusplus
}
#endif

#endif
