/* SPDX-License-Identifier: Apache-2.0
 *
 * The line with version, commit and libraries. Called by loongrun and loongrun
 * --doctor. Read loong/version.h before. */
#include "loongrun_banner.h"

#include "loong/version.h"
#include "loong_commit.h" /* made by cmake/LoongCommit.cmake */

void banner(FILE *out)
{
    char libraries[LOONG_LIBRARIES_SIZE];
    const char *commit = LOONG_COMMIT;
    fprintf(out, "libloong %s%s%s%s | %s\n", loong_version(),
            commit[0] != '\0' ? " (commit " : "", commit,
            commit[0] != '\0' ? ")" : "", loong_libraries(libraries));
}
