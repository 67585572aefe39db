/* SPDX-License-Identifier: Apache-2.0
 *
 * A source over a source: its samples are rows, which texts of lengths of
 * their own are laid into. */
#ifndef LOONG_SOURCE_PACK_H
#define LOONG_SOURCE_PACK_H

#include "loong/processor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_pack_params {
    const char *data;   /* the set that the source belongs to, for messages */
    int64_t seq_length; /* T: a row has T + 1 ids */
    loong_packing_t packing;
    loong_truncation_t truncation;
    uint64_t key; /* of what is drawn */
    /* Of texts with pictures; rows NULL: texts alone. A row has T places then,
     * and room for so many rows of the image encoder and pictures. */
    loong_picture_reader_t pictures;
    int32_t patches, images;
} loong_pack_params_t;

/* Puts itself in the place of a source whose class packs, which it owns then,
 * and of the class; of the same name, and read by several threads where the
 * source is. On an error both stay.
 * Errors: LOONG_ERR_CONFIG (texts that are too long and not to be cut, the
 * first ones by name; those with pictures are not cut), LOONG_ERR_MEMORY; those
 * of the source. */
LOONG_NODISCARD loong_status_t
loongi_pack_source(loong_context_t *ctx, const loong_pack_params_t *params,
                   const loong_source_class_t **class_p, void **source_p);

/* The sum over the samples of a row of cost[n], n their ids; -1: the source
 * does not lay samples into rows. */
int64_t loongi_pack_cost(const loong_source_class_t *source_class,
                         const void *source, int64_t row, const int64_t *cost);

/* Sample i of those in a row, as its own source has it, by which items it is
 * named; items->count is 0 behind the last one, and where the source does not
 * lay samples into rows. Errors: those of the source. */
LOONG_NODISCARD loong_status_t
loongi_pack_read_sample(const loong_source_class_t *source_class,
                        const void *source, int64_t row, int64_t i,
                        loong_items_t *items);

#ifdef __cplusplus
}
#endif

#endif
