/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary positions into config.json. Called by hf_decoder_write.c. Read
 * hf_config_write.h before. */
#include <stdio.h>
#include <string.h>

#include "hf_decoder.h"

/* In the words of transformers 5, which alone knows sections. */
static void emit_sections(loong_hf_writer_t *w)
{
    const char *sections = loongi_pairs_get(w->model, "mrope_section");
    loongi_hf_want_value(w, "rope_scaling.type", "default");
    loong_text_t whole = loongi_hf_begin_object(w);
    loongi_hf_emit(w, "rope_type", "\"default\"");
    loongi_hf_emit_real(w, "rope_theta", "rotary_base");
    if (sections != NULL) {
        loongi_hf_emit(w, "mrope_section", sections);
    }
    if (loongi_hf_writes(w, "mrope_interleaved")) {
        loongi_hf_emit(w, "mrope_interleaved", "true");
    }
    loongi_hf_end_object(w, "rope_parameters", whole);
}

void loongi_hf_emit_rope(loong_hf_writer_t *w)
{
    const char *type = loongi_pairs_get(w->model, "rope_scaling.type");
    char key[96];
    if (loongi_hf_writes(w, "partial_rotary_factor")) {
        loongi_hf_emit_real(w, "partial_rotary_factor", "rotary_percent");
    } else {
        loongi_hf_want_value(w, "rotary_percent", "1");
    }
    if (loongi_hf_writes(w, "mrope_section")) {
        emit_sections(w);
        return;
    }
    loongi_hf_emit_real(w, "rope_theta", "rotary_base");
    if (strcmp(w->type->model_type, "phi3") == 0) {
        loongi_hf_want_value(w, "rope_scaling.type", "default");
    }
    if (strcmp(type, "default") == 0) {
        loongi_hf_emit(w, "rope_scaling", "null");
        return;
    }
    if (strcmp(type, "dynamic") == 0) { /* counts from it */
        loongi_hf_want_value(
            w, "rope_scaling.original_max_position_embeddings",
            loongi_pairs_get(w->model, "max_position_embeddings"));
    }
    loong_text_t whole = loongi_hf_begin_object(w);
    snprintf(key, sizeof(key), "\"%s\"", type);
    /* code of a model's own knows the older name, transformers both */
    loongi_hf_emit(w, w->code != NULL ? "type" : "rope_type", key);
    for (const loong_hf_rope_key_t *k = loongi_hf_rope_keys; k->name != NULL;
         k++) {
        snprintf(key, sizeof(key), "rope_scaling.%s", k->name);
        if (strstr(k->types, type) == NULL ||
            (!k->required && loongi_pairs_get(w->given, key) == NULL)) {
            continue;
        }
        if (strcmp(k->name, "original_max_position_embeddings") == 0) {
            loongi_hf_emit_int(w, k->name, key);
        } else if (strcmp(k->name, "truncate") == 0) {
            loongi_hf_emit_bool(w, k->name, loongi_pairs_true(w->model, key));
        } else {
            loongi_hf_emit_real(w, k->name, key);
        }
    }
    loongi_hf_end_object(w, "rope_scaling", whole);
}
