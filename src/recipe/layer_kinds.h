/* SPDX-License-Identifier: Apache-2.0
 *
 * Which layers are of one of two kinds (have experts, see whole pictures), as
 * Megatron's moe_layer_freq says it: N, every N-th from the first on; or a list
 * of 0 and 1, joined with +, repeated with *: [0]*3+[1]*58, ([0]+[1]*3)*6. A
 * last * without a number goes on to the last layer, whatever their number:
 * [0]*3+[1]*. */
#ifndef LOONG_LAYER_KINDS_H
#define LOONG_LAYER_KINDS_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_MAX_LAYERS = 10000 };

typedef struct loong_layer_kinds {
    uint8_t of[LOONG_MAX_LAYERS]; /* 1, or 0: experts, or a feed-forward */
} loong_layer_kinds_t;

/* NULL stands for 1. False when the text is no such expression or does not say
 * `layers` layers; `problem` is what is wrong with it then. */
bool loongi_layer_kinds_parse(const char *text, int64_t layers,
                              loong_layer_kinds_t *kinds, char problem[128]);
/* The shortest run-length list, its last run to the last layer; "1" when all
 * are 1. */
void loongi_layer_kinds_print(const loong_layer_kinds_t *kinds, int64_t layers,
                              loong_text_t *text);
/* The layers that are 0, as JSON: [0, 1]. True when there are some. */
bool loongi_layer_kinds_list(const loong_layer_kinds_t *kinds, int64_t layers,
                             loong_text_t *text);

#ifdef __cplusplus
}
#endif

#endif
