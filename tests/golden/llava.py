#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes or checks the golden file of a model of LLaVA's shape.

  llava.py            writes llava/golden.safetensors beside this file
  llava.py --check    computes again and compares

CLIP's image encoder, whose last layer but one is read without its class token,
a projector of two matrices and a Llama: transformers' LLaVA in float64, random
weights. Three samples, with no picture, with one and with two. The file has
pixel_values [pictures,C,S,S], tokens and labels i64 [B,T] (-100: not learned),
loss [1] (the mean), and of each parameter `param.COMPONENT.NAME` and
`grad.COMPONENT.NAME` under the engine's name and in its shape.
"""
import os
import re
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

import vision
import wide

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(HERE, "llava", "golden.safetensors")
VOCAB, IMAGE, LENGTH, PICTURES = 53, 52, 32, [0, 1, 2]
COMPONENTS = [
    (r"^model\.(language_model\.)", "foundation."),
    (r"^lm_head", "foundation.lm_head"),
    (r"^model\.vision_tower\.(vision_model\.)?", "image_encoder."),
    (r"^model\.multi_modal_projector\.", "image_projector."),
]


def make():
    sizes = dict(num_hidden_layers=3, num_attention_heads=2)
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(
            image_size=12, patch_size=4, hidden_size=8, intermediate_size=12,
            **sizes),
        text_config=transformers.LlamaConfig(
            vocab_size=VOCAB, hidden_size=12, intermediate_size=20,
            num_key_value_heads=2, max_position_embeddings=64,
            **dict(sizes, num_hidden_layers=2)),
        image_token_id=IMAGE, vision_feature_layer=-2,
        vision_feature_select_strategy="default")
    torch.manual_seed(20261124)
    model = transformers.LlavaForConditionalGeneration._from_config(
        config, attn_implementation="eager")
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.normal_(0.0, 0.3)
            if "norm" in key and key.endswith("weight"):
                p.add_(1.0)
    return model.double().eval()


def samples(rows):
    """Texts with `rows` placeholders in a row for each picture."""
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(0, IMAGE, (len(PICTURES), LENGTH),
                           generator=generator)
    for i, count in enumerate(PICTURES):
        for k in range(count):
            begin = 2 + i + k * (rows + 3)
            tokens[i, begin:begin + rows] = IMAGE
    labels = torch.full_like(tokens, -100)
    labels[:, :-1] = tokens[:, 1:]
    labels[labels == IMAGE] = -100
    return tokens, labels


def engine_name(name):
    for pattern, component in COMPONENTS:
        if re.match(pattern, name):
            rest = re.sub(pattern, "", name)
            if component == "image_encoder.":
                rest = vision.engine_name(rest)
            return component + rest
    raise ValueError(name)


def compute():
    with wide.widened():  # the tables of the rotary embedding, too
        model = make()
    tokens, labels = samples(9)
    generator = torch.Generator().manual_seed(5)
    pixels = torch.randn(sum(PICTURES), 3, 12, 12, generator=generator,
                         dtype=torch.float64)
    with wide.widened(), wide.OnlyFloat64():
        logits = model(input_ids=tokens, pixel_values=pixels).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1),
                                                 labels.flatten())
        loss.backward()
    out = dict(pixel_values=pixels, tokens=tokens, labels=labels,
               loss=loss.detach().reshape(1))
    for key, p in model.named_parameters():
        if p.grad is not None:
            name = engine_name(key)
            short = name.split(".", 1)[1]
            out["param." + name] = vision.engine_shape(short, p.detach())
            out["grad." + name] = vision.engine_shape(short, p.grad)
    return {k: v.contiguous() for k, v in out.items()}


def main():
    out = compute()
    if "--check" not in sys.argv[1:]:
        os.makedirs(os.path.dirname(FILE), exist_ok=True)
        save_file(out, FILE)
        return
    there = load_file(FILE)
    worst = max((out[k].double() - there[k].double()).abs().max().item()
                for k in set(out) | set(there))
    print(f"{worst:.1e}")
    sys.exit(int(worst > 1e-12))


if __name__ == "__main__":
    main()
