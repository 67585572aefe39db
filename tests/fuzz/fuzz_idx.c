/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening an indexed data set with arbitrary bytes, and reading all of what
 * is accepted. Input: u16 size of the .bin file (zeros), u8 with or without a
 * mask file of the same size, then the .idx file. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "loong/blend.h"
#include "loong/dataset.h"

enum { HEAD = 3, MAX_TOKENS = 65536 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put(const char *path, const uint8_t *bytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    require(fd >= 0 &&
            (bytes == NULL || write(fd, bytes, size) == (ssize_t)size));
    require(ftruncate(fd, (off_t)size) == 0);
    close(fd);
}

static void read_all(const loong_dataset_t *ds)
{
    static int32_t ids[MAX_TOKENS];
    static uint8_t mask[MAX_TOKENS];
    loong_dataset_info_t info;
    loong_dataset_get_info(ds, &info);
    require(info.tokens <= MAX_TOKENS);
    require(loong_dataset_get_start(ds, info.documents) == info.tokens);
    for (int64_t d = 0; d < info.documents; d++) {
        int64_t start = loong_dataset_get_start(ds, d);
        int64_t end = loong_dataset_get_start(ds, d + 1);
        require(0 <= start && start <= end && end <= info.tokens);
        require(loong_dataset_read(ds, start, end - start, 1, ids) == LOONG_OK);
        require(loong_dataset_read_mask(ds, start, end - start, mask) ==
                LOONG_OK);
        require(start == end || loong_dataset_find_document(ds, end - 1) == d);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char prefix[64];
    char path[96];
    loong_context_t *ctx = NULL;
    loong_dataset_t *ds = NULL;
    if (size < HEAD) {
        return 0;
    }
    size_t bytes = (size_t)data[0] | (size_t)data[1] << 8;
    snprintf(prefix, sizeof(prefix), "fuzz_idx.%d", (int)getpid());
    snprintf(path, sizeof(path), "%s.idx", prefix);
    put(path, data + HEAD, size - HEAD);
    snprintf(path, sizeof(path), "%s.bin", prefix);
    put(path, NULL, bytes);
    snprintf(path, sizeof(path), "%s.mask.bin", prefix);
    if (data[2] & 1) {
        put(path, NULL, bytes);
    } else {
        unlink(path);
    }
    require(loong_context_create(NULL, &ctx) == LOONG_OK);
    if (loong_dataset_create(ctx, prefix, &ds) == LOONG_OK) {
        read_all(ds);
    } else {
        require(loong_context_error(ctx)[0] != '\0');
    }
    loong_dataset_destroy(&ds);
    require(loong_context_alloc_bytes(ctx) == 0);
    loong_context_destroy(&ctx);
    unlink(path);
    snprintf(path, sizeof(path), "%s.bin", prefix);
    unlink(path);
    snprintf(path, sizeof(path), "%s.idx", prefix);
    unlink(path);
    return 0;
}
