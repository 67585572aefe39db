/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rows of a table of positions a patch has, and how much of each. Called
 * by patch_fields.c and packing.c. */
#include <string.h>

#include "patch_fields.h"

/* Keys' kernel with a = -3/4. */
static double cubic(double x)
{
    const double a = -0.75;
    return x <= 1.0 ? ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
                    : ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
}

loong_taps_t loongi_taps_of(const loong_position_table_t *table, int64_t index,
                            int64_t size)
{
    loong_taps_t taps = {{0}, {0}};
    double side = (double)table->side;
    bool cubics = table->interpolation == LOONG_BICUBIC;
    if (table->interpolation == LOONG_NEAREST) {
        return (loong_taps_t){{index * table->side / size}, {1.0}};
    }
    double at = table->align_corners
                    ? (double)index * (side - 1.0) /
                          (double)LOONG_MAX(size - 1, 1)
                    : ((double)index + 0.5) * side / (double)size - 0.5;
    int64_t first = (int64_t)floor(at) - (cubics ? 1 : 0);
    for (int i = 0; i < loong_position_side_taps(table); i++) {
        double far = fabs(at - (double)(first + i));
        taps.row[i] =
            LOONG_MIN(LOONG_MAX(first + i, 0), table->side - 1);
        taps.weight[i] = cubics ? cubic(far) : fmax(1.0 - far, 0.0);
    }
    return taps;
}

void loongi_antialias_taps(const loong_position_table_t *table, int64_t index,
                           int64_t size, double weight[LOONG_MOST_SIDE])
{
    double scale = (double)table->side / (double)size;
    double reach = fmax(scale, 1.0);
    double center = scale * ((double)index + 0.5);
    int64_t first = LOONG_MAX((int64_t)(center - reach + 0.5), 0);
    int64_t end = LOONG_MIN((int64_t)(center + reach + 0.5), table->side);
    double sum = 0.0;
    memset(weight, 0, (size_t)table->side * sizeof(*weight));
    for (int64_t i = first; i < end; i++) {
        double far = fabs(((double)i - center + 0.5) / reach);
        weight[i] = fmax(1.0 - far, 0.0);
        sum += weight[i];
    }
    for (int64_t i = first; i < end; i++) {
        weight[i] /= sum;
    }
}
