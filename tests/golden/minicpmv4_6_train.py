#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of transformers' MiniCPM-V 4.6 encoder and merger before a
Qwen3, from the engine's own start.

  minicpmv4_6_train.py BUILD          writes minicpmv4_6_train.txt, as
                                      llava_train.py
  minicpmv4_6_train.py BUILD --check  computes again and compares

A table of 5 x 5 positions, three layers, the merger behind the second; pixels
are of Qwen2-VL's processor, blocks of 4 x 4 patches. The third part is of
downsample_mode 4x: the merger stays, four times as many rows go on.
"""
import json
import os
import re
import sys

import numpy as np
import torch
import transformers
from transformers.models.minicpmv4_6 import (configuration_minicpmv4_6,
                                             modeling_minicpmv4_6)

import llava_train
import qwen2_vl_train as qwen2

PIXELS = dict(shortest_edge=512, longest_edge=1536)
PATCH = 4
VISION = dict(num_hidden_layers=3, hidden_size=16, intermediate_size=20,
              num_attention_heads=2, patch_size=PATCH, image_size=20)
TEXT = dict(vocab_size=12, hidden_size=24, intermediate_size=24,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=6, max_position_embeddings=24, rms_norm_eps=1e-6,
            tie_word_embeddings=False, bos_token_id=0, eos_token_id=0,
            rope_parameters=dict(rope_type="default", rope_theta=1e4))
NAMES = [
    (r"^language_model\.model\.", "foundation."),
    (r"^language_model\.", "foundation."),
    (r"^merger\.mlp\.0\.pre_norm", "image_projector.norm"),
    (r"^merger\.mlp\.0\.", "image_projector."),
    (r"^vision_tower\.embeddings\.patch_embedding",
     "image_encoder.patch_embedding"),
    (r"^vision_tower\.embeddings\.position_embedding\.",
     "image_encoder.position_embeddings."),
    (r"^vision_tower\.post_layernorm", "image_encoder.norm"),
    (r"^vision_tower\.vit_merger\.pre_norm", "image_encoder.merger.norm"),
    (r"^vision_tower\.vit_merger\.", "image_encoder.merger."),
    (r"^vision_tower\.encoder\.", "image_encoder."),
    (r"\.layer_norm1\.", ".input_layernorm."),
    (r"\.layer_norm2\.", ".post_attention_layernorm."),
    (r"\.self_attn\.out_proj\.", ".self_attn.o_proj."),
    (r"\.mlp\.fc1\.", ".mlp.up_proj."),
    (r"\.mlp\.fc2\.", ".mlp.down_proj."),
]


class Whole(torch.nn.Module):
    mode = "16x"

    def __init__(self):
        super().__init__()
        config = configuration_minicpmv4_6.MiniCPMV4_6Config(
            vision_config=VISION, insert_layer_id=1,
            text_config=dict(model_type="qwen3", **TEXT))
        eager = dict(attn_implementation="eager")
        self.vision_tower = (modeling_minicpmv4_6.MiniCPMV4_6VisionModel
                             ._from_config(config.vision_config, **eager))
        self.merger = modeling_minicpmv4_6.MiniCPMV4_6Merger(config)
        self.language_model = transformers.Qwen3ForCausalLM._from_config(
            config.text_config, **eager)

    def forward(self, input_ids, pixel_values=None, sizes=None):
        embeds = self.language_model.get_input_embeddings()(input_ids)
        if pixel_values is not None:
            use = self.mode == "16x"
            rows = self.vision_tower(pixel_values, target_sizes=sizes,
                                     use_vit_merger=use).last_hidden_state
            rows = self.merger(rows, sizes // 2 if use else sizes)
            embeds = embeds.masked_scatter(
                (input_ids == qwen2.PICTURE)[..., None], torch.cat(rows))
        return self.language_model(inputs_embeds=embeds)


def make():
    with llava_train.wide.widened():
        return Whole().double().eval()


def load(model, params):
    return qwen2.load(model, params, NAMES)


def cut():
    return dict(patch_size=PATCH, merge_size=4 if Whole.mode == "16x" else 2,
                temporal_patch_size=1)


def prepare(place):
    keys = qwen2.prepare(place)
    path = keys[0].split("=")[1]
    with open(path, "w") as f:
        json.dump(dict(image_processor_type="Qwen2VLImageProcessor",
                       size=PIXELS, **cut()), f)
    return keys + MODES[Whole.mode]


# 4 x 4 patches become a row of a text, or 2 x 2 of smaller pictures.
MODES = {"16x": [], "4x": ["model.image_encoder.use_merger=false"]}


def raster(pixels, grids, merge):
    """Blocks of patches become rows of them, side by side."""
    out, at = [], 0
    for _, h, w in grids.tolist():
        x = pixels[at:at + h * w].reshape(h // merge, w // merge, merge, merge,
                                          3, PATCH, PATCH)
        out.append(x.permute(0, 2, 1, 3, 4, 5, 6).reshape(-1, 3, PATCH, PATCH))
        at += h * w
    return torch.cat(out).permute(1, 2, 0, 3).flatten(2)[None]


def samples(place):
    merge = cut()["merge_size"]
    for ids, extra, learned in qwen2.samples(
            place, PIXELS, cut()):
        if extra:
            grids = extra["image_grid_thw"]
            extra = dict(pixel_values=raster(extra["pixel_values"], grids,
                                             merge), sizes=grids[:, 1:])
        yield ids, extra, learned


def others(build):
    """The same in the other mode."""
    Whole.mode = "4x"
    PIXELS.update(shortest_edge=64, longest_edge=384)
    lines = llava_train.steps(sys.modules[__name__], build,
                              "minicpmv4_6_train")
    return lines


if __name__ == "__main__":
    llava_train.run(sys.modules[__name__], "minicpmv4_6_train")
