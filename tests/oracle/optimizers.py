#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/ops/torch_sgd.h: what torch.optim.SGD makes of a few numbers in
float64 (test_update.c does the same with the library's kernels).

    optimizers.py [--check]     (pip install torch)
"""
import math
import pathlib
import sys

import torch

TARGET = pathlib.Path(__file__).resolve().parents[1] / "ops/torch_sgd.h"
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


def text():
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


if "--check" not in sys.argv[1:]:
    TARGET.write_text(text())
elif TARGET.read_text() != text():
    sys.exit(f"{TARGET}: not what torch {torch.__version__} makes")
