/* SPDX-License-Identifier: Apache-2.0
 *
 * The video processors of transformers: frames of a file, their size, and their
 * patches; which frames stands in video_frames.c. Called by patch_processor.c
 * and by sources of conversations. Read processor.h and
 * backends/video/video_files.h before. */
#include "loong/video.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec.h"
#include "object.h"
#include "processor.h"
#include "tar.h"
#include "video_files.h"

enum { MAX_ERROR = 256, MAX_PIXELS = 89478485 /* of a frame */ };

static const loong_video_functions_t *find_functions(void)
{
    static const loong_video_functions_t *functions;
    if (functions == NULL) {
        functions =
            loongi_object_symbol(LOONG_VIDEO_OBJECT, LOONG_VIDEO_FUNCTIONS);
    }
    return functions;
}

bool loong_video_loads(void)
{
    return find_functions() != NULL;
}

/* ---- sizes --------------------------------------------------------------- */

/* With a share of the pixels of all frames for each. */
static target_t capped(const loong_image_processor_t *p, int64_t frames)
{
    const video_rules_t *v = &p->video;
    target_t bounds = p->size;
    int64_t unit = p->cut.patch * p->cut.merge;
    int64_t floor_pixels = (int64_t)((double)bounds.min_pixels * 1.05);
    if (!v->cap) {
        return bounds;
    }
    if (v->form == LOONG_VIDEO_TIMES) {
        int64_t each =
            LOONG_MIN(v->max_tokens * unit * unit, bounds.max_pixels / frames);
        bounds.max_pixels = LOONG_MAX(each, floor_pixels) * frames;
        return bounds;
    }
    int64_t all = (int64_t)((double)(v->max_tokens * unit * unit) * 0.9);
    int64_t each = all * loongi_patch_frames(p) / frames;
    bounds.max_pixels =
        LOONG_MAX(LOONG_MIN(bounds.max_pixels, each), floor_pixels);
    return bounds;
}

void loong_video_size(const loong_image_processor_t *processor, int64_t width,
                      int64_t height, int64_t frames, int64_t size[2])
{
    const loong_image_processor_t *p = processor;
    const int64_t of[2] = {width, height};
    size[0] = size[1] = 0;
    if (width < 1 || height < 1 || frames < 1) {
        return;
    }
    if (loongi_processor_is_sliced(p)) {
        size[0] = width;
        size[1] = height;
        return;
    }
    if (!loongi_processor_is_bounded(p)) {
        loong_image_processor_size(p, width, height, &size[0], &size[1]);
        return;
    }
    target_t bounds = capped(p, frames);
    loongi_bounded_size(p, &bounds, of, frames, size);
}

/* ---- files --------------------------------------------------------------- */

/* A file that is open, and its upright size. */
typedef struct opened {
    loong_context_t *ctx;
    const char *path;
    int fd;
    void *video;
    loong_video_stream_t stream;
    char error[MAX_ERROR];
} opened_t;

static void close_video(opened_t *o)
{
    if (o->video != NULL) {
        find_functions()->close(o->video);
    }
    if (o->fd >= 0) {
        close(o->fd);
    }
}

static loong_status_t open_video(opened_t *o)
{
    struct stat info;
    file_part_t part;
    LOONG_CHECK(o->ctx, find_functions() != NULL, LOONG_ERR_UNSUPPORTED,
                "%s: no videos are read, " LOONG_VIDEO_OBJECT " is not beside "
                "this program or in the library path: a whole build, or its "
                "target loong_video, makes it where FFmpeg's libav* are found "
                "(docs/install.md)",
                o->path);
    LOONG_TRY(loongi_file_part(o->ctx, o->path, &part));
    o->fd = open(part.file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    LOONG_CHECK(o->ctx, o->fd >= 0 && fstat(o->fd, &info) == 0, LOONG_ERR_IO,
                "%s: %s", o->path, strerror(errno));
    LOONG_CHECK(o->ctx, S_ISREG(info.st_mode) && part.length > 0,
                LOONG_ERR_FORMAT, "%s: is %s", o->path,
                S_ISREG(info.st_mode) ? "empty" : "no regular file");
    const loong_video_file_t file = {o->fd, part.offset, part.length};
    int code = find_functions()->open(&file, &o->stream, o->error, MAX_ERROR,
                                      &o->video);
    LOONG_CHECK(o->ctx, code == 0, LOONG_ERR_FORMAT, "%s: %s", o->path,
                o->error);
    LOONG_CHECK(o->ctx, o->stream.frames > 0 && o->stream.fps > 0.0,
                LOONG_ERR_FORMAT, "%s: %" PRId64 " frames, %g a second",
                o->path, o->stream.frames, o->stream.fps);
    LOONG_CHECK(o->ctx, o->stream.width <= MAX_PIXELS / o->stream.height,
                LOONG_ERR_UNSUPPORTED,
                "%s: has %" PRId64 " x %" PRId64 " pixels, more than the %d "
                "that are allowed",
                o->path, o->stream.width, o->stream.height, MAX_PIXELS);
    return LOONG_OK;
}

static loong_status_t describe(const opened_t *o,
                               const loong_image_processor_t *p,
                               loong_video_t *video)
{
    const loong_video_stream_t *s = &o->stream;
    int64_t size[2];
    bool exchanged = s->turns % 2 == 1;
    *video = (loong_video_t){.width = exchanged ? s->height : s->width,
                             .height = exchanged ? s->width : s->height,
                             .total = s->frames,
                             .fps = s->fps};
    LOONG_CHECK(o->ctx, !p->video.draw, LOONG_ERR_UNSUPPORTED,
                "%s: the video processor draws the time of each frame into it, "
                "which is not done here: \"draw_on_frames\": false in the file "
                "of data.video_processor leaves it out (the class has true)",
                o->path);
    LOONG_TRY(loongi_video_choose(o->ctx, o->path, p, video));
    loong_video_size(p, video->width, video->height, video->frames, size);
    LOONG_CHECK(o->ctx,
                size[0] > 0 || !p->bounds_all ||
                    video->frames >= loongi_patch_frames(p),
                LOONG_ERR_FORMAT,
                "%s: %" PRId64 " of its %" PRId64 " frames are taken, the "
                "video processor wants at least %" PRId64,
                o->path, video->frames, video->total, loongi_patch_frames(p));
    LOONG_CHECK(o->ctx, size[0] > 0, LOONG_ERR_FORMAT,
                "%s: is %" PRId64 " x %" PRId64 " pixels, longer and narrower "
                "than the video processor takes: one side may be up to %d "
                "times the other",
                o->path, video->width, video->height, LONGEST_SIDE);
    return LOONG_OK;
}

loong_status_t loong_video_measure(loong_context_t *ctx,
                                   const loong_image_processor_t *processor,
                                   const char *path, loong_video_t *video)
{
    opened_t o = {.ctx = ctx, .path = path, .fd = -1};
    loong_status_t status = open_video(&o);
    if (status == LOONG_OK) {
        status = describe(&o, processor, video);
    }
    close_video(&o);
    return status;
}

/* ---- frames -------------------------------------------------------------- */

/* Room for a frame as it is stored, and upright. */
typedef struct frame_room {
    loong_image_t stored, upright;
} frame_room_t;

static loong_status_t take_room(const opened_t *o, const loong_video_t *video,
                                frame_room_t *room)
{
    const loong_video_stream_t *s = &o->stream;
    size_t bytes = (size_t)(s->width * s->height) * CHANNELS;
    room->stored = (loong_image_t){.width = s->width, .height = s->height};
    room->upright =
        (loong_image_t){.width = video->width, .height = video->height};
    LOONG_TRY(loongi_alloc(o->ctx, bytes, "a frame", &room->stored.pixels));
    if (s->turns > 0) {
        return loongi_alloc(o->ctx, bytes, "a frame", &room->upright.pixels);
    }
    return LOONG_OK;
}

/* A frame of the file, upright and at its size, to `to`. */
static loong_status_t read_frame(opened_t *o, const loong_image_processor_t *p,
                                 int64_t number, frame_room_t *room,
                                 loong_image_t *to)
{
    static const int orientations[] = {1, 6, 3, 8};
    loong_image_t *image = &room->stored;
    loong_image_t resized = {0};
    bool as_is = o->stream.turns == 0 && image->width == to->width &&
                 image->height == to->height;
    int code = find_functions()->read(o->video, number,
                                      as_is ? to->pixels : image->pixels,
                                      o->error, MAX_ERROR);
    LOONG_CHECK(o->ctx, code == 0, LOONG_ERR_FORMAT, "%s: %s", o->path,
                o->error);
    if (as_is) {
        return LOONG_OK;
    }
    if (o->stream.turns > 0) {
        loongi_image_orient(orientations[o->stream.turns], image,
                            &room->upright);
        image = &room->upright;
    }
    size_t bytes = (size_t)(to->width * to->height) * CHANNELS;
    if (image->width == to->width && image->height == to->height) {
        memcpy(to->pixels, image->pixels, bytes);
        return LOONG_OK;
    }
    const int64_t size[2] = {to->width, to->height};
    LOONG_TRY(loongi_processor_resize(o->ctx, p, image, size, &resized));
    memcpy(to->pixels, resized.pixels, bytes);
    loong_image_free(o->ctx, &resized);
    return LOONG_OK;
}

/* Rows of pixels of a frame move to where they are in a larger one, which is
 * black on the right and below; NULL: it is none. */
static void fill_up(const loong_image_t *frame, const int64_t size[2])
{
    if (size == NULL) {
        return;
    }
    size_t row = (size_t)size[0] * CHANNELS;
    size_t own = (size_t)frame->width * CHANNELS;
    for (int64_t y = size[1] - 1; y >= 0; y--) {
        uint8_t *to = frame->pixels + (size_t)y * row;
        size_t seen = y < frame->height ? own : 0;
        if (seen > 0) {
            memmove(to, frame->pixels + (size_t)y * own, own);
        }
        memset(to + seen, 0, row - seen);
    }
}

static loong_status_t read_frames(opened_t *o, const loong_image_processor_t *p,
                                  const loong_video_t *video, uint8_t *pixels)
{
    loong_video_t found;
    frame_room_t room = {{0}, {0}};
    int64_t size[2];
    LOONG_TRY(open_video(o));
    LOONG_TRY(describe(o, p, &found));
    LOONG_CHECK(o->ctx,
                found.width == video->width && found.height == video->height &&
                    found.frames == video->frames,
                LOONG_ERR_MISMATCH,
                "%s: is another video than when it was measured", o->path);
    loong_video_size(p, found.width, found.height, found.frames, size);
    loong_image_t to = {.width = size[0], .height = size[1]};
    size_t each = (size_t)(size[0] * size[1]) * CHANNELS;
    loong_status_t status = take_room(o, &found, &room);
    bool fills = false;
    if (loongi_processor_is_padded(p)) {
        int64_t seen[2];
        loongi_seen_size(p, found.width, found.height, seen);
        fills = seen[0] != size[0] || seen[1] != size[1];
        to.width = seen[0];
        to.height = seen[1];
    }
    int64_t before = -1;
    for (int64_t k = 0; k < found.frames && status == LOONG_OK; k++) {
        int64_t number = loong_video_frame(p, &found, k);
        to.pixels = pixels + (size_t)k * each;
        if (number == before) {
            memcpy(to.pixels, to.pixels - each, each);
        } else {
            status = read_frame(o, p, number, &room, &to);
            fill_up(&to, fills ? size : NULL);
        }
        before = number;
    }
    loong_image_free(o->ctx, &room.stored);
    loong_image_free(o->ctx, &room.upright);
    return status;
}

loong_status_t loong_video_read(loong_context_t *ctx,
                                const loong_image_processor_t *processor,
                                const char *path, const loong_video_t *video,
                                uint8_t *pixels)
{
    opened_t o = {.ctx = ctx, .path = path, .fd = -1};
    loong_status_t status = read_frames(&o, processor, video, pixels);
    close_video(&o);
    return status;
}

/* Each frame as a picture. */
static loong_status_t process_slices(loong_context_t *ctx,
                                     const loong_image_processor_t *p,
                                     const loong_item_t *item,
                                     const loong_patch_cut_t *cut,
                                     float *patches)
{
    int64_t elements = CHANNELS * LOONG_MAX(cut->frames, 1);
    int64_t size[2];
    loong_image_t image = {.width = item->size[0], .height = item->size[1]};
    loong_image_tiles_t tiles =
        loong_image_processor_tiles(p, image.width, image.height, false);
    loongi_processor_size(p, cut, image.width, image.height, size);
    int64_t pixels = size[0] * size[1];
    if (tiles.count > 1) {
        loongi_slice_size(p, &tiles, image.width, image.height, size);
        pixels += (tiles.count - 1) * size[0] * size[1];
    }
    for (int64_t k = 0; k < item->frames; k++) {
        image.pixels =
            item->pixels + k * image.width * image.height * CHANNELS;
        LOONG_TRY(loong_image_process(ctx, p, &image, cut,
                                      patches + k * pixels * elements));
    }
    return LOONG_OK;
}

loong_status_t loong_video_process(loong_context_t *ctx,
                                   const loong_image_processor_t *processor,
                                   const loong_item_t *item,
                                   const loong_patch_cut_t *cut, float *patches)
{
    int64_t size[2];
    int64_t each = LOONG_MAX(cut->frames, 1);
    LOONG_TRY(loongi_processor_check_cut(ctx, processor, cut));
    if (loongi_processor_is_sliced(processor)) {
        return process_slices(ctx, processor, item, cut, patches);
    }
    loong_video_size(processor, item->size[0], item->size[1], item->frames,
                     size);
    size_t frame = (size_t)(size[0] * size[1]) * CHANNELS;
    int64_t grid = (size[0] / cut->patch) * (size[1] / cut->patch) * CHANNELS *
                   each * cut->patch * cut->patch;
    for (int64_t k = 0; k < item->frames; k++) {
        const loong_image_t image = {.width = size[0],
                                     .height = size[1],
                                     .pixels =
                                         item->pixels + (size_t)k * frame};
        bool last = k + 1 == item->frames;
        loongi_process_frame(processor, &image, cut, k % each,
                             last ? each : k % each + 1,
                             patches + k / each * grid);
    }
    return LOONG_OK;
}
