/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed integers and their scales. Called by hf_weights.c, hf_check.c,
 * hf_quant.c, convert_files.c and drafts. Read hf_packed.h before. */
#include "hf_packed.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "convert.h"

enum { NAME_BYTES = 512, SPAN = 512, WORD_BITS = 32 };

static const char ending[] = "_packed";

/* ---- config.json ---- */

static bool says(const loong_json_t *object, const char *name,
                 const char *words)
{
    const loong_json_t *value = loongi_hf_field(object, name);
    if (value != NULL && loongi_json_kind(value) != LOONG_JSON_STRING) {
        return false;
    }
    const char *word = value != NULL ? loongi_json_string(value) : "";
    size_t length = strlen(word);
    for (const char *at = words;; at++) {
        size_t n = strcspn(at, "|");
        if (n == length && memcmp(at, word, n) == 0) {
            return true;
        }
        at += n;
        if (*at == '\0') {
            return false;
        }
    }
}

static int64_t number(const loong_json_t *object, const char *name)
{
    const loong_json_t *value = loongi_hf_field(object, name);
    return loongi_json_kind(value) == LOONG_JSON_INT ? loongi_json_int(value)
                                                     : 0;
}

static bool is_read(const loong_json_t *weights, loong_hf_packing_t *packing)
{
    const loong_json_t *symmetric = loongi_hf_field(weights, "symmetric");
    bool grouped = says(weights, "strategy", "group");
    int64_t bits = number(weights, "num_bits");
    packing->bits = bits == 4 || bits == 8 ? (int)bits : 0;
    packing->group = grouped ? number(weights, "group_size") : 0;
    return packing->bits > 0 &&
           says(weights, "type", "|int") &&
           (symmetric == NULL ||
            (loongi_json_kind(symmetric) == LOONG_JSON_BOOL &&
             loongi_json_bool(symmetric))) &&
           (grouped ? packing->group > 0
                    : says(weights, "strategy", "channel|tensor")) &&
           says(weights, "actorder", "|static|weight");
}

loong_hf_packing_t loongi_hf_packing_of(const loong_json_t *config,
                                        const char **why_p)
{
    static const char why[] =
        "of format pack-quantized are read: weights of type int, num_bits 4 or "
        "8, symmetric, of strategy group, channel or tensor, without actorder "
        "group, the same in all config_groups; and no transform_config";
    loong_hf_packing_t all = {0, 0, LOONG_BF16};
    const loong_json_t *groups = loongi_hf_field(config, "config_groups");
    const loong_json_member_t *m = NULL;
    *why_p = NULL;
    if (!says(config, "quant_method", "compressed-tensors") ||
        !says(config, "format", "pack-quantized")) {
        return all;
    }
    const loong_json_t *transform = loongi_hf_field(config, "transform_config");
    bool turned = transform != NULL &&
                  (loongi_json_kind(transform) != LOONG_JSON_OBJECT ||
                   loongi_json_first(transform) != NULL);
    if (loongi_json_kind(groups) == LOONG_JSON_OBJECT && !turned) {
        m = loongi_json_first(groups);
    }
    *why_p = m == NULL ? why : NULL;
    for (bool first = true; m != NULL; m = loongi_json_next(groups, m)) {
        loong_hf_packing_t own = {0, 0, LOONG_BF16};
        const loong_json_t *weights =
            loongi_json_get(loongi_json_member_value(m), "weights");
        if (!is_read(weights, &own) ||
            (!first && (own.bits != all.bits || own.group != all.group))) {
            *why_p = why;
            return (loong_hf_packing_t){0, 0, LOONG_BF16};
        }
        all = own;
        first = false;
    }
    return all;
}

/* ---- tensors ---- */

bool loongi_hf_packed_is_words(const loong_safetensor_t *tensor, size_t *length)
{
    size_t all = strlen(tensor->name);
    size_t n = sizeof(ending) - 1;
    *length = all > n ? all - n : 0;
    return all > n && !loongi_dtype_is_float(tensor->dtype) &&
           strcmp(tensor->name + all - n, ending) == 0;
}

static const loong_safetensor_t *beside(const loong_safetensors_set_t *set,
                                        const char *name, size_t length,
                                        const char *end)
{
    char full[NAME_BYTES];
    int n = snprintf(full, sizeof(full), "%.*s%s", (int)length, name, end);
    return n < (int)sizeof(full) ? loongi_safetensors_set_find(set, full)
                                 : NULL;
}

bool loongi_hf_packed_beside(const loong_safetensors_set_t *set,
                             const char *name)
{
    static const char *const ends[] = {"_scale", "_shape"};
    size_t all = strlen(name);
    for (int64_t i = 0; i < LOONG_COUNT_OF(ends); i++) {
        size_t n = strlen(ends[i]);
        size_t words = 0;
        const loong_safetensor_t *t =
            all > n && strcmp(name + all - n, ends[i]) == 0
                ? beside(set, name, all - n, ending)
                : NULL;
        if (t != NULL && loongi_hf_packed_is_words(t, &words)) {
            return true;
        }
    }
    return false;
}

static bool read_shape(const loong_safetensor_t *shape,
                       loong_hf_packed_t *packed)
{
    if (shape == NULL || shape->ndim != 1 || shape->shape[0] != 2) {
        return false;
    }
    int64_t sizes[2] = {0, 0};
    if (shape->dtype == LOONG_I64) {
        memcpy(sizes, shape->data, sizeof(sizes));
    } else if (shape->dtype == LOONG_I32) {
        int32_t narrow[2];
        memcpy(narrow, shape->data, sizeof(narrow));
        sizes[0] = narrow[0];
        sizes[1] = narrow[1];
    }
    packed->rows = sizes[0];
    packed->cols = sizes[1];
    return sizes[0] > 0 && sizes[1] > 0;
}

static int64_t parts(int64_t size, int64_t part)
{
    return size / part + (size % part != 0);
}

static bool is_matrix(const loong_safetensor_t *t, int64_t rows, int64_t cols)
{
    return t->ndim == 2 && t->shape[0] == rows && t->shape[1] == cols;
}

static bool fits(const loong_hf_packed_t *p, const loong_safetensor_t *scale)
{
    bool one = loongi_shape_count(scale->ndim, scale->shape) == 1;
    return loongi_dtype_is_float(scale->dtype) &&
           (p->row_scales == 0 ? one
                               : is_matrix(scale, p->rows, p->row_scales));
}

/* Products of words and scales are all that there is. */
static loong_status_t check_plain(loong_context_t *ctx,
                                  const loong_safetensors_set_t *set,
                                  const loong_safetensor_t *words,
                                  size_t length)
{
    static const char *const others[] = {"_zero_point", "_g_idx", ""};
    for (int64_t i = 0; i < LOONG_COUNT_OF(others); i++) {
        const loong_safetensor_t *t = beside(set, words->name, length,
                                             others[i]);
        LOONG_CHECK(ctx, t == NULL, LOONG_ERR_MISMATCH,
                    "%s stands beside %s: zero points, columns that are "
                    "reordered by activations and a matrix twice are not read",
                    t->name, words->name);
    }
    return LOONG_OK;
}

loong_status_t loongi_hf_packed_find(loong_context_t *ctx,
                                     const loong_safetensors_set_t *set,
                                     const loong_safetensor_t *words,
                                     const loong_hf_packing_t *packing,
                                     loong_hf_packed_t *packed_p)
{
    size_t length = 0;
    loong_hf_packed_t p = {.bits = packing->bits,
                           .words = words,
                           .dtype = packing->dtype};
    LOONG_CHECK(ctx, packing->bits > 0 &&
                         loongi_hf_packed_is_words(words, &length),
                LOONG_ERR_MISMATCH,
                "%s: words of packed integers (%s), of which no "
                "quantization_config of config.json says how many bits they "
                "have",
                words->name, loong_dtype_name(words->dtype));
    LOONG_CHECK(ctx, words->dtype == LOONG_I32, LOONG_ERR_MISMATCH,
                "%s is of type %s, words of packed integers are %s",
                words->name, loong_dtype_name(words->dtype),
                loong_dtype_name(LOONG_I32));
    LOONG_TRY(check_plain(ctx, set, words, length));
    p.scale = beside(set, words->name, length, "_scale");
    LOONG_CHECK(ctx, p.scale != NULL, LOONG_ERR_MISMATCH,
                "missing: %.*s_scale, the scales of %s", (int)length,
                words->name, words->name);
    LOONG_CHECK(ctx,
                read_shape(beside(set, words->name, length, "_shape"), &p) &&
                    is_matrix(words, p.rows,
                              parts(p.cols, WORD_BITS / p.bits)),
                LOONG_ERR_MISMATCH,
                "%.*s_shape: missing, or not the rows and columns that %s, "
                "integers of %d bits, has",
                (int)length, words->name, words->name, p.bits);
    bool whole = loongi_shape_count(p.scale->ndim, p.scale->shape) == 1;
    p.group = packing->group > 0 ? packing->group : p.cols;
    p.row_scales = whole && packing->group == 0 ? 0 : parts(p.cols, p.group);
    LOONG_CHECK(ctx, fits(&p, p.scale), LOONG_ERR_MISMATCH,
                "%s: no scales of %s, %" PRId64 " x %" PRId64
                " elements with groups of %" PRId64 " columns",
                p.scale->name, words->name, p.rows, p.cols, p.group);
    *packed_p = p;
    return LOONG_OK;
}

/* ---- numbers ---- */

/* `count` elements of a row, of which all have one scale. */
static void unpack(const loong_hf_packed_t *p, int64_t row, int64_t column,
                   int64_t count, float scale, float *to)
{
    const char *words =
        (const char *)p->words->data + row * p->words->shape[1] * 4;
    int each = WORD_BITS / p->bits;
    int32_t half = 1 << (p->bits - 1);
    uint32_t mask = (1U << p->bits) - 1;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = column + i;
        uint32_t word = 0;
        memcpy(&word, words + at / each * 4, sizeof(word));
        int32_t value = (int32_t)(word >> (at % each * p->bits) & mask) - half;
        to[i] = (float)value * scale;
    }
}

static loong_status_t scale_of(loong_context_t *ctx, const loong_hf_packed_t *p,
                               int64_t row, int64_t column, float *scale_p)
{
    int64_t at = p->row_scales == 0
                     ? 0
                     : row * p->row_scales + column / p->group;
    return loongi_convert(ctx, p->scale->dtype,
                          (const char *)p->scale->data +
                              (size_t)at * loong_dtype_size(p->scale->dtype),
                          LOONG_F32, scale_p, 1);
}

loong_status_t loongi_hf_packed_widen(loong_context_t *ctx,
                                      const loong_hf_packed_t *packed,
                                      int64_t at, int64_t count,
                                      loong_dtype_t dtype, void *dst)
{
    const loong_hf_packed_t *p = packed;
    char *to = dst;
    while (count > 0) {
        float values[SPAN], scale = 0;
        double rounded[SPAN]; /* of any type */
        int64_t row = at / p->cols;
        int64_t column = at % p->cols;
        int64_t n = LOONG_MIN(p->group - column % p->group, p->cols - column);
        n = LOONG_MIN(LOONG_MIN(n, count), (int64_t)SPAN);
        LOONG_TRY(scale_of(ctx, p, row, column, &scale));
        unpack(p, row, column, n, scale, values);
        LOONG_TRY(loongi_convert(ctx, LOONG_F32, values, p->dtype, rounded, n));
        LOONG_TRY(loongi_convert(ctx, p->dtype, rounded, dtype, to, n));
        to += (size_t)n * loong_dtype_size(dtype);
        at += n;
        count -= n;
    }
    return LOONG_OK;
}
