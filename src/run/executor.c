/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs programs step by step, or as recordings, on bound bases. Called by
 * memory_plan.c for entries of a list. Read program.h and lane.h before. */
#include "executor.h"

#include <string.h>

#include "comm_run.h"

static void *address(const loong_binding_t *run, loong_operand_t operand)
{
    return operand.base == LOONG_BASE_NONE
               ? NULL
               : run->base[operand.base] + operand.offset;
}

static void find_operands(const loong_binding_t *run, const loong_step_t *step,
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
    int64_t round;
} frames_t;

static loong_kernel_call_t call_of(const loong_binding_t *run,
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
    call.error =
        run->device != NULL ? loong_device_get_error(run->device) : NULL;
    call.group = run->group;
    call.accumulate =
        step->add | (frames.host->first ? 0 : step->add_later) |
        (frames.round > 0 ? step->add_rounds : 0);
    call.round = frames.round;
    call.load = false;
    return call;
}

static loong_status_t tell(const loong_binding_t *run, const loong_step_t *step,
                           const loong_frame_t *frame, loong_status_t status)
{
    if (status != LOONG_OK) {
        loongi_error_note(run->ctx, "in kernel %s, scope '%s', step %lld",
                          step->kernel->name, step->scope,
                          (long long)frame->step);
    }
    return status;
}

static loong_status_t launch(const loong_binding_t *run,
                             const loong_step_t *step, frames_t frames,
                             void *stream, void *const *ptr)
{
    loong_kernel_call_t call = call_of(run, step, frames, stream, ptr);
    if (run->async != NULL) {
        loong_device_range_begin(run->device, step->scope);
    }
    loong_status_t status = step->kernel->run(&call);
    if (run->async != NULL) {
        loong_device_range_end(run->device);
    }
    return tell(run, step, frames.host, status);
}

/* What is launched, and not captured. */
static void count_launch(const loong_binding_t *run)
{
    if (run->replay != NULL && !loong_device_is_capturing(run->device)) {
        loongi_replay_count(run->replay);
    }
}

/* One step on the rank's own thread. */
static loong_status_t run_step(const loong_binding_t *run,
                               const loong_program_t *program, int64_t index,
                               frames_t frames)
{
    const loong_step_t *step = &program->steps[index];
    void *ptr[LOONG_MAX_OPERANDS];
    loong_step_time_t time = {0.0, 0.0, 0.0};
    find_operands(run, step, ptr);
    count_launch(run);
    if (run->hook == NULL) {
        return launch(run, step, frames, run->stream, ptr);
    }
    time.begin = loongi_now();
    LOONG_TRY(launch(run, step, frames, run->stream, ptr));
    if (run->async != NULL) {
        LOONG_TRY(loong_device_synchronize(run->device, "a timed step"));
    }
    time.end = loongi_now();
    time.blocked = step->kernel->communicates ? time.end - time.begin : 0.0;
    run->hook(run->hook_user, program, index, ptr, &time);
    return LOONG_OK;
}

/* Overwriting and adding may be kernels of their own. */
static loong_status_t load_step(const loong_binding_t *run,
                                const loong_step_t *step)
{
    void *ptr[LOONG_MAX_OPERANDS];
    find_operands(run, step, ptr);
    bool adds = step->add_later != 0 || step->add_rounds != 0;
    for (int first = 1; first >= !adds; first--) {
        const loong_frame_t frame = {.first = first};
        frames_t frames = {&frame, NULL, !first};
        loong_kernel_call_t call =
            call_of(run, step, frames, run->stream, ptr);
        call.load = true;
        LOONG_TRY(tell(run, step, &frame, step->kernel->run(&call)));
    }
    return LOONG_OK;
}

loong_status_t loongi_program_load(const loong_binding_t *run,
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

/* ---- collectives --------------------------------------------------------- */

/* A collective on a stream of its own. */
static loong_status_t launch_apart(const loong_lane_job_t *job,
                                   loong_caller_t caller)
{
    const loong_binding_t *run = job->owner;
    const loong_step_t *step = &job->program->steps[job->index];
    void *ptr[LOONG_MAX_OPERANDS];
    void *stream = NULL;
    frames_t frames = {job->frame, job->device_frame, 0};
    find_operands(run, step, ptr);
    LOONG_TRY(loongi_async_begin(run->async, job->track, job->number, caller,
                                 &stream));
    LOONG_TRY(launch(run, step, frames, stream, ptr));
    return loongi_async_end(run->async, job->track, job->number, stream);
}

/* On either thread. */
static loong_status_t run_lane_job(const loong_lane_job_t *job)
{
    const loong_step_t *step = &job->program->steps[job->index];
    void *ptr[LOONG_MAX_OPERANDS];
    frames_t frames = {job->frame, NULL, 0};
    const loong_binding_t *run = job->owner;
    if (run->async != NULL) {
        return launch_apart(job, LOONG_CALLED_BY_HOST);
    }
    find_operands(run, step, ptr);
    return launch(run, step, frames, run->stream, ptr);
}

static void tell_job(const loong_lane_job_t *job)
{
    const loong_binding_t *run = job->owner;
    void *ptr[LOONG_MAX_OPERANDS];
    loong_step_time_t time = {job->begin, job->end, job->blocked};
    find_operands(run, &job->program->steps[job->index], ptr);
    run->hook(run->hook_user, job->program, job->index, ptr, &time);
}

/* A program on its way. */
typedef struct track {
    const loong_binding_t *run;
    const loong_program_t *program;
    frames_t frames;
    bool apart;         /* collectives have streams of their own */
    bool called[LOONG_CALLERS]; /* some, so far */
    loong_lane_t *lane; /* NULL: none, or the program knows of none */
    int number;         /* of the track */
    int64_t next;       /* step */
    int64_t begun;      /* collectives */
    int64_t awaited;
    int64_t repeat; /* step that began the part run in rounds */
    int64_t rounds; /* of it; 0: not asked for yet */
} track_t;

static void begin_track(const loong_binding_t *run,
                        const loong_program_t *program,
                        const loong_frame_t *frame, int number, track_t *t)
{
    memset(t, 0, sizeof(*t));
    t->run = run;
    t->program = program;
    t->frames.host = frame;
    t->number = number;
    t->lane = program->placed ? run->lane : NULL;
    if (run->async != NULL) { /* timed steps are waited for, one by one */
        t->lane = run->hook == NULL ? t->lane : NULL;
        t->apart = program->placed && run->hook == NULL &&
                   loongi_async_has_lanes(run->async);
        loongi_async_open(run->async, number, 0);
    }
}

/* The host makes the calls of its communicator. */
static bool is_called_by_host(const loong_binding_t *run,
                              const loong_step_t *step)
{
    return run->group != NULL &&
           loongi_comm_is_on_host(run->group[step->group]);
}

/* A collective is awaited on the host first: nothing on a stream waits for
 * what is not there yet. Ranks come to what joins in one order. */
static loong_status_t await_step(track_t *t, const loong_step_t *step)
{
    if (step->kernel->joins) {
        LOONG_TRY(t->lane != NULL ? loongi_lane_settle(t->lane) : LOONG_OK);
        return t->apart ? loongi_async_join(t->run->async) : LOONG_OK;
    }
    if (step->await <= t->awaited) {
        return LOONG_OK;
    }
    t->awaited = step->await;
    LOONG_TRY(t->lane != NULL
                  ? loongi_lane_await(t->lane, t->number, step->await)
                  : LOONG_OK);
    return t->apart ? loongi_async_await(t->run->async, t->number, step->await)
                    : LOONG_OK;
}

/* Two callers know nothing of each other's order. */
static loong_status_t await_other_caller(track_t *t, const loong_step_t *step,
                                         loong_caller_t caller)
{
    t->called[caller] = true;
    return t->called[LOONG_CALLED_BY_DEVICE] && t->called[LOONG_CALLED_BY_HOST]
               ? await_step(t, step)
               : LOONG_OK;
}

/* What a device calls it calls at once, in the order of programs. Who makes a
 * call for it waits for the others, and does that on the lane; but not where
 * the host waits for the device as well, who watches over one wait. */
static loong_status_t begin_apart(track_t *t, loong_lane_job_t *job)
{
    const loong_step_t *step = &t->program->steps[job->index];
    loong_async_t *async = t->run->async;
    bool host = t->lane != NULL && is_called_by_host(t->run, step);
    loong_caller_t caller =
        host ? LOONG_CALLED_BY_HOST : LOONG_CALLED_BY_DEVICE;
    if (job->run == NULL) {
        LOONG_TRY(loongi_async_skip(async, t->number, job->number));
    } else {
        LOONG_TRY(await_other_caller(t, step, caller));
        LOONG_TRY(loongi_async_fork(async, t->number, job->number, caller));
    }
    if (job->run != NULL && (!host || step->kernel->waits)) {
        LOONG_TRY(host ? loongi_lane_settle(t->lane) : LOONG_OK);
        job->run = NULL;
        job->beside = false;
        LOONG_TRY(launch_apart(job, caller));
    }
    return t->lane != NULL ? loongi_lane_begin(t->lane, job) : LOONG_OK;
}

/* `company`: a step of another track runs meanwhile. */
static loong_status_t begin_collective(track_t *t, int64_t index, bool runs,
                                       bool company)
{
    const loong_step_t *step = &t->program->steps[index];
    loong_lane_job_t job = {.run = runs ? run_lane_job : NULL,
                            .done = t->run->hook ? tell_job : NULL,
                            .owner = t->run,
                            .program = t->program,
                            .frame = t->frames.host,
                            .device_frame = t->frames.device,
                            .index = index,
                            .track = t->number,
                            .number = ++t->begun,
                            .beside = runs && (step->beside || company)};
    if (runs) {
        count_launch(t->run);
    }
    return t->apart ? begin_apart(t, &job) : loongi_lane_begin(t->lane, &job);
}

/* ---- rounds -------------------------------------------------------------- */

/* How many rounds the part has. A device has shown it to the host, who asks as
 * late as it can. */
static loong_status_t find_rounds(track_t *t)
{
    const loong_binding_t *run = t->run;
    const void *shown = address(run, t->program->steps[t->repeat].rounds);
    if (t->rounds > 0) {
        return LOONG_OK;
    }
    if (run->async != NULL) {
        LOONG_TRY(loong_device_mirrored(run->device, shown, sizeof(int32_t),
                                        "rounds of experts", &shown));
    }
    t->rounds = *(const int32_t *)shown;
    LOONG_CHECK(run->ctx, t->rounds > 0, LOONG_ERR_INTERNAL,
                "%lld rounds in scope '%s'", (long long)t->rounds,
                t->program->steps[t->repeat].scope);
    return LOONG_OK;
}

/* The rounds behind the first, whose last step is `end`: one step after the
 * other, with nothing beside them. */
static loong_status_t run_rounds(track_t *t, int64_t end)
{
    LOONG_TRY(find_rounds(t));
    if (t->rounds == 1) {
        return LOONG_OK;
    }
    LOONG_TRY(t->lane != NULL ? loongi_lane_settle(t->lane) : LOONG_OK);
    LOONG_TRY(t->apart ? loongi_async_join(t->run->async) : LOONG_OK);
    frames_t frames = t->frames;
    for (frames.round = 1; frames.round < t->rounds; frames.round++) {
        for (int64_t i = t->repeat; i <= end; i++) {
            const loong_step_t *step = &t->program->steps[i];
            if ((step->repeat & LOONG_REPEAT_REPEATS) &&
                loongi_step_runs(step, frames.host)) {
                LOONG_TRY(run_step(t->run, t->program, i, frames));
            }
        }
    }
    return LOONG_OK;
}

/* Notes where a part begins; says whether the step runs. */
static loong_status_t runs_here(track_t *t, int64_t index, bool *runs_p)
{
    const loong_step_t *step = &t->program->steps[index];
    if (step->repeat & LOONG_REPEAT_BEGINS) {
        t->repeat = index;
        t->rounds = 0;
    }
    *runs_p = loongi_step_runs(step, t->frames.host);
    if (step->when == LOONG_WHEN_AGAIN) {
        LOONG_TRY(find_rounds(t));
        *runs_p = t->rounds > 1;
    }
    return LOONG_OK;
}

static loong_status_t advance_step(track_t *t, int64_t index, bool company)
{
    const loong_step_t *step = &t->program->steps[index];
    bool runs = false;
    LOONG_TRY(runs_here(t, index, &runs));
    if (step->lane == LOONG_LANE_COMM && (t->apart || t->lane != NULL)) {
        return begin_collective(t, index, runs, company);
    }
    if (!runs && !t->frames.host->hollow) {
        return LOONG_OK;
    }
    LOONG_TRY(await_step(t, step)); /* who comes next relies on it */
    return !runs ? LOONG_OK : run_step(t->run, t->program, index, t->frames);
}

/* The next step of a track. */
static loong_status_t advance(track_t *t, bool company)
{
    int64_t index = t->next++;
    LOONG_TRY(advance_step(t, index, company));
    return t->program->steps[index].repeat & LOONG_REPEAT_ENDS
               ? run_rounds(t, index)
               : LOONG_OK;
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

/* Nothing may be under way when the frames and bases go, and what comes next on
 * the compute stream is behind all of it. */
static loong_status_t finish(const flight_t *f, loong_status_t status)
{
    const loong_binding_t *run = f->job->run[0];
    loong_lane_t *lane = NULL;
    for (int k = 0; k < f->job->num && lane == NULL; k++) {
        lane = f->track[k].lane;
    }
    if (lane != NULL && status != LOONG_OK) {
        loongi_lane_abandon(lane);
    } else if (lane != NULL) {
        status = loongi_lane_drain(lane);
    }
    return status == LOONG_OK && run->async != NULL
               ? loongi_async_join(run->async)
               : status;
}

static loong_status_t run_steps(const loong_replay_job_t *job)
{
    flight_t f = begin_flight(job);
    loong_async_t *async = job->run[0]->async;
    for (int k = 0; k < job->num && async != NULL; k++) {
        LOONG_TRY(loongi_async_frame(async, job->frame[k],
                                     &f.track[k].frames.device));
    }
    LOONG_TRY(finish(&f, advance_to(&f, job->num_steps)));
    for (int k = 0; k < job->num && async != NULL; k++) {
        LOONG_TRY(loongi_async_frame_end(async, f.track[k].frames.device));
    }
    return LOONG_OK;
}

/* ---- replay -------------------------------------------------------------- */

static loong_status_t capture(flight_t *f, loong_recording_t *recording,
                              loong_piece_t *piece)
{
    const loong_binding_t *run = f->job->run[0];
    bool go_on = false;
    loong_status_t status = loongi_replay_begin(run->replay, recording);
    if (status == LOONG_OK) {
        status = advance_to(f, piece->end);
    }
    if (status == LOONG_OK) {
        status = loongi_async_join(run->async);
    }
    LOONG_TRY(loongi_replay_end(run->replay, recording, piece, status,
                                &go_on));
    if (go_on) {
        loongi_async_cancel(run->async);
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
        if (t->apart && step->lane == LOONG_LANE_COMM) {
            loongi_async_open(t->run->async, t->number, ++t->begun);
        }
    }
}

/* Where the host makes calls a graph holds none: it awaits those before it. */
static loong_status_t await_piece(const flight_t *f, int64_t end)
{
    flight_t look = *f;
    for (; look.at < end; look.at++) {
        int k = f->job->order != NULL ? f->job->order[look.at] : 0;
        track_t *t = &look.track[k];
        LOONG_TRY(await_step(t, &t->program->steps[t->next++]));
    }
    return LOONG_OK;
}

static loong_status_t run_piece(flight_t *f, loong_recording_t *recording,
                                loong_piece_t *piece)
{
    const loong_binding_t *run = f->job->run[0];
    if (piece->host) {
        LOONG_TRY(advance_to(f, piece->end));
        return run->lane == NULL ? loongi_async_join(run->async) : LOONG_OK;
    }
    if (run->lane != NULL) {
        LOONG_TRY(await_piece(f, piece->end));
    }
    pass_over(f, piece->end);
    return loongi_replay_launch(run->replay, recording, piece);
}

static loong_status_t record(loong_recording_t *recording)
{
    flight_t f = begin_flight(&recording->job);
    for (int k = 0; k < recording->job.num; k++) {
        f.track[k].frames.device = &recording->frame[k];
        f.track[k].lane = NULL; /* nothing is called */
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

loong_status_t loongi_binding_record(const loong_binding_t *run)
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
        LOONG_TRY(loongi_async_frame_into(job->run[k]->async, job->frame[k],
                                          &recording->frame[k]));
    }
    loong_status_t status = LOONG_OK;
    for (int i = 0; i < recording->num_pieces && status == LOONG_OK; i++) {
        status = run_piece(&f, recording, &recording->pieces[i]);
    }
    return finish(&f, status);
}

static loong_status_t run_job(const loong_replay_job_t *job)
{
    const loong_binding_t *run = job->run[0];
    loong_recording_t *recording = NULL;
    if (run->replay != NULL && run->hook == NULL && !job->frame[0]->hollow) {
        LOONG_TRY(loongi_replay_find(run->replay, job, &recording));
    }
    return recording != NULL ? run_recording(job, recording) : run_steps(job);
}

loong_status_t loongi_pair_run(const loong_binding_t run[2],
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

loong_status_t loongi_program_run(const loong_binding_t *run,
                                  const loong_program_t *program,
                                  const loong_frame_t *frame)
{
    const loong_replay_job_t job = {
        1, {run, NULL}, {program, NULL}, {frame, NULL}, program->num_steps,
        NULL};
    return run_job(&job);
}
