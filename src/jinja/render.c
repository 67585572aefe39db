/* SPDX-License-Identifier: Apache-2.0
 *
 * Renders a parsed template: variables in, text and spans out, within bounds.
 * Called by those who make chats into texts. Read run.h before. */
#include <stdio.h>
#include <string.h>

#include "run.h"

enum { MAX_NESTED = 4000 };

static const int64_t default_steps = 100 * 1000 * 1000;
static const size_t default_bytes = (size_t)1 << 30;
static const int default_depth = 200;

loong_status_t jinja_fail(run_t *r, const char *fmt, ...)
{
    char message[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    return jinja_fail_at(r->jinja, r->ctx,
                         (const int[2]){r->at->line, r->at->column}, "%s",
                         message);
}

loong_status_t jinja_over_limit(run_t *r, const char *what, int64_t limit)
{
    return LOONG_FAIL(r->ctx, LOONG_ERR_UNSUPPORTED,
                      "%s:%d:%d: more than %lld %s, which is the limit",
                      r->jinja->where, r->at->line, r->at->column,
                      (long long)limit, what);
}

loong_status_t jinja_fail_undefined(run_t *r, value_t undefined)
{
    const int length = (int)LOONG_MIN(undefined.length, (size_t)100);
    const char *name = undefined.as.text;
    if (undefined.about == JINJA_A_HINT) {
        return jinja_fail(r, "%.*s", length, name);
    }
    if (undefined.about == JINJA_A_NAME) {
        return jinja_fail(r, "'%.*s' is undefined", length, name);
    }
    if (undefined.about == JINJA_UNSAFE) {
        return jinja_fail(r,
                          "'%.*s' would change a value, which a template "
                          "may not",
                          length, name);
    }
    return jinja_fail(r, "%s has no '%.*s'",
                      jinja_type_name(jinja_value(undefined.about)), length,
                      name);
}

loong_status_t jinja_enter(run_t *r)
{
    return ++r->depth <= r->limits.max_depth
               ? LOONG_OK
               : jinja_over_limit(r, "macros, loops or values in each other",
                                  r->limits.max_depth);
}

loong_status_t jinja_emit(run_t *r, const char *text, size_t length)
{
    loong_jinja_output_t *out = r->out;
    size_t need = out->length + length + 1;
    if (need > (size_t)out->text_room) {
        if (need > r->limits.max_bytes) {
            return jinja_over_limit(r, "bytes of text",
                                    (int64_t)r->limits.max_bytes);
        }
        LOONG_TRY(loongi_grow(r->ctx, &out->text, &out->text_room,
                              (int64_t)LOONG_MAX(need, (size_t)1024), 1,
                              "the text of a template"));
    }
    if (length > 0) {
        memcpy(out->text + out->length, text, length);
    }
    out->length += length;
    return LOONG_OK;
}

loong_status_t jinja_take(run_t *r, size_t mark, value_t *text_p)
{
    LOONG_TRY(jinja_copy(r->heap, r->out->text + mark, r->out->length - mark,
                         text_p));
    r->out->length = mark;
    return LOONG_OK;
}

/* --- scopes --- */

loong_status_t jinja_scope_new(run_t *r, jinja_scope_t *parent,
                               jinja_scope_t **scope_p)
{
    jinja_scope_t *scope = NULL;
    LOONG_TRY(jinja_new(r->heap, sizeof(*scope), &scope));
    memset(scope, 0, sizeof(*scope));
    scope->parent = parent;
    *scope_p = scope;
    return LOONG_OK;
}

value_t jinja_lookup(const run_t *r, int name)
{
    for (const jinja_scope_t *s = r->scope; s != NULL; s = s->parent) {
        for (int i = 0; i < s->count; i++) {
            if (s->slots[i].name == name) {
                return s->slots[i].value;
            }
        }
    }
    return r->root[name];
}

loong_status_t jinja_define(run_t *r, int name, value_t value)
{
    jinja_scope_t *s = r->scope;
    if (s == NULL) {
        r->root[name] = value;
        return LOONG_OK;
    }
    for (int i = 0; i < s->count; i++) {
        if (s->slots[i].name == name) {
            s->slots[i].value = value;
            return LOONG_OK;
        }
    }
    if (s->count == s->room) {
        jinja_slot_t *slots = NULL;
        int room = s->room == 0 ? 4 : 2 * s->room;
        LOONG_TRY(jinja_new(r->heap, (size_t)room * sizeof(*slots), &slots));
        if (s->count > 0) {
            memcpy(slots, s->slots, (size_t)s->count * sizeof(*slots));
        }
        s->slots = slots;
        s->room = room;
    }
    s->slots[s->count].name = name;
    s->slots[s->count++].value = value;
    return LOONG_OK;
}

/* --- a rendering --- */

/* What each name of the template stands for at the beginning. */
static loong_status_t bind_names(run_t *r, const jinja_dict_t *variables)
{
    const jinja_dict_t *names = &r->jinja->names;
    const jinja_entry_t *loop = jinja_dict_find(names, jinja_text("loop"));
    r->loop_name = loop != NULL ? (int)loop->value.as.integer : -1;
    LOONG_TRY(
        jinja_new(r->heap, (size_t)names->count * sizeof(value_t), &r->root));
    for (int64_t i = 0; i < names->count; i++) {
        value_t name = names->entries[i].key;
        const jinja_entry_t *variable = jinja_dict_find(variables, name);
        const jinja_builtin_t *row = jinja_find_row(jinja_functions, name);
        r->root[i] = variable != NULL ? variable->value
                     : row != NULL
                         ? jinja_object(JINJA_FUNCTION, (void *)(uintptr_t)row)
                         : jinja_value(JINJA_MISSING);
    }
    return LOONG_OK;
}

static void set_limits(run_t *r, const loong_jinja_limits_t *limits)
{
    if (limits != NULL) {
        r->limits = *limits;
    }
    if (r->limits.max_steps == 0) {
        r->limits.max_steps = default_steps;
    }
    if (r->limits.max_bytes == 0) {
        r->limits.max_bytes = default_bytes;
    }
    if (r->limits.max_depth == 0) {
        r->limits.max_depth = default_depth;
    }
    r->heap->max_bytes = r->limits.max_bytes;
}

loong_status_t jinja_nest(run_t *r)
{
    return ++r->nested <= MAX_NESTED
               ? LOONG_OK
               : jinja_over_limit(r, "expressions in each other", MAX_NESTED);
}

loong_status_t loongi_jinja_render(loong_context_t *ctx,
                                   const loong_jinja_t *jinja,
                                   loong_jinja_value_t variables,
                                   const loong_jinja_limits_t *limits,
                                   loong_jinja_output_t *output)
{
    const jinja_node_t nowhere = {.line = 1, .column = 1};
    run_t r = {.ctx = ctx, .jinja = jinja, .out = output, .at = &nowhere};
    loong_status_t status = LOONG_OK;
    LOONG_CHECK(ctx, variables.kind == JINJA_DICT, LOONG_ERR_ARG,
                "variables of a template are a mapping");
    output->ctx = ctx;
    output->length = 0;
    output->num_spans = 0;
    output->spans_exact = true;
    LOONG_TRY(loongi_jinja_values_create(ctx, &r.heap));
    set_limits(&r, limits);
    LOONG_TRY_GOTO(jinja_emit(&r, "", 0), status, out); /* there is a text */
    LOONG_TRY_GOTO(bind_names(&r, jinja_dict_of(variables)), status, out);
    LOONG_TRY_GOTO(jinja_exec(&r, jinja->body), status, out);
    output->text[output->length] = '\0';
out:
    loongi_jinja_values_destroy(&r.heap);
    return status;
}

void loongi_jinja_output_free(loong_jinja_output_t *output)
{
    if (output->ctx != NULL) {
        loongi_free(output->ctx, output->text);
        loongi_free(output->ctx, output->spans);
    }
    memset(output, 0, sizeof(*output));
}
