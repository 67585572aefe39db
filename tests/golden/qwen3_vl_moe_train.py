#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of transformers' Qwen3-VL-MoE from the engine's own start.

  qwen3_vl_moe_train.py BUILD          writes qwen3_vl_moe_train.txt
  qwen3_vl_moe_train.py BUILD --check  computes again and compares

The encoder of qwen3_vl_train.py; two of four experts in all layers but one.
"""
import sys

import transformers

import llava_train
import qwen2_vl_train as qwen2
import qwen3_vl_train as dense


def make(width=10):
    config = transformers.Qwen3VLMoeConfig(
        vision_config=dense.VISION,
        text_config=dict(qwen2.TEXT, num_hidden_layers=3, head_dim=6,
                         num_experts=4, num_experts_per_tok=2,
                         moe_intermediate_size=width, mlp_only_layers=[1]),
        image_token_id=qwen2.PICTURE, tie_word_embeddings=False)
    with llava_train.wide.widened():
        return transformers.Qwen3VLMoeForConditionalGeneration._from_config(
            config, attn_implementation="eager",
            experts_implementation="eager").double().eval()


load = dense.load
prepare, samples = qwen2.prepare, qwen2.samples

if __name__ == "__main__":
    llava_train.run(sys.modules[__name__], "qwen3_vl_moe_train")
