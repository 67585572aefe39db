/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the writing thread of a checkpoint takes a piece from. */
#ifndef LOONG_SAVE_SOURCE_H
#define LOONG_SAVE_SOURCE_H

#include "trainer_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of rows of the device's memory, dense; low: of bf16, the rest of a master,
 * else NULL. Fills the data of a piece whose shape is set. */
LOONG_NODISCARD loong_status_t
loongi_save_source(loong_trainer_t *t, const char *data, const uint16_t *low,
                   loong_arena_t *arena, loong_checkpoint_piece_t *piece);

#ifdef __cplusplus
}
#endif

#endif
