#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of transformers' Kimi-K2.5 on texts, pictures and videos,
from the engine's own start.

  kimi_k25_video_train.py BUILD  writes kimi_k25_video_train.txt, as
                                 llava_train.py; --check and --gradients too

The model is that of kimi_k25_train.py, with chunks of three frames; texts are
those of vl_video_train.py. Sizes, margins, chunks and times are those of
transformers' Kimi processors, whose values are made in numpy's order.
"""
import json
import os
import sys
import time
import types

import numpy as np
import torch
import transformers
from PIL import Image
from transformers.models.kimi_k25.image_processing_kimi_k25 import \
    Kimi_K25ImageProcessor
from transformers.models.kimi_k25.video_processing_kimi_k25 import \
    Kimi_K25VideoProcessor
from transformers.video_utils import VideoMetadata

import kimi_k25_train as kimi
import llava_train
import vl_video_train as videos

CHUNK, FPS = 3, 2.0
LETTERS = "mv:|_"  # of times and of the tokens around chunks
VOCAB = videos.VOCAB + len(LETTERS)
PICTURES = dict(size=dict(max_height=16, max_width=16), max_patches=25,
                patch_size=4, merge_size=2)
FRAMES = dict(PICTURES, max_patches=40, temporal_patch_size=CHUNK, fps=FPS)
kimi.VISION["pos_emb_time"] = CHUNK
kimi.TEXT.update(vocab_size=VOCAB, max_position_embeddings=272)
load = kimi.load


def make():
    config = transformers.Kimi_K25Config(
        vision_config=kimi.VISION, text_config=kimi.TEXT,
        projection_hidden_size=16, image_token_id=videos.PICTURE,
        video_token_id=videos.VIDEO, tie_word_embeddings=False)
    with llava_train.wide.widened():
        model = transformers.Kimi_K25ForConditionalGeneration._from_config(
            config, attn_implementation="eager").double().eval()
    model.model.get_video_features = lambda *of, **more: by_chunk(
        model.model, *of, **more)
    return model


def by_chunk(model, pixels, grids, **_):
    """The class' own wants chunks of one frame: its split counts all frames."""
    rows = []
    for x, grid in zip(pixels.split(grids.prod(1).tolist()), grids):
        pooled = model.vision_tower(x, grid_thw=grid[None]).pooler_output
        rows.append(model.mm_projector(pooled).squeeze(1))
    return types.SimpleNamespace(pooler_output=rows)


def prepare(place):
    keys = videos.write(place, "qwen3_vl", LETTERS)
    for name, kind, rules in (
            ("preprocessor_config", "image_processor_type", PICTURES),
            ("video_preprocessor_config", "video_processor_type", FRAMES)):
        words = dict(image_processor_type="Kimi_K25ImageProcessor",
                     video_processor_type="Kimi_K25VideoProcessor")
        with open(os.path.join(place, name + ".json"), "w") as f:
            json.dump({kind: words[kind], **rules}, f)
    return keys + [f"model.image_encoder.chunk_frames={CHUNK}",
                   f"model.foundation.vocab_size={VOCAB}",
                   "model.foundation.max_position_embeddings=272",
                   "data.seq_length=272", "data.max_patches=320"]


def values_of(patches):
    """[rows, 3, 4, 4] of bytes, as half of the range each side of 0."""
    half = np.full(3, 0.5).reshape(3, 1, 1)
    return torch.from_numpy(videos.values_of(
        patches.numpy().astype(np.float64), half, half)).double()


def read_video(path):
    processor = Kimi_K25VideoProcessor(do_rescale=False, do_normalize=False,
                                       **FRAMES)
    with videos.av.open(path) as container:
        rate = float(container.streams.video[0].average_rate)
        frames = np.stack([f.to_ndarray(format="rgb24")
                           for f in container.decode(video=0)])
    found = VideoMetadata(total_num_frames=len(frames), fps=rate)
    found.frames_indices = np.asarray(processor.sample_frames(found, fps=FPS))
    own = frames[found.frames_indices].transpose(0, 3, 1, 2).copy()
    out = processor(videos=[torch.from_numpy(own)], do_sample_frames=False,
                    return_tensors="pt")
    return (values_of(out["pixel_values_videos"]), out["video_grid_thw"],
            found.timestamps)


def samples(place):
    with open(os.path.join(place, "tokenizer.json")) as f:
        vocab = json.load(f)["model"]["vocab"]
    pictures = Kimi_K25ImageProcessor(do_rescale=False, do_normalize=False,
                                      **PICTURES)
    with open(os.path.join(place, "texts.jsonl")) as f:
        records = [json.loads(line) for line in f]
    for record in records:
        images = [Image.open(os.path.join(place, file)).convert("RGB")
                  for file in record.get("images", [])]
        names = record.get("videos", [record["video"]] if "video" in record
                           else [])
        found = pictures(images, return_tensors="pt") if images else {}
        grids = iter(found.get("image_grid_thw", []))
        read = [read_video(os.path.join(place, file)) for file in names]
        left, ids, learned = iter(read), [], []

        def put(tokens, learns):
            ids.extend(tokens)
            learned.extend([learns] * len(tokens))

        def letters(text):
            put([vocab[c] for c in text], False)

        for part in record["text"].replace("<picture>", "\0").replace(
                "<video>", "\1"):
            if part == "\0":
                put([videos.PICTURE] * (int(next(grids).prod()) // 4), False)
            elif part == "\1":
                _, chunks, times = next(left)
                for k, (_, h, w) in enumerate(chunks.tolist()):
                    at = float(times[k * CHUNK])
                    letters(time.strftime("%H:%M:%S", time.gmtime(at)) +
                            f".{int(at % 1 * 1000):03d}"
                            "<|media_begin|>video<|media_content|>")
                    put([videos.VIDEO] * (h * w // 4), False)
                    letters("<|media_end|>")
            else:
                put([vocab[part]], True)
        extra = {}
        if images:
            extra.update(pixel_values=values_of(found["pixel_values"]),
                         image_grid_thw=found["image_grid_thw"])
        if read:
            extra.update(pixel_values_videos=torch.cat([r[0] for r in read]),
                         video_grid_thw=torch.cat([r[1] for r in read]))
        yield torch.tensor([ids]), extra, torch.tensor(learned[1:])


if __name__ == "__main__":
    llava_train.run(sys.modules[__name__], "kimi_k25_video_train",
                    "kimi_k25_train", "chat")
