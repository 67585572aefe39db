/* SPDX-License-Identifier: Apache-2.0
 *
 * One parameter for each tensor, one tensor for each parameter: first those
 * that sound best, then changes as long as all together sound better. What is
 * in one module of the engine is looked for in one module of the files. Called
 * by draft_match.c. Read draft_match.h before. */
#include <stdlib.h>
#include <string.h>

#include "draft_match.h"

enum { WITH_ITS_WEIGHT = 20 /* more than any words say */ };

/* Equal sounds: in the order of names and parameters, so that the choice is
 * the same in every run. */
static int by_score(const void *a, const void *b)
{
    const loong_draft_option_t *x = a;
    const loong_draft_option_t *y = b;
    if (x->choice.score != y->choice.score) {
        return x->choice.score < y->choice.score ? 1 : -1;
    }
    if (x->roles[0] != y->roles[0]) {
        return x->roles[0] - y->roles[0];
    }
    return (x->choice.pattern > y->choice.pattern) -
           (x->choice.pattern < y->choice.pattern);
}

static void sort(loong_draft_matcher_t *m)
{
    if (m->count > 0) {
        qsort(m->options, (size_t)m->count, sizeof(*m->options), by_score);
    }
}

static bool is_free(const loong_draft_matcher_t *m,
                    const loong_draft_option_t *o)
{
    bool ok = !m->used[o->choice.pattern];
    for (int i = 0; i < o->choice.count; i++) {
        ok = ok && !m->roles[o->roles[i]].covered;
    }
    return ok;
}

static void take(loong_draft_matcher_t *m, loong_draft_option_t *o, bool taken)
{
    o->taken = taken;
    m->used[o->choice.pattern] = taken;
    for (int i = 0; i < o->choice.count; i++) {
        m->roles[o->roles[i]].covered = taken;
    }
}

/* ---- who stands beside whom ---- */

/* Length of "layers.#.mlp" in "layers.#.mlp.up_proj.weight". */
static size_t parent(const char *name)
{
    size_t dots[2] = {0, 0};
    for (size_t i = 0; name[i] != '\0'; i++) {
        if (name[i] == '.') {
            dots[0] = dots[1];
            dots[1] = i;
        }
    }
    return dots[0];
}

static bool same_parent(const char *a, const char *b)
{
    size_t n = parent(a);
    return n == parent(b) && memcmp(a, b, n) == 0;
}

static const char *text_of(const loong_draft_matcher_t *m,
                           const loong_draft_option_t *o)
{
    return m->patterns->items[o->choice.pattern].text;
}

/* How well an option goes with the tensors that are chosen: with those that
 * stand in its module here and there. */
static double company(const loong_draft_matcher_t *m,
                      const loong_draft_option_t *o)
{
    double sum = 0;
    for (int64_t i = 0; i < m->count; i++) {
        const loong_draft_option_t *p = &m->options[i];
        if (!p->taken || p == o || p->bias != o->bias) {
            continue;
        }
        bool roles = same_parent(o->choice.holds[0], p->choice.holds[0]);
        bool files = same_parent(text_of(m, o), text_of(m, p));
        sum += roles && files ? 1 : roles != files ? -1 : 0;
    }
    return sum;
}

static double worth(const loong_draft_matcher_t *m,
                    const loong_draft_option_t *o)
{
    return o->choice.score + company(m, o);
}

/* ---- changes ---- */

static loong_draft_option_t *find_option(const loong_draft_matcher_t *m,
                                         int64_t pattern,
                                         const loong_draft_option_t *like)
{
    for (int64_t i = 0; i < m->count; i++) {
        loong_draft_option_t *o = &m->options[i];
        if (o->choice.pattern == pattern &&
            o->choice.count == like->choice.count &&
            memcmp(o->roles, like->roles,
                   (size_t)like->choice.count * sizeof(int)) == 0) {
            return o;
        }
    }
    return NULL;
}

/* Takes `in` (and another) in place of `out` when that is worth more. */
static bool change(loong_draft_matcher_t *m, loong_draft_option_t *const out[2],
                   loong_draft_option_t *const in[2])
{
    double before = 0;
    double after = 0;
    for (int i = 0; i < 2 && out[i] != NULL; i++) {
        before += worth(m, out[i]);
    }
    for (int i = 0; i < 2 && out[i] != NULL; i++) {
        take(m, out[i], false);
    }
    for (int i = 0; i < 2 && in[i] != NULL; i++) {
        take(m, in[i], true);
    }
    for (int i = 0; i < 2 && in[i] != NULL; i++) {
        after += worth(m, in[i]);
    }
    if (after > before + 1e-9) {
        return true;
    }
    for (int i = 0; i < 2 && in[i] != NULL; i++) {
        take(m, in[i], false);
    }
    for (int i = 0; i < 2 && out[i] != NULL; i++) {
        take(m, out[i], true);
    }
    return false;
}

/* Two tensors change their parameters. */
static bool exchange(loong_draft_matcher_t *m, loong_draft_option_t *a)
{
    for (loong_draft_option_t *b = a + 1; b < m->options + m->count; b++) {
        if (!b->taken || b->bias != a->bias) {
            continue;
        }
        loong_draft_option_t *out[2] = {a, b};
        loong_draft_option_t *in[2] = {find_option(m, b->choice.pattern, a),
                                       find_option(m, a->choice.pattern, b)};
        if (in[0] != NULL && in[1] != NULL && change(m, out, in)) {
            return true;
        }
    }
    return false;
}

/* A tensor gets a parameter, or a parameter a tensor, that nobody has. */
static bool replace(loong_draft_matcher_t *m, loong_draft_option_t *a)
{
    for (int64_t i = 0; i < m->count; i++) {
        loong_draft_option_t *b = &m->options[i];
        if (b->taken || b->bias != a->bias ||
            b->choice.count < a->choice.count) {
            continue;
        }
        take(m, a, false);
        bool possible = is_free(m, b);
        take(m, a, true);
        loong_draft_option_t *out[2] = {a, NULL};
        loong_draft_option_t *in[2] = {b, NULL};
        if (possible && change(m, out, in)) {
            return true;
        }
    }
    return false;
}

static void choose(loong_draft_matcher_t *m, bool bias)
{
    for (int64_t i = 0; i < m->count; i++) {
        loong_draft_option_t *o = &m->options[i];
        if (o->bias == bias && is_free(m, o)) {
            take(m, o, true);
        }
    }
    bool changed = true;
    for (int turns = 0; turns < 1000 && changed; turns++) {
        changed = false;
        for (int64_t i = 0; i < m->count && !changed; i++) {
            loong_draft_option_t *o = &m->options[i];
            changed = o->taken && o->bias == bias &&
                      (exchange(m, o) || replace(m, o));
        }
    }
}

/* ---- biases ---- */

/* The choice for what stands beside a bias, "h.#.fc.weight" beside
 * "h.#.fc.bias"; NULL: none. */
static const loong_draft_option_t *beside(const loong_draft_matcher_t *m,
                                          const loong_draft_option_t *bias)
{
    const char *text = text_of(m, bias);
    const char *dot = strrchr(text, '.');
    size_t stem = dot != NULL ? (size_t)(dot - text) + 1 : 0;
    for (int64_t i = 0; i < m->count && stem > 0; i++) {
        const loong_draft_option_t *o = &m->options[i];
        const char *other = text_of(m, o);
        if (o->taken && !o->bias && strncmp(other, text, stem) == 0 &&
            strchr(other + stem, '.') == NULL) {
            return o;
        }
    }
    return NULL;
}

static void place_biases(loong_draft_matcher_t *m)
{
    for (int64_t i = 0; i < m->count; i++) {
        loong_draft_option_t *o = &m->options[i];
        const loong_draft_option_t *w = o->bias ? beside(m, o) : NULL;
        if (w == NULL) {
            continue;
        }
        bool same = w->choice.count == o->choice.count;
        for (int k = 0; same && k < o->choice.count; k++) {
            same = w->roles[k] == loongi_draft_find_role(m, o->choice.holds[k],
                                                         ".bias", ".weight");
        }
        o->choice.score += same ? WITH_ITS_WEIGHT : -WITH_ITS_WEIGHT;
    }
}

/* ---- what a map cannot say ---- */

static const loong_draft_option_t *taken_by(const loong_draft_matcher_t *m,
                                            int role)
{
    for (int64_t i = 0; i < m->count; i++) {
        const loong_draft_option_t *o = &m->options[i];
        for (int k = 0; o->taken && k < o->choice.count; k++) {
            if (o->roles[k] == role) {
                return o;
            }
        }
    }
    return NULL;
}

/* Of one tensor of the family, or one expert. */
static bool are_bound(const loong_draft_role_t *a, const loong_draft_role_t *b)
{
    return a->unit >= 0
               ? a->row == b->row
               : b->unit < 0 && a->row - a->row->part == b->row - b->row->part;
}

/* A map names all that the family has in one tensor or none of it, and the
 * matrices of experts lie alike. */
static void drop_halves(loong_draft_matcher_t *m)
{
    for (int a = 0; a < m->role_count; a++) {
        for (int b = 0; b < m->role_count; b++) {
            const loong_draft_option_t *x = taken_by(m, a);
            const loong_draft_option_t *y = taken_by(m, b);
            bool alike = y != NULL &&
                         (m->roles[a].unit < 0 || x == NULL ||
                          (x->choice.transposed == y->choice.transposed &&
                           m->patterns->items[x->choice.pattern].experts ==
                               m->patterns->items[y->choice.pattern].experts));
            if (x != NULL && !alike && are_bound(&m->roles[a], &m->roles[b])) {
                take(m, m->options + (x - m->options), false);
            }
        }
    }
}

/* A bias goes where its matrix went: a guess, when that was one. */
bool loongi_draft_is_sure(const loong_draft_matcher_t *m,
                          const loong_draft_option_t *o)
{
    const loong_draft_option_t *w = o->bias ? beside(m, o) : NULL;
    if (w != NULL && !loongi_draft_is_sure(m, w)) {
        return false;
    }
    for (int64_t i = 0; i < m->count; i++) {
        const loong_draft_option_t *p = &m->options[i];
        if (p != o && p->choice.score >= o->choice.score &&
            (p->roles[0] == o->roles[0] ||
             p->choice.pattern == o->choice.pattern)) {
            return false;
        }
    }
    return o->choice.score > 0;
}

void loongi_draft_take(loong_draft_matcher_t *m)
{
    sort(m);
    choose(m, false);
    place_biases(m);
    sort(m);
    choose(m, true);
    drop_halves(m);
}
