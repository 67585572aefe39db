/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of the shim, one for each op that it has: what it is asked for
 * and what it answers is the same for all. Entered by
 * src/registry/registry_builtin.c; read xpu_shim.h before. */
#include <stdio.h>
#include <string.h>

#include "base.h"
#include "list.h"
#include "loong/device.h"
#include "loong/loss_ops.h"
#include "loong/register.h"
#include "xpu_kernels.h"
#include "xpu_library.h"

typedef struct state {
    const loong_xpu_library_t *lib;
    void *shim; /* the shim's own */
} state_t;

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    char why[LOONG_XPU_REASON];
    const loong_xpu_shim_t *shim = loongi_xpu_shim(why, sizeof(why));
    if (loong_loss_is_shared(query->op, query->attr)) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "the vocabulary is in parts on several ranks, the kernel "
                 "shim takes it whole; train.host_ops has the processor do it");
        return false;
    }
    if (shim == NULL) {
        snprintf(reason, LOONG_REASON_SIZE, "%.*s", (int)LOONG_REASON_SIZE - 1,
                 why);
        return false;
    }
    return shim->support(query, reason) != 0;
}

static size_t workspace(const loong_kernel_query_t *query)
{
    char why[LOONG_XPU_REASON];
    const loong_xpu_shim_t *shim = loongi_xpu_shim(why, sizeof(why));
    return shim != NULL ? shim->workspace(query) : 0;
}

static void destroy(loong_context_t *ctx, void *state)
{
    state_t *s = state;
    if (s != NULL && s->shim != NULL) {
        s->lib->shim->destroy(s->shim);
    }
    loongi_free(ctx, s);
}

static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *query, void **state_p)
{
    const loong_xpu_library_t *lib = NULL;
    state_t *s = NULL;
    LOONG_TRY(loongi_xpu_library(ctx, &lib));
    LOONG_CHECK(ctx, lib->shim != NULL, LOONG_ERR_NOT_FOUND,
                "%s: the kernel shim is gone", query->op);
    LOONG_TRY(loongi_alloc(ctx, sizeof(*s), "kernel of the shim", &s));
    s->lib = lib;
    int error = lib->shim->prepare(query, &s->shim);
    if (error != 0) {
        loongi_free(ctx, s);
        return LOONG_FAIL(ctx, LOONG_ERR_DEVICE,
                          "%s: the kernel shim: %s "
                          "(%d)",
                          query->op, lib->shim->last_error(), error);
    }
    *state_p = s;
    return LOONG_OK;
}

/* What the hardware would refuse without a word of which tensor it was. */
static loong_status_t check_alignment(const loong_kernel_call_t *call,
                                      size_t align)
{
    const loong_kernel_query_t *q = call->query;
    for (int i = 0; i < q->num_in + q->num_out; i++) {
        size_t off = (uintptr_t)call->ptr[i] % align;
        LOONG_CHECK(call->ctx, off == 0, LOONG_ERR_ARG,
                    "%s: operand %d begins at %p, %zu bytes behind a multiple "
                    "of %zu, which this kernel shim wants: rows of a multiple "
                    "of %zu elements give that (hidden_size, kv_channels, "
                    "ffn_hidden_size)",
                    q->op, i, call->ptr[i], off, align,
                    align / loong_dtype_size(q->arg[i].dtype));
    }
    return LOONG_OK;
}

/* The host is shown how many rounds there are, and which rows go where. */
static loong_status_t show(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    int shown = strcmp(q->op, "expert_rounds") == 0   ? q->num_in
                : strcmp(q->op, "expert_routes") == 0 ? q->num_in + 2
                                                      : -1;
    if (shown < 0) {
        return LOONG_OK;
    }
    return loong_device_mirror(call->device, call->stream, call->ptr[shown],
                               (size_t)loong_karg_rows(&q->arg[shown]) *
                                   (size_t)loong_karg_cols(&q->arg[shown]) *
                                   sizeof(int32_t));
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const state_t *s = call->state;
    const loong_xpu_library_t *lib = s->lib;
    int index = loong_device_index(call->device);
    if (call->load) {
        return LOONG_OK;
    }
    LOONG_TRY(
        check_alignment(call, loong_device_caps(call->device)->align));
    loong_kernel_call_t inner = *call;
    inner.ctx = NULL;
    inner.state = s->shim;
    inner.frame = NULL;
    inner.group = NULL;
    int before = loongi_xpu_select(lib, index);
    int error = lib->shim->launch(&inner);
    loongi_xpu_restore(lib, index, before);
    LOONG_CHECK(call->ctx, error == 0, LOONG_ERR_DEVICE,
                "xpu:%d: %s: the kernel shim: %s (%d)", index, call->query->op,
                lib->shim->last_error(), error);
    return show(call);
}

#define LOONG_XPU_KERNEL(name_)                                        \
    static const loong_kernel_t name_##_xpu = {.name = #name_ "_xpu",  \
                                               .op = #name_,           \
                                               .device = "xpu",        \
                                               .support = support,     \
                                               .workspace = workspace, \
                                               .prepare = prepare,     \
                                               .destroy = destroy,     \
                                               .run = run};
LOONG_REF_KERNELS(LOONG_XPU_KERNEL)
#undef LOONG_XPU_KERNEL

const loong_kernel_t loongi_xpu_raw = {
    .device = "xpu", .prepare = prepare, .destroy = destroy, .run = run};

/* The newest is the first choice. */
static loong_status_t register_list(loong_context_t *ctx,
                                    const loong_kernel_t *const *list)
{
    int64_t count = 0;
    while (list[count] != NULL) {
        count++;
    }
    while (count > 0) {
        LOONG_TRY(loong_register_kernel(ctx, list[--count]));
    }
    return LOONG_OK;
}

loong_status_t loongi_xpu_kernels_register(loong_context_t *ctx)
{
#define LOONG_XPU_LIST(name_) &name_##_xpu,
    static const loong_kernel_t *const list[] = {
        LOONG_REF_KERNELS(LOONG_XPU_LIST)};
#undef LOONG_XPU_LIST
    char why[LOONG_XPU_REASON];
    const loong_xpu_shim_t *shim = loongi_xpu_shim(why, sizeof(why));
    for (int i = 0; i < LOONG_COUNT_OF(list) && shim != NULL; i++) {
        if (shim->has(list[i]->op)) {
            LOONG_TRY(loong_register_kernel(ctx, list[i]));
        }
    }
    if (shim != NULL) {
        LOONG_TRY(register_list(ctx, loongi_xpu_products));
    }
    if (shim != NULL && shim->has("dequantize_blockwise") &&
        shim->has("bias") && shim->has("copy")) {
        LOONG_TRY(register_list(ctx, loongi_xpu_adapters));
    }
    return shim != NULL && shim->has("softmax_turn")
               ? register_list(ctx, loongi_xpu_heads)
               : LOONG_OK;
}
