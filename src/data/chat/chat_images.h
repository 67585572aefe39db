/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures and videos of conversations: where records name them, and as items
 * of samples. A part of chat.h; "images" are both. */
#ifndef LOONG_CHAT_IMAGES_H
#define LOONG_CHAT_IMAGES_H

#include "json.h"
#include "loong/chat.h"
#include "loong/image.h"
#include "loong/video.h"

#ifdef __cplusplus
extern "C" {
#endif

struct chat_conversation;
struct chat_worker;

/* How pictures of a record are found and written. */
typedef struct chat_image_rules {
    const char *token; /* that stands for one; NULL: there are none */
    const char *root;  /* of relative paths; NULL: the directory of the file */
    /* Contents of messages are lists of parts, {"type": "image"} and texts, as
     * the model's own template reads them; else texts with the token. */
    bool parts;
    /* NULL: takes any size. A slice has a token of its own. */
    const loong_image_processor_t *pictures;
    bool decode; /* broken ones are refused, whose heads are whole */
    /* Of videos: NULL: there are none. Their token stands for one in the text
     * of a template, too. */
    const loong_image_processor_t *videos;
    const char *video_token;
} chat_image_rules_t;

static inline bool loongi_chat_has_slices(const chat_image_rules_t *rules)
{
    return rules->token != NULL && rules->pictures != NULL &&
           loong_image_processor_is_sliced(rules->pictures);
}

/* Those that a record lists. */
typedef struct chat_listed {
    const loong_json_t *list; /* a path or a list; or NULL */
    int64_t count, used;
    bool unlisted; /* members of its sample, in the order of their names */
} chat_listed_t;

/* Of a sample. */
typedef struct chat_image {
    int64_t at;       /* which of the sample's tokens stands for it */
    int64_t path;     /* where its path begins among all */
    int64_t part_at;  /* where its parts' places begin among all */
    loong_video_t of; /* frames 0: it is a picture, with nothing known */
} chat_image_t;

/* ---- images.c ------------------------------------------------------------ */

/* What a member of a tar file is by its name: 0 a picture, 1 a video, -1
 * neither. */
int loongi_chat_member_kind(const char *name);
/* "images" or "image" of a record, "videos" or "video". */
LOONG_NODISCARD loong_status_t loongi_chat_take_images(
    struct chat_conversation *c, const loong_json_t *record);
/* The same of plain texts, in which data.image_token stands for them. */
LOONG_NODISCARD loong_status_t loongi_chat_use_images(
    struct chat_conversation *c, const loong_json_t *record);
/* Each of them stands in some message. */
LOONG_NODISCARD loong_status_t
loongi_chat_check_images(const struct chat_conversation *c);
/* Appends a marker for each one that the record lists, where none stands in the
 * text. */
void loongi_chat_put_markers(const struct chat_conversation *c,
                             const char *text, loong_text_t *to);
/* A content, a text or a list of parts, as JSON into c->text. */
LOONG_NODISCARD loong_status_t
loongi_chat_put_content(struct chat_conversation *c,
                        const loong_json_t *content, const char *where);

/* ---- place_images.c ------------------------------------------------------ */

/* What stands for videos and slices of the conversation in a text, with the
 * learned bytes and the turns of the worker moved along: *text_p and *length_p,
 * which the worker has where they are others. */
LOONG_NODISCARD loong_status_t loongi_chat_expand(struct chat_worker *w,
                                                  const char **text_p,
                                                  size_t *length_p);
/* Finds the tokens that stand for them among those of the worker behind the
 * first `before`; nobody learns them. */
LOONG_NODISCARD loong_status_t loongi_chat_place_images(struct chat_worker *w,
                                                        int64_t before);

/* ---- image_items.c ------------------------------------------------------- */

/* Frames of the longest video, as they are chosen; 0: there is none. */
int64_t loongi_chat_most_frames(const loong_chat_t *chat);
/* Of sample i. Adds the items, without pixels. */
void loongi_chat_list_images(const loong_chat_t *chat, int64_t i,
                             loong_items_t *items);
/* Loads those that items->picture wants into images[LOONG_MAX_ITEMS], all zero
 * before, and adds the bytes of their pixels. */
LOONG_NODISCARD loong_status_t loongi_chat_read_images(
    const loong_chat_t *chat, int64_t i, loong_items_t *items,
    loong_image_sample_t *images, size_t *bytes_p);
/* Decodes them into the items that were listed. */
LOONG_NODISCARD loong_status_t loongi_chat_fill_images(
    const loong_chat_t *chat, int64_t i, const loong_image_sample_t *images,
    loong_items_t *items);

#ifdef __cplusplus
}
#endif

#endif
