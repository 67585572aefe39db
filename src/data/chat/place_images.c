/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures and videos in a rendered text: what a token becomes, and which
 * tokens stand for each. Called by encode.c. Read chat.h before. */
#include <math.h>
#include <string.h>

#include "chat.h"
#include "processor.h"

#define VISION_BEGIN "<|vision_start|>"
#define VISION_END "<|vision_end|>"
#define IMAGE_BEGIN "<|begin_of_image|>"
#define IMAGE_END "<|end_of_image|>"

/* ---- as text ------------------------------------------------------------- */

/* Hours of a day, minutes and seconds, cut to thousandths. */
static void put_clock(double seconds, loong_text_t *to)
{
    int64_t whole = (int64_t)seconds;
    loongi_text_printf(to, "%02d:%02d:%02d.%03d", (int)(whole / 3600 % 24),
                       (int)(whole / 60 % 60), (int)(whole % 60),
                       (int)(fmod(seconds, 1.0) * 1000.0));
}

/* The number-th picture or video whose frames are cut into slices: each whole,
 * then rows of slices. */
static void put_slices(const loong_image_processor_t *p, const char *token,
                       const loong_video_t *of, int64_t number,
                       loong_text_t *to)
{
    loong_image_tiles_t tiles =
        loong_image_processor_tiles(p, of->width, of->height, false);
    if (p->numbered) {
        loongi_text_printf(to, "<image_id>%lld</image_id>", (long long)number);
    }
    for (int64_t i = 0; i < of->parts; i++) {
        int64_t slice = i % tiles.count - 1;
        const char *line = slice > 0 && slice % tiles.columns == 0 ? "\n" : "";
        loongi_text_printf(to, slice < 0 ? "%s<image>%s</image>"
                                         : "%s<slice>%s</slice>",
                           line, token);
    }
}

static void put_video(const chat_conversation_t *c, const loong_video_t *video,
                      int64_t number, loong_text_t *to)
{
    const loong_image_processor_t *p = c->rules.videos;
    loong_video_form_t form = loong_video_processor_form(p);
    if (form == LOONG_VIDEO_SLICES) {
        put_slices(p, c->rules.video_token, video, number, to);
        return;
    }
    for (int64_t k = 0; k < video->parts; k++) {
        switch (form) {
        case LOONG_VIDEO_TIMES:
            loongi_text_printf(
                to, "<%.1f seconds>" VISION_BEGIN "%s" VISION_END,
                loong_video_time(p, video, k), c->rules.video_token);
            break;
        case LOONG_VIDEO_CHUNKS:
            put_clock(loong_video_time(p, video, k), to);
            loongi_text_printf(to,
                               "<|media_begin|>video<|media_content|>%s"
                               "<|media_end|>",
                               loong_video_as_pictures(p)
                                   ? c->rules.token
                                   : c->rules.video_token);
            break;
        case LOONG_VIDEO_FRAMES:
            loongi_text_printf(to, "%sFrame%lld: %s", k > 0 ? "\n" : "",
                               (long long)k + 1, c->rules.token);
            break;
        case LOONG_VIDEO_SECONDS:
            loongi_text_printf(to, IMAGE_BEGIN "%s" IMAGE_END "%lld",
                               c->rules.token,
                               (long long)loong_video_time(p, video, k));
            break;
        default:
            loongi_text_printf(to, "%s", c->rules.video_token);
        }
    }
}

/* Places of the worker that stand at `from` or behind move by what was put in
 * place of [from, to). */
typedef struct moving {
    chat_worker_t *w;
    int64_t span, turn; /* the first that have not been moved */
    bool begun;         /* the span's begin has */
} moving_t;

static void move_until(moving_t *m, size_t limit, size_t by)
{
    chat_worker_t *w = m->w;
    while (m->span < w->num_learned) {
        loong_jinja_span_t *s = &w->learned[m->span];
        if (!m->begun && s->begin > limit) {
            break;
        }
        s->begin += m->begun ? 0 : by;
        m->begun = true;
        if (s->end > limit) {
            break;
        }
        s->end += by;
        m->begun = false;
        m->span++;
    }
    while (m->turn < w->num_turns && w->turns[m->turn] <= limit) {
        w->turns[m->turn++] += by;
    }
}

/* A picture or video whose token becomes more than that. */
static bool is_put(const chat_conversation_t *c, const loong_video_t *of,
                   bool video)
{
    return video ? of->frames > 0
                 : of->frames == 0 && loongi_chat_has_slices(&c->rules);
}

/* The next token of either kind, for which one is left from next[kind] on;
 * *video_p: of which. */
static const char *find_put(const chat_conversation_t *c, const char *at,
                            int64_t next[2], bool *video_p)
{
    const char *first = NULL;
    for (int video = 0; video < 2; video++) {
        const char *token = video ? c->rules.video_token : c->rules.token;
        while (next[video] < c->num_images &&
               !is_put(c, &c->images[next[video]], video)) {
            next[video]++;
        }
        const char *found =
            next[video] < c->num_images ? strstr(at, token) : NULL;
        if (found != NULL && (first == NULL || found < first)) {
            first = found;
            *video_p = video;
        }
    }
    return first;
}

loong_status_t loongi_chat_expand(chat_worker_t *w, const char **text_p,
                                  size_t *length_p)
{
    const chat_conversation_t *c = &w->conversation;
    const char *begin = *text_p;
    const char *at = begin;
    const char *end = begin + *length_p;
    const char *found = NULL;
    moving_t m = {.w = w};
    int64_t next[2] = {0}, number[2] = {0};
    bool video = false;
    w->num_inserted = 0;
    w->expanded.length = 0;
    /* Who counts the tokens tells what has none. */
    while ((found = find_put(c, at, next, &video)) != NULL) {
        const loong_video_t *of = &c->images[next[video]++];
        size_t by = w->expanded.length - (size_t)(at - begin);
        move_until(&m, (size_t)(found - begin), by);
        loongi_text_append(&w->expanded, at, (size_t)(found - at));
        LOONG_TRY(loongi_grow(w->ctx, &w->inserted, &w->inserted_room,
                              w->num_inserted + 1, sizeof(*w->inserted),
                              "pictures of a text"));
        loong_jinja_span_t *put = &w->inserted[w->num_inserted++];
        put->begin = w->expanded.length;
        if (video) {
            put_video(c, of, number[1]++, &w->expanded);
        } else {
            put_slices(c->rules.pictures, c->rules.token, of, number[0]++,
                       &w->expanded);
        }
        put->end = w->expanded.length;
        at = found + strlen(video ? c->rules.video_token : c->rules.token);
    }
    if (w->num_inserted == 0) {
        return LOONG_OK;
    }
    move_until(&m, (size_t)-1, w->expanded.length - (size_t)(at - begin));
    loongi_text_append(&w->expanded, at, (size_t)(end - at));
    *text_p = loongi_text_get(&w->expanded);
    *length_p = w->expanded.length;
    return w->expanded.status;
}

/* ---- tokens -------------------------------------------------------------- */

/* The next token that stands for something, from *at on; *at is behind the last
 * one where there is none. */
static int32_t find_token(const chat_worker_t *w, int64_t *at)
{
    for (; *at < w->count; (*at)++) {
        int32_t id = w->ids[*at];
        if (id >= 0 && (id == w->image_id || id == w->video_id)) {
            return id;
        }
    }
    return -1;
}

/* The first that is left of those which a token may stand for; -1: none. */
static int64_t next_of(const chat_worker_t *w, const bool *taken, int32_t id)
{
    const chat_conversation_t *c = &w->conversation;
    bool by_pictures =
        c->rules.videos != NULL &&
        loong_video_processor_form(c->rules.videos) == LOONG_VIDEO_FRAMES;
    for (int64_t i = 0; i < c->num_images; i++) {
        bool video = c->images[i].frames > 0 && !by_pictures;
        if (!taken[i] && id == (video ? w->video_id : w->image_id)) {
            return i;
        }
    }
    return -1;
}

static const char *path_at(const chat_conversation_t *c, int64_t i)
{
    const char *path = c->image_paths.data;
    for (; i > 0; i--) {
        path += strlen(path) + 1;
    }
    return path;
}

/* Templates may put pictures before videos, whatever the order of the contents:
 * those of a kind keep theirs. */
static loong_status_t sort_as_text(chat_worker_t *w, int64_t before)
{
    chat_conversation_t *c = &w->conversation;
    loong_video_t images[LOONG_MAX_ITEMS];
    bool taken[LOONG_MAX_ITEMS] = {false};
    loong_text_t paths = loongi_text_begin(w->ctx);
    int64_t count = 0, at = before;
    while (count < c->num_images) {
        int64_t i = next_of(w, taken, find_token(w, &at));
        if (i < 0) {
            break; /* who counts the tokens tells it */
        }
        taken[i] = true;
        images[count++] = c->images[i];
        loongi_text_append(&paths, path_at(c, i), strlen(path_at(c, i)) + 1);
        for (int64_t k = 0; k < LOONG_MAX(c->images[i].parts, 1); k++) {
            at += find_token(w, &at) >= 0;
        }
    }
    loong_status_t status = paths.status;
    if (status == LOONG_OK && count > 0 && count == c->num_images) {
        memcpy(c->images, images, (size_t)count * sizeof(*images));
        memcpy(c->image_paths.data, paths.data, paths.length);
    }
    loongi_text_free(&paths);
    return status;
}

static loong_status_t add_image(chat_worker_t *w, int64_t before,
                                const loong_video_t *of, int64_t *at,
                                bool *stands_p)
{
    const chat_image_rules_t *rules = &w->conversation.rules;
    bool video = of->frames > 0;
    bool by_pictures = !video || loong_video_as_pictures(rules->videos);
    int64_t parts = LOONG_MAX(of->parts, 1);
    LOONG_TRY(loongi_grow(w->ctx, &w->images, &w->images_room,
                          w->num_images + 1, sizeof(*w->images),
                          "pictures of conversations"));
    LOONG_TRY(loongi_grow(w->ctx, &w->part_at, &w->parts_room,
                          w->num_parts + parts, sizeof(*w->part_at),
                          "parts of videos"));
    chat_image_t *image = &w->images[w->num_images++];
    *image = (chat_image_t){.part_at = w->num_parts, .of = *of};
    for (int64_t k = 0; k < parts; k++) {
        int32_t id = find_token(w, at);
        *stands_p = *stands_p &&
                    id == (by_pictures ? w->image_id : w->video_id) && id >= 0;
        image->at = k == 0 ? *at - before : image->at;
        if (parts > 1) {
            w->part_at[w->num_parts++] = (int32_t)(*at - before - image->at);
        }
        if (*at < w->count) {
            w->weight[(*at)++] = 0;
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_chat_place_images(chat_worker_t *w, int64_t before)
{
    const chat_conversation_t *c = &w->conversation;
    int64_t at = before;
    bool stand = true;
    LOONG_TRY(sort_as_text(w, before));
    for (int64_t i = 0; i < c->num_images; i++) {
        LOONG_TRY(add_image(w, before, &c->images[i], &at, &stand));
    }
    LOONG_CHECK(w->ctx, stand && find_token(w, &at) < 0, LOONG_ERR_FORMAT,
                "'%s'%s%s%s (data.image_token%s) do not stand in the rendered "
                "text once for each of its %lld pictures and videos, in their "
                "order",
                c->rules.token != NULL ? c->rules.token : "",
                c->rules.videos != NULL ? " and '" : "",
                c->rules.videos != NULL ? c->rules.video_token : "",
                c->rules.videos != NULL ? "'" : "",
                c->rules.videos != NULL ? ", data.video_token" : "",
                (long long)c->num_images);
    loongi_text_append(&w->image_paths, c->image_paths.data,
                       c->image_paths.length);
    return w->image_paths.status;
}
