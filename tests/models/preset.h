/* SPDX-License-Identifier: Apache-2.0
 *
 * The presets under configs/models, for tests and for docs/models.md. */
#ifndef PRESET_H
#define PRESET_H

#include "loong/rope.h"
#include "loong/graph.h"
#include "pairs.h"

/* Calls visit with "qwen3/qwen3_8b" for every preset of a language model, in
 * the order of the alphabet; returns how many there are. */
int preset_each(void (*visit)(void *user, const char *name), void *user);
/* The same of presets of several components. */
int preset_each_whole(void (*visit)(void *user, const char *name), void *user);

/* The keys of the language model of a recipe that names only this preset. */
loong_pairs_t *preset_load(loong_context_t *ctx, const char *name);
/* Those of a component, as "image_encoder". */
loong_pairs_t *preset_load_role(loong_context_t *ctx, const char *name,
                                const char *role);

typedef struct preset_size {
    int64_t parameters; /* a tied output matrix counts once */
    int64_t active;     /* those that a token meets */
    int64_t experts;    /* those of routed experts */
    loong_rope_table_attr_t rope; /* of its graph; base 0: no rotation */
} preset_size_t;
void preset_measure(loong_context_t *ctx, const loong_pairs_t *pairs,
                    preset_size_t *size);

/* Elements of the parameters of a graph whose names have this in them. */
int64_t preset_count(const loong_graph_t *graph, const char *part);

#endif
