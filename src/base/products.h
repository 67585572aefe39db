/* SPDX-License-Identifier: Apache-2.0
 *
 * How matrix products and attention are made on the devices of a context,
 * where a device leaves a choice: part of the context, read when graphs are
 * made and kernels prepared. */
#ifndef LOONG_PRODUCTS_H
#define LOONG_PRODUCTS_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_products {
    bool tf32; /* operands of fp32 are rounded to it */
    /* File of algorithms that were measured; NULL: none is measured, the
     * library's first choice is taken. Borrowed, as long as the context is
     * used. */
    const char *algorithms;
    int attention; /* a loong_attention_backend_t */
    bool fixed;    /* the file may not be written: nothing is measured */
} loong_products_t;

void loongi_context_set_products(loong_context_t *ctx,
                                 const loong_products_t *products);
loong_products_t loongi_context_products(const loong_context_t *ctx);

/* A library of products, opened once for all of the context's: its loader's to
 * set, NULL before the first product is made. It is ended with the context. */
typedef struct loong_product_library {
    void *data;
    void (*destroy)(loong_context_t *ctx, void *data);
} loong_product_library_t;

loong_product_library_t *loongi_context_product_library(loong_context_t *ctx);

/* What attention kernels of this context share beyond their states: theirs to
 * set, NULL before the first of them is prepared and behind the last. */
void **loongi_context_attention_plans(loong_context_t *ctx);

#ifdef __cplusplus
}
#endif

#endif
