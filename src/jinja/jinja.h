/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates: Jinja as transformers runs it. A template is parsed once and
 * rendered many times, by several threads at once when each has a context of
 * its own. What is not offered (files, other templates, randomness) is refused
 * where it stands.
 *
 *   loong_jinja_t *template = NULL;
 *   loong_jinja_values_t *values = NULL;
 *   loong_jinja_value_t variables, messages;
 *   loong_jinja_output_t out = {0};
 *   LOONG_TRY(loongi_jinja_parse(ctx, text, length, "a/config", &template));
 *   LOONG_TRY(loongi_jinja_values_create(ctx, &values));
 *   LOONG_TRY(loongi_jinja_dict(values, &variables));
 *   LOONG_TRY(loongi_jinja_from_json(values, json, &messages));
 *   LOONG_TRY(loongi_jinja_set(values, variables, "messages", messages));
 *   LOONG_TRY(loongi_jinja_render(ctx, template, variables, NULL, &out));
 *
 * Source: jinja2's documentation of templates, Python's of str, list and dict,
 * and transformers' of chat templates.
 */
#ifndef LOONG_JINJA_H
#define LOONG_JINJA_H

#include "base.h"
#include "json.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- Values ------------------------------------------------------------- */

/* A value is copied freely; what it points to belongs to its values. */
typedef struct loong_jinja_value {
    unsigned char kind;  /* of value.h */
    unsigned char about; /* of something undefined: what has it not */
    bool markup;         /* a string that `escape` or `safe` made */
    union {
        bool truth;
        int64_t integer;
        double real;
        const char *text; /* UTF-8, not ended by a zero */
        void *object;
    } as;
    size_t length; /* bytes of text */
} loong_jinja_value_t;

/* What lists, mappings and their copies of texts live in. */
typedef struct loong_jinja_values loong_jinja_values_t;

LOONG_NODISCARD loong_status_t loongi_jinja_values_create(
    loong_context_t *ctx, loong_jinja_values_t **values_p);
/* Forgets all values made so far and keeps some memory for the next. */
void loongi_jinja_values_clear(loong_jinja_values_t *values);
void loongi_jinja_values_destroy(loong_jinja_values_t **values);

loong_jinja_value_t loongi_jinja_none(void);
loong_jinja_value_t loongi_jinja_bool(bool truth);
loong_jinja_value_t loongi_jinja_int(int64_t integer);
loong_jinja_value_t loongi_jinja_real(double real);
/* Borrows valid UTF-8, which outlives the values that hold it. */
loong_jinja_value_t loongi_jinja_string(const char *text, size_t length);

/* An empty list, and one more element of it. */
LOONG_NODISCARD loong_status_t loongi_jinja_list(loong_jinja_values_t *values,
                                                 loong_jinja_value_t *list_p);
LOONG_NODISCARD loong_status_t loongi_jinja_add(loong_jinja_values_t *values,
                                                loong_jinja_value_t list,
                                                loong_jinja_value_t item);

/* An empty mapping, and one more key of it, in this order; a key that is there
 * already keeps its place and gets the new value. key is copied. */
LOONG_NODISCARD loong_status_t loongi_jinja_dict(loong_jinja_values_t *values,
                                                 loong_jinja_value_t *dict_p);
LOONG_NODISCARD loong_status_t loongi_jinja_set(loong_jinja_values_t *values,
                                                loong_jinja_value_t dict,
                                                const char *key,
                                                loong_jinja_value_t value);

/* A parsed JSON value as a value. Its texts are borrowed: json outlives it. */
LOONG_NODISCARD loong_status_t
loongi_jinja_from_json(loong_jinja_values_t *values, const loong_json_t *json,
                       loong_jinja_value_t *value_p);

/* --- Templates ---------------------------------------------------------- */

typedef struct loong_jinja loong_jinja_t;

/* Parses `length` bytes; `where` names them in errors. Both are copied.
 * Errors: LOONG_ERR_FORMAT with line, column and what was found,
 * LOONG_ERR_UNSUPPORTED for what is not offered. */
LOONG_NODISCARD loong_status_t loongi_jinja_parse(loong_context_t *ctx,
                                                  const char *text,
                                                  size_t length,
                                                  const char *where,
                                                  loong_jinja_t **template_p);
void loongi_jinja_destroy(loong_jinja_t **jinja); /* NULL is accepted */

/* Whether there is a `generation` block anywhere in it. */
bool loongi_jinja_has_generation(const loong_jinja_t *jinja);

/* Bounds of one rendering; 0 stands for the default. */
typedef struct loong_jinja_limits {
    int64_t max_steps; /* nodes and elements that are visited: 100 million */
    size_t max_bytes;  /* of values that the template makes: 1 GiB */
    int max_depth;     /* macros, loops and values in each other: 200 */
    /* What strftime_now shows: seconds since 1970, in local time; 0: now. */
    int64_t now;
} loong_jinja_limits_t;

/* Bytes [begin, end) of the text. */
typedef struct loong_jinja_span {
    size_t begin, end;
} loong_jinja_span_t;

/* Zero-initialise once; each rendering overwrites it and uses its memory
 * again. */
typedef struct loong_jinja_output {
    char *text; /* UTF-8, ended by a zero */
    size_t length;
    loong_jinja_span_t *spans; /* of `generation` blocks, in order */
    int64_t num_spans;
    /* false: a `generation` block stood inside of a macro, a set block or the
     * like, so that where its text went is not known. */
    bool spans_exact;
    loong_context_t *ctx;
    int64_t text_room, spans_room; /* what is allocated */
} loong_jinja_output_t;

/* Renders with the members of the mapping `variables` as variables, which are
 * not changed. limits may be NULL.
 * Errors: LOONG_ERR_FORMAT for everything that jinja2 raises, with line,
 * column and what was found; a template's raise_exception gives its own
 * message. LOONG_ERR_UNSUPPORTED for what is not offered or beyond a limit. */
LOONG_NODISCARD loong_status_t loongi_jinja_render(
    loong_context_t *ctx, const loong_jinja_t *jinja,
    loong_jinja_value_t variables, const loong_jinja_limits_t *limits,
    loong_jinja_output_t *output);
void loongi_jinja_output_free(loong_jinja_output_t *output);

#ifdef __cplusplus
}
#endif

#endif
