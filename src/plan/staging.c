/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts the host memory through which ranks with several kinds of devices
 * exchange, and components on ranks of their own. Called by describe.c. Read
 * src/device/stager.h before. */
#include "staging.h"

#include <string.h>

#include "devices.h"
#include "edges.h"
#include "stager.h"

enum { DIRECTIONS = 2 };

/* The rank of the job that has a stage of this rank's pipeline. */
static int rank_of(const loong_component_t *c, int stage)
{
    int rank = loong_mesh_member(&c->params.mesh, LOONG_GROUP_PP,
                                 loongi_schedule_rank(c->evaluation, stage));
    return loongi_job_rank(&c->params, rank);
}

static const char *kind_of(const loong_plan_t *plan, int rank)
{
    return loongi_devices_kind(plan, rank);
}

static bool is_staged(const loong_plan_t *plan, const loong_component_t *c,
                      int other)
{
    int rank = loongi_model_rank(c->model);
    return other != rank &&
           (c->params.resources.staging.always ||
            strcmp(kind_of(plan, rank), kind_of(plan, other)) != 0);
}

/* Messages of one link, those of training and of evaluation in turn. */
static loong_status_t add_link(const loong_component_t *c, int index, bool send,
                               int direction, int64_t *bytes)
{
    int64_t messages = LOONG_LINK_MESSAGES;
    size_t most = LOONG_LINK_BYTES;
    for (int k = 0; k < LOONG_VARIANT_COUNT; k++) {
        const loong_model_chunk_t *chunk = c->stages[index]->chunk[k];
        loong_transfer_room_t room;
        if (chunk == NULL) {
            continue;
        }
        const loong_rank_schedule_t *list =
            loongi_model_entries(c->model, (loong_variant_t)k);
        LOONG_TRY(loongi_transfer_room(
            chunk, list->chunks[loongi_model_first(c) + index].slots, send,
            direction, &room));
        messages = LOONG_MAX(messages, room.messages);
        most = LOONG_MAX(most, room.bytes);
    }
    *bytes += messages * (int64_t)most;
    return LOONG_OK;
}

loong_status_t loongi_staging_bytes(const loong_plan_t *plan,
                                    const loong_component_t *c,
                                    int64_t *bytes_p)
{
    int stages = loongi_schedule_stages(c->evaluation);
    const loong_stager_t *stager = NULL;
    int64_t bytes = 0;
    if (!c->params.resources.staging.on ||
        loongi_devices_is_processor(plan, loongi_model_rank(c->model))) {
        *bytes_p = 0;
        return LOONG_OK;
    }
    LOONG_TRY(loongi_stager_find(plan->ctx, &stager));
    bytes = (int64_t)stager->bytes();
    for (int i = 0; i < c->num_stages; i++) {
        int stage = loongi_component_stage(c, i);
        for (int d = 0; d < DIRECTIONS; d++) {
            if (stage + 1 < stages &&
                is_staged(plan, c, rank_of(c, stage + 1))) {
                LOONG_TRY(add_link(c, i, d == 0, d, &bytes));
            }
            if (stage > 0 && is_staged(plan, c, rank_of(c, stage - 1))) {
                LOONG_TRY(add_link(c, i, d == 1, d, &bytes));
            }
        }
    }
    *bytes_p = bytes;
    return LOONG_OK;
}

static loong_status_t describe_rank(const loong_plan_t *plan,
                                    const loong_component_t *c,
                                    loong_text_t *text)
{
    char human[LOONG_HUMAN_SIZE];
    int64_t bytes = 0, edges = 0;
    LOONG_TRY(loongi_staging_bytes(plan, c, &bytes));
    if (!loongi_devices_is_processor(plan, loongi_model_rank(c->model))) {
        LOONG_TRY(loongi_edges_pinned(c->model, &edges));
    }
    bytes += edges;
    if (bytes > 0) {
        loongi_text_printf(text,
                           "pinned for what goes through host memory: %s on "
                           "rank %d\n",
                           loongi_human_bytes((double)bytes, human),
                           loongi_model_rank(c->model));
    }
    return LOONG_OK;
}

loong_status_t loongi_staging_describe(const loong_plan_t *plan,
                                       loong_text_t *text)
{
    const loong_component_t *c = plan->component;
    const char *graphs =
        loong_recipe_text(plan->recipe, "train.cuda_graph_impl");
    if (c->params.resources.staging.on) {
        loongi_text_printf(text, "devices: ");
        loongi_devices_describe(plan, text);
        loongi_text_printf(
            text, "; between %s through host memory%s\n",
            c->params.resources.staging.always ? "all of them" : "kinds",
            strcmp(graphs, "none") != 0
                ? ", and what ranks exchange stands between graphs"
                : "");
    }
    for (int r = 0; r < plan->num_stage_plans; r++) {
        LOONG_TRY(describe_rank(plan, plan->stage_plans[r], text));
    }
    return plan->stage_plans != NULL ? LOONG_OK : describe_rank(plan, c, text);
}
