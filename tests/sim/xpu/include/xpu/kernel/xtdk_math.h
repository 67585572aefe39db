/* SPDX-License-Identifier: Apache-2.0
 *
 * Scalars of the vendor's guide, section 5.3: of float alone. */
#ifndef CLUSTERSIM_XTDK_MATH_H
#define CLUSTERSIM_XTDK_MATH_H

#include <cmath>

inline float exp(float x) { return expf(x); }
inline float log(float x) { return logf(x); }
inline float sqrt(float x) { return sqrtf(x); }
inline float fmax(float a, float b) { return fmaxf(a, b); }
inline float fmin(float a, float b) { return fminf(a, b); }

#endif
