/* SPDX-License-Identifier: Apache-2.0
 *
 * Python's two ways to format: "%5.2f" % x and "{:>5}".format(x).
 */
#ifndef LOONG_JINJA_FORMAT_H
#define LOONG_JINJA_FORMAT_H

#include "run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How one value is to look. */
typedef struct jinja_spec {
    char fill[4]; /* one character */
    int fill_length;
    char align; /* < > ^ =, 0: the default of the type */
    char sign;  /* + - or a space */
    bool alternate, zero;
    char group; /* , _ or 0 */
    int64_t width;
    int precision; /* -1: none */
    char type;     /* 0: none */
} jinja_spec_t;

void jinja_spec_init(jinja_spec_t *spec);
/* Digits at *at, at most a billion; -1 when there are none. */
int64_t jinja_spec_number(const char **at, const char *end);

/* format_value.c: text is cut to the precision and padded. */
LOONG_NODISCARD loong_status_t jinja_format_text(run_t *r, value_t text,
                                                 const jinja_spec_t *spec);
LOONG_NODISCARD loong_status_t jinja_format_int(run_t *r, int64_t value,
                                                const jinja_spec_t *spec);
LOONG_NODISCARD loong_status_t jinja_format_real(run_t *r, double value,
                                                 const jinja_spec_t *spec);
/* repr() with escapes for all that is not ASCII. */
LOONG_NODISCARD loong_status_t jinja_to_ascii(run_t *r, value_t value,
                                              value_t *text_p);

LOONG_NODISCARD loong_status_t jinja_percent(run_t *r, value_t format,
                                             value_t values, value_t *text_p);
LOONG_NODISCARD loong_status_t jinja_braces(run_t *r, value_t format,
                                            const jinja_args_t *args,
                                            value_t *text_p);

#ifdef __cplusplus
}
#endif

#endif
