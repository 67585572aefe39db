/* SPDX-License-Identifier: Apache-2.0
 *
 * The allocations of loong_comm_alloc_shared that a rank knows: its own part
 * and where it sees its peers'. Groups share the list of the communicator
 * they were split from. */
#ifndef LOONG_COMM_REGION_H
#define LOONG_COMM_REGION_H

#include "comm_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_region_slice {
    void *base; /* NULL: not readable from here */
    size_t bytes;
} loong_region_slice_t;

typedef struct loong_region {
    struct loong_region *next;
    uint64_t id; /* equal on all members, never 0 */
    int self;    /* own world rank */
    int world_size;
    loong_region_slice_t *part; /* [world_size] */
} loong_region_t;

typedef struct loong_regions {
    loong_region_t *head;
} loong_regions_t;

/* A region without parts, in front of the list. */
LOONG_NODISCARD loong_status_t loongi_region_add(loong_context_t *ctx,
                                                 loong_regions_t *regions,
                                                 uint64_t id, int self,
                                                 int world_size,
                                                 loong_region_t **region_p);
/* Takes it out of the list and frees the record, not the memory. */
void loongi_region_remove(loong_context_t *ctx, loong_regions_t *regions,
                          loong_region_t *region);

/* The region whose own part holds all these bytes, NULL when there is none. */
loong_region_t *loongi_region_find(const loong_regions_t *regions,
                                   const void *ptr, size_t bytes);
loong_region_t *loongi_region_of(const loong_regions_t *regions, uint64_t id);

/* The peer's address of the same offset as ptr, NULL when it has none. */
void *loongi_region_peer(const loong_regions_t *regions, const void *ptr,
                         int world_rank);

#ifdef __cplusplus
}
#endif

#endif
