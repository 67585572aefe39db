/* SPDX-License-Identifier: Apache-2.0
 *
 * Model files: native checkpoints (docs/checkpoints.md) and Hugging Face
 * directories; what loong-ckpt does. None of these is collective.
 */
#ifndef LOONG_CHECKPOINT_H
#define LOONG_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "loong/context.h"
#include "loong/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Receives one line of a report, without a newline. */
typedef void (*loong_line_fn)(void *user, const char *line);

/* Bytes of tensors that are written, from time to time. Called from any
 * thread, one at a time. */
typedef void (*loong_checkpoint_progress_fn)(void *user, int64_t done,
                                             int64_t total);

/* How to understand a Hugging Face directory that is no model type's: YAML
 * files with keys of model.foundation, in place of config.json, and with names
 * of tensors, in place of the family's (docs/convert-your-model.md); and of a
 * directory of peft's, the model that its adapters are beside, where its
 * adapter_config.json does not name a directory. Each may be NULL, and so may a
 * pointer to all. */
typedef struct loong_checkpoint_names {
    const char *model;
    const char *map;
    const char *base;
} loong_checkpoint_names_t;

typedef struct loong_checkpoint_import_params {
    const char *hf_dir;
    const char *save_dir;
    loong_checkpoint_names_t names;
    loong_checkpoint_progress_fn progress; /* NULL: none */
    void *user;
    int64_t max_file_bytes; /* 0: 2 GB */
} loong_checkpoint_import_params_t;

/* Turns a Hugging Face directory into a native checkpoint: save_dir gets
 * step_00000000 with the weights (kind "param", in the types of the files; fp8
 * with scales in the type that config.json names), the model's keys and the
 * tokenizer's files. Of a directory of peft's, adapters and what was trained
 * beside them; the rest is left to the base. Bit-equal. An import that was
 * interrupted is gone on with.
 * Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_FORMAT, LOONG_ERR_MISMATCH,
 * LOONG_ERR_UNSUPPORTED (fields of config.json, by name), LOONG_ERR_CONFIG
 * (model, map), LOONG_ERR_IO. */
LOONG_API LOONG_NODISCARD loong_status_t loong_checkpoint_import(
    loong_context_t *ctx, const loong_checkpoint_import_params_t *params);

typedef struct loong_checkpoint_export_params {
    const char *checkpoint; /* a save directory (its latest) or a step */
    const char *out_dir;
    const char *component; /* NULL: the one there is */
    bool convert;          /* to dtype; false: the type that is stored */
    loong_dtype_t dtype;
    int64_t max_shard_bytes;   /* 0: 5 GB */
    const char *tokenizer_dir; /* NULL: the files kept in the checkpoint */
    /* Used without generation_config.json; -1: those of the run that saved
     * the checkpoint, with tokenizer_dir none. */
    int64_t bos_token_id;
    int64_t eos_token_id;
    int64_t pad_token_id;
    const char *map; /* as for import; then there is no config.json */
    /* The model type of config.json, of those that can say what the model is;
     * NULL: its own. Of one that transformers has no class for and that came
     * without Python files of its own, it must be said. */
    const char *as;
    bool ema; /* the averages of what was trained, in its place */
    /* Of a checkpoint with adapters: the model with what they add to its
     * matrices; false: a directory of the adapters alone, as peft has them. */
    bool merge;
    loong_checkpoint_progress_fn progress; /* NULL: none */
    void *user;
} loong_checkpoint_export_params_t;

/* Writes the parameters of one component as a Hugging Face directory that
 * transformers loads. An export that was interrupted is gone on with. Errors:
 * as import; LOONG_ERR_MISMATCH lists what the checkpoint lacks,
 * LOONG_ERR_FORMAT files of another checksum and parameters with NaN or
 * infinity: then nothing is written. */
LOONG_API LOONG_NODISCARD loong_status_t loong_checkpoint_export(
    loong_context_t *ctx, const loong_checkpoint_export_params_t *params);

typedef struct loong_checkpoint_merge_params {
    /* Directories of peft's; behind them may stand a model, which then gets
     * what they add to its matrices, each times its weight. Without one the sum
     * is an adapter. */
    int64_t count;
    const char *const *inputs;
    const double *weights; /* of a model: 1 */
    const char *out_dir;
    /* The adapters' matrices are added instead of what they make, as peft's
     * add_weighted_adapter does it by default: an approximation of the same
     * rank. */
    bool linear;
    /* What the adapters make together is approximated with this rank, by its
     * largest singular values, as peft's "svd"; 0: it is kept (peft's "cat"),
     * and has the sum of their ranks. */
    int64_t svd_rank;
    bool convert; /* a model, as for export */
    loong_dtype_t dtype;
    int64_t max_shard_bytes;
    loong_checkpoint_progress_fn progress; /* NULL: none */
    void *user;
} loong_checkpoint_merge_params_t;

/* Adds adapters, to a model or to one another. A model's matrices are summed in
 * double and rounded once; a weight of -1 takes out again what was merged, but
 * for this rounding. Errors: as import; LOONG_ERR_UNSUPPORTED, parameters that
 * were trained as they are with another weight than 1. */
LOONG_API LOONG_NODISCARD loong_status_t loong_checkpoint_merge(
    loong_context_t *ctx, const loong_checkpoint_merge_params_t *params);

typedef struct loong_checkpoint_convert_params {
    const char *from;
    const char *to;
    loong_dtype_t dtype;
    int64_t max_shard_bytes; /* of a Hugging Face directory; 0: 5 GB */
    loong_checkpoint_progress_fn progress; /* NULL: none */
    void *user;
} loong_checkpoint_convert_params_t;

/* Copies a native checkpoint or a Hugging Face directory with its parameters
 * in another floating-point type; moments of optimizers, integers, and
 * parameters that their family keeps in fp32 stay as they are, fp8 with scales
 * becomes the product. Gone on with after an interruption. Errors: as import.
 */
LOONG_API LOONG_NODISCARD loong_status_t loong_checkpoint_convert(
    loong_context_t *ctx, const loong_checkpoint_convert_params_t *params);

/* Reports metadata and every tensor with type, shape, norm and largest
 * element. path: a native checkpoint, a Hugging Face directory or one of
 * peft's.
 * Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_FORMAT. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_checkpoint_inspect(loong_context_t *ctx, const char *path,
                         loong_line_fn line, void *user);

/* Reads all of a native checkpoint or a Hugging Face directory: the checksums
 * of a native one, that exactly the model's parameters are there in their
 * shapes (of adapters: that they fit their base, where it is at hand), and that
 * there is no NaN or infinity, which are counted. *good_p is
 * false when there are some. Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_FORMAT,
 * LOONG_ERR_MISMATCH, LOONG_ERR_CONFIG. */
LOONG_API LOONG_NODISCARD loong_status_t loong_checkpoint_verify(
    loong_context_t *ctx, const char *path,
    const loong_checkpoint_names_t *names, loong_line_fn line, void *user,
    bool *good_p);

/* Reports which tensor of Hugging Face files holds which parameter, as the
 * YAML that names.map takes. path: as inspect. Errors: as import. */
LOONG_API LOONG_NODISCARD loong_status_t loong_checkpoint_map(
    loong_context_t *ctx, const char *path,
    const loong_checkpoint_names_t *names, loong_line_fn line, void *user);

typedef struct loong_checkpoint_diff_params {
    const char *a;
    const char *b;
    loong_checkpoint_names_t names; /* of those that are not native */
    loong_line_fn line;
    void *user;
} loong_checkpoint_diff_params_t;

/* Compares two of either kind, tensor by tensor, and the models' keys. A
 * native checkpoint beside a Hugging Face directory, and directories that are
 * understood by names, are compared by their parameters. Keys are compared as
 * the model means them: a default that is written out, and padding of the
 * vocabulary, are no difference. *equal_p: the same tensors with equal values,
 * and the same model; types may differ. */
LOONG_API LOONG_NODISCARD loong_status_t loong_checkpoint_diff(
    loong_context_t *ctx, const loong_checkpoint_diff_params_t *params,
    bool *equal_p);

typedef struct loong_checkpoint_draft_params {
    const char *dir;
    const char *out_dir; /* NULL: the files are told line by line */
    loong_line_fn line;
    void *user;
    bool *whole_p; /* every parameter has its tensors; NULL: not asked */
} loong_checkpoint_draft_params_t;

/* Proposes model.yaml, map.yaml (as loong_checkpoint_names_t takes them) and
 * recipe.yaml for a Hugging Face directory whose tensors have names that no
 * family has, from config.json, names and shapes; the last line says how much
 * was found. Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_FORMAT,
 * LOONG_ERR_UNSUPPORTED (a size that config.json does not say),
 * LOONG_ERR_IO. */
LOONG_API LOONG_NODISCARD loong_status_t loong_checkpoint_draft(
    loong_context_t *ctx, const loong_checkpoint_draft_params_t *params);

#ifdef __cplusplus
}
#endif

#endif
