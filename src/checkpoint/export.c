/* SPDX-License-Identifier: Apache-2.0
 *
 * From a native checkpoint to a Hugging Face directory, or to one of peft's.
 * Called by loong-ckpt export and merge, and by trainer_save.c. Read
 * native_source.h and hf_weights.h before. */
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "hf_code.h"
#include "hf_extra.h"
#include "hf_files.h"
#include "hf_tokens.h"
#include "hf_weights.h"
#include "loong/checkpoint.h"
#include "native_source.h"
#include "peft_export.h"
#include "view.h"
#include "workdir.h"

static int64_t elements_of(const loong_native_source_t *source,
                           const loong_hf_map_t *map, loong_dtype_t dtype)
{
    int64_t elements = 0;
    for (int64_t i = 0; i < loongi_hf_map_count(map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        if (loongi_native_type((void *)source, p->name) == dtype) {
            elements += loongi_shape_count(p->ndim, p->shape);
        }
    }
    return elements;
}

/* The type that config.json names: most weights have it. transformers reads
 * all the others into it. */
static loong_dtype_t most_common_type(const loong_native_source_t *source,
                                      const loong_hf_map_t *map)
{
    static const loong_dtype_t types[] = {LOONG_F64, LOONG_F32, LOONG_BF16,
                                          LOONG_F16};
    loong_dtype_t found = LOONG_F32;
    int64_t most = 0;
    for (int64_t i = 0; i < LOONG_COUNT_OF(types); i++) {
        int64_t elements = elements_of(source, map, types[i]);
        if (elements > most) {
            found = types[i];
            most = elements;
        }
    }
    for (int64_t i = 0; i < loongi_hf_map_count(map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        loong_dtype_t own = loongi_native_type((void *)source, p->name);
        if (!p->exact && loongi_hf_wider(own, found) != found) {
            loongi_log(source->ctx, LOONG_LOG_WARN,
                       "config.json names %s, the type of most weights: "
                       "transformers rounds to it what has more, such as %s "
                       "in %s, unless from_pretrained is given a dtype",
                       loong_dtype_name(found), p->name,
                       loong_dtype_name(own));
            break;
        }
    }
    return found;
}

/* All that decides what is written. */
static void export_key(const loong_native_source_t *source,
                       const loong_checkpoint_export_params_t *params,
                       const loong_hf_export_params_t *hf, loong_text_t *key)
{
    loongi_text_printf(key, "export 2 %s%s %s %lld %s\n", source->component,
                       source->ema     ? " averages"
                       : source->merge ? " merged"
                                       : "",
                       hf->type != NULL ? "saved" : loong_dtype_name(hf->dtype),
                       (long long)hf->max_shard_bytes,
                       params->as != NULL ? params->as : "");
    for (int64_t i = 0; i < hf->tokens->count; i++) {
        loongi_text_printf(key, "%s %s\n", hf->tokens->items[i].key,
                           hf->tokens->items[i].value);
    }
    loongi_workdir_add_source(key,
                              loongi_checkpoint_path(source->checkpoint));
    loongi_workdir_add_source(key, hf->files_dir);
    loongi_workdir_add_source(key, hf->code_dir);
    loongi_workdir_add_source(key, params->map);
}

/* Which files go along: those that the checkpoint keeps, once they are known
 * to be right, or others that were asked for. */
static loong_status_t
choose_files(const loong_native_source_t *source,
             const loong_checkpoint_export_params_t *params,
             const char *kept_files, loong_hf_export_params_t *hf)
{
    bool code = loongi_pairs_get(hf->tokens, LOONG_HF_AUTO_MAP) != NULL &&
                params->map == NULL;
    hf->files_dir = params->tokenizer_dir;
    if (hf->files_dir != NULL && !code) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_checkpoint_verify_hf(source->checkpoint, true));
    if (!loongi_dir_exists(kept_files)) {
        return LOONG_OK;
    }
    if (hf->files_dir == NULL) {
        hf->files_dir = kept_files;
    }
    if (code) {
        hf->code_dir = kept_files;
    }
    return LOONG_OK;
}

/* Those that came from peft's files, and were not trained since, keep the
 * configuration that they had. */
static loong_status_t export_adapters(const loong_native_source_t *source,
                                      const loong_hf_map_t *map,
                                      const char *dir, const char *kept_files)
{
    char from[4096];
    char to[4096];
    LOONG_TRY(loongi_checkpoint_verify_hf(source->checkpoint, true));
    LOONG_TRY(loongi_peft_export(source, map, dir));
    snprintf(from, sizeof(from), "%s/" LOONG_PEFT_CONFIG, kept_files);
    snprintf(to, sizeof(to), "%s/" LOONG_PEFT_CONFIG, dir);
    return loongi_file_exists(from) ? loongi_file_copy(source->ctx, from, to)
                                    : LOONG_OK;
}

static loong_status_t
export_model(loong_native_source_t *source, const loong_pairs_t *model,
             const loong_checkpoint_export_params_t *params,
             const loong_pairs_t *tokens, const char *kept_files)
{
    loong_hf_export_params_t hf;
    loong_hf_map_t *map = NULL;
    bool adapters = loongi_native_has_adapters(source) && !params->merge;
    LOONG_TRY(loongi_native_open_base(source));
    LOONG_TRY(loongi_hf_map_load(source->ctx, model, params->map, &map));
    memset(&hf, 0, sizeof(hf));
    source->merge = params->merge;
    loong_status_t status =
        adapters ? export_adapters(source, map, params->out_dir, kept_files)
                 : loongi_native_check(source, map);
    if (status == LOONG_OK && !adapters) {
        hf.dtype = params->convert ? params->dtype
                                   : most_common_type(source, map);
    }
    loongi_hf_map_destroy(&map);
    if (adapters || status != LOONG_OK) {
        return status;
    }
    LOONG_TRY(loongi_verify_component(source->checkpoint, source->ctx,
                                      source->component, source->ema));
    LOONG_TRY(loongi_checkpoint_map(source->checkpoint));
    hf.dir = params->out_dir;
    hf.model = model;
    hf.type = params->convert ? NULL : loongi_native_type;
    hf.max_shard_bytes = params->max_shard_bytes;
    hf.map = params->map;
    hf.source = loongi_native_read;
    hf.lend = loongi_native_lend;
    hf.user = source;
    hf.progress = params->progress;
    hf.progress_user = params->user;
    hf.tokens = tokens;
    LOONG_TRY(choose_files(source, params, kept_files, &hf));
    loong_text_t key = loongi_text_begin(source->ctx);
    export_key(source, params, &hf, &key);
    status = key.status;
    if (status == LOONG_OK) {
        hf.key = key.data;
        status = loongi_hf_export(source->ctx, &hf);
    }
    loongi_text_free(&key);
    return status;
}

/* What is asked for, else what the run that saved it knew; of code what is
 * kept, for the model's own type. */
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
            LOONG_CHECK(ctx, asked[i] < vocab_size, LOONG_ERR_ARG,
                        "%s: %lld, the vocabulary has 0 to %lld", name,
                        (long long)asked[i], (long long)vocab_size - 1);
            LOONG_TRY(loongi_pairs_set_int(tokens, name, asked[i]));
        } else if (known != NULL && params->tokenizer_dir == NULL) {
            LOONG_TRY(loongi_pairs_set(tokens, name, known));
        }
    }
    LOONG_TRY(loongi_hf_extra_take(metadata, tokens));
    const char *code = loongi_pairs_get(metadata, LOONG_HF_AUTO_MAP);
    return code != NULL && params->as == NULL
               ? loongi_pairs_set(tokens, LOONG_HF_AUTO_MAP, code)
               : LOONG_OK;
}

/* The model's keys, as the type that is asked for has them. */
static loong_status_t
read_model(const loong_native_source_t *source,
           const loong_checkpoint_export_params_t *params,
           const loong_pairs_t *metadata, loong_pairs_t **model_p)
{
    loong_pairs_t *own = NULL;
    LOONG_TRY(loongi_pairs_create(source->ctx, &own));
    loong_status_t status =
        loongi_view_model_keys(metadata, source->component, own);
    if (status == LOONG_OK && own->count == 0) {
        char found[LOONG_VIEW_COMPONENTS];
        status = LOONG_FAIL(source->ctx, LOONG_ERR_MISMATCH,
                            "'%s' has no keys model.%s.* in its metadata; its "
                            "components:%s",
                            loongi_checkpoint_path(source->checkpoint),
                            source->component,
                            loongi_view_list_components(metadata, found));
    }
    /* names of a map are no type's */
    bool free_names = params->map != NULL ||
                      loongi_pairs_get(metadata, LOONG_HF_AUTO_MAP) != NULL;
    if (status == LOONG_OK) {
        status = loongi_hf_model_as(source->ctx, own, params->as, free_names,
                                    model_p);
    }
    loongi_pairs_destroy(&own);
    return status;
}

static loong_status_t
export_open(loong_native_source_t *source,
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
    loong_status_t status = read_model(source, params, metadata, &model);
    if (status == LOONG_OK) {
        status = loongi_pairs_create(source->ctx, &tokens);
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

/* A directory that was asked for and has nothing is a mistake. */
static loong_status_t check_tokenizer(loong_context_t *ctx, const char *dir)
{
    loong_file_set_t *files = NULL;
    if (dir == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_file_set_create(ctx, &files));
    loong_status_t status = loongi_hf_files_read_tokenizer(ctx, dir, files);
    if (status == LOONG_OK && loongi_file_set_count(files) == 0) {
        status = LOONG_FAIL(ctx, LOONG_ERR_NOT_FOUND,
                            "'%s' has no file of a tokenizer (tokenizer.json, "
                            "tokenizer.model, ...)", dir);
    }
    loongi_file_set_destroy(&files);
    return status;
}

/* Of a model of several components the caller names one. */
static loong_status_t check_component(const loong_native_source_t *source,
                                      const char *named)
{
    const loong_pairs_t *meta = loongi_checkpoint_metadata(source->checkpoint);
    LOONG_CHECK(
        source->ctx,
        named != NULL ||
            loongi_pairs_get(meta, "model.image_encoder.family") == NULL ||
            loongi_pairs_get(meta, "model." LOONG_DEFAULT_ROLE ".family") ==
                NULL,
        LOONG_ERR_UNSUPPORTED,
        "%s: has an image encoder and a model that reads it; one of "
        "them is exported, by its name (--component NAME)",
        loongi_checkpoint_path(source->checkpoint));
    return LOONG_OK;
}

static loong_status_t check_averages(const loong_native_source_t *source)
{
    const loong_checkpoint_t *ck = source->checkpoint;
    int64_t i = 0;
    while (source->ema && i < loongi_checkpoint_count(ck) &&
           strcmp(loongi_checkpoint_get(ck, i)->kind, "ema") != 0) {
        i++;
    }
    LOONG_CHECK(source->ctx, !source->ema || i < loongi_checkpoint_count(ck),
                LOONG_ERR_MISMATCH,
                "%s has no averages: the run that saved it has no "
                "optimizer.ema.decay",
                loongi_checkpoint_path(ck));
    return LOONG_OK;
}

loong_status_t
loong_checkpoint_export(loong_context_t *ctx,
                        const loong_checkpoint_export_params_t *params)
{
    loong_native_source_t source = {.ctx = ctx, .ema = params->ema};
    LOONG_CHECK(ctx, params->as == NULL || params->map == NULL, LOONG_ERR_ARG,
                "an export with the names of %s is of no model type, not of "
                "%s", params->map, params->as);
    LOONG_CHECK(ctx, !loongi_checkpoint_is_native(params->out_dir),
                LOONG_ERR_ARG,
                "'%s' is a native checkpoint: another directory is wanted for "
                "an export",
                params->out_dir);
    LOONG_TRY(loongi_checkpoint_check_outside(ctx, params->out_dir));
    LOONG_TRY(check_tokenizer(ctx, params->tokenizer_dir));
    LOONG_TRY(
        loongi_checkpoint_open(ctx, params->checkpoint, &source.checkpoint));
    source.component = params->component != NULL
                           ? params->component
                           : loongi_view_component(
                                 loongi_checkpoint_metadata(source.checkpoint));
    loong_status_t status = check_component(&source, params->component);
    if (status == LOONG_OK) {
        status = check_averages(&source);
    }
    if (status == LOONG_OK) {
        status = export_open(&source, params);
    }
    loongi_hf_close(&source.base);
    loongi_checkpoint_close(&source.checkpoint);
    return status;
}
