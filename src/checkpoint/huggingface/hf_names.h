/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameters of each family and their tensors in Hugging Face files, as
 * data. '#' is the layer, '@' the expert, '@+' one of a second set, whose
 * numbers follow the first's. Expanded by hf_names.c. */
#ifndef LOONG_HF_NAMES_H
#define LOONG_HF_NAMES_H

#include "hf_weights.h"
#include "layer_kinds.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum loong_hf_size {
    HF_NONE, /* a vector's second dimension */
    HF_HIDDEN,
    HF_FFN,
    HF_QUERY,
    HF_KEY,
    HF_HEAD,
    HF_VOCAB,
    HF_POSITION,
    HF_EXPERTS,
    HF_EXPERT_FFN,
    HF_GATE_UP, /* rows of all experts' matrices, one below the other */
    HF_DOWN,
    HF_ALL_EXPERTS, /* of all sets */
    HF_VISION_FFN,  /* of the second set */
    HF_VISION_GATE_UP,
    HF_SHARED_FFN,
    HF_Q_RANK, /* of latent attention */
    HF_KV_RANK,
    HF_KV_A,  /* the short vector and the shared channels of keys */
    HF_KV_B,  /* keys without them and values of all heads */
    HF_VALUE, /* values of all heads */
    HF_PATCH, /* numbers of a patch, of a vision transformer */
    HF_CLASSES,
    HF_BLOCK, /* the rows of a block together, and the width between them */
    HF_BLOCK_FFN,
    HF_SIZE_COUNT
} loong_hf_size_t;

typedef enum loong_hf_condition {
    HF_ALWAYS,
    HF_IF_QKV_BIAS,
    HF_IF_PROJ_BIAS,
    HF_IF_MLP_BIAS,
    HF_IF_QK_NORM,
    HF_IF_UNTIED,
    HF_IF_WHOLE_Q, /* of latent attention */
    HF_IF_SHORT_Q,
    HF_IF_SHORT_Q_BIAS,
    HF_IF_CLASSES, /* of a vision transformer */
    HF_IF_MASKED,
    HF_IF_POST_NORM,
    HF_IF_NORM_BIAS,
    HF_IF_MERGER,
    HF_IF_DENSE, /* the layer has a feed-forward; else these: */
    HF_IF_EXPERTS,
    HF_IF_BIAS, /* of the choice of experts */
    HF_IF_SHARED,
    HF_IF_SHARED_GATE,
    HF_CONDITION_COUNT
} loong_hf_condition_t;

/* How the file keeps a parameter. */
enum {
    HF_TURNED = 1,   /* [in, out] */
    HF_GROUPED = 2,  /* parts alternate, one key head after the other */
    HF_EXACT = 4,    /* fp32, in files of narrower types too */
    HF_FLAT = 8,     /* a vector as a matrix of a row for each set of experts */
    HF_STACKED = 16, /* all experts in one tensor, one after the other */
    HF_HOLLOW = 32,  /* the class has it without elements when we do not */
    HF_BARE = 64,    /* without the prefix of the base model */
    HF_IMAGE = 128,  /* [rows, channels, size, size] */
    HF_ROW = 256,    /* one row, as a vector */
    HF_FIRST = 512,  /* with a first dimension of 1 */
    HF_POINT = 1024, /* [rows, columns, 1, 1]: a convolution of one point */
    HF_OWN = 2048,   /* of the class, not of its base model */
    HF_GRID = 4096,  /* rows as a square of them */
    HF_FRAMES = 8192, /* of HF_IMAGE, behind the channels */
    HF_PLACES = 16384 /* with HF_IMAGE: of a row of ours all channels of a place
                         stand together, in the file all places of a channel */
};

typedef struct loong_hf_row {
    const char *name;
    const char *hf_name; /* NULL: the same */
    loong_hf_size_t rows;
    loong_hf_size_t columns;
    loong_hf_condition_t condition;
    unsigned how;
    /* Parts of one tensor stand together, in its order. Of experts whose two
     * matrices are one tensor, part 1 says that the second comes first. */
    int part;
    int parts;
    const char *second; /* hf_name and this, for each expert; or NULL */
} loong_hf_row_t;

typedef struct loong_hf_names {
    const char *name;
    const char *prefix;
    const loong_hf_row_t *rows; /* ends with a NULL name */
    bool predicts;     /* files may have layers that predict further tokens */
    /* What the names of tensors of other parts of the model begin with; ends
     * with NULL. NULL: there are none. */
    const char *const *beside;
} loong_hf_names_t;

/* NULL when there is none of that name. */
const loong_hf_names_t *loongi_hf_names_find(const loong_context_t *ctx,
                                             const char *family);

/* The output matrix, which alone has no prefix. */
#define LOONG_HF_HEAD "lm_head.weight"

struct loong_hf_map {
    loong_context_t *ctx;
    loong_arena_t *arena;
    const loong_hf_names_t *family;
    const char *prefix, *bare; /* in files; see loongi_hf_param_prefix */
    /* Of which it is a part; NULL: of none. */
    const struct loong_hf_composite *composite;
    int part;
    int64_t ignored_count;
    const char *const *ignored; /* patterns; of a map from a file */
    int64_t sizes[HF_SIZE_COUNT];
    int64_t patch[3]; /* channels, side and frames of a patch */
    bool conditions[HF_CONDITION_COUNT];
    loong_layer_kinds_t kinds; /* with experts */
    int64_t layers;
    int64_t groups; /* key heads */
    int64_t pieces;
    int64_t count;
    int64_t capacity;
    loong_hf_param_t *params;
    const loong_hf_param_t **by_name;
    int64_t hollow_count;
    int64_t hollow_capacity;
    loong_hf_param_t *hollow; /* HF_HOLLOW: of the file alone */
};

/* The same parameters under other names of loong_hf_names_t. Errors: those of
 * allocation. */
LOONG_NODISCARD loong_status_t loongi_hf_map_rename(loong_hf_map_t *map,
                                                    const char *names);

/* The first of a row's parameters; NULL when the model has none. */
const loong_hf_param_t *loongi_hf_map_first(const loong_hf_map_t *map,
                                            const loong_hf_row_t *row);

#ifdef __cplusplus
}
#endif

#endif
