/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tensor is which parameter: the shape allows it, the name decides.
 * First the pairs that sound best, then exchanges as long as they sound
 * better. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draft.h"

enum { MOST_ROLES = 256 };

typedef struct role {
    const char *name; /* of a row, or of a unit of its experts */
    const loong_hf_row_t *row;
    const loong_hf_param_t *param;
    int unit; /* -1: no experts */
    int64_t rows;
    int64_t columns; /* 0: a vector */
} role_t;

typedef struct option {
    loong_draft_choice_t choice;
    int roles[LOONG_DRAFT_HOLDS];
    bool taken;
} option_t;

typedef struct matcher {
    loong_context_t *ctx;
    loong_arena_t *arena;
    const loong_hf_map_t *map;
    const loong_draft_patterns_t *patterns;
    bool turned; /* matrices of layers are [in, out] */
    int role_count;
    role_t roles[MOST_ROLES];
    bool covered[MOST_ROLES];
    int64_t count;
    int64_t capacity;
    option_t *options;
    bool *used; /* per pattern */
} matcher_t;

/* ---- roles ---- */

static loong_status_t add_role(matcher_t *m, const loong_hf_row_t *row,
                               const loong_hf_param_t *param, int unit)
{
    char unit_name[128];
    char *name = NULL;
    LOONG_CHECK(m->ctx, m->role_count < MOST_ROLES, LOONG_ERR_UNSUPPORTED,
                "more than %d kinds of parameters", (int)MOST_ROLES);
    LOONG_TRY(loongi_arena_strdup(
        m->arena,
        unit < 0 ? row->name : loongi_hf_unit_name(row, unit, unit_name),
        &name));
    role_t *role = &m->roles[m->role_count++];
    role->name = name;
    role->row = row;
    role->param = param;
    role->unit = unit;
    role->rows = unit < 0 ? param->shape[0] : param->shape[0] / param->pieces;
    role->columns = param->ndim > 1 ? param->shape[1] : 0;
    return LOONG_OK;
}

static loong_status_t list_roles(matcher_t *m)
{
    const loong_hf_row_t *row = m->map->family->rows;
    for (; row->name != NULL; row++) {
        const loong_hf_param_t *param = loongi_hf_map_first(m->map, row);
        bool experts = param != NULL && param->piece_names != NULL;
        for (int u = 0; experts && u < param->units; u++) {
            LOONG_TRY(add_role(m, row, param, u));
        }
        if (param != NULL && !experts) {
            LOONG_TRY(add_role(m, row, param, -1));
        }
    }
    return LOONG_OK;
}

static int find_role(const matcher_t *m, const char *like, const char *part,
                     const char *other)
{
    char name[128];
    const char *at = strstr(like, part);
    if (at == NULL) {
        return -1;
    }
    snprintf(name, sizeof(name), "%.*s%s%s", (int)(at - like), like, other,
             at + strlen(part));
    for (int i = 0; i < m->role_count; i++) {
        if (strcmp(m->roles[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* ---- shapes ---- */

/* What a tensor of `rows` would look like. 0: not so, 1: so, 2: so, and the
 * other way round as well. */
static int fits(const loong_draft_pattern_t *p, const role_t *role,
                int64_t rows, int64_t experts, bool turned)
{
    int64_t shape[3];
    int ndim = 0;
    if (experts > 0) {
        shape[ndim++] = experts;
    }
    shape[ndim++] = turned ? role->columns : rows;
    if (role->columns > 0) {
        shape[ndim++] = turned ? rows : role->columns;
    }
    if (p->ndim != ndim || !p->same_shape ||
        memcmp(p->shape, shape, (size_t)ndim * sizeof(*shape)) != 0) {
        return 0;
    }
    return role->columns == rows ? 2 : 1;
}

/* How well the tensor sounds for what it would be, so or the other way round;
 * -100: for nothing. */
static double best_sound(const matcher_t *m, const loong_draft_pattern_t *p,
                         bool turned)
{
    double best = -100;
    for (int r = 0; r < m->role_count; r++) {
        const role_t *role = &m->roles[r];
        int k = find_role(m, role->name, ".q_proj", ".k_proj");
        int v = find_role(m, role->name, ".q_proj", ".v_proj");
        if (strchr(role->name, '#') == NULL || role->columns == 0) {
            continue;
        }
        const char *names[3] = {role->name, NULL, NULL};
        if (fits(p, role, role->rows, 0, turned) == 1) {
            best = LOONG_MAX(best, loongi_draft_sound(p->rest, names, 1));
        }
        if (k >= 0 && v >= 0 &&
            fits(p, role, role->rows + m->roles[k].rows + m->roles[v].rows, 0,
                 turned) == 1) {
            best = LOONG_MAX(best, loongi_draft_sound(p->rest, names, 3));
        }
    }
    return best;
}

/* Matrices that are not square vote, each by what it sounds like. */
static void find_orientation(matcher_t *m)
{
    int votes = 0;
    for (int64_t i = 0; i < m->patterns->count; i++) {
        const loong_draft_pattern_t *p = &m->patterns->items[i];
        if (p->layered && p->ndim == 2) {
            double plain = best_sound(m, p, false);
            double turned = best_sound(m, p, true);
            votes += (turned > plain) - (plain > turned);
        }
    }
    m->turned = votes > 0;
}

/* ---- options ---- */

static double family_bonus(const matcher_t *m, const role_t *role,
                           const loong_draft_pattern_t *p)
{
    const loong_hf_row_t *row = role->row;
    const char *name = role->unit == 1       ? row->second
                       : row->hf_name != NULL ? row->hf_name
                                              : row->name;
    char full[256];
    snprintf(full, sizeof(full), "%s%s",
             strcmp(row->name, LOONG_HF_HEAD) != 0 ? m->map->family->prefix
                                                   : "",
             name);
    return strcmp(full, p->text) == 0 ? 20 : 0;
}

/* The names of several in one that have them head by head. */
static bool sounds_by_head(const char *text)
{
    return strstr(text, "query_key_value") != NULL ||
           strstr(text, "wqkv") != NULL;
}

static loong_status_t add_option(matcher_t *m, int64_t pattern,
                                 const int *roles, int count, bool turned)
{
    const loong_draft_pattern_t *p = &m->patterns->items[pattern];
    LOONG_TRY(loongi_grow(m->ctx, &m->options, &m->capacity, m->count + 1,
                          sizeof(*m->options), "choices of names"));
    option_t *o = &m->options[m->count++];
    memset(o, 0, sizeof(*o));
    o->choice.pattern = pattern;
    o->choice.count = count;
    o->choice.transposed = turned;
    o->choice.by_key_head = count == 3 && sounds_by_head(p->rest);
    for (int i = 0; i < count; i++) {
        o->roles[i] = roles[i];
        o->choice.holds[i] = m->roles[roles[i]].name;
    }
    o->choice.score = loongi_draft_sound(p->rest, o->choice.holds, count);
    if (count == 1) {
        o->choice.score += family_bonus(m, &m->roles[roles[0]], p);
    }
    return LOONG_OK;
}

/* A tensor for one parameter, or several that lie below one another. */
static loong_status_t try_roles(matcher_t *m, int64_t pattern,
                                const int *roles, int count)
{
    const loong_draft_pattern_t *p = &m->patterns->items[pattern];
    const role_t *role = &m->roles[roles[0]];
    int64_t rows = 0;
    int64_t experts = 0;
    for (int i = 0; i < count; i++) {
        rows += m->roles[roles[i]].rows;
    }
    if (p->layered != (strchr(role->name, '#') != NULL) ||
        (p->experts && role->unit < 0)) {
        return LOONG_OK;
    }
    if (role->unit >= 0 && !p->experts) {
        experts = m->map->sizes[HF_EXPERTS];
    }
    if (role->param->flat && p->ndim == 2 && p->shape[0] == role->param->flat &&
        p->shape[1] == rows) {
        LOONG_TRY(add_option(m, pattern, roles, count, false));
        m->options[m->count - 1].choice.as_row = true;
        return LOONG_OK;
    }
    int plain = fits(p, role, rows, experts, false);
    int turned = role->columns > 0
                     ? fits(p, role, rows, experts, true)
                     : 0;
    bool layered = strchr(role->name, '#') != NULL;
    if (experts > 0 && plain + turned > 0) { /* stacks lie as they like */
        return add_option(m, pattern, roles, count, plain == 0);
    }
    if (layered && plain + turned > 0 && role->columns > 0) {
        return (m->turned ? turned : plain) > 0
                   ? add_option(m, pattern, roles, count, m->turned)
                   : LOONG_OK;
    }
    if (plain > 0) {
        return add_option(m, pattern, roles, count, false);
    }
    return LOONG_OK;
}

static loong_status_t try_pattern(matcher_t *m, int64_t pattern)
{
    for (int r = 0; r < m->role_count; r++) {
        const char *name = m->roles[r].name;
        int roles[LOONG_DRAFT_HOLDS] = {r, 0, 0};
        LOONG_TRY(try_roles(m, pattern, roles, 1));
        roles[1] = find_role(m, name, ".q_proj", ".k_proj");
        roles[2] = find_role(m, name, ".q_proj", ".v_proj");
        if (roles[1] >= 0 && roles[2] >= 0) {
            LOONG_TRY(try_roles(m, pattern, roles, 3));
        }
        roles[1] = find_role(m, name, ".k_proj", ".v_proj");
        if (roles[1] >= 0) {
            LOONG_TRY(try_roles(m, pattern, roles, 2));
        }
        roles[1] = find_role(m, name, "gate_proj", "up_proj");
        if (roles[1] >= 0) {
            LOONG_TRY(try_roles(m, pattern, roles, 2));
        }
    }
    return LOONG_OK;
}

/* ---- the choice ---- */

/* Equal sounds: in the order of names and parameters, so that the choice is
 * the same in every run. */
static int by_score(const void *a, const void *b)
{
    const option_t *x = a;
    const option_t *y = b;
    if (x->choice.score != y->choice.score) {
        return x->choice.score < y->choice.score ? 1 : -1;
    }
    if (x->roles[0] != y->roles[0]) {
        return x->roles[0] - y->roles[0];
    }
    return (x->choice.pattern > y->choice.pattern) -
           (x->choice.pattern < y->choice.pattern);
}

static bool is_free(const matcher_t *m, const option_t *o)
{
    bool ok = !m->used[o->choice.pattern];
    for (int i = 0; i < o->choice.count; i++) {
        ok = ok && !m->covered[o->roles[i]];
    }
    return ok;
}

static void take(matcher_t *m, option_t *o, bool taken)
{
    o->taken = taken;
    m->used[o->choice.pattern] = taken;
    for (int i = 0; i < o->choice.count; i++) {
        m->covered[o->roles[i]] = taken;
    }
}

static option_t *find_option(const matcher_t *m, int64_t pattern,
                             const option_t *like)
{
    for (int64_t i = 0; i < m->count; i++) {
        option_t *o = &m->options[i];
        if (o->choice.pattern == pattern &&
            o->choice.count == like->choice.count &&
            memcmp(o->roles, like->roles,
                   (size_t)like->choice.count * sizeof(int)) == 0) {
            return o;
        }
    }
    return NULL;
}

/* Two tensors change their parameters when that sounds better. */
static bool exchange(matcher_t *m)
{
    for (int64_t i = 0; i < m->count; i++) {
        for (int64_t j = i + 1; j < m->count && m->options[i].taken; j++) {
            option_t *a = &m->options[i];
            option_t *b = &m->options[j];
            if (!b->taken) {
                continue;
            }
            option_t *c = find_option(m, b->choice.pattern, a);
            option_t *d = find_option(m, a->choice.pattern, b);
            if (c != NULL && d != NULL &&
                c->choice.score + d->choice.score >
                    a->choice.score + b->choice.score + 1e-9) {
                take(m, a, false);
                take(m, b, false);
                take(m, c, true);
                take(m, d, true);
                return true;
            }
        }
    }
    return false;
}

/* Another free or taken choice for the same parameters sounds as well. */
static bool is_sure(const matcher_t *m, const option_t *o)
{
    for (int64_t i = 0; i < m->count; i++) {
        const option_t *p = &m->options[i];
        if (p != o && p->choice.score >= o->choice.score &&
            (p->roles[0] == o->roles[0] ||
             p->choice.pattern == o->choice.pattern)) {
            return false;
        }
    }
    return o->choice.score > 0;
}

static loong_status_t collect(matcher_t *m, loong_draft_match_t *match)
{
    LOONG_TRY(loongi_arena_alloc(
        m->arena, (size_t)m->patterns->count * sizeof(*match->choices),
        &match->choices));
    for (int r = 0; r < m->role_count; r++) { /* in the model's order */
        for (int64_t i = 0; i < m->count; i++) {
            option_t *o = &m->options[i];
            if (o->taken && o->roles[0] == r) {
                o->choice.sure = is_sure(m, o);
                match->choices[match->count++] = o->choice;
                match->score += o->choice.score;
            }
        }
        match->uncovered += !m->covered[r];
    }
    match->unused = m->patterns->count - match->count;
    return LOONG_OK;
}

static loong_status_t choose(matcher_t *m, loong_draft_match_t *match)
{
    LOONG_TRY(list_roles(m));
    find_orientation(m);
    LOONG_TRY(loongi_arena_alloc(m->arena,
                                 (size_t)m->patterns->count * sizeof(*m->used),
                                 &m->used));
    for (int64_t i = 0; i < m->patterns->count; i++) {
        LOONG_TRY(try_pattern(m, i));
    }
    if (m->count > 0) {
        qsort(m->options, (size_t)m->count, sizeof(*m->options), by_score);
    }
    for (int64_t i = 0; i < m->count; i++) {
        if (is_free(m, &m->options[i])) {
            take(m, &m->options[i], true);
        }
    }
    for (int turns = 0; turns < 1000 && exchange(m); turns++) {
    }
    return collect(m, match);
}

loong_status_t loongi_draft_choose(loong_context_t *ctx,
                                   const loong_hf_map_t *map,
                                   const loong_draft_patterns_t *patterns,
                                   loong_draft_match_t *match_p)
{
    loong_draft_match_t match = {0};
    matcher_t *m = NULL;
    LOONG_TRY(loongi_arena_create(ctx, "choice of names", &match.arena));
    loong_status_t status = loongi_arena_alloc(match.arena, sizeof(*m), &m);
    if (status == LOONG_OK) {
        m->ctx = ctx;
        m->arena = match.arena;
        m->map = map;
        m->patterns = patterns;
        status = choose(m, &match);
        loongi_free(ctx, m->options);
    }
    if (status != LOONG_OK) {
        loongi_draft_match_free(&match);
        return status;
    }
    *match_p = match;
    return LOONG_OK;
}

void loongi_draft_match_free(loong_draft_match_t *match)
{
    loongi_arena_destroy(&match->arena);
}
