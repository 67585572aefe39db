/* SPDX-License-Identifier: Apache-2.0
 *
 * e4m3 weights and their scales. Called by readers of config.json and of
 * weights, by convert_files.c and by drafts. Read hf_quant.h before. */
#include "hf_quant.h"

#include <stdio.h>
#include <string.h>

#include "convert.h"
#include "file.h"
#include "hf_codes.h"

enum { BLOCK = 128, SPAN = 512, NAME_BYTES = 512 };

/* ---- config.json ---- */

static const char *text_of(const loong_json_t *object, const char *name)
{
    const loong_json_t *value = loongi_hf_field(object, name);
    return value != NULL && loongi_json_kind(value) == LOONG_JSON_STRING
               ? loongi_json_string(value)
               : "";
}

/* The blocks' size, and the name of the field; NULL: not told. */
static const loong_json_t *find_block(const loong_json_t *config,
                                      const char **name_p)
{
    const loong_json_t *groups = loongi_json_get(config, "config_groups");
    *name_p = "quantization_config.weight_block_size";
    const loong_json_t *block = loongi_hf_field(config, "weight_block_size");
    if (block == NULL && loongi_json_count(groups) > 0 &&
        loongi_json_kind(groups) == LOONG_JSON_OBJECT) {
        const loong_json_t *weights = loongi_json_get(
            loongi_json_member_value(loongi_json_first(groups)), "weights");
        *name_p = "quantization_config.config_groups: block_structure";
        block = loongi_hf_field(weights, "block_structure");
    }
    return block;
}

static bool is_block(const loong_json_t *list)
{
    bool pair = loongi_json_kind(list) == LOONG_JSON_ARRAY &&
                loongi_json_count(list) == 2;
    for (int i = 0; i < 2 && pair; i++) {
        const loong_json_t *size = loongi_json_at(list, i);
        pair = loongi_json_kind(size) == LOONG_JSON_INT &&
               loongi_json_int(size) > 0;
    }
    return pair;
}

void loongi_hf_check_quant(loong_hf_reader_t *r, const loong_json_t *value)
{
    const char *method = text_of(value, "quant_method");
    const char *fmt = text_of(value, "fmt");
    const char *format = text_of(value, "format");
    const char *algorithm = text_of(value, "quant_algo");
    const char *name = NULL, *why = NULL;
    const loong_json_t *block = find_block(value, &name);
    loong_hf_packing_t packing = loongi_hf_packing_of(value, &why);
    if (why != NULL) {
        loongi_hf_refuse(r, "quantization_config", value, why);
        return;
    }
    if (block != NULL && !is_block(block)) {
        loongi_hf_refuse(r, name, block, "two positive integers are needed");
    }
    if (loongi_json_kind(value) == LOONG_JSON_NULL || packing.bits > 0 ||
        (strcmp(method, "fp8") == 0 &&
         (fmt[0] == '\0' || strcmp(fmt, "e4m3") == 0 ||
          strcmp(fmt, "float8_e4m3fn") == 0)) ||
        (strcmp(method, "compressed-tensors") == 0 &&
         (strcmp(format, "float-quantized") == 0 ||
          strcmp(format, "naive-quantized") == 0)) ||
        (strcmp(method, "bitsandbytes") == 0 && loongi_hf_codes_known(value)) ||
        (strcmp(method, "modelopt") == 0 && strcmp(algorithm, "FP8") == 0)) {
        return;
    }
    loongi_hf_refuse(r, "quantization_config", value,
                     "e4m3 is read: quant_method fp8, compressed-tensors with "
                     "format float-quantized, modelopt with quant_algo FP8; so "
                     "are compressed-tensors with format pack-quantized and "
                     "bitsandbytes: load_in_8bit, or load_in_4bit with "
                     "bnb_4bit_quant_type nf4");
}

/* A field of the whole or, where that has none, of the first section that
 * does. */
static const loong_json_t *find_field(const loong_json_t *json,
                                      const char *name)
{
    const loong_json_t *found = loongi_hf_field(json, name);
    const loong_json_member_t *m = loongi_json_first(json);
    for (; m != NULL && found == NULL; m = loongi_json_next(json, m)) {
        const loong_json_t *section = loongi_json_member_value(m);
        found = loongi_json_kind(section) == LOONG_JSON_OBJECT
                    ? loongi_hf_field(section, name)
                    : NULL;
    }
    return found;
}

static loong_dtype_t read_type(const loong_json_t *json)
{
    static const struct {
        const char *name;
        loong_dtype_t dtype;
    } types[] = {{"bfloat16", LOONG_BF16},
                 {"float16", LOONG_F16},
                 {"float32", LOONG_F32},
                 {"float64", LOONG_F64}};
    const loong_json_t *type = find_field(json, "dtype");
    type = type != NULL ? type : find_field(json, "torch_dtype");
    const char *name = type != NULL ? loongi_json_string(type) : "";
    for (int64_t i = 0; i < LOONG_COUNT_OF(types); i++) {
        if (strcmp(types[i].name, name) == 0) {
            return types[i].dtype;
        }
    }
    return LOONG_BF16;
}

static loong_status_t read_block(loong_context_t *ctx, const char *path,
                                 const loong_json_t *config, int64_t sizes[2])
{
    const char *name = NULL;
    const loong_json_t *block = find_block(config, &name);
    LOONG_CHECK(ctx, block == NULL || is_block(block), LOONG_ERR_UNSUPPORTED,
                "%s: %s: two positive integers are needed", path, name);
    for (int i = 0; i < 2 && block != NULL; i++) {
        sizes[i] = loongi_json_int(loongi_json_at(block, i));
    }
    return LOONG_OK;
}

loong_status_t loongi_hf_quant_read(loong_context_t *ctx, const char *dir,
                                    loong_hf_quant_t *quant_p)
{
    loong_hf_quant_t quant = {{BLOCK, BLOCK}, LOONG_BF16, {0, 0, LOONG_BF16}};
    loong_json_t *json = NULL;
    loong_text_t path = loongi_text_begin(ctx);
    loongi_text_printf(&path, "%s/config.json", dir);
    loong_status_t status = path.status;
    if (status == LOONG_OK && loongi_file_exists(path.data)) {
        status = loongi_json_load(ctx, path.data, &json);
    }
    if (status == LOONG_OK && json != NULL) {
        quant.dtype = read_type(json);
        const loong_json_t *config = find_field(json, "quantization_config");
        const char *why = NULL; /* of what is refused elsewhere */
        status = read_block(ctx, path.data, config, quant.block);
        quant.packing = loongi_hf_packing_of(config, &why);
        quant.packing.dtype = quant.dtype;
        loongi_json_destroy(&json);
    }
    loongi_text_free(&path);
    LOONG_TRY(status);
    *quant_p = quant;
    return LOONG_OK;
}

/* ---- tensors ---- */

const loong_safetensor_t *
loongi_hf_quant_scale(const loong_safetensors_set_t *set,
                      const loong_safetensor_t *tensor)
{
    static const char *const suffixes[] = {"_scale_inv", "_scale"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(suffixes); i++) {
        char name[NAME_BYTES];
        int length =
            snprintf(name, sizeof(name), "%s%s", tensor->name, suffixes[i]);
        const loong_safetensor_t *scale =
            length < (int)sizeof(name) ? loongi_safetensors_set_find(set, name)
                                       : NULL;
        if (scale != NULL) {
            return scale;
        }
    }
    return NULL;
}

static bool ends_with(const char *name, const char *suffix, size_t *stem)
{
    size_t length = strlen(name);
    size_t n = strlen(suffix);
    *stem = length - LOONG_MIN(n, length);
    return length > n && strcmp(name + *stem, suffix) == 0;
}

bool loongi_hf_quant_of_activations(const char *name)
{
    static const char *const suffixes[] = {".input_scale", ".output_scale",
                                           ".k_scale", ".v_scale"};
    size_t stem = 0;
    for (int64_t i = 0; i < LOONG_COUNT_OF(suffixes); i++) {
        if (ends_with(name, suffixes[i], &stem)) {
            return true;
        }
    }
    return false;
}

bool loongi_hf_quant_is_scale(const loong_safetensors_set_t *set,
                              const char *name)
{
    static const char *const of_weights[] = {"_scale_inv", "_scale"};
    size_t stem = 0;
    if (loongi_hf_quant_of_activations(name)) {
        return true;
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(of_weights); i++) {
        char base[NAME_BYTES];
        if (!ends_with(name, of_weights[i], &stem) || stem >= sizeof(base)) {
            continue;
        }
        snprintf(base, sizeof(base), "%.*s", (int)stem, name);
        const loong_safetensor_t *t = loongi_safetensors_set_find(set, base);
        if (t != NULL && t->dtype == LOONG_F8_E4M3) {
            return true;
        }
    }
    return false;
}

static int64_t blocks(int64_t size, int64_t block)
{
    return (size + block - 1) / block;
}

/* What one scale is of. A tensor of three dimensions is a matrix for each
 * expert. */
typedef enum grain { NO_GRAIN, WHOLE, EXPERTS, ROWS, BLOCKS } grain_t;

static bool is_shape(const loong_safetensor_t *t, int ndim,
                     const int64_t *shape)
{
    int same = 0;
    while (same < ndim && same < t->ndim && t->shape[same] == shape[same]) {
        same++;
    }
    for (int d = same; d < t->ndim; d++) { /* [rows] is also [rows, 1] */
        if (t->shape[d] != 1) {
            return false;
        }
    }
    return same == ndim;
}

static grain_t grain_of(const loong_hf_quant_t *quant,
                        const loong_safetensor_t *tensor,
                        const loong_safetensor_t *scale)
{
    const int64_t *shape = tensor->shape;
    int ndim = tensor->ndim;
    if (loongi_shape_count(scale->ndim, scale->shape) == 1) {
        return WHOLE;
    }
    if (is_shape(scale, ndim - 1, shape)) {
        return ROWS;
    }
    int64_t grid[3] = {shape[0], 0, 0};
    for (int d = ndim - 2; d < ndim; d++) {
        grid[d] = blocks(shape[d], quant->block[d - ndim + 2]);
    }
    if (is_shape(scale, ndim, grid)) {
        return BLOCKS;
    }
    return ndim == 3 && is_shape(scale, 1, shape) ? EXPERTS : NO_GRAIN;
}

bool loongi_hf_quant_fits(const loong_hf_quant_t *quant,
                          const loong_safetensor_t *tensor,
                          const loong_safetensor_t *scale)
{
    return (tensor->ndim == 2 || tensor->ndim == 3) &&
           scale->dtype != LOONG_F8_E4M3 &&
           loongi_dtype_is_float(scale->dtype) &&
           grain_of(quant, tensor, scale) != NO_GRAIN;
}

/* The scale of an element, and how many more of its row have the same. */
static loong_status_t find_scale(loong_context_t *ctx,
                                 const loong_hf_quant_t *quant,
                                 const loong_hf_stretch_t *s, int64_t column,
                                 float *scale_p, int64_t *run_p)
{
    const loong_safetensor_t *scale = s->scale;
    int ndim = s->tensor->ndim;
    int64_t rows = s->tensor->shape[ndim - 2]; /* of a matrix */
    int64_t columns = s->tensor->shape[ndim - 1];
    grain_t grain = grain_of(quant, s->tensor, scale);
    int64_t at = grain == ROWS ? s->row : grain == EXPERTS ? s->row / rows : 0;
    *run_p = columns - column;
    if (grain == BLOCKS) {
        int64_t first = s->row / rows * blocks(rows, quant->block[0]);
        at = (first + s->row % rows / quant->block[0]) *
                 blocks(columns, quant->block[1]) +
             column / quant->block[1];
        *run_p = quant->block[1] - column % quant->block[1];
    }
    return loongi_convert(ctx, scale->dtype,
                          (const char *)scale->data +
                              (size_t)at * loong_dtype_size(scale->dtype),
                          LOONG_F32, scale_p, 1);
}

loong_status_t loongi_hf_quant_widen(loong_context_t *ctx,
                                     const loong_hf_quant_t *quant,
                                     const loong_hf_stretch_t *s,
                                     loong_dtype_t dtype, void *dst)
{
    const loong_safetensor_t *t = s->tensor;
    const uint8_t *bits = (const uint8_t *)t->data +
                          s->row * t->shape[t->ndim - 1] + s->column;
    for (int64_t i = 0; i < s->count;) {
        float values[SPAN];
        float scale = 0;
        int64_t run = 0;
        LOONG_TRY(find_scale(ctx, quant, s, s->column + i, &scale, &run));
        run = LOONG_MIN(LOONG_MIN(run, s->count - i), (int64_t)SPAN);
        LOONG_TRY(loongi_convert(ctx, LOONG_F8_E4M3, bits + i, LOONG_F32,
                                 values, run));
        for (int64_t k = 0; k < run; k++) {
            values[k] *= scale;
        }
        LOONG_TRY(loongi_convert(
            ctx, LOONG_F32, values, dtype,
            (char *)dst + (size_t)i * loong_dtype_size(dtype), run));
        i += run;
    }
    return LOONG_OK;
}
