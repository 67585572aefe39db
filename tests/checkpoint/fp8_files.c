/* SPDX-License-Identifier: Apache-2.0 */
#include "fp8_files.h"

#include <math.h>

#include "convert.h"
#include "file.h"
#include "hf_config.h"
#include "hf_names.h"
#include "safetensors.h"
#include "test.h"

enum { MOST = 256 };

typedef enum kind { PLAIN, BITS, SCALES, PRODUCTS } kind_t;

/* A tensor of the files; the number tells what is in it. */
typedef struct entry {
    kind_t kind;
    int number;
    loong_dtype_t dtype;
    int64_t rows, columns; /* of a matrix */
    bool vector;
} entry_t;

typedef struct writer {
    loong_context_t *ctx;
    const fp8_files_t *files;
    loong_safetensors_set_writer_t *set;
    entry_t entries[MOST]; /* by handle */
    fp8_written_t written;
} writer_t;

/* ---- the weights -------------------------------------------------------- */

static uint32_t draw(int number, int64_t row, int64_t column)
{
    uint64_t x = (uint64_t)number * 1000003u + (uint64_t)row * 4099u +
                 (uint64_t)column;
    x = (x + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(x >> 32);
}

/* Either sign, from subnormal numbers on, up to 3.75. */
static uint8_t bits_at(int number, int64_t row, int64_t column)
{
    uint32_t r = draw(number, row, column);
    return (uint8_t)((r & 0x80u) | (r >> 8) % 0x47u);
}

static float value_of(uint8_t bits)
{
    int exponent = bits >> 3 & 15;
    double part = (bits & 7) / 8.0;
    double value = exponent == 0 ? ldexp(part, -6)
                                 : ldexp(1.0 + part, exponent - 7);
    return (float)(bits & 0x80 ? -value : value);
}

static float scale_at(int number, int64_t row, int64_t column)
{
    return 0.02f + 1e-6f * (float)(draw(number + 1000, row, column) % 30000u);
}

/* Rows are those of all matrices of the tensor; blocks begin anew in each. */
static float element(const writer_t *w, const entry_t *e, int64_t row,
                     int64_t column)
{
    const int64_t *block = w->files->block;
    if (e->kind == SCALES) {
        return scale_at(e->number, row, column);
    }
    if (e->kind == PRODUCTS) {
        int64_t above = (e->rows + block[0] - 1) / block[0];
        int64_t line = row / e->rows * above + row % e->rows / block[0];
        return value_of(bits_at(e->number, row, column)) *
               scale_at(e->number, line, column / block[1]);
    }
    float noise = (float)(draw(e->number, row, column) % 2001u) - 1000.0f;
    return (e->vector ? 1.0f : 0.0f) + 5e-5f * noise;
}

static loong_status_t fill(void *user, int64_t index, int64_t row,
                           int64_t rows, void *buffer, const void **data_p)
{
    const writer_t *w = user;
    const entry_t *e = &w->entries[index];
    size_t size = loong_dtype_size(e->dtype);
    (void)data_p;
    for (int64_t i = 0; i < rows * e->columns; i++) {
        int64_t r = row + i / e->columns;
        int64_t c = i % e->columns;
        char *to = (char *)buffer + (size_t)i * size;
        if (e->kind == BITS) {
            *to = (char)bits_at(e->number, r, c);
            continue;
        }
        float value = element(w, e, r, c);
        LOONG_TRY(loongi_convert(w->ctx, LOONG_F32, &value, e->dtype, to, 1));
    }
    return LOONG_OK;
}

/* ---- the files ---------------------------------------------------------- */

static void declare(writer_t *w, const char *name, entry_t e, int ndim,
                    const int64_t *shape)
{
    int64_t handle = 0;
    e.vector = ndim == 1;
    e.rows = shape[e.vector ? 0 : ndim - 2];
    e.columns = e.vector ? 1 : shape[ndim - 1];
    assert_ok(w->ctx, loongi_safetensors_set_declare(w->set, name, e.dtype,
                                                     ndim, shape, &handle));
    assert_true(handle < MOST);
    w->entries[handle] = e;
}

static void declare_scales(writer_t *w, const char *tensor, int number,
                           int ndim, const int64_t *shape)
{
    const fp8_files_t *f = w->files;
    char name[300];
    entry_t scales = {.kind = SCALES, .number = number, .dtype = LOONG_F32};
    int64_t grid[3] = {shape[0], 0, 0};
    bool flawed = strcmp(tensor, w->written.last) == 0;
    for (int d = ndim - 2; d < ndim; d++) {
        int64_t block = f->block[d - ndim + 2];
        grid[d] = (shape[d] + block - 1) / block;
    }
    grid[ndim - 2] += flawed && f->flaw == FP8_WRONG_SCALE;
    snprintf(name, sizeof(name), "%s_scale_inv", tensor);
    if (!flawed || f->flaw != FP8_NO_SCALE) {
        declare(w, name, scales, ndim, grid);
    }
}

/* As published: matrices but the embedding, the head and the routers. */
static bool is_scaled(const loong_hf_param_t *p, int ndim)
{
    return ndim >= 2 && strstr(p->name, "embed") == NULL &&
           strstr(p->name, "lm_head") == NULL &&
           strstr(p->name, "gate.weight") == NULL && p->flat == 0;
}

static void full_name(const loong_hf_map_t *map, const loong_hf_param_t *p,
                      int64_t piece, char name[256])
{
    snprintf(name, 256, "%s%s", p->prefixed ? loongi_hf_map_prefix(map) : "",
             loongi_hf_piece_name(p, piece));
}

static void declare_piece(writer_t *w, const loong_hf_map_t *map,
                          const loong_hf_param_t *p, int64_t piece)
{
    const fp8_files_t *f = w->files;
    char name[256];
    int64_t shape[LOONG_HF_DIMS];
    int ndim = loongi_hf_file_shape(p, shape);
    int number = (int)(p->first_piece + piece);
    entry_t e = {.kind = PLAIN, .number = number,
                 .dtype = p->exact ? LOONG_F32 : f->dtype};
    full_name(map, p, piece, name);
    if (is_scaled(p, ndim)) {
        e.kind = f->fp8 ? BITS : PRODUCTS;
        e.dtype = f->fp8 ? LOONG_F8_E4M3 : f->dtype;
    }
    declare(w, name, e, ndim, shape);
    if (e.kind == BITS) {
        declare_scales(w, name, number, ndim, shape);
    }
}

typedef void visit_fn(writer_t *w, const loong_hf_map_t *map,
                      const loong_hf_param_t *p, int64_t piece);

static void note_scaled(writer_t *w, const loong_hf_map_t *map,
                        const loong_hf_param_t *p, int64_t piece)
{
    int64_t shape[LOONG_HF_DIMS];
    if (is_scaled(p, loongi_hf_file_shape(p, shape))) {
        full_name(map, p, piece, w->written.last);
        w->written.scaled++;
    }
}

/* Each tensor of the files once, as an export declares them. */
static void each_tensor(writer_t *w, const loong_hf_map_t *map, visit_fn visit)
{
    for (int64_t i = 0; i < loongi_hf_map_count(map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        int64_t end = p->stacked ? p->units : p->pieces;
        for (int64_t k = 0; k < end && p->part == 0; k++) {
            if (!p->fused || k % p->units == 0) {
                visit(w, map, p, k);
            }
        }
    }
}

/* The text with what tells of fp8 behind its last field. */
static void write_config(loong_context_t *ctx, const fp8_files_t *f)
{
    char path[300], quant[200];
    loong_text_t text = loongi_text_begin(ctx);
    const char *end = strrchr(f->config, '}');
    assert_non_null(end);
    snprintf(quant, sizeof(quant),
             ",\n\"quantization_config\": {\"quant_method\": \"fp8\", "
             "\"fmt\": \"e4m3\",\n\"activation_scheme\": \"dynamic\", "
             "\"weight_block_size\": [%d, %d]}",
             (int)f->block[0], (int)f->block[1]);
    loongi_text_printf(&text, "%.*s%s}\n", (int)(end - f->config), f->config,
                       f->fp8 ? quant : "");
    snprintf(path, sizeof(path), "%s/config.json", f->dir);
    assert_ok(ctx, loongi_dir_remove(ctx, f->dir));
    assert_ok(ctx, loongi_dir_make(ctx, f->dir));
    assert_ok(ctx, loongi_file_write(ctx, path, text.data, strlen(text.data)));
    loongi_text_free(&text);
}

fp8_written_t fp8_write(loong_context_t *ctx, const fp8_files_t *files)
{
    static writer_t w;
    loong_pairs_t *model = NULL;
    loong_hf_map_t *map = NULL;
    memset(&w, 0, sizeof(w));
    w.ctx = ctx;
    w.files = files;
    write_config(ctx, files);
    assert_ok(ctx, loongi_hf_config_read(ctx, files->dir, &model));
    assert_ok(ctx, loongi_hf_map_load(ctx, model, files->map, &map));
    loong_safetensors_set_params_t set = {files->dir, files->max_shard_bytes,
                                          ""};
    assert_ok(ctx, loongi_safetensors_set_create(ctx, &set, &w.set));
    each_tensor(&w, map, note_scaled);
    each_tensor(&w, map, declare_piece);
    loong_meter_t meter = {0};
    loong_safetensors_source_t source = {fill, &w, &meter};
    assert_ok(ctx, loongi_safetensors_set_fill(w.set, &source));
    assert_ok(ctx, loongi_safetensors_set_commit(w.set));
    loongi_safetensors_set_destroy(&w.set);
    loongi_hf_map_destroy(&map);
    loongi_pairs_destroy(&model);
    return w.written;
}
