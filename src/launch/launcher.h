/* SPDX-License-Identifier: Apache-2.0
 *
 * What protects a rank from its launcher's end. mpirun answers TERM and INT by
 * killing what it started a second or two later, whatever is being saved.
 *
 * mpirun - stub - parent - worker: the kill reaches the stub alone, and the
 * parent takes the death of its stub for a request to stop. */
#ifndef LOONGI_LAUNCHER_H
#define LOONGI_LAUNCHER_H

#include <signal.h>
#include <stdbool.h>

#include "loong/context.h"
#include "loong/status.h"

/* Forks. The child goes on to be the parent of a worker (*is_stub_p false): it
 * receives TERM when the stub dies. The stub passes the signals of `set`, which
 * the caller has blocked, on to it, and returns once it is over, with its exit
 * code. Not collective. Errors: LOONG_ERR_MEMORY. */
loong_status_t loongi_stub_run(loong_context_t *ctx, const sigset_t *set,
                               bool *is_stub_p, int *exit_code_p);

/* Of this process, for good: its launcher is gone. Asks to stop, as TERM does;
 * MPI can no longer be finalised. From any thread. */
void loongi_launcher_set_lost(void);
bool loongi_launcher_is_lost(void);

#endif
