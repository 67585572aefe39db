/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of expressions. Called by exec.c. Read run.h before. */
#include <string.h>

#include "run.h"

static loong_status_t eval_name(run_t *r, const jinja_node_t *node,
                                value_t *value_p)
{
    *value_p = jinja_lookup(r, node->name);
    if (value_p->kind == JINJA_MISSING) {
        *value_p = jinja_value(JINJA_UNDEFINED);
        value_p->as.text = node->value.as.text;
        value_p->length = node->value.length;
    }
    return LOONG_OK;
}

static loong_status_t eval_sequence(run_t *r, const jinja_node_t *node,
                                    value_t *value_p)
{
    int64_t count = 0;
    value_t list;
    for (const jinja_node_t *n = node->list; n != NULL; n = n->next) {
        count++;
    }
    LOONG_TRY(jinja_list_new(
        r->heap, node->kind == JINJA_N_TUPLE ? JINJA_TUPLE : JINJA_LIST, count,
        &list));
    value_t *item = jinja_list_of(list)->items;
    for (const jinja_node_t *n = node->list; n != NULL; n = n->next) {
        LOONG_TRY(jinja_eval(r, n, item++));
    }
    *value_p = list;
    return LOONG_OK;
}

static loong_status_t eval_dict(run_t *r, const jinja_node_t *node,
                                value_t *value_p)
{
    value_t dict;
    LOONG_TRY(loongi_jinja_dict(r->heap, &dict));
    for (const jinja_node_t *n = node->list; n != NULL; n = n->next) {
        value_t key, value;
        LOONG_TRY(jinja_eval(r, n->a, &key));
        LOONG_TRY(jinja_eval(r, n->b, &value));
        LOONG_TRY(jinja_put(r, dict, key, value));
    }
    *value_p = dict;
    return LOONG_OK;
}

/* What jinja2 computes when it compiles a template. */
static bool is_constant(const jinja_node_t *node)
{
    if (node->kind == JINJA_N_NAME || node->kind == JINJA_N_CALL ||
        (node->kind == JINJA_N_FILTER &&
         jinja_find_row(jinja_select_filters, node->value) != NULL)) {
        return false;
    }
    const jinja_node_t *const part[] = {node->a, node->b, node->c};
    for (int64_t k = 0; k < LOONG_COUNT_OF(part); k++) {
        if (part[k] != NULL && !is_constant(part[k])) {
            return false;
        }
    }
    for (const jinja_node_t *n = node->list; n != NULL; n = n->next) {
        if (!is_constant(n)) {
            return false;
        }
    }
    return true;
}

static loong_status_t eval_slice(run_t *r, const jinja_node_t *node, value_t of,
                                 value_t *value_p)
{
    const jinja_node_t *const part[3] = {node->b->a, node->b->b, node->b->c};
    value_t bound[3];
    for (int k = 0; k < 3; k++) {
        bound[k] = loongi_jinja_none();
        if (part[k] != NULL) {
            LOONG_TRY(jinja_eval(r, part[k], &bound[k]));
        }
    }
    r->at = node;
    /* In a constant jinja2 takes it for undefined, else for an error. */
    if (!jinja_can_slice(of, bound) && of.kind != JINJA_UNDEFINED &&
        r->printed != NULL && is_constant(r->printed)) {
        *value_p = jinja_undefined("this cannot be sliced");
        return LOONG_OK;
    }
    return jinja_slice(r, of, bound, value_p);
}

static loong_status_t eval_item(run_t *r, const jinja_node_t *node,
                                value_t *value_p)
{
    value_t of, key;
    LOONG_TRY(jinja_eval(r, node->a, &of));
    if (node->b->kind == JINJA_N_SLICE) {
        return eval_slice(r, node, of, value_p);
    }
    LOONG_TRY(jinja_eval(r, node->b, &key));
    r->at = node;
    return jinja_getitem(r, of, key, value_p);
}

/* What follows the first part is collected behind the output, so that it can
 * be appended to the first one where that lies. */
static loong_status_t eval_concat(run_t *r, const jinja_node_t *node,
                                  value_t *value_p)
{
    value_t first, part;
    LOONG_TRY(jinja_eval(r, node->list, &first));
    LOONG_TRY(jinja_to_text(r, first, &first));
    size_t mark = jinja_mark(r);
    for (const jinja_node_t *n = node->list->next; n != NULL; n = n->next) {
        LOONG_TRY(jinja_eval(r, n, &part));
        r->at = n;
        LOONG_TRY(jinja_print(r, part));
    }
    part = loongi_jinja_string(r->out->text + mark, r->out->length - mark);
    r->out->length = mark;
    return jinja_concat(r->heap, first, part, value_p);
}

static loong_status_t eval_compare(run_t *r, const jinja_node_t *node,
                                   value_t *value_p)
{
    value_t left, right;
    bool is = true;
    LOONG_TRY(jinja_eval(r, node->a, &left));
    for (const jinja_node_t *n = node->list; is && n != NULL; n = n->next) {
        LOONG_TRY(jinja_eval(r, n->a, &right));
        r->at = n;
        LOONG_TRY(jinja_compare(r, n->op, left, right, &is));
        left = right;
    }
    *value_p = loongi_jinja_bool(is);
    return LOONG_OK;
}

static loong_status_t eval_call(run_t *r, const jinja_node_t *node,
                                value_t *value_p)
{
    value_t called, self;
    jinja_args_t args = {0};
    if (node->a->kind == JINJA_N_GETATTR) { /* a method, without a value */
        LOONG_TRY(jinja_eval(r, node->a->a, &self));
        const jinja_builtin_t *row = jinja_find_method(self, node->a->value);
        if (row != NULL) {
            LOONG_TRY(jinja_eval_args(r, node->list, &args));
            r->at = node->a;
            return jinja_call_method(r, row, self, &args, value_p);
        }
        r->at = node->a;
        LOONG_TRY(jinja_getattr(r, self, node->a->value, &called));
    } else {
        LOONG_TRY(jinja_eval(r, node->a, &called));
    }
    LOONG_TRY(jinja_eval_args(r, node->list, &args));
    r->at = node;
    return jinja_call(r, called, &args, value_p);
}

static loong_status_t known_builtin(run_t *r, const jinja_node_t *node)
{
    r->at = node;
    return node->builtin != NULL
               ? LOONG_OK
               : jinja_fail(r, "there is no %s '%.*s'",
                            node->kind == JINJA_N_TEST ? "test" : "filter",
                            (int)LOONG_MIN(node->value.length, (size_t)60),
                            node->value.as.text);
}

loong_status_t jinja_apply_filter(run_t *r, const jinja_node_t *filter,
                                  value_t input, value_t *value_p)
{
    jinja_args_t args = {0};
    if (filter->a != NULL) { /* of a filter block: the first one is inmost */
        LOONG_TRY(jinja_apply_filter(r, filter->a, input, &input));
    }
    LOONG_TRY(known_builtin(r, filter));
    LOONG_TRY(jinja_eval_args(r, filter->list, &args));
    r->at = filter;
    return jinja_call_row(r, filter->builtin, input, &args, value_p);
}

static loong_status_t eval_builtin(run_t *r, const jinja_node_t *node,
                                   value_t *value_p)
{
    value_t self;
    jinja_args_t args = {0};
    LOONG_TRY(known_builtin(r, node));
    LOONG_TRY(jinja_eval(r, node->a, &self));
    LOONG_TRY(jinja_eval_args(r, node->list, &args));
    r->at = node;
    return jinja_call_row(r, node->builtin, self, &args, value_p);
}

static loong_status_t eval_binary(run_t *r, const jinja_node_t *node,
                                  value_t *value_p)
{
    value_t left, right;
    LOONG_TRY(jinja_eval(r, node->a, &left));
    LOONG_TRY(jinja_eval(r, node->b, &right));
    r->at = node;
    return jinja_binary(r, node->op, left, right, value_p);
}

static loong_status_t eval_condition(run_t *r, const jinja_node_t *node,
                                     value_t *value_p)
{
    value_t test;
    LOONG_TRY(jinja_eval(r, node->a, &test));
    if (jinja_truth(test)) {
        return jinja_eval(r, node->b, value_p);
    }
    if (node->c != NULL) {
        return jinja_eval(r, node->c, value_p);
    }
    *value_p = jinja_undefined("the condition is false, and there is no else");
    return LOONG_OK;
}

static loong_status_t eval_logic(run_t *r, const jinja_node_t *node,
                                 value_t *value_p)
{
    LOONG_TRY(jinja_eval(r, node->a, value_p));
    if (node->kind == JINJA_N_NOT) {
        *value_p = loongi_jinja_bool(!jinja_truth(*value_p));
        return LOONG_OK;
    }
    return jinja_truth(*value_p) == (node->kind == JINJA_N_AND)
               ? jinja_eval(r, node->b, value_p)
               : LOONG_OK;
}

static loong_status_t eval_sign(run_t *r, const jinja_node_t *node,
                                value_t *value_p)
{
    value_t value;
    LOONG_TRY(jinja_eval(r, node->a, &value));
    r->at = node;
    return jinja_sign(r, node->kind == JINJA_N_NEGATIVE, value, value_p);
}

static loong_status_t eval_node(run_t *r, const jinja_node_t *node,
                                value_t *value_p)
{
    switch (node->kind) {
    case JINJA_N_TUPLE:
    case JINJA_N_LITERAL_LIST:
        return eval_sequence(r, node, value_p);
    case JINJA_N_LITERAL_DICT:
        return eval_dict(r, node, value_p);
    case JINJA_N_GETITEM:
        return eval_item(r, node, value_p);
    case JINJA_N_CALL:
        return eval_call(r, node, value_p);
    case JINJA_N_FILTER:
    case JINJA_N_TEST:
        return eval_builtin(r, node, value_p);
    case JINJA_N_NOT:
    case JINJA_N_AND:
    case JINJA_N_OR:
        return eval_logic(r, node, value_p);
    case JINJA_N_NEGATIVE:
    case JINJA_N_POSITIVE:
        return eval_sign(r, node, value_p);
    case JINJA_N_BINARY:
        return eval_binary(r, node, value_p);
    case JINJA_N_CONCAT:
        return eval_concat(r, node, value_p);
    case JINJA_N_COMPARE:
        return eval_compare(r, node, value_p);
    case JINJA_N_CONDITION:
        return eval_condition(r, node, value_p);
    default:
        r->at = node;
        return jinja_fail(r, "a slice stands only alone in brackets");
    }
}

loong_status_t jinja_eval(run_t *r, const jinja_node_t *node, value_t *value_p)
{
    value_t of;
    LOONG_TRY(jinja_step(r));
    switch (node->kind) {
    case JINJA_N_CONST:
        *value_p = node->value;
        return LOONG_OK;
    case JINJA_N_NAME:
        return eval_name(r, node, value_p);
    case JINJA_N_GETATTR:
        LOONG_TRY(jinja_nest(r));
        LOONG_TRY(jinja_eval(r, node->a, &of));
        r->nested--;
        r->at = node;
        return jinja_getattr(r, of, node->value, value_p);
    default:
        LOONG_TRY(jinja_nest(r));
        LOONG_TRY(eval_node(r, node, value_p));
        r->nested--;
        return LOONG_OK;
    }
}
