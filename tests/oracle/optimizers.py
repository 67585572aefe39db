#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what torch.optim makes of a few numbers in float64:
tests/ops/torch_sgd.h (test_update.c does the same with the library's kernels)
and tests/train/torch_muon.h (the formula in test_muon.c must give the same).

    optimizers.py [--check]     (pip install torch)
"""
import math
import pathlib
import sys

import torch

TESTS = pathlib.Path(__file__).resolve().parents[1]
STEPS, SIZE, LR = 5, 6, 0.01
CASES = ((0.0, False, 0.0), (0.9, False, 0.0), (0.9, False, 0.1),
         (0.8, True, 0.1))


def train(momentum, nesterov, decay):
    p = torch.tensor([math.cos(i) for i in range(SIZE)], dtype=torch.float64,
                     requires_grad=True)
    sgd = torch.optim.SGD([p], lr=LR, momentum=momentum, nesterov=nesterov,
                          weight_decay=decay)
    for t in range(STEPS):
        p.grad = torch.tensor([math.sin(1 + i + 3 * t) for i in range(SIZE)],
                              dtype=torch.float64)
        sgd.step()
    return p.tolist()


def sgd_text():
    lines = ["/* SPDX-License-Identifier: Apache-2.0",
             " *",
             " * Written by tests/oracle/optimizers.py: parameters cos(i) after"
             " steps of",
             " * torch.optim.SGD with gradients sin(1 + i + 3 t). */",
             f"enum {{ TORCH_STEPS = {STEPS}, TORCH_SIZE = {SIZE} }};",
             f"static const double torch_lr = {LR};",
             "static const struct {",
             "    double momentum;",
             "    bool nesterov;",
             "    double weight_decay;",
             "    double param[TORCH_SIZE];",
             "} torch_sgd[] = {"]
    for momentum, nesterov, decay in CASES:
        p = train(momentum, nesterov, decay)
        lines.append(f"    {{{momentum}, {str(nesterov).lower()}, {decay},")
        for i in range(0, SIZE, 2):
            end = "}}," if i + 2 == SIZE else ","
            start = "     {" if i == 0 else "      "
            lines.append(f"{start}{p[i]!r}, {p[i + 1]!r}{end}")
    return "\n".join(lines + ["};", ""])


class Wide:
    """torch, but for the type in which Muon multiplies."""
    bfloat16 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


MUON_STEPS, MUON_CASES = 3, ((3, 5, True, "original"),
                             (5, 3, False, "original"),
                             (4, 4, True, "match_rms_adamw"))


def train_muon(rows, cols, nesterov, mode):
    size = rows * cols
    p = torch.tensor([math.cos(i) for i in range(size)], dtype=torch.float64)
    p = p.reshape(rows, cols).requires_grad_()
    muon = torch.optim.Muon([p], lr=LR, weight_decay=0.1, momentum=0.9,
                            nesterov=nesterov, adjust_lr_fn=mode)
    for t in range(MUON_STEPS):
        g = [math.sin(1 + i + 3 * t) for i in range(size)]
        p.grad = torch.tensor(g, dtype=torch.float64).reshape(rows, cols)
        muon.step()
    return p.flatten().tolist()


def muon_text():
    torch.optim._muon.torch = Wide()
    lines = ["/* SPDX-License-Identifier: Apache-2.0",
             " *",
             " * Written by tests/oracle/optimizers.py: matrices cos(i) after"
             " steps of",
             " * torch.optim.Muon with gradients sin(1 + i + 3 t), momentum 0.9"
             " and decay",
             " * 0.1, its products in float64. */",
             f"enum {{ TORCH_STEPS = {MUON_STEPS} }};",
             f"static const double torch_lr = {LR};",
             "static const struct {",
             "    int rows, cols;",
             "    bool nesterov;",
             "    bool match_rms;",
             "    double param[16];",
             "} torch_muon[] = {"]
    for rows, cols, nesterov, mode in MUON_CASES:
        p = train_muon(rows, cols, nesterov, mode)
        match = str(mode != "original").lower()
        lines.append(f"    {{{rows}, {cols}, {str(nesterov).lower()}, {match},")
        for i in range(0, len(p), 2):
            start = "     {" if i == 0 else "      "
            end = "}}," if i + 2 >= len(p) else ","
            lines.append(start + ", ".join(map(repr, p[i:i + 2])) + end)
    return "\n".join(lines + ["};", ""])


for target, text in (("ops/torch_sgd.h", sgd_text()),
                     ("train/torch_muon.h", muon_text())):
    if "--check" not in sys.argv[1:]:
        (TESTS / target).write_text(text)
    elif (TESTS / target).read_text() != text:
        sys.exit(f"{target}: not what torch {torch.__version__} makes")
