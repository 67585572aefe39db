/* SPDX-License-Identifier: Apache-2.0
 *
 * The directory in which peft keeps adapters of low rank: adapter_config.json
 * and adapter_model.safetensors. In memory it is a list of modules, by the
 * names that the files of their base have ("model.layers.0.self_attn.q_proj"),
 * whether it was read, made from a checkpoint or from other adapters. */
#ifndef LOONG_PEFT_H
#define LOONG_PEFT_H

#include "json.h"
#include "safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LOONG_PEFT_PREFIX "base_model.model."
#define LOONG_PEFT_MAGNITUDE ".lora_magnitude_vector"
#define LOONG_PEFT_CONFIG "adapter_config.json"
#define LOONG_PEFT_WEIGHTS "adapter_model.safetensors"

typedef struct loong_peft_tensor {
    loong_dtype_t stored; /* in files */
    loong_dtype_t dtype;  /* of data */
    int ndim;
    int64_t shape[2];
    const void *data; /* borrowed; not aligned */
} loong_peft_tensor_t;

/* y = x w' + scale (x a') b' with a [rank, in] and b [out, rank]. Experts are
 * one parameter in transformers 5, "model.layers.0.mlp.experts.gate_up_proj",
 * which peft calls a target parameter: of E of them a is [E rank, in], one
 * below the other, and b [out, rank E], where column k E + e is column k of
 * expert e. */
typedef struct loong_peft_module {
    const char *name;
    double scale;
    int64_t experts; /* 0: it is a layer */
    /* Of an embedding of V ids a is [rank, V] and b [width, rank], and it adds
     * scale a' b' to the table. */
    bool embedding;
    loong_peft_tensor_t a, b;
    /* [out], of DoRA: rows of the matrix with what the adapter adds have these
     * lengths. ndim 0: they have their own. */
    loong_peft_tensor_t magnitude;
} loong_peft_module_t;

/* A tensor of the base that was trained as it is: modules_to_save, bias. */
typedef struct loong_peft_saved {
    const char *name; /* of the base's files */
    loong_peft_tensor_t tensor;
    /* It was not: peft saves the table beside an adapter of an embedding or a
     * head, as the base has it. */
    bool of_base;
} loong_peft_saved_t;

typedef struct loong_peft {
    loong_context_t *ctx;
    loong_arena_t *arena;
    const char *path;
    const char *base; /* base_model_name_or_path; NULL: not said */
    double dropout;
    bool fan_in_fan_out; /* the base's files have matrices as [in, out] */
    int64_t num_modules, num_saved;
    loong_peft_module_t *modules;
    loong_peft_saved_t *saved;
    loong_json_t *config;      /* of one that was read, */
    loong_safetensors_t *file; /* its weights; else NULL */
} loong_peft_t;

/* A directory with an adapter_config.json. */
bool loongi_peft_is(const char *dir);

/* Reads a directory. Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_FORMAT,
 * LOONG_ERR_MISMATCH (files that contradict each other), LOONG_ERR_UNSUPPORTED
 * (another method than LoRA, by name). */
LOONG_NODISCARD loong_status_t loongi_peft_read(loong_context_t *ctx,
                                                const char *dir,
                                                loong_peft_t **peft_p);
/* An empty one, with room for so many. */
LOONG_NODISCARD loong_status_t loongi_peft_create(loong_context_t *ctx,
                                                  int64_t modules,
                                                  int64_t saved,
                                                  loong_peft_t **peft_p);
void loongi_peft_destroy(loong_peft_t **peft);

static inline int64_t loongi_peft_rank(const loong_peft_module_t *module)
{
    return module->a.shape[0] /
           (module->experts > 0 ? module->experts : 1);
}

/* NULL: no adapter is beside it. */
const loong_peft_module_t *loongi_peft_find(const loong_peft_t *peft,
                                            const char *module);
/* Elements of a matrix, from its own type; not aligned data is no matter. */
LOONG_NODISCARD loong_status_t loongi_peft_values(
    const loong_peft_t *peft, const loong_peft_tensor_t *tensor, double *to);

/* A sum of adapters, each times its weight. */
typedef struct loong_peft_sum {
    int64_t count;
    const loong_peft_t *const *terms;
    const double *weights;
    /* Their matrices are added, of one rank, as peft's "linear" does it; false:
     * what they make, peft's "cat", of the ranks' sum. */
    bool linear;
    bool exact; /* stored as double; false: in the type that the terms have */
} loong_peft_sum_t;

/* The sum as one adapter. Parameters that were trained as they are go along
 * with a single one of weight 1, whose names and data stay borrowed. Errors:
 * LOONG_ERR_MISMATCH, LOONG_ERR_UNSUPPORTED. */
LOONG_NODISCARD loong_status_t loongi_peft_add(loong_context_t *ctx,
                                               const loong_peft_sum_t *sum,
                                               loong_peft_t **peft_p);

/* The best approximation of each module of a sum that has a higher rank than
 * this: columns of b are orthogonal, rows of a too, and as long as 1 (peft's
 * "svd"). */
LOONG_NODISCARD loong_status_t loongi_peft_truncate(loong_peft_t *sum,
                                                    int64_t rank);

/* Whether adapters may be written there: where no model is, which transformers
 * would add them to. Errors: LOONG_ERR_ARG. */
LOONG_NODISCARD loong_status_t loongi_peft_check_place(loong_context_t *ctx,
                                                       const char *dir);

/* Makes the directory and both files. Errors: those of the place. */
LOONG_NODISCARD loong_status_t loongi_peft_write(const loong_peft_t *peft,
                                                 const char *dir);

#ifdef __cplusplus
}
#endif

#endif
