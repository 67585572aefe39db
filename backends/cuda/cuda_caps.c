/* SPDX-License-Identifier: Apache-2.0
 *
 * What any NVIDIA GPU can do, and how fast known ones are: for plans, which
 * need no GPU. In the tables of cuda_device.c and cuda_absent.c. Read
 * loong/device_types.h before. */
#include "cuda_device.h"

#define GB 1e9
#define TERA 1e12

/* Rates of products, memory and links: NVIDIA's datasheets (A100 80GB SXM, H100
 * SXM, H200 SXM, B200 SXM), links one way. Measured, on one H200
 * (docs/measurements): 4.3 of 4.8 TB/s for a copy, products of a layer's sizes
 * at 776 to 791 of 989 TFLOP/s alone and, by the time of steps, at 0.75 of it
 * for as long as these; attention by our kernels and by cuDNN, whose gradient
 * is in a fixed order. The H100 is taken to do the same. Of the others these
 * are predicted, and of all what passes over memory reach, gaps and latencies,
 * 80 % of a link and 90 % of a network card (400 Gb/s for each GPU, 200 of an
 * A100). */
#define LINKS(link_, network_) 0.8 * (link_) * GB, 0.9 * (network_) * GB, 4e-6
#define GAPS 1e-6, 3e-6
#define SHEET "datasheet"
const loong_device_rates_t loongi_cuda_rates[] = {
    {"h200", SHEET, true, 989 * TERA, 494 * TERA, 67 * TERA, 0.75, 0.26, 0.14,
     0.61, 0.43, 4300 * GB, 0.85, GAPS, LINKS(450, 50), 141 * GB, 8},
    {"h100", SHEET, true, 989 * TERA, 494 * TERA, 67 * TERA, 0.75, 0.26, 0.14,
     0.61, 0.43, 0.9 * 3350 * GB, 0.85, GAPS, LINKS(450, 50), 80 * GB, 8},
    {"a100", SHEET, false, 312 * TERA, 156 * TERA, 19.5 * TERA, 0.70, 0.49,
     0.32, 0.60, 0.45, 0.9 * 2039 * GB, 0.85, GAPS, LINKS(300, 25), 80 * GB, 8},
    {"b200", SHEET, true, 2250 * TERA, 1100 * TERA, 75 * TERA, 0.70, 0.15, 0.10,
     0.60, 0.45, 0.9 * 8000 * GB, 0.85, GAPS, LINKS(900, 50), 180 * GB, 8},
    {.name = NULL}};

void loongi_cuda_caps(loong_device_caps_t *caps)
{
    caps->rate[LOONG_F64] = LOONG_RATE_VECTOR;
    caps->rate[LOONG_F32] = LOONG_RATE_VECTOR;
    caps->rate[LOONG_BF16] = LOONG_RATE_MATRIX;
    caps->features =
        1u << LOONG_FEATURE_TF32 | 1u << LOONG_FEATURE_ALGORITHMS |
        1u << LOONG_FEATURE_FUSED_ATTENTION | 1u << LOONG_FEATURE_GRAPHS;
}
