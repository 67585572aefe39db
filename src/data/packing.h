/* SPDX-License-Identifier: Apache-2.0
 *
 * Which samples lie in which row: a pure function of their lengths, a key and
 * the epoch.
 *
 * The rows of a packing are made of lengths. Which of the samples of one length
 * takes which of its places, a permutation decides that is another one in each
 * epoch: so all epochs have as many rows, and nothing is stored for them.
 *
 * Samples with pictures take three things of a row: places, rows of the image
 * encoder, pictures. Rows of these are the same in each epoch. */
#ifndef LOONG_PACKING_H
#define LOONG_PACKING_H

#include "base.h"
#include "loong/source.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a sample takes of a row, or a row has. */
enum { LOONG_PACK_IDS, LOONG_PACK_PATCHES, LOONG_PACK_IMAGES };
enum { LOONG_PACK_SIZES = 3 };

typedef struct loong_pack_table {
    loong_context_t *ctx;
    uint64_t key;
    int64_t samples, rows;
    int32_t room;    /* ids of a row */
    int32_t most;    /* samples of a row, at most */
    int32_t *length; /* [samples], 0 .. room */
    /* Of samples with pictures, else NULL: [samples] what each takes. */
    int32_t (*sizes)[LOONG_PACK_SIZES];
    int32_t has[LOONG_PACK_SIZES]; /* a row, then */
    /* Of rows of several samples, else NULL; sample and at_least also with
     * pictures: a place is the sample itself. */
    int32_t *sample;   /* [samples] longest first: a place of the packing */
    int64_t *at_least; /* [room + 2] samples that are so long, or longer */
    int64_t *first;    /* [rows + 1] of a row among: */
    int32_t *place;    /* [samples] */
} loong_pack_table_t;

/* Begins a table of so many samples, 0 .. INT32_MAX: their lengths are to be
 * filled. */
LOONG_NODISCARD loong_status_t loongi_pack_begin(loong_context_t *ctx,
                                                 int64_t samples, int32_t room,
                                                 loong_pack_table_t *table);

/* What samples take is in sizes then, to be filled as well, each at most what a
 * row has. */
LOONG_NODISCARD loong_status_t loongi_pack_limit(
    loong_pack_table_t *table, const int32_t has[LOONG_PACK_SIZES]);

/* Makes the rows. best_fit: samples from the longest on, each into the row that
 * it leaves the least room in, a new one where none has enough; greedy:
 * likewise, in an order drawn by the key. O(samples + room).
 *
 * With pictures both fill one row after the other from a window of 256 samples
 * in a drawn order: the one that has waited longest, then, as long as some fit,
 * that whose sizes point most to what is left (the largest scalar product of
 * both, in parts of what a row has; Panigrahy et al. 2011).
 * O(samples x window). */
LOONG_NODISCARD loong_status_t loongi_pack_make(loong_pack_table_t *table,
                                                loong_packing_t packing,
                                                uint64_t key);

void loongi_pack_destroy(loong_pack_table_t *table);

/* Samples of a row, the length of number i of them, and which one it is in an
 * epoch. */
int64_t loongi_pack_count(const loong_pack_table_t *table, int64_t row);
int64_t loongi_pack_length(const loong_pack_table_t *table, int64_t row,
                           int64_t i);
int64_t loongi_pack_sample(const loong_pack_table_t *table, int64_t row,
                           int64_t i, int64_t epoch);

#ifdef __cplusplus
}
#endif

#endif
