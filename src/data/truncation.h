/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ids of a text that is longer than a row stay. */
#ifndef LOONG_TRUNCATION_H
#define LOONG_TRUNCATION_H

#include "loong/source.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The ids [0, head) and [tail, size) stay. */
typedef struct loong_cut {
    int64_t head, tail;
} loong_cut_t;

/* Of a text that was read. false: it cannot be cut in this way. A text that
 * is short enough stays whole. */
bool loongi_truncate(const loong_item_t *text, int64_t room,
                     loong_truncation_t truncation, loong_cut_t *cut);

#ifdef __cplusplus
}
#endif

#endif
