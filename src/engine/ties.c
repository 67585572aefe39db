/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the ties of a pipeline: which parameters have which holders. Called by
 * src/component/component_ties.c. Read ties.h before. */
#include "ties.h"

#include <string.h>

static bool holds(const loong_tie_t *tie, int stage)
{
    int i = 0;
    while (i < tie->num_holders && tie->holders[i] != stage) {
        i++;
    }
    return i < tie->num_holders;
}

static bool has_holders(const loong_tie_t *tie, int stages, const bool *held)
{
    for (int s = 0; s < stages; s++) {
        if (holds(tie, s) != held[s]) {
            return false;
        }
    }
    return true;
}

static loong_status_t fill_tie(const loong_schedule_t *s, const bool *held,
                               loong_arena_t *arena, loong_tie_t *tie)
{
    int *holders = NULL;
    int *coord = NULL;
    LOONG_TRY(loongi_arena_alloc(
        arena, sizeof(int) * (size_t)loongi_schedule_stages(s), &holders));
    LOONG_TRY(loongi_arena_alloc(arena, sizeof(int) * (size_t)s->params.ranks,
                                 &coord));
    *tie = (loong_tie_t){0, holders, {0, coord}};
    for (int r = 0; r < s->params.ranks; r++) {
        int before = tie->num_holders;
        for (int k = 0; k < s->params.chunks; k++) {
            int stage = loongi_schedule_stage(s, r, k);
            if (held[stage]) {
                holders[tie->num_holders++] = stage;
            }
        }
        if (tie->num_holders > before) {
            coord[tie->ranks.count++] = r;
        }
    }
    return LOONG_OK;
}

static loong_status_t put_param(loong_context_t *ctx, const loong_schedule_t *s,
                                const char *name, const bool *held,
                                loong_arena_t *arena, loong_ties_t *ties)
{
    int stages = loongi_schedule_stages(s);
    int k = 0;
    while (k < ties->count && !has_holders(&ties->list[k], stages, held)) {
        k++;
    }
    LOONG_CHECK(ctx, k < LOONG_MAX_TIES, LOONG_ERR_UNSUPPORTED,
                "'%s': parameters that several stages hold have more than %d "
                "sets of stages",
                name, LOONG_MAX_TIES);
    if (k == ties->count) {
        LOONG_TRY(fill_tie(s, held, arena, &ties->list[ties->count++]));
    }
    ties->params[ties->num_params++] = (loong_tied_param_t){name, k + 1};
    return LOONG_OK;
}

static int count_held(const bool *held, int stages)
{
    int count = 0;
    for (int s = 0; s < stages; s++) {
        count += held[s];
    }
    return count;
}

loong_status_t loongi_ties_find(loong_context_t *ctx,
                                const loong_schedule_t *schedule,
                                const loong_holdings_t *holdings,
                                loong_arena_t *arena, loong_ties_t *ties_p)
{
    const loong_holdings_t *h = holdings;
    int stages = loongi_schedule_stages(schedule);
    loong_ties_t ties;
    memset(&ties, 0, sizeof(ties));
    LOONG_TRY(loongi_arena_alloc(
        arena, sizeof(*ties.params) * (size_t)h->num_params, &ties.params));
    for (int64_t p = 0; p < h->num_params; p++) {
        const bool *held = &h->held[p * stages];
        if (count_held(held, stages) > 1) {
            LOONG_TRY(
                put_param(ctx, schedule, h->names[p], held, arena, &ties));
        }
    }
    *ties_p = ties;
    return LOONG_OK;
}

int loongi_ties_number(const loong_ties_t *ties, const char *name)
{
    int64_t i = 0;
    while (i < ties->num_params && strcmp(ties->params[i].name, name) != 0) {
        i++;
    }
    return i < ties->num_params ? ties->params[i].tie : 0;
}
