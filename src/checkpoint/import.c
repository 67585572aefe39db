/* SPDX-License-Identifier: Apache-2.0
 *
 * From a Hugging Face directory, or adapters of peft's, to a native checkpoint.
 * Called by loong-ckpt import and merge. Read native_write.h, hf_weights.h and
 * peft_import.h before. */
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "hf_adapters.h"
#include "hf_code.h"
#include "hf_digest.h"
#include "hf_files.h"
#include "hf_tokens.h"
#include "hf_weights.h"
#include "loong/checkpoint.h"
#include "native_dir.h"
#include "native_source.h"
#include "native_write.h"
#include "peft_import.h"
#include "view.h"
#include "workdir.h"

typedef struct importer {
    loong_context_t *ctx;
    const loong_checkpoint_import_params_t *params;
    const char *dir; /* of the model: of adapters that beside them */
    int num_parts; /* components, the one with the loss last */
    loong_hf_t *hf[LOONG_HF_PARTS];
    const char *roles[LOONG_HF_PARTS];
    int64_t ends[LOONG_HF_PARTS]; /* of their tensors */
    loong_peft_t *peft; /* NULL: no adapters */
    loong_peft_import_t adapters;
    loong_arena_t *arena;
    loong_pairs_t *metadata;
    loong_file_set_t *files;
    loong_text_t key;
    int64_t count;
    loong_checkpoint_tensor_t *tensors;
} importer_t;

static const loong_hf_t *loss_of(const importer_t *im)
{
    return im->hf[im->num_parts - 1];
}

static loong_status_t import_rows(void *user, int64_t index, int64_t row,
                                  int64_t rows, void *buffer,
                                  const void **data_p)
{
    const importer_t *im = user;
    const loong_checkpoint_tensor_t *t = &im->tensors[index];
    int part = 0;
    while (index >= im->ends[part]) {
        part++;
    }
    const char *name = t->name + strlen(im->roles[part]) + 1;
    loong_borrowed_t borrowed;
    if (loongi_hf_lend(im->hf[part], name, row, rows, &borrowed) &&
        (borrowed.hole || borrowed.dtype == t->dtype)) {
        *data_p = borrowed.hole ? NULL : borrowed.data;
        return LOONG_OK;
    }
    return loongi_hf_read(im->hf[part], name, row, rows, t->dtype, buffer);
}

static loong_status_t list_part(importer_t *im, int part)
{
    const loong_hf_t *hf = im->hf[part];
    const loong_hf_map_t *map = loongi_hf_get_map(hf);
    for (int64_t i = 0; i < loongi_hf_map_count(map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        loong_checkpoint_tensor_t *t = &im->tensors[im->count++];
        char *name = NULL;
        LOONG_TRY(loongi_arena_printf(im->arena, &name, "%s.%s",
                                      im->roles[part], p->name));
        t->kind = "param";
        t->name = name;
        t->dtype = loongi_hf_dtype(hf, p->name);
        t->ndim = p->ndim;
        for (int d = 0; d < p->ndim; d++) {
            t->shape[d] = p->shape[d];
        }
    }
    im->ends[part] = im->count;
    return LOONG_OK;
}

static loong_status_t list_params(importer_t *im)
{
    int64_t count = 0;
    for (int i = 0; i < im->num_parts; i++) {
        count += loongi_hf_map_count(loongi_hf_get_map(im->hf[i]));
    }
    LOONG_TRY(loongi_arena_alloc(
        im->arena, (size_t)count * sizeof(*im->tensors), &im->tensors));
    for (int i = 0; i < im->num_parts; i++) {
        LOONG_TRY(list_part(im, i));
    }
    return LOONG_OK;
}

static loong_status_t import_keys(importer_t *im, int part)
{
    const loong_pairs_t *model = loongi_hf_model(im->hf[part]);
    for (int64_t i = 0; i < model->count; i++) {
        char *key = NULL;
        LOONG_TRY(loongi_arena_printf(im->arena, &key, "model.%s.%s",
                                      im->roles[part], model->items[i].key));
        LOONG_TRY(loongi_pairs_set(im->metadata, key, model->items[i].value));
    }
    return LOONG_OK;
}

/* Adapters leave the rest to the model beside them. An export without a
 * training in between has their configuration as it was. */
static loong_status_t list_adapters(importer_t *im)
{
    char digest[LOONG_HF_DIGEST];
    char text[4096];
    const loong_peft_beside_t base = {
        im->num_parts, (const loong_hf_t *const *)im->hf, im->roles};
    LOONG_TRY(loongi_lora_fit(im->peft, loss_of(im)));
    LOONG_TRY(loongi_peft_import(im->peft, &base, im->arena, im->metadata,
                                 &im->adapters));
    im->count = im->adapters.count;
    im->tensors = im->adapters.tensors;
    LOONG_TRY(loongi_hf_digest(im->ctx, im->dir, NULL, digest));
    for (int i = 0; i < im->num_parts; i++) {
        snprintf(text, sizeof(text), LOONG_BASE_KEY "%s", im->roles[i]);
        LOONG_TRY(loongi_pairs_set(im->metadata, text, im->dir));
        snprintf(text, sizeof(text), LOONG_BASE_DIGEST_KEY "%s", im->roles[i]);
        LOONG_TRY(loongi_pairs_set(im->metadata, text, digest));
    }
    snprintf(text, sizeof(text), "%s/" LOONG_PEFT_CONFIG, im->peft->path);
    return loongi_file_set_read(im->files, text, LOONG_PEFT_CONFIG);
}

/* All that goes into the checkpoint beside tensors. */
static loong_status_t read_beside(importer_t *im)
{
    const loong_pairs_t *model = loongi_hf_model(loss_of(im));
    LOONG_TRY(loongi_pairs_create(im->ctx, &im->metadata));
    LOONG_TRY(
        loongi_pairs_set(im->metadata, "created_by", "loong-ckpt import"));
    for (int i = 0; i < im->num_parts; i++) {
        LOONG_TRY(import_keys(im, i));
    }
    LOONG_TRY(loongi_hf_composite_keep(im->ctx, im->dir, im->metadata));
    LOONG_TRY(loongi_hf_tokens_read(im->ctx, im->dir, im->metadata));
    LOONG_TRY(loongi_hf_code_read(im->ctx, im->dir,
                                  loongi_pairs_get(model, "family"),
                                  im->metadata));
    LOONG_TRY(loongi_file_set_create(im->ctx, &im->files));
    LOONG_TRY(loongi_hf_files_read(im->ctx, im->dir, im->files));
    return loongi_hf_has_code(im->metadata)
               ? loongi_file_set_read_dir(im->files, im->dir, ".py")
               : LOONG_OK;
}

static loong_status_t run_import(importer_t *im)
{
    const loong_checkpoint_import_params_t *p = im->params;
    loong_native_write_params_t write = {0};
    loong_meter_t meter = {p->progress, p->user, 0, 0};
    LOONG_TRY(loongi_arena_create(im->ctx, "import", &im->arena));
    LOONG_TRY(read_beside(im));
    LOONG_TRY(im->peft != NULL ? list_adapters(im) : list_params(im));
    loongi_text_printf(&im->key, "import 1 %lld\n",
                       (long long)p->max_file_bytes);
    loongi_workdir_add_source(&im->key, p->hf_dir);
    loongi_workdir_add_source(&im->key, im->dir);
    loongi_workdir_add_source(&im->key, p->names.map);
    loongi_workdir_add_source(&im->key, p->names.model);
    LOONG_TRY(im->key.status);
    for (int64_t i = 0; i < im->count; i++) {
        meter.total += loongi_tensor_bytes(&im->tensors[i]);
    }
    write.dir = p->save_dir;
    write.metadata = im->metadata;
    write.files = im->files;
    write.key = im->key.data;
    write.file_bytes = p->max_file_bytes;
    write.count = im->count;
    write.tensors = im->tensors;
    write.source = im->peft != NULL ? loongi_peft_import_rows : import_rows;
    write.user = im->peft != NULL ? (void *)&im->adapters : im;
    write.meter = &meter;
    return loongi_native_write(im->ctx, &write);
}

/* An import is step 0 and becomes the latest: not in the directory of a run. */
static loong_status_t check_no_run(loong_context_t *ctx, const char *dir)
{
    char first[32];
    const char **names = NULL;
    int64_t count = 0;
    loong_arena_t *arena = NULL;
    snprintf(first, sizeof(first), LOONG_STEP_FORMAT, 0LL);
    if (!loongi_dir_exists(dir)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_arena_create(ctx, "names of steps", &arena));
    loong_status_t status =
        loongi_checkpoint_steps(ctx, arena, dir, &names, &count);
    for (int64_t i = 0; i < count && status == LOONG_OK; i++) {
        if (strcmp(names[i], first) != 0) {
            status = LOONG_FAIL(ctx, LOONG_ERR_ARG,
                                "'%s' has checkpoints of a run (%s): another "
                                "directory is wanted for an import",
                                dir, names[i]);
        }
    }
    loongi_arena_destroy(&arena);
    return status;
}

/* An earlier import of the same model is replaced. */
static loong_status_t check_replaced(const importer_t *im)
{
    const char *dir = im->params->save_dir;
    loong_checkpoint_t *there = NULL;
    loong_pairs_t *model = NULL;
    if (!loongi_checkpoint_is_native(dir)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_pairs_create(im->ctx, &model));
    loong_status_t status = loongi_checkpoint_open(im->ctx, dir, &there);
    if (status == LOONG_OK) {
        const loong_pairs_t *meta = loongi_checkpoint_metadata(there);
        status =
            loongi_view_model_keys(meta, loongi_view_component(meta), model);
    }
    loongi_checkpoint_close(&there);
    if (status == LOONG_OK) {
        status = loongi_hf_check_same(im->ctx, dir, model,
                                      loongi_hf_model(loss_of(im)));
    } else {
        loongi_error_note(im->ctx, "'%s' is not replaced: name another "
                                   "directory, or remove that one", dir);
    }
    loongi_pairs_destroy(&model);
    return status;
}

/* The model, and adapters beside it. */
static loong_status_t open_import(importer_t *im)
{
    const loong_checkpoint_import_params_t *p = im->params;
    loong_hf_open_params_t open = {.dir = p->hf_dir,
                                   .model = p->names.model,
                                   .map = p->names.map};
    const loong_hf_composite_t *whole = NULL;
    if (loongi_peft_is(p->hf_dir)) {
        LOONG_TRY(loongi_peft_read(im->ctx, p->hf_dir, &im->peft));
        open.dir = loongi_peft_base(im->peft, p->names.base);
        LOONG_CHECK(im->ctx, open.dir != NULL, LOONG_ERR_NOT_FOUND,
                    "%s: adapters beside '%s', which is no directory here: "
                    "name the one that has it (--base DIR)",
                    p->hf_dir, im->peft->base != NULL ? im->peft->base : "");
    }
    im->dir = open.dir;
    if (open.model == NULL) {
        LOONG_TRY(loongi_hf_composite_of(im->ctx, im->dir, &whole));
    }
    int first = whole == NULL ? LOONG_HF_PART_LOSS : 0;
    for (int i = first; i < LOONG_HF_PARTS; i++) {
        loong_hf_t **hf = &im->hf[im->num_parts];
        open.role = whole != NULL ? whole->parts[i].role : NULL;
        LOONG_TRY(loongi_hf_check_model(im->ctx, &open));
        LOONG_TRY(loongi_hf_open_as(im->ctx, &open, hf));
        im->roles[im->num_parts++] =
            whole != NULL ? open.role
                          : loongi_view_role(im->ctx, loongi_hf_model(*hf));
    }
    return LOONG_OK;
}

loong_status_t
loong_checkpoint_import(loong_context_t *ctx,
                        const loong_checkpoint_import_params_t *params)
{
    importer_t im = {0};
    im.ctx = ctx;
    im.params = params;
    im.key = loongi_text_begin(ctx);
    LOONG_TRY(loongi_checkpoint_check_model(ctx, params->hf_dir));
    LOONG_TRY(loongi_checkpoint_check_outside(ctx, params->save_dir));
    LOONG_TRY(loongi_checkpoint_check_no_model(ctx, params->save_dir));
    LOONG_TRY(check_no_run(ctx, params->save_dir));
    loong_status_t status = open_import(&im);
    if (status == LOONG_OK) {
        status = check_replaced(&im);
    }
    if (status == LOONG_OK) {
        status = run_import(&im);
    }
    loongi_text_free(&im.key);
    loongi_file_set_destroy(&im.files);
    loongi_pairs_destroy(&im.metadata);
    loongi_arena_destroy(&im.arena);
    for (int i = 0; i < im.num_parts; i++) {
        loongi_hf_close(&im.hf[i]);
    }
    loongi_peft_destroy(&im.peft);
    return status;
}
