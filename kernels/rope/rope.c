/* SPDX-License-Identifier: Apache-2.0
 *
 * Frequencies theta_i = base^(-2i/R), i < R/2, changed by the scalings as
 * Hugging Face defines them: linear divides by factor; llama3 interpolates
 * between both by wavelength; YaRN (Peng et al. 2023) ramps over dimensions and
 * scales the table by its attention factor; dynamic raises the base for a
 * sequence of n > N tokens (N the length before) by
 * (factor n / N - factor + 1)^(R / (R - 2)). Called by rope_ref.c and
 * rope_table_cuda.cu. Read rope.h before. */
#include "rope.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

static double llama3(const loong_rope_table_attr_t *a, double theta)
{
    double wavelength = 2.0 * pi / theta;
    double low = a->original_max_position_embeddings / a->low_freq_factor;
    double high = a->original_max_position_embeddings / a->high_freq_factor;
    if (wavelength < high) {
        return theta;
    }
    if (wavelength > low) {
        return theta / a->factor;
    }
    double smooth =
        (a->original_max_position_embeddings / wavelength -
         a->low_freq_factor) /
        (a->high_freq_factor - a->low_freq_factor);
    return (1.0 - smooth) * theta / a->factor + smooth * theta;
}

/* The dimension that makes `rotations` turns over the original length. */
static double yarn_dim(const loong_rope_table_attr_t *a, double rotations)
{
    return (double)a->rotary_dim *
           log(a->original_max_position_embeddings /
               (rotations * 2.0 * pi)) /
           (2.0 * log(a->base));
}

static double yarn(const loong_rope_table_attr_t *a, int i, double theta)
{
    double low = yarn_dim(a, a->beta_fast);
    double high = yarn_dim(a, a->beta_slow);
    if (a->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, (double)a->rotary_dim - 1.0);
    if (low == high) {
        high += 0.001;
    }
    double ramp = fmin(fmax(((double)i - low) / (high - low), 0.0), 1.0);
    return theta / a->factor * ramp + theta * (1.0 - ramp);
}

/* The base for the length of the sequence. */
static double base_of(const loong_rope_table_attr_t *a)
{
    double before = a->original_max_position_embeddings;
    double r = (double)a->rotary_dim;
    if (a->scaling != LOONG_ROPE_DYNAMIC || a->length <= before) {
        return a->base;
    }
    double grown = a->factor * a->length / before - (a->factor - 1.0);
    return a->base * pow(grown, r / (r - 2.0));
}

/* That has pair i among sections one after the other; *first_p: its first
 * one. */
static int section_of(const loong_rope_table_attr_t *a, int i, int *first_p)
{
    int axis = 0;
    int first = 0;
    while (axis + 1 < a->axes && i >= first + a->sections[axis]) {
        first += a->sections[axis++];
    }
    *first_p = first;
    return axis;
}

int loongi_rope_axis(const loong_rope_table_attr_t *attr, int i)
{
    int first;
    if (attr->axes < 2) {
        return 0;
    }
    if (attr->order == LOONG_ROPE_ALTERNATE) {
        return attr->axes - 1 - i % attr->axes;
    }
    if (attr->order == LOONG_ROPE_SPACE_FIRST) {
        return i < 2 * attr->sections[1] ? 1 + i % 2 : 0;
    }
    if (attr->order != LOONG_ROPE_INTERLEAVED) {
        return section_of(attr, i, &first);
    }
    int axis = i % attr->axes;
    return i / attr->axes < attr->sections[axis] ? axis : 0;
}

/* Pair i of a table for its axis alone. */
static double separate(const loong_rope_table_attr_t *a, int i)
{
    loong_rope_table_attr_t own = *a;
    int first;
    own.rotary_dim = 2 * a->sections[section_of(a, i, &first)];
    own.axes = 0;
    own.order = LOONG_ROPE_BLOCKS;
    return loongi_rope_frequency(
        &own, a->order == LOONG_ROPE_ALTERNATE ? i / a->axes : i - first);
}

double loongi_rope_frequency(const loong_rope_table_attr_t *a, int i)
{
    if (a->order == LOONG_ROPE_SEPARATE || a->order == LOONG_ROPE_ALTERNATE) {
        return separate(a, i);
    }
    double theta = pow(base_of(a), -2.0 * (double)i / (double)a->rotary_dim);
    switch (a->scaling) {
    case LOONG_ROPE_LINEAR:
        return theta / a->factor;
    case LOONG_ROPE_LLAMA3:
        return llama3(a, theta);
    case LOONG_ROPE_YARN:
        return yarn(a, i, theta);
    case LOONG_ROPE_DYNAMIC:
    case LOONG_ROPE_DEFAULT:
        break;
    }
    return theta;
}

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

double loongi_rope_factor(const loong_rope_table_attr_t *a)
{
    if (a->scaling != LOONG_ROPE_YARN) {
        return 1.0;
    }
    if (a->attention_factor > 0.0) {
        return a->attention_factor;
    }
    if (a->mscale > 0.0 && a->mscale_all_dim > 0.0) {
        return yarn_mscale(a->factor, a->mscale) /
               yarn_mscale(a->factor, a->mscale_all_dim);
    }
    return yarn_mscale(a->factor, 1.0);
}
