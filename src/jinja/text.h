/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations of str that methods and filters share; and arguments of both.
 */
#ifndef LOONG_JINJA_TEXT_H
#define LOONG_JINJA_TEXT_H

#include "run.h"
#include "unicode_text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Arguments: number k of a call, or what stands for it when it is absent. */
LOONG_NODISCARD loong_status_t jinja_arg_int(run_t *r, const jinja_call_t *call,
                                             int k, int64_t absent,
                                             int64_t *n_p);
LOONG_NODISCARD loong_status_t jinja_arg_text(run_t *r,
                                              const jinja_call_t *call, int k,
                                              const char *absent,
                                              value_t *text_p);
bool jinja_arg_truth(const jinja_call_t *call, int k, bool absent);
static inline bool jinja_arg_given(const jinja_call_t *call, int k)
{
    return call->arg[k].kind > JINJA_NONE;
}
/* self as a text, whatever it is. */
LOONG_NODISCARD loong_status_t jinja_soft_text(run_t *r,
                                               const jinja_call_t *call,
                                               value_t *text_p);

enum { JINJA_LEFT = 1, JINJA_RIGHT = 2 };
/* Without white space at its sides, or without these characters. */
value_t jinja_strip(value_t text, const value_t *characters, int sides);
/* most < 0: all of them. */
LOONG_NODISCARD loong_status_t jinja_replace(run_t *r, value_t text,
                                             value_t old, value_t by,
                                             int64_t most, value_t *text_p);
LOONG_NODISCARD loong_status_t jinja_split_lines(run_t *r, value_t text,
                                                 bool keep, value_t *list_p);
LOONG_NODISCARD loong_status_t jinja_join(run_t *r, value_t between,
                                          value_t items, bool strict,
                                          value_t *text_p);
LOONG_NODISCARD loong_status_t jinja_change_text(run_t *r, value_t text,
                                                 jinja_case_t to,
                                                 value_t *text_p);
LOONG_NODISCARD loong_status_t jinja_emit_lower(run_t *r, value_t text,
                                                size_t at, size_t end);
LOONG_NODISCARD loong_status_t jinja_capitalize(run_t *r, value_t text,
                                                value_t *text_p);
/* Padded to width on both sides, or at the left or right one. */
LOONG_NODISCARD loong_status_t jinja_justify(run_t *r, value_t text,
                                             int64_t width, value_t fill,
                                             int sides, value_t *text_p);

/* select_filters.c: "a.b" as a path; several by commas for sort. */
LOONG_NODISCARD loong_status_t jinja_get_path(run_t *r, value_t of,
                                              value_t path,
                                              const value_t *otherwise,
                                              value_t *value_p);

/* text_filters.c: refuses with LOONG_ERR_UNSUPPORTED. */
loong_status_t jinja_not_offered(run_t *r, const jinja_call_t *call,
                                 value_t *result);

#ifdef __cplusplus
}
#endif

#endif
