#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of the golden vision transformers on pictures.

  vision_train.py          writes vision/NAME/train.txt: loss and gradient norm
                           of each step
  vision_train.py --check  computes again and compares

Every step takes all ten pictures of PICTURES, in float64 from pixels on; that
of masked images the first of them BATCH times, with other patches masked each
time (include/loong/image.h says which). They are resized along rows and then
along columns, as Pillow up to 12 does and the engine too, rescaled and
normalised as their image processors do.
"""
import os
import sys

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file

import vision
import wide

STEPS, LR, BETA1, BETA2, EPS = 20, 1e-2, 0.9, 0.95, 1e-8
# Two of a class, in the directory of the fixtures of the image source.
PICTURES = ["rgb.png", "j420.jpg", "grey.png", "progressive.jpg",
            "palette.png", "cmyk.jpg", "rgba.png", "lossy.webp", "j444.jpg",
            "rgb16.png"]
SEED, MASK_RATIO, BATCH = 11, 0.6, 4
PROCESSORS = {
    "vit": (Image.BILINEAR, [0.5] * 3, [0.5] * 3),
    "masked": (Image.BILINEAR, [0.5] * 3, [0.5] * 3),
    "clip": (Image.BICUBIC, [0.48145466, 0.4578275, 0.40821073],
             [0.26862954, 0.26130258, 0.27577711]),
    "siglip": (Image.BICUBIC, [0.5] * 3, [0.5] * 3),
}


def pixels(name, path, size):
    kind, mean, deviation = PROCESSORS[name]
    image = Image.open(path).convert("RGB")
    width = height = size
    if name == "clip":  # the shortest edge, and the middle of the other one
        short = min(image.size)
        width, height = (size * edge // short for edge in image.size)
    if image.width != width:
        image = image.resize((width, image.height), kind)
    if image.height != height:
        image = image.resize((width, height), kind)
    left, top = (width - size) // 2, (height - size) // 2
    image = image.crop((left, top, left + size, top + size))
    x = (np.asarray(image) * (1.0 / 255)).astype(np.float32)
    x = (x - np.float32(mean)) / np.float32(deviation)
    return torch.from_numpy(x).double().permute(2, 0, 1)


def name_hash(name):
    bits = 14695981039346656037
    for byte in name.encode():
        bits = (bits ^ byte) * 1099511628211 % 2 ** 64
    for factor in (0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53):
        bits = (bits ^ bits >> 33) * factor % 2 ** 64
    return bits ^ bits >> 33


def uniform(seed, name, index):
    """Of Philox4x32-10, as src/base/rng.h says."""
    low, c = 2 ** 32 - 1, [index, index >> 32, name, name >> 32]
    c, key = [word & low for word in c], [seed & low, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ key[0], b & low, a >> 32 ^ c[3] ^ key[1],
             a & low]
        key = [(k + w) & low for k, w in zip(key, (0x9E3779B9, 0xBB67AE85))]
    return (((c[0] << 32 | c[1]) >> 11) + 0.5) * 2.0 ** -53


def mask(draw, patches):
    name, masked = name_hash("masked patches"), []
    left = round(MASK_RATIO * patches)
    for i in range(patches):
        u = uniform(SEED, name, draw * patches + i)
        masked.append(u * (patches - i) <= left)
        left -= masked[-1]
    assert left == 0
    return masked


def step_loss(name, model, x, step):
    if name == "masked":
        draws = range((step - 1) * len(x), step * len(x))
        patches = (model.config.image_size // model.config.patch_size) ** 2
        masks = torch.tensor([mask(d, patches) for d in draws])
        return vision.masked_mse(model, x, masks)[2]
    labels = torch.arange(len(PICTURES)) // 2
    logits = model(pixel_values=x).logits
    return torch.nn.functional.cross_entropy(logits, labels)


def train(name):
    folder = os.path.join(vision.HERE, "vision", name)
    model = vision.CASES[name]()[0].from_pretrained(
        folder, attn_implementation="eager").double().eval()
    size = getattr(model.config, "vision_config", model.config).image_size
    pictures = os.path.join(vision.HERE, "..", "fixtures", "images")
    x = torch.stack([pixels(name, os.path.join(pictures, p), size)
                     for p in PICTURES])
    x = x[:1].expand(BATCH, -1, -1, -1) if name == "masked" else x
    lines, states = [], {}
    for step in range(1, STEPS + 1):
        model.zero_grad()
        with wide.widened(), wide.OnlyFloat64():
            loss = step_loss(name, model, x, step)
            loss.backward()
        norm = 0.0
        with torch.no_grad():
            for p in model.parameters():
                if p.grad is None:
                    continue
                norm += (p.grad ** 2).sum()
                m, v = states.setdefault(p, (torch.zeros_like(p),
                                             torch.zeros_like(p)))
                m.mul_(BETA1).add_(p.grad, alpha=1 - BETA1)
                v.mul_(BETA2).add_(p.grad ** 2, alpha=1 - BETA2)
                p.sub_(LR * (m / (1 - BETA1 ** step)) /
                       ((v / (1 - BETA2 ** step)).sqrt() + EPS))
        lines.append((loss.item(), norm.sqrt().item()))
    return lines


def main():
    failed = 0
    for name in PROCESSORS:
        path = os.path.join(vision.HERE, "vision", name, "train.txt")
        lines = train(name)
        if "--check" not in sys.argv[1:]:
            with open(path, "w") as f:
                f.writelines(f"{a!r} {b!r}\n" for a, b in lines)
            continue
        worst = max(np.max(np.abs(np.array(lines) / np.loadtxt(path) - 1)), 0)
        failed += worst > 1e-10
        print(f"{name}: {worst:.1e}")
    sys.exit(int(failed > 0))


if __name__ == "__main__":
    main()
