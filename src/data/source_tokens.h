/* SPDX-License-Identifier: Apache-2.0
 *
 * Sources of token ids. */
#ifndef LOONG_SOURCE_TOKENS_H
#define LOONG_SOURCE_TOKENS_H

#include "loong/source.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const loong_source_class_t loongi_token_source;
/* The same sets, a sample for each document. */
extern const loong_source_class_t loongi_document_source;

/* Begins the items with one text of so many ids: ids and weights are to be
 * filled, starts are 0. */
LOONG_NODISCARD loong_status_t loongi_items_tokens(loong_items_t *items,
                                                   int64_t count);

#ifdef __cplusplus
}
#endif

#endif
