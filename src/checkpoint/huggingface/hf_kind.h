/* SPDX-License-Identifier: Apache-2.0
 *
 * What a kind of models gives to those who read and write Hugging Face files.
 * It stands beside its families (src/model), and nothing here knows its
 * configuration. */
#ifndef LOONG_HF_KIND_H
#define LOONG_HF_KIND_H

#include "hf_config_read.h"
#include "hf_config_write.h"
#include "hf_names.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_hf_kind {
    const char *role; /* of its components in recipes */
    const loong_hf_type_t *types;  /* ends with a NULL model_type */
    const loong_hf_names_t *names; /* of each family; ends with a NULL name */
    bool generates;                /* generation_config.json belongs to it */
    /* Whether the keys of a component are right. Errors: LOONG_ERR_CONFIG. */
    loong_status_t (*check)(loong_context_t *ctx, const loong_pairs_t *keys);
    /* States every key in one way of writing: two models are the same when
     * their keys are. Errors: as check, then the keys are as they were. */
    loong_status_t (*fill)(loong_context_t *ctx, loong_pairs_t *keys);
    /* States what the keys leave to defaults of their family. */
    loong_status_t (*state)(loong_context_t *ctx, loong_pairs_t *keys);
    /* Sets layers, sizes and conditions of the names. */
    loong_status_t (*size)(loong_hf_map_t *map, const loong_pairs_t *keys);
    /* The keys of a file whose type has been found; problems are added. */
    loong_status_t (*read)(loong_hf_reader_t *r);
    /* The whole of config.json, into w->text; problems are added. */
    void (*write)(loong_hf_writer_t *w, const char *torch_dtype);
    /* The rest may be NULL. The type that says w->model, where it is not the
     * one of the family's name. */
    void (*choose)(loong_hf_writer_t *w);
    /* Prints the fields that say a key which code read; false: none does. */
    bool (*tell)(const loong_hf_reader_t *r, const char *key,
                 loong_text_t *text);
    /* A field that a publisher's files of the type have and its class does not
     * read: NEUTRAL, or CODE when any value will do. NULL: none. */
    const loong_hf_field_t *(*unread)(const loong_hf_type_t *type,
                                      const char *name);
    /* Of a type that is not known: see loongi_hf_config_guess. */
    loong_status_t (*guess)(loong_hf_reader_t *r,
                            const loong_hf_field_t *used);
    /* Families that transformers has no class for, and the type whose class
     * computes the same; ends with a NULL key and value. */
    const loong_hf_fixed_t *like;
} loong_hf_kind_t;

/* The built-in ones; ends with NULL; src/registry/hf_kinds.c. */
extern const loong_hf_kind_t *const loongi_hf_kinds[];
/* Those, then what users have registered (loong/hub.h); NULL behind the last.
 */
const loong_hf_kind_t *loongi_hf_kind_at(const loong_context_t *ctx, int64_t i);

/* Of a family, which may be NULL; NULL: it has no names in Hugging Face files.
 */
const loong_hf_kind_t *loongi_hf_kind_find(const loong_context_t *ctx,
                                           const char *family);

#ifdef __cplusplus
}
#endif

#endif
