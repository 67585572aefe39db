/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators of ranks whose memory is not of one kind: what one rank has on
 * a GPU and another in the host's memory goes through host memory, by the
 * communicator of their processes. All ranks of a group come to that one in one
 * order, with pieces of one size; on a device a piece is copied to pinned
 * memory before and back afterwards, the copy of the next one beside the
 * exchange of this one.
 *
 * Why nothing waits in a circle. A call returns when the host has what the
 * others sent; only then is the copy to the device put on the stream. So
 * nothing on a stream ever waits for the host, what the host waits for on a
 * stream is there already, and a rank of a device is to the others a rank on a
 * processor that makes its calls one by one in the order of its programs: what
 * ends on processors ends here. A message is sent when isend returns, and a
 * receive is posted when irecv does, long before it is needed. While the host
 * waits for its device, messages go on (staged_wait.c).
 */
#ifndef LOONG_STAGED_COMM_H
#define LOONG_STAGED_COMM_H

#include "stager.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_staged_params {
    bool always; /* between devices of one kind, too */
    size_t piece_bytes; /* at a time, the same on all ranks; 0: 4 MiB */
} loong_staged_params_t;

/* For all ranks of a job (host, borrowed), each with the device it has. A group
 * that is split from it is of the device's own communicator where all its ranks
 * have devices of one kind, of `host` where they have the processor, else
 * staged. Pinned memory of a rank: two pieces, and what messages were given
 * room for (loongi_comm_reserve). Collective on: host. */
LOONG_NODISCARD loong_status_t
loongi_staged_create(loong_context_t *ctx, loong_device_t *device,
                     loong_comm_t *host, const loong_staged_params_t *params,
                     loong_comm_t **comm_p);

/* The same with pieces of 4 MiB. */
extern const loong_stager_t loongi_staged_stager;
/* Pinned memory that the rank holds now, by any of them. */
size_t loongi_staged_held(const loong_comm_t *comm);

#ifdef __cplusplus
}
#endif

#endif
