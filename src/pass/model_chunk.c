/* SPDX-License-Identifier: Apache-2.0
 *
 * Chunks and programs after compilation: prepare, look up, explain, free.
 * Called by src/component/, src/optim/ and the planner. Read program.h
 * before. */
#include <string.h>

#include "loong/register.h"
#include "program.h"

const char *loongi_base_name(loong_base_t base)
{
    static const char *const names[] = {
#define LOONG_BASE_NAME(name_, text_) text_,
        LOONG_BASE_LIST(LOONG_BASE_NAME)
#undef LOONG_BASE_NAME
    };
    return (unsigned)base < LOONG_BASE_COUNT ? names[base] : "?";
}

static loong_status_t prepare_step(loong_context_t *ctx, loong_step_t *step)
{
    if (step->kernel->prepare == NULL || step->state != NULL) {
        return LOONG_OK;
    }
    loong_status_t status =
        step->kernel->prepare(ctx, &step->query, &step->state);
    if (status != LOONG_OK) {
        loongi_error_note(ctx, "while preparing kernel %s in scope '%s'",
                          step->kernel->name, step->scope);
    }
    return status;
}

loong_status_t loongi_program_prepare(loong_context_t *ctx,
                                      loong_program_t *program)
{
    for (int64_t i = 0; i < program->num_steps; i++) {
        LOONG_TRY(prepare_step(ctx, &program->steps[i]));
    }
    return LOONG_OK;
}

loong_status_t loongi_model_chunk_prepare(loong_model_chunk_t *chunk)
{
    for (int p = 0; p < LOONG_PROGRAM_COUNT; p++) {
        LOONG_TRY(loongi_program_prepare(chunk->ctx, &chunk->programs[p]));
    }
    return LOONG_OK;
}

void loongi_program_clear(loong_context_t *ctx, loong_program_t *program)
{
    for (int64_t i = 0; i < program->num_steps; i++) {
        loong_step_t *step = &program->steps[i];
        if (step->state != NULL && step->kernel->destroy != NULL) {
            step->kernel->destroy(ctx, step->state);
        }
    }
    loongi_free(ctx, program->steps);
    memset(program, 0, sizeof(*program));
}

void loongi_model_chunk_destroy(loong_model_chunk_t **chunk_p)
{
    loong_model_chunk_t *c = *chunk_p;
    if (c == NULL) {
        return;
    }
    for (int p = 0; p < LOONG_PROGRAM_COUNT; p++) {
        loongi_program_clear(c->ctx, &c->programs[p]);
    }
    loongi_arena_destroy(&c->arena);
    loongi_free(c->ctx, c);
    *chunk_p = NULL;
}

loong_status_t loongi_program_append(loong_context_t *ctx,
                                     loong_program_t *program,
                                     const char *device,
                                     const loong_step_t *step,
                                     loong_arena_t *arena)
{
    LOONG_TRY(loongi_grow(ctx, &program->steps, &program->cap_steps,
                          program->num_steps + 1, sizeof(*program->steps),
                          "program"));
    loong_step_t *at = &program->steps[program->num_steps];
    *at = *step;
    at->kernel = NULL;
    at->state = NULL;
    at->op = loong_find_op(ctx, at->query.op);
    LOONG_TRY(loongi_step_choose(ctx, arena, device, at));
    if (at->workspace_bytes > 0) {
        at->workspace.base = LOONG_BASE_SCRATCH;
        at->workspace.offset = 0;
        program->scratch_bytes =
            LOONG_MAX(program->scratch_bytes, at->workspace_bytes);
    }
    if (at->op != NULL && at->op->cost != NULL) {
        at->op->cost(&at->query, &at->cost);
    }
    program->num_steps++;
    return LOONG_OK;
}

static const loong_port_t *find_port(int count, const loong_port_t *ports,
                                     const char *name)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(ports[i].name, name) == 0) {
            return &ports[i];
        }
    }
    return NULL;
}

const loong_port_t *loongi_model_chunk_input(const loong_model_chunk_t *chunk,
                                             const char *name)
{
    return find_port(chunk->num_inputs, chunk->inputs, name);
}

const loong_port_t *loongi_model_chunk_output(const loong_model_chunk_t *chunk,
                                              const char *name)
{
    return find_port(chunk->num_outputs, chunk->outputs, name);
}

const loong_chunk_param_t *
loongi_model_chunk_param(const loong_model_chunk_t *chunk, const char *name)
{
    for (int64_t i = 0; i < chunk->num_params; i++) {
        if (strcmp(chunk->params[i].name, name) == 0) {
            return &chunk->params[i];
        }
    }
    return NULL;
}

static void explain_operand(const loong_step_t *step, int i, loong_text_t *text)
{
    const loong_karg_t *arg = &step->query.arg[i];
    if (arg->rank == 0) {
        loongi_text_printf(text, " -");
        return;
    }
    loongi_text_printf(text, " %s[", loong_dtype_name(arg->dtype));
    for (int d = 0; d < arg->rank; d++) {
        loongi_text_printf(text, "%s%lld", d > 0 ? "," : "",
                           (long long)arg->dim[d]);
    }
    loongi_text_printf(text, "]@%s+%lld",
                       loongi_base_name(step->operand[i].base),
                       (long long)step->operand[i].offset);
}

void loongi_program_explain(const loong_program_t *program, loong_text_t *text)
{
    if (program->num_steps == 0) {
        return;
    }
    char bytes[LOONG_HUMAN_SIZE];
    loongi_text_printf(
        text, "program %s: %lld steps, scratch %s\n",
        loongi_program_name(program->kind), (long long)program->num_steps,
        loongi_human_bytes((double)program->scratch_bytes, bytes));
    for (int64_t i = 0; i < program->num_steps; i++) {
        const loong_step_t *step = &program->steps[i];
        loongi_text_printf(text,
                           "%5lld %-18s %-22s %-28s%s%s %.3f GFLOP %.3f MB",
                           (long long)i, step->query.op, step->kernel->name,
                           step->scope, step->recomputed ? " (again)" : "",
                           step->when == LOONG_WHEN_AGAIN    ? " (other rounds)"
                           : step->when == LOONG_WHEN_LOGGED ? " (when logged)"
                           : (step->add | step->add_later) != 0 ? " (adds)"
                                                                : "",
                           step->cost.flops * 1e-9, step->cost.bytes * 1e-6);
        for (int a = 0; a < step->query.num_in + step->query.num_out; a++) {
            loongi_text_printf(text, a == step->query.num_in ? " ->" : "");
            explain_operand(step, a, text);
        }
        if (step->refusals != NULL && step->refusals[0] != '\0') {
            loongi_text_printf(text, "  refused: %s", step->refusals);
        }
        loongi_text_printf(text, "\n");
    }
}

void loongi_model_chunk_explain(const loong_model_chunk_t *chunk,
                                loong_text_t *text)
{
    for (int p = 0; p < LOONG_PROGRAM_COUNT; p++) {
        loongi_program_explain(&chunk->programs[p], text);
    }
}
