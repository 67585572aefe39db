/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between memory of several kinds, in parts: the same tag for all,
 * which arrive in order. Memory for those under way is taken beforehand. Called
 * by staged_comm.c. Read staged_impl.h before. */
#include "staged_impl.h"

#include <string.h>

static loong_status_t make_message(staged_t *s, staged_message_t *m)
{
    loong_device_t *device = s->root->device;
    void *memory = NULL;
    if (loong_device_is_host(device)) {
        return LOONG_OK;
    }
    LOONG_TRY(loong_device_event_create(device, &m->free));
    LOONG_TRY(loong_device_host_alloc(device, s->bytes, "staged messages",
                                      &memory));
    m->memory = memory;
    s->root->held += s->bytes;
    return LOONG_OK;
}

/* False: a part is under way all the same. */
static bool cancel_parts(const staged_t *s, staged_message_t *m)
{
    bool done = true;
    for (int i = 0; i < m->posted; i++) {
        done = loong_comm_cancel(s->host, &m->part[i]) && done;
    }
    m->posted = done ? 0 : m->posted;
    return done;
}

static void free_message(const staged_t *s, staged_message_t *m)
{
    loong_device_event_destroy(s->root->device, m->free);
    if (m->memory != NULL && !loongi_staged_is_lost(s->root)) {
        loong_device_host_free(s->root->device, m->memory);
        s->root->held -= s->bytes;
    }
}

/* Parts that are under way all the same keep the messages and their memory; a
 * device that was given up keeps the memory. */
void loongi_staged_release(staged_t *s)
{
    bool done = true;
    for (int i = 0; i < s->num_messages; i++) {
        done = cancel_parts(s, &s->messages[i]) && done;
    }
    for (int i = 0; i < s->num_messages && done; i++) {
        free_message(s, &s->messages[i]);
    }
    if (done) {
        loongi_free(s->root->ctx, s->messages);
    }
    s->messages = NULL;
    s->num_messages = 0;
}

loong_status_t loongi_staged_reserve(staged_t *s, int count, size_t bytes)
{
    loong_context_t *ctx = s->root->ctx;
    if (count <= s->num_messages && bytes <= s->bytes) {
        return LOONG_OK;
    }
    count = LOONG_MAX(count, s->num_messages);
    for (int i = 0; i < s->num_messages; i++) {
        LOONG_CHECK(ctx, !s->messages[i].busy, LOONG_ERR_INTERNAL,
                    "room for messages of %s while some are under way",
                    s->comm->name);
    }
    /* The device may still read what came last. */
    LOONG_TRY(loong_device_synchronize(s->root->device, "room for messages"));
    loongi_staged_release(s);
    LOONG_TRY(loongi_calloc(ctx, (size_t)count, sizeof(*s->messages),
                            "staged messages", &s->messages));
    s->num_messages = count;
    s->bytes = LOONG_MAX(bytes, s->bytes);
    for (int i = 0; i < count; i++) {
        LOONG_TRY(make_message(s, &s->messages[i]));
    }
    return LOONG_OK;
}

/* Room for one more. */
static loong_status_t take(staged_t *s, loong_comm_request_t *request,
                           staged_message_t **message_p)
{
    int i = 0;
    while (i < s->num_messages && s->messages[i].busy) {
        i++;
    }
    LOONG_CHECK(s->root->ctx, i < s->num_messages && request->bytes <= s->bytes,
                LOONG_ERR_INTERNAL,
                "%s: a message of %zu bytes beside %d others, room is for %d "
                "of %zu",
                s->comm->name, request->bytes, i, s->num_messages, s->bytes);
    staged_message_t *m = &s->messages[i];
    if (m->free != NULL) {
        LOONG_TRY(loongi_staged_await(s, m->free, "room for a message"));
    }
    m->busy = true;
    size_t parts = request->bytes / (s->root->piece / 4);
    m->parts = (int)LOONG_MIN(LOONG_MAX(parts, 1), STAGED_PARTS);
    request->backend[0] = (uint64_t)i + 1;
    *message_p = m;
    return LOONG_OK;
}

static size_t part_begin(const loong_comm_request_t *request, int parts, int i)
{
    return request->bytes / (size_t)parts * (size_t)i;
}

static size_t part_bytes(const loong_comm_request_t *request, int parts, int i)
{
    size_t end = i + 1 == parts ? request->bytes
                                : part_begin(request, parts, i + 1);
    return end - part_begin(request, parts, i);
}

/* All copies are on the stream before the first is waited for. */
static loong_status_t copy_out(staged_t *s, staged_message_t *m,
                               const char *data,
                               const loong_comm_request_t *request)
{
    loong_device_t *device = s->root->device;
    void *stream = loongi_staged_stream(s);
    for (int i = 0; i < m->parts; i++) {
        size_t begin = part_begin(request, m->parts, i);
        LOONG_TRY(loong_device_stream_copy(
            device, stream, m->memory + begin, data + begin,
            part_bytes(request, m->parts, i)));
        LOONG_TRY(loong_device_event_record(device, s->copied[i], stream));
    }
    return LOONG_OK;
}

loong_status_t loongi_staged_isend(staged_t *s, const void *data,
                                   loong_comm_request_t *request)
{
    staged_message_t *m = NULL;
    LOONG_TRY(take(s, request, &m));
    const char *from = data;
    if (m->memory != NULL) {
        LOONG_TRY(loong_device_event_record(s->root->device, m->free,
                                            loongi_staged_stream(s)));
        LOONG_TRY(copy_out(s, m, data, request));
        LOONG_TRY(loongi_staged_await(s, m->free, "a message"));
        from = m->memory;
    }
    double ready = loongi_staged_ready(s, m);
    for (int i = 0; i < m->parts; i++) {
        if (m->memory != NULL) {
            LOONG_TRY(loongi_staged_await(s, s->copied[i], "a message"));
        }
        if (m->memory != NULL && i + 1 == m->parts) {
            loongi_staged_copied(s, ready);
        }
        LOONG_TRY(loong_comm_isend(
            s->host, from + part_begin(request, m->parts, i),
            part_bytes(request, m->parts, i), request->peer, request->tag,
            &m->part[i]));
        m->posted++;
    }
    LOONG_TRY(loong_comm_isend(s->host, &m->stamp, sizeof(m->stamp),
                               request->peer, request->tag,
                               &m->part[m->parts]));
    m->posted++;
    return LOONG_OK;
}

loong_status_t loongi_staged_irecv(staged_t *s, loong_comm_request_t *request)
{
    staged_message_t *m = NULL;
    LOONG_TRY(take(s, request, &m));
    char *to = m->memory != NULL ? m->memory : request->data;
    for (int i = 0; i < m->parts; i++) {
        LOONG_TRY(loong_comm_irecv(
            s->host, to + part_begin(request, m->parts, i),
            part_bytes(request, m->parts, i), request->peer, request->tag,
            &m->part[i]));
        m->posted++;
    }
    LOONG_TRY(loong_comm_irecv(s->host, &m->stamp, sizeof(m->stamp),
                               request->peer, request->tag,
                               &m->part[m->parts]));
    m->posted++;
    return LOONG_OK;
}

static loong_status_t wait_part(staged_t *s, staged_message_t *m, int i)
{
    double since = loongi_now();
    LOONG_TRY((loong_comm_wait)(
        loong_comm_at(s->host, s->comm->current->file, s->comm->current->line),
        &m->part[i]));
    loongi_staged_waited(s, since);
    return LOONG_OK;
}

static loong_status_t wait_parts(staged_t *s, staged_message_t *m,
                                 const loong_comm_request_t *request)
{
    bool comes = request->kind == (int)LOONG_COLLECTIVE_RECV;
    void *stream = loongi_staged_stream(s);
    for (int i = 0; i < m->parts; i++) {
        size_t begin = part_begin(request, m->parts, i);
        LOONG_TRY(wait_part(s, m, i));
        if (comes && m->memory != NULL) {
            LOONG_TRY(loong_device_stream_copy(
                s->root->device, stream, (char *)request->data + begin,
                m->memory + begin, part_bytes(request, m->parts, i)));
        }
    }
    return wait_part(s, m, m->parts);
}

loong_status_t loongi_staged_wait(staged_t *s, loong_comm_request_t *request)
{
    staged_message_t *m = &s->messages[request->backend[0] - 1];
    bool comes = request->kind == (int)LOONG_COLLECTIVE_RECV;
    LOONG_TRY(loongi_staged_begin_wait(s, m, comes));
    loong_status_t status = wait_parts(s, m, request);
    loongi_staged_end_wait(s);
    LOONG_TRY(status);
    if (comes) {
        loongi_staged_arrived(s, m, request->bytes);
    }
    m->posted = 0;
    if (m->free != NULL) {
        LOONG_TRY(loong_device_event_record(s->root->device, m->free,
                                            loongi_staged_stream(s)));
    }
    m->busy = false;
    request->backend[0] = 0; /* the room is the next message's */
    return LOONG_OK;
}

/* The room is not given again: what the device copies may be under way. */
bool loongi_staged_cancel(staged_t *s, loong_comm_request_t *request)
{
    uint64_t number = request->backend[0]; /* 0: it has no room */
    return number == 0 || cancel_parts(s, &s->messages[number - 1]);
}
