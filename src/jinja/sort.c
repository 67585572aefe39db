/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorts items by what an attribute of them is; merges, so that equal items
 * stay in order. Called by list_filters.c. Read sort.h before. */
#include <string.h>

#include "sort.h"
#include "text.h"

typedef struct keyed {
    value_t key, item;
} keyed_t;

loong_status_t jinja_fold_case(run_t *r, value_t value, value_t *folded_p)
{
    *folded_p = value;
    return value.kind == JINJA_STRING
               ? jinja_change_text(r, value, JINJA_LOWERCASE, folded_p)
               : LOONG_OK;
}

loong_status_t jinja_sort_key(run_t *r, value_t item, value_t attribute,
                              bool exact, value_t *key_p)
{
    LOONG_TRY(jinja_get_path(r, item, attribute, NULL, key_p));
    return exact ? LOONG_OK : jinja_fold_case(r, *key_p, key_p);
}

/* A list of one key for each attribute. */
static loong_status_t key_of(run_t *r, value_t item, const jinja_order_t *order,
                             value_t *key_p)
{
    value_t attribute = order->attribute;
    if (!order->several) {
        LOONG_TRY(jinja_get_path(r, item, attribute, order->otherwise, key_p));
        return order->exact ? LOONG_OK : jinja_fold_case(r, *key_p, key_p);
    }
    value_t keys, key;
    LOONG_TRY(loongi_jinja_list(r->heap, &keys));
    for (size_t at = 0;;) {
        value_t part = attribute;
        const char *comma = NULL;
        if (attribute.kind == JINJA_STRING) {
            part = loongi_jinja_string(attribute.as.text + at,
                                       attribute.length - at);
            comma =
                part.length > 0 ? memchr(part.as.text, ',', part.length) : NULL;
            part.length =
                comma != NULL ? (size_t)(comma - part.as.text) : part.length;
        }
        LOONG_TRY(jinja_sort_key(r, item, part, order->exact, &key));
        LOONG_TRY(loongi_jinja_add(r->heap, keys, key));
        if (comma == NULL) {
            *key_p = keys;
            return LOONG_OK;
        }
        at += part.length + 1;
    }
}

/* [begin, middle) and [middle, end) of from, each sorted, into to. */
static loong_status_t merge(run_t *r, const keyed_t *from, keyed_t *to,
                            const int64_t part[3], bool reverse)
{
    int64_t a = part[0];
    int64_t b = part[1];
    for (int64_t i = part[0]; i < part[2]; i++) {
        bool take_b = a == part[1];
        if (!take_b && b < part[2]) {
            LOONG_TRY(jinja_order(r, reverse ? JINJA_P_GT : JINJA_P_LT,
                                  from[b].key, from[a].key, &take_b));
        }
        to[i] = take_b ? from[b++] : from[a++];
    }
    return LOONG_OK;
}

loong_status_t jinja_sort(run_t *r, value_t items, const jinja_order_t *order,
                          value_t *list_p)
{
    value_t list;
    keyed_t *from = NULL;
    keyed_t *to = NULL;
    LOONG_TRY(jinja_to_list(r, items, &list));
    jinja_list_t *l = jinja_list_of(list);
    size_t size = (size_t)l->count * sizeof(*from);
    LOONG_TRY(jinja_new(r->heap, size, &from));
    LOONG_TRY(jinja_new(r->heap, size, &to));
    for (int64_t i = 0; i < l->count; i++) {
        from[i].item = l->items[i];
        LOONG_TRY(key_of(r, l->items[i], order, &from[i].key));
    }
    for (int64_t width = 1; width < l->count; width *= 2) {
        for (int64_t at = 0; at < l->count; at += 2 * width) {
            const int64_t part[3] = {at, LOONG_MIN(at + width, l->count),
                                     LOONG_MIN(at + 2 * width, l->count)};
            LOONG_TRY(merge(r, from, to, part, order->reverse));
        }
        keyed_t *swap = from;
        from = to;
        to = swap;
    }
    for (int64_t i = 0; i < l->count; i++) {
        l->items[i] = from[i].item;
    }
    *list_p = list;
    return LOONG_OK;
}
