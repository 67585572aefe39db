/* SPDX-License-Identifier: Apache-2.0
 *
 * Data sets of a run. Called by trainer_create.c and preflight.c. Read
 * run_data.h before. */
#include <stdio.h>
#include <string.h>

#include "complete.h"
#include "loong/packing.h"
#include "run_data.h"
#include "sample.h"

/* ---- opening ------------------------------------------------------------- */

static loong_status_t read_source(const loong_run_data_t *d, const char *list,
                                  int64_t i, loong_blend_source_t *source)
{
    LOONG_FILL_ITEM(d->plan->recipe, list, i, loong_blend_source_t, source);
    LOONG_CHECK(d->plan->ctx, source->path != NULL, LOONG_ERR_CONFIG,
                "%s[%lld].path is not set", list, (long long)i);
    return LOONG_OK;
}

/* An error may come from the split. */
static loong_status_t note_split(loong_run_data_t *d, loong_status_t status)
{
    if (status != LOONG_OK) {
        loongi_error_note(
            d->plan->ctx,
            "data.validation_split %g keeps whole documents, the last ones of "
            "each source, for validation and the others for training",
            d->plan->set->validation_split);
    }
    return status;
}

/* What is known of each source of the training and each validation set. */
typedef struct indices {
    loong_index_digest_t train[LOONG_MAX_SOURCES];
    loong_index_digest_t validation[LOONG_MAX_VALIDATION];
} indices_t;

static void note_indices(const loong_blend_t *blend, int64_t count,
                         loong_index_digest_t *known)
{
    for (int64_t i = 0; i < count; i++) {
        loong_blend_source_info_t source;
        loong_dataset_info_t info;
        loong_blend_get_source(blend, i, &source);
        if (source.info.dataset != NULL) {
            loong_dataset_get_info(source.info.dataset, &info);
            known[i] = info.index;
        }
    }
}

static loong_blend_params_t blend_params(const loong_run_data_t *d,
                                         const char *name,
                                         const loong_blend_source_t *sources,
                                         int64_t count)
{
    loong_blend_params_t params = {
        .name = name,
        .sources = sources,
        .num_sources = count,
        .seq_length = loongi_run_data_row(d),
        .packing = d->plan->set->packing,
        .pictures = d->packed.reader,
        .row_patches = d->packed.patches,
        .row_images = d->packed.images,
        .image_processor = d->image_processor[0],
        .video_processor = d->video_processor,
        .seed = d->plan->set->seed,
        .tokenizer = loongi_recipe_tokenizer_path(d->plan->recipe)};
    LOONG_FILL(d->plan->recipe, "", loong_blend_params_t, &params);
    return params;
}

bool loongi_blend_packs(const loong_blend_t *blend)
{
    loong_blend_info_t info;
    bool packs = false;
    loong_blend_get_info(blend, &info);
    for (int64_t i = 0; i < info.num_sources; i++) {
        loong_blend_source_info_t source;
        loong_blend_get_source(blend, i, &source);
        packs = packs || source.info.pack != NULL;
    }
    return packs;
}

/* Keys of rows go with sources that have texts for them. */
static loong_status_t check_rows(const loong_run_data_t *d,
                                 const loong_blend_t *blend)
{
    static const char *const keys[] = {"data.packing", "data.truncation"};
    bool packs = loongi_blend_packs(blend) ||
                 loong_recipe_component(d->plan->recipe, 1) != NULL;
    for (int i = 0; i < LOONG_COUNT_OF(keys) && !packs; i++) {
        LOONG_CHECK(d->plan->ctx,
                    !loong_recipe_is_set(d->plan->recipe, keys[i]),
                    LOONG_ERR_CONFIG,
                    "%s: %s: no source of data.train has texts to be laid into "
                    "rows; one of class documents has, tokens are cut into "
                    "rows already",
                    loong_recipe_where(d->plan->recipe, keys[i]), keys[i]);
    }
    return LOONG_OK;
}

/* What data.validation_split leaves of each source. */
static loong_status_t split_train(const loong_run_data_t *d,
                                  loong_source_list_t *list)
{
    double split = d->plan->set->validation_split;
    for (int64_t i = 0; i < list->count && split > 0.0; i++) {
        LOONG_CHECK(d->plan->ctx, list->source[i].split_end == 0.0,
                    LOONG_ERR_CONFIG,
                    "data.validation_split: %g of '%s', of which a metadataset "
                    "takes a part (subset) already",
                    split, list->source[i].path);
        list->source[i].split_end = 1.0 - split;
    }
    return LOONG_OK;
}

static loong_status_t open_train(loong_run_data_t *d, indices_t *known,
                                 loong_source_list_t *list)
{
    int64_t count = loong_recipe_count(d->plan->recipe, "data.train");
    double split = d->plan->set->validation_split;
    LOONG_CHECK(d->plan->ctx, count > 0, LOONG_ERR_CONFIG,
                "data.train: 0 sources, a list of 1 to %d paths wanted",
                LOONG_MAX_SOURCES);
    for (int64_t i = 0; i < count; i++) {
        loong_blend_source_t given = {
            .class_name = loongi_run_data_source_class(d, "data.train", i)};
        if (given.class_name == NULL) {
            return LOONG_OK;
        }
        LOONG_TRY(read_source(d, "data.train", i, &given));
        LOONG_TRY(loongi_source_list_read(d, count, "train", &given, list));
    }
    count = list->count;
    for (int64_t i = 0; i < count; i++) {
        list->source[i].known = &known->train[i];
    }
    LOONG_TRY(split_train(d, list));
    loong_blend_params_t params =
        blend_params(d, "train", list->source, count);
    params.shuffle = true;
    loong_status_t status = loongi_run_data_create_blend(d, &params, &d->blend);
    if (status == LOONG_OK) {
        note_indices(d->blend, count, known->train);
        status = check_rows(d, d->blend);
    } else {
        loongi_error_note(d->plan->ctx, "wanted by data.train (%s)",
                          loong_recipe_where(d->plan->recipe, "data.train"));
    }
    return split > 0.0 ? note_split(d, status) : status;
}

static int64_t vision_id(const loong_run_data_t *d, int64_t i)
{
    char key[64];
    snprintf(key, sizeof(key), "data.vision_token_ids[%lld]", (long long)i);
    return loong_recipe_int(d->plan->recipe, key);
}

static loong_token_params_t token_params(const loong_run_data_t *d)
{
    loong_token_params_t p;
    memset(&p, 0, sizeof(p));
    p.vocab_size = d->plan->component->facts.vocab_size;
    p.seq_length = loongi_run_data_row(d);
    p.rows = d->plan->set->micro_batch_size;
    p.context_parallel_rank = d->plan->mesh.coord[LOONG_AXIS_CP];
    p.context_parallel_size = d->plan->mesh.size[LOONG_AXIS_CP];
    p.context_parallel_a2a = d->plan->mesh.cp_a2a;
    LOONG_FILL(d->plan->recipe, "", loong_token_params_t, &p);
    p.num_vision_ids =
        (int)loong_recipe_count(d->plan->recipe, "data.vision_token_ids");
    for (int i = 0; i < p.num_vision_ids; i++) {
        p.vision_ids[i] = (int32_t)vision_id(d, i);
    }
    p.pictures = d->plan->picture_reader;
    p.loss_normalization = d->plan->set->loss_normalization;
    return p;
}

static loong_status_t token_processor(loong_run_data_t *d,
                                      loong_reader_t *reader)
{
    loong_token_params_t *config = NULL;
    LOONG_TRY(loongi_arena_alloc(d->plan->component->arena, sizeof(*config),
                                 &config));
    *config = token_params(d);
    reader->processor = &loong_token_processor;
    reader->config = config;
    reader->rows = d->plan->set->micro_batch_size;
    return LOONG_OK;
}

/* How all encoders have pictures, for whoever reads texts. */
static loong_status_t add_encoder(loong_run_data_t *d, int number,
                                  const loong_patch_params_t *config,
                                  bool sizes)
{
    loong_picture_reader_t *reader = &d->plan->picture_reader;
    loong_encoders_t *encoders = (loong_encoders_t *)reader->config;
    if (encoders == NULL) {
        LOONG_TRY(loongi_arena_alloc(d->plan->component->arena,
                                     sizeof(*encoders), &encoders));
        *reader = (loong_picture_reader_t){encoders, loongi_encoders_rows,
                                           false};
        encoders->count = 0;
    }
    encoders->of[number] = *config;
    encoders->count = LOONG_MAX(encoders->count, number + 1);
    reader->sizes = reader->sizes || sizes;
    return LOONG_OK;
}

static loong_status_t patch_processor(loong_run_data_t *d,
                                      const loong_component_t *c,
                                      loong_reader_t *reader)
{
    const loong_model_facts_t *facts = &c->facts;
    const loong_model_request_t *request = &c->params.request;
    const int number = c->index / 2;
    loong_picture_plan_t *pictures = &d->plan->pictures[number];
    loong_patch_params_t *config = NULL;
    LOONG_TRY(loongi_run_data_any_image_processor(
        d, number, c->params.family, facts->image_size));
    LOONG_TRY(loongi_arena_alloc(c->arena, sizeof(*config), &config));
    config->processor = d->image_processor[number];
    config->max_tiles = pictures->tiles;
    config->video = d->video_processor;
    config->tokens_per_second = facts->tokens_per_second;
    config->image_size = facts->image_size;
    config->cut = (loong_patch_cut_t){
        .patch = facts->patch_size,
        .merge = LOONG_MAX(pictures->merge, 1),
        .frames = LOONG_MAX(facts->temporal_patch_size, 1),
        .channels_last = facts->patch_channels_last,
        .inner = facts->merge_size,
        .chunk = facts->chunk_frames};
    config->cut.window =
        facts->window_size / (config->cut.patch * config->cut.merge);
    config->positions = facts->positions;
    config->packed_tiles = pictures->packed_tiles;
    config->latents = pictures->latents;
    config->merge_frames = pictures->merge_frames;
    config->class_token = facts->class_token;
    config->sends_class_token = facts->sends_class_token;
    config->pool_class_token = facts->pool_class_token;
    config->num_classes = facts->num_classes;
    config->mask_ratio =
        facts->masked_image_modeling
            ? loong_recipe_real(d->plan->recipe, "data.mask_ratio")
            : 0.0;
    config->mask_seed = d->plan->set->seed;
    config->rows = loongi_component_rows(c);
    config->begin = request->rows * c->params.mesh.coord[LOONG_AXIS_CP];
    config->count = request->rows;
    config->pictures = d->plan->num_encoders > 0
                           ? pictures->encoder
                           : config->rows / request->seq_length;
    if (d->plan->num_encoders > 0) {
        LOONG_TRY(loongi_run_data_check_processor(d, c, config));
        LOONG_TRY(add_encoder(d, number, config, pictures->native));
    }
    *reader = (loong_reader_t){&loong_patch_processor, config,
                               config->pictures};
    return LOONG_OK;
}

/* What it packs its rows by: pictures are read as the encoder's, which stands
 * before it. */
static loong_status_t packing_processor(loong_run_data_t *d,
                                        const loong_component_t *c,
                                        loong_reader_t *reader)
{
    int64_t side = loongi_plan_pictures(d->plan, c->index)->side;
    loong_patch_params_t *config = NULL;
    LOONG_TRY(loongi_arena_alloc(c->arena, sizeof(*config), &config));
    *config = *(const loong_patch_params_t *)
                   d->plan->readers[c->index - 1].config;
    config->rows = c->params.request.rows;
    config->packed_rows = c->params.request.packed_rows;
    config->pictures = config->latents + config->merge_frames > 0
                           ? config->packed_rows / LOONG_MAX(config->latents, 1)
                       : config->packed_rows > 0 ? config->rows / (side * side)
                                                 : config->rows;
    *reader = (loong_reader_t){&loong_packing_processor, config,
                               config->pictures};
    return LOONG_OK;
}

/* Other projectors read what is sent to them, and no data. */
loong_status_t loongi_run_data_processors(loong_run_data_t *d)
{
    for (int i = 0; i < d->plan->component->model->num_components; i++) {
        const loong_component_t *c = d->plan->component->model->components[i];
        loong_reader_t *reader = &d->plan->readers[i];
        if (c->params.family->processor != NULL) {
            *reader =
                (loong_reader_t){c->params.family->processor, c->params.config,
                                 d->plan->set->micro_batch_size};
        } else if (c->facts.patch_size > 0) {
            LOONG_TRY(patch_processor(d, c, reader));
        } else if (c->facts.vocab_size > 0) {
            LOONG_TRY(token_processor(d, reader));
        } else if (c->facts.packed_tiles > 0 || c->facts.latents > 0 ||
                   c->facts.merge_frames > 0) {
            LOONG_TRY(packing_processor(d, c, reader));
        }
    }
    return LOONG_OK;
}

/* What all loaders have in common: no blend and no ramp-up. */
static loong_loader_params_t loader_params(const loong_run_data_t *d)
{
    loong_loader_params_t p;
    memset(&p, 0, sizeof(p));
    p.processor = loongi_plan_reader(d->plan)->processor;
    p.config = loongi_plan_reader(d->plan)->config;
    p.micro_batch_size = d->plan->set->micro_batch_size;
    p.global_batch_size = d->plan->set->global_batch_size;
    p.data_parallel_rank = d->plan->mesh.coord[LOONG_AXIS_DP];
    p.data_parallel_size = d->plan->mesh.size[LOONG_AXIS_DP];
    LOONG_FILL(d->plan->recipe, "", loong_loader_params_t, &p);
    return p;
}

/* A set in file order: whole data sets, or what training leaves of them. */
static loong_status_t add_validation(loong_run_data_t *d, const char *name,
                                     const loong_blend_source_t *sources,
                                     int64_t count)
{
    loong_validation_t *v = &d->validation[d->num_validation];
    loong_blend_params_t params = blend_params(d, name, sources, count);
    LOONG_TRY(loongi_run_data_create_blend(d, &params, &v->blend));
    d->num_validation++;
    v->name = name;
    return LOONG_OK;
}

static loong_status_t load_validation(loong_run_data_t *d,
                                      loong_validation_t *v)
{
    loong_blend_info_t info;
    loong_blend_get_info(v->blend, &info);
    loong_loader_params_t p = loader_params(d);
    p.blend = v->blend;
    p.global_batch_size =
        p.micro_batch_size * (int64_t)d->plan->mesh.size[LOONG_AXIS_DP];
    p.num_samples = info.max_samples;
    LOONG_TRY(loong_loader_create(d->plan->ctx, &p, &v->loader));
    return loongi_images_open(d->plan, false, v->loader, &p, v->images);
}

/* The documents that training leaves of each of its sources, blended as it
 * blends them, until the first source has given all. */
static loong_status_t add_held_out(loong_run_data_t *d,
                                   loong_source_list_t *list)
{
    for (int64_t i = 0; i < list->count; i++) {
        list->source[i].split_begin = list->source[i].split_end;
        list->source[i].split_end = 1.0;
        list->source[i].max_epochs = 1;
    }
    return note_split(
        d, add_validation(d, "held out", list->source, list->count));
}

/* Set i of data.validation. */
static loong_status_t open_set(loong_run_data_t *d, int64_t i,
                               loong_index_digest_t *known)
{
    char key[64];
    loong_source_list_t list = {"data.validation", d->arena, 0, {{0}}};
    loong_blend_source_t whole = {
        .max_epochs = 1,
        .class_name = loongi_run_data_source_class(d, "data.validation", i)};
    if (whole.class_name == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(read_source(d, "data.validation", i, &whole));
    snprintf(key, sizeof(key), "data.validation[%lld].name", (long long)i);
    const char *name = loong_recipe_text(d->plan->recipe, key);
    name = name != NULL ? name : "validation";
    LOONG_TRY(loongi_source_list_read(d, 1, name, &whole, &list));
    int before = d->num_validation;
    list.source[0].known = list.count == 1 ? known : NULL;
    loong_status_t status = add_validation(d, name, list.source, list.count);
    if (d->num_validation > before && list.count == 1) {
        note_indices(d->validation[before].blend, 1, known);
    }
    return status;
}

static loong_status_t open_validation(loong_run_data_t *d, indices_t *known,
                                      loong_source_list_t *list)
{
    loong_status_t status = LOONG_OK;
    int64_t count = loong_recipe_count(d->plan->recipe, "data.validation");
    LOONG_CHECK(d->plan->ctx, count < LOONG_MAX_VALIDATION, LOONG_ERR_CONFIG,
                "data.validation: %lld sets, fewer than %d allowed",
                (long long)count, LOONG_MAX_VALIDATION);
    for (int64_t i = 0; i < count; i++) {
        status =
            loongi_first_of(status, open_set(d, i, &known->validation[i]));
    }
    return d->plan->set->validation_split > 0.0 && status == LOONG_OK &&
                   d->blend != NULL
               ? add_held_out(d, list)
               : status;
}

/* An evaluation wants sources of the training only for what it leaves. */
static bool wants_sources(const loong_run_data_t *d)
{
    return !d->plan->evaluate_only ||
           loong_recipe_count(d->plan->recipe, "data.train") > 0 ||
           d->plan->set->validation_split > 0.0;
}

static loong_status_t open_blends(loong_run_data_t *d, indices_t *known)
{
    loong_source_list_t list = {"data.train", NULL, 0, {{0}}};
    loong_status_t status = LOONG_OK;
    if (d->arena == NULL) {
        LOONG_TRY(loongi_arena_create(d->plan->ctx, "sources", &d->arena));
    }
    list.arena = d->arena;
    if (wants_sources(d)) {
        status = open_train(d, known, &list);
    }
    return loongi_first_of(status, open_validation(d, known, &list));
}

/* Rank 0 opens first: it checks the indices that nobody has checked since they
 * were changed, and the others need not where their files are the same. With
 * conversations all do at once: one renders them, which may take longer than a
 * collective may, and the others wait for its lock. */
static loong_status_t open_on_all(loong_run_data_t *d)
{
    indices_t known;
    bool first =
        loong_comm_rank(d->plan->comm) == 0 || loongi_run_data_has_chat(d);
    memset(&known, 0, sizeof(known));
    loong_status_t status = first ? open_blends(d, &known) : LOONG_OK;
    LOONG_TRY(loong_comm_broadcast(d->plan->comm, &known, sizeof(known), 0,
                                   "what is known of the data"));
    return first ? status : open_blends(d, &known);
}

loong_status_t loongi_run_data_open_blends(loong_run_data_t *d)
{
    if (!d->opened) {
        d->opened = true;
        loong_status_t status = loongi_run_data_text_processors(d);
        d->status = status == LOONG_OK ? open_on_all(d) : status;
    }
    return d->status;
}

static loong_status_t load_train(loong_run_data_t *d)
{
    loong_loader_params_t p = loader_params(d);
    LOONG_TRY(loongi_run_data_set_costs(d, &p));
    p.blend = d->blend;
    p.weights = d->plan->shares.weights;
    p.rampup_batch_size = d->plan->set->rampup;
    p.num_samples = d->plan->set->num_samples;
    LOONG_TRY(loong_loader_create(d->plan->ctx, &p, &d->loader));
    return loongi_images_open(d->plan, true, d->loader, &p, d->images);
}

loong_status_t loongi_run_data_open(loong_run_data_t *d)
{
    loong_status_t status = loongi_run_data_open_blends(d);
    bool reads = loongi_plan_reader(d->plan) != NULL;
    if (d->blend != NULL && reads) {
        status = loongi_first_of(status, load_train(d));
    }
    for (int i = 0; i < d->num_validation && reads; i++) {
        status = loongi_first_of(status, load_validation(d, &d->validation[i]));
    }
    return status;
}

void loongi_run_data_close(loong_run_data_t *d)
{
    for (int i = 0; i < d->num_validation; i++) {
        loongi_images_close(d->validation[i].images);
        loong_loader_destroy(&d->validation[i].loader);
        loong_blend_destroy(&d->validation[i].blend);
    }
    loongi_images_close(d->images);
    loong_loader_destroy(&d->loader);
    loong_blend_destroy(&d->blend);
    loongi_arena_destroy(&d->arena);
    d->num_validation = 0;
    d->opened = false;
}
