/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plan asks of the data: segments of a row, steps of a training in
 * epochs, rows of fine-tuning. Called by trainer_create.c and
 * open_data.c. Read
 * run_data.h before. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "complete.h"
#include "resume_check.h"
#include "run_data.h"
#include "view.h"

enum {
    ROW_MULTIPLE = 64,  /* of places in a row */
    ROW_LEAST = 1024,   /* which short samples share */
    ROW_MOST = 1 << 20, /* where the model knows no bound */
    STEP_SAMPLES = 16
};

static const char length_key[] = "data.seq_length";
static const char images_key[] = "data.max_images";
static const char *const lists[] = {"data.train", "data.validation"};

/* The documents in a sample of data set number i of a list. What is wrong with
 * the set the preflight tells. */
static int64_t documents_of(const loong_run_data_t *d, const char *list,
                            int64_t i)
{
    char key[64];
    loong_dataset_t *set = NULL;
    int64_t most = loongi_run_data_row(d);
    snprintf(key, sizeof(key), "%s[%lld].path", list, (long long)i);
    const char *prefix = loong_recipe_text(d->plan->recipe, key);
    const char *name = loongi_run_data_source_class(d, list, i);
    if (strcmp(name, "image_text") == 0 || loongi_run_data_is_chat(name)) {
        return 2; /* a text, and padding */
    }
    if (prefix == NULL ||
        loong_dataset_create(d->plan->ctx, prefix, &set) != LOONG_OK) {
        loong_context_clear_error(d->plan->ctx);
        return most;
    }
    most = loong_dataset_most_documents(set, most);
    loong_dataset_destroy(&set);
    return most;
}

static int64_t most_documents(const loong_run_data_t *d)
{
    int64_t most = 1;
    for (int l = 0; l < LOONG_COUNT_OF(lists); l++) {
        int64_t count = loong_recipe_count(d->plan->recipe, lists[l]);
        for (int64_t i = 0; i < count && most < loongi_run_data_row(d); i++) {
            most = LOONG_MAX(most, documents_of(d, lists[l], i));
        }
    }
    return most;
}

/* Has the run a source whose samples are laid into rows? */
static bool lays_rows(loong_run_data_t *d)
{
    bool lays = d->packed.reader.rows != NULL;
    for (int l = 0; l < LOONG_COUNT_OF(lists); l++) {
        int64_t count = loong_recipe_count(d->plan->recipe, lists[l]);
        for (int64_t i = 0; i < count; i++) {
            const loong_source_class_t *c = NULL;
            if (loong_find_source(d->plan->ctx,
                                  loongi_run_data_source_class(d, lists[l], i),
                                  &c) != LOONG_OK) { /* who opens it tells */
                loong_context_clear_error(d->plan->ctx);
            }
            lays = lays || (c != NULL && c->packs);
        }
    }
    return lays;
}

/* The most that `of` says of a source of the blend; 0 without a blend. */
static int64_t most_of(const loong_blend_t *blend,
                       int64_t (*of)(const loong_source_info_t *info))
{
    loong_blend_info_t info = {0};
    int64_t most = 0;
    if (blend != NULL) {
        loong_blend_get_info(blend, &info);
    }
    for (int64_t i = 0; i < info.num_sources; i++) {
        loong_blend_source_info_t source;
        loong_blend_get_source(blend, i, &source);
        most = LOONG_MAX(most, of(&source.info));
    }
    return most;
}

/* Of the blends that are open. */
static int64_t most_of_all(const loong_run_data_t *d,
                           int64_t (*of)(const loong_source_info_t *info))
{
    int64_t most = most_of(d->blend, of);
    for (int i = 0; i < d->num_validation; i++) {
        most = LOONG_MAX(most, most_of(d->validation[i].blend, of));
    }
    return most;
}

static int64_t row_samples(const loong_source_info_t *info)
{
    return info->pack != NULL ? info->pack->most + 1 : 1;
}

static int64_t video_frames(const loong_source_info_t *info)
{
    return info->most_frames;
}

/* As the recipe says, else what the model and the phase read; NULL: of what is
 * wrong with the model that is not known, and texts are made for the model. */
const char *loongi_run_data_source_class(const loong_run_data_t *d,
                                         const char *list, int64_t i)
{
    char key[64];
    const char *role = loong_recipe_component(d->plan->recipe, 0);
    snprintf(key, sizeof(key), "%s[%lld].source", list, (long long)i);
    const char *name = loong_recipe_text(d->plan->recipe, key);
    bool sees = loong_recipe_component(d->plan->recipe, 1) != NULL;
    bool tunes = loongi_recipe_finetunes(d->plan->recipe);
    if (name != NULL && !d->plan->unknown_model) {
        return sees && strcmp(name, "chat") == 0 ? "image_chat" : name;
    }
    return role == NULL || d->plan->unknown_model ? NULL
           : sees && tunes                      ? "image_chat"
           : sees                               ? "image_text"
           : strcmp(role, "image_encoder") == 0 ? "images"
           : tunes                              ? "chat"
                                                : "tokens";
}

int64_t loongi_blend_most_samples(const loong_blend_t *blend)
{
    return LOONG_MAX(most_of(blend, row_samples), (int64_t)1);
}

/* Texts have as many tokens of a picture as its class has slices, also where no
 * file says how. */
loong_status_t loongi_run_data_text_processors(loong_run_data_t *d)
{
    const char *name =
        loong_recipe_text(d->plan->recipe, "model.image_encoder.family");
    const loong_family_t *family =
        name != NULL ? loong_find_family(d->plan->ctx, name) : NULL;
    bool sliced = family != NULL && family->image_processor != NULL &&
                  loong_image_class_is_sliced(family->image_processor);
    LOONG_TRY(sliced ? loongi_run_data_any_image_processor(d, 0, family, 0)
                     : loongi_run_data_image_processor(d));
    return loongi_run_data_video_processor(d);
}

loong_status_t
loongi_run_data_count_moments(loong_run_data_t *d, int count,
                              const loong_component_params_t *asked)
{
    loong_picture_plan_t *p = &d->plan->pictures[LOONG_MAX(count / 2 - 1, 0)];
    if (count < 2 || !d->plan->reads_data) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_run_data_video_processor(d));
    if (d->video_processor == NULL ||
        loongi_run_data_open_blends(d) != LOONG_OK) { /* that is told later */
        return LOONG_OK;
    }
    int64_t most = most_of_all(d, video_frames);
    int64_t of_frame =
        loong_image_processor_is_sliced(d->video_processor)
            ? loong_image_processor_max_tiles(d->video_processor)
            : 1;
    for (int i = count - 3; i < count - 1 && most > 0; i++) {
        loong_model_facts_t facts = {0};
        asked[i].family->facts(asked[i].config, &facts);
        int64_t each = LOONG_MAX(facts.temporal_patch_size, 1);
        p->tiles = facts.patch_size > 0
                       ? LOONG_MAX(p->tiles,
                                   (most + each - 1) / each * of_frame)
                       : p->tiles;
    }
    return LOONG_OK;
}

/* Without data: as many as there could be. */
static int64_t most_possible(loong_run_data_t *d, bool packed)
{
    bool lays = lays_rows(d);
    bool several = d->plan->set->packing != LOONG_PACK_NONE;
    return packed || (lays && several) ? loongi_run_data_row(d) : lays ? 2 : 1;
}

loong_status_t loongi_run_data_count_segments(loong_run_data_t *d,
                                              int64_t *segments_p)
{
    bool packed =
        loong_recipe_bool(d->plan->recipe, "data.reset_attention_mask");
    int64_t most = d->plan->reads_data ? 1 : most_possible(d, packed);
    if (d->plan->reads_data && lays_rows(d)) {
        LOONG_TRY(loongi_run_data_open_blends(d));
        most = LOONG_MAX(most, most_of_all(d, row_samples));
    }
    if (packed && loong_comm_rank(d->plan->comm) == 0) {
        most = LOONG_MAX(most, most_documents(d));
    }
    most = LOONG_MIN(most, loongi_run_data_row(d));
    LOONG_TRY(loong_comm_broadcast(d->plan->comm, &most, sizeof(most), 0,
                                   "segments of a sample"));
    *segments_p = most;
    return LOONG_OK;
}

loong_status_t loongi_run_data_set_length(loong_run_data_t *d,
                                          loong_train_settings_t *settings)
{
    static const char key[] = "train.epochs";
    loong_blend_info_t info;
    if (settings->epochs == 0.0) {
        return LOONG_OK;
    }
    if (!d->plan->reads_data || d->plan->evaluate_only) {
        if (loong_comm_rank(d->plan->comm) == 0) {
            loongi_log(d->plan->ctx, LOONG_LOG_INFO,
                       "%s: data.train is not read: one step stands for all",
                       key);
        }
        loongi_settings_set_samples(settings->global_batch_size, settings);
        settings->num_samples = 0;
        return LOONG_OK;
    }
    LOONG_TRY(loongi_run_data_open_blends(d));
    loong_blend_get_info(d->blend, &info);
    double samples = floor(settings->epochs * (double)info.epoch_samples + 0.5);
    LOONG_CHECK(d->plan->ctx, samples >= 1.0, LOONG_ERR_CONFIG,
                "%s: %s: %g of %lld samples is none",
                loong_recipe_where(d->plan->recipe, key), key, settings->epochs,
                (long long)info.epoch_samples);
    loongi_settings_set_samples((int64_t)samples, settings);
    return LOONG_OK;
}

/* ---- rows ---------------------------------------------------------------- */

/* Of the samples that rows are made of. */
typedef struct sample_figures {
    int64_t samples, ids, longest;
    int64_t images; /* of one sample, at most */
} sample_figures_t;

/* Samples with pictures. Nothing that is wrong is told: whoever reads tells
 * it. */
static void count_pictures(const loong_blend_source_info_t *source,
                           const loong_picture_reader_t *pictures,
                           sample_figures_t *of)
{
    loong_items_t items = {.sizes = pictures->sizes};
    loong_context_t *ctx = NULL;
    if (source->source_class->peek == NULL ||
        loong_context_create(NULL, &ctx) != LOONG_OK) {
        return;
    }
    items.ctx = ctx;
    for (int64_t i = 0; i < source->info.samples; i++) {
        int64_t images = 0;
        if (source->source_class->peek(source->source, i, &items) != LOONG_OK) {
            break;
        }
        int64_t rows = items.item[0].size[0];
        for (int k = 0; k < items.count; k++) {
            const loong_item_t *item = &items.item[k];
            if (item->type == LOONG_ITEM_IMAGE) {
                loong_picture_rows_t own =
                    pictures->rows(pictures->config, item);
                images++;
                rows += own.text - loong_item_parts(item);
            }
        }
        of->images = LOONG_MAX(of->images, images);
        of->longest = LOONG_MAX(of->longest, rows);
    }
    loong_items_free(&items);
    loong_context_destroy(&ctx);
}

static void count_samples(const loong_blend_t *blend,
                          const loong_picture_reader_t *pictures,
                          sample_figures_t *of)
{
    loong_blend_info_t info = {.num_sources = 0};
    if (blend != NULL) {
        loong_blend_get_info(blend, &info);
    }
    for (int64_t i = 0; i < info.num_sources; i++) {
        loong_blend_source_info_t source;
        loong_blend_get_source(blend, i, &source);
        const loong_pack_info_t *pack = source.info.pack;
        if (pack != NULL) {
            of->samples += pack->samples;
            of->ids += pack->ids;
            of->longest = LOONG_MAX(of->longest, pack->longest);
        } else {
            of->samples += source.info.samples;
            count_pictures(&source, pictures, of);
        }
    }
}

static loong_status_t set_length(loong_run_data_t *d, int64_t length,
                                 const char *origin)
{
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)length);
    return loong_recipe_set(d->plan->recipe, length_key, text, origin);
}

/* Room for the pictures of every micro-batch. */
static loong_status_t set_images(loong_run_data_t *d, int64_t most)
{
    char text[24];
    snprintf(text, sizeof(text), "%lld",
             (long long)(LOONG_MAX(most, 1) *
                         loong_recipe_int(d->plan->recipe,
                                          "train.micro_batch_size")));
    return loong_recipe_is_set(d->plan->recipe, images_key) ||
                   d->plan->set->row_images > 0
               ? LOONG_OK
               : loong_recipe_set(d->plan->recipe, images_key, text,
                                  "the samples with most pictures");
}

/* Rows of a step that have about STEP_SAMPLES samples, or all there are: a
 * power of two, so that the run may go on with other ranks. */
static int64_t step_rows(const loong_run_data_t *d, const sample_figures_t *of)
{
    int64_t each = loong_recipe_int(d->plan->recipe, length_key);
    bool packs = d->plan->set->packing != LOONG_PACK_NONE && of->ids > 0;
    double samples = (double)LOONG_MAX(of->samples, 1);
    double full = packs ? (double)of->ids / samples / (double)each : 1.0;
    full = fmin(full, 1.0); /* what is longer is cut, or refused */
    double rows = round(log2(full * fmin(STEP_SAMPLES, samples)));
    double all = floor(log2(ceil(full * samples)));
    return (int64_t)exp2(fmax(0.0, fmin(rows, all)));
}

/* Rows of a picture of a model that is not known, or has none. */
static loong_picture_rows_t one_row(const void *config,
                                    const loong_item_t *picture)
{
    (void)config, (void)picture;
    return (loong_picture_rows_t){.text = 1};
}

/* The data is opened with rows for the longest text that the model reads; what
 * is longer is refused or cut there as anywhere. */
static loong_status_t measure_samples(loong_run_data_t *d, int count,
                                      const loong_component_params_t *asked,
                                      int64_t most, bool length)
{
    sample_figures_t train = {0};
    loong_encoders_t encoders;
    loong_picture_reader_t pictures = {NULL, one_row, false};
    if (length) {
        LOONG_TRY(set_length(d, most, "the model"));
    }
    LOONG_TRY(loongi_run_data_open_blends(d));
    if (count > 1) {
        LOONG_TRY(
            loongi_run_data_describe_pictures(d, count, asked, &encoders));
        pictures = (loong_picture_reader_t){
            &encoders, loongi_encoders_rows,
            length && loongi_pictures_differ(&encoders)};
    }
    count_samples(d->blend, &pictures, &train);
    sample_figures_t all = train;
    for (int i = 0; i < d->num_validation; i++) {
        count_samples(d->validation[i].blend, &pictures, &all);
    }
    loongi_run_data_close(d);
    if (count > 1) {
        LOONG_TRY(set_images(d, all.images));
    }
    int64_t rounded =
        (all.longest + ROW_MULTIPLE - 1) / ROW_MULTIPLE * ROW_MULTIPLE;
    if (length) {
        int64_t least = train.ids > 0 ? ROW_LEAST : ROW_MULTIPLE;
        LOONG_TRY(set_length(d, LOONG_MIN(LOONG_MAX(rounded, least), most),
                             "the longest sample"));
    }
    return loongi_complete_batch(d->plan, step_rows(d, &train));
}

int64_t loongi_run_data_longest(const loong_run_data_t *d)
{
    static const char key[] =
        "model." LOONG_DEFAULT_ROLE ".max_position_embeddings";
    bool reads =
        strcmp(loongi_model_role(d->plan->recipe), LOONG_DEFAULT_ROLE) == 0;
    return reads ? loong_recipe_int(d->plan->recipe, key) : 0;
}

/* Nothing follows from the samples. */
static bool is_complete(const loong_run_data_t *d)
{
    const loong_recipe_t *r = d->plan->recipe;
    return loong_recipe_is_set(r, length_key) &&
           loong_recipe_is_set(r, "train.global_batch_size") &&
           (loong_recipe_component(r, 1) == NULL ||
            loong_recipe_is_set(r, images_key));
}

loong_status_t
loongi_run_data_complete_rows(loong_run_data_t *d, int count,
                              const loong_component_params_t *asked)
{
    int64_t most = loongi_run_data_longest(d);
    bool length = !loong_recipe_is_set(d->plan->recipe, length_key);
    if (!loongi_recipe_finetunes(d->plan->recipe) || is_complete(d)) {
        return LOONG_OK;
    }
    most = most > 0 ? most : ROW_MOST;
    loong_status_t status =
        !d->plan->reads_data ? LOONG_OK
                             : measure_samples(d, count, asked, most, length);
    if (d->plan->reads_data && status == LOONG_OK) {
        return LOONG_OK;
    }
    /* Of data that is wrong, too, so that it is all that is told. */
    LOONG_TRY(length ? set_length(d, LOONG_MIN(most, ROW_LEAST),
                                  "training_phase: sft")
                     : LOONG_OK);
    return loongi_first_of(status,
                           loongi_complete_batch(d->plan, STEP_SAMPLES));
}
