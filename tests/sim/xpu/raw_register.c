/* SPDX-License-Identifier: Apache-2.0
 *
 * The raw kernels for XPUs on the host model of their cores, entered as kernels
 * of the processor beside the built-in ones (linked with
 * --wrap=loong_register_builtin): so tests of ops compare them with the
 * references on the host's own memory. Operands, workspace and frame are what a
 * kernel finds in global memory, and nothing beside them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "clustersim.h"
#include "device_error.h"
#include "loong/register.h"
#include "raw_xpu.h"

loong_status_t __real_loong_register_builtin(loong_context_t *ctx);
loong_status_t __wrap_loong_register_builtin(loong_context_t *ctx);

static const loong_kernel_call_t *running;
static size_t workspace_size; /* of it */

static bool is_within(const void *at, size_t bytes, const void *base,
                      size_t size)
{
    uintptr_t from = (uintptr_t)at - (uintptr_t)base;
    return base != NULL && from < size && bytes <= size - from;
}

static size_t bytes_of(const loong_karg_t *a)
{
    int64_t rows = loong_karg_rows(a);
    int64_t cols = loong_karg_cols(a);
    int64_t ld = a->rank > 1 ? a->ld : cols;
    return rows > 0
               ? (size_t)((rows - 1) * ld + cols) * loong_dtype_size(a->dtype)
               : 0;
}

void *clustersim_device_memory(const void *device, size_t bytes, char *text,
                               size_t size)
{
    const loong_kernel_query_t *q = running->query;
    bool found =
        is_within(device, bytes, running->device_frame,
                  sizeof(*running->device_frame)) ||
        is_within(device, bytes, running->error, sizeof(*running->error)) ||
        is_within(device, bytes, running->workspace, workspace_size);
    for (int i = 0; i < q->num_in + q->num_out && !found; i++) {
        found = is_within(device, bytes, running->ptr[i], bytes_of(&q->arg[i]));
    }
    snprintf(text, size, "not within an operand");
    return found ? (void *)(uintptr_t)device : NULL;
}

int clustersim_stream_run(void *stream, int (*run)(void *arg), void *arg)
{
    (void)stream;
    return run(arg);
}

/* ---- kernels of the processor -------------------------------------------- */

static const loong_raw_kernel_t *const all[] = {
#define RAW_ENTRY(op_) &loong_raw_##op_,
    LOONG_RAW_KERNELS(RAW_ENTRY)
#undef RAW_ENTRY
};
enum { COUNT = sizeof(all) / sizeof(all[0]) };

static const loong_raw_kernel_t *find(const char *op)
{
    for (int i = 0; i < COUNT; i++) {
        if (strcmp(all[i]->op, op) == 0) {
            return all[i];
        }
    }
    return NULL;
}

static size_t raw_workspace(const loong_kernel_query_t *query)
{
    const loong_raw_kernel_t *k = find(query->op);
    return k->workspace != NULL ? k->workspace(query) : 0;
}

static bool raw_support(const loong_kernel_query_t *query,
                        char reason[LOONG_REASON_SIZE])
{
    return find(query->op)->support(query, reason);
}

static loong_status_t raw_run(const loong_kernel_call_t *call)
{
    loong_device_error_t error = {0};
    loong_kernel_call_t there = *call;
    there.device_frame = call->frame;
    there.error = &error;
    running = &there;
    workspace_size = raw_workspace(call->query);
    void *own = NULL; /* where a test has none for kernels of the processor */
    if (call->workspace == NULL && workspace_size > 0) {
        own = there.workspace = malloc(workspace_size);
    }
    int failed = find(call->query->op)->launch(&there);
    free(own);
    LOONG_CHECK(call->ctx, failed == 0, LOONG_ERR_DEVICE, "%d: %s", failed,
                clustersim_report());
    return loongi_device_error_take(call->ctx, "raw", 0, &error);
}

loong_status_t __wrap_loong_register_builtin(loong_context_t *ctx)
{
    static loong_kernel_t kernels[COUNT];
    static char names[COUNT][64];
    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof(names[i]), "%s_raw", all[i]->op);
        kernels[i] = (loong_kernel_t){.name = names[i],
                                      .op = all[i]->op,
                                      .device = "cpu",
                                      .support = raw_support,
                                      .workspace = raw_workspace,
                                      .run = raw_run};
    }
    LOONG_TRY(__real_loong_register_builtin(ctx));
    for (int i = 0; i < COUNT; i++) {
        LOONG_TRY(loong_register_kernel(ctx, &kernels[i]));
    }
    return LOONG_OK;
}
