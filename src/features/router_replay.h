/* SPDX-License-Identifier: Apache-2.0
 *
 * Recorded routing (router_replay): the experts that routers choose in training
 * go to a file, or come from one. Routers only choose otherwise then: scores,
 * weights and gradients are made of what the model computes.
 *
 * The file is a NumPy array of one record for each sample in the order of
 * training, whatever the layout:
 *
 *     crc      <u4                    CRC-32 of the sample's ids as <i4
 *     experts  <u2 [layer, token, k]  numbers from 1 on; 0: nothing recorded
 *
 * Every rank reads and writes the tokens and layers that are its own, so the
 * file lies where all ranks see it. Samples, layers and tokens that were not
 * written are holes.
 */
#ifndef LOONG_ROUTER_REPLAY_H
#define LOONG_ROUTER_REPLAY_H

#include "loong/loader.h"
#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_router_replay loong_router_replay_t;

/* What the recipe asks for. LOONG_ERR_CONFIG without experts. Not collective.*/
LOONG_NODISCARD loong_status_t loongi_router_replay_mode(
    const loong_recipe_t *recipe, loong_context_t *ctx,
    const loong_component_params_t *model, loong_routing_t *routing_p);

/* Opens the file and compares it with a run that has done so many steps;
 * *replay_p stays NULL where routers choose, unheard. loader: borrowed.
 * Collective. */
LOONG_NODISCARD loong_status_t loongi_router_replay_open(
    const loong_plan_t *plan, loong_loader_t *loader, int64_t step,
    int64_t consumed, loong_router_replay_t **replay_p);
void loongi_router_replay_close(loong_router_replay_t **replay_p);

/* This rank's part of the coming step is there and fits. replay may be NULL. */
LOONG_NODISCARD loong_status_t loongi_router_replay_check(
    const loong_router_replay_t *replay, int64_t consumed);

/* Before and after the forward of micro-batch k of a stage, bound in run.
 * replay may be NULL. */
LOONG_NODISCARD loong_status_t loongi_router_replay_give(
    const loong_router_replay_t *replay, const loong_stage_t *stage,
    const loong_binding_t *run, int64_t consumed, int64_t k);
LOONG_NODISCARD loong_status_t loongi_router_replay_take(
    const loong_router_replay_t *replay, const loong_stage_t *stage,
    const loong_binding_t *run, int64_t consumed, int64_t k);

#ifdef __cplusplus
}
#endif

#endif
