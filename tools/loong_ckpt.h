/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands of loong-ckpt. */
#ifndef LOONG_CKPT_H
#define LOONG_CKPT_H

#include "loong/checkpoint.h"

/* What a command line can say; a command allows some of it. */
typedef enum ckpt_option_bit {
    CKPT_DTYPE = 1,
    CKPT_SHARD = 2,
    CKPT_TOKENS = 4, /* --tokenizer, --bos, --eos, --pad */
    CKPT_COMPONENT = 8,
    CKPT_MODEL = 16,
    CKPT_MAP = 32,
    CKPT_QUIET = 64,
    CKPT_AS = 128,
    CKPT_EMA = 256,
    CKPT_MERGE = 512,
    CKPT_BASE = 1024,
    CKPT_LINEAR = 2048,
    CKPT_SVD = 4096
} ckpt_option_bit_t;

enum { CKPT_PLACES = 17 };

typedef struct ckpt_arguments {
    int count; /* of places */
    const char *places[CKPT_PLACES];
    bool convert;
    loong_dtype_t dtype;
    int64_t max_shard_bytes;
    const char *tokenizer;
    const char *component;
    const char *as;
    int64_t ids[3]; /* bos, eos, pad; -1: not given */
    loong_checkpoint_names_t names;
    bool ema;
    bool merge;
    bool linear;
    int64_t svd_rank; /* 0: not given */
    bool quiet;
} ckpt_arguments_t;

/* Each returns an exit code. */
int ckpt_import(loong_context_t *ctx, const ckpt_arguments_t *arguments);
int ckpt_export(loong_context_t *ctx, const ckpt_arguments_t *arguments);
int ckpt_merge(loong_context_t *ctx, const ckpt_arguments_t *arguments);
int ckpt_convert(loong_context_t *ctx, const ckpt_arguments_t *arguments);

/* The exit code of what failed: the input of a tool, or the output that it
 * writes. Prints the reasons. */
int ckpt_finish(loong_context_t *ctx, loong_status_t status, bool writes);

#endif
