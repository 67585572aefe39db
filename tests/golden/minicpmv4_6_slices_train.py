#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of minicpmv4_6_train.py's model on pictures in slices.

  minicpmv4_6_slices_train.py BUILD          writes minicpmv4_6_slices_train.txt,
                                             as llava_train.py
  minicpmv4_6_slices_train.py BUILD --check  computes again and compares

Ids, slices and pixels are those of transformers' MiniCPM-V 4.6 processor: the
whole picture and up to three slices of other sizes, each between tokens of its
own, which nobody learns.
"""
import json
import os
import sys
import types

import torch
import transformers
from PIL import Image
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import \
    MiniCPMV4_6ImageProcessorPil

import llava_train
import minicpmv4_6_train as model
import qwen2_vl_train as qwen2

TOKENS = ["<image>", "</image>", "<slice>", "</slice>", "<image_id>",
          "</image_id>"]
LETTERS = range(2, 12)
load = model.load


def make():
    model.TEXT.update(vocab_size=21, max_position_embeddings=64)
    return model.make()


def slicing():
    return MiniCPMV4_6ImageProcessorPil(
        patch_size=model.PATCH, scale_resolution=24, max_slice_nums=3)


def prepare(place):
    qwen2.prepare(place)
    path = os.path.join(place, "preprocessor_config.json")
    with open(path, "w") as f:
        json.dump(slicing().to_dict(), f)
    file = os.path.join(place, "tokenizer.json")
    with open(file) as f:
        own = json.load(f)
    for text in "01\n":
        own["model"]["vocab"][text] = len(own["model"]["vocab"])
    for i, token in enumerate(TOKENS):
        own["added_tokens"].append(dict(own["added_tokens"][0], id=15 + i,
                                        content=token))
    with open(file, "w") as f:
        json.dump(own, f)
    return [f"data.image_processor={path}", "model.foundation.vocab_size=21",
            "model.foundation.max_position_embeddings=64",
            "data.seq_length=64", "data.max_patches=640",
            f"data.chat.cache={place}/cache"]


def processor(place):
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=os.path.join(place, "tokenizer.json"), pad_token="<s>")
    tokenizer.image_token, tokenizer.image_token_id = "<picture>", 1
    tokenizer.video_token, tokenizer.video_token_id = "<video>", None
    for key, token in zip(("image_start", "image_end", "slice_start",
                           "slice_end", "image_id_start", "image_id_end"),
                          TOKENS):
        setattr(tokenizer, key + "_token", token)
    transformers.ProcessorMixin.check_argument_for_proper_class = (
        lambda self, name, value: None)
    own = slicing()
    return transformers.MiniCPMV4_6Processor(
        own, types.SimpleNamespace(slice_mode=True,
                                   downsample_mode=own.downsample_mode),
        tokenizer)


def samples(place):
    both = processor(place)
    with open(os.path.join(place, "texts.jsonl")) as f:
        for record in map(json.loads, f):
            images = [Image.open(os.path.join(place, name)).convert("RGB")
                      for name in record["images"]]
            found = both(text=[record["text"]],
                         images=[images] if images else None)
            ids = torch.tensor(found["input_ids"]).reshape(1, -1)
            extra = dict(pixel_values=torch.as_tensor(
                found["pixel_values"]).double(),
                sizes=torch.as_tensor(found["target_sizes"]).long()
            ) if images else {}
            yield ids, extra, torch.tensor(
                [t in LETTERS for t in ids[0, 1:].tolist()])


if __name__ == "__main__":
    llava_train.run(sys.modules[__name__], "minicpmv4_6_slices_train",
                    "minicpmv4_6_train", "chat")
