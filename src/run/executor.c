/* SPDX-License-Identifier: Apache-2.0 */
#include "executor.h"

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

static void find_operands(const loong_run_t *run, const loong_step_t *step,
                          void *ptr[LOONG_MAX_OPERANDS])
{
    int count = step->query.num_in + step->query.num_out;
    for (int i = 0; i < count; i++) {
        ptr[i] = address(run, step->operand[i]);
    }
}

static loong_status_t launch(const loong_run_t *run, const loong_step_t *step,
                             const loong_frame_t *frame, void *const *ptr)
{
    loong_kernel_call_t call;
    call.ctx = run->ctx;
    call.query = &step->query;
    call.state = step->state;
    call.frame = frame;
    call.ptr = ptr;
    call.workspace = address(run, step->workspace);
    call.stream = run->stream;
    call.group = run->group;
    call.accumulate = step->add | (frame->first ? 0 : step->add_later);
    loong_status_t status = step->kernel->run(&call);
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
                               const loong_frame_t *frame)
{
    const loong_step_t *step = &program->steps[index];
    void *ptr[LOONG_MAX_OPERANDS];
    loong_step_time_t time = {0.0, 0.0, 0.0};
    find_operands(run, step, ptr);
    if (run->hook == NULL) {
        return launch(run, step, frame, ptr);
    }
    time.begin = loongi_now();
    LOONG_TRY(launch(run, step, frame, ptr));
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
    find_operands(job->owner, step, ptr);
    return launch(job->owner, step, job->frame, ptr);
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
    const loong_frame_t *frame;
    loong_lane_t *lane; /* NULL: none, or the program knows of none */
    int64_t next;       /* step */
    int64_t begun;      /* collectives */
    int64_t awaited;
} track_t;

static track_t track_of(const loong_run_t *run, const loong_program_t *program,
                        const loong_frame_t *frame)
{
    track_t t = {run, program, frame, NULL, 0, 0, 0};
    t.lane = program->placed ? run->lane : NULL;
    return t;
}

/* The next step of a track; `company`: that of another runs meanwhile. */
static loong_status_t advance(track_t *t, int number, bool company)
{
    int64_t index = t->next++;
    const loong_step_t *step = &t->program->steps[index];
    bool runs = loongi_step_runs(step, t->frame);
    if (t->lane != NULL && step->lane == LOONG_LANE_COMM) {
        loong_lane_job_t job = {.run = runs ? run_job : NULL,
                                .done = t->run->hook ? tell_job : NULL,
                                .owner = t->run,
                                .program = t->program,
                                .frame = t->frame,
                                .index = index,
                                .track = number,
                                .number = ++t->begun,
                                .beside = runs && (step->beside || company)};
        return loongi_lane_begin(t->lane, &job);
    }
    if (!runs) {
        return LOONG_OK;
    }
    if (t->lane != NULL && step->kernel->joins) {
        LOONG_TRY(loongi_lane_settle(t->lane)); /* ranks come in one order */
    } else if (t->lane != NULL && step->await > t->awaited) {
        t->awaited = step->await;
        LOONG_TRY(loongi_lane_await(t->lane, number, step->await));
    }
    return run_step(t->run, t->program, index, t->frame);
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
    track_t track[2] = {track_of(&run[0], pair->program[0], frame[0]),
                        track_of(&run[1], pair->program[1], frame[1])};
    loong_lane_t *lane =
        track[0].lane != NULL ? track[0].lane : track[1].lane;
    loong_status_t status = LOONG_OK;
    for (int64_t i = 0; i < pair->num_order && status == LOONG_OK; i++) {
        int who = pair->order[i];
        status = advance(&track[who], who, true);
    }
    return finish(lane, status);
}

loong_status_t loongi_program_run(const loong_run_t *run,
                                  const loong_program_t *program,
                                  const loong_frame_t *frame)
{
    track_t track = track_of(run, program, frame);
    loong_status_t status = LOONG_OK;
    for (int64_t i = 0; i < program->num_steps && status == LOONG_OK; i++) {
        status = advance(&track, 0, false);
    }
    return finish(track.lane, status);
}
