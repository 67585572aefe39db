/* SPDX-License-Identifier: Apache-2.0
 *
 * In front of the kernels that make rows of experts: every output is NaN
 * before it is made, so that whoever reads a row behind the last shows it. The
 * kernel proper is the first one that takes the query. */
#include <string.h>

#include "base.h"
#include "loong/register.h"

typedef struct inner {
    const loong_kernel_t *kernel;
    void *state;
} inner_t;

static bool is_poison(const loong_kernel_t *kernel)
{
    return strncmp(kernel->name, "poison", 6) == 0;
}

/* That of the rank, which is a thread. */
static _Thread_local const loong_context_t *any;

static const loong_kernel_t *proper(const loong_kernel_query_t *query)
{
    char reason[LOONG_REASON_SIZE];
    const loong_kernel_t *kernel = NULL;
    int i = 0;
    do {
        kernel = loong_find_kernel(any, query->op, "cpu", i++);
    } while (is_poison(kernel) || (kernel->support != NULL &&
                                   !kernel->support(query, reason)));
    return kernel;
}

static size_t workspace(const loong_kernel_query_t *query)
{
    const loong_kernel_t *kernel = proper(query);
    return kernel->workspace != NULL ? kernel->workspace(query) : 0;
}

static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *query,
                              void **state_p)
{
    inner_t *inner = NULL;
    loong_status_t status =
        loongi_alloc(ctx, sizeof(*inner), "kernel behind NaN", &inner);
    if (status == LOONG_OK) {
        inner->kernel = proper(query);
        inner->state = NULL;
        *state_p = inner;
        status = inner->kernel->prepare != NULL
                     ? inner->kernel->prepare(ctx, query, &inner->state)
                     : LOONG_OK;
    }
    return status;
}

static void destroy(loong_context_t *ctx, void *state)
{
    inner_t *inner = state;
    if (inner->kernel->destroy != NULL) {
        inner->kernel->destroy(ctx, inner->state);
    }
    loongi_free(ctx, inner);
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const inner_t *inner = call->state;
    const loong_karg_t *y = &call->query->arg[call->query->num_in];
    size_t size = loong_dtype_size(y->dtype);
    char *at = call->ptr[call->query->num_in];
    loong_kernel_call_t behind = *call;
    behind.state = inner->state;
    /* What overwrites an input still has to read it. */
    bool reads = false;
    for (int i = 0; i < call->query->num_in; i++) {
        reads = reads || call->ptr[i] == at;
    }
    for (int64_t r = 0; r < y->dim[0] && !reads; r++) {
        memset(at + (size_t)(r * y->ld) * size, 0xff,
               (size_t)y->dim[1] * size);
    }
    return inner->kernel->run(&behind);
}

#define POISON(op_, communicates_)                                            \
    {.name = "poison_" #op_, .op = #op_, .device = "cpu",                     \
     .workspace = workspace, .prepare = prepare, .destroy = destroy,          \
     .run = run, .communicates = communicates_}

static const loong_kernel_t kernels[] = {
    POISON(permute, false), POISON(grouped_linear, false),
    POISON(swiglu, false), POISON(swiglu_grad, false),
    POISON(exchange_rows, true)};

loong_status_t __real_loong_register_builtin(loong_context_t *ctx);
loong_status_t __wrap_loong_register_builtin(loong_context_t *ctx);

loong_status_t __wrap_loong_register_builtin(loong_context_t *ctx)
{
    bool before = loong_find_op(ctx, "permute") != NULL;
    loong_status_t status = __real_loong_register_builtin(ctx);
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]) && !before &&
                       status == LOONG_OK; i++) {
        status = loong_register_kernel(ctx, &kernels[i]);
    }
    any = ctx;
    return status;
}
