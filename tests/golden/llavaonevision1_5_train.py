#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of a LLaVA-OneVision-1.5 from the engine's own start.

  llavaonevision1_5_train.py BUILD          writes llavaonevision1_5_train.txt,
                                            as llava_train.py
  llavaonevision1_5_train.py BUILD --check  computes again and compares

transformers has no class of it: its encoder and merger are
own_code/llavaonevision1_5.py, its language model is transformers' Qwen3.
"""
import functools
import os
import sys

import torch

import llava_train
import kimi_k25_train
import qwen2_vl_train as qwen2

sys.path.insert(0, os.path.join(llava_train.HERE, "own_code"))
import llavaonevision1_5  # noqa: E402

VISION = dict(depth=2, hidden_size=16, embed_dim=16, intermediate_size=20,
              num_heads=2, patch_size=4, text_hidden_size=24)
TEXT = dict({k: v for k, v in qwen2.TEXT.items() if k != "rope_parameters"},
            head_dim=6, tie_word_embeddings=False,
            rope_parameters=dict(rope_type="default", rope_theta=1e4))
NAMES = [(r"^model\.visual\.class_embedding",
          "image_encoder.class_token.weight"),
         (r"^model\.visual\.class_pos_emb", "image_encoder.class_angles.weight"),
         (r"^model\.visual\.pre_layernorm", "image_encoder.pre_layernorm"),
         *qwen2.NAMES]


def make():
    config = llavaonevision1_5.Config(
        vision_config=VISION, text_config=TEXT, image_token_id=qwen2.PICTURE,
        tie_word_embeddings=False)
    with llava_train.wide.widened():
        return llavaonevision1_5.LLaVAOneVision1_5_ForConditionalGeneration(
            config).double().eval()


load = functools.partial(qwen2.load, names=NAMES)
prepare = kimi_k25_train.prepare


def samples(place):
    frames = qwen2.CUT["temporal_patch_size"]
    for ids, extra, learned in qwen2.samples(place):
        if extra:
            pixels = extra["pixel_values"].reshape(-1, 3, frames, 16)[:, :, 0]
            extra = dict(pixel_values=pixels.flatten(1),
                         image_grid_thw=extra["image_grid_thw"])
        yield ids, extra, learned


if __name__ == "__main__":
    llava_train.run(sys.modules[__name__], "llavaonevision1_5_train")
