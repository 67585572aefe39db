/* SPDX-License-Identifier: Apache-2.0
 *
 * The likeliest tokens, by a heap of those found so far, whose root is the
 * least likely: count x log(k). Called by sample.c. Read top_k.h before. */
#include "top_k.h"

#include <stdbool.h>

static bool comes_first(const double *logits, int32_t a, int32_t b)
{
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

static void sift_down(const double *logits, int32_t *heap, int64_t n,
                      int64_t at)
{
    int32_t id = heap[at];
    for (int64_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        child += child + 1 < n &&
                 comes_first(logits, heap[child], heap[child + 1]);
        if (!comes_first(logits, id, heap[child])) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = id;
}

void loongi_top_k(const double *logits, int64_t count, int64_t k, int32_t *ids)
{
    for (int64_t i = 0; i < k; i++) {
        ids[i] = (int32_t)i;
    }
    for (int64_t i = k / 2 - 1; i >= 0; i--) {
        sift_down(logits, ids, k, i);
    }
    for (int64_t v = k; v < count; v++) {
        if (comes_first(logits, (int32_t)v, ids[0])) {
            ids[0] = (int32_t)v;
            sift_down(logits, ids, k, 0);
        }
    }
    for (int64_t n = k - 1; n > 0; n--) {
        int32_t last = ids[0];
        ids[0] = ids[n];
        ids[n] = last;
        sift_down(logits, ids, n, 0);
    }
}
