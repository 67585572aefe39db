/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel of a device that is the processor's: slow, and right. Entered by
 * src/plan/choices.c for the ops that a recipe names. Read host_kernel.h
 * before. */
#include "host_kernel.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "comm_run.h"
#include "loong/device.h"
#include "loong/mesh.h"
#include "loong/register.h"
#include "slots.h"

typedef struct host_kernel {
    struct host_kernel *next;
    loong_kernel_t kernel;
    char name[96];
    char op[64];
    char device[32];
    _Atomic int64_t launches; /* by whatever rank of the context */
    _Atomic int64_t nanoseconds;
} host_kernel_t;

#define SLOT "kernels on the host"

typedef struct state {
    host_kernel_t *of;
    const loong_kernel_t *kernel; /* of the processor */
    void *inner;                  /* what it prepared */
    char *operand[LOONG_MAX_OPERANDS];
    void *workspace;
} state_t;

/* ---- operands ------------------------------------------------------------ */

static size_t reach(const loong_karg_t *a)
{
    int64_t rows = loong_karg_rows(a);
    int64_t cols = loong_karg_cols(a);
    int64_t apart = a->rank > 1 ? a->ld : cols;
    return rows > 0 ? (size_t)((rows - 1) * apart + cols) *
                          loong_dtype_size(a->dtype)
                    : 0;
}

/* Rows alone: between them there is another op's. */
static loong_status_t move(const loong_kernel_call_t *call, int i, char *host,
                           bool back)
{
    const loong_karg_t *a = &call->query->arg[i];
    size_t size = loong_dtype_size(a->dtype);
    size_t cols = (size_t)loong_karg_cols(a) * size;
    void *dst = back ? call->ptr[i] : host;
    const void *src = back ? host : call->ptr[i];
    if (reach(a) == 0) {
        return LOONG_OK;
    }
    if (a->rank <= 1 || a->ld == loong_karg_cols(a)) {
        return loong_device_stream_copy(call->device, call->stream, dst, src,
                                        reach(a));
    }
    size_t apart = (size_t)a->ld * size;
    loong_device_rows_t r = {dst, apart, src, apart, cols,
                             (size_t)loong_karg_rows(a)};
    return loong_device_stream_copy_rows(call->device, call->stream, &r);
}

/* ---- kernel -------------------------------------------------------------- */

static const loong_kernel_t *choose(loong_context_t *ctx,
                                    const loong_kernel_query_t *q)
{
    char reason[LOONG_REASON_SIZE];
    const loong_kernel_t *k = NULL;
    for (int i = 0; (k = loong_find_kernel(ctx, q->op, "cpu", i)) != NULL;
         i++) {
        if (k->support == NULL || k->support(q, reason)) {
            break;
        }
    }
    return k;
}

static void destroy(loong_context_t *ctx, void *state)
{
    state_t *s = state;
    if (s == NULL) {
        return;
    }
    if (s->kernel != NULL && s->kernel->destroy != NULL) {
        s->kernel->destroy(ctx, s->inner);
    }
    for (int i = 0; i < LOONG_MAX_OPERANDS; i++) {
        loongi_free(ctx, s->operand[i]);
    }
    loongi_free(ctx, s->workspace);
    loongi_free(ctx, s);
}

static loong_status_t fill_state(loong_context_t *ctx,
                                 const loong_kernel_query_t *q, state_t *s)
{
    s->kernel = choose(ctx, q);
    LOONG_CHECK(ctx, s->kernel != NULL, LOONG_ERR_UNSUPPORTED,
                "%s: no kernel of the processor takes it", q->op);
    for (int i = 0; i < q->num_in + q->num_out; i++) {
        if (q->arg[i].rank > 0) {
            LOONG_TRY(loongi_alloc(ctx, LOONG_MAX(reach(&q->arg[i]), 1),
                                   "operand on the host", &s->operand[i]));
        }
    }
    size_t room = s->kernel->workspace != NULL ? s->kernel->workspace(q) : 0;
    LOONG_TRY(loongi_alloc(ctx, LOONG_MAX(room, 1), "workspace on the host",
                           &s->workspace));
    return s->kernel->prepare != NULL ? s->kernel->prepare(ctx, q, &s->inner)
                                      : LOONG_OK;
}

static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *query, void **state_p)
{
    state_t *s = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*s), "kernel on the host", &s));
    s->of = loongi_context_slot(ctx, SLOT)->data;
    while (strcmp(s->of->op, query->op) != 0) {
        s->of = s->of->next;
    }
    loong_status_t status = fill_state(ctx, query, s);
    if (status != LOONG_OK) {
        destroy(ctx, s);
        return status;
    }
    *state_p = s;
    return LOONG_OK;
}

/* Operands that lie at one place there lie at one place here. */
static char *place_of(const loong_kernel_call_t *call, const state_t *s, int i)
{
    for (int k = 0; k < i; k++) {
        if (call->ptr[k] == call->ptr[i] &&
            reach(&call->query->arg[k]) >= reach(&call->query->arg[i])) {
            return s->operand[k];
        }
    }
    return s->operand[i];
}

/* Ranks that share a vocabulary exchange on memory of the host. */
static void find_groups(const loong_kernel_call_t *call,
                        loong_comm_t *group[LOONG_GROUP_COUNT])
{
    for (int g = 0; g < LOONG_GROUP_COUNT; g++) {
        loong_comm_t *comm = call->group[g];
        group[g] = comm != NULL ? loongi_comm_host(comm) : NULL;
    }
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const state_t *s = call->state;
    loong_comm_t *group[LOONG_GROUP_COUNT];
    void *ptr[LOONG_MAX_OPERANDS];
    int count = q->num_in + q->num_out;
    if (call->load) {
        return LOONG_OK;
    }
    LOONG_TRY(loong_device_stream_synchronize(call->device, call->stream));
    double start = loongi_now();
    for (int i = 0; i < count; i++) {
        ptr[i] = call->ptr[i] != NULL ? place_of(call, s, i) : NULL;
        if (ptr[i] == s->operand[i] && ptr[i] != NULL) {
            LOONG_TRY(move(call, i, ptr[i], false));
        }
    }
    loong_kernel_call_t inner = *call;
    inner.state = s->inner;
    inner.ptr = ptr;
    inner.workspace = s->workspace;
    inner.stream = NULL;
    inner.device = NULL;
    inner.device_frame = NULL;
    inner.error = NULL;
    if (call->group != NULL) {
        find_groups(call, group);
        inner.group = group;
    }
    LOONG_TRY(loong_device_stream_synchronize(call->device, call->stream));
    LOONG_TRY(s->kernel->run(&inner));
    for (int i = q->num_in; i < count; i++) {
        if (ptr[i] != NULL) {
            LOONG_TRY(move(call, i, ptr[i], true));
        }
    }
    atomic_fetch_add(&s->of->launches, 1);
    atomic_fetch_add(&s->of->nanoseconds,
                     (int64_t)(1e9 * (loongi_now() - start)));
    return LOONG_OK;
}

/* ---- list ---------------------------------------------------------------- */

static void destroy_list(loong_context_t *ctx, void *data)
{
    host_kernel_t *k = data;
    while (k != NULL) {
        host_kernel_t *next = k->next;
        loongi_free(ctx, k);
        k = next;
    }
}

double loongi_host_kernels_seconds(const loong_context_t *ctx)
{
    const host_kernel_t *k = loongi_context_look(ctx, SLOT);
    double seconds = k != NULL ? 0.0 : NAN;
    for (; k != NULL; k = k->next) {
        seconds += 1e-9 * (double)k->nanoseconds;
    }
    return seconds;
}

void loongi_host_kernels_describe(const loong_context_t *ctx,
                                  loong_text_t *text)
{
    const host_kernel_t *k = loongi_context_look(ctx, SLOT);
    const char *between = "";
    for (; k != NULL; k = k->next) {
        if (k->launches > 0) {
            loongi_text_printf(text, "%s%s %.2f s in %lld launches", between,
                               k->op, 1e-9 * (double)k->nanoseconds,
                               (long long)k->launches);
            between = ", ";
        }
    }
}

loong_status_t loongi_host_kernel_register(loong_context_t *ctx,
                                           const char *device, const char *op)
{
    loong_slot_t *slot = loongi_context_slot(ctx, SLOT);
    host_kernel_t *k = NULL;
    LOONG_CHECK(ctx, loong_find_kernel(ctx, op, "cpu", 0) != NULL,
                LOONG_ERR_NOT_FOUND, "the processor has no op '%s'", op);
    for (k = slot->data; k != NULL; k = k->next) {
        if (strcmp(k->op, op) == 0 && strcmp(k->device, device) == 0) {
            return LOONG_OK;
        }
    }
    LOONG_TRY(loongi_alloc(ctx, sizeof(*k), "kernel on the host", &k));
    k->next = slot->data;
    slot->data = k;
    slot->destroy = destroy_list;
    snprintf(k->op, sizeof(k->op), "%s", op);
    snprintf(k->name, sizeof(k->name), "%s_host", op);
    snprintf(k->device, sizeof(k->device), "%s", device);
    k->kernel.name = k->name;
    k->kernel.op = k->op;
    k->kernel.device = k->device;
    k->kernel.prepare = prepare;
    k->kernel.destroy = destroy;
    k->kernel.run = run;
    k->kernel.joins = loong_find_kernel(ctx, op, "cpu", 0)->joins;
    k->kernel.waits = true; /* the host waits: it is no part of a graph */
    return loong_register_kernel(ctx, &k->kernel);
}
