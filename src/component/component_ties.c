/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds what several stages of a component hold, and plans the program that
 * sums its gradients. Called by component.c and model.c. Read
 * src/engine/ties.h before. */
#include "component_ties.h"

#include <string.h>

#include "passes.h"
#include "steps.h"

/* ---- who holds what ------------------------------------------------------ */

/* How the first of its holders asks for a parameter; all must do it so. */
typedef struct asked {
    int stage;
    loong_shape_t shape;
    loong_dtype_t dtype;
    int64_t row; /* of the pack, and the pack */
    loong_shape_t pack;
} asked_t;

typedef struct finder {
    loong_component_t *c;
    int stages;
    const char **names;
    bool *held;
    int32_t *order; /* by stage and parameter: when it was asked for */
    asked_t *asked;
} finder_t;

static bool same_way(const asked_t *a, const asked_t *b)
{
    return loongi_shape_equal(&a->shape, &b->shape) && a->dtype == b->dtype &&
           a->row == b->row && loongi_shape_equal(&a->pack, &b->pack);
}

/* Parameters mostly come in the order of the whole. */
static loong_status_t note_stage(finder_t *f, int stage, const loong_graph_t *g)
{
    const loong_component_t *c = f->c;
    int64_t at = 0;
    for (int64_t i = 0; i < g->num_params; i++) {
        const loong_param_t *p = &g->params[i];
        int64_t tried = 0;
        while (tried < c->num_whole &&
               strcmp(f->names[at], p->params.name) != 0) {
            at = (at + 1) % c->num_whole;
            tried++;
        }
        LOONG_CHECK(c->ctx, tried < c->num_whole, LOONG_ERR_CONFIG,
                    "%s: stage %d has a parameter '%s', the whole has none",
                    c->params.name, stage, p->params.name);
        bool *held = &f->held[at * f->stages];
        const asked_t asked = {stage, p->params.shape, p->params.dtype, p->row,
                               g->values[p->value].shape};
        if (memchr(held, true, (size_t)f->stages) == NULL) {
            f->asked[at] = asked;
        }
        LOONG_CHECK(c->ctx, same_way(&f->asked[at], &asked),
                    LOONG_ERR_UNSUPPORTED,
                    "%s: stages %d and %d have the parameter '%s' in two ways: "
                    "its shape, its type or what it is packed with",
                    c->params.name, f->asked[at].stage, stage, f->names[at]);
        held[stage] = true;
        f->order[stage * c->num_whole + at] = (int32_t)i;
    }
    return LOONG_OK;
}

static loong_status_t note_all(finder_t *f)
{
    for (int s = 0; s < f->stages; s++) {
        loong_graph_t *graph = NULL;
        LOONG_TRY(loongi_component_build(f->c, &f->c->cuts[s], &graph));
        loong_status_t status = note_stage(f, s, graph);
        loong_graph_destroy(&graph);
        LOONG_TRY(status);
    }
    return LOONG_OK;
}

/* Stages lay parameters out as they ask for them: in one order, therefore. */
static loong_status_t check_orders(const finder_t *f, const loong_ties_t *ties)
{
    const loong_component_t *c = f->c;
    int64_t before[LOONG_MAX_TIES];
    memset(before, -1, sizeof(before));
    for (int64_t p = 0; p < c->num_whole; p++) {
        int tie = loongi_ties_number(ties, f->names[p]);
        if (tie == 0) {
            continue;
        }
        for (int k = 0; k < ties->list[tie - 1].num_holders; k++) {
            int s = ties->list[tie - 1].holders[k];
            const int32_t *order = &f->order[s * c->num_whole];
            int64_t q = before[tie - 1];
            LOONG_CHECK(c->ctx, q < 0 || order[q] < order[p],
                        LOONG_ERR_UNSUPPORTED,
                        "%s: stage %d has the tied '%s' and '%s' in another "
                        "order than the whole",
                        c->params.name, s, f->names[q], f->names[p]);
        }
        before[tie - 1] = p;
    }
    return LOONG_OK;
}

static loong_status_t find(finder_t *f)
{
    loong_component_t *c = f->c;
    size_t count = (size_t)c->num_whole;
    size_t all = count * (size_t)f->stages + 1;
    LOONG_TRY(loongi_calloc(c->ctx, count + 1, sizeof(*f->names), "names",
                            &f->names));
    LOONG_TRY(
        loongi_calloc(c->ctx, all, sizeof(*f->held), "holders", &f->held));
    LOONG_TRY(
        loongi_calloc(c->ctx, all, sizeof(*f->order), "orders", &f->order));
    LOONG_TRY(loongi_calloc(c->ctx, count + 1, sizeof(*f->asked), "holders",
                            &f->asked));
    for (size_t i = 0; i < count; i++) {
        f->names[i] = c->whole[i].name;
    }
    LOONG_TRY(note_all(f));
    const loong_holdings_t holdings = {c->num_whole, f->names, f->held};
    LOONG_TRY(loongi_ties_find(c->ctx, c->evaluation, &holdings, c->arena,
                               &c->params.ties));
    return check_orders(f, &c->params.ties);
}

loong_status_t loongi_component_find_ties(loong_component_t *component)
{
    loong_component_t *c = component;
    finder_t f = {.c = c, .stages = loongi_schedule_stages(c->evaluation)};
    loong_status_t status = f.stages > 1 ? find(&f) : LOONG_OK;
    loongi_free(c->ctx, f.names);
    loongi_free(c->ctx, f.held);
    loongi_free(c->ctx, f.order);
    loongi_free(c->ctx, f.asked);
    c->params.mesh.num_ties = c->params.ties.count;
    for (int k = 0; k < c->params.ties.count; k++) {
        c->params.mesh.ties[k] = c->params.ties.list[k].ranks;
    }
    return status;
}

/* ---- sums of gradients --------------------------------------------------- */

/* The n-th bucket with something to update that is of a tie; NULL: there are
 * fewer. */
static const loong_bucket_t *tied_bucket(const loong_stage_t *s, int tie,
                                         int64_t n)
{
    const loong_shards_t *all = s->shards;
    for (int64_t i = 0; i < all->num_buckets; i++) {
        const loong_bucket_t *b = &all->buckets[i];
        const loong_flat_t *flat = &all->flats[b->flat];
        if (flat->tie == tie && !flat->frozen &&
            b->update_end > b->update_begin && n-- == 0) {
            return b;
        }
    }
    return NULL;
}

static loong_operand_t tied_grad(const loong_component_t *c, int index,
                                 const loong_chunk_bases_t *places,
                                 const loong_bucket_t *b)
{
    return loongi_at(
        LOONG_BASE_GRAD,
        places[index].begin[LOONG_BASE_GRAD] +
            loongi_shards_grad(c->stages[index]->shards, b, b->update_begin));
}

/* first += other, or other = first. */
static loong_status_t put_pair(loong_component_t *c, bool add,
                               loong_operand_t first, loong_operand_t other,
                               int64_t n)
{
    loong_step_t step;
    loongi_step_begin(&step, add ? "add" : "copy", "ties", &c->params.shards);
    step.query.num_in = add ? 2 : 1;
    step.query.num_out = 1;
    step.operand[0] = first;
    step.operand[1] = other;
    step.operand[2] = add ? first : loongi_at(LOONG_BASE_NONE, 0);
    for (int i = 0; i < (add ? 3 : 2); i++) {
        step.query.arg[i] = loongi_flat_arg(c->params.precision.wide, n);
    }
    return loongi_program_append(c->ctx, &c->tie, c->params.compile.device,
                                 &step, c->arena);
}

static loong_status_t put_ranks(loong_component_t *c, int tie,
                                const loong_stage_t *s, const loong_bucket_t *b,
                                loong_operand_t at)
{
    loong_step_t step;
    if (c->params.mesh.ties[tie - 1].count == 1) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_step_collective(
        s->shards, "flat_all_reduce",
        (loong_group_t)((int)LOONG_GROUP_TIE + tie - 1), b, &step));
    step.query.arg[0] = loongi_flat_arg(c->params.precision.wide,
                                        b->update_end - b->update_begin);
    step.operand[0] = at;
    return loongi_program_append(c->ctx, &c->tie, c->params.compile.device,
                                 &step, c->arena);
}

/* The stages of this rank that hold something tied. */
typedef struct local {
    int tie;
    int count;
    const loong_bucket_t *bucket; /* of the first */
    loong_operand_t grad;
    const int *stages; /* by their index */
    const loong_chunk_bases_t *places;
} local_t;

/* What the n-th bucket of all stages but the first has is added to the first
 * one's, or copied from there. */
static loong_status_t put_stages(loong_component_t *c, const local_t *l,
                                 int64_t n, bool add)
{
    int64_t count = l->bucket->update_end - l->bucket->update_begin;
    for (int k = 1; k < l->count; k++) {
        const loong_bucket_t *b =
            tied_bucket(c->stages[l->stages[k]], l->tie, n);
        LOONG_CHECK(c->ctx,
                    b != NULL && b->update_begin == l->bucket->update_begin &&
                        b->update_end == l->bucket->update_end,
                    LOONG_ERR_INTERNAL,
                    "stages hold different parts of what is tied");
        LOONG_TRY(put_pair(c, add, l->grad,
                           tied_grad(c, l->stages[k], l->places, b), count));
    }
    return LOONG_OK;
}

/* The stages of this rank are summed into the first of them, then the ranks;
 * the other stages copy that. */
static loong_status_t put_tie(loong_component_t *c, local_t *l)
{
    const loong_stage_t *first = c->stages[l->stages[0]];
    for (int64_t n = 0; (l->bucket = tied_bucket(first, l->tie, n)) != NULL;
         n++) {
        l->grad = tied_grad(c, l->stages[0], l->places, l->bucket);
        LOONG_TRY(put_stages(c, l, n, true));
        LOONG_TRY(put_ranks(c, l->tie, first, l->bucket, l->grad));
        LOONG_TRY(put_stages(c, l, n, false));
    }
    return LOONG_OK;
}

static bool holds(const loong_tie_t *tie, int stage)
{
    bool found = false;
    for (int i = 0; i < tie->num_holders; i++) {
        found = found || tie->holders[i] == stage;
    }
    return found;
}

/* All ranks go through the ties in one order: their collectives meet. */
loong_status_t loongi_component_plan_ties(loong_component_t *component,
                                          const loong_chunk_bases_t *places)
{
    loong_component_t *c = component;
    int *stages = NULL;
    c->tie.kind = LOONG_PROGRAM_U;
    LOONG_TRY(loongi_arena_alloc(
        c->arena, sizeof(*stages) * (size_t)c->num_stages, &stages));
    for (int k = 0; k < c->params.ties.count && c->params.train; k++) {
        local_t l = {.tie = k + 1, .stages = stages, .places = places};
        for (int i = 0; i < c->num_stages; i++) {
            if (holds(&c->params.ties.list[k], c->stages[i]->number)) {
                stages[l.count++] = i;
            }
        }
        LOONG_TRY(l.count > 0 ? put_tie(c, &l) : LOONG_OK);
    }
    if (c->params.compile.lanes) {
        loongi_pass_lanes(&c->tie, c->params.compile.lane_work);
    }
    return LOONG_OK;
}
