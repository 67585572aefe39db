#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of transformers' Idefics2 connector between the encoder of
MiniCPM-V 4.6 and a Qwen3, from the engine's own start.

  perceiver_train.py BUILD  writes perceiver_train.txt, as llava_train.py;
                            --check and --gradients too

A picture of any number of patches takes three rows of a text. Wants Pillow 13
and later.
"""
import json
import sys
import types

import torch
from transformers.models.idefics2 import (configuration_idefics2,
                                          modeling_idefics2)

import llava_train
import minicpmv4_6_train as mini
import qwen2_vl_train as qwen2

LATENTS = 3
CUT = dict(patch_size=mini.PATCH, merge_size=2, temporal_patch_size=1)
NAMES = [
    (r"^connector\.modality_projection\.", "image_projector.projection.mlp."),
    (r"^connector\.perceiver_resampler\.latents",
     "image_projector.latents.weight"),
    (r"^connector\.perceiver_resampler\.", "image_projector."),
    (r"\.input_latents_norm\.", ".input_layernorm."),
    (r"\.input_context_norm\.", ".context_layernorm."),
] + mini.NAMES


class Whole(mini.Whole):
    def __init__(self):
        super().__init__()
        del self.merger
        self.connector = modeling_idefics2.Idefics2Connector(
            types.SimpleNamespace(
                vision_config=types.SimpleNamespace(hidden_size=16),
                text_config=types.SimpleNamespace(
                    intermediate_size=20, hidden_size=24, hidden_act="silu"),
                perceiver_config=configuration_idefics2.Idefics2PerceiverConfig(
                    hidden_size=24, resampler_n_latents=LATENTS,
                    resampler_depth=2, resampler_n_heads=4,
                    resampler_head_dim=6, num_key_value_heads=2,
                    attn_implementation="eager")))

    def merger(self, rows, sizes):
        for x in rows.split(sizes.prod(1).tolist(), 1):
            yield self.connector(x, torch.ones(x.shape[:2]))[0]

    def forward(self, input_ids, pixel_values=None, sizes=None):
        embeds = self.language_model.get_input_embeddings()(input_ids)
        if pixel_values is not None:
            rows = self.vision_tower(pixel_values, target_sizes=sizes)
            rows = list(self.merger(rows.last_hidden_state, sizes // 2))
            embeds = embeds.masked_scatter(
                (input_ids == qwen2.PICTURE)[..., None], torch.cat(rows))
        return self.language_model(inputs_embeds=embeds)


def make():
    with llava_train.wide.widened():
        return Whole().double().eval()


def load(model, params):
    return qwen2.load(model, params, NAMES)


def prepare(place):
    keys = qwen2.prepare(place)
    with open(keys[0].split("=")[1], "w") as f:
        json.dump(dict(image_processor_type="Qwen2VLImageProcessor",
                       size=qwen2.PIXELS, **CUT), f)
    return keys


def samples(place):
    for ids, extra, learned in qwen2.samples(place, qwen2.PIXELS, CUT):
        if extra:
            grids = extra["image_grid_thw"]
            extra = dict(pixel_values=mini.raster(extra["pixel_values"], grids,
                                                  2), sizes=grids[:, 1:])
        rows, marks, run = [], [], 0
        for k, token in enumerate(ids[0].tolist()):
            run = run + 1 if token == qwen2.PICTURE else 0
            if run == 1:  # a picture, whatever its rows
                rows += [token] * LATENTS
                marks += [False] * LATENTS
            elif run == 0:
                rows.append(token)
                marks.append(True)
        yield torch.tensor([rows]), extra, torch.tensor(marks[1:])


if __name__ == "__main__":
    llava_train.run(sys.modules[__name__], "perceiver_train")
