/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of parts; read parts_xpu.h before. Called by cross_entropy_xpu.c,
 * products_xpu.c and grouped_xpu.c. */
#include "parts_xpu.h"

#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "loong/device.h"
#include "xpu_kernels.h"

enum { PART = 1 << 28 };

int64_t loongi_xpu_part_elements(void)
{
    const char *text = getenv("LOONG_XPU_PART");
    int64_t most = text != NULL ? strtoll(text, NULL, 10) : 0;
    return most > 0 ? most : PART;
}

loong_xpu_mat_t loongi_xpu_rows(const loong_kernel_call_t *call, int operand,
                                int64_t first, int64_t rows)
{
    const loong_karg_t *a = &call->query->arg[operand];
    int64_t ld = a->rank < 2 ? 1 : a->ld;
    char *from = call->ptr[operand];
    loong_xpu_mat_t m = {*a, from + (size_t)(first * ld) *
                                        loong_dtype_size(a->dtype)};
    if (a->rank > 2) {
        m.arg.rank = 2;
        m.arg.dim[1] = loong_karg_cols(a);
    }
    m.arg.dim[0] = rows;
    return m;
}

loong_status_t loongi_xpu_launch(const loong_kernel_call_t *call,
                                 const loong_xpu_part_t *part,
                                 const loong_xpu_mat_t *operands, bool add)
{
    void *ptr[LOONG_MAX_OPERANDS] = {NULL};
    loong_kernel_query_t q = {.op = part->op != NULL ? part->op
                                                     : part->kernel->op,
                              .attr = part->attr,
                              .num_in = part->num_in,
                              .num_out = part->num_out,
                              .threads = call->query->threads,
                              .policy = call->query->policy};
    for (int i = 0; i < q.num_in + q.num_out; i++) {
        q.arg[i] = operands[i].arg;
        ptr[i] = operands[i].ptr;
    }
    loong_kernel_call_t inner = *call;
    inner.query = &q;
    inner.ptr = ptr;
    inner.state = part->state;
    inner.accumulate = add ? 1 : 0;
    inner.workspace = NULL;
    return part->kernel->run(&inner);
}

loong_status_t loongi_xpu_clear(const loong_kernel_call_t *call,
                                const loong_xpu_mat_t *m)
{
    size_t size = loong_dtype_size(m->arg.dtype);
    int64_t rows = loong_karg_rows(&m->arg);
    int64_t cols = loong_karg_cols(&m->arg);
    bool dense = m->arg.ld == cols; /* a fill is a launch */
    for (int64_t r = 0; r < (dense ? LOONG_MIN(rows, 1) : rows); r++) {
        LOONG_TRY(loong_device_fill(
            call->device, (char *)m->ptr + (size_t)(r * m->arg.ld) * size, 0,
            (size_t)(dense ? rows * cols : cols) * size));
    }
    return LOONG_OK;
}

loong_status_t loongi_xpu_prepare_raw(loong_context_t *ctx, const char *op,
                                      void **state_p)
{
    const loong_kernel_query_t q = {.op = op, .num_in = 0};
    return loongi_xpu_raw.prepare(ctx, &q, state_p);
}

const loong_kernel_t *loongi_xpu_product(const char *op)
{
    int i = 0;
    while (strcmp(loongi_xpu_products[i]->op, op) != 0) {
        i++;
    }
    return loongi_xpu_products[i];
}

static loong_status_t check_offsets(const loong_kernel_call_t *call,
                                    int operand, const int32_t *offset)
{
    int64_t count = call->query->arg[operand].dim[0];
    int64_t rows = call->query->arg[0].dim[0];
    for (int64_t e = 0; e < count; e++) {
        int32_t before = e > 0 ? offset[e - 1] : 0;
        LOONG_CHECK(call->ctx,
                    offset[e] >= before && offset[e] <= rows &&
                        (e > 0 || offset[0] == 0),
                    LOONG_ERR_ARG,
                    "%s: offset %lld is %d after %d, there are %lld rows",
                    call->query->op, (long long)e, offset[e], before,
                    (long long)rows);
    }
    return LOONG_OK;
}

loong_status_t loongi_xpu_read_offsets(const loong_kernel_call_t *call,
                                       int operand, int32_t *offset)
{
    size_t bytes =
        (size_t)call->query->arg[operand].dim[0] * sizeof(*offset);
    LOONG_TRY(loong_device_stream_copy(call->device, call->stream, offset,
                                       call->ptr[operand], bytes));
    LOONG_TRY(loong_device_stream_synchronize(call->device, call->stream));
    return check_offsets(call, operand, offset);
}
