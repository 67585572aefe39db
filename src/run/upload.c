/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies initial parameters to a device through a ring of host memory. Created
 * by src/component/stage.c, fed by src/optim/shards.c. Read upload.h before. */
#include "upload.h"

enum { RING = 64 << 20, ALIGN = 256 };

loong_status_t loongi_upload_create(const loong_binding_t *run, size_t bytes,
                                    loong_upload_t **upload_p)
{
    loong_upload_t *u = NULL;
    void *ring = NULL;
    loong_status_t status = LOONG_OK;
    LOONG_TRY(loongi_alloc(run->ctx, sizeof(*u), "upload", &u));
    u->run = run;
    u->size = LOONG_MIN(LOONG_MAX(bytes, (size_t)ALIGN), (size_t)RING);
    if (run->device != NULL && !loong_device_is_host(run->device)) {
        status = loong_device_host_alloc(run->device, u->size,
                                         "ring of parameters", &ring);
        u->ring = ring;
    }
    if (status != LOONG_OK) {
        loongi_free(run->ctx, u);
        return status;
    }
    *upload_p = u;
    return LOONG_OK;
}

static loong_status_t wait(loong_upload_t *u)
{
    u->used = 0;
    return loong_device_synchronize(u->run->device,
                                    "parameters to be copied");
}

loong_status_t loongi_upload_finish(loong_upload_t **upload_p)
{
    loong_upload_t *u = *upload_p;
    loong_status_t status = LOONG_OK;
    if (u == NULL) {
        return LOONG_OK;
    }
    if (u->ring != NULL) {
        status = wait(u);
        loong_device_host_free(u->run->device, u->ring);
    }
    loongi_free(u->run->ctx, u);
    *upload_p = NULL;
    return status;
}

loong_status_t loongi_upload_room(loong_upload_t *upload, loong_operand_t to,
                                  size_t bytes, void **room_p)
{
    loong_upload_t *u = upload;
    if (u->ring == NULL) {
        *room_p = u->run->base[to.base] + to.offset;
        return LOONG_OK;
    }
    LOONG_CHECK(u->run->ctx, bytes <= u->size, LOONG_ERR_INTERNAL,
                "a piece of %zu bytes, the ring has %zu", bytes, u->size);
    if (u->used + bytes > u->size) {
        LOONG_TRY(wait(u));
    }
    *room_p = u->ring + u->used;
    u->used += (size_t)loongi_round_up((int64_t)bytes, ALIGN);
    return LOONG_OK;
}

loong_status_t loongi_upload_send(loong_upload_t *upload, loong_operand_t to,
                                  const void *room, size_t bytes)
{
    return upload->ring == NULL
               ? LOONG_OK
               : loongi_binding_write(upload->run, to, room, bytes);
}
