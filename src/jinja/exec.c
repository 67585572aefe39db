/* SPDX-License-Identifier: Apache-2.0
 *
 * Statements of a template, one after the other. Called by render.c, loops
 * and macros. Read run.h before. */
#include <string.h>

#include "run.h"

static loong_status_t unpack(run_t *r, const jinja_node_t *target,
                             value_t value)
{
    value_t list;
    int64_t count = 0;
    for (const jinja_node_t *n = target->list; n != NULL; n = n->next) {
        count++;
    }
    LOONG_TRY(jinja_to_list(r, value, &list));
    const jinja_list_t *items = jinja_list_of(list);
    if (items->count != count) {
        r->at = target;
        return jinja_fail(r, "%lld values for %lld names",
                          (long long)items->count, (long long)count);
    }
    const value_t *item = items->items;
    for (const jinja_node_t *n = target->list; n != NULL; n = n->next) {
        LOONG_TRY(jinja_assign(r, n, *item++));
    }
    return LOONG_OK;
}

loong_status_t jinja_assign(run_t *r, const jinja_node_t *target, value_t value)
{
    r->at = target;
    if (target->kind == JINJA_N_TUPLE) {
        return unpack(r, target, value);
    }
    if (target->kind == JINJA_N_NAME) {
        return jinja_define(r, target->name, value);
    }
    value_t space = jinja_lookup(r, target->name);
    if (space.kind != JINJA_NAMESPACE) {
        return jinja_fail(r, "attributes are set of a namespace, not of %s",
                          jinja_type_name(space));
    }
    if (target->value.as.text[0] == '_') {
        return jinja_fail(r, "an attribute that begins with '_'");
    }
    return jinja_dict_put(r->heap, jinja_dict_of(space), target->value, value);
}

loong_status_t jinja_capture(run_t *r, const jinja_node_t *list,
                             jinja_scope_t *scope, value_t *text_p)
{
    jinja_scope_t *outside = r->scope;
    size_t mark = jinja_mark(r);
    r->scope = scope;
    r->captures++;
    LOONG_TRY(jinja_exec(r, list));
    r->captures--;
    r->scope = outside;
    return jinja_take(r, mark, text_p);
}

static loong_status_t capture_inside(run_t *r, const jinja_node_t *node,
                                     value_t *text_p)
{
    jinja_scope_t *scope = NULL;
    LOONG_TRY(jinja_scope_new(r, r->scope, &scope));
    LOONG_TRY(jinja_capture(r, node->list, scope, text_p));
    return r->leaving != JINJA_ON || node->b == NULL
               ? LOONG_OK
               : jinja_apply_filter(r, node->b, *text_p, text_p);
}

static loong_status_t exec_if(run_t *r, const jinja_node_t *node)
{
    value_t test;
    LOONG_TRY(jinja_eval(r, node->a, &test));
    return jinja_exec(r, jinja_truth(test) ? node->list : node->orelse);
}

static loong_status_t exec_set(run_t *r, const jinja_node_t *node)
{
    value_t value;
    LOONG_TRY(jinja_eval(r, node->b, &value));
    return jinja_assign(r, node->a, value);
}

static loong_status_t exec_set_block(run_t *r, const jinja_node_t *node)
{
    value_t text;
    LOONG_TRY(capture_inside(r, node, &text));
    return r->leaving != JINJA_ON ? LOONG_OK : jinja_assign(r, node->a, text);
}

static loong_status_t exec_filter_block(run_t *r, const jinja_node_t *node)
{
    value_t value;
    LOONG_TRY(capture_inside(r, node, &value));
    return r->leaving != JINJA_ON ? LOONG_OK : jinja_print(r, value);
}

static loong_status_t exec_with(run_t *r, const jinja_node_t *node)
{
    jinja_scope_t *outside = r->scope;
    jinja_scope_t *inside = NULL;
    LOONG_TRY(jinja_scope_new(r, outside, &inside));
    for (const jinja_node_t *n = node->a; n != NULL; n = n->next) {
        value_t value;
        LOONG_TRY(jinja_eval(r, n->b, &value)); /* sees what is outside */
        r->scope = inside;
        LOONG_TRY(jinja_assign(r, n->a, value));
        r->scope = outside;
    }
    r->scope = inside;
    LOONG_TRY(jinja_exec(r, node->list));
    r->scope = outside;
    return LOONG_OK;
}

static loong_status_t make_macro(run_t *r, const jinja_node_t *node,
                                 value_t *macro_p)
{
    jinja_macro_t *macro = NULL;
    LOONG_TRY(jinja_new(r->heap, sizeof(*macro), &macro));
    macro->node = node;
    macro->scope = r->scope;
    *macro_p = jinja_object(JINJA_MACRO, macro);
    return LOONG_OK;
}

static loong_status_t exec_call(run_t *r, const jinja_node_t *node)
{
    value_t called, caller, result, named;
    jinja_args_t args = {0};
    LOONG_TRY(jinja_eval(r, node->b->a, &called));
    LOONG_TRY(jinja_eval_args(r, node->b->list, &args));
    LOONG_TRY(make_macro(r, node, &caller));
    if (args.named == NULL) {
        LOONG_TRY(loongi_jinja_dict(r->heap, &named));
        args.named = jinja_dict_of(named);
    }
    LOONG_TRY(
        jinja_dict_put(r->heap, args.named, jinja_text("caller"), caller));
    r->at = node->b;
    LOONG_TRY(jinja_call(r, called, &args, &result));
    return jinja_print(r, result);
}

/* Its place is known where its output is part of the text at once. */
static loong_status_t exec_generation(run_t *r, const jinja_node_t *node)
{
    loong_jinja_output_t *out = r->out;
    jinja_scope_t *outside = r->scope;
    size_t begin = jinja_mark(r);
    LOONG_TRY(jinja_scope_new(r, outside, &r->scope));
    r->captures++;
    LOONG_TRY(jinja_exec(r, node->list));
    r->captures--;
    r->scope = outside;
    if (r->captures > 0) {
        out->spans_exact = false;
        return LOONG_OK;
    }
    LOONG_TRY(loongi_grow(r->ctx, &out->spans, &out->spans_room,
                          out->num_spans + 1, sizeof(*out->spans),
                          "spans of a template"));
    out->spans[out->num_spans].begin = begin;
    out->spans[out->num_spans++].end = jinja_mark(r);
    return LOONG_OK;
}

static loong_status_t exec_print(run_t *r, const jinja_node_t *node)
{
    value_t value;
    if (node->a == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(jinja_eval(r, node->a, &value));
    r->at = node;
    return jinja_print(r, value);
}

static loong_status_t exec_block(run_t *r, const jinja_node_t *node)
{
    value_t value;
    switch (node->kind) {
    case JINJA_N_FOR:
        LOONG_TRY(jinja_eval(r, node->b, &value));
        r->at = node->b;
        return jinja_run_loop(r, node, value, 0);
    case JINJA_N_IF:
        return exec_if(r, node);
    case JINJA_N_SET_BLOCK:
        return exec_set_block(r, node);
    case JINJA_N_CALL_BLOCK:
        return exec_call(r, node);
    case JINJA_N_FILTER_BLOCK:
        return exec_filter_block(r, node);
    case JINJA_N_WITH:
        return exec_with(r, node);
    default:
        return exec_generation(r, node);
    }
}

static loong_status_t exec_one(run_t *r, const jinja_node_t *node)
{
    value_t macro;
    switch (node->kind) {
    case JINJA_N_DATA:
        return jinja_emit(r, node->value.as.text, node->value.length);
    case JINJA_N_PRINT:
        return exec_print(r, node);
    case JINJA_N_SET:
        return exec_set(r, node);
    case JINJA_N_MACRO:
        LOONG_TRY(make_macro(r, node, &macro));
        return jinja_define(r, node->name, macro);
    case JINJA_N_BREAK:
        r->leaving = JINJA_LEAVE;
        return LOONG_OK;
    case JINJA_N_CONTINUE:
        r->leaving = JINJA_GO_ON;
        return LOONG_OK;
    default:
        LOONG_TRY(jinja_nest(r));
        LOONG_TRY(exec_block(r, node));
        r->nested--;
        return LOONG_OK;
    }
}

loong_status_t jinja_exec(run_t *r, const jinja_node_t *list)
{
    for (const jinja_node_t *n = list; n != NULL && r->leaving == JINJA_ON;
         n = n->next) {
        LOONG_TRY(jinja_step(r));
        r->at = n;
        r->printed = n->kind == JINJA_N_PRINT ? n->a : NULL;
        LOONG_TRY(exec_one(r, n));
    }
    return LOONG_OK;
}
