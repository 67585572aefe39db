/* SPDX-License-Identifier: Apache-2.0
 *
 * Labelled pictures as a class of sources. Called through loong_source_class_t;
 * what is in the files is source.c's. Read loong/source.h before. */
#include "source_class.h"

#include <string.h>

#include <xxhash.h>

#include "source.h"

typedef struct pictures {
    loong_context_t *ctx;
    loong_image_source_t *source;
    char *path;
    loong_source_info_t info;
} pictures_t;

static void close_pictures(void *opaque)
{
    pictures_t *p = opaque;
    if (p != NULL) {
        loong_image_source_destroy(&p->source);
        loongi_free(p->ctx, p->path);
        loongi_free(p->ctx, p);
    }
}

/* Of names, without the directories that they are in, sizes of files and
 * labels: a replaced picture seldom has the size of the old one. */
static uint64_t hash_of(const loong_image_source_t *source)
{
    uint64_t hash = (uint64_t)source->count;
    for (int64_t i = 0; i < source->count; i++) {
        const image_entry_t *entry = &source->entries[i];
        const char *slash = strrchr(entry->name, '/');
        const char *name = slash != NULL ? slash + 1 : entry->name;
        int64_t of[] = {entry->length, entry->label};
        hash = XXH3_64bits_withSeed(name, strlen(name), hash);
        hash = XXH3_64bits_withSeed(of, sizeof(of), hash);
    }
    return hash;
}

static loong_status_t open_path(pictures_t *p,
                                const loong_source_params_t *params)
{
    LOONG_CHECK(
        p->ctx, params->split_end == 0.0, LOONG_ERR_CONFIG,
        "data '%s': pictures of '%s' are not split, as those of a class "
        "lie together: data.validation takes a directory of its own",
        params->data, params->path);
    LOONG_TRY(loongi_strdup(p->ctx, params->path, &p->path));
    LOONG_TRY(loong_image_source_create(p->ctx, params->path, &p->source));
    p->info.path = p->path;
    p->info.samples = loong_image_source_samples(p->source);
    p->info.hash = hash_of(p->source);
    return LOONG_OK;
}

static loong_status_t open_pictures(loong_context_t *ctx,
                                    const loong_source_params_t *params,
                                    void **source_p)
{
    pictures_t *p = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*p), "source of pictures", &p));
    p->ctx = ctx;
    loong_status_t status = open_path(p, params);
    if (status != LOONG_OK) {
        close_pictures(p);
        return status;
    }
    *source_p = p;
    return LOONG_OK;
}

static void get_info(const void *source, loong_source_info_t *info)
{
    *info = ((const pictures_t *)source)->info;
}

static loong_status_t add_items(const loong_image_sample_t *sample,
                                loong_items_t *items)
{
    LOONG_TRY(
        loongi_items_picture(items, sample->info.width, sample->info.height));
    loong_item_t *item = items->item;
    item[0].name = sample->name;
    item[1].label = sample->label;
    return loong_image_decode_item(items->ctx, sample, &item[0]);
}

loong_status_t loong_image_decode_item(loong_context_t *ctx,
                                       const loong_image_sample_t *sample,
                                       loong_item_t *item)
{
    const loong_image_decode_params_t params = {.to = item->pixels};
    loong_image_t image;
    LOONG_TRY(loong_image_decode(ctx, sample->name, sample->bytes,
                                 sample->length, &params, &image));
    item->size[0] = image.width;
    item->size[1] = image.height;
    memcpy(item->clear, image.clear, sizeof(image.clear));
    return LOONG_OK;
}

static loong_status_t read_picture(const void *source, int64_t i,
                                   loong_items_t *items)
{
    const pictures_t *p = source;
    loong_image_sample_t sample;
    LOONG_TRY(loong_image_source_read(items->ctx, p->source, i, &sample));
    loong_status_t status = add_items(&sample, items);
    loong_image_sample_free(items->ctx, &sample);
    return status;
}

static loong_status_t peek(const void *source, int64_t i, loong_items_t *items)
{
    const pictures_t *p = source;
    const image_entry_t *entry = &p->source->entries[i];
    loong_image_sample_t sample = {.info = {0}};
    if (items->sizes) {
        LOONG_TRY(loong_image_source_peek(items->ctx, p->source, i, &sample));
    }
    LOONG_TRY(loongi_items_picture(items, 0, 0));
    items->item[0].name = entry->name;
    items->item[0].size[0] = sample.info.width;
    items->item[0].size[1] = sample.info.height;
    items->item[0].pixels = NULL;
    items->item[1].label = entry->label;
    return LOONG_OK;
}

loong_status_t loongi_items_picture(loong_items_t *items, int64_t width,
                                    int64_t height)
{
    enum { PADDING = 64 };
    size_t bytes = (size_t)(width * height) * 3;
    LOONG_TRY(loong_items_begin(items, bytes + PADDING));
    loong_item_t *item = items->item;
    memset(item, 0, 2 * sizeof(*item));
    item[0].type = LOONG_ITEM_IMAGE;
    item[0].size[0] = width;
    item[0].size[1] = height;
    item[0].pixels = loong_items_take(items, bytes);
    item[1].type = LOONG_ITEM_LABEL;
    items->count = 2;
    return LOONG_OK;
}

const loong_source_class_t loongi_image_source = {
    .struct_size = sizeof(loongi_image_source),
    .name = "images",
    .concurrent = true,
    .open = open_pictures,
    .close = close_pictures,
    .get_info = get_info,
    .read = read_picture,
    .peek = peek};
