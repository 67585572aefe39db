/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters that take and give sequences. Called by call.c. Read text.h
 * before. */
#include <string.h>

#include "sort.h"
#include "text.h"

static loong_status_t first(run_t *r, const jinja_call_t *call, value_t *result)
{
    jinja_iter_t it;
    bool more = true;
    LOONG_TRY(jinja_iterate(r, call->self, &it));
    LOONG_TRY(jinja_iter_next(r, &it, result, &more));
    if (!more) {
        *result = jinja_undefined("there is no first item");
    }
    return LOONG_OK;
}

static loong_status_t last(run_t *r, const jinja_call_t *call, value_t *result)
{
    value_t list;
    if (call->self.kind == JINJA_ITERATOR) {
        return jinja_fail(r, "an iterator has no last item; make a list of it");
    }
    LOONG_TRY(jinja_to_list(r, call->self, &list));
    const jinja_list_t *items = jinja_list_of(list);
    *result = items->count > 0 ? items->items[items->count - 1]
                               : jinja_undefined("there is no last item");
    return LOONG_OK;
}

static loong_status_t list(run_t *r, const jinja_call_t *call, value_t *result)
{
    return jinja_to_list(r, call->self, result);
}

static loong_status_t join(run_t *r, const jinja_call_t *call, value_t *result)
{
    value_t between = jinja_text("");
    value_t items = call->self;
    if (call->arg[0].kind != JINJA_MISSING) {
        LOONG_TRY(jinja_to_text(r, call->arg[0], &between));
    }
    if (jinja_arg_given(call, 1)) {
        LOONG_TRY(jinja_to_list(r, items, &items));
        jinja_list_t *l = jinja_list_of(items);
        for (int64_t i = 0; i < l->count; i++) {
            LOONG_TRY(jinja_get_path(r, l->items[i], call->arg[1], NULL,
                                     &l->items[i]));
        }
    }
    return jinja_join(r, between, items, false, result);
}

static loong_status_t reverse(run_t *r, const jinja_call_t *call,
                              value_t *result)
{
    value_t items;
    size_t mark = jinja_mark(r);
    LOONG_TRY(jinja_to_list(r, call->self, &items));
    jinja_list_t *l = jinja_list_of(items);
    if (call->self.kind == JINJA_STRING) {
        for (int64_t i = l->count; i-- > 0;) {
            LOONG_TRY(jinja_print(r, l->items[i]));
        }
        return jinja_take(r, mark, result);
    }
    for (int64_t i = 0, k = l->count - 1; i < k; i++, k--) {
        value_t item = l->items[i];
        l->items[i] = l->items[k];
        l->items[k] = item;
    }
    if (call->self.kind == JINJA_ITERATOR) {
        *result = items;
        return LOONG_OK;
    }
    return jinja_to_iterator(r, items, result);
}

static loong_status_t items_of(run_t *r, const jinja_call_t *call,
                               value_t *result)
{
    jinja_view_t *view = NULL;
    value_t empty;
    if (call->self.kind == JINJA_UNDEFINED) {
        LOONG_TRY(loongi_jinja_list(r->heap, &empty));
        return jinja_to_iterator(r, empty, result);
    }
    if (call->self.kind != JINJA_DICT) {
        return jinja_fail(r, "items needs a mapping, not %s",
                          jinja_type_name(call->self));
    }
    LOONG_TRY(jinja_new(r->heap, sizeof(*view), &view));
    view->dict = jinja_dict_of(call->self);
    view->what = JINJA_ITEMS;
    return jinja_to_iterator(r, jinja_object(JINJA_VIEW, view), result);
}

static loong_status_t sum(run_t *r, const jinja_call_t *call, value_t *result)
{
    jinja_iter_t it;
    value_t item;
    bool more = true;
    value_t total =
        call->arg[1].kind != JINJA_MISSING ? call->arg[1] : loongi_jinja_int(0);
    if (total.kind == JINJA_STRING) {
        return jinja_fail(r, "sum adds no texts; join them");
    }
    LOONG_TRY(jinja_iterate(r, call->self, &it));
    for (;;) {
        LOONG_TRY(jinja_iter_next(r, &it, &item, &more));
        if (!more) {
            *result = total;
            return LOONG_OK;
        }
        if (jinja_arg_given(call, 0)) {
            LOONG_TRY(jinja_get_path(r, item, call->arg[0], NULL, &item));
        }
        LOONG_TRY(jinja_binary(r, JINJA_P_ADD, total, item, &total));
    }
}

/* Lists of so many elements; the last one filled up if asked for. */
static loong_status_t batch(run_t *r, const jinja_call_t *call, value_t *result)
{
    jinja_iter_t it;
    value_t item, lists, part;
    bool more = true;
    int64_t size = 0;
    LOONG_TRY(jinja_arg_int(r, call, 0, 0, &size));
    LOONG_TRY(jinja_iterate(r, call->self, &it));
    LOONG_TRY(loongi_jinja_list(r->heap, &lists));
    LOONG_TRY(loongi_jinja_list(r->heap, &part));
    for (;;) {
        LOONG_TRY(jinja_iter_next(r, &it, &item, &more));
        if (!more) {
            break;
        }
        if (jinja_list_of(part)->count == size) {
            LOONG_TRY(loongi_jinja_add(r->heap, lists, part));
            LOONG_TRY(loongi_jinja_list(r->heap, &part));
        }
        LOONG_TRY(loongi_jinja_add(r->heap, part, item));
    }
    if (jinja_list_of(part)->count > 0) {
        while (jinja_arg_given(call, 1) && jinja_list_of(part)->count < size) {
            LOONG_TRY(jinja_step(r));
            LOONG_TRY(loongi_jinja_add(r->heap, part, call->arg[1]));
        }
        LOONG_TRY(loongi_jinja_add(r->heap, lists, part));
    }
    return jinja_to_iterator(r, lists, result);
}

/* So many lists, the first ones longer by one where it does not divide. */
static loong_status_t slice(run_t *r, const jinja_call_t *call, value_t *result)
{
    value_t all, lists, part;
    int64_t slices = 0;
    int64_t at = 0;
    LOONG_TRY(jinja_arg_int(r, call, 0, 0, &slices));
    LOONG_TRY(jinja_to_list(r, call->self, &all));
    LOONG_TRY(loongi_jinja_list(r->heap, &lists));
    if (slices == 0) {
        return jinja_fail(r, "division by zero: slice into 0 lists");
    }
    const jinja_list_t *l = jinja_list_of(all);
    int64_t longer = slices > 0 ? l->count % slices : 0;
    for (int64_t i = 0; i < slices; i++) {
        int64_t size = l->count / slices + (i < longer);
        LOONG_TRY(jinja_step(r));
        LOONG_TRY(loongi_jinja_list(r->heap, &part));
        for (int64_t k = 0; k < size; k++) {
            LOONG_TRY(loongi_jinja_add(r->heap, part, l->items[at++]));
        }
        if (jinja_arg_given(call, 1) && i >= longer) {
            LOONG_TRY(loongi_jinja_add(r->heap, part, call->arg[1]));
        }
        LOONG_TRY(loongi_jinja_add(r->heap, lists, part));
    }
    return jinja_to_iterator(r, lists, result);
}

static loong_status_t unique(run_t *r, const jinja_call_t *call,
                             value_t *result)
{
    jinja_iter_t it;
    value_t item, key, list_found, seen;
    bool more = true;
    LOONG_TRY(jinja_iterate(r, call->self, &it));
    LOONG_TRY(loongi_jinja_list(r->heap, &list_found));
    LOONG_TRY(loongi_jinja_dict(r->heap, &seen));
    for (;;) {
        LOONG_TRY(jinja_iter_next(r, &it, &item, &more));
        if (!more) {
            return jinja_to_iterator(r, list_found, result);
        }
        LOONG_TRY(jinja_sort_key(r, item, call->arg[1],
                                 jinja_arg_truth(call, 0, false), &key));
        if (!jinja_hashable(key)) {
            return jinja_fail(r, "%s cannot be a key", jinja_type_name(key));
        }
        if (jinja_dict_find(jinja_dict_of(seen), key) == NULL) {
            LOONG_TRY(jinja_put(r, seen, key, item));
            LOONG_TRY(loongi_jinja_add(r->heap, list_found, item));
        }
    }
}

static loong_status_t extreme(run_t *r, const jinja_call_t *call,
                              value_t *result)
{
    jinja_piece_kind_t op =
        strcmp(call->builtin->name, "min") == 0 ? JINJA_P_LT : JINJA_P_GT;
    bool exact = jinja_arg_truth(call, 0, false);
    jinja_iter_t it;
    value_t item, key, best;
    bool more = true;
    bool better = true;
    LOONG_TRY(jinja_iterate(r, call->self, &it));
    *result = jinja_undefined("there is no item, the sequence is empty");
    for (int64_t i = 0;; i++) {
        LOONG_TRY(jinja_iter_next(r, &it, &item, &more));
        if (!more) {
            return LOONG_OK;
        }
        LOONG_TRY(jinja_sort_key(r, item, call->arg[1], exact, &key));
        if (i > 0) {
            LOONG_TRY(jinja_order(r, op, key, best, &better));
        }
        if (better) {
            *result = item;
            best = key;
        }
    }
}

static loong_status_t sort(run_t *r, const jinja_call_t *call, value_t *result)
{
    return jinja_sort(
        r, call->self,
        &(const jinja_order_t){.reverse = jinja_arg_truth(call, 0, false),
                               .exact = jinja_arg_truth(call, 1, false),
                               .several = true,
                               .attribute = call->arg[2]},
        result);
}

static loong_status_t dict_sort(run_t *r, const jinja_call_t *call,
                                value_t *result)
{
    value_t by;
    jinja_view_t view = {.what = JINJA_ITEMS};
    LOONG_TRY(jinja_arg_text(r, call, 1, "key", &by));
    if (!jinja_is(by, "key") && !jinja_is(by, "value")) {
        return jinja_fail(r, "dictsort by key or value, not '%.*s'",
                          (int)LOONG_MIN(by.length, (size_t)60), by.as.text);
    }
    if (call->self.kind != JINJA_DICT) {
        return call->self.kind == JINJA_UNDEFINED
                   ? jinja_fail_undefined(r, call->self)
                   : jinja_fail(r, "dictsort needs a mapping, not %s",
                                jinja_type_name(call->self));
    }
    view.dict = jinja_dict_of(call->self);
    return jinja_sort(r, jinja_object(JINJA_VIEW, &view),
                      &(const jinja_order_t){
                          .reverse = jinja_arg_truth(call, 2, false),
                          .exact = jinja_arg_truth(call, 0, false),
                          .attribute = loongi_jinja_int(jinja_is(by, "value"))},
                      result);
}

static loong_status_t add_group(run_t *r, value_t groups, value_t grouper,
                                value_t members)
{
    value_t group;
    LOONG_TRY(jinja_list_new(r->heap, JINJA_TUPLE, 2, &group));
    group.about = 1; /* its elements have names */
    jinja_list_of(group)->items[0] = grouper;
    jinja_list_of(group)->items[1] = members;
    return loongi_jinja_add(r->heap, groups, group);
}

static loong_status_t group_by(run_t *r, const jinja_call_t *call,
                               value_t *result)
{
    jinja_order_t order = {.exact = jinja_arg_truth(call, 2, false),
                           .attribute = call->arg[0]};
    value_t sorted, key, grouper, groups, before;
    value_t members = jinja_value(0);
    order.otherwise = jinja_arg_given(call, 1) ? &call->arg[1] : NULL;
    LOONG_TRY(jinja_sort(r, call->self, &order, &sorted));
    LOONG_TRY(loongi_jinja_list(r->heap, &groups));
    const jinja_list_t *list_sorted = jinja_list_of(sorted);
    for (int64_t i = 0; i < list_sorted->count; i++) {
        bool same = false;
        value_t item = list_sorted->items[i];
        LOONG_TRY(
            jinja_get_path(r, item, call->arg[0], order.otherwise, &grouper));
        key = grouper;
        if (!order.exact) {
            LOONG_TRY(jinja_fold_case(r, grouper, &key));
        }
        if (i > 0) {
            LOONG_TRY(jinja_equal(r, key, before, &same));
        }
        if (!same) {
            LOONG_TRY(loongi_jinja_list(r->heap, &members));
            LOONG_TRY(add_group(r, groups, grouper, members));
        }
        LOONG_TRY(loongi_jinja_add(r->heap, members, item));
        before = key;
    }
    *result = groups;
    return LOONG_OK;
}

const jinja_builtin_t jinja_list_filters[] = {
    {"first", "", 0, first},
    {"last", "", 0, last},
    {"list", "", 0, list},
    {"join", "d attribute", 0, join},
    {"reverse", "", 0, reverse},
    {"items", "", 0, items_of},
    {"sum", "attribute start", 0, sum},
    {"batch", "linecount fill_with", 1, batch},
    {"slice", "slices fill_with", 1, slice},
    {"unique", "case_sensitive attribute", 0, unique},
    {"min", "case_sensitive attribute", 0, extreme},
    {"max", "case_sensitive attribute", 0, extreme},
    {"sort", "reverse case_sensitive attribute", 0, sort},
    {"dictsort", "case_sensitive by reverse", 0, dict_sort},
    {"groupby", "attribute default case_sensitive", 1, group_by},
    {"random", NULL, 0, jinja_not_offered},
    {0}};
