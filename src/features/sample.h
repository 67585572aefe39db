/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts that a model continues at an evaluation, and the tokenizer of a run. */
#ifndef LOONG_SAMPLE_H
#define LOONG_SAMPLE_H

#include "inputs.h"
#include "loong/blend.h"
#include "loong/tokenizer.h"
#include "pairs.h"
#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_sampling {
    const loong_plan_t *plan;     /* borrowed */
    const loong_inputs_t *inputs; /* borrowed */
    const loong_blend_t *asked;   /* conversations; borrowed; NULL: none */
    loong_tokenizer_t *tokenizer; /* of ranks that sample; else NULL */
} loong_sampling_t;

/* Texts that the recipe wants continued: prompts, then conversations. */
int64_t loongi_sample_count(const loong_recipe_t *recipe);

/* Tokens of a text that are seen at once: as many as questions of `asked`
 * (NULL: not known) and their answers have. With dynamic scaling no more than
 * the model knows without it, so that the frequencies are those of a text so
 * long. */
int64_t loongi_sample_window(const loong_plan_t *plan,
                             const loong_blend_t *asked);
/* Every prompt has a token to go on from. Errors: LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t
loongi_sample_check_prompts(const loong_sampling_t *sampling);
/* Ranks that sample take the tokenizer, others close it. */
LOONG_NODISCARD loong_status_t loongi_sample_open(loong_sampling_t *sampling);
/* Continues the prompts, rank 0 logs the text. Collective on: the ranks of the
 * first replica, at least. */
LOONG_NODISCARD loong_status_t loongi_sample(const loong_sampling_t *sampling,
                                             int64_t step);

/* ---- tokenizer.c ---- */
/* What the recipe names as tokenizer; NULL: nothing. */
const char *loongi_recipe_tokenizer_path(const loong_recipe_t *recipe);
/* The tokenizer that the recipe names; *tokenizer_p stays when it names none.*/
LOONG_NODISCARD loong_status_t
loongi_recipe_tokenizer(loong_context_t *ctx, const loong_recipe_t *recipe,
                        loong_tokenizer_t **tokenizer_p);
/* Rank 0: reads it, compares it with the model, adds to the ids of tokens. */
LOONG_NODISCARD loong_status_t
loongi_sample_open_tokenizer(loong_sampling_t *sampling, loong_pairs_t *tokens);

#ifdef __cplusplus
}
#endif

#endif
