/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters that are added to one model, as a list of directories says them. */
#ifndef LOONG_PEFT_TERMS_H
#define LOONG_PEFT_TERMS_H

#include "peft.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_peft_terms {
    int64_t count;
    loong_peft_t **terms;
    double *weights;
} loong_peft_terms_t;

/* Reads "DIR" or "DIR=WEIGHT" of each line. Errors: those of loongi_peft_read,
 * LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t loongi_peft_terms_read(
    loong_context_t *ctx, const char *list, loong_peft_terms_t **terms_p);
void loongi_peft_terms_destroy(loong_context_t *ctx,
                               loong_peft_terms_t **terms);

#ifdef __cplusplus
}
#endif

#endif
