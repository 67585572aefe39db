/* SPDX-License-Identifier: Apache-2.0
 *
 * A schedule is data: the list of entries that one rank runs in a step. The
 * executor runs that list, a simulator can run the same list. */
#ifndef LOONG_SCHEDULE_H
#define LOONG_SCHEDULE_H

#include "base.h"
#include "graph_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_entry {
    loong_program_kind_t kind;
    int chunk;
    int64_t micro_batch;
    int64_t slot; /* of the chunk's slots */
    int64_t pair; /* entry that runs together with this one, or -1 */
} loong_entry_t;

/* One stage with gradient accumulation: F and B of each micro-batch in turn,
 * one slot. Writes 2 x micro_batches entries. */
void loongi_schedule_one_stage(int64_t micro_batches, loong_entry_t *entries);

#ifdef __cplusplus
}
#endif

#endif
