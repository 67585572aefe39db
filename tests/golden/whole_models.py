#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loss and every gradient of whole vision-language models, and what bf16 does.

  whole_models.py BUILD          writes whole_models/FAMILY.json
  whole_models.py BUILD --check  computes again and compares

The models, pictures and texts (each once) of the *_train.py files, from the
engine's own start, in true float64. Of each tensor of the engine's the file has
the norm of the gradient, its products with two directions (`direction`), which
an error of the tensor changes, and the two scales of narrow.py: the size of
bfloat16's own errors, by stochastic rounding of the unmodified model, text by
text. Which elements of transformers' tensors are those of a tensor of the
engine follows from loading it alone.
"""
import json
import math
import os
import sys
import tempfile
from contextlib import nullcontext

import numpy as np
import torch

import llava_train
import narrow
import siglip2_train
import vl_from_hf

HERE = os.path.dirname(os.path.abspath(__file__))
TO = os.path.join(HERE, "whole_models")
MODELS = {of.__name__.removesuffix("_train"): of
          for of in (*vl_from_hf.MODELS.values(), siglip2_train)}
# A parameter of the first becomes a complex number, which no bfloat16 does; the
# other is no class of transformers'.
NOT_NARROW = {"llavaonevision1_5", "siglip2"}


def direction(count, which):
    """In [-1, 1), exact in float64, and as simple to compute elsewhere."""
    i = np.arange(count, dtype=np.uint64) * np.uint64(2654435761)
    i = (i + np.uint64(which) * np.uint64(40503)) * np.uint64(2246822519)
    return ((i >> np.uint64(16)) & np.uint64(0xffff)).astype(np.float64) / \
        32768 - 1


def places(of, model, params):
    """{tensor of the engine: [mask, direction, direction]}, as the model's
    parameters lie."""
    found = {}
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    for name, value in params.items():
        if name.endswith("e_score_correction_bias"):
            continue  # no gradient moves it
        shapes = []
        for which in range(3):
            flat = direction(value.size, which) if which else 1.0
            only = {k: np.zeros_like(v, dtype=np.float64)
                    for k, v in params.items()}
            only[name] = only[name] + np.reshape(
                flat, value.shape if which else ())
            of.load(model, only)
            shapes.append([p.detach().clone() for p in model.parameters()])
        assert sum(int(p.sum()) for p in shapes[0]) == value.size, name
        found[name] = shapes
    return found


def run(model, batch, narrow_mode=None):
    """[loss, gradients of the parameters], of the mean over learned tokens."""
    count = sum(int(learned.sum()) for _, _, learned in batch)
    total, grads = 0.0, [torch.zeros(p.shape, dtype=torch.float64)
                         for p in model.parameters()]
    for ids, extra, learned in batch:
        if narrow_mode is not None:
            extra = {k: narrow.stochastic(v, narrow_mode.generator)
                     if v.is_floating_point() else v for k, v in extra.items()}
        logits = model(input_ids=ids, **extra).logits[0, :-1]
        logits = logits if narrow_mode is None else logits.float()
        loss = torch.nn.functional.cross_entropy(
            logits[learned], ids[0, 1:][learned], reduction="sum") / count
        loss.backward()
        total += loss.item()
        for g, p in zip(grads, model.parameters()):
            if p.grad is not None:
                g += p.grad.double()
                p.grad = None
    return total, grads


def rounded(model, seed):
    """The model in bfloat16, and the rounding of its run."""
    mode = narrow.StochasticBfloat16(seed)
    copy = type(model)._from_config(model.config,
                                    attn_implementation="spelled_out")
    for p, q in zip(copy.parameters(), model.parameters()):
        p.data = narrow.stochastic(q.detach(), mode.generator)
    return copy.eval(), mode


def unique(place):
    """Keeps each text once, and returns them."""
    with open(os.path.join(place, "texts.jsonl")) as f:
        lines = list(dict.fromkeys(f))
    with open(os.path.join(place, "texts.jsonl"), "w") as f:
        f.writelines(lines)
    return [json.loads(line) for line in lines]


def compute(build, name, of):
    with tempfile.TemporaryDirectory() as place:
        vl_from_hf.prepare(place)
        keys = of.prepare(place) if hasattr(of, "prepare") else []
        file = os.path.basename(of.__file__)[:-3]
        params = llava_train.start(build, place, file, keys)
        texts = unique(place)
        batch = list(of.samples(place))
        processor = None
        for key in keys:
            with open(key.split("=", 1)[1]) as f:
                processor = json.load(f)
    model = of.make()
    found = places(of, model, params)
    of.load(model, params)
    replay = narrow.ReplayTopk()
    with llava_train.wide.widened(), replay:
        loss, exact = run(model, batch)
    seen = [sum(masks[0][i] for masks in found.values())
            for i in range(len(exact))]
    for p, s, g in zip(model.named_parameters(), seen, exact):
        assert (s == 1).all() or not g.any(), p[0]
    squares = {key: [0.0, 0.0] for key in ["loss", *found]}
    for seed in range(0 if name in NOT_NARROW else narrow.RUNS):
        copy, mode = rounded(model, seed)
        with mode, replay.again() if replay.indices else nullcontext():
            its, grads = run(copy, batch, mode)
        squares["loss"][0] += (its - loss) ** 2
        for key, shapes in found.items():
            e = torch.cat([(a - b)[m != 0] for a, b, m in
                           zip(grads, exact, shapes[0])])
            x = torch.cat([b[m != 0] for b, m in zip(exact, shapes[0])])
            along = (e @ x).item() / x.norm().item() \
                if x.norm().item() > 1e-12 else 0.0
            squares[key][0] += e.square().sum().item()
            squares[key][1] += along ** 2
    scale = {k: [float(f"{math.sqrt(v / narrow.RUNS):.4g}") for v in pair]
             for k, pair in squares.items()}
    tensors = {}
    for key, (mask, *directions) in found.items():
        norm = math.sqrt(sum((g[m != 0] ** 2).sum().item()
                             for g, m in zip(exact, mask)))
        if norm == 0:  # of a layer that nothing reads
            continue
        products = [sum((g * d).sum().item() for g, d in zip(exact, r))
                    for r in directions]
        tensors[key] = [norm, *products, *scale[key]]
        del tensors[key][3 if name in NOT_NARROW else 5:]
    return dict(processor=processor, texts=texts, loss=[loss, scale["loss"][0]],
                tensors=tensors)


def text_of(result):
    lines = [f'"{key}": {json.dumps(value)}'
             for key, value in result["tensors"].items()]
    head = {k: v for k, v in result.items() if k != "tensors"}
    return json.dumps(head)[:-1] + ', "tensors": {\n' + ",\n".join(
        lines) + "}}\n"


def main():
    build, checks = sys.argv[1], "--check" in sys.argv[2:]
    names = [a for a in sys.argv[2:] if not a.startswith("-")]
    os.makedirs(TO, exist_ok=True)
    for name, of in MODELS.items():
        path = os.path.join(TO, name + ".json")
        if names and name not in names:
            continue
        result = compute(build, name, of)
        if not checks:
            with open(path, "w") as f:
                f.write(text_of(result))
            print(name, len(result["tensors"]), result["loss"], flush=True)
            continue
        with open(path) as f:
            there = json.load(f)
        worst = max(abs(a - b) for key, values in result["tensors"].items()
                    for a, b in zip(values[:3], there["tensors"][key]))
        print(f"{name}: {worst:.1e}")
        assert worst < 1e-11 and abs(result["loss"][0] - there["loss"][0]) < \
            1e-12


if __name__ == "__main__":
    main()
