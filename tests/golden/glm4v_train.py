#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of transformers' GLM-4.1V from the engine's own start.

  glm4v_train.py BUILD          writes glm4v_train.txt, as llava_train.py
  glm4v_train.py BUILD --check  computes again and compares

A table of 5 x 5 positions; six of twelve channels of a head are rotated, a pair
of neighbours for each axis. Pictures go through transformers' GLM-4.1V processor,
whose bounds are of two frames.
"""
import functools
import json
import sys

import torch
import transformers
from transformers.models.glm4v.image_processing_pil_glm4v import \
    Glm4vImageProcessorPil

import llava_train
import qwen2_vl_train as qwen2

PIXELS = dict(shortest_edge=128, longest_edge=768)
NAMES = [
    (r"^model\.visual\.downsample\.", "image_projector.linear_1."),
    (r"^model\.visual\.merger\.proj\.", "image_projector.linear_2."),
    (r"^model\.visual\.merger\.post_projection_norm",
     "image_projector.post_norm"),
    (r"^model\.visual\.merger\.", "image_projector.mlp."),
    (r"^model\.visual\.post_conv_layernorm", "image_encoder.patch_layernorm"),
    (r"^model\.visual\.post_layernorm", "image_encoder.norm"),
    (r"^model\.visual\.embeddings\.position_embedding",
     "image_encoder.position_embeddings"),
] + qwen2.NAMES
VISION = dict(
    depth=3, hidden_size=16, out_hidden_size=24, num_heads=2,
    intermediate_size=20, image_size=20, patch_size=4, spatial_merge_size=2,
    temporal_patch_size=2)
TEXT = dict(
    qwen2.TEXT, num_attention_heads=2, num_key_value_heads=1, rms_norm_eps=1e-5,
    rope_parameters=dict(rope_type="default", rope_theta=1e4,
                         partial_rotary_factor=0.5, mrope_section=[1, 1, 1]))


def make(text=TEXT, **ids):
    config = transformers.Glm4vConfig(
        vision_config=VISION, text_config=text, image_token_id=qwen2.PICTURE,
        tie_word_embeddings=False, **ids)
    with llava_train.wide.widened():
        return transformers.Glm4vForConditionalGeneration._from_config(
            config, attn_implementation="eager").double().eval()


def of_names(key):
    """The engine's parameters that `key` holds, one after another."""
    parts = qwen2.engine_names(key, NAMES)
    if ".gate_up_proj." in key:
        return [parts[0].replace("gate_up", part) for part in ("gate", "up")]
    return parts


def of_engine(key, whole, shape):
    """Columns of a block are patches of channels, the class' channels of
    patches."""
    x = torch.from_numpy(whole)
    if key.endswith("downsample.weight"):
        x = x.reshape(shape[0], shape[2], shape[3], shape[1])
        return x.permute(0, 3, 1, 2)
    return x.reshape(shape)


load = functools.partial(qwen2.load, names_of=of_names, of_engine=of_engine)


def processor():
    return Glm4vImageProcessorPil(size=PIXELS, **qwen2.CUT)


def prepare(place):
    keys = qwen2.prepare(place)
    with open(keys[0].split("=")[1], "w") as f:
        json.dump(dict(image_processor_type="Glm4vImageProcessor", size=PIXELS,
                       **qwen2.CUT), f)
    return keys


samples = functools.partial(qwen2.samples, processor=processor())

if __name__ == "__main__":
    llava_train.run(sys.modules[__name__], "glm4v_train")
