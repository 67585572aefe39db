/* SPDX-License-Identifier: Apache-2.0
 *
 * Templates and their statements. Called by those who render templates. Read
 * parse.h before; expressions are in parse_expression.c. */
#include <stdio.h>
#include <string.h>

#include "builtin.h"
#include "parse.h"

enum { MAX_DEPTH = 200, MAX_TREE_DEPTH = 400 };

static loong_status_t parse_body(jinja_parser_t *p, const char *const *ends,
                                 jinja_node_t **list_p);

const char *jinja_piece_text(jinja_piece_kind_t kind)
{
    static const char *const texts[] = {
#define PIECE_TEXT(name_, text_) text_,
        JINJA_PIECE_LIST(PIECE_TEXT)
#undef PIECE_TEXT
    };
    return texts[kind];
}

loong_status_t jinja_fail_at(const loong_jinja_t *jinja, loong_context_t *ctx,
                             const int position[2], const char *fmt, ...)
{
    loong_text_t text = loongi_text_begin(ctx);
    char message[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    loongi_text_printf(&text, "%s:%d:%d: %s", jinja->where, position[0],
                       position[1], message);
    loong_status_t status =
        LOONG_FAIL(ctx, LOONG_ERR_FORMAT, "%s", loongi_text_get(&text));
    loongi_text_free(&text);
    return status;
}

loong_status_t jinja_unexpected(jinja_parser_t *p, const char *expected)
{
    const jinja_piece_t *piece = jinja_next(p);
    const int place[2] = {piece->line, piece->column};
    if (piece->kind == JINJA_P_NAME) {
        return jinja_fail_at(p->jinja, p->ctx, place,
                             "expected %s, not the name '%.*s'", expected,
                             (int)LOONG_MIN(piece->value.length, (size_t)60),
                             piece->value.as.text);
    }
    return jinja_fail_at(p->jinja, p->ctx, place, "expected %s, not %s",
                         expected, jinja_piece_text(piece->kind));
}

loong_status_t jinja_name(loong_jinja_t *jinja, value_t text, int *name_p)
{
    jinja_entry_t *entry = jinja_dict_find(&jinja->names, text);
    *name_p =
        entry != NULL ? (int)entry->value.as.integer : (int)jinja->names.count;
    return entry != NULL ? LOONG_OK
                         : jinja_dict_put(jinja->heap, &jinja->names, text,
                                          loongi_jinja_int(*name_p));
}

loong_status_t jinja_node(jinja_parser_t *p, int kind, const jinja_piece_t *at,
                          jinja_node_t **node_p)
{
    jinja_node_t *node = NULL;
    LOONG_TRY(jinja_new(p->jinja->heap, sizeof(*node), &node));
    memset(node, 0, sizeof(*node));
    node->kind = (jinja_node_kind_t)kind;
    node->line = at->line;
    node->column = at->column;
    *node_p = node;
    return LOONG_OK;
}

loong_status_t jinja_deeper(jinja_parser_t *p)
{
    if (++p->depth > MAX_DEPTH) {
        return jinja_fail_at(
            p->jinja, p->ctx,
            (const int[2]){jinja_next(p)->line, jinja_next(p)->column},
            "more than %d things in each other", MAX_DEPTH);
    }
    return LOONG_OK;
}

bool jinja_is_word(const jinja_parser_t *p, const char *word)
{
    return jinja_is_next(p, JINJA_P_NAME) &&
           jinja_is(jinja_next(p)->value, word);
}

bool jinja_skip_word(jinja_parser_t *p, const char *word)
{
    bool found = jinja_is_word(p, word);
    p->at += found;
    return found;
}

bool jinja_skip(jinja_parser_t *p, jinja_piece_kind_t kind)
{
    bool found = jinja_is_next(p, kind);
    p->at += found;
    return found;
}

loong_status_t jinja_expect(jinja_parser_t *p, jinja_piece_kind_t kind)
{
    return jinja_skip(p, kind) ? LOONG_OK
                               : jinja_unexpected(p, jinja_piece_text(kind));
}

/* `%}`, statements, and the tag that ends them, which is next then. */
static loong_status_t parse_block(jinja_parser_t *p, const char *const *ends,
                                  jinja_node_t **list_p)
{
    jinja_skip(p, JINJA_P_COLON);
    LOONG_TRY(jinja_expect(p, JINJA_P_BLOCK_END));
    return parse_body(p, ends, list_p);
}

static loong_status_t parse_until(jinja_parser_t *p, const char *end,
                                  jinja_node_t **list_p)
{
    LOONG_TRY(parse_block(p, (const char *const[]){end, NULL}, list_p));
    p->at++;
    return LOONG_OK;
}

static loong_status_t parse_for(jinja_parser_t *p, jinja_node_t *node)
{
    LOONG_TRY(jinja_parse_target(p, 0, "in", &node->a));
    if (!jinja_skip_word(p, "in")) {
        return jinja_unexpected(p, "'in'");
    }
    LOONG_TRY(jinja_parse_tuple(p, JINJA_NO_CONDITION, "recursive", &node->b));
    if (jinja_skip_word(p, "if")) {
        LOONG_TRY(jinja_parse_expression(p, 0, &node->c));
    }
    node->flag = jinja_skip_word(p, "recursive");
    p->loops++;
    LOONG_TRY(parse_block(p, (const char *const[]){"endfor", "else", NULL},
                          &node->list));
    p->loops--;
    return jinja_skip_word(p, "else") ? parse_until(p, "endfor", &node->orelse)
                                      : (p->at++, LOONG_OK);
}

static loong_status_t parse_if(jinja_parser_t *p, jinja_node_t *node)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    for (;;) {
        LOONG_TRY(jinja_parse_tuple(p, JINJA_NO_CONDITION, NULL, &node->a));
        LOONG_TRY(parse_block(p, ends, &node->list));
        if (jinja_skip_word(p, "else")) {
            return parse_until(p, "endif", &node->orelse);
        }
        const jinja_piece_t *place = jinja_next(p);
        if (!jinja_skip_word(p, "elif")) {
            p->at++;
            return LOONG_OK;
        }
        LOONG_TRY(jinja_node(p, JINJA_N_IF, place, &node->orelse));
        node = node->orelse;
    }
}

static loong_status_t parse_set(jinja_parser_t *p, jinja_node_t *node)
{
    LOONG_TRY(jinja_parse_target(p, JINJA_ATTRIBUTES, NULL, &node->a));
    if (jinja_skip(p, JINJA_P_ASSIGN)) {
        return jinja_parse_tuple(p, 0, NULL, &node->b);
    }
    node->kind = JINJA_N_SET_BLOCK;
    LOONG_TRY(jinja_parse_filters(p, false, NULL, &node->b));
    return parse_until(p, "endset", &node->list);
}

static loong_status_t parse_parameters(jinja_parser_t *p, jinja_node_t **list_p)
{
    jinja_chain_t chain = {0};
    bool defaults = false;
    LOONG_TRY(jinja_expect(p, JINJA_P_LPAREN));
    while (!jinja_is_next(p, JINJA_P_RPAREN)) {
        jinja_node_t *parameter = NULL;
        if (chain.first != NULL) {
            LOONG_TRY(jinja_expect(p, JINJA_P_COMMA));
        }
        const jinja_piece_t *name = jinja_next(p);
        LOONG_TRY(jinja_expect(p, JINJA_P_NAME));
        LOONG_TRY(jinja_node(p, JINJA_N_PARAMETER, name, &parameter));
        LOONG_TRY(jinja_name(p->jinja, name->value, &parameter->name));
        parameter->value = name->value;
        for (const jinja_node_t *n = chain.first; n != NULL; n = n->next) {
            if (n->name == parameter->name) {
                p->at--;
                return jinja_unexpected(p,
                                        "a name that no other parameter has");
            }
        }
        jinja_chain_add(&chain, parameter);
        if (jinja_skip(p, JINJA_P_ASSIGN)) {
            LOONG_TRY(jinja_parse_expression(p, 0, &parameter->a));
            defaults = true;
        } else if (defaults) {
            return jinja_unexpected(p, "a default behind another default");
        }
    }
    p->at++;
    *list_p = chain.first;
    return LOONG_OK;
}

/* A body that runs somewhere else: no loop can be left from there. */
static loong_status_t parse_macro_body(jinja_parser_t *p, const char *end,
                                       jinja_node_t *node)
{
    int loops = p->loops;
    int uses = p->uses;
    p->loops = 0;
    p->uses = 0;
    LOONG_TRY(parse_until(p, end, &node->list));
    node->uses = p->uses;
    p->uses |= uses;
    p->loops = loops;
    return LOONG_OK;
}

static loong_status_t parse_macro(jinja_parser_t *p, jinja_node_t *node)
{
    const jinja_piece_t *name = jinja_next(p);
    LOONG_TRY(jinja_expect(p, JINJA_P_NAME));
    LOONG_TRY(jinja_name(p->jinja, name->value, &node->name));
    node->value = name->value;
    LOONG_TRY(parse_parameters(p, &node->a));
    return parse_macro_body(p, "endmacro", node);
}

static loong_status_t parse_call(jinja_parser_t *p, jinja_node_t *node)
{
    if (jinja_is_next(p, JINJA_P_LPAREN)) {
        LOONG_TRY(parse_parameters(p, &node->a));
    }
    LOONG_TRY(jinja_parse_expression(p, 0, &node->b));
    if (node->b->kind != JINJA_N_CALL) {
        return jinja_unexpected(p, "a call in a call block");
    }
    return parse_macro_body(p, "endcall", node);
}

static loong_status_t parse_filter_block(jinja_parser_t *p, jinja_node_t *node)
{
    LOONG_TRY(jinja_parse_filters(p, true, NULL, &node->b));
    return parse_until(p, "endfilter", &node->list);
}

static loong_status_t parse_with(jinja_parser_t *p, jinja_node_t *node)
{
    jinja_chain_t chain = {0};
    while (!jinja_is_next(p, JINJA_P_BLOCK_END)) {
        jinja_node_t *set = NULL;
        if (chain.first != NULL) {
            LOONG_TRY(jinja_expect(p, JINJA_P_COMMA));
        }
        LOONG_TRY(jinja_node(p, JINJA_N_SET, jinja_next(p), &set));
        LOONG_TRY(jinja_parse_target(p, 0, NULL, &set->a));
        LOONG_TRY(jinja_expect(p, JINJA_P_ASSIGN));
        LOONG_TRY(jinja_parse_expression(p, 0, &set->b));
        jinja_chain_add(&chain, set);
    }
    node->a = chain.first;
    return parse_until(p, "endwith", &node->list);
}

static loong_status_t parse_generation(jinja_parser_t *p, jinja_node_t *node)
{
    p->jinja->has_generation = true;
    return parse_macro_body(p, "endgeneration", node);
}

/* `{% print a, b %}` */
static loong_status_t parse_print(jinja_parser_t *p, jinja_node_t *node)
{
    while (!jinja_is_next(p, JINJA_P_BLOCK_END)) {
        if (node->a != NULL) {
            LOONG_TRY(jinja_expect(p, JINJA_P_COMMA));
            LOONG_TRY(jinja_node(p, JINJA_N_PRINT, jinja_next(p), &node->next));
            node = node->next;
        }
        LOONG_TRY(jinja_parse_expression(p, 0, &node->a));
    }
    return LOONG_OK;
}

static loong_status_t parse_leave(jinja_parser_t *p, jinja_node_t *node)
{
    (void)node;
    return p->loops > 0
               ? LOONG_OK
               : jinja_unexpected(p, "no break or continue outside of a loop");
}

static loong_status_t refuse(jinja_parser_t *p, const jinja_piece_t *tag)
{
    static const char *const files[] = {"include", "import", "from",
                                        "extends", "block",  "autoescape"};
    for (int64_t k = 0; k < LOONG_COUNT_OF(files); k++) {
        if (jinja_is(tag->value, files[k])) {
            return LOONG_FAIL(p->ctx, LOONG_ERR_UNSUPPORTED,
                              "%s:%d:%d: '%s' is not offered: a chat template "
                              "is one file, and plain text",
                              p->jinja->where, tag->line, tag->column,
                              files[k]);
        }
    }
    return jinja_fail_at(
        p->jinja, p->ctx, (const int[2]){tag->line, tag->column},
        "unknown tag '%.*s'", (int)LOONG_MIN(tag->value.length, (size_t)60),
        tag->value.as.text);
}

static loong_status_t parse_statement(jinja_parser_t *p, jinja_node_t **node_p)
{
    static const struct {
        const char *tag;
        jinja_node_kind_t kind;
        loong_status_t (*parse)(jinja_parser_t *p, jinja_node_t *node);
    } statements[] = {
        {"if", JINJA_N_IF, parse_if},
        {"for", JINJA_N_FOR, parse_for},
        {"set", JINJA_N_SET, parse_set},
        {"macro", JINJA_N_MACRO, parse_macro},
        {"call", JINJA_N_CALL_BLOCK, parse_call},
        {"filter", JINJA_N_FILTER_BLOCK, parse_filter_block},
        {"with", JINJA_N_WITH, parse_with},
        {"generation", JINJA_N_GENERATION, parse_generation},
        {"print", JINJA_N_PRINT, parse_print},
        {"break", JINJA_N_BREAK, parse_leave},
        {"continue", JINJA_N_CONTINUE, parse_leave},
    };
    const jinja_piece_t *tag = jinja_next(p);
    for (int64_t k = 0; k < LOONG_COUNT_OF(statements); k++) {
        if (jinja_skip_word(p, statements[k].tag)) {
            LOONG_TRY(jinja_node(p, statements[k].kind, tag, node_p));
            LOONG_TRY(jinja_deeper(p));
            LOONG_TRY(statements[k].parse(p, *node_p));
            p->depth--;
            return jinja_expect(p, JINJA_P_BLOCK_END);
        }
    }
    return tag->kind == JINJA_P_NAME ? refuse(p, tag)
                                     : jinja_unexpected(p, "a tag");
}

static bool is_end(const jinja_parser_t *p, const char *const *ends)
{
    for (; ends != NULL && *ends != NULL; ends++) {
        if (jinja_is_word(p, *ends)) {
            return true;
        }
    }
    return false;
}

static loong_status_t parse_output(jinja_parser_t *p, jinja_node_t **node_p)
{
    const jinja_piece_t *piece = jinja_next(p);
    p->at++;
    LOONG_TRY(jinja_node(
        p, piece->kind == JINJA_P_DATA ? JINJA_N_DATA : JINJA_N_PRINT, piece,
        node_p));
    (*node_p)->value = piece->value;
    if (piece->kind == JINJA_P_DATA) {
        return LOONG_OK;
    }
    LOONG_TRY(jinja_parse_tuple(p, 0, NULL, &(*node_p)->a));
    return jinja_expect(p, JINJA_P_VARIABLE_END);
}

/* Statements up to a tag of ends, which is next then; NULL: up to the end. */
static loong_status_t parse_body(jinja_parser_t *p, const char *const *ends,
                                 jinja_node_t **list_p)
{
    jinja_chain_t chain = {0};
    while (!jinja_is_next(p, JINJA_P_END)) {
        jinja_node_t *node = NULL;
        if (!jinja_skip(p, JINJA_P_BLOCK_BEGIN)) {
            LOONG_TRY(parse_output(p, &node));
        } else if (is_end(p, ends)) {
            *list_p = chain.first;
            return LOONG_OK;
        } else {
            LOONG_TRY(parse_statement(p, &node));
        }
        while (node != NULL) {
            jinja_chain_add(&chain, node);
            node = node->next;
        }
    }
    if (ends != NULL) {
        char expected[32];
        snprintf(expected, sizeof(expected), "'{%% %s'", ends[0]);
        return jinja_unexpected(p, expected);
    }
    *list_p = chain.first;
    return LOONG_OK;
}

/* Nothing is deeper than what rendering can follow; and a filter that nobody
 * knows is an error at once, unless it stands in a branch that may never run.*/
static loong_status_t check_tree(jinja_parser_t *p, const jinja_node_t *node,
                                 int depth, bool branch)
{
    for (; node != NULL; node = node->next) {
        const int place[2] = {node->line, node->column};
        bool below = branch;
        if (depth > MAX_TREE_DEPTH) {
            return jinja_fail_at(p->jinja, p->ctx, place,
                                 "more than %d things in each other",
                                 MAX_TREE_DEPTH);
        }
        if (node->kind == JINJA_N_IF || node->kind == JINJA_N_CONDITION) {
            below = true;
        } else if (node->kind == JINJA_N_FOR ||
                   node->kind >= JINJA_N_SET_BLOCK) {
            below = false;
        }
        if ((node->kind == JINJA_N_FILTER || node->kind == JINJA_N_TEST) &&
            node->builtin == NULL && !branch) {
            return jinja_fail_at(p->jinja, p->ctx, place,
                                 "there is no %s '%.*s'",
                                 node->kind == JINJA_N_TEST ? "test" : "filter",
                                 (int)LOONG_MIN(node->value.length, (size_t)60),
                                 node->value.as.text);
        }
        const jinja_node_t *const part[] = {node->a, node->b, node->c,
                                            node->list, node->orelse};
        for (int64_t k = 0; k < LOONG_COUNT_OF(part); k++) {
            LOONG_TRY(check_tree(p, part[k], depth + 1, below));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_jinja_parse(loong_context_t *ctx, const char *text,
                                  size_t length, const char *where,
                                  loong_jinja_t **template_p)
{
    loong_jinja_t *jinja = NULL;
    jinja_parser_t p = {.ctx = ctx};
    loong_status_t status = LOONG_OK;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*jinja), "a template", &jinja));
    jinja->ctx = ctx;
    p.jinja = jinja;
    LOONG_TRY_GOTO(loongi_jinja_values_create(ctx, &jinja->heap), status, out);
    LOONG_TRY_GOTO(loongi_strdup(ctx, where, &jinja->where), status, out);
    LOONG_TRY_GOTO(jinja_cut(&p, text, length), status, out);
    LOONG_TRY_GOTO(parse_body(&p, NULL, &jinja->body), status, out);
    LOONG_TRY_GOTO(check_tree(&p, jinja->body, 0, false), status, out);
out:
    loongi_free(ctx, p.pieces);
    if (status != LOONG_OK) {
        loongi_jinja_destroy(&jinja);
        return status;
    }
    *template_p = jinja;
    return LOONG_OK;
}

void loongi_jinja_destroy(loong_jinja_t **jinja)
{
    loong_jinja_t *j = *jinja;
    if (j != NULL) {
        loongi_jinja_values_destroy(&j->heap);
        loongi_free(j->ctx, j->where);
        loongi_free(j->ctx, j);
        *jinja = NULL;
    }
}

bool loongi_jinja_has_generation(const loong_jinja_t *jinja)
{
    return jinja->has_generation;
}
