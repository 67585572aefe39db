/* SPDX-License-Identifier: Apache-2.0
 *
 * Planned memory: what a stage asks for is what was planned, byte for byte;
 * every operand of every step lies inside its base; and no base is larger than
 * its last operand. The linker sends the requests through wrappers
 * (engine.cmake). Pages that are really held: worker_memory.c. */
#include "engine_run.h"
#include "passes.h"

static struct {
    int64_t bytes;
    int64_t requests;
} asked;

loong_status_t __real_loong_device_alloc(loong_device_t *device, size_t bytes,
                                         const char *what, void **ptr_p);
loong_status_t __wrap_loong_device_alloc(loong_device_t *device, size_t bytes,
                                         const char *what, void **ptr_p);
loong_status_t __wrap_loong_device_alloc(loong_device_t *device, size_t bytes,
                                         const char *what, void **ptr_p)
{
    asked.bytes += (int64_t)bytes;
    asked.requests++;
    return __real_loong_device_alloc(device, bytes, what, ptr_p);
}

loong_status_t __real_loong_comm_alloc_shared(loong_comm_t *comm, size_t bytes,
                                              const char *what, void *ptr_p);
loong_status_t __wrap_loong_comm_alloc_shared(loong_comm_t *comm, size_t bytes,
                                              const char *what, void *ptr_p);
loong_status_t __wrap_loong_comm_alloc_shared(loong_comm_t *comm, size_t bytes,
                                              const char *what, void *ptr_p)
{
    asked.bytes += (int64_t)bytes;
    asked.requests++;
    return __real_loong_comm_alloc_shared(comm, bytes, what, ptr_p);
}

/* Bytes from the operand's first to behind its last element. */
static int64_t extent(const loong_karg_t *arg)
{
    int64_t rows = loong_karg_rows(arg);
    return ((rows - 1) * arg->ld + loong_karg_cols(arg)) *
           (int64_t)loong_dtype_size(arg->dtype);
}

static void find_ends(const loong_program_t *p, int64_t end[LOONG_BASE_COUNT])
{
    for (int64_t i = 0; i < p->num_steps; i++) {
        const loong_step_t *step = &p->steps[i];
        for (int a = 0; a < step->query.num_in + step->query.num_out; a++) {
            loong_operand_t at = step->operand[a];
            if (at.base != LOONG_BASE_NONE) {
                assert_true(at.offset >= 0);
                end[at.base] =
                    LOONG_MAX(end[at.base],
                              at.offset + extent(&step->query.arg[a]));
            }
        }
        if (step->kernel->workspace != NULL && step->workspace_bytes > 0) {
            int64_t bytes = (int64_t)step->kernel->workspace(&step->query);
            int64_t *most = &end[step->workspace.base];
            *most = LOONG_MAX(*most, step->workspace.offset + bytes);
        }
    }
}

static void check(loong_dtype_t dtype, int recompute, int watch,
                  const char *optimizer)
{
    static const char *const layers[] = {"layers.*"};
    static const loong_base_t full[] = {
        LOONG_BASE_PARAM, LOONG_BASE_GRAD,  LOONG_BASE_SLOT, LOONG_BASE_SCRATCH,
        LOONG_BASE_INPUT, LOONG_BASE_STATE, LOONG_BASE_OPTIM};
    engine_run_t run;
    int64_t end[LOONG_BASE_COUNT] = {0};
    int64_t planned = 0;
    int64_t bases = 0;
    loong_component_params_t p = engine_params(dtype);
    int *kind = &p.optimizer.group[0].kind;
    while (strcmp(loongi_optimizer_class(*kind)->name, optimizer) != 0) {
        ++*kind;
    }
    p.optimizer.ema.decay = watch == 1 ? 0.9 : 0.0;
    p.compile.num_recompute = recompute;
    p.compile.num_watch = watch;
    p.compile.recompute = p.compile.watch = layers;
    memset(&asked, 0, sizeof(asked));
    engine_begin(&run, &p);
    const loong_stage_t *s = run.stage;
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        planned += run.component->model->bytes[b];
        bases += run.component->model->bytes[b] > 0;
    }
    assert_int_equal(asked.bytes, planned);
    assert_int_equal(asked.requests, bases);
    for (int c = 0; c < LOONG_VARIANT_COUNT; c++) {
        for (int k = 0; k < LOONG_PROGRAM_COUNT && s->chunk[c] != NULL; k++) {
            find_ends(&s->chunk[c]->programs[k], end);
        }
    }
    find_ends(&s->optimizer->norm, end);
    find_ends(&s->optimizer->update, end);
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        assert_true(end[b] <= run.component->model->bytes[b]);
    }
    for (int i = 0; i < LOONG_COUNT_OF(full); i++) {
        loong_dtype_t element = full[i] == LOONG_BASE_PARAM
                                    ? dtype
                                    : s->params->precision.wide;
        int64_t slack = full[i] == LOONG_BASE_PARAM ||
                                full[i] == LOONG_BASE_GRAD
                            ? 64 * (int64_t)loong_dtype_size(element)
                        : full[i] == LOONG_BASE_SLOT ||
                                full[i] == LOONG_BASE_SCRATCH
                            ? LOONG_PLACE_ALIGN
                            : 64;
        assert_true(run.component->model->bytes[full[i]] <
                    end[full[i]] + slack);
    }
    engine_end(&run);
}

static void test_bytes(void **state)
{
    (void)state;
    check(LOONG_F32, 0, 0, "adamw");
    check(LOONG_BF16, 0, 0, "lion");
    check(LOONG_F64, 1, 0, "sgd");
    check(LOONG_BF16, 1, 1, "adamw");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes)};
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
