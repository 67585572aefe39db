/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary embedding (Su et al. 2021). Frequencies theta_i = base^(-2i/R),
 * i < R/2, changed by the scalings as Hugging Face defines them: linear
 * divides by factor; llama3 interpolates between both by wavelength; YaRN
 * (Peng et al. 2023) ramps over dimensions and scales the table by its
 * attention factor; dynamic raises the base for a sequence of n > N tokens (N
 * the length before) by (factor n / N - factor + 1)^(R / (R - 2)). The
 * derivative of a rotation is its transpose. */
#include "list.h"
#include "ref.h"

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

static double frequency(const loong_rope_table_attr_t *a, int i)
{
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

static double table_factor(const loong_rope_table_attr_t *a)
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

static loong_status_t table(const loong_kernel_call_t *call)
{
    const loong_rope_table_attr_t *a = call->query->attr;
    const int32_t *positions = ref_i32(call, 0);
    ref_mat_t y = ref_out(call, 0);
    int half = a->rotary_dim / 2;
    double factor = table_factor(a);
    for (int i = 0; i < half; i++) {
        double theta = frequency(a, i);
        for (int64_t t = 0; t < y.rows; t++) {
            double angle = (double)positions[t] * theta;
            ref_put(&y, t, i, factor * cos(angle));
            ref_put(&y, t, half + i, factor * sin(angle));
        }
    }
    return LOONG_OK;
}

static loong_status_t rotate(const loong_kernel_call_t *call)
{
    const loong_rope_attr_t *a = call->query->attr;
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t cs = ref_arg(call, 1);
    ref_mat_t y = ref_out(call, 0);
    int64_t half = cs.cols / 2;
#pragma omp parallel for
    for (int64_t t = 0; t < x.rows; t++) {
        for (int64_t h = 0; h < x.cols; h += a->head_dim) {
            for (int64_t i = 0; i < half; i++) {
                int64_t first = h + a->begin;
                int64_t p = first + (a->interleaved ? 2 * i : i);
                int64_t q = first + (a->interleaved ? 2 * i + 1 : i + half);
                double c = ref_at(&cs, t, i);
                double s = ref_at(&cs, t, half + i);
                double u = ref_at(&x, t, p);
                double v = ref_at(&x, t, q);
                s = a->inverse ? -s : s;
                ref_put(&y, t, p, u * c - v * s);
                ref_put(&y, t, q, v * c + u * s);
            }
            for (int64_t i = 0; i < a->head_dim; i++) {
                if (i < a->begin || i >= a->begin + 2 * half) {
                    ref_put(&y, t, h + i, ref_at(&x, t, h + i));
                }
            }
        }
    }
    return LOONG_OK;
}

const loong_kernel_t loongi_rope_table_ref = {.name = "rope_table_ref",
                                              .op = "rope_table",
                                              .device = "cpu",
                                              .run = table};
const loong_kernel_t loongi_rope_ref = {
    .name = "rope_ref", .op = "rope", .device = "cpu", .run = rotate};
