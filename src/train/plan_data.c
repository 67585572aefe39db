/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plan asks of the data: segments of a row, steps of a training in
 * epochs, costs of samples. Called by trainer_create.c and trainer_data.c. Read
 * trainer_data.h before. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "preflight.h"
#include "trainer_data.h"

static const char *const lists[] = {"data.train", "data.validation"};

/* The documents in a sample of data set number i of a list. What is wrong with
 * the set the preflight tells. */
static int64_t documents_of(const loong_trainer_t *t, const char *list,
                            int64_t i)
{
    char key[64];
    loong_dataset_t *set = NULL;
    int64_t most = loongi_trainer_row(t);
    snprintf(key, sizeof(key), "%s[%lld].path", list, (long long)i);
    const char *prefix = loong_recipe_text(t->recipe, key);
    const char *name = loongi_trainer_source_class(t, list, i);
    if (strcmp(name, "image_text") == 0 || strcmp(name, "chat") == 0) {
        return 2; /* a text, and padding */
    }
    if (prefix == NULL ||
        loong_dataset_create(t->ctx, prefix, &set) != LOONG_OK) {
        loong_context_clear_error(t->ctx);
        return most;
    }
    most = loong_dataset_most_documents(set, most);
    loong_dataset_destroy(&set);
    return most;
}

static int64_t most_documents(const loong_trainer_t *t)
{
    int64_t most = 1;
    for (int l = 0; l < LOONG_COUNT_OF(lists); l++) {
        int64_t count = loong_recipe_count(t->recipe, lists[l]);
        for (int64_t i = 0; i < count && most < loongi_trainer_row(t); i++) {
            most = LOONG_MAX(most, documents_of(t, lists[l], i));
        }
    }
    return most;
}

/* Has the run a source whose samples are laid into rows? */
static bool lays_rows(loong_trainer_t *t)
{
    bool lays = false;
    for (int l = 0; l < LOONG_COUNT_OF(lists); l++) {
        int64_t count = loong_recipe_count(t->recipe, lists[l]);
        for (int64_t i = 0; i < count; i++) {
            const loong_source_class_t *c = NULL;
            if (loong_find_source(t->ctx,
                                  loongi_trainer_source_class(t, lists[l], i),
                                  &c) != LOONG_OK) { /* who opens it tells */
                loong_context_clear_error(t->ctx);
            }
            lays = lays || (c != NULL && c->packs);
        }
    }
    return lays;
}

/* Of a row: its samples, and padding. */
static int64_t most_samples(const loong_blend_t *blend)
{
    loong_blend_info_t info = {0};
    int64_t most = 1;
    if (blend != NULL) {
        loong_blend_get_info(blend, &info);
    }
    for (int64_t i = 0; i < info.num_sources; i++) {
        loong_blend_source_info_t source;
        loong_blend_get_source(blend, i, &source);
        if (source.info.pack != NULL) {
            most = LOONG_MAX(most, source.info.pack->most + 1);
        }
    }
    return most;
}

static bool lacks_data(const loong_trainer_t *t)
{
    return t->plan.plan_only && !t->plan.judge;
}

/* Without data: as many as there could be. */
static int64_t most_possible(loong_trainer_t *t, bool packed)
{
    bool lays = lays_rows(t);
    bool several = loongi_recipe_packing(t->recipe) != LOONG_PACK_NONE;
    return packed || (lays && several) ? loongi_trainer_row(t) : lays ? 2 : 1;
}

loong_status_t loongi_trainer_count_segments(loong_trainer_t *t,
                                             int64_t *segments_p)
{
    bool packed = loong_recipe_bool(t->recipe, "data.reset_attention_mask");
    int64_t most = lacks_data(t) ? most_possible(t, packed) : 1;
    if (!lacks_data(t) && lays_rows(t)) {
        LOONG_TRY(loongi_trainer_open_blends(t));
        most = most_samples(t->data.blend);
        for (int i = 0; i < t->data.num_validation; i++) {
            most = LOONG_MAX(most, most_samples(t->data.validation[i].blend));
        }
    }
    if (packed && loong_comm_rank(t->comm) == 0) {
        most = LOONG_MAX(most, most_documents(t));
    }
    most = LOONG_MIN(most, loongi_trainer_row(t));
    LOONG_TRY(loong_comm_broadcast(t->comm, &most, sizeof(most), 0,
                                   "segments of a sample"));
    *segments_p = most;
    return LOONG_OK;
}

loong_status_t loongi_trainer_set_length(loong_trainer_t *t)
{
    static const char key[] = "train.epochs";
    loong_blend_info_t info;
    double epochs = loong_recipe_real(t->recipe, key);
    if (!loong_recipe_is_set(t->recipe, key)) {
        return LOONG_OK;
    }
    if (lacks_data(t) || t->plan.evaluate_only) {
        if (loong_comm_rank(t->comm) == 0) {
            loongi_log(t->ctx, LOONG_LOG_INFO,
                       "%s: data.train is not read: one step stands for all",
                       key);
        }
        loongi_settings_set_samples(t->recipe, t->set.global_batch_size,
                                    &t->set);
        t->set.num_samples = 0;
        return LOONG_OK;
    }
    LOONG_TRY(loongi_trainer_open_blends(t));
    loong_blend_get_info(t->data.blend, &info);
    double samples = floor(epochs * (double)info.epoch_samples + 0.5);
    LOONG_CHECK(t->ctx, samples >= 1.0, LOONG_ERR_CONFIG,
                "%s: %s: %g of %lld samples is none",
                loong_recipe_where(t->recipe, key), key, epochs,
                (long long)info.epoch_samples);
    loongi_settings_set_samples(t->recipe, (int64_t)samples, &t->set);
    return LOONG_OK;
}

/* What samples cost beside the places that they take: attention among them, in
 * thousands of operations. */
loong_status_t loongi_trainer_set_costs(loong_trainer_t *t,
                                        loong_loader_params_t *p)
{
    const loong_component_t *c = t->component;
    const loong_family_t *family = c->params.family;
    int64_t lengths = t->set.seq_length + 2;
    int64_t *cost = NULL;
    if (!loong_recipe_bool(t->recipe, "data.balance") ||
        most_samples(t->data.blend) == 1 || family->attention_flops == NULL ||
        p->data_parallel_size == 1) {
        return LOONG_OK;
    }
    LOONG_TRY(
        loongi_arena_alloc(c->arena, (size_t)lengths * sizeof(*cost), &cost));
    cost[0] = 0;
    for (int64_t n = 1; n < lengths; n++) {
        cost[n] = (int64_t)(1e-3 * (double)n *
                            family->attention_flops(c->params.config, n));
    }
    p->cost = cost;
    p->row_cost =
        (int64_t)(1e-3 * (double)t->set.seq_length * c->facts.flops_per_row);
    return LOONG_OK;
}
