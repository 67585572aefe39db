/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that a device replays. The first run of a program is step by step.
 * When nothing is under way on any rank (loongi_binding_record), what has run
 * so is captured, piece by piece, as graphs of the device, which later runs
 * launch: to make one takes memory, for which the driver may wait for all that
 * is on the device. A recording is of one program, or pair, its bases and the
 * flags of its frames that its steps ask for; all else that changes is in the
 * frames, of which a recording has copies of its own on the device. Steps whose
 * kernels need the host (loong_kernel_t: waits, counts) stand between two
 * pieces, and where the job's communicator goes through host memory all that
 * communicate: ranks of a group decide alike.
 */
#ifndef LOONG_REPLAY_H
#define LOONG_REPLAY_H

#include "loong/device.h"
#include "loong/mesh.h"
#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_replay loong_replay_t;
typedef struct loong_binding loong_binding_t;

/* One program, or two step by step: order[i] is whose step comes next. */
typedef struct loong_replay_job {
    int num;
    const loong_binding_t *run[2];
    const loong_program_t *program[2];
    const loong_frame_t *frame[2];
    int64_t num_steps; /* of both */
    const uint8_t *order; /* NULL: of one program */
} loong_replay_job_t;

/* Steps that are launched together, in the order of the job. */
typedef struct loong_piece {
    int64_t end;
    bool host;     /* step by step, in every run */
    void *graph;   /* NULL: nothing in it runs */
    int64_t launches;
    uint32_t groups; /* bit g: collectives of that loong_group_t */
    int64_t bytes[LOONG_GROUP_COUNT]; /* of these */
} loong_piece_t;

typedef struct loong_recording {
    struct loong_recording *next;
    const char *name; /* in profilers and messages */
    loong_comm_t *const *group; /* NULL on one rank */
    loong_replay_job_t job; /* that ran, of these copies: */
    loong_binding_t *run;   /* [2] */
    loong_frame_t host[2];
    uint32_t asked[2]; /* flags that the steps ask for */
    uint32_t flags[2]; /* these, in the frames of the recording */
    bool captured;
    bool off; /* its capture failed: it runs step by step */
    loong_frame_t *frame; /* [2], the device's; NULL before it is captured */
    int64_t bytes;        /* of the device, that its graphs took */
    int num_pieces;
    loong_piece_t *pieces;
} loong_recording_t;

/* Since creation. */
typedef struct loong_replay_stats {
    int64_t graphs;   /* that there are */
    int64_t bytes;    /* of the device, that they took */
    int64_t launches; /* of graphs */
    int64_t held;     /* launches that these stood for */
    int64_t steps;    /* launched one by one */
    bool off;         /* a capture failed */
} loong_replay_stats_t;

/* go_on: a capture that fails is a warning, and the program runs step by step
 * from then on; where they have collectives it is an error still, because a
 * collective is captured by all its ranks or by none. Errors:
 * LOONG_ERR_UNSUPPORTED when the device has no graphs. Not collective. */
LOONG_NODISCARD loong_status_t loongi_replay_create(loong_context_t *ctx,
                                                    loong_device_t *device,
                                                    bool go_on,
                                                    loong_replay_t **replay_p);
/* Nothing may be under way. NULL is accepted. */
void loongi_replay_destroy(loong_replay_t **replay_p);

/* Of the frame, what steps of the program ask for: other flags are the same
 * recording. */
uint32_t loongi_replay_flags(const loong_program_t *program,
                             const loong_frame_t *frame);

/* *recording_p: to be launched; NULL: this run is step by step. */
LOONG_NODISCARD loong_status_t
loongi_replay_find(loong_replay_t *replay, const loong_replay_job_t *job,
                   loong_recording_t **recording_p);

/* The next one that is to be captured, in the order of their first runs; NULL:
 * none. */
LOONG_NODISCARD loong_status_t
loongi_replay_next(loong_replay_t *replay, loong_recording_t **recording_p);

/* What is put on the streams in between becomes the graph of the piece. */
LOONG_NODISCARD loong_status_t
loongi_replay_begin(loong_replay_t *replay,
                    const loong_recording_t *recording);
/* status: of what was put there. Where it, or the end, has failed: LOONG_OK
 * with *go_on_p, and nothing was captured. */
LOONG_NODISCARD loong_status_t
loongi_replay_end(loong_replay_t *replay, loong_recording_t *recording,
                  loong_piece_t *piece, loong_status_t status, bool *go_on_p);
LOONG_NODISCARD loong_status_t
loongi_replay_launch(loong_replay_t *replay,
                     const loong_recording_t *recording,
                     const loong_piece_t *piece);

/* A step was launched by itself. */
void loongi_replay_count(loong_replay_t *replay);
loong_replay_stats_t loongi_replay_stats(const loong_replay_t *replay);

#ifdef __cplusplus
}
#endif

#endif
