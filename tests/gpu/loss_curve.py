#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The beginning of a real training on a device beside the processor's.

  loss_curve.py check --build DIR --work DIR --device NAME --dtype fp32|bf16
                      [--whole] [--curve FILE]
  loss_curve.py graphs --build DIR --work DIR --device NAME --dtype fp32|bf16
  loss_curve.py make  --build DIR --work DIR [--curve FILE]

The model is that of recipes/curve.yaml, SmolLM2-135M; the text that of
corpus.py. `make` trains its first steps on the processor, in each type with
three sets of kernels (LEVELS), which is the same mathematics with other
roundings, and writes tests/gpu/curve.json; what is done it keeps in --work.

The reference is fp32, the mean of the three. How far runs are from each other
is computed from them as the root mean square over the steps, relative, of the
losses and of the norms of gradients: in bf16 the distance from the reference,
in fp32 that of one run from another. A device, whose roundings are others
again, may be 3 times as far: amplified rounding is one random number times a
growing factor, and a normal one is beyond 3 deviations once in 370. Nothing is
asked to be nearer than SPACING, that of fp32, in which losses of tokens are kept:
what functions like exp and log err by does not average out over tokens as
roundings do. fp32 is some thousand times tighter than bf16.

`graphs` trains the first steps twice, as CUDA graphs and without, and saves:
losses and norms must have the same digits, and parameters and moments the same
bits (loong-ckpt diff).

With --whole the training goes on to the end of the corpus. Its loss there must
not be below the entropy of the text, which nothing can, nor above that of the
frequencies of its ids, which anything that learns is.
"""
import argparse
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time

import corpus

HERE = os.path.dirname(os.path.abspath(__file__))
RECIPE = os.path.join(HERE, "recipes", "curve.yaml")
LEVELS = {"all": "", "AVX2": "AVX2", "SSE41": "SSE41"}  # ONEDNN_MAX_CPU_ISA
STEPS, ALLOWED, SPACING = 7, 3.0, 2.0 ** -23
ITERS, BATCH, SEQ = 3000, 4, 128  # as in the recipe
LAST = 100  # steps that the loss at the end is the mean of


def prepare(work):
    """The corpus, and its prefix."""
    prefix = os.path.join(work, "corpus")
    if not os.path.exists(prefix + ".idx"):
        os.makedirs(work, exist_ok=True)
        corpus.write(prefix, ITERS * BATCH * SEQ + 1)
    return prefix


def loongrun(args, prefix, log, *keys, level=""):
    """Trains; the lines of its steps."""
    command = [os.path.join(args.build, "loongrun"), RECIPE,
               f"data.train=[{{path: {prefix}}}]", f"log.dir={log}", *keys]
    metrics = os.path.join(log, "metrics.jsonl")
    if os.path.exists(metrics):
        os.remove(metrics)
    environment = dict(os.environ)
    if level:
        environment["ONEDNN_MAX_CPU_ISA"] = level
    done = subprocess.run(command, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env=environment)
    with open(os.path.join(log, "said"), "w") as f:
        f.write(done.stdout)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n"
                 + done.stdout[-2000:])
    with open(metrics) as f:
        lines = [json.loads(line) for line in f]
    return [x for x in lines if "grad_norm" in x]


def rows(lines):
    return [[x["loss"] for x in lines], [x["grad_norm"] for x in lines]]


def distance(run, exact):
    """Root mean square over the steps, relative: of losses, of norms. A step
    without a number is infinitely far."""
    def far(a, b):
        return (a / b - 1.0) ** 2 if a is not None else math.inf
    return [math.sqrt(sum(map(far, a, b)) / len(b))
            for a, b in zip(run, exact)]


def judge_end(lines):
    """Whether the loss of the last steps is possible, and learnt."""
    least, alone, spread, words = corpus.bounds()
    losses = [x["loss"] for x in lines[-LAST:]]
    if len(lines) != ITERS or any(loss is None for loss in losses):
        print(f"FAIL: {len(lines)} steps of {ITERS}, or a loss is no number")
        return None
    end = sum(losses) / LAST
    # Of the words in these steps: five standard deviations of their mean.
    doubt = 5.0 * spread * math.sqrt(words / (LAST * BATCH * SEQ))
    print(f"loss at the end {end:.4f}: entropy of the text {least:.4f} "
          f"(+- {doubt:.4f}), of its ids alone {alone:.4f}")
    return end if least - doubt <= end <= alone else None


def check(args):
    with open(args.curve) as f:
        curve = json.load(f)
    exact = curve["reference"]
    allowed = [max(ALLOWED * s, SPACING) for s in curve["scale"][args.dtype]]
    steps = len(exact[0])
    log = os.path.join(args.work, f"{args.device}_{args.dtype}")
    begin = time.monotonic()
    lines = loongrun(args, prepare(args.work), log, f"device={args.device}",
                     f"precision.params_dtype={args.dtype}",
                     f"train.train_iters={ITERS if args.whole else steps}")
    seconds = time.monotonic() - begin
    got = rows(lines[:steps])
    if len(got[0]) != steps:
        sys.exit(f"{len(got[0])} steps of {steps}")
    ours = curve["processor"][args.dtype]
    print(" step  reference  processor     device   norms: the same       "
          "distances of the device")
    seen = [[math.nan if x is None else x for x in row] for row in got]
    for i in range(steps):
        print("{:5} {:10.6f} {:10.6f} {:10.6f}   {:.6f} {:.6f} {:.6f}"
              "  {:+.2e} {:+.2e}".format(
                  i + 1, *(row[k][i] for k in (0, 1)
                           for row in (exact, ours, seen)),
                  *(seen[k][i] / exact[k][i] - 1.0 for k in (0, 1))))
    there = distance(ours, exact)
    here = distance(got, exact)
    passed = True
    for k, what in enumerate(("loss", "norm")):
        inside = here[k] <= allowed[k]
        passed = passed and inside
        print(f"{what}: distance from the reference {here[k]:.2e}, allowed "
              f"{allowed[k]:.2e}; processor {there[k]:.2e}: "
              + ("ok" if inside else "FAIL"))
    end = None
    if args.whole:
        end = judge_end(lines)
        passed = passed and end is not None
    print(json.dumps(dict(
        training=args.dtype, passed=passed, steps=len(lines),
        seconds=round(seconds, 1), distance=here, processor=there,
        allowed=allowed, loss_at_end=end,
        tokens_per_s=lines[-1]["tokens_per_second"])))
    return 0 if passed else 1


def graphs(args):
    runs, saved, equal = [], [], True
    for impl in ("local", "none"):
        log = os.path.join(args.work, f"{args.device}_{args.dtype}_{impl}")
        saved.append(os.path.join(log, "save"))
        shutil.rmtree(saved[-1], ignore_errors=True)
        runs.append(rows(loongrun(
            args, prepare(args.work), log, f"device={args.device}",
            f"precision.params_dtype={args.dtype}",
            f"train.train_iters={STEPS}", f"train.cuda_graph_impl={impl}",
            f"checkpoint.save={saved[-1]}")))
    with open(os.path.join(args.work, f"{args.device}_{args.dtype}_local",
                           "said")) as f:
        told = re.search(r"graphs: (\d+) of the device's", f.read())
    if not told:
        print("FAIL: the run says nothing of graphs")
    for k, what in enumerate(("loss", "norm")):
        same = len(runs[0][k]) == STEPS and runs[0][k] == runs[1][k]
        equal = equal and same
        print(f"{what}, as graphs and without: {runs[0][k]} {runs[1][k]}: "
              + ("ok" if same else "FAIL"))
    diff = subprocess.run([os.path.join(args.build, "loong-ckpt"), "diff",
                           *saved], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    print(diff.stdout[-2000:])
    equal = equal and diff.returncode == 0 and told is not None
    print(json.dumps(dict(graphs=args.dtype, equal=equal, steps=STEPS,
                          count=int(told[1]) if told else 0)))
    for path in saved:
        shutil.rmtree(path)
    return 0 if equal else 1


# ---- making the file ---------------------------------------------------------


def kept(args, name, work):
    """A result, made once and kept in --work."""
    path = os.path.join(args.work, name + ".json")
    if not os.path.exists(path):
        begin = time.monotonic()
        result = work()
        with open(path + ".new", "w") as f:
            json.dump(result, f)
        os.rename(path + ".new", path)
        print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
    with open(path) as f:
        return json.load(f)


def make(args):
    prefix = prepare(args.work)
    runs = {dtype: [kept(args, f"{dtype}_{name}", lambda: rows(loongrun(
        args, prefix, os.path.join(args.work, dtype), "device=cpu",
        f"precision.params_dtype={dtype}", f"train.train_iters={STEPS}",
        level=level))) for name, level in LEVELS.items()]
        for dtype in ("fp32", "bf16")}
    reference = [[sum(values) / len(values) for values in zip(*row)]
                 for row in zip(*runs["fp32"])]
    pairs = [distance(a, b) for a, b in
             itertools.combinations(runs["fp32"], 2)]
    far = dict(fp32=pairs, bf16=[distance(r, reference)
                                 for r in runs["bf16"]])
    scale = {dtype: [math.sqrt(sum(d[k] ** 2 for d in each) / len(each))
                     for k in (0, 1)] for dtype, each in far.items()}
    with open(args.curve, "w") as f:
        json.dump(dict(
            made_by="tests/gpu/loss_curve.py make",
            rows=["loss", "norm of the gradient"], reference=reference,
            scale=scale, levels=list(LEVELS),
            processor={dtype: r[0] for dtype, r in runs.items()}), f, indent=1)
        f.write("\n")
    for dtype, each in far.items():
        print(f"{dtype}: distances {each}, scale {scale[dtype]}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=("check", "graphs", "make"))
    parser.add_argument("--build", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--curve", default=os.path.join(HERE, "curve.json"))
    args = parser.parse_args()
    return dict(check=check, graphs=graphs, make=make)[args.command](args)


if __name__ == "__main__":
    sys.exit(main())
