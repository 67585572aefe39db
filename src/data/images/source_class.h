/* SPDX-License-Identifier: Apache-2.0
 *
 * Labelled pictures as a class of sources: samples of a picture and a label. */
#ifndef LOONG_IMAGE_SOURCE_CLASS_H
#define LOONG_IMAGE_SOURCE_CLASS_H

#include "loong/source.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const loong_source_class_t loongi_image_source;

/* Begins the items with a picture of that size, whose pixels are to be filled,
 * and the label 0. */
LOONG_NODISCARD loong_status_t loongi_items_picture(loong_items_t *items,
                                                    int64_t width,
                                                    int64_t height);

#ifdef __cplusplus
}
#endif

#endif
