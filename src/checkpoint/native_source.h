/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameters of one component of a native checkpoint, with what its
 * adapters add to them where that is asked for. */
#ifndef LOONG_NATIVE_SOURCE_H
#define LOONG_NATIVE_SOURCE_H

#include "hf_weights.h"
#include "native.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_native_source {
    loong_context_t *ctx;
    loong_checkpoint_t *checkpoint;
    const char *component;
    bool ema;   /* averages, of what has them */
    bool merge; /* adapters are added to the matrices beside them */
    /* The directory that a checkpoint of adapters began with, which has the
     * rest; NULL: all is in the checkpoint. */
    loong_hf_t *base;
} loong_native_source_t;

/* One of the components that are written together. */
typedef struct loong_native_part {
    loong_native_source_t source;
    loong_pairs_t *model; /* its keys */
    loong_hf_map_t *map;
} loong_native_part_t;

/* The metadata of an adapter's module below this is what it is multiplied by:
 * "adapter.foundation.layers.0.self_attn.q_proj". */
#define LOONG_ADAPTER_KEY "adapter."
/* The directory that has what is not in a checkpoint of adapters:
 * "base.foundation"; and what it was like. */
#define LOONG_BASE_KEY "base."
#define LOONG_BASE_DIGEST_KEY "base_digest."
/* Adapters that were merged into it (peft_terms.h); not there: none. */
#define LOONG_BASE_ADAPTERS_KEY "base_adapters."

/* How a matrix of that directory is stored as codes while it is trained with:
 * what its codes stand for is the model. "quantized.foundation.layers.0 ..." */
#define LOONG_QUANT_KEY "quantized."

/* A component's adapters are in the checkpoint. */
bool loongi_native_has_adapters(const loong_native_source_t *source);

/* Opens the base where the checkpoint names one. Errors: those of opening,
 * LOONG_ERR_MISMATCH when it is another one now. */
LOONG_NODISCARD loong_status_t
loongi_native_open_base(loong_native_source_t *source);

/* What was merged into the base; NULL: nothing. */
const char *loongi_native_base_adapters(const loong_native_source_t *source);

/* A parameter in the checkpoint; NULL: it has none. */
const loong_checkpoint_tensor_t *
loongi_native_find(const loong_native_source_t *source, const char *name);

/* What the model's keys call for, and adapters, against what is there: what the
 * checkpoint leaves to its base need not be. Errors: LOONG_ERR_MISMATCH. */
LOONG_NODISCARD loong_status_t loongi_native_check(
    const loong_native_source_t *source, const loong_hf_map_t *map);

/* The scale and the matrices of a matrix' adapter: b has its rows, a its
 * columns. false: it has none. */
typedef struct loong_native_adapter {
    double scale;
    const loong_checkpoint_tensor_t *a, *b;
    const loong_checkpoint_tensor_t *magnitude; /* of rows; NULL: without */
} loong_native_adapter_t;
bool loongi_native_adapter(const loong_native_source_t *source,
                           const char *module,
                           loong_native_adapter_t *adapter);

/* As hf_weights.h wants a source; user is a loong_native_source_t. */
LOONG_NODISCARD loong_status_t
loongi_native_read(void *user, const loong_hf_block_t *block,
                   loong_dtype_t dtype, void *dst);
loong_dtype_t loongi_native_type(void *user, const char *name);
bool loongi_native_lend(void *user, const char *name, int64_t row,
                        int64_t rows, loong_borrowed_t *borrowed);

#ifdef __cplusplus
}
#endif

#endif
