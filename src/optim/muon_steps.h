/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of the update program for parameters of class muon. */
#ifndef LOONG_MUON_STEPS_H
#define LOONG_MUON_STEPS_H

#include "optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes in OPTIM that the largest matrix works in; 0: there is none. */
int64_t loongi_muon_room(const loong_optimizer_t *optimizer);

/* Appends the steps of the matrices of a bucket that this rank updates. All
 * tensor-parallel ranks append the same collectives. Errors: LOONG_ERR_CONFIG
 * where they cannot: a matrix is shared out unevenly, or several ranks hold
 * the same part of it. */
LOONG_NODISCARD loong_status_t loongi_muon_add(loong_optimizer_t *optimizer,
                                               const loong_bucket_t *bucket);

#ifdef __cplusplus
}
#endif

#endif
