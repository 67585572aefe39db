/* SPDX-License-Identifier: Apache-2.0
 *
 * Family "mixer" of the tests: a decoder whose layers have a feed-forward and
 * no attention. It takes the keys of a decoder. */
#ifndef MIXER_H
#define MIXER_H

#include "loong/family.h"

extern const loong_family_t mixer_family;

#endif
