/* SPDX-License-Identifier: Apache-2.0
 *
 * A golden fixture in the engine: opened, run, and laid beside what
 * transformers computed. */
#ifndef LOONG_FIXTURE_H
#define LOONG_FIXTURE_H

#include "decoder.h"
#include "json.h"
#include "model.h"
#include "safetensors.h"
#include "stage_load.h"

/* Where the engine runs. */
#ifndef FIXTURE_DEVICE
#define FIXTURE_DEVICE "cpu"
#endif

typedef struct fixture_params {
    loong_dtype_t dtype;
    bool fuse;
    bool in_place;
    bool threads; /* two; else one, which such small models are faster on */
    const char *recompute; /* NULL: nothing */
    /* Changes the model before it is built: a planted bug. NULL: none. */
    void (*change)(loong_decoder_config_t *model);
    /* Experts that tokens go to: {layer: [token][choice]}, borrowed; NULL:
     * routers choose. */
    const loong_json_t *routing;
} fixture_params_t;

typedef struct fixture {
    loong_context_t *ctx;
    loong_comm_t *comm;
    loong_resources_t *resources;
    loong_device_t *device;
    loong_safetensors_t *golden;
    loong_hf_t *hf;
    loong_decoder_config_t config;
    loong_model_t *model;
    loong_component_t *component; /* of it */
    loong_stage_t *stage; /* of it */
    const loong_json_t *routing;
    int64_t batch, tokens;
    loong_precision_t precision;
    char *inputs; /* as they are sent to the device */
} fixture_t;

#define FIXTURES LOONG_SOURCE_DIR "/tests/golden/fixtures"

/* Calls the function for every fixture; returns how many there are. The
 * variable LOONG_FIXTURE, for work at the desk, leaves only one. */
int fixture_each(void (*function)(const char *name, const void *user),
                 const void *user);

/* False: the device has no kernels for it; nothing is open then. Never of the
 * processor. */
bool fixture_open(fixture_t *f, const char *name,
                  const fixture_params_t *params);
void fixture_close(fixture_t *f);

/* Zeros in place of a parameter's values. */
void fixture_drop(fixture_t *f, const char *name);

/* A tensor of golden.safetensors, NULL when it is not there. */
const void *fixture_find(const fixture_t *f, const char *name,
                         int64_t *count_p);

/* The results below are the caller's to free. */
double *fixture_logits(fixture_t *f, int64_t *count_p);
/* Weighted losses of the tokens; then gradients can be asked for. */
double *fixture_losses(fixture_t *f, int64_t *count_p);
/* The mean of the routers' losses alone, likewise. */
double fixture_router_loss(fixture_t *f);

typedef struct fixture_grad {
    const char *name;  /* of the parameter here */
    char golden[512];  /* of the gradient there */
    int part, parts;   /* GPT-2: which third of q, k, v; else 0 of 1 */
    int64_t count;
    int64_t *place; /* of each element in the file's tensor */
    double *mine;
    double *theirs;
} fixture_grad_t;

int64_t fixture_num_grads(const fixture_t *f);
void fixture_grad_get(const fixture_t *f, int64_t index, fixture_grad_t *g);
void fixture_grad_free(fixture_grad_t *g);

/* Fails when the file has a gradient, or a part of one, that no parameter
 * here asks for. */
void fixture_all_grads(const fixture_t *f);

#endif
