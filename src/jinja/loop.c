/* SPDX-License-Identifier: Apache-2.0
 *
 * For loops, and what a template asks `loop` for. Called by exec.c. Read run.h
 * before. */
#include "run.h"

/* The next element that the condition of the loop takes. The condition runs
 * between the bodies, and may see what they did. */
static loong_status_t draw(run_t *r, jinja_loop_t *loop, value_t *item_p,
                           bool *is_p)
{
    const jinja_node_t *node = loop->node;
    for (;;) {
        value_t test;
        LOONG_TRY(jinja_iter_next(r, &loop->source, item_p, is_p));
        if (!*is_p || node->c == NULL || loop->length >= 0) {
            return LOONG_OK;
        }
        jinja_scope_t *inside = r->scope;
        LOONG_TRY(jinja_scope_new(r, loop->outside, &r->scope));
        LOONG_TRY(jinja_assign(r, node->a, *item_p));
        LOONG_TRY(jinja_eval(r, node->c, &test));
        r->scope = inside;
        if (jinja_truth(test)) {
            return LOONG_OK;
        }
    }
}

static loong_status_t peek(run_t *r, jinja_loop_t *loop)
{
    bool more = false;
    if (loop->after.kind == JINJA_MISSING) {
        value_t item;
        LOONG_TRY(draw(r, loop, &item, &more));
        loop->after = more ? item : loop->after;
    }
    return LOONG_OK;
}

static loong_status_t advance(run_t *r, jinja_loop_t *loop, bool *more_p)
{
    value_t item = loop->after;
    *more_p = item.kind != JINJA_MISSING;
    if (*more_p) {
        loop->after = jinja_value(JINJA_MISSING);
    } else {
        LOONG_TRY(draw(r, loop, &item, more_p));
    }
    if (*more_p) {
        loop->index0++;
        loop->before = loop->current;
        loop->current = item;
    }
    return LOONG_OK;
}

/* Of what has no length of its own all is drawn to count it. */
static loong_status_t count(run_t *r, jinja_loop_t *loop)
{
    value_t rest, item;
    bool more = true;
    if (loop->length >= 0) {
        return LOONG_OK;
    }
    if (loop->node->c == NULL && loop->over.kind != JINJA_ITERATOR) {
        return jinja_length(r, loop->over, &loop->length);
    }
    LOONG_TRY(loongi_jinja_list(r->heap, &rest));
    for (;;) {
        LOONG_TRY(draw(r, loop, &item, &more));
        if (!more) {
            break;
        }
        LOONG_TRY(loongi_jinja_add(r->heap, rest, item));
    }
    loop->length = jinja_list_of(rest)->count + loop->index0 + 1 +
                   (loop->after.kind != JINJA_MISSING);
    return jinja_iterate(r, rest, &loop->source);
}

static loong_status_t run_body(run_t *r, jinja_loop_t *loop, bool *ran)
{
    const jinja_node_t *node = loop->node;
    bool more = true;
    for (;;) {
        LOONG_TRY(advance(r, loop, &more));
        if (!more) {
            return LOONG_OK;
        }
        *ran = true;
        r->scope->count = 0;
        LOONG_TRY(jinja_assign(r, node->a, loop->current));
        if (r->loop_name >= 0) {
            LOONG_TRY(
                jinja_define(r, r->loop_name, jinja_object(JINJA_LOOP, loop)));
        }
        LOONG_TRY(jinja_exec(r, node->list));
        if (r->leaving == JINJA_LEAVE) {
            r->leaving = JINJA_ON;
            return LOONG_OK;
        }
        r->leaving = JINJA_ON;
    }
}

loong_status_t jinja_run_loop(run_t *r, const jinja_node_t *node, value_t over,
                              int64_t depth0)
{
    jinja_loop_t *loop = NULL;
    jinja_scope_t *outside = r->scope;
    bool ran = false;
    LOONG_TRY(jinja_enter(r));
    LOONG_TRY(jinja_new(r->heap, sizeof(*loop), &loop));
    *loop = (jinja_loop_t){.node = node,
                           .outside = outside,
                           .over = over,
                           .index0 = -1,
                           .length = -1,
                           .depth0 = depth0};
    LOONG_TRY(jinja_iterate(r, over, &loop->source));
    LOONG_TRY(jinja_scope_new(r, outside, &r->scope));
    LOONG_TRY(run_body(r, loop, &ran));
    r->scope = outside;
    if (!ran && node->orelse != NULL) {
        LOONG_TRY(jinja_scope_new(r, outside, &r->scope));
        LOONG_TRY(jinja_exec(r, node->orelse));
        r->scope = outside;
    }
    r->depth--;
    return LOONG_OK;
}

/* `loop(more)` of a recursive loop: its output for other elements. */
loong_status_t jinja_call_loop(run_t *r, jinja_loop_t *loop,
                               const jinja_args_t *args, value_t *result_p)
{
    if (!loop->node->flag) {
        return jinja_fail(r, "a loop that is called is a recursive one");
    }
    if (args->count != 1 || args->named != NULL) {
        return jinja_fail(r, "a loop takes one list of elements");
    }
    jinja_scope_t *scope = r->scope;
    size_t mark = jinja_mark(r);
    int nested = r->nested;
    r->scope = loop->outside;
    r->captures++;
    LOONG_TRY(jinja_run_loop(r, loop->node, args->items[0], loop->depth0 + 1));
    r->captures--;
    r->nested = nested;
    r->scope = scope;
    return jinja_take(r, mark, result_p);
}

static loong_status_t count_member(run_t *r, jinja_loop_t *loop, value_t name,
                                   value_t *value_p)
{
    LOONG_TRY(count(r, loop));
    int64_t n = loop->length;
    if (jinja_is(name, "revindex")) {
        n = loop->length - loop->index0;
    } else if (jinja_is(name, "revindex0")) {
        n = loop->length - loop->index0 - 1;
    }
    *value_p = loongi_jinja_int(n);
    return LOONG_OK;
}

static loong_status_t neighbour(run_t *r, jinja_loop_t *loop, value_t name,
                                value_t *value_p)
{
    if (jinja_is(name, "previtem")) {
        *value_p = loop->index0 == 0
                       ? jinja_undefined("there is no previous item")
                       : loop->before;
        return LOONG_OK;
    }
    LOONG_TRY(peek(r, loop));
    bool last = loop->after.kind == JINJA_MISSING;
    if (jinja_is(name, "last")) {
        *value_p = loongi_jinja_bool(last);
    } else {
        *value_p =
            last ? jinja_undefined("there is no next item") : loop->after;
    }
    return LOONG_OK;
}

loong_status_t jinja_loop_member(run_t *r, jinja_loop_t *loop, value_t name,
                                 value_t *value_p)
{
    if (jinja_is(name, "index")) {
        *value_p = loongi_jinja_int(loop->index0 + 1);
    } else if (jinja_is(name, "index0")) {
        *value_p = loongi_jinja_int(loop->index0);
    } else if (jinja_is(name, "first")) {
        *value_p = loongi_jinja_bool(loop->index0 == 0);
    } else if (jinja_is(name, "depth")) {
        *value_p = loongi_jinja_int(loop->depth0 + 1);
    } else if (jinja_is(name, "depth0")) {
        *value_p = loongi_jinja_int(loop->depth0);
    } else if (jinja_is(name, "last") || jinja_is(name, "nextitem") ||
               jinja_is(name, "previtem")) {
        return neighbour(r, loop, name, value_p);
    } else if (jinja_is(name, "length") || jinja_is(name, "revindex") ||
               jinja_is(name, "revindex0")) {
        return count_member(r, loop, name, value_p);
    } else {
        *value_p = jinja_value(JINJA_MISSING);
    }
    return LOONG_OK;
}

static loong_status_t cycle(run_t *r, const jinja_call_t *call, value_t *result)
{
    const jinja_loop_t *loop = (const jinja_loop_t *)call->self.as.object;
    if (call->args->count == 0) {
        return jinja_fail(r, "cycle() needs something to cycle through");
    }
    *result = call->args->items[loop->index0 % call->args->count];
    return LOONG_OK;
}

static loong_status_t changed(run_t *r, const jinja_call_t *call,
                              value_t *result)
{
    jinja_loop_t *loop = (jinja_loop_t *)call->self.as.object;
    value_t now;
    bool equal = false;
    LOONG_TRY(jinja_list_new(r->heap, JINJA_TUPLE, call->args->count, &now));
    for (int64_t i = 0; i < call->args->count; i++) {
        jinja_list_of(now)->items[i] = call->args->items[i];
    }
    if (loop->last_changed.kind != JINJA_MISSING) {
        LOONG_TRY(jinja_equal(r, loop->last_changed, now, &equal));
    }
    loop->last_changed = now;
    *result = loongi_jinja_bool(!equal);
    return LOONG_OK;
}

const jinja_builtin_t jinja_loop_methods[] = {
    {"cycle", NULL, 0, cycle}, {"changed", NULL, 0, changed}, {0}};
