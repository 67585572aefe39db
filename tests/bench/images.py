#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures through the library and through PIL, in turn in one process.

    tests/bench/images.py build/libloong.so photo.jpg ...

Needs pillow and numpy. A line for each file and what is done with it: pictures
a second of one core here and with PIL (processor time of the thread, medians of
the rounds) and the ratio. "libraries" is decoding against libjpeg-turbo, libpng
and libwebp alone (decode_floor.c, compiled with cc), and "of 2 threads" the same on
two worker threads at once, each with a context of its own. "patches" is a picture's whole way: decode, resize to
224 pixels, crop, normalise and cut into patches of 16, as CLIP's processor does;
with PIL the same in numpy.
"""
import argparse
import ctypes
import io
import os
import statistics
import subprocess
import tempfile
import threading
import time

import numpy as np
from PIL import Image, features

SIDE, PATCH = 224, 16
MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
DEVIATION = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)


class Picture(ctypes.Structure):
    _fields_ = [("width", ctypes.c_int64), ("height", ctypes.c_int64),
                ("pixels", ctypes.POINTER(ctypes.c_uint8)),
                ("clear", ctypes.c_uint8 * 4), ("several", ctypes.c_bool)]


class DecodeParams(ctypes.Structure):
    _fields_ = [("max_pixels", ctypes.c_int64), ("to", ctypes.c_void_p)]


class Cut(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64)
                for name in ("patch", "merge", "frames", "window")]


def floors():
    """Decoders of the libraries alone, by PIL's names of formats."""
    with tempfile.TemporaryDirectory() as place:
        out = os.path.join(place, "floor.so")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", out,
                        os.path.join(os.path.dirname(__file__),
                                     "decode_floor.c"),
                        "-ljpeg", "-lpng", "-lwebp"], check=True)
        lib = ctypes.CDLL(out)
    return {"JPEG": lib.floor_jpeg, "PNG": lib.floor_png,
            "WEBP": lib.floor_webp}


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.loong_context_error.restype = ctypes.c_char_p
        self.ctx, self.clip = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("loong_context_create", None, ctypes.byref(self.ctx))
        self.call("loong_image_processor_create_default", self.ctx, b"CLIP",
                  ctypes.c_int64(SIDE), ctypes.byref(self.clip))

    def call(self, name, *arguments):
        if getattr(self.lib, name)(*arguments) != 0:
            raise SystemExit(self.lib.loong_context_error(self.ctx).decode())

    def free(self, picture):
        self.lib.loong_image_free(self.ctx, ctypes.byref(picture))

    def decode(self, data, to=None):
        picture = Picture()
        params = DecodeParams(0, ctypes.addressof(to) if to else None)
        self.call("loong_image_decode", self.ctx, b"picture", data,
                  ctypes.c_size_t(len(data)), ctypes.byref(params),
                  ctypes.byref(picture))
        return picture

    def resize(self, picture):
        small = Picture()
        self.call("loong_image_resize", self.ctx, ctypes.byref(picture),
                  ctypes.c_int64(SIDE), ctypes.c_int64(SIDE), 3,
                  ctypes.byref(small))
        return small

    def patches(self, data):
        out = np.empty(((SIDE // PATCH) ** 2, 3 * PATCH * PATCH), np.float32)
        picture = self.decode(data)
        self.call("loong_image_process", self.ctx, self.clip,
                  ctypes.byref(picture), ctypes.byref(Cut(patch=PATCH)),
                  out.ctypes.data_as(ctypes.c_void_p))
        self.free(picture)
        return out


def pil_decode(data):
    return Image.open(io.BytesIO(data)).convert("RGB")


def pil_patches(data):
    image = pil_decode(data)
    w, h = image.size
    size = (SIDE, SIDE * h // w) if w <= h else (SIDE * w // h, SIDE)
    image = np.asarray(image.resize(size, Image.BICUBIC))
    top, left = (image.shape[0] - SIDE) // 2, (image.shape[1] - SIDE) // 2
    x = image[top:top + SIDE, left:left + SIDE] * np.float32(1 / 255)
    x = (x - MEAN) / DEVIATION
    n = SIDE // PATCH
    return x.reshape(n, PATCH, n, PATCH, 3).transpose(0, 2, 4, 1, 3).reshape(
        n * n, -1)


def compare(label, rounds, ours, theirs, threads=1):
    times = ([], [])

    def measure():
        for _ in range(rounds):
            for work, into in zip((ours, theirs), times):
                begin = time.thread_time()
                work()
                into.append(time.thread_time() - begin)
    workers = [threading.Thread(target=measure) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    here, there = map(statistics.median, times)
    print(f"{label:40} {1 / here:8.0f} {1 / there:8.0f} {there / here:6.2f}")


def main():
    arguments = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("library")
    arguments.add_argument("files", nargs="+")
    arguments.add_argument("--rounds", type=int, default=101)
    a = arguments.parse_args()
    library, alone = Library(a.library), floors()
    print("libjpeg-turbo of PIL:", features.version("libjpeg_turbo"),
          "libwebp:", features.version("webp"))
    print(f"{'':40} {'here':>8} {'PIL':>8} {'ratio':>6}")
    for path in a.files:
        with open(path, "rb") as f:
            data = f.read()
        picture, image = library.decode(data), pil_decode(data)
        image.format_name = Image.open(io.BytesIO(data)).format
        name = f"{path.split('/')[-1]} {image.width}x{image.height}"
        difference = np.abs(library.patches(data) - pil_patches(data)).max()
        if difference > 1e-5:
            raise SystemExit(f"{name}: patches differ by {difference}")
        compare(name + " decode", a.rounds,
                lambda: library.free(library.decode(data)),
                lambda: pil_decode(data))
        floor = alone[image.format_name]
        for threads in 1, 2:
            own = threading.local()

            def room():  # as a worker has it: used before
                if not hasattr(own, "to"):
                    own.library = Library(a.library)
                    own.to = (ctypes.c_uint8 *
                              (image.width * image.height * 3))()
                return own.to

            def decode():
                to = room()
                own.library.decode(data, to)

            def decode_alone():
                floor(data, ctypes.c_size_t(len(data)), room())
            compare(f"{name} libraries" + " of 2 threads" * (threads - 1),
                    a.rounds, decode, decode_alone, threads)
        compare(name + " resize", a.rounds,
                lambda: library.free(library.resize(picture)),
                lambda: image.resize((SIDE, SIDE), Image.BICUBIC))
        compare(name + " patches", a.rounds, lambda: library.patches(data),
                lambda: pil_patches(data))
        library.free(picture)


if __name__ == "__main__":
    main()
