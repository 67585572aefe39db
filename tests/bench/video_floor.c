/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of a video through libavformat, libavcodec and libswscale alone, on
 * one thread, for videos.py: what reading them cannot be faster than.
 *
 *   cc -O2 -shared -fPIC video_floor.c -o floor.so \
 *      $(pkg-config --cflags --libs libavformat libavcodec libswscale \
 *        libavutil)
 */
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>

static int shown(AVCodecContext *codec, AVFrame *frame,
                 struct SwsContext **scale, uint8_t *to)
{
    int frames = 0;
    while (avcodec_receive_frame(codec, frame) >= 0) {
        int stride = 3 * frame->width;
        *scale = sws_getCachedContext(
            *scale, frame->width, frame->height,
            (enum AVPixelFormat)frame->format, frame->width, frame->height,
            AV_PIX_FMT_RGB24, SWS_BILINEAR, NULL, NULL, NULL);
        sws_scale(*scale, (const uint8_t *const *)frame->data, frame->linesize,
                  0, frame->height, &to, &stride);
        frames++;
    }
    return frames;
}

/* All frames as RGB, each to the same memory; how many there are. */
int floor_video(const char *path, uint8_t *to);
int floor_video(const char *path, uint8_t *to)
{
    AVFormatContext *format = NULL;
    struct SwsContext *scale = NULL;
    int frames = 0;
    if (avformat_open_input(&format, path, NULL, NULL) < 0 ||
        avformat_find_stream_info(format, NULL) < 0) {
        return -1;
    }
    int number =
        av_find_best_stream(format, AVMEDIA_TYPE_VIDEO, -1, -1, NULL, 0);
    AVCodecParameters *own = format->streams[number]->codecpar;
    const AVCodec *decoder = avcodec_find_decoder(own->codec_id);
    AVCodecContext *codec = avcodec_alloc_context3(decoder);
    AVPacket *packet = av_packet_alloc();
    AVFrame *frame = av_frame_alloc();
    avcodec_parameters_to_context(codec, own);
    codec->thread_count = 1;
    avcodec_open2(codec, decoder, NULL);
    while (av_read_frame(format, packet) >= 0) {
        if (packet->stream_index == number) {
            avcodec_send_packet(codec, packet);
            frames += shown(codec, frame, &scale, to);
        }
        av_packet_unref(packet);
    }
    avcodec_send_packet(codec, NULL);
    frames += shown(codec, frame, &scale, to);
    sws_freeContext(scale);
    av_frame_free(&frame);
    av_packet_free(&packet);
    avcodec_free_context(&codec);
    avformat_close_input(&format);
    return frames;
}
