#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of transformers' Llava from the engine's own start.

  llava_train.py BUILD          writes llava_train.txt: loss and gradient norm
                                of each step, then the same with a frozen
                                encoder, then (of LLaVA) with a picture in few
                                steps
  llava_train.py BUILD --check  computes again and compares
  llava_train.py BUILD --gradients  compares those of each parameter: a step of
                                SGD of both (of the other scripts, too)

loongrun of BUILD makes the parameters at the start (llava_train.yaml, learning
rate 1e-30). Every step takes all texts of tests/train/texts_with_pictures.sh,
each alone, in float64; pictures go through PIL and transformers' CLIP
processor.
"""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

import h5py
import numpy as np
import torch
import transformers
from PIL import Image

import llava
import wide

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
STEPS, LR, BETA1, BETA2, EPS = 20, 1e-2, 0.9, 0.95, 1e-8
SIDE, ROWS, PICTURE = 8, 4, 1
# Where the engine, by its seed, has the one picture of rare.jsonl, when a step
# takes four of its 24 texts.
RARE, PICTURED = "rare.jsonl", (3, 11, 12, 19)


def make():
    sizes = dict(num_attention_heads=4)
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(
            image_size=SIDE, patch_size=4, hidden_size=12, num_hidden_layers=3,
            intermediate_size=20, **sizes),
        text_config=transformers.LlamaConfig(
            vocab_size=12, hidden_size=16, intermediate_size=24,
            num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-5,
            max_position_embeddings=24, tie_word_embeddings=False, **sizes),
        image_token_id=PICTURE, vision_feature_layer=-2,
        vision_feature_select_strategy="default", tie_word_embeddings=False)
    with wide.widened():  # the tables of the rotary embedding, too
        return transformers.LlavaForConditionalGeneration._from_config(
            config, attn_implementation="eager").double().eval()


def write_texts(place):
    subprocess.run(
        ["bash", "-c", '. "$0/tests/train/texts_with_pictures.sh"; '
         'write_texts "$0" "$1"', SOURCE, place], check=True)


def start(build, place, name, keys, source="image_text", lr=1e-30):
    """The engine's parameters by its names; its texts are in `place`."""
    subprocess.run(
        [os.path.join(build, "loongrun"),
         os.path.join(HERE, name + ".yaml"), f"data.tokenizer={place}", *keys,
         f"data.train=[{{path: {place}/texts.jsonl, source: {source}}}]",
         "train.train_iters=1",
         f"optimizer.lr={lr}", f"checkpoint.save={place}/start"],
        check=True, stdout=subprocess.DEVNULL)
    with h5py.File(glob.glob(f"{place}/start/step_*/index.h5")[0]) as f:
        return {name: f["param"][name][()] for name in f["param"]}


def load(model, params):
    missing = []
    with torch.no_grad():
        for key, p in model.named_parameters():
            name = llava.engine_name(key)
            if name in params:
                p.copy_(torch.from_numpy(params[name]).reshape(p.shape))
            else:
                missing.append(key)
    return missing


def samples(place, processor=None, file="texts.jsonl"):
    """Of each text its ids, pixels or None, and which labels are learned."""
    with open(os.path.join(place, "tokenizer.json")) as f:
        vocab = json.load(f)["model"]["vocab"]
    processor = processor or transformers.CLIPImageProcessor(
        size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    with open(os.path.join(place, file)) as f:
        for record in map(json.loads, f):
            ids, learned = [], []
            for part in record["text"].replace("<picture>", "\0"):
                count = ROWS if part == "\0" else 1
                ids += [PICTURE if part == "\0" else vocab[part]] * count
                learned += [part != "\0"] * count
            images = [Image.open(os.path.join(place, name)).convert("RGB")
                      for name in record["images"]]
            pixels = (processor(images, return_tensors="np")["pixel_values"]
                      if images else None)
            yield (torch.tensor([ids]), dict(
                pixel_values=torch.from_numpy(np.asarray(pixels)).double())
                   if images else {}, torch.tensor(learned[1:]))


def losses(model, batch):
    for ids, extra, learned in batch:
        logits = model(input_ids=ids, **extra).logits[0, :-1]
        yield torch.nn.functional.cross_entropy(
            logits[learned], ids[0, 1:][learned], reduction="sum")


def total(model, batch):
    """The sum of the losses, of equal samples that of one times their number."""
    kinds = {}
    for sample in batch:
        key = (tuple(sample[0][0].tolist()), tuple(
            (name, x.sum().item()) for name, x in sample[1].items()))
        kinds.setdefault(key, []).append(sample)
    return sum(loss * len(kind) for loss, kind in zip(
        losses(model, [kind[0] for kind in kinds.values()]), kinds.values()))


def train(of, params, batches, frozen=False):
    """batches: of each step. What has no gradient stays, and its age too."""
    model, lines, states = of.make(), [], {}
    print("not the engine's:", of.load(model, params))
    for batch in batches:
        count = sum(int(learned.sum()) for _, _, learned in batch)
        model.zero_grad()
        with wide.widened():
            loss = total(model, batch) / count
            loss.backward()
        norm = 0.0
        with torch.no_grad():
            for key, p in model.named_parameters():
                encoder = "vision_tower" in key or (
                    "visual." in key and "merger" not in key and
                    "downsample" not in key)
                if p.grad is None or (frozen and encoder):
                    continue
                norm += (p.grad ** 2).sum()
                m, v, age = states.setdefault(p, (
                    torch.zeros_like(p), torch.zeros_like(p), [0]))
                age[0] += 1
                m.mul_(BETA1).add_(p.grad, alpha=1 - BETA1)
                v.mul_(BETA2).add_(p.grad ** 2, alpha=1 - BETA2)
                p.sub_(LR * (m / (1 - BETA1 ** age[0])) /
                       ((v / (1 - BETA2 ** age[0])).sqrt() + EPS))
        lines.append((loss.item(), norm.sqrt().item()))
    return lines


def rare_batches(place):
    texts = list(samples(place, file=RARE))
    pictured = [s for s in texts if s[1]]
    others = [s for s in texts if not s[1]]
    return [(pictured + others[:3]) if step in PICTURED else others[:4]
            for step in range(STEPS)]


def gradients(of, build, name, source="image_text"):
    """The largest difference of any, over the largest of its parameter."""
    model, after, worst = of.make(), of.make(), 0.0
    with tempfile.TemporaryDirectory() as place:
        write_texts(place)
        keys = of.prepare(place) if hasattr(of, "prepare") else []
        of.load(model, start(build, place, name, keys, source))
        shutil.rmtree(f"{place}/start")
        of.load(after, start(build, place, name, keys + [
            "optimizer.name=sgd", "optimizer.sgd_momentum=0"], source, 1.0))
        batch = list(of.samples(place))
    with wide.widened():
        (total(model, batch) /
         sum(int(learned.sum()) for _, _, learned in batch)).backward()
    moved = dict(after.named_parameters())
    for key, p in model.named_parameters():
        grad = torch.zeros_like(p) if p.grad is None else p.grad
        off = ((p - moved[key]) - grad).abs().max()
        off = (off / grad.abs().max().clamp(min=1e-6)).item()
        print(f"{off:.1e} {key}")
        worst = max(worst, off)
    print(f"{worst:.1e} of {len(moved)} parameters")
    sys.exit(int(worst > 1e-9))


def steps(of, build, name, source="image_text"):
    """Of a module with make, load and samples, and what is beside the texts."""
    with tempfile.TemporaryDirectory() as place:
        write_texts(place)
        keys = of.prepare(place) if hasattr(of, "prepare") else []
        params = start(build, place, name, keys, source)
        batches = [list(of.samples(place))] * STEPS
        rare = rare_batches(place) if name == "llava_train" else []
    return (train(of, params, batches) + train(of, params, batches, True) +
            train(of, params, rare))


def run(of, name, recipe=None, source="image_text"):
    """recipe: the name of another one."""
    file = os.path.join(HERE, name + ".txt")
    if "--gradients" in sys.argv:
        gradients(of, sys.argv[1], recipe or name, source)
    lines = steps(of, sys.argv[1], recipe or name, source)
    if hasattr(of, "others"):
        lines += of.others(sys.argv[1])
    if "--check" not in sys.argv[1:]:
        with open(file, "w") as f:
            f.writelines(f"{a!r} {b!r}\n" for a, b in lines)
        return
    worst = np.max(np.abs(np.array(lines) - np.loadtxt(file)))
    print(f"{worst:.1e}")
    sys.exit(int(worst > 1e-10))


if __name__ == "__main__":
    run(sys.modules[__name__], "llava_train")
