/* SPDX-License-Identifier: Apache-2.0
 *
 * The model types of Hugging Face as data: fields of config.json and the keys
 * that follow from the type alone. Read by hf_config_read.c and
 * hf_config_write.c. */
#ifndef LOONG_HF_FAMILY_H
#define LOONG_HF_FAMILY_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum loong_hf_field_kind {
    LOONG_HF_INT,     /* maps to an integer key */
    LOONG_HF_SQUARE,  /* the same, or a list that has it twice */
    LOONG_HF_REAL,    /* maps to a real key */
    LOONG_HF_ALSO,    /* the same, and the row of another key writes it */
    LOONG_HF_BOOL,    /* maps to a flag */
    LOONG_HF_SIGNED,  /* maps to an integer key, of either sign; 0 is refused:
                         to the engine it is a key that is not given */
    LOONG_HF_WORD,    /* maps to a key in other words: fallback is
                         "theirs=ours|...", the first where it is absent */
    LOONG_HF_LIST,    /* maps to a text with a list of numbers */
    LOONG_HF_COUNT,   /* of a list whose numbers another field maps: how many
                         there are, to an integer key */
    LOONG_HF_NEUTRAL, /* text: the only values allowed, JSON, '|' between */
    LOONG_HF_STATED,  /* the same of a field that must be there */
    LOONG_HF_CODE     /* handled by code */
} loong_hf_field_kind_t;

typedef struct loong_hf_field {
    const char *name; /* in config.json */
    loong_hf_field_kind_t kind;
    const char *key; /* in the recipe; NULL for NEUTRAL, STATED and CODE */
    const char *fallback; /* value when absent; NULL: must be there. NEUTRAL,
                             STATED: the allowed values */
} loong_hf_field_t;

typedef struct loong_hf_fixed {
    const char *key;
    const char *value;
} loong_hf_fixed_t;

typedef struct loong_hf_type {
    const char *model_type;
    const char *architecture;
    const char *family;             /* in the recipe */
    const loong_hf_field_t *fields; /* ends with a NULL name */
    const loong_hf_fixed_t *fixed;  /* ends with a NULL key */
    double theta;                   /* rope_theta when absent */
    bool tied;                      /* tie_word_embeddings when absent */
    /* Without num_key_value_heads the class does not have as many as heads. */
    bool states_groups;
} loong_hf_type_t;

/* NULL when not supported. */
const loong_hf_type_t *loongi_hf_type_find(const loong_context_t *ctx,
                                           const char *model_type);
/* The likest name among them. */
const char *loongi_hf_type_nearest(const loong_context_t *ctx,
                                   const char *model_type);
enum { LOONG_HF_TYPE_LIST = 900 };
/* "gpt2, llama, ..."; returns text. role: those of such components; NULL: of
 * all, and those of several. */
const char *loongi_hf_type_list(const loong_context_t *ctx, const char *role,
                                char text[LOONG_HF_TYPE_LIST]);

/* Fields that every decoder may carry: NEUTRAL ones. */
extern const loong_hf_field_t loongi_hf_common_fields[];
/* Fields that never change the mathematics; ends with NULL. */
extern const char *const loongi_hf_ignored_fields[];

#ifdef __cplusplus
}
#endif

#endif
