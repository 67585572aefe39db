/* SPDX-License-Identifier: Apache-2.0
 *
 * An ordered list of keys and texts: the description of a model in the keys
 * of the recipe, relative to its component ("num_layers" -> "28").
 */
#ifndef LOONG_PAIRS_H
#define LOONG_PAIRS_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_pair {
    const char *key;
    const char *value;
} loong_pair_t;

typedef struct loong_pairs {
    loong_context_t *ctx;
    loong_arena_t *arena;
    int64_t count;
    int64_t capacity;
    loong_pair_t *items;
} loong_pairs_t;

LOONG_NODISCARD loong_status_t loongi_pairs_create(loong_context_t *ctx,
                                                   loong_pairs_t **pairs_p);
LOONG_NODISCARD loong_status_t loongi_pairs_copy(loong_context_t *ctx,
                                                 const loong_pairs_t *pairs,
                                                 loong_pairs_t **copy_p);
void loongi_pairs_destroy(loong_pairs_t **pairs);
/* Adds or replaces. Both texts are copied. */
LOONG_NODISCARD loong_status_t loongi_pairs_set(loong_pairs_t *pairs,
                                                const char *key,
                                                const char *value);
LOONG_NODISCARD loong_status_t loongi_pairs_set_int(loong_pairs_t *pairs,
                                                    const char *key,
                                                    int64_t value);
/* The shortest text that reads back as the same double, always with a point
 * or an exponent. */
LOONG_NODISCARD loong_status_t loongi_pairs_set_real(loong_pairs_t *pairs,
                                                     const char *key,
                                                     double value);
LOONG_NODISCARD loong_status_t loongi_pairs_set_bool(loong_pairs_t *pairs,
                                                     const char *key,
                                                     bool value);
/* NULL when absent. */
const char *loongi_pairs_get(const loong_pairs_t *pairs, const char *key);

/* Values as numbers. False when absent or not of that kind. */
bool loongi_pairs_int(const loong_pairs_t *pairs, const char *key,
                      int64_t *value_p);
bool loongi_pairs_real(const loong_pairs_t *pairs, const char *key,
                       double *value_p);
bool loongi_pairs_true(const loong_pairs_t *pairs, const char *key);

#define LOONG_REAL_TEXT 32
const char *loongi_real_text(double value, char buffer[LOONG_REAL_TEXT]);

#ifdef __cplusplus
}
#endif

#endif
