/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of templates and the memory they live in. Called by those who make
 * variables and by all of src/jinja. Read value.h before. */
#include <math.h>
#include <string.h>

#include "value.h"

enum { FIRST_BLOCK = 16 * 1024, ALIGN = 16, TABLE_FROM = 8 };

static loong_status_t add_block(heap_t *heap, size_t room)
{
    jinja_block_t *block = NULL;
    LOONG_CHECK(heap->ctx,
                heap->max_bytes == 0 || (room < heap->max_bytes &&
                                         heap->bytes <= heap->max_bytes - room),
                LOONG_ERR_UNSUPPORTED,
                "the values of a template take more than %zu bytes, which is "
                "the limit",
                heap->max_bytes);
    LOONG_TRY(loongi_alloc(heap->ctx, sizeof(*block) + room,
                           "values of a template", &block));
    block->next = heap->blocks;
    block->room = room;
    heap->blocks = block;
    heap->bytes += room;
    heap->at = (char *)(block + 1);
    heap->end = heap->at + room;
    return LOONG_OK;
}

loong_status_t jinja_new(heap_t *heap, size_t size, void *ptr_p)
{
    size_t skip = (size_t)(-(uintptr_t)heap->at & (ALIGN - 1));
    if (heap->at == NULL || (size_t)(heap->end - heap->at) < skip ||
        (size_t)(heap->end - heap->at) - skip < size) {
        /* Blocks grow with what there is, so that there are few. */
        size_t room = LOONG_MAX((size_t)FIRST_BLOCK, heap->bytes / 2);
        LOONG_TRY(add_block(heap, LOONG_MAX(room, size)));
        skip = 0;
    }
    char *ptr = heap->at + skip;
    heap->at = ptr + size;
    memcpy(ptr_p, &ptr, sizeof(ptr));
    return LOONG_OK;
}

loong_status_t loongi_jinja_values_create(loong_context_t *ctx,
                                          loong_jinja_values_t **values_p)
{
    heap_t *heap = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*heap), "values", &heap));
    heap->ctx = ctx;
    *values_p = heap;
    return LOONG_OK;
}

void loongi_jinja_values_clear(loong_jinja_values_t *values)
{
    jinja_block_t *largest = values->blocks;
    for (jinja_block_t *b = values->blocks; b != NULL; b = b->next) {
        largest = b->room > largest->room ? b : largest;
    }
    while (values->blocks != NULL) {
        jinja_block_t *next = values->blocks->next;
        if (values->blocks != largest) {
            loongi_free(values->ctx, values->blocks);
        }
        values->blocks = next;
    }
    values->blocks = largest;
    values->bytes = 0;
    values->at = values->end = NULL;
    if (largest != NULL) {
        largest->next = NULL;
        values->bytes = largest->room;
        values->at = (char *)(largest + 1);
        values->end = values->at + largest->room;
    }
}

void loongi_jinja_values_destroy(loong_jinja_values_t **values)
{
    heap_t *heap = *values;
    if (heap == NULL) {
        return;
    }
    while (heap->blocks != NULL) {
        jinja_block_t *next = heap->blocks->next;
        loongi_free(heap->ctx, heap->blocks);
        heap->blocks = next;
    }
    loongi_free(heap->ctx, heap);
    *values = NULL;
}

loong_jinja_value_t loongi_jinja_none(void)
{
    return jinja_value(JINJA_NONE);
}

loong_jinja_value_t loongi_jinja_bool(bool truth)
{
    value_t value = jinja_value(JINJA_BOOL);
    value.as.truth = truth;
    return value;
}

loong_jinja_value_t loongi_jinja_int(int64_t integer)
{
    value_t value = jinja_value(JINJA_INT);
    value.as.integer = integer;
    return value;
}

loong_jinja_value_t loongi_jinja_real(double real)
{
    value_t value = jinja_value(JINJA_REAL);
    value.as.real = real;
    return value;
}

loong_jinja_value_t loongi_jinja_string(const char *text, size_t length)
{
    value_t value = jinja_value(JINJA_STRING);
    value.as.text = text;
    value.length = length;
    return value;
}

bool jinja_is(value_t string, const char *text)
{
    return strlen(text) == string.length &&
           memcmp(text, string.as.text, string.length) == 0;
}

loong_status_t jinja_copy(heap_t *heap, const char *text, size_t length,
                          value_t *text_p)
{
    char *copy = NULL;
    LOONG_TRY(jinja_new(heap, length, &copy));
    if (length > 0) {
        memcpy(copy, text, length);
    }
    *text_p = loongi_jinja_string(copy, length);
    return LOONG_OK;
}

loong_status_t jinja_concat(heap_t *heap, value_t left, value_t right,
                            value_t *text_p)
{
    size_t length = left.length + right.length;
    char *text = NULL;
    if (left.length > 0 && heap->blocks != NULL &&
        left.length <= (size_t)(heap->at - (char *)(heap->blocks + 1)) &&
        left.as.text + left.length == heap->at &&
        (size_t)(heap->end - heap->at) >= right.length) {
        text = heap->at - left.length; /* the bytes of left, in our block */
        heap->at += right.length;
    } else {
        /* Room behind the text is where the next one is appended. */
        LOONG_TRY(jinja_new(heap, length, &text));
        memcpy(text, left.as.text, left.length);
    }
    if (right.length > 0) {
        memcpy(text + left.length, right.as.text, right.length);
    }
    *text_p = loongi_jinja_string(text, length);
    return LOONG_OK;
}

loong_status_t jinja_list_new(heap_t *heap, int kind, int64_t count,
                              value_t *list_p)
{
    jinja_list_t *list = NULL;
    LOONG_TRY(jinja_new(heap, sizeof(*list), &list));
    list->count = list->room = count;
    LOONG_TRY(
        jinja_new(heap, (size_t)count * sizeof(*list->items), &list->items));
    *list_p = jinja_object(kind, list);
    return LOONG_OK;
}

loong_status_t loongi_jinja_list(loong_jinja_values_t *values,
                                 loong_jinja_value_t *list_p)
{
    return jinja_list_new(values, JINJA_LIST, 0, list_p);
}

loong_status_t loongi_jinja_add(loong_jinja_values_t *values,
                                loong_jinja_value_t list,
                                loong_jinja_value_t item)
{
    jinja_list_t *l = jinja_list_of(list);
    if (l->count == l->room) {
        int64_t room = LOONG_MAX(2 * l->room, (int64_t)8);
        value_t *items = NULL;
        LOONG_TRY(jinja_new(values, (size_t)room * sizeof(*items), &items));
        if (l->count > 0) {
            memcpy(items, l->items, (size_t)l->count * sizeof(*items));
        }
        l->items = items;
        l->room = room;
    }
    l->items[l->count++] = item;
    return LOONG_OK;
}

uint64_t jinja_hash_text(const char *text, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a, by its authors */
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3ull;
    }
    return hash;
}

bool jinja_hashable(value_t key)
{
    if (key.kind == JINJA_TUPLE) {
        const jinja_list_t *list = jinja_list_of(key);
        for (int64_t i = 0; i < list->count; i++) {
            /* Tuples in tuples are no keys of templates. */
            if (list->items[i].kind >= JINJA_LIST) {
                return false;
            }
        }
        return true;
    }
    return key.kind != JINJA_LIST && key.kind != JINJA_DICT &&
           key.kind != JINJA_VIEW;
}

uint64_t jinja_hash_key(value_t key)
{
    const uint64_t mix = 0x9e3779b97f4a7c15ull;
    if (key.kind == JINJA_STRING) {
        return jinja_hash_text(key.as.text, key.length);
    }
    if (jinja_is_number(key)) { /* 1, 1.0 and true are one key */
        double real = jinja_real_of(key);
        if (real == floor(real) && fabs(real) < 9e18) {
            return (uint64_t)(key.kind == JINJA_REAL ? (int64_t)real
                                                     : jinja_int_of(key)) *
                   mix;
        }
        return jinja_hash_text((const char *)&real, sizeof(real));
    }
    if (key.kind == JINJA_TUPLE) {
        const jinja_list_t *list = jinja_list_of(key);
        uint64_t hash = mix;
        for (int64_t i = 0; i < list->count; i++) {
            hash = (hash ^ jinja_hash_key(list->items[i])) * mix;
        }
        return hash;
    }
    if (key.kind <= JINJA_NONE) {
        return mix ^ key.kind;
    }
    return (uint64_t)(uintptr_t)key.as.object * mix;
}

int jinja_compare_numbers(value_t a, value_t b)
{
    if (jinja_is_int(a) && jinja_is_int(b)) {
        int64_t x = jinja_int_of(a);
        int64_t y = jinja_int_of(b);
        return (x > y) - (x < y);
    }
    double x = jinja_real_of(a);
    double y = jinja_real_of(b);
    if (isnan(x) || isnan(y)) {
        return 2;
    }
    if (x != y || a.kind == b.kind) {
        return (x > y) - (x < y);
    }
    /* An integer and a real that rounds to the same: 2^63 is beyond all. */
    double real = a.kind == JINJA_REAL ? x : y;
    int64_t integer = jinja_int_of(a.kind == JINJA_REAL ? b : a);
    int order = real >= 0x1p63
                    ? 1
                    : ((int64_t)real > integer) - ((int64_t)real < integer);
    return a.kind == JINJA_REAL ? order : -order;
}

bool jinja_same_key(value_t a, value_t b)
{
    if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) {
        return a.length == b.length &&
               memcmp(a.as.text, b.as.text, a.length) == 0;
    }
    if (jinja_is_number(a) && jinja_is_number(b)) {
        return jinja_compare_numbers(a, b) == 0;
    }
    if (a.kind != b.kind) {
        return false;
    }
    if (a.kind == JINJA_TUPLE) {
        const jinja_list_t *x = jinja_list_of(a);
        const jinja_list_t *y = jinja_list_of(b);
        for (int64_t i = 0; i < x->count && i < y->count; i++) {
            if (!jinja_same_key(x->items[i], y->items[i])) {
                return false;
            }
        }
        return x->count == y->count;
    }
    return a.kind <= JINJA_NONE || a.as.object == b.as.object;
}

static void place(jinja_dict_t *dict, int64_t entry)
{
    uint64_t mask = (uint64_t)dict->table_room - 1;
    uint64_t at = dict->entries[entry].hash & mask;
    while (dict->table[at] != 0) {
        at = (at + 1) & mask;
    }
    dict->table[at] = entry + 1;
}

static loong_status_t make_room(heap_t *heap, jinja_dict_t *dict)
{
    int64_t room = LOONG_MAX(2 * dict->room, (int64_t)4);
    jinja_entry_t *entries = NULL;
    LOONG_TRY(jinja_new(heap, (size_t)room * sizeof(*entries), &entries));
    if (dict->count > 0) {
        memcpy(entries, dict->entries, (size_t)dict->count * sizeof(*entries));
    }
    dict->entries = entries;
    dict->room = room;
    if (room <= TABLE_FROM) {
        return LOONG_OK;
    }
    size_t size = (size_t)room * 2 * sizeof(*dict->table);
    LOONG_TRY(jinja_new(heap, size, &dict->table));
    memset(dict->table, 0, size);
    dict->table_room = room * 2;
    for (int64_t i = 0; i < dict->count; i++) {
        entries[i].hash = jinja_hash_key(entries[i].key);
        place(dict, i);
    }
    return LOONG_OK;
}

jinja_entry_t *jinja_dict_find(const jinja_dict_t *dict, value_t key)
{
    if (dict->table == NULL) { /* so few that no hash is worth it */
        for (int64_t i = 0; i < dict->count; i++) {
            if (jinja_same_key(dict->entries[i].key, key)) {
                return &dict->entries[i];
            }
        }
        return NULL;
    }
    uint64_t hash = jinja_hash_key(key);
    uint64_t mask = (uint64_t)dict->table_room - 1;
    for (uint64_t at = hash & mask; dict->table[at] != 0;
         at = (at + 1) & mask) {
        jinja_entry_t *entry = &dict->entries[dict->table[at] - 1];
        if (entry->hash == hash && jinja_same_key(entry->key, key)) {
            return entry;
        }
    }
    return NULL;
}

loong_status_t jinja_dict_put(heap_t *heap, jinja_dict_t *dict, value_t key,
                              value_t value)
{
    jinja_entry_t *entry = jinja_dict_find(dict, key);
    if (entry != NULL) {
        entry->value = value;
        return LOONG_OK;
    }
    if (dict->count == dict->room) {
        LOONG_TRY(make_room(heap, dict));
    }
    entry = &dict->entries[dict->count++];
    entry->key = key;
    entry->value = value;
    if (dict->table != NULL) {
        entry->hash = jinja_hash_key(key);
        place(dict, dict->count - 1);
    }
    return LOONG_OK;
}

loong_status_t loongi_jinja_dict(loong_jinja_values_t *values,
                                 loong_jinja_value_t *dict_p)
{
    jinja_dict_t *dict = NULL;
    LOONG_TRY(jinja_new(values, sizeof(*dict), &dict));
    memset(dict, 0, sizeof(*dict));
    *dict_p = jinja_object(JINJA_DICT, dict);
    return LOONG_OK;
}

loong_status_t loongi_jinja_set(loong_jinja_values_t *values,
                                loong_jinja_value_t dict, const char *key,
                                loong_jinja_value_t value)
{
    value_t copy;
    LOONG_TRY(jinja_copy(values, key, strlen(key), &copy));
    return jinja_dict_put(values, jinja_dict_of(dict), copy, value);
}

static loong_status_t from_array(heap_t *heap, const loong_json_t *json,
                                 value_t *value_p)
{
    int64_t count = loongi_json_count(json);
    value_t list;
    LOONG_TRY(jinja_list_new(heap, JINJA_LIST, count, &list));
    for (int64_t i = 0; i < count; i++) {
        LOONG_TRY(loongi_jinja_from_json(heap, loongi_json_at(json, i),
                                         &jinja_list_of(list)->items[i]));
    }
    *value_p = list;
    return LOONG_OK;
}

static loong_status_t from_object(heap_t *heap, const loong_json_t *json,
                                  value_t *value_p)
{
    value_t dict;
    LOONG_TRY(loongi_jinja_dict(heap, &dict));
    for (const loong_json_member_t *m = loongi_json_first(json); m != NULL;
         m = loongi_json_next(json, m)) {
        value_t value;
        LOONG_TRY(
            loongi_jinja_from_json(heap, loongi_json_member_value(m), &value));
        LOONG_TRY(jinja_dict_put(heap, jinja_dict_of(dict),
                                 jinja_text(loongi_json_member_key(m)), value));
    }
    *value_p = dict;
    return LOONG_OK;
}

loong_status_t loongi_jinja_from_json(loong_jinja_values_t *values,
                                      const loong_json_t *json,
                                      loong_jinja_value_t *value_p)
{
    switch (loongi_json_kind(json)) {
    case LOONG_JSON_NULL:
        *value_p = loongi_jinja_none();
        break;
    case LOONG_JSON_BOOL:
        *value_p = loongi_jinja_bool(loongi_json_bool(json));
        break;
    case LOONG_JSON_INT:
        *value_p = loongi_jinja_int(loongi_json_int(json));
        break;
    case LOONG_JSON_REAL:
        *value_p = loongi_jinja_real(loongi_json_real(json));
        break;
    case LOONG_JSON_STRING:
        *value_p = loongi_jinja_string(loongi_json_string(json),
                                       loongi_json_string_length(json));
        break;
    case LOONG_JSON_ARRAY:
        return from_array(values, json, value_p);
    case LOONG_JSON_OBJECT:
        return from_object(values, json, value_p);
    }
    return LOONG_OK;
}
