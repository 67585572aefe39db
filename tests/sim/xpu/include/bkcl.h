/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of the vendor's header that the kernel shim tells values of; the values
 * are the simulator's own. */
#ifndef XPUSIM_VENDOR_BKCL_H
#define XPUSIM_VENDOR_BKCL_H

#include "bkcl_sim.h"

#define BKCL_ENTRY(name_, number_) BKCL_##name_ = number_,
enum { BKCLSIM_NAMES(BKCL_ENTRY) BKCL_PRODUCT = 214 };
#undef BKCL_ENTRY
typedef struct BKCLUniqueId {
    char bytes[BKCLSIM_ID_BYTES];
} BKCLUniqueId;

#endif
