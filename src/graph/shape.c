/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes of shapes, parameters and values. Called by graph building, passes and
 * whoever allocates. Read loong/graph.h before. */
#include "graph_impl.h"
#include "quant.h"

int64_t loongi_shape_elements(const loong_shape_t *shape)
{
    int64_t n = shape->rank > 0 ? 1 : 0;
    for (int i = 0; i < shape->rank; i++) {
        n *= shape->dim[i];
    }
    return n;
}

loong_shape_t loongi_param_shape(const loong_param_params_t *params)
{
    loong_shape_t shape = params->shape;
    if (params->place.cut) {
        shape.dim[params->place.dim] = params->place.count;
    }
    if (params->place.inner_parts > 0) {
        shape.dim[params->place.inner_dim] =
            params->place.inner_parts * params->place.inner_count;
    }
    if (params->quant != LOONG_QUANT_NONE) {
        int last = shape.rank - 1;
        shape.dim[last] =
            loongi_quant_row_bytes(params->quant, shape.dim[last]);
    }
    return shape;
}

size_t loongi_value_bytes(const loong_graph_t *g, loong_val_t v)
{
    const loong_value_t *value = loongi_value(g, v);
    return (size_t)loongi_shape_elements(&value->shape) *
           loong_dtype_size(value->dtype);
}

bool loongi_shape_equal(const loong_shape_t *a, const loong_shape_t *b)
{
    bool same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++) {
        same = a->dim[i] == b->dim[i];
    }
    return same;
}
