#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of transformers' Qwen3-VL from the engine's own start.

  qwen3_vl_train.py BUILD          writes qwen3_vl_train.txt, as llava_train.py
  qwen3_vl_train.py BUILD --check  computes again and compares

A table of 5 x 5 positions, deep features of two layers; pictures as in
qwen2_vl_train.py.
"""
import functools
import sys

import transformers

import llava_train
import qwen2_vl_train as qwen2

NAMES = [
    (r"^model\.visual\.deepstack_merger_list\.", "image_projector.deepstack."),
    (r"^model\.visual\.merger\.norm", "image_projector.norm"),
    (r"^model\.visual\.merger\.linear_fc", "image_projector.linear_"),
    (r"(deepstack\.\d\.linear_)fc", r"\1"),
    (r"^model\.visual\.pos_embed", "image_encoder.position_embeddings"),
    (r"\.mlp\.linear_fc1\.", ".mlp.up_proj."),
    (r"\.mlp\.linear_fc2\.", ".mlp.down_proj."),
] + qwen2.NAMES
VISION = dict(
    depth=3, hidden_size=16, out_hidden_size=24, num_heads=2,
    intermediate_size=20, patch_size=4, spatial_merge_size=2,
    temporal_patch_size=2, num_position_embeddings=25,
    deepstack_visual_indexes=[0, 2])


def make():
    config = transformers.Qwen3VLConfig(
        vision_config=VISION,
        text_config=dict(qwen2.TEXT, num_hidden_layers=3, head_dim=6),
        image_token_id=qwen2.PICTURE, tie_word_embeddings=False)
    with llava_train.wide.widened():
        return transformers.Qwen3VLForConditionalGeneration._from_config(
            config, attn_implementation="eager").double().eval()


load = functools.partial(qwen2.load, names=NAMES)
prepare, samples = qwen2.prepare, qwen2.samples

if __name__ == "__main__":
    llava_train.run(sys.modules[__name__], "qwen3_vl_train")
