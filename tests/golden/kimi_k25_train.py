#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of transformers' Kimi-K2.5 from the engine's own start.

  kimi_k25_train.py BUILD          writes kimi_k25_train.txt, as llava_train.py
  kimi_k25_train.py BUILD --check  computes again and compares

A table of 5 x 5 positions; the language model is of DeepSeek-V3's shape, with
latent attention of both kinds and without experts. Queries and keys of the
encoder stand in the engine, as in the publisher's files, in pairs of
neighbours.
"""
import re
import sys

import numpy as np
import torch
import transformers

import llava_train
import qwen2_vl_train as qwen2

HEADS = 2
VISION = dict(num_hidden_layers=2, hidden_size=16, intermediate_size=20,
              num_attention_heads=HEADS, patch_size=4, pos_emb_height=5,
              pos_emb_width=5)
TEXT = dict(
    model_type="deepseek_v3", vocab_size=12, hidden_size=24,
    intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=4, q_lora_rank=10, kv_lora_rank=8,
    qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=6,
    first_k_dense_replace=2, max_position_embeddings=24, rms_norm_eps=1e-6,
    tie_word_embeddings=False, bos_token_id=0, eos_token_id=0, num_mtp_layers=0,
    rope_parameters=dict(rope_type="default", rope_theta=1e4))
NAMES = [
    (r"^model\.language_model\.", "foundation."),
    (r"^lm_head", "foundation.lm_head"),
    (r"^model\.mm_projector\.pre_norm", "image_projector.norm"),
    (r"^model\.mm_projector\.in_proj", "image_projector.linear_1"),
    (r"^model\.mm_projector\.out_proj", "image_projector.linear_2"),
    (r"^model\.vision_tower\.patch_embed\.proj",
     "image_encoder.patch_embedding"),
    (r"^model\.vision_tower\.patch_embed\.pos_emb\.position_embeddings",
     "image_encoder.position_embeddings.weight"),
    (r"^model\.vision_tower\.final_layernorm", "image_encoder.norm"),
    (r"^model\.vision_tower\.", "image_encoder."),
    (r"\.norm1\.", ".input_layernorm."),
    (r"\.norm2\.", ".post_attention_layernorm."),
    (r"\.attn\.proj\.", ".self_attn.o_proj."),
    (r"\.attn\.", ".self_attn."),
    (r"\.mlp\.fc1\.", ".mlp.up_proj."),
    (r"\.mlp\.fc2\.", ".mlp.down_proj."),
]


def make():
    config = transformers.Kimi_K25Config(
        vision_config=VISION, text_config=TEXT, projection_hidden_size=16,
        image_token_id=qwen2.PICTURE, tie_word_embeddings=False)
    with llava_train.wide.widened():
        return transformers.Kimi_K25ForConditionalGeneration._from_config(
            config, attn_implementation="eager").double().eval()


def halves(x):
    """Rows of each head: those of even pairs, then the odd ones."""
    width = x.shape[0] // HEADS
    return np.concatenate([x[h * width:(h + 1) * width].reshape(
        width // 2, 2, -1).transpose(1, 0, 2).reshape(width, *x.shape[1:])
        for h in range(HEADS)])


def load(model, params):
    missing = []
    with torch.no_grad():
        for key, p in model.named_parameters():
            name = key
            for pattern, to in NAMES:
                name = re.sub(pattern, to, name)
            if name in params:
                x = params[name]
                if re.search(r"encoder.*\.[qk]_proj\.", name):
                    x = halves(x)
                p.copy_(torch.from_numpy(x).reshape(p.shape))
            else:
                missing.append(key)
    return missing


def prepare(place):
    keys = qwen2.prepare(place)
    path = keys[0].split("=")[1]
    with open(path) as f:
        text = f.read()
    with open(path, "w") as f:
        f.write(text.replace('"temporal_patch_size": 2',
                             '"temporal_patch_size": 1'))
    return keys


def raster(pixels, grids):
    """Blocks of 2 x 2 patches become rows of patches, [T, 3, 4, 4]."""
    out, at = [], 0
    for _, h, w in grids.tolist():
        x = pixels[at:at + h * w].reshape(h // 2, w // 2, 2, 2, -1)
        out.append(x.permute(0, 2, 1, 3, 4).reshape(h * w, 3, 4, 4))
        at += h * w
    return torch.cat(out)


def samples(place):
    """Pixels of Qwen2-VL's processor, in the order of Kimi's."""
    frames = qwen2.CUT["temporal_patch_size"]
    for ids, extra, learned in qwen2.samples(place):
        if extra:
            grids = extra["image_grid_thw"]
            pixels = extra["pixel_values"].reshape(-1, 3, frames, 16)[:, :, 0]
            extra = dict(pixel_values=raster(pixels.flatten(1), grids),
                         image_grid_thw=grids)
        yield ids, extra, learned


if __name__ == "__main__":
    llava_train.run(sys.modules[__name__], "kimi_k25_train")
