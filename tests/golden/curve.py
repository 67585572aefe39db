#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same training in loongrun and in PyTorch, step by step.

  curve.py BUILD [--dtype fp32|bf16] [--steps N] [--text PATH...]

A small Qwen3 (1.6 M parameters, bytes as tokens) with weights from
transformers learns a real text: BUILD/loong-data indexes it, BUILD/loongrun
trains. Here transformers and torch.optim.AdamW do the same on the same
samples (the order of include/loong/blend.h, written again in Python), once in
float64 and once in the type asked for; bfloat16 as mixed precision does it:
float32 masters, a bfloat16 model, gradients added in float32.

Narrow runs drift from float64, and training amplifies rounding, so no fixed
bound on a loss is honest. PyTorch itself gives the scale: it runs RUNS times
with the rows of each batch in another order, which is the same mathematics with
other roundings. Demanded is that loongrun's distance from float64 (root mean
square over the steps, of the losses and of the gradient norms) is at most 3
times theirs: amplified rounding is one random number times a growing factor,
and a normal one is beyond 3 deviations once in 370. The first loss must be
within the type's unit roundoff. The learning rate is one at which the gradient
norm does not leap: leaps make distances jump from run to run.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from wide import widened

SEQ, BATCH, SEED = 256, 8, 1234
LR, WARMUP, BETAS, EPS, DECAY, CLIP = 5e-4, 10, (0.9, 0.95), 1e-8, 0.1, 1.0
RUNS = 3
ALLOWED = 3.0
ROUNDOFF = {"fp32": 2.0 ** -24, "bf16": 2.0 ** -8}
TEXT = ["/usr/share/common-licenses"]
MASK = (1 << 64) - 1

RECIPE = """
name: curve
seed: {seed}
init: {{from_hf: {model}}}
data:
  train: [{{path: {prefix}}}]
  seq_length: {seq}
train: {{micro_batch_size: 4, global_batch_size: {batch},
        train_iters: {steps}}}
optimizer: {{lr: {lr}, lr_decay_style: cosine, min_lr: 0.0,
            lr_warmup_iters: {warmup}, weight_decay: {decay},
            adam_beta1: {betas[0]}, adam_beta2: {betas[1]}, adam_eps: {eps},
            clip_grad: {clip}}}
precision: {{params_dtype: {dtype}}}
log: {{interval: 1, dir: {log}, tensorboard: false}}
"""


def mix(x):
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9 & MASK
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb & MASK
    return x ^ (x >> 31)


def key_of(key, word):
    return mix((mix((key + 0x9e3779b97f4a7c15) & MASK) + word) & MASK)


def permuted(key, n, x):
    bits = max((n - 1).bit_length(), 0)
    low = bits // 2
    while True:
        a, b = x & ((1 << low) - 1), x >> low
        for r in range(0, 8, 2):
            a ^= key_of(key + r, b) & ((1 << low) - 1)
            b ^= key_of(key + r + 1, a) & ((1 << (bits - low)) - 1)
        x = b << low | a
        if x < n:
            return x


def batches(prefix, steps):
    """[BATCH, SEQ + 1] for each step; one source, all documents."""
    tokens = np.fromfile(prefix + ".bin", dtype=np.uint16).astype(np.int64)
    n = (len(tokens) - 1) // SEQ
    for step in range(steps):
        rows = []
        for g in range(step * BATCH, (step + 1) * BATCH):
            key = key_of(key_of(SEED, 0), g // n)
            at = permuted(key, n, g % n) * SEQ
            rows.append(tokens[at:at + SEQ + 1])
        yield torch.tensor(np.stack(rows))


def learning_rate(step, steps):
    at = step + 1
    if at < WARMUP:
        return LR * at / WARMUP
    return LR * 0.5 * (1 + np.cos(np.pi * (at - WARMUP) / (steps - WARMUP)))


def train(folder, dtype, data, turn=0):
    """Losses and gradient norms in PyTorch; rows turned round by `turn`."""
    steps = len(data)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager",
        experts_implementation="eager")
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    masters = [p.detach().to(wide).clone().requires_grad_()
               for p in model.parameters()]
    decayed = [p for p in masters if p.ndim > 1]
    plain = [p for p in masters if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [dict(params=decayed, weight_decay=DECAY),
         dict(params=plain, weight_decay=0.0)], betas=BETAS, eps=EPS)
    losses, norms = [], []
    for step, batch in enumerate(data):
        batch = batch.roll(turn, 0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        with torch.no_grad():
            for p, m in zip(model.parameters(), masters):
                p.copy_(m)
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.to(wide).flatten(0, 1), batch[:, 1:].flatten())
        model.zero_grad(set_to_none=True)
        loss.backward()
        for p, m in zip(model.parameters(), masters):
            m.grad = p.grad.to(wide)
        norms.append(torch.nn.utils.clip_grad_norm_(masters, CLIP).item())
        losses.append(loss.item())
        optimizer.step()
    return np.array([losses, norms])


def make_model(folder):
    torch.manual_seed(SEED)
    config = AutoConfig.for_model(
        "qwen3", vocab_size=260, hidden_size=160, intermediate_size=448,
        num_hidden_layers=4, num_attention_heads=5, num_key_value_heads=1,
        head_dim=32, max_position_embeddings=SEQ, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=1e4))
    AutoModelForCausalLM.from_config(
        config, dtype=torch.float32).save_pretrained(folder)


def run_loong(args, work, model, prefix):
    recipe, log = os.path.join(work, "recipe.yaml"), os.path.join(work, "log")
    with open(recipe, "w") as f:
        f.write(RECIPE.format(
            seed=SEED, model=model, prefix=prefix, seq=SEQ, batch=BATCH,
            steps=args.steps, lr=LR, warmup=WARMUP, decay=DECAY, betas=BETAS,
            eps=EPS, clip=CLIP, dtype=args.dtype, log=log))
    subprocess.run([os.path.join(args.build, "loongrun"), recipe],
                   check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(log, "metrics.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    lines = [x for x in lines if "grad_norm" in x]
    return np.array([[x["loss"] for x in lines],
                     [x["grad_norm"] for x in lines]])


def distance(run, exact):
    """Root mean square over the steps, relative: of losses, of norms."""
    return np.sqrt(np.mean((run / exact - 1) ** 2, axis=1))


def report(exact, runs, ours, dtype):
    print(f"{'step':>5} {'float64':>10} {'torch':>10} {'loongrun':>10}"
          f"   gradient norm: float64, torch, loongrun")
    steps = exact.shape[1]
    for i in sorted({0, 1, 2, 5, *range(10, steps, 10), steps - 1}):
        print(f"{i:5} {exact[0, i]:10.6f} {runs[0][0, i]:10.6f} "
              f"{ours[0, i]:10.6f}   {exact[1, i]:.6f} "
              f"{runs[0][1, i]:.6f} {ours[1, i]:.6f}")
    theirs = [distance(r, exact) for r in runs]
    scale = np.sqrt(np.mean(np.square(theirs), axis=0))
    mine = distance(ours, exact)
    failed = not (mine <= ALLOWED * scale).all()
    for row, what in enumerate(("loss", "gradient norm")):
        each = ", ".join(f"{t[row]:.2e}" for t in theirs)
        print(f"{what}: distance from float64: torch {scale[row]:.2e} "
              f"({each}), loongrun {mine[row]:.2e}")
    first = abs(ours[0, 0] / exact[0, 0] - 1)
    failed |= not first <= ROUNDOFF[dtype]
    print(f"first loss: relative difference {first:.2e}, unit roundoff "
          f"{ROUNDOFF[dtype]:.2e}")
    print("FAIL" if failed else "ok")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", metavar="BUILD")
    parser.add_argument("--dtype", choices=ROUNDOFF, default="fp32")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--text", nargs="+", default=TEXT)
    args = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    narrow = dict(fp32=torch.float32, bf16=torch.bfloat16)[args.dtype]
    with tempfile.TemporaryDirectory() as work:
        model, prefix = os.path.join(work, "hf"), os.path.join(work, "text")
        make_model(model)
        subprocess.run([os.path.join(args.build, "loong-data"), "index",
                        "--quiet", "--tokenizer", "bytes", "--append-eod",
                        "--dtype", "uint16", "--output-prefix", prefix,
                        *args.text], check=True)
        data = list(batches(prefix, args.steps))
        ours = run_loong(args, work, model, prefix)
        theirs = [train(model, narrow, data, turn) for turn in range(RUNS)]
        with widened():
            exact = train(model, torch.float64, data)
    return report(exact, theirs, ours, args.dtype)


if __name__ == "__main__":
    sys.exit(main())
