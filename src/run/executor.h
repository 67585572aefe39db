/* SPDX-License-Identifier: Apache-2.0
 *
 * The executor: runs a program with its bases bound to addresses. */
#ifndef LOONG_EXECUTOR_H
#define LOONG_EXECUTOR_H

#include "async_streams.h"
#include "lane.h"
#include "program.h"
#include "replay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* When a step ran; blocked: of a collective, how long the rank had nothing to
 * do but wait for it. */
typedef struct loong_step_time {
    double begin;
    double end;
    double blocked;
} loong_step_time_t;

/* Called after each step when set: for profiling, tensor logging, tests. Of a
 * collective of the lane: before any step that awaits it. */
typedef void (*loong_step_hook)(void *user, const loong_program_t *program,
                                int64_t index, void *const *ptr,
                                const loong_step_time_t *time);

struct loong_binding {
    loong_context_t *ctx;
    void *stream; /* of the device; NULL on a CPU */
    loong_device_t *device; /* of the bases; NULL: they are host memory */
    loong_async_t *async;   /* NULL: a program is over when its run returns */
    char *base[LOONG_BASE_COUNT];
    loong_comm_t *const *group; /* by loong_group_t; NULL on one rank */
    loong_lane_t *lane; /* NULL: collectives run in the order of programs */
    loong_replay_t *replay; /* NULL: programs run step by step; with ahead */
    /* NULL: none, and no time is taken. Set, programs do not run ahead: each
     * step is waited for. */
    loong_step_hook hook;
    void *hook_user;
};

/* From where an operand is in bound bases to memory of the host, complete on
 * return, and back. `what` names the waiting. */
LOONG_NODISCARD loong_status_t loongi_binding_read(const loong_binding_t *run,
                                                   loong_operand_t from,
                                                   void *to, size_t bytes,
                                                   const char *what);
LOONG_NODISCARD loong_status_t loongi_binding_write(const loong_binding_t *run,
                                                    loong_operand_t to,
                                                    const void *from,
                                                    size_t bytes);

/* Does the mask of a step match the frame? */
bool loongi_step_runs(const loong_step_t *step, const loong_frame_t *frame);

/* Runs every step whose mask matches the frame. On an error the trail names
 * the kernel and the scope. Allocates nothing. Collectives of a program that
 * loongi_pass_lanes has seen run on the lane, or on their own stream; what
 * comes afterwards is behind all of them. */
LOONG_NODISCARD loong_status_t
loongi_program_run(const loong_binding_t *run, const loong_program_t *program,
                   const loong_frame_t *frame);

/* Of a device: loads what the kernels of a program need, and takes memory of
 * the host for what they show it at these bases, so that no run of it does. The
 * contents of all bases but parameters and states are lost. `again`: at other
 * bases, where only those that show something do. Not collective. */
LOONG_NODISCARD loong_status_t loongi_program_load(
    const loong_binding_t *run, const loong_program_t *program, bool again);

/* The same for two programs step by step: order[i] is whose step comes next, 0
 * or 1 (loongi_pass_interleave). Their scratch must be disjoint. */
typedef struct loong_program_pair {
    const loong_program_t *program[2];
    int64_t num_order;
    const uint8_t *order;
} loong_program_pair_t;
LOONG_NODISCARD loong_status_t
loongi_pair_run(const loong_binding_t run[2], const loong_program_pair_t *pair,
                const loong_frame_t *const frame[2]);

/* Makes graphs of what has run step by step so far. Nothing may be under way on
 * the devices of any rank; all ranks do it then. Not collective. */
LOONG_NODISCARD loong_status_t
loongi_binding_record(const loong_binding_t *run);

#ifdef __cplusplus
}
#endif

#endif
