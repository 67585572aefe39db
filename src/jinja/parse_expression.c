/* SPDX-License-Identifier: Apache-2.0
 *
 * Expressions, from the loosest operator to the tightest, with Jinja's
 * precedence. Called by parse.c. Read parse.h before. */
#include "builtin.h"
#include "parse.h"

static loong_status_t parse_or(jinja_parser_t *p, jinja_node_t **node_p);

static loong_status_t binary(jinja_parser_t *p, int kind, jinja_node_t *a,
                             jinja_node_t *b, jinja_node_t **node_p)
{
    const jinja_piece_t place = {
        .kind = JINJA_P_END, .line = a->line, .column = a->column};
    LOONG_TRY(jinja_node(p, kind, &place, node_p));
    (*node_p)->a = a;
    (*node_p)->b = b;
    return LOONG_OK;
}

typedef loong_status_t (*parse_fn)(jinja_parser_t *p, jinja_node_t **node_p);

/* a op b op c, from the left, of operators between first and last. */
static loong_status_t parse_left(jinja_parser_t *p, parse_fn operand,
                                 const jinja_piece_kind_t *ops,
                                 jinja_node_t **node_p)
{
    LOONG_TRY(operand(p, node_p));
    for (;;) {
        const jinja_piece_t *op = jinja_next(p);
        int k = 0;
        while (ops[k] != JINJA_P_END && ops[k] != op->kind) {
            k++;
        }
        if (ops[k] == JINJA_P_END) {
            return LOONG_OK;
        }
        p->at++;
        jinja_node_t *left = *node_p;
        jinja_node_t *right = NULL;
        LOONG_TRY(operand(p, &right));
        LOONG_TRY(jinja_node(p, JINJA_N_BINARY, op, node_p));
        (*node_p)->op = op->kind;
        (*node_p)->a = left;
        (*node_p)->b = right;
    }
}

static loong_status_t parse_subscript(jinja_parser_t *p, jinja_node_t **node_p)
{
    jinja_node_t *slice = NULL;
    LOONG_TRY(jinja_node(p, JINJA_N_SLICE, jinja_next(p), &slice));
    jinja_node_t **part[3] = {&slice->a, &slice->b, &slice->c};
    for (int k = 0; k < 3; k++) {
        if (!jinja_is_next(p, JINJA_P_COLON) &&
            !jinja_is_next(p, JINJA_P_RBRACKET) &&
            !jinja_is_next(p, JINJA_P_COMMA)) {
            LOONG_TRY(jinja_parse_expression(p, 0, part[k]));
        } else if (k == 0 && !jinja_is_next(p, JINJA_P_COLON)) {
            return jinja_unexpected(p, "an expression");
        }
        if (k == 2 || !jinja_skip(p, JINJA_P_COLON)) {
            *node_p = k == 0 ? slice->a : slice;
            return LOONG_OK;
        }
    }
    return LOONG_OK;
}

static loong_status_t parse_item(jinja_parser_t *p, jinja_node_t **node_p)
{
    const jinja_piece_t *bracket = jinja_next(p);
    jinja_node_t *of = *node_p;
    jinja_chain_t chain = {0};
    p->at++;
    while (!jinja_is_next(p, JINJA_P_RBRACKET)) {
        jinja_node_t *part = NULL;
        if (chain.first != NULL) {
            LOONG_TRY(jinja_expect(p, JINJA_P_COMMA));
        }
        LOONG_TRY(parse_subscript(p, &part));
        jinja_chain_add(&chain, part);
    }
    p->at++;
    LOONG_TRY(jinja_node(p, JINJA_N_GETITEM, bracket, node_p));
    (*node_p)->a = of;
    (*node_p)->b = chain.first;
    if (chain.first == NULL || chain.first->next != NULL) {
        LOONG_TRY(jinja_node(p, JINJA_N_TUPLE, bracket, &(*node_p)->b));
        (*node_p)->b->list = chain.first;
    }
    return LOONG_OK;
}

static loong_status_t parse_attribute(jinja_parser_t *p, jinja_node_t **node_p)
{
    const jinja_piece_t *dot = jinja_next(p);
    jinja_node_t *of = *node_p;
    const jinja_piece_t *name = &p->pieces[++p->at];
    if (name->kind == JINJA_P_NAME) {
        LOONG_TRY(jinja_node(p, JINJA_N_GETATTR, name, node_p));
        (*node_p)->value = name->value;
    } else if (name->kind == JINJA_P_INTEGER) {
        LOONG_TRY(jinja_node(p, JINJA_N_GETITEM, dot, node_p));
        LOONG_TRY(jinja_node(p, JINJA_N_CONST, name, &(*node_p)->b));
        (*node_p)->b->value = name->value;
    } else {
        return jinja_unexpected(p, "a name or a number");
    }
    (*node_p)->a = of;
    p->at++;
    return LOONG_OK;
}

static loong_status_t parse_argument(jinja_parser_t *p, int *stage,
                                     jinja_node_t **node_p)
{
    const jinja_piece_t *first = jinja_next(p);
    int kind = 0;
    if (jinja_skip(p, JINJA_P_MUL)) {
        kind = JINJA_N_STAR;
        if (*stage >= 2) {
            return jinja_unexpected(p, "only one * before one **");
        }
        *stage = 2;
    } else if (jinja_skip(p, JINJA_P_POW)) {
        kind = JINJA_N_STAR_STAR;
        if (*stage >= 3) {
            return jinja_unexpected(p, "only one **");
        }
        *stage = 3;
    } else if (first->kind == JINJA_P_NAME && first[1].kind == JINJA_P_ASSIGN) {
        kind = JINJA_N_KEYWORD;
        p->at += 2;
        if (*stage >= 3) {
            return jinja_unexpected(p, "no argument behind **");
        }
        *stage = LOONG_MAX(*stage, 1);
    } else if (*stage > 0) {
        return jinja_unexpected(p, "name=value: arguments by position come "
                                   "first");
    }
    if (kind == 0) {
        return jinja_parse_expression(p, 0, node_p);
    }
    LOONG_TRY(jinja_node(p, kind, first, node_p));
    (*node_p)->value = first->value;
    return jinja_parse_expression(p, 0, &(*node_p)->a);
}

/* (a, b=c, *d, **e) */
static loong_status_t parse_arguments(jinja_parser_t *p, jinja_node_t **list_p)
{
    jinja_chain_t chain = {0};
    int stage = 0;
    LOONG_TRY(jinja_expect(p, JINJA_P_LPAREN));
    while (!jinja_is_next(p, JINJA_P_RPAREN)) {
        jinja_node_t *argument = NULL;
        if (chain.first != NULL) {
            LOONG_TRY(jinja_expect(p, JINJA_P_COMMA));
            if (jinja_is_next(p, JINJA_P_RPAREN)) {
                break;
            }
        }
        LOONG_TRY(parse_argument(p, &stage, &argument));
        jinja_chain_add(&chain, argument);
    }
    p->at++;
    *list_p = chain.first;
    return LOONG_OK;
}

static loong_status_t parse_call(jinja_parser_t *p, jinja_node_t **node_p)
{
    jinja_node_t *called = *node_p;
    LOONG_TRY(binary(p, JINJA_N_CALL, called, NULL, node_p));
    return parse_arguments(p, &(*node_p)->list);
}

static loong_status_t parse_postfix(jinja_parser_t *p, jinja_node_t **node_p)
{
    for (;;) {
        switch (jinja_next(p)->kind) {
        case JINJA_P_DOT:
            LOONG_TRY(parse_attribute(p, node_p));
            break;
        case JINJA_P_LBRACKET:
            LOONG_TRY(parse_item(p, node_p));
            break;
        case JINJA_P_LPAREN:
            LOONG_TRY(parse_call(p, node_p));
            break;
        default:
            return LOONG_OK;
        }
    }
}

/* The name of a filter or test; one with dots is known to nobody. */
static loong_status_t parse_builtin(jinja_parser_t *p, bool test,
                                    jinja_node_t **node_p)
{
    const jinja_piece_t *name = jinja_next(p);
    LOONG_TRY(jinja_expect(p, JINJA_P_NAME));
    LOONG_TRY(
        jinja_node(p, test ? JINJA_N_TEST : JINJA_N_FILTER, name, node_p));
    (*node_p)->value = name->value;
    (*node_p)->builtin =
        test ? jinja_find_test(name->value) : jinja_find_filter(name->value);
    while (jinja_skip(p, JINJA_P_DOT)) {
        LOONG_TRY(jinja_expect(p, JINJA_P_NAME));
        (*node_p)->builtin = NULL;
    }
    return LOONG_OK;
}

loong_status_t jinja_parse_filters(jinja_parser_t *p, bool begun,
                                   jinja_node_t *input, jinja_node_t **node_p)
{
    *node_p = input;
    while (begun || jinja_skip(p, JINJA_P_PIPE)) {
        jinja_node_t *filter = NULL;
        LOONG_TRY(parse_builtin(p, false, &filter));
        if (jinja_is_next(p, JINJA_P_LPAREN)) {
            LOONG_TRY(parse_arguments(p, &filter->list));
        }
        filter->a = *node_p;
        *node_p = filter;
        begun = false;
    }
    return LOONG_OK;
}

static bool begins_argument(const jinja_parser_t *p)
{
    switch (jinja_next(p)->kind) {
    case JINJA_P_NAME:
        return !jinja_is_word(p, "else") && !jinja_is_word(p, "or") &&
               !jinja_is_word(p, "and");
    case JINJA_P_STRING:
    case JINJA_P_INTEGER:
    case JINJA_P_REAL:
    case JINJA_P_LBRACKET:
    case JINJA_P_LBRACE:
        return true;
    default:
        return false;
    }
}

/* Behind `is`: not, a name, one argument without parentheses. */
static loong_status_t parse_test(jinja_parser_t *p, jinja_node_t **node_p)
{
    const jinja_piece_t *place = jinja_next(p);
    jinja_node_t *test = NULL;
    bool negated = jinja_skip_word(p, "not");
    LOONG_TRY(parse_builtin(p, true, &test));
    test->a = *node_p;
    *node_p = test;
    if (jinja_is_next(p, JINJA_P_LPAREN)) {
        LOONG_TRY(parse_arguments(p, &test->list));
    } else if (begins_argument(p)) {
        if (jinja_is_word(p, "is")) {
            return jinja_unexpected(p, "no second test behind a test");
        }
        LOONG_TRY(jinja_parse_primary(p, 0, &test->list));
        LOONG_TRY(parse_postfix(p, &test->list));
    }
    if (negated) {
        LOONG_TRY(jinja_node(p, JINJA_N_NOT, place, node_p));
        (*node_p)->a = test;
    }
    return LOONG_OK;
}

static loong_status_t parse_filter_tail(jinja_parser_t *p,
                                        jinja_node_t **node_p)
{
    for (;;) {
        if (jinja_is_next(p, JINJA_P_PIPE)) {
            LOONG_TRY(jinja_parse_filters(p, false, *node_p, node_p));
        } else if (jinja_skip_word(p, "is")) {
            LOONG_TRY(parse_test(p, node_p));
        } else if (jinja_is_next(p, JINJA_P_LPAREN)) {
            LOONG_TRY(parse_call(p, node_p));
        } else {
            return LOONG_OK;
        }
    }
}

static loong_status_t parse_signed(jinja_parser_t *p, bool filters,
                                   jinja_node_t **node_p)
{
    const jinja_piece_t *sign = jinja_next(p);
    if (jinja_skip(p, JINJA_P_SUB) || jinja_skip(p, JINJA_P_ADD)) {
        LOONG_TRY(jinja_node(
            p, sign->kind == JINJA_P_SUB ? JINJA_N_NEGATIVE : JINJA_N_POSITIVE,
            sign, node_p));
        LOONG_TRY(jinja_deeper(p));
        LOONG_TRY(parse_signed(p, false, &(*node_p)->a));
        p->depth--;
    } else {
        LOONG_TRY(jinja_parse_primary(p, 0, node_p));
    }
    LOONG_TRY(parse_postfix(p, node_p));
    return filters ? parse_filter_tail(p, node_p) : LOONG_OK;
}

static loong_status_t parse_unary(jinja_parser_t *p, jinja_node_t **node_p)
{
    return parse_signed(p, true, node_p);
}

static loong_status_t parse_pow(jinja_parser_t *p, jinja_node_t **node_p)
{
    return parse_left(p, parse_unary,
                      (const jinja_piece_kind_t[]){JINJA_P_POW, JINJA_P_END},
                      node_p);
}

static loong_status_t parse_product(jinja_parser_t *p, jinja_node_t **node_p)
{
    return parse_left(p, parse_pow,
                      (const jinja_piece_kind_t[]){JINJA_P_MUL, JINJA_P_DIV,
                                                   JINJA_P_FLOORDIV,
                                                   JINJA_P_MOD, JINJA_P_END},
                      node_p);
}

static loong_status_t parse_concat(jinja_parser_t *p, jinja_node_t **node_p)
{
    LOONG_TRY(parse_product(p, node_p));
    if (!jinja_is_next(p, JINJA_P_TILDE)) {
        return LOONG_OK;
    }
    jinja_node_t *concat = NULL;
    jinja_chain_t chain = {0};
    LOONG_TRY(jinja_node(p, JINJA_N_CONCAT, jinja_next(p), &concat));
    jinja_chain_add(&chain, *node_p);
    while (jinja_skip(p, JINJA_P_TILDE)) {
        jinja_node_t *part = NULL;
        LOONG_TRY(parse_product(p, &part));
        jinja_chain_add(&chain, part);
    }
    concat->list = chain.first;
    *node_p = concat;
    return LOONG_OK;
}

static loong_status_t parse_sum(jinja_parser_t *p, jinja_node_t **node_p)
{
    return parse_left(
        p, parse_concat,
        (const jinja_piece_kind_t[]){JINJA_P_ADD, JINJA_P_SUB, JINJA_P_END},
        node_p);
}

static jinja_piece_kind_t comparison(jinja_parser_t *p)
{
    switch (jinja_next(p)->kind) {
    case JINJA_P_EQ:
    case JINJA_P_NE:
    case JINJA_P_LT:
    case JINJA_P_LTEQ:
    case JINJA_P_GT:
    case JINJA_P_GTEQ:
        return p->pieces[p->at++].kind;
    default:
        break;
    }
    if (jinja_skip_word(p, "in")) {
        return JINJA_P_IN;
    }
    if (jinja_is_word(p, "not")) {
        p->at++;
        if (jinja_skip_word(p, "in")) {
            return JINJA_P_NOT_IN;
        }
        p->at--;
    }
    return JINJA_P_END;
}

static loong_status_t parse_compare(jinja_parser_t *p, jinja_node_t **node_p)
{
    jinja_chain_t chain = {0};
    LOONG_TRY(parse_sum(p, node_p));
    for (;;) {
        const jinja_piece_t *place = jinja_next(p);
        jinja_piece_kind_t op = comparison(p);
        if (op == JINJA_P_END) {
            break;
        }
        jinja_node_t *operand = NULL;
        LOONG_TRY(jinja_node(p, JINJA_N_OPERAND, place, &operand));
        operand->op = op;
        LOONG_TRY(parse_sum(p, &operand->a));
        jinja_chain_add(&chain, operand);
    }
    if (chain.first != NULL) {
        LOONG_TRY(binary(p, JINJA_N_COMPARE, *node_p, NULL, node_p));
        (*node_p)->list = chain.first;
    }
    return LOONG_OK;
}

static loong_status_t parse_not(jinja_parser_t *p, jinja_node_t **node_p)
{
    const jinja_piece_t *place = jinja_next(p);
    if (!jinja_skip_word(p, "not")) {
        return parse_compare(p, node_p);
    }
    LOONG_TRY(jinja_node(p, JINJA_N_NOT, place, node_p));
    LOONG_TRY(jinja_deeper(p));
    LOONG_TRY(parse_not(p, &(*node_p)->a));
    p->depth--;
    return LOONG_OK;
}

static loong_status_t parse_and(jinja_parser_t *p, jinja_node_t **node_p)
{
    LOONG_TRY(parse_not(p, node_p));
    while (jinja_skip_word(p, "and")) {
        jinja_node_t *right = NULL;
        LOONG_TRY(parse_not(p, &right));
        LOONG_TRY(binary(p, JINJA_N_AND, *node_p, right, node_p));
    }
    return LOONG_OK;
}

static loong_status_t parse_or(jinja_parser_t *p, jinja_node_t **node_p)
{
    LOONG_TRY(parse_and(p, node_p));
    while (jinja_skip_word(p, "or")) {
        jinja_node_t *right = NULL;
        LOONG_TRY(parse_and(p, &right));
        LOONG_TRY(binary(p, JINJA_N_OR, *node_p, right, node_p));
    }
    return LOONG_OK;
}

static loong_status_t parse_condition(jinja_parser_t *p, jinja_node_t **node_p)
{
    LOONG_TRY(parse_or(p, node_p));
    while (jinja_skip_word(p, "if")) {
        jinja_node_t *condition = NULL;
        LOONG_TRY(binary(p, JINJA_N_CONDITION, *node_p, *node_p, &condition));
        LOONG_TRY(parse_or(p, &condition->a));
        if (jinja_skip_word(p, "else")) {
            LOONG_TRY(jinja_deeper(p));
            LOONG_TRY(parse_condition(p, &condition->c));
            p->depth--;
        }
        *node_p = condition;
    }
    return LOONG_OK;
}

loong_status_t jinja_parse_expression(jinja_parser_t *p, int how,
                                      jinja_node_t **node_p)
{
    LOONG_TRY(jinja_deeper(p));
    LOONG_TRY(how & JINJA_NO_CONDITION ? parse_or(p, node_p)
                                       : parse_condition(p, node_p));
    p->depth--;
    return LOONG_OK;
}
