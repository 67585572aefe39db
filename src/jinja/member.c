/* SPDX-License-Identifier: Apache-2.0
 *
 * a.b, a[b] and a[b:c], with what the sandbox of transformers allows. Called
 * by eval.c and filters. Read run.h before. */
#include <string.h>

#include "run.h"
#include "unicode_text.h"
#include "utf8.h"

value_t jinja_undefined(const char *hint)
{
    value_t value = jinja_value(JINJA_UNDEFINED);
    value.about = JINJA_A_HINT;
    value.as.text = hint;
    value.length = strlen(hint);
    return value;
}

/* Methods that change what they are called on, which a template may not. */
static bool changes(value_t of, value_t name)
{
    static const char *const changing[] = {
        "append", "clear",   "extend", "insert",     "pop",   "popitem",
        "remove", "reverse", "sort",   "setdefault", "update"};
    if (of.kind != JINJA_LIST && of.kind != JINJA_DICT) {
        return false;
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(changing) && name.length > 0; i++) {
        if (changing[i][0] == name.as.text[0] && jinja_is(name, changing[i])) {
            return true;
        }
    }
    return false;
}

static value_t no_member(value_t of, value_t name)
{
    value_t value = jinja_value(JINJA_UNDEFINED);
    if (name.kind != JINJA_STRING) {
        return jinja_undefined("there is no such element");
    }
    value.about = changes(of, name) ? JINJA_UNSAFE : of.kind;
    value.as.text = name.as.text;
    value.length = name.length;
    return value;
}

const jinja_builtin_t *jinja_find_method(value_t of, value_t name)
{
    const jinja_builtin_t *row = NULL;
    switch (of.kind) {
    case JINJA_STRING:
        row = jinja_find_row(jinja_str_methods, name);
        return row != NULL ? row : jinja_find_row(jinja_str_questions, name);
    case JINJA_LIST:
        return jinja_find_row(jinja_list_methods, name);
    case JINJA_TUPLE:
    case JINJA_RANGE:
        return jinja_find_row(jinja_tuple_methods, name);
    case JINJA_DICT:
        return jinja_find_row(jinja_dict_methods, name);
    case JINJA_LOOP:
        return jinja_find_row(jinja_loop_methods, name);
    case JINJA_CYCLER:
        return jinja_find_row(jinja_cycler_methods, name);
    default:
        return NULL;
    }
}

/* What is no key and no element; MISSING: there is none. */
static loong_status_t find_attribute(run_t *r, value_t of, value_t name,
                                     value_t *value_p)
{
    const jinja_builtin_t *row = jinja_find_method(of, name);
    *value_p = jinja_value(JINJA_MISSING);
    if (row != NULL) {
        jinja_method_t *method = NULL;
        LOONG_TRY(jinja_new(r->heap, sizeof(*method), &method));
        method->row = row;
        method->self = of;
        *value_p = jinja_object(JINJA_METHOD, method);
        return LOONG_OK;
    }
    if (of.kind == JINJA_LOOP) {
        return jinja_loop_member(r, (jinja_loop_t *)of.as.object, name,
                                 value_p);
    }
    if (of.kind == JINJA_NAMESPACE) {
        const jinja_entry_t *entry = jinja_dict_find(jinja_dict_of(of), name);
        *value_p = entry != NULL ? entry->value : *value_p;
    } else if (of.kind == JINJA_CYCLER && jinja_is(name, "current")) {
        const jinja_cycler_t *cycler = (jinja_cycler_t *)of.as.object;
        *value_p = cycler->items->items[cycler->at];
    } else if (of.kind == JINJA_TUPLE && of.about != 0) { /* of groupby */
        *value_p = jinja_is(name, "grouper") ? jinja_list_of(of)->items[0]
                   : jinja_is(name, "list")  ? jinja_list_of(of)->items[1]
                                             : *value_p;
    } else if (of.kind == JINJA_MACRO && jinja_is(name, "name")) {
        const jinja_node_t *node = ((jinja_macro_t *)of.as.object)->node;
        *value_p =
            node->kind == JINJA_N_MACRO ? node->value : loongi_jinja_none();
    }
    return LOONG_OK;
}

/* Number n of a text, list, tuple or range; MISSING out of range. */
static loong_status_t at_index(run_t *r, value_t of, int64_t n,
                               value_t *value_p)
{
    int64_t count = 0;
    *value_p = jinja_value(JINJA_MISSING);
    if (of.kind == JINJA_STRING && n >= 0) { /* without counting all of it */
        size_t at = jinja_find_point(of.as.text, of.length, n);
        size_t length = 0;
        if (at < of.length) {
            loongi_utf8_get(of.as.text + at, &length);
            *value_p = loongi_jinja_string(of.as.text + at, length);
        }
        return LOONG_OK;
    }
    LOONG_TRY(jinja_length(r, of, &count));
    n = n < 0 ? n + count : n;
    if (n < 0 || n >= count) {
        return LOONG_OK;
    }
    if (of.kind == JINJA_STRING) {
        return at_index(r, of, n, value_p);
    }
    if (of.kind == JINJA_RANGE) {
        const jinja_range_t *range = (jinja_range_t *)of.as.object;
        *value_p = loongi_jinja_int(range->begin + n * range->step);
    } else {
        *value_p = jinja_list_of(of)->items[n];
    }
    return LOONG_OK;
}

static loong_status_t find_item(run_t *r, value_t of, value_t key,
                                value_t *value_p)
{
    *value_p = jinja_value(JINJA_MISSING);
    if (of.kind == JINJA_DICT) {
        const jinja_entry_t *entry =
            jinja_hashable(key) ? jinja_dict_find(jinja_dict_of(of), key)
                                : NULL;
        *value_p = entry != NULL ? entry->value : *value_p;
    } else if (jinja_is_int(key) &&
               (of.kind == JINJA_STRING || of.kind == JINJA_LIST ||
                of.kind == JINJA_TUPLE || of.kind == JINJA_RANGE)) {
        return at_index(r, of, jinja_int_of(key), value_p);
    }
    return LOONG_OK;
}

loong_status_t jinja_getattr(run_t *r, value_t of, value_t name,
                             value_t *value_p)
{
    if (of.kind == JINJA_UNDEFINED) {
        return jinja_fail_undefined(r, of);
    }
    LOONG_TRY(find_attribute(r, of, name, value_p));
    if (value_p->kind == JINJA_MISSING && of.kind == JINJA_DICT &&
        !changes(of, name)) {
        const jinja_entry_t *entry = jinja_dict_find(jinja_dict_of(of), name);
        *value_p = entry != NULL ? entry->value : *value_p;
    }
    if (value_p->kind == JINJA_MISSING) {
        *value_p = no_member(of, name);
    }
    return LOONG_OK;
}

loong_status_t jinja_getitem(run_t *r, value_t of, value_t key,
                             value_t *value_p)
{
    if (of.kind == JINJA_UNDEFINED) {
        return jinja_fail_undefined(r, of);
    }
    LOONG_TRY(find_item(r, of, key, value_p));
    if (value_p->kind == JINJA_MISSING && key.kind == JINJA_STRING) {
        LOONG_TRY(find_attribute(r, of, key, value_p));
    }
    if (value_p->kind == JINJA_MISSING) {
        *value_p = no_member(of, key);
    }
    return LOONG_OK;
}

/* --- slices --- */

typedef struct bounds {
    int64_t begin, step, count;
} bounds_t;

static int64_t clamp(int64_t at, int64_t count, int64_t least, int64_t most)
{
    at = at < 0 ? at + count : at;
    return at < least ? least : at > most ? most : at;
}

static loong_status_t find_bounds(run_t *r, const value_t bound[3],
                                  int64_t count, bounds_t *b)
{
    for (int k = 0; k < 3; k++) {
        if (bound[k].kind == JINJA_UNDEFINED) {
            return jinja_fail_undefined(r, bound[k]);
        }
        if (bound[k].kind != JINJA_NONE && !jinja_is_int(bound[k])) {
            return jinja_fail(r, "a slice has integers, not %s",
                              jinja_type_name(bound[k]));
        }
    }
    int64_t step = bound[2].kind == JINJA_NONE ? 1 : jinja_int_of(bound[2]);
    if (step == 0) {
        return jinja_fail(r, "a slice with steps of zero");
    }
    step = LOONG_MAX(step, -(int64_t)(1ll << 60));
    int64_t least = step > 0 ? 0 : -1;
    int64_t most = step > 0 ? count : count - 1;
    int64_t begin = bound[0].kind == JINJA_NONE
                        ? (step > 0 ? least : most)
                        : clamp(jinja_int_of(bound[0]), count, least, most);
    int64_t end = bound[1].kind == JINJA_NONE
                      ? (step > 0 ? most : least)
                      : clamp(jinja_int_of(bound[1]), count, least, most);
    b->begin = begin;
    b->step = step;
    b->count = step > 0 ? (end > begin ? (end - begin - 1) / step + 1 : 0)
                        : (begin > end ? (begin - end - 1) / -step + 1 : 0);
    return LOONG_OK;
}

static loong_status_t slice_text(run_t *r, value_t text, const bounds_t *b,
                                 value_t *value_p)
{
    if (b->step == 1) {
        size_t begin = jinja_find_point(text.as.text, text.length, b->begin);
        size_t length = jinja_find_point(text.as.text + begin,
                                         text.length - begin, b->count);
        bool markup = text.markup;
        *value_p = loongi_jinja_string(text.as.text + begin, length);
        value_p->markup = markup;
        return LOONG_OK;
    }
    size_t *begins = NULL;
    size_t mark = jinja_mark(r);
    int64_t count = jinja_count_points(text.as.text, text.length);
    LOONG_TRY(
        jinja_new(r->heap, (size_t)(count + 1) * sizeof(*begins), &begins));
    begins[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        begins[i + 1] = begins[i];
        loongi_utf8_get(text.as.text + begins[i], &begins[i + 1]);
    }
    for (int64_t i = 0; i < b->count; i++) {
        int64_t n = b->begin + i * b->step;
        LOONG_TRY(
            jinja_emit(r, text.as.text + begins[n], begins[n + 1] - begins[n]));
    }
    LOONG_TRY(jinja_take(r, mark, value_p));
    value_p->markup = text.markup;
    return LOONG_OK;
}

bool jinja_can_slice(value_t of, const value_t bound[3])
{
    for (int k = 0; k < 3; k++) {
        if (bound[k].kind != JINJA_NONE && !jinja_is_int(bound[k])) {
            return false;
        }
    }
    return of.kind >= JINJA_STRING && of.kind <= JINJA_RANGE &&
           of.kind != JINJA_DICT;
}

loong_status_t jinja_slice(run_t *r, value_t of, const value_t bound[3],
                           value_t *value_p)
{
    bounds_t b = {0};
    int64_t count = 0;
    if (of.kind == JINJA_UNDEFINED) {
        return jinja_fail_undefined(r, of);
    }
    if (of.kind < JINJA_STRING || of.kind > JINJA_RANGE ||
        of.kind == JINJA_DICT) {
        return jinja_fail(r, "%s cannot be sliced", jinja_type_name(of));
    }
    LOONG_TRY(jinja_length(r, of, &count));
    LOONG_TRY(find_bounds(r, bound, count, &b));
    if (of.kind == JINJA_STRING) {
        return slice_text(r, of, &b, value_p);
    }
    if (of.kind == JINJA_RANGE) {
        const jinja_range_t *range = (jinja_range_t *)of.as.object;
        jinja_range_t *part = NULL;
        LOONG_TRY(jinja_new(r->heap, sizeof(*part), &part));
        part->begin = range->begin + b.begin * range->step;
        part->step = range->step * (b.count > 1 ? b.step : 1);
        part->count = b.count;
        *value_p = jinja_object(JINJA_RANGE, part);
        return LOONG_OK;
    }
    LOONG_TRY(jinja_list_new(r->heap, of.kind, b.count, value_p));
    for (int64_t i = 0; i < b.count; i++) {
        LOONG_TRY(jinja_step(r));
        jinja_list_of(*value_p)->items[i] =
            jinja_list_of(of)->items[b.begin + i * b.step];
    }
    return LOONG_OK;
}
