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

static loong_kernel_call_t call_of(const loong_run_t *run,
                                   const loong_step_t *step, frames_t frames,
                                   void *stream, void *const *ptr)
{
    bool kept =
        run->device != NULL && loong_device_is_capturing(run->device);
    loong_kernel_call_t call;
    call.ctx = run->ctx;
    call.query = &step->query;
    call.state = step->state;
    call.frame = kept ? NULL : frames.host;
    call.ptr = ptr;
    call.workspace = address(run, step->workspace);
    call.stream = stream;
    call.device = run->device;
    call.device_frame = frames.device;
    call.flaw =
        run->device != NULL ? loong_device_flaw(run->device) : NULL;
    call.group = run->group;
    call.accumulate =
        step->add | (frames.host->first ? 0 : step->add_later);
    call.load = false;
    return call;
}

static loong_status_t tell(const loong_run_t *run, const loong_step_t *step,
                           const loong_frame_t *frame, loong_status_t status)
{
    if (status != LOONG_OK) {
        loongi_error_note(run->ctx, "in kernel %s, scope '%s', step %lld",
                          step->kernel->name, step->scope,
                          (long long)frame->step);
    }
    return status;
}

static loong_status_t launch(const loong_run_t *run, const loong_step_t *step,
                             frames_t frames, void *stream, void *const *ptr)
{
    loong_kernel_call_t call = call_of(run, step, frames, stream, ptr);
    bool kept =
        run->device != NULL && loong_device_is_capturing(run->device);
    if (run->ahead != NULL) {
        loong_device_range_begin(run->device, step->scope);
    }
    if (run->replay != NULL && !kept) {
        loongi_replay_count(run->replay);
    }
    loong_status_t status = step->kernel->run(&call);
    if (run->ahead != NULL) {
        loong_device_range_end(run->device);
    }
    return tell(run, step, frames.host, status);
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

/* Overwriting and adding may be kernels of their own. */
static loong_status_t load_step(const loong_run_t *run,
                                const loong_step_t *step)
{
    void *ptr[LOONG_MAX_OPERANDS];
    find_operands(run, step, ptr);
    for (int first = 1; first >= (step->add_later == 0); first--) {
        const loong_frame_t frame = {.first = first};
        frames_t frames = {&frame, NULL};
        loong_kernel_call_t call =
            call_of(run, step, frames, run->stream, ptr);
        call.load = true;
        LOONG_TRY(tell(run, step, &frame, step->kernel->run(&call)));
    }
    return LOONG_OK;
}

loong_status_t loongi_program_load(const loong_run_t *run,
                                   const loong_program_t *program, bool again)
{
    for (int64_t i = 0; i < program->num_steps; i++) {
        const loong_step_t *step = &program->steps[i];
        if (step->kernel->device != NULL && (!again || step->kernel->waits)) {
            LOONG_TRY(load_step(run, step));
        }
    }
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

static loong_status_t run_lane_job(const loong_lane_job_t *job)
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

static void begin_track(const loong_run_t *run, const loong_program_t *program,
                        const loong_frame_t *frame, int number, track_t *t)
{
    bool apart = program->placed && run->hook == NULL;
    memset(t, 0, sizeof(*t));
    t->run = run;
    t->program = program;
    t->frames.host = frame;
    t->number = number;
    t->lane = program->placed ? run->lane : NULL;
    if (run->ahead != NULL) {
        t->comm = apart ? loongi_ahead_comm(run->ahead) : NULL;
        loongi_ahead_open(run->ahead, number, 0);
    }
}

/* A collective on its stream. */
static loong_status_t launch_apart(track_t *t, int64_t index, bool runs)
{
    const loong_step_t *step = &t->program->steps[index];
    void *ptr[LOONG_MAX_OPERANDS];
    int64_t number = ++t->begun;
    if (!runs) {
        loongi_ahead_skip(t->run->ahead, t->number, number);
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
        loong_lane_job_t job = {.run = runs ? run_lane_job : NULL,
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

/* ---- one program, or two ------------------------------------------------- */

/* On their way, step by step in one order. */
typedef struct flight {
    const loong_replay_job_t *job;
    track_t track[2];
    int64_t at;
} flight_t;

static flight_t begin_flight(const loong_replay_job_t *job)
{
    flight_t f;
    f.job = job;
    f.at = 0;
    for (int k = 0; k < job->num; k++) {
        begin_track(job->run[k], job->program[k], job->frame[k], k,
                    &f.track[k]);
    }
    return f;
}

static loong_status_t advance_to(flight_t *f, int64_t end)
{
    while (f->at < end) {
        int k = f->job->order != NULL ? f->job->order[f->at] : 0;
        f->at++;
        LOONG_TRY(advance(&f->track[k], f->job->num > 1));
    }
    return LOONG_OK;
}

/* Nothing may be under way when the frames and bases go. */
static loong_status_t finish(const flight_t *f, loong_status_t status)
{
    loong_lane_t *lane = NULL;
    for (int k = 0; k < f->job->num && lane == NULL; k++) {
        lane = f->track[k].lane;
    }
    if (lane == NULL) {
        return status;
    }
    if (status != LOONG_OK) {
        loongi_lane_abandon(lane);
        return status;
    }
    return loongi_lane_drain(lane);
}

static loong_status_t run_steps(const loong_replay_job_t *job)
{
    flight_t f = begin_flight(job);
    loong_ahead_t *ahead = job->run[0]->ahead;
    for (int k = 0; k < job->num && ahead != NULL; k++) {
        LOONG_TRY(loongi_ahead_frame(ahead, job->frame[k],
                                     &f.track[k].frames.device));
    }
    loong_status_t status = advance_to(&f, job->num_steps);
    if (ahead != NULL && status == LOONG_OK) {
        status = loongi_ahead_join(ahead);
    }
    for (int k = 0; k < job->num && ahead != NULL && status == LOONG_OK;
         k++) {
        status = loongi_ahead_frame_end(ahead, f.track[k].frames.device);
    }
    return finish(&f, status);
}

/* ---- replay -------------------------------------------------------------- */

static loong_status_t capture(flight_t *f, loong_recording_t *recording,
                              loong_piece_t *piece)
{
    const loong_run_t *run = f->job->run[0];
    bool go_on = false;
    loong_status_t status = loongi_replay_begin(run->replay, recording);
    if (status == LOONG_OK) {
        status = advance_to(f, piece->end);
    }
    if (status == LOONG_OK) {
        status = loongi_ahead_join(run->ahead);
    }
    LOONG_TRY(loongi_replay_end(run->replay, recording, piece, status,
                                &go_on));
    if (go_on) {
        loongi_ahead_cancel(run->ahead);
    }
    return LOONG_OK;
}

/* These steps are in a graph, or the host's. */
static void pass_over(flight_t *f, int64_t end)
{
    for (; f->at < end; f->at++) {
        track_t *t = &f->track[f->job->order != NULL ? f->job->order[f->at]
                                                     : 0];
        const loong_step_t *step = &t->program->steps[t->next++];
        t->begun += t->comm != NULL && step->lane == LOONG_LANE_COMM;
        loongi_ahead_open(t->run->ahead, t->number, t->begun);
    }
}

static loong_status_t run_piece(flight_t *f, loong_recording_t *recording,
                                loong_piece_t *piece)
{
    const loong_run_t *run = f->job->run[0];
    if (!piece->host) {
        pass_over(f, piece->end);
        return loongi_replay_launch(run->replay, recording, piece);
    }
    LOONG_TRY(advance_to(f, piece->end));
    return loongi_ahead_join(run->ahead);
}

static loong_status_t record(loong_recording_t *recording)
{
    flight_t f = begin_flight(&recording->job);
    for (int k = 0; k < recording->job.num; k++) {
        f.track[k].frames.device = &recording->frame[k];
    }
    for (int i = 0; i < recording->num_pieces && !recording->off; i++) {
        loong_piece_t *piece = &recording->pieces[i];
        if (piece->host) {
            pass_over(&f, piece->end);
        } else {
            LOONG_TRY(capture(&f, recording, piece));
        }
    }
    recording->captured = !recording->off;
    return LOONG_OK;
}

loong_status_t loongi_run_record(const loong_run_t *run)
{
    loong_recording_t *recording = NULL;
    if (run->replay == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_replay_next(run->replay, &recording));
    while (recording != NULL) {
        LOONG_TRY(record(recording));
        LOONG_TRY(loongi_replay_next(run->replay, &recording));
    }
    return LOONG_OK;
}

static loong_status_t run_recording(const loong_replay_job_t *job,
                                    loong_recording_t *recording)
{
    flight_t f = begin_flight(job);
    for (int k = 0; k < job->num; k++) {
        f.track[k].frames.device = &recording->frame[k];
        LOONG_TRY(loongi_ahead_frame_into(job->run[k]->ahead, job->frame[k],
                                          &recording->frame[k]));
    }
    for (int i = 0; i < recording->num_pieces; i++) {
        LOONG_TRY(run_piece(&f, recording, &recording->pieces[i]));
    }
    return LOONG_OK;
}

static loong_status_t run_job(const loong_replay_job_t *job)
{
    const loong_run_t *run = job->run[0];
    loong_recording_t *recording = NULL;
    if (run->replay != NULL && run->hook == NULL) {
        LOONG_TRY(loongi_replay_find(run->replay, job, &recording));
    }
    return recording != NULL ? run_recording(job, recording) : run_steps(job);
}

loong_status_t loongi_pair_run(const loong_run_t run[2],
                               const loong_program_pair_t *pair,
                               const loong_frame_t *const frame[2])
{
    const loong_replay_job_t job = {2,
                                    {&run[0], &run[1]},
                                    {pair->program[0], pair->program[1]},
                                    {frame[0], frame[1]},
                                    pair->num_order,
                                    pair->order};
    return run_job(&job);
}

loong_status_t loongi_program_run(const loong_run_t *run,
                                  const loong_program_t *program,
                                  const loong_frame_t *frame)
{
    const loong_replay_job_t job = {
        1, {run, NULL}, {program, NULL}, {frame, NULL}, program->num_steps,
        NULL};
    return run_job(&job);
}
