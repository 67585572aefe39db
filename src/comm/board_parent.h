/* SPDX-License-Identifier: Apache-2.0
 *
 * The board that this process's parent (src/launch/parent.c) opened for it.
 * The parent hands it down in the environment as "descriptor,slots,slot". */
#ifndef LOONG_COMM_BOARD_PARENT_H
#define LOONG_COMM_BOARD_PARENT_H

#include "board.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LOONG_BOARD_ENV "LOONG_BOARD"

typedef struct loong_board_parent {
    loong_board_t *board; /* NULL: there is no parent */
    loong_board_slot_t *slot;
    size_t bytes;
} loong_board_parent_t;

LOONG_NODISCARD loong_status_t
loongi_board_parent_open(loong_context_t *ctx, loong_board_parent_t *parent_p);
void loongi_board_parent_close(loong_board_parent_t *parent);

#ifdef __cplusplus
}
#endif

#endif
