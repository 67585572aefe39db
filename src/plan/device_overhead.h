/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process holds on a device beside the arenas. */
#ifndef LOONG_DEVICE_OVERHEAD_H
#define LOONG_DEVICE_OVERHEAD_H

#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many graphs and communicators there are follows from the plan of the
 * rank; what each takes is the backend's to say (loong_device_overhead_t). */
typedef struct loong_overhead_plan {
    int64_t graphs;
    int64_t pieces;    /* kernels and copies in all of them, about */
    int communicators; /* of several ranks, and links of stages */
    double bytes[3];   /* context; graphs; buffers of communicators */
} loong_overhead_plan_t;

LOONG_NODISCARD loong_status_t loongi_overhead_plan(
    const loong_plan_t *plan, loong_overhead_plan_t *overhead_p);

/* The lines of a description, and the sum with the arenas; nothing on the
 * host. */
LOONG_NODISCARD loong_status_t
loongi_overhead_describe(const loong_plan_t *plan, loong_text_t *text);

/* Logs what rank 0's device holds at the end of a run beside what was
 * planned. pool_most: the most that its pool held before. */
LOONG_NODISCARD loong_status_t loongi_overhead_report(const loong_plan_t *plan,
                                                      size_t pool_most);

#ifdef __cplusplus
}
#endif

#endif
