/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run needs beside its recipe, judged before it starts. */
#ifndef LOONG_PREFLIGHT_H
#define LOONG_PREFLIGHT_H

#include "trainer_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens tokenizer and data; a judged plan, and one that failed, looks at
 * weights and outputs as well. Tells of everything that is wrong and returns
 * the first of it. t->component is NULL where the plan failed. */
LOONG_NODISCARD loong_status_t loongi_preflight(loong_trainer_t *t);
/* plan_data.c: the most segments that a row can have: one; samples that are
 * laid into it, and padding; or with data.reset_attention_mask as many as
 * documents of the run's data sets have a part in it. Of a plan without data,
 * or data sets that cannot be opened, one a token. Collective. */
LOONG_NODISCARD loong_status_t
loongi_trainer_count_segments(loong_trainer_t *t, int64_t *segments_p);

/* describe_data.c: the sources of the training, and what the run takes of
 * them; nothing where no data was opened. */
void loongi_trainer_describe_data(const loong_trainer_t *t,
                                  loong_text_t *text);

static inline loong_status_t loongi_first_of(loong_status_t a,
                                             loong_status_t b)
{
    return a != LOONG_OK ? a : b;
}

#ifdef __cplusplus
}
#endif

#endif
