/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of the replay of a cell: edges', matched as MPI does, and
 * pipelines'. */
#include <string.h>

#include "fake_cell_replay.h"

int fake_replay_draw(replay_t *r, int bound)
{
    return (int)fake_draw(r->fake->seed ^ 0x5eed, r->drawn++, (uint64_t)bound);
}

int fake_stage_of(const replay_t *r, int rank, const loong_entry_t *e)
{
    return loongi_schedule_stage(
        fake_cell_of(r)->schedules[e->component],
        loongi_cell_pipeline_rank(fake_cell_of(r), e->component, rank),
        e->chunk);
}

/* ---- messages of edges --------------------------------------------------- */

static bool same_channel(const replay_t *r, const posted_t *a,
                         const posted_t *b)
{
    const loong_message_t *x = &fake_cell_of(r)->params.messages[a->message];
    const loong_message_t *y = &fake_cell_of(r)->params.messages[b->message];
    return x->edge == y->edge && x->backward == y->backward &&
           x->from_rank == y->from_rank && x->to_rank == y->to_rank;
}

static bool carry(replay_t *r, posted_t *from, posted_t *to)
{
    const char *name = fake_message_port(r->fake, to->message, false)->name;
    if (from->bytes != to->bytes) {
        fake_world_fail(&r->world, "%s: %lld bytes are sent, %lld received",
                        name, (long long)from->bytes, (long long)to->bytes);
        return false;
    }
    if (!fake_world_read(&r->world, from->data, from->bytes, name) ||
        !fake_world_write(&r->world, to->data, to->bytes, name)) {
        return false;
    }
    memcpy(to->data, from->data, (size_t)to->bytes);
    from->done = to->done = true;
    r->carried++;
    return true;
}

bool fake_match(replay_t *r)
{
    for (int k = 0; k < r->num_received; k++) {
        posted_t *to = &r->received[k];
        int i = 0;
        while (!to->done && i < r->num_sent &&
               (r->sent[i].done || !same_channel(r, &r->sent[i], to))) {
            i++;
        }
        if (!to->done && i < r->num_sent && !carry(r, &r->sent[i], to)) {
            return false;
        }
    }
    return true;
}

static bool all_done(const posted_t *posted, int count, int message)
{
    int i = 0;
    while (i < count && (posted[i].message != message || posted[i].done)) {
        i++;
    }
    return i == count;
}

int fake_want_edges(replay_t *r, int rank, const loong_entry_t *e,
                    int micro_batch, bool receives, bool backward)
{
    const loong_cell_params_t *p = &fake_cell_of(r)->params;
    if (!fake_match(r)) {
        return WRONG;
    }
    for (int i = 0; i < (int)p->num_messages; i++) {
        const loong_message_end_t *end =
            receives ? &r->fake->to[i] : &r->fake->from[i];
        if (end->rank != rank || end->component != e->component ||
            end->chunk != e->chunk || end->micro_batch != micro_batch ||
            (receives && p->messages[i].backward != backward)) {
            continue;
        }
        bool done = receives ? all_done(r->received, r->num_received, i)
                             : all_done(r->sent, r->num_sent, i);
        if (!r->begun[receives][i] || !done) {
            return WAITS;
        }
    }
    return MOVES;
}

/* The segments of one end; planted faults change them. */
static fake_segment_t segment_of(replay_t *r, int message, int k, bool send)
{
    bool stale = fake_is(r, FAULT_STALE) && send && r->step > 0;
    fake_segment_t s =
        stale ? r->stale[message][k] : r->fake->segments[message][k];
    bool back = fake_cell_of(r)->params.messages[message].backward;
    bool moves =
        s.rows > 0 && (send ? s.from_row : s.to_row) + s.rows < FAKE_EDGE_ROWS;
    r->planted += stale;
    if (moves && fake_is(r, send ? FAULT_FROM_ROW : FAULT_TO_ROW)) {
        *(send ? &s.from_row : &s.to_row) += 1;
        r->planted++;
    }
    if (fake_is(r, FAULT_ROW_BY_NONE) && back && s.rows > 0) {
        s.rows--;
        r->planted++;
    }
    if (fake_is(r, FAULT_ROW_TWICE) && back && s.rows > 0 && s.to_row > 0 &&
        s.from_row > 0) {
        s.from_row--;
        s.to_row--;
        s.rows++;
        r->planted++;
    }
    if (fake_is(r, FAULT_ZERO_SIZE) && send && s.rows == 0 && k == 0) {
        s.rows = 1;
        r->planted++;
    }
    return s;
}

bool fake_post(replay_t *r, int message, const loong_binding_t *run, bool send)
{
    const loong_message_t *m = &fake_cell_of(r)->params.messages[message];
    const loong_port_t *port = fake_message_port(r->fake, message, send);
    posted_t *list = send ? r->sent : r->received;
    int *count = send ? &r->num_sent : &r->num_received;
    r->begun[!send][message] = true;
    for (int k = 0; k < FAKE_SEGMENTS; k++) {
        fake_segment_t s = segment_of(r, message, k, send);
        int64_t bytes = fake_row_bytes(port);
        if (s.rows > 0) {
            list[(*count)++] =
                (posted_t){message,
                           fake_port_data(run, port) +
                               (send ? s.from_row : s.to_row) * bytes,
                           s.rows * bytes, false};
        }
    }
    if (m->from_rank == m->to_rank && !send && !r->begun[0][message]) {
        fake_world_fail(&r->world, "a rank receives what it has not sent");
        return false;
    }
    /* On one rank a message is a copy. */
    return m->from_rank != m->to_rank && fake_replay_draw(r, 2) ? true
                                                                : fake_match(r);
}

/* ---- messages of pipelines ----------------------------------------------- */

int fake_want_passed(replay_t *r, int rank, const loong_entry_t *e,
                     int backward, int stage, int micro_batch)
{
    const loong_schedule_t *s = fake_cell_of(r)->schedules[e->component];
    int from = stage + (backward ? 1 : -1);
    int own = fake_own(r->fake, e->component);
    int stages = loongi_schedule_stages(s);
    if (stage < 0 || stage >= stages || from < 0 || from >= stages) {
        return MOVES;
    }
    int replica = fake_replica(r->fake, e->component, rank);
    if (r->fake->hollow[own][replica][micro_batch]) { /* nothing is sent */
        return MOVES;
    }
    passed_t *m =
        &r->passed[backward][e->component][replica][stage][micro_batch];
    const loong_model_chunk_t *a = r->fake->chunks[own][from];
    const loong_model_chunk_t *b = r->fake->chunks[own][stage];
    if (m->from == NULL || m->to == NULL) {
        return WAITS;
    }
    for (int i = 0; i < a->num_outputs && !m->done; i++) {
        const loong_port_t *out = &a->outputs[i];
        if (out->edge || !(out->boundary || out->gradient) ||
            out->gradient != (backward == 1)) {
            continue;
        }
        const loong_port_t *in = loongi_model_chunk_input(b, out->name);
        loong_binding_t x = loongi_memory_plan_bind(
            r->ranks[m->from_rank], 0, &r->run[m->from_rank], m->from);
        loong_binding_t y = loongi_memory_plan_bind(r->ranks[m->to_rank], 0,
                                                    &r->run[m->to_rank], m->to);
        posted_t send = {0, fake_port_data(&x, out), fake_port_bytes(out),
                         false};
        if (!fake_world_read(&r->world, send.data, send.bytes, out->name) ||
            !fake_world_write(&r->world, fake_port_data(&y, in), send.bytes,
                              in->name)) {
            return WRONG;
        }
        memcpy(fake_port_data(&y, in), send.data, (size_t)send.bytes);
    }
    m->done = true;
    return MOVES;
}
