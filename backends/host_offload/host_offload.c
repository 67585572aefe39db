/* SPDX-License-Identifier: Apache-2.0
 *
 * A small whole device: memory that the host cannot touch, streams that are
 * threads of their own, events, and the processor's kernels. An extension
 * (loong/extension.h): the library knows nothing of it. docs/devices/porting.md
 * goes through it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "list.h"
#include <loong/device.h>
#include <loong/extension.h>
#include <loong/loss_ops.h>
#include <loong/register.h>

enum { DEVICES = 8, ALIGN = 256, ROOM = 1 << 30 }; /* bytes of memory */

#define UNUSED __attribute__((unused))
#define TRY(expr_)                            \
    do {                                      \
        loong_status_t try_status_ = (expr_); \
        if (try_status_ != LOONG_OK) {        \
            return try_status_;               \
        }                                     \
    } while (0)

/* ---- memory -------------------------------------------------------------- */

/* What is given out of some room, by where it begins. */
typedef struct block {
    struct block *next;
    size_t begin, size;
} block_t;

typedef struct room {
    pthread_mutex_t lock;
    char *base; /* what the host is given */
    char *real; /* where the bytes are */
    block_t *blocks;
} room_t;

static bool is_in(const room_t *room, const void *ptr)
{
    return (const char *)ptr >= room->base &&
           (const char *)ptr < room->base + ROOM;
}

/* The first gap that is large enough. */
static void *take(room_t *room, size_t bytes)
{
    block_t **at = &room->blocks;
    block_t *b = malloc(sizeof(*b));
    size_t begin = 0;
    size_t size = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    pthread_mutex_lock(&room->lock);
    while (*at != NULL && (*at)->begin - begin < size) {
        begin = (*at)->begin + (*at)->size;
        at = &(*at)->next;
    }
    bool fits = b != NULL && begin + size <= ROOM;
    if (fits) {
        *b = (block_t){*at, begin, size};
        *at = b;
        memset(room->real + begin, 0, size);
    } else {
        free(b);
    }
    pthread_mutex_unlock(&room->lock);
    return fits ? room->base + begin : NULL;
}

static void give_back(room_t *room, const void *ptr)
{
    block_t **at = &room->blocks;
    pthread_mutex_lock(&room->lock);
    while (*at != NULL && room->base + (*at)->begin != ptr) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        block_t *b = *at;
        *at = b->next;
        free(b);
    }
    pthread_mutex_unlock(&room->lock);
}

/* Nobody can touch what the host is given. */
static bool open_room(room_t *room)
{
    enum { ANY = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };
    pthread_mutex_init(&room->lock, NULL);
    room->base = mmap(NULL, ROOM, PROT_NONE, ANY, -1, 0);
    room->real = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, ANY, -1, 0);
    return room->real != MAP_FAILED && room->base != MAP_FAILED;
}

static void close_room(room_t *room)
{
    while (room->blocks != NULL) {
        give_back(room, room->base + room->blocks->begin);
    }
    munmap(room->base, ROOM);
    munmap(room->real, ROOM);
}

/* ---- streams ------------------------------------------------------------- */

typedef struct stream stream_t;

/* Everything that was put on a stream before some moment. */
typedef struct moment {
    stream_t *stream; /* NULL: nothing */
    uint64_t count;
} moment_t;

/* A piece of work; pointers are real ones. */
typedef struct task {
    struct task *next;
    enum { COPY, LAUNCH, WAIT } kind;
    loong_device_rows_t rows; /* COPY; src NULL: of so many bytes */
    int byte;
    moment_t moment; /* WAIT */
    const loong_kernel_t *kernel;
    loong_kernel_call_t call;
    void *ptr[LOONG_MAX_OPERANDS];
} task_t;

struct stream {
    stream_t *next;
    struct device *device;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    task_t *first, **last;
    uint64_t put, done;
    bool ends;
    loong_context_t *ctx;  /* of the thread, for kernels */
    loong_status_t status; /* of the first that failed */
};

typedef struct device {
    loong_context_t *ctx;
    room_t memory;
    pthread_mutex_t lock;
    stream_t *streams; /* those that were destroyed as well */
    stream_t *compute;
} device_t;

/* What is behind a pointer that the library has. */
static void *real(const device_t *d, const void *ptr)
{
    return is_in(&d->memory, ptr)
               ? d->memory.real + ((const char *)ptr - d->memory.base)
               : (void *)(uintptr_t)ptr;
}

static void await(moment_t m)
{
    if (m.stream == NULL) {
        return;
    }
    pthread_mutex_lock(&m.stream->lock);
    while (m.stream->done < m.count) {
        pthread_cond_wait(&m.stream->changed, &m.stream->lock);
    }
    pthread_mutex_unlock(&m.stream->lock);
}

static moment_t now(stream_t *s)
{
    pthread_mutex_lock(&s->lock);
    moment_t m = {s, s->put};
    pthread_mutex_unlock(&s->lock);
    return m;
}

static loong_status_t work(task_t *t)
{
    loong_device_rows_t *r = &t->rows;
    switch (t->kind) {
    case COPY:
        if (r->src == NULL) {
            memset(r->dst, t->byte, r->bytes);
        }
        for (size_t i = 0; i < r->rows; i++) {
            memmove((char *)r->dst + i * r->dst_apart,
                    (const char *)r->src + i * r->src_apart, r->bytes);
        }
        return LOONG_OK;
    case WAIT:
        await(t->moment);
        return LOONG_OK;
    default:
        return t->kernel->run(&t->call);
    }
}

static void *run_stream(void *argument)
{
    stream_t *s = argument;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->first == NULL && !s->ends) {
            pthread_cond_wait(&s->changed, &s->lock);
        }
        task_t *t = s->first;
        if (t == NULL) {
            break;
        }
        s->first = t->next;
        s->last = s->first == NULL ? &s->first : s->last;
        pthread_mutex_unlock(&s->lock);
        loong_status_t status = work(t);
        free(t);
        pthread_mutex_lock(&s->lock);
        s->status = s->status == LOONG_OK ? status : s->status;
        s->done++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static loong_status_t put(stream_t *s, const task_t *task)
{
    task_t *t = malloc(sizeof(*t));
    if (t == NULL) {
        return LOONG_ERR_MEMORY;
    }
    *t = *task;
    t->next = NULL;
    t->call.ptr = t->ptr;
    t->call.ctx = s->ctx;
    pthread_mutex_lock(&s->lock);
    *s->last = t;
    s->last = &t->next;
    s->put++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return LOONG_OK;
}

static loong_status_t stream_create(void *data, void **stream_p)
{
    device_t *d = data;
    stream_t *s = calloc(1, sizeof(*s));
    if (s == NULL || loong_context_create(NULL, &s->ctx) != LOONG_OK) {
        free(s);
        return LOONG_ERR_MEMORY;
    }
    s->device = d;
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->thread, NULL, run_stream, s) != 0) {
        loong_context_destroy(&s->ctx);
        free(s);
        return LOONG_ERR_DEVICE;
    }
    pthread_mutex_lock(&d->lock);
    s->next = d->streams;
    d->streams = s;
    pthread_mutex_unlock(&d->lock);
    *stream_p = s;
    return LOONG_OK;
}

/* It stays in the list: events may stand for what was on it. */
static void stream_destroy(UNUSED void *data, void *stream)
{
    stream_t *s = stream;
    pthread_mutex_lock(&s->lock);
    bool ended = s->ends;
    s->ends = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (!ended) {
        pthread_join(s->thread, NULL);
        loong_context_destroy(&s->ctx);
    }
}

static loong_status_t synchronize(UNUSED void *data, void *stream)
{
    stream_t *s = stream;
    await(now(s));
    return s->status == LOONG_OK
               ? LOONG_OK
               : loong_extension_fail(s->device->ctx, s->status,
                                      loong_context_error(s->ctx));
}

static void *compute_stream(void *data)
{
    return ((device_t *)data)->compute;
}

/* ---- events -------------------------------------------------------------- */

static loong_status_t event_create(UNUSED void *data, void **event_p)
{
    *event_p = calloc(1, sizeof(moment_t));
    return *event_p != NULL ? LOONG_OK : LOONG_ERR_MEMORY;
}

static void event_destroy(UNUSED void *data, void *event)
{
    free(event);
}

static loong_status_t event_record(UNUSED void *data, void *event, void *stream)
{
    *(moment_t *)event = now(stream);
    return LOONG_OK;
}

static loong_status_t event_wait(UNUSED void *data, void *event, void *stream)
{
    task_t t = {.kind = WAIT, .moment = *(moment_t *)event};
    stream_t *s = stream;
    return t.moment.stream != NULL && t.moment.stream != s ? put(s, &t)
                                                           : LOONG_OK;
}

static loong_status_t event_done(UNUSED void *data, void *event, bool *done_p)
{
    moment_t m = *(moment_t *)event;
    *done_p = true;
    if (m.stream == NULL) {
        return LOONG_OK;
    }
    pthread_mutex_lock(&m.stream->lock);
    *done_p = m.stream->done >= m.count;
    pthread_mutex_unlock(&m.stream->lock);
    return m.stream->status;
}

/* ---- copies -------------------------------------------------------------- */

/* Ordinary memory of the host may change or go when this returns. */
static loong_status_t copy_rows(void *data, void *stream,
                                const loong_device_rows_t *rows)
{
    device_t *d = data;
    task_t t = {.kind = COPY, .rows = *rows};
    t.rows.dst = real(d, rows->dst);
    t.rows.src = real(d, rows->src);
    TRY(put(stream, &t));
    return is_in(&d->memory, rows->dst) && is_in(&d->memory, rows->src)
               ? LOONG_OK
               : synchronize(d, stream);
}

static loong_status_t copy(void *data, void *stream, void *dst, const void *src,
                           size_t bytes)
{
    loong_device_rows_t r = {dst, bytes, src, bytes, bytes, 1};
    return copy_rows(data, stream, &r);
}

static loong_status_t fill(void *data, void *stream, void *dst, int byte,
                           size_t bytes)
{
    device_t *d = data;
    task_t t = {.byte = byte, .rows = {.dst = real(d, dst), .bytes = bytes}};
    return put(stream, &t);
}

/* ---- the device ---------------------------------------------------------- */

static void wait_for_all(device_t *d)
{
    for (stream_t *s = d->streams; s != NULL; s = s->next) {
        await(now(s));
    }
}

static loong_status_t alloc(UNUSED loong_context_t *ctx, void *data,
                            size_t bytes, UNUSED const char *what, void **ptr_p)
{
    wait_for_all(data);
    *ptr_p = take(&((device_t *)data)->memory, bytes);
    return *ptr_p != NULL ? LOONG_OK : LOONG_ERR_MEMORY;
}

static void free_memory(UNUSED loong_context_t *ctx, void *data, void *ptr,
                        UNUSED size_t bytes)
{
    wait_for_all(data);
    give_back(&((device_t *)data)->memory, ptr);
}

static void destroy(UNUSED loong_context_t *ctx, void *data)
{
    device_t *d = data;
    while (d->streams != NULL) {
        stream_t *s = d->streams;
        d->streams = s->next;
        stream_destroy(d, s);
        free(s);
    }
    close_room(&d->memory);
    free(d);
}

static loong_status_t create(loong_context_t *ctx, UNUSED int index,
                             void **data_p)
{
    device_t *d = calloc(1, sizeof(*d));
    void *stream = NULL;
    if (d == NULL) {
        return LOONG_ERR_MEMORY;
    }
    d->ctx = ctx;
    pthread_mutex_init(&d->lock, NULL);
    bool memory = open_room(&d->memory);
    if (!memory || stream_create(d, &stream) != LOONG_OK) {
        destroy(ctx, d);
        return LOONG_ERR_DEVICE;
    }
    d->compute = stream;
    *data_p = d;
    return LOONG_OK;
}

static int count(UNUSED char *reason, UNUSED size_t size)
{
    return DEVICES;
}

static void caps(UNUSED const void *data, loong_device_caps_t *caps_p)
{
    caps_p->rate[LOONG_F64] = LOONG_RATE_VECTOR;
    caps_p->rate[LOONG_F32] = LOONG_RATE_VECTOR;
    caps_p->rate[LOONG_BF16] = LOONG_RATE_SLOW;
    caps_p->align = 1;
}

static void describe(UNUSED void *data, char *text, size_t size)
{
    snprintf(text, size,
             "threads of this processor, %d MiB that the host cannot touch",
             ROOM >> 20);
}

static const loong_device_ops_t ops = {
    .name = "host_offload",
    .caps = caps,
    .count = count,
    .create = create,
    .destroy = destroy,
    .alloc = alloc,
    .free = free_memory,
    .copy = copy,
    .copy_rows = copy_rows,
    .fill = fill,
    .synchronize = synchronize,
    .compute_stream = compute_stream,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_done = event_done,
    .describe = describe,
};

/* ---- kernels ------------------------------------------------------------- */

typedef struct state {
    const loong_kernel_t *kernel; /* of the processor */
    void *inner;                  /* what that prepared */
    void *workspace;
} state_t;

/* A loss in parts calls other ranks in between. */
static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    bool shared = loong_loss_is_shared(query->op, query->attr);
    if (shared) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "the vocabulary is in parts on several ranks");
    }
    return !shared;
}

static void forget(loong_context_t *ctx, void *state)
{
    state_t *s = state;
    if (s->kernel->destroy != NULL) {
        s->kernel->destroy(ctx, s->inner);
    }
    free(s->workspace);
    free(s);
}

static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *q, void **state_p)
{
    char reason[LOONG_REASON_SIZE];
    state_t *s = calloc(1, sizeof(*s));
    for (int i = 0; s != NULL; i++) {
        s->kernel = loong_find_kernel(ctx, q->op, "cpu", i);
        if (s->kernel == NULL) {
            free(s);
            return LOONG_ERR_UNSUPPORTED;
        }
        if (s->kernel->support == NULL || s->kernel->support(q, reason)) {
            break;
        }
    }
    size_t room =
        s != NULL && s->kernel->workspace != NULL ? s->kernel->workspace(q) : 0;
    if (s == NULL || posix_memalign(&s->workspace, ALIGN, room + ALIGN) != 0) {
        free(s);
        return LOONG_ERR_MEMORY;
    }
    *state_p = s;
    return s->kernel->prepare != NULL ? s->kernel->prepare(ctx, q, &s->inner)
                                      : LOONG_OK;
}

/* The executor is shown what is on the device of rounds of experts. */
static loong_status_t show(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    int shown = strcmp(q->op, "expert_rounds") == 0   ? q->num_in
                : strcmp(q->op, "expert_routes") == 0 ? q->num_in + 2
                                                      : -1;
    return shown < 0 ? LOONG_OK
                     : loong_device_mirror(
                           call->device, call->stream, call->ptr[shown],
                           (size_t)loong_karg_rows(&q->arg[shown]) *
                               (size_t)loong_karg_cols(&q->arg[shown]) *
                               sizeof(int32_t));
}

static loong_status_t launch(const loong_kernel_call_t *call)
{
    stream_t *stream = call->stream;
    const device_t *d = stream->device;
    const state_t *s = call->state;
    task_t t = {.kind = LAUNCH, .kernel = s->kernel, .call = *call};
    if (call->load) {
        return LOONG_OK;
    }
    for (int i = 0; i < call->query->num_in + call->query->num_out; i++) {
        t.ptr[i] = call->ptr[i] != NULL ? real(d, call->ptr[i]) : NULL;
    }
    t.call.state = s->inner;
    t.call.workspace = s->workspace;
    t.call.frame = real(d, call->device_frame); /* as it is by then */
    t.call.device_frame = NULL;
    t.call.stream = NULL;
    t.call.device = NULL;
    t.call.error = NULL;
    t.call.group = NULL;
    TRY(put(stream, &t));
    return show(call);
}

#define KERNEL(op_)                \
    {.name = #op_ "_host_offload", \
     .op = #op_,                   \
     .device = "host_offload",     \
     .support = support,           \
     .prepare = prepare,           \
     .destroy = forget,            \
     .run = launch},
static const loong_kernel_t kernels[] = {LOONG_REF_KERNELS(KERNEL)};

/* ---- the extension ------------------------------------------------------- */

static loong_status_t enter(loong_context_t *ctx)
{
    TRY(loong_register_device(ctx, &ops));
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
        TRY(loong_register_kernel(ctx, &kernels[i]));
    }
    return LOONG_OK;
}

const loong_extension_t *loong_extension(void);

__attribute__((visibility("default"))) const loong_extension_t *
loong_extension(void)
{
    static const loong_extension_t extension = {.struct_size =
                                                    sizeof(extension),
                                                .name = "host_offload",
                                                .enter = enter};
    return &extension;
}
