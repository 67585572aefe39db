/* SPDX-License-Identifier: Apache-2.0
 *
 * What fuzz targets share. */
#ifndef LOONG_FUZZ_H
#define LOONG_FUZZ_H

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

static inline void require(int condition)
{
    if (!condition) {
        abort();
    }
}

static inline void put_file(const char *path, const uint8_t *bytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    require(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    close(fd);
}

#endif
