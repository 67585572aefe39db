/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOONG_MPI_VERSION_H
#define LOONG_MPI_VERSION_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Name and version of the MPI library, "no MPI" without one. Returns text. */
const char *loongi_mpi_version(char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
