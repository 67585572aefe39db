/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters as their masters, for references; see loong/update.h. */
#ifndef LOONG_MASTER_H
#define LOONG_MASTER_H

#include "ref.h"

static inline double ref_master_get(const ref_mat_t *p, const uint16_t *low,
                                    int64_t i)
{
    if (p->dtype != LOONG_BF16) {
        return ref_get(p->p, p->dtype, i);
    }
    uint32_t hi = ((const uint16_t *)p->p)[i];
    uint32_t bits = (hi - (low[i] >> 15)) << 16 | low[i];
    float value;
    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

static inline void ref_master_set(const ref_mat_t *p, uint16_t *low, int64_t i,
                                  double v)
{
    if (p->dtype != LOONG_BF16) {
        ref_set(p->p, p->dtype, i, v);
        return;
    }
    float value = (float)v;
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    low[i] = (uint16_t)bits;
    ((uint16_t *)p->p)[i] = (uint16_t)((bits >> 16) + (low[i] >> 15));
}

#endif
