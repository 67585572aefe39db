/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of shared allocations. It holds a handful: a search is a walk.
 * Called by mpi_comm.c and threads_comm.c. Read inside/region.h before. */
#include "region.h"

loong_status_t loongi_region_add(loong_context_t *ctx, loong_regions_t *regions,
                                 uint64_t id, int self, int world_size,
                                 loong_region_t **region_p)
{
    loong_region_t *region = NULL;
    size_t parts = (size_t)world_size * sizeof(loong_region_slice_t);
    LOONG_TRY(
        loongi_alloc(ctx, sizeof(*region) + parts, "shared region", &region));
    region->id = id;
    region->self = self;
    region->world_size = world_size;
    region->part = (loong_region_slice_t *)(region + 1);
    region->next = regions->head;
    regions->head = region;
    *region_p = region;
    return LOONG_OK;
}

void loongi_region_remove(loong_context_t *ctx, loong_regions_t *regions,
                          loong_region_t *region)
{
    loong_region_t **link = &regions->head;
    while (*link != NULL && *link != region) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = region->next;
        loongi_free(ctx, region);
    }
}

loong_region_t *loongi_region_find(const loong_regions_t *regions,
                                   const void *ptr, size_t bytes)
{
    for (loong_region_t *r = regions->head; r != NULL; r = r->next) {
        const loong_region_slice_t *own = &r->part[r->self];
        uintptr_t begin = (uintptr_t)own->base;
        uintptr_t at = (uintptr_t)ptr;
        if (own->base != NULL && at >= begin && at <= begin + own->bytes &&
            bytes <= begin + own->bytes - at) {
            return r;
        }
    }
    return NULL;
}

loong_region_t *loongi_region_of(const loong_regions_t *regions, uint64_t id)
{
    loong_region_t *region = regions->head;
    while (region != NULL && region->id != id) {
        region = region->next;
    }
    return region;
}

void *loongi_region_peer(const loong_regions_t *regions, const void *ptr,
                         int world_rank)
{
    loong_region_t *region = loongi_region_find(regions, ptr, 1);
    if (region == NULL || world_rank < 0 || world_rank >= region->world_size) {
        return NULL;
    }
    const loong_region_slice_t *part = &region->part[world_rank];
    size_t offset = (size_t)((const char *)ptr -
                             (const char *)region->part[region->self].base);
    return part->base != NULL && offset < part->bytes
               ? (char *)part->base + offset
               : NULL;
}
