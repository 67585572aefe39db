/* SPDX-License-Identifier: Apache-2.0
 *
 * A parsed template: nodes of statements and expressions, and the pieces of
 * its text that they were made of.
 */
#ifndef LOONG_JINJA_PARSE_H
#define LOONG_JINJA_PARSE_H

#include "value.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, what a message calls it): pieces of a template's text. */
#define JINJA_PIECE_LIST(X)           \
    X(END, "the end of the template") \
    X(DATA, "text")                   \
    X(VARIABLE_BEGIN, "'{{'")         \
    X(VARIABLE_END, "'}}'")           \
    X(BLOCK_BEGIN, "'{%'")            \
    X(BLOCK_END, "'%}'")              \
    X(NAME, "a name")                 \
    X(STRING, "a string")             \
    X(INTEGER, "an integer")          \
    X(REAL, "a number")               \
    X(FLOORDIV, "'//'")               \
    X(POW, "'**'")                    \
    X(EQ, "'=='")                     \
    X(NE, "'!='")                     \
    X(GTEQ, "'>='")                   \
    X(LTEQ, "'<='")                   \
    X(ADD, "'+'")                     \
    X(SUB, "'-'")                     \
    X(DIV, "'/'")                     \
    X(MUL, "'*'")                     \
    X(MOD, "'%'")                     \
    X(TILDE, "'~'")                   \
    X(LBRACKET, "'['")                \
    X(RBRACKET, "']'")                \
    X(LPAREN, "'('")                  \
    X(RPAREN, "')'")                  \
    X(LBRACE, "'{'")                  \
    X(RBRACE, "'}'")                  \
    X(GT, "'>'")                      \
    X(LT, "'<'")                      \
    X(ASSIGN, "'='")                  \
    X(DOT, "'.'")                     \
    X(COLON, "':'")                   \
    X(PIPE, "'|'")                    \
    X(COMMA, "','")                   \
    X(SEMICOLON, "';'")               \
    X(IN, "'in'")                     \
    X(NOT_IN, "'not in'")

typedef enum jinja_piece_kind {
#define JINJA_PIECE_ENUM(name_, text_) JINJA_P_##name_,
    JINJA_PIECE_LIST(JINJA_PIECE_ENUM)
#undef JINJA_PIECE_ENUM
} jinja_piece_kind_t;

/* What a message calls it. */
const char *jinja_piece_text(jinja_piece_kind_t kind);

typedef struct jinja_piece {
    jinja_piece_kind_t kind;
    int line, column; /* from 1; a column is a character */
    value_t value;    /* text, name, string, number */
} jinja_piece_t;

typedef enum jinja_node_kind {
    /* expressions */
    JINJA_N_CONST, /* value */
    JINJA_N_NAME,  /* name, value: its text */
    JINJA_N_NSREF, /* name, value: the attribute (a target only) */
    JINJA_N_TUPLE, /* list */
    JINJA_N_LITERAL_LIST,
    JINJA_N_LITERAL_DICT, /* list: of PAIR */
    JINJA_N_PAIR,         /* a: b */
    JINJA_N_GETATTR,      /* a.value */
    JINJA_N_GETITEM,      /* a[b] */
    JINJA_N_SLICE,        /* a:b:c, each may be NULL */
    JINJA_N_CALL,         /* a(list) */
    JINJA_N_KEYWORD,      /* value=a in a list of arguments */
    JINJA_N_STAR,         /* *a */
    JINJA_N_STAR_STAR,    /* **a */
    JINJA_N_FILTER,       /* a | value(list); a may be NULL */
    JINJA_N_TEST,         /* a is value(list) */
    JINJA_N_NOT,
    JINJA_N_NEGATIVE,
    JINJA_N_POSITIVE,
    JINJA_N_BINARY,  /* a op b */
    JINJA_N_CONCAT,  /* list */
    JINJA_N_COMPARE, /* a, list: of OPERAND */
    JINJA_N_OPERAND, /* op a */
    JINJA_N_AND,
    JINJA_N_OR,
    JINJA_N_CONDITION, /* b if a else c; c may be NULL */
    /* statements */
    JINJA_N_DATA,         /* value */
    JINJA_N_PRINT,        /* a */
    JINJA_N_FOR,          /* for a in b if c: list, orelse; flag: recursive */
    JINJA_N_IF,           /* if a: list, orelse */
    JINJA_N_SET,          /* a = b */
    JINJA_N_SET_BLOCK,    /* a = list, filtered by b or NULL */
    JINJA_N_MACRO,        /* name(a ...): list; uses */
    JINJA_N_CALL_BLOCK,   /* call(a ...) b: list; uses */
    JINJA_N_PARAMETER,    /* name, a: its default or NULL */
    JINJA_N_FILTER_BLOCK, /* list, filtered by b */
    JINJA_N_WITH,         /* a: of SET; list */
    JINJA_N_GENERATION,   /* list */
    JINJA_N_BREAK,
    JINJA_N_CONTINUE
} jinja_node_kind_t;

/* Special variables that the body of a macro speaks of. */
enum { JINJA_USES_CALLER = 1, JINJA_USES_KWARGS = 2, JINJA_USES_VARARGS = 4 };

enum { JINJA_MAX_OPEN = 100 }; /* brackets in each other */

struct jinja_builtin;

typedef struct jinja_node {
    jinja_node_kind_t kind;
    jinja_piece_kind_t op;
    int line, column;
    int name; /* number of a name in the template */
    int uses;
    bool flag;
    value_t value;
    const struct jinja_builtin *builtin; /* of a filter or test; NULL: none */
    struct jinja_node *a, *b, *c;
    struct jinja_node *list, *orelse;
    struct jinja_node *next; /* in the list that it is in */
} jinja_node_t;

struct loong_jinja {
    loong_context_t *ctx;
    heap_t *heap; /* of all below */
    char *where;
    jinja_node_t *body;
    jinja_dict_t names; /* name -> number; numbers are from 0 */
    bool has_generation;
};

/* The number of a name, given when it is new. */
LOONG_NODISCARD loong_status_t jinja_name(loong_jinja_t *jinja, value_t text,
                                          int *name_p);

/* What a parser stands on. */
typedef struct jinja_parser {
    loong_context_t *ctx;
    loong_jinja_t *jinja;
    jinja_piece_t *pieces; /* the last one is END */
    int64_t count, room;
    int64_t at;
    int depth; /* of nodes in each other */
    int loops; /* that a break may leave */
    int uses;  /* special variables seen in the macro that is parsed */
} jinja_parser_t;

/* Cuts text into pieces, with what Jinja does to white space. */
LOONG_NODISCARD loong_status_t jinja_cut(jinja_parser_t *p, const char *text,
                                         size_t length);

/* lex_inside.c: one piece of an expression at *at. */
LOONG_NODISCARD loong_status_t jinja_cut_string(jinja_parser_t *p,
                                                const char *text, size_t length,
                                                jinja_piece_t *piece);
LOONG_NODISCARD loong_status_t jinja_cut_number(jinja_parser_t *p,
                                                const char *at, const char *end,
                                                jinja_piece_t *piece,
                                                size_t *length_p);

/* "where:line:column: " and the message; LOONG_ERR_FORMAT. */
loong_status_t jinja_fail_at(const loong_jinja_t *jinja, loong_context_t *ctx,
                             const int position[2], const char *fmt, ...)
    LOONG_PRINTF(4, 5);
/* At the piece that is next: "expected ..., not ...". */
loong_status_t jinja_unexpected(jinja_parser_t *p, const char *expected);

LOONG_NODISCARD loong_status_t jinja_node(jinja_parser_t *p, int kind,
                                          const jinja_piece_t *at,
                                          jinja_node_t **node_p);
static inline const jinja_piece_t *jinja_next(const jinja_parser_t *p)
{
    return &p->pieces[p->at];
}
static inline bool jinja_is_next(const jinja_parser_t *p,
                                 jinja_piece_kind_t kind)
{
    return p->pieces[p->at].kind == kind;
}
/* Whether the next piece is this name; the second also goes past it. */
bool jinja_is_word(const jinja_parser_t *p, const char *word);
bool jinja_skip_word(jinja_parser_t *p, const char *word);
bool jinja_skip(jinja_parser_t *p, jinja_piece_kind_t kind);
LOONG_NODISCARD loong_status_t jinja_expect(jinja_parser_t *p,
                                            jinja_piece_kind_t kind);

/* One level deeper, up to a bound; p->depth-- leads back. */
LOONG_NODISCARD loong_status_t jinja_deeper(jinja_parser_t *p);

/* parse_primary.c: names, literals, what stands in brackets, targets. */
enum {
    JINJA_NO_CONDITION = 1, /* `if` ends the expression */
    JINJA_PARENTHESES = 2,  /* an empty tuple is one */
    JINJA_TARGET = 4,       /* names and tuples of names */
    JINJA_ATTRIBUTES = 8    /* and attributes of namespaces */
};
LOONG_NODISCARD loong_status_t jinja_parse_primary(jinja_parser_t *p, int how,
                                                   jinja_node_t **node_p);
/* Ends also before the name `end`, if there is one. */
LOONG_NODISCARD loong_status_t jinja_parse_tuple(jinja_parser_t *p, int how,
                                                 const char *end,
                                                 jinja_node_t **node_p);
LOONG_NODISCARD loong_status_t jinja_parse_target(jinja_parser_t *p, int how,
                                                  const char *end,
                                                  jinja_node_t **node_p);

/* parse_expression.c */
LOONG_NODISCARD loong_status_t jinja_parse_expression(jinja_parser_t *p,
                                                      int how,
                                                      jinja_node_t **node_p);
/* `| name(...)` as often as it comes, applied to input, which may be NULL;
 * begun: the first name comes without its bar. */
LOONG_NODISCARD loong_status_t jinja_parse_filters(jinja_parser_t *p,
                                                   bool begun,
                                                   jinja_node_t *input,
                                                   jinja_node_t **node_p);
/* A list of nodes that grows at its end. */
typedef struct jinja_chain {
    jinja_node_t *first, **end;
} jinja_chain_t;
static inline void jinja_chain_add(jinja_chain_t *chain, jinja_node_t *node)
{
    *(chain->first == NULL ? &chain->first : chain->end) = node;
    chain->end = &node->next;
}

#ifdef __cplusplus
}
#endif

#endif
