/* SPDX-License-Identifier: Apache-2.0
 *
 * What components that others read do in a step: which pictures they read,
 * which rows they send, and what they need not compute. */
#ifndef LOONG_UPSTREAM_STEP_H
#define LOONG_UPSTREAM_STEP_H

#include "batch_plan.h"
#include "edges.h"
#include "inputs.h"
#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The pictures of a data set of texts that one encoder has. */
typedef struct loong_images {
    loong_batch_plan_t *plan; /* NULL: there is no such encoder */
    loong_loader_t *loader;   /* of the encoder; NULL: it is not here */
    loong_row_plan_t rows;    /* of that */
    int encoder;              /* of the model's components */
    int replica;              /* of it in the cell: this rank's */
} loong_images_t;

/* The state of the step, set by loongi_upstream_begin. */
typedef struct loong_upstream_step {
    const loong_plan_t *plan;     /* borrowed */
    const loong_model_t *model;   /* likewise */
    loong_edge_rows_t rows;       /* between its components */
    /* Of the data set that is read, [LOONG_MAX_ENCODERS]. */
    const loong_images_t *images;
    int64_t consumed;
    int64_t idle[LOONG_MAX_COMPONENTS]; /* updates that were left out */
    /* Room for the pictures of a micro-batch of a component that packs them. */
    void **packed[LOONG_MAX_COMPONENTS];
} loong_upstream_step_t;

/* Tells the model what its edges carry. */
LOONG_NODISCARD loong_status_t loongi_upstream_open(loong_upstream_step_t *step,
                                                    const loong_plan_t *plan,
                                                    loong_model_t *model);

/* Nothing where the model reads no texts with pictures. texts: the loader that
 * is the component's with the loss, and its parameters; train: of the steps
 * that the lists of entries are made for. images: [LOONG_MAX_ENCODERS]. */
LOONG_NODISCARD loong_status_t
loongi_images_open(const loong_plan_t *plan, bool train, loong_loader_t *loader,
                   const loong_loader_params_t *texts, loong_images_t *images);
void loongi_images_close(loong_images_t *images);

/* Begins a step of a data set, or one of its evaluation. */
void loongi_upstream_begin(loong_upstream_step_t *step,
                           const loong_images_t *images, int64_t consumed);

/* What fills the inputs of a component; texts: the loader of the texts. */
loong_input_source_t loongi_upstream_source(const loong_upstream_step_t *step,
                                            int component,
                                            loong_loader_t *texts);

/* *any_p: the step has pictures of an encoder in this rank's cell. */
LOONG_NODISCARD loong_status_t
loongi_upstream_any(const loong_upstream_step_t *step, int encoder,
                    int64_t micro_batches, bool *any_p);

#ifdef __cplusplus
}
#endif

#endif
