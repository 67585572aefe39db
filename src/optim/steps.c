/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes program steps over ranges of flat buffers. Called by the optimizer,
 * the shards and tied ends. Read loong_program_append in src/pass/program.h
 * before. */
#include "steps.h"

#include <string.h>

enum { MIN_ROW = 64, MAX_ROW = 4096 /* elements: a thread's piece */ };

loong_karg_t loongi_flat_arg(loong_dtype_t dtype, int64_t n)
{
    loong_karg_t arg = {dtype, 1, {n, 0, 0, 0}, n};
    return arg;
}

void loongi_step_begin(loong_step_t *step, const char *op, const char *scope,
                       const loong_shards_params_t *params)
{
    memset(step, 0, sizeof(*step));
    step->scope = scope;
    step->refusals = "";
    step->query.op = op;
    step->query.threads = params->threads;
    step->query.policy = params->policy;
}

loong_status_t loongi_step_collective(const loong_shards_t *shards,
                                      const char *op, loong_group_t group,
                                      const loong_bucket_t *bucket,
                                      loong_step_t *step)
{
    loong_collective_attr_t *attr = NULL;
    LOONG_TRY(loongi_arena_alloc(shards->arena, sizeof(*attr), &attr));
    attr->group = group;
    attr->size = loong_mesh_group_size(&shards->mesh, group);
    attr->rank = loong_mesh_group_rank(&shards->mesh, group);
    attr->counts = bucket->counts;
    attr->label = op;
    loongi_step_begin(
        step, op, group == bucket->group ? "data parallel" : "parts of sums",
        &shards->params);
    step->query.attr = attr;
    step->query.num_in = 1;
    step->lane = LOONG_LANE_COMM;
    return LOONG_OK;
}

/* As a matrix where that is possible: threads share rows. */
static loong_karg_t rows_arg(loong_dtype_t dtype, int64_t n)
{
    loong_karg_t arg = loongi_flat_arg(dtype, n);
    int64_t row = LOONG_MIN(n & -n, (int64_t)MAX_ROW);
    if (row >= MIN_ROW) {
        arg.rank = 2;
        arg.dim[0] = n / row;
        arg.dim[1] = arg.ld = row;
    }
    return arg;
}

void loongi_step_move(const loong_shards_t *shards, const char *op,
                      loong_dtype_t dtype, int64_t n, loong_step_t *step)
{
    loongi_step_begin(step, op, "data parallel", &shards->params);
    step->query.num_in = step->query.num_out = 1;
    step->query.arg[0] = step->query.arg[1] = rows_arg(dtype, n);
}
