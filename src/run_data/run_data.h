/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run reads: the blends of training and validation, their loaders, and
 * what a plan asks of them. */
#ifndef LOONG_RUN_DATA_H
#define LOONG_RUN_DATA_H

#include "data_check.h"
#include "fields.h"
#include "loong/image.h"
#include "loong/video.h"
#include "loong/loader.h"
#include "plan.h"
#include "upstream_step.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_MAX_VALIDATION = 16, LOONG_MAX_SOURCES = 256 };

typedef struct loong_validation {
    const char *name; /* in the recipe */
    loong_blend_t *blend;
    loong_loader_t *loader;
    loong_images_t images[LOONG_MAX_ENCODERS];
} loong_validation_t;

/* The sources of a blend. */
typedef struct loong_source_list {
    const char *name;      /* of the recipe's list, for messages */
    loong_arena_t *arena;  /* of paths that no recipe has; borrowed */
    int64_t count;
    loong_blend_source_t source[LOONG_MAX_SOURCES];
} loong_source_list_t;

/* Of a row that samples with pictures share. */
typedef struct loong_packed_pictures {
    loong_picture_reader_t reader; /* rows NULL: they share none */
    int32_t patches, images;
} loong_packed_pictures_t;

typedef struct loong_run_data {
    loong_plan_t *plan; /* borrowed; its recipe and readers are completed */
    /* Of each encoder of pictures, or NULL; data.image_processor names the
     * first one. */
    loong_image_processor_t *image_processor[LOONG_MAX_ENCODERS];
    loong_image_processor_t *video_processor; /* of one of videos; NULL */
    loong_packed_pictures_t packed;
    loong_arena_t *arena; /* of the sources' paths */
    bool opened; /* the blends were, with this status */
    loong_status_t status;
    loong_blend_t *blend;
    loong_loader_t *loader;
    loong_images_t images[LOONG_MAX_ENCODERS];
    int num_validation;
    loong_validation_t validation[LOONG_MAX_VALIDATION];
    loong_ids_t ids; /* of a judged plan's data */
} loong_run_data_t;

static inline loong_status_t loongi_first_of(loong_status_t a, loong_status_t b)
{
    return a != LOONG_OK ? a : b;
}

/* ---- data_keys.c ---- */
extern const loong_recipe_table_t loongi_data_keys;

/* ---- open_data.c ---- */
/* data.seq_length; data is looked at beside a recipe that is wrong, too. */
static inline int64_t loongi_run_data_row(const loong_run_data_t *d)
{
    return LOONG_MAX(loong_recipe_int(d->plan->recipe, "data.seq_length"), 1);
}
/* Of source i of data.train or data.validation. */
const char *loongi_run_data_source_class(const loong_run_data_t *d,
                                         const char *list, int64_t i);
/* That of an encoder: the same, or that of its family, for its size. */
LOONG_NODISCARD loong_status_t loongi_run_data_any_image_processor(
    loong_run_data_t *d, int encoder, const loong_family_t *family,
    int64_t image_size);
/* Before a picture is read: what the image processor makes is what the encoder
 * takes. Errors: LOONG_ERR_CONFIG, with the key or the class of defaults. */
LOONG_NODISCARD loong_status_t loongi_run_data_check_processor(
    const loong_run_data_t *d, const loong_component_t *c,
    const loong_patch_params_t *config);
/* Has it a source whose samples are laid into rows? */
bool loongi_blend_packs(const loong_blend_t *blend);
/* Opens what data.image_processor names, once, where it names one, and says how
 * many tiles pictures have. */
LOONG_NODISCARD loong_status_t
loongi_run_data_image_processor(loong_run_data_t *d);
/* Opens that of the videos of the model's image encoder, once, where it reads
 * some. */
LOONG_NODISCARD loong_status_t
loongi_run_data_video_processor(loong_run_data_t *d);
/* Both that texts are made with. */
LOONG_NODISCARD loong_status_t
loongi_run_data_text_processors(loong_run_data_t *d);
/* Before the model is planned: how many moments the longest video has, of a
 * model that reads videos. Opens the blends. Collective. */
LOONG_NODISCARD loong_status_t loongi_run_data_count_moments(
    loong_run_data_t *d, int count, const loong_component_params_t *asked);
/* How samples become the inputs of the model's components. */
LOONG_NODISCARD loong_status_t loongi_run_data_processors(loong_run_data_t *d);
/* The blends of training and validation, once: whoever comes first opens them,
 * all get the status. Collective. */
LOONG_NODISCARD loong_status_t loongi_run_data_open_blends(loong_run_data_t *d);
/* And their loaders, for a model that was planned. Collective. */
LOONG_NODISCARD loong_status_t loongi_run_data_open(loong_run_data_t *d);
void loongi_run_data_close(loong_run_data_t *d);

/* ---- metadataset.c ---- */
/* Adds what the recipe gives as one of `of` sources: itself, or, of a path that
 * ends with .yaml or .yml, the data sets of a part that a metadataset of
 * megatron-energon names, as that mixes them. Errors: LOONG_ERR_CONFIG,
 * LOONG_ERR_UNSUPPORTED, by file and line; those of files. */
LOONG_NODISCARD loong_status_t loongi_source_list_read(
    const loong_run_data_t *d, int64_t of, const char *part,
    const loong_blend_source_t *given, loong_source_list_t *list);

/* ---- plan_data.c ---- */
/* Tokens of a sample that the model knows; 0: no bound. */
int64_t loongi_run_data_longest(const loong_run_data_t *d);
/* data.seq_length and train.global_batch_size of fine-tuning, where they are
 * not set: rows for the longest sample, steps of some samples; data.max_images
 * likewise. The model has these components; 0: it is not known. Collective. */
LOONG_NODISCARD loong_status_t loongi_run_data_complete_rows(
    loong_run_data_t *d, int count, const loong_component_params_t *asked);
/* The most segments that a row can have: one; samples that are laid into it,
 * and padding; or with data.reset_attention_mask as many as documents of the
 * run's data sets have a part in it. Of a plan without data, or data sets that
 * cannot be opened, one a token. Collective. */
LOONG_NODISCARD loong_status_t
loongi_run_data_count_segments(loong_run_data_t *d, int64_t *segments_p);
/* Steps of a training whose length is given in epochs. Collective. */
LOONG_NODISCARD loong_status_t loongi_run_data_set_length(
    loong_run_data_t *d, loong_train_settings_t *settings);
/* Of a row of a blend, at most: its samples, and padding; 1: of one text. */
int64_t loongi_blend_most_samples(const loong_blend_t *blend);

/* ---- costs.c ---- */
/* What samples cost, by which the loader deals micro-batches to ranks, where
 * texts share rows or have pictures and the recipe does not say no: operations
 * by configuration, at the rates of data.costs. Errors: LOONG_ERR_CONFIG and
 * those of files, about data.costs. */
LOONG_NODISCARD loong_status_t
loongi_run_data_set_costs(loong_run_data_t *d, loong_loader_params_t *p);
/* The same for any number of ranks, in the memory of the plan. */
LOONG_NODISCARD loong_status_t loongi_run_data_find_costs(
    const loong_run_data_t *d, const loong_sample_costs_t **costs_p);
/* The names of the parts in a file of costs. */
extern const char *const loongi_cost_parts[LOONG_COST_PARTS];

/* ---- pack_pictures.c ---- */
/* How each encoder of a model has pictures: the config of a
 * loong_picture_reader_t, whose rows are loongi_encoders_rows. Of several the
 * last one has the videos. */
typedef struct loong_encoders {
    int count;
    loong_patch_params_t of[LOONG_MAX_ENCODERS];
} loong_encoders_t;
loong_picture_rows_t loongi_encoders_rows(const void *encoders,
                                          const loong_item_t *picture);
/* Before a model of several components is planned: what is asked for to measure
 * pictures. Errors: those of the image processor. */
LOONG_NODISCARD loong_status_t loongi_run_data_describe_pictures(
    loong_run_data_t *d, int count, const loong_component_params_t *asked,
    loong_encoders_t *encoders);
/* Have they sizes of their own, or numbers of tiles? */
bool loongi_pictures_differ(const loong_encoders_t *encoders);
/* Before data is opened: the rooms of rows that samples with pictures share,
 * where data.packing asks for it, of a model of these components. Errors:
 * LOONG_ERR_CONFIG; those of the image processor. */
LOONG_NODISCARD loong_status_t loongi_run_data_pack_pictures(
    loong_run_data_t *d, int count, const loong_component_params_t *asked,
    loong_arena_t *arena);

/* ---- chat_keys.c ---- */
/* Conversations may be among the data. */
/* A class of conversations, with pictures or without. */
bool loongi_run_data_is_chat(const char *source_class);
bool loongi_run_data_has_chat(const loong_run_data_t *d);
/* data.chat.date, where it is not set: today. Collective. */
LOONG_NODISCARD loong_status_t
loongi_run_data_complete_date(loong_run_data_t *d);
/* Opens a blend, with data.chat where it has conversations. */
LOONG_NODISCARD loong_status_t loongi_run_data_create_blend(
    loong_run_data_t *d, loong_blend_params_t *params, loong_blend_t **blend_p);

/* ---- describe_data.c ---- */
/* The sources of the training, and what the run takes of them; nothing where no
 * data was opened. */
void loongi_run_data_describe(const loong_run_data_t *d, loong_text_t *text);

#ifdef __cplusplus
}
#endif

#endif
