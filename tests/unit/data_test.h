/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of the data tests: a scratch directory, a data set whose ids and
 * document lengths are known functions. */
#ifndef DATA_TEST_H
#define DATA_TEST_H

#include "file.h"
#include "loong/dataset.h"
#include "test.h"

#include <unistd.h>

#define SCRATCH_SIZE 256

/* A fresh directory below the working directory. */
static inline void scratch_make(char dir[SCRATCH_SIZE])
{
    snprintf(dir, SCRATCH_SIZE, "scratch.XXXXXX");
    assert_non_null(mkdtemp(dir));
}

static inline void scratch_remove(loong_context_t *ctx, const char *dir)
{
    assert_ok(ctx, loongi_dir_remove(ctx, dir));
}

static inline const char *scratch_path(const char *dir, const char *name,
                                       char path[SCRATCH_SIZE])
{
    assert_true(snprintf(path, SCRATCH_SIZE, "%s/%s", dir, name) <
                SCRATCH_SIZE);
    return path;
}

/* Token t of a known data set. */
static inline int32_t known_id(int64_t t)
{
    return (int32_t)((t * 2654435761u >> 7) % 1000);
}
static inline uint8_t known_mask(int64_t t)
{
    return t % 3 != 0;
}
/* Tokens of document d: some empty, some longer than any row. */
static inline int64_t known_length(int64_t d)
{
    return d % 7 == 3 ? 0 : d % 11 == 5 ? 40 : 1 + d * d % 13;
}

/* Writes a data set of `documents` known documents. */
static inline void known_write(loong_context_t *ctx, const char *prefix,
                               int64_t documents, loong_dtype_t dtype,
                               bool with_mask)
{
    loong_dataset_writer_params_t params = {prefix, dtype, with_mask};
    loong_dataset_writer_t *writer = NULL;
    int64_t token = 0;
    int32_t ids[64];
    uint8_t mask[64];
    assert_ok(ctx, loong_dataset_writer_create(ctx, &params, &writer));
    for (int64_t d = 0; d < documents; d++) {
        int64_t n = known_length(d);
        for (int64_t i = 0; i < n; i++, token++) {
            ids[i] = known_id(token) % (dtype == LOONG_I8 ? 128 : 1000) %
                     (dtype == LOONG_U8 ? 256 : 1000);
            mask[i] = known_mask(token);
        }
        assert_ok(ctx, loong_dataset_writer_add(writer, ids,
                                                with_mask ? mask : NULL, n));
        assert_ok(ctx, loong_dataset_writer_end_document(writer));
    }
    assert_ok(ctx, loong_dataset_writer_commit(writer));
    loong_dataset_writer_destroy(&writer);
}

#endif
