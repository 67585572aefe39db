/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws random layouts of a recipe, and counts what they covered. Called by
 * loong-bench parity. Read layout_draw.h before: a new axis is a line here. */
#include "layout_draw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "loong/recipe.h"
#include "rng.h"

/* A new axis is a line here. */
typedef struct axis {
    const char *label;
    const char *key;
    layout_role_t role;
    const char *values; /* NULL: all choices of the schema, or of `draws` */
    const char *bits;   /* values that give the same bits; "": all, NULL: none*/
} axis_t;

/* Of an encoder and its projector, by letters and by role. */
#define TOWER(e_, j_, of_)                                                     \
    {e_ ".micro", "model." of_ "_encoder.train.micro_batch_size", LAYOUT_FREE, \
     "null null 1 2 4 6", NULL},                                               \
        {e_ ".pp",                                                             \
         "model." of_ "_encoder.parallel.pipeline_model_parallel_size",        \
         LAYOUT_FREE, "null null null 2", NULL},                               \
        {e_ ".chunk",                                                          \
         "model." of_                                                          \
         "_encoder.parallel.num_layers_per_virtual_pipeline_stage",            \
         LAYOUT_FREE, "null null 1", ""},                                      \
        {e_ ".cp", "model." of_ "_encoder.parallel.context_parallel_size",     \
         LAYOUT_FREE, "null null null 2", NULL},                               \
        {e_ ".tp",                                                             \
         "model." of_ "_encoder.parallel.tensor_model_parallel_size",          \
         LAYOUT_FREE, "1 2 4", NULL},                                          \
        {e_ ".sp", "model." of_ "_encoder.parallel.sequence_parallel",         \
         LAYOUT_FREE, "false true", NULL},                                     \
        {j_ ".tp",                                                             \
         "model." of_ "_projector.parallel.tensor_model_parallel_size",        \
         LAYOUT_FREE, "1 2 4", NULL},                                          \
        {j_ ".sp", "model." of_ "_projector.parallel.sequence_parallel",       \
         LAYOUT_FREE, "false true", NULL},                                     \
        {e_ ".ranks", "model." of_ "_encoder.ranks", LAYOUT_FREE,              \
         "null null 0 0-1 1-", NULL},                                          \
        {j_ ".ranks", "model." of_ "_projector.ranks", LAYOUT_FREE,            \
         "null null 0,2 1-2 1-", NULL},                                        \
        {e_ ".again", "model." of_ "_encoder.recompute.granularity",           \
         LAYOUT_FREE, "null none full", ""},                                   \
        {e_ ".freeze", "model." of_ "_encoder.freeze", LAYOUT_MODEL,           \
         "false true", NULL},                                                  \
    {                                                                          \
        j_ ".freeze", "model." of_ "_projector.freeze", LAYOUT_MODEL,          \
            "false false true", NULL                                           \
    }

static const axis_t axes[] = {
    {"tp", "parallel.tensor_model_parallel_size", LAYOUT_RANKS, "1 2 3 4",
     NULL},
    {"pp", "parallel.pipeline_model_parallel_size", LAYOUT_RANKS, "1 2 3 4",
     ""},
    {"cp", "parallel.context_parallel_size", LAYOUT_RANKS, "1 2 3 4", NULL},
    {"cp_comm", "parallel.cp_comm_type", LAYOUT_FREE, NULL, NULL},
    {"a2a,p2p", "parallel.hierarchical_context_parallel_sizes", LAYOUT_FREE,
     "null [2,2] [1,3] [2,1]", NULL},
    {"ep", "parallel.expert_model_parallel_size", LAYOUT_FREE, "1 1 2 4", NULL},
    {"etp", "parallel.expert_tensor_parallel_size", LAYOUT_FREE, "1 1 2", NULL},
    {"dispatch", "parallel.moe_token_dispatcher_type", LAYOUT_FREE, NULL, ""},
    {"plan", "parallel.moe_capacity_plan", LAYOUT_FREE, "1.5 1.5 0.5 0", NULL},
    {"chunk", "parallel.num_layers_per_virtual_pipeline_stage", LAYOUT_FREE,
     "0 0 1 2", ""},
    {"cut", "parallel.pipeline_model_parallel_layout", LAYOUT_FREE, NULL, ""},
    {"sp", "parallel.sequence_parallel", LAYOUT_FREE, "false true", NULL},
    {"products", "parallel.tp_comm_overlap", LAYOUT_FREE, "false true", NULL},
    {"schedule", "schedule", LAYOUT_FREE, NULL, ""},
    {"pairs", "parallel.overlap_moe_expert_parallel_comm", LAYOUT_FREE,
     "false true", ""},
    {"lane", "comm.overlap_work", LAYOUT_FREE, "0 256KiB", ""},
    {"sharding", "parallel.data_parallel_sharding", LAYOUT_FREE, NULL,
     "none optim"},
    {"shares", "parallel.data_parallel_shares", LAYOUT_FREE,
     "null [2,1] [1,3] [1,2,1]", NULL},
    {"bucket", "parallel.bucket_bytes", LAYOUT_FREE, "4096 32MiB", ""},
    {"balance", "data.balance", LAYOUT_FREE, "true false", "false"},
    {"micro", "train.micro_batch_size", LAYOUT_FREE, "1 2 3 4", NULL},
    {"recompute", "recompute.granularity", LAYOUT_FREE, "none full selective",
     ""},
    {"again", "recompute.scopes", LAYOUT_FREE,
     "[] ['*norm*'] [layers.*.mlp] [layers.*.self_attn]", ""},
    {"resume", "train.exit_interval", LAYOUT_FREE, "0 0 2", ""},
    {"eval", "eval.interval", LAYOUT_FREE, "0 0 2", ""},
    {"untied", "model.foundation.untie_embeddings_and_output_weights",
     LAYOUT_MODEL, "false true", NULL},
    {"packed", "data.reset_attention_mask", LAYOUT_MODEL, "false true", NULL},
    {"positions", "data.reset_position_ids", LAYOUT_MODEL, "false true", NULL},
    {"normal", "train.loss_normalization", LAYOUT_MODEL, NULL, NULL},
    {"ramp", "train.rampup_batch_size", LAYOUT_MODEL, NULL, NULL},
    {"dropout", "model.foundation.hidden_dropout", LAYOUT_MODEL, "0 0.1", NULL},
    {"window", "model.foundation.window_size", LAYOUT_MODEL, "0 0 8", NULL},
    /* Lion moves by signs, which rounding turns where a gradient is none. */
    {"class", "optimizer.name", LAYOUT_MODEL, "adamw adamw sgd", NULL},
    {"moments", "optimizer.exp_avg_dtype", LAYOUT_MODEL, "null null bf16",
     NULL},
    {"squares", "optimizer.exp_avg_sq_dtype", LAYOUT_MODEL, "null bf16", NULL},
    {"chance", "optimizer.stochastic_rounding", LAYOUT_MODEL, "null true",
     NULL},
    {"freeze", "model.freeze", LAYOUT_MODEL, "[] [] ['*norm*'] [layers.0]",
     NULL},
    {"wide", "precision.fp32_scopes", LAYOUT_MODEL,
     "[] ['*'] ['*norm*'] [layers.0]", NULL},
    {"skip", "fault", LAYOUT_MODEL,
     "[] [] [{\"kind\":\"nan_gradient\",\"step\":1}]", NULL},
    /* Behind LAYOUT_ALONE: of components that others read. */
    /* Bubbles deal pictures by gaps: sums are in another order. */
    {"join", "join", LAYOUT_FREE, NULL, "coupled phases two_pass"},
    {"ranks", "model.foundation.ranks", LAYOUT_FREE, "null null 1- 2- 0-1",
     NULL},
    TOWER("e", "j", "image"),
    TOWER("v", "w", "video"),
};
_Static_assert(sizeof(axes) / sizeof(axes[0]) == LAYOUT_AXES,
               "LAYOUT_AXES is their number");

typedef struct condition {
    const char *label;
    const char *with;
    const char *value;
} condition_t;

/* An axis that is drawn only where an earlier one has this value; elsewhere it
 * has its first. */
static const condition_t only[] = {
    {"a2a,p2p", "cp_comm", "a2a+p2p"},
    {"products", "sp", "true"},
    {"again", "recompute", "selective"},
    {"moments", "class", "adamw"},
    {"squares", "moments", "bf16"},
    {"chance", "moments", "bf16"},
    {"e.chunk", "e.pp", "2"},
    {"v.chunk", "v.pp", "2"},
    {"skip", "pp", "1"}, /* the first rank has a loss */
};

/* An axis that promises the same bits only where another has this value. In
 * more rounds than one `allgather` adds up what the rounds made of a token
 * before what the ranks made, `alltoall` behind it. */
static const condition_t promised[] = {
    {"dispatch", "plan", "0"},
};

layout_draws_t layout_draws(uint64_t seed, int max_ranks, int64_t layers,
                            int64_t batch)
{
    layout_draws_t d;
    memset(&d, 0, sizeof(d));
    d.seed = seed;
    d.max_ranks = max_ranks;
    d.axes = LAYOUT_ALONE;
    long long n = (long long)layers;
    snprintf(d.cuts, sizeof(d.cuts),
             "null null null Et|t*%lldL E|t*%lld|L "
             "Et*%lld|t|t|L",
             n - 1, n, n - 2);
    long long half = (long long)batch / 2;
    snprintf(d.ramps, sizeof(d.ramps), "null null [%lld,%lld,%lld]", half, half,
             2 * half);
    return d;
}

bool layout_pin(layout_draws_t *d, const char *override)
{
    override += strspn(override, "+");
    for (int i = 0; i < LAYOUT_AXES; i++) {
        size_t n = strlen(axes[i].key);
        if (strncmp(override, axes[i].key, n) == 0 && override[n] == '=') {
            snprintf(d->pinned[i], LAYOUT_VALUE, "%s", override + n + 1);
            return true;
        }
    }
    return false;
}

#define MODEL_KEY(name_) "model.foundation." name_

static bool above_0(const loong_recipe_t *r, const char *key)
{
    return loong_recipe_is_set(r, key) && loong_recipe_real(r, key) > 0.0;
}

void layout_pin_for(layout_draws_t *d, const loong_recipe_t *r)
{
    static const char *const whole[] = {"parallel.tensor_model_parallel_size=1",
                                        "parallel.sequence_parallel=false",
                                        "parallel.tp_comm_overlap=false",
                                        "parallel.context_parallel_size=1"};
    static const char *const uncut[] = {
        "parallel.pipeline_model_parallel_size=1",
        "parallel.num_layers_per_virtual_pipeline_stage=0",
        "parallel.pipeline_model_parallel_layout=null"};
    bool limited = above_0(r, MODEL_KEY("moe_expert_capacity_factor"));
    const char *balance =
        loong_recipe_text(r, MODEL_KEY("moe_router_load_balancing_type"));
    if (loong_recipe_component(r, 1) != NULL) {
        d->axes = loong_recipe_component(r, 3) != NULL ? LAYOUT_AXES
                                                       : LAYOUT_PICTURES;
        layout_pin(d, "parallel.data_parallel_shares=null");
    }
    if (!loong_recipe_is_set(r, MODEL_KEY("num_experts"))) {
        layout_pin(d, "parallel.expert_model_parallel_size=1");
        layout_pin(d, "parallel.expert_tensor_parallel_size=1");
    }
    for (int64_t i = 0; limited && i < LOONG_COUNT_OF(whole); i++) {
        layout_pin(d, whole[i]);
    }
    bool balanced = above_0(r, MODEL_KEY("moe_aux_loss_coeff"));
    bool pooled =
        balanced && balance != NULL && strcmp(balance, "pooled_aux_loss") == 0;
    for (int64_t i = 0; pooled && i < LOONG_COUNT_OF(uncut); i++) {
        layout_pin(d, uncut[i]);
    }
    d->micro_counts =
        limited || pooled ||
        (balanced && (balance == NULL || strcmp(balance, "aux_loss") == 0));
}

static const char *value_at(const layout_t *layout, const char *label)
{
    int i = 0;
    while (strcmp(axes[i].label, label) != 0) {
        i++;
    }
    return layout->value[i];
}

/* Whether an axis meets the condition of a list that is about it, if any. */
static bool meets(const layout_t *layout, const axis_t *axis,
                  const condition_t *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(list[i].label, axis->label) == 0) {
            return strcmp(value_at(layout, list[i].with), list[i].value) == 0;
        }
    }
    return true;
}

static bool drawn(const layout_t *layout, const axis_t *axis)
{
    return meets(layout, axis, only, sizeof(only) / sizeof(only[0]));
}

/* Components that others read stand on all stages: with another number of them
 * their gradients are sums in another order. */
static bool same_bits(const layout_draws_t *d, const layout_t *layout,
                      const axis_t *axis)
{
    bool stages = strcmp(axis->label, "pp") == 0;
    return axis->bits != NULL && !(stages && d->axes > LAYOUT_ALONE) &&
           meets(layout, axis, promised,
                 sizeof(promised) / sizeof(promised[0]));
}

static int draw(const layout_draws_t *d, int axis, int count)
{
    double u = loongi_rng_uniform(d->seed, d->draws, (uint64_t)axis);
    return (int)(u * count);
}

/* Word `index` of a list, -1: none; the number of words. */
static int word(const char *list, int index, char text[LAYOUT_VALUE])
{
    int count = 0;
    while (*list != '\0') {
        size_t n = strcspn(list, " ");
        if (count++ == index) {
            snprintf(text, LAYOUT_VALUE, "%.*s", (int)n, list);
        }
        list += n + (list[n] == ' ');
    }
    return count;
}

static const char *values_of(const layout_draws_t *d, const axis_t *axis)
{
    if (d->bits && axis->bits != NULL && axis->bits[0] != '\0') {
        return axis->bits;
    }
    if (strcmp(axis->label, "ramp") == 0) {
        return d->ramps;
    }
    for (int64_t i = 0; i < loong_recipe_num_keys(); i++) {
        const loong_recipe_key_t *key = loong_recipe_key(i);
        if (axis->values == NULL && strcmp(key->path, axis->key) == 0) {
            return key->choices != NULL ? key->choices : d->cuts;
        }
    }
    return axis->values;
}

static void draw_axis(const layout_draws_t *d, int axis, layout_t *layout)
{
    char *value = layout->value[axis];
    const char *values = d->pinned[axis][0] != '\0' ? d->pinned[axis]
                                                    : values_of(d, &axes[axis]);
    int count = word(values, -1, value);
    word(values, drawn(layout, &axes[axis]) ? draw(d, axis, count) : 0, value);
}

/* Ranks that are not data-parallel. */
static int unit_of(const layout_t *layout)
{
    int unit = 1;
    for (int i = 0; i < LAYOUT_ALONE; i++) {
        unit *= axes[i].role == LAYOUT_RANKS ? atoi(layout->value[i]) : 1;
    }
    return unit;
}

/* Elsewhere the ranks that are left out fit those that are drawn, or not. */
static bool on_all_ranks(const layout_t *layout)
{
    const char *ranks = value_at(layout, "ranks");
    return ranks[0] == '\0' || strcmp(ranks, "null") == 0;
}

/* Of so many ranks those that a component names; 0: there are none of these. */
static int named(const char *list, int ranks)
{
    int count = 0;
    if (strcmp(list, "null") == 0 || list[0] == '\0') {
        return ranks;
    }
    while (*list != '\0') {
        char *end = NULL;
        long first = strtol(list, &end, 10);
        long last = end[0] != '-'    ? first
                    : end[1] == '\0' ? ranks - 1
                                     : strtol(end + 1, NULL, 10);
        if (last < first || last >= ranks) {
            return 0;
        }
        count += (int)(last - first + 1);
        list += strcspn(list, ",");
        list += *list == ',';
    }
    return count;
}

/* Of so many ranks each component has a multiple of those of a replica. */
static bool divides(const layout_draws_t *d, const layout_t *layout, int ranks)
{
    static const struct {
        const char *ranks;
        const char *sizes[3];
    } own[] = {{"e.ranks", {"e.tp", "e.cp", "e.pp"}},
               {"j.ranks", {"j.tp"}},
               {"v.ranks", {"v.tp", "v.cp", "v.pp"}},
               {"w.ranks", {"w.tp"}}};
    int components = d->axes == LAYOUT_PICTURES ? 2 : LOONG_COUNT_OF(own);
    if (d->axes == LAYOUT_ALONE) {
        return ranks % unit_of(layout) == 0;
    }
    int last = named(value_at(layout, "ranks"), ranks);
    bool whole = last > 0 && last % unit_of(layout) == 0;
    for (int i = 0; i < components; i++) {
        int unit = 1;
        for (int k = 0; k < 3 && own[i].sizes[k] != NULL; k++) {
            unit *= LOONG_MAX(atoi(value_at(layout, own[i].sizes[k])), 1);
        }
        int count = named(value_at(layout, own[i].ranks), ranks);
        whole = whole && count > 0 && count % unit == 0;
    }
    return whole;
}

/* One of the numbers of ranks that a layout may have; 0: there is none. */
static int draw_ranks(const layout_draws_t *d, const layout_t *layout)
{
    int possible = 0;
    for (int n = 1; n <= d->max_ranks; n++) {
        possible += divides(d, layout, n);
    }
    int rest = draw(d, d->axes, possible);
    for (int n = 1; n <= d->max_ranks; n++) {
        if (divides(d, layout, n) && rest-- == 0) {
            return n;
        }
    }
    return 0;
}

/* What is drawn only with another value stands beside it. */
static bool fits(const layout_draws_t *d, const layout_t *layout)
{
    for (int i = 0; i < d->axes; i++) {
        char first[LAYOUT_VALUE];
        word(d->pinned[i][0] != '\0' ? d->pinned[i] : values_of(d, &axes[i]), 0,
             first);
        if (!drawn(layout, &axes[i]) && strcmp(layout->value[i], first) != 0) {
            return false;
        }
    }
    /* The fault is on the first rank, which then has a loss. */
    return strcmp(value_at(layout, "skip"), "[]") == 0 ||
           on_all_ranks(layout) || value_at(layout, "ranks")[0] == '0';
}

/* Most shares that are drawn would be refused. */
static void settle_shares(const layout_draws_t *d, layout_t *layout)
{
    int axis = 0;
    int entries = 1;
    while (strcmp(axes[axis].label, "shares") != 0) {
        axis++;
    }
    char *shares = layout->value[axis];
    for (const char *c = shares; *c != '\0'; c++) {
        entries += *c == ',';
    }
    if (d->pinned[axis][0] == '\0' &&
        (entries * unit_of(layout) != layout->ranks ||
         strncmp(value_at(layout, "sharding"), "optim_grads", 11) == 0 ||
         strcmp(value_at(layout, "balance"), "true") == 0)) {
        snprintf(shares, LAYOUT_VALUE, "null");
    }
}

void layout_draw(layout_draws_t *d, const layout_t *of, layout_t *layout)
{
    do {
        d->draws++;
        memset(layout, 0, sizeof(*layout));
        for (int i = 0; i < d->axes; i++) {
            if (of != NULL && layout_role(d, i) == LAYOUT_MODEL) {
                memcpy(layout->value[i], of->value[i], LAYOUT_VALUE);
            } else {
                draw_axis(d, i, layout);
            }
        }
        layout->ranks = fits(d, layout) ? draw_ranks(d, layout) : 0;
    } while (layout->ranks == 0);
    settle_shares(d, layout);
}

void layout_draw_equal(layout_draws_t *d, const layout_t *from,
                       layout_t *layout)
{
    do {
        d->draws++;
        *layout = *from;
        for (int i = 0; i < d->axes; i++) {
            if (same_bits(d, from, &axes[i])) {
                draw_axis(d, i, layout);
            }
        }
        if (on_all_ranks(from)) {
            layout->ranks = from->ranks / unit_of(from) * unit_of(layout);
        }
    } while (layout->ranks > d->max_ranks || !fits(d, layout));
}

bool layout_stops(const layout_t *layout)
{
    return strcmp(value_at(layout, "resume"), "0") != 0;
}

bool layout_skips(const layout_t *layout)
{
    return strcmp(value_at(layout, "skip"), "[]") != 0;
}

layout_role_t layout_role(const layout_draws_t *d, int axis)
{
    bool micro = strcmp(axes[axis].label, "micro") == 0;
    return micro && d->micro_counts ? LAYOUT_MODEL : axes[axis].role;
}

const char *layout_key(int axis)
{
    return axes[axis].key;
}

bool layout_same_model(const layout_draws_t *d, const layout_t *a,
                       const layout_t *b)
{
    bool same = true;
    for (int i = 0; i < d->axes; i++) {
        same = same && (layout_role(d, i) != LAYOUT_MODEL ||
                        strcmp(a->value[i], b->value[i]) == 0);
    }
    return same;
}

void layout_describe(const layout_t *layout, bool keys, char text[LAYOUT_LINE])
{
    int n = 0;
    for (int i = 0; i < LAYOUT_AXES && layout->value[i][0] != '\0'; i++) {
        n += snprintf(text + n, (size_t)(LAYOUT_LINE - n), "%s%s=%s",
                      i > 0 ? " " : "", keys ? axes[i].key : axes[i].label,
                      layout->value[i]);
        n = LOONG_MIN(n, LAYOUT_LINE - 1);
    }
}

void layout_count(layout_draws_t *d, const layout_t *layout)
{
    for (int i = 0; i < d->axes; i++) {
        const char *values = values_of(d, &axes[i]);
        char text[LAYOUT_VALUE];
        int count = word(values, -1, text);
        for (int w = 0; w < LOONG_MIN(count, (int)LAYOUT_VALUES); w++) {
            word(values, w, text);
            if (strcmp(text, layout->value[i]) == 0) {
                d->covered[i][w]++;
                break; /* a value that stands there twice is one */
            }
        }
    }
}

void layout_print_covered(const layout_draws_t *d)
{
    printf("covered, layouts of each value:\n");
    for (int i = 0; i < d->axes; i++) {
        const char *values = values_of(d, &axes[i]);
        char text[LAYOUT_VALUE];
        char before[LAYOUT_VALUE] = "";
        int count = word(values, -1, text);
        printf("  %-9s ", axes[i].label);
        for (int w = 0; w < LOONG_MIN(count, (int)LAYOUT_VALUES); w++) {
            word(values, w, text);
            if (strcmp(text, before) != 0) {
                printf(" %s %d%s", text, d->covered[i][w],
                       w + 1 < count ? "," : "");
            }
            memcpy(before, text, sizeof(before));
        }
        printf("\n");
    }
}
