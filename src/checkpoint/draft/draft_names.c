/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of tensors with the number of the layer, and of the expert, taken
 * out. The layer is the number that runs from 0 to the same end behind the
 * same words in most names; nothing is asked about the words. Called by
 * draft.c. Read draft.h before. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draft.h"
#include "hf_quant.h"

enum { MOST_VALUES = 2048 };

/* What stands before a number. */
typedef struct place {
    const char *text; /* not ended */
    size_t length;
    int64_t names;
    int64_t distinct;
    int64_t largest;
    uint8_t seen[MOST_VALUES / 8];
} place_t;

typedef struct places {
    loong_context_t *ctx;
    int64_t count;
    int64_t capacity;
    place_t *items;
} places_t;

static bool is_separator(char c)
{
    return c == '\0' || strchr("._-/", c) != NULL;
}

/* The next number of a name that ends at a separator; NULL: none. */
static const char *next_number(const char *from, const char *begin,
                               bool apart, int64_t *value_p, size_t *digits_p)
{
    for (const char *c = from; *c != '\0'; c++) {
        if (!isdigit((unsigned char)*c) ||
            (c > begin && isdigit((unsigned char)c[-1]))) {
            continue;
        }
        size_t digits = strspn(c, "0123456789");
        if (is_separator(c[digits]) && digits < 6 &&
            (!apart || c == begin || is_separator(c[-1]))) {
            *value_p = strtoll(c, NULL, 10);
            *digits_p = digits;
            return c;
        }
    }
    return NULL;
}

static loong_status_t note_place(places_t *p, const char *text, size_t length,
                                 int64_t value)
{
    int64_t i = 0;
    if (value >= MOST_VALUES) {
        return LOONG_OK;
    }
    while (i < p->count && (p->items[i].length != length ||
                            memcmp(p->items[i].text, text, length) != 0)) {
        i++;
    }
    if (i == p->count) {
        LOONG_TRY(loongi_grow(p->ctx, &p->items, &p->capacity, p->count + 1,
                              sizeof(*p->items), "places of numbers"));
        p->items[p->count].text = text;
        p->items[p->count++].length = length;
    }
    place_t *place = &p->items[i];
    place->names++;
    if ((place->seen[value / 8] >> (value % 8) & 1) == 0) {
        place->seen[value / 8] |= (uint8_t)(1u << (value % 8));
        place->distinct++;
        place->largest = LOONG_MAX(place->largest, value);
    }
    return LOONG_OK;
}

/* The place of most names whose numbers are 0, 1, ... without a gap; wanted:
 * how many, 0 any. */
static const place_t *best_place(const places_t *p, int64_t wanted)
{
    const place_t *best = NULL;
    for (int64_t i = 0; i < p->count; i++) {
        const place_t *place = &p->items[i];
        if (place->distinct == place->largest + 1 &&
            (wanted == 0 || place->distinct == wanted) &&
            (best == NULL || place->names > best->names)) {
            best = place;
        }
    }
    return best;
}

static loong_status_t find_layers(const loong_safetensors_set_t *set,
                                  places_t *places)
{
    for (int64_t i = 0; i < loongi_safetensors_set_count(set); i++) {
        const char *name = loongi_safetensors_set_get(set, i)->name;
        int64_t value = 0;
        size_t digits = 0;
        /* the first number alone: what comes behind counts within a layer */
        const char *at = next_number(name, name, false, &value, &digits);
        if (at != NULL) {
            LOONG_TRY(note_place(places, name, (size_t)(at - name), value));
        }
    }
    return LOONG_OK;
}

/* Behind the layer's number, or NULL when the name has none. */
static const char *behind_layer(const place_t *layers, const char *name)
{
    if (layers == NULL || strncmp(name, layers->text, layers->length) != 0) {
        return NULL;
    }
    size_t digits = strspn(name + layers->length, "0123456789");
    const char *rest = name + layers->length + digits;
    return digits > 0 && is_separator(*rest) ? rest : NULL;
}

static loong_status_t find_experts(const loong_safetensors_set_t *set,
                                   const place_t *layers, places_t *places)
{
    for (int64_t i = 0; i < loongi_safetensors_set_count(set); i++) {
        const char *name = loongi_safetensors_set_get(set, i)->name;
        const char *rest = behind_layer(layers, name);
        int64_t value = 0;
        size_t digits = 0;
        const char *at = rest;
        while (at != NULL && (at = next_number(at, rest, true, &value,
                                               &digits)) != NULL) {
            LOONG_TRY(note_place(places, rest, (size_t)(at - rest), value));
            at += digits;
        }
    }
    return LOONG_OK;
}

/* Where the numbers of a name stand, and what they are. */
typedef struct numbers {
    const place_t *layers;
    const place_t *experts; /* NULL: none */
    int64_t first_set; /* experts in it */
} numbers_t;

static void make_text(const numbers_t *numbers, const char *name,
                      loong_draft_pattern_t *p)
{
    const place_t *layers = numbers->layers;
    const place_t *experts = numbers->experts;
    const char *rest = behind_layer(layers, name);
    if (rest == NULL) {
        snprintf(p->text, sizeof(p->text), "%s", name);
        p->rest = p->text;
        return;
    }
    int before = snprintf(p->text, sizeof(p->text), "%.*s#",
                          (int)layers->length, name);
    size_t room = sizeof(p->text) - (size_t)before;
    p->layered = true;
    if (experts != NULL &&
        strncmp(rest, experts->text, experts->length) == 0 &&
        isdigit((unsigned char)rest[experts->length])) {
        char *tail = NULL;
        p->experts = true;
        p->second = strtoll(rest + experts->length, &tail, 10) >=
                    numbers->first_set;
        snprintf(p->text + before, room, "%.*s%s%s", (int)experts->length,
                 rest, p->second ? "@+" : "@", tail);
    } else {
        snprintf(p->text + before, room, "%s", rest);
    }
}

static loong_status_t add_tensor(loong_context_t *ctx,
                                 loong_draft_patterns_t *all,
                                 const loong_draft_pattern_t *p)
{
    for (int64_t i = 0; i < all->count; i++) {
        loong_draft_pattern_t *q = &all->items[i];
        if (strcmp(q->text, p->text) == 0) {
            q->tensors++;
            q->same_shape = q->same_shape && q->ndim == p->ndim &&
                            memcmp(q->shape, p->shape, sizeof(q->shape)) == 0;
            return LOONG_OK;
        }
    }
    LOONG_TRY(loongi_grow(ctx, &all->items, &all->capacity, all->count + 1,
                          sizeof(*all->items), "patterns of names"));
    all->items[all->count++] = *p;
    return LOONG_OK;
}

static loong_status_t collect(loong_context_t *ctx,
                              const loong_safetensors_set_t *set,
                              const numbers_t *numbers,
                              loong_draft_patterns_t *all)
{
    for (int64_t i = 0; i < loongi_safetensors_set_count(set); i++) {
        const loong_safetensor_t *t = loongi_safetensors_set_get(set, i);
        loong_draft_pattern_t p;
        if (loongi_hf_quant_is_scale(set, t->name)) {
            continue; /* an import finds it beside its tensor */
        }
        memset(&p, 0, sizeof(p));
        make_text(numbers, t->name, &p);
        p.ndim = t->ndim;
        p.same_shape = true;
        p.tensors = 1;
        memcpy(p.shape, t->shape,
               (size_t)LOONG_MIN(t->ndim, 3) * sizeof(*p.shape));
        LOONG_TRY(add_tensor(ctx, all, &p));
    }
    for (int64_t i = 0; i < all->count; i++) {
        const char *mark = strchr(all->items[i].text, '#');
        all->items[i].rest = all->items[i].layered && mark != NULL
                                 ? mark + 1
                                 : all->items[i].text;
    }
    return LOONG_OK;
}

loong_status_t loongi_draft_patterns(loong_context_t *ctx,
                                     const loong_safetensors_set_t *set,
                                     int64_t experts, int64_t sets,
                                     loong_draft_patterns_t *patterns)
{
    places_t outer = {ctx, 0, 0, NULL};
    places_t inner = {ctx, 0, 0, NULL};
    loong_draft_patterns_t all = {0};
    numbers_t numbers = {NULL, NULL, experts};
    loong_status_t status = find_layers(set, &outer);
    if (status == LOONG_OK) {
        numbers.layers = best_place(&outer, 0);
        all.layers = numbers.layers != NULL ? numbers.layers->distinct : 0;
        status = find_experts(set, numbers.layers, &inner);
    }
    if (status == LOONG_OK) {
        numbers.experts =
            experts > 0 ? best_place(&inner, experts * sets) : NULL;
        status = collect(ctx, set, &numbers, &all);
    }
    loongi_free(ctx, outer.items);
    loongi_free(ctx, inner.items);
    if (status != LOONG_OK) {
        loongi_free(ctx, all.items);
        return status;
    }
    *patterns = all;
    return LOONG_OK;
}
