#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes or checks the golden files of vision transformers.

  vision.py            writes vision/ beside this file
  vision.py --check    computes again and compares
  vision.py --export BUILD
                       each through an import and an export of loong-ckpt,
                       and into its class again

vision/NAME/ is a directory as save_pretrained writes it, weights in float32,
and golden.safetensors in float64: pixel_values [B,C,S,S], labels i64 [B],
loss_weights [B], logits [B,classes], nll [B], loss [1] (the weighted mean),
and of each parameter that the classifier sees `param.NAME` and `grad.NAME`,
under the engine's name and in its shape. Images are random numbers.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

import wide

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
             intermediate_size=24)
CLASSES = 5
BATCH = 3


def vit():
    config = transformers.ViTConfig(image_size=12, patch_size=4,
                                    num_labels=CLASSES, **SIZES)
    return transformers.ViTForImageClassification, config


def clip():
    config = transformers.CLIPConfig(
        vision_config=dict(image_size=12, patch_size=4, **SIZES),
        text_config=dict(SIZES, vocab_size=8), num_labels=CLASSES)
    return transformers.CLIPForImageClassification, config


def siglip():
    config = transformers.SiglipConfig(
        vision_config=dict(image_size=12, patch_size=6, **SIZES),
        text_config=dict(SIZES, vocab_size=8), num_labels=CLASSES)
    return transformers.SiglipForImageClassification, config


CASES = dict(vit=vit, clip=clip, siglip=siglip)

# The engine's names of modules.
MODULES = [
    (r"^(vit|vision_model)\.", ""), (r"^encoder\.", ""),
    (r"embeddings\.(cls_token|class_embedding)$", "class_token.weight"),
    (r"embeddings\.position_embeddings$", "position_embeddings.weight"),
    (r"embeddings\.position_embedding\.", "position_embeddings."),
    (r"embeddings\.patch_embeddings\.projection\.", "patch_embedding."),
    (r"embeddings\.patch_embedding\.", "patch_embedding."),
    (r"^pre_layrnorm", "pre_layernorm"),
    (r"^(layernorm|post_layernorm)\.", "norm."),
    (r"(layernorm_before|layer_norm1)", "input_layernorm"),
    (r"(layernorm_after|layer_norm2)", "post_attention_layernorm"),
    (r"\.attention\.", ".self_attn."), (r"out_proj", "o_proj"),
    (r"fc1", "up_proj"), (r"fc2", "down_proj"),
]


def engine_name(name):
    for pattern, by in MODULES:
        name = re.sub(pattern, by, name)
    return name


def engine_shape(name, tensor):
    if "patch_embedding.weight" in name:
        return tensor.reshape(tensor.shape[0], -1)
    if name in ("class_token.weight", "position_embeddings.weight"):
        return tensor.reshape(-1, tensor.shape[-1])
    return tensor


def random_model(name):
    kind, config = CASES[name]()
    torch.manual_seed(20261123)
    model = kind._from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.normal_(0.0, 0.3)
            if "norm" in key and key.endswith("weight"):
                p.add_(1.0)
    return model.eval()


def compute(model):
    """Logits, losses and gradients in float64."""
    generator = torch.Generator().manual_seed(5)
    config = getattr(model.config, "vision_config", model.config)
    pixels = torch.randn(BATCH, config.num_channels, config.image_size,
                         config.image_size, generator=generator,
                         dtype=torch.float64)
    labels = torch.tensor([3, 0, 4])
    weights = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
    model = model.double()
    with wide.widened(), wide.OnlyFloat64():
        logits = model(pixel_values=pixels).logits
        nll = torch.nn.functional.cross_entropy(logits, labels,
                                                reduction="none")
        loss = (nll * weights).sum() / weights.sum()
        loss.backward()
    out = dict(pixel_values=pixels, labels=labels, loss_weights=weights,
               logits=logits.detach(), nll=nll.detach(),
               loss=loss.detach().reshape(1))
    for key, p in model.named_parameters():
        if p.grad is not None:
            name = engine_name(key)
            out["param." + name] = engine_shape(name, p.detach())
            out["grad." + name] = engine_shape(name, p.grad)
    return {k: v.contiguous() for k, v in out.items()}


def write(name, folder):
    model = random_model(name)
    model.save_pretrained(folder)
    save_file(compute(model), os.path.join(folder, "golden.safetensors"))


def differences(old, new):
    """Weights are equal; the rest is to 1e-11 in norm."""
    found = []
    for file, bound in (("model.safetensors", 0.0),
                        ("golden.safetensors", 1e-11)):
        a, b = (load_file(os.path.join(d, file)) for d in (old, new))
        found += [f"{k}: only in one" for k in a.keys() ^ b.keys()]
        for key in a.keys() & b.keys():
            x, y = a[key].double(), b[key].double()
            if (x - y).norm() > bound * max(y.norm().item(), 1e-12):
                found.append(f"{file}: {key} differs")
    return found


# What the classifier does not see, so that an export lacks it.
UNSEEN = ("post_layernorm", "text_model", "text_projection",
          "visual_projection", "logit_scale")


def export(name, build, folder):
    """What differs when transformers loads an export."""
    ckpt = os.path.join(build, "loong-ckpt")
    native, out = (os.path.join(folder, d) for d in ("native", "hf"))
    source = os.path.join(HERE, "vision", name)
    for command in (["import", source, native], ["export", native, out]):
        subprocess.run([ckpt, *command, "--quiet"], check=True)
    golden = load_file(os.path.join(source, "golden.safetensors"))
    model, info = CASES[name]()[0].from_pretrained(
        out, attn_implementation="eager", output_loading_info=True)
    with wide.widened(), torch.no_grad():
        logits = model.double().eval()(
            pixel_values=golden["pixel_values"]).logits
    error = (logits - golden["logits"]).norm() / golden["logits"].norm()
    found = [f"logits differ by {error:.3g}"] if error > 1e-11 else []
    found += [f"unexpected: {k}" for k in info["unexpected_keys"]]
    return found + [f"missing: {k}" for k in info["missing_keys"]
                    if not any(part in k for part in UNSEEN)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--export", metavar="BUILD")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = 0
    for name in CASES:
        folder = os.path.join(HERE, "vision", name)
        if not args.check and not args.export:
            write(name, folder)
            continue
        with tempfile.TemporaryDirectory() as again:
            if args.export:
                found = export(name, args.export, again)
            else:
                write(name, again)
                found = differences(folder, again)
        failed += bool(found)
        print(f"{name}: {'; '.join(found) or 'passed'}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
