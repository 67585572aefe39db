/* SPDX-License-Identifier: Apache-2.0
 *
 * What an expression begins with: names, literals, things in brackets; and
 * what can be assigned to. Called by parse_expression.c and parse.c. Read
 * parse.h before. */
#include "parse.h"

static loong_status_t constant(jinja_parser_t *p, value_t value,
                               jinja_node_t **node_p)
{
    LOONG_TRY(jinja_node(p, JINJA_N_CONST, jinja_next(p), node_p));
    (*node_p)->value = value;
    p->at++;
    return LOONG_OK;
}

static loong_status_t parse_name(jinja_parser_t *p, int how,
                                 jinja_node_t **node_p)
{
    const jinja_piece_t *name = jinja_next(p);
    static const struct {
        const char *word;
        int special;
    } uses[] = {{"caller", JINJA_USES_CALLER},
                {"kwargs", JINJA_USES_KWARGS},
                {"varargs", JINJA_USES_VARARGS}};
    if (jinja_is_word(p, "true") || jinja_is_word(p, "True")) {
        return constant(p, loongi_jinja_bool(true), node_p);
    }
    if (jinja_is_word(p, "false") || jinja_is_word(p, "False")) {
        return constant(p, loongi_jinja_bool(false), node_p);
    }
    if (jinja_is_word(p, "none") || jinja_is_word(p, "None")) {
        return constant(p, loongi_jinja_none(), node_p);
    }
    LOONG_TRY(jinja_node(p, JINJA_N_NAME, name, node_p));
    LOONG_TRY(jinja_name(p->jinja, name->value, &(*node_p)->name));
    (*node_p)->value = name->value;
    p->at++;
    for (int64_t k = 0; k < LOONG_COUNT_OF(uses) && !(how & JINJA_TARGET);
         k++) {
        if (jinja_is(name->value, uses[k].word)) {
            p->uses |= uses[k].special;
        }
    }
    if ((how & JINJA_ATTRIBUTES) && jinja_skip(p, JINJA_P_DOT)) {
        (*node_p)->kind = JINJA_N_NSREF;
        (*node_p)->value = jinja_next(p)->value;
        return jinja_expect(p, JINJA_P_NAME);
    }
    return LOONG_OK;
}

/* Strings one behind the other are one. */
static loong_status_t parse_strings(jinja_parser_t *p, jinja_node_t **node_p)
{
    LOONG_TRY(constant(p, jinja_next(p)->value, node_p));
    while (jinja_is_next(p, JINJA_P_STRING)) {
        LOONG_TRY(jinja_concat(p->jinja->heap, (*node_p)->value,
                               jinja_next(p)->value, &(*node_p)->value));
        p->at++;
    }
    return LOONG_OK;
}

static loong_status_t parse_list(jinja_parser_t *p, jinja_node_t **node_p)
{
    jinja_chain_t chain = {0};
    LOONG_TRY(jinja_node(p, JINJA_N_LITERAL_LIST, jinja_next(p), node_p));
    p->at++;
    while (!jinja_is_next(p, JINJA_P_RBRACKET)) {
        jinja_node_t *item = NULL;
        if (chain.first != NULL) {
            LOONG_TRY(jinja_expect(p, JINJA_P_COMMA));
            if (jinja_is_next(p, JINJA_P_RBRACKET)) {
                break;
            }
        }
        LOONG_TRY(jinja_parse_expression(p, 0, &item));
        jinja_chain_add(&chain, item);
    }
    p->at++;
    (*node_p)->list = chain.first;
    return LOONG_OK;
}

static loong_status_t parse_dict(jinja_parser_t *p, jinja_node_t **node_p)
{
    jinja_chain_t chain = {0};
    LOONG_TRY(jinja_node(p, JINJA_N_LITERAL_DICT, jinja_next(p), node_p));
    p->at++;
    while (!jinja_is_next(p, JINJA_P_RBRACE)) {
        jinja_node_t *pair = NULL;
        if (chain.first != NULL) {
            LOONG_TRY(jinja_expect(p, JINJA_P_COMMA));
            if (jinja_is_next(p, JINJA_P_RBRACE)) {
                break;
            }
        }
        LOONG_TRY(jinja_node(p, JINJA_N_PAIR, jinja_next(p), &pair));
        LOONG_TRY(jinja_parse_expression(p, 0, &pair->a));
        LOONG_TRY(jinja_expect(p, JINJA_P_COLON));
        LOONG_TRY(jinja_parse_expression(p, 0, &pair->b));
        jinja_chain_add(&chain, pair);
    }
    p->at++;
    (*node_p)->list = chain.first;
    return LOONG_OK;
}

loong_status_t jinja_parse_primary(jinja_parser_t *p, int how,
                                   jinja_node_t **node_p)
{
    switch (jinja_next(p)->kind) {
    case JINJA_P_NAME:
        return parse_name(p, how, node_p);
    case JINJA_P_STRING:
        return parse_strings(p, node_p);
    case JINJA_P_INTEGER:
    case JINJA_P_REAL:
        return constant(p, jinja_next(p)->value, node_p);
    case JINJA_P_LPAREN:
        p->at++;
        LOONG_TRY(jinja_deeper(p));
        LOONG_TRY(jinja_parse_tuple(p, JINJA_PARENTHESES | (how & JINJA_TARGET),
                                    NULL, node_p));
        p->depth--;
        return jinja_expect(p, JINJA_P_RPAREN);
    case JINJA_P_LBRACKET:
        return parse_list(p, node_p);
    case JINJA_P_LBRACE:
        return parse_dict(p, node_p);
    default:
        return jinja_unexpected(p, "an expression");
    }
}

static bool ends_tuple(const jinja_parser_t *p, const char *end)
{
    return jinja_is_next(p, JINJA_P_VARIABLE_END) ||
           jinja_is_next(p, JINJA_P_BLOCK_END) ||
           jinja_is_next(p, JINJA_P_RPAREN) ||
           (end != NULL && jinja_is_word(p, end));
}

loong_status_t jinja_parse_tuple(jinja_parser_t *p, int how, const char *end,
                                 jinja_node_t **node_p)
{
    const jinja_piece_t *begin = jinja_next(p);
    jinja_chain_t chain = {0};
    bool tuple = false;
    while (!ends_tuple(p, end)) {
        jinja_node_t *item = NULL;
        LOONG_TRY(how & JINJA_TARGET ? jinja_parse_primary(p, how, &item)
                                     : jinja_parse_expression(p, how, &item));
        jinja_chain_add(&chain, item);
        if (!jinja_skip(p, JINJA_P_COMMA)) {
            break;
        }
        tuple = true;
    }
    if (!tuple && chain.first != NULL) {
        *node_p = chain.first;
        return LOONG_OK;
    }
    if (!tuple && !(how & JINJA_PARENTHESES)) {
        return jinja_unexpected(p, "an expression");
    }
    LOONG_TRY(jinja_node(p, JINJA_N_TUPLE, begin, node_p));
    (*node_p)->list = chain.first;
    return LOONG_OK;
}

static loong_status_t check_target(jinja_parser_t *p, const jinja_node_t *node)
{
    if (node->kind == JINJA_N_NAME || node->kind == JINJA_N_NSREF) {
        return LOONG_OK;
    }
    if (node->kind != JINJA_N_TUPLE) {
        return jinja_fail_at(p->jinja, p->ctx,
                             (const int[2]){node->line, node->column},
                             "expected a name to assign to");
    }
    for (const jinja_node_t *n = node->list; n != NULL; n = n->next) {
        LOONG_TRY(check_target(p, n));
    }
    return LOONG_OK;
}

loong_status_t jinja_parse_target(jinja_parser_t *p, int how, const char *end,
                                  jinja_node_t **node_p)
{
    LOONG_TRY(jinja_parse_tuple(p, JINJA_TARGET | how, end, node_p));
    return check_target(p, *node_p);
}
