/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameter names and shapes of the families, as data. '#' is the layer, '@'
 * the expert. Called by whatever reads or writes a model directory. Read
 * hf_names.h and hf_weights.h before. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hf_composite.h"
#include "hf_kind.h"
#include "hf_map_file.h"

/* Copies a pattern with '#' replaced by the layer. */
static loong_status_t expand(loong_hf_map_t *map, const char *pattern,
                             int64_t layer, const char **name_p)
{
    const char *mark = strchr(pattern, '#');
    char *name = NULL;
    if (mark == NULL) {
        *name_p = pattern;
        return LOONG_OK;
    }
    LOONG_TRY(loongi_arena_printf(map->arena, &name, "%.*s%" PRId64 "%s",
                                  (int)(mark - pattern), pattern, layer,
                                  mark + 1));
    *name_p = name;
    return LOONG_OK;
}

/* The tensors of an expert follow one another. */
static loong_status_t name_pieces(loong_hf_map_t *map,
                                  const loong_hf_row_t *row, int64_t layer,
                                  loong_hf_param_t *param)
{
    const char **names = NULL;
    int each = row->second != NULL ? 2 : 1;
    param->units = each;
    param->pieces = each * map->sizes[HF_EXPERTS];
    param->stacked = (row->how & HF_STACKED) != 0;
    param->fused = each > 1 && strcmp(row->hf_name, row->second) == 0;
    LOONG_TRY(loongi_arena_alloc(
        map->arena, (size_t)param->pieces * sizeof(*names), &names));
    for (int64_t i = 0; i < param->pieces; i++) {
        const char *pattern = NULL;
        char *name = NULL;
        LOONG_TRY(expand(map, i % each > 0 ? row->second : row->hf_name, layer,
                         &pattern));
        const char *mark = strchr(pattern, '@');
        if (mark == NULL) { /* the experts are stacked */
            names[i] = pattern;
            continue;
        }
        bool second = mark[1] == '+';
        LOONG_TRY(loongi_arena_printf(
            map->arena, &name, "%.*s%" PRId64 "%s", (int)(mark - pattern),
            pattern, (second ? map->sizes[HF_EXPERTS] : 0) + i / each,
            mark + (second ? 2 : 1)));
        names[i] = name;
    }
    param->piece_names = names;
    return LOONG_OK;
}

/* What follows from the layer, and what from the model alone. */
static bool holds(const loong_hf_map_t *map, loong_hf_condition_t condition,
                  int64_t layer)
{
    bool mixture = layer >= 0 && map->sizes[HF_EXPERTS] > 0 &&
                   map->kinds.of[layer] != 0;
    if (condition == HF_IF_DENSE) {
        return !mixture;
    }
    return map->conditions[condition] && (condition < HF_IF_EXPERTS || mixture);
}

/* Where the rows of a part lie between those of the others. */
static void place_runs(const loong_hf_map_t *map, const loong_hf_row_t *row,
                       loong_hf_param_t *param)
{
    if (param->fused) {
        param->run = map->sizes[row->rows] / param->pieces;
        param->stride = 2 * param->run;
        param->shift[row->part == 0] = param->run;
        return;
    }
    const loong_hf_row_t *first = row - row->part;
    int64_t runs = (row->how & HF_GROUPED) != 0 ? map->groups : param->pieces;
    for (int i = 0; i < row->parts; i++) {
        int64_t run = map->sizes[first[i].rows] / runs;
        param->offset += i < row->part ? run : 0;
        param->stride += run;
    }
    param->run = map->sizes[row->rows] / runs;
}

/* A row of the file alone. */
static loong_status_t add_hollow(loong_hf_map_t *map,
                                 const loong_hf_row_t *row, int64_t layer)
{
    loong_hf_param_t param = {0};
    LOONG_TRY(expand(map, row->hf_name, layer, &param.hf_name));
    param.ndim = 2;
    param.shape[0] = map->sizes[row->rows];
    param.shape[1] = map->sizes[row->columns];
    param.prefixed = true;
    LOONG_TRY(loongi_grow(map->ctx, &map->hollow, &map->hollow_capacity,
                          map->hollow_count + 1, sizeof(param),
                          "parameter map"));
    map->hollow[map->hollow_count++] = param;
    return LOONG_OK;
}

/* Tensors whose elements are ours in order, in other dimensions. */
static void set_file_shape(const loong_hf_map_t *map, const loong_hf_row_t *row,
                           loong_hf_param_t *param)
{
    int64_t *shape = param->file_shape;
    if ((row->how & HF_IMAGE) != 0) {
        shape[param->file_ndim++] = param->shape[0];
        shape[param->file_ndim++] = map->patch[0];
        if ((row->how & HF_FRAMES) != 0) {
            shape[param->file_ndim++] = map->patch[2];
        }
        shape[param->file_ndim++] = map->patch[1];
        shape[param->file_ndim++] = map->patch[1];
    } else if ((row->how & HF_POINT) != 0) {
        shape[param->file_ndim++] = param->shape[0];
        shape[param->file_ndim++] = param->shape[1];
        shape[param->file_ndim++] = 1;
        shape[param->file_ndim++] = 1;
    } else if ((row->how & HF_GRID) != 0) {
        while (shape[0] * shape[0] < param->shape[0]) {
            shape[0]++;
        }
        shape[1] = shape[0];
        shape[2] = param->shape[1];
        param->file_ndim = 3;
    } else if ((row->how & HF_ROW) != 0) {
        shape[param->file_ndim++] = param->shape[1];
    } else if ((row->how & HF_FIRST) != 0) {
        shape[param->file_ndim++] = 1;
        shape[param->file_ndim++] = param->shape[0];
        shape[param->file_ndim++] = param->shape[1];
    }
}

static loong_status_t add(loong_hf_map_t *map, const loong_hf_row_t *row,
                          int64_t layer)
{
    loong_hf_param_t param = {0};
    LOONG_TRY(expand(map, row->name, layer, &param.name));
    LOONG_TRY(expand(map, row->hf_name != NULL ? row->hf_name : row->name,
                     layer, &param.hf_name));
    param.ndim = row->columns == HF_NONE ? 1 : 2;
    param.shape[0] = map->sizes[row->rows];
    param.shape[1] = map->sizes[row->columns];
    param.prefixed =
        strcmp(row->name, LOONG_HF_HEAD) != 0 && (row->how & HF_BARE) == 0;
    param.own = (row->how & HF_OWN) != 0;
    param.transposed = (row->how & HF_TURNED) != 0;
    param.exact = (row->how & HF_EXACT) != 0;
    if ((row->how & HF_FLAT) != 0) {
        param.flat = row->rows == HF_ALL_EXPERTS
                         ? param.shape[0] / map->sizes[HF_EXPERTS]
                         : 1;
    }
    set_file_shape(map, row, &param);
    if ((row->how & HF_PLACES) != 0) {
        param.places = map->patch[1] * map->patch[1];
    }
    param.parts = row->parts;
    param.pieces = param.units = 1;
    param.first_piece = map->pieces;
    if (strchr(param.hf_name, '@') != NULL || (row->how & HF_STACKED) != 0) {
        LOONG_TRY(name_pieces(map, row, layer, &param));
    }
    param.part = param.fused ? 0 : row->part;
    place_runs(map, row, &param);
    map->pieces += param.pieces;
    LOONG_TRY(loongi_grow(map->ctx, &map->params, &map->capacity,
                          map->count + 1, sizeof(param), "parameter map"));
    map->params[map->count++] = param;
    return LOONG_OK;
}

/* Rows with '#' stand together: they are repeated as one block per layer. */
static loong_status_t expand_rows(loong_hf_map_t *map)
{
    const loong_hf_row_t *row = map->family->rows;
    while (row->name != NULL) {
        const loong_hf_row_t *begin = row;
        bool layered = strchr(row->name, '#') != NULL;
        while (row->name != NULL &&
               (strchr(row->name, '#') != NULL) == layered) {
            row++;
        }
        for (int64_t layer = 0; layer < (layered ? map->layers : 1); layer++) {
            for (const loong_hf_row_t *r = begin; r < row; r++) {
                int64_t at = layered ? layer : -1;
                if (holds(map, r->condition, at)) {
                    LOONG_TRY(add(map, r, layer));
                } else if ((r->how & HF_HOLLOW) != 0 &&
                           holds(map, HF_IF_EXPERTS, at)) {
                    LOONG_TRY(add_hollow(map, r, layer));
                }
            }
        }
    }
    return LOONG_OK;
}

static int by_name(const void *a, const void *b)
{
    const loong_hf_param_t *const *x = a;
    const loong_hf_param_t *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Fills the parameters from the rows of the family. */
static loong_status_t name_all(loong_hf_map_t *map)
{
    LOONG_TRY(expand_rows(map));
    LOONG_TRY(loongi_arena_alloc(
        map->arena, (size_t)map->count * sizeof(*map->by_name), &map->by_name));
    for (int64_t i = 0; i < map->count; i++) {
        map->by_name[i] = &map->params[i];
    }
    qsort(map->by_name, (size_t)map->count, sizeof(*map->by_name), by_name);
    return LOONG_OK;
}

static loong_status_t build(loong_hf_map_t *map, const loong_pairs_t *model,
                            const char *path)
{
    const char *family = loongi_pairs_get(model, "family");
    const loong_hf_kind_t *kind = loongi_hf_kind_find(map->ctx, family);
    char types[LOONG_HF_TYPE_LIST];
    LOONG_CHECK(map->ctx, kind != NULL, LOONG_ERR_UNSUPPORTED,
                "family '%s' has no Hugging Face names (%s have)",
                family != NULL ? family : "(missing)",
                loongi_hf_type_list(map->ctx, NULL, types));
    map->family = loongi_hf_names_find(map->ctx, family);
    LOONG_TRY(loongi_arena_create(map->ctx, "parameter map", &map->arena));
    LOONG_TRY(kind->size(map, model));
    if (path != NULL) {
        loong_hf_map_file_t file = {0};
        LOONG_TRY(loongi_hf_map_file_read(map->ctx, map->arena, path,
                                          map->family, &file));
        map->family = file.names;
        map->ignored = file.ignored;
        map->ignored_count = file.ignored_count;
    }
    map->prefix = map->family->prefix;
    map->bare = "";
    return name_all(map);
}

loong_status_t loongi_hf_map_rename(loong_hf_map_t *map, const char *names)
{
    map->family = loongi_hf_names_find(map->ctx, names);
    map->count = map->pieces = map->hollow_count = 0;
    return name_all(map);
}

loong_status_t loongi_hf_map_load(loong_context_t *ctx,
                                  const loong_pairs_t *model, const char *path,
                                  loong_hf_map_t **map_p)
{
    loong_hf_map_t *map = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*map), "parameter map", &map));
    map->ctx = ctx;
    loong_status_t status = build(map, model, path);
    if (status != LOONG_OK) {
        loongi_hf_map_destroy(&map);
        return status;
    }
    *map_p = map;
    return LOONG_OK;
}

loong_status_t loongi_hf_map_create(loong_context_t *ctx,
                                    const loong_pairs_t *model,
                                    loong_hf_map_t **map_p)
{
    return loongi_hf_map_load(ctx, model, NULL, map_p);
}

void loongi_hf_map_destroy(loong_hf_map_t **map)
{
    if (*map == NULL) {
        return;
    }
    loongi_free((*map)->ctx, (*map)->params);
    loongi_free((*map)->ctx, (*map)->hollow);
    loongi_arena_destroy(&(*map)->arena);
    loongi_free((*map)->ctx, *map);
    *map = NULL;
}

int64_t loongi_hf_map_count(const loong_hf_map_t *map)
{
    return map->count;
}

int64_t loongi_hf_map_pieces(const loong_hf_map_t *map)
{
    return map->pieces;
}

const loong_hf_param_t *loongi_hf_map_get(const loong_hf_map_t *map,
                                          int64_t index)
{
    return &map->params[index];
}

int64_t loongi_hf_map_hollow_count(const loong_hf_map_t *map)
{
    return map->hollow_count;
}

const loong_hf_param_t *loongi_hf_map_hollow(const loong_hf_map_t *map,
                                             int64_t index)
{
    return &map->hollow[index];
}

const loong_hf_param_t *loongi_hf_map_find(const loong_hf_map_t *map,
                                           const char *name)
{
    loong_hf_param_t key = {0};
    const loong_hf_param_t *key_ptr = &key;
    key.name = name;
    const loong_hf_param_t *const *found =
        bsearch(&key_ptr, map->by_name, (size_t)map->count,
                sizeof(*map->by_name), by_name);
    return found != NULL ? *found : NULL;
}

int loongi_hf_file_shape(const loong_hf_param_t *param,
                         int64_t shape[LOONG_HF_DIMS])
{
    int64_t rows = loongi_hf_file_rows(param);
    int ndim = 0;
    if (param->file_ndim > 0) {
        memcpy(shape, param->file_shape, sizeof(param->file_shape));
        return param->file_ndim;
    }
    if (param->stacked) {
        shape[ndim++] = loongi_hf_slabs(param);
    }
    if (param->flat > 0) {
        shape[ndim++] = param->flat;
        rows /= param->flat;
    }
    if (param->transposed) {
        shape[ndim++] = param->shape[1];
    }
    shape[ndim++] = rows;
    if (param->ndim > 1 && !param->transposed) {
        shape[ndim++] = param->shape[1];
    }
    return ndim;
}

const char *loongi_hf_map_prefix(const loong_hf_map_t *map)
{
    return map->prefix;
}

const char *loongi_hf_param_prefix(const loong_hf_map_t *map,
                                   const loong_hf_param_t *param)
{
    return param->prefixed ? map->prefix : map->bare;
}

const char *loongi_hf_map_head(const loong_hf_map_t *map)
{
    const loong_hf_row_t *row = map->family->rows;
    while (row->name != NULL && strcmp(row->name, LOONG_HF_HEAD) != 0) {
        row++;
    }
    return row->hf_name != NULL ? row->hf_name : row->name;
}

bool loongi_hf_map_predicts(const loong_hf_map_t *map, const char *name)
{
    static const char layers[] = "model.layers.";
    if (!map->family->predicts) {
        return false;
    }
    if (strncmp(name, "model.mtp_", 10) == 0) {
        return true;
    }
    return strncmp(name, layers, sizeof(layers) - 1) == 0 &&
           strtoll(name + sizeof(layers) - 1, NULL, 10) >= map->layers;
}

bool loongi_hf_map_is_extra(const loong_hf_map_t *map, const char *name)
{
    const char *const *prefix = map->family->beside;
    if (map->composite != NULL) {
        size_t length = strlen(map->prefix);
        name += strncmp(name, map->prefix, length) == 0 ? length : 0;
    }
    while (prefix != NULL && *prefix != NULL &&
           strncmp(name, *prefix, strlen(*prefix)) != 0) {
        prefix++;
    }
    return prefix != NULL && *prefix != NULL;
}

const loong_hf_param_t *loongi_hf_map_first(const loong_hf_map_t *map,
                                            const loong_hf_row_t *row)
{
    bool layered = strchr(row->name, '#') != NULL;
    for (int64_t layer = 0; layer < (layered ? map->layers : 1); layer++) {
        char name[256];
        const char *mark = strchr(row->name, '#');
        if (layered) {
            snprintf(name, sizeof(name), "%.*s%" PRId64 "%s",
                     (int)(mark - row->name), row->name, layer, mark + 1);
        } else {
            snprintf(name, sizeof(name), "%s", row->name);
        }
        const loong_hf_param_t *param = loongi_hf_map_find(map, name);
        if (param != NULL) {
            return param;
        }
    }
    return NULL;
}

bool loongi_hf_map_ignores(const loong_hf_map_t *map, const char *name)
{
    for (int64_t i = 0; i < map->ignored_count; i++) {
        if (loongi_hf_pattern_matches(map->ignored[i], name)) {
            return true;
        }
    }
    return false;
}
