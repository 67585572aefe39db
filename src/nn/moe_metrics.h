/* SPDX-License-Identifier: Apache-2.0
 *
 * What layers with experts count, for report/expert_metrics.c to read. */
#ifndef LOONG_MOE_METRICS_H
#define LOONG_MOE_METRICS_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, text): what a layer with experts adds up in states, which are outputs
 * LOONG_MOE_METRIC_PORT of the text and its number, wide: over the
 * micro-batches since they were set to zero, of this rank's rows. */
#define LOONG_MOE_METRIC_LIST(X)                                              \
    X(LOAD, "expert_load") /* [sets,E]: tokens that chose an expert */        \
    X(KEPT, "expert_kept") /* those that it kept; with a capacity_factor */   \
    X(ROUNDS, "overflow_rounds") /* [1]: beyond the first of a micro-batch */ \
    X(Z_LOSS, "router_z_loss")   /* [1]: with its factor; with z_loss */
typedef enum loong_moe_metric {
#define LOONG_MOE_METRIC_ENUM(name_, text_) LOONG_MOE_METRIC_##name_,
    LOONG_MOE_METRIC_LIST(LOONG_MOE_METRIC_ENUM)
#undef LOONG_MOE_METRIC_ENUM
    LOONG_MOE_METRIC_COUNT
} loong_moe_metric_t;
#define LOONG_MOE_METRIC_PORT "%s.%d"
const char *loongi_moe_metric_name(loong_moe_metric_t kind);

#ifdef __cplusplus
}
#endif

#endif
