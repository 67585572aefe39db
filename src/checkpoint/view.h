/* SPDX-License-Identifier: Apache-2.0
 *
 * One way to look at the tensors of a native checkpoint, of a Hugging Face
 * directory and of one of peft's. */
#ifndef LOONG_VIEW_H
#define LOONG_VIEW_H

#include "hf_composite.h"
#include "hf_weights.h"
#include "loong/checkpoint.h"
#include "loong/recipe.h"
#include "native.h"
#include "peft.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum loong_view_names {
    LOONG_VIEW_OWN, /* as the files have them */
    LOONG_VIEW_JUDGED, /* the same, of a model that could be read */
    /* the engine's parameters; without the component where there is one */
    LOONG_VIEW_ENGINE
} loong_view_names_t;

typedef struct loong_view_tensor {
    const char *name; /* native: "kind name" among its own names */
    loong_dtype_t dtype;
    int ndim;
    int64_t shape[LOONG_TENSOR_MAX_DIMS];
    const void *handle; /* of the source */
} loong_view_tensor_t;

/* A component of the model. */
typedef struct loong_view_part {
    const char *role;
    loong_pairs_t *model; /* keys, empty when they are not understood */
    loong_hf_t *hf;       /* of a directory, among engine's names; else NULL */
} loong_view_part_t;

typedef struct loong_view {
    loong_context_t *ctx;
    loong_arena_t *arena;
    const char *path;
    loong_checkpoint_t *native;
    loong_safetensors_set_t *set;
    loong_peft_t *peft;
    int num_parts; /* of several, names of tensors begin with the role */
    loong_view_part_t parts[LOONG_MODEL_ROLES];
    int64_t count;
    loong_view_tensor_t *tensors; /* by name */
} loong_view_t;

#define LOONG_DEFAULT_ROLE "foundation"
/* The components that a checkpoint's parameters are of, which their names begin
 * with, by its metadata: the one with the loss last, never none. Static. */
int loongi_view_roles(const loong_pairs_t *metadata,
                      const char *roles[LOONG_MODEL_ROLES]);
/* The one with the loss. */
const char *loongi_view_component(const loong_pairs_t *metadata);
/* " image_encoder foundation": those that metadata speaks of. */
enum { LOONG_VIEW_COMPONENTS = 256 };
const char *loongi_view_list_components(const loong_pairs_t *metadata,
                                        char list[LOONG_VIEW_COMPONENTS]);
/* By the family of a model. */
const char *loongi_view_role(loong_context_t *ctx, const loong_pairs_t *model);

/* as: how a Hugging Face directory is understood for LOONG_VIEW_ENGINE; or
 * NULL. */
LOONG_NODISCARD loong_status_t loongi_view_open(
    loong_context_t *ctx, const char *path, loong_view_names_t names,
    const loong_checkpoint_names_t *as, loong_view_t **view_p);
void loongi_view_close(loong_view_t **view);
/* Rows converted to dtype (the tensor's own: a copy). A scalar is one row. */
LOONG_NODISCARD loong_status_t
loongi_view_read(const loong_view_t *view, const loong_view_tensor_t *tensor,
                 int64_t row, int64_t rows, loong_dtype_t dtype, void *dst);

int64_t loongi_view_rows(const loong_view_tensor_t *tensor);
int64_t loongi_view_row_length(const loong_view_tensor_t *tensor);

/* The keys under "model.COMPONENT." of a checkpoint's metadata. */
LOONG_NODISCARD loong_status_t loongi_view_model_keys(
    const loong_pairs_t *metadata, const char *component, loong_pairs_t *model);

/* What loong_checkpoint_verify says of the files and of the parameters of a
 * component, with ema of its averages too: checksums, NaN and infinity. Errors:
 * LOONG_ERR_FORMAT, which lists them by file and tensor; LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t
loongi_verify_component(loong_checkpoint_t *checkpoint, loong_context_t *ctx,
                        const char *component, bool ema);

#ifdef __cplusplus
}
#endif

#endif
