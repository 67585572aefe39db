/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of all bases. */
#include "component_memory.h"

#include <string.h>

/* Peers of the machine read it where it is. */
static bool is_shared(const loong_component_t *c, int base)
{
    return (loong_device_is_host(c->run.device) ||
            c->params.resources.staging.processors) &&
           (base == LOONG_BASE_PARAM || base == LOONG_BASE_GRAD ||
            base == LOONG_BASE_COMM);
}

/* Of all ranks; one with memory of a device has no part in it. */
static loong_status_t take_shared(loong_component_t *c, int b)
{
    bool host = loong_device_is_host(c->run.device);
    size_t bytes = host ? (size_t)c->bytes[b] : 0;
    void *memory = NULL;
    LOONG_TRY(
        loong_comm_alloc_shared(c->comms.resources->world, LOONG_MAX(bytes, 1),
                                loongi_base_name((loong_base_t)b), &memory));
    c->shared[b] = memory;
    c->run.base[b] = host ? memory : NULL;
    return LOONG_OK;
}

/* Ranks without any of what is shared (a stage may be frozen) take part where
 * others have some. */
loong_status_t loongi_component_take_memory(loong_component_t *component)
{
    loong_component_t *c = component;
    loong_comm_t *world = c->comms.resources->world;
    int64_t most[LOONG_BASE_COUNT];
    bool host = loong_device_is_host(c->run.device);
    memcpy(most, c->bytes, sizeof(most));
    if (host || c->params.resources.staging.processors) {
        LOONG_TRY(loong_comm_all_reduce(world, most, LOONG_BASE_COUNT,
                                        LOONG_I64, LOONG_REDUCE_MAX,
                                        "memory of bases"));
    }
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        void *memory = NULL;
        if (is_shared(c, b) && most[b] > 0) {
            LOONG_TRY(take_shared(c, b));
        }
        if (c->bytes[b] > 0 && (!host || !is_shared(c, b))) {
            LOONG_TRY(loong_device_alloc(c->run.device, (size_t)c->bytes[b],
                                         loongi_base_name((loong_base_t)b),
                                         &memory));
            c->run.base[b] = memory;
        }
    }
    return LOONG_OK;
}

void loongi_component_give_memory_back(loong_component_t *component)
{
    loong_component_t *c = component;
    for (int b = 0; b < LOONG_BASE_COUNT && c->run.device != NULL; b++) {
        if (c->run.base[b] != c->shared[b]) {
            loong_device_free(c->run.device, c->run.base[b],
                              (size_t)c->bytes[b]);
        }
        c->run.base[b] = NULL;
        loong_comm_free_shared(c->comms.resources->world, &c->shared[b]);
    }
}
