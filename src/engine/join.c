/* SPDX-License-Identifier: Apache-2.0
 *
 * Joins: where the computations of the components before the last one stand
 * among those of the last one, whose own order stays. Called by cell.c through
 * loongi_join_kinds. Read cell.h before. */
#include "cell_impl.h"

/* The keys of the first stage are those of all. */
static void spread(const loong_join_t *j, int component, int64_t *keys)
{
    const loong_cell_t *cell = j->cell;
    int total = cell->params.components[component].params.micro_batches;
    int stages = loongi_schedule_stages(cell->schedules[component]);
    for (int i = total; i < stages * total; i++) {
        keys[i] = keys[i - total];
    }
}

/* All forwards before the last component begins, all backwards behind its
 * end. */
static loong_status_t place_phases(loong_join_t *j)
{
    const loong_cell_params_t *p = &j->cell->params;
    for (int c = 0; c < p->num_components; c++) {
        int count = loongi_schedule_stages(j->cell->schedules[c]) *
                    p->components[c].params.micro_batches;
        for (int i = 0; i < count && c != j->cell->num_own - 1; i++) {
            j->forward[c][i] = LOONG_JOIN_FIRST;
            j->backward[c][i] = LOONG_JOIN_LAST;
        }
    }
    return LOONG_OK;
}

/* When the one that stands at the other end of a message computes. */
static int64_t key_of(const loong_join_t *j, int64_t *const *keys,
                      const loong_message_end_t *end)
{
    const loong_cell_params_t *p = &j->cell->params;
    int total = p->components[end->component].params.micro_batches;
    return keys[end->component][end->stage * total + end->micro_batch];
}

/* Forwards right before the first that reads them, as early as those of later
 * micro-batches. What nobody reads stands with the micro-batch before. */
void loongi_join_before(loong_join_t *join, int component)
{
    loong_join_t *j = join;
    const loong_cell_params_t *p = &j->cell->params;
    int64_t *key = j->forward[component];
    int total = p->components[component].params.micro_batches;
    for (int m = 0; m < total; m++) {
        key[m] = INT64_MAX;
    }
    for (int64_t i = 0; i < p->num_messages; i++) {
        const loong_message_t *m = &p->messages[i];
        if (!m->backward && p->edges[m->edge].from == component) {
            loong_message_end_t to = loongi_message_to(j->cell, m);
            int64_t *k = &key[m->from_micro_batch];
            int64_t read = key_of(j, j->forward, &to);
            *k = LOONG_MIN(*k, read - LOONG_MAX(read, 0) % LOONG_JOIN_STEP);
        }
    }
    for (int m = total - 2; m >= 0; m--) {
        key[m] = LOONG_MIN(key[m], key[m + 1]);
    }
    for (int m = 0; m < total; m++) {
        if (key[m] == INT64_MAX) {
            key[m] = m > 0 ? key[m - 1] : LOONG_JOIN_FIRST;
        }
    }
    spread(j, component, key);
}

/* Backwards right behind the last gradient that they read, as late as those of
 * earlier micro-batches. */
void loongi_join_behind(loong_join_t *join, int component)
{
    loong_join_t *j = join;
    const loong_cell_params_t *p = &j->cell->params;
    int64_t *key = j->backward[component];
    int total = p->components[component].params.micro_batches;
    const int64_t *forward =
        j->forward[component] +
        (loongi_schedule_stages(j->cell->schedules[component]) - 1) * total;
    for (int m = 0; m < total; m++) {
        key[m] = LOONG_MAX(forward[m], 0) + 2;
    }
    for (int64_t i = 0; i < p->num_messages; i++) {
        const loong_message_t *m = &p->messages[i];
        if (m->backward && p->edges[m->edge].from == component) {
            loong_message_end_t from = loongi_message_from(j->cell, m);
            int64_t *k = &key[m->to_micro_batch];
            int64_t made = key_of(j, j->backward, &from);
            *k = LOONG_MAX(*k, made - made % LOONG_JOIN_STEP + 2);
        }
    }
    for (int m = 1; m < total; m++) {
        key[m] = LOONG_MAX(key[m], key[m - 1]);
    }
    spread(j, component, key);
}

void loongi_join_couple(loong_join_t *join, int first, int last)
{
    for (int c = last; c >= first; c--) {
        loongi_join_before(join, c);
    }
    for (int c = last; c >= first; c--) {
        loongi_join_behind(join, c);
    }
}

static loong_status_t place_coupled(loong_join_t *j)
{
    loongi_join_couple(j, 0, j->cell->num_own - 2);
    return LOONG_OK;
}

/* Behind the last component, one micro-batch after the other: forwards once
 * more, right before the backwards. Keys there are in parts of the step. */
static void place_again(loong_join_t *j, int component)
{
    const loong_cell_params_t *p = &j->cell->params;
    int64_t *back = j->backward[component];
    int64_t *forward = j->forward[component];
    int64_t total = p->components[component].params.micro_batches;
    for (int64_t m = 0; m < total; m++) {
        back[m] = LOONG_JOIN_LAST + LOONG_JOIN_STEP * ((m << 24) / total) + 1;
    }
    for (int64_t i = 0; i < p->num_messages; i++) {
        const loong_message_t *m = &p->messages[i];
        const loong_cell_edge_t *e = &p->edges[m->edge];
        if (m->backward && e->from == component && e->to < j->cell->num_own) {
            loong_message_end_t from = loongi_message_from(j->cell, m);
            int64_t *k = &back[m->to_micro_batch];
            *k = LOONG_MAX(*k, key_of(j, j->backward, &from));
        }
    }
    for (int64_t m = 1; m < total; m++) {
        back[m] = LOONG_MAX(back[m], back[m - 1]);
    }
    for (int64_t m = 0; m < total; m++) {
        forward[m] = back[m] - back[m] % LOONG_JOIN_STEP;
    }
    for (int64_t i = 0; i < p->num_messages; i++) {
        const loong_message_t *m = &p->messages[i];
        if (!m->backward && p->edges[m->edge].from == component) {
            loong_message_end_t to = loongi_message_to(j->cell, m);
            int64_t *k = &forward[m->from_micro_batch];
            *k = LOONG_MIN(*k, key_of(j, j->forward, &to));
        }
    }
    for (int64_t m = total - 2; m >= 0; m--) {
        forward[m] = LOONG_MIN(forward[m], forward[m + 1]);
    }
    spread(j, component, back);
    spread(j, component, forward);
}

static loong_status_t place_two_pass(loong_join_t *j)
{
    LOONG_TRY(place_phases(j));
    for (int c = j->cell->num_own - 2; c >= 0; c--) {
        if (!j->cell->schedules[c]->kind->evaluate) {
            place_again(j, c);
        }
    }
    return LOONG_OK;
}

static const loong_join_kind_t coupled = {
    "coupled",
    "a forward before the first that reads it, a backward behind "
    "the last gradient that it reads",
    false, false, place_coupled};

static const loong_join_kind_t phases = {
    "phases", "all forwards before the last component, all backwards behind",
    false, false, place_phases};

static const loong_join_kind_t two_pass = {
    "two_pass",
    "all forwards before the last component, of which nothing is kept; behind "
    "it each once more, right before its backward",
    true, false, place_two_pass};

const loong_join_kind_t *const loongi_join_kinds[] = {
    &coupled, &phases, &two_pass, &loongi_join_bubbles, NULL};
