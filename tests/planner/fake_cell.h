/* SPDX-License-Identifier: Apache-2.0
 *
 * Random cells: one to four components on up to twelve ranks, pipelines of all
 * kinds, frozen ones, edges from many micro-batches to many, micro-batches that
 * no message reaches. */
#ifndef FAKE_CELL_H
#define FAKE_CELL_H

#include "cell.h"

enum {
    FAKE_COMPONENTS = 4,
    FAKE_RANKS = 12,
    FAKE_EDGES = 6,
    FAKE_CELL_STAGES = 12,
    FAKE_MESSAGES = 1 << 14 /* those of doubles too */
};

typedef struct fake_cell {
    loong_cell_params_t params;
    loong_cell_component_t components[FAKE_COMPONENTS];
    int32_t rank[FAKE_COMPONENTS][FAKE_RANKS];
    loong_stage_work_t work[FAKE_COMPONENTS][FAKE_CELL_STAGES];
    loong_cell_edge_t edges[FAKE_EDGES];
    loong_message_t messages[FAKE_MESSAGES];
} fake_cell_t;

void fake_cell_draw(uint64_t seed, const char *join, fake_cell_t *fake);
/* Adds messages, so that one of each direction reaches every micro-batch of
 * those that read an edge. */
void fake_cell_cover(uint64_t seed, fake_cell_t *fake);

#endif
