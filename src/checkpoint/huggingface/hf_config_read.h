/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the readers of config.json. */
#ifndef LOONG_HF_CONFIG_READ_H
#define LOONG_HF_CONFIG_READ_H

#include "hf_family.h"
#include "json.h"
#include "layer_kinds.h"
#include "pairs.h"
#include "problems.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_hf_reader {
    loong_context_t *ctx;
    const char *path;
    const loong_json_t *json; /* with the fields of the language model */
    const loong_hf_type_t *type;
    bool tied; /* when these fields do not tell */
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
/* Which layers have experts; all: no key. */
LOONG_NODISCARD loong_status_t
loongi_hf_set_kinds(loong_hf_reader_t *r, const loong_layer_kinds_t *kinds,
                    int64_t layers);
/* As Qwen says it: decoder_sparse_step, mlp_only_layers. */
LOONG_NODISCARD loong_status_t loongi_hf_map_kinds(loong_hf_reader_t *r);
/* The fields of the type's table, but for those of CODE. */
LOONG_NODISCARD loong_status_t loongi_hf_map_table(loong_hf_reader_t *r);
/* What follows from the type alone. */
LOONG_NODISCARD loong_status_t loongi_hf_set_fixed(loong_hf_reader_t *r);
/* Fields that are not in the table. */
void loongi_hf_check_others(loong_hf_reader_t *r,
                            const loong_hf_field_t *known);
bool loongi_hf_is_type(const loong_hf_reader_t *r, const char *model_type);
/* The class has a width of heads of its own that others derive. */
bool loongi_hf_has_width(const loong_hf_reader_t *r);
/* A field that is true, false or absent; null is false, and refused where
 * absent is not. */
bool loongi_hf_flag(loong_hf_reader_t *r, const char *name, bool fallback);
LOONG_NODISCARD loong_status_t loongi_hf_map_rope(loong_hf_reader_t *r);
LOONG_NODISCARD loong_status_t loongi_hf_map_window(loong_hf_reader_t *r);
/* layer_types against the window that has been read. */
void loongi_hf_check_layer_types(loong_hf_reader_t *r);
/* A field that the table of the type has not. */
void loongi_hf_check_other_field(loong_hf_reader_t *r,
                                 const loong_json_member_t *member);
/* Of the decoders. */
LOONG_NODISCARD loong_status_t loongi_hf_decoder_read(loong_hf_reader_t *r);
/* What a mixture says beyond its table; nothing for other types. */
LOONG_NODISCARD loong_status_t loongi_hf_map_mixture(loong_hf_reader_t *r);
LOONG_NODISCARD loong_status_t loongi_hf_map_deepseek(loong_hf_reader_t *r);
/* For each key "FILE: field", of what has been read. */
LOONG_NODISCARD loong_status_t
loongi_hf_tell_origins(const loong_hf_reader_t *r, loong_pairs_t *origins);

#ifdef __cplusplus
}
#endif

#endif
