/* SPDX-License-Identifier: Apache-2.0
 *
 * Mapping the parent's board. Called by the backends mpi and self when a rank
 * joins. Read board.h before. */
#include <stdio.h>
#include <stdlib.h>

#include "board_parent.h"
#include "pages.h"

loong_status_t loongi_board_parent_open(loong_context_t *ctx,
                                        loong_board_parent_t *parent_p)
{
    loong_board_parent_t parent = {NULL, NULL, 0};
    const char *text = getenv(LOONG_BOARD_ENV);
    int file = 0;
    int slots = 0;
    int slot = 0;
    void *memory = NULL;
    if (text != NULL) {
        LOONG_CHECK(ctx, sscanf(text, "%d,%d,%d", &file, &slots, &slot) == 3,
                    LOONG_ERR_ARG,
                    LOONG_BOARD_ENV "='%s' in the environment; only loongrun "
                                    "sets it, as descriptor,slots,slot",
                    text);
        parent.bytes = loongi_board_bytes(slots);
        LOONG_TRY(loongi_pages_map(ctx, file, parent.bytes, &memory));
        parent.board = loongi_board_init(memory, slots);
        parent.slot = loongi_board_slot(parent.board, slot);
    }
    *parent_p = parent;
    return LOONG_OK;
}

void loongi_board_parent_close(loong_board_parent_t *parent)
{
    loongi_pages_free(parent->board, parent->bytes);
    parent->board = NULL;
    parent->slot = NULL;
}
