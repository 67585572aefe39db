/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a process still does anything: what the kernel says of it, so that
 * it need not say so itself. A slow process has a pulse, one that hangs in a
 * lock has none. */
#ifndef LOONG_BASE_PULSE_H
#define LOONG_BASE_PULSE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum loong_pulse_state {
    LOONG_PULSE_UNKNOWN, /* not looked at, or gone */
    /* Its first thread has run since the last look, or some thread runs, waits
     * for a disk or a file system, or cannot be seen. */
    LOONG_PULSE_BEATS,
    LOONG_PULSE_STOPPED, /* SIGSTOP */
    /* Every thread waits for a lock, a timer, a signal or a message, and the
     * first has not run. */
    LOONG_PULSE_STILL
} loong_pulse_state_t;

/* The name (prctl PR_SET_NAME) of a thread that tells nothing of the process:
 * it is left out. */
#define LOONG_PULSE_APART "heartbeat"

/* Zero-initialise. */
typedef struct loong_pulse {
    loong_pulse_state_t state;
    double since;    /* the first look of those in a row that found it so */
    long long turns; /* of its first thread on a processor */
} loong_pulse_t;

void loongi_pulse_look(loong_pulse_t *pulse, int pid, double now);

/* SIGSTOP has been there. */
bool loongi_pulse_is_stopped(int pid);

#ifdef __cplusplus
}
#endif

#endif
