/* SPDX-License-Identifier: Apache-2.0
 *
 * Native checkpoint <-> Hugging Face directory. */
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "hf_tokens.h"
#include "hf_weights.h"
#include "loong/checkpoint.h"
#include "native.h"
#include "native_dir.h"
#include "view.h"

/* ---- import ---- */

typedef struct fetch {
    const loong_hf_t *hf;
    const char *name;
    loong_dtype_t dtype;
} fetch_t;

static loong_status_t fetch_rows(void *user, int64_t row, int64_t rows,
                                 void *dst)
{
    const fetch_t *f = user;
    return loongi_hf_read(f->hf, f->name, row, rows, f->dtype, dst);
}

static loong_status_t add_params(loong_context_t *ctx, const loong_hf_t *hf,
                                 fetch_t *fetches,
                                 loong_checkpoint_save_t *save)
{
    const loong_hf_map_t *map = loongi_hf_get_map(hf);
    for (int64_t i = 0; i < loongi_hf_map_count(map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        loong_checkpoint_piece_t piece;
        loong_text_t name = loongi_text_begin(ctx);
        memset(&piece, 0, sizeof(piece));
        loongi_text_printf(&name, LOONG_FOUNDATION ".%s", p->name);
        fetches[i].hf = hf;
        fetches[i].name = p->name;
        fetches[i].dtype = loongi_hf_dtype(hf, p->name);
        piece.kind = "param";
        piece.name = loongi_text_get(&name);
        piece.dtype = fetches[i].dtype;
        piece.ndim = p->ndim;
        for (int d = 0; d < p->ndim; d++) {
            piece.shape[d] = piece.count[d] = p->shape[d];
        }
        piece.fetch = fetch_rows;
        piece.user = &fetches[i];
        loong_status_t status = name.status;
        if (status == LOONG_OK) {
            status = loongi_checkpoint_save_add(save, &piece);
        }
        loongi_text_free(&name);
        LOONG_TRY(status);
    }
    return LOONG_OK;
}

static loong_status_t import_metadata(loong_context_t *ctx,
                                      const loong_pairs_t *model,
                                      loong_pairs_t *metadata)
{
    LOONG_TRY(loongi_pairs_set(metadata, "created_by", "loong-ckpt import"));
    for (int64_t i = 0; i < model->count; i++) {
        loong_text_t key = loongi_text_begin(ctx);
        loongi_text_printf(&key, "model." LOONG_FOUNDATION ".%s",
                           model->items[i].key);
        loong_status_t status = key.status;
        if (status == LOONG_OK) {
            status =
                loongi_pairs_set(metadata, key.data, model->items[i].value);
        }
        loongi_text_free(&key);
        LOONG_TRY(status);
    }
    return LOONG_OK;
}

static loong_status_t save_import(loong_context_t *ctx, const loong_hf_t *hf,
                                  const loong_checkpoint_save_params_t *params)
{
    loong_checkpoint_save_t *save = NULL;
    fetch_t *fetches = NULL;
    int64_t count = loongi_hf_map_count(loongi_hf_get_map(hf));
    LOONG_TRY(loongi_calloc(ctx, (size_t)count, sizeof(*fetches), "import",
                            &fetches));
    loong_status_t status = loongi_checkpoint_save_begin(ctx, params, &save);
    if (status == LOONG_OK) {
        status = add_params(ctx, hf, fetches, save);
    }
    if (status == LOONG_OK) {
        status = loongi_checkpoint_save_start(save);
    }
    if (status == LOONG_OK) {
        status = loongi_checkpoint_save_commit(save);
    }
    loongi_checkpoint_save_destroy(&save);
    loongi_free(ctx, fetches);
    return status;
}

/* An import is step 0 and becomes the latest: not in the directory of a run.
 * An earlier import is replaced. */
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
            status = LOONG_FAIL(ctx, LOONG_ERR_CONFIG,
                                "'%s' has checkpoints of a run (%s): another "
                                "directory is wanted for an import",
                                dir, names[i]);
        }
    }
    loongi_arena_destroy(&arena);
    return status;
}

loong_status_t loong_checkpoint_import(loong_context_t *ctx, const char *hf_dir,
                                       const char *save_dir)
{
    loong_hf_t *hf = NULL;
    loong_pairs_t *metadata = NULL;
    loong_checkpoint_save_params_t params;
    memset(&params, 0, sizeof(params));
    LOONG_TRY(check_no_run(ctx, save_dir));
    LOONG_TRY(loongi_hf_open(ctx, hf_dir, &hf));
    loong_status_t status = loongi_pairs_create(ctx, &metadata);
    if (status == LOONG_OK) {
        status = import_metadata(ctx, loongi_hf_model(hf), metadata);
    }
    if (status == LOONG_OK) {
        status = loongi_hf_tokens_read(ctx, hf_dir, metadata);
    }
    if (status == LOONG_OK) {
        params.dir = save_dir;
        params.metadata = metadata;
        params.files_dir = hf_dir;
        status = save_import(ctx, hf, &params);
    }
    loongi_pairs_destroy(&metadata);
    loongi_hf_close(&hf);
    return status;
}

/* ---- export ---- */

typedef struct native_source {
    loong_context_t *ctx;
    loong_checkpoint_t *checkpoint;
    const char *component;
} native_source_t;

static const loong_checkpoint_tensor_t *
find_param(const native_source_t *source, const char *name)
{
    loong_text_t full = loongi_text_begin(source->ctx);
    loongi_text_printf(&full, "%s.%s", source->component, name);
    const loong_checkpoint_tensor_t *tensor = loongi_checkpoint_find(
        source->checkpoint, "param", loongi_text_get(&full));
    loongi_text_free(&full);
    return tensor;
}

static loong_status_t read_native(void *user, const char *name, int64_t row,
                                  int64_t rows, loong_dtype_t dtype, void *dst)
{
    const native_source_t *source = user;
    return loongi_checkpoint_read_rows(
        source->checkpoint, find_param(source, name), row, rows, dtype, dst);
}

/* What the model's keys call for, against what is there. */
static loong_status_t check_params(const native_source_t *source,
                                   const loong_hf_map_t *map)
{
    loong_arena_t *arena = NULL;
    loong_checkpoint_tensor_t *wanted = NULL;
    int64_t count = loongi_hf_map_count(map);
    LOONG_TRY(loongi_arena_create(source->ctx, "export", &arena));
    loong_status_t status =
        loongi_arena_alloc(arena, (size_t)count * sizeof(*wanted), &wanted);
    for (int64_t i = 0; i < count && status == LOONG_OK; i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        char *name = NULL;
        status = loongi_arena_printf(arena, &name, "%s.%s", source->component,
                                     p->name);
        wanted[i].kind = "param";
        wanted[i].name = name;
        wanted[i].ndim = p->ndim;
        memcpy(wanted[i].shape, p->shape, sizeof(p->shape));
    }
    if (status == LOONG_OK) {
        status = loongi_checkpoint_check(source->checkpoint, wanted, count);
    }
    loongi_arena_destroy(&arena);
    return status;
}

static loong_status_t
export_model(native_source_t *source, const loong_pairs_t *model,
             const loong_checkpoint_export_params_t *params,
             const loong_pairs_t *tokens, const char *kept_files)
{
    loong_hf_export_params_t hf;
    loong_hf_map_t *map = NULL;
    LOONG_TRY(loongi_hf_map_create(source->ctx, model, &map));
    loong_status_t status = check_params(source, map);
    loongi_hf_map_destroy(&map);
    LOONG_TRY(status);
    memset(&hf, 0, sizeof(hf));
    hf.dir = params->out_dir;
    hf.model = model;
    hf.dtype = params->convert
                   ? params->dtype
                   : find_param(source, "embed_tokens.weight")->dtype;
    hf.max_shard_bytes = params->max_shard_bytes;
    hf.source = read_native;
    hf.user = source;
    hf.tokens = tokens;
    if (params->tokenizer_dir != NULL) {
        hf.files_dir = params->tokenizer_dir;
    } else if (loongi_dir_exists(kept_files)) {
        hf.files_dir = kept_files;
    }
    return loongi_hf_export(source->ctx, &hf);
}

/* What is asked for, else what the run that saved it knew. */
static loong_status_t
read_tokens(loong_context_t *ctx, const loong_pairs_t *model,
            const loong_checkpoint_export_params_t *params,
            const loong_pairs_t *metadata, loong_pairs_t *tokens)
{
    const int64_t asked[LOONG_HF_TOKENS] = {
        params->bos_token_id, params->eos_token_id, params->pad_token_id};
    int64_t vocab_size = INT64_MAX;
    loongi_pairs_int(model, "vocab_size", &vocab_size);
    for (int i = 0; i < LOONG_HF_TOKENS; i++) {
        const char *name = loongi_hf_token_names[i];
        const char *known = loongi_pairs_get(metadata, name);
        if (asked[i] >= 0) {
            LOONG_CHECK(ctx, asked[i] < vocab_size, LOONG_ERR_CONFIG,
                        "%s: %lld, the vocabulary has 0 to %lld", name,
                        (long long)asked[i], (long long)vocab_size - 1);
            LOONG_TRY(loongi_pairs_set_int(tokens, name, asked[i]));
        } else if (known != NULL && params->tokenizer_dir == NULL) {
            LOONG_TRY(loongi_pairs_set(tokens, name, known));
        }
    }
    return LOONG_OK;
}

static loong_status_t
export_open(native_source_t *source,
            const loong_checkpoint_export_params_t *params)
{
    loong_pairs_t *model = NULL;
    loong_pairs_t *tokens = NULL;
    const loong_pairs_t *metadata =
        loongi_checkpoint_metadata(source->checkpoint);
    loong_text_t files = loongi_text_begin(source->ctx);
    loongi_text_printf(&files, "%s/hf",
                       loongi_checkpoint_path(source->checkpoint));
    LOONG_TRY(files.status);
    loong_status_t status = loongi_pairs_create(source->ctx, &model);
    if (status == LOONG_OK) {
        status = loongi_pairs_create(source->ctx, &tokens);
    }
    if (status == LOONG_OK) {
        status = loongi_view_model_keys(metadata, source->component, model);
    }
    if (status == LOONG_OK && model->count == 0) {
        status = LOONG_FAIL(source->ctx, LOONG_ERR_MISMATCH,
                            "'%s' has no keys model.%s.* in its metadata",
                            loongi_checkpoint_path(source->checkpoint),
                            source->component);
    }
    if (status == LOONG_OK) {
        status = read_tokens(source->ctx, model, params, metadata, tokens);
    }
    if (status == LOONG_OK) {
        status = export_model(source, model, params, tokens, files.data);
    }
    loongi_pairs_destroy(&tokens);
    loongi_pairs_destroy(&model);
    loongi_text_free(&files);
    return status;
}

loong_status_t
loong_checkpoint_export(loong_context_t *ctx,
                        const loong_checkpoint_export_params_t *params)
{
    native_source_t source = {ctx, NULL, LOONG_FOUNDATION};
    if (params->component != NULL) {
        source.component = params->component;
    }
    LOONG_TRY(
        loongi_checkpoint_open(ctx, params->checkpoint, &source.checkpoint));
    loong_status_t status = export_open(&source, params);
    loongi_checkpoint_close(&source.checkpoint);
    return status;
}
