/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOONGI_TOP_K_H
#define LOONGI_TOP_K_H

#include <stdint.h>

/* Writes the ids of the k largest of count logits, the largest first; of equal
 * ones the lowest id comes first. 1 <= k <= count. */
void loongi_top_k(const double *logits, int64_t count, int64_t k,
                  int32_t *ids);

#endif
