/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes between the host and the device in a step: inputs one way, losses
 * and norms the other. */
#ifndef LOONG_FIGURES_H
#define LOONG_FIGURES_H

#include "loong/loader.h"
#include "loong/trainer.h"
#include "stage.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A ring of areas that inputs of micro-batches are filled in. */
enum { LOONG_INPUT_AREAS = 4 };
typedef struct loong_inputs {
    char *memory;
    int64_t bytes; /* of an area */
    int64_t filled;
    void *copied[LOONG_INPUT_AREAS]; /* events: the area is free again */
} loong_inputs_t;

/* Numbers of the device that are added to an exact record. */
typedef struct loong_figure {
    int64_t *record;
    loong_dtype_t dtype; /* I64: records themselves */
    int64_t count;
    int64_t at; /* bytes */
} loong_figure_t;

typedef struct loong_figures {
    char *memory;
    int64_t bytes;
    int64_t used;
    loong_figure_t *list;
    int64_t room;
    int64_t count;
} loong_figures_t;

LOONG_NODISCARD loong_status_t loongi_figures_open(loong_trainer_t *t);
void loongi_figures_close(loong_trainer_t *t);

/* Fills the inputs of a chunk of a stage, bound in run, from micro-batch k of
 * a loader. */
LOONG_NODISCARD loong_status_t
loongi_fill_inputs(loong_trainer_t *t, const loong_run_t *run,
                   const loong_batch_ports_t *ports, loong_loader_t *loader,
                   int64_t consumed, int64_t k);

/* The losses of the tokens of a chunk, or an exact record: to be added to
 * record (borrowed), as they are behind the programs so far. port may be NULL.
 */
LOONG_NODISCARD loong_status_t
loongi_keep_losses(loong_trainer_t *t, const loong_run_t *run,
                   const loong_port_t *port, int64_t *record);
LOONG_NODISCARD loong_status_t
loongi_keep_record(loong_trainer_t *t, const loong_run_t *run,
                   loong_operand_t from, int64_t *record);
/* Waits for the device and adds all that was kept. */
LOONG_NODISCARD loong_status_t loongi_add_figures(loong_trainer_t *t,
                                                  const char *what);

#ifdef __cplusplus
}
#endif

#endif
