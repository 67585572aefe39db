/* SPDX-License-Identifier: Apache-2.0
 *
 * What a checkpoint must have so that a run can go on from it, and what is
 * converted; trainer_save.c asks before it loads. Read moments.h before. */
#include "moments.h"

#include <stdio.h>
#include <string.h>

#include "adapter_start.h"

/* All of a kind are of one type. */
static const loong_checkpoint_tensor_t *
first_of(const loong_checkpoint_t *ck, const char *kind)
{
    int64_t i = 0;
    int64_t count = loongi_checkpoint_count(ck);
    while (i < count &&
           strcmp(loongi_checkpoint_get(ck, i)->kind, kind) != 0) {
        i++;
    }
    return i < count ? loongi_checkpoint_get(ck, i) : NULL;
}

/* What is trained is saved in the wide type, as masters; a conversion may have
 * made them less, or the run that saved kept them frozen. */
static void tell_params(const loong_component_t *c,
                        const loong_checkpoint_t *ck)
{
    loong_dtype_t wide = c->params.precision.wide;
    const loong_checkpoint_tensor_t *first = NULL;
    long long count = 0;
    for (int64_t i = 0; i < c->num_whole; i++) {
        char name[512];
        snprintf(name, sizeof(name), "%s.%s", c->params.name, c->whole[i].name);
        const loong_checkpoint_tensor_t *there =
            loongi_checkpoint_find(ck, "param", name);
        if (there != NULL && !c->whole[i].frozen && there->dtype != wide) {
            first = first != NULL ? first : there;
            count++;
        }
    }
    if (first != NULL) {
        char more[40] = "";
        if (count > 1) {
            snprintf(more, sizeof(more), " and %lld more", count - 1);
        }
        bool less = loong_dtype_size(first->dtype) < loong_dtype_size(wide);
        loongi_log(c->ctx, LOONG_LOG_INFO,
                   "param: %s in the checkpoint, converted to %s%s: %s%s",
                   loong_dtype_name(first->dtype), loong_dtype_name(wide),
                   less ? ", what masters had beyond it is not there" : "",
                   first->name, more);
    }
}

void loongi_moments_tell(const loong_component_t *c,
                         const loong_checkpoint_t *ck)
{
    const loong_component_params_t *p = &c->params;
    tell_params(c, ck);
    if (p->optimizer.ema.decay == 0.0 && first_of(ck, LOONG_EMA) != NULL) {
        loongi_log(c->ctx, LOONG_LOG_WARN,
                   "%s has averages of parameters: without "
                   "optimizer.ema.decay they are not kept",
                   loongi_checkpoint_path(ck));
    }
    for (int i = 0; i < LOONG_STATE_COUNT; i++) {
        const char *kind = loongi_state_name(i);
        const loong_checkpoint_tensor_t *there = first_of(ck, kind);
        loong_dtype_t dtype =
            loongi_state_dtype(&p->optimizer, i, p->precision.wide);
        if (there != NULL && there->dtype != dtype) {
            loongi_log(c->ctx, LOONG_LOG_INFO,
                       "%s: %s in the checkpoint, converted to %s%s", kind,
                       loong_dtype_name(there->dtype), loong_dtype_name(dtype),
                       dtype == LOONG_BF16 ? ", rounded to nearest" : "");
        }
    }
}

/* ---- what is to be there ---------------------------------------------------
 */

static bool has_moments(const loong_checkpoint_t *ck)
{
    int64_t i = 0;
    int64_t count = loongi_checkpoint_count(ck);
    while (i < count &&
           strcmp(loongi_checkpoint_get(ck, i)->kind, "param") == 0) {
        i++;
    }
    return i < count;
}

/* Parameters that were frozen, or of another class, have none. */
static void note_moments(const loong_component_t *c,
                         const loong_checkpoint_t *ck, bool states)
{
    int64_t lacking = 0;
    for (int64_t i = 0; states && i < c->num_whole; i++) {
        char name[512];
        const loong_optimizer_class_t *class = c->whole[i].optimizer;
        snprintf(name, sizeof(name), "%s.%s", c->params.name, c->whole[i].name);
        lacking += class != NULL &&
                   loongi_checkpoint_find(ck, "param", name) != NULL &&
                   loongi_checkpoint_find(
                       ck, loongi_state_name(class->states[0]), name) == NULL;
    }
    if (lacking > 0) {
        loongi_error_note(
            c->ctx,
            "the checkpoint has no moments of %lld parameter%s "
            "that %s trained now (frozen then, or of another class of "
            "optimizers): "
            "checkpoint.no_load_optim=true begins with moments "
            "of 0 for all",
            (long long)lacking, lacking > 1 ? "s" : "",
            lacking > 1 ? "are" : "is");
    }
}

static int find_param(const void *file, const char *role, const char *name,
                      int64_t shape[2])
{
    char full[512];
    snprintf(full, sizeof(full), "%s.%s", role, name);
    const loong_checkpoint_tensor_t *t =
        loongi_checkpoint_find(file, "param", full);
    if (t != NULL) {
        memcpy(shape, t->shape, (size_t)t->ndim * sizeof(*shape));
    }
    return t != NULL ? t->ndim : 0;
}

loong_origin_t loongi_checkpoint_origin(const loong_checkpoint_t *ck)
{
    loong_origin_t from = {ck, find_param};
    return from;
}

/* Whether averages are wanted: to be evaluated, or because they would not begin
 * anew at this many updates. */
static bool wants_averages(const loong_component_t *c,
                           const loong_checkpoint_t *ck, bool states)
{
    const loong_ema_t *ema = &c->params.optimizer.ema;
    int64_t updates = INT64_MAX;
    (void)loongi_pairs_int(loongi_checkpoint_metadata(ck), "updates", &updates);
    return ema->decay > 0.0 &&
           (c->params.train ? states && updates > ema->start : ema->evaluates);
}

typedef struct wanted {
    loong_arena_t *arena;
    loong_origin_t from;
    const loong_checkpoint_t *ck;
    bool states, averages;
    int64_t count;
    loong_checkpoint_tensor_t *tensors;
} wanted_t;

/* Adds what is to be there of a parameter: itself, and its states. */
static loong_status_t want_param(const loong_component_params_t *params,
                                 const loong_whole_param_t *p, wanted_t *all)
{
    int states =
        all->states && p->optimizer != NULL ? p->optimizer->num_states : 0;
    bool average = all->averages && p->optimizer != NULL;
    char *name = NULL;
    int64_t there[2];
    bool is_new = loongi_param_is_new(params, &all->from, p, there);
    if (there[0] == 0 && loongi_in_base(params, p->frozen, p->adapter)) {
        return LOONG_OK;
    }
    LOONG_TRY(
        loongi_arena_printf(all->arena, &name, "%s.%s", params->name, p->name));
    for (int i = is_new && there[0] == 0; i <= states + average; i++) {
        loong_checkpoint_tensor_t *w = &all->tensors[all->count++];
        w->kind = i == 0       ? "param"
                  : i > states ? LOONG_EMA
                               : loongi_state_name(p->optimizer->states[i - 1]);
        w->name = name;
        w->ndim = p->ndim;
        w->shape[0] = p->shape[0];
        w->shape[1] = p->shape[1];
        if (is_new && i == 0) { /* it may have any shape, not its states */
            memcpy(w->shape, there, sizeof(there));
        }
    }
    return LOONG_OK;
}

static bool has_state(const loong_optimizer_class_t *class,
                      loong_optimizer_state_t state)
{
    bool found = false;
    for (int i = 0; i < class->num_states; i++) {
        found = found || class->states[i] == state;
    }
    return found;
}

/* States that a parameter's class does not have are those of another one:
 * what both have by one name is not the same figure. */
static loong_status_t refuse_other(const loong_component_t *c,
                                   const loong_whole_param_t *p,
                                   const loong_checkpoint_t *ck)
{
    char name[512];
    snprintf(name, sizeof(name), "%s.%s", c->params.name, p->name);
    for (int i = 0; p->optimizer != NULL && i < LOONG_STATE_COUNT; i++) {
        const char *kind = loongi_state_name((loong_optimizer_state_t)i);
        LOONG_CHECK(c->ctx,
                    has_state(p->optimizer, (loong_optimizer_state_t)i) ||
                        loongi_checkpoint_find(ck, kind, name) == NULL,
                    LOONG_ERR_MISMATCH,
                    "%s has %s of %s, which %s, its class of optimizers now, "
                    "has not; checkpoint.no_load_optim=true begins with "
                    "moments of 0 for all",
                    loongi_checkpoint_path(ck), kind, p->name,
                    p->optimizer->name);
    }
    return LOONG_OK;
}

/* All that is to be there of the components. */
static loong_status_t want_all(const loong_model_t *m, bool states,
                               wanted_t *wanted)
{
    enum { KINDS = 2 + LOONG_MAX_STATES };
    int64_t room = 0;
    for (int i = 0; i < m->num_components; i++) {
        room += m->components[i]->num_whole * KINDS;
    }
    LOONG_TRY(loongi_arena_alloc(wanted->arena,
                                 (size_t)room * sizeof(*wanted->tensors),
                                 &wanted->tensors));
    for (int k = 0; k < m->num_components; k++) {
        const loong_component_t *c = m->components[k];
        wanted->states = states && c->params.train;
        wanted->averages = wants_averages(c, wanted->ck, states);
        LOONG_CHECK(m->ctx,
                    !wanted->averages ||
                        first_of(wanted->ck, LOONG_EMA) != NULL,
                    LOONG_ERR_MISMATCH,
                    "%s has no averages: training with "
                    "optimizer.ema.update_after_step at its updates or more "
                    "begins them",
                    loongi_checkpoint_path(wanted->ck));
        for (int64_t i = 0; i < c->num_whole; i++) {
            LOONG_TRY(want_param(&c->params, &c->whole[i], wanted));
        }
    }
    return LOONG_OK;
}

static loong_status_t check_all(const loong_model_t *m,
                                const loong_checkpoint_t *ck, bool states,
                                wanted_t *wanted)
{
    LOONG_TRY(want_all(m, states, wanted));
    loong_status_t status =
        loongi_checkpoint_check(ck, wanted->tensors, wanted->count);
    for (int k = 0; k < m->num_components && states; k++) {
        const loong_component_t *c = m->components[k];
        if (status != LOONG_OK) {
            note_moments(c, ck, states);
        }
        for (int64_t i = 0; i < c->num_whole && status == LOONG_OK; i++) {
            status = refuse_other(c, &c->whole[i], ck);
        }
    }
    return status;
}

loong_status_t loongi_moments_check(const loong_model_t *model,
                                    const loong_checkpoint_t *ck, bool states)
{
    wanted_t wanted = {.from = loongi_checkpoint_origin(ck), .ck = ck};
    LOONG_CHECK(model->ctx, !states || has_moments(ck), LOONG_ERR_MISMATCH,
                "%s has parameters but no moments of the optimizer, like every "
                "import; checkpoint.no_load_optim=true begins with moments of "
                "0",
                loongi_checkpoint_path(ck));
    LOONG_TRY(loongi_arena_create(model->ctx, "wanted tensors", &wanted.arena));
    loong_status_t status = check_all(model, ck, states, &wanted);
    loongi_arena_destroy(&wanted.arena);
    return status;
}
