#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what llm.c's train_gpt2 reads, with random contents, into DIR.

A GPT-2 124M checkpoint (float32, version 3) initialised as GPT-2 is, and
token files. Only speed is compared, so the values need not be real.
"""
import os
import sys

import numpy as np

L, C, T, V, PADDED = 12, 768, 1024, 50257, 50304


def write_model(path, rng):
    header = np.zeros(256, np.int32)
    header[:8] = 20240326, 3, T, V, L, 12, C, PADDED
    # (values, standard deviation or constant) in file order
    tensors = [(PADDED * C, 0.02), (T * C, 0.02),
               (L * C, "1"), (L * C, "0"),
               (L * 3 * C * C, 0.02), (L * 3 * C, "0"),
               (L * C * C, 0.02), (L * C, "0"),
               (L * C, "1"), (L * C, "0"),
               (L * 4 * C * C, 0.02), (L * 4 * C, "0"),
               (L * 4 * C * C, 0.02), (L * C, "0"), (C, "1"), (C, "0")]
    with open(path, "wb") as f:
        f.write(header.tobytes())
        for count, kind in tensors:
            if isinstance(kind, str):
                values = np.full(count, float(kind), np.float32)
            else:
                values = rng.standard_normal(count, np.float32) * kind
            f.write(values.astype(np.float32).tobytes())


def write_tokens(path, rng, count=200_000):
    header = np.zeros(256, np.int32)
    header[:3] = 20240520, 1, count
    with open(path, "wb") as f:
        f.write(header.tobytes())
        f.write(rng.integers(0, V, count).astype(np.uint16).tobytes())


def main():
    folder = sys.argv[1]
    rng = np.random.default_rng(0)
    data = os.path.join(folder, "dev", "data", "tinyshakespeare")
    os.makedirs(data, exist_ok=True)
    write_model(os.path.join(folder, "gpt2_124M.bin"), rng)
    for part in ("train", "val"):
        write_tokens(os.path.join(
            data, f"tiny_shakespeare_{part}.bin"), rng)


if __name__ == "__main__":
    main()
