/* SPDX-License-Identifier: Apache-2.0 */
#include "executor.h"

#include <string.h>

bool loongi_step_runs(const loong_step_t *step, const loong_frame_t *frame)
{
    switch (step->when) {
    case LOONG_WHEN_FIRST:
        return frame->first != 0;
    case LOONG_WHEN_LAST:
        return frame->last != 0;
    case LOONG_WHEN_LOGGED:
        return frame->log_tensors != 0;
    default:
        return true;
    }
}

static void *address(const loong_run_t *run, loong_operand_t operand)
{
    return operand.base == LOONG_BASE_NONE
               ? NULL
               : run->base[operand.base] + operand.offset;
}

loong_status_t loongi_run_read(const loong_run_t *run, loong_operand_t from,
                               void *to, size_t bytes, const char *what)
{
    if (run->device != NULL) {
        return loong_device_read(run->device, to, address(run, from), bytes,
                                 what);
    }
    memcpy(to, address(run, from), bytes);
    return LOONG_OK;
}

loong_status_t loongi_run_write(const loong_run_t *run, loong_operand_t to,
                                const void *from, size_t bytes)
{
    if (run->device != NULL) {
        return loong_device_copy(run->device, address(run, to), from, bytes);
    }
    memcpy(address(run, to), from, bytes);
    return LOONG_OK;
}

static void find_operands(const loong_run_t *run, const loong_step_t *step,
                          void *ptr[LOONG_MAX_OPERANDS])
{
    int count = step->query.num_in + step->query.num_out;
    for (int i = 0; i < count; i++) {
        ptr[i] = address(run, step->operand[i]);
    }
}

/* Programs read and write it; the device has a copy. */
typedef struct frames {
    const loong_frame_t *host;
    const loong_frame_t *device; /* NULL: it reads the host's */
} frames_t;

static loong_status_t launch(const loong_run_t *run, const loong_step_t *step,
                             frames_t frames, void *stream, void *const *ptr)
{
    const loong_frame_t *frame = frames.host;
    loong_kernel_call_t call;
    call.ctx = run->ctx;
    call.query = &step->query;
    call.state = step->state;
    call.frame = frame;
    call.ptr = ptr;
    call.workspace = address(run, step->workspace);
    call.stream = stream;
    call.device = run->device;
    call.device_frame = frames.device;
    call.flaw =
        run->device != NULL ? loong_device_flaw(run->device) : NULL;
    call.group = run->group;
    call.accumulate = step->add | (frame->first ? 0 : step->add_later);
    if (run->ahead != NULL) {
        loong_device_range_begin(run->device, step->scope);
    }
    loong_status_t status = step->kernel->run(&call);
    if (run->ahead != NULL) {
        loong_device_range_end(run->device);
    }
    if (status != LOONG_OK) {
        loongi_error_note(run->ctx, "in kernel %s, scope '%s', step %lld",
                          step->kernel->name, step->scope,
                          (long long)frame->step);
    }
    return status;
}

/* One step on the rank's own thread. */
static loong_status_t run_step(const loong_run_t *run,
                               const loong_program_t *program, int64_t index,
                               frames_t frames)
{
    const loong_step_t *step = &program->steps[index];
    void *ptr[LOONG_MAX_OPERANDS];
    loong_step_time_t time = {0.0, 0.0, 0.0};
    find_operands(run, step, ptr);
    if (run->hook == NULL) {
        return launch(run, step, frames, run->stream, ptr);
    }
    time.begin = loongi_now();
    LOONG_TRY(launch(run, step, frames, run->stream, ptr));
    if (run->ahead != NULL) {
        LOONG_TRY(loong_device_synchronize(run->device, "a timed step"));
    }
    time.end = loongi_now();
    time.blocked = step->kernel->communicates ? time.end - time.begin : 0.0;
    run->hook(run->hook_user, program, index, ptr, &time);
    return LOONG_OK;
}

loong_status_t loongi_frame_check(const loong_chunk_t *chunk,
                                  const loong_frame_t *frame)
{
    for (int i = 0; i < chunk->num_counts; i++) {
        const loong_count_t *c = &chunk->counts[i];
        int64_t count = frame->count[i];
        LOONG_CHECK(chunk->ctx, count >= 0 && count <= c->planned,
                    LOONG_ERR_ARG,
                    "count %s: %lld in micro-batch %lld of step %lld; 0 to "
                    "%lld are planned, %lld possible",
                    c->name, (long long)count, (long long)frame->micro_batch,
                    (long long)frame->step, (long long)c->planned,
                    (long long)c->bound);
    }
    return LOONG_OK;
}

/* ---- the lane ------------------------------------------------------------ */

static loong_status_t run_job(const loong_lane_job_t *job)
{
    const loong_step_t *step = &job->program->steps[job->index];
    void *ptr[LOONG_MAX_OPERANDS];
    frames_t frames = {job->frame, NULL};
    const loong_run_t *run = job->owner;
    find_operands(run, step, ptr);
    return launch(run, step, frames, run->stream, ptr);
}

static void tell_job(const loong_lane_job_t *job)
{
    const loong_run_t *run = job->owner;
    void *ptr[LOONG_MAX_OPERANDS];
    loong_step_time_t time = {job->begin, job->end, job->blocked};
    find_operands(run, &job->program->steps[job->index], ptr);
    run->hook(run->hook_user, job->program, job->index, ptr, &time);
}

/* A program on its way. */
typedef struct track {
    const loong_run_t *run;
    const loong_program_t *program;
    frames_t frames;
    loong_lane_t *lane; /* NULL: none, or the program knows of none */
    void *comm;         /* the stream of collectives, likewise */
    int number;         /* of the track */
    int64_t next;       /* step */
    int64_t begun;      /* collectives */
    int64_t awaited;
} track_t;

static loong_status_t begin_track(const loong_run_t *run,
                                  const loong_program_t *program,
                                  const loong_frame_t *frame, int number,
                                  track_t *t)
{
    bool apart = program->placed && run->hook == NULL;
    memset(t, 0, sizeof(*t));
    t->run = run;
    t->program = program;
    t->frames.host = frame;
    t->number = number;
    t->lane = program->placed ? run->lane : NULL;
    if (run->ahead == NULL) {
        return LOONG_OK;
    }
    t->comm = apart ? loongi_ahead_comm(run->ahead) : NULL;
    return loongi_ahead_frame(run->ahead, frame, &t->frames.device);
}

static loong_status_t end_track(const track_t *t)
{
    loong_ahead_t *ahead = t->run->ahead;
    if (ahead == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_ahead_join(ahead));
    return loongi_ahead_frame_end(ahead, t->frames.device);
}

/* A collective on its stream. */
static loong_status_t launch_apart(track_t *t, int64_t index, bool runs)
{
    const loong_step_t *step = &t->program->steps[index];
    void *ptr[LOONG_MAX_OPERANDS];
    int64_t number = ++t->begun;
    if (!runs) {
        return LOONG_OK;
    }
    find_operands(t->run, step, ptr);
    LOONG_TRY(loongi_ahead_begin(t->run->ahead));
    LOONG_TRY(launch(t->run, step, t->frames, t->comm, ptr));
    return loongi_ahead_end(t->run->ahead, t->number, number);
}

static loong_status_t await_apart(track_t *t, const loong_step_t *step)
{
    if (step->kernel->joins) {
        return loongi_ahead_join(t->run->ahead);
    }
    if (step->await <= t->awaited) {
        return LOONG_OK;
    }
    t->awaited = step->await;
    return loongi_ahead_await(t->run->ahead, t->number, step->await);
}

/* The next step of a track; `company`: that of another runs meanwhile. */
static loong_status_t advance(track_t *t, bool company)
{
    int64_t index = t->next++;
    const loong_step_t *step = &t->program->steps[index];
    bool runs = loongi_step_runs(step, t->frames.host);
    if (t->comm != NULL && step->lane == LOONG_LANE_COMM) {
        return launch_apart(t, index, runs);
    }
    if (t->lane != NULL && step->lane == LOONG_LANE_COMM) {
        loong_lane_job_t job = {.run = runs ? run_job : NULL,
                                .done = t->run->hook ? tell_job : NULL,
                                .owner = t->run,
                                .program = t->program,
                                .frame = t->frames.host,
                                .index = index,
                                .track = t->number,
                                .number = ++t->begun,
                                .beside = runs && (step->beside || company)};
        return loongi_lane_begin(t->lane, &job);
    }
    if (!runs) {
        return LOONG_OK;
    }
    if (t->comm != NULL) {
        LOONG_TRY(await_apart(t, step));
    } else if (t->lane != NULL && step->kernel->joins) {
        LOONG_TRY(loongi_lane_settle(t->lane)); /* ranks come in one order */
    } else if (t->lane != NULL && step->await > t->awaited) {
        t->awaited = step->await;
        LOONG_TRY(loongi_lane_await(t->lane, t->number, step->await));
    }
    return run_step(t->run, t->program, index, t->frames);
}

/* Nothing may be under way when the frames and bases go. */
static loong_status_t finish(loong_lane_t *lane, loong_status_t status)
{
    if (lane == NULL) {
        return status;
    }
    if (status != LOONG_OK) {
        loongi_lane_abandon(lane);
        return status;
    }
    return loongi_lane_drain(lane);
}

loong_status_t loongi_pair_run(const loong_run_t run[2],
                               const loong_program_pair_t *pair,
                               const loong_frame_t *const frame[2])
{
    track_t track[2];
    loong_status_t status = LOONG_OK;
    for (int k = 0; k < 2; k++) {
        LOONG_TRY(begin_track(&run[k], pair->program[k], frame[k], k,
                              &track[k]));
    }
    loong_lane_t *lane =
        track[0].lane != NULL ? track[0].lane : track[1].lane;
    for (int64_t i = 0; i < pair->num_order && status == LOONG_OK; i++) {
        status = advance(&track[pair->order[i]], true);
    }
    for (int k = 0; k < 2 && status == LOONG_OK; k++) {
        status = end_track(&track[k]);
    }
    return finish(lane, status);
}

loong_status_t loongi_program_run(const loong_run_t *run,
                                  const loong_program_t *program,
                                  const loong_frame_t *frame)
{
    track_t track;
    loong_status_t status = LOONG_OK;
    LOONG_TRY(begin_track(run, program, frame, 0, &track));
    for (int64_t i = 0; i < program->num_steps && status == LOONG_OK; i++) {
        status = advance(&track, false);
    }
    if (status == LOONG_OK) {
        status = end_track(&track);
    }
    return finish(track.lane, status);
}
