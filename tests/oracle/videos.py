#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Videos: what the library and what transformers' video processors make of
them.

    tests/oracle/videos.py BUILD              a hundred drawn videos
    tests/oracle/videos.py BUILD --fixtures   writes tests/fixtures/videos

Codecs mpeg4 and h264 among others, odd rates, frames at uneven times, turned
ones, audio beside; the classes of Qwen2-VL, Qwen3-VL, InternVL, LLaVA-OneVision,
GLM-4.1V and ERNIE 4.5 VL (no times drawn into frames) by their defaults, by a
rate and by a number of frames; and Kimi-K2.5's by the rule of its publisher
(media_proc_cfg), MiniCPM-V 4.6's in slices. The numbers of the frames are
equal, and so are sizes, rows of patches and seconds; every pixel is within
1/255, of the same frames by PyAV's own FFmpeg (a turned one is turned here).
Needs av, numpy, torchvision and transformers.
"""
import ctypes
import json
import math
import os
import random
import sys
import tempfile
from fractions import Fraction

import av
import numpy as np
import torch
from PIL import Image
from transformers.models.ernie4_5_vl_moe.video_processing_ernie4_5_vl_moe \
    import Ernie4_5_VLMoeVideoProcessor
from transformers.models.glm4v.video_processing_glm4v import \
    Glm4vVideoProcessor
from transformers.models.internvl.video_processing_internvl import \
    InternVLVideoProcessor
from transformers.models.llava_onevision.video_processing_llava_onevision \
    import LlavaOnevisionVideoProcessor
from transformers.models.minicpmv4_6.video_processing_minicpmv4_6 import \
    MiniCPMV4_6VideoProcessor
from transformers.models.qwen2_vl.video_processing_qwen2_vl import \
    Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import \
    Qwen3VLVideoProcessor
from transformers.video_utils import VideoMetadata

import odd_images

I64 = ctypes.c_int64
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
CLASSES = {"Qwen2VL": Qwen2VLVideoProcessor, "Qwen3VL": Qwen3VLVideoProcessor,
           "InternVL": InternVLVideoProcessor,
           "LlavaOnevision": LlavaOnevisionVideoProcessor,
           "Glm4v": Glm4vVideoProcessor,
           "Ernie4_5_VLMoe": Ernie4_5_VLMoeVideoProcessor}
ERNIE = "Ernie4_5_VLMoe"  # a frame a patch; the last one fills a pair up
SLICES = "MiniCPMV4_6"
FRAMES = ("InternVL", "LlavaOnevision")  # a frame a patch, of one size


class Video(ctypes.Structure):
    _fields_ = [("width", I64), ("height", I64), ("total", I64),
                ("fps", ctypes.c_double), ("frames", I64), ("parts", I64),
                ("seconds", ctypes.c_double)]


class Item(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("name", ctypes.c_char_p),
                ("size", I64 * 2), ("at", I64), ("frames", I64),
                ("several", ctypes.c_bool),
                ("seconds", ctypes.c_double), ("parts", I64),
                ("part_at", ctypes.c_void_p), ("label", I64),
                ("ids", ctypes.c_void_p), ("weight", ctypes.c_void_p),
                ("starts", ctypes.c_void_p), ("pixels", ctypes.c_void_p),
                ("clear", ctypes.c_uint8 * 4), ("values", ctypes.c_void_p)]


class Library(odd_images.Library):
    def processor(self, settings, fps, frames):
        own = ctypes.c_void_p()
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump(settings, f)
            f.flush()
            self.call("loong_video_processor_create", self.ctx,
                      f.name.encode(), b"Qwen2VL", ctypes.byref(own))
        self.call("loong_video_processor_sample", own, ctypes.c_double(fps),
                  I64(frames))
        return own

    def read(self, own, path, patch, merge, frames, chunk=0, rows=0):
        """The video, numbers of its frames, its size and its patches."""
        video = Video()
        self.call("loong_video_measure", self.ctx, own, path.encode(),
                  ctypes.byref(video))
        self.lib.loong_video_frame.restype = I64
        numbers = [self.lib.loong_video_frame(own, ctypes.byref(video), I64(k))
                   for k in range(video.frames)]
        size = (I64 * 2)()
        self.lib.loong_video_size(own, I64(video.width), I64(video.height),
                                  I64(video.frames), size)
        pixels = np.zeros(video.frames * size[0] * size[1] * 3, np.uint8)
        self.call("loong_video_read", self.ctx, own, path.encode(),
                  ctypes.byref(video), pixels.ctypes.data_as(ctypes.c_void_p))
        item = Item(size=(video.width, video.height), frames=video.frames,
                    pixels=pixels.ctypes.data)
        cut = odd_images.Cut(patch, merge, frames, 0, False, 0, chunk)
        moments = -(-video.frames // frames)
        rows = rows or moments * (size[0] // patch) * (size[1] // patch)
        out = np.zeros((rows, 3 * frames * patch * patch), np.float32)
        self.call("loong_video_process", self.ctx, own, ctypes.byref(item),
                  ctypes.byref(cut), out.ctypes.data_as(ctypes.c_void_p))
        return video, numbers, list(size), out


def make(path, frames, rate, size, codec="mpeg4", uneven=False, turn=0,
         audio=False, pix_fmt="yuv420p", rng=None):
    """A video of moving squares on a gradient."""
    rng = rng or random.Random(0)
    width, height = size
    with av.open(path, "w") as out:
        stream = out.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = width, height, pix_fmt
        sound = out.add_stream("aac", rate=8000) if audio else None
        if uneven:
            stream.codec_context.time_base = Fraction(1, 1000)
        y, x = np.mgrid[0:height, 0:width]
        at = 0
        for k in range(frames):
            picture = np.stack([(x * 3 + k * 7) % 256, (y * 5 + k) % 256,
                                (x + y + 9 * k) % 256], -1).astype(np.uint8)
            left = (k * 5) % max(width - 8, 1)
            picture[2:10, left:left + 8] = (255, 40, 10 * k % 256)
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            if uneven:
                frame.pts, frame.time_base = at, Fraction(1, 1000)
                at += rng.randint(15, 120)
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
        if sound:
            wave = av.AudioFrame(format="fltp", layout="mono", samples=1024)
            wave.sample_rate = 8000
            for plane in wave.planes:
                plane.update(bytes(plane.buffer_size))
            out.mux(sound.encode(wave))
            out.mux(sound.encode())
    if turn:
        turn_mp4(path, turn)


MATRIX = {90: (0, 1, -1, 0), 180: (-1, 0, 0, -1), 270: (0, -1, 1, 0)}


def turn_mp4(path, degrees):
    """Writes the matrix of the track's header (ISO 14496-12, tkhd)."""
    data = bytearray(open(path, "rb").read())
    at = data.index(b"tkhd") + 4 + 40
    a, b, c, d = (v << 16 & 0xffffffff for v in MATRIX[degrees])
    for place, value in zip((0, 4, 12, 16), (a, b, c, d)):
        data[at + place:at + place + 4] = value.to_bytes(4, "big")
    open(path, "wb").write(data)


def decode(path):
    with av.open(path) as container:
        stream = container.streams.video[0]
        frames, turned = [], 0
        for frame in container.decode(video=0):
            turned = frame.rotation
            frames.append(np.rot90(frame.to_ndarray(format="rgb24"),
                                   turned // 90))
        total = stream.frames or len(frames)
        height, width = frames[0].shape[:2]
        return np.stack(frames), VideoMetadata(
            total_num_frames=total, fps=float(stream.average_rate),
            duration=total / float(stream.average_rate), width=width,
            height=height)


def theirs(processor, path, sampling):
    frames, metadata = decode(path)
    more = dict(sampling)
    if sampling:
        more["do_sample_frames"] = True
    found = processor(videos=[torch.from_numpy(frames.transpose(0, 3, 1, 2)
                                               .copy())],
                      video_metadata=[metadata], return_metadata=True,
                      return_tensors="pt", **more)
    metadata = found["video_metadata"][0]
    numbers = metadata.frames_indices
    numbers = list(range(len(frames))) if numbers is None else [
        int(i) for i in numbers]
    return found, numbers, metadata


def internvl_patches(values, patch):
    """Tiles of pixels as our patches, row by row."""
    t, c, h, w = values.shape
    cut = values.reshape(t, c, h // patch, patch, w // patch, patch)
    return cut.transpose(0, 2, 4, 1, 3, 5).reshape(-1, c * patch * patch)


def media_frames(settings, path):
    """Numbers, size and patches by the rule of Kimi's publisher."""
    frames, metadata = decode(path)
    total, fps = len(frames), metadata.fps
    count = max(round(total * min(settings["sample_fps"], fps) / fps), 1)
    numbers = np.linspace(0, total - 1, count).round().astype(int).tolist()
    patch, side = settings["patch_size"], settings["patch_limit_on_one_side"]
    h, w = frames.shape[1:3]
    scale = min(1.0, math.sqrt(settings["in_patch_limit_each_frame"] /
                               (max(1, w // patch) * max(1, h // patch))),
                side * patch / w, side * patch / h)
    w, h = (min(max(1, int(s * scale)), side * patch) for s in (w, h))
    block = patch * settings["merge_kernel_size"]
    out = []
    for k in numbers:
        x = np.asarray(Image.fromarray(np.ascontiguousarray(frames[k])).resize(
            (w, h), Image.Resampling.BICUBIC))
        x = np.pad(x, ((0, -h % block), (0, -w % block), (0, 0))) / 127.5 - 1
        size = x.shape[:2]
        out.append(x.reshape(size[0] // patch, patch, size[1] // patch, patch,
                             3).transpose(0, 2, 4, 1, 3))
    return numbers, [size[1], size[0]], np.stack(out)


def raster(out, frames, size, patch, merge):
    """Our rows, whole blocks behind one another, as frames of patches."""
    h, w = size[1] // patch, size[0] // patch
    return out.reshape(frames, h // merge, w // merge, merge, merge, 3, patch,
                       patch).transpose(0, 1, 3, 2, 4, 5, 6, 7).reshape(
        frames, h, w, 3, patch, patch)


def compare_media(library, settings, path):
    own = library.processor(dict(media_proc_cfg=settings), 0, 0)
    patch, merge = settings["patch_size"], settings["merge_kernel_size"]
    numbers, size, wanted = media_frames(settings, path)
    _, got, found, out = library.read(
        own, path, patch, merge, 1, settings["temporal_merge_kernel_size"])
    assert got == numbers and found == size, (path, got, numbers, found, size)
    off = raster(out, len(numbers), size, patch, merge) - wanted
    return float(np.abs(off).max() * 127.5)


def compare_slices(library, settings, path, sampling):
    """MiniCPM-V's: each frame whole and in slices of their own sizes."""
    processor = MiniCPMV4_6VideoProcessor(**settings)
    try:
        found, numbers, _ = theirs(processor, path, sampling)
    except ValueError:
        found = None
    own = library.processor(dict(
        video_processor_type="MiniCPMV4_6VideoProcessor", **settings), 0, 0)
    patch = processor.patch_size
    merge = 2 if processor.downsample_mode == "4x" else 4
    sizes = found["target_sizes_videos"].tolist() if found else []
    rows = sum(h * w for h, w in sizes)
    video, got, _, out = library.read(own, path, patch, merge, 1, rows=rows)
    assert got == numbers, (path, got, numbers)
    assert video.parts == len(sizes), (path, video.parts, sizes)
    wanted = found["pixel_values_videos"].numpy()[0]
    wanted = wanted.reshape(3, patch, -1, patch).transpose(2, 0, 1, 3)
    order, before = [], 0
    for h, w in sizes:
        order.append(before + odd_images.blocks(h, w, merge))
        before += h * w
    off = out - wanted.reshape(len(wanted), -1)[np.concatenate(order)]
    return float(np.abs(off).max() * 127.5)


def compare(library, kind, settings, path, sampling):
    if kind == SLICES:
        return compare_slices(library, settings, path, {})
    if kind == "Kimi_K25Media":
        return compare_media(library, settings, path)
    processor = CLASSES[kind](**settings)
    try:
        found, numbers, metadata = theirs(processor, path, sampling)
    except (ValueError, ZeroDivisionError):  # of no frames
        found = None
    own = library.processor(
        dict(video_processor_type=kind + "VideoProcessor", **settings),
        sampling.get("fps", 0), sampling.get("num_frames", 0))
    patch = settings.get("patch_size", 14)
    merge = settings.get("merge_size", 1)
    each = 1 if kind in FRAMES or kind == ERNIE else 2
    try:
        video, got, size, out = library.read(own, path, patch, merge, each)
    except ValueError as error:
        assert found is None, (kind, path, sampling, error)
        return None
    assert found is not None, (kind, path, sampling)
    if kind == ERNIE:
        numbers += numbers[-1:] * (len(numbers) % 2)
    assert got == numbers, (kind, path, sampling, got, numbers)
    assert abs(video.fps - metadata.fps) < 1e-9
    wanted = found["pixel_values_videos"].numpy()
    if kind in FRAMES:
        wanted = internvl_patches(wanted[0], patch)
    else:
        t, h, w = found["video_grid_thw"][0].tolist()
        assert [w * patch, h * patch] == size, (kind, path, size, (t, h, w))
        # Qwen2.5-VL's processor, of all frames too.
        metadata.frames_indices = np.array(numbers)
        assert kind == ERNIE or \
            abs(video.seconds - 2 / metadata.sampled_fps) < 1e-12
    assert out.shape == wanted.shape, (kind, path, out.shape, wanted.shape)
    shape = (len(out), 3, -1)  # of a patch, channels first
    deviation = np.array(processor.image_std)[:, None] * 255
    off = (out - wanted).reshape(shape) * deviation
    return float(np.abs(off).max())


QWEN2 = dict(size=dict(shortest_edge=3136, longest_edge=50176), patch_size=14,
             temporal_patch_size=2, merge_size=2)
QWEN3 = dict(size=dict(shortest_edge=4096, longest_edge=200704), patch_size=16,
             temporal_patch_size=2, merge_size=2)
INTERNVL = dict(size=dict(height=56, width=56))
ONEVISION = INTERNVL
ERNIES = dict(size=dict(shortest_edge=3136, longest_edge=50176), patch_size=14,
              temporal_patch_size=2, merge_size=2, min_frames=4, max_frames=21,
              draw_on_frames=False)
MEDIA = dict(
    in_patch_limit=16384, patch_size=14, image_mean=[0.5] * 3,
    image_std=[0.5] * 3, merge_kernel_size=2, fixed_output_tokens=None,
    patch_limit_on_one_side=16, in_patch_limit_each_frame=60,
    in_patch_limit_video=None, sample_fps=2.0, max_num_frames_each_video=None,
    temporal_merge_kernel_size=4, timestamp_mode="hh:mm:ss.fff")
# Some of the videos are longer than a second.
GLM4V = dict(size=dict(shortest_edge=12544, longest_edge=100352),
             max_duration=1, patch_size=14, temporal_patch_size=2, merge_size=2)


def drawn(rng):
    codec, ending, pix_fmt = rng.choice(
        [("mpeg4", "mp4", "yuv420p"), ("libx264", "mp4", "yuv420p"),
         ("libx264", "mkv", "yuv420p"), ("libx264", "mp4", "yuv444p"),
         ("mpeg4", "avi", "yuv420p"), ("mjpeg", "mov", "yuvj420p"),
         ("libvpx-vp9", "webm", "yuv420p")])
    rate = rng.choice([Fraction(24000, 1001), Fraction(30000, 1001), 25, 10,
                       Fraction(15, 2), 60, 1])
    size = (2 * rng.randint(8, 160), 2 * rng.randint(8, 120))
    more = dict(audio=rng.random() < 0.3 and ending in ("mp4", "mkv"),
                uneven=rng.random() < 0.3 and ending in ("mp4", "mkv") and
                codec == "libx264")
    if ending == "mp4" and rng.random() < 0.3:
        more["turn"] = rng.choice([90, 180, 270])
    return ending, dict(frames=rng.randint(2, 80), rate=rate, size=size,
                        codec=codec, pix_fmt=pix_fmt, **more)


def main():
    build = sys.argv[1]
    if "--fixtures" in sys.argv:
        return fixtures()
    library = Library(os.path.join(build, "libloong.so"))
    rng = random.Random(7)
    count, refused, worst = 0, 0, 0.0
    with tempfile.TemporaryDirectory() as place:
        while count < int(os.environ.get("COUNT", 100)):
            ending, asked = drawn(rng)
            path = os.path.join(place, f"v{count}.{ending}")
            make(path, rng=rng, **asked)
            kind, settings = rng.choice(
                [("Qwen2VL", QWEN2), ("Qwen3VL", QWEN3),
                 ("Qwen2VL", dict(QWEN2, cap_pixels_per_frame=True,
                                  max_video_tokens=400)),
                 ("Qwen3VL", dict(QWEN3, cap_pixels_per_frame=True,
                                  max_video_tokens=20)),
                 ("Glm4v", GLM4V), ("Glm4v", dict(GLM4V, max_duration=4)),
                 (SLICES, dict(scale_resolution=56)),
                 (SLICES, dict(scale_resolution=100, max_slice_nums=4,
                               max_num_frames=5, downsample_mode="4x")),
                 ("Kimi_K25Media", MEDIA),
                 ("Kimi_K25Media", dict(MEDIA, sample_fps=5.0)),
                 (ERNIE, ERNIES), (ERNIE, dict(ERNIES, max_frames=8)),
                 ("InternVL", INTERNVL), ("LlavaOnevision", ONEVISION),
                 ("InternVL", dict(INTERNVL, initial_shift=False))])
            sampling = rng.choice([{}, dict(fps=rng.choice([0.5, 1, 2, 5.3])),
                                   dict(num_frames=rng.randint(1, 32))])
            if kind == "Qwen3VL" and "num_frames" in sampling:
                processor_fps = dict(fps=None)
                settings = dict(settings, **processor_fps)
            if kind == "Glm4v" and "num_frames" in sampling:
                sampling = {}  # of which it knows nothing
            off = compare(library, kind, settings, path, sampling)
            count += 1
            refused += off is None
            worst = max(worst, off or 0.0)
            assert worst <= 1.001, (kind, asked, sampling, off)
            os.remove(path)
    print(f"{count} videos, of which both refuse {refused}: frames, sizes and "
          f"seconds equal, pixels within {worst:.3f}/255")


def fixtures():
    to = os.path.join(SOURCE, "tests/fixtures/videos")
    os.makedirs(to, exist_ok=True)
    path = lambda name: os.path.join(to, name)
    make(path("h264.mp4"), 30, Fraction(30000, 1001), (64, 48), "libx264",
         audio=True)
    make(path("mpeg4.avi"), 13, Fraction(15, 2), (48, 32))
    make(path("uneven.mkv"), 20, 25, (48, 48), "libx264", uneven=True)
    make(path("turned.mp4"), 9, 3, (64, 32), "libx264", turn=90)
    # Without loss: what is trained on them does not depend on a decoder.
    make(path("clip.mov"), 7, Fraction(7, 2), (16, 8), "png", pix_fmt="rgb24")
    make(path("wide.mov"), 9, 3, (24, 8), "png", pix_fmt="rgb24")
    with open(path("expected.txt"), "w") as f:
        f.writelines(expected(path(name), *case) + "\n"
                     for name in sorted(os.listdir(to))
                     if name.endswith((".mp4", ".avi", ".mkv"))
                     for case in CASES)


CASES = [("Qwen2VL", QWEN2, {}), ("Qwen2VL", QWEN2, dict(fps=5)),
         ("Qwen2VL", QWEN2, dict(num_frames=5)), ("Qwen3VL", QWEN3, {}),
         ("Qwen3VL", QWEN3, dict(fps=7)),
         ("InternVL", INTERNVL, dict(num_frames=4)),
         ("LlavaOnevision", ONEVISION, dict(num_frames=4)),
         ("Glm4v", GLM4V, {}), ("Glm4v", GLM4V, dict(fps=7))]


def expected(path, kind, settings, sampling):
    """A line: the case; what is known of the video; numbers of its frames; the
    means of three parts of its patches."""
    processor = CLASSES[kind](**settings)
    found, numbers, metadata = theirs(processor, path, sampling)
    values = found["pixel_values_videos"].numpy()
    if kind in FRAMES:
        values, size = internvl_patches(values[0], 14), (56, 56)
    else:
        _, h, w = found["video_grid_thw"][0].tolist()
        size = w * settings["patch_size"], h * settings["patch_size"]
    metadata.frames_indices = np.array(numbers)
    each = 1 if kind in FRAMES else 2
    thirds = [float(part.mean()) for part in np.array_split(values, 3)]
    return " ".join(map(str, [
        os.path.basename(path), kind, sampling.get("fps", 0),
        sampling.get("num_frames", 0), metadata.width, metadata.height,
        metadata.total_num_frames, *size, repr(each / metadata.sampled_fps),
        *(f"{v:.4f}" for v in thirds), len(numbers), *numbers]))


if __name__ == "__main__":
    main()
