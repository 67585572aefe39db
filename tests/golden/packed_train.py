#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""AdamW steps of a golden Llama on samples of many lengths, each one alone.

  packed_train.py          writes packed_train.txt: for each normalisation of
                           the loss, loss and gradient norm of each step
  packed_train.py --check  computes again and compares

Every step takes all samples, in float64, one after the other and without
padding: what rows of several samples have to be equal to. With N the labels of
a sample that are learned, the loss is the weighted mean of all of them,
weights 1, 1 / N or 1 / sqrt(N).
"""
import os
import sys

import numpy as np
import torch

import kl_train
import wide

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(HERE, "packed_train.txt")
STEPS, LR, BETA1, BETA2, EPS = 4, 1e-2, 0.9, 0.95, 1e-8
SAMPLES, VOCAB = 24, 97
WEIGHTS = {"token": lambda n: 1.0, "sample": lambda n: 1.0 / n,
           "square_root": lambda n: n ** -0.5}


def samples():
    """Ids and mask; test_rows.c makes the same."""
    for d in range(SAMPLES):
        i = torch.arange(2 + (7 * d * d + 5 * d) % 31)
        yield ((11 * d * d + 7 * i * i + 3 * i + 1) % VOCAB,
               (i * i + d) % 3 != 0)


def loss_of(model, weight_of):
    total, weights = 0.0, 0.0
    for ids, mask in samples():
        learned = mask[1:].double()
        if learned.sum() == 0:
            continue
        logits = model(input_ids=ids[None, :-1]).logits[0]
        losses = torch.nn.functional.cross_entropy(
            logits, ids[1:], reduction="none")
        weight = weight_of(learned.sum().item())
        total = total + weight * (losses * learned).sum()
        weights += weight * learned.sum().item()
    return total / weights


def train(weight_of):
    model = kl_train.load()
    lines, states = [], {}
    for step in range(1, STEPS + 1):
        model.zero_grad()
        with wide.widened():
            loss = loss_of(model, weight_of)
            loss.backward()
        norm = 0.0
        with torch.no_grad():
            for p in model.parameters():
                norm += (p.grad ** 2).sum()
                m, v = states.setdefault(p, (torch.zeros_like(p),
                                             torch.zeros_like(p)))
                m.mul_(BETA1).add_(p.grad, alpha=1 - BETA1)
                v.mul_(BETA2).add_(p.grad ** 2, alpha=1 - BETA2)
                p.sub_(LR * (m / (1 - BETA1 ** step)) /
                       ((v / (1 - BETA2 ** step)).sqrt() + EPS))
        lines.append((loss.item(), norm.sqrt().item()))
    return lines


def main():
    lines = [line for name in WEIGHTS for line in train(WEIGHTS[name])]
    if "--check" not in sys.argv[1:]:
        with open(FILE, "w") as f:
            f.writelines(f"{a!r} {b!r}\n" for a, b in lines)
        return
    worst = np.max(np.abs(np.array(lines) - np.loadtxt(FILE)))
    print(f"{worst:.1e}")
    sys.exit(int(worst > 1e-10))


if __name__ == "__main__":
    main()
