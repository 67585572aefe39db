/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON: a parsed value is a tree of borrowed children under one owned root.
 * Duplicate keys are an error, text is UTF-8, integers are 64 bit: one that
 * does not fit is a real, a number that fits in neither the largest real.
 * Writing goes through loong_text_t and loongi_text_json_string.
 */
#ifndef LOONG_JSON_H
#define LOONG_JSON_H

#include "base.h"
#include "pairs.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_json loong_json_t;

typedef enum loong_json_kind {
    LOONG_JSON_NULL,
    LOONG_JSON_BOOL,
    LOONG_JSON_INT,
    LOONG_JSON_REAL,
    LOONG_JSON_STRING,
    LOONG_JSON_ARRAY,
    LOONG_JSON_OBJECT
} loong_json_kind_t;

/* Parses `length` bytes; `where` names them in errors ("a/config.json").
 * Errors: LOONG_ERR_FORMAT with line (when there are several) and column. */
LOONG_NODISCARD loong_status_t loongi_json_parse(loong_context_t *ctx,
                                                 const char *text,
                                                 size_t length,
                                                 const char *where,
                                                 loong_json_t **json_p);

/* Reads and parses a file. Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_IO,
 * LOONG_ERR_FORMAT. */
LOONG_NODISCARD loong_status_t loongi_json_load(loong_context_t *ctx,
                                                const char *path,
                                                loong_json_t **json_p);
void loongi_json_destroy(loong_json_t **json); /* of the root only */

loong_json_kind_t loongi_json_kind(const loong_json_t *json);
/* "null", "a boolean", "an integer" ...: for messages. */
const char *loongi_json_kind_text(const loong_json_t *json);

/* The member of an object; NULL when absent or json is no object. */
const loong_json_t *loongi_json_get(const loong_json_t *json, const char *key);
/* Elements of an array or members of an object; 0 for other kinds. */
int64_t loongi_json_count(const loong_json_t *json);
/* Element of an array; NULL out of range. */
const loong_json_t *loongi_json_at(const loong_json_t *json, int64_t index);

/* Walks an object in file order:
 *   for (it = loongi_json_first(o); it != NULL; it = loongi_json_next(o, it))
 */
typedef struct loong_json_member loong_json_member_t;
const loong_json_member_t *loongi_json_first(const loong_json_t *object);
const loong_json_member_t *loongi_json_next(const loong_json_t *object,
                                            const loong_json_member_t *member);
const char *loongi_json_member_key(const loong_json_member_t *member);
const loong_json_t *loongi_json_member_value(const loong_json_member_t *member);

/* Values; the kind must match (an integer is accepted as a real), else 0,
 * false or "". */
int64_t loongi_json_int(const loong_json_t *json);
double loongi_json_real(const loong_json_t *json);
bool loongi_json_bool(const loong_json_t *json);
const char *loongi_json_string(const loong_json_t *json);
size_t loongi_json_string_length(const loong_json_t *json);

/* Compact text of any value, appended. */
void loongi_text_json(loong_text_t *text, const loong_json_t *json);
/* The same for a message, cut where it is long. */
enum { LOONG_JSON_BRIEF = 64 };
const char *loongi_json_brief(loong_context_t *ctx, const loong_json_t *json,
                              char buffer[LOONG_JSON_BRIEF]);
/* That text as the value of a key. */
LOONG_NODISCARD loong_status_t loongi_pairs_set_json(loong_pairs_t *pairs,
                                                     const char *key,
                                                     const loong_json_t *json);
/* A quoted and escaped string, appended. */
void loongi_text_json_string(loong_text_t *text, const char *string);
void loongi_text_json_bytes(loong_text_t *text, const char *bytes,
                            size_t length);

#ifdef __cplusplus
}
#endif

#endif
