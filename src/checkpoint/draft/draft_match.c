/* SPDX-License-Identifier: Apache-2.0
 *
 * What each tensor may be: the shape allows it, the name says how well. Called
 * by draft.c. Read draft.h and draft_match.h before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draft_match.h"

/* ---- roles ---- */

static loong_status_t add_role(loong_draft_matcher_t *m,
                               const loong_hf_row_t *row,
                               const loong_hf_param_t *param, int unit)
{
    char unit_name[128];
    char *name = NULL;
    LOONG_CHECK(m->ctx, m->role_count < LOONG_DRAFT_ROLES,
                LOONG_ERR_UNSUPPORTED, "more than %d kinds of parameters",
                (int)LOONG_DRAFT_ROLES);
    LOONG_TRY(loongi_arena_strdup(
        m->arena,
        unit < 0 ? row->name : loongi_hf_unit_name(row, unit, unit_name),
        &name));
    loong_draft_role_t *role = &m->roles[m->role_count++];
    role->name = name;
    role->row = row;
    role->param = param;
    role->unit = unit;
    role->rows = unit < 0 ? param->shape[0] : param->shape[0] / param->pieces;
    role->columns = param->ndim > 1 ? param->shape[1] : 0;
    role->second = unit >= 0 && strstr(row->name, ".vision_moe.") != NULL;
    role->router =
        (row->how & HF_TURNED) != 0 && strstr(row->name, ".gate.") != NULL;
    return LOONG_OK;
}

static loong_status_t list_roles(loong_draft_matcher_t *m)
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

int loongi_draft_find_role(const loong_draft_matcher_t *m, const char *like,
                           const char *part, const char *other)
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
static int fits(const loong_draft_pattern_t *p, const loong_draft_role_t *role,
                int64_t rows, int64_t experts, bool transposed)
{
    int64_t shape[3];
    int ndim = 0;
    if (experts > 0) {
        shape[ndim++] = experts;
    }
    shape[ndim++] = transposed ? role->columns : rows;
    if (role->columns > 0) {
        shape[ndim++] = transposed ? rows : role->columns;
    }
    if (p->ndim != ndim || !p->same_shape ||
        memcmp(p->shape, shape, (size_t)ndim * sizeof(*shape)) != 0) {
        return 0;
    }
    return role->columns == rows ? 2 : 1;
}

/* ---- options ---- */

static double family_bonus(const loong_draft_matcher_t *m,
                           const loong_draft_role_t *role,
                           const loong_draft_pattern_t *p)
{
    const loong_hf_row_t *row = role->row;
    const char *name = role->unit == 1        ? row->second
                       : row->hf_name != NULL ? row->hf_name
                                              : row->name;
    char full[256];
    snprintf(full, sizeof(full), "%s%s",
             strcmp(row->name, LOONG_HF_HEAD) != 0 ? m->map->family->prefix
                                                   : "",
             name);
    return strcmp(full, p->text) == 0 ? 20 : 0;
}

/* Several in one, head by head: as the family has them, else by the name. */
static bool lies_by_head(const loong_draft_role_t *role,
                         const loong_draft_pattern_t *p)
{
    return role->row->parts > 1 ? (role->row->how & HF_GROUPED) != 0
                                : strstr(p->rest, "query_key_value") != NULL ||
                                      strstr(p->rest, "wqkv") != NULL;
}

/* The weight of a norm is no bias of a matrix. */
static bool is_no_bias(const loong_draft_pattern_t *p, const char *role)
{
    const char *leaf = strrchr(p->text, '.');
    return leaf != NULL && strcmp(leaf, ".weight") == 0 &&
           strstr(p->rest, "norm") != NULL && strstr(role, "norm") == NULL;
}

static loong_status_t add_option(loong_draft_matcher_t *m, int64_t pattern,
                                 const int *roles, int count, bool transposed)
{
    const loong_draft_pattern_t *p = &m->patterns->items[pattern];
    const char *first = m->roles[roles[0]].name;
    bool bias = loongi_draft_find_role(m, first, ".bias", ".weight") >= 0;
    if (bias && is_no_bias(p, first)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_grow(m->ctx, &m->options, &m->capacity, m->count + 1,
                          sizeof(*m->options), "choices of names"));
    loong_draft_option_t *o = &m->options[m->count++];
    memset(o, 0, sizeof(*o));
    o->choice.pattern = pattern;
    o->choice.count = count;
    o->choice.transposed = transposed;
    o->choice.by_key_head = count == 3 && lies_by_head(&m->roles[roles[0]], p);
    for (int i = 0; i < count; i++) {
        o->roles[i] = roles[i];
        o->choice.holds[i] = m->roles[roles[i]].name;
    }
    o->bias = bias;
    o->choice.score = loongi_draft_sound(p->rest, o->choice.holds, count);
    if (count == 1) {
        o->choice.score += family_bonus(m, &m->roles[roles[0]], p);
    }
    return LOONG_OK;
}

/* A tensor for one parameter, or several that lie below one another. */
static loong_status_t try_roles(loong_draft_matcher_t *m, int64_t pattern,
                                const int *roles, int count)
{
    const loong_draft_pattern_t *p = &m->patterns->items[pattern];
    const loong_draft_role_t *role = &m->roles[roles[0]];
    int64_t rows = 0;
    int64_t experts = 0;
    for (int i = 0; i < count; i++) {
        rows += m->roles[roles[i]].rows;
    }
    if (p->layered != (strchr(role->name, '#') != NULL) ||
        (p->experts && (role->unit < 0 || role->second != p->second))) {
        return LOONG_OK;
    }
    if (role->unit >= 0 && !p->experts) {
        experts = m->map->sizes[HF_EXPERTS];
    }
    if (role->param->flat > 0 && p->ndim == 2 &&
        p->shape[0] == role->param->flat && p->shape[0] * p->shape[1] == rows) {
        LOONG_TRY(add_option(m, pattern, roles, count, false));
        m->options[m->count - 1].choice.as_row = true;
        return LOONG_OK;
    }
    int plain = fits(p, role, rows, experts, false);
    int transposed = role->columns > 0 ? fits(p, role, rows, experts, true) : 0;
    bool layered = strchr(role->name, '#') != NULL;
    if (experts > 0 && plain + transposed > 0) { /* stacks lie as they like */
        return add_option(m, pattern, roles, count, plain == 0);
    }
    if (role->router && plain + transposed > 0) {
        return add_option(m, pattern, roles, count, transposed > 0);
    }
    if (layered && plain + transposed > 0 && role->columns > 0) {
        return (m->transposed ? transposed : plain) > 0
                   ? add_option(m, pattern, roles, count, m->transposed)
                   : LOONG_OK;
    }
    if (plain > 0) {
        return add_option(m, pattern, roles, count, false);
    }
    return LOONG_OK;
}

static loong_status_t try_pattern(loong_draft_matcher_t *m, int64_t pattern)
{
    for (int r = 0; r < m->role_count; r++) {
        const char *name = m->roles[r].name;
        int roles[LOONG_DRAFT_HOLDS] = {r, 0, 0};
        LOONG_TRY(try_roles(m, pattern, roles, 1));
        roles[1] = loongi_draft_find_role(m, name, ".q_proj", ".k_proj");
        roles[2] = loongi_draft_find_role(m, name, ".q_proj", ".v_proj");
        if (roles[1] >= 0 && roles[2] >= 0) {
            LOONG_TRY(try_roles(m, pattern, roles, 3));
        }
        roles[1] = loongi_draft_find_role(m, name, ".k_proj", ".v_proj");
        if (roles[1] >= 0) {
            LOONG_TRY(try_roles(m, pattern, roles, 2));
        }
        roles[1] = loongi_draft_find_role(m, name, "gate_proj", "up_proj");
        if (roles[1] >= 0) {
            LOONG_TRY(try_roles(m, pattern, roles, 2));
        }
    }
    return LOONG_OK;
}

/* ---- the result ---- */

/* Tensors that a choice would need, with those of layers that the files do not
 * have it for. */
static int64_t count_needed(const loong_draft_matcher_t *m,
                            const loong_draft_option_t *o)
{
    const char *name = m->roles[o->roles[0]].row->name;
    const char *mark = strchr(name, '#');
    int64_t each = m->patterns->items[o->choice.pattern].experts
                       ? m->map->sizes[HF_EXPERTS]
                       : 1;
    int64_t count = 0;
    for (int64_t layer = 0; mark != NULL && layer < m->map->layers; layer++) {
        char full[256];
        snprintf(full, sizeof(full), "%.*s%lld%s", (int)(mark - name), name,
                 (long long)layer, mark + 1);
        count += loongi_hf_map_find(m->map, full) != NULL ? each : 0;
    }
    return mark != NULL ? count : 1;
}

static loong_status_t collect(loong_draft_matcher_t *m,
                              loong_draft_match_t *match)
{
    LOONG_TRY(loongi_arena_alloc(
        m->arena, (size_t)m->patterns->count * sizeof(*match->choices),
        &match->choices));
    for (int r = 0; r < m->role_count; r++) { /* in the model's order */
        for (int64_t i = 0; i < m->count; i++) {
            loong_draft_option_t *o = &m->options[i];
            if (o->taken && o->roles[0] == r) {
                o->choice.sure = loongi_draft_is_sure(m, o);
                o->choice.lacks = LOONG_MAX(
                    count_needed(m, o) -
                        m->patterns->items[o->choice.pattern].tensors, 0);
                match->choices[match->count++] = o->choice;
                match->score += o->choice.score;
            }
        }
        match->uncovered += !m->roles[r].covered;
    }
    match->unused = m->patterns->count - match->count;
    return LOONG_OK;
}

static loong_status_t choose(loong_draft_matcher_t *m,
                             loong_draft_match_t *match)
{
    LOONG_TRY(list_roles(m));
    LOONG_TRY(loongi_arena_alloc(
        m->arena, (size_t)m->patterns->count * sizeof(*m->used), &m->used));
    for (int64_t i = 0; i < m->patterns->count; i++) {
        LOONG_TRY(try_pattern(m, i));
    }
    loongi_draft_take(m);
    return collect(m, match);
}

static loong_status_t match_as(loong_context_t *ctx, const loong_hf_map_t *map,
                               const loong_draft_patterns_t *patterns,
                               bool transposed, loong_draft_match_t *match_p)
{
    loong_draft_match_t match = {0};
    loong_draft_matcher_t *m = NULL;
    LOONG_TRY(loongi_arena_create(ctx, "choice of names", &match.arena));
    loong_status_t status = loongi_arena_alloc(match.arena, sizeof(*m), &m);
    if (status == LOONG_OK) {
        m->ctx = ctx;
        m->arena = match.arena;
        m->map = map;
        m->patterns = patterns;
        m->transposed = transposed;
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

bool loongi_draft_is_better(const loong_draft_match_t *a,
                            const loong_draft_match_t *b)
{
    int64_t x = a->uncovered + a->unused;
    int64_t y = b->uncovered + b->unused;
    return x != y ? x < y : a->score > b->score;
}

/* Matrices lie as the family has them, unless the other way explains more. */
loong_status_t loongi_draft_choose(loong_context_t *ctx,
                                   const loong_hf_map_t *map,
                                   const loong_draft_patterns_t *patterns,
                                   loong_draft_match_t *match_p)
{
    loong_draft_match_t match = {0};
    loong_draft_match_t other = {0};
    const loong_hf_row_t *row = map->family->rows;
    while (strstr(row->name, ".o_proj.weight") == NULL) {
        row++;
    }
    bool transposed = (row->how & HF_TURNED) != 0;
    LOONG_TRY(match_as(ctx, map, patterns, transposed, &match));
    loong_status_t status = match_as(ctx, map, patterns, !transposed, &other);
    if (status != LOONG_OK) {
        loongi_draft_match_free(&match);
        return status;
    }
    bool better = loongi_draft_is_better(&other, &match);
    *match_p = better ? other : match;
    loongi_draft_match_free(better ? &match : &other);
    return LOONG_OK;
}

void loongi_draft_match_free(loong_draft_match_t *match)
{
    loongi_arena_destroy(&match->arena);
}
