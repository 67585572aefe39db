/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOONG_GEMM_RATE_H
#define LOONG_GEMM_RATE_H

#include "trainer_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The rate of matrix products that this machine reaches, in 1e9 operations a
 * second, all ranks together: the fastest of a few square products in the
 * compute type, which all ranks run at the same time. NAN where a rank's device
 * has no memory left for them. Takes about a tenth of a second. Collective on:
 * the world. */
LOONG_NODISCARD loong_status_t loongi_gemm_rate(loong_trainer_t *t,
                                                double *gflops_p);

#ifdef __cplusplus
}
#endif

#endif
