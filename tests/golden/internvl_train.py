#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of transformers' InternVL from the engine's own start.

  internvl_train.py BUILD          writes internvl_train.txt, as llava_train.py
  internvl_train.py BUILD --check  computes again and compares

Layer scale, one norm over all heads of queries and keys, and a class token that
the projector does not see. Pictures are cut into tiles, three or five of them.
"""
import functools
import json
import os
import sys

import torch
import transformers
from PIL import Image
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import \
    GotOcr2ImageProcessorPil

import llava_train
import qwen2_vl_train as qwen2

SIDE = 16
CUT = dict(size=dict(height=SIDE, width=SIDE), crop_to_patches=True,
           max_patches=4)
NAMES = [
    (r"^model\.language_model\.", "foundation."),
    (r"^lm_head", "foundation.lm_head"),
    (r"^model\.multi_modal_projector\.layer_norm", "image_projector.norm"),
    (r"^model\.multi_modal_projector\.", "image_projector."),
    (r"^model\.vision_tower\.embeddings\.", "image_encoder."),
    (r"cls_token", "class_token.weight"),
    (r"patch_embeddings\.projection", "patch_embedding"),
    (r"position_embeddings$", "position_embeddings.weight"),
    (r"^model\.vision_tower\.encoder\.layer\.", "image_encoder.layers."),
    (r"\.layernorm_before\.", ".input_layernorm."),
    (r"\.layernorm_after\.", ".post_attention_layernorm."),
    (r"\.attention\.projection_layer\.", ".self_attn.o_proj."),
    (r"\.attention\.", ".self_attn."),
    (r"\.mlp\.fc1\.", ".mlp.up_proj."),
    (r"\.mlp\.fc2\.", ".mlp.down_proj."),
    (r"lambda_1", "attention_scale"),
    (r"lambda_2", "mlp_scale"),
]


def make(kind="qwen2", more=None, vision=None, **rope):
    text = dict(more or {}, model_type=kind, vocab_size=12, hidden_size=16,
                intermediate_size=24, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2,
                max_position_embeddings=40, rms_norm_eps=1e-6,
                tie_word_embeddings=False,
                rope_parameters=dict(dict(rope_type="default", rope_theta=1e4),
                                     **rope))
    config = transformers.InternVLConfig(
        vision_config=dict(
            hidden_size=12, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=20, image_size=[SIDE, SIDE], patch_size=[4, 4],
            **(vision or dict(use_qk_norm=True))),
        text_config=text, image_token_id=qwen2.PICTURE,
        tie_word_embeddings=False)
    with llava_train.wide.widened():
        return transformers.InternVLForConditionalGeneration._from_config(
            config, attn_implementation="eager",
            experts_implementation="eager").double().eval()


load = functools.partial(qwen2.load, names=NAMES)


def prepare(place):
    keys = qwen2.prepare(place)
    with open(os.path.join(place, "preprocessor_config.json"), "w") as f:
        json.dump(dict(image_processor_type="GotOcr2ImageProcessor", **CUT), f)
    return keys


def samples(place):
    with open(os.path.join(place, "tokenizer.json")) as f:
        vocab = json.load(f)["model"]["vocab"]
    processor = GotOcr2ImageProcessorPil(**CUT)
    with open(os.path.join(place, "texts.jsonl")) as f:
        for record in map(json.loads, f):
            images = [Image.open(os.path.join(place, name)).convert("RGB")
                      for name in record["images"]]
            found = processor(images, return_tensors="np") if images else {}
            tiles = iter(found.get("num_patches", []))
            ids, learned = [], []
            for part in record["text"].replace("<picture>", "\0"):
                count = 4 * next(tiles) if part == "\0" else 1
                ids += [qwen2.PICTURE if part == "\0" else vocab[part]] * count
                learned += [part != "\0"] * count
            yield torch.tensor([ids]), dict(pixel_values=torch.from_numpy(
                found["pixel_values"]).double()) if images else {}, \
                torch.tensor(learned[1:])


if __name__ == "__main__":
    llava_train.run(sys.modules[__name__], "internvl_train")
