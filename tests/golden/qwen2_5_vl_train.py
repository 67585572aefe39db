#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of transformers' Qwen2.5-VL from the engine's own start.

  qwen2_5_vl_train.py BUILD          writes qwen2_5_vl_train.txt, as
                                     llava_train.py
  qwen2_5_vl_train.py BUILD --check  computes again and compares

Windows have 4 x 4 patches; pictures as in qwen2_vl_train.py.
"""
import sys

import transformers

import llava_train
import qwen2_vl_train as qwen2


def make():
    config = transformers.Qwen2_5_VLConfig(
        vision_config=dict(
            depth=3, hidden_size=16, out_hidden_size=24, num_heads=2,
            intermediate_size=20, patch_size=4, spatial_merge_size=2,
            temporal_patch_size=2, window_size=16, fullatt_block_indexes=[1]),
        text_config=qwen2.TEXT, image_token_id=qwen2.PICTURE,
        tie_word_embeddings=False)
    with llava_train.wide.widened():
        return transformers.Qwen2_5_VLForConditionalGeneration._from_config(
            config, attn_implementation="eager").double().eval()


load, prepare, samples = qwen2.load, qwen2.prepare, qwen2.samples

if __name__ == "__main__":
    llava_train.run(sys.modules[__name__], "qwen2_5_vl_train")
