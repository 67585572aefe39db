#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""e4m3 weights in blocks: does transformers multiply out what we do?

  check_fp8.py BUILD

A fixture of each model type that transformers reads in fp8 is quantised here,
block by block of 4 x 4 with the largest magnitude at 448, imported and
exported by BUILD/loong-ckpt, and loaded by transformers in float32 both ways:
the fp8 directory with `dequantize`, and our export. Every tensor must be the
same, bit for bit. transformers cannot load ERNIE 4.5 VL so; that type and
those without a class are in tests/checkpoint/test_fp8_families.c alone.

Wants `pip install --no-deps accelerate==1.15.0` besides README.md; exit code 77
without.
"""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, FineGrainedFP8Config
from transformers.utils import logging

HERE = os.path.dirname(os.path.abspath(__file__))
BLOCK = 4
FIXTURES = ["llama3_gqa_tied", "qwen2_gqa", "qwen3_gqa_tied", "ernie4_5_gqa",
            "mixtral", "qwen2_moe", "qwen3_moe", "ernie4_5_moe", "minimax_m2",
            "deepseek_v2_lite", "deepseek_v3_groups"]
WIDE = ("embed", "lm_head", "gate.weight")  # as published


def quantise(tensor):
    rows, columns = (n // BLOCK for n in tensor.shape)
    blocks = tensor.reshape(rows, BLOCK, columns, BLOCK)
    scale = blocks.abs().amax((1, 3)) / 448
    bits = (blocks / scale[:, None, :, None]).reshape(tensor.shape)
    return bits.to(torch.float8_e4m3fn), scale


def write(name, folder):
    """The fixture in fp8; returns how many tensors are."""
    source = os.path.join(HERE, "fixtures", name)
    tensors, count = {}, 0
    for n, t in load_file(os.path.join(source, "model.safetensors")).items():
        if (t.ndim == 2 and not any(w in n for w in WIDE) and
                not any(size % BLOCK for size in t.shape)):
            tensors[n], tensors[n + "_scale_inv"] = quantise(t)
            count += 1
        else:
            tensors[n] = t
    os.makedirs(folder)
    save_file(tensors, os.path.join(folder, "model.safetensors"),
              metadata={"format": "pt"})
    with open(os.path.join(source, "config.json")) as f:
        config = json.load(f)
    config["quantization_config"] = dict(
        quant_method="fp8", fmt="e4m3", activation_scheme="dynamic",
        weight_block_size=[BLOCK, BLOCK])
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    return count


def load(folder, **more):
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, **more).state_dict()


def check(name, build, place):
    fp8, native, out = (os.path.join(place, n) for n in ("fp8", "n", "out"))
    tool = os.path.join(build, "loong-ckpt")
    count = write(name, fp8)
    for command in ([tool, "import", fp8, native],
                    [tool, "export", native, out]):
        subprocess.run(command, check=True, capture_output=True)
    theirs = load(fp8, quantization_config=FineGrainedFP8Config(
        dequantize=True, weight_block_size=(BLOCK, BLOCK)))
    ours = load(out)
    bad = sorted(n for n in theirs.keys() | ours.keys()
                 if n not in theirs or n not in ours or
                 not torch.equal(theirs[n], ours[n]))
    print(f"{'FAIL' if bad or count < 8 else 'ok  '} {name}: {count} tensors "
          f"in fp8, {len(theirs)} of the model {bad[:5]}", flush=True)
    return not bad and count >= 8


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if importlib.util.find_spec("accelerate") is None:
        print("skipped: accelerate is not there")
        return 77
    logging.disable_progress_bar()
    good = True
    for name in FIXTURES:
        with tempfile.TemporaryDirectory() as place:
            good &= check(name, sys.argv[1], place)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
