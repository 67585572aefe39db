#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of transformers' Qwen2-VL from the engine's own start.

  qwen2_vl_train.py BUILD          writes qwen2_vl_train.txt, as llava_train.py
  qwen2_vl_train.py BUILD --check  computes again and compares

Pictures keep sizes of their own: they go through PIL and transformers'
Qwen2-VL processor, with the bounds of PIXELS.
"""
import json
import os
import re
import shutil
import sys

import numpy as np
import torch
import transformers
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import \
    Qwen2VLImageProcessorPil

import llava_train

HERE = os.path.dirname(os.path.abspath(__file__))
PIXELS = dict(shortest_edge=64, longest_edge=384)
CUT = dict(patch_size=4, merge_size=2, temporal_patch_size=2)
PICTURE = 1
TEXT = dict(
    vocab_size=12, hidden_size=24, intermediate_size=24, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=24,
    rms_norm_eps=1e-6, bos_token_id=0, eos_token_id=0,
    rope_parameters=dict(rope_type="default", rope_theta=1e4,
                         mrope_section=[1, 1, 1]))
NAMES = [
    (r"^model\.language_model\.", "foundation."),
    (r"^lm_head", "foundation.lm_head"),
    (r"^model\.visual\.merger\.ln_q", "image_projector.norm"),
    (r"^model\.visual\.merger\.mlp\.0", "image_projector.linear_1"),
    (r"^model\.visual\.merger\.mlp\.2", "image_projector.linear_2"),
    (r"^model\.visual\.patch_embed\.proj", "image_encoder.patch_embedding"),
    (r"^model\.visual\.blocks\.", "image_encoder.layers."),
    (r"\.norm1\.", ".input_layernorm."),
    (r"\.norm2\.", ".post_attention_layernorm."),
    (r"\.attn\.proj\.", ".self_attn.o_proj."),
    (r"\.attn\.qkv\.", ".self_attn.qkv."),
    (r"\.mlp\.fc1\.", ".mlp.up_proj."),
    (r"\.mlp\.fc2\.", ".mlp.down_proj."),
]


def make():
    config = transformers.Qwen2VLConfig(
        vision_config=dict(
            depth=3, embed_dim=16, hidden_size=24, num_heads=2, mlp_ratio=2,
            patch_size=4, spatial_merge_size=2, temporal_patch_size=2),
        text_config=TEXT, image_token_id=PICTURE, tie_word_embeddings=False)
    with llava_train.wide.widened():  # the tables of the rotary embedding, too
        return transformers.Qwen2VLForConditionalGeneration._from_config(
            config, attn_implementation="eager").double().eval()


def engine_names(key, names):
    """The engine's parameters that `key` holds, one after another."""
    for pattern, name in names:
        key = re.sub(pattern, name, key)
    if ".qkv." in key:
        return [key.replace(".qkv.", f".{part}_proj.") for part in "qkv"]
    return [key]


def load(model, params, names=NAMES, names_of=None, of_engine=None):
    missing = []
    with torch.no_grad():
        for key, p in model.named_parameters():
            parts = names_of(key) if names_of else engine_names(key, names)
            if all(part in params for part in parts):
                whole = np.concatenate([params[part] for part in parts])
                p.copy_(of_engine(key, whole, p.shape) if of_engine
                        else torch.from_numpy(whole).reshape(p.shape))
            else:
                missing.append(key)
    return missing


def prepare(place):
    """Another picture that is higher than wide, and the processor's file."""
    shutil.copy(os.path.join(llava_train.SOURCE,
                             "tests/fixtures/images/tall.jpg"),
                os.path.join(place, "j420.jpg"))
    path = os.path.join(place, "preprocessor_config.json")
    with open(path, "w") as f:
        json.dump(dict(image_processor_type="Qwen2VLImageProcessor",
                       size=PIXELS, **CUT), f)
    return [f"data.image_processor={path}"]


def samples(place, size=PIXELS, cut=CUT, processor=None):
    with open(os.path.join(place, "tokenizer.json")) as f:
        vocab = json.load(f)["model"]["vocab"]
    processor = processor or Qwen2VLImageProcessorPil(size=size, **cut)
    block = cut["merge_size"] ** 2
    with open(os.path.join(place, "texts.jsonl")) as f:
        for record in map(json.loads, f):
            images = [Image.open(os.path.join(place, name)).convert("RGB")
                      for name in record["images"]]
            found = processor(images, return_tensors="np") if images else {}
            grids = iter(found.get("image_grid_thw", []))
            ids, learned = [], []
            for part in record["text"].replace("<picture>", "\0"):
                count = np.prod(next(grids)) // block if part == "\0" else 1
                ids += [PICTURE if part == "\0" else vocab[part]] * count
                learned += [part != "\0"] * count
            ids = torch.tensor([ids])
            extra = dict(
                pixel_values=torch.from_numpy(found["pixel_values"]).double(),
                image_grid_thw=torch.from_numpy(found["image_grid_thw"]),
                mm_token_type_ids=(ids == PICTURE).int()) if images else {}
            yield ids, extra, torch.tensor(learned[1:])


if __name__ == "__main__":
    llava_train.run(sys.modules[__name__], "qwen2_vl_train")
