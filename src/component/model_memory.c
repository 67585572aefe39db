/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of all bases. Called by model.c. Read model_memory.h before. */
#include "model_memory.h"

#include <string.h>

/* Peers of the machine read it where it is. */
static bool is_shared(const loong_model_t *m, int base)
{
    return (loong_device_is_host(m->run.device) ||
            m->components[0]->params.resources.staging.processors) &&
           (base == LOONG_BASE_PARAM || base == LOONG_BASE_GRAD ||
            base == LOONG_BASE_COMM);
}

/* Of all ranks; one with memory of a device has no part in it. */
static loong_status_t take_shared(loong_model_t *m, int b)
{
    bool host = loong_device_is_host(m->run.device);
    size_t bytes = host ? (size_t)m->bytes[b] : 0;
    void *memory = NULL;
    LOONG_TRY(
        loong_comm_alloc_shared(m->resources->world, LOONG_MAX(bytes, 1),
                                loongi_base_name((loong_base_t)b), &memory));
    m->shared[b] = memory;
    m->run.base[b] = host ? memory : NULL;
    return LOONG_OK;
}

static loong_status_t take_areas(loong_model_t *m)
{
    loong_device_t *device = m->run.device;
    for (int back = 0; back < 2; back++) {
        void *area = NULL;
        if (m->area_bytes[back] > 0) {
            LOONG_TRY(loong_device_host_alloc(device,
                                              (size_t)m->area_bytes[back],
                                              "areas of edges", &area));
            m->areas[back] = area;
        }
    }
    if (m->areas[0] == NULL && m->areas[1] == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loong_device_event_create(device, &m->copies.done));
    return loong_device_stream_create(device, &m->copies.stream);
}

static void give_areas_back(loong_model_t *m)
{
    if (m->copies.stream != NULL) {
        loong_device_stream_destroy(m->run.device, m->copies.stream);
    }
    if (m->copies.done != NULL) {
        loong_device_event_destroy(m->run.device, m->copies.done);
    }
    m->copies = (loong_edge_copies_t){NULL, NULL};
    for (int back = 0; back < 2; back++) {
        if (m->areas[back] != NULL) {
            loong_device_host_free(m->run.device, m->areas[back]);
            m->areas[back] = NULL;
        }
    }
}

/* Ranks without any of what is shared (a stage may be frozen) take part where
 * others have some. */
loong_status_t loongi_model_take_memory(loong_model_t *model)
{
    loong_model_t *m = model;
    loong_comm_t *world = m->resources->world;
    int64_t most[LOONG_BASE_COUNT];
    bool host = loong_device_is_host(m->run.device);
    memcpy(most, m->bytes, sizeof(most));
    if (host || m->components[0]->params.resources.staging.processors) {
        LOONG_TRY(loong_comm_all_reduce(world, most, LOONG_BASE_COUNT,
                                        LOONG_I64, LOONG_REDUCE_MAX,
                                        "memory of bases"));
    }
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        void *memory = NULL;
        if (is_shared(m, b) && most[b] > 0) {
            LOONG_TRY(take_shared(m, b));
        }
        if (m->bytes[b] > 0 && (!host || !is_shared(m, b))) {
            LOONG_TRY(loong_device_alloc(m->run.device, (size_t)m->bytes[b],
                                         loongi_base_name((loong_base_t)b),
                                         &memory));
            m->run.base[b] = memory;
        }
    }
    return take_areas(m);
}

void loongi_model_give_memory_back(loong_model_t *model)
{
    loong_model_t *m = model;
    for (int b = 0; b < LOONG_BASE_COUNT && m->run.device != NULL; b++) {
        if (m->run.base[b] != m->shared[b]) {
            loong_device_free(m->run.device, m->run.base[b],
                              (size_t)m->bytes[b]);
        }
        m->run.base[b] = NULL;
        loong_comm_free_shared(m->resources->world, &m->shared[b]);
    }
    give_areas_back(m);
}
