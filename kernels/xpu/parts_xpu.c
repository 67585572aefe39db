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
    for (int64_t r = 0; r < loong_karg_rows(&m->arg); r++) {
        LOONG_TRY(loong_device_fill(
            call->device, (char *)m->ptr + (size_t)(r * m->arg.ld) * size, 0,
            (size_t)loong_karg_cols(&m->arg) * size));
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
