/* SPDX-License-Identifier: Apache-2.0
 *
 * A page of what a run reads: its first samples as the programs get them. Read
 * run_data.h before. */
#ifndef LOONG_SHOW_H
#define LOONG_SHOW_H

#include "run_data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the first `samples` draws of the training, or all if there are fewer,
 * to an HTML file that needs no other. The data was opened, for one replica of
 * the model. Errors: LOONG_ERR_UNSUPPORTED of a model whose family has a
 * processor of its own; those of the loader, LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t loongi_show_write(const loong_run_data_t *data,
                                                 int64_t samples,
                                                 const char *path);

#ifdef __cplusplus
}
#endif

#endif
