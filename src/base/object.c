/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads shared objects. Called by backends, and by readers of Arrow and video
 * files. Read object.h before. */
#define _GNU_SOURCE /* dladdr */
#include "object.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PATH = 4096, MAX_NAME = 64 };

/* ---- whole files --------------------------------------------------------- */

/* The first byte behind all that the loader maps; 0: no ELF file. */
static uint64_t mapped_end(FILE *f)
{
    ElfW(Ehdr) head;
    ElfW(Phdr) segment;
    if (fread(&head, sizeof(head), 1, f) != 1 ||
        memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_phentsize != sizeof(segment) ||
        fseek(f, (long)head.e_phoff, SEEK_SET) != 0) {
        return 0;
    }
    uint64_t end = head.e_phoff + (uint64_t)head.e_phnum * sizeof(segment);
    for (int i = 0; i < head.e_phnum && fread(&segment, sizeof(segment), 1, f);
         i++) {
        uint64_t last = segment.p_offset + segment.p_filesz;
        end = segment.p_type == PT_LOAD && last > end ? last : end;
    }
    return end;
}

/* The file that the loader takes for a name; false: it is not known here. */
static bool find_file(const char *name, char *path, size_t size)
{
    const char *at = getenv("LD_LIBRARY_PATH");
    snprintf(path, size, "%s", name);
    if (strchr(name, '/') != NULL) {
        return true;
    }
    bool found = false;
    while (!found && at != NULL && at[0] != '\0') {
        int length = (int)strcspn(at, ":;");
        snprintf(path, size, "%.*s/%s", length > 0 ? length : 1,
                 length > 0 ? at : ".", name);
        found = access(path, R_OK) == 0;
        at += length;
        at += at[0] != '\0';
    }
    return found;
}

bool loongi_object_is_whole(const char *name, char *why, size_t size)
{
    char path[MAX_PATH];
    struct stat file = {.st_size = 0};
    FILE *f = find_file(name, path, sizeof(path)) ? fopen(path, "rb") : NULL;
    if (f == NULL) {
        return true;
    }
    uint64_t end = fstat(fileno(f), &file) == 0 ? mapped_end(f) : 0;
    fclose(f);
    if (end > (uint64_t)file.st_size) {
        snprintf(why, size,
                 "%s: the file is cut short: it has %lld bytes, and its "
                 "segments end at %llu",
                 path, (long long)file.st_size, (unsigned long long)end);
        return false;
    }
    return true;
}

void *loongi_object_open(const char *name, int flags, char *why, size_t size)
{
    if (!loongi_object_is_whole(name, why, size)) {
        return NULL;
    }
    void *handle = dlopen(name, flags);
    if (handle == NULL) {
        const char *error = dlerror();
        snprintf(why, size, "%s", error != NULL ? error : name);
    }
    return handle;
}

/* ---- objects beside the library ------------------------------------------ */

void *loongi_object_symbol(const char *object, const char *symbol)
{
    const int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
    Dl_info here = {.dli_fname = ""};
    char path[MAX_PATH + MAX_NAME];
    char why[LOONG_OBJECT_REASON];
    void *handle = loongi_object_open(object, flags, why, sizeof(why));
    (void)dladdr((void *)(uintptr_t)loongi_object_symbol, &here);
    if (handle == NULL && realpath(strchr(here.dli_fname, '/') != NULL
                                       ? here.dli_fname
                                       : "/proc/self/exe", /* of PATH */
                                   path) != NULL) {
        snprintf(strrchr(path, '/') + 1, MAX_NAME, "%s", object);
        handle = loongi_object_open(path, flags, why, sizeof(why));
    }
    return handle != NULL ? dlsym(handle, symbol) : NULL;
}
