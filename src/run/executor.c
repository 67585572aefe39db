/* SPDX-License-Identifier: Apache-2.0 */
#include "executor.h"

static bool runs(const loong_step_t *step, const loong_frame_t *frame)
{
    return step->when == LOONG_WHEN_ALWAYS ||
           (step->when == LOONG_WHEN_FIRST ? frame->first : frame->last);
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

loong_status_t loongi_program_run(const loong_run_t *run,
                                  const loong_program_t *program,
                                  const loong_frame_t *frame)
{
    for (int64_t i = 0; i < program->num_steps; i++) {
        if (runs(&program->steps[i], frame)) {
            LOONG_TRY(run_step(run, program, i, frame));
        }
    }
    return LOONG_OK;
}
