/* SPDX-License-Identifier: Apache-2.0 */
#include "collective.h"

#include "loong/register.h"
#include "optimizer.h"

static loong_status_t infer_flat(const loong_op_call_t *call)
{
    LOONG_CHECK(call->ctx, call->num_in == 1 && call->in[0].shape.rank == 1,
                LOONG_ERR_ARG, "%s: wants one flat tensor", call->op);
    call->out[0] = call->in[0];
    return LOONG_OK;
}

static loong_status_t run_all_reduce(const loong_kernel_call_t *call)
{
    const loong_collective_attr_t *a = call->query->attr;
    const loong_karg_t *x = &call->query->arg[0];
    return loong_comm_all_reduce(a->comm, call->ptr[0], x->dim[0], x->dtype,
                                 LOONG_REDUCE_SUM, a->label);
}

static loong_status_t run_reduce_scatter(const loong_kernel_call_t *call)
{
    const loong_collective_attr_t *a = call->query->attr;
    return loong_comm_reduce_scatter(a->comm, call->ptr[0], a->counts,
                                     call->query->arg[0].dtype,
                                     LOONG_REDUCE_SUM, a->label);
}

static loong_status_t run_all_gather(const loong_kernel_call_t *call)
{
    const loong_collective_attr_t *a = call->query->attr;
    return loong_comm_all_gather(a->comm, call->ptr[0], a->counts,
                                 call->query->arg[0].dtype, a->label);
}

static const loong_op_t ops[] = {
    {.name = "all_reduce",
     .attr_size = sizeof(loong_collective_attr_t),
     .min_in = 1,
     .max_in = 1,
     .num_out = 1,
     .infer = infer_flat},
    {.name = "reduce_scatter",
     .attr_size = sizeof(loong_collective_attr_t),
     .min_in = 1,
     .max_in = 1,
     .num_out = 1,
     .infer = infer_flat},
    {.name = "all_gather",
     .attr_size = sizeof(loong_collective_attr_t),
     .min_in = 1,
     .max_in = 1,
     .num_out = 1,
     .infer = infer_flat},
};

static const loong_kernel_t kernels[] = {
    {.name = "all_reduce_comm",
     .op = "all_reduce",
     .device = "cpu",
     .run = run_all_reduce},
    {.name = "reduce_scatter_comm",
     .op = "reduce_scatter",
     .device = "cpu",
     .run = run_reduce_scatter},
    {.name = "all_gather_comm",
     .op = "all_gather",
     .device = "cpu",
     .run = run_all_gather},
};

loong_status_t loongi_register_collectives(loong_context_t *ctx)
{
    for (int i = 0; i < LOONG_COUNT_OF(ops); i++) {
        LOONG_TRY(loong_register_op(ctx, &ops[i]));
        LOONG_TRY(loong_register_kernel(ctx, &kernels[i]));
    }
    return LOONG_OK;
}
