/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the copy of softmax_cpu.c for this processor. Called by
 * cross_entropy_onednn.c. Read src/isa/isa.h before. */
#include "softmax.h"

const loong_softmax_t *loongi_softmax(void)
{
    /* Best first, as levels fall. */
    static const loong_softmax_t *const copies[] = {
#define LOONG_SOFTMAX_ENTRY(symbol_) &symbol_,
        LOONG_ISA_EACH(LOONG_SOFTMAX_ENTRY, loongi_softmax)
#undef LOONG_SOFTMAX_ENTRY
    };
    int last = (int)(sizeof(copies) / sizeof(copies[0])) - 1;
    return copies[last - (int)loongi_isa()];
}
