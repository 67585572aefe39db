/* SPDX-License-Identifier: Apache-2.0
 *
 * Shares of data-parallel ranks. Called by trainer_create.c, component_params.c
 * and describe.c. Read plan_shares.h before. */
#include "plan_shares.h"

#include <stdio.h>
#include <string.h>

#include "devices.h"
#include "shares.h"

static const char shares_key[] = "parallel.data_parallel_shares";
static const char speeds_key[] = "parallel.data_parallel_speeds";
const char loongi_speeds_member[] = "nanoseconds_of_micro_batch";

static int replicas(const loong_plan_t *plan)
{
    return plan->mesh.size[LOONG_AXIS_DP];
}

/* ---- weights ------------------------------------------------------------- */

static loong_status_t refuse(const loong_plan_t *plan, const char *key,
                             const char *why)
{
    return LOONG_FAIL(plan->ctx, LOONG_ERR_CONFIG, "%s: %s: %s",
                      loong_recipe_where(plan->recipe, key), key, why);
}

/* What meets other replicas in every micro-batch would wait for the slowest in
 * each. */
static loong_status_t check_keys(const loong_plan_t *plan, const char *key)
{
    const loong_recipe_t *r = plan->recipe;
    const char *sharding =
        loong_recipe_text(r, "parallel.data_parallel_sharding");
    if (loong_recipe_is_set(r, shares_key) &&
        loong_recipe_is_set(r, speeds_key)) {
        return refuse(plan, speeds_key,
                      "set beside parallel.data_parallel_shares, one of them "
                      "wanted");
    }
    if (strncmp(sharding, "optim_grads", 11) == 0) {
        return refuse(plan, key,
                      "parallel.data_parallel_sharding optim_grads and "
                      "optim_grads_params sum in every micro-batch, where the "
                      "fast would wait for the slow: none or optim");
    }
    if (loong_recipe_is_set(r, "data.balance") &&
        loong_recipe_bool(r, "data.balance")) {
        return refuse(plan, key,
                      "data.balance deals the micro-batches by their costs: "
                      "one of them");
    }
    return loong_recipe_component(r, 1) == NULL
               ? LOONG_OK
               : refuse(plan, key,
                        "does not go with a model of several components");
}

static loong_status_t take_shares(const loong_plan_t *plan, int64_t *weights)
{
    int64_t count = loong_recipe_count(plan->recipe, shares_key);
    LOONG_CHECK(plan->ctx, count == replicas(plan), LOONG_ERR_CONFIG,
                "%s: %s: found %lld, wanted one of each of the %d "
                "data-parallel ranks",
                loong_recipe_where(plan->recipe, shares_key), shares_key,
                (long long)count, replicas(plan));
    for (int64_t i = 0; i < count; i++) {
        char path[64];
        snprintf(path, sizeof(path), "%s[%lld]", shares_key, (long long)i);
        weights[i] = loong_recipe_int(plan->recipe, path);
    }
    return LOONG_OK;
}

static int64_t time_of(const loong_json_t *speeds, const char *kind)
{
    const loong_json_t *value =
        loongi_json_get(loongi_json_get(speeds, loongi_speeds_member), kind);
    return loongi_json_kind(value) == LOONG_JSON_INT ? loongi_json_int(value)
                                                     : 0;
}

const char *loongi_shares_kind(const loong_plan_t *plan,
                               const loong_json_t *speeds,
                               int data_parallel_rank)
{
    const int *size = plan->mesh.size;
    int block = size[LOONG_AXIS_TP] * size[LOONG_AXIS_CP];
    const char *slowest = NULL;
    for (int i = 0; i < plan->mesh.world; i++) { /* tp, cp, dp, pp */
        if (i / block % size[LOONG_AXIS_DP] != data_parallel_rank) {
            continue;
        }
        int rank = plan->parallel.on != NULL ? plan->parallel.on[i] : i;
        const char *kind = loongi_devices_kind(plan, rank);
        if (slowest == NULL ||
            time_of(speeds, kind) > time_of(speeds, slowest)) {
            slowest = kind;
        }
    }
    return slowest;
}

/* The fastest has the largest weight there is. */
static loong_status_t take_speeds(const loong_plan_t *plan, const char *path,
                                  const loong_json_t *speeds, int64_t *weights,
                                  int64_t *nanoseconds)
{
    int64_t least = INT64_MAX;
    for (int r = 0; r < plan->parallel.ranks; r++) {
        const char *kind = loongi_devices_kind(plan, r);
        LOONG_CHECK(plan->ctx, time_of(speeds, kind) > 0, LOONG_ERR_FORMAT,
                    "%s: %s.%s: nanoseconds above 0 are wanted, as loong-bench "
                    "speeds writes them on such a device",
                    path, loongi_speeds_member, kind);
    }
    for (int r = 0; r < replicas(plan); r++) {
        nanoseconds[r] = time_of(speeds, loongi_shares_kind(plan, speeds, r));
        least = LOONG_MIN(least, nanoseconds[r]);
    }
    for (int r = 0; r < replicas(plan); r++) {
        double share = (double)least / (double)nanoseconds[r];
        weights[r] = LOONG_MAX((int64_t)(share * LOONG_MAX_WEIGHT), 1);
    }
    return LOONG_OK;
}

static loong_status_t read_weights(const loong_plan_t *plan, int64_t *weights,
                                   int64_t *nanoseconds)
{
    loong_json_t *speeds = NULL;
    const char *path = loong_recipe_text(plan->recipe, speeds_key);
    if (path == NULL) {
        return take_shares(plan, weights);
    }
    loong_status_t status = loongi_json_load(plan->ctx, path, &speeds);
    if (status == LOONG_OK) {
        status = take_speeds(plan, path, speeds, weights, nanoseconds);
    }
    loongi_json_destroy(&speeds);
    if (status != LOONG_OK) {
        loongi_error_note(plan->ctx, "wanted by %s: %s",
                          loong_recipe_where(plan->recipe, speeds_key),
                          speeds_key);
    }
    return status;
}

/* ---- shares -------------------------------------------------------------- */

int64_t loongi_shares_of_rank(const loong_plan_t *plan, int64_t samples,
                              int data_parallel_rank)
{
    int64_t count = samples / plan->set->micro_batch_size;
    if (plan->shares.weights == NULL) {
        return count / replicas(plan);
    }
    loongi_shares(replicas(plan), plan->shares.weights, count, plan->shares.of);
    return plan->shares.of[data_parallel_rank];
}

static loong_status_t check_counts(const loong_plan_t *plan, int64_t samples)
{
    for (int r = 0; r < replicas(plan); r++) {
        LOONG_CHECK(plan->ctx, loongi_shares_of_rank(plan, samples, r) > 0,
                    LOONG_ERR_CONFIG,
                    "data-parallel rank %d of %d has no micro-batch of a step "
                    "of %lld samples by its share: more samples a step, or a "
                    "job without it",
                    r, replicas(plan), (long long)samples);
    }
    return LOONG_OK;
}

/* All say why rank 0 has no shares. Collective. */
static loong_status_t tell_all(const loong_plan_t *plan, loong_status_t status)
{
    char why[1024] = "";
    bool first = loong_comm_rank(plan->comm) == 0;
    if (first) {
        snprintf(why, sizeof(why), "%s", loong_context_error(plan->ctx));
    }
    LOONG_TRY(loong_comm_broadcast(plan->comm, why, sizeof(why), 0,
                                   "shares of data-parallel ranks"));
    return first ? status : LOONG_FAIL(plan->ctx, status, "%s", why);
}

loong_status_t loongi_shares_open(loong_plan_t *plan, loong_arena_t *arena)
{
    /* Weights, nanoseconds and how reading went; room for shares. */
    int64_t *weights = NULL;
    size_t ranks = (size_t)replicas(plan);
    size_t count = 2 * ranks + 1;
    bool speeds = loong_recipe_is_set(plan->recipe, speeds_key);
    if (plan->evaluate_only ||
        (!speeds && !loong_recipe_is_set(plan->recipe, shares_key))) {
        return LOONG_OK;
    }
    LOONG_TRY(check_keys(plan, speeds ? speeds_key : shares_key));
    LOONG_TRY(loongi_arena_alloc(arena, (count + ranks) * sizeof(*weights),
                                 &weights));
    loong_status_t status = LOONG_OK;
    if (loong_comm_rank(plan->comm) == 0) {
        status = read_weights(plan, weights, weights + ranks);
        weights[count - 1] = status;
    }
    LOONG_TRY(loong_comm_broadcast(plan->comm, weights,
                                   count * sizeof(*weights), 0,
                                   "shares of data-parallel ranks"));
    if (weights[count - 1] != LOONG_OK) {
        return tell_all(plan, (loong_status_t)weights[count - 1]);
    }
    plan->shares.weights = weights;
    plan->shares.nanoseconds = speeds ? weights + ranks : NULL;
    plan->shares.of = weights + count;
    return check_counts(plan, plan->set->global_batch_size);
}

/* Ranks that hold a layer's experts together meet in each micro-batch. */
static loong_status_t check_experts(const loong_plan_t *plan, int64_t samples)
{
    const int *size = plan->mesh.size;
    int group = loong_mesh_group_size(&plan->mesh, LOONG_GROUP_ETP_EP);
    int together = group / (size[LOONG_AXIS_TP] * size[LOONG_AXIS_CP]);
    for (int r = 0; r < replicas(plan) && together > 1; r++) {
        int first = r - r % together;
        int64_t own = loongi_shares_of_rank(plan, samples, r);
        int64_t other = loongi_shares_of_rank(plan, samples, first);
        LOONG_CHECK(plan->ctx, own == other, LOONG_ERR_CONFIG,
                    "data-parallel ranks %d and %d hold experts together, and "
                    "have %lld and %lld micro-batches of a step of %lld "
                    "samples: as many each are wanted",
                    first, r, (long long)other, (long long)own,
                    (long long)samples);
    }
    return LOONG_OK;
}

static loong_status_t check_step(const loong_plan_t *plan, int64_t samples)
{
    int64_t last = -1;
    LOONG_TRY(check_counts(plan, samples));
    for (int r = 0; r < replicas(plan); r++) {
        int count = 0;
        int64_t own = loongi_shares_of_rank(plan, samples, r);
        LOONG_TRY(
            loongi_to_int(plan->ctx, own, "micro-batches of a step", &count));
        LOONG_TRY(own != last
                      ? loongi_model_accepts(plan->component->model, count)
                      : LOONG_OK);
        last = own;
    }
    return check_experts(plan, samples);
}

loong_status_t loongi_shares_check(const loong_plan_t *plan)
{
    loong_rampup_t ramp = plan->set->rampup;
    int64_t full = plan->set->global_batch_size;
    if (plan->evaluate_only) {
        return LOONG_OK;
    }
    for (int64_t batch = ramp.start; batch > 0 && batch < full;
         batch += ramp.increment) {
        loong_status_t status = check_step(plan, batch);
        if (status != LOONG_OK) {
            loongi_error_note(plan->ctx,
                              "wanted for train.rampup_batch_size, steps of "
                              "%lld samples",
                              (long long)batch);
            return status;
        }
    }
    return check_step(plan, full);
}

/* ---- what is told -------------------------------------------------------- */

/* Seconds that the micro-batches of a step take, as they are shared out; kind:
 * on the data-parallel ranks that have it alone. */
static double seconds_of(const loong_plan_t *plan, const char *kind)
{
    int64_t samples = plan->set->global_batch_size;
    int64_t count = samples / plan->set->micro_batch_size;
    int64_t longest = 0;
    int ranks = 0;
    for (int r = 0; r < replicas(plan); r++) {
        ranks += kind != NULL &&
                 strcmp(loongi_shares_kind(plan, NULL, r), kind) == 0;
    }
    for (int r = 0; r < replicas(plan); r++) {
        bool other = kind != NULL &&
                     strcmp(loongi_shares_kind(plan, NULL, r), kind) != 0;
        int64_t own = other          ? 0
                      : kind != NULL ? (count + ranks - 1) / ranks
                                     : loongi_shares_of_rank(plan, samples, r);
        longest = LOONG_MAX(longest, own * plan->shares.nanoseconds[r]);
    }
    return 1e-9 * (double)longest;
}

/* What is gained over each kind alone, by the speeds that were measured. */
static void describe_gain(loong_plan_t *plan)
{
    double step = seconds_of(plan, NULL);
    loongi_text_printf(&plan->text, "  simulated: %.4g ms of micro-batches",
                       1e3 * step);
    for (int r = 0; r < replicas(plan); r++) {
        const char *kind = loongi_shares_kind(plan, NULL, r);
        bool known = false;
        for (int q = 0; q < r; q++) {
            known =
                known || strcmp(loongi_shares_kind(plan, NULL, q), kind) == 0;
        }
        double alone = known ? 0.0 : seconds_of(plan, kind);
        if (!known && alone > step) {
            loongi_text_printf(&plan->text,
                               "; on the ranks with %s alone %.4g ms, %.2f x",
                               kind, 1e3 * alone, alone / step);
        }
    }
    loongi_text_printf(&plan->text,
                       "\n    assumed: a micro-batch takes what %s says of "
                       "its kind, sums and messages of ranks cost nothing\n",
                       loong_recipe_text(plan->recipe, speeds_key));
}

void loongi_shares_describe(loong_plan_t *plan)
{
    if (plan->shares.weights == NULL) {
        return;
    }
    loongi_text_printf(&plan->text, "  micro-batches of a step:");
    for (int first = 0, r = 1; r <= replicas(plan); r++) {
        int64_t full = plan->set->global_batch_size;
        int64_t own = loongi_shares_of_rank(plan, full, first);
        const char *kind = loongi_shares_kind(plan, NULL, first);
        if (r < replicas(plan) && loongi_shares_of_rank(plan, full, r) == own &&
            strcmp(loongi_shares_kind(plan, NULL, r), kind) == 0) {
            continue;
        }
        loongi_text_printf(&plan->text, "%s data-parallel rank%s %d",
                           first > 0 ? ";" : "", r - 1 > first ? "s" : "",
                           first);
        if (r - 1 > first) {
            loongi_text_printf(&plan->text, "-%d", r - 1);
        }
        loongi_text_printf(&plan->text, " (%s) %lld%s", kind, (long long)own,
                           r - 1 > first ? " each" : "");
        first = r;
    }
    loongi_text_printf(&plan->text, "\n");
    if (plan->shares.nanoseconds != NULL) {
        describe_gain(plan);
    }
}
