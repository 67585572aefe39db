/* SPDX-License-Identifier: Apache-2.0
 *
 * Which frames of a video the video processors of transformers read. Called by
 * video.c and by sources of conversations. Read processor.h before. */
#include <inttypes.h>
#include <math.h>

#include <xxhash.h>

#include "loong/video.h"
#include "processor.h"

loong_video_form_t
loong_video_processor_form(const loong_image_processor_t *processor)
{
    return processor->video.form;
}

bool loong_video_as_pictures(const loong_image_processor_t *processor)
{
    return processor->is_media ||
           processor->video.form == LOONG_VIDEO_FRAMES ||
           processor->video.form == LOONG_VIDEO_SECONDS;
}

loong_status_t loong_video_processor_sample(loong_image_processor_t *processor,
                                            double fps, int64_t frames)
{
    video_rules_t *v = &processor->video;
    LOONG_CHECK(processor->ctx, fps == 0.0 || frames == 0, LOONG_ERR_CONFIG,
                "data.video_fps %g and data.video_frames %" PRId64
                ": one of them says which frames of a video are read",
                fps, frames);
    LOONG_CHECK(processor->ctx,
                (frames == 0 && fps == 0.0) || v->form != LOONG_VIDEO_SLICES,
                LOONG_ERR_CONFIG,
                "data.video_fps %g, data.video_frames %" PRId64
                ": a MiniCPMV4_6VideoProcessor takes a frame a second, up to "
                "max_num_frames of its file",
                fps, frames);
    LOONG_CHECK(processor->ctx, frames == 0 || v->form != LOONG_VIDEO_SECONDS,
                LOONG_ERR_CONFIG,
                "data.video_frames %" PRId64 ": a Glm4vVideoProcessor takes "
                "frames by the second, data.video_fps",
                frames);
    if (fps > 0.0 || frames > 0) {
        v->sample = true;
        v->fps = fps;
        v->num_frames = frames;
    }
    return LOONG_OK;
}

int64_t
loong_video_processor_multiple(const loong_image_processor_t *processor)
{
    return LOONG_MAX(processor->video.multiple, 1);
}

uint64_t loongi_processor_hash(const loong_image_processor_t *processor)
{
    const video_rules_t *v = &processor->video;
    const double of[] = {(double)v->form,      v->sample,
                         v->fps,               (double)v->num_frames,
                         (double)v->min_frames, (double)v->max_frames,
                         v->shift,
                         (double)loongi_patch_frames(processor),
                         (double)v->multiple,
                         (double)v->max_seconds,
                         (double)processor->size.slice,
                         (double)processor->max_tiles,
                         processor->tile,
                         processor->numbered,
                         processor->is_media};
    return XXH3_64bits(of, sizeof(of));
}

/* Elements of torch's arange(from, total, step). */
static int64_t range(double from, double total, double step)
{
    return (int64_t)ceil((total - from) / step);
}

static double shift_of(const video_rules_t *v, double total, double wanted)
{
    return v->form != LOONG_VIDEO_FRAMES ? 0.0
           : v->shift < 0.0              ? total / wanted / 2.0
                                         : v->shift;
}

/* Qwen2-VL's frames are as many as whole patches have, between bounds. */
static bool is_bounded(const video_rules_t *v)
{
    return v->form == LOONG_VIDEO_WHOLE && v->max_frames > 0;
}

/* Those of the class that all are made of, LLaVA-OneVision's and Kimi's: at
 * whole parts of the video, rounded down. */
static bool is_plain(const video_rules_t *v)
{
    return (v->form == LOONG_VIDEO_CHUNKS && !v->even) ||
           (v->form == LOONG_VIDEO_WHOLE && v->max_frames == 0);
}

/* The frames that are taken by the second, each once: how many there are, and
 * the number of the k-th or, beyond, of the last. */
static int64_t take_by_second(const video_rules_t *v,
                              const loong_video_t *video, int64_t k,
                              int64_t *number_p)
{
    double seconds = (double)video->total / video->fps;
    bool brief = seconds <= (double)v->max_seconds;
    int64_t n = (int64_t)((brief ? seconds : (double)v->max_seconds) * v->fps);
    bool all = !brief && n >= video->total;
    double step = seconds / (double)LOONG_MAX(n - 1, 1);
    int64_t before = -1;
    int64_t count = 0;
    n = all ? video->total : LOONG_MAX(n, brief);
    for (int64_t i = 0; i < n; i++) {
        double time = i > 0 && i == n - 1 ? seconds : (double)i * step;
        int64_t at = all     ? i
                     : brief ? (int64_t)ceil((double)i * video->fps / v->fps)
                             : (int64_t)ceil(time * video->fps);
        at = LOONG_MIN(at, video->total - 1);
        if (at != before) {
            *number_p = count <= k ? at : *number_p;
            before = at;
            count++;
        }
    }
    return count;
}

/* MiniCPM-V's frames: one of each second, or as many of tenths of seconds as
 * there may be. */
static int64_t take_seconds(const video_rules_t *v, const loong_video_t *video,
                            int64_t k, int64_t *number_p)
{
    double seconds = (double)video->total / video->fps;
    int64_t most = v->max_frames;
    if (seconds <= (double)most) {
        *number_p = (int64_t)((double)k * video->fps);
        return (int64_t)ceil(seconds);
    }
    int64_t last = (int64_t)(seconds / 0.1) - 1;
    double step = (double)last / (double)LOONG_MAX(most - 1, 1);
    int64_t tenth = k > 0 && k == most - 1 ? last : (int64_t)((double)k * step);
    *number_p = LOONG_MIN((int64_t)((double)tenth / 10.0 * video->fps),
                          video->total - 1);
    return most;
}

/* What the processors call num_frames, of a video with a sampling. */
static double wanted_frames(const video_rules_t *v, int64_t each,
                            const loong_video_t *video)
{
    double total = (double)video->total;
    double by_rate = total / video->fps * v->fps;
    double most = (double)LOONG_MIN(v->max_frames, video->total);
    int64_t last = 0;
    if (v->form == LOONG_VIDEO_SECONDS) { /* an even number */
        int64_t count = take_by_second(v, video, 0, &last);
        return (double)(count + count % 2);
    }
    if (v->form == LOONG_VIDEO_SLICES) {
        return (double)take_seconds(v, video, 0, &last);
    }
    if (v->multiple > 0 && v->num_frames == 0) {
        double all = v->fps > 0.0 ? by_rate : total;
        return fmin(fmax(all, (double)v->min_frames), most);
    }
    if (is_bounded(v) && v->num_frames > 0 && v->multiple == 0) {
        return nearbyint((double)v->num_frames / (double)each) * (double)each;
    }
    if (v->num_frames > 0) {
        return (double)v->num_frames;
    }
    if (v->even) {
        double rate = fmin(v->fps, video->fps);
        return fmax(nearbyint(total * rate / video->fps), 1.0);
    }
    if (v->fps == 0.0) {
        return v->form == LOONG_VIDEO_TIMES
                   ? fmin(fmax(total, (double)v->min_frames),
                          (double)v->max_frames)
                   : total;
    }
    if (is_bounded(v)) {
        most = floor(most / (double)each) * (double)each;
        double n =
            fmin(fmin(fmax(by_rate, (double)v->min_frames), most), total);
        return floor(n / (double)each) * (double)each;
    }
    if (v->form == LOONG_VIDEO_TIMES) {
        return trunc(fmin(fmax(trunc(by_rate), (double)v->min_frames), most));
    }
    return fmax(trunc(by_rate), is_plain(v) ? 1.0 : 0.0);
}

/* Every frame, or those of a distance. */
static bool takes_all(const video_rules_t *v)
{
    return !v->sample || (v->form == LOONG_VIDEO_WHOLE && v->num_frames == 0 &&
                          v->fps == 0.0 && v->multiple == 0);
}

/* Of arange or linspace, before they are made a multiple. */
static int64_t chosen_frames(const loong_image_processor_t *p,
                             const loong_video_t *video)
{
    const video_rules_t *v = &p->video;
    double total = (double)video->total;
    if (takes_all(v)) {
        return video->total;
    }
    double wanted = wanted_frames(v, loongi_patch_frames(p), video);
    return v->even || v->form == LOONG_VIDEO_TIMES ||
                   v->form == LOONG_VIDEO_SECONDS ||
                   v->form == LOONG_VIDEO_SLICES || is_plain(v)
               ? (int64_t)wanted
               : range(shift_of(v, total, wanted), total, total / wanted);
}

loong_status_t loongi_video_choose(loong_context_t *ctx, const char *path,
                                   const loong_image_processor_t *p,
                                   loong_video_t *video)
{
    const video_rules_t *v = &p->video;
    int64_t each = loongi_patch_frames(p);
    double total = (double)video->total;
    LOONG_CHECK(ctx,
                v->multiple == 0 || v->num_frames == 0 ||
                    (v->num_frames >= v->min_frames &&
                     v->num_frames <= v->max_frames),
                LOONG_ERR_FORMAT,
                "%s: %" PRId64 " frames are wanted, its video processor takes "
                "%" PRId64 " to %" PRId64 " (min_frames, max_frames)",
                path, v->num_frames, v->min_frames, v->max_frames);
    if (!takes_all(v)) {
        double wanted = wanted_frames(v, each, video);
        bool repeats = v->form == LOONG_VIDEO_TIMES || /* frames, as numpy */
                       v->form == LOONG_VIDEO_SECONDS ||
                       v->form == LOONG_VIDEO_SLICES;
        LOONG_CHECK(ctx, wanted > 0 && (repeats || wanted <= total),
                    LOONG_ERR_FORMAT,
                    "%s: %g of its %" PRId64 " frames are wanted (it "
                    "has %g a second): data.video_fps or data.video_frames "
                    "says how many",
                    path, wanted, video->total, video->fps);
    }
    video->frames = loongi_round_up(chosen_frames(p, video),
                                    loong_video_processor_multiple(p));
    video->parts =
        v->form == LOONG_VIDEO_WHOLE ? 1 : (video->frames + each - 1) / each;
    if (v->form == LOONG_VIDEO_SLICES) {
        video->parts *= loong_image_processor_tiles(p, video->width,
                                                    video->height, false)
                            .count;
    }
    video->seconds =
        (double)each / ((double)video->frames / total * video->fps);
    return LOONG_OK;
}

/* numpy's linspace of whole numbers, and torch's arange in 32 bits. */
int64_t loong_video_frame(const loong_image_processor_t *processor,
                          const loong_video_t *video, int64_t k)
{
    const video_rules_t *v = &processor->video;
    double total = (double)video->total;
    int64_t number = 0;
    k = LOONG_MIN(k, (v->multiple > 0 ? chosen_frames(processor, video)
                                      : video->frames) -
                         1);
    if (takes_all(v)) {
        return k;
    }
    if (v->form == LOONG_VIDEO_SECONDS || v->form == LOONG_VIDEO_SLICES) {
        (void)(v->form == LOONG_VIDEO_SLICES
                   ? take_seconds(v, video, k, &number)
                   : take_by_second(v, video, k, &number));
        return number;
    }
    if (v->form == LOONG_VIDEO_TIMES || v->even) {
        double step = (total - 1.0) / (double)LOONG_MAX(video->frames - 1, 1);
        return k > 0 && k == video->frames - 1
                   ? video->total - 1
                   : (int64_t)nearbyint((double)k * step);
    }
    double wanted = wanted_frames(v, loongi_patch_frames(processor), video);
    if (is_plain(v)) {
        return k * video->total / (int64_t)wanted;
    }
    double from = shift_of(v, total, wanted);
    return (int64_t)(float)(from + (double)k * (total / wanted));
}

double loong_video_time(const loong_image_processor_t *processor,
                        const loong_video_t *video, int64_t k)
{
    int64_t each = loongi_patch_frames(processor);
    int64_t first = loong_video_frame(processor, video, k * each);
    int64_t last = loong_video_frame(processor, video, (k + 1) * each - 1);
    return processor->video.form == LOONG_VIDEO_CHUNKS ||
                   processor->video.form == LOONG_VIDEO_SECONDS
               ? (double)first / video->fps
               : ((double)first / video->fps + (double)last / video->fps) / 2.0;
}
