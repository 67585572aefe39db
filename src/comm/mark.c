/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that a device only captured are taken back, and what messages of one
 * took is added up. Called by src/run/replay.c and src/engine/links.c. Read
 * comm_run.h before. */
#include "comm_impl.h"

loong_comm_mark_t loongi_comm_mark(const loong_comm_t *comm)
{
    loong_comm_mark_t mark = {comm->sequence, comm->history, comm->stats};
    return mark;
}

bool loongi_comm_rewind(loong_comm_t *comm, const loong_comm_mark_t *mark,
                        int64_t *bytes_p)
{
    bool any = comm->sequence > mark->sequence;
    *bytes_p = (int64_t)(comm->stats.bytes - mark->stats.bytes);
    comm->sequence = mark->sequence;
    comm->history = mark->history;
    comm->stats = mark->stats;
    return any;
}

void loongi_comm_add_message_times(const loong_comm_t *comm, double times[2])
{
    times[0] += comm->message_times[0];
    times[1] += comm->message_times[1];
}
