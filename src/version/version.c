/* SPDX-License-Identifier: Apache-2.0
 *
 * Versions, each asked where its library is wrapped. Called by
 * tools/loongrun_banner.c. Read loong/version.h before. */
#include "loong/version.h"

#include <stdio.h>

#include "mpi_version.h"
#include "native_h5.h"
#include "onednn/onednn_version.h"

const char *loong_version(void)
{
    return LOONG_PROJECT_VERSION;
}

const char *loong_libraries(char text[LOONG_LIBRARIES_SIZE])
{
    char onednn[32];
    char hdf5[32];
    char mpi[128];
    snprintf(text, LOONG_LIBRARIES_SIZE, "oneDNN %s, HDF5 %s, %s",
             loongi_onednn_version(onednn, sizeof(onednn)),
             loongi_h5_version(hdf5, sizeof(hdf5)),
             loongi_mpi_version(mpi, sizeof(mpi)));
    return text;
}
