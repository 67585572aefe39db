/* SPDX-License-Identifier: Apache-2.0 */
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
    const char *values; /* NULL: all choices of the schema, or `cuts` */
} axis_t;

static const axis_t axes[] = {
    {"tp", "parallel.tensor_model_parallel_size", LAYOUT_RANKS, "1 2 3 4"},
    {"pp", "parallel.pipeline_model_parallel_size", LAYOUT_RANKS, "1 2 3 4"},
    {"cp", "parallel.context_parallel_size", LAYOUT_RANKS, "1 2 3 4"},
    {"cp_comm", "parallel.cp_comm_type", LAYOUT_FREE, NULL},
    {"a2a,p2p", "parallel.hierarchical_context_parallel_sizes", LAYOUT_FREE,
     "null [2,2] [1,3] [2,1]"},
    {"ep", "parallel.expert_model_parallel_size", LAYOUT_FREE, "1 1 2 4"},
    {"etp", "parallel.expert_tensor_parallel_size", LAYOUT_FREE, "1 1 2"},
    {"dispatch", "parallel.moe_token_dispatcher_type", LAYOUT_FREE, NULL},
    {"chunk", "parallel.num_layers_per_virtual_pipeline_stage", LAYOUT_FREE,
     "0 0 1 2"},
    {"cut", "parallel.pipeline_model_parallel_layout", LAYOUT_FREE, NULL},
    {"sp", "parallel.sequence_parallel", LAYOUT_FREE, "false true"},
    {"products", "parallel.tp_comm_overlap", LAYOUT_FREE,
     "false true"},
    {"schedule", "schedule", LAYOUT_FREE, NULL},
    {"pairs", "parallel.overlap_moe_expert_parallel_comm", LAYOUT_FREE,
     "false true"},
    {"lane", "comm.overlap_work", LAYOUT_FREE, "0 256KiB"},
    {"sharding", "parallel.data_parallel_sharding", LAYOUT_FREE, NULL},
    {"bucket", "parallel.bucket_bytes", LAYOUT_FREE, "4096 32MiB"},
    {"micro", "train.micro_batch_size", LAYOUT_FREE, "1 2 3 4"},
    {"recompute", "recompute.granularity", LAYOUT_FREE, "none full"},
    {"untied", "model.foundation.untie_embeddings_and_output_weights",
     LAYOUT_MODEL, "false true"},
    {"packed", "data.reset_attention_mask", LAYOUT_MODEL, "false true"},
};
_Static_assert(sizeof(axes) / sizeof(axes[0]) == LAYOUT_AXES,
               "LAYOUT_AXES is their number");

/* An axis that is drawn only where an earlier one has this value; elsewhere it
 * has its first. */
static const struct {
    const char *label;
    const char *with;
    const char *value;
} only[] = {
    {"a2a,p2p", "cp_comm", "a2a+p2p"},
    {"products", "sp", "true"},
};

layout_draws_t layout_draws(uint64_t seed, int max_ranks, int64_t layers)
{
    layout_draws_t d;
    memset(&d, 0, sizeof(d));
    d.seed = seed;
    d.max_ranks = max_ranks;
    long long n = (long long)layers;
    snprintf(d.cuts, sizeof(d.cuts), "null null null Et|t*%lldL E|t*%lld|L "
             "Et*%lld|t|t|L", n - 1, n, n - 2);
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

static const char *value_at(const layout_t *layout, const char *label)
{
    int i = 0;
    while (strcmp(axes[i].label, label) != 0) {
        i++;
    }
    return layout->value[i];
}

static bool drawn(const layout_t *layout, const axis_t *axis)
{
    for (size_t i = 0; i < sizeof(only) / sizeof(only[0]); i++) {
        if (strcmp(only[i].label, axis->label) == 0) {
            return strcmp(value_at(layout, only[i].with), only[i].value) == 0;
        }
    }
    return true;
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
    for (int64_t i = 0; i < loong_recipe_num_keys(); i++) {
        const loong_recipe_key_t *key = loong_recipe_key(i);
        if (axis->values == NULL && strcmp(key->path, axis->key) == 0) {
            return key->choices != NULL ? key->choices : d->cuts;
        }
    }
    return axis->values;
}

void layout_draw(layout_draws_t *d, layout_t *layout)
{
    int unit = 1;
    do {
        d->draws++;
        unit = 1;
        for (int i = 0; i < LAYOUT_AXES; i++) {
            char *value = layout->value[i];
            const char *values = d->pinned[i][0] != '\0'
                                     ? d->pinned[i]
                                     : values_of(d, &axes[i]);
            int count = word(values, -1, value);
            word(values, drawn(layout, &axes[i]) ? draw(d, i, count) : 0,
                 value);
            unit *= axes[i].role == LAYOUT_RANKS ? atoi(value) : 1;
        }
    } while (unit > d->max_ranks);
    layout->ranks = unit * (1 + draw(d, LAYOUT_AXES, d->max_ranks / unit));
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
    for (int i = 0; i < LAYOUT_AXES; i++) {
        same = same && (layout_role(d, i) != LAYOUT_MODEL ||
                        strcmp(a->value[i], b->value[i]) == 0);
    }
    return same;
}

void layout_describe(const layout_t *layout, bool keys, char text[LAYOUT_LINE])
{
    int n = 0;
    for (int i = 0; i < LAYOUT_AXES; i++) {
        n += snprintf(text + n, (size_t)(LAYOUT_LINE - n), "%s%s=%s",
                      i > 0 ? " " : "", keys ? axes[i].key : axes[i].label,
                      layout->value[i]);
        n = LOONG_MIN(n, LAYOUT_LINE - 1);
    }
}

void layout_count(layout_draws_t *d, const layout_t *layout)
{
    for (int i = 0; i < LAYOUT_AXES; i++) {
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
    for (int i = 0; i < LAYOUT_AXES; i++) {
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
