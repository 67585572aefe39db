#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/packed: small LLaMAs whose matrices compressed-tensors
has packed as integers of 4 bits in groups, and of 8 bits by rows, and beside
each the same with what its own code makes of them.

usage: packed_integers.py      (pip install compressed-tensors==0.20.0)

With --check it computes again and compares.
"""
import filecmp
import json
import pathlib
import sys
import tempfile

import torch
import transformers
from compressed_tensors.compressors import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationScheme
from safetensors.torch import save_file

TARGET = pathlib.Path(__file__).resolve().parents[1] / "fixtures/packed"
# Bits, columns of a scale (None: a row), columns of the feed-forward, type.
CASES = {"int4": (4, 16, 48, torch.bfloat16),
         "int8": (8, None, 44, torch.float32)}


def scheme_of(bits, group):
    return dict(targets=["Linear"], weights=dict(
        num_bits=bits, type="int", symmetric=True, actorder=None, dynamic=False,
        strategy="group" if group else "channel", group_size=group))


def write(place, bits, group, ffn, dtype):
    torch.manual_seed(bits)
    config = transformers.LlamaConfig(
        vocab_size=24, hidden_size=32, intermediate_size=ffn,
        num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        max_position_embeddings=16, tie_word_embeddings=False)
    config.architectures = ["LlamaForCausalLM"]
    config.dtype = dtype
    model = transformers.LlamaForCausalLM(config).to(dtype)
    scheme = scheme_of(bits, group)
    own = QuantizationScheme(**scheme)
    packed, products = {}, {}
    for name, value in model.state_dict().items():
        if "proj" not in name:
            packed[name] = products[name] = value
            continue
        value = torch.randn(value.shape).to(dtype)
        parts = value.float().reshape(value.shape[0], -1, group or
                                      value.shape[1])
        scale = (parts.abs().amax(2) / (2 ** (bits - 1) - 0.5)).to(dtype)
        scale[0, 0] = 0.0 if bits == 4 else scale[0, 0]
        scale = scale.clamp(min=1e-30)
        made = PackedQuantizationCompressor.compress(
            dict(weight=value, weight_scale=scale), own)
        stem = name[:-len("weight")]
        packed.update({stem + key: t.contiguous() for key, t in made.items()})
        products[name] = PackedQuantizationCompressor.decompress(
            made, own)["weight"].to(dtype)
    text = config.to_dict()
    for kind, tensors in (("products", products), ("packed", packed)):
        to = place / kind
        to.mkdir(parents=True, exist_ok=True)
        save_file(tensors, to / "model.safetensors", {"format": "pt"})
        if kind == "packed":
            text["quantization_config"] = dict(
                quant_method="compressed-tensors", format="pack-quantized",
                config_groups=dict(group_0=scheme), ignore=["lm_head"],
                kv_cache_scheme=None, quantization_status="compressed")
        text["dtype"] = str(dtype).split(".")[1]
        (to / "config.json").write_text(json.dumps(text, indent=1) + "\n")


def main():
    with tempfile.TemporaryDirectory() as other:
        check = "--check" in sys.argv[1:]
        place = pathlib.Path(other) if check else TARGET
        for name, case in CASES.items():
            write(place / name, *case)
        files = [path.relative_to(place) for path in place.rglob("*.*")
                 if path.is_file()]
        assert len(files) == 8
        return check and filecmp.cmpfiles(place, TARGET, map(str, files),
                                          False)[0] != list(map(str, files))


if __name__ == "__main__":
    sys.exit(main())
