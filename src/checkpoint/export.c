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

static int64_t elements_of(const loong_native_part_t *part, loong_dtype_t dtype)
{
    int64_t elements = 0;
    for (int64_t i = 0; i < loongi_hf_map_count(part->map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(part->map, i);
        if (loongi_native_type((void *)&part->source, p->name) == dtype) {
            elements += loongi_shape_count(p->ndim, p->shape);
        }
    }
    return elements;
}

/* The type that config.json names: most weights have it. transformers reads
 * all the others into it. */
static loong_dtype_t most_common_type(const loong_native_part_t *parts,
                                      int count)
{
    const loong_native_source_t *source = &parts[0].source;
    static const loong_dtype_t types[] = {LOONG_F64, LOONG_F32, LOONG_BF16,
                                          LOONG_F16};
    loong_dtype_t found = LOONG_F32;
    int64_t most = 0;
    for (int64_t i = 0; i < LOONG_COUNT_OF(types); i++) {
        int64_t elements = 0;
        for (int k = 0; k < count; k++) {
            elements += elements_of(&parts[k], types[i]);
        }
        if (elements > most) {
            found = types[i];
            most = elements;
        }
    }
    for (int64_t i = 0; i < loongi_hf_map_count(parts[count - 1].map); i++) {
        const loong_native_part_t *last = &parts[count - 1];
        const loong_hf_param_t *p = loongi_hf_map_get(last->map, i);
        loong_dtype_t own = loongi_native_type((void *)&last->source, p->name);
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
    bool named = loongi_pairs_get(hf->tokens, LOONG_HF_AUTO_MAP) != NULL;
    bool code = (hf->composite != NULL ? hf->composite->foreign : named) &&
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

/* What is to be written: one component, or those of a whole model. */
typedef struct export {
    loong_context_t *ctx;
    const loong_checkpoint_export_params_t *params;
    loong_checkpoint_t *checkpoint;
    const loong_hf_composite_t *composite; /* NULL: of one component */
    int count;
    loong_native_part_t parts[LOONG_MODEL_ROLES];
    loong_pairs_t *tokens;
    loong_text_t kept_files;
} export_t;

static loong_native_part_t *last_of(export_t *e)
{
    return &e->parts[e->count - 1];
}

static loong_status_t open_parts(export_t *e)
{
    for (int i = 0; i < e->count; i++) {
        loong_native_part_t *part = &e->parts[i];
        LOONG_TRY(loongi_native_open_base(&part->source));
        LOONG_TRY(loongi_hf_map_load(e->ctx, part->model, e->params->map,
                                     &part->map));
        part->source.merge = e->params->merge;
    }
    return LOONG_OK;
}

static void fill_params(export_t *e, loong_hf_export_params_t *hf)
{
    const loong_checkpoint_export_params_t *params = e->params;
    memset(hf, 0, sizeof(*hf));
    hf->dir = params->out_dir;
    hf->type = params->convert ? NULL : loongi_native_type;
    hf->dtype = params->convert ? params->dtype
                                : most_common_type(e->parts, e->count);
    hf->max_shard_bytes = params->max_shard_bytes;
    hf->map = params->map;
    hf->source = loongi_native_read;
    hf->lend = loongi_native_lend;
    hf->progress = params->progress;
    hf->progress_user = params->user;
    hf->tokens = e->tokens;
    hf->composite = e->composite;
    hf->model = e->parts[0].model;
    hf->user = &e->parts[0].source;
}

static loong_status_t write_model(export_t *e)
{
    const loong_pairs_t *models[LOONG_HF_PARTS];
    void *users[LOONG_HF_PARTS];
    loong_hf_export_params_t hf;
    for (int i = 0; i < e->count; i++) {
        const loong_native_source_t *source = &e->parts[i].source;
        LOONG_TRY(loongi_native_check(source, e->parts[i].map));
        LOONG_TRY(loongi_verify_component(e->checkpoint, e->ctx,
                                          source->component, source->ema));
        models[i] = e->parts[i].model;
        users[i] = &e->parts[i].source;
    }
    fill_params(e, &hf);
    hf.models = models;
    hf.users = users;
    LOONG_TRY(loongi_checkpoint_map(e->checkpoint));
    LOONG_TRY(choose_files(&e->parts[0].source, e->params, e->kept_files.data,
                           &hf));
    loong_text_t key = loongi_text_begin(e->ctx);
    export_key(&last_of(e)->source, e->params, &hf, &key);
    loong_status_t status = key.status;
    if (status == LOONG_OK) {
        hf.key = key.data;
        status = loongi_hf_export(e->ctx, &hf);
    }
    loongi_text_free(&key);
    return status;
}

/* Those that came from peft's files, and were not trained since, keep the
 * configuration that they had. */
static loong_status_t write_adapters(export_t *e)
{
    const char *dir = e->params->out_dir;
    char from[4096];
    char to[4096];
    for (int i = 0; i < e->count && e->composite != NULL; i++) {
        LOONG_TRY(loongi_hf_composite_place_as(e->composite, i, NULL,
                                               e->parts[i].map));
    }
    LOONG_TRY(loongi_checkpoint_verify_hf(e->checkpoint, true));
    LOONG_TRY(loongi_peft_export(e->count, e->parts, dir));
    snprintf(from, sizeof(from), "%s/" LOONG_PEFT_CONFIG, e->kept_files.data);
    snprintf(to, sizeof(to), "%s/" LOONG_PEFT_CONFIG, dir);
    return loongi_file_exists(from) ? loongi_file_copy(e->ctx, from, to)
                                    : LOONG_OK;
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
    LOONG_TRY(loongi_hf_composite_take(metadata, tokens));
    const char *code = loongi_pairs_get(metadata, LOONG_HF_AUTO_MAP);
    return code != NULL && params->as == NULL
               ? loongi_pairs_set(tokens, LOONG_HF_AUTO_MAP, code)
               : LOONG_OK;
}

/* The model's keys. */
static loong_status_t read_model(const loong_native_source_t *source,
                                 const loong_pairs_t *metadata,
                                 loong_pairs_t **model_p)
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
    if (status != LOONG_OK) {
        loongi_pairs_destroy(&own);
        return status;
    }
    *model_p = own;
    return LOONG_OK;
}

/* The keys of a part as the type that is asked for has them. */
static loong_status_t name_model(const export_t *e, const loong_pairs_t *meta,
                                 loong_native_part_t *part)
{
    loong_pairs_t *own = part->model;
    part->model = NULL;
    /* names of a map are no type's */
    bool free_names = e->params->map != NULL ||
                      loongi_pairs_get(meta, LOONG_HF_AUTO_MAP) != NULL;
    loong_status_t status =
        e->composite != NULL
            ? loongi_hf_part_as(e->ctx, e->composite, own, e->params->as,
                                &part->model)
            : loongi_hf_model_as(e->ctx, own, e->params->as, free_names,
                                 &part->model);
    loongi_pairs_destroy(&own);
    return status;
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

/* The components that are asked for: one by its name, else all. */
static loong_status_t choose_parts(export_t *e)
{
    const loong_pairs_t *meta = loongi_checkpoint_metadata(e->checkpoint);
    const char *roles[LOONG_MODEL_ROLES];
    const char *families[LOONG_MODEL_ROLES] = {NULL};
    e->count = loongi_view_roles(meta, roles);
    if (e->params->component != NULL) {
        roles[0] = e->params->component;
        e->count = 1;
    }
    for (int i = 0; i < e->count; i++) {
        loong_native_part_t *part = &e->parts[i];
        part->source = (loong_native_source_t){.ctx = e->ctx,
                                               .ema = e->params->ema,
                                               .checkpoint = e->checkpoint,
                                               .component = roles[i]};
        LOONG_TRY(read_model(&part->source, meta, &part->model));
        families[i] = loongi_pairs_get(part->model, "family");
    }
    if (e->count > 1) {
        const char *as = e->params->as;
        e->composite =
            e->count == LOONG_HF_PARTS
                ? loongi_hf_composite_of_families(families, meta, as)
                : NULL;
        LOONG_CHECK(e->ctx, e->composite != NULL && e->params->map == NULL,
                    LOONG_ERR_UNSUPPORTED,
                    "%s: has %d components of families %s, %s, %s%s, which "
                    "%s%s has together; one of them is exported by its name "
                    "(--component NAME)",
                    loongi_checkpoint_path(e->checkpoint), e->count,
                    families[0], families[1],
                    families[2] != NULL ? families[2] : "none",
                    e->count > LOONG_HF_PARTS ? " ..." : "",
                    e->composite != NULL ? "no map"
                    : as != NULL         ? "no model type "
                                         : "no model type",
                    e->composite == NULL && as != NULL ? as : "");
    }
    for (int i = 0; i < e->count; i++) {
        LOONG_TRY(name_model(e, meta, &e->parts[i]));
    }
    return LOONG_OK;
}

static loong_status_t export_open(export_t *e)
{
    const loong_pairs_t *meta = loongi_checkpoint_metadata(e->checkpoint);
    loongi_text_printf(&e->kept_files, "%s/hf",
                       loongi_checkpoint_path(e->checkpoint));
    LOONG_TRY(e->kept_files.status);
    LOONG_TRY(choose_parts(e));
    LOONG_TRY(check_averages(&e->parts[0].source));
    LOONG_TRY(loongi_pairs_create(e->ctx, &e->tokens));
    LOONG_TRY(read_tokens(e->ctx, last_of(e)->model, e->params, meta,
                          e->tokens));
    LOONG_TRY(open_parts(e));
    return loongi_native_has_adapters(&last_of(e)->source) && !e->params->merge
               ? write_adapters(e)
               : write_model(e);
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

loong_status_t
loong_checkpoint_export(loong_context_t *ctx,
                        const loong_checkpoint_export_params_t *params)
{
    export_t e = {.ctx = ctx,
                  .params = params,
                  .kept_files = loongi_text_begin(ctx)};
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
    LOONG_TRY(loongi_checkpoint_open(ctx, params->checkpoint, &e.checkpoint));
    loong_status_t status = export_open(&e);
    for (int i = 0; i < e.count; i++) {
        loongi_hf_map_destroy(&e.parts[i].map);
        loongi_hf_close(&e.parts[i].source.base);
        loongi_pairs_destroy(&e.parts[i].model);
    }
    loongi_pairs_destroy(&e.tokens);
    loongi_text_free(&e.kept_files);
    loongi_checkpoint_close(&e.checkpoint);
    return status;
}
