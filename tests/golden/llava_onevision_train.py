#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of transformers' LLaVA-OneVision from the engine's own
start.

  llava_onevision_train.py BUILD          writes llava_onevision_train.txt, as
                                          llava_train.py
  llava_onevision_train.py BUILD --check  computes again and compares

Of two pictures of a text each is one tile. A picture alone is cut into nine
tiles, of which a margin is left out, or into eighteen, whose rows are resampled.
"""
import functools
import json
import os
import sys

import torch
import transformers
from PIL import Image
from transformers.models.llava_onevision.image_processing_pil_llava_onevision \
    import LlavaOnevisionImageProcessorPil

import llava_train
import paligemma_train
import qwen2_vl_train as qwen2

SIDE = llava_train.SIDE
PINS = [[8, 8], [24, 24], [48, 24], [16, 16]]
CUT = dict(size=dict(height=SIDE, width=SIDE), image_grid_pinpoints=PINS)
NAMES = [(r"^model\.image_newline", "image_projector.newline.weight"),
         (r"^lm_head", "foundation.lm_head"),
         (r"^model\.multi_modal_projector\.", "image_projector."),
         *(n for n in paligemma_train.NAMES if "projector" not in n[0])]


def make(vocab=12, positions=64, side=SIDE, pins=PINS, **more):
    text = dict(model_type="qwen2", vocab_size=vocab, hidden_size=16,
                intermediate_size=24, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2,
                max_position_embeddings=positions, rms_norm_eps=1e-6,
                tie_word_embeddings=False,
                rope_parameters=dict(rope_type="default", rope_theta=1e4))
    config = transformers.LlavaOnevisionConfig(
        vision_config=dict(
            model_type="siglip_vision_model", image_size=side, patch_size=4,
            hidden_size=12, num_hidden_layers=2, intermediate_size=20,
            num_attention_heads=4, vision_use_head=False),
        text_config=text, image_token_index=qwen2.PICTURE,
        image_grid_pinpoints=pins, tie_word_embeddings=False, **more)
    with llava_train.wide.widened():
        return transformers.LlavaOnevisionForConditionalGeneration._from_config(
            config, attn_implementation="eager").double().eval()


load = functools.partial(qwen2.load, names=NAMES)


def prepare(place):
    """Every other picture alone is the high one."""
    qwen2.prepare(place)
    with open(os.path.join(place, "texts.jsonl")) as f:
        lines = f.readlines()
    lines[1::2] = [line.replace('["rgb.png"]', '["j420.jpg"]')
                   for line in lines[1::2]]
    with open(os.path.join(place, "texts.jsonl"), "w") as f:
        f.writelines(lines)
    with open(os.path.join(place, "preprocessor_config.json"), "w") as f:
        json.dump(dict(image_processor_type="LlavaOnevisionImageProcessor",
                       **CUT), f)
    return [f"data.image_processor={place}/preprocessor_config.json"]


def counts(model, sizes):
    """Rows of each picture, as the model packs them."""
    config = model.config
    side, pins = config.vision_config.image_size, config.image_grid_pinpoints
    features = [torch.zeros(1 + (0 if len(sizes) > 1 else
                                 _tiles(size, side, pins)),
                            (side // 4) ** 2, 16) for size in sizes]
    return model.model.pack_image_features(
        features, sizes, torch.zeros(16))[1].tolist()


def _tiles(size, side, pins):
    from transformers.image_processing_utils import select_best_resolution
    height, width = select_best_resolution(size, pins)
    return height * width // side ** 2


def samples(place):
    model = make()
    with open(os.path.join(place, "tokenizer.json")) as f:
        vocab = json.load(f)["model"]["vocab"]
    processor = LlavaOnevisionImageProcessorPil(**CUT)
    with open(os.path.join(place, "texts.jsonl")) as f:
        for record in map(json.loads, f):
            images = [Image.open(os.path.join(place, name)).convert("RGB")
                      for name in record["images"]]
            found = processor([images], return_tensors="pt") if images else {}
            rows = iter(counts(model, found["image_sizes"].tolist())
                        if images else [])
            ids, learned = [], []
            for part in record["text"].replace("<picture>", "\0"):
                count = next(rows) if part == "\0" else 1
                ids += [qwen2.PICTURE if part == "\0" else vocab[part]] * count
                learned += [part != "\0"] * count
            yield torch.tensor([ids]), dict(
                found, pixel_values=found["pixel_values"].double()) \
                if images else {}, torch.tensor(learned[1:])


if __name__ == "__main__":
    llava_train.run(sys.modules[__name__], "llava_onevision_train")
