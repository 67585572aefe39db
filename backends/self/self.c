/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator of one rank, so that nothing above ever asks for one rank:
 * a group of one thread, the caller's. Called by src/launch/launch.c,
 * src/component/groups.c and the planner. Read loong/comm.h before. */
#include "board_parent.h"
#include "threads.h"

typedef struct self {
    loong_threads_world_t world;
    loong_board_parent_t parent;
    loong_comm_ops_t ops; /* those of threads under another name */
} self_t;

static void self_end(loong_context_t *ctx, void *user)
{
    self_t *self = user;
    if (self->parent.slot != NULL) {
        loongi_slot_set_state(self->parent.slot, LOONG_RANK_FINISHED, NULL);
    }
    loongi_board_parent_close(&self->parent);
    loongi_free(ctx, self);
}

static loong_status_t self_join(loong_context_t *ctx, self_t *self,
                                loong_comm_t **comm_p)
{
    int first = 0;
    loong_comm_description_t description = {
        .name = "world",
        .size = 1,
        .timeout = self->world.params.timeout,
        .ops = &self->ops,
    };
    LOONG_TRY(loongi_board_parent_open(ctx, &self->parent));
    if (self->parent.slot != NULL &&
        loongi_slot_state(self->parent.slot) >= LOONG_RANK_RUNNING) {
        loongi_board_parent_close(&self->parent); /* the job has another */
    }
    self->world.board = self->parent.board;
    loong_threads_group_t *group =
        loongi_threads_group(&self->world, &first, 1);
    LOONG_CHECK(ctx, group != NULL, LOONG_ERR_MEMORY,
                "no memory for a group of one rank");
    LOONG_TRY(loongi_threads_join(ctx, &self->world, group, NULL, &description,
                                  comm_p));
    loongi_threads_at_end(*comm_p, self_end, self);
    if (self->parent.slot != NULL) {
        loongi_slot_set_state(self->parent.slot, LOONG_RANK_RUNNING, NULL);
    }
    return LOONG_OK;
}

loong_status_t loong_comm_create_self(loong_context_t *ctx,
                                      const loong_comm_params_t *params,
                                      loong_comm_t **comm_p)
{
    self_t *self = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*self), "self communicator", &self));
    self->world.size = 1;
    if (params != NULL) {
        self->world.params = *params;
    }
    self->ops = *loongi_threads_ops();
    self->ops.name = "self";
    loong_status_t status = self_join(ctx, self, comm_p);
    if (status != LOONG_OK) {
        loongi_board_parent_close(&self->parent);
        loongi_free(ctx, self);
    }
    return status;
}
