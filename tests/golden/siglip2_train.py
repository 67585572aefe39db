#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of transformers' SigLIP 2 (NaFlex) before a LLaVA's
projector and a LLaMA, from the engine's own start.

  siglip2_train.py BUILD          writes siglip2_train.txt, as llava_train.py
  siglip2_train.py BUILD --check  computes again and compares

No class of transformers is the whole. A table of 6 x 6 positions is resampled to
pictures of up to 20 patches, with antialias where these are fewer on a side;
those of a text with two pictures are padded to as many patches, and masked.
"""
import functools
import json
import os
import sys

import torch
import transformers
from PIL import Image
from transformers.models.siglip2.image_processing_pil_siglip2 import \
    Siglip2ImageProcessorPil

import llava_train
import qwen2_vl_train as qwen2

CUT = dict(patch_size=4, max_num_patches=20)
NAMES = [
    (r"^language_model\.model\.", "foundation."),
    (r"^language_model\.lm_head", "foundation.lm_head"),
    (r"^projector\.0\.", "image_projector.linear_1."),
    (r"^projector\.2\.", "image_projector.linear_2."),
    (r"^vision_tower\.embeddings\.patch_embedding",
     "image_encoder.patch_embedding"),
    (r"^vision_tower\.embeddings\.position_embedding",
     "image_encoder.position_embeddings"),
    (r"^vision_tower\.encoder\.", "image_encoder."),
    (r"^vision_tower\.post_layernorm", "image_encoder.norm"),
    (r"layer_norm1", "input_layernorm"),
    (r"layer_norm2", "post_attention_layernorm"),
    (r"self_attn\.out_proj", "self_attn.o_proj"),
    (r"mlp\.fc1", "mlp.up_proj"), (r"mlp\.fc2", "mlp.down_proj")]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        text = transformers.LlamaConfig(
            vocab_size=12, hidden_size=16, intermediate_size=24,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            rms_norm_eps=1e-5, max_position_embeddings=64,
            tie_word_embeddings=False)
        vision = transformers.Siglip2VisionConfig(
            hidden_size=12, intermediate_size=20, num_hidden_layers=2,
            num_attention_heads=4, patch_size=4, num_patches=36,
            vision_use_head=False)
        self.vision_tower = transformers.Siglip2VisionModel._from_config(
            vision, attn_implementation="eager")
        self.projector = torch.nn.Sequential(
            torch.nn.Linear(12, 16), torch.nn.GELU(), torch.nn.Linear(16, 16))
        self.language_model = transformers.LlamaForCausalLM._from_config(
            text, attn_implementation="eager")

    def forward(self, input_ids, pixel_values=None, pixel_attention_mask=None,
                spatial_shapes=None):
        x = self.language_model.get_input_embeddings()(input_ids)
        if pixel_values is not None:
            seen = self.vision_tower(
                pixel_values=pixel_values, spatial_shapes=spatial_shapes,
                pixel_attention_mask=pixel_attention_mask).last_hidden_state
            rows = self.projector(seen[pixel_attention_mask.bool()])
            here = (input_ids == qwen2.PICTURE)[..., None].expand_as(x)
            x = x.masked_scatter(here, rows)
        return self.language_model(inputs_embeds=x)


def make():
    with llava_train.wide.widened():
        return Model().double().eval()


load = functools.partial(qwen2.load, names=NAMES)


def prepare(place):
    qwen2.prepare(place)
    path = os.path.join(place, "preprocessor_config.json")
    with open(path, "w") as f:
        json.dump(dict(image_processor_type="Siglip2ImageProcessor", **CUT), f)
    return [f"data.image_processor={path}"]


def samples(place):
    with open(os.path.join(place, "tokenizer.json")) as f:
        vocab = json.load(f)["model"]["vocab"]
    processor = Siglip2ImageProcessorPil(**CUT)
    with open(os.path.join(place, "texts.jsonl")) as f:
        for record in map(json.loads, f):
            images = [Image.open(os.path.join(place, name)).convert("RGB")
                      for name in record["images"]]
            found = dict(processor(images, return_tensors="pt")) \
                if images else {}
            if found:
                found["pixel_values"] = found["pixel_values"].double()
            shapes = iter(found.get("spatial_shapes", []))
            ids, learned = [], []
            for part in record["text"].replace("<picture>", "\0"):
                count = int(next(shapes).prod()) if part == "\0" else 1
                ids += [qwen2.PICTURE if part == "\0" else vocab[part]] * count
                learned += [part != "\0"] * count
            yield torch.tensor([ids]), found, torch.tensor(learned[1:])


if __name__ == "__main__":
    llava_train.run(sys.modules[__name__], "siglip2_train")
