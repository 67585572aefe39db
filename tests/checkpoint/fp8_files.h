/* SPDX-License-Identifier: Apache-2.0
 *
 * Hugging Face directories with e4m3 weights and a scale for each block, and
 * the same with the products, which are made by hand. */
#ifndef LOONG_FP8_FILES_H
#define LOONG_FP8_FILES_H

#include "hf_weights.h"
#include "loong/context.h"

typedef enum fp8_flaw {
    FP8_WHOLE,
    FP8_NO_SCALE,   /* of the last tensor */
    FP8_WRONG_SCALE /* one row more than there are blocks */
} fp8_flaw_t;

typedef struct fp8_files {
    const char *dir;    /* made anew */
    const char *config; /* text of config.json, without quantization */
    const char *map;    /* as in loong_checkpoint_names_t; NULL: none */
    bool fp8;           /* false: the products */
    loong_dtype_t dtype; /* of products and of other tensors */
    int64_t block[2];
    int64_t max_shard_bytes;
    fp8_flaw_t flaw;
} fp8_files_t;

/* What was written. */
typedef struct fp8_written {
    int scaled;     /* tensors in e4m3 in one of the two directories */
    char last[256]; /* of them */
} fp8_written_t;

fp8_written_t fp8_write(loong_context_t *ctx, const fp8_files_t *files);

#endif
