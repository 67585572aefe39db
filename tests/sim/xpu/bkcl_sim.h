/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers of simulated BKCL, which are no other library's: whoever has not
 * got them from the shim (xpu_shim.h, enumerator) calls something else. */
#ifndef BKCL_SIM_H
#define BKCL_SIM_H

#include <stddef.h>

enum { BKCLSIM_ID_BYTES = 252 };

/* X(name after BKCL_, number) */
#define BKCLSIM_NAMES(X) \
    X(UINT8, 107)        \
    X(INT32, 103)        \
    X(INT64, 101)        \
    X(FLOAT16, 105)      \
    X(BFLOAT16, 102)     \
    X(FLOAT, 104)        \
    X(FLOAT64, 106)      \
    X(ADD, 211)          \
    X(MAX, 212)          \
    X(MIN, 213)

#define BKCLSIM_ENUM(name_, number_) BKCLSIM_##name_ = number_,
enum { BKCLSIM_NAMES(BKCLSIM_ENUM) };
#undef BKCLSIM_ENUM

#endif
