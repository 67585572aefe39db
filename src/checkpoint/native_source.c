/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads parameters for an export, merged with adapters or not. Called by
 * export.c and peft_export.c. Read native_source.h and hf_adapters.h
 * before. */
#include "native_source.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert.h"
#include "hf_adapters.h"
#include "hf_digest.h"
#include "hf_names.h"
#include "hf_quantize.h"
#include "peft.h"
#include "quant.h"

bool loongi_native_has_adapters(const loong_native_source_t *source)
{
    const loong_pairs_t *meta = loongi_checkpoint_metadata(source->checkpoint);
    char prefix[128];
    snprintf(prefix, sizeof(prefix), LOONG_ADAPTER_KEY "%s.",
             source->component);
    int64_t i = 0;
    while (i < meta->count &&
           strncmp(meta->items[i].key, prefix, strlen(prefix)) != 0) {
        i++;
    }
    return i < meta->count;
}

static bool is_adapter(const loong_native_source_t *source,
                       const loong_checkpoint_tensor_t *tensor)
{
    size_t length = strlen(source->component);
    char module[LOONG_HF_MODULE];
    return strcmp(tensor->kind, "param") == 0 &&
           strncmp(tensor->name, source->component, length) == 0 &&
           tensor->name[length] == '.' &&
           loongi_lora_matrix(tensor->name, module) != LOONG_LORA_NONE;
}

static const char *said_of(const loong_native_source_t *source, const char *of)
{
    char key[128];
    snprintf(key, sizeof(key), "%s%s", of, source->component);
    return loongi_pairs_get(loongi_checkpoint_metadata(source->checkpoint),
                            key);
}

/* The directory with the rest; NULL: all is in the checkpoint. */
static const char *base_of(const loong_native_source_t *source)
{
    return said_of(source, LOONG_BASE_KEY);
}

const char *loongi_native_base_adapters(const loong_native_source_t *source)
{
    return said_of(source, LOONG_BASE_ADAPTERS_KEY);
}

loong_status_t loongi_native_open_base(loong_native_source_t *source)
{
    const char *dir = base_of(source);
    const char *adapters = loongi_native_base_adapters(source);
    if (dir == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(
        loongi_hf_digest_check(source->ctx, dir, adapters,
                               said_of(source, LOONG_BASE_DIGEST_KEY)));
    const loong_hf_open_params_t open = {.dir = dir,
                                         .role = source->component,
                                         .adapters = adapters};
    return loongi_hf_open_as(source->ctx, &open, &source->base);
}

static const loong_checkpoint_tensor_t *
find_kind(const loong_native_source_t *source, const char *kind,
          const char *name)
{
    char full[512];
    snprintf(full, sizeof(full), "%s.%s", source->component, name);
    return loongi_checkpoint_find(source->checkpoint, kind, full);
}

const loong_checkpoint_tensor_t *
loongi_native_find(const loong_native_source_t *source, const char *name)
{
    const loong_checkpoint_tensor_t *tensor =
        source->ema ? find_kind(source, "ema", name) : NULL;
    return tensor != NULL ? tensor : find_kind(source, "param", name);
}

static bool is_there(const void *user, const char *name)
{
    return loongi_native_find(user, name) != NULL;
}

bool loongi_native_adapter(const loong_native_source_t *source,
                           const char *module, loong_native_adapter_t *adapter)
{
    const loong_pairs_t *meta = loongi_checkpoint_metadata(source->checkpoint);
    char of_a[LOONG_HF_MODULE];
    char name[LOONG_HF_MODULE + 64];
    snprintf(name, sizeof(name), "%s.lora_B.weight", module);
    adapter->b = loongi_native_find(source, name);
    snprintf(name, sizeof(name), "%s" LOONG_PEFT_MAGNITUDE, module);
    adapter->magnitude = loongi_native_find(source, name);
    if (adapter->b == NULL ||
        !loongi_lora_module_of_a(module, is_there, source, of_a)) {
        return false;
    }
    snprintf(name, sizeof(name), "%s.lora_A.weight", of_a);
    adapter->a = loongi_native_find(source, name);
    snprintf(name, sizeof(name), LOONG_ADAPTER_KEY "%s.%s", source->component,
             of_a);
    return loongi_pairs_real(meta, name, &adapter->scale);
}

loong_status_t loongi_native_check(const loong_native_source_t *source,
                                   const loong_hf_map_t *map)
{
    loong_arena_t *arena = NULL;
    loong_checkpoint_tensor_t *wanted = NULL;
    int64_t count = loongi_hf_map_count(map);
    int64_t room = count + loongi_checkpoint_count(source->checkpoint);
    int64_t found = 0;
    loong_native_adapter_t adapter;
    LOONG_CHECK(source->ctx,
                !source->merge ||
                    loongi_hf_map_find(map, LOONG_HF_HEAD) != NULL ||
                    !loongi_native_adapter(source, LOONG_LORA_EMBEDDING,
                                           &adapter),
                LOONG_ERR_UNSUPPORTED,
                "%s: the adapter of " LOONG_LORA_EMBEDDING " cannot be merged: "
                "the head is the same matrix and has none; the adapter can be "
                "exported as it is",
                loongi_checkpoint_path(source->checkpoint));
    LOONG_TRY(loongi_arena_create(source->ctx, "export", &arena));
    loong_status_t status =
        loongi_arena_alloc(arena, (size_t)room * sizeof(*wanted), &wanted);
    for (int64_t i = 0; i < count && status == LOONG_OK; i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        char *name = NULL;
        if (base_of(source) != NULL &&
            loongi_native_find(source, p->name) == NULL) {
            continue;
        }
        status = loongi_arena_printf(arena, &name, "%s.%s", source->component,
                                     p->name);
        wanted[found].kind = "param";
        wanted[found].name = name;
        wanted[found].ndim = p->ndim;
        memcpy(wanted[found++].shape, p->shape, sizeof(p->shape));
    }
    for (int64_t i = 0; i < loongi_checkpoint_count(source->checkpoint); i++) {
        const loong_checkpoint_tensor_t *t =
            loongi_checkpoint_get(source->checkpoint, i);
        if (is_adapter(source, t)) {
            wanted[found++] = *t;
        }
    }
    if (status == LOONG_OK) {
        status = loongi_checkpoint_check(source->checkpoint, wanted, found);
    }
    loongi_arena_destroy(&arena);
    return status;
}

/* ---- merged -------------------------------------------------------------- */

static bool adapter_beside(const loong_native_source_t *source,
                           const char *name, loong_native_adapter_t *adapter)
{
    char module[LOONG_HF_MODULE];
    loong_hf_param_t base = {.name = name};
    loongi_lora_module(&base, module);
    return source->merge && loongi_native_adapter(source, module, adapter);
}

static loong_quant_t quant_of(const loong_native_source_t *source,
                              const char *name)
{
    char key[LOONG_HF_MODULE + 64];
    snprintf(key, sizeof(key), LOONG_QUANT_KEY "%s.%s", source->component,
             name);
    return loongi_quant_named(
        loongi_pairs_get(loongi_checkpoint_metadata(source->checkpoint), key));
}

/* What the codes of a block stand for. */
static loong_status_t read_codes(const loong_native_source_t *source,
                                 const loong_hf_block_t *block,
                                 loong_quant_t quant, loong_dtype_t dtype,
                                 void *dst)
{
    loong_hf_quantizer_t *q = NULL;
    LOONG_TRY(loongi_hf_quantizer_create(source->base, block->name, quant, &q));
    loong_status_t status =
        loongi_hf_quantizer_numbers(q, block, dtype, dst);
    loongi_hf_quantizer_destroy(&q);
    return status;
}

static loong_status_t read_plain(const loong_native_source_t *source,
                                 const loong_hf_block_t *block,
                                 loong_dtype_t dtype, void *dst)
{
    int64_t begin[2] = {block->row, block->column};
    int64_t count[2] = {block->rows, block->columns};
    const loong_checkpoint_tensor_t *t =
        loongi_native_find(source, block->name);
    if (t != NULL) {
        return loongi_checkpoint_read(source->checkpoint, t, begin, count,
                                      dtype, dst);
    }
    loong_quant_t quant = quant_of(source, block->name);
    if (quant != LOONG_QUANT_NONE) {
        return read_codes(source, block, quant, dtype, dst);
    }
    const loong_hf_param_t *p =
        loongi_hf_map_find(loongi_hf_get_map(source->base), block->name);
    int64_t width = p->ndim > 1 ? p->shape[1] : 1;
    size_t size = loong_dtype_size(dtype);
    char *rows = NULL;
    if (width == block->columns) {
        return loongi_hf_read(source->base, block->name, block->row,
                              block->rows, dtype, dst);
    }
    LOONG_TRY(loongi_calloc(source->ctx, (size_t)(block->rows * width), size,
                            "rows of a base", &rows));
    loong_status_t status = loongi_hf_read(
        source->base, block->name, block->row, block->rows, dtype, rows);
    for (int64_t r = 0; r < block->rows; r++) {
        memcpy((char *)dst + (size_t)(r * block->columns) * size,
               rows + (size_t)(r * width + block->column) * size,
               (size_t)block->columns * size);
    }
    loongi_free(source->ctx, rows);
    return status;
}

/* w += scale b a, of a block, in double. Experts have `out` rows each and a
 * matrix a of their own; a begins with that of the block's first row. */
static void add_product(const loong_hf_block_t *block,
                        const loong_native_adapter_t *adapter, int64_t out,
                        const double *a, const double *b, double *w)
{
    int64_t rank = adapter->b->shape[1];
    for (int64_t r = 0; r < block->rows; r++) {
        double *row = w + r * block->columns;
        int64_t expert = (block->row + r) / out - block->row / out;
        for (int64_t k = 0; k < rank; k++) {
            double factor = adapter->scale * b[r * rank + k];
            const double *from = a + (expert * rank + k) * block->columns;
            for (int64_t c = 0; c < block->columns; c++) {
                row[c] += factor * from[c];
            }
        }
    }
}

/* Rows of w over their norms, times magnitudes. */
static void weigh(const loong_hf_block_t *block, const double *magnitudes,
                  double *w)
{
    for (int64_t r = 0; r < block->rows; r++) {
        double *row = w + r * block->columns;
        double sum = 0.0;
        for (int64_t c = 0; c < block->columns; c++) {
            sum += row[c] * row[c];
        }
        for (int64_t c = 0; c < block->columns; c++) {
            row[c] *= magnitudes[r] / sqrt(sum);
        }
    }
}

static loong_status_t read_factors(const loong_native_source_t *source,
                                   const loong_checkpoint_tensor_t *tensor,
                                   int64_t begin[2], int64_t count[2],
                                   double *to)
{
    return tensor == NULL ? LOONG_OK
                          : loongi_checkpoint_read(source->checkpoint, tensor,
                                                   begin, count, LOONG_F64, to);
}

/* One rounding, of the sum. Rows that have magnitudes are read whole. */
static loong_status_t read_merged(const loong_native_source_t *source,
                                  const loong_hf_block_t *block,
                                  const loong_native_adapter_t *adapter,
                                  loong_dtype_t dtype, void *dst)
{
    loong_hf_block_t own = *block;
    if (adapter->magnitude != NULL) {
        own.column = 0;
        own.columns = adapter->a->shape[1];
    }
    int64_t rank = adapter->b->shape[1];
    int64_t out = adapter->b->shape[0] / (adapter->a->shape[0] / rank);
    int64_t first = block->row / out;
    int64_t experts = (block->row + block->rows - 1) / out + 1 - first;
    int64_t a_begin[2] = {first * rank, own.column};
    int64_t a_count[2] = {experts * rank, own.columns};
    int64_t b_begin[2] = {block->row, 0};
    int64_t b_count[2] = {block->rows, rank};
    double *w = NULL;
    LOONG_TRY(loongi_calloc(source->ctx,
                            (size_t)(own.rows * (own.columns + rank + 1) +
                                     rank * experts * own.columns),
                            sizeof(*w), "merged rows", &w));
    double *a = w + own.rows * own.columns;
    double *b = a + experts * rank * own.columns;
    double *magnitudes = b + own.rows * rank;
    loong_status_t status = read_plain(source, &own, LOONG_F64, w);
    if (status == LOONG_OK) {
        status = read_factors(source, adapter->a, a_begin, a_count, a);
    }
    if (status == LOONG_OK) {
        status = read_factors(source, adapter->b, b_begin, b_count, b);
    }
    if (status == LOONG_OK) {
        status = read_factors(source, adapter->magnitude, b_begin, b_count,
                              magnitudes);
    }
    if (status == LOONG_OK) {
        add_product(&own, adapter, out, a, b, w);
    }
    if (adapter->magnitude != NULL) {
        weigh(&own, magnitudes, w);
    }
    for (int64_t r = 0; r < block->rows && status == LOONG_OK; r++) {
        size_t at = (size_t)(r * block->columns) * loong_dtype_size(dtype);
        status = loongi_convert(source->ctx, LOONG_F64,
                                w + r * own.columns + block->column -
                                    own.column,
                                dtype, (char *)dst + at, block->columns);
    }
    loongi_free(source->ctx, w);
    return status;
}

loong_status_t loongi_native_read(void *user, const loong_hf_block_t *block,
                                  loong_dtype_t dtype, void *dst)
{
    const loong_native_source_t *source = user;
    loong_native_adapter_t adapter;
    return adapter_beside(source, block->name, &adapter)
               ? read_merged(source, block, &adapter, dtype, dst)
               : read_plain(source, block, dtype, dst);
}

/* A model with adapters in has the types of its base. */
loong_dtype_t loongi_native_type(void *user, const char *name)
{
    const loong_native_source_t *source = user;
    return source->base != NULL ? loongi_hf_dtype(source->base, name)
                                : loongi_native_find(source, name)->dtype;
}

bool loongi_native_lend(void *user, const char *name, int64_t row, int64_t rows,
                        loong_borrowed_t *borrowed)
{
    const loong_native_source_t *source = user;
    loong_native_adapter_t adapter;
    const loong_checkpoint_tensor_t *t = loongi_native_find(source, name);
    return !adapter_beside(source, name, &adapter) &&
           quant_of(source, name) == LOONG_QUANT_NONE &&
           (t != NULL
                ? loongi_checkpoint_lend(source->checkpoint, t, row, rows,
                                         borrowed)
                : loongi_hf_lend(source->base, name, row, rows, borrowed));
}
