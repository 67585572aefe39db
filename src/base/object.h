/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared objects that are loaded when they are used: those beside the library,
 * which a build has where it found what they want, and those of vendors. */
#ifndef LOONG_OBJECT_H
#define LOONG_OBJECT_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_OBJECT_REASON = 512 };

/* False with the reason: the file behind a path, or behind a name that
 * LD_LIBRARY_PATH finds, ends before its segments do, as a copy that was cut
 * short. The loader maps such a file, and the process dies of SIGBUS. What is
 * not there, or no ELF file, is left for the loader to tell. */
bool loongi_object_is_whole(const char *name, char *why, size_t size);

/* dlopen of a whole file; NULL with the reason. */
void *loongi_object_open(const char *name, int flags, char *why, size_t size);

/* A symbol of an object, "libloong_arrow.so", from where a tool or the system
 * looks for libraries, or beside the one that has this function; it stays
 * loaded. NULL: there is none. */
void *loongi_object_symbol(const char *object, const char *symbol);

#ifdef __cplusplus
}
#endif

#endif
