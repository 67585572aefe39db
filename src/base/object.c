/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads objects beside the library. Called by readers of Arrow and video files.
 * Read object.h before. */
#define _GNU_SOURCE /* dladdr */
#include "object.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PATH = 4096, MAX_NAME = 64 };

void *loongi_object_symbol(const char *object, const char *symbol)
{
    const int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
    Dl_info here = {.dli_fname = ""};
    char path[MAX_PATH + MAX_NAME];
    void *handle = dlopen(object, flags);
    (void)dladdr((void *)(uintptr_t)loongi_object_symbol, &here);
    if (handle == NULL && realpath(strchr(here.dli_fname, '/') != NULL
                                       ? here.dli_fname
                                       : "/proc/self/exe", /* of PATH */
                                   path) != NULL) {
        snprintf(strrchr(path, '/') + 1, MAX_NAME, "%s", object);
        handle = dlopen(path, flags);
    }
    return handle != NULL ? dlsym(handle, symbol) : NULL;
}
