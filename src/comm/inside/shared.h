/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives of ranks that see common memory: threads of a process, or
 * processes of a machine. Ranks publish what they call in a control block,
 * check each other, read the peers' buffers directly where they can (the
 * backend says where), and through staging buffers where they cannot.
 */
#ifndef LOONG_COMM_SHARED_H
#define LOONG_COMM_SHARED_H

#include "comm_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_shared loong_shared_t;

/* How a buffer is named to peers. region 0: they cannot read it. */
typedef struct loong_location {
    uint64_t region;
    uint64_t offset;
} loong_location_t;

typedef struct loong_shared_params {
    int rank;
    int size;
    void *memory;   /* of all ranks: loongi_shared_bytes, zeroed at first */
    size_t staging; /* bytes per rank; 0: locate always succeeds */
    void *owner;
    loong_location_t (*locate)(void *owner, const void *ptr, size_t bytes);
    /* Where this rank sees the peer's location. */
    void *(*resolve)(void *owner, int peer, const loong_location_t *location);
} loong_shared_params_t;

size_t loongi_shared_bytes(int size, size_t staging);

LOONG_NODISCARD loong_status_t
loongi_shared_create(loong_context_t *ctx, const loong_shared_params_t *params,
                     loong_shared_t **shared_p);
void loongi_shared_destroy(loong_context_t *ctx, loong_shared_t **shared_p);

/* The ops slots run and abort. */
LOONG_NODISCARD loong_status_t loongi_shared_run(
    loong_shared_t *shared, loong_comm_t *comm, const loong_collective_t *call);
void loongi_shared_abort(loong_shared_t *shared, const char *text);

#ifdef __cplusplus
}
#endif

#endif
