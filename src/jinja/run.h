/* SPDX-License-Identifier: Apache-2.0
 *
 * One rendering: scopes, output, bounds; and the operations of values that
 * all of it uses. Everything fails at the node that runs.
 */
#ifndef LOONG_JINJA_RUN_H
#define LOONG_JINJA_RUN_H

#include "builtin.h"
#include "parse.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Names that were given a value inside of a loop, a macro, a block. */
typedef struct jinja_slot {
    int name;
    value_t value;
} jinja_slot_t;

typedef struct jinja_scope {
    struct jinja_scope *parent; /* NULL: the template itself */
    int count, room;
    jinja_slot_t *slots;
} jinja_scope_t;

enum { JINJA_ON, JINJA_LEAVE, JINJA_GO_ON }; /* of jinja_run_t.leaving */

typedef struct jinja_run {
    loong_context_t *ctx;
    const loong_jinja_t *jinja;
    heap_t *heap;
    loong_jinja_output_t *out;
    loong_jinja_limits_t limits;
    int64_t steps;
    int depth;     /* macros, loops, values in each other */
    int nested;    /* expressions and statements in each other */
    int captures;  /* outputs that become values */
    int leaving;   /* what a loop is asked for */
    int loop_name; /* the number of the name `loop`; -1: not used */
    value_t *root; /* by name: variables, functions, what the template sets */
    jinja_scope_t *scope; /* NULL: root */
    const jinja_node_t *at;
    const jinja_node_t *printed; /* the expression; NULL: other statements */
} jinja_run_t;

typedef jinja_run_t run_t;

/* Fails at the node that runs. */
loong_status_t jinja_fail(run_t *r, const char *fmt, ...) LOONG_PRINTF(2, 3);
loong_status_t jinja_over_limit(run_t *r, const char *what, int64_t limit);
/* "'x' is undefined" */
loong_status_t jinja_fail_undefined(run_t *r, value_t undefined);

static inline loong_status_t jinja_step(run_t *r)
{
    return ++r->steps <= r->limits.max_steps
               ? LOONG_OK
               : jinja_over_limit(r, "steps", r->limits.max_steps);
}
LOONG_NODISCARD loong_status_t jinja_enter(run_t *r); /* r->depth-- leaves */
LOONG_NODISCARD loong_status_t jinja_nest(run_t *r);  /* r->nested-- */

/* --- output --- */

LOONG_NODISCARD loong_status_t jinja_emit(run_t *r, const char *text,
                                          size_t length);
static inline size_t jinja_mark(const run_t *r)
{
    return r->out->length;
}
/* What was emitted since mark, as a value instead. */
LOONG_NODISCARD loong_status_t jinja_take(run_t *r, size_t mark,
                                          value_t *text_p);

/* print.c: as Python's str() and repr() */
LOONG_NODISCARD loong_status_t jinja_print(run_t *r, value_t value);
LOONG_NODISCARD loong_status_t jinja_print_repr(run_t *r, value_t value);
LOONG_NODISCARD loong_status_t jinja_to_text(run_t *r, value_t value,
                                             value_t *text_p);
enum { JINJA_REAL_BYTES = 40 };
int jinja_real_text(double real, char out[JINJA_REAL_BYTES]);

/* json.c: json.dumps */
typedef struct jinja_json_style {
    bool ascii, sorted;
    const char *indent; /* NULL: one line */
    size_t indent_length;
    value_t item, key; /* separators */
} jinja_json_style_t;
LOONG_NODISCARD loong_status_t jinja_print_json(run_t *r, value_t value,
                                                const jinja_json_style_t *s,
                                                int level);

/* --- operations: ops.c --- */

const char *jinja_type_name(value_t value); /* Python's */
bool jinja_truth(value_t value);
LOONG_NODISCARD loong_status_t jinja_length(run_t *r, value_t value,
                                            int64_t *length_p);
LOONG_NODISCARD loong_status_t jinja_equal(run_t *r, value_t a, value_t b,
                                           bool *equal_p);
/* op: LT, LTEQ, GT, GTEQ */
LOONG_NODISCARD loong_status_t jinja_order(run_t *r, jinja_piece_kind_t op,
                                           value_t a, value_t b, bool *is_p);
LOONG_NODISCARD loong_status_t jinja_compare(run_t *r, jinja_piece_kind_t op,
                                             value_t a, value_t b, bool *is_p);
LOONG_NODISCARD loong_status_t jinja_contains(run_t *r, value_t in,
                                              value_t item, bool *is_p);
/* The byte at which needle stands in text at or behind `from`, or -1. */
int64_t jinja_find_text(value_t text, value_t needle, size_t from);
LOONG_NODISCARD loong_status_t jinja_put(run_t *r, value_t dict, value_t key,
                                         value_t value);

/* arithmetic.c */
LOONG_NODISCARD loong_status_t jinja_binary(run_t *r, jinja_piece_kind_t op,
                                            value_t a, value_t b,
                                            value_t *value_p);
LOONG_NODISCARD loong_status_t jinja_sign(run_t *r, bool negative, value_t a,
                                          value_t *value_p);
LOONG_NODISCARD loong_status_t jinja_escape(run_t *r, value_t text,
                                            value_t *escaped_p);

/* iterate.c */
LOONG_NODISCARD loong_status_t jinja_iterate(run_t *r, value_t over,
                                             jinja_iter_t *it);
LOONG_NODISCARD loong_status_t jinja_iter_next(run_t *r, jinja_iter_t *it,
                                               value_t *item_p, bool *is_p);
/* All that is left of it, as a list. */
LOONG_NODISCARD loong_status_t jinja_to_list(run_t *r, value_t value,
                                             value_t *list_p);
LOONG_NODISCARD loong_status_t jinja_to_iterator(run_t *r, value_t list,
                                                 value_t *iterator_p);
bool jinja_is_iterable(value_t value);

/* --- members: member.c --- */

value_t jinja_undefined(const char *hint);
LOONG_NODISCARD loong_status_t jinja_getattr(run_t *r, value_t of, value_t name,
                                             value_t *value_p);
LOONG_NODISCARD loong_status_t jinja_getitem(run_t *r, value_t of, value_t key,
                                             value_t *value_p);
/* NONE stands for a bound that is not given. */
bool jinja_can_slice(value_t of, const value_t bound[3]);
LOONG_NODISCARD loong_status_t jinja_slice(run_t *r, value_t of,
                                           const value_t bound[3],
                                           value_t *value_p);
const jinja_builtin_t *jinja_find_method(value_t of, value_t name);

/* --- calls: call.c, macro.c, loop.c --- */

typedef struct jinja_method {
    const jinja_builtin_t *row;
    value_t self;
} jinja_method_t;

typedef struct jinja_macro {
    const jinja_node_t *node; /* MACRO or CALL_BLOCK */
    jinja_scope_t *scope;     /* that it was made in */
} jinja_macro_t;

LOONG_NODISCARD loong_status_t jinja_call(run_t *r, value_t called,
                                          const jinja_args_t *args,
                                          value_t *result_p);
LOONG_NODISCARD loong_status_t jinja_call_row(run_t *r,
                                              const jinja_builtin_t *row,
                                              value_t self,
                                              const jinja_args_t *args,
                                              value_t *result_p);
/* The same; what methods make of markup is markup. */
LOONG_NODISCARD loong_status_t jinja_call_method(run_t *r,
                                                 const jinja_builtin_t *row,
                                                 value_t self,
                                                 const jinja_args_t *args,
                                                 value_t *result_p);
LOONG_NODISCARD loong_status_t jinja_call_macro(run_t *r,
                                                const jinja_macro_t *macro,
                                                const jinja_args_t *args,
                                                value_t *result_p);
LOONG_NODISCARD loong_status_t jinja_eval_args(run_t *r,
                                               const jinja_node_t *list,
                                               jinja_args_t *args);

typedef struct jinja_loop {
    const jinja_node_t *node;
    jinja_scope_t *outside; /* the scope that the loop stands in */
    jinja_iter_t source;
    value_t over;
    value_t before, current, after; /* MISSING: none (yet) */
    value_t last_changed;
    int64_t index0;
    int64_t length; /* -1: not asked for yet */
    int64_t depth0;
} jinja_loop_t;

LOONG_NODISCARD loong_status_t jinja_run_loop(run_t *r,
                                              const jinja_node_t *node,
                                              value_t over, int64_t depth0);
LOONG_NODISCARD loong_status_t jinja_loop_member(run_t *r, jinja_loop_t *loop,
                                                 value_t name,
                                                 value_t *value_p);
LOONG_NODISCARD loong_status_t jinja_call_loop(run_t *r, jinja_loop_t *loop,
                                               const jinja_args_t *args,
                                               value_t *result_p);
extern const jinja_builtin_t jinja_loop_methods[];

typedef struct jinja_cycler {
    jinja_list_t *items;
    int64_t at;
} jinja_cycler_t;
extern const jinja_builtin_t jinja_cycler_methods[];

typedef struct jinja_joiner {
    value_t separator;
    bool used;
} jinja_joiner_t;

/* --- eval.c, exec.c --- */

LOONG_NODISCARD loong_status_t jinja_eval(run_t *r, const jinja_node_t *node,
                                          value_t *value_p);
LOONG_NODISCARD loong_status_t jinja_apply_filter(run_t *r,
                                                  const jinja_node_t *filter,
                                                  value_t input,
                                                  value_t *value_p);
LOONG_NODISCARD loong_status_t jinja_exec(run_t *r, const jinja_node_t *list);
/* The output of a list of statements, as a value, in a scope of its own. */
LOONG_NODISCARD loong_status_t jinja_capture(run_t *r, const jinja_node_t *list,
                                             jinja_scope_t *scope,
                                             value_t *text_p);
LOONG_NODISCARD loong_status_t jinja_assign(run_t *r,
                                            const jinja_node_t *target,
                                            value_t value);

/* scope.c */
value_t jinja_lookup(const run_t *r, int name);
LOONG_NODISCARD loong_status_t jinja_define(run_t *r, int name, value_t value);
LOONG_NODISCARD loong_status_t jinja_scope_new(run_t *r, jinja_scope_t *parent,
                                               jinja_scope_t **scope_p);

#ifdef __cplusplus
}
#endif

#endif
