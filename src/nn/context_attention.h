/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over sequences that context parallel ranks share. */
#ifndef LOONG_CONTEXT_ATTENTION_H
#define LOONG_CONTEXT_ATTENTION_H

#include "loong/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* loong_attention of this rank's queries (operands without `rows`) over the
 * keys of all ranks of CP; alone in the group it is loong_attention. Without v
 * the values are the first channels of the one key head: nothing but keys goes
 * between ranks. */
loong_val_t
loongi_context_attention(loong_nn_t *nn,
                         const loong_attention_operands_t *operands,
                         const loong_attention_attr_t *attr);

#ifdef __cplusplus
}
#endif

#endif
