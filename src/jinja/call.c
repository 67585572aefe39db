/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls: arguments to parameters, of rows of tables and of macros. Called by
 * eval.c. Read run.h before. */
#include <string.h>

#include "run.h"

static loong_status_t add_named(run_t *r, jinja_args_t *args, value_t name,
                                value_t value)
{
    value_t dict;
    if (args->named == NULL) {
        LOONG_TRY(loongi_jinja_dict(r->heap, &dict));
        args->named = jinja_dict_of(dict);
    }
    if (name.kind != JINJA_STRING) {
        return jinja_fail(r, "names of arguments are texts, not %s",
                          jinja_type_name(name));
    }
    if (jinja_dict_find(args->named, name) != NULL) {
        return jinja_fail(r, "two values for the argument '%.*s'",
                          (int)LOONG_MIN(name.length, (size_t)60),
                          name.as.text);
    }
    return jinja_dict_put(r->heap, args->named, name, value);
}

static loong_status_t eval_stars(run_t *r, const jinja_node_t *node,
                                 value_t list, jinja_args_t *args)
{
    jinja_iter_t it;
    value_t all, item;
    bool more = true;
    LOONG_TRY(jinja_eval(r, node->a, &all));
    r->at = node;
    if (node->kind == JINJA_N_STAR_STAR) {
        if (all.kind != JINJA_DICT) {
            return jinja_fail(r, "** needs a mapping, not %s",
                              jinja_type_name(all));
        }
        const jinja_dict_t *dict = jinja_dict_of(all);
        for (int64_t i = 0; i < dict->count; i++) {
            LOONG_TRY(add_named(r, args, dict->entries[i].key,
                                dict->entries[i].value));
        }
        return LOONG_OK;
    }
    LOONG_TRY(jinja_iterate(r, all, &it));
    for (;;) {
        LOONG_TRY(jinja_iter_next(r, &it, &item, &more));
        if (!more) {
            return LOONG_OK;
        }
        LOONG_TRY(loongi_jinja_add(r->heap, list, item));
    }
}

loong_status_t jinja_eval_args(run_t *r, const jinja_node_t *list,
                               jinja_args_t *args)
{
    value_t items, value;
    memset(args, 0, sizeof(*args));
    if (list == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_jinja_list(r->heap, &items));
    for (const jinja_node_t *n = list; n != NULL; n = n->next) {
        if (n->kind == JINJA_N_STAR || n->kind == JINJA_N_STAR_STAR) {
            LOONG_TRY(eval_stars(r, n, items, args));
            continue;
        }
        bool named = n->kind == JINJA_N_KEYWORD;
        LOONG_TRY(jinja_eval(r, named ? n->a : n, &value));
        r->at = n;
        LOONG_TRY(named ? add_named(r, args, n->value, value)
                        : loongi_jinja_add(r->heap, items, value));
    }
    args->count = jinja_list_of(items)->count;
    args->items = jinja_list_of(items)->items;
    return LOONG_OK;
}

const jinja_builtin_t *jinja_find_row(const jinja_builtin_t *table,
                                      value_t name)
{
    for (; table->name != NULL; table++) {
        if (table->name[0] == name.as.text[0] && jinja_is(name, table->name)) {
            return table;
        }
    }
    return NULL;
}

/* The place of a name among parameters; their number when it is not there. */
static int find_parameter(const char *parameters, value_t name, int *place)
{
    int count = 0;
    *place = -1;
    for (const char *p = parameters; *p != '\0';) {
        size_t length = strcspn(p, " ");
        if (length == name.length && *p != '-' &&
            memcmp(p, name.as.text, length) == 0) {
            *place = count;
        }
        p += length;
        p += *p == ' ';
        count++;
    }
    return count;
}

static loong_status_t bind_named(run_t *r, jinja_call_t *call)
{
    const jinja_dict_t *named = call->args->named;
    for (int64_t i = 0; named != NULL && i < named->count; i++) {
        int place = -1;
        value_t name = named->entries[i].key;
        find_parameter(call->builtin->parameters, name, &place);
        if (place < 0 || call->arg[place].kind != JINJA_MISSING) {
            return jinja_fail(
                r, "%s %s '%.*s'", call->builtin->name,
                place < 0 ? "takes no argument" : "has two values for",
                (int)LOONG_MIN(name.length, (size_t)60), name.as.text);
        }
        call->arg[place] = named->entries[i].value;
    }
    return LOONG_OK;
}

loong_status_t jinja_call_row(run_t *r, const jinja_builtin_t *row,
                              value_t self, const jinja_args_t *args,
                              value_t *result_p)
{
    jinja_call_t call = {.builtin = row, .self = self, .args = args};
    if (row->parameters == NULL) {
        return row->call(r, &call, result_p);
    }
    int place = -1;
    int count = find_parameter(row->parameters, jinja_value(0), &place);
    if (args->count > count) {
        return jinja_fail(r, "%s takes at most %d arguments, not %lld",
                          row->name, count, (long long)args->count);
    }
    if (args->count > 0) {
        memcpy(call.arg, args->items,
               (size_t)args->count * sizeof(*args->items));
    }
    LOONG_TRY(bind_named(r, &call));
    for (int i = 0; i < row->needed; i++) {
        if (call.arg[i].kind == JINJA_MISSING) {
            return jinja_fail(r, "%s needs %d arguments", row->name,
                              row->needed);
        }
    }
    return row->call(r, &call, result_p);
}

loong_status_t jinja_call_method(run_t *r, const jinja_builtin_t *row,
                                 value_t self, const jinja_args_t *args,
                                 value_t *result_p)
{
    LOONG_TRY(jinja_call_row(r, row, self, args, result_p));
    if (self.kind != JINJA_STRING || !self.markup) {
        return LOONG_OK;
    }
    result_p->markup = result_p->kind == JINJA_STRING;
    if (result_p->kind == JINJA_LIST || result_p->kind == JINJA_TUPLE) {
        jinja_list_t *parts = jinja_list_of(*result_p);
        for (int64_t i = 0; i < parts->count; i++) {
            parts->items[i].markup = parts->items[i].kind == JINJA_STRING;
        }
    }
    return LOONG_OK;
}

/* --- macros --- */

static const char *macro_name(const jinja_node_t *macro, int *length)
{
    *length = macro->kind == JINJA_N_MACRO
                  ? (int)LOONG_MIN(macro->value.length, (size_t)60)
                  : 6;
    return macro->kind == JINJA_N_MACRO ? macro->value.as.text : "caller";
}

/* Arguments by position and name; then defaults, which see those before. */
static loong_status_t bind_parameters(run_t *r, const jinja_node_t *macro,
                                      const jinja_args_t *args)
{
    int64_t position = 0;
    for (const jinja_node_t *p = macro->a; p != NULL; p = p->next) {
        value_t value = jinja_value(JINJA_MISSING);
        const jinja_entry_t *entry = NULL;
        if (position < args->count) {
            value = args->items[position];
        } else if ((entry = jinja_dict_find(args->named, p->value)) != NULL) {
            value = entry->value;
        }
        position++;
        if (value.kind == JINJA_MISSING && p->a == NULL) {
            value = jinja_undefined("an argument of a macro was not given");
        }
        LOONG_TRY(jinja_define(r, p->name, value));
    }
    for (const jinja_node_t *p = macro->a; p != NULL; p = p->next) {
        value_t value = jinja_lookup(r, p->name);
        if (value.kind == JINJA_MISSING) {
            LOONG_TRY(jinja_eval(r, p->a, &value));
            LOONG_TRY(jinja_define(r, p->name, value));
        }
    }
    return LOONG_OK;
}

/* Named arguments that are no parameters, or were given by position too. */
static loong_status_t collect_named(run_t *r, const jinja_node_t *macro,
                                    const jinja_args_t *args,
                                    jinja_dict_t *rest)
{
    for (int64_t i = 0; i < args->named->count; i++) {
        const jinja_entry_t *entry = &args->named->entries[i];
        const jinja_node_t *p = macro->a;
        int64_t at = 0;
        while (p != NULL && !jinja_same_key(p->value, entry->key)) {
            p = p->next;
            at++;
        }
        bool special =
            (macro->uses & JINJA_USES_CALLER) && jinja_is(entry->key, "caller");
        if ((p == NULL || at < args->count) && !special) {
            LOONG_TRY(jinja_dict_put(r->heap, rest, entry->key, entry->value));
        }
    }
    return LOONG_OK;
}

static loong_status_t define_special(run_t *r, const char *text, value_t value)
{
    const jinja_entry_t *name =
        jinja_dict_find(&r->jinja->names, jinja_text(text));
    return name == NULL ? LOONG_OK
                        : jinja_define(r, (int)name->value.as.integer, value);
}

/* caller, kwargs and varargs, for a body that speaks of them. */
static loong_status_t bind_special(run_t *r, const jinja_node_t *macro,
                                   const jinja_args_t *args, value_t named)
{
    int length = 0;
    const char *name = macro_name(macro, &length);
    int64_t count = 0;
    const jinja_dict_t *rest = jinja_dict_of(named);
    for (const jinja_node_t *p = macro->a; p != NULL; p = p->next) {
        count++;
    }
    if (macro->uses & JINJA_USES_CALLER) {
        const jinja_entry_t *entry =
            jinja_dict_find(args->named, jinja_text("caller"));
        value_t caller = entry != NULL ? entry->value
                                       : jinja_undefined("there is no caller");
        LOONG_TRY(define_special(r, "caller", caller));
    }
    if (macro->uses & JINJA_USES_KWARGS) {
        LOONG_TRY(define_special(r, "kwargs", named));
    } else if (rest->count > 0) {
        value_t first = rest->entries[0].key;
        return jinja_fail(r, "macro %.*s takes no argument '%.*s'", length,
                          name, (int)LOONG_MIN(first.length, (size_t)60),
                          first.as.text);
    }
    if (macro->uses & JINJA_USES_VARARGS) {
        value_t more;
        int64_t extra = LOONG_MAX(args->count - count, (int64_t)0);
        LOONG_TRY(jinja_list_new(r->heap, JINJA_TUPLE, extra, &more));
        for (int64_t i = 0; i < extra; i++) {
            jinja_list_of(more)->items[i] = args->items[count + i];
        }
        return define_special(r, "varargs", more);
    }
    return args->count <= count
               ? LOONG_OK
               : jinja_fail(r, "macro %.*s takes at most %lld arguments",
                            length, name, (long long)count);
}

loong_status_t jinja_call_macro(run_t *r, const jinja_macro_t *macro,
                                const jinja_args_t *args, value_t *result_p)
{
    const jinja_node_t *node = macro->node;
    const jinja_node_t *at = r->at;
    jinja_scope_t *outside = r->scope;
    jinja_scope_t *inside = NULL;
    jinja_dict_t none = {0};
    jinja_args_t all = *args;
    value_t named;
    int leaving = r->leaving;
    all.named = all.named == NULL ? &none : all.named;
    LOONG_TRY(jinja_enter(r));
    LOONG_TRY(loongi_jinja_dict(r->heap, &named));
    LOONG_TRY(jinja_scope_new(r, macro->scope, &inside));
    r->scope = inside;
    LOONG_TRY(bind_parameters(r, node, &all));
    LOONG_TRY(collect_named(r, node, &all, jinja_dict_of(named)));
    r->at = at;
    LOONG_TRY(bind_special(r, node, &all, named));
    r->scope = outside;
    r->leaving = JINJA_ON;
    LOONG_TRY(jinja_capture(r, node->list, inside, result_p));
    r->leaving = leaving;
    r->depth--;
    return LOONG_OK;
}

static loong_status_t call_joiner(run_t *r, jinja_joiner_t *joiner,
                                  value_t *result_p)
{
    (void)r;
    *result_p = joiner->used ? joiner->separator : loongi_jinja_string("", 0);
    joiner->used = true;
    return LOONG_OK;
}

loong_status_t jinja_call(run_t *r, value_t called, const jinja_args_t *args,
                          value_t *result_p)
{
    switch (called.kind) {
    case JINJA_FUNCTION:
        return jinja_call_row(r, (const jinja_builtin_t *)called.as.object,
                              called, args, result_p);
    case JINJA_METHOD: {
        const jinja_method_t *method = (const jinja_method_t *)called.as.object;
        return jinja_call_method(r, method->row, method->self, args, result_p);
    }
    case JINJA_MACRO:
        return jinja_call_macro(r, (const jinja_macro_t *)called.as.object,
                                args, result_p);
    case JINJA_LOOP:
        return jinja_call_loop(r, (jinja_loop_t *)called.as.object, args,
                               result_p);
    case JINJA_JOINER:
        return call_joiner(r, (jinja_joiner_t *)called.as.object, result_p);
    case JINJA_UNDEFINED:
        return jinja_fail_undefined(r, called);
    default:
        return jinja_fail(r, "%s cannot be called", jinja_type_name(called));
    }
}
