/* SPDX-License-Identifier: Apache-2.0
 *
 * The process that a launcher started: it passes signals on and hands an exit
 * code back, so that nothing is lost when it is killed. Called by parent.c.
 * Read launcher.h before. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base.h"
#include "launcher.h"
#include "loong/exit_code.h"

/* In a group of its own: a launcher kills the group of what it started. */
static void leave_stub(pid_t stub)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != stub) {
        raise(SIGTERM); /* it died before the line above */
    }
}

static int pass_signals_on(pid_t parent, const sigset_t *set)
{
    int status = 0;
    pid_t over = 0;
    while (over == 0 || (over < 0 && errno == EINTR)) {
        int number = sigwaitinfo(set, NULL);
        if (number > 0 && number != SIGCHLD) {
            kill(parent, number);
        }
        over = waitpid(parent, &status, WNOHANG);
    }
    return over == parent && WIFEXITED(status) ? WEXITSTATUS(status)
                                               : LOONG_EXIT_LOST;
}

loong_status_t loongi_stub_run(loong_context_t *ctx, const sigset_t *set,
                               bool *is_stub_p, int *exit_code_p)
{
    pid_t stub = getpid();
    pid_t parent = fork();
    LOONG_CHECK(ctx, parent >= 0, LOONG_ERR_MEMORY,
                "cannot start the parent of a worker: %s", strerror(errno));
    *is_stub_p = parent > 0;
    if (parent == 0) {
        leave_stub(stub);
        return LOONG_OK;
    }
    *exit_code_p = pass_signals_on(parent, set);
    return LOONG_OK;
}
