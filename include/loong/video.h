/* SPDX-License-Identifier: Apache-2.0
 *
 * Videos: the frames of a file that a family's video processor chooses, and the
 * rows of patches that a vision transformer reads of them. Files are read by
 * libloong_video.so, which is there when the build found FFmpeg's libav*. What
 * is read is a pure function of file and processor. Not collective; several
 * threads may read at once, each with a context of its own.
 */
#ifndef LOONG_VIDEO_H
#define LOONG_VIDEO_H

#include "loong/image.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether video files can be read: the object that does it is there. */
LOONG_API bool loong_video_loads(void);

/* Reads a Hugging Face video_preprocessor_config.json, or the "video_processor"
 * of a processor_config.json, of a Qwen2-VL ("Qwen2VL", also Qwen2.5-VL's),
 * Qwen3-VL ("Qwen3VL"), Kimi-K2.5 ("Kimi_K25"), LLaVA-OneVision
 * ("LlavaOnevision"), InternVL ("InternVL"), ERNIE 4.5 VL ("Ernie4_5_VLMoe"),
 * MiniCPM-V 4.6 ("MiniCPMV4_6") or GLM-4.1V ("Glm4v") video processor.
 * class_name is taken where the file names none, as that of pictures; path
 * NULL: that class's defaults. It is an image processor of videos.
 * Errors: as loong_image_processor_create. */
LOONG_API LOONG_NODISCARD loong_status_t loong_video_processor_create(
    loong_context_t *ctx, const char *path, const char *class_name,
    loong_image_processor_t **processor_p);
/* Frames a second, or frames of a video, whatever the file says (transformers'
 * fps and num_frames); 0: as it says. Errors: LOONG_ERR_CONFIG for both, for
 * frames of a class that has none but by the second (Glm4v), and for either of
 * one that takes a frame a second (MiniCPMV4_6). */
LOONG_API LOONG_NODISCARD loong_status_t loong_video_processor_sample(
    loong_image_processor_t *processor, double fps, int64_t frames);

/* How a video stands in a text, by what its token becomes. */
typedef enum loong_video_form {
    LOONG_VIDEO_NONE,  /* of a processor of pictures */
    LOONG_VIDEO_WHOLE, /* itself (Qwen2-VL) */
    /* "<0.5 seconds>", the token between the tokens of vision's start and end,
     * of each patch's frames (Qwen3-VL) */
    LOONG_VIDEO_TIMES,
    /* "00:00:02.500", the token between those of the begin of a medium,
     * "video" and its content, and of its end, of each chunk (Kimi-K2.5) */
    LOONG_VIDEO_CHUNKS,
    LOONG_VIDEO_FRAMES, /* lines "Frame1: " and the token of a picture
                           (InternVL) */
    /* A picture's token between the tokens of a picture's begin and end, and
     * the whole seconds, of each patch's frames (GLM-4.1V) */
    LOONG_VIDEO_SECONDS,
    /* Each frame as loong_image_processor_is_sliced has a picture (MiniCPM-V
     * 4.6) */
    LOONG_VIDEO_SLICES
} loong_video_form_t;
LOONG_API loong_video_form_t
loong_video_processor_form(const loong_image_processor_t *processor);
/* Its parts have the token of a picture, whatever stands for it in a text. */
LOONG_API bool
loong_video_as_pictures(const loong_image_processor_t *processor);

/* Frames become a multiple of this, the last one repeated. */
LOONG_API int64_t
loong_video_processor_multiple(const loong_image_processor_t *processor);

/* What is known of a video before its frames are decoded. */
typedef struct loong_video {
    int64_t width, height; /* of an upright frame */
    int64_t total;         /* frames of the file */
    double fps;            /* of the file, on the average */
    int64_t frames;        /* that are chosen */
    int64_t parts;         /* tokens of a text that stand for it */
    double seconds; /* from the first frame of a patch to that of the next */
} loong_video_t;

/* Errors: LOONG_ERR_NOT_FOUND; LOONG_ERR_UNSUPPORTED: this build reads no
 * videos; LOONG_ERR_FORMAT: none, or broken, with the libraries' own words;
 * fewer frames than the processor is asked for. */
LOONG_API LOONG_NODISCARD loong_status_t loong_video_measure(
    loong_context_t *ctx, const loong_image_processor_t *processor,
    const char *path, loong_video_t *video);
/* The number in the file of its frame k that is chosen. */
LOONG_API int64_t loong_video_frame(const loong_image_processor_t *processor,
                                    const loong_video_t *video, int64_t k);
/* Seconds at which part k of a text begins and ends, on the mean; at which a
 * chunk or one of LOONG_VIDEO_SECONDS begins. */
LOONG_API double loong_video_time(const loong_image_processor_t *processor,
                                  const loong_video_t *video, int64_t k);
/* Sides of its frames as they are read, resized but for those that are cut into
 * slices; 0: it refuses them. */
LOONG_API void loong_video_size(const loong_image_processor_t *processor,
                                int64_t width, int64_t height, int64_t frames,
                                int64_t size[2]);
/* The chosen frames, of that size: u8 [frames,height,width,3]. Errors: those of
 * measure; LOONG_ERR_MISMATCH: it is not the video that was measured. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_video_read(loong_context_t *ctx, const loong_image_processor_t *processor,
                 const char *path, const loong_video_t *video, uint8_t *pixels);
/* Rescales and normalises such pixels and cuts them into patches: f32
 * [ceil(frames/F)*(H/p)*(W/p), 3*F*p*p], as loong_image_process has those of a
 * picture, F frames of a patch after another; the last one is repeated. */
LOONG_API LOONG_NODISCARD loong_status_t loong_video_process(
    loong_context_t *ctx, const loong_image_processor_t *processor,
    const loong_item_t *item, const loong_patch_cut_t *cut, float *patches);

#ifdef __cplusplus
}
#endif

#endif
