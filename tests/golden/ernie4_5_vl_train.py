#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of transformers' ERNIE 4.5 VL from the engine's own start.

  ernie4_5_vl_train.py BUILD          writes ernie4_5_vl_train.txt, as
                                      llava_train.py
  ernie4_5_vl_train.py BUILD --check  computes again and compares

Pictures go through transformers' own image processor; a letter goes to the
experts for pictures as these do, as tokens of their start and end would.
"""
import json
import os

import sys

import numpy as np
import torch
import transformers
from PIL import Image
from transformers.models.ernie4_5_vl_moe.image_processing_pil_ernie4_5_vl_moe \
    import Ernie4_5_VLMoeImageProcessorPil

import llava_train
import qwen2_vl_train as qwen2

PIXELS = qwen2.PIXELS
CUT = dict(qwen2.CUT, temporal_patch_size=1)
PICTURE, LETTER = qwen2.PICTURE, 4
VISION = dict(depth=3, hidden_size=16, intermediate_size=20, num_heads=2,
              patch_size=4)
TEXT = dict(
    vocab_size=12, hidden_size=24, intermediate_size=28, num_hidden_layers=3,
    num_attention_heads=4, num_key_value_heads=2, head_dim=10,
    max_position_embeddings=24, rms_norm_eps=1e-5, tie_word_embeddings=True,
    moe_num_experts=4, moe_k=2, moe_intermediate_size=[10, 6],
    moe_num_shared_experts=1,
    rope_parameters=dict(rope_type="default", rope_theta=1e4,
                         mrope_section=[2, 2, 1]))
NAMES = [
    (r"^model\.language_model\.", "foundation."),
    (r"\.shared_experts\.", ".shared_expert."),
    (r"^model\.resampler_model\.", "image_projector."),
    (r"spatial_linear\.", "spatial."),
    (r"temporal_linear\.", "temporal."),
    (r"(l\.)ln\.", r"\1norm."),
    (r"(l\.)fc", r"\1linear_"),
    (r"projector\.after_norm", "projector.norm"),
    (r"projector\.mlp", "projector.linear_2"),
    (r"^model\.vision_tower\.ln", "image_encoder.norm"),
    (r"^model\.vision_tower\.patch_embed\.proj",
     "image_encoder.patch_embedding"),
    (r"^model\.vision_tower\.blocks\.", "image_encoder.layers."),
] + [n for n in qwen2.NAMES if n[0].startswith(r"\.")]


def make(video=PICTURE, **sizes):
    config = transformers.Ernie4_5_VLMoeConfig(
        vision_config=VISION, text_config=dict(TEXT, **sizes),
        image_token_id=PICTURE, image_start_token_id=LETTER,
        image_end_token_id=LETTER, video_token_id=video,
        video_start_token_id=LETTER, video_end_token_id=LETTER,
        tie_word_embeddings=True)
    with llava_train.wide.widened():
        return transformers.Ernie4_5_VLMoeForConditionalGeneration._from_config(
            config, attn_implementation="eager",
            experts_implementation="eager").double().eval()


def load(model, params):
    return qwen2.load(model, params, NAMES)


def prepare(place):
    path = qwen2.prepare(place)[0].split("=")[1]
    with open(path, "w") as f:
        json.dump(dict(image_processor_type="Ernie4_5_VLMoeImageProcessor",
                       size=PIXELS, **CUT), f)
    return [f"data.image_processor={path}"]


def types_of(ids, places=(PICTURE,)):
    """Places of pictures, and experts for them."""
    kinds = sum((ids == place).int() * (k + 1)
                for k, place in enumerate(places))
    return dict(mm_token_type_ids=kinds,
                moe_mm_token_type_ids=(kinds > 0).int() |
                (ids == LETTER).int())


def samples(place):
    processor = Ernie4_5_VLMoeImageProcessorPil(size=PIXELS, **CUT)
    with open(os.path.join(place, "tokenizer.json")) as f:
        vocab = json.load(f)["model"]["vocab"]
    with open(os.path.join(place, "texts.jsonl")) as f:
        for record in map(json.loads, f):
            images = [Image.open(os.path.join(place, name)).convert("RGB")
                      for name in record["images"]]
            found = processor(images, return_tensors="np") if images else {}
            grids = iter(found.get("image_grid_thw", []))
            ids, learned = [], []
            for part in record["text"].replace("<picture>", "\0"):
                count = np.prod(next(grids)) // 4 if part == "\0" else 1
                ids += [PICTURE if part == "\0" else vocab[part]] * count
                learned += [part != "\0"] * count
            ids = torch.tensor([ids])
            extra = types_of(ids)
            if images:
                extra.update(
                    pixel_values=torch.from_numpy(
                        found["pixel_values"]).double(),
                    image_grid_thw=torch.from_numpy(found["image_grid_thw"]))
            yield ids, extra, torch.tensor(learned[1:])


if __name__ == "__main__":
    llava_train.run(sys.modules[__name__], "ernie4_5_vl_train")
