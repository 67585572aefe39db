/* SPDX-License-Identifier: Apache-2.0
 *
 * map, select, reject and their like; attributes by paths. Called by call.c.
 * Read text.h before. */
#include <string.h>

#include "text.h"

/* A part of a path: a name, or a number when it has only digits. */
static value_t part_of(const char *text, size_t length)
{
    int64_t n = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || i > 17) {
            return loongi_jinja_string(text, length);
        }
        n = n * 10 + (text[i] - '0');
    }
    return length > 0 ? loongi_jinja_int(n) : loongi_jinja_string(text, 0);
}

loong_status_t jinja_get_path(run_t *r, value_t of, value_t path,
                              const value_t *otherwise, value_t *value_p)
{
    *value_p = of;
    if (path.kind == JINJA_MISSING || path.kind == JINJA_NONE) {
        return LOONG_OK;
    }
    if (path.kind != JINJA_STRING) {
        LOONG_TRY(jinja_getitem(r, of, path, value_p));
        if (otherwise != NULL && value_p->kind == JINJA_UNDEFINED) {
            *value_p = *otherwise;
        }
        return LOONG_OK;
    }
    for (size_t at = 0;;) {
        const char *text = path.as.text + at;
        size_t left = path.length - at;
        const char *dot = left > 0 ? memchr(text, '.', left) : NULL;
        size_t length = dot != NULL ? (size_t)(dot - text) : left;
        LOONG_TRY(jinja_getitem(r, *value_p, part_of(text, length), value_p));
        if (otherwise != NULL && value_p->kind == JINJA_UNDEFINED) {
            *value_p = *otherwise;
        }
        if (dot == NULL) {
            return LOONG_OK;
        }
        at += length + 1;
    }
}

/* A filter or a test by its name, and the arguments behind that. */
static loong_status_t find_named(run_t *r, const jinja_args_t *args, int64_t at,
                                 bool test, const jinja_builtin_t **row_p)
{
    value_t name = args->items[at];
    *row_p = name.kind != JINJA_STRING ? NULL
             : test                    ? jinja_find_test(name)
                                       : jinja_find_filter(name);
    if (*row_p == NULL) {
        size_t mark = jinja_mark(r);
        LOONG_TRY(jinja_print(r, name));
        LOONG_TRY(jinja_take(r, mark, &name));
        return jinja_fail(r, "there is no %s '%.*s'", test ? "test" : "filter",
                          (int)LOONG_MIN(name.length, (size_t)60),
                          name.as.text);
    }
    return LOONG_OK;
}

static jinja_args_t behind(const jinja_args_t *args, int64_t at)
{
    jinja_args_t rest = *args;
    rest.count -= at;
    rest.items += at;
    return rest;
}

typedef struct mapping {
    const jinja_builtin_t *row; /* NULL: an attribute */
    jinja_args_t args;
    value_t attribute, otherwise;
    bool has_otherwise;
} mapping_t;

static loong_status_t prepare_map(run_t *r, const jinja_call_t *call,
                                  mapping_t *m)
{
    const jinja_dict_t *named = call->args->named;
    memset(m, 0, sizeof(*m));
    if (call->args->count > 0) {
        m->args = behind(call->args, 1);
        return find_named(r, call->args, 0, false, &m->row);
    }
    for (int64_t i = 0; named != NULL && i < named->count; i++) {
        value_t name = named->entries[i].key;
        if (jinja_is(name, "attribute")) {
            m->attribute = named->entries[i].value;
        } else if (jinja_is(name, "default")) {
            m->otherwise = named->entries[i].value;
            m->has_otherwise = m->otherwise.kind != JINJA_NONE;
        } else {
            return jinja_fail(r, "map takes no argument '%.*s'",
                              (int)LOONG_MIN(name.length, (size_t)60),
                              name.as.text);
        }
    }
    return m->attribute.kind != JINJA_MISSING
               ? LOONG_OK
               : jinja_fail(r, "map needs a filter or an attribute");
}

static loong_status_t map(run_t *r, const jinja_call_t *call, value_t *result)
{
    mapping_t m;
    jinja_iter_t it;
    value_t list, item;
    bool more = jinja_truth(call->self);
    LOONG_TRY(loongi_jinja_list(r->heap, &list));
    if (more) {
        LOONG_TRY(prepare_map(r, call, &m));
        LOONG_TRY(jinja_iterate(r, call->self, &it));
    }
    while (more) {
        LOONG_TRY(jinja_iter_next(r, &it, &item, &more));
        if (!more) {
            break;
        }
        if (m.row != NULL) {
            LOONG_TRY(jinja_call_row(r, m.row, item, &m.args, &item));
        } else {
            LOONG_TRY(jinja_get_path(r, item, m.attribute,
                                     m.has_otherwise ? &m.otherwise : NULL,
                                     &item));
        }
        LOONG_TRY(loongi_jinja_add(r->heap, list, item));
    }
    return jinja_to_iterator(r, list, result);
}

/* select, reject, and selectattr, rejectattr with an attribute first. */
static loong_status_t choose(run_t *r, const jinja_call_t *call,
                             value_t *result)
{
    const char *name = call->builtin->name;
    bool want = name[0] == 's';
    int64_t offset = strstr(name, "attr") != NULL;
    const jinja_builtin_t *test = NULL;
    jinja_args_t args = {0};
    jinja_iter_t it;
    value_t list, item, value;
    bool more = jinja_truth(call->self);
    LOONG_TRY(loongi_jinja_list(r->heap, &list));
    if (more) {
        if (call->args->count < offset) {
            return jinja_fail(r, "%s needs an attribute", name);
        }
        if (call->args->count > offset) {
            LOONG_TRY(find_named(r, call->args, offset, true, &test));
            args = behind(call->args, offset + 1);
        }
        LOONG_TRY(jinja_iterate(r, call->self, &it));
    }
    while (more) {
        LOONG_TRY(jinja_iter_next(r, &it, &item, &more));
        if (!more) {
            break;
        }
        value = item;
        if (offset > 0) {
            LOONG_TRY(
                jinja_get_path(r, item, call->args->items[0], NULL, &value));
        }
        if (test != NULL) {
            LOONG_TRY(jinja_call_row(r, test, value, &args, &value));
        }
        if (jinja_truth(value) == want) {
            LOONG_TRY(loongi_jinja_add(r->heap, list, item));
        }
    }
    return jinja_to_iterator(r, list, result);
}

const jinja_builtin_t jinja_select_filters[] = {
    {"map", NULL, 0, map},           {"select", NULL, 0, choose},
    {"reject", NULL, 0, choose},     {"selectattr", NULL, 0, choose},
    {"rejectattr", NULL, 0, choose}, {0}};
