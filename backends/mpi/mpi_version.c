/* SPDX-License-Identifier: Apache-2.0
 *
 * Name and version of the MPI library, for --version and the banner. Called by
 * src/version/version.c; apart from the rest, since it needs no job. Read
 * mpi_version.h before. */
#include "mpi_version.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

const char *loongi_mpi_version(char *text, size_t size)
{
    char all[MPI_MAX_LIBRARY_VERSION_STRING] = "MPI";
    int length = 0;
    (void)MPI_Get_library_version(all, &length); /* also before MPI_Init */
    /* Name and version come first, notes of the build behind. */
    snprintf(text, size, "%.*s", (int)strcspn(all, ",\n"), all);
    return text;
}
