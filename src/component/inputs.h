/* SPDX-License-Identifier: Apache-2.0
 *
 * The DATA ports of a step's micro-batches, on their way from the host to the
 * device: filled in a ring of areas that the device copies from, so that
 * neither waits for the other. */
#ifndef LOONG_INPUTS_H
#define LOONG_INPUTS_H

#include "loong/loader.h"
#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_INPUT_AREAS = 4 };

/* The inputs of a chunk that data fills: all but those of the router
 * replay. */
typedef struct loong_input_list {
    int count;
    loong_field_t *fields; /* in the component's arena; to: NULL */
    const loong_port_t **ports;
} loong_input_list_t;

typedef struct loong_inputs {
    loong_device_t *device;    /* borrowed; NULL: nothing is allocated */
    loong_input_list_t *lists; /* of the model, stage after stage; likewise */
    char *memory;
    int64_t bytes; /* of an area */
    int64_t filled;
    void *copied[LOONG_INPUT_AREAS]; /* events: the area is free again */
} loong_inputs_t;

/* Lists the inputs of all chunks of a component, which its processor makes.
 * Errors: LOONG_ERR_CONFIG for one that the processor does not make. */
LOONG_NODISCARD loong_status_t
loongi_inputs_list(loong_inputs_t *inputs, const loong_component_t *component,
                   const loong_processor_t *processor, const void *config);

/* Those of a chunk of stage i of the model. */
const loong_input_list_t *loongi_inputs_of(const loong_inputs_t *inputs, int i,
                                           loong_variant_t variant);

/* Takes the memory of the areas, once they are listed. */
LOONG_NODISCARD loong_status_t loongi_inputs_open(loong_inputs_t *inputs,
                                                  const loong_model_t *model,
                                                  loong_device_t *device);
void loongi_inputs_close(loong_inputs_t *inputs);

/* What fills the arrays of a component's micro-batch. */
typedef struct loong_input_source {
    loong_status_t (*fill)(void *user, int component, int64_t consumed,
                           int64_t micro_batch, const loong_input_list_t *list);
    void *user;
    int component;
} loong_input_source_t;

/* Fills those of a list, bound in run, from micro-batch k of the step that
 * begins at `consumed`. */
LOONG_NODISCARD loong_status_t loongi_inputs_fill(
    loong_inputs_t *inputs, const loong_input_list_t *list,
    const loong_binding_t *run, const loong_input_source_t *source,
    int64_t consumed, int64_t k);

#ifdef __cplusplus
}
#endif

#endif
