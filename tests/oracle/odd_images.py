#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Odd pictures, made on the spot: what the library and what transformers make
of them.

    tests/oracle/odd_images.py BUILD [COUNT] [SEED]

Sides from 1 to 600 pixels; JPEG, PNG and WebP of all modes that PIL writes;
palettes, transparency, CMYK, 16 bits, animations, turned by Exif or XMP.
load_image gives the pixels, the processors of nine families what the model
sees: sizes (and so the rows of a text) are equal and every pixel is within
1/255. Needs pillow, numpy and transformers.
"""
import ctypes
import io
import json
import os
import random
import sys
import tempfile

import numpy as np
from PIL import Image
from transformers import (CLIPImageProcessorPil, GotOcr2ImageProcessorPil,
                          Qwen2VLImageProcessorPil, SiglipImageProcessorPil,
                          ViTImageProcessorPil)
from transformers.image_utils import load_image
from transformers.models.llava_onevision.image_processing_pil_llava_onevision \
    import LlavaOnevisionImageProcessorPil
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import \
    MiniCPMV4_6ImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import \
    Siglip2ImageProcessorPil

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../golden"))
from internvl_chat import DEVIATION, tiles  # noqa: E402

I64 = ctypes.c_int64


class Picture(ctypes.Structure):
    _fields_ = [("width", I64), ("height", I64),
                ("pixels", ctypes.POINTER(ctypes.c_uint8)),
                ("clear", ctypes.c_uint8 * 4), ("several", ctypes.c_bool)]


class Info(ctypes.Structure):
    _fields_ = [("format", ctypes.c_int), ("width", I64), ("height", I64)]


class Tiles(ctypes.Structure):
    _fields_ = [(name, I64) for name in ("columns", "rows", "count")] + [
        ("whole_first", ctypes.c_bool)]


class Cut(ctypes.Structure):
    _fields_ = [(name, I64) for name in (
        "patch", "merge", "frames", "window")] + [
        ("channels_last", ctypes.c_bool)] + [
        (name, I64) for name in ("inner", "chunk")]


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.loong_context_error.restype = ctypes.c_char_p
        self.lib.loong_image_processor_tiles.restype = Tiles
        self.ctx = ctypes.c_void_p()
        self.call("loong_context_create", None, ctypes.byref(self.ctx))

    def call(self, name, *arguments):
        if getattr(self.lib, name)(*arguments) != 0:
            raise ValueError(self.lib.loong_context_error(self.ctx).decode())

    def load(self, path):
        picture, info = Picture(), Info()
        with open(path, "rb") as file:
            data = file.read()
        self.call("loong_image_get_file_info", self.ctx, path.encode(),
                  ctypes.byref(info))
        self.call("loong_image_decode", self.ctx, path.encode(), data,
                  ctypes.c_size_t(len(data)), None, ctypes.byref(picture))
        assert (info.width, info.height) == (picture.width, picture.height)
        return picture

    def processor(self, path):
        processor = ctypes.c_void_p()
        self.call("loong_image_processor_create", self.ctx, path.encode(),
                  ctypes.byref(processor))
        return processor

    def size(self, processor, picture):
        width, height = I64(), I64()
        self.lib.loong_image_processor_size(
            processor, I64(picture.width), I64(picture.height),
            ctypes.byref(width), ctypes.byref(height))
        return width.value, height.value

    def process(self, processor, picture, cut, shape):
        out = np.full(shape, np.nan, np.float32)
        self.call("loong_image_process", self.ctx, processor,
                  ctypes.byref(picture), ctypes.byref(cut),
                  out.ctypes.data_as(ctypes.c_void_p))
        return out


def pixels_of(picture):
    shape = picture.height, picture.width, 3
    return np.ctypeslib.as_array(picture.pixels, shape).copy()


def scene(rng, width, height):
    a = rng.integers(0, 256, (max(2, height // 20), max(2, width // 20), 4))
    image = Image.fromarray(a.astype(np.uint8), "RGBA")
    return image.resize((width, height), Image.BICUBIC)


XMP = ('<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description '
       'tiff:Orientation="{}"/></x:xmpmeta>')


def orientation(draw, kind):
    """Fields of a save that turn the picture, often none."""
    turn, how = draw.randint(1, 8), draw.choice(["none", "exif", "xmp"])
    if how == "exif":
        exif = Image.Exif()
        exif[0x010f] = "a maker"
        exif[0x0112] = turn
        return {"exif": exif}
    if how == "xmp" and kind != "png":
        return {"xmp": XMP.format(turn).encode()}
    return {}


def save_jpeg(draw, rgba, path):
    mode = draw.choice(["RGB", "RGB", "L", "CMYK"])
    rgba.convert("RGB").convert(mode).save(
        path, "JPEG", quality=draw.randint(30, 100),
        progressive=draw.random() < .3, subsampling=draw.randint(0, 2),
        **orientation(draw, "jpg"))


def save_png(draw, rgba, path):
    mode = draw.choice(["RGB", "RGBA", "L", "LA", "P", "PA", "1", "I;16",
                        "apng"])
    more = orientation(draw, "png")
    if mode == "apng":
        return rgba.save(path, "PNG", save_all=True, append_images=[
            rgba.transpose(Image.FLIP_LEFT_RIGHT)], **more)
    if mode == "I;16":
        grey = np.array(rgba.convert("L")).astype(np.uint16)
        return Image.fromarray(grey * draw.choice([1, 3, 257])).save(
            path, "PNG", **more)
    if mode in ("P", "PA"):
        image = rgba.convert("RGB").convert(
            "P", palette=Image.ADAPTIVE, colors=draw.randint(2, 256))
        clear = {"transparency": draw.randint(0, 1)} if mode == "PA" else {}
        return image.save(path, "PNG", **clear, **more)
    image = rgba.convert("RGB").convert(mode) if mode == "1" else \
        rgba.convert(mode)
    if mode == "L" and draw.random() < .5:
        more["transparency"] = draw.randint(0, 255)
    image.save(path, "PNG", **more)


def save_webp(draw, rgba, path):
    image = rgba.convert(draw.choice(["RGB", "RGBA"]))
    more = orientation(draw, "webp")
    if draw.random() < .3:
        more.update(save_all=True, duration=50, append_images=[
            image.transpose(Image.FLIP_TOP_BOTTOM)])
    image.save(path, "WEBP", quality=draw.randint(30, 100),
               lossless=draw.random() < .4, **more)


class InternVLChat:
    """OpenGVLab's own, as tests/golden/internvl_chat.py has it."""
    image_std, do_normalize = DEVIATION, True

    def __init__(self, side, least, most, thumbnail):
        self.own = dict(least=least, most=most, side=side, thumbnail=thumbnail)

    def to_dict(self):
        own = self.own
        return dict(model_type="internvl_chat", dynamic_image_size=True,
                    force_image_size=own["side"], ps_version="v2",
                    min_dynamic_patch=own["least"],
                    max_dynamic_patch=own["most"],
                    use_thumbnail=own["thumbnail"])

    def __call__(self, image, return_tensors):
        return dict(pixel_values=tiles(image, **self.own).numpy())


def processors(folder, library):
    """Of each: its name, transformers', the library's, pixels of the side of a
    patch or 0."""
    made = [
        ("vit", ViTImageProcessorPil(size={"height": 48, "width": 48}), 0),
        ("clip", CLIPImageProcessorPil(
            size={"shortest_edge": 56},
            crop_size={"height": 56, "width": 56}), 0),
        ("siglip", SiglipImageProcessorPil(
            size={"height": 64, "width": 64}), 0),
        ("qwen", Qwen2VLImageProcessorPil(
            size={"shortest_edge": 28 * 28 * 4,
                  "longest_edge": 28 * 28 * 60}), 14),
        ("internvl", GotOcr2ImageProcessorPil(
            size={"height": 48, "width": 48}, crop_to_patches=True,
            max_patches=7), 0),
        ("internvl_min", GotOcr2ImageProcessorPil(
            size={"height": 32, "width": 32}, crop_to_patches=True,
            min_patches=4, max_patches=6), 0),
        ("internvl_chat", InternVLChat(56, 1, 12, True), 0),
        ("internvl_chat_min", InternVLChat(448, 2, 5, False), 0),
        ("siglip2", Siglip2ImageProcessorPil(
            patch_size=8, max_num_patches=50), 8),
        ("onevision", LlavaOnevisionImageProcessorPil(
            size={"height": 48, "width": 48}, image_grid_pinpoints=[
                [48, 48], [48, 96], [144, 48], [96, 96], [240, 144]]), 0),
        ("minicpm", MiniCPMV4_6ImageProcessorPil(), 14),
        ("minicpm_small", MiniCPMV4_6ImageProcessorPil(
            scale_resolution=130, max_slice_nums=7, downsample_mode="4x"), 14),
        ("minicpm_whole", MiniCPMV4_6ImageProcessorPil(
            scale_resolution=200, slice_mode=False), 14),
    ]
    for name, theirs, patch in made:
        path = os.path.join(folder, name + ".json")
        with open(path, "w") as file:
            json.dump(theirs.to_dict(), file)
        yield name, theirs, library.processor(path), patch


def blocks(rows, columns, merge):
    """The patches of a grid, row by row, in blocks of merge x merge."""
    order = np.arange(rows * columns).reshape(
        rows // merge, merge, columns // merge, merge)
    return order.transpose(0, 2, 1, 3).reshape(-1)


def sliced(library, picture, got, theirs, own):
    """Of MiniCPM-V: the grid of slices, sizes and pixels."""
    side, merge = theirs.patch_size, 2 if theirs.downsample_mode == "4x" else 4
    tiles = library.lib.loong_image_processor_tiles(
        own, I64(picture.width), I64(picture.height), ctypes.c_bool(True))
    grid = [tiles.rows, tiles.columns] if tiles.count > 1 else [0, 0]
    assert grid == list(got["grids"][0]), (grid, got["grids"])
    sizes = got["target_sizes"]
    assert tiles.count == len(sizes)
    width, height = library.size(own, picture)
    assert (height // side, width // side) == tuple(sizes[0]), sizes
    wanted = got["pixel_values"][0]  # [3, side, patches * side]
    wanted = wanted.reshape(3, side, -1, side).transpose(2, 0, 1, 3)
    wanted = wanted.reshape(len(wanted), -1)
    order, before = [], 0
    for rows, columns in sizes:
        order.append(before + blocks(rows, columns, merge))
        before += rows * columns
    ours = library.process(own, picture, Cut(side, merge, 1), wanted.shape)
    return float(np.abs(ours - wanted[np.concatenate(order)]).max() * .5 * 255)


def compare(library, picture, image, name, theirs, own, patch):
    picture.several = False
    if name == "onevision":  # and as one of two, without tiles
        picture.several = True
        wanted = theirs([[image, image]], return_tensors="np")["pixel_values"]
        found = library.process(own, picture, Cut(), wanted[0].shape)
        assert np.abs(found - wanted[0]).max() * .26 * 255 < 1.01, "square"
        picture.several = False
    try:
        got = theirs(image, return_tensors="np")
    except ValueError:  # too narrow
        assert library.size(own, picture) == (0, 0), (name, "accepted")
        return 0.0
    if name.startswith("minicpm"):
        return sliced(library, picture, got, theirs, own)
    wanted = got["pixel_values"]
    wanted = wanted[0] if name == "onevision" else wanted
    width, height = library.size(own, picture)
    cut = Cut(patch, 2 if patch else 0, 2 if patch else 0, 0)
    if name == "siglip2":
        cut = Cut(patch, 1, 1, 0, True)
        rows, columns = got["spatial_shapes"][0]
        assert (columns * patch, rows * patch) == (width, height), name
        wanted = wanted[0][:rows * columns]
    elif patch:
        grid = got["image_grid_thw"][0]
        assert (1, height // patch, width // patch) == tuple(grid), name
    else:
        tiles = library.lib.loong_image_processor_tiles(
            own, I64(picture.width), I64(picture.height),
            ctypes.c_bool(False))
        assert wanted.shape == (tiles.count, 3, height, width), (
            name, wanted.shape, tiles.count, picture.width, picture.height)
    ours = library.process(own, picture, cut, wanted.shape)
    deviation = np.mean(theirs.image_std) if theirs.do_normalize else 1.0
    return float(np.abs(ours - wanted).max() * deviation * 255)


def main():
    build, count = sys.argv[1], int((sys.argv[2:] + [500])[0])
    seed = int((sys.argv[3:] + [random.randrange(1 << 30)])[0])
    draw = random.Random(seed)
    library = Library(os.path.join(build, "libloong.so"))
    worst = {"pixels": 0.0}
    print(f"{count} pictures, seed {seed}")
    with tempfile.TemporaryDirectory() as folder:
        known = list(processors(folder, library))
        for i in range(count):
            kind, save = draw.choice([("jpg", save_jpeg), ("png", save_png),
                                      ("webp", save_webp)])
            path = os.path.join(folder, f"{i}.{kind}")
            side = [draw.choice([draw.randint(1, 30), draw.randint(30, 600)])
                    for _ in range(2)]
            save(draw, scene(np.random.default_rng(seed + i), *side), path)
            image, picture = load_image(path), library.load(path)
            pixels = pixels_of(picture)
            assert image.size == (picture.width, picture.height), path
            difference = np.abs(pixels.astype(int) - np.array(image)).max()
            worst["pixels"] = max(worst["pixels"], float(difference))
            if difference > 1:
                Image.open(path).load()
                raise SystemExit(f"picture {i}, {kind} {Image.open(path).mode}"
                                 f" {image.size}: differs by {difference}")
            for name, theirs, own, patch in known:
                got = compare(library, picture, image, name, theirs, own,
                              patch)
                worst[name] = max(worst.get(name, 0.0), got)
                if got > 1.01:
                    print(f"picture {i}, {image.size}, {name}: {got:.2f}")
            library.lib.loong_image_free(library.ctx, ctypes.byref(picture))
            os.remove(path)
    print("largest difference in 1/255:",
          ", ".join(f"{name} {value:.3f}" for name, value in worst.items()))
    if max(worst.values()) > 1.01:
        raise SystemExit("more than 1/255")


if __name__ == "__main__":
    main()
