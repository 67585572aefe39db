/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to draft_match.c, which lists what a tensor may be, and
 * draft_choose.c, which chooses. */
#ifndef LOONG_DRAFT_MATCH_H
#define LOONG_DRAFT_MATCH_H

#include "draft.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_DRAFT_ROLES = 256 };

/* A parameter of the engine. */
typedef struct loong_draft_role {
    const char *name; /* of a row, or of a unit of its experts */
    const loong_hf_row_t *row;
    const loong_hf_param_t *param;
    int unit; /* -1: no experts */
    int64_t rows;
    int64_t columns; /* 0: a vector */
    bool second;     /* of the second set of experts */
    bool router;     /* that the family has [in, out], unlike the others */
    bool covered;
} loong_draft_role_t;

/* A tensor as one parameter, or several. */
typedef struct loong_draft_option {
    loong_draft_choice_t choice;
    int roles[LOONG_DRAFT_HOLDS];
    bool bias; /* of a matrix or norm: where that goes, it goes too */
    bool taken;
} loong_draft_option_t;

typedef struct loong_draft_matcher {
    loong_context_t *ctx;
    loong_arena_t *arena;
    const loong_hf_map_t *map;
    const loong_draft_patterns_t *patterns;
    bool transposed; /* matrices of layers are [in, out] */
    int role_count;
    loong_draft_role_t roles[LOONG_DRAFT_ROLES];
    int64_t count;
    int64_t capacity;
    loong_draft_option_t *options;
    bool *used; /* per pattern */
} loong_draft_matcher_t;

/* The role whose name is that of `like` with another part; -1: none. */
int loongi_draft_find_role(const loong_draft_matcher_t *m, const char *like,
                           const char *part, const char *other);

/* Takes options: each tensor and each parameter once. */
void loongi_draft_take(loong_draft_matcher_t *m);
/* No other choice for its tensor or its parameter sounds as well. */
bool loongi_draft_is_sure(const loong_draft_matcher_t *m,
                          const loong_draft_option_t *o);

#ifdef __cplusplus
}
#endif

#endif
