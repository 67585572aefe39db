/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run needs beside its recipe: tokenizer, data, weights, places to
 * write to. All that is wrong is told in one go. Called by trainer_create.c.
 * Read preflight.h before. */
#include "preflight.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <omp.h>

#include "data_check.h"
#include "file.h"
#include "hf_composite.h"
#include "hf_files.h"
#include "run_dirs.h"
#include "stage_load.h"

/* Whoever looks at a run that has ended need not begin another one. What else
 * is wrong stays as it was told. */
static loong_status_t warn_of_unused(const loong_trainer_t *t)
{
    loong_context_t *own = NULL;
    LOONG_TRY(loong_context_create(NULL, &own));
    if (loongi_check_unused(own, t->recipe) != LOONG_OK) {
        loongi_log(t->ctx, LOONG_LOG_WARN, "as it is, a run is refused: %s",
                   loong_context_error(own));
    }
    loong_context_destroy(&own);
    return LOONG_OK;
}

static loong_status_t check_weights(loong_trainer_t *t)
{
    const char *load = NULL;
    LOONG_TRY(
        loongi_find_weights(t->ctx, t->recipe, t->plan.evaluate_only, &load));
    LOONG_TRY(warn_of_unused(t));
    if (load != NULL) {
        loong_status_t status = loongi_trainer_resume(t, load, true);
        if (status != LOONG_OK) {
            loongi_error_note(t->ctx, "wanted by checkpoint.load (%s)",
                              loong_recipe_where(t->recipe, "checkpoint.load"));
        }
        return status;
    }
    loong_status_t status = LOONG_OK;
    for (int i = 0; t->component != NULL && i < t->model->num_components; i++) {
        status = loongi_first_of(
            status, loongi_component_check_init(t->model->components[i]));
    }
    return status;
}

/* A published encoder may come with other figures than its family's, or does
 * not say them. */
static void note_image_processor(const loong_trainer_t *t)
{
    bool named = loong_recipe_is_set(t->recipe, "data.image_processor");
    const char *whole = loong_recipe_text(t->recipe, "model.from_hf");
    for (int i = 0; !named && t->model != NULL && i < t->model->num_components;
         i++) {
        const loong_component_params_t *p = &t->model->components[i]->params;
        const char *dir = p->init != NULL ? p->init : whole;
        char path[PATH_MAX];
        if (dir == NULL || p->family->image_processor == NULL) {
            continue;
        }
        snprintf(path, sizeof(path), "%s/" LOONG_HF_IMAGE_PROCESSOR, dir);
        loongi_log(t->ctx, LOONG_LOG_WARN,
                   "%s is not %s: pictures are processed by "
                   "%sImageProcessor's defaults",
                   path,
                   loongi_file_exists(path)
                       ? "read, data.image_processor does not name it"
                       : "there, and data.image_processor names no other file",
                   p->family->image_processor);
    }
}

/* So that an export says how its pictures were processed: under the name that
 * the file has, where transformers reads that. */
static loong_status_t keep_image_processor(const loong_trainer_t *t)
{
    const char *path =
        t->data.image_processor[0] != NULL
            ? loong_recipe_text(t->recipe, "data.image_processor")
            : NULL;
    const char *slash = path != NULL ? strrchr(path, '/') : NULL;
    const char *name = slash != NULL ? slash + 1 : path;
    bool other =
        path != NULL && strcmp(name, loongi_hf_image_processors[1]) == 0;
    bool written = path != NULL && strcmp(name, "config.json") == 0;
    return path != NULL && !written
               ? loongi_file_set_read(t->saving.artifacts.files, path,
                                      other ? name : LOONG_HF_IMAGE_PROCESSOR)
               : LOONG_OK;
}

/* So that it says where they stand, also of components that were published
 * apart. */
static loong_status_t keep_image_id(const loong_trainer_t *t)
{
    const char *families[LOONG_MODEL_ROLES] = {NULL};
    for (int i = 0; i < t->keys.count; i++) {
        families[i] = loongi_pairs_get(t->keys.keys[i], "family");
    }
    const loong_hf_composite_t *composite =
        t->keys.count == LOONG_HF_PARTS
            ? loongi_hf_composite_of_families(
                  families, t->saving.artifacts.hf_fields, NULL)
            : NULL;
    const char *mark = loong_recipe_text(t->recipe, "data.image_token");
    const char *path = loongi_recipe_tokenizer_path(t->recipe);
    const loong_tokenizer_t *own = t->sampling.tokenizer;
    int32_t id = own != NULL ? loong_tokenizer_token_to_id(own, mark) : -1;
    if (composite == NULL || path == NULL || strcmp(path, "bytes") == 0) {
        return LOONG_OK;
    }
    if (own == NULL &&
        loong_tokenizer_peek_id(t->ctx, path, mark, &id) != LOONG_OK) {
        loong_context_clear_error(t->ctx); /* who reads texts tells it */
    }
    return id >= 0 ? loongi_hf_composite_keep_id(
                         t->ctx, composite, id, t->saving.artifacts.hf_fields)
                   : LOONG_OK;
}

/* Whether the model knows the ids of the data. */
static loong_status_t check_ids(loong_trainer_t *t)
{
    const loong_blend_t *blends[LOONG_MAX_VALIDATION + 1] = {t->data.blend};
    for (int i = 0; i < t->data.num_validation; i++) {
        blends[i + 1] = t->data.validation[i].blend;
    }
    return loongi_data_check_ids(t->ctx, t->data.num_validation + 1, blends,
                                 t->component->facts.vocab_size, &t->data.ids);
}

static loong_status_t check_masks(const loong_trainer_t *t)
{
    for (int i = 0; i < t->data.num_validation; i++) {
        const loong_validation_t *v = &t->data.validation[i];
        if (v->blend != NULL) { /* that is told */
            LOONG_TRY(loongi_data_check_loss(t->ctx, v->blend, v->name));
        }
    }
    return LOONG_OK;
}

/* Types of items that the model reads, as bits. */
static uint32_t reads_of(const loong_trainer_t *t)
{
    uint32_t reads = 0;
    for (int i = 0; t->component != NULL && i < t->model->num_components; i++) {
        const loong_processor_t *p = t->plan.readers[i].processor;
        reads |= p != NULL ? p->reads : 0;
    }
    return reads;
}

/* What no component reads should not be there, nor what a step would refuse. */
static loong_status_t check_items(const loong_trainer_t *t,
                                  const loong_blend_t *blend)
{
    const loong_reader_t *reader = loongi_plan_reader(&t->plan);
    uint32_t reads = reads_of(t);
    if (reads != 0) {
        LOONG_TRY(loongi_data_check_items(t->ctx, blend, reads));
    }
    return reader != NULL && reader->processor->judge != NULL
               ? loongi_data_judge(t->ctx, blend, reader->processor,
                                   reader->config)
               : LOONG_OK;
}

static loong_status_t decode_pictures(const loong_trainer_t *t)
{
    bool sees = (reads_of(t) >> LOONG_ITEM_IMAGE & 1) != 0;
    loong_status_t status = LOONG_OK;
    for (int i = -1; i < t->data.num_validation && sees; i++) {
        const loong_blend_t *blend =
            i < 0 ? t->data.blend : t->data.validation[i].blend;
        if (blend != NULL) { /* that is told */
            status = loongi_first_of(
                status,
                loongi_data_decode(t->ctx, blend, omp_get_max_threads()));
        }
    }
    return status;
}

/* Has an encoder room for the most of a micro-batch of so many samples? */
static loong_status_t check_room(const loong_trainer_t *t, const char *data,
                                 int64_t micro_batch_size, int encoder,
                                 const loong_batch_most_t *most)
{
    const loong_picture_plan_t *p = &t->plan.pictures[encoder];
    const loong_room_t room = loongi_settings_room(&t->set, encoder);
    bool whole = micro_batch_size == t->set.micro_batch_size;
    int64_t images = whole ? p->most : p->text_most;
    int64_t rows = whole ? p->rows : p->text_rows;
    LOONG_CHECK(t->ctx, most->images <= images, LOONG_ERR_CONFIG,
                "%s: %s: found room for %lld, micro-batches of %lld samples of "
                "data '%s' have up to %lld pictures",
                loong_recipe_where(t->recipe, room.images_key), room.images_key,
                (long long)images, (long long)micro_batch_size, data,
                (long long)most->images);
    LOONG_CHECK(t->ctx,
                most->longest <= p->longest || t->set.max_image_patches == 0,
                LOONG_ERR_CONFIG,
                "%s: data.max_image_patches: found %lld, pictures of data '%s' "
                "have up to %lld rows of the image encoder",
                loong_recipe_where(t->recipe, "data.max_image_patches"),
                (long long)t->set.max_image_patches, data,
                (long long)most->longest);
    LOONG_CHECK(t->ctx, most->patches <= rows, LOONG_ERR_CONFIG,
                "%s: %s: there is room for %lld, micro-batches of %lld samples "
                "of data '%s' have pictures of up to %lld",
                loong_recipe_where(t->recipe, room.patches_key),
                room.patches_key, (long long)rows, (long long)micro_batch_size,
                data, (long long)most->patches);
    return LOONG_OK;
}

/* Every micro-batch of so many samples has room for its pictures: that of
 * texts, or a part of it that some encoder has at once. */
static loong_status_t check_most(const loong_trainer_t *t,
                                 const loong_blend_t *blend, int64_t samples,
                                 int64_t micro_batch_size)
{
    loong_batch_most_t most[LOONG_MAX_ENCODERS];
    loong_blend_info_t info;
    loong_blend_get_info(blend, &info);
    LOONG_TRY(loongi_batch_plan_most(t->ctx, blend, micro_batch_size, samples,
                                     &t->plan.picture_reader, most));
    for (int e = 0; e < t->plan.num_encoders; e++) {
        if (micro_batch_size == t->set.micro_batch_size ||
            micro_batch_size == t->plan.pictures[e].samples) {
            LOONG_TRY(
                check_room(t, info.name, micro_batch_size, e, &most[e]));
        }
    }
    return LOONG_OK;
}

/* Samples are gone through once for each size that there is. */
static loong_status_t check_encoders(const loong_trainer_t *t,
                                     const loong_blend_t *blend,
                                     int64_t samples)
{
    int64_t texts = t->set.micro_batch_size;
    int64_t done = texts; /* parts of these */
    LOONG_TRY(check_most(t, blend, samples, texts));
    for (int e = 0; e < t->plan.num_encoders; e++) {
        int64_t part = t->plan.pictures[e].samples;
        if (part < texts && part != done) {
            LOONG_TRY(check_most(t, blend, samples, part));
            done = part;
        }
    }
    return LOONG_OK;
}

/* Pictures have sizes, which stand in their files. */
static bool has_sizes(const loong_trainer_t *t)
{
    bool has = false;
    for (int i = 0; i < t->plan.num_encoders; i++) {
        has = has || t->plan.pictures[i].native;
    }
    return has;
}

/* What a step would refuse is known before the first one. */
static loong_status_t check_samples(const loong_trainer_t *t)
{
    for (int i = -1; i < t->data.num_validation; i++) {
        const loong_blend_t *blend =
            i < 0 ? t->data.blend : t->data.validation[i].blend;
        loong_blend_info_t info;
        if (blend == NULL) { /* that is told */
            continue;
        }
        if (has_sizes(t) && !t->plan.judge) {
            continue; /* every picture would be opened */
        }
        LOONG_TRY(check_items(t, blend));
        if (t->plan.picture_reader.rows == NULL) {
            continue; /* no pictures, or no plan of them */
        }
        loong_blend_get_info(blend, &info);
        int64_t samples =
            LOONG_MIN(i < 0 ? loongi_settings_samples(&t->set)
                            : info.max_samples,
                      info.max_samples);
        LOONG_TRY(check_encoders(t, blend, samples));
    }
    return LOONG_OK;
}

/* A second set of experts that no token reaches is told. */
static void note_vision(const loong_trainer_t *t)
{
    const char *id =
        t->saving.artifacts.hf_fields != NULL
            ? loongi_pairs_get(t->saving.artifacts.hf_fields, "image_token_id")
            : NULL;
    if (t->component != NULL && loong_comm_rank(t->comm) == 0 &&
        loongi_pairs_get(t->keys.keys[t->keys.count - 1],
                         "moe_vision_ffn_hidden_size") != NULL &&
        loong_recipe_count(t->recipe, "data.vision_token_ids") == 0) {
        loongi_log(t->ctx, LOONG_LOG_WARN,
                   "data.vision_token_ids is not set: all tokens go to the "
                   "experts for texts, those for images are not trained%s%s%s",
                   id != NULL ? " (image_token_id of config.json is " : "",
                   id != NULL ? id : "", id != NULL ? ")" : "");
    }
}

loong_status_t loongi_preflight(loong_trainer_t *t)
{
    static const char *const outputs[] = {"export.hf", "checkpoint.save",
                                          "log.dir"};
    loong_status_t status = LOONG_OK;
    if (loong_comm_rank(t->comm) == 0) {
        status = loongi_artifacts_read(t->ctx, t->recipe, &t->saving.artifacts);
        if (status == LOONG_OK) {
            status = keep_image_processor(t);
        }
        if (status == LOONG_OK) {
            status = loongi_sample_open_tokenizer(
                &t->sampling, t->saving.artifacts.hf_fields);
        }
        if (status == LOONG_OK) {
            status = keep_image_id(t);
        }
    }
    status = loongi_first_of(status, loongi_run_data_open(&t->data));
    note_vision(t);
    if (t->plan.judge && !t->plan.evaluate_only) {
        status = loongi_first_of(
            status, loongi_faults_create(t->ctx, t->comm, t->recipe,
                                         &t->supervision.faults));
    }
    if (loong_comm_rank(t->comm) == 0) {
        status = loongi_first_of(status, check_masks(t));
        status = loongi_first_of(status, check_samples(t));
        status = loongi_first_of(
            status, t->plan.decode ? decode_pictures(t) : LOONG_OK);
        note_image_processor(t);
    }
    if (loong_comm_rank(t->comm) != 0 ||
        (t->component != NULL && !t->plan.judge)) {
        return status;
    }
    if (t->data.blend != NULL && t->component != NULL) {
        status = loongi_first_of(
            status, loong_blend_require(t->data.blend,
                                        loongi_settings_samples(&t->set)));
    }
    if (t->component != NULL) {
        status = loongi_first_of(status, check_ids(t));
    }
    status = loongi_first_of(status, check_weights(t));
    for (int64_t i = 0; i < LOONG_COUNT_OF(outputs); i++) {
        status = loongi_first_of(
            status, loongi_check_output(t->ctx, t->recipe, outputs[i]));
    }
    return status;
}
