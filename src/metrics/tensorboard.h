/* SPDX-License-Identifier: Apache-2.0
 *
 * TensorBoard event files: framed records with masked CRC-32C around small
 * protocol buffer messages (Event, Summary), written by hand. Not collective.
 */
#ifndef LOONG_TENSORBOARD_H
#define LOONG_TENSORBOARD_H

#include "metrics.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_tensorboard loong_tensorboard_t;

/* Creates directory/events.out.tfevents.<unix>.<host>.<pid>.<n> (and the
 * directory). With first_step > 0 the file opens with a session start, at
 * which TensorBoard drops what older files say about first_step and later.
 * Errors: LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t
loongi_tensorboard_create(loong_context_t *ctx, const char *directory,
                          int64_t first_step, loong_tensorboard_t **board_p);
void loongi_tensorboard_destroy(loong_tensorboard_t **board);

/* One scalar ("train/loss"); tags are at most 200 bytes. NAN is written:
 * TensorBoard shows it as a gap. Errors: LOONG_ERR_ARG, LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t
loongi_tensorboard_scalar(loong_tensorboard_t *board, int64_t step,
                          double unix_time, const char *tag, double value);

/* train/..., perf/..., memory/...; what is unknown is left out. */
LOONG_NODISCARD loong_status_t
loongi_tensorboard_metrics(loong_tensorboard_t *board,
                           const loong_metrics_t *metrics);
/* expert_load/layer_<n> and its like. */
LOONG_NODISCARD loong_status_t
loongi_tensorboard_layer(loong_tensorboard_t *board,
                         const loong_metrics_layer_t *layer);
/* eval/loss/<name> and, of tokens, eval/perplexity/<name>. */
LOONG_NODISCARD loong_status_t
loongi_tensorboard_eval(loong_tensorboard_t *board,
                        const loong_metrics_eval_t *eval);

#ifdef __cplusplus
}
#endif

#endif
