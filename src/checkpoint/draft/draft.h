/* SPDX-License-Identifier: Apache-2.0
 *
 * Guessing which tensor holds which parameter: draft_names.c finds what the
 * names of a checkpoint have in common, draft_words.c says how well a name
 * sounds for a role, draft_match.c chooses, draft.c reads and writes. */
#ifndef LOONG_DRAFT_H
#define LOONG_DRAFT_H

#include "hf_map_file.h"
#include "safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LOONG_DRAFT_TEXT = 256,
    LOONG_DRAFT_HOLDS = 3 /* parameters in one tensor, q, k and v */
};

/* Tensors whose names differ by the layer and the expert alone. */
typedef struct loong_draft_pattern {
    char text[LOONG_DRAFT_TEXT]; /* "blocks.#.mlp.@.w1" */
    const char *rest;            /* behind the layer */
    int ndim;
    int64_t shape[3];
    bool same_shape; /* all of them */
    int64_t tensors; /* that the files have */
    bool layered;
    bool experts; /* one for each */
    bool second;  /* of the second set */
} loong_draft_pattern_t;

typedef struct loong_draft_patterns {
    int64_t count;
    int64_t capacity;
    loong_draft_pattern_t *items;
    int64_t layers; /* that the names count; 0: none */
} loong_draft_patterns_t;

/* experts: of one set, 0 when the model has none; sets: 1 or 2, numbered one
 * behind the other. Free items with loongi_free. */
LOONG_NODISCARD loong_status_t loongi_draft_patterns(
    loong_context_t *ctx, const loong_safetensors_set_t *set, int64_t experts,
    int64_t sets, loong_draft_patterns_t *patterns);

/* How well the name sounds for a parameter of the engine
 * ("layers.#.self_attn.q_proj.weight"), or for several in one. */
double loongi_draft_sound(const char *text, const char *const *roles,
                          int count);

/* What one tensor of the files is taken to be. */
typedef struct loong_draft_choice {
    int64_t pattern;
    int count;
    const char *holds[LOONG_DRAFT_HOLDS]; /* names of rows or their units */
    bool transposed;
    bool by_key_head;
    bool as_row;
    bool sure; /* no other choice sounded as well */
    int64_t lacks; /* tensors, in some layers */
    double score;
} loong_draft_choice_t;

typedef struct loong_draft_match {
    loong_arena_t *arena;
    int64_t count;
    loong_draft_choice_t *choices;
    int64_t uncovered; /* parameters without a tensor */
    int64_t unused;    /* tensors without a parameter */
    double score;
} loong_draft_match_t;

/* Parameters of the map against the patterns. */
LOONG_NODISCARD loong_status_t loongi_draft_choose(
    loong_context_t *ctx, const loong_hf_map_t *map,
    const loong_draft_patterns_t *patterns, loong_draft_match_t *match_p);
/* Explains more, or as much by better names. */
bool loongi_draft_is_better(const loong_draft_match_t *a,
                            const loong_draft_match_t *b);
void loongi_draft_match_free(loong_draft_match_t *match);

#ifdef __cplusplus
}
#endif

#endif
