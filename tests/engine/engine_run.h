/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the engine share: a small decoder as a stage with random
 * tokens, and a data set and recipe for the trainer. */
#ifndef LOONG_TEST_ENGINE_RUN_H
#define LOONG_TEST_ENGINE_RUN_H

#include "test.h"

#include "decoder.h"
#include "loong/comm.h"
#include "loong/dataset.h"
#include "loong/recipe.h"
#include "loong/register.h"
#include "loong/trainer.h"
#include "model.h"

enum { ENGINE_TOKENS = 32, ENGINE_VOCAB = 97 };

/* A stage of its own context, communicator and device. */
typedef struct engine_run {
    loong_context_t *ctx;
    loong_comm_t *comm;
    loong_resources_t *resources;
    loong_device_t *device;
    loong_model_t *model;
    loong_component_t *component; /* of it */
    loong_stage_t *stage; /* of it */
} engine_run_t;

/* Two layers with grouped heads, norms of heads and rope; every other setting
 * is the caller's to change before engine_begin. */
extern loong_decoder_config_t engine_model; /* of the last engine_params */
loong_component_params_t engine_params(loong_dtype_t compute);
void engine_begin(engine_run_t *run, const loong_component_params_t *params);
void engine_end(engine_run_t *run);

/* Random tokens, forward and backward of one micro-batch; the summed loss. */
double engine_step(engine_run_t *run, loong_frame_t *frame);

/* A parameter and its main gradient as doubles; the caller frees. */
double *engine_read(const engine_run_t *run, const loong_chunk_param_t *p,
                    bool gradient);
/* Sets the parameters of `to` to those of `from`. */
void engine_copy_params(engine_run_t *to, const engine_run_t *from);

/* DIR/data, of random words. */
void engine_make_data(loong_context_t *ctx, const char *dir, int vocab,
                      int64_t tokens);

#endif
