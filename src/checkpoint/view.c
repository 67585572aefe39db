/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of either kind of model files. Called by inspect.c, verify.c,
 * import.c, export.c and by what starts a run from files. Read view.h
 * before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "file.h"
#include "hf_config.h"
#include "loong/family.h"
#include "mapped.h"
#include "safetensors.h"
#include "view.h"

int64_t loongi_view_rows(const loong_view_tensor_t *tensor)
{
    return tensor->ndim > 0 ? tensor->shape[0] : 1;
}

int64_t loongi_view_row_length(const loong_view_tensor_t *tensor)
{
    return tensor->ndim > 1
               ? loongi_shape_count(tensor->ndim - 1, tensor->shape + 1)
               : 1;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const loong_view_tensor_t *)a)->name,
                  ((const loong_view_tensor_t *)b)->name);
}

/* Runs did not always state these keys. Where they did not, and the recipe
 * did not either, the model had these values, whatever its family. */
static const loong_pair_t unstated[] = {
    {"moe_router_score_function", "softmax"},
    {"moe_router_enable_expert_bias", "false"},
    {"moe_router_topk_scaling_factor", "1"},
};

static loong_status_t add_unstated(loong_pairs_t *model)
{
    for (int64_t i = 0; i < LOONG_COUNT_OF(unstated); i++) {
        if (loongi_pairs_get(model, unstated[i].key) == NULL) {
            LOONG_TRY(loongi_pairs_set(model, unstated[i].key,
                                       unstated[i].value));
        }
    }
    return LOONG_OK;
}

int loongi_view_roles(const loong_pairs_t *metadata,
                      const char *roles[LOONG_MODEL_ROLES])
{
    int count = 0;
    for (int i = 0; i < LOONG_MODEL_ROLES; i++) {
        char key[64];
        snprintf(key, sizeof(key), "model.%s.family", loong_recipe_roles[i]);
        if (loongi_pairs_get(metadata, key) != NULL) {
            roles[count++] = loong_recipe_roles[i];
        }
    }
    roles[0] = count > 0 ? roles[0] : LOONG_DEFAULT_ROLE;
    return LOONG_MAX(count, 1);
}

const char *loongi_view_component(const loong_pairs_t *metadata)
{
    const char *roles[LOONG_MODEL_ROLES];
    return roles[loongi_view_roles(metadata, roles) - 1];
}

const char *loongi_view_list_components(const loong_pairs_t *metadata,
                                        char list[LOONG_VIEW_COMPONENTS])
{
    size_t length = 0;
    memcpy(list, " none", sizeof(" none"));
    for (int64_t i = 0; i < metadata->count; i++) {
        char role[64];
        int end = 0;
        const char *key = metadata->items[i].key;
        if (sscanf(key, "model.%63[^.].family%n", role, &end) == 1 && end > 0 &&
            key[end] == '\0' && length < LOONG_VIEW_COMPONENTS) {
            length += (size_t)snprintf(
                list + length, LOONG_VIEW_COMPONENTS - length, " %s", role);
        }
    }
    return list;
}

const char *loongi_view_role(loong_context_t *ctx, const loong_pairs_t *model)
{
    const char *name = loongi_pairs_get(model, "family");
    const loong_family_t *family =
        name != NULL ? loong_find_family(ctx, name) : NULL;
    return family != NULL && family->role != NULL ? family->role
                                                  : LOONG_DEFAULT_ROLE;
}

loong_status_t loongi_view_model_keys(const loong_pairs_t *metadata,
                                      const char *component,
                                      loong_pairs_t *model)
{
    char prefix[128];
    int length = snprintf(prefix, sizeof(prefix), "model.%s.", component);
    for (int64_t i = 0; i < metadata->count; i++) {
        const loong_pair_t *pair = &metadata->items[i];
        if (length < (int)sizeof(prefix) &&
            strncmp(pair->key, prefix, (size_t)length) == 0) {
            LOONG_TRY(loongi_pairs_set(model, pair->key + length, pair->value));
        }
    }
    bool is_of_run = loongi_pairs_get(metadata, "recipe") != NULL;
    return is_of_run && loongi_pairs_get(model, "num_experts") != NULL
               ? add_unstated(model)
               : LOONG_OK;
}

static loong_status_t allocate(loong_view_t *view, int64_t count)
{
    return loongi_arena_alloc(
        view->arena, (size_t)count * sizeof(*view->tensors), &view->tensors);
}

static void add(loong_view_t *view, const char *name, loong_dtype_t dtype,
                int ndim, const int64_t *shape)
{
    loong_view_tensor_t *tensor = &view->tensors[view->count++];
    tensor->name = name;
    tensor->dtype = dtype;
    tensor->ndim = ndim;
    memcpy(tensor->shape, shape, (size_t)ndim * sizeof(*shape));
}

static loong_status_t add_part(loong_view_t *view, const char *role,
                               loong_view_part_t **part_p)
{
    loong_view_part_t *part = &view->parts[view->num_parts];
    LOONG_TRY(loongi_pairs_create(view->ctx, &part->model));
    part->role = role;
    view->num_parts++;
    *part_p = part;
    return LOONG_OK;
}

/* The part that a parameter of a checkpoint is of; NULL: none. */
static const loong_view_part_t *part_of(const loong_view_t *view,
                                        const char *name)
{
    for (int i = 0; i < view->num_parts; i++) {
        size_t length =
            view->parts[i].role != NULL ? strlen(view->parts[i].role) : 0;
        if (length > 0 && strncmp(name, view->parts[i].role, length) == 0 &&
            name[length] == '.') {
            return &view->parts[i];
        }
    }
    return NULL;
}

static loong_status_t list_native(loong_view_t *view, loong_view_names_t names)
{
    int64_t count = loongi_checkpoint_count(view->native);
    const loong_pairs_t *meta = loongi_checkpoint_metadata(view->native);
    const char *roles[LOONG_MODEL_ROLES];
    int num_roles = loongi_view_roles(meta, roles);
    for (int i = 0; i < num_roles; i++) {
        loong_view_part_t *part = NULL;
        LOONG_TRY(add_part(view, roles[i], &part));
        LOONG_TRY(loongi_view_model_keys(meta, roles[i], part->model));
    }
    LOONG_TRY(allocate(view, count));
    for (int64_t i = 0; i < count; i++) {
        const loong_checkpoint_tensor_t *t =
            loongi_checkpoint_get(view->native, i);
        const loong_view_part_t *part = part_of(view, t->name);
        char *name = NULL;
        if (names != LOONG_VIEW_ENGINE) {
            LOONG_TRY(loongi_arena_printf(view->arena, &name, "%s %s", t->kind,
                                          t->name));
        } else if (strcmp(t->kind, "param") != 0 || part == NULL) {
            continue;
        } else {
            size_t cut = view->num_parts > 1 ? 0 : strlen(part->role) + 1;
            LOONG_TRY(loongi_arena_strdup(view->arena, t->name + cut, &name));
        }
        add(view, name, t->dtype, t->ndim, t->shape);
        view->tensors[view->count - 1].handle = t;
    }
    return LOONG_OK;
}

static loong_status_t list_part(loong_view_t *view,
                                const loong_view_part_t *part)
{
    const loong_hf_map_t *map = loongi_hf_get_map(part->hf);
    for (int64_t i = 0; i < loongi_hf_map_count(map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        char *name = NULL;
        LOONG_TRY(loongi_arena_printf(
            view->arena, &name, "%s%s%s",
            view->num_parts > 1 ? part->role : "",
            view->num_parts > 1 ? "." : "", p->name));
        add(view, name, loongi_hf_dtype(part->hf, p->name), p->ndim, p->shape);
        view->tensors[view->count - 1].handle = part->hf;
    }
    const loong_pairs_t *model = loongi_hf_model(part->hf);
    for (int64_t i = 0; i < model->count; i++) {
        LOONG_TRY(loongi_pairs_set(part->model, model->items[i].key,
                                   model->items[i].value));
    }
    return LOONG_OK;
}

static loong_status_t list_engine(loong_view_t *view,
                                  const loong_hf_open_params_t *open)
{
    loong_hf_open_params_t own = *open;
    const loong_hf_composite_t *whole = NULL;
    int64_t count = 0;
    if (open->model == NULL) {
        LOONG_TRY(loongi_hf_composite_of(view->ctx, view->path, &whole));
    }
    for (int i = 0; i < (whole != NULL ? LOONG_HF_PARTS : 1); i++) {
        loong_view_part_t *part = NULL;
        own.role = whole != NULL ? whole->parts[i].role : NULL;
        LOONG_TRY(add_part(view, own.role, &part));
        LOONG_TRY(loongi_hf_open_as(view->ctx, &own, &part->hf));
        count += loongi_hf_map_count(loongi_hf_get_map(part->hf));
    }
    LOONG_TRY(allocate(view, count));
    for (int i = 0; i < view->num_parts; i++) {
        LOONG_TRY(list_part(view, &view->parts[i]));
    }
    return LOONG_OK;
}

static loong_status_t list_adapters(loong_view_t *view)
{
    const loong_safetensors_t *file = view->peft->file;
    LOONG_TRY(allocate(view, loongi_safetensors_count(file)));
    for (int64_t i = 0; i < loongi_safetensors_count(file); i++) {
        const loong_safetensor_t *t = loongi_safetensors_get(file, i);
        add(view, t->name, t->dtype, t->ndim, t->shape);
        view->tensors[view->count - 1].handle = t;
    }
    return LOONG_OK;
}

static loong_status_t read_models(loong_view_t *view)
{
    const loong_hf_composite_t *whole = NULL;
    LOONG_TRY(loongi_hf_composite_of(view->ctx, view->path, &whole));
    for (int i = 0; i < (whole != NULL ? LOONG_HF_PARTS : 1); i++) {
        const char *role = whole != NULL ? whole->parts[i].role : NULL;
        loong_pairs_t *model = NULL;
        LOONG_TRY(loongi_hf_config_trace(view->ctx, view->path, role, NULL,
                                         &model));
        view->parts[view->num_parts++] =
            (loong_view_part_t){.role = role, .model = model};
    }
    return LOONG_OK;
}

static loong_status_t list_files(loong_view_t *view, const char *model_file,
                                 bool judged)
{
    LOONG_TRY(allocate(view, loongi_safetensors_set_count(view->set)));
    for (int64_t i = 0; i < loongi_safetensors_set_count(view->set); i++) {
        const loong_safetensor_t *t = loongi_safetensors_set_get(view->set, i);
        add(view, t->name, t->dtype, t->ndim, t->shape);
        view->tensors[view->count - 1].handle = t;
    }
    if (model_file != NULL) {
        return LOONG_OK; /* whoever brings it looks at it */
    }
    loong_status_t status = read_models(view);
    if (status != LOONG_OK && !judged) { /* the tensors can be looked at */
        loongi_log(view->ctx, LOONG_LOG_WARN, "%s",
                   loong_context_error(view->ctx));
        loong_context_clear_error(view->ctx);
        status = LOONG_OK;
    }
    return status;
}

static loong_status_t open_any(loong_view_t *view, loong_view_names_t names,
                               const loong_checkpoint_names_t *as)
{
    loong_context_t *ctx = view->ctx;
    loong_hf_open_params_t open = {.dir = view->path};
    if (as != NULL) {
        open.model = as->model;
        open.map = as->map;
    }
    LOONG_TRY(loongi_checkpoint_check_place(ctx, view->path));
    if (loongi_checkpoint_is_native(view->path)) {
        LOONG_TRY(loongi_checkpoint_open(ctx, view->path, &view->native));
        LOONG_TRY(list_native(view, names));
    } else if (loongi_peft_is(view->path)) {
        LOONG_CHECK(ctx, names != LOONG_VIEW_ENGINE, LOONG_ERR_UNSUPPORTED,
                    "'%s' has adapters of peft's, which are compared with "
                    "others of peft's: loong-ckpt export makes them of a "
                    "checkpoint", view->path);
        LOONG_TRY(loongi_peft_read(ctx, view->path, &view->peft));
        LOONG_TRY(list_adapters(view));
    } else if (names == LOONG_VIEW_ENGINE) {
        LOONG_TRY(list_engine(view, &open));
    } else {
        LOONG_TRY(loongi_safetensors_set_open(ctx, view->path, &view->set));
        LOONG_TRY(list_files(view, open.model, names == LOONG_VIEW_JUDGED));
    }
    qsort(view->tensors, (size_t)view->count, sizeof(*view->tensors), by_name);
    return LOONG_OK;
}

loong_status_t loongi_view_open(loong_context_t *ctx, const char *path,
                                loong_view_names_t names,
                                const loong_checkpoint_names_t *as,
                                loong_view_t **view_p)
{
    loong_view_t *view = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*view), "view", &view));
    view->ctx = ctx;
    view->path = path;
    loong_status_t status = loongi_arena_create(ctx, "view", &view->arena);
    if (status == LOONG_OK) {
        status = open_any(view, names, as);
    }
    if (status != LOONG_OK) {
        loongi_view_close(&view);
        return status;
    }
    *view_p = view;
    return LOONG_OK;
}

void loongi_view_close(loong_view_t **view)
{
    if (*view == NULL) {
        return;
    }
    loongi_checkpoint_close(&(*view)->native);
    loongi_safetensors_set_close(&(*view)->set);
    loongi_peft_destroy(&(*view)->peft);
    for (int i = 0; i < LOONG_MODEL_ROLES; i++) {
        loongi_hf_close(&(*view)->parts[i].hf);
        loongi_pairs_destroy(&(*view)->parts[i].model);
    }
    loongi_arena_destroy(&(*view)->arena);
    loongi_free((*view)->ctx, *view);
    *view = NULL;
}

loong_status_t loongi_view_read(const loong_view_t *view,
                                const loong_view_tensor_t *tensor, int64_t row,
                                int64_t rows, loong_dtype_t dtype, void *dst)
{
    if (view->native != NULL) {
        return loongi_checkpoint_read_rows(view->native, tensor->handle, row,
                                           rows, dtype, dst);
    }
    if (view->num_parts > 0 && view->parts[0].hf != NULL) {
        const loong_view_part_t *part = part_of(view, tensor->name);
        bool named = view->num_parts > 1;
        return loongi_hf_read(
            tensor->handle,
            tensor->name + (named ? strlen(part->role) + 1 : 0), row, rows,
            dtype, dst);
    }
    const loong_safetensor_t *t = tensor->handle;
    int64_t length = loongi_view_row_length(tensor);
    size_t size = loong_dtype_size(tensor->dtype);
    const char *src = (const char *)t->data + (size_t)(row * length) * size;
    LOONG_TRY(loongi_convert(view->ctx, tensor->dtype, src, dtype, dst,
                             rows * length));
    loongi_mapped_release(src, (size_t)(rows * length) * size);
    return LOONG_OK;
}
