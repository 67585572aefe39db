/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rows and columns of a whole parameter the part of this rank is. Called
 * where parameters are set, read, saved or updated. Read loong_placement_t in
 * loong/graph.h before. */
#include "param_slice.h"

loong_param_slice_t loongi_param_slice_of(const loong_chunk_param_t *place)
{
    const loong_placement_t *at = &place->params.place;
    const loong_shape_t *all = &place->params.shape;
    int last = all->rank - 1;
    int64_t each = last > 1 ? all->dim[1] : 1; /* rows of an expert */
    bool inner = at->inner_parts > 0;
    loong_param_slice_t part = {
        .row = at->cut && at->dim == 0 ? at->begin * each : 0,
        .col = at->cut && at->dim == last && last > 0 ? at->begin : 0,
        .cols = last > 0 ? place->shape.dim[last] : 1,
        .all_rows = all->dim[0] * each - place->params.padding,
        .all_cols = last > 0 ? all->dim[last] : 1,
    };
    each = last > 1 ? place->shape.dim[1] : 1;
    part.rows = LOONG_MIN(place->shape.dim[0] * each, part.all_rows - part.row);
    part.rows = LOONG_MAX(part.rows, 0);
    if (inner && at->inner_dim == last) {
        part.col = at->inner_begin;
    } else if (inner) {
        part.row += at->inner_begin;
        part.span = at->inner_count;
        part.apart = all->dim[at->inner_dim] / at->inner_parts;
    }
    return part;
}

int64_t loongi_param_slice_row(const loong_param_slice_t *part, int64_t row,
                               int64_t *n_p)
{
    if (part->span == 0) {
        return part->row + row;
    }
    *n_p = LOONG_MIN(*n_p, part->span - row % part->span);
    return part->row + row / part->span * part->apart + row % part->span;
}
