#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of minicpmv4_6_train.py's model on texts, pictures and
videos, each in slices.

  minicpmv4_6_video_train.py BUILD          writes minicpmv4_6_video_train.txt,
                                            as llava_train.py
  minicpmv4_6_video_train.py BUILD --check  computes again and compares

Ids, frames, slices and pixels are those of transformers' MiniCPM-V 4.6
processors; texts are those of vl_video_train.py. Wants torchvision and av.
"""
import json
import os
import re
import sys

import numpy as np
import torch
from PIL import Image
from transformers.models.minicpmv4_6.video_processing_minicpmv4_6 import \
    MiniCPMV4_6VideoProcessor

import llava_train
import minicpmv4_6_slices_train as slices
import minicpmv4_6_train as model
import vl_video_train as videos

RULES = dict(patch_size=model.PATCH, scale_resolution=8, max_slice_nums=3)
VOCAB = videos.VOCAB + len(slices.TOKENS)
LENGTH = 160
load = model.load


def make():
    model.TEXT.update(vocab_size=VOCAB, max_position_embeddings=LENGTH)
    return model.make()


def prepare(place):
    keys = videos.write(place, "qwen3_vl", slices.TOKENS)
    for name, own in (
            ("preprocessor_config", slices.slicing().to_dict()),
            ("video_preprocessor_config", dict(
                video_processor_type="MiniCPMV4_6VideoProcessor", **RULES))):
        with open(os.path.join(place, name + ".json"), "w") as f:
            json.dump(own, f)
    return keys + [f"model.foundation.vocab_size={VOCAB}",
                   f"model.foundation.max_position_embeddings={LENGTH}",
                   f"data.seq_length={LENGTH}", "data.max_patches=1280"]


def video(path):
    """Frames, and what is known of them."""
    with videos.av.open(path) as container:
        rate = float(container.streams.video[0].average_rate)
        frames = np.stack([f.to_ndarray(format="rgb24")
                           for f in container.decode(video=0)])
    return torch.from_numpy(frames.transpose(0, 3, 1, 2).copy()), \
        videos.VideoMetadata(total_num_frames=len(frames), fps=rate,
                             duration=len(frames) / rate)


def units(place, record):
    """Pixels and sizes of what stands in the text, in its order."""
    bare = MiniCPMV4_6VideoProcessor(rescale_factor=1.0, do_normalize=False,
                                     **RULES)
    images = iter(record.get("images", []))
    films = iter(record.get("videos", [record.get("video")]))
    for kind in re.findall("<picture>|<video>", record["text"]):
        if kind == "<picture>":
            found = slices.slicing()(Image.open(os.path.join(
                place, next(images))).convert("RGB"), return_tensors="np")
            pixels = found["pixel_values"]
            sizes = found["target_sizes"]
        else:
            frames, metadata = video(os.path.join(place, next(films)))
            found = bare(videos=[frames], video_metadata=[metadata],
                         do_sample_frames=True, return_tensors="np")
            half = np.full(3, 0.5).reshape(1, 3, 1, 1)
            pixels = videos.values_of(
                found["pixel_values_videos"].astype(np.float64), half, half)
            sizes = found["target_sizes_videos"]
        yield (torch.as_tensor(np.asarray(pixels)).double(),
               torch.as_tensor(np.asarray(sizes)).long())


def samples(place):
    both = slices.processor(place)
    both.tokenizer.video_token_id = both.video_token_id = videos.VIDEO
    both.video_processor = MiniCPMV4_6VideoProcessor(**RULES)
    with open(os.path.join(place, "texts.jsonl")) as f:
        records = [json.loads(line) for line in f]
    for record in records:
        images = [Image.open(os.path.join(place, name)).convert("RGB")
                  for name in record.get("images", [])]
        films = [video(os.path.join(place, name)) for name in record.get(
            "videos", [record["video"]] if "video" in record else [])]
        found = both(text=[record["text"]], images=[images] if images else None,
                     **(dict(videos=[v for v, _ in films],
                             video_metadata=[m for _, m in films],
                             do_sample_frames=True) if films else {}))
        ids = torch.as_tensor(found["input_ids"]).clone().reshape(1, -1)
        read = list(units(place, record))
        extra = dict(pixel_values=torch.cat([r[0] for r in read], -1),
                     sizes=torch.cat([r[1] for r in read])) if read else {}
        letters = both.tokenizer.convert_tokens_to_ids(list("abcdefghij"))
        learned = torch.tensor([t in letters for t in ids[0, 1:].tolist()])
        # Whatever stands for a row is not read.
        ids[ids == videos.VIDEO] = videos.PICTURE
        yield ids, extra, learned


if __name__ == "__main__":
    llava_train.run(sys.modules[__name__], "minicpmv4_6_video_train",
                    "minicpmv4_6_train", "chat")
