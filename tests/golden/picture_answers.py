#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What share of questions about pictures a model answers right.

  picture_answers.py MODEL QUESTIONS [--count N] [--show N]

MODEL is a directory as loongrun exports it: a llava that transformers loads, or
a language model alone for questions without pictures. QUESTIONS is a file of
picture_questions.py, one question a conversation. The answer is what
transformers generates with the most likely tokens (template chatml); it is right
if it is the expected text, letter for letter. Prints the share of each kind of
picture, and of each kind of question.
"""
import argparse
import collections
import json
import os
import re

import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer

from picture_questions import COLOURS, CORNERS, SHAPES

BATCH = 32
NAMED = re.compile(r"\b(%s)\b" % "|".join([*COLOURS, *SHAPES, *CORNERS]))


def load(path):
    config = transformers.AutoConfig.from_pretrained(path)
    if config.model_type != "llava":
        return transformers.AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32).eval(), config, None
    side = config.vision_config.image_size
    return transformers.LlavaForConditionalGeneration.from_pretrained(
        path, dtype=torch.float32).eval(), config, (
            transformers.SiglipImageProcessor(
                size={"height": side, "width": side}))


def prompt_of(question, tokenizer, config, rows):
    """Ids of the question, as the template chatml writes it."""
    text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    ids = []
    for i, part in enumerate(text.split("<image>")):
        ids += [config.image_token_id] * rows if i else []
        ids += tokenizer.encode(part, add_special_tokens=False).ids
    return ids


def kind_of(question):
    """The question without what it names."""
    return NAMED.sub("...", question.replace("<image>", ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("questions")
    parser.add_argument("--count", type=int)
    parser.add_argument("--show", type=int, default=0)
    args = parser.parse_args()
    model, config, process = load(args.model)
    tokenizer = Tokenizer.from_file(os.path.join(args.model, "tokenizer.json"))
    end = tokenizer.token_to_id("<|im_end|>")
    rows = 0
    if process:
        vision = config.vision_config
        rows = (vision.image_size // vision.patch_size) ** 2
    with open(args.questions, encoding="utf-8") as f:
        records = [json.loads(line) for line in f][:args.count]
    by_length = collections.defaultdict(list)
    for record in records:
        question, answer = (m["content"] for m in record["messages"])
        ids = prompt_of(question, tokenizer, config, rows)
        by_length[len(ids)].append((ids, record, question, answer))
    right, shown = collections.defaultdict(list), 0
    root = os.path.dirname(args.questions)
    for group in by_length.values():
        for i in range(0, len(group), BATCH):
            batch = group[i:i + BATCH]
            ids = torch.tensor([ids for ids, *_ in batch])
            inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            if process:
                inputs["pixel_values"] = process(
                    [Image.open(os.path.join(root, r["images"][0]))
                     for _, r, _, _ in batch], return_tensors="pt").pixel_values
            with torch.no_grad():
                out = model.generate(
                    **inputs, do_sample=False, max_new_tokens=24,
                    eos_token_id=end, pad_token_id=end)
            for (ids, record, question, answer), row in zip(batch, out):
                said = tokenizer.decode(row[len(ids):].tolist(),
                                        skip_special_tokens=True).strip()
                for key in (record["kind"], (record["kind"], kind_of(question)),
                            "all"):
                    right[key].append(said == answer)
                if shown < args.show:
                    print(record.get("images", [""])[0], question, "->", said,
                          "" if said == answer else f"(not {answer})")
                    shown += 1
    for key in sorted(right, key=str):
        name = key if isinstance(key, str) else "  %s: %s" % key
        print("%-52s %5.1f %% of %d" % (
            name, 100 * sum(right[key]) / len(right[key]), len(right[key])))


if __name__ == "__main__":
    main()
