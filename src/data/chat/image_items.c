/* SPDX-License-Identifier: Apache-2.0
 *
 * The pictures and videos of a sample as items. Called by source_class.c, from
 * several threads. Read chat.h before. */
#include <string.h>

#include "chat.h"
#include "file.h"

static const chat_place_t *place_of(const loong_chat_t *chat, int64_t i)
{
    return &chat->places[chat->first + i];
}

static const char *path_of(const loong_chat_t *chat, int64_t image)
{
    return chat->image_paths + chat->images[image].path;
}

static loong_status_t noted(const loong_chat_t *chat, int64_t i,
                            loong_context_t *ctx, loong_status_t status)
{
    const chat_place_t *place = place_of(chat, i);
    if (status != LOONG_OK) {
        loongi_error_note(ctx, "wanted by %s:%lld%s",
                          chat->files.file[place->file].path,
                          (long long)place->line,
                          status == LOONG_ERR_FORMAT
                              ? "; data.chat.decode: true refuses such a "
                                "record beforehand"
                              : "");
    }
    return status;
}

int64_t loongi_chat_most_frames(const loong_chat_t *chat)
{
    int64_t most = 0;
    for (int64_t k = 0; k < chat->places[chat->samples].images; k++) {
        most = LOONG_MAX(most, chat->images[k].of.frames);
    }
    return most;
}

void loongi_chat_list_images(const loong_chat_t *chat, int64_t i,
                             loong_items_t *items)
{
    const chat_place_t *place = place_of(chat, i);
    int64_t pictures = 0;
    for (int64_t k = place->images; k < place[1].images; k++) {
        const chat_image_t *image = &chat->images[k];
        const int32_t *part_at =
            image->of.parts > 1 ? chat->part_at + image->part_at : NULL;
        pictures += image->of.frames == 0;
        items->item[items->count++] =
            (loong_item_t){.type = LOONG_ITEM_IMAGE,
                           .name = path_of(chat, k),
                           .at = image->at,
                           .size = {image->of.width, image->of.height},
                           .frames = image->of.frames,
                           .seconds = image->of.seconds,
                           .parts = image->of.parts,
                           .part_at = part_at};
    }
    for (int k = 0; k < items->count; k++) {
        items->item[k].several = pictures > 1;
    }
}

/* Its rows follow from the size that was kept. */
static loong_status_t load(const loong_chat_t *chat, int64_t k,
                           loong_context_t *ctx, loong_image_sample_t *image)
{
    const loong_video_t *of = &chat->images[k].of;
    LOONG_TRY(loong_image_load(ctx, path_of(chat, k), image));
    LOONG_CHECK(ctx,
                image->info.width == of->width &&
                    image->info.height == of->height,
                LOONG_ERR_MISMATCH,
                "'%s' has %lld x %lld pixels, %lld x %lld when the "
                "conversations were prepared: remove '%s'",
                path_of(chat, k), (long long)image->info.width,
                (long long)image->info.height, (long long)of->width,
                (long long)of->height, chat->directory);
    return LOONG_OK;
}

/* Of the pixels of picture k of sample i, or of its video's. */
static size_t bytes_of(const loong_chat_t *chat, int64_t i, int64_t k,
                       const loong_image_sample_t *image)
{
    const loong_video_t *video =
        &chat->images[place_of(chat, i)->images + k].of;
    int64_t size[2] = {image->info.width, image->info.height};
    if (video->frames > 0) {
        loong_video_size(chat->videos, video->width, video->height,
                         video->frames, size);
    }
    return (size_t)(size[0] * size[1] * LOONG_MAX(video->frames, 1)) * 3;
}

static bool is_wanted(const loong_items_t *items, int64_t k)
{
    return items->picture == 0 || items->picture == k + 1;
}

loong_status_t loongi_chat_read_images(const loong_chat_t *chat, int64_t i,
                                       loong_items_t *items,
                                       loong_image_sample_t *images,
                                       size_t *bytes_p)
{
    enum { PADDING = 64 };
    const chat_place_t *place = place_of(chat, i);
    loong_status_t status = LOONG_OK;
    for (int64_t k = 0; k < place[1].images - place->images; k++) {
        bool wanted = is_wanted(items, k);
        bool video = chat->images[place->images + k].of.frames > 0;
        if (wanted && !video && status == LOONG_OK) {
            status = noted(chat, i, items->ctx,
                           load(chat, place->images + k, items->ctx,
                                &images[k]));
        }
        *bytes_p += PADDING + (wanted ? bytes_of(chat, i, k, &images[k]) : 0);
    }
    for (int k = 0; k < LOONG_MAX_ITEMS && status != LOONG_OK; k++) {
        loong_image_sample_free(items->ctx, &images[k]);
    }
    return status;
}

loong_status_t loongi_chat_fill_images(const loong_chat_t *chat, int64_t i,
                                       const loong_image_sample_t *images,
                                       loong_items_t *items)
{
    const chat_place_t *place = place_of(chat, i);
    for (int64_t k = 0; k < place[1].images - place->images; k++) {
        loong_item_t *item = &items->item[1 + k];
        const chat_image_t *image = &chat->images[place->images + k];
        if (!is_wanted(items, k)) {
            continue;
        }
        item->pixels =
            loong_items_take(items, bytes_of(chat, i, k, &images[k]));
        LOONG_TRY(noted(
            chat, i, items->ctx,
            image->of.frames > 0
                ? loong_video_read(items->ctx, chat->videos,
                                   path_of(chat, place->images + k), &image->of,
                                   item->pixels)
                : loong_image_decode_item(items->ctx, &images[k], item)));
    }
    return LOONG_OK;
}
