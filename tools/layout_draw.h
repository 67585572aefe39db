/* SPDX-License-Identifier: Apache-2.0
 *
 * Random layouts of a recipe, and what of all there is they have covered. */
#ifndef LOONG_LAYOUT_DRAW_H
#define LOONG_LAYOUT_DRAW_H

#include <stdbool.h>
#include <stdint.h>

#include "loong/recipe.h"

enum {
    LAYOUT_ALONE = 39, /* axes of a model of one component */
    LAYOUT_PICTURES = 54, /* of one that reads pictures */
    LAYOUT_AXES = 67,     /* and videos by an encoder of their own */
    LAYOUT_VALUE = 48,
    LAYOUT_VALUES = 8, /* of an axis, at most */
    LAYOUT_LINE = 6144
};

/* What a layout is drawn from. */
typedef enum layout_role {
    LAYOUT_RANKS, /* the number of ranks is a multiple of it */
    LAYOUT_FREE,  /* any value with any other, unless a rule refuses it */
    LAYOUT_MODEL  /* changes what is computed: one rank gets the same value */
} layout_role_t;

typedef struct layout {
    int ranks;
    char value[LAYOUT_AXES][LAYOUT_VALUE];
} layout_t;

typedef struct layout_draws {
    uint64_t seed;
    uint64_t draws; /* so far */
    int max_ranks;
    int axes; /* that the model has: the first ones */
    bool micro_counts; /* the size of a micro-batch changes what is computed */
    bool bits;         /* of axes that promise the same bits, these values */
    char cuts[LAYOUT_VALUE * 4];  /* uneven pipelines of the model */
    char ramps[LAYOUT_VALUE * 2]; /* of the batch */
    char pinned[LAYOUT_AXES][LAYOUT_VALUE]; /* not drawn; "": drawn */
    int covered[LAYOUT_AXES][LAYOUT_VALUES];
} layout_draws_t;

/* For a model of so many layers, in batches of so many samples. */
layout_draws_t layout_draws(uint64_t seed, int max_ranks, int64_t layers,
                            int64_t batch);

/* Whether an override, key=value, is of an axis, which then has that value. */
bool layout_pin(layout_draws_t *d, const char *override);

/* Takes the axes that the model of a recipe has, and pins what it does not
 * allow: experts are not drawn for a model without any. What a limited expert
 * drops depends on how many tokens a rank has of a micro-batch, and a loss of
 * the balance within it on its size. */
void layout_pin_for(layout_draws_t *d, const loong_recipe_t *recipe);

/* The ranks that are left to the data-parallel size are drawn as well. of: a
 * layout whose model it is to have; NULL: any. */
void layout_draw(layout_draws_t *d, const layout_t *of, layout_t *layout);
/* Another value for each axis that promises the same bits, with as many
 * data-parallel ranks; all else is that of `from`. */
void layout_draw_equal(layout_draws_t *d, const layout_t *from,
                       layout_t *layout);

/* Whether it stops before the end, to be resumed. */
bool layout_stops(const layout_t *layout);

/* Whether its second step is skipped, the gradient being no number. */
bool layout_skips(const layout_t *layout);

layout_role_t layout_role(const layout_draws_t *d, int axis);
const char *layout_key(int axis);
bool layout_same_model(const layout_draws_t *d, const layout_t *a,
                       const layout_t *b);

/* The values as words, behind labels or behind keys (to be pasted behind a
 * recipe). */
void layout_describe(const layout_t *layout, bool keys,
                     char text[LAYOUT_LINE]);

/* Counts a layout that was trained; prints how many there were of each value.*/
void layout_count(layout_draws_t *d, const layout_t *layout);
void layout_print_covered(const layout_draws_t *d);

#endif
