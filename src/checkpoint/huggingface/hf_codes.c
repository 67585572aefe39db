/* SPDX-License-Identifier: Apache-2.0
 *
 * bitsandbytes' tensors. Called by hf_weights.c, hf_check.c, hf_quant.c and
 * hf_quantize.c. Read hf_codes.h before. */
#include "hf_codes.h"

#include <stdio.h>
#include <string.h>

#include "convert.h"

enum { NAME_BYTES = 512 };

static const char nf4_state[] = ".quant_state.bitsandbytes__nf4";
static const char fp4_state[] = ".quant_state.bitsandbytes__fp4";
static const char *const suffixes[] = {".absmax", ".quant_map", nf4_state,
                                       ".nested_absmax", ".nested_quant_map"};

bool loongi_hf_codes_known(const loong_json_t *config)
{
    const loong_json_t *eight = loongi_json_get(config, "load_in_8bit");
    const loong_json_t *four = loongi_json_get(config, "load_in_4bit");
    const loong_json_t *type = loongi_json_get(config, "bnb_4bit_quant_type");
    bool is_four =
        loongi_json_kind(four) == LOONG_JSON_BOOL && loongi_json_bool(four);
    return is_four ? loongi_json_kind(type) == LOONG_JSON_STRING &&
                         strcmp(loongi_json_string(type), "nf4") == 0
                   : loongi_json_kind(eight) == LOONG_JSON_BOOL &&
                         loongi_json_bool(eight);
}

/* ---- tensors ------------------------------------------------------------- */

/* `length` bytes of a name with something behind them. */
static const loong_safetensor_t *find_beside(const loong_safetensors_set_t *set,
                                             const char *name, int length,
                                             const char *suffix)
{
    char full[NAME_BYTES];
    int n = snprintf(full, sizeof(full), "%.*s%s", length, name, suffix);
    return n < (int)sizeof(full) ? loongi_safetensors_set_find(set, full)
                                 : NULL;
}

/* Bytes of a name in front of an end; 0: it has another one. */
static int stem_of(const char *name, const char *end)
{
    size_t length = strlen(name);
    size_t n = strlen(end);
    return length > n && strcmp(name + length - n, end) == 0 ? (int)(length - n)
                                                             : 0;
}

bool loongi_hf_codes_beside(const loong_safetensors_set_t *set,
                            const char *name)
{
    for (int64_t i = 0; i < LOONG_COUNT_OF(suffixes); i++) {
        int stem = stem_of(name, suffixes[i]);
        const loong_safetensor_t *t = find_beside(set, name, stem, "");
        if (stem > 0 && t != NULL && t->dtype == LOONG_U8) {
            return true;
        }
    }
    int scale = stem_of(name, ".SCB");
    int format = stem_of(name, ".weight_format");
    int stem = scale > 0 ? scale : format;
    const loong_safetensor_t *t = find_beside(set, name, stem, ".weight");
    return stem > 0 && t != NULL && t->dtype == LOONG_I8;
}

static loong_status_t want(loong_context_t *ctx, const loong_safetensor_t *of,
                           const loong_safetensor_t *t, const char *what,
                           loong_dtype_t dtype, int64_t count)
{
    LOONG_CHECK(ctx, t != NULL, LOONG_ERR_MISMATCH,
                "missing: %s beside the codes of %s", what, of->name);
    LOONG_CHECK(
        ctx,
        t->dtype == dtype && loongi_shape_count(t->ndim, t->shape) == count,
        LOONG_ERR_MISMATCH,
        "%s: %lld elements of %s, %lld of %s are "
        "wanted",
        t->name, (long long)loongi_shape_count(t->ndim, t->shape),
        loong_dtype_name(t->dtype), (long long)count, loong_dtype_name(dtype));
    return LOONG_OK;
}

static int64_t whole(const loong_json_t *json)
{
    return loongi_json_kind(json) == LOONG_JSON_INT ? loongi_json_int(json)
                                                    : -1;
}

static loong_status_t read_state(loong_context_t *ctx,
                                 const loong_safetensor_t *state,
                                 const loong_json_t *json,
                                 loong_hf_codes_t *codes)
{
    const loong_json_t *shape = loongi_json_get(json, "shape");
    const loong_json_t *offset = loongi_json_get(json, "nested_offset");
    int64_t block = whole(loongi_json_get(json, "blocksize"));
    int64_t nested = whole(loongi_json_get(json, "nested_blocksize"));
    LOONG_CHECK(ctx, block == LOONG_QUANT_BLOCK, LOONG_ERR_UNSUPPORTED,
                "%s: blocksize %lld; %d is read", state->name, (long long)block,
                (int)LOONG_QUANT_BLOCK);
    LOONG_CHECK(ctx, loongi_json_count(shape) == 2, LOONG_ERR_UNSUPPORTED,
                "%s: %lld dimensions; matrices are read", state->name,
                (long long)loongi_json_count(shape));
    codes->rows = whole(loongi_json_at(shape, 0));
    codes->cols = whole(loongi_json_at(shape, 1));
    LOONG_CHECK(ctx,
                codes->rows > 0 && codes->cols > 0 &&
                    codes->cols % LOONG_QUANT_BLOCK == 0,
                LOONG_ERR_UNSUPPORTED,
                "%s: %lld x %lld elements; rows that are no whole blocks of %d "
                "are not read",
                state->name, (long long)codes->rows, (long long)codes->cols,
                (int)LOONG_QUANT_BLOCK);
    if (offset != NULL) {
        LOONG_CHECK(ctx, nested == LOONG_QUANT_NESTED, LOONG_ERR_UNSUPPORTED,
                    "%s: nested_blocksize %lld; %d is read", state->name,
                    (long long)nested, (int)LOONG_QUANT_NESTED);
        codes->quant = LOONG_QUANT_NF4_DOUBLE;
        codes->offset = (float)loongi_json_real(offset);
    }
    return LOONG_OK;
}

/* The numbers that codes stand for are those of here. */
static loong_status_t check_map(loong_context_t *ctx,
                                const loong_safetensors_set_t *set,
                                const loong_safetensor_t *of, const char *what,
                                const float *map, int64_t count)
{
    const loong_safetensor_t *t =
        find_beside(set, of->name, (int)strlen(of->name), what);
    LOONG_TRY(want(ctx, of, t, what, LOONG_F32, count));
    LOONG_CHECK(ctx, memcmp(t->data, map, (size_t)count * sizeof(*map)) == 0,
                LOONG_ERR_UNSUPPORTED,
                "%s: other numbers than those of bitsandbytes' %s", t->name,
                count == 16 ? "nf4" : "dynamic map");
    return LOONG_OK;
}

static loong_status_t find_nf4(loong_context_t *ctx,
                               const loong_safetensors_set_t *set,
                               const loong_safetensor_t *t,
                               const loong_safetensor_t *state,
                               loong_hf_codes_t *c)
{
    int length = (int)strlen(t->name);
    loong_json_t *json = NULL;
    float dynamic[256];
    LOONG_TRY(
        loongi_json_parse(ctx, state->data, state->bytes, state->name, &json));
    c->quant = LOONG_QUANT_NF4;
    loong_status_t status = read_state(ctx, state, json, c);
    loongi_json_destroy(&json);
    LOONG_TRY(status);
    int64_t blocks = c->rows * c->cols / LOONG_QUANT_BLOCK;
    bool twice = c->quant == LOONG_QUANT_NF4_DOUBLE;
    LOONG_TRY(want(ctx, t, t, "", LOONG_U8, c->rows * c->cols / 2));
    c->absmax = find_beside(set, t->name, length, ".absmax");
    LOONG_TRY(want(ctx, t, c->absmax, ".absmax", twice ? LOONG_U8 : LOONG_F32,
                   blocks));
    LOONG_TRY(check_map(ctx, set, t, ".quant_map", loongi_quant_normal, 16));
    if (!twice) {
        return LOONG_OK;
    }
    c->nested = find_beside(set, t->name, length, ".nested_absmax");
    LOONG_TRY(want(ctx, t, c->nested, ".nested_absmax", LOONG_F32,
                   (blocks + LOONG_QUANT_NESTED - 1) / LOONG_QUANT_NESTED));
    loongi_quant_dynamic(dynamic);
    return check_map(ctx, set, t, ".nested_quant_map", dynamic, 256);
}

loong_status_t loongi_hf_codes_find(loong_context_t *ctx,
                                    const loong_safetensors_set_t *set,
                                    const loong_safetensor_t *tensor,
                                    loong_hf_codes_t *codes_p)
{
    const loong_safetensor_t *t = tensor;
    loong_hf_codes_t c = {.codes = t};
    int stem = stem_of(t->name, ".weight");
    int length = (int)strlen(t->name);
    if (t->dtype == LOONG_U8) {
        const loong_safetensor_t *state =
            find_beside(set, t->name, length, nf4_state);
        LOONG_CHECK(ctx, find_beside(set, t->name, length, fp4_state) == NULL,
                    LOONG_ERR_UNSUPPORTED,
                    "%s: codes of bitsandbytes' fp4; nf4 and int8 are read",
                    t->name);
        if (state != NULL) {
            LOONG_TRY(find_nf4(ctx, set, t, state, &c));
        }
    } else if (t->dtype == LOONG_I8 && t->ndim == 2 && stem > 0) {
        c.quant = LOONG_QUANT_INT8;
        c.rows = t->shape[0];
        c.cols = t->shape[1];
        c.absmax = find_beside(set, t->name, stem, ".SCB");
        LOONG_TRY(want(ctx, t, c.absmax, ".SCB", LOONG_F32, c.rows));
    }
    *codes_p = c;
    return LOONG_OK;
}

/* ---- rows ---------------------------------------------------------------- */

void loongi_hf_codes_row(const loong_hf_codes_t *codes, int64_t row,
                         int64_t begin, int64_t count, void *bytes)
{
    const loong_hf_codes_t *c = codes;
    const char *from = c->codes->data;
    const char *absmax = c->absmax->data;
    char *to = bytes;
    char *scales = to + loongi_quant_scales_at(c->quant, count);
    int64_t at = row * c->cols + begin;
    int64_t first = at / LOONG_QUANT_BLOCK;
    int64_t blocks = count / LOONG_QUANT_BLOCK;
    int64_t each = (int64_t)loong_dtype_size(c->absmax->dtype);
    memset(to, 0, (size_t)loongi_quant_row_bytes(c->quant, count));
    if (c->quant == LOONG_QUANT_INT8) {
        memcpy(to, from + at, (size_t)count);
        memcpy(scales, absmax + row * each, (size_t)each);
        return;
    }
    memcpy(to, from + at / 2, (size_t)count / 2);
    memcpy(scales, absmax + first * each, (size_t)(blocks * each));
    if (c->quant == LOONG_QUANT_NF4_DOUBLE) {
        loong_quant_nested_t nested = {c->offset, c->nested->data};
        loongi_quant_put_nested(&nested, first, blocks,
                                scales + loongi_quant_nested_at(blocks));
    }
}

/* A row at a time. */
loong_status_t loongi_hf_codes_widen(loong_context_t *ctx,
                                     const loong_hf_codes_t *codes, int64_t at,
                                     int64_t count, loong_dtype_t dtype,
                                     void *dst)
{
    const loong_hf_codes_t *c = codes;
    int64_t size = loongi_quant_row_bytes(c->quant, c->cols);
    char *to = dst;
    char *row = NULL;
    LOONG_TRY(loongi_alloc(ctx,
                           (size_t)(size + c->cols * (int64_t)sizeof(float)),
                           "a row of codes", &row));
    float *x = (float *)(void *)(row + size);
    loong_quant_part_t part = {c->quant, row, size, c->cols, 0, 1, 0, c->cols};
    loong_status_t status = LOONG_OK;
    for (int64_t n = 0; count > 0 && status == LOONG_OK; count -= n, at += n) {
        n = LOONG_MIN(count, c->cols - at % c->cols);
        loongi_hf_codes_row(c, at / c->cols, 0, c->cols, row);
        loongi_quant_decode(&part, LOONG_F32, x, c->cols, 1);
        status = loongi_convert(ctx, LOONG_F32, x + at % c->cols, dtype, to, n);
        to += n * (int64_t)loong_dtype_size(dtype);
    }
    loongi_free(ctx, row);
    return status;
}
