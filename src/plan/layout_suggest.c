/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds layouts near to one that breaks rules, and names them in its error.
 * Called when a trainer is created, before anything else is planned. Read
 * parallel.h before: it has the rules. */
#include "layout_suggest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"

enum {
    SHOWN = 3,
    MAX_CHECKS = 8000, /* of rules */
    MAX_WORLDS = 48,   /* numbers of ranks */
    NEAR = 8,          /* of them on either side, then halves */
    WORD = 192,
    VALUE = 48,
    LINE = 1024
};

/* What may be changed. */
typedef enum kind {
    PARTS,   /* the ranks are a multiple of it */
    FOLDED,  /* parts of the ranks of other axes */
    BATCH,   /* part of the global batch */
    OPTIONAL /* one of variant_t */
} kind_t;

typedef enum variant {
    ASKED,
    DEFAULT, /* of the schema */
    CURE     /* what another key asks for: cure_of() */
} variant_t;

typedef struct axis {
    const char *key;
    kind_t kind;
    bool in_use; /* 1 stays 1: not proposed to who does not use it */
} axis_t;

enum {
    TENSOR,
    PIPELINE,
    CONTEXT,
    EXPERT,
    EXPERT_TENSOR,
    MICRO,
    SEQUENCE,
    PRODUCTS,
    SCHEDULE,
    CHUNKS,
    LAYOUT,
    RING,
    RING_SIZES,
    SHARDING,
    AXES
};

static const axis_t axes[AXES] = {
    [TENSOR] = {"parallel.tensor_model_parallel_size", PARTS, false},
    [PIPELINE] = {"parallel.pipeline_model_parallel_size", PARTS, false},
    [CONTEXT] = {"parallel.context_parallel_size", PARTS, true},
    [EXPERT] = {"parallel.expert_model_parallel_size", FOLDED, true},
    [EXPERT_TENSOR] = {"parallel.expert_tensor_parallel_size", FOLDED, true},
    [MICRO] = {"train.micro_batch_size", BATCH, false},
    [SEQUENCE] = {"parallel.sequence_parallel", OPTIONAL, false},
    [PRODUCTS] = {"parallel.tp_comm_overlap", OPTIONAL, false},
    [SCHEDULE] = {"schedule", OPTIONAL, false},
    [CHUNKS] = {"parallel.num_layers_per_virtual_pipeline_stage", OPTIONAL,
                false},
    [LAYOUT] = {"parallel.pipeline_model_parallel_layout", OPTIONAL, false},
    [RING] = {"parallel.cp_comm_type", OPTIONAL, false},
    [RING_SIZES] = {"parallel.hierarchical_context_parallel_sizes", OPTIONAL,
                    false},
    [SHARDING] = {"parallel.data_parallel_sharding", OPTIONAL, false},
};

/* Values of the axes; of an optional one a variant_t. */
typedef struct candidate {
    double distance;
    int64_t index; /* equal distances keep the order they are made in */
    int64_t value[AXES];
} candidate_t;

typedef struct search {
    const loong_parallel_t *asked;
    loong_context_t *ctx; /* where the rules that candidates break are told */
    int ranks;
    bool fixed; /* components name ranks: the job has as many as it has */
    int checks;
    int64_t layers;
    int64_t asked_value[AXES]; /* of an optional one whether it is given */
    candidate_t next;          /* being made */
    int64_t count, capacity;
    candidate_t *candidates;
} search_t;

/* ---- candidates ---------------------------------------------------------- */

static const loong_recipe_key_t *schema_of(const char *path)
{
    for (int64_t i = 0; i < loong_recipe_num_keys(); i++) {
        if (strcmp(loong_recipe_key(i)->path, path) == 0) {
            return loong_recipe_key(i);
        }
    }
    return NULL;
}

/* Whether a key of the recipe asks for another value of an optional axis than
 * it has, and which. */
static bool cure_of(const search_t *s, const candidate_t *c, int axis,
                    char value[VALUE])
{
    const loong_recipe_t *r = s->asked->recipe;
    int64_t chunks = 2 * c->value[PIPELINE]; /* of zero_bubble_v */
    int64_t ring = c->value[CONTEXT];
    switch (axis) {
    case SEQUENCE: /* mixtures of experts */
        snprintf(value, VALUE, "true");
        return s->asked_value[SEQUENCE] == 0 && c->value[TENSOR] > 1;
    case CHUNKS:
        snprintf(value, VALUE, "%lld", (long long)(s->layers / chunks));
        return strcmp(loong_recipe_text(r, "schedule"), "zero_bubble_v") == 0 &&
               c->value[SCHEDULE] == ASKED && s->asked_value[LAYOUT] == 0 &&
               s->layers % chunks == 0;
    case RING_SIZES:
        for (int64_t a = 2; a < ring; a++) {
            if (ring % a == 0) {
                snprintf(value, VALUE, "[%lld,%lld]", (long long)a,
                         (long long)(ring / a));
                return strcmp(loong_recipe_text(r, axes[RING].key),
                              "a2a+p2p") == 0 &&
                       c->value[RING] == ASKED;
            }
        }
        return false;
    default:
        return false;
    }
}

static loong_status_t make(search_t *s, int axis, int64_t rest);

/* Tries one value of an axis with all values of the next ones. */
static loong_status_t choose(search_t *s, int axis, int64_t value,
                             double distance, int64_t rest)
{
    candidate_t before = s->next;
    s->next.value[axis] = value;
    s->next.distance += distance;
    loong_status_t status = make(s, axis + 1, rest);
    s->next = before;
    return status;
}

/* Divisors of `whole`, at most `most`. */
static loong_status_t choose_divisors(search_t *s, int axis, int64_t whole,
                                      int64_t most, int64_t rest)
{
    int64_t asked = s->asked_value[axis];
    double weight = axes[axis].kind == BATCH ? 0.5 : 1.0;
    for (int64_t d = 1; d <= LOONG_MIN(whole, most); d++) {
        if (whole % d == 0) {
            double distance = fabs(log2((double)d / (double)asked));
            LOONG_TRY(choose(s, axis, d, weight * distance,
                             axes[axis].kind == PARTS ? rest / d : rest));
        }
    }
    return LOONG_OK;
}

/* Fills the axes from `axis` on; `rest` ranks are left to share out. */
static loong_status_t make(search_t *s, int axis, int64_t rest)
{
    const loong_recipe_t *r = s->asked->recipe;
    if (axis == AXES) {
        LOONG_TRY(loongi_grow(s->ctx, &s->candidates, &s->capacity,
                              s->count + 1, sizeof(*s->candidates), "layouts"));
        s->next.index = s->count;
        s->candidates[s->count++] = s->next;
        return LOONG_OK;
    }
    int64_t asked = s->asked_value[axis];
    if (axes[axis].in_use && asked == 1) {
        return choose(s, axis, 1, 0.0, rest);
    }
    switch (axes[axis].kind) {
    case PARTS:
        return choose_divisors(s, axis, rest, rest, rest);
    case FOLDED:
        return choose_divisors(s, axis, s->ranks, s->ranks, rest);
    case BATCH:
        return choose_divisors(s, axis,
                               loong_recipe_int(r, "train.global_batch_size"),
                               2 * asked, rest);
    case OPTIONAL:
        break;
    }
    char value[VALUE];
    LOONG_TRY(choose(s, axis, ASKED, 0.0, rest));
    if (cure_of(s, &s->next, axis, value)) {
        LOONG_TRY(choose(s, axis, CURE, 0.5, rest));
    }
    return asked == 0 ? LOONG_OK : choose(s, axis, DEFAULT, 0.5, rest);
}

static int by_distance(const void *a, const void *b)
{
    const candidate_t *x = a;
    const candidate_t *y = b;
    if (fabs(x->distance - y->distance) > 1e-9) {
        return x->distance < y->distance ? -1 : 1;
    }
    return (x->index > y->index) - (x->index < y->index);
}

/* ---- trying them --------------------------------------------------------- */

/* The override of an axis; false when the value is the one asked for. */
static bool override_of(const search_t *s, const candidate_t *c, int axis,
                        char word[WORD])
{
    if (axes[axis].kind == OPTIONAL) {
        char cure[VALUE];
        const char *value = schema_of(axes[axis].key)->fallback;
        if (c->value[axis] == CURE && cure_of(s, c, axis, cure)) {
            value = cure;
        }
        snprintf(word, WORD, "%s=%s", axes[axis].key,
                 value != NULL ? value : "null");
        return c->value[axis] != ASKED;
    }
    snprintf(word, WORD, "%s=%lld", axes[axis].key, (long long)c->value[axis]);
    return c->value[axis] != s->asked_value[axis];
}

static loong_status_t try_one(search_t *s, const candidate_t *c,
                              bool *possible_p)
{
    char words[AXES][WORD];
    const char *overrides[AXES];
    int n = 0;
    loong_recipe_t *recipe = NULL;
    for (int i = 0; i < AXES; i++) {
        if (override_of(s, c, i, words[n])) {
            overrides[n] = words[n];
            n++;
        }
    }
    loong_parallel_t layout = *s->asked;
    loong_status_t status =
        loong_recipe_derive(s->ctx, s->asked->recipe, n, overrides, &recipe);
    layout.ctx = s->ctx;
    layout.recipe = recipe;
    layout.ranks = s->fixed ? s->asked->ranks : s->ranks;
    if (status == LOONG_OK) {
        status = loongi_parallel_rules(&layout);
    }
    loong_recipe_destroy(&recipe);
    s->checks++;
    *possible_p = status == LOONG_OK;
    if (status == LOONG_OK || status == LOONG_ERR_CONFIG) {
        loong_context_clear_error(s->ctx);
        return LOONG_OK;
    }
    return status;
}

static void note(const search_t *s, const candidate_t *c)
{
    char line[LINE] = "";
    char word[WORD];
    size_t length = 0;
    int64_t parts = 1;
    for (int i = 0; i < AXES; i++) {
        parts *= axes[i].kind == PARTS ? c->value[i] : 1;
        if (override_of(s, c, i, word)) {
            length += (size_t)snprintf(line + length, sizeof(line) - length,
                                       " %s", word);
        }
    }
    loongi_error_note(s->asked->ctx, "   %s   (data parallel %lld)",
                      length > 0 ? line : " the recipe as it is",
                      (long long)(s->ranks / parts));
}

/* Is it a variant of one that is nearer: the same sizes? */
static bool is_variant(const candidate_t *c, int count,
                       const candidate_t *const *nearer)
{
    for (int k = 0; k < count; k++) {
        bool same = true;
        for (int i = 0; i < AXES; i++) {
            bool size = axes[i].kind == PARTS || axes[i].kind == FOLDED;
            same = same && (!size || c->value[i] == nearer[k]->value[i]);
        }
        if (same) {
            return true;
        }
    }
    return false;
}

/* Notes the nearest layouts of so many ranks. */
static loong_status_t search_ranks(search_t *s, int ranks, int *shown_p)
{
    const candidate_t *shown[SHOWN];
    s->ranks = ranks;
    s->count = 0;
    *shown_p = 0;
    LOONG_TRY(make(s, 0, ranks));
    qsort(s->candidates, (size_t)s->count, sizeof(*s->candidates), by_distance);
    for (int64_t i = 0;
         i < s->count && s->checks < MAX_CHECKS && *shown_p < SHOWN; i++) {
        const candidate_t *c = &s->candidates[i];
        bool possible = false;
        if (is_variant(c, *shown_p, shown)) {
            continue;
        }
        LOONG_TRY(try_one(s, c, &possible));
        if (possible && *shown_p == 0) {
            loongi_error_note(s->asked->ctx, "possible on %d rank%s:", ranks,
                              ranks > 1 ? "s" : "");
        }
        if (possible) {
            note(s, c);
            shown[(*shown_p)++] = c;
        }
    }
    return LOONG_OK;
}

/* Ranks asked for, one less, one more, two less ..., half, a quarter ... */
static int ranks_at(int asked, int i)
{
    if (i > 2 * NEAR) {
        return asked >> (i - 2 * NEAR);
    }
    return i % 2 == 1 ? asked - (i + 1) / 2 : asked + i / 2;
}

static bool names_ranks(const loong_recipe_t *recipe)
{
    const char *role = NULL;
    bool any = false;
    for (int64_t i = 0; (role = loong_recipe_component(recipe, i)) != NULL;
         i++) {
        char path[64];
        snprintf(path, sizeof(path), "model.%s.ranks", role);
        any = any || loong_recipe_is_set(recipe, path);
    }
    return any;
}

static loong_status_t search_all(search_t *s)
{
    int asked = s->asked->on != NULL ? s->asked->num_on : s->asked->ranks;
    int shown = 0;
    bool possible = false;
    candidate_t single;
    memset(&single, 0, sizeof(single));
    for (int i = 0; i < AXES; i++) {
        bool optional = axes[i].kind == OPTIONAL;
        single.value[i] = !optional                ? 1
                          : s->asked_value[i] != 0 ? DEFAULT
                                                   : ASKED;
    }
    s->fixed = names_ranks(s->asked->recipe);
    s->ranks = s->fixed ? asked : 1;
    LOONG_TRY(try_one(s, &single, &possible));
    for (int i = 0; possible && shown == 0 && i < (s->fixed ? 1 : MAX_WORLDS);
         i++) {
        int ranks = ranks_at(asked, i);
        if (ranks >= 1) {
            LOONG_TRY(search_ranks(s, ranks, &shown));
        }
    }
    return LOONG_OK;
}

static loong_status_t suggest(const loong_parallel_t *layout)
{
    search_t s;
    loong_model_facts_t facts = {0};
    memset(&s, 0, sizeof(s));
    s.asked = layout;
    layout->family->facts(layout->config, &facts);
    s.layers = facts.num_layers;
    for (int i = 0; i < AXES; i++) {
        const char *key = axes[i].key;
        if (axes[i].kind != OPTIONAL) {
            s.asked_value[i] = loong_recipe_int(layout->recipe, key);
            continue;
        }
        const char *fallback = schema_of(key)->fallback;
        s.asked_value[i] =
            fallback == NULL
                ? loong_recipe_is_set(layout->recipe, key)
                : strcmp(loong_recipe_text(layout->recipe, key), fallback) != 0;
    }
    LOONG_CHECK(layout->ctx, loong_context_create(NULL, &s.ctx) == LOONG_OK,
                LOONG_ERR_MEMORY, "no memory to search for layouts");
    loong_status_t status = search_all(&s);
    if (status != LOONG_OK) {
        loongi_error_note(layout->ctx, "while searching for layouts: %s",
                          loong_context_error(s.ctx));
    }
    loongi_free(s.ctx, s.candidates);
    loong_context_destroy(&s.ctx);
    return status;
}

loong_status_t loongi_parallel_check(const loong_parallel_t *layout)
{
    loong_status_t status = loongi_parallel_rules(layout);
    if (status == LOONG_ERR_CONFIG) {
        LOONG_TRY(suggest(layout));
    }
    return status;
}
