/* SPDX-License-Identifier: Apache-2.0
 *
 * The kinds of devices of a predicted step, and how its work would be shared
 * out better between them. */
#ifndef LOONG_PREDICT_MIX_H
#define LOONG_PREDICT_MIX_H

#include "plan.h"
#include "rates.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_PREDICT_KINDS = 8 };

/* A kind, and what its planned ranks do in a step. */
typedef struct loong_predict_kind {
    const char *name;
    loong_device_rates_t rates;
    loong_rates_sum_t sum;
    int ranks;
} loong_predict_kind_t;

typedef struct loong_predict_mix {
    int count;
    loong_predict_kind_t kind[LOONG_PREDICT_KINDS];
    /* Through host memory and, as kinds are taken to have machines of their
     * own, the slower network. */
    loong_device_rates_t between;
    loong_simulation_t *total; /* of the planned pipelines */
    double *layers; /* seconds of a step in layers, of the planned ranks */
} loong_predict_mix_t;

/* Errors: LOONG_ERR_UNSUPPORTED, more kinds than there is room for. */
LOONG_NODISCARD loong_status_t
loongi_predict_mix_begin(const loong_plan_t *plan, loong_predict_mix_t *mix);
void loongi_predict_mix_end(const loong_plan_t *plan, loong_predict_mix_t *mix);

/* That of one of the planned ranks. */
loong_predict_kind_t *loongi_predict_kind(const loong_plan_t *plan,
                                          loong_predict_mix_t *mix, int index);
/* Which groups of a planned rank have devices of several kinds. */
void loongi_predict_crosses(const loong_plan_t *plan, int index,
                            bool crosses[LOONG_GROUP_COUNT]);
/* Seconds of a message between planned ranks. */
double loongi_predict_message(const loong_plan_t *plan,
                              const loong_predict_mix_t *mix, int from, int to,
                              double bytes);

/* "  3 data-parallel ranks as 0 (cuda), of 2 micro-batches: 20.1 ms" */
void loongi_predict_tell_pipeline(const loong_plan_t *plan,
                                  const loong_predict_mix_t *mix, int index,
                                  loong_text_t *text);
/* Tells shares of data-parallel ranks, or layers of stages, with which a step
 * of so many seconds would take less, and what each kind would need alone. */
LOONG_NODISCARD loong_status_t loongi_predict_suggest(
    loong_plan_t *plan, const loong_predict_mix_t *mix, double seconds);

#ifdef __cplusplus
}
#endif

#endif
