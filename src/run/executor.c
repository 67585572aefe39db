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

static loong_status_t run_step(const loong_run_t *run,
                               const loong_program_t *program, int64_t index,
                               const loong_frame_t *frame)
{
    const loong_step_t *step = &program->steps[index];
    void *ptr[LOONG_MAX_OPERANDS];
    int count = step->query.num_in + step->query.num_out;
    for (int i = 0; i < count; i++) {
        ptr[i] = address(run, step->operand[i]);
    }
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
    double begin = run->hook != NULL ? loongi_now() : 0.0;
    loong_status_t status = step->kernel->run(&call);
    if (status != LOONG_OK) {
        loongi_error_note(run->ctx, "in kernel %s, scope '%s', step %lld",
                          step->kernel->name, step->scope,
                          (long long)frame->step);
    } else if (run->hook != NULL) {
        run->hook(run->hook_user, program, index, ptr, begin, loongi_now());
    }
    return status;
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

loong_status_t loongi_pair_run(const loong_run_t run[2],
                               const loong_program_pair_t *pair,
                               const loong_frame_t *const frame[2])
{
    int64_t next[2] = {0, 0};
    for (int64_t i = 0; i < pair->num_order; i++) {
        int who = pair->order[i];
        const loong_program_t *program = pair->program[who];
        int64_t step = next[who]++;
        if (loongi_step_runs(&program->steps[step], frame[who])) {
            LOONG_TRY(run_step(&run[who], program, step, frame[who]));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_program_run(const loong_run_t *run,
                                  const loong_program_t *program,
                                  const loong_frame_t *frame)
{
    for (int64_t i = 0; i < program->num_steps; i++) {
        if (loongi_step_runs(&program->steps[i], frame)) {
            LOONG_TRY(run_step(run, program, i, frame));
        }
    }
    return LOONG_OK;
}
