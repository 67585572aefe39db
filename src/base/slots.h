/* SPDX-License-Identifier: Apache-2.0
 *
 * What parts of the library share among all who use one context: a library that
 * is loaded once, lists of what is registered. */
#ifndef LOONG_SLOTS_H
#define LOONG_SLOTS_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Its owner's to set. With `destroy` it ends with the context. */
typedef struct loong_slot {
    const char *name;
    void *data; /* NULL: nothing yet */
    void (*destroy)(loong_context_t *ctx, void *data);
} loong_slot_t;

/* Finds the slot of this name, or takes a free one. */
loong_slot_t *loongi_context_slot(loong_context_t *ctx, const char *name);
/* What the slot of this name holds; NULL where there is none. */
const void *loongi_context_look(const loong_context_t *ctx, const char *name);
/* Ends what slots hold, as the end of the context does. */
void loongi_context_clear(loong_context_t *ctx);

#ifdef __cplusplus
}
#endif

#endif
