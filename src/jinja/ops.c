/* SPDX-License-Identifier: Apache-2.0
 *
 * What values are: true, long, equal, less, in one another; as in Python.
 * Called by eval.c and the filters. Read run.h before. */
#define _GNU_SOURCE /* memmem */
#include <string.h>

#include "run.h"
#include "unicode_text.h"

const char *jinja_type_name(value_t value)
{
    static const char *const names[JINJA_KINDS] = {
        "nothing",  "Undefined", "None",        "bool",      "int",
        "float",    "str",       "list",        "tuple",     "dict",
        "range",    "a view",    "an iterator", "Namespace", "a function",
        "a method", "Macro",     "a loop",      "Cycler",    "Joiner"};
    return names[value.kind];
}

bool jinja_truth(value_t value)
{
    switch (value.kind) {
    case JINJA_MISSING:
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return value.as.truth;
    case JINJA_INT:
        return value.as.integer != 0;
    case JINJA_REAL:
        return value.as.real != 0;
    case JINJA_STRING:
        return value.length > 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
        return jinja_list_of(value)->count > 0;
    case JINJA_DICT:
        return jinja_dict_of(value)->count > 0;
    case JINJA_RANGE:
        return ((const jinja_range_t *)value.as.object)->count > 0;
    case JINJA_VIEW:
        return ((const jinja_view_t *)value.as.object)->dict->count > 0;
    default:
        return true;
    }
}

loong_status_t jinja_length(run_t *r, value_t value, int64_t *length_p)
{
    switch (value.kind) {
    case JINJA_UNDEFINED:
        *length_p = 0;
        return LOONG_OK;
    case JINJA_STRING:
        *length_p = jinja_count_points(value.as.text, value.length);
        return LOONG_OK;
    case JINJA_LIST:
    case JINJA_TUPLE:
        *length_p = jinja_list_of(value)->count;
        return LOONG_OK;
    case JINJA_DICT:
        *length_p = jinja_dict_of(value)->count;
        return LOONG_OK;
    case JINJA_RANGE:
        *length_p = ((const jinja_range_t *)value.as.object)->count;
        return LOONG_OK;
    case JINJA_VIEW:
        *length_p = ((const jinja_view_t *)value.as.object)->dict->count;
        return LOONG_OK;
    case JINJA_LOOP: {
        value_t length;
        LOONG_TRY(jinja_loop_member(r, (jinja_loop_t *)value.as.object,
                                    jinja_text("length"), &length));
        *length_p = length.as.integer;
        return LOONG_OK;
    }
    default:
        return jinja_fail(r, "%s has no length", jinja_type_name(value));
    }
}

static loong_status_t equal_lists(run_t *r, value_t a, value_t b, bool *equal)
{
    const jinja_list_t *x = jinja_list_of(a);
    const jinja_list_t *y = jinja_list_of(b);
    *equal = x->count == y->count;
    for (int64_t i = 0; *equal && i < x->count; i++) {
        LOONG_TRY(jinja_equal(r, x->items[i], y->items[i], equal));
    }
    return LOONG_OK;
}

static loong_status_t equal_dicts(run_t *r, value_t a, value_t b, bool *equal)
{
    const jinja_dict_t *x = jinja_dict_of(a);
    const jinja_dict_t *y = jinja_dict_of(b);
    *equal = x->count == y->count;
    for (int64_t i = 0; *equal && i < x->count; i++) {
        const jinja_entry_t *other = jinja_dict_find(y, x->entries[i].key);
        if (other == NULL) {
            *equal = false;
            break;
        }
        LOONG_TRY(jinja_equal(r, x->entries[i].value, other->value, equal));
    }
    return LOONG_OK;
}

static bool equal_ranges(value_t a, value_t b)
{
    const jinja_range_t *x = (const jinja_range_t *)a.as.object;
    const jinja_range_t *y = (const jinja_range_t *)b.as.object;
    return x->count == y->count &&
           (x->count == 0 ||
            (x->begin == y->begin && (x->count == 1 || x->step == y->step)));
}

loong_status_t jinja_equal(run_t *r, value_t a, value_t b, bool *equal_p)
{
    LOONG_TRY(jinja_step(r));
    if (a.kind != b.kind || a.kind < JINJA_LIST || a.kind == JINJA_NAMESPACE) {
        *equal_p = jinja_same_key(a, b);
        return LOONG_OK;
    }
    loong_status_t status = LOONG_OK;
    LOONG_TRY(jinja_enter(r));
    if (a.kind == JINJA_DICT) {
        status = equal_dicts(r, a, b, equal_p);
    } else if (a.kind == JINJA_LIST || a.kind == JINJA_TUPLE) {
        status = equal_lists(r, a, b, equal_p);
    } else if (a.kind == JINJA_RANGE) {
        *equal_p = equal_ranges(a, b);
    } else {
        *equal_p = a.as.object == b.as.object;
    }
    r->depth--;
    return status;
}

static int compare_texts(value_t a, value_t b)
{
    size_t length = LOONG_MIN(a.length, b.length);
    int order = length == 0 ? 0 : memcmp(a.as.text, b.as.text, length);
    return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
}

static bool is_ordered(jinja_piece_kind_t op, int order)
{
    switch (op) {
    case JINJA_P_LT:
        return order < 0;
    case JINJA_P_LTEQ:
        return order <= 0;
    case JINJA_P_GT:
        return order > 0;
    default:
        return order >= 0;
    }
}

/* By the first elements that differ, else by length. */
static loong_status_t order_lists(run_t *r, jinja_piece_kind_t op, value_t a,
                                  value_t b, bool *is_p)
{
    const jinja_list_t *x = jinja_list_of(a);
    const jinja_list_t *y = jinja_list_of(b);
    for (int64_t i = 0; i < x->count && i < y->count; i++) {
        bool equal = false;
        LOONG_TRY(jinja_equal(r, x->items[i], y->items[i], &equal));
        if (!equal) {
            LOONG_TRY(jinja_enter(r));
            LOONG_TRY(jinja_order(r, op, x->items[i], y->items[i], is_p));
            r->depth--;
            return LOONG_OK;
        }
    }
    *is_p = is_ordered(op, (x->count > y->count) - (x->count < y->count));
    return LOONG_OK;
}

loong_status_t jinja_order(run_t *r, jinja_piece_kind_t op, value_t a,
                           value_t b, bool *is_p)
{
    if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) {
        *is_p = is_ordered(op, compare_texts(a, b));
        return LOONG_OK;
    }
    if (jinja_is_number(a) && jinja_is_number(b)) {
        int order = jinja_compare_numbers(a, b);
        *is_p = order != 2 && is_ordered(op, order);
        return LOONG_OK;
    }
    if (a.kind == b.kind && (a.kind == JINJA_LIST || a.kind == JINJA_TUPLE)) {
        return order_lists(r, op, a, b, is_p);
    }
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED) {
        return jinja_fail_undefined(r, a.kind == JINJA_UNDEFINED ? a : b);
    }
    return jinja_fail(r, "%s and %s have no order (%s)", jinja_type_name(a),
                      jinja_type_name(b), jinja_piece_text(op));
}

loong_status_t jinja_compare(run_t *r, jinja_piece_kind_t op, value_t a,
                             value_t b, bool *is_p)
{
    switch (op) {
    case JINJA_P_EQ:
        return jinja_equal(r, a, b, is_p);
    case JINJA_P_NE:
        LOONG_TRY(jinja_equal(r, a, b, is_p));
        *is_p = !*is_p;
        return LOONG_OK;
    case JINJA_P_IN:
        return jinja_contains(r, b, a, is_p);
    case JINJA_P_NOT_IN:
        LOONG_TRY(jinja_contains(r, b, a, is_p));
        *is_p = !*is_p;
        return LOONG_OK;
    default:
        return jinja_order(r, op, a, b, is_p);
    }
}

int64_t jinja_find_text(value_t text, value_t needle, size_t from)
{
    if (from > text.length || needle.length > text.length - from) {
        return -1;
    }
    if (needle.length == 0) {
        return (int64_t)from;
    }
    const char *found = memmem(text.as.text + from, text.length - from,
                               needle.as.text, needle.length);
    return found == NULL ? -1 : found - text.as.text;
}

static loong_status_t contains_item(run_t *r, value_t in, value_t item,
                                    bool *is_p)
{
    jinja_iter_t it;
    value_t other;
    bool more = true;
    *is_p = false;
    LOONG_TRY(jinja_iterate(r, in, &it));
    while (!*is_p) {
        LOONG_TRY(jinja_iter_next(r, &it, &other, &more));
        if (!more) {
            break;
        }
        LOONG_TRY(jinja_equal(r, other, item, is_p));
    }
    return LOONG_OK;
}

loong_status_t jinja_contains(run_t *r, value_t in, value_t item, bool *is_p)
{
    if (in.kind == JINJA_STRING) {
        if (item.kind == JINJA_UNDEFINED) {
            return jinja_fail_undefined(r, item);
        }
        if (item.kind != JINJA_STRING) {
            return jinja_fail(r, "only a str can be in a str, not %s",
                              jinja_type_name(item));
        }
        *is_p = jinja_find_text(in, item, 0) >= 0;
        return LOONG_OK;
    }
    if (in.kind == JINJA_DICT) {
        if (!jinja_hashable(item)) {
            return jinja_fail(r, "%s cannot be a key", jinja_type_name(item));
        }
        *is_p = jinja_dict_find(jinja_dict_of(in), item) != NULL;
        return LOONG_OK;
    }
    if (!jinja_is_iterable(in)) {
        return jinja_fail(r, "nothing can be in %s", jinja_type_name(in));
    }
    return contains_item(r, in, item, is_p);
}

loong_status_t jinja_put(run_t *r, value_t dict, value_t key, value_t value)
{
    if (!jinja_hashable(key)) {
        return jinja_fail(r, "%s cannot be a key", jinja_type_name(key));
    }
    return jinja_dict_put(r->heap, jinja_dict_of(dict), key, value);
}
