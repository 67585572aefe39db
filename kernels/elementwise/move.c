/* SPDX-License-Identifier: Apache-2.0
 *
 * copy, zero, concat, slice_grad, zigzag, repeat_heads and select_rows as
 * copies of whole rows or heads: any type. Listed in kernels/list.h; read
 * loong/ops.h before. */
#include <string.h>

#include "base.h"
#include "list.h"
#include "loong/collective.h"
#include "zigzag.h"

/* Input `in` into columns begin .. of output 0; with `clear` all other columns
 * of the output become zero. */
static void move(const loong_kernel_call_t *call, int in, int64_t begin,
                 bool clear)
{
    const loong_karg_t *x = &call->query->arg[in];
    const loong_karg_t *y = &call->query->arg[call->query->num_in];
    size_t size = loong_dtype_size(y->dtype);
    size_t before = (size_t)begin * size;
    size_t own = (size_t)loong_karg_cols(x) * size;
    size_t all = (size_t)loong_karg_cols(y) * size;
    int64_t rows = loong_karg_rows(y);
    const char *from = call->ptr[in];
    char *to = call->ptr[call->query->num_in];
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < rows; t++) {
        char *row = to + (size_t)(t * y->ld) * size;
        memcpy(row + before, from + (size_t)(t * x->ld) * size, own);
        if (clear) {
            memset(row, 0, before);
            memset(row + before + own, 0, all - before - own);
        }
    }
}

static loong_status_t copy(const loong_kernel_call_t *call)
{
    move(call, 0, 0, false);
    return LOONG_OK;
}

static loong_status_t zero(const loong_kernel_call_t *call)
{
    const loong_karg_t *y = &call->query->arg[0];
    size_t size = loong_dtype_size(y->dtype);
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < loong_karg_rows(y); t++) {
        memset((char *)call->ptr[0] + (size_t)(t * y->ld) * size, 0,
               (size_t)loong_karg_cols(y) * size);
    }
    return LOONG_OK;
}

static loong_status_t concat(const loong_kernel_call_t *call)
{
    int64_t column = 0;
    for (int i = 0; i < call->query->num_in; i++) {
        move(call, i, column, false);
        column += loong_karg_cols(&call->query->arg[i]);
    }
    return LOONG_OK;
}

static loong_status_t slice_grad(const loong_kernel_call_t *call)
{
    const loong_slice_grad_attr_t *a = call->query->attr;
    move(call, 0, a->begin, true);
    return LOONG_OK;
}

/* Chunk by chunk: part p of a rank is one half of its rows of a sample. */
static loong_status_t zigzag(const loong_kernel_call_t *call)
{
    const loong_zigzag_attr_t *a = call->query->attr;
    const loong_karg_t *x = &call->query->arg[0];
    size_t row = (size_t)loong_karg_cols(x) * loong_dtype_size(x->dtype);
    int64_t chunk = a->length / (2 * (int64_t)a->ranks);
    int64_t samples = loong_karg_rows(x) / a->length;
    size_t bytes = (size_t)chunk * row;
    const char *from = call->ptr[0];
    char *to = call->ptr[1];
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t i = 0; i < 2 * samples * a->ranks; i++) {
        int64_t rank = i / (2 * samples);
        int64_t sample = i / 2 % samples;
        size_t apart = (size_t)(i * chunk) * row;
        int64_t place = loongi_zigzag_place((int)rank, a->ranks, a->length,
                                            i % 2 * chunk);
        size_t together = (size_t)(sample * a->length + place) * row;
        memcpy(to + (a->inverse ? apart : together),
               from + (a->inverse ? together : apart), bytes);
    }
    return LOONG_OK;
}

static loong_status_t repeat_heads(const loong_kernel_call_t *call)
{
    const loong_repeat_heads_attr_t *a = call->query->attr;
    const loong_karg_t *x = &call->query->arg[0];
    const loong_karg_t *y = &call->query->arg[1];
    size_t size = loong_dtype_size(x->dtype);
    size_t head = (size_t)a->head_dim * size;
    int64_t rows = loong_karg_rows(x);
    int64_t heads = loong_karg_cols(y) / a->head_dim;
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < rows; t++) {
        const char *from =
            (const char *)call->ptr[0] + (size_t)(t * x->ld) * size;
        char *to = (char *)call->ptr[1] + (size_t)(t * y->ld) * size;
        for (int64_t h = 0; h < heads; h++) {
            memcpy(to + (size_t)h * head, from + (size_t)(h / a->times) * head,
                   head);
        }
    }
    return LOONG_OK;
}

/* Rows of x that stay where they are, as in place, are not copied. */
static loong_status_t select_rows(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_select_rows_attr_t *a = q->attr;
    const int32_t *is_feature = call->ptr[1];
    const loong_karg_t *y = &q->arg[q->num_in];
    size_t size = loong_dtype_size(y->dtype);
    size_t row = (size_t)loong_karg_cols(y) * size;
#pragma omp parallel for schedule(static) num_threads(q->threads)
    for (int64_t t = 0; t < loong_karg_rows(y); t++) {
        char *to = (char *)call->ptr[q->num_in] + (size_t)(t * y->ld) * size;
        int i = (is_feature[t] != 0) != a->inverse ? 2 : 0;
        if (i >= q->num_in) {
            memset(to, 0, row);
            continue;
        }
        const char *from =
            (const char *)call->ptr[i] + (size_t)(t * q->arg[i].ld) * size;
        if (from != to) {
            memcpy(to, from, row);
        }
    }
    return LOONG_OK;
}

const loong_kernel_t loongi_select_rows_rows = {.name = "select_rows_rows",
                                                .op = "select_rows",
                                                .device = "cpu",
                                                .run = select_rows};
const loong_kernel_t loongi_repeat_heads_rows = {.name = "repeat_heads_rows",
                                                 .op = "repeat_heads",
                                                 .device = "cpu",
                                                 .run = repeat_heads};
const loong_kernel_t loongi_zigzag_rows = {
    .name = "zigzag_rows", .op = "zigzag", .device = "cpu", .run = zigzag};
const loong_kernel_t loongi_copy_rows = {
    .name = "copy_rows", .op = "copy", .device = "cpu", .run = copy};
const loong_kernel_t loongi_zero_rows = {
    .name = "zero_rows", .op = "zero", .device = "cpu", .run = zero};
const loong_kernel_t loongi_concat_rows = {
    .name = "concat_rows", .op = "concat", .device = "cpu", .run = concat};
const loong_kernel_t loongi_slice_grad_rows = {.name = "slice_grad_rows",
                                               .op = "slice_grad",
                                               .device = "cpu",
                                               .run = slice_grad};
