/* SPDX-License-Identifier: Apache-2.0
 *
 * The DATA ports of a step's micro-batches, on their way from the host to the
 * device: filled in a ring of areas that the device copies from, so that
 * neither waits for the other. */
#ifndef LOONG_INPUTS_H
#define LOONG_INPUTS_H

#include "component.h"
#include "token_fields.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_INPUT_AREAS = 4 };
typedef struct loong_inputs {
    loong_device_t *device; /* borrowed */
    char *memory;
    int64_t bytes; /* of an area */
    int64_t filled;
    void *copied[LOONG_INPUT_AREAS]; /* events: the area is free again */
} loong_inputs_t;

LOONG_NODISCARD loong_status_t
loongi_inputs_open(loong_inputs_t *inputs, const loong_component_t *component,
                   loong_device_t *device);
void loongi_inputs_close(loong_inputs_t *inputs);

/* The inputs of a chunk that token data fills, at their places in an area
 * (NULL: none); all but those of the router replay. Returns how many. */
int loongi_inputs_list(const loong_chunk_t *chunk, char *area,
                       loong_field_t fields[LOONG_MAX_INPUTS]);

/* Every input of every chunk of this rank is known. Errors:
 * LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t loongi_inputs_check(
    const loong_component_t *component, const loong_token_layout_t *layout);

/* Fills the inputs of a chunk, bound in run, from micro-batch k of a step of
 * the loader. */
LOONG_NODISCARD loong_status_t loongi_inputs_fill(loong_inputs_t *inputs,
                                                  const loong_run_t *run,
                                                  const loong_chunk_t *chunk,
                                                  loong_loader_t *loader,
                                                  int64_t consumed, int64_t k);

#ifdef __cplusplus
}
#endif

#endif
