#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ten AdamW steps of a golden Llama with a KL divergence from its start.

  kl_train.py          writes kl_train.txt: loss, divergence and gradient norm
                       of each step
  kl_train.py --check  computes again and compares

Every step takes all samples, in float64. The divergence is the estimate
exp(d) - 1 - d of each label, d = log-probability of the start - of the model
(Schulman's third), its mean times COEFFICIENT is added to the loss.
"""
import os
import sys

import numpy as np
import torch
import transformers

import wide

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "fixtures", "llama3_gqa_tied")
FILE = os.path.join(HERE, "kl_train.txt")
STEPS, LR, BETA1, BETA2, EPS = 10, 1e-2, 0.9, 0.95, 1e-8
SAMPLES, LENGTH, COEFFICIENT = 4, 16, 0.3


def load():
    with wide.widened():  # the tables of the rotary embedding, too
        return transformers.AutoModelForCausalLM.from_pretrained(
            MODEL, attn_implementation="eager").double().eval()


def logprobs(model, ids):
    logits = model(input_ids=ids[:, :-1]).logits
    return torch.log_softmax(logits, -1).gather(
        -1, ids[:, 1:, None]).squeeze(-1)


def train():
    model, start = load(), load()
    i = torch.arange(SAMPLES * LENGTH + 1)
    tokens = (7 * i * i + 3 * i + 1) % model.config.vocab_size
    ids = torch.stack([tokens[s * LENGTH:(s + 1) * LENGTH + 1]
                       for s in range(SAMPLES)])
    lines, states = [], {}
    with torch.no_grad(), wide.widened():
        reference = logprobs(start, ids)
    for step in range(1, STEPS + 1):
        model.zero_grad()
        with wide.widened():
            logp = logprobs(model, ids)
            d = reference - logp
            kl = (torch.exp(d) - 1 - d).mean()
            loss = -logp.mean()
            (loss + COEFFICIENT * kl).backward()
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
        lines.append((loss.item(), kl.item(), norm.sqrt().item()))
    return lines


def main():
    lines = train()
    if "--check" not in sys.argv[1:]:
        with open(FILE, "w") as f:
            f.writelines(f"{a!r} {b!r} {c!r}\n" for a, b, c in lines)
        return
    worst = np.max(np.abs(np.array(lines) - np.loadtxt(FILE)))
    print(f"{worst:.1e}")
    sys.exit(int(worst > 1e-10))


if __name__ == "__main__":
    main()
