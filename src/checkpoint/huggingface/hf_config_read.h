/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the readers of config.json. */
#ifndef LOONG_HF_CONFIG_READ_H
#define LOONG_HF_CONFIG_READ_H

#include "hf_family.h"
#include "json.h"
#include "pairs.h"
#include "problems.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_hf_reader {
    loong_context_t *ctx;
    const char *path;
    const loong_json_t *json; /* with the fields of the language model */
    const struct loong_hf_kind *kind;
    const loong_hf_type_t *type;
    /* Of a model of several components: */
    const struct loong_hf_composite *composite; /* NULL: of one */
    const char *dir; /* with its weights; NULL: none */
    const loong_json_t *whole;
    const char *section;            /* that json is, NULL: the whole */
    const loong_hf_fixed_t *absent; /* see hf_composite.h; or NULL */
    loong_hf_type_t plain;          /* of a component without a section */
    loong_pairs_t *pairs;
    loong_problems_t problems;
} loong_hf_reader_t;

/* NULL when it is absent or null: the same in these files, but for flags. */
const loong_json_t *loongi_hf_field(const loong_json_t *object,
                                    const char *name);
bool loongi_hf_is_empty(const loong_json_t *value);
/* The table has the name. */
bool loongi_hf_has_field(const loong_hf_field_t *fields, const char *name);

void loongi_hf_refuse(loong_hf_reader_t *r, const char *name,
                      const loong_json_t *value, const char *allowed);
/* Refuses all values but `allowed` ('|' between) and null, which a flag that
 * must be true may not be either. */
void loongi_hf_check_neutral(loong_hf_reader_t *r, const char *name,
                             const loong_json_t *value, const char *allowed);
LOONG_NODISCARD loong_status_t loongi_hf_map_int(loong_hf_reader_t *r,
                                                 const loong_json_t *value,
                                                 const char *name,
                                                 const char *key);
LOONG_NODISCARD loong_status_t loongi_hf_map_real(loong_hf_reader_t *r,
                                                  const loong_json_t *value,
                                                  const char *name,
                                                  const char *key);
/* A field as a table has it; those of CODE are left alone. */
LOONG_NODISCARD loong_status_t loongi_hf_map_field(loong_hf_reader_t *r,
                                                   const loong_hf_field_t *f);
/* The fields of the type's table, but for those of CODE. */
LOONG_NODISCARD loong_status_t loongi_hf_map_table(loong_hf_reader_t *r);
/* What follows from the type alone. */
LOONG_NODISCARD loong_status_t loongi_hf_set_fixed(loong_hf_reader_t *r);
/* Fields that are not in the table. */
void loongi_hf_check_others(loong_hf_reader_t *r,
                            const loong_hf_field_t *known);
bool loongi_hf_is_type(const loong_hf_reader_t *r, const char *model_type);
/* A field that is true, false or absent; null is false, and refused where
 * absent is not. */
bool loongi_hf_flag(loong_hf_reader_t *r, const char *name, bool fallback);
/* A field that the table of the type has not. */
void loongi_hf_check_other_field(loong_hf_reader_t *r,
                                 const loong_json_member_t *member);
/* Prints those of the list (a blank between) that are there; false: none. */
bool loongi_hf_tell_fields(const loong_hf_reader_t *r, const char *fields,
                           loong_text_t *text);
/* For each key "FILE: field", of what has been read. */
LOONG_NODISCARD loong_status_t
loongi_hf_tell_origins(const loong_hf_reader_t *r, loong_pairs_t *origins);

#ifdef __cplusplus
}
#endif

#endif
