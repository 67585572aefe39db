/* SPDX-License-Identifier: Apache-2.0
 *
 * Video files by FFmpeg's libav*: what libloong_video.so has, which libloong.so
 * loads when it reads the first one. */
#ifndef LOONG_VIDEO_FILES_H
#define LOONG_VIDEO_FILES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes [offset, offset + length) of a file that stays open. */
typedef struct loong_video_file {
    int fd;
    int64_t offset, length;
} loong_video_file_t;

/* Of the first video stream. */
typedef struct loong_video_stream {
    int64_t width, height; /* as it is stored */
    int64_t frames;        /* that are shown */
    double fps;            /* on the average; 0: it does not say */
    int turns; /* quarter turns clockwise that make it upright, 0 to 3 */
} loong_video_stream_t;

#define LOONG_VIDEO_OBJECT "libloong_video.so"
#define LOONG_VIDEO_FUNCTIONS "loong_video_functions"

/* What is wrong goes into error[size]; 0: nothing is. Several threads may call
 * them at once, each for videos of its own; decoding takes the caller's thread
 * alone. */
typedef struct loong_video_functions {
    int (*open)(const loong_video_file_t *file, loong_video_stream_t *stream,
                char *error, size_t size, void **video_p);
    /* The frame of this number as u8 [height,width,3]; numbers ascend. */
    int (*read)(void *video, int64_t number, uint8_t *pixels, char *error,
                size_t size);
    void (*close)(void *video); /* takes NULL */
} loong_video_functions_t;

#ifdef __cplusplus
}
#endif

#endif
