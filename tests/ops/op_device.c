/* SPDX-License-Identifier: Apache-2.0 */
#include "op_device.h"

#include "loong/device.h"
#include "loong/register.h"
#include "replay.h"

/* A call on the device: its copies of what the host has. */
typedef struct there {
    loong_device_t *device;
    loong_kernel_call_t call;
    void *ptr[LOONG_MAX_OPERANDS];
    size_t size[LOONG_MAX_OPERANDS]; /* 0: absent, or an earlier one's */
    void *frame;
    void *workspace;
    size_t workspace_size;
} there_t;

bool op_present(const char *op)
{
    loong_context_t *ctx = test_context();
    assert_ok(ctx, loong_register_builtin(ctx));
    bool present = loong_find_kernel(ctx, op, OP_DEVICE, 0) != NULL;
    test_context_end(&ctx);
    return present;
}

static size_t bytes_of(const loong_karg_t *a)
{
    int64_t rows = loong_karg_rows(a);
    int64_t cols = loong_karg_cols(a);
    int64_t ld = a->rank > 1 ? a->ld : cols;
    return rows > 0 ? (size_t)((rows - 1) * ld + cols) *
                          loong_dtype_size(a->dtype)
                    : 0;
}

/* Exactly as long as it is: the device sees every access beyond. Without
 * anything to send it is full of NaN. */
static void *send(const there_t *t, const void *host, size_t size)
{
    void *ptr = NULL;
    assert_ok(t->call.ctx,
              loong_device_alloc(t->device, size, "operand", &ptr));
    assert_ok(t->call.ctx,
              host != NULL ? loong_device_copy(t->device, ptr, host, size)
                           : loong_device_fill(t->device, ptr, 0xff, size));
    return ptr;
}

static void send_operands(there_t *t, void *const *host)
{
    const loong_kernel_query_t *q = t->call.query;
    for (int i = 0; i < q->num_in + q->num_out; i++) {
        int same = 0;
        while (same < i && (host[i] == NULL || host[same] != host[i])) {
            same++;
        }
        if (host[i] == NULL) {
            continue;
        }
        if (same < i) {
            t->ptr[i] = t->ptr[same];
            continue;
        }
        t->size[i] = bytes_of(&q->arg[i]);
        t->ptr[i] = send(t, host[i], t->size[i]);
    }
}

static void open_device(there_t *t, const loong_kernel_t *kernel,
                        const char *device)
{
    assert_ok(t->call.ctx, loong_device_create(t->call.ctx, device, 0,
                                               &t->device));
    t->call.device = t->device;
    t->call.stream = loong_device_stream(t->device);
    t->call.error = loong_device_get_error(t->device);
    t->frame = send(t, t->call.frame, sizeof(*t->call.frame));
    t->call.device_frame = t->frame;
    if (!kernel->waits) {
        t->call.frame = NULL; /* as in a graph */
    }
    t->call.ptr = t->ptr;
    if (kernel->workspace != NULL) {
        t->workspace_size = kernel->workspace(t->call.query);
        t->workspace = send(t, t->call.workspace, t->workspace_size);
        t->call.workspace = t->workspace;
    }
}

/* A bug on request: env OP_PLANT_STRIDE="OP I", the kernel takes the rows of
 * operand I for rows without gaps. */
static const loong_kernel_query_t *plant(const loong_kernel_query_t *query,
                                         loong_kernel_query_t *wrong)
{
    const char *text = getenv("OP_PLANT_STRIDE");
    char op[64];
    int i = 0;
    if (text == NULL || sscanf(text, "%63s %d", op, &i) != 2 ||
        strcmp(op, query->op) != 0 || loong_karg_dense(&query->arg[i])) {
        return query;
    }
    fprintf(stderr, "planted in operand %d of %s\n", i, op);
    *wrong = *query;
    wrong->arg[i].ld = wrong->arg[i].dim[wrong->arg[i].rank - 1];
    return wrong;
}

static void close_device(there_t *t)
{
    for (int i = 0; i < LOONG_MAX_OPERANDS; i++) {
        if (t->size[i] > 0) {
            loong_device_free(t->device, t->ptr[i], t->size[i]);
        }
    }
    loong_device_free(t->device, t->frame, sizeof(loong_frame_t));
    loong_device_free(t->device, t->workspace, t->workspace_size);
    loong_device_destroy(&t->device);
}

loong_status_t op_device_run(const loong_kernel_t *kernel,
                             const loong_kernel_call_t *call)
{
    there_t t;
    const char *device = kernel->device != NULL ? kernel->device : OP_DEVICE;
    if (strcmp(device, "cpu") == 0) {
        uint64_t before = loong_context_alloc_count(call->ctx);
        loong_status_t status = kernel->run(call);
        assert_int_equal(loong_context_alloc_count(call->ctx), before);
        return status;
    }
    memset(&t, 0, sizeof(t));
    t.call = *call;
    open_device(&t, kernel, device);
    send_operands(&t, call->ptr);
    loong_kernel_query_t wrong;
    t.call.query = plant(call->query, &wrong);
    bool made = t.call.state == NULL && kernel->prepare != NULL;
    if (made) {
        assert_ok(call->ctx,
                  kernel->prepare(call->ctx, call->query, &t.call.state));
    }
    uint64_t before = loong_context_alloc_count(call->ctx);
    loong_status_t status = kernel->run(&t.call);
    assert_int_equal(loong_context_alloc_count(call->ctx), before);
    t.call.query = call->query;
    if (made && kernel->destroy != NULL) {
        kernel->destroy(call->ctx, t.call.state);
    }
    for (int i = 0; i < LOONG_MAX_OPERANDS && status == LOONG_OK; i++) {
        if (t.size[i] > 0) {
            status = loong_device_copy(t.device, call->ptr[i], t.ptr[i],
                                       t.size[i]);
        }
    }
    if (status == LOONG_OK) {
        status = loong_device_synchronize(t.device, "operands");
    }
    close_device(&t);
    return status;
}
