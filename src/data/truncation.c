/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts texts that are longer than a row. Called by source_pack.c. Read
 * truncation.h before. */
#include "truncation.h"

/* The first turn at or behind `from`; the size of the text: there is none. */
static int64_t find_turn(const loong_item_t *text, int64_t from)
{
    int64_t t = from;
    while (t < text->size[0] && (text->starts[t] & LOONG_START_TURN) == 0) {
        t++;
    }
    return t;
}

/* Drops turns from the oldest on. */
static bool cut_turns(const loong_item_t *text, int64_t room, loong_cut_t *cut)
{
    int64_t n = text->size[0];
    cut->head = cut->tail = find_turn(text, 0);
    while (cut->tail < n && cut->head + n - cut->tail > room) {
        cut->tail = find_turn(text, cut->tail + 1);
    }
    return cut->tail < n;
}

bool loongi_truncate(const loong_item_t *text, int64_t room,
                     loong_truncation_t truncation, loong_cut_t *cut)
{
    int64_t n = text->size[0];
    *cut = (loong_cut_t){n, n};
    if (n <= room) {
        return true;
    }
    switch (truncation) {
    case LOONG_TRUNCATE_LEFT:
        *cut = (loong_cut_t){0, n - room};
        return true;
    case LOONG_TRUNCATE_RIGHT:
        *cut = (loong_cut_t){room, n};
        return true;
    case LOONG_TRUNCATE_TURN:
        return cut_turns(text, room, cut);
    default:
        return false;
    }
}
