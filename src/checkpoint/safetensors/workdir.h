/* SPDX-License-Identifier: Apache-2.0
 *
 * The directory in which a long job puts its files together. A job that was
 * killed is taken up again by the next one for the same thing: what that is,
 * sources and options, stands in the directory as a text, behind the version of
 * the library: another one may put the files together in another way. */
#ifndef LOONG_WORKDIR_H
#define LOONG_WORKDIR_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The file with that text. */
#define LOONG_WORKDIR_KEY "made_from"

typedef struct loong_workdir {
    int fd; /* locked */
    bool resumed;
} loong_workdir_t;

/* Makes the directory, or keeps it with all that is in it when it is for the
 * same key, or empties it; a key "" is like no other. Errors: LOONG_ERR_IO
 * (another process works in it, too). */
LOONG_NODISCARD loong_status_t loongi_workdir_open(loong_context_t *ctx,
                                                   const char *path,
                                                   const char *key,
                                                   loong_workdir_t *dir_p);
/* Lets others in; what is in the directory stays. */
void loongi_workdir_close(loong_workdir_t *dir);

/* Adds a source of the job to its key: a file, or the files of a directory,
 * by name, size and time of change. NULL adds nothing. */
void loongi_workdir_add_source(loong_text_t *key, const char *path);

#ifdef __cplusplus
}
#endif

#endif
