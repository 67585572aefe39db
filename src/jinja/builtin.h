/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters, tests, methods and functions: each is a row of a table, with the
 * names of what it takes.
 */
#ifndef LOONG_JINJA_BUILTIN_H
#define LOONG_JINJA_BUILTIN_H

#include "value.h"

#ifdef __cplusplus
extern "C" {
#endif

struct jinja_run;

enum { JINJA_MAX_PARAMETERS = 7 };

/* Arguments as they are written in a call. */
typedef struct jinja_args {
    int64_t count;
    value_t *items;
    jinja_dict_t *named; /* NULL: none */
} jinja_args_t;

typedef struct jinja_call {
    const struct jinja_builtin *builtin;
    value_t self;                      /* of a filter, a test, a method */
    value_t arg[JINJA_MAX_PARAMETERS]; /* MISSING where nothing was given */
    const jinja_args_t *args;          /* as they came */
} jinja_call_t;

typedef loong_status_t (*jinja_builtin_fn)(struct jinja_run *r,
                                           const jinja_call_t *call,
                                           value_t *result);

typedef struct jinja_builtin {
    const char *name;
    /* Names of parameters, the needed ones first; "-" is one that has none;
     * NULL: any arguments, found in args. */
    const char *parameters;
    int needed;
    jinja_builtin_fn call;
} jinja_builtin_t;

/* All of these end with a row without a name. */
extern const jinja_builtin_t jinja_text_filters[];
extern const jinja_builtin_t jinja_value_filters[];
extern const jinja_builtin_t jinja_list_filters[];
extern const jinja_builtin_t jinja_select_filters[];
extern const jinja_builtin_t jinja_tests[];
extern const jinja_builtin_t jinja_functions[];
extern const jinja_builtin_t jinja_str_methods[];
extern const jinja_builtin_t jinja_str_questions[];
extern const jinja_builtin_t jinja_list_methods[];
extern const jinja_builtin_t jinja_tuple_methods[]; /* and of ranges */
extern const jinja_builtin_t jinja_dict_methods[];

const jinja_builtin_t *jinja_find_row(const jinja_builtin_t *table,
                                      value_t name);
const jinja_builtin_t *jinja_find_filter(value_t name);
const jinja_builtin_t *jinja_find_test(value_t name);

#ifdef __cplusplus
}
#endif

#endif
