/* SPDX-License-Identifier: Apache-2.0
 *
 * Which library this is, and which others it works with. Not collective.
 */
#ifndef LOONG_VERSION_H
#define LOONG_VERSION_H

#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0" */
LOONG_API const char *loong_version(void);

enum { LOONG_LIBRARIES_SIZE = 256 };

/* The libraries that do the work, as they were loaded: "oneDNN 2.6.3, HDF5
 * 1.10.8, Open MPI v4.1.4". Returns text. */
LOONG_API const char *loong_libraries(char text[LOONG_LIBRARIES_SIZE]);

#ifdef __cplusplus
}
#endif

#endif
