/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices of linear layers and of experts as codes, beside which adapters are
 * trained. Called by the linear layers of nn.c and latent.c. Read nn_impl.h and
 * src/base/quant.h before. */
#include "loong/quantize.h"
#include "nn_impl.h"
#include "quant.h"

void loongi_nn_quantize(const loong_nn_t *nn, loong_param_params_t *p)
{
    loong_quant_t quant = nn->rules.quant;
    const loong_placement_t *at = &p->place;
    if (quant == LOONG_QUANT_NONE || !p->frozen) {
        return;
    }
    int last = p->shape.rank - 1;
    bool part = at->cut && at->dim == last;
    bool inner = at->inner_parts > 0 && at->inner_dim == last;
    int64_t all = p->shape.dim[last];
    int64_t block = loongi_quant_columns(quant);
    int64_t first = part ? at->begin : inner ? at->inner_begin : 0;
    int64_t count = part ? at->count : inner ? at->inner_count : all;
    if (all % block != 0 || first % block != 0 || count % block != 0) {
        loong_graph_fail(nn->graph, LOONG_ERR_CONFIG,
                         "finetune.quantization: %s has rows of %lld elements, "
                         "of which a rank has %lld from %lld on: these are no "
                         "whole blocks of %lld",
                         p->name, (long long)all, (long long)count,
                         (long long)first, (long long)block);
        return;
    }
    p->quant = quant;
    p->dtype = LOONG_U8;
}

static loong_val_t multiply(loong_nn_t *nn, const loong_nn_product_t *product,
                            loong_val_t x, loong_val_t bias)
{
    return product->quant == LOONG_QUANT_NONE
               ? loong_linear(nn->graph, x, product->w, bias)
               : loong_linear_quantized(nn->graph, x, product->w, bias,
                                        product->quant);
}

loong_val_t loongi_nn_multiply(loong_nn_t *nn,
                               const loong_nn_product_t *product, loong_val_t x)
{
    return multiply(nn, product, x, LOONG_NONE);
}

loong_nn_product_t loongi_nn_product(loong_nn_t *nn,
                                     const loong_param_params_t *p,
                                     loong_val_t x, loong_val_t w,
                                     loong_val_t bias, bool magnitude)
{
    loong_nn_product_t product = {x, w, bias, LOONG_NONE, p->quant};
    product.y = multiply(nn, &product, x, magnitude ? LOONG_NONE : bias);
    return product;
}

loong_val_t loongi_nn_numbers(loong_nn_t *nn, const loong_nn_product_t *product,
                              loong_val_t w)
{
    loong_dequantize_blockwise_attr_t attr = {
        product->quant, loong_value_shape(nn->graph, product->x).dim[1],
        loong_value_dtype(nn->graph, product->x)};
    return product->quant == LOONG_QUANT_NONE
               ? w
               : loong_dequantize_blockwise(nn->graph, w, &attr);
}
