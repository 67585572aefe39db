/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects beside the library, which a build has where it found what they want
 * and which are loaded when they are used. */
#ifndef LOONG_OBJECT_H
#define LOONG_OBJECT_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A symbol of an object, "libloong_arrow.so", from where a tool or the system
 * looks for libraries, or beside the one that has this function; it stays
 * loaded. NULL: there is none. */
void *loongi_object_symbol(const char *object, const char *symbol);

#ifdef __cplusplus
}
#endif

#endif
