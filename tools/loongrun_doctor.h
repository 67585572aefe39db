/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOONG_LOONGRUN_DOCTOR_H
#define LOONG_LOONGRUN_DOCTOR_H

#include "loong/context.h"

/* Prints what was found on this machine and what will be slow. Returns the
 * exit code. */
int doctor(loong_context_t *ctx);

#endif
