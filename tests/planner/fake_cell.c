/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws cells. */
#include "fake_cell.h"

#include <string.h>

#include "rng.h"

typedef struct drawing {
    fake_cell_t *fake;
    uint64_t seed;
    uint64_t index;
} drawing_t;

static int draw(drawing_t *d, int bound)
{
    double u = loongi_rng_uniform(d->seed, 0, d->index++);
    return (int)(u * (double)bound);
}

static const loong_schedule_kind_t *kind_of(const char *name)
{
    int i = 0;
    while (strcmp(loongi_schedule_kinds[i]->name, name) != 0) {
        i++;
    }
    return loongi_schedule_kinds[i];
}

/* Who reads a micro-batch, and what that costs; beside the other draws. */
static void draw_work(fake_cell_t *fake, uint64_t seed, int c)
{
    drawing_t d = {fake, seed ^ 0x3071, (uint64_t)c * 1000};
    loong_cell_component_t *component = &fake->components[c];
    int stages = component->params.ranks * component->params.chunks;
    int turn = draw(&d, 3) > 0 ? draw(&d, component->replicas + 1) : 0;
    component->turn = c + 1 < fake->params.num_components ? turn : 0;
    for (int i = 0; i < stages; i++) {
        fake->work[c][i] = (loong_stage_work_t){
            1 + draw(&d, 40), 1 + draw(&d, 40), 1 + draw(&d, 40)};
    }
    component->work = draw(&d, 4) > 0 ? fake->work[c] : NULL;
}

/* A pipeline on some of the ranks. Components before the first trained one are
 * frozen. */
static void draw_component(drawing_t *d, int c, bool frozen)
{
    loong_cell_component_t *component = &d->fake->components[c];
    loong_schedule_params_t *p = &component->params;
    int ranks = d->fake->params.ranks;
    char reason[LOONG_REASON_SIZE];
    const loong_schedule_kind_t *kind = NULL;
    bool accepted = false;
    while (!accepted) {
        int i = draw(d, 6); /* "evaluate" is the sixth */
        kind = frozen   ? kind_of("evaluate")
               : i == 5 ? kind_of("gpipe")
                        : loongi_schedule_kinds[i];
        memset(p, 0, sizeof(*p));
        p->ranks = 1 + draw(d, LOONG_MIN(ranks, 4));
        p->chunks = 1 + draw(d, 3);
        p->micro_batches = 1 + draw(d, 7);
        p->folded = frozen && draw(d, 3) == 0;
        accepted = kind->accepts == NULL || kind->accepts(p, reason);
    }
    component->schedule = kind->name;
    component->replicas = 1 + draw(d, ranks / p->ranks);
    component->rank = d->fake->rank[c];
    for (int r = 0; r < ranks; r++) {
        d->fake->rank[c][r] = r;
    }
    for (int r = ranks - 1; r > 0; r--) {
        int other = draw(d, r + 1);
        int32_t swap = d->fake->rank[c][r];
        d->fake->rank[c][r] = d->fake->rank[c][other];
        d->fake->rank[c][other] = swap;
    }
}

static int32_t rank_of(const drawing_t *d, int component, int stage,
                       int replica)
{
    const loong_cell_component_t *c = &d->fake->components[component];
    loong_schedule_t s = {.params = c->params};
    s.params.folded = c->params.folded || kind_of(c->schedule)->folded;
    return c->rank[replica * c->params.ranks + loongi_schedule_rank(&s, stage)];
}

static void add(drawing_t *d, loong_message_t message)
{
    d->fake->messages[d->fake->params.num_messages++] = message;
}

/* One of the equal sources sends, all replicas of a row's reader receive; one
 * of the equal readers sends its gradient back, all sources receive. */
static void draw_messages(drawing_t *d, int edge)
{
    const loong_cell_edge_t *e = &d->fake->edges[edge];
    const loong_cell_component_t *from = &d->fake->components[e->from];
    const loong_cell_component_t *to = &d->fake->components[e->to];
    int dense = 1 + draw(d, 4);
    bool local = draw(d, 3) > 0; /* micro-batches in step with each other */
    int total = from->params.micro_batches;
    for (int m = 0; m < total; m++) {
        for (int n = 0; n < to->params.micro_batches; n++) {
            if (draw(d, dense) != 0 ||
                (local && n != m * to->params.micro_batches / total)) {
                continue;
            }
            int source = draw(d, from->replicas);
            int reader = draw(d, to->replicas);
            int32_t sends = rank_of(d, e->from, e->from_stage, source);
            int32_t returns = rank_of(d, e->to, e->to_stage, reader);
            for (int r = 0; r < to->replicas; r++) {
                int32_t rank = rank_of(d, e->to, e->to_stage, r);
                add(d, (loong_message_t){edge, false, sends, m, rank, n});
            }
            for (int r = 0; e->gradient && r < from->replicas; r++) {
                int32_t rank = rank_of(d, e->from, e->from_stage, r);
                add(d, (loong_message_t){edge, true, returns, n, rank, m});
            }
        }
    }
}

static void draw_edge(drawing_t *d, int from, int to, int trained)
{
    loong_cell_params_t *p = &d->fake->params;
    loong_cell_edge_t *e = &d->fake->edges[p->num_edges];
    const loong_schedule_params_t *a = &d->fake->components[from].params;
    const loong_schedule_params_t *b = &d->fake->components[to].params;
    e->from = from;
    e->to = to;
    e->from_stage =
        draw(d, 2) ? a->ranks * a->chunks - 1 : draw(d, a->ranks * a->chunks);
    e->to_stage = draw(d, 2) ? 0 : draw(d, b->ranks * b->chunks);
    e->gradient = from >= trained;
    draw_messages(d, p->num_edges++);
}

/* Shuffled: the order of the table is any. */
static void shuffle(drawing_t *d)
{
    loong_message_t *m = d->fake->messages;
    for (int i = (int)d->fake->params.num_messages - 1; i > 0; i--) {
        int other = draw(d, i + 1);
        loong_message_t swap = m[i];
        m[i] = m[other];
        m[other] = swap;
    }
}

static bool is_reached(const fake_cell_t *fake, const loong_message_t *wanted)
{
    for (int64_t i = 0; i < fake->params.num_messages; i++) {
        const loong_message_t *m = &fake->messages[i];
        if (m->edge == wanted->edge && m->backward == wanted->backward &&
            m->to_rank == wanted->to_rank &&
            m->to_micro_batch == wanted->to_micro_batch) {
            return true;
        }
    }
    return false;
}

static bool is_there(const fake_cell_t *fake, const loong_message_t *wanted)
{
    for (int64_t i = 0; i < fake->params.num_messages; i++) {
        const loong_message_t *m = &fake->messages[i];
        if (m->edge == wanted->edge && m->backward == wanted->backward &&
            m->from_rank == wanted->from_rank &&
            m->from_micro_batch == wanted->from_micro_batch &&
            m->to_rank == wanted->to_rank &&
            m->to_micro_batch == wanted->to_micro_batch) {
            return true;
        }
    }
    return false;
}

static void cover(drawing_t *d, int edge, bool back)
{
    const loong_cell_edge_t *e = &d->fake->edges[edge];
    const int32_t ends[2][2] = {{e->from, e->from_stage}, {e->to, e->to_stage}};
    const int32_t *from = ends[back], *to = ends[!back];
    const loong_cell_component_t *source = &d->fake->components[from[0]];
    const loong_cell_component_t *reader = &d->fake->components[to[0]];
    int total = reader->params.micro_batches;
    for (int i = 0; i < reader->replicas * total; i++) {
        int m = i % total;
        loong_message_t message = {
            edge,
            back,
            rank_of(d, from[0], from[1], draw(d, source->replicas)),
            m * source->params.micro_batches / total,
            rank_of(d, to[0], to[1], i / total),
            m};
        if (!is_reached(d->fake, &message)) {
            add(d, message);
        }
        /* Any of them may be the one that reads it. */
        bool any = source->turn > 0 &&
                   strcmp(d->fake->params.join, "bubbles") == 0;
        for (int k = 0; k < source->replicas && any; k++) {
            message.from_rank = rank_of(d, from[0], from[1], k);
            if (!is_there(d->fake, &message)) {
                add(d, message);
            }
        }
    }
}

void fake_cell_cover(uint64_t seed, fake_cell_t *fake)
{
    drawing_t d = {fake, seed, 0};
    for (int e = 0; e < fake->params.num_edges; e++) {
        cover(&d, e, false);
        if (fake->edges[e].gradient) {
            cover(&d, e, true);
        }
    }
}

void fake_cell_draw(uint64_t seed, const char *join, fake_cell_t *fake)
{
    drawing_t d = {fake, seed, 0};
    memset(fake, 0, sizeof(*fake));
    loong_cell_params_t *p = &fake->params;
    p->join = join;
    p->ranks = 1 + draw(&d, FAKE_RANKS);
    p->num_components = 1 + draw(&d, FAKE_COMPONENTS);
    p->components = fake->components;
    p->edges = fake->edges;
    p->messages = fake->messages;
    int trained = draw(&d, 3) == 0 ? draw(&d, p->num_components + 1) : 0;
    for (int c = 0; c < p->num_components; c++) {
        draw_component(&d, c, c < trained);
        draw_work(fake, seed, c);
    }
    for (int to = 1; to < p->num_components; to++) {
        for (int from = 0; from < to; from++) {
            if (p->num_edges < FAKE_EDGES &&
                (from == to - 1 || draw(&d, 3) == 0)) {
                draw_edge(&d, from, to, trained);
            }
        }
    }
    shuffle(&d);
}
