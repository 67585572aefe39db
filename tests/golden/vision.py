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

Of masked images there are, for each row of a picture, the first that of the
class token: loss_weights [B*rows], 1 where the patch is masked, reconstruction
[B*rows,pixels of a patch] and nll, their mean squared error; param.NAME is in
float32.
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


def masked():
    config = transformers.ViTConfig(
        image_size=6, patch_size=2, encoder_stride=2, hidden_size=8,
        num_hidden_layers=2, num_attention_heads=4, intermediate_size=8)
    return transformers.ViTForMaskedImageModeling, config


CASES = dict(vit=vit, clip=clip, siglip=siglip, masked=masked)

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
    (r"embeddings\.mask_token$", "mask_token.weight"),
    (r"^decoder\.0\.", "decoder."),
]


def engine_name(name):
    for pattern, by in MODULES:
        name = re.sub(pattern, by, name)
    return name


def engine_shape(name, tensor):
    if name in ("patch_embedding.weight", "decoder.weight"):
        return tensor.reshape(tensor.shape[0], -1)
    if name in ("class_token.weight", "mask_token.weight",
                "position_embeddings.weight"):
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


def patches(pixels, side):
    """[B, patches, pixels of one], each by channel, row, column."""
    return torch.nn.functional.unfold(pixels, side, stride=side).mT


def masked_mse(model, pixels, mask):
    """The pixels that the model finds, [B,C,S,S], the squared errors
    [B,patches], means over the pixels of a patch, and their mean over the
    patches of mask, bool [B,patches]."""
    found = model(pixel_values=pixels, bool_masked_pos=mask).reconstruction
    side = model.config.patch_size
    errors = patches((found - pixels) ** 2, side).mean(-1)
    return found, errors, errors[mask].sum() / mask.sum()


def compute_masked(model):
    generator = torch.Generator().manual_seed(5)
    size, side = model.config.image_size, model.config.patch_size
    pixels = torch.randn(BATCH, 3, size, size, generator=generator,
                         dtype=torch.float64)
    mask = torch.rand(BATCH, (size // side) ** 2, generator=generator) < 0.6
    rows = {}
    hook = model.vit.register_forward_hook(
        lambda *a: rows.update(all=a[2].last_hidden_state))
    model = model.double()
    with wide.widened(), wide.OnlyFloat64():
        found, errors, loss = masked_mse(model, pixels, mask)
        loss.backward()
        hook.remove()
        decoder = model.decoder[0]
        decoded = rows["all"] @ decoder.weight[:, :, 0, 0].T + decoder.bias
    assert torch.allclose(decoded[:, 1:], patches(found, side), 0, 1e-12)
    with_class = torch.nn.functional.pad
    return dict(pixel_values=pixels, reconstruction=decoded.detach().flatten(
                    0, 1),
                nll=with_class(errors.detach(), (1, 0)).flatten(),
                loss_weights=with_class(mask.double(), (1, 0)).flatten(),
                loss=loss.detach().reshape(1))


def compute(model):
    """What a golden file has, in float64."""
    masks = hasattr(model, "decoder")
    out = compute_masked(model) if masks else compute_classes(model)
    for key, p in model.named_parameters():
        if p.grad is not None:
            name = engine_name(key)
            value = engine_shape(name, p.detach())
            out["param." + name] = value.float() if masks else value
            out["grad." + name] = engine_shape(name, p.grad)
    return {k: v.contiguous() for k, v in out.items()}


def compute_classes(model):
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
    return dict(pixel_values=pixels, labels=labels, loss_weights=weights,
                logits=logits.detach(), nll=nll.detach(),
                loss=loss.detach().reshape(1))


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
    again = compute(model.eval())
    what = "logits" if "logits" in golden else "reconstruction"
    error = (again[what] - golden[what]).norm() / golden[what].norm()
    found = [f"{what} differ by {error:.3g}"] if error > 1e-11 else []
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
    sys.exit(int(failed > 0))


if __name__ == "__main__":
    main()
