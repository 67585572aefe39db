/* SPDX-License-Identifier: Apache-2.0
 *
 * How parameters start. */
#include <math.h>

#include "initial.h"
#include "rng.h"

/* One draw in 370 lies outside and is made again, from a stream of its own. */
static double truncated_normal(uint64_t seed, uint64_t key, uint64_t index)
{
    const double bound = 3.0;
    double value = loongi_rng_normal(seed, key, index);
    while (fabs(value) > bound) {
        value = loongi_rng_normal(seed, ++key, index);
    }
    return value;
}

double loongi_initial(const loong_param_params_t *param, uint64_t seed,
                      uint64_t key, uint64_t index)
{
    switch (param->init) {
    case LOONG_INIT_ZEROS:
        break;
    case LOONG_INIT_ONES:
        return 1.0;
    case LOONG_INIT_NORMAL:
        return param->std * loongi_rng_normal(seed, key, index);
    case LOONG_INIT_UNIFORM:
        return param->std * sqrt(3.0) *
               (2.0 * loongi_rng_uniform(seed, key, index) - 1.0);
    case LOONG_INIT_TRUNCATED_NORMAL:
        return param->std * truncated_normal(seed, key, index);
    }
    return 0.0;
}
