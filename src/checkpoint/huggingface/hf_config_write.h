/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the writers of config.json. */
#ifndef LOONG_HF_CONFIG_WRITE_H
#define LOONG_HF_CONFIG_WRITE_H

#include "hf_family.h"
#include "json.h"
#include "loong/dtype.h"
#include "pairs.h"
#include "problems.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_hf_writer {
    loong_context_t *ctx;
    const loong_pairs_t *given; /* the keys that somebody wrote */
    loong_pairs_t *model;       /* all, with the engine's defaults */
    const struct loong_hf_kind *kind;
    const loong_hf_type_t *type;
    /* Of a section: its type where the model says it, and keys of which the
     * model has another value than the type; or NULL. */
    const loong_hf_type_t *section_type;
    const loong_hf_fixed_t *section_keys;
    const char *note; /* of the type, behind the title of problems; or NULL */
    const loong_pairs_t *kept; /* LOONG_HF_AUTO_MAP, hf_extra.h; or NULL */
    const char *code;          /* the first of them; or NULL */
    const loong_json_t *generation; /* beside it; NULL: there is none */
    loong_text_t text;
    loong_problems_t problems;
} loong_hf_writer_t;

/* For keys that somebody wrote; kept may be NULL. */
loong_hf_writer_t loongi_hf_writer_begin(loong_context_t *ctx,
                                         const loong_pairs_t *model,
                                         const loong_pairs_t *kept);
/* Finds the kind, fills the keys and, of a kind with types, finds the type.
 * Errors: LOONG_ERR_UNSUPPORTED, those of fill. */
LOONG_NODISCARD loong_status_t loongi_hf_writer_fill(loong_hf_writer_t *w);
/* Without the problems, which somebody ends. */
void loongi_hf_writer_end(loong_hf_writer_t *w);
const char *loongi_hf_dtype_name(loong_dtype_t dtype);

void loongi_hf_emit(loong_hf_writer_t *w, const char *name, const char *json);
void loongi_hf_emit_int(loong_hf_writer_t *w, const char *name,
                        const char *key);
void loongi_hf_emit_real(loong_hf_writer_t *w, const char *name,
                         const char *key);
void loongi_hf_emit_bool(loong_hf_writer_t *w, const char *name, bool value);
/* With the value of the key, by its kind; nothing where the table alone does
 * not say it: CODE, NEUTRAL and COUNT, whose list is another field's. */
void loongi_hf_emit_field(loong_hf_writer_t *w, const loong_hf_field_t *f,
                          const char *key);
/* A key of another value is a problem, also where that is the engine's
 * default. */
void loongi_hf_want_value(loong_hf_writer_t *w, const char *key,
                          const char *expected);
/* Its section has another value for it than its type: either will do. */
bool loongi_hf_is_section_key(const loong_hf_writer_t *w, const char *key);
/* The key has the value, in whatever words. */
bool loongi_hf_same_value(const loong_pairs_t *model, const char *key,
                          const char *expected);
/* The ids of tokens: those of generation_config.json, else those kept. */
void loongi_hf_emit_ids(loong_hf_writer_t *w, const loong_json_t *generation);
/* What the file that the model comes from said; nothing: it did not. */
void loongi_hf_emit_kept(loong_hf_writer_t *w, const char *name);
/* The type has the field. */
bool loongi_hf_writes(const loong_hf_writer_t *w, const char *name);

/* What is emitted between is an object; `whole` is what begin returned. */
loong_text_t loongi_hf_begin_object(loong_hf_writer_t *w);
void loongi_hf_end_object(loong_hf_writer_t *w, const char *name,
                          loong_text_t whole);

#ifdef __cplusplus
}
#endif

#endif
