/* SPDX-License-Identifier: Apache-2.0
 *
 * Which fields of config.json a key of the model was read from. Called by
 * hf_config_read.c. Read hf_config_read.h before. */
#include <stdio.h>
#include <string.h>

#include "hf_composite.h"
#include "hf_kind.h"

bool loongi_hf_tell_fields(const loong_hf_reader_t *r, const char *fields,
                           loong_text_t *text)
{
    bool told = false;
    for (const char *at = fields; *at != '\0'; at += strspn(at, " ")) {
        char name[64];
        size_t length = strcspn(at, " ");
        snprintf(name, sizeof(name), "%.*s", (int)length, at);
        if (loongi_hf_has_field(r->type->fields, name) &&
            loongi_hf_field(r->json, name) != NULL) {
            loongi_text_printf(text, "%s%s", told ? ", " : "", name);
            told = true;
        }
        at += length;
    }
    return told;
}

/* What is not in the file follows from the model type. */
static void tell(const loong_hf_reader_t *r, const char *key,
                 loong_text_t *text)
{
    const loong_hf_field_t *f = r->type->fields;
    while (f->name != NULL && (f->key == NULL || strcmp(f->key, key) != 0)) {
        f++;
    }
    if (r->section != NULL) {
        loongi_text_printf(text, "%s.", r->section);
    }
    bool told = false;
    if (f->name != NULL) {
        told = loongi_hf_tell_fields(r, f->name, text);
    } else if (r->kind->tell != NULL) {
        told = r->kind->tell(r, key, text);
    }
    if (!told) {
        loongi_text_printf(text, "model_type");
    }
}

/* The field beside those of the part's type that says the key. */
static bool tell_shared(const loong_hf_reader_t *r, const char *key,
                        loong_text_t *text)
{
    size_t role = strlen(r->kind->role);
    const loong_hf_shared_field_t *f =
        r->composite != NULL ? r->composite->fields : NULL;
    for (; f != NULL && f->field.name != NULL; f++) {
        const char *own = f->field.key;
        if (own != NULL && strncmp(own, r->kind->role, role) == 0 &&
            own[role] == '.' && strcmp(own + role + 1, key) == 0) {
            loongi_text_printf(text, "%s%s%s",
                               f->section != NULL ? f->section : "",
                               f->section != NULL ? "." : "", f->field.name);
            return true;
        }
    }
    return false;
}

loong_status_t loongi_hf_tell_origins(const loong_hf_reader_t *r,
                                      loong_pairs_t *origins)
{
    for (int64_t i = 0; i < r->pairs->count; i++) {
        const char *key = r->pairs->items[i].key;
        loong_text_t text = loongi_text_begin(r->ctx);
        loongi_text_printf(&text, "%s: ", r->path);
        if (!tell_shared(r, key, &text)) {
            tell(r, key, &text);
        }
        loong_status_t status = text.status;
        if (status == LOONG_OK) {
            status = loongi_pairs_set(origins, key, text.data);
        }
        loongi_text_free(&text);
        LOONG_TRY(status);
    }
    return LOONG_OK;
}
