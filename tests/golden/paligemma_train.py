#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of transformers' PaliGemma from the engine's own start.

  paligemma_train.py BUILD          writes paligemma_train.txt, as llava_train.py
  paligemma_train.py BUILD --check  computes again and compares

What stands before the first learned token is the prefix (token_type_ids 0). The
width is a square: transformers has its root in fp32.
"""
import functools
import sys

import torch
import transformers
from transformers.models.siglip.image_processing_pil_siglip import \
    SiglipImageProcessorPil

import llava_train
import qwen2_vl_train as qwen2

SIDE = llava_train.SIDE
HEAD = 6
NAMES = [
    (r"^model\.language_model\.", "foundation."),
    (r"^model\.multi_modal_projector\.linear", "image_projector.linear_2"),
    (r"^model\.vision_tower\.(vision_model\.)?embeddings\.", "image_encoder."),
    (r"^model\.vision_tower\.(vision_model\.)?encoder\.", "image_encoder."),
    (r"^model\.vision_tower\.(vision_model\.)?post_layernorm",
     "image_encoder.norm"),
    (r"position_embedding\.", "position_embeddings."),
    (r"\.layer_norm1\.", ".input_layernorm."),
    (r"\.layer_norm2\.", ".post_attention_layernorm."),
    (r"\.out_proj\.", ".o_proj."),
    (r"\.mlp\.fc1\.", ".mlp.up_proj."),
    (r"\.mlp\.fc2\.", ".mlp.down_proj."),
]


def make():
    config = transformers.PaliGemmaConfig(
        vision_config=dict(
            model_type="siglip_vision_model", image_size=SIDE, patch_size=4,
            hidden_size=12, num_hidden_layers=2, intermediate_size=20,
            num_attention_heads=4, vision_use_head=False),
        text_config=dict(
            model_type="gemma", vocab_size=12, hidden_size=16,
            intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=1, head_dim=HEAD, max_position_embeddings=24,
            rms_norm_eps=1e-6, bos_token_id=0, eos_token_id=0),
        image_token_index=qwen2.PICTURE, projection_dim=16, hidden_size=16,
        vocab_size=12)
    with llava_train.wide.widened():
        return transformers.PaliGemmaForConditionalGeneration._from_config(
            config, attn_implementation="eager").double().eval()


load = functools.partial(qwen2.load, names=NAMES)


def samples(place):
    processor = SiglipImageProcessorPil(size=dict(height=SIDE, width=SIDE))
    for ids, extra, learned in llava_train.samples(place, processor):
        first = int(learned.int().argmax())
        types = (torch.arange(ids.shape[1]) > first).long()[None]
        yield ids, dict(extra, token_type_ids=types), learned


if __name__ == "__main__":
    llava_train.run(sys.modules[__name__], "paligemma_train")
