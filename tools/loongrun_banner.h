/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOONGRUN_BANNER_H
#define LOONGRUN_BANNER_H

#include <stdio.h>

/* Version, commit and libraries, in one line. */
void banner(FILE *out);

#endif
