/* SPDX-License-Identifier: Apache-2.0
 *
 * Ties: parameters that several stages of a pipeline hold, and that are one.
 * Once a step, behind all stages, a holder's gradient becomes the sum over all
 * holders; each then makes the same update. Pure, not collective.
 */
#ifndef LOONG_TIES_H
#define LOONG_TIES_H

#include "loong/mesh.h"
#include "schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Who holds them: rank by rank of the pipeline, the stages of a rank in their
 * order. Those of a rank are summed first, then ranks. The first holder speaks
 * for all where a parameter counts once (loong_placement_t.copy). */
typedef struct loong_tie {
    int num_holders;
    const int *holders; /* stages */
    loong_tie_ranks_t ranks;
} loong_tie_t;

typedef struct loong_tied_param {
    const char *name;
    int tie; /* its number, from 1 */
} loong_tied_param_t;

/* Of a pipeline; arrays live in an arena. */
typedef struct loong_ties {
    int count;
    loong_tie_t list[LOONG_MAX_TIES];
    int64_t num_params;
    loong_tied_param_t *params;
} loong_ties_t;

/* Who holds what: bit [p * stages + s] of `held`, stage s parameter p. */
typedef struct loong_holdings {
    int64_t num_params;
    const char *const *names;
    const bool *held;
} loong_holdings_t;

/* Parameters with the same holders are of one tie. LOONG_ERR_UNSUPPORTED: more
 * than LOONG_MAX_TIES. */
LOONG_NODISCARD loong_status_t
loongi_ties_find(loong_context_t *ctx, const loong_schedule_t *schedule,
                 const loong_holdings_t *holdings, loong_arena_t *arena,
                 loong_ties_t *ties_p);

/* The number of the tie of a parameter; 0: one stage holds it. */
int loongi_ties_number(const loong_ties_t *ties, const char *name);

#ifdef __cplusplus
}
#endif

#endif
