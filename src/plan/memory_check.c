/* SPDX-License-Identifier: Apache-2.0
 *
 * Does the plan fit into the memory of the machine, or of the device? Asked
 * before anything is allocated: pages are taken when they are touched, so that
 * a run that cannot fit would be killed in its first step. Called by
 * trainer_create.c, trainer_run.c, describe.c and predict.c. Read stage_plans.h
 * before. */
#include "memory_check.h"

#include <stdio.h>
#include <string.h>

#include "predict.h"
#include "stage_plans.h"

/* A card's figures stand for a device that is not there, and in a plan for
 * other machines the named card's for this one's. */
static bool is_by_card(const loong_plan_t *plan)
{
    return loong_device_is_planned(plan->device) ||
           (plan->plan_only && !plan->judge &&
            !loong_device_is_host(plan->device) &&
            loongi_predict_names_card(plan));
}

/* Where the bases are. */
static loong_status_t find_available(loong_plan_t *plan)
{
    loong_memory_available_t *available = &plan->memory.available;
    size_t bytes = 0;
    /* Whatever comes of it, its keys are read. */
    loong_device_rates_t rates =
        loongi_predict_rates(plan, loong_device_name(plan->device));
    LOONG_TRY(loongi_memory_available(plan->ctx, "", available));
    if (is_by_card(plan)) {
        available->bytes = (int64_t)rates.memory;
        available->id ^=
            (uint64_t)loong_comm_rank(plan->comm) + 1; /* one for each */
        snprintf(available->what, sizeof(available->what),
                 "all memory of %s:%s", loong_device_name(plan->device),
                 rates.name != NULL ? rates.name : "a card not known");
        return LOONG_OK;
    }
    bool own = false;
    LOONG_TRY(loong_device_available(plan->device, &own, &bytes));
    if (!own) {
        return LOONG_OK;
    }
    available->bytes = (int64_t)bytes;
    available->id ^= loong_device_identity(plan->device);
    snprintf(available->what, sizeof(available->what), "free on %s:%d",
             loong_device_name(plan->device), loong_device_index(plan->device));
    return LOONG_OK;
}

/* What ranks tell each other. */
typedef struct told {
    int64_t room;
    int64_t bytes;
    char kind[16]; /* of its device */
} reported_t;

enum { WORDS = sizeof(reported_t) / sizeof(int64_t) };

/* That is asked for by name, never by chance. */
static loong_status_t check_kinds(const loong_plan_t *plan,
                                  const reported_t *all)
{
    bool listed = loong_recipe_count(plan->recipe, "devices") > 0;
    for (int r = 1; r < loong_comm_size(plan->comm) && !listed; r++) {
        LOONG_CHECK(plan->ctx, strcmp(all[r].kind, all[0].kind) == 0,
                    LOONG_ERR_CONFIG,
                    "rank 0 runs on %s, rank %d on %s: all ranks of a job run "
                    "on one kind of device (device), unless devices lists "
                    "them",
                    all[0].kind, r, all[r].kind);
    }
    return LOONG_OK;
}

loong_status_t loongi_memory_measure(loong_plan_t *plan)
{
    int size = loong_comm_size(plan->comm);
    int rank = loong_comm_rank(plan->comm);
    reported_t *all = NULL;
    int64_t *counts = NULL;
    loong_status_t measured = find_available(plan);
    plan->memory.rank = 0;
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        plan->memory.rank += plan->component->model->bytes[b];
    }
    LOONG_TRY(loongi_alloc(plan->ctx, (size_t)size * sizeof(*all),
                           "memory of ranks", &all));
    loong_status_t status = loongi_alloc(
        plan->ctx, (size_t)size * sizeof(*counts), "memory of ranks", &counts);
    if (status == LOONG_OK) {
        for (int r = 0; r < size; r++) {
            counts[r] = WORDS;
        }
        all[rank].room = (int64_t)plan->memory.available.id;
        all[rank].bytes = plan->memory.rank;
        snprintf(all[rank].kind, sizeof(all[rank].kind), "%s",
                 loong_device_name(plan->device));
        status = loong_comm_all_gather(plan->comm, all, counts, LOONG_I64,
                                       "memory of ranks");
    }
    if (status == LOONG_OK) {
        status = check_kinds(plan, all);
    }
    plan->memory.machine = 0;
    plan->memory.ranks = 0;
    for (int r = 0; r < size && status == LOONG_OK; r++) {
        if (all[r].room == (int64_t)plan->memory.available.id) {
            plan->memory.machine += all[r].bytes;
            plan->memory.ranks++;
        }
    }
    loongi_free(plan->ctx, counts);
    loongi_free(plan->ctx, all);
    LOONG_TRY(measured);
    return status;
}

/* Of a plan for other machines this one says nothing; a card does if
 * predict.device names one, else what it lacks is a warning. */
static bool is_judged(const loong_plan_t *plan)
{
    return !plan->plan_only ||
           (is_by_card(plan) ? loongi_predict_names_card(plan) : plan->judge);
}

static const char *kind_of(const loong_plan_t *plan, int index)
{
    return plan->num_stage_plans > 0 ? loongi_stage_plans_kind(plan, index)
                                     : loong_device_name(plan->device);
}

static double bytes_of(const loong_plan_t *plan, int index)
{
    return plan->num_stage_plans > 0
               ? (double)loongi_stage_plans_bytes(plan, index)
               : (double)plan->memory.rank;
}

/* The first planned rank that needs more than a card has, by its rates, among
 * those that are judged so, or the others; -1: none. */
static int find_excess(const loong_plan_t *plan, bool judged)
{
    const char *own = loong_device_name(plan->device);
    bool all = loong_comm_size(plan->comm) == plan->parallel.ranks;
    int count = all && judged ? 0 : LOONG_MAX(plan->num_stage_plans, 1);
    for (int r = 0; r < count; r++) {
        const char *kind = kind_of(plan, r);
        bool other = strcmp(kind, own) != 0;
        bool strict = is_judged(plan) ||
                      (other && loongi_predict_names_card(plan));
        loong_device_rates_t rates = loongi_predict_rates(plan, kind);
        if (strict == judged && (other || !judged) && rates.name != NULL &&
            bytes_of(plan, r) > rates.memory) {
            return r;
        }
    }
    return -1;
}

static void explain_excess(const loong_plan_t *plan, int index,
                           loong_text_t *text)
{
    char need[LOONG_HUMAN_SIZE];
    char has[LOONG_HUMAN_SIZE];
    const char *kind = kind_of(plan, index);
    const loong_component_t *c =
        plan->num_stage_plans > 0 ? plan->stage_plans[index] : plan->component;
    loong_device_rates_t rates = loongi_predict_rates(plan, kind);
    loongi_text_printf(text, "rank %d needs %s, all memory of %s:%s is %s (%s)",
                       loongi_model_rank(c->model),
                       loongi_human_bytes(bytes_of(plan, index), need), kind,
                       rates.name, loongi_human_bytes(rates.memory, has),
                       rates.source);
}

static bool suffices_here(const loong_plan_t *plan)
{
    return !is_judged(plan) ||
           plan->memory.machine <= plan->memory.available.bytes;
}

bool loongi_memory_suffices(const loong_plan_t *plan)
{
    return suffices_here(plan) && find_excess(plan, true) < 0;
}

void loongi_memory_explain(const loong_plan_t *plan, loong_text_t *text)
{
    char need[LOONG_HUMAN_SIZE];
    char all[LOONG_HUMAN_SIZE];
    char has[LOONG_HUMAN_SIZE];
    int other = find_excess(plan, true);
    if (suffices_here(plan) && other >= 0) {
        explain_excess(plan, other, text);
        return;
    }
    loongi_text_printf(text, "needs %s per rank",
                       loongi_human_bytes((double)plan->memory.rank, need));
    if (plan->memory.ranks > 1) {
        loongi_text_printf(
            text, " (%s for the %d ranks here)",
            loongi_human_bytes((double)plan->memory.machine, all),
            plan->memory.ranks);
    }
    loongi_text_printf(
        text, ", this machine has %s (%s)",
        loongi_human_bytes((double)plan->memory.available.bytes, has),
        plan->memory.available.what);
}

bool loongi_memory_doubt(const loong_plan_t *plan, loong_text_t *text)
{
    int excess = find_excess(plan, false);
    if (excess < 0) {
        return false;
    }
    const char *kind = kind_of(plan, excess);
    loongi_text_printf(text, "perhaps too little memory: ");
    explain_excess(plan, excess, text);
    loongi_text_printf(text,
                       ", a card that nothing names; with predict.device=%s "
                       "this is an error",
                       loongi_predict_rates(plan, kind).name);
    return true;
}

loong_status_t loongi_memory_check(loong_plan_t *plan)
{
    loong_text_t text = loongi_text_begin(plan->ctx);
    loong_status_t status = LOONG_OK;
    if (plan->plan_only && plan->parallel.ranks > 1) {
        LOONG_TRY(loongi_stage_plans_create(plan));
    }
    LOONG_CHECK(plan->ctx,
                !is_judged(plan) || loong_device_identity(plan->device) == 0 ||
                    plan->memory.ranks == 1,
                LOONG_ERR_CONFIG,
                "%d ranks of this machine came to %s:%d: each wants a device "
                "of its own; start no more ranks here than they see devices",
                plan->memory.ranks, loong_device_name(plan->device),
                loong_device_index(plan->device));
    if (!loongi_memory_suffices(plan)) {
        loongi_memory_explain(plan, &text);
        status = LOONG_FAIL(plan->ctx, LOONG_ERR_MEMORY,
                            "too little memory: %s; --dry-run tells what "
                            "takes it",
                            loongi_text_get(&text));
    }
    loongi_text_free(&text);
    return status;
}
