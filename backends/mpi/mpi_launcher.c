/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens when the launcher is gone: PMIx, through which ranks and
 * launcher know each other, tells it. Called by mpi_world.c. Read
 * src/launch/launcher.h before. */
#include "launcher.h"
#include "mpi_impl.h"

#if defined(LOONG_WITH_PMIX)
#include <pmix.h>

/* PMIx asks handlers of one event before those of all events, such as Open
 * MPI's, which ends the process; COMPLETE says that no other is asked. */
static void on_lost(size_t id, pmix_status_t status, const pmix_proc_t *source,
                    pmix_info_t *info, size_t num_info, pmix_info_t *results,
                    size_t num_results,
                    pmix_event_notification_cbfunc_fn_t done, void *user)
{
    (void)id;
    (void)status;
    (void)source;
    (void)info;
    (void)num_info;
    (void)results;
    (void)num_results;
    loongi_launcher_set_lost();
    if (done != NULL) {
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, user);
    }
}

void loongi_mpi_survive_launcher(void)
{
    pmix_status_t event = PMIX_ERR_LOST_CONNECTION;
    /* Blocks until it is done. An MPI with a PMIx of its own has not begun
     * this one, which then says so, and nothing changes. */
    if (PMIx_Initialized() != 0) {
        PMIx_Register_event_handler(&event, 1, NULL, 0, on_lost, NULL, NULL);
    }
}
#else
void loongi_mpi_survive_launcher(void)
{
}
#endif
