#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Frames of videos through the library and through FFmpeg's libav* alone
(video_floor.c), in turn in one process, on one thread each.

    videos.py BUILD/libloong.so VIDEO... [--rounds N]

Prints frames a second of processor time, and the share of libav's own rate: all
frames as they are, and all of them as rows of patches of Qwen2-VL, at most
768 x 28 x 28 pixels each. Needs numpy.
"""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
I64 = ctypes.c_int64


class Video(ctypes.Structure):
    _fields_ = [("width", I64), ("height", I64), ("total", I64),
                ("fps", ctypes.c_double), ("frames", I64), ("parts", I64),
                ("seconds", ctypes.c_double)]


class Reader:
    """Reads all frames at a size of their own, or at Qwen2-VL's."""

    def __init__(self, lib, settings):
        self.lib, self.ctx, self.own = lib, ctypes.c_void_p(), ctypes.c_void_p()
        lib.loong_context_create(None, ctypes.byref(self.ctx))
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump(settings, f)
            f.flush()
            assert lib.loong_video_processor_create(
                self.ctx, f.name.encode(), b"Qwen2VL",
                ctypes.byref(self.own)) == 0

    def measure(self, path):
        video, size = Video(), (I64 * 2)()
        assert self.lib.loong_video_measure(
            self.ctx, self.own, path.encode(), ctypes.byref(video)) == 0
        self.lib.loong_video_size(self.own, I64(video.width),
                                  I64(video.height), I64(video.frames), size)
        return video, tuple(size)

    def read(self, path, video, pixels):
        assert self.lib.loong_video_read(
            self.ctx, self.own, path.encode(), ctypes.byref(video),
            pixels.ctypes.data_as(ctypes.c_void_p)) == 0


def timed(call):
    begin = time.process_time()
    call()
    return time.process_time() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("videos", nargs="+")
    parser.add_argument("--rounds", type=int, default=11)
    asked = parser.parse_args()
    lib = ctypes.CDLL(asked.library)
    with tempfile.TemporaryDirectory() as place:
        floor = os.path.join(place, "floor.so")
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "libavformat", "libavcodec",
             "libswscale", "libavutil"], check=True, capture_output=True,
            text=True).stdout.split()
        subprocess.run(["cc", "-O2", "-shared", "-fPIC",
                        os.path.join(HERE, "video_floor.c"), "-o", floor,
                        *flags], check=True)
        alone = ctypes.CDLL(floor)
    resized = Reader(lib, dict(video_processor_type="Qwen2VLVideoProcessor"))
    for path in asked.videos:
        video, size = resized.measure(path)
        own = Reader(lib, dict(video_processor_type="InternVLVideoProcessor",
                               size=dict(height=video.height,
                                         width=video.width)))
        one = np.zeros(video.width * video.height * 3, np.uint8)
        all_own = np.zeros(video.frames * one.size, np.uint8)
        all_resized = np.zeros(video.frames * size[0] * size[1] * 3, np.uint8)
        times = {"libav": [], "frames": [], "resized": []}
        for _ in range(asked.rounds):
            times["libav"].append(timed(lambda: alone.floor_video(
                path.encode(), one.ctypes.data_as(ctypes.c_void_p))))
            times["frames"].append(timed(
                lambda: own.read(path, video, all_own)))
            times["resized"].append(timed(
                lambda: resized.read(path, video, all_resized)))
        middle = {k: statistics.median(v) for k, v in times.items()}
        share = {k: statistics.median(
            a / b for a, b in zip(times["libav"], times[k])) for k in times}
        print(f"{os.path.basename(path)}, {video.width} x {video.height}: "
              f"libav {video.frames / middle['libav']:.0f} frames/s, frames "
              f"{video.frames / middle['frames']:.0f} "
              f"({100 * share['frames']:.0f} %), at {size[0]} x {size[1]} "
              f"{video.frames / middle['resized']:.0f} "
              f"({100 * share['resized']:.0f} %)")


if __name__ == "__main__":
    main()
