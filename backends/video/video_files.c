/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of a video file by libavformat, libavcodec and libswscale. Loaded by
 * src/data/images/video_file.c. Read video_files.h before. */
#include "video_files.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/imgutils.h>
#include <libswscale/swscale.h>

enum { BUFFER = 1 << 16, WHOLE = 32 };

typedef struct video {
    loong_video_file_t file;
    int64_t at; /* of its bytes, the next */
    AVIOContext *io;
    AVFormatContext *format;
    AVCodecContext *codec;
    AVStream *stream;
    AVPacket *packet;
    AVFrame *frame;
    struct SwsContext *scale;
    uint8_t *wide; /* a frame with room behind each row */
    int64_t number; /* of the next frame that is shown */
    char *error;
    size_t size;
} video_t;

static int fail(const video_t *v, const char *what, int code)
{
    char why[AV_ERROR_MAX_STRING_SIZE] = "";
    av_strerror(code, why, sizeof(why));
    snprintf(v->error, v->size, "%s%s%s", what, code < 0 ? ": " : "",
             code < 0 ? why : "");
    return -1;
}

/* ---- bytes --------------------------------------------------------------- */

static int read_bytes(void *opaque, uint8_t *to, int size)
{
    video_t *v = opaque;
    int64_t left = v->file.length - v->at;
    size_t n = (size_t)(size < left ? size : left);
    ssize_t got =
        left > 0 ? pread(v->file.fd, to, n, (off_t)(v->file.offset + v->at))
                 : 0;
    if (got <= 0) {
        return got == 0 ? AVERROR_EOF : AVERROR(errno);
    }
    v->at += got;
    return (int)got;
}

static int64_t seek_bytes(void *opaque, int64_t offset, int whence)
{
    video_t *v = opaque;
    int64_t from = whence == SEEK_SET   ? 0
                   : whence == SEEK_CUR ? v->at
                                        : v->file.length;
    if (whence == AVSEEK_SIZE) {
        return v->file.length;
    }
    if (from + offset < 0) {
        return AVERROR(EINVAL);
    }
    return v->at = from + offset;
}

static int open_io(video_t *v)
{
    uint8_t *buffer = av_malloc(BUFFER);
    v->format = avformat_alloc_context();
    v->io = buffer != NULL ? avio_alloc_context(buffer, BUFFER, 0, v,
                                                read_bytes, NULL, seek_bytes)
                           : NULL;
    if (v->io == NULL || v->format == NULL) {
        av_free(v->io == NULL ? buffer : NULL);
        return fail(v, "out of memory", 0);
    }
    v->format->pb = v->io;
    int code = avformat_open_input(&v->format, NULL, NULL, NULL);
    return code < 0 ? fail(v, "is no video that is known", code) : 0;
}

/* ---- what it says -------------------------------------------------------- */

/* Quarter turns clockwise. */
static int turns_of(const AVStream *s)
{
    const uint8_t *matrix = NULL;
#if LIBAVCODEC_VERSION_MAJOR >= 61
    const AVPacketSideData *data = av_packet_side_data_get(
        s->codecpar->coded_side_data, s->codecpar->nb_coded_side_data,
        AV_PKT_DATA_DISPLAYMATRIX);
    matrix = data != NULL ? data->data : NULL;
#else
    matrix = av_stream_get_side_data(s, AV_PKT_DATA_DISPLAYMATRIX, NULL);
#endif
    double degrees =
        matrix != NULL
            ? -av_display_rotation_get((const int32_t *)(const void *)matrix)
            : 0.0;
    return isnan(degrees) ? 0 : (int)lround(degrees / 90.0 + 8.0) % 4;
}

/* By the index where it has all, else by what the file says, else all are
 * looked at: frames that an edit list takes away are not shown. */
static int64_t listed_frames(AVStream *s)
{
    int entries = avformat_index_get_entries_count(s);
    int64_t shown = 0;
    for (int i = 0; i < entries; i++) {
        const AVIndexEntry *e = avformat_index_get_entry(s, i);
        shown += (e->flags & AVINDEX_DISCARD_FRAME) == 0;
    }
    return s->nb_frames > 0 && entries >= s->nb_frames ? shown : s->nb_frames;
}

static int count_frames(video_t *v, int64_t *frames_p)
{
    *frames_p = listed_frames(v->stream);
    if (*frames_p > 0) {
        return 0;
    }
    int code = 0;
    while ((code = av_read_frame(v->format, v->packet)) >= 0) {
        *frames_p += v->packet->stream_index == v->stream->index &&
                     (v->packet->flags & AV_PKT_FLAG_DISCARD) == 0;
        av_packet_unref(v->packet);
    }
    if (code != AVERROR_EOF) {
        return fail(v, "is cut off or broken", code);
    }
    if (*frames_p == 0) {
        return fail(v, "has no frames", 0);
    }
    code =
        avformat_seek_file(v->format, -1, INT64_MIN, INT64_MIN, INT64_MAX, 0);
    return code < 0 ? fail(v, "does not say how many frames it has, and cannot "
                              "be read once more to count them", code)
                    : 0;
}

static int open_decoder(video_t *v)
{
    const AVCodec *decoder =
        avcodec_find_decoder(v->stream->codecpar->codec_id);
    if (decoder == NULL) {
        snprintf(v->error, v->size, "libavcodec has no decoder of %s",
                 avcodec_get_name(v->stream->codecpar->codec_id));
        return -1;
    }
    v->codec = avcodec_alloc_context3(decoder);
    v->packet = av_packet_alloc();
    v->frame = av_frame_alloc();
    if (v->codec == NULL || v->packet == NULL || v->frame == NULL) {
        return fail(v, "out of memory", 0);
    }
    int code = avcodec_parameters_to_context(v->codec, v->stream->codecpar);
    v->codec->thread_count = 1;
    v->codec->pkt_timebase = v->stream->time_base;
    code = code < 0 ? code : avcodec_open2(v->codec, decoder, NULL);
    if (code < 0) {
        return fail(v, "its decoder does not start", code);
    }
    return 0;
}

static int open_stream(video_t *v, loong_video_stream_t *s)
{
    int code = avformat_find_stream_info(v->format, NULL);
    if (code < 0) {
        return fail(v, "is cut off or broken", code);
    }
    int number = -1;
    for (unsigned i = 0; i < v->format->nb_streams && number < 0; i++) {
        const AVStream *one = v->format->streams[i];
        bool video = one->codecpar->codec_type == AVMEDIA_TYPE_VIDEO &&
                     (one->disposition & AV_DISPOSITION_ATTACHED_PIC) == 0;
        number = video ? (int)i : -1;
    }
    if (number < 0) {
        return fail(v, "has no video stream", 0);
    }
    v->stream = v->format->streams[number];
    for (unsigned i = 0; i < v->format->nb_streams; i++) {
        v->format->streams[i]->discard =
            (int)i == number ? AVDISCARD_DEFAULT : AVDISCARD_ALL;
    }
    if (open_decoder(v) != 0) {
        return -1;
    }
    s->width = v->codec->width;
    s->height = v->codec->height;
    s->turns = turns_of(v->stream);
    AVRational rate = v->stream->avg_frame_rate;
    s->fps = rate.num > 0 && rate.den > 0 ? av_q2d(rate) : 0.0;
    if (s->width < 1 || s->height < 1) {
        return fail(v, "has frames without a size", 0);
    }
    return count_frames(v, &s->frames);
}

/* ---- frames -------------------------------------------------------------- */

/* As PyAV's to_ndarray("rgb24"): bilinear, by the matrix and the range that the
 * frame says. */
static int convert(video_t *v, uint8_t *pixels)
{
    const AVFrame *f = v->frame;
    int whole = (f->width + WHOLE - 1) / WHOLE * WHOLE;
    uint8_t *to[4] = {pixels, NULL, NULL, NULL};
    int stride[4] = {3 * whole, 0, 0, 0};
    if (f->width != v->codec->width || f->height != v->codec->height) {
        return fail(v, "changes its size", 0);
    }
    v->scale = sws_getCachedContext(
        v->scale, f->width, f->height, (enum AVPixelFormat)f->format, f->width,
        f->height, AV_PIX_FMT_RGB24, SWS_BILINEAR, NULL, NULL, NULL);
    /* Its fast functions leave the last columns alone where a row ends. */
    if (whole > f->width && v->wide == NULL) {
        v->wide = av_malloc((size_t)stride[0] * (size_t)f->height);
    }
    to[0] = whole > f->width ? v->wide : pixels;
    if (to[0] == NULL) {
        return fail(v, "out of memory", 0);
    }
    if (v->scale == NULL) {
        return fail(v, "has pixels that libswscale does not know", 0);
    }
    const int *matrix = sws_getCoefficients(f->colorspace);
    (void)sws_setColorspaceDetails(v->scale, matrix,
                                   f->color_range == AVCOL_RANGE_JPEG, matrix,
                                   1, 0, 1 << 16, 1 << 16);
    int rows = sws_scale(v->scale, (const uint8_t *const *)f->data, f->linesize,
                         0, f->height, to, stride);
    for (int y = 0; y < rows && whole > f->width; y++) {
        memcpy(pixels + (size_t)y * 3 * (size_t)f->width,
               v->wide + (size_t)y * (size_t)stride[0], 3 * (size_t)f->width);
    }
    return rows == f->height ? 0 : fail(v, "libswscale made no picture", 0);
}

/* The next frame of the decoder; *more_p false: there is none. */
static int next_frame(video_t *v, bool *more_p)
{
    for (;;) {
        int code = avcodec_receive_frame(v->codec, v->frame);
        *more_p = code >= 0;
        if (code >= 0 || code == AVERROR_EOF) {
            return 0;
        }
        if (code != AVERROR(EAGAIN)) {
            return fail(v, "is cut off or broken", code);
        }
        code = av_read_frame(v->format, v->packet);
        if (code < 0 && code != AVERROR_EOF) {
            return fail(v, "is cut off or broken", code);
        }
        bool other = code >= 0 && v->packet->stream_index != v->stream->index;
        if (!other) {
            code = avcodec_send_packet(v->codec, code < 0 ? NULL : v->packet);
        }
        av_packet_unref(v->packet);
        if (!other && code < 0) {
            return fail(v, "is cut off or broken", code);
        }
    }
}

static int read_frame(void *video, int64_t number, uint8_t *pixels, char *error,
                      size_t size)
{
    video_t *v = video;
    v->error = error;
    v->size = size;
    for (;;) {
        bool more = false;
        if (next_frame(v, &more) != 0) {
            return -1;
        }
        if (!more) {
            snprintf(error, size,
                     "is cut off or broken: of its frames %lld can be read, "
                     "number %lld is wanted",
                     (long long)v->number, (long long)number);
            return -1;
        }
        if (v->number++ == number) {
            return convert(v, pixels);
        }
    }
}

/* ---- the whole ----------------------------------------------------------- */

static void close_video(void *video)
{
    video_t *v = video;
    if (v == NULL) {
        return;
    }
    sws_freeContext(v->scale);
    av_free(v->wide);
    av_frame_free(&v->frame);
    av_packet_free(&v->packet);
    avcodec_free_context(&v->codec);
    avformat_close_input(&v->format);
    if (v->io != NULL) {
        av_freep(&v->io->buffer);
        avio_context_free(&v->io);
    }
    free(v);
}

static int open_video(const loong_video_file_t *file,
                      loong_video_stream_t *stream, char *error, size_t size,
                      void **video_p)
{
    video_t *v = calloc(1, sizeof(*v));
    if (v == NULL) {
        snprintf(error, size, "out of memory");
        return -1;
    }
    v->file = *file;
    v->error = error;
    v->size = size;
    int code = open_io(v);
    if (code == 0) {
        code = open_stream(v, stream);
    }
    if (code != 0) {
        close_video(v);
        return code;
    }
    *video_p = v;
    return 0;
}

__attribute__((visibility("default")))
const loong_video_functions_t loong_video_functions = {open_video, read_frame,
                                                       close_video};

/* What is wrong is told by whoever asks, with the name of the file. */
__attribute__((constructor)) static void be_quiet(void)
{
    av_log_set_level(AV_LOG_QUIET);
}
