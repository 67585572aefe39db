/* SPDX-License-Identifier: Apache-2.0
 *
 * Going through what values hold. Called by loops and filters. Read run.h
 * before. */
#include <string.h>

#include "run.h"
#include "unicode_text.h"
#include "utf8.h"

bool jinja_is_iterable(value_t value)
{
    return value.kind == JINJA_UNDEFINED ||
           (value.kind >= JINJA_STRING && value.kind <= JINJA_ITERATOR);
}

loong_status_t jinja_iterate(run_t *r, value_t over, jinja_iter_t *it)
{
    if (!jinja_is_iterable(over)) {
        return jinja_fail(r, "%s cannot be iterated over",
                          jinja_type_name(over));
    }
    it->over = over;
    it->at = 0;
    return LOONG_OK;
}

static loong_status_t view_item(run_t *r, const jinja_view_t *view, int64_t at,
                                value_t *item_p)
{
    const jinja_entry_t *entry = &view->dict->entries[at];
    if (view->what != JINJA_ITEMS) {
        *item_p = view->what == JINJA_KEYS ? entry->key : entry->value;
        return LOONG_OK;
    }
    LOONG_TRY(jinja_list_new(r->heap, JINJA_TUPLE, 2, item_p));
    jinja_list_of(*item_p)->items[0] = entry->key;
    jinja_list_of(*item_p)->items[1] = entry->value;
    return LOONG_OK;
}

static bool next_point(jinja_iter_t *it, value_t *item_p)
{
    size_t length = 0;
    const char *text = it->over.as.text + it->at;
    if ((size_t)it->at >= it->over.length) {
        return false;
    }
    loongi_utf8_get(text, &length);
    *item_p = loongi_jinja_string(text, length);
    it->at += (int64_t)length;
    return true;
}

loong_status_t jinja_iter_next(run_t *r, jinja_iter_t *it, value_t *item_p,
                               bool *is_p)
{
    int64_t count = 0;
    LOONG_TRY(jinja_step(r));
    while (it->over.kind == JINJA_ITERATOR) { /* all who use it share it */
        it = (jinja_iter_t *)it->over.as.object;
    }
    if (it->over.kind == JINJA_STRING) {
        *is_p = next_point(it, item_p);
        return LOONG_OK;
    }
    LOONG_TRY(jinja_length(r, it->over, &count));
    *is_p = it->at < count;
    if (!*is_p) {
        return LOONG_OK;
    }
    int64_t at = it->at++;
    switch (it->over.kind) {
    case JINJA_DICT:
        *item_p = jinja_dict_of(it->over)->entries[at].key;
        return LOONG_OK;
    case JINJA_RANGE: {
        const jinja_range_t *range = (jinja_range_t *)it->over.as.object;
        *item_p = loongi_jinja_int(range->begin + at * range->step);
        return LOONG_OK;
    }
    case JINJA_VIEW:
        return view_item(r, (jinja_view_t *)it->over.as.object, at, item_p);
    default:
        *item_p = jinja_list_of(it->over)->items[at];
        return LOONG_OK;
    }
}

loong_status_t jinja_to_list(run_t *r, value_t value, value_t *list_p)
{
    jinja_iter_t it;
    value_t list, item;
    bool more = true;
    LOONG_TRY(jinja_iterate(r, value, &it));
    LOONG_TRY(loongi_jinja_list(r->heap, &list));
    for (;;) {
        LOONG_TRY(jinja_iter_next(r, &it, &item, &more));
        if (!more) {
            *list_p = list;
            return LOONG_OK;
        }
        LOONG_TRY(loongi_jinja_add(r->heap, list, item));
    }
}

loong_status_t jinja_to_iterator(run_t *r, value_t list, value_t *iterator_p)
{
    jinja_iter_t *it = NULL;
    LOONG_TRY(jinja_new(r->heap, sizeof(*it), &it));
    it->over = list;
    it->at = 0;
    *iterator_p = jinja_object(JINJA_ITERATOR, it);
    return LOONG_OK;
}
