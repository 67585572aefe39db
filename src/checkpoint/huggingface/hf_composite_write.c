/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys of several components -> one config.json. Called by hf_config_write.c.
 * Read hf_composite.h and hf_config_write.h before. */
#include <stdio.h>
#include <string.h>

#include "hf_composite.h"
#include "hf_kind.h"

typedef struct writing {
    const loong_hf_composite_t *composite;
    loong_hf_writer_t *parts[LOONG_HF_PARTS]; /* the last one is the caller's */
    loong_problems_t *problems;
} writing_t;

/* The part that a key is of, and the key there. */
static loong_hf_writer_t *writer_of(const writing_t *c, const char **key_p)
{
    for (int i = 0; i < LOONG_HF_PARTS; i++) {
        const char *role = c->composite->parts[i].role;
        size_t length = strlen(role);
        if (strncmp(*key_p, role, length) == 0 && (*key_p)[length] == '.') {
            *key_p += length + 1;
            return c->parts[i];
        }
    }
    return NULL;
}

/* A field with the value of its key, into `to`. */
static void emit_key(const writing_t *c, const loong_hf_field_t *f,
                     loong_text_t *to)
{
    const char *key = f->key;
    loong_hf_writer_t *w = writer_of(c, &key);
    loong_text_t own = w->text;
    w->text = *to;
    loongi_hf_emit_field(w, f, key);
    *to = w->text;
    w->text = own;
}

/* What the component's kind has written of its section. */
static bool has_written(const writing_t *c, const char *section,
                        const char *name)
{
    for (int i = 0; i < LOONG_HF_PARTS; i++) {
        const char *own = c->composite->parts[i].section;
        if (own != NULL && section != NULL && strcmp(own, section) == 0) {
            const loong_hf_field_t *f = c->parts[i]->type->fields;
            while (f->name != NULL && strcmp(f->name, name) != 0) {
                f++;
            }
            return f->name != NULL && f->key != NULL;
        }
    }
    return false;
}

/* The shared fields of a section, NULL: the top. */
static void emit_shared(const writing_t *c, const char *section,
                        loong_text_t *to)
{
    loong_hf_writer_t *w = c->parts[LOONG_HF_PART_LOSS];
    for (const loong_hf_shared_field_t *f = c->composite->fields;
         f->field.name != NULL; f++) {
        const char *kept = loongi_hf_composite_kept(w->kept, f);
        char value[64]; /* the first of those allowed */
        if ((f->section == NULL) != (section == NULL) ||
            (section != NULL && strcmp(f->section, section) != 0) ||
            has_written(c, section, f->field.name)) {
            continue;
        }
        if (f->field.key != NULL) {
            emit_key(c, &f->field, to);
            continue;
        }
        if (f->field.kind == LOONG_HF_NEUTRAL ||
            f->field.kind == LOONG_HF_STATED) {
            snprintf(value, sizeof(value), "%.*s",
                     (int)strcspn(f->field.fallback, "|"), f->field.fallback);
            kept = value;
        }
        if (kept != NULL && strcmp(f->field.name, "tie_word_embeddings") != 0) {
            loong_hf_writer_t own = *w; /* whose text `to` may be */
            own.text = *to;
            loongi_hf_emit(&own, f->field.name, kept);
            *to = own.text;
        }
    }
}

/* What the component's kind writes is an object: fields go before its end. */
static void emit_section(const writing_t *c, int i, const char *dtype,
                         loong_text_t *to)
{
    static const char end[] = "\n}\n";
    const char *section = c->composite->parts[i].section;
    loong_hf_writer_t *w = c->parts[i];
    w->kind->write(w, dtype);
    if (w->text.status != LOONG_OK || w->text.length < sizeof(end)) {
        return;
    }
    w->text.length -= sizeof(end) - 1;
    w->text.data[w->text.length] = '\0';
    emit_shared(c, section, &w->text);
    loongi_text_printf(&w->text, "\n  }");
    loong_hf_writer_t whole = *w;
    whole.text = *to;
    loongi_hf_emit(&whole, section, loongi_text_get(&w->text));
    *to = whole.text;
}

static void emit_whole(const writing_t *c, const char *dtype, loong_text_t *to)
{
    loong_hf_writer_t *loss = c->parts[LOONG_HF_PART_LOSS];
    loong_hf_writer_t w = *loss;
    char quoted[96];
    w.text = *to;
    loongi_text_printf(&w.text, "{");
    snprintf(quoted, sizeof(quoted), "[\"%s\"]", c->composite->architecture);
    loongi_hf_emit(&w, "architectures", quoted);
    snprintf(quoted, sizeof(quoted), "\"%s\"", c->composite->model_type);
    loongi_hf_emit(&w, "model_type", quoted);
    emit_shared(c, NULL, &w.text);
    loongi_hf_emit_bool(
        &w, "tie_word_embeddings",
        !loongi_pairs_true(loss->model, "untie_embeddings_and_output_weights"));
    for (int i = 0; i < LOONG_HF_PARTS; i++) {
        if (c->composite->parts[i].section != NULL) {
            emit_section(c, i, dtype, &w.text);
        }
    }
    loongi_hf_emit(&w, "torch_dtype", dtype);
    loongi_text_printf(&w.text, "\n}\n");
    *to = w.text;
}

/* ---- what the file says again -------------------------------------------- */

/* A shared field says the part's key. */
static bool is_shared(const writing_t *c, int i, const char *key)
{
    char name[96];
    const loong_hf_shared_field_t *f = c->composite->fields;
    snprintf(name, sizeof(name), "%s.%s", c->composite->parts[i].role, key);
    while (f->field.name != NULL &&
           (f->field.key == NULL || strcmp(f->field.key, name) != 0)) {
        f++;
    }
    return f->field.name != NULL;
}

/* The component with the loss has said itself what its kind cannot. */
static loong_status_t compare(const writing_t *c, int i,
                              const loong_json_t *json)
{
    const loong_hf_writer_t *w = c->parts[i];
    const char *role = c->composite->parts[i].role;
    loong_pairs_t *read = NULL;
    LOONG_TRY(
        loongi_hf_config_read_json(w->ctx, "config.json", json, role, &read));
    loong_status_t status = w->kind->fill(w->ctx, read);
    for (int64_t k = 0; k < w->model->count && status == LOONG_OK; k++) {
        const loong_pair_t *pair = &w->model->items[k];
        const char *means = loongi_pairs_get(read, pair->key);
        bool own = loongi_hf_is_section_key(w, pair->key);
        if ((i < LOONG_HF_PART_LOSS ? !own
                                    : own || is_shared(c, i, pair->key)) &&
            strcmp(pair->key, "init_method_std") != 0 &&
            (means == NULL ||
             !loongi_hf_same_value(w->model, pair->key, means))) {
            loongi_problems_add(c->problems,
                                "%s.%s = %s: of model type %s it "
                                "is %s",
                                role, pair->key, pair->value,
                                c->composite->model_type,
                                means != NULL ? means : "not there");
        }
    }
    loongi_pairs_destroy(&read);
    return status;
}

static loong_status_t read_back(const writing_t *c, const loong_text_t *text)
{
    loong_context_t *ctx = c->parts[0]->ctx;
    loong_json_t *json = NULL;
    LOONG_TRY(text->status);
    LOONG_TRY(
        loongi_json_parse(ctx, text->data, text->length, "config.json", &json));
    loong_status_t status = LOONG_OK;
    for (int i = 0; i < LOONG_HF_PARTS && status == LOONG_OK; i++) {
        status = compare(c, i, json);
    }
    loongi_json_destroy(&json);
    return status;
}

static void move_problems(const writing_t *c, loong_hf_writer_t *w)
{
    loong_context_t *ctx = w->ctx;
    if (loongi_problems_end(&w->problems, LOONG_ERR_UNSUPPORTED, "") !=
        LOONG_OK) {
        loongi_problems_add(c->problems, "%s", loong_context_error(ctx));
        loong_context_clear_error(ctx);
    }
}

loong_status_t loongi_hf_composite_write(loong_hf_writer_t *w,
                                         const loong_hf_config_params_t *params)
{
    loong_hf_writer_t beside[LOONG_HF_PART_LOSS];
    writing_t c = {.composite = params->composite, .problems = &w->problems};
    loong_text_t text = loongi_text_begin(w->ctx);
    loong_status_t status = LOONG_OK;
    for (int i = 0; i < LOONG_HF_PARTS; i++) {
        const loong_hf_part_t *p = &c.composite->parts[i];
        if (i < LOONG_HF_PART_LOSS) {
            beside[i] = loongi_hf_writer_begin(w->ctx, params->parts[i], NULL);
        }
        c.parts[i] = i < LOONG_HF_PART_LOSS ? &beside[i] : w;
        c.parts[i]->section_keys = p->keys;
        if (c.composite->foreign) {
            c.parts[i]->code = c.composite->model_type;
        }
        c.parts[i]->section_type = p->family != NULL && p->type != NULL
                                       ? loongi_hf_type_find(w->ctx, p->type)
                                       : NULL;
    }
    for (int i = 0; i < LOONG_HF_PARTS && status == LOONG_OK; i++) {
        status = loongi_hf_writer_fill(c.parts[i]);
    }
    if (status == LOONG_OK) {
        emit_whole(&c, loongi_hf_dtype_name(params->dtype), &text);
    }
    for (int i = 0; i < LOONG_HF_PART_LOSS; i++) {
        move_problems(&c, &beside[i]);
    }
    if (status == LOONG_OK && w->problems.count == 0) {
        status = read_back(&c, &text);
    }
    for (int i = 0; i < LOONG_HF_PART_LOSS; i++) {
        loongi_hf_writer_end(&beside[i]);
    }
    loongi_text_free(&w->text);
    w->text = text;
    return status;
}
