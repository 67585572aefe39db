/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizer keys of a recipe. The plan asks before a component is planned;
 * src/recipe/optimizer_keys.c says which keys a class has. */
#include "optimizer_settings.h"

#include "lr_schedule.h"
#include "schema.h"

#define RATE(member_) FILLS(loong_lr_schedule_t, member_)
#define GROUP(member_) FILLS(loong_optimizer_group_t, member_)
#define ALL(member_) FILLS(loong_optimizer_params_t, member_)

/* Classes stand in the order of their table. */
static const loong_recipe_field_t of_all[] = {
    CHOICE("optimizer.name", "adamw", "adamw lion sgd muon", SAME,
           "class of the update rule; keys of another class are refused",
           GROUP(kind)),
    REAL("optimizer.lr", NULL, 0, 1000, FREE, "highest learning rate",
         RATE(lr)),
    REAL("optimizer.min_lr", "0", 0, 1000, FREE, "lowest learning rate",
         RATE(min_lr)),
    CHOICE("optimizer.lr_decay_style", "cosine", "constant cosine linear WSD",
           FREE, "shape of the decay", RATE(style)),
    AMOUNT("optimizer.lr_warmup_iters", "0", 0, BIG, FREE, "steps of warm-up",
           RATE(warmup_iters)),
    REAL("optimizer.lr_warmup_fraction", "0", 0, 1, FREE,
         "of the steps until the decay ends: in place of lr_warmup_iters, "
         "rounded up",
         RATE(warmup_fraction)),
    AMOUNT("optimizer.lr_decay_iters", NULL, 1, BIG, FREE,
           "step where the decay ends; train_iters when not given",
           RATE(decay_iters)),
    AMOUNT("optimizer.lr_wsd_decay_iters", "0", 0, BIG, FREE,
           "length of the decay", RATE(wsd_decay_iters)),
    CHOICE("optimizer.lr_wsd_decay_style", "exponential",
           "linear cosine exponential minus_sqrt", FREE, "shape of WSD's decay",
           RATE(wsd_style)),
    REAL("optimizer.adam_beta1", "0.9", 0, 0.99999, SAME, "first moment",
         GROUP(beta1)),
    REAL("optimizer.adam_beta2", "0.95", 0, 0.999999, SAME, "second moment",
         GROUP(beta2)),
    REAL("optimizer.adam_eps", "1e-8", 0, 1, SAME, "added to the root",
         GROUP(eps)),
    REAL("optimizer.lion_beta1", "0.9", 0, 0.99999, SAME,
         "share of the momentum in what the sign is taken of", GROUP(beta1)),
    REAL("optimizer.lion_beta2", "0.99", 0, 0.999999, SAME,
         "share of the momentum that the next step keeps", GROUP(beta2)),
    REAL("optimizer.sgd_momentum", "0.9", 0, 0.999999, SAME,
         "share of the momentum buffer that a step keeps; 0: the gradient "
         "alone",
         GROUP(momentum)),
    BOOL("optimizer.sgd_nesterov", "false", SAME,
         "the step looks ahead by its momentum", GROUP(nesterov)),
    REAL("optimizer.muon_momentum", "0.95", 0, 0.999999, SAME,
         "share of the momentum buffer that a step keeps", GROUP(momentum)),
    BOOL("optimizer.muon_use_nesterov", "true", SAME,
         "the step looks ahead by its momentum", GROUP(nesterov)),
    INT("optimizer.muon_num_ns_steps", "5", 1, 100, SAME,
        "steps of Newton-Schulz", GROUP(ns_steps)),
    CHOICE("optimizer.muon_scale_mode", "original", "original match_rms_adamw",
           SAME,
           "size of a step: times sqrt(max(1, rows / columns)), or "
           "0.2 sqrt(max(rows, columns)), about that of adamw",
           GROUP(match_rms)),
    CHOICE("optimizer.exp_avg_dtype", "fp32", "fp32 bf16", FREE,
           "how the first moment is stored; fp32 stands for fp64 where that "
           "is params_dtype",
           ALL(bf16[LOONG_STATE_EXP_AVG])),
    CHOICE("optimizer.exp_avg_sq_dtype", "fp32", "fp32 bf16", FREE,
           "how the second moment is stored, likewise",
           ALL(bf16[LOONG_STATE_EXP_AVG_SQ])),
    CHOICE("optimizer.momentum_buffer_dtype", "fp32", "fp32 bf16", FREE,
           "how sgd's momentum buffer is stored, likewise",
           ALL(bf16[LOONG_STATE_MOMENTUM_BUFFER])),
    BOOL("optimizer.stochastic_rounding", "false", FREE,
         "of moments stored in bf16: up or down by chance, so that what is "
         "smaller than their last place adds up; else to nearest",
         ALL(stochastic_rounding)),
    REAL("optimizer.weight_decay", "0.1", 0, 100, FREE,
         "of matrices and embeddings, not of norms and biases",
         GROUP(weight_decay)),
};

static const loong_recipe_field_t of_some[] = {
    TEXT("optimizer.groups[].scope", NULL, SAME,
         "glob over parameter names; what is trained is in one scope, where "
         "there are groups"),
    CHOICE("optimizer.groups[].name", NULL, "adamw lion sgd muon", SAME,
           "class of these; optimizer.name when not given", GROUP(kind)),
    REAL("optimizer.groups[].lr", NULL, 0, 1000, FREE,
         "highest learning rate of these, in the proportion of which they "
         "follow the schedule; optimizer.lr when not given",
         GROUP(lr)),
    REAL("optimizer.groups[].weight_decay", NULL, 0, 100, FREE,
         "of these; optimizer.weight_decay when not given",
         GROUP(weight_decay)),
    REAL("optimizer.ema.decay", "0", 0, 0.9999999, FREE,
         "of an exponential moving average of what is trained, kept beside it "
         "in the type of masters and saved; 0: none is kept",
         ALL(ema.decay)),
    AMOUNT("optimizer.ema.update_after_step", "0", 0, BIG, FREE,
           "until so many updates the average is what is trained",
           ALL(ema.start)),
    BOOL("optimizer.ema.use_ema_warmup", "false", FREE,
         "n updates later the decay is (1 + n) / (10 + n) at most",
         ALL(ema.warmup)),
};

const loong_recipe_table_t loongi_optimizer_keys[] = {LOONG_KEYS(of_all),
                                                      LOONG_KEYS(of_some)};

/* A rate or decay that the path says, where it is set. */
static double rate(const loong_recipe_t *r, const char *path, double otherwise)
{
    return loong_recipe_is_set(r, path) ? loong_recipe_real(r, path)
                                        : otherwise;
}

/* What an item says, then the component of a role, then all. item: -1, and
 * role: NULL, for none. */
static loong_optimizer_group_t group_of(const loong_recipe_t *r,
                                        const char *role, int64_t item)
{
    static const char *const of_class[] = {"optimizer.adam_", "optimizer.lion_",
                                           "optimizer.sgd_", "optimizer.muon_"};
    loong_optimizer_group_t group = {.lr =
                                         loong_recipe_real(r, "optimizer.lr")};
    double all = group.lr;
    LOONG_FILL(r, "optimizer.name", loong_optimizer_group_t, &group);
    LOONG_FILL(r, "optimizer.weight_decay", loong_optimizer_group_t, &group);
    if (role != NULL) {
        group.lr = rate(r, loong_recipe_own_path(r, role, "optimizer.lr"), all);
        group.weight_decay =
            rate(r, loong_recipe_own_path(r, role, "optimizer.weight_decay"),
                 group.weight_decay);
    }
    if (item >= 0) {
        LOONG_FILL_ITEM(r, "optimizer.groups", item, loong_optimizer_group_t,
                        &group);
    }
    LOONG_FILL(r, of_class[group.kind], loong_optimizer_group_t, &group);
    group.lr = group.lr != all ? group.lr / all : 1.0;
    return group;
}

/* The number of a group that is like this one; it is added if there is none.
 * Classes of one kind read the same keys. */
static int find_group(loong_optimizer_params_t *params,
                      const loong_optimizer_group_t *group)
{
    int i = 0;
    while (i < params->num_groups &&
           (params->group[i].kind != group->kind ||
            params->group[i].lr != group->lr ||
            params->group[i].weight_decay != group->weight_decay)) {
        i++;
    }
    if (i == params->num_groups) {
        params->group[params->num_groups++] = *group;
    }
    return i;
}

_Static_assert(LOONG_RECIPE_MAX_GROUPS == (int)LOONG_MAX_OPT_GROUPS,
               "what a recipe may ask for");

/* Of the second matrices of adapters. */
static loong_optimizer_group_t plus_of(const loong_recipe_t *r,
                                       const char *role)
{
    loong_optimizer_group_t group = group_of(r, role, -1);
    group.lr *= loong_recipe_real(r, "finetune.loraplus_lr_ratio");
    return group;
}

/* All groups there are, those of no item first. */
static void read_groups(const loong_recipe_t *r,
                        loong_optimizer_params_t *params)
{
    int64_t items = loong_recipe_count(r, "optimizer.groups");
    params->num_groups = 0;
    for (int64_t i = -1; i < items; i++) {
        const char *role = NULL;
        for (int64_t k = 0; k == 0 || role != NULL; k++) {
            loong_optimizer_group_t group = group_of(r, role, i);
            (void)find_group(params, &group);
            group = plus_of(r, role);
            if (i < 0) {
                (void)find_group(params, &group);
            }
            role = loong_recipe_component(r, k);
        }
    }
}

int loongi_optimizer_plus_group(const loong_recipe_t *recipe, const char *role)
{
    loong_optimizer_params_t params;
    loong_optimizer_group_t group = plus_of(recipe, role);
    read_groups(recipe, &params);
    return find_group(&params, &group);
}

int loongi_optimizer_item_group(const loong_recipe_t *recipe, const char *role,
                                int64_t item)
{
    loong_optimizer_params_t params;
    loong_optimizer_group_t group = group_of(recipe, role, item);
    read_groups(recipe, &params);
    return find_group(&params, &group);
}

void loongi_optimizer_settings(const loong_recipe_t *r,
                               loong_optimizer_params_t *params)
{
    read_groups(r, params);
    LOONG_FILL(r, "", loong_optimizer_params_t, params);
}
