/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of templates: what a loong_jinja_value_t points to, and where that
 * lives. Nothing is changed once a template sees it, but for namespaces and
 * for what counts where an iteration stands.
 */
#ifndef LOONG_JINJA_VALUE_H
#define LOONG_JINJA_VALUE_H

#include "jinja.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef loong_jinja_value_t value_t;
typedef loong_jinja_values_t heap_t;

enum {
    JINJA_MISSING, /* no value at all: a name that nothing was given to */
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_REAL,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_RANGE,
    JINJA_VIEW,     /* keys, values or items of a mapping */
    JINJA_ITERATOR, /* what is consumed by looking at it (a generator) */
    JINJA_NAMESPACE,
    JINJA_FUNCTION, /* of the language: range, namespace ... */
    JINJA_METHOD,   /* of a value: "a".upper */
    JINJA_MACRO,
    JINJA_LOOP,
    JINJA_CYCLER,
    JINJA_JOINER,
    JINJA_KINDS
};

/* Values of `about` of something undefined besides a kind. */
enum { JINJA_A_NAME = 0, JINJA_UNSAFE = 254, JINJA_A_HINT = 255 };

typedef struct jinja_list {
    int64_t count, room;
    value_t *items;
} jinja_list_t; /* a LIST, a TUPLE */

typedef struct jinja_entry {
    uint64_t hash; /* of a key, where there is a table */
    value_t key, value;
} jinja_entry_t;

typedef struct jinja_dict {
    int64_t count, room;
    jinja_entry_t *entries; /* in the order of their arrival */
    int64_t *table;         /* 1 + number of an entry, by hash; or NULL */
    int64_t table_room;     /* a power of 2 */
} jinja_dict_t;             /* a DICT, a NAMESPACE */

typedef struct jinja_range {
    int64_t begin, step, count;
} jinja_range_t;

enum { JINJA_KEYS, JINJA_VALUES, JINJA_ITEMS };
typedef struct jinja_view {
    jinja_dict_t *dict;
    int what;
} jinja_view_t;

/* Where an iteration stands; at is a number, of texts a byte. */
typedef struct jinja_iter {
    value_t over;
    int64_t at;
} jinja_iter_t; /* an ITERATOR */

/* What values live in: blocks of memory that end together. */
typedef struct jinja_block {
    struct jinja_block *next;
    size_t room;
} jinja_block_t;

struct loong_jinja_values {
    loong_context_t *ctx;
    jinja_block_t *blocks; /* the newest first */
    char *at, *end;        /* free bytes of the newest */
    size_t bytes;          /* of all blocks */
    size_t max_bytes;      /* 0: any */
};

static inline value_t jinja_value(int kind)
{
    value_t value;
    value.kind = (unsigned char)kind;
    value.about = 0;
    value.markup = false;
    value.as.integer = 0;
    value.length = 0;
    return value;
}

static inline value_t jinja_object(int kind, void *object)
{
    value_t value = jinja_value(kind);
    value.as.object = object;
    return value;
}

static inline jinja_list_t *jinja_list_of(value_t value)
{
    return (jinja_list_t *)value.as.object;
}

static inline jinja_dict_t *jinja_dict_of(value_t value)
{
    return (jinja_dict_t *)value.as.object;
}

static inline value_t jinja_text(const char *text)
{
    size_t length = 0;
    while (text[length] != '\0') {
        length++;
    }
    return loongi_jinja_string(text, length);
}

bool jinja_is(value_t string, const char *text); /* the same bytes */

/* size bytes, not zeroed, aligned to 16. */
LOONG_NODISCARD loong_status_t jinja_new(heap_t *heap, size_t size,
                                         void *ptr_p);
/* left and right one behind the other; without a copy of left where it is what
 * was made last, so that appending in a loop costs what is appended. */
LOONG_NODISCARD loong_status_t jinja_concat(heap_t *heap, value_t left,
                                            value_t right, value_t *text_p);
LOONG_NODISCARD loong_status_t jinja_copy(heap_t *heap, const char *text,
                                          size_t length, value_t *text_p);

/* A list or tuple of count elements that are to be filled in. */
LOONG_NODISCARD loong_status_t jinja_list_new(heap_t *heap, int kind,
                                              int64_t count, value_t *list_p);

/* Keys are hashable: no list, no mapping. */
uint64_t jinja_hash_text(const char *text, size_t length);
LOONG_NODISCARD loong_status_t jinja_dict_put(heap_t *heap, jinja_dict_t *dict,
                                              value_t key, value_t value);
jinja_entry_t *jinja_dict_find(const jinja_dict_t *dict, value_t key);

/* Of two keys: as jinja_equal, without what can fail. */
bool jinja_same_key(value_t a, value_t b);
uint64_t jinja_hash_key(value_t key);
bool jinja_hashable(value_t key);

/* -1, 0, 1; NaN is not ordered and gives 2. Exact also beyond 2^53. */
int jinja_compare_numbers(value_t a, value_t b);
static inline bool jinja_is_number(value_t value)
{
    return value.kind >= JINJA_BOOL && value.kind <= JINJA_REAL;
}
static inline bool jinja_is_int(value_t value) /* as Python: bools as well */
{
    return value.kind == JINJA_BOOL || value.kind == JINJA_INT;
}
static inline int64_t jinja_int_of(value_t value)
{
    return value.kind == JINJA_BOOL ? value.as.truth : value.as.integer;
}
static inline double jinja_real_of(value_t value)
{
    return value.kind == JINJA_REAL ? value.as.real
                                    : (double)jinja_int_of(value);
}

#ifdef __cplusplus
}
#endif

#endif
