#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does transformers read a directory that we exported, and agree with it?

  check_export.py DIR FILE.safetensors   logits of the model in DIR against
      `input_ids` and `logits` of FILE (a golden file, or one that our engine
      wrote; `cu_seqlens` is honoured)
  check_export.py DIR OTHER_DIR          two model directories: same meaning
      of config.json, same tensors bit for bit, sound shard index

Exit code 0 = equal within bounds, 1 = not.
"""
import argparse
import json
import os
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoConfig
from transformers.utils import logging

import model as golden
from cases import VISION
from wide import widened

# relative error allowed, by the type of the stored logits
BOUNDS = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 5e-2}
# says nothing about the mathematics
IGNORED_KEYS = {"transformers_version", "dtype", "torch_dtype",
                "_name_or_path", "architectures", "use_cache"}


def load_model(folder, own_code):
    config = AutoConfig.from_pretrained(folder, trust_remote_code=own_code)
    if hasattr(config, "vision_config"):  # not exported: a small one will do
        config = type(config)(**dict(config.to_dict(), vision_config=VISION))
    model, info = golden.class_for(config).from_pretrained(
        folder, config=config, dtype=torch.float64,
        attn_implementation="eager", experts_implementation="eager",
        trust_remote_code=own_code,
        output_loading_info=True)
    info["missing_keys"] = [n for n in info["missing_keys"]
                            if not golden.sees_images(n)]
    problems = [f"{what}: {sorted(map(str, names))[:5]}"
                for what, names in info.items() if names]
    return model.eval(), problems


def documents(tensors):
    """Token ranges that see each other, in the rows laid end to end."""
    ids = tensors["input_ids"]
    if "cu_seqlens" in tensors:
        bounds = tensors["cu_seqlens"].tolist()
    else:
        bounds = range(0, ids.numel() + 1, ids.shape[-1])
    return list(zip(bounds, bounds[1:]))


def types(tensors, begin, end):
    """Which tokens are of images, where a file tells."""
    if "token_types" not in tensors:
        return {}
    flat = tensors["token_types"].reshape(-1)
    return dict(moe_mm_token_type_ids=flat[None, begin:end].int())


@torch.no_grad()
def compare_logits(folder, path, bound, own_code=False):
    tensors = load_file(path)
    expected = tensors["logits"]
    bound = bound or BOUNDS[expected.dtype]
    flat = tensors["input_ids"].reshape(-1)
    with widened():
        model, problems = load_model(folder, own_code)
        logits = torch.cat([
            model(input_ids=flat[None, a:b], use_cache=False,
                  **types(tensors, a, b)).logits[0]
            for a, b in documents(tensors)])
    expected = expected.reshape(logits.shape).double()
    error = ((logits - expected).norm() / expected.norm()).item()
    print(f"logits: relative error {error:.3e}, allowed {bound:.0e}")
    if not error <= bound:
        problems.append("the logits differ")
    return problems


def read_tensors(folder):
    """{name: (file, handle)} of all shards, and what is wrong with them."""
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        handle = safe_open(os.path.join(folder, "model.safetensors"), "pt")
        return {n: handle for n in handle.keys()}, []
    with open(index) as f:
        index = json.load(f)
    problems, found, size = [], {}, 0
    for shard in sorted(set(index["weight_map"].values())):
        handle = safe_open(os.path.join(folder, shard), "pt")
        for name in handle.keys():
            if index["weight_map"].get(name) != shard:
                problems.append(f"{folder}: the index misplaces {name}")
            found[name] = handle
            tensor = handle.get_tensor(name)
            size += tensor.numel() * tensor.element_size()
    for name in index["weight_map"].keys() - found.keys():
        problems.append(f"{folder}: {name} is in no shard")
    total = index["metadata"]["total_size"]
    if total != size:
        problems.append(f"{folder}: total_size is {total}, shards hold {size}")
    return found, problems


def compare_tensors(left, right):
    problems = []
    for name in sorted(left.keys() ^ right.keys()):
        problems.append(f"{name}: only on one side")
    for name in sorted(left.keys() & right.keys()):
        a, b = left[name].get_tensor(name), right[name].get_tensor(name)
        if a.shape != b.shape or a.dtype != b.dtype:
            problems.append(f"{name}: {a.dtype}{list(a.shape)} and "
                            f"{b.dtype}{list(b.shape)}")
        elif not torch.equal(a.view(torch.uint8), b.view(torch.uint8)):
            worst = (a.double() - b.double()).abs().max().item()
            problems.append(f"{name}: differs, at most by {worst:.3e}")
    return problems


def meaning(config):
    """Fields that the class knows, said in one way where there are several."""
    config = config.get_text_config()
    known = type(config)().to_dict().keys() - IGNORED_KEYS
    c = {k: v for k, v in config.to_dict().items() if k in known}
    # an old file's "type" stays beside "rope_type"
    (c.get("rope_parameters") or {}).pop("type", None)
    if c.get("head_dim", 0) is None:
        c["head_dim"] = c["hidden_size"] // c["num_attention_heads"]
    for key in ("n_group", "topk_group"):  # one group is none
        if c.get(key, 0) is None:
            c[key] = 1
    step = c.pop("decoder_sparse_step", None)
    if step is not None:
        dense = set(c["mlp_only_layers"] or ())
        c["mlp_only_layers"] = [i for i in range(c["num_hidden_layers"])
                                if i in dense or (i + 1) % step != 0]
    return c


def compare_configs(left, right):
    a, b = (meaning(AutoConfig.from_pretrained(d)) for d in (left, right))
    return [f"config.json: {key} is {a.get(key)!r} and {b.get(key)!r}"
            for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key)]


def compare_folders(left, right):
    problems = compare_configs(left, right)
    (a, bad_a), (b, bad_b) = read_tensors(left), read_tensors(right)
    print(f"{len(a)} and {len(b)} tensors")
    return problems + bad_a + bad_b + compare_tensors(a, b)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("against", metavar="FILE|OTHER_DIR")
    parser.add_argument("--bound", type=float,
                        help="relative error allowed for the logits")
    parser.add_argument("--own-code", action="store_true",
                        help="let the Python files in DIR run")
    args = parser.parse_args()
    logging.disable_progress_bar()
    if os.path.isdir(args.against):
        problems = compare_folders(args.folder, args.against)
    else:
        problems = compare_logits(args.folder, args.against, args.bound,
                                  args.own_code)
    for problem in problems:
        print(problem)
    print("FAIL" if problems else "ok")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
