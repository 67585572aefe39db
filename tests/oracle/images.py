#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures of every kind that is read, and what PIL and the slow image
processors of transformers make of them.

    tests/oracle/images.py tests/fixtures/images

Needs pillow from 13 on, numpy and transformers. Sizes and checksums (CRC-32 of u8 [H,W,3])
are in index.txt:

    decode NAME WIDTH HEIGHT FORMAT CRC     as load_image has it
    resize NAME FILTER WIDTH HEIGHT CRC
    process CONFIG NAME WIDTH HEIGHT        NAME.CONFIG.f32, f32 [3,H,W]
    member LABEL CRC                        of the picture's file, in the order
                                            of the samples of shards/
"""
import io
import json
import os
import sys
import tarfile
import zlib

import numpy as np
from PIL import Image
from transformers import (CLIPImageProcessorPil, SiglipImageProcessorPil,
                          ViTImageProcessorPil)
from transformers.image_utils import load_image


def scene(width, height, seed):
    """Smooth shades, sharp edges and some noise: what JPEG has to round."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    a = np.stack([x * 255 / width, y * 255 / height,
                  127 + 120 * np.sin(x / 5) * np.cos(y / 7)], -1)
    a[(x - width / 3) ** 2 + (y - height / 2) ** 2 < (height / 4) ** 2] = (
        250, 40, 10)
    a += rng.normal(0, 8, a.shape)
    return Image.fromarray(a.clip(0, 255).astype(np.uint8))


def make(folder):
    def save(name, image, **how):
        image.save(os.path.join(folder, name), **how)

    rgb = scene(75, 50, 0)
    alpha = Image.fromarray((np.arange(50 * 75) % 256).astype(
        np.uint8).reshape(50, 75))
    rgba = rgb.copy()
    rgba.putalpha(alpha)
    for name, sampling in ("444", 0), ("422", 1), ("420", 2):
        save(f"j{name}.jpg", rgb, quality=85, subsampling=sampling)
    save("j420_odd.jpg", scene(77, 49, 1), quality=60)
    save("progressive.jpg", rgb, quality=80, progressive=True)
    save("grey.jpg", rgb.convert("L"), quality=80)
    save("cmyk.jpg", rgb.convert("CMYK"), quality=90)
    save("best.jpg", rgb, quality=100)
    with open(os.path.join(folder, "cmyk.jpg"), "rb") as f:
        data = f.read()
    mark = data.index(b"Adobe") + 11  # its transform: 2 says YCCK
    with open(os.path.join(folder, "ycck.jpg"), "wb") as f:
        f.write(data[:mark] + b"\2" + data[mark + 1:])
    for turn in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = turn
        save(f"turn{turn}.jpg", scene(21, 13, 2), quality=80, exif=exif)
    exif = Image.Exif()
    exif[0x0112] = 6
    save("turn6.png", scene(21, 13, 2), exif=exif)
    save("turn6.webp", scene(21, 13, 2), exif=exif)
    save("long_head.jpg", scene(40, 30, 3), quality=75,
         icc_profile=bytes(range(256)) * 60)
    save("rgb.png", rgb)
    save("rgba.png", rgba)
    save("la.png", rgba.convert("LA"))
    save("grey.png", rgb.convert("L"))
    save("one.png", rgb.convert("1"))
    save("grey_clear.png", rgb.convert("L"), transparency=100)
    save("rgb_clear.png", rgb, transparency=(250, 40, 10))
    save("palette.png", rgb.convert("P", palette=Image.ADAPTIVE, colors=200))
    save("palette4.png", rgb.convert("P", palette=Image.ADAPTIVE, colors=9))
    save("palette_clear.png", rgb.convert("P", palette=Image.ADAPTIVE,
                                          colors=50), transparency=3)
    wide = np.array(rgb.convert("L")).astype(np.uint16) * 7
    Image.fromarray(wide).save(os.path.join(folder, "grey16.png"))
    deep = np.array(rgba).astype(np.uint32) * 257 - (np.array(rgba) > 3) * 100
    for name, channels in ("rgb16", 3), ("rgba16", 4), ("rgb8i", 3):
        raw_png(os.path.join(folder, name + ".png"), deep[:, :, :channels],
                name == "rgb8i")
    for bits in 2, 4:
        grey_bits(os.path.join(folder, f"grey{bits}.png"), rgb, bits)
    save("lossy.webp", rgb, quality=70)
    save("lossy_alpha.webp", rgba, quality=70)
    save("lossless.webp", rgba, lossless=True)
    save("animated.webp", rgb, save_all=True, append_images=[scene(75, 50, 4)])
    save("photo.jpg", scene(500, 375, 5), quality=85)
    save("tall.jpg", scene(90, 211, 6), quality=85)


def chunk(name, data):
    crc = zlib.crc32(name + data)
    return len(data).to_bytes(4, "big") + name + data + crc.to_bytes(4, "big")


def write_png(path, width, height, depth, kind, interlaced, rows):
    head = (width.to_bytes(4, "big") + height.to_bytes(4, "big")
            + bytes([depth, kind, 0, 0, interlaced]))
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
                + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def raw_png(path, pixels, interlaced):
    """16 bits, or 8 bits in Adam7's seven passes; PIL writes neither."""
    height, width, channels = pixels.shape
    a = (pixels >> 8).astype(np.uint8) if interlaced else pixels.astype(">u2")
    passes = [(0, 0, 1, 1)]
    if interlaced:
        passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4),
                  (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    rows = b"".join(b"\0" + row.tobytes() for y, x, dy, dx in passes
                    for row in a[y::dy, x::dx])
    write_png(path, width, height, 8 if interlaced else 16,
              {3: 2, 4: 6}[channels], int(interlaced), rows)


def grey_bits(path, image, bits):
    a = np.array(image.convert("L"))[:, :72] >> (8 - bits)
    per = 8 // bits
    packed = sum(a[:, i::per].astype(int) << (8 - bits * (i + 1))
                 for i in range(per)).astype(np.uint8)
    rows = b"".join(b"\0" + row.tobytes() for row in packed)
    write_png(path, 72, a.shape[0], bits, 0, 0, rows)


def crc(image):
    return zlib.crc32(np.ascontiguousarray(np.array(image)).tobytes())


CONFIGS = {
    "vit": (ViTImageProcessorPil, dict(size={"height": 32, "width": 32})),
    "vit_plain": (ViTImageProcessorPil, dict(
        size={"height": 48, "width": 32}, do_normalize=False, resample=3)),
    "clip": (CLIPImageProcessorPil, dict(
        size={"shortest_edge": 40}, crop_size={"height": 32, "width": 36})),
    "clip_border": (CLIPImageProcessorPil, dict(
        size={"shortest_edge": 24}, crop_size={"height": 31, "width": 40})),
    "clip_edge": (CLIPImageProcessorPil, dict(
        size={"shortest_edge": 35}, do_center_crop=False, resample=2)),
    "siglip": (SiglipImageProcessorPil, dict(
        size={"height": 33, "width": 40}, rescale_factor=1 / 127.5,
        image_mean=[0.1, 0.2, 0.3], image_std=[0.7, 0.8, 0.9])),
    "raw": (SiglipImageProcessorPil, dict(
        size={"height": 16, "width": 16}, do_rescale=False)),
}


def expect(folder, out):
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if not name.endswith((".jpg", ".png", ".webp")):
            continue
        form = Image.open(path).format
        rgb = load_image(path)
        print("decode", name, *rgb.size, form, crc(rgb), file=out)
    for name in "rgb.png", "photo.jpg", "tall.jpg":
        rgb = Image.open(os.path.join(folder, name)).convert("RGB")
        for kind in 2, 3:
            for size in ((32, 32), (224, 224), rgb.size, (rgb.width, 19),
                         (7, rgb.height), (1, 1), (301, 97)):
                print("resize", name, kind, *size,
                      crc(rgb.resize(size, kind)), file=out)
    for config, (kind, fields) in CONFIGS.items():
        processor = kind(**fields)
        with open(os.path.join(folder, config + ".json"), "w") as f:
            json.dump(processor.to_dict(), f, indent=1)
        clear = ["palette_clear.png", "grey_clear.png", "rgb_clear.png"]
        for name in ["rgb.png", "tall.jpg"] + clear * (config == "raw"):
            rgb = load_image(os.path.join(folder, name))
            got = processor(rgb, return_tensors="np")["pixel_values"][0]
            print("process", config, name, got.shape[2], got.shape[1],
                  file=out)
            got.astype("<f4").tofile(
                os.path.join(folder, f"{name}.{config}.f32"))


def shards(folder, out):
    """Tar files of all dialects; members that are no sample's are among them.
    """
    os.makedirs(os.path.join(folder, "shards"), exist_ok=True)
    dialects = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
    keys = ["./a/0001", "b/" + "long_" * 30 + "name", "c/übermäßig"]
    for i, dialect in enumerate(dialects):
        path = os.path.join(folder, "shards", f"part{i}.tar")
        with tarfile.open(path, "w", format=dialect) as tar:
            def add(name, data):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))

            add("README", b"no sample")
            for j, name in enumerate(["turn1.jpg", "turn6.png", "lossy.webp"]):
                key = (keys[i] if i == j else f"d.d/{j}")
                label = f"{10 * i + j}"
                with open(os.path.join(folder, name), "rb") as f:
                    data = f.read()
                text = '{"no": 5, "label": %s}' % label
                add(key + ".mask.png", b"something else")
                if j < 2:
                    add(key + ".CLS", (label + "\n").encode())
                    add(key + os.path.splitext(name)[1].upper(), data)
                else:
                    add(key + os.path.splitext(name)[1], data)
                    add(key + ".json", text.encode())
                print("member", label, zlib.crc32(data), file=out)


if __name__ == "__main__":
    make(sys.argv[1])
    with open(os.path.join(sys.argv[1], "index.txt"), "w") as index:
        expect(sys.argv[1], index)
        shards(sys.argv[1], index)
