/* SPDX-License-Identifier: Apache-2.0
 *
 * The page of what a training reads. Called by tools/loong_data_show.c. Read
 * src/show/show.h before. */
#include "show.h"
#include "trainer_impl.h"

loong_status_t loong_trainer_show(loong_trainer_t *trainer, int64_t samples,
                                  const char *path)
{
    LOONG_CHECK(trainer->ctx,
                trainer->plan.reads_data && loong_comm_size(trainer->comm) == 1,
                LOONG_ERR_ARG, "a plan without data, or of several ranks");
    LOONG_TRY(loongi_run_data_open(&trainer->data));
    LOONG_CHECK(trainer->ctx, trainer->data.loader != NULL, LOONG_ERR_CONFIG,
                "data.train: the recipe names no data");
    return loongi_show_write(&trainer->data, samples, path);
}
