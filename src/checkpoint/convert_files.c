/* SPDX-License-Identifier: Apache-2.0
 *
 * Model files in another element type, names and kind of directory kept. Called
 * by loong-ckpt convert. Read hf_quant.h and native_write.h before. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "convert.h"
#include "file.h"
#include "hf_config.h"
#include "hf_quant.h"
#include "mapped.h"
#include "native_dir.h"
#include "native_write.h"
#include "view.h"
#include "workdir.h"

#define DEFAULT_SHARD_BYTES INT64_C(5000000000)

typedef struct converter {
    loong_context_t *ctx;
    const loong_checkpoint_convert_params_t *params;
    loong_arena_t *arena;
    loong_meter_t meter;
    loong_text_t key;
    /* of a native checkpoint */
    loong_checkpoint_t *native;
    int64_t count;
    loong_checkpoint_tensor_t *tensors; /* as they are written */
    /* of a Hugging Face directory */
    loong_safetensors_set_t *set;
    loong_hf_quant_t quant;
    const loong_safetensor_t **from; /* by handle */
    loong_hf_packed_t *packed;       /* likewise; bits 0: not */
    loong_dtype_t *dtypes;
} converter_t;

/* ---- native ---- */

static loong_status_t native_rows(void *user, int64_t index, int64_t row,
                                  int64_t rows, void *buffer,
                                  const void **data_p)
{
    const converter_t *c = user;
    const loong_checkpoint_tensor_t *t = &c->tensors[index];
    const loong_checkpoint_tensor_t *from =
        loongi_checkpoint_find(c->native, t->kind, t->name);
    loong_borrowed_t borrowed;
    if (loongi_checkpoint_lend(c->native, from, row, rows, &borrowed) &&
        (borrowed.hole || borrowed.dtype == t->dtype)) {
        *data_p = borrowed.hole ? NULL : borrowed.data;
        return LOONG_OK;
    }
    return loongi_checkpoint_read_rows(c->native, from, row, rows, t->dtype,
                                       buffer);
}

static loong_status_t convert_native(converter_t *c)
{
    loong_native_write_params_t write = {0};
    loong_file_set_t *files = NULL;
    LOONG_TRY(loongi_checkpoint_open(c->ctx, c->params->from, &c->native));
    LOONG_TRY(loongi_checkpoint_verify_hf(c->native, true));
    LOONG_TRY(loongi_checkpoint_map(c->native));
    loongi_workdir_add_source(&c->key, loongi_checkpoint_path(c->native));
    c->count = loongi_checkpoint_count(c->native);
    LOONG_TRY(loongi_arena_alloc(
        c->arena, (size_t)c->count * sizeof(*c->tensors), &c->tensors));
    for (int64_t i = 0; i < c->count; i++) {
        loong_checkpoint_tensor_t *t = &c->tensors[i];
        *t = *loongi_checkpoint_get(c->native, i);
        if (strcmp(t->kind, "param") == 0 && loongi_dtype_is_float(t->dtype)) {
            t->dtype = c->params->dtype;
        }
        c->meter.total += loongi_tensor_bytes(t);
    }
    write.dir = c->params->to;
    write.step = loongi_checkpoint_step(c->native);
    write.metadata = loongi_checkpoint_metadata(c->native);
    write.key = loongi_text_get(&c->key);
    write.count = c->count;
    write.tensors = c->tensors;
    write.source = native_rows;
    write.user = c;
    write.meter = &c->meter;
    LOONG_TRY(c->key.status);
    LOONG_TRY(loongi_file_set_create(c->ctx, &files));
    write.files = files;
    loong_status_t status = loongi_checkpoint_read_hf(c->native, files);
    if (status == LOONG_OK) {
        status = loongi_native_write(c->ctx, &write);
    }
    loongi_file_set_destroy(&files);
    return status;
}

/* ---- Hugging Face ---- */

/* Rows of what the last dimension counts, as the files are filled. */
static loong_status_t file_rows(void *user, int64_t index, int64_t row,
                                int64_t rows, void *buffer,
                                const void **data_p)
{
    const converter_t *c = user;
    const loong_safetensor_t *t = c->from[index];
    const loong_hf_packed_t *packed = &c->packed[index];
    if (packed->bits > 0) {
        return loongi_hf_packed_widen(
            c->ctx, packed, row * packed->cols, rows * packed->cols,
            c->dtypes[index], buffer);
    }
    int64_t length = loongi_safetensors_row(t->ndim, t->shape);
    size_t size = loong_dtype_size(t->dtype);
    const char *src = (const char *)t->data + (size_t)(row * length) * size;
    size_t bytes = (size_t)(rows * length) * size;
    const loong_safetensor_t *scale =
        t->dtype == LOONG_F8_E4M3 ? loongi_hf_quant_scale(c->set, t) : NULL;
    if (scale == NULL &&
        loongi_safetensors_set_is_hole(c->set, t, src, bytes)) {
        *data_p = NULL;
        return LOONG_OK;
    }
    if (t->dtype == c->dtypes[index]) {
        *data_p = src;
        return LOONG_OK;
    }
    for (int64_t r = 0; scale != NULL && r < rows; r++) {
        loong_hf_stretch_t stretch = {t, scale, row + r, 0, length};
        LOONG_TRY(loongi_hf_quant_widen(
            c->ctx, &c->quant, &stretch, c->dtypes[index],
            (char *)buffer + (size_t)(r * length) *
                                 loong_dtype_size(c->dtypes[index])));
    }
    if (scale == NULL) {
        LOONG_TRY(loongi_convert(c->ctx, t->dtype, src, c->dtypes[index],
                                 buffer, rows * length));
    }
    loongi_mapped_release(src, bytes);
    return LOONG_OK;
}

/* What the family keeps in fp32; nothing when the family is not known. */
static bool is_exact(const loong_hf_map_t *map, const char *name)
{
    size_t length = map != NULL ? strlen(loongi_hf_map_prefix(map)) : 0;
    for (int64_t i = 0; map != NULL && i < loongi_hf_map_count(map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        if (p->exact && strlen(name) > length &&
            strcmp(name + length, p->hf_name) == 0) {
            return true;
        }
    }
    return false;
}

static loong_dtype_t type_of(const converter_t *c, const loong_hf_map_t *map,
                             const loong_safetensor_t *t)
{
    if (!loongi_dtype_is_float(t->dtype)) {
        return t->dtype;
    }
    return is_exact(map, t->name) && c->params->dtype != LOONG_F64
               ? LOONG_F32
               : c->params->dtype;
}

static loong_status_t check_scale(const converter_t *c,
                                  const loong_safetensor_t *t)
{
    const loong_safetensor_t *scale = loongi_hf_quant_scale(c->set, t);
    LOONG_CHECK(c->ctx, scale != NULL, LOONG_ERR_MISMATCH,
                "'%s': the fp8 tensor %s has no scales (%s_scale_inv or "
                "%s_scale)", c->params->from, t->name, t->name, t->name);
    LOONG_CHECK(c->ctx, loongi_hf_quant_fits(&c->quant, t, scale),
                LOONG_ERR_MISMATCH,
                "'%s': the shape of %s does not fit that of %s",
                c->params->from, scale->name, t->name);
    return LOONG_OK;
}

/* Under the name of the matrix. */
static loong_status_t declare_packed(converter_t *c,
                                     const loong_safetensor_t *words,
                                     size_t length,
                                     loong_safetensors_set_writer_t *out)
{
    loong_hf_packed_t packed;
    char *name = NULL;
    int64_t handle = 0;
    LOONG_TRY(loongi_hf_packed_find(c->ctx, c->set, words, &c->quant.packing,
                                    &packed));
    LOONG_TRY(loongi_arena_printf(c->arena, &name, "%.*s", (int)length,
                                  words->name));
    const int64_t shape[2] = {packed.rows, packed.cols};
    LOONG_TRY(loongi_safetensors_set_declare(out, name, c->params->dtype, 2,
                                             shape, &handle));
    c->from[handle] = words;
    c->dtypes[handle] = c->params->dtype;
    c->packed[handle] = packed;
    return LOONG_OK;
}

static loong_status_t declare_all(converter_t *c, const loong_hf_map_t *map,
                                  loong_safetensors_set_writer_t *out)
{
    size_t count = (size_t)loongi_safetensors_set_count(c->set);
    LOONG_TRY(
        loongi_arena_alloc(c->arena, count * sizeof(*c->from), &c->from));
    LOONG_TRY(
        loongi_arena_alloc(c->arena, count * sizeof(*c->dtypes), &c->dtypes));
    LOONG_TRY(
        loongi_arena_alloc(c->arena, count * sizeof(*c->packed), &c->packed));
    for (size_t i = 0; i < count; i++) {
        const loong_safetensor_t *t =
            loongi_safetensors_set_get(c->set, (int64_t)i);
        int64_t handle = 0;
        size_t length = 0;
        if (loongi_hf_quant_is_scale(c->set, t->name) ||
            loongi_hf_packed_beside(c->set, t->name)) {
            continue; /* they are in the products */
        }
        if (loongi_hf_packed_is_words(t, &length)) {
            LOONG_TRY(declare_packed(c, t, length, out));
            continue;
        }
        const char *shape = strstr(t->name, ".weight_shape");
        LOONG_CHECK(c->ctx,
                    c->quant.packing.bits == 0 || shape == NULL ||
                        shape[sizeof(".weight_shape") - 1] != '\0',
                    LOONG_ERR_MISMATCH,
                    "'%s': missing: %.*s.weight_packed, the words of %s",
                    c->params->from, (int)(shape - t->name), t->name, t->name);
        if (t->dtype == LOONG_F8_E4M3) {
            LOONG_TRY(check_scale(c, t));
        }
        loong_dtype_t dtype = type_of(c, map, t);
        LOONG_TRY(loongi_safetensors_set_declare(out, t->name, dtype, t->ndim,
                                                 t->shape, &handle));
        c->from[handle] = t;
        c->dtypes[handle] = dtype;
        c->packed[handle] = (loong_hf_packed_t){.bits = 0};
    }
    return LOONG_OK;
}

/* A value as it is, a section without what told of codes. */
static void put_value(loong_text_t *text, const loong_json_t *value)
{
    bool told = loongi_json_kind(value) == LOONG_JSON_OBJECT &&
                loongi_json_get(value, "quantization_config") != NULL;
    const loong_json_member_t *m = told ? loongi_json_first(value) : NULL;
    const char *between = "{";
    if (!told) {
        loongi_text_json(text, value);
        return;
    }
    for (; m != NULL; m = loongi_json_next(value, m)) {
        const char *key = loongi_json_member_key(m);
        if (strcmp(key, "quantization_config") != 0) {
            loongi_text_printf(text, "%s", between);
            loongi_text_json_string(text, key);
            loongi_text_printf(text, ": ");
            loongi_text_json(text, loongi_json_member_value(m));
            between = ", ";
        }
    }
    loongi_text_printf(text, "%s}", between[0] == '{' ? between : "");
}

/* config.json with the new type, and without what told of codes. */
static loong_status_t copy_config(const converter_t *c, const char *from,
                                  const char *to)
{
    static const char *const types[] = {
        [LOONG_F64] = "float64",
        [LOONG_F32] = "float32",
        [LOONG_BF16] = "bfloat16",
        [LOONG_F16] = "float16"};
    loong_json_t *json = NULL;
    loong_text_t text = loongi_text_begin(c->ctx);
    bool named = false;
    LOONG_TRY(loongi_json_load(c->ctx, from, &json));
    loongi_text_printf(&text, "{");
    for (const loong_json_member_t *m = loongi_json_first(json); m != NULL;
         m = loongi_json_next(json, m)) {
        const char *key = loongi_json_member_key(m);
        bool type = strcmp(key, "dtype") == 0 ||
                    strcmp(key, "torch_dtype") == 0;
        if (strcmp(key, "quantization_config") == 0) {
            continue;
        }
        loongi_text_printf(&text, "%s\n  ", text.length > 1 ? "," : "");
        loongi_text_json_string(&text, key);
        loongi_text_printf(&text, ": ");
        if (type) {
            loongi_text_json_string(&text, types[c->params->dtype]);
        } else {
            put_value(&text, loongi_json_member_value(m));
        }
        named = named || type;
    }
    if (!named) {
        loongi_text_printf(&text, "%s\n  \"dtype\": \"%s\"",
                           text.length > 1 ? "," : "",
                           types[c->params->dtype]);
    }
    loongi_text_printf(&text, "\n}\n");
    loongi_json_destroy(&json);
    loong_status_t status = text.status;
    if (status == LOONG_OK) {
        status = loongi_file_write(c->ctx, to, text.data, text.length);
    }
    loongi_text_free(&text);
    return status;
}

static bool is_weights(const char *name)
{
    static const char *const suffixes[] = {".safetensors", ".index.json",
                                           ".bin", ".pth", ".gguf", ".h5"};
    size_t length = strlen(name);
    for (int64_t i = 0; i < LOONG_COUNT_OF(suffixes); i++) {
        size_t n = strlen(suffixes[i]);
        if (length > n && strcmp(name + length - n, suffixes[i]) == 0) {
            return true;
        }
    }
    return false;
}

static loong_status_t copy_beside(converter_t *c, const char *to)
{
    loong_status_t status = LOONG_OK;
    struct dirent *entry = NULL;
    DIR *dir = opendir(c->params->from);
    LOONG_CHECK(c->ctx, dir != NULL, LOONG_ERR_IO,
                "cannot open directory '%s': %s", c->params->from,
                strerror(errno));
    while (status == LOONG_OK && (entry = readdir(dir)) != NULL) {
        char *source = NULL;
        char *target = NULL;
        status = loongi_arena_printf(c->arena, &source, "%s/%s",
                                     c->params->from, entry->d_name);
        if (status == LOONG_OK) {
            status = loongi_arena_printf(c->arena, &target, "%s/%s", to,
                                         entry->d_name);
        }
        if (status != LOONG_OK || entry->d_name[0] == '.' ||
            is_weights(entry->d_name) || !loongi_file_exists(source)) {
            continue;
        }
        status = strcmp(entry->d_name, "config.json") == 0
                     ? copy_config(c, source, target)
                     : loongi_file_copy(c->ctx, source, target);
    }
    closedir(dir);
    return status;
}

static loong_status_t write_set(converter_t *c,
                                loong_safetensors_set_writer_t *out)
{
    loong_safetensors_source_t source = {file_rows, c, &c->meter};
    loong_hf_map_t *map = NULL;
    loong_pairs_t *model = NULL;
    if (loongi_hf_config_read(c->ctx, c->params->from, &model) != LOONG_OK ||
        loongi_hf_map_create(c->ctx, model, &map) != LOONG_OK) {
        loongi_log(c->ctx, LOONG_LOG_WARN,
                   "%s: the model is not known, so every floating-point "
                   "tensor becomes %s: %s", c->params->from,
                   loong_dtype_name(c->params->dtype),
                   loong_context_error(c->ctx));
        loong_context_clear_error(c->ctx);
    }
    loong_status_t status = declare_all(c, map, out);
    loongi_hf_map_destroy(&map);
    loongi_pairs_destroy(&model);
    LOONG_TRY(status);
    c->meter.total = loongi_safetensors_set_bytes(out);
    LOONG_TRY(copy_beside(c, loongi_safetensors_set_workdir(out)));
    LOONG_TRY(loongi_safetensors_set_fill(out, &source));
    return loongi_safetensors_set_commit(out);
}

static loong_status_t convert_files(converter_t *c)
{
    const loong_checkpoint_convert_params_t *p = c->params;
    loong_safetensors_set_writer_t *out = NULL;
    loongi_workdir_add_source(&c->key, p->from);
    LOONG_TRY(c->key.status);
    loong_safetensors_set_params_t set = {
        p->to, p->max_shard_bytes > 0 ? p->max_shard_bytes
                                      : DEFAULT_SHARD_BYTES,
        loongi_text_get(&c->key)};
    LOONG_TRY(loongi_safetensors_set_open(c->ctx, p->from, &c->set));
    LOONG_TRY(loongi_hf_quant_read(c->ctx, p->from, &c->quant));
    LOONG_TRY(loongi_safetensors_set_create(c->ctx, &set, &out));
    loong_status_t status = write_set(c, out);
    loongi_safetensors_set_end(&out, status);
    return status;
}

/* ---- either ---- */

/* The copy takes the place of no checkpoint, nor of its source. */
static loong_status_t check_places(const converter_t *c)
{
    const loong_checkpoint_convert_params_t *p = c->params;
    LOONG_CHECK(c->ctx,
                p->dtype == LOONG_F64 || p->dtype == LOONG_F32 ||
                    p->dtype == LOONG_BF16 || p->dtype == LOONG_F16,
                LOONG_ERR_ARG,
                "parameters cannot be converted to %s; fp64, fp32, bf16 and "
                "fp16 are types for them", loong_dtype_name(p->dtype));
    LOONG_CHECK(c->ctx, strcmp(p->from, p->to) != 0, LOONG_ERR_ARG,
                "'%s' cannot be converted onto itself", p->from);
    LOONG_CHECK(c->ctx, !loongi_checkpoint_is_native(p->to), LOONG_ERR_ARG,
                "'%s' has checkpoints: another directory is wanted for the "
                "copy", p->to);
    return loongi_checkpoint_check_outside(c->ctx, p->to);
}

loong_status_t
loong_checkpoint_convert(loong_context_t *ctx,
                         const loong_checkpoint_convert_params_t *params)
{
    converter_t c = {0};
    bool native = loongi_checkpoint_is_native(params->from);
    c.ctx = ctx;
    c.params = params;
    c.meter.progress = params->progress;
    c.meter.user = params->user;
    c.key = loongi_text_begin(ctx);
    LOONG_TRY(loongi_checkpoint_check_place(ctx, params->from));
    LOONG_TRY(check_places(&c));
    LOONG_TRY(loongi_arena_create(ctx, "conversion", &c.arena));
    loongi_text_printf(&c.key, "convert 1 %s %lld\n",
                       loong_dtype_name(params->dtype),
                       (long long)params->max_shard_bytes);
    loong_status_t status = native ? convert_native(&c) : convert_files(&c);
    loongi_checkpoint_close(&c.native);
    loongi_safetensors_set_close(&c.set);
    loongi_text_free(&c.key);
    loongi_arena_destroy(&c.arena);
    return status;
}
