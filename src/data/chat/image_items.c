/* SPDX-License-Identifier: Apache-2.0
 *
 * The pictures of a sample as items. Called by source_class.c, from several
 * threads. Read chat.h before. */
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
        loongi_error_note(ctx, "wanted by %s:%lld",
                          chat->files.file[place->file].path,
                          (long long)place->line);
    }
    return status;
}

void loongi_chat_list_images(const loong_chat_t *chat, int64_t i,
                             loong_items_t *items)
{
    const chat_place_t *place = place_of(chat, i);
    pthread_mutex_t *lock = (pthread_mutex_t *)&chat->lock;
    pthread_mutex_lock(lock);
    for (int64_t k = place->images; k < place[1].images; k++) {
        items->item[items->count++] =
            (loong_item_t){.type = LOONG_ITEM_IMAGE,
                           .name = path_of(chat, k),
                           .at = chat->images[k].at,
                           .size = {chat->sizes[k][0], chat->sizes[k][1]}};
    }
    pthread_mutex_unlock(lock);
}

loong_status_t loongi_chat_measure_images(const loong_chat_t *chat, int64_t i,
                                          loong_context_t *ctx)
{
    const chat_place_t *place = place_of(chat, i);
    pthread_mutex_t *lock = (pthread_mutex_t *)&chat->lock;
    for (int64_t k = place->images; k < place[1].images; k++) {
        loong_image_info_t info = {0};
        pthread_mutex_lock(lock);
        bool measured = chat->sizes[k][0] > 0;
        pthread_mutex_unlock(lock);
        if (measured) {
            continue;
        }
        LOONG_TRY(
            noted(chat, i, ctx,
                  loong_image_get_file_info(ctx, path_of(chat, k), &info)));
        pthread_mutex_lock(lock);
        chat->sizes[k][0] = info.width;
        chat->sizes[k][1] = info.height;
        pthread_mutex_unlock(lock);
    }
    return LOONG_OK;
}

static size_t bytes_of(const loong_image_sample_t *image)
{
    return (size_t)(image->info.width * image->info.height) * 3;
}

loong_status_t loongi_chat_read_images(const loong_chat_t *chat, int64_t i,
                                       loong_items_t *items,
                                       loong_image_sample_t *images,
                                       size_t *bytes_p)
{
    enum { PADDING = 64 };
    const chat_place_t *place = place_of(chat, i);
    loong_status_t status =
        items->sizes ? loongi_chat_measure_images(chat, i, items->ctx)
                     : LOONG_OK;
    for (int64_t k = 0; k < place[1].images - place->images; k++) {
        bool wanted = items->picture == 0 || items->picture == k + 1;
        if (wanted && status == LOONG_OK) {
            status = noted(chat, i, items->ctx,
                           loong_image_load(items->ctx,
                                            path_of(chat, place->images + k),
                                            &images[k]));
        }
        *bytes_p += bytes_of(&images[k]) + PADDING;
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
        if (images[k].bytes != NULL) {
            item->pixels = loong_items_take(items, bytes_of(&images[k]));
            LOONG_TRY(noted(
                chat, i, items->ctx,
                loong_image_decode_item(items->ctx, &images[k], item)));
        }
    }
    return LOONG_OK;
}
