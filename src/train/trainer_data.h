/* SPDX-License-Identifier: Apache-2.0
 *
 * The data sets of a run. */
#ifndef LOONG_TRAINER_DATA_H
#define LOONG_TRAINER_DATA_H

#include "trainer_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* data.seq_length; data is looked at beside a recipe that is wrong, too. */
static inline int64_t loongi_trainer_row(const loong_trainer_t *t)
{
    return LOONG_MAX(loong_recipe_int(t->recipe, "data.seq_length"), 1);
}
/* Of source i of data.train or data.validation. */
const char *loongi_trainer_source_class(const loong_trainer_t *t,
                                        const char *list, int64_t i);

/* How samples become the inputs of the model's components. */
LOONG_NODISCARD loong_status_t loongi_trainer_processors(loong_trainer_t *t);
/* The blends of training and validation, once: whoever comes first opens them,
 * all get the status. Collective. */
LOONG_NODISCARD loong_status_t loongi_trainer_open_blends(loong_trainer_t *t);
/* Tokens of a sample that the model knows; 0: no bound. */
int64_t loongi_trainer_longest(const loong_trainer_t *t);
/* data.seq_length and train.global_batch_size of fine-tuning, where they are
 * not set: rows for the longest sample, steps of some samples. Collective. */
LOONG_NODISCARD loong_status_t loongi_trainer_complete_rows(loong_trainer_t *t);
/* And their loaders, for a model that was planned. Collective. */
LOONG_NODISCARD loong_status_t loongi_trainer_open_data(loong_trainer_t *t);
/* Steps of a training whose length is given in epochs. Collective. */
LOONG_NODISCARD loong_status_t loongi_trainer_set_length(loong_trainer_t *t);
/* Conversations may be among the data. */
bool loongi_trainer_has_chat(const loong_trainer_t *t);
/* Opens a blend, with data.chat where it has conversations. */
LOONG_NODISCARD loong_status_t
loongi_trainer_create_blend(loong_trainer_t *t, loong_blend_params_t *params,
                            loong_blend_t **blend_p);
/* Costs by which the loader deals micro-batches to ranks, where texts share
 * rows and the recipe does not say no. */
LOONG_NODISCARD loong_status_t
loongi_trainer_set_costs(loong_trainer_t *t, loong_loader_params_t *p);
void loongi_trainer_close_data(loong_trainer_t *t);

#ifdef __cplusplus
}
#endif

#endif
