/* SPDX-License-Identifier: Apache-2.0
 *
 * Between shared.c (posts, checks, direct reading) and shared_staged.c. */
#ifndef LOONG_COMM_SHARED_IMPL_H
#define LOONG_COMM_SHARED_IMPL_H

#include <string.h>

#include "piece.h"
#include "shared.h"

#ifdef __cplusplus
extern "C" {
#endif

struct loong_shared {
    loong_shared_params_t params;
    struct control *control;
    int64_t *counts; /* [size][2][size]: the posted counts */
    unsigned char *staging;
    uint64_t phase;
    const void **sources;  /* [size] */
    void **targets;        /* [size] */
    loong_piece_t *pieces; /* [size] */
};

static inline void loongi_copy(void *to, const void *from, size_t bytes)
{
    if (bytes > 0 && to != from) {
        memcpy(to, from, bytes);
    }
}

/* Everybody has come here before anybody goes on. */
loong_status_t loongi_shared_sync(loong_shared_t *shared, loong_comm_t *comm);
/* The counts that a rank posted with this call. */
int64_t *loongi_shared_counts(loong_shared_t *shared,
                              const loong_collective_t *call, int rank);
/* The buffer of this rank that peers read. */
const void *loongi_shared_source(const loong_collective_t *call);

/* The call through staging buffers, after the posts were checked. */
loong_status_t loongi_shared_staged(loong_shared_t *shared, loong_comm_t *comm,
                                    const loong_collective_t *call);

#ifdef __cplusplus
}
#endif

#endif
