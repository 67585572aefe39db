#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of tests/ops/test_quantize.c: what PyTorch's casts to fp8
make of the same numbers, as FNV-1a sums of bytes."""
import torch

NAMES = {torch.float8_e4m3fn: "E4M3", torch.float8_e5m2: "E5M2"}


def fnv(tensor):
    total = 0xCBF29CE484222325
    for byte in tensor.contiguous().view(torch.uint8).flatten().tolist():
        total = (total ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return total


def every_bf16():
    bits = torch.arange(65536, dtype=torch.int32).to(torch.int16)
    return bits.view(torch.bfloat16).view(256, 256)


def mixed(rows, cols):
    bits, state = [], 1
    for _ in range(rows * cols):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        u = state >> 16
        bits.append(u & 0x807F | (115 + (u >> 7 & 15)) << 7)
    x = torch.tensor(bits, dtype=torch.int32).to(torch.int16)
    return x.view(torch.bfloat16).view(rows, cols)


def quantize(x, scale, dtype):
    most = torch.finfo(dtype).max
    y = x.float() / scale
    q = y.clamp(-most, most).to(dtype).view(torch.uint8)
    return torch.where(y.isnan(), torch.full_like(q, 0x7F), q)


def blocks(x, rows, dtype):
    scales = torch.empty(-(-x.shape[0] // rows), -(-x.shape[1] // 128))
    wide = torch.empty(x.shape)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            at = (slice(i * rows, (i + 1) * rows), slice(j * 128, j * 128 + 128))
            scales[i, j] = x[at].float().abs().max() / torch.finfo(dtype).max
            wide[at] = scales[i, j]
    return quantize(x, wide, dtype), scales


for dtype, name in NAMES.items():
    for scale in (1.0, 0.37, 3e-5):
        q = quantize(every_bf16(), torch.tensor(scale), dtype)
        print(f"    {{LOONG_F8_{name}, 0, {scale}f, {fnv(q):#x}, 0}},")
    for rows in (1, 128):
        q, scales = blocks(mixed(200, 300), rows, dtype)
        print(f"    {{LOONG_F8_{name}, {rows}, 0.0f, {fnv(q):#x},")
        print(f"     {fnv(scales):#x}}},")
