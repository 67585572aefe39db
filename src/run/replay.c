/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures programs as graphs of the device and launches them. Called by
 * executor.c; created by src/component/resources.c. Read replay.h before. */
#include "replay.h"

#include <string.h>

#include "comm_run.h"
#include "executor.h"

enum { FIRST = 1, LAST = 2, LOGGED = 4 };

struct loong_replay {
    loong_context_t *ctx;
    loong_device_t *device;
    bool go_on;
    loong_recording_t *list;
    /* Of what is captured now. */
    loong_comm_mark_t mark[LOONG_GROUP_COUNT];
    size_t room; /* before */
    bool knows_room;
    loong_replay_stats_t stats;
};

/* ---- object -------------------------------------------------------------- */

loong_status_t loongi_replay_create(loong_context_t *ctx,
                                    loong_device_t *device, bool go_on,
                                    loong_replay_t **replay_p)
{
    loong_replay_t *r = NULL;
    LOONG_CHECK(ctx, loong_device_has(device, LOONG_FEATURE_GRAPHS),
                LOONG_ERR_UNSUPPORTED,
                "device %s: it has no graphs to replay programs with",
                loong_device_name(device));
    LOONG_TRY(loongi_alloc(ctx, sizeof(*r), "replay of programs", &r));
    r->ctx = ctx;
    r->device = device;
    r->go_on = go_on;
    *replay_p = r;
    return LOONG_OK;
}

/* What it has of the device. */
static void release(loong_replay_t *replay, loong_recording_t *r)
{
    for (int i = 0; i < r->num_pieces; i++) {
        replay->stats.graphs -= r->pieces[i].graph != NULL;
        loong_device_graph_destroy(replay->device, r->pieces[i].graph);
        r->pieces[i].graph = NULL;
    }
    replay->stats.bytes -= r->bytes;
    loong_device_free(replay->device, r->frame, 2 * sizeof(*r->frame));
    r->bytes = 0;
    r->frame = NULL;
}

static void destroy_recording(loong_replay_t *replay, loong_recording_t *r)
{
    release(replay, r);
    loongi_free(replay->ctx, r->run);
    loongi_free(replay->ctx, r->pieces);
    loongi_free(replay->ctx, r);
}

void loongi_replay_destroy(loong_replay_t **replay_p)
{
    loong_replay_t *replay = *replay_p;
    if (replay == NULL) {
        return;
    }
    while (replay->list != NULL) {
        loong_recording_t *r = replay->list;
        replay->list = r->next;
        destroy_recording(replay, r);
    }
    loongi_free(replay->ctx, replay);
    *replay_p = NULL;
}

/* ---- recordings ---------------------------------------------------------- */

static uint32_t flags_of(const loong_frame_t *frame)
{
    return (frame->first ? FIRST : 0u) | (frame->last ? LAST : 0u) |
           (frame->log_tensors ? LOGGED : 0u);
}

/* The flags that decide what a program's steps do. */
static uint32_t asked_by(const loong_program_t *program)
{
    uint32_t asked = 0;
    for (int64_t i = 0; i < program->num_steps; i++) {
        const loong_step_t *s = &program->steps[i];
        if (s->hollow == LOONG_HOLLOW_ONLY) { /* which are not recorded */
            continue;
        }
        asked |= s->add_later != 0 ? FIRST : 0u;
        asked |= s->when == LOONG_WHEN_FIRST    ? FIRST
                 : s->when == LOONG_WHEN_LAST   ? LAST
                 : s->when == LOONG_WHEN_LOGGED ? LOGGED
                                                : 0u;
    }
    return asked;
}

uint32_t loongi_replay_flags(const loong_program_t *program,
                             const loong_frame_t *frame)
{
    return flags_of(frame) & asked_by(program);
}

static bool is_of(const loong_recording_t *r, const loong_replay_job_t *job)
{
    bool same = r->job.num == job->num;
    for (int k = 0; k < job->num && same; k++) {
        same = r->job.program[k] == job->program[k] &&
               r->flags[k] == (flags_of(job->frame[k]) & r->asked[k]) &&
               memcmp(r->run[k].base, job->run[k]->base,
                      sizeof(r->run[k].base)) == 0;
    }
    return same;
}

/* What depends on how many rounds a part has: where it begins, where it ends,
 * and what runs only when there are more than one. */
static bool asks_for_rounds(const loong_step_t *step)
{
    return step->when == LOONG_WHEN_AGAIN ||
           (step->repeat & ~(uint32_t)LOONG_REPEAT_REPEATS) != 0;
}

/* Cuts the steps of the job; pieces NULL: counts them. A graph waits at its
 * begin for what the host calls: so it ends before a step that awaits more. */
static int cut(const loong_replay_job_t *job, loong_piece_t *pieces)
{
    loong_comm_t *const *group = job->run[0]->group;
    bool staged = group != NULL && group[LOONG_GROUP_WORLD] != NULL &&
                  loongi_comm_is_on_host(group[LOONG_GROUP_WORLD]);
    int64_t next[2] = {0, 0};
    int64_t awaited[2] = {0, 0};
    int count = 0;
    bool before = false;
    for (int64_t i = 0; i < job->num_steps; i++) {
        int k = job->order != NULL ? job->order[i] : 0;
        const loong_step_t *s = &job->program[k]->steps[next[k]++];
        bool host = s->kernel->waits ||
                    asks_for_rounds(s) ||
                    (staged && (s->kernel->communicates || s->kernel->joins));
        bool waits = staged && !host && s->await > awaited[k];
        awaited[k] = LOONG_MAX(awaited[k], waits ? s->await : 0);
        count += i == 0 || host != before || waits;
        before = host;
        if (pieces != NULL) {
            pieces[count - 1].host = host;
            pieces[count - 1].end = i + 1;
        }
    }
    return count;
}

static loong_status_t make(loong_replay_t *replay,
                           const loong_replay_job_t *job, loong_recording_t *r)
{
    r->name = loongi_program_name(job->program[0]->kind);
    r->group = job->run[0]->group;
    r->job = *job;
    LOONG_TRY(loongi_calloc(replay->ctx, 2, sizeof(*r->run),
                            "runs of a recording", &r->run));
    for (int k = 0; k < job->num; k++) {
        r->run[k] = *job->run[k];
        r->host[k] = *job->frame[k];
        r->job.run[k] = &r->run[k];
        r->job.frame[k] = &r->host[k];
        r->asked[k] = asked_by(job->program[k]);
        r->flags[k] = flags_of(job->frame[k]) & r->asked[k];
    }
    int pieces = cut(job, NULL);
    LOONG_TRY(loongi_calloc(replay->ctx, (size_t)LOONG_MAX(pieces, 1),
                            sizeof(*r->pieces), "pieces of a program",
                            &r->pieces));
    r->num_pieces = cut(job, r->pieces);
    return LOONG_OK;
}

loong_status_t loongi_replay_find(loong_replay_t *replay,
                                  const loong_replay_job_t *job,
                                  loong_recording_t **recording_p)
{
    loong_recording_t **at = &replay->list;
    while (*at != NULL && !is_of(*at, job)) {
        at = &(*at)->next;
    }
    if (*at == NULL) {
        loong_recording_t *r = NULL;
        LOONG_TRY(loongi_alloc(replay->ctx, sizeof(*r),
                               "recording of a program", &r));
        loong_status_t status = make(replay, job, r);
        if (status != LOONG_OK) {
            destroy_recording(replay, r);
            return status;
        }
        *at = r;
    }
    *recording_p = (*at)->captured ? *at : NULL;
    return LOONG_OK;
}

loong_status_t loongi_replay_next(loong_replay_t *replay,
                                  loong_recording_t **recording_p)
{
    loong_recording_t *r = replay->list;
    void *frame = NULL;
    while (r != NULL && (r->captured || r->off)) {
        r = r->next;
    }
    if (r != NULL) {
        LOONG_TRY(loong_device_alloc(replay->device, 2 * sizeof(*r->frame),
                                     "frames of a graph", &frame));
        r->frame = frame;
    }
    *recording_p = r;
    return LOONG_OK;
}

/* ---- capturing ----------------------------------------------------------- */

loong_status_t loongi_replay_begin(loong_replay_t *replay,
                                   const loong_recording_t *recording)
{
    loong_comm_t *const *group = recording->group;
    replay->room = 0;
    for (int g = 0; g < LOONG_GROUP_COUNT && group != NULL; g++) {
        if (group[g] != NULL) {
            replay->mark[g] = loongi_comm_mark(group[g]);
        }
    }
    LOONG_TRY(loong_device_available(replay->device, &replay->knows_room,
                                     &replay->room));
    return loong_device_capture_begin(replay->device);
}

/* Which groups have calls in it; they were not made. */
static void rewind_groups(const loong_replay_t *replay,
                          loong_comm_t *const *group, loong_piece_t *piece)
{
    for (int g = 0; g < LOONG_GROUP_COUNT && group != NULL; g++) {
        if (group[g] != NULL &&
            loongi_comm_rewind(group[g], &replay->mark[g],
                               &piece->bytes[g])) {
            piece->groups |= 1u << g;
        }
    }
}

/* Some step of the recording needs other ranks. */
static bool communicates(const loong_recording_t *r)
{
    if (r->group == NULL || loong_comm_size(r->group[LOONG_GROUP_WORLD]) == 1) {
        return false;
    }
    for (int k = 0; k < r->job.num; k++) {
        for (int64_t i = 0; i < r->job.program[k]->num_steps; i++) {
            const loong_kernel_t *kernel = r->job.program[k]->steps[i].kernel;
            if (kernel->communicates || kernel->joins) {
                return true;
            }
        }
    }
    return false;
}

static loong_status_t give_up(loong_replay_t *replay,
                              loong_recording_t *r, loong_status_t status,
                              bool *go_on_p)
{
    if (!replay->go_on || communicates(r)) {
        loongi_error_note(replay->ctx,
                          "while program %s was captured as a graph%s; "
                          "train.cuda_graph_impl=none runs without graphs",
                          r->name,
                          replay->go_on ? ", which all ranks of its "
                                          "collectives do or none"
                                        : "");
        return status;
    }
    loongi_log(replay->ctx, LOONG_LOG_WARN,
               "program %s cannot be captured as a graph: %s; it runs step by "
               "step from here on",
               r->name, loong_context_error(replay->ctx));
    loong_context_clear_error(replay->ctx);
    release(replay, r);
    r->off = replay->stats.off = true;
    *go_on_p = true;
    return LOONG_OK;
}

loong_status_t loongi_replay_end(loong_replay_t *replay,
                                 loong_recording_t *recording,
                                 loong_piece_t *piece, loong_status_t status,
                                 bool *go_on_p)
{
    size_t room = 0;
    *go_on_p = false;
    rewind_groups(replay, recording->group, piece);
    if (status == LOONG_OK) {
        status = loong_device_capture_end(replay->device, &piece->graph,
                                          &piece->launches);
    }
    loong_device_capture_cancel(replay->device);
    if (status != LOONG_OK) {
        piece->groups = 0;
        return give_up(replay, recording, status, go_on_p);
    }
    replay->stats.graphs += piece->graph != NULL;
    LOONG_TRY(
        loong_device_available(replay->device, &replay->knows_room, &room));
    if (replay->knows_room && room < replay->room) {
        recording->bytes += (int64_t)(replay->room - room);
        replay->stats.bytes += (int64_t)(replay->room - room);
    }
    return LOONG_OK;
}

/* ---- launching ----------------------------------------------------------- */

loong_status_t loongi_replay_launch(loong_replay_t *replay,
                                    const loong_recording_t *recording,
                                    const loong_piece_t *piece)
{
    loong_comm_t *const *group = recording->group;
    if (piece->graph == NULL) {
        return LOONG_OK;
    }
    loong_device_range_begin(replay->device, recording->name);
    loong_status_t status =
        loong_device_graph_launch(replay->device, piece->graph);
    loong_device_range_end(replay->device);
    LOONG_TRY(status);
    for (int g = 0; g < LOONG_GROUP_COUNT; g++) {
        if (piece->groups >> g & 1u) {
            loong_comm_set_stream(group[g],
                                  loong_device_stream(replay->device));
            LOONG_TRY(loongi_comm_replay(group[g], piece->bytes[g],
                                         recording->name));
        }
    }
    replay->stats.launches++;
    replay->stats.held += piece->launches;
    return LOONG_OK;
}

void loongi_replay_count(loong_replay_t *replay)
{
    replay->stats.steps++;
}

loong_replay_stats_t loongi_replay_stats(const loong_replay_t *replay)
{
    return replay->stats;
}
