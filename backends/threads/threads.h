/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks in one process. `self` is one such rank without a thread. */
#ifndef LOONG_THREADS_H
#define LOONG_THREADS_H

#include "comm_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_threads_world {
    int size;
    loong_comm_params_t params;
    loong_board_t *board;
} loong_threads_world_t;

/* What the ranks of one communicator share; freed by the last of them. */
typedef struct loong_threads_group loong_threads_group_t;

/* For ranks of these world ranks; each calls loongi_threads_join once, or
 * loongi_threads_drop. NULL: out of memory. */
loong_threads_group_t *loongi_threads_group(const loong_threads_world_t *world,
                                            const int *world_ranks, int size);
void loongi_threads_drop(loong_threads_group_t *group);

/* The communicator of one rank of the group, named by description's name,
 * rank, size, world_ranks and ops. Takes its share of the group, also when it
 * fails. parent: NULL for the first. */
LOONG_NODISCARD loong_status_t loongi_threads_join(
    loong_context_t *ctx, const loong_threads_world_t *world,
    loong_threads_group_t *group, loong_comm_t *parent,
    const loong_comm_description_t *description, loong_comm_t **comm_p);

const loong_comm_ops_t *loongi_threads_ops(void);

/* Calls end(ctx, user) when comm is destroyed. */
void loongi_threads_at_end(loong_comm_t *comm,
                           void (*end)(loong_context_t *ctx, void *user),
                           void *user);

#ifdef __cplusplus
}
#endif

#endif
