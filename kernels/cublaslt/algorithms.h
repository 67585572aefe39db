/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of algorithms of matrix products, as they were measured: one line for
 * each key, which says the device, the library and the product. Several
 * processes may use it at once: it is replaced as a whole, under a lock. */
#ifndef LOONG_ALGORITHMS_H
#define LOONG_ALGORITHMS_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As the library describes it, for its own version alone. */
typedef struct loong_algorithm {
    uint64_t word[8];
} loong_algorithm_t;

/* A file that is absent, or is none of these, has no key; lines that are
 * damaged are passed over. */
LOONG_NODISCARD loong_status_t
loongi_algorithms_find(loong_context_t *ctx, const char *path, const char *key,
                       loong_algorithm_t *algorithm_p, bool *found_p);

/* Waits until no other process has the lock of the file, which stands beside
 * it: path.lock. */
LOONG_NODISCARD loong_status_t
loongi_algorithms_lock(loong_context_t *ctx, const char *path, int *lock_p);
void loongi_algorithms_unlock(int lock);

/* Adds a key, or replaces it; under the lock. Warns of damaged lines, which are
 * left out then, and of a file of another kind, which becomes path.bad. */
LOONG_NODISCARD loong_status_t
loongi_algorithms_put(loong_context_t *ctx, const char *path, const char *key,
                      const loong_algorithm_t *algorithm);

#ifdef __cplusplus
}
#endif

#endif
