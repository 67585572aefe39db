/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a prediction: programs cost what launches took that were timed
 * here (predict.c), or what the rates of a kind of device say
 * (predict_rates.c). */
#ifndef LOONG_PREDICT_H
#define LOONG_PREDICT_H

#include "calibrate.h"
#include "plan.h"
#include "rates.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_predict_source {
    loong_calibration_t *calibration; /* NULL: rates are taken */
    loong_rates_params_t rates;
    char *inputs; /* base INPUT, to be filled; NULL: none */
} loong_predict_source_t;

/* See loong_trainer_predict. */
LOONG_NODISCARD loong_status_t loongi_predict(loong_plan_t *plan,
                                              const char **text_p);

/* Sets plan->timeline.costs of one of the planned ranks. */
LOONG_NODISCARD loong_status_t loongi_predict_rank(
    loong_plan_t *plan, loong_predict_source_t *source, int index);

/* "predicted step: ...", up to where its ranks are told. */
void loongi_predict_tell(loong_plan_t *plan, loong_simulation_t total);
/* A line for each of the planned ranks [first, end), by the timeline's costs.
 */
void loongi_predict_tell_ranks(const loong_plan_t *plan, int first, int end,
                               loong_text_t *text);

/* Errors: LOONG_ERR_CONFIG, predict.device names no card that is known. */
LOONG_NODISCARD loong_status_t loongi_predict_check(const loong_plan_t *plan);
/* Once the device is open. Errors: LOONG_ERR_CONFIG, a plan of processors alone
 * names a card. */
LOONG_NODISCARD loong_status_t
loongi_predict_check_device(const loong_plan_t *plan);
bool loongi_predict_names_card(const loong_plan_t *plan);
/* Those of a kind of device, or what the recipe asks for in their place;
 * without a name: none are known. */
loong_device_rates_t loongi_predict_rates(const loong_plan_t *plan,
                                          const char *kind);

/* Predicts by them and tells. */
LOONG_NODISCARD loong_status_t loongi_predict_by_rates(loong_plan_t *plan);

#ifdef __cplusplus
}
#endif

#endif
