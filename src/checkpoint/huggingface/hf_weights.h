/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of a Hugging Face model directory under the engine's parameter
 * names. The engine's names are those of the LLaMA classes without "model.",
 * for every family; weights are [out, in]. GPT-2 stores its linear weights
 * [in, out] and q, k, v as one matrix: reading transposes and cuts, writing
 * puts together again.
 */
#ifndef LOONG_HF_WEIGHTS_H
#define LOONG_HF_WEIGHTS_H

#include "loong/dtype.h"
#include "pairs.h"
#include "tensor_stream.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_HF_DIMS = 5 }; /* of a tensor of the files, at most */

/* One parameter of the engine and where a Hugging Face file keeps it. */
typedef struct loong_hf_param {
    const char *name; /* "layers.0.self_attn.q_proj.weight" */
    int ndim;
    int64_t shape[2];
    const char *hf_name; /* without the prefix of the base model */
    bool prefixed;       /* the full name has the prefix */
    bool own;            /* of the file's class, not of its base model */
    bool transposed;     /* the file has [in, out] */
    bool exact;          /* fp32 in files of narrower types */
    int64_t flat; /* a vector that the file has as so many rows; 0: no */
    int file_ndim; /* of the same elements in the file; 0: follows */
    int64_t file_shape[LOONG_HF_DIMS];
    int64_t places; /* columns of ours are places of channels, the file's are
                       channels of so many places; 0: they are in order */
    int part;            /* of `parts` parameters in one tensor of the file */
    int parts;
    int64_t run;    /* our rows that follow one another in the file, */
    int64_t stride; /* rows of it from one run to the next, */
    int64_t offset; /* and before the first */
    /* Experts: so many matrices, one below the other; else 1. Each expert has
     * `units` of them, which the file may have in one tensor; then the rows of
     * a unit begin `shift` further on. */
    int64_t pieces;
    const char *const *piece_names; /* in place of hf_name; NULL with one */
    int64_t first_piece; /* number among the pieces of all parameters */
    int units;
    bool fused;
    bool stacked; /* and the tensor has a first dimension for the experts */
    int64_t shift[2];
} loong_hf_param_t;

static inline const char *loongi_hf_piece_name(const loong_hf_param_t *param,
                                               int64_t piece)
{
    return param->piece_names != NULL ? param->piece_names[piece]
                                      : param->hf_name;
}

/* ---- the names ---- */
typedef struct loong_hf_map loong_hf_map_t;

/* All parameters of the model that the keys describe (config.json's or the
 * recipe's), in the order of the model. Errors: LOONG_ERR_UNSUPPORTED,
 * LOONG_ERR_ARG (a size is missing). */
LOONG_NODISCARD loong_status_t loongi_hf_map_create(loong_context_t *ctx,
                                                    const loong_pairs_t *model,
                                                    loong_hf_map_t **map_p);
/* The same with names from a file (NULL: the family's), see hf_map_file.h. */
LOONG_NODISCARD loong_status_t loongi_hf_map_load(loong_context_t *ctx,
                                                  const loong_pairs_t *model,
                                                  const char *path,
                                                  loong_hf_map_t **map_p);
/* Reads keys of model.foundation from a YAML file. */
LOONG_NODISCARD loong_status_t loongi_hf_model_read(loong_context_t *ctx,
                                                    const char *path,
                                                    loong_pairs_t **pairs_p);
void loongi_hf_map_destroy(loong_hf_map_t **map);
int64_t loongi_hf_map_count(const loong_hf_map_t *map);
/* Pieces of all parameters. */
int64_t loongi_hf_map_pieces(const loong_hf_map_t *map);
const loong_hf_param_t *loongi_hf_map_get(const loong_hf_map_t *map,
                                          int64_t index);
/* Tensors without elements that the family's class has: of them hf_name,
 * prefixed, ndim and shape. */
int64_t loongi_hf_map_hollow_count(const loong_hf_map_t *map);
const loong_hf_param_t *loongi_hf_map_hollow(const loong_hf_map_t *map,
                                             int64_t index);
/* NULL when the model has no such parameter. */
const loong_hf_param_t *loongi_hf_map_find(const loong_hf_map_t *map,
                                           const char *name);
/* "transformer." or "model." */
const char *loongi_hf_map_prefix(const loong_hf_map_t *map);
/* That of a parameter: of those that have not the base model's it is "", or
 * what comes before in a file of several components. */
const char *loongi_hf_param_prefix(const loong_hf_map_t *map,
                                   const loong_hf_param_t *param);
/* The output matrix: "lm_head.weight", or what the family calls it; NULL: it
 * has none. */
const char *loongi_hf_map_head(const loong_hf_map_t *map);
/* A tensor of the layers that predict further tokens, behind the last one. */
bool loongi_hf_map_predicts(const loong_hf_map_t *map, const char *name);

/* A tensor of another part of the model, as what sees images. */
bool loongi_hf_map_is_extra(const loong_hf_map_t *map, const char *name);

/* A tensor that a map from a file leaves out. */
bool loongi_hf_map_ignores(const loong_hf_map_t *map, const char *name);

/* Row of the file's tensor (piece) for a row of ours (of the piece). */
static inline int64_t loongi_hf_file_row(const loong_hf_param_t *param,
                                         int64_t row)
{
    return row / param->run * param->stride + param->offset +
           row % param->run;
}
/* Rows of that tensor; of one expert's part of it. */
static inline int64_t loongi_hf_file_rows(const loong_hf_param_t *param)
{
    return param->shape[0] / param->pieces / param->run * param->stride;
}
/* Experts in one tensor; 1 otherwise. */
static inline int64_t loongi_hf_slabs(const loong_hf_param_t *param)
{
    return param->stacked ? param->pieces / param->units : 1;
}
/* The column of ours that the file has in this one, of a row with places. */
static inline int64_t loongi_hf_own_column(const loong_hf_param_t *param,
                                           int64_t column)
{
    return column % param->places * (param->shape[1] / param->places) +
           column / param->places;
}
/* The shape that the file has. Returns its dimensions. */
int loongi_hf_file_shape(const loong_hf_param_t *param,
                         int64_t shape[LOONG_HF_DIMS]);

/* ---- reading ---- */
typedef struct loong_hf loong_hf_t;

/* Reads config.json, maps the weights, and checks that they are exactly what
 * the configuration says: missing, unexpected and mismatched tensors are
 * reported together. The output matrix of a tied model may be there when it
 * equals the embedding. Errors: as loongi_hf_config_read,
 * LOONG_ERR_MISMATCH. */
LOONG_NODISCARD loong_status_t loongi_hf_open(loong_context_t *ctx,
                                              const char *dir,
                                              loong_hf_t **hf_p);

/* The same with other names, or without a config.json. */
typedef struct loong_hf_open_params {
    const char *dir;
    const char *model; /* YAML, keys of model.foundation; NULL: config.json */
    const char *map;   /* YAML, as hf_map_file.h; NULL: the family's names */
    /* Of a directory of several components (hf_composite.h): which; NULL: the
     * one with the loss. */
    const char *role;
    const char *adapters; /* merged into it, as peft_terms.h reads; or NULL */
} loong_hf_open_params_t;
/* Refuses a model that the engine would, with the fields that say it. A recipe
 * may yet mend it: opening does not ask. Errors: LOONG_ERR_CONFIG, those of
 * the reader. */
LOONG_NODISCARD loong_status_t loongi_hf_check_model(
    loong_context_t *ctx, const loong_hf_open_params_t *params);
LOONG_NODISCARD loong_status_t
loongi_hf_open_as(loong_context_t *ctx, const loong_hf_open_params_t *params,
                  loong_hf_t **hf_p);
void loongi_hf_close(loong_hf_t **hf);
const loong_pairs_t *loongi_hf_model(const loong_hf_t *hf);
const loong_hf_map_t *loongi_hf_get_map(const loong_hf_t *hf);
/* The type that the file stores. name must be in the map. */
loong_dtype_t loongi_hf_dtype(const loong_hf_t *hf, const char *name);
/* The narrowest type that holds the values of both; of floats. */
loong_dtype_t loongi_hf_wider(loong_dtype_t a, loong_dtype_t b);

/* A parameter that somebody wants to load. */
typedef struct loong_hf_wanted {
    const char *name;
    int ndim;
    int64_t shape[2];
} loong_hf_wanted_t;

/* Compares with a model built elsewhere; all differences are reported. What the
 * file's class has beside its base model may be left out, with a warning.
 * Errors: LOONG_ERR_MISMATCH. */
LOONG_NODISCARD loong_status_t loongi_hf_check(const loong_hf_t *hf,
                                               const loong_hf_wanted_t *wanted,
                                               int64_t count);

/* Rows [row_begin, row_begin + rows) of a parameter, converted to dtype, into
 * dst (rows x row length, dense). Rows of a vector are its elements.
 * Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_ARG, LOONG_ERR_UNSUPPORTED. */
LOONG_NODISCARD loong_status_t loongi_hf_read(const loong_hf_t *hf,
                                              const char *name,
                                              int64_t row_begin, int64_t rows,
                                              loong_dtype_t dtype, void *dst);

/* Rows without a copy; false when they do not lie together, or not as the
 * engine has them. name and rows must be in the map. */
bool loongi_hf_lend(const loong_hf_t *hf, const char *name, int64_t row,
                    int64_t rows, loong_borrowed_t *borrowed);

/* ---- writing ---- */

/* A block of a parameter; a vector has one column. */
typedef struct loong_hf_block {
    const char *name;
    int64_t row;
    int64_t rows;
    int64_t column;
    int64_t columns;
} loong_hf_block_t;

/* Gives a block, dense, and lends rows where it can (may be NULL). Both are
 * called from several threads. */
typedef loong_status_t (*loong_hf_source_fn)(void *user,
                                             const loong_hf_block_t *block,
                                             loong_dtype_t dtype, void *dst);
typedef bool (*loong_hf_lend_fn)(void *user, const char *name, int64_t row,
                                 int64_t rows, loong_borrowed_t *borrowed);

/* The type of a parameter in the files. */
typedef loong_dtype_t (*loong_hf_type_fn)(void *user, const char *name);

typedef struct loong_hf_export_params {
    const char *dir;
    const loong_pairs_t *model;
    const char *map; /* names in place of the family's; or NULL */
    loong_dtype_t dtype;     /* that config.json names */
    loong_hf_type_fn type;   /* NULL: all are of dtype, but for exact ones */
    int64_t max_shard_bytes; /* 0: 5 GB */
    loong_hf_source_fn source;
    loong_hf_lend_fn lend;
    void *user;
    const char *files_dir; /* what hf_files.h reads is copied; or NULL */
    const char *code_dir;  /* Python files (hf_code.h); or NULL */
    const loong_pairs_t *tokens; /* as in hf_config.h */
    const char *key; /* as in safetensors.h; NULL: "" */
    /* In place of model and user: of a model of several components
     * (hf_composite.h) those of each; NULL: of one. */
    const struct loong_hf_composite *composite;
    const loong_pairs_t *const *models;
    void *const *users;
    loong_meter_fn progress; /* or NULL */
    void *progress_user;
} loong_hf_export_params_t;

/* What takes the place of a model is the same one: family, names and shapes of
 * the parameters. theirs, ours: the keys of the one in dir and of the new one.
 * Errors: LOONG_ERR_ARG. */
LOONG_NODISCARD loong_status_t loongi_hf_check_same(
    loong_context_t *ctx, const char *dir, const loong_pairs_t *theirs,
    const loong_pairs_t *ours);
/* The same of an export and what is in dir, which need not be there. Errors:
 * LOONG_ERR_ARG, those of loongi_hf_config_read. */
LOONG_NODISCARD loong_status_t loongi_hf_check_replaced(
    loong_context_t *ctx, const char *dir, const loong_pairs_t *model);

/* Writes a complete model directory: config.json, generation_config.json, the
 * weights, the tokenizer's files. Not collective: one rank calls it. */
LOONG_NODISCARD loong_status_t
loongi_hf_export(loong_context_t *ctx, const loong_hf_export_params_t *params);

#ifdef __cplusplus
}
#endif

#endif
