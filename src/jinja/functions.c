/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of the language, and methods of lists and mappings. Called by
 * call.c. Read text.h before. */
#include <string.h>
#include <time.h>

#include "text.h"

enum { MAX_RANGE = 100000 };

static loong_status_t range(run_t *r, const jinja_call_t *call, value_t *result)
{
    jinja_range_t *range = NULL;
    int64_t begin = 0;
    int64_t end = 0;
    int64_t step = 1;
    bool two = call->arg[1].kind != JINJA_MISSING;
    for (int k = 0; k < 3; k++) {
        if (call->arg[k].kind == JINJA_NONE) {
            return jinja_fail(r, "range needs an int, not None");
        }
    }
    LOONG_TRY(jinja_arg_int(r, call, two ? 0 : 1, 0, &begin));
    LOONG_TRY(jinja_arg_int(r, call, two ? 1 : 0, 0, &end));
    LOONG_TRY(jinja_arg_int(r, call, 2, 1, &step));
    if (step == 0) {
        return jinja_fail(r, "range with steps of zero");
    }
    uint64_t distance = step > 0 ? (uint64_t)end - (uint64_t)begin
                                 : (uint64_t)begin - (uint64_t)end;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    bool empty = step > 0 ? end <= begin : end >= begin;
    uint64_t count = empty ? 0 : (distance - 1) / stride + 1;
    if (count > MAX_RANGE) {
        return jinja_fail(r, "a range of more than %d numbers", MAX_RANGE);
    }
    LOONG_TRY(jinja_new(r->heap, sizeof(*range), &range));
    range->begin = begin;
    range->step = step;
    range->count = (int64_t)count;
    *result = jinja_object(JINJA_RANGE, range);
    return LOONG_OK;
}

static loong_status_t add_pairs(run_t *r, value_t dict, value_t pairs)
{
    jinja_iter_t it;
    value_t pair;
    bool more = true;
    if (pairs.kind == JINJA_DICT) {
        const jinja_dict_t *from = jinja_dict_of(pairs);
        for (int64_t i = 0; i < from->count; i++) {
            LOONG_TRY(jinja_step(r));
            LOONG_TRY(jinja_put(r, dict, from->entries[i].key,
                                from->entries[i].value));
        }
        return LOONG_OK;
    }
    LOONG_TRY(jinja_iterate(r, pairs, &it));
    for (;;) {
        LOONG_TRY(jinja_iter_next(r, &it, &pair, &more));
        if (!more) {
            return LOONG_OK;
        }
        LOONG_TRY(jinja_to_list(r, pair, &pair));
        if (jinja_list_of(pair)->count != 2) {
            return jinja_fail(r, "a mapping is made of pairs");
        }
        LOONG_TRY(jinja_put(r, dict, jinja_list_of(pair)->items[0],
                            jinja_list_of(pair)->items[1]));
    }
}

/* dict(...) and namespace(...): of a mapping or pairs, and of names. */
static loong_status_t make_dict(run_t *r, const jinja_call_t *call,
                                value_t *result)
{
    const jinja_args_t *args = call->args;
    value_t dict;
    LOONG_TRY(loongi_jinja_dict(r->heap, &dict));
    if (args->count > 1) {
        return jinja_fail(r, "%s takes one mapping, not %lld",
                          call->builtin->name, (long long)args->count);
    }
    if (args->count == 1) {
        LOONG_TRY(add_pairs(r, dict, args->items[0]));
    }
    if (args->named != NULL) {
        LOONG_TRY(add_pairs(r, dict, jinja_object(JINJA_DICT, args->named)));
    }
    *result = dict;
    if (call->builtin->name[0] == 'n') {
        result->kind = JINJA_NAMESPACE;
        const jinja_dict_t *made = jinja_dict_of(dict);
        for (int64_t i = 0; i < made->count; i++) {
            value_t key = made->entries[i].key;
            if (key.kind == JINJA_STRING && key.length > 0 &&
                key.as.text[0] == '_') {
                return jinja_fail(r, "an attribute that begins with '_'");
            }
        }
    }
    return LOONG_OK;
}

static loong_status_t make_cycler(run_t *r, const jinja_call_t *call,
                                  value_t *result)
{
    jinja_cycler_t *cycler = NULL;
    value_t items;
    if (call->args->count == 0 || call->args->named != NULL) {
        return jinja_fail(r, "cycler needs items");
    }
    LOONG_TRY(jinja_new(r->heap, sizeof(*cycler), &cycler));
    LOONG_TRY(jinja_list_new(r->heap, JINJA_TUPLE, call->args->count, &items));
    memcpy(jinja_list_of(items)->items, call->args->items,
           (size_t)call->args->count * sizeof(value_t));
    cycler->items = jinja_list_of(items);
    cycler->at = 0;
    *result = jinja_object(JINJA_CYCLER, cycler);
    return LOONG_OK;
}

static loong_status_t cycler_next(run_t *r, const jinja_call_t *call,
                                  value_t *result)
{
    jinja_cycler_t *cycler = (jinja_cycler_t *)call->self.as.object;
    (void)r;
    *result = cycler->items->items[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->items->count;
    return LOONG_OK;
}

static loong_status_t cycler_reset(run_t *r, const jinja_call_t *call,
                                   value_t *result)
{
    (void)r;
    ((jinja_cycler_t *)call->self.as.object)->at = 0;
    *result = loongi_jinja_none();
    return LOONG_OK;
}

const jinja_builtin_t jinja_cycler_methods[] = {
    {"next", "", 0, cycler_next}, {"reset", "", 0, cycler_reset}, {0}};

static loong_status_t make_joiner(run_t *r, const jinja_call_t *call,
                                  value_t *result)
{
    jinja_joiner_t *joiner = NULL;
    LOONG_TRY(jinja_new(r->heap, sizeof(*joiner), &joiner));
    joiner->separator = call->arg[0].kind != JINJA_MISSING
                            ? call->arg[0]
                            : loongi_jinja_string(", ", 2);
    joiner->used = false;
    *result = jinja_object(JINJA_JOINER, joiner);
    return LOONG_OK;
}

static loong_status_t raise(run_t *r, const jinja_call_t *call, value_t *result)
{
    (void)result;
    value_t text;
    LOONG_TRY(jinja_to_text(r, call->arg[0], &text));
    return jinja_fail(r, "%.*s", (int)LOONG_MIN(text.length, (size_t)400),
                      text.as.text);
}

static loong_status_t format_now(run_t *r, const jinja_call_t *call,
                                 value_t *result)
{
    value_t format;
    char pattern[256];
    char text[1024];
    struct tm local;
    time_t now = r->limits.now != 0 ? (time_t)r->limits.now : time(NULL);
    LOONG_TRY(jinja_arg_text(r, call, 0, NULL, &format));
    if (format.length + 2 > sizeof(pattern)) {
        return jinja_fail(r, "a format of a time with more than %zu bytes",
                          sizeof(pattern) - 2);
    }
    memcpy(pattern, format.as.text, format.length);
    pattern[format.length] = ' '; /* so that a result is never empty */
    pattern[format.length + 1] = '\0';
    localtime_r(&now, &local);
    size_t length = strftime(text, sizeof(text), pattern, &local);
    if (length == 0) {
        return jinja_fail(r, "a format of a time that gives too much");
    }
    return jinja_copy(r->heap, text, length - 1, result);
}

const jinja_builtin_t jinja_functions[] = {
    {"range", "- - -", 1, range},
    {"dict", NULL, 0, make_dict},
    {"namespace", NULL, 0, make_dict},
    {"cycler", NULL, 0, make_cycler},
    {"joiner", "sep", 0, make_joiner},
    {"lipsum", NULL, 0, jinja_not_offered},
    {"raise_exception", "message", 1, raise},
    {"strftime_now", "format", 1, format_now},
    {0}};

/* --- lists and mappings --- */

static loong_status_t list_index(run_t *r, const jinja_call_t *call,
                                 value_t *result)
{
    value_t all = call->self;
    if (all.kind == JINJA_RANGE) {
        LOONG_TRY(jinja_to_list(r, all, &all));
    }
    const jinja_list_t *list = jinja_list_of(all);
    bool counts = call->builtin->name[0] == 'c';
    int64_t bound[2] = {0, list->count};
    int64_t found = 0;
    LOONG_TRY(jinja_arg_int(r, call, 1, 0, &bound[0]));
    LOONG_TRY(jinja_arg_int(r, call, 2, list->count, &bound[1]));
    for (int k = 0; k < 2; k++) {
        bound[k] += bound[k] < 0 ? list->count : 0;
        bound[k] = LOONG_MAX(bound[k], (int64_t)0);
    }
    for (int64_t i = bound[0]; i < list->count && i < bound[1]; i++) {
        bool equal = false;
        LOONG_TRY(jinja_equal(r, list->items[i], call->arg[0], &equal));
        if (equal && !counts) {
            *result = loongi_jinja_int(i);
            return LOONG_OK;
        }
        found += equal;
    }
    *result = loongi_jinja_int(found);
    return counts ? LOONG_OK : jinja_fail(r, "the list has no such element");
}

static loong_status_t copy(run_t *r, const jinja_call_t *call, value_t *result)
{
    if (call->self.kind == JINJA_LIST) {
        return jinja_to_list(r, call->self, result);
    }
    LOONG_TRY(loongi_jinja_dict(r->heap, result));
    return add_pairs(r, *result, call->self);
}

static loong_status_t view(run_t *r, const jinja_call_t *call, value_t *result)
{
    jinja_view_t *made = NULL;
    char c = call->builtin->name[0];
    LOONG_TRY(jinja_new(r->heap, sizeof(*made), &made));
    made->dict = jinja_dict_of(call->self);
    made->what = c == 'k' ? JINJA_KEYS : c == 'v' ? JINJA_VALUES : JINJA_ITEMS;
    *result = jinja_object(JINJA_VIEW, made);
    return LOONG_OK;
}

static loong_status_t get(run_t *r, const jinja_call_t *call, value_t *result)
{
    const jinja_entry_t *entry = NULL;
    if (!jinja_hashable(call->arg[0])) {
        return jinja_fail(r, "%s cannot be a key",
                          jinja_type_name(call->arg[0]));
    }
    entry = jinja_dict_find(jinja_dict_of(call->self), call->arg[0]);
    *result = entry != NULL                        ? entry->value
              : call->arg[1].kind != JINJA_MISSING ? call->arg[1]
                                                   : loongi_jinja_none();
    return LOONG_OK;
}

const jinja_builtin_t jinja_tuple_methods[] = {
    {"index", "- - -", 1, list_index}, {"count", "-", 1, list_index}, {0}};

const jinja_builtin_t jinja_list_methods[] = {{"index", "- - -", 1, list_index},
                                              {"count", "-", 1, list_index},
                                              {"copy", "", 0, copy},
                                              {0}};

const jinja_builtin_t jinja_dict_methods[] = {
    {"items", "", 0, view}, {"keys", "", 0, view}, {"values", "", 0, view},
    {"get", "- -", 1, get}, {"copy", "", 0, copy}, {0}};
