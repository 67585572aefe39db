/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives of a group that has several ranks on each of several machines,
 * in two tiers: the ranks of a machine among themselves, in shared memory, and
 * the first rank of every machine, its leader, with the other leaders. */
#ifndef LOONG_COMM_TIERS_H
#define LOONG_COMM_TIERS_H

#include "comm_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the communicator's tiers where they are of use: every machine's ranks
 * stand next to each other, and one has more than one. Destroys it when it
 * fails. Collective on: *comm_p. */
LOONG_NODISCARD loong_status_t loongi_tiers_create(loong_comm_t **comm_p);
/* Nothing where there are none, as the following ones. */
void loongi_tiers_destroy(loong_comm_t *comm);

LOONG_NODISCARD loong_status_t loongi_tiers_run(loong_comm_t *comm,
                                                const loong_collective_t *call);
void loongi_tiers_abort(loong_comm_t *comm, const char *text);
/* That of comm. */
void loongi_tiers_set_wait_policy(loong_comm_t *comm);
void loongi_tiers_add_stats(const loong_comm_t *comm,
                            loong_comm_stats_t *stats);

#ifdef __cplusplus
}
#endif

#endif
