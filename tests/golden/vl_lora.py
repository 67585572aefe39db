#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A fine-tuning of five lines on conversations with pictures, against peft.

  vl_lora.py BUILD   tunes a small LLaVA and a small Qwen2-VL of random weights,
                     with the projector frozen, then trained too, on the
                     conversations of vl_chat.py: the loss of the first step is
                     that of transformers on its processor's ids, and the
                     adapter, which peft puts beside the model, makes the logits
                     of the model that loong-ckpt merges it into (with Pillow
                     below 13)
"""
import json
import os
import subprocess
import sys
import tempfile

import peft
import torch
import transformers
from PIL import Image

import vl_chat
import vl_from_hf
import wide

VOCAB = 264


def make(name):
    sizes = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=64,
                 num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=512)
    if name == "llava":
        config = transformers.LlavaConfig(
            vision_config=transformers.CLIPVisionConfig(
                image_size=28, patch_size=14, hidden_size=32,
                num_hidden_layers=3, intermediate_size=48,
                num_attention_heads=4),
            text_config=transformers.LlamaConfig(**sizes),
            image_token_id=258, vision_feature_layer=-2,
            vision_feature_select_strategy="default")
        kind = transformers.LlavaForConditionalGeneration
    else:
        config = transformers.Qwen2VLConfig(
            vision_config=dict(depth=2, embed_dim=32, hidden_size=32,
                               num_heads=2, mlp_ratio=2, patch_size=14),
            text_config=dict(
                rope_parameters=dict(rope_type="default", rope_theta=1e4,
                                     mrope_section=[1, 1, 2]),
                bos_token_id=None, eos_token_id=258, **sizes),
            image_token_id=261, video_token_id=262, vision_start_token_id=259,
            vision_end_token_id=260, tie_word_embeddings=False)
        kind = transformers.Qwen2VLForConditionalGeneration
    with wide.widened():
        return vl_from_hf.spread(kind._from_config(
            config, attn_implementation="eager").double().eval(),
            torch.float32)


def batch_of(p):
    for _, messages in vl_chat.RECORDS:
        ids, learned, image = vl_chat.expected(p, messages, [])
        paths = [part["path"] for m in messages for part in m["content"]
                 if part["type"] == "image"]
        extra = {}
        if paths:
            found = p.image_processor(
                [Image.open(os.path.join(vl_chat.PICTURES, path)).convert("RGB")
                 for path in paths], return_tensors="pt")
            extra = {k: v.double() if v.is_floating_point() else v
                     for k, v in found.items()}
        ids = torch.tensor([ids])
        if "image_grid_thw" in extra:
            extra["mm_token_type_ids"] = (ids == image).int()
        yield ids, extra, torch.tensor(learned[1:]).bool()


def logits_of(model, batch):
    with torch.no_grad(), wide.widened():
        return [model(input_ids=ids, **extra).logits[0, :-1]
                for ids, extra, _ in batch]


def loss_of(model, batch):
    loss = count = 0
    for logits, (ids, _, learned) in zip(logits_of(model, batch), batch):
        loss += torch.nn.functional.cross_entropy(
            logits[learned], ids[0, 1:][learned], reduction="sum")
        count += int(learned.sum())
    return (loss / count).item()


def divergence(tuned, base, batch):
    """The estimate of docs/continue-pretraining.md."""
    total = count = 0
    for a, b, (ids, _, learned) in zip(tuned, base, batch):
        d = [torch.log_softmax(x, -1).gather(-1, ids[0, 1:, None])[:, 0]
             for x in (a, b)]
        d = (d[1] - d[0])[learned]
        total += (torch.exp(d) - 1 - d).sum().item()
        count += int(learned.sum())
    return total / count


def load(path):
    with wide.widened():
        return transformers.AutoModelForImageTextToText.from_pretrained(
            path, dtype=torch.float64, attn_implementation="eager").eval()


def difference(a, b):
    return max((x - y).abs().max().item() for x, y in zip(a, b))


def divergence_here(build, recipe, out, place):
    """That of the adapter from the model without it."""
    subprocess.run(
        [os.path.join(build, "loongrun"), recipe, "optimizer.lr=0",
         "precision.params_dtype=fp64", "log.interval=1", "device=cpu",
         "train.kl_loss_coeff=0.3", f"finetune.adapter={out}",
         "train.epochs=1", f"export.hf={out}.same", f"log.dir={place}/kl",
         f"data.chat.cache={place}/cache"],
        check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(place, "kl", "metrics.jsonl")) as f:
        away = [json.loads(line)["kl_loss"] for line in f if '"loss"' in line]
    return away[0]


def check(build, name, frozen, place):
    p = vl_chat.processor(name, vl_chat.write(name, place))
    model, to = make(name), os.path.join(place, name)
    model.save_pretrained(to)
    with open(os.path.join(to, "preprocessor_config.json"), "w") as f:
        f.write(p.image_processor.to_json_string())
    recipe, out = (os.path.join(place, x) for x in ("recipe.yaml", "out"))
    with open(recipe, "w") as f:
        f.write(f"""version: 1
model: {{from_hf: {to}, image_projector: {{freeze: {frozen}}}}}
finetune: {{method: lora}}
data: {{train: [{place}/openai.jsonl], image_root: {vl_chat.PICTURES}}}
train: {{epochs: 3}}
export: {{hf: {out}}}
""")
    subprocess.run(
        [os.path.join(build, "loongrun"), recipe, "optimizer.lr=0.01",
         "precision.params_dtype=fp64", "log.interval=1", "device=cpu",
         f"log.dir={place}/log", f"data.chat.cache={place}/cache"],
        check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(place, "log", "metrics.jsonl")) as f:
        ours = [json.loads(line)["loss"] for line in f if '"loss"' in line]
    batch = list(batch_of(p))
    theirs = loss_of(model, batch)
    subprocess.run(
        [os.path.join(build, "loong-ckpt"), "export", "--merge",
         out + ".checkpoints", out + ".merged"], check=True,
        stdout=subprocess.DEVNULL)
    merged = logits_of(load(out + ".merged"), batch)
    base = load(to)
    torch.set_default_dtype(torch.float64)  # of what peft makes
    tuned = peft.PeftModel.from_pretrained(base, out)
    torch.set_default_dtype(torch.float32)
    tuned = logits_of(tuned, batch)
    if frozen == "true":
        away = divergence_here(build, recipe, out, place)
        wanted = divergence(tuned, logits_of(model, batch), batch)
        print(f"{name}: divergence {away} off by {abs(away / wanted - 1):.1e}")
        assert abs(away / wanted - 1) < 5e-9
    print(f"{name}, projector {'frozen' if frozen == 'true' else 'trained'}: "
          f"loss {ours[0]} off by {abs(ours[0] / theirs - 1):.1e}, then "
          f"{ours[-1]}; logits off by {difference(tuned, merged):.1e} of "
          f"{difference(tuned, logits_of(model, batch)):.1e} that were learned")
    assert abs(ours[0] / theirs - 1) < 5e-9 and ours[-1] < ours[0]
    assert difference(tuned, merged) < 1e-9


if __name__ == "__main__":
    for family in "llava", "qwen2_vl":
        for frozen in "true", "false":
            with tempfile.TemporaryDirectory() as directory:
                check(sys.argv[1], family, frozen, directory)
