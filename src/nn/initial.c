/* SPDX-License-Identifier: Apache-2.0
 *
 * How parameters start. Called by src/component/stage_params.c. Read initial.h
 * before. */
#include <math.h>

#include "initial.h"
#include "rng.h"

static void scale(double factor, int64_t count, double *values)
{
    for (int64_t i = 0; i < count; i++) {
        values[i] *= factor;
    }
}

/* One draw in 370 lies outside and is made again, from a stream of its own. */
static void truncate_normals(const loong_draw_t *d, double *values)
{
    const double bound = 3.0;
    for (int64_t i = 0; i < d->count; i++) {
        uint64_t key = d->key;
        while (fabs(values[i]) > bound) {
            values[i] = loongi_rng_normal(d->seed, ++key,
                                          d->index + (uint64_t)i);
        }
    }
}

static void fill(double value, int64_t count, double *values)
{
    for (int64_t i = 0; i < count; i++) {
        values[i] = value;
    }
}

void loongi_initial(const loong_param_params_t *param,
                    const loong_draw_t *draw, double *values)
{
    const loong_draw_t *d = draw;
    switch (param->init) {
    case LOONG_INIT_ZEROS:
        fill(0.0, d->count, values);
        break;
    case LOONG_INIT_ONES:
        fill(1.0, d->count, values);
        break;
    case LOONG_INIT_CONSTANT:
        fill(param->std, d->count, values);
        break;
    case LOONG_INIT_NORMAL:
        loongi_rng_normals(d->seed, d->key, d->index, d->count, values);
        scale(param->std, d->count, values);
        break;
    case LOONG_INIT_UNIFORM:
        for (int64_t i = 0; i < d->count; i++) {
            values[i] = 2.0 * loongi_rng_uniform(d->seed, d->key,
                                                 d->index + (uint64_t)i) -
                        1.0;
        }
        scale(param->std * sqrt(3.0), d->count, values);
        break;
    case LOONG_INIT_TRUNCATED_NORMAL:
        loongi_rng_normals(d->seed, d->key, d->index, d->count, values);
        truncate_normals(d, values);
        scale(param->std, d->count, values);
        break;
    }
}
