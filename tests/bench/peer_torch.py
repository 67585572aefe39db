#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One training step of the benchmark shapes in PyTorch, on the CPU.

  peer_torch.py llama|gpt2 fp32|bf16 [--steps N] [--threads N] ...

A step = forward, mean loss, backward, clipping to norm 1, AdamW, gradients
set to none; random tokens, no dropout. bf16 = float32 parameters under
torch.autocast. Runs on torch 1.13 (manual attention, unfused AdamW) and on
the newest (SDPA, fused AdamW). The last line is JSON. See peers.md for the
environment variables that a fair comparison needs.
"""
import argparse
import json
import math
import os
import resource
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VERSION = tuple(int(x) for x in torch.__version__.split(".")[:2])
HAS_SDPA = VERSION >= (2, 0)
HAS_FUSED = VERSION >= (2, 4)  # fused AdamW on the CPU
HAS_RMS = VERSION >= (2, 4)
HAS_GQA = VERSION >= (2, 5)  # SDPA with fewer key than query heads


class Attention(nn.Module):
    """Causal attention over q [B,T,H,D] and k, v [B,T,K,D]."""

    def __init__(self, manual, seq):
        super().__init__()
        self.manual = manual
        if manual:
            mask = torch.full((seq, seq), -math.inf).triu(1)
            self.register_buffer("mask", mask, persistent=False)

    def forward(self, q, k, v):
        B, T, H, D = q.shape
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        grouped = HAS_GQA and not self.manual
        if k.shape[1] != H and not grouped:
            k, v = (x.repeat_interleave(H // x.shape[1], 1) for x in (k, v))
        if self.manual:
            scores = q @ k.transpose(2, 3) * D ** -0.5
            y = F.softmax(scores + self.mask.to(scores.dtype), -1) @ v
        else:
            y = F.scaled_dot_product_attention(
                q, k, v, is_causal=True,
                **({"enable_gqa": True} if grouped else {}))
        return y.transpose(1, 2).reshape(B, T, H * D)


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        if HAS_RMS:
            return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)
        r = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
        return (x.float() * r).to(x.dtype) * self.weight


class LlamaBlock(nn.Module):
    def __init__(self, C, H, K, ffn, attention):
        super().__init__()
        self.H, self.K, self.D = H, K, C // H
        self.n1, self.n2 = RMSNorm(C), RMSNorm(C)
        self.qkv = nn.Linear(C, (H + 2 * K) * self.D, bias=False)
        self.out = nn.Linear(C, C, bias=False)
        self.gate_up = nn.Linear(C, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, C, bias=False)
        self.attention = attention

    def rotate(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    def forward(self, x, cos, sin):
        B, T, _ = x.shape
        qkv = self.qkv(self.n1(x)).view(B, T, -1, self.D)
        q, k, v = qkv.split((self.H, self.K, self.K), 2)
        q, k = (self.rotate(y, cos, sin).to(v.dtype) for y in (q, k))
        x = x + self.out(self.attention(q, k, v))
        gate, up = self.gate_up(self.n2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class GPT2Block(nn.Module):
    def __init__(self, C, H, attention):
        super().__init__()
        self.H = H
        self.n1, self.n2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.out = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.up, self.down = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)
        self.attention = attention

    def forward(self, x):
        B, T, C = x.shape
        qkv = self.qkv(self.n1(x)).view(B, T, 3, self.H, C // self.H)
        x = x + self.out(self.attention(*qkv.unbind(2)))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class Llama(nn.Module):
    def __init__(self, T, manual, L=8, C=512, H=8, K=4, ffn=1408, V=32000):
        super().__init__()
        attention = Attention(manual, T)
        self.embed = nn.Embedding(V, C)
        self.blocks = nn.ModuleList(
            LlamaBlock(C, H, K, ffn, attention) for _ in range(L))
        self.norm, self.head = RMSNorm(C), nn.Linear(C, V, bias=False)
        D = C // H
        angles = torch.outer(torch.arange(T).float(),
                             1e4 ** (-torch.arange(0, D, 2).float() / D))
        angles = torch.cat((angles, angles), -1)[:, None]
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


class GPT2(nn.Module):
    def __init__(self, T, manual, L=12, C=768, H=12, V=50257):
        super().__init__()
        attention = Attention(manual, T)
        self.embed, self.position = nn.Embedding(V, C), nn.Embedding(1024, C)
        self.blocks = nn.ModuleList(
            GPT2Block(C, H, attention) for _ in range(L))
        self.norm, self.head = nn.LayerNorm(C), nn.Linear(C, V, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids) + self.position.weight[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


SHAPES = {"llama": (Llama, 4, 512, 32000), "gpt2": (GPT2, 4, 256, 50257)}


def make_optimizer(model, fused):
    options = {"fused": True} if fused else {}
    return torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95),
                             eps=1e-8, weight_decay=0.1, **options)


def rss_mib(field):
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
    return float("nan")


def measure(args, model, loss_of, vocabulary, names):
    """Times steps of a model; loss_of(tokens, targets) -> loss. `names`: what
    to tell besides."""
    optimizer = make_optimizer(model, args.fused)
    data = torch.randint(0, vocabulary, (args.steps + args.warmup, args.batch,
                                         args.seq + 1))
    times, losses = [], []
    for batch in data:
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16,
                            enabled=args.dtype == "bf16"):
            loss = loss_of(batch[:, :-1], batch[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        times.append((time.perf_counter() - start) * 1e3)
        if args.verbose:
            print(f"step {len(times)} loss {losses[-1]:.4f} "
                  f"{times[-1]:.0f} ms", flush=True)
    timed = times[args.warmup:]
    median = statistics.median(timed)
    return dict(
        names, dtype=args.dtype, batch=args.batch, seq=args.seq,
        steps=len(timed),
        parameters=sum(p.numel() for p in model.parameters()),
        threads=torch.get_num_threads(),
        fused=args.fused, compile=args.compile,
        ms_median=round(median, 1), ms_best=round(min(timed), 1),
        ms_worst=round(max(timed), 1), ms_first=round(times[0], 1),
        tokens_per_s=round(args.batch * args.seq / median * 1e3, 1),
        peak_rss_mib=round(
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        import_rss_mib=round(args.import_rss, 1),
        loss_first=round(losses[0], 4), loss_last=round(losses[-1], 4),
        env={k: os.environ[k] for k in (
            "OPENBLAS_CORETYPE", "OMP_WAIT_POLICY", "GLIBC_TUNABLES",
            "OMP_NUM_THREADS", "GOMP_SPINCOUNT", "LD_PRELOAD",
            "ONEDNN_MAX_CPU_ISA") if k in os.environ})


def run(args):
    make, B, T, V = SHAPES[args.shape]
    args.batch, args.seq = args.batch or B, args.seq or T
    torch.manual_seed(0)
    model = make(args.seq, args.attention == "manual")
    for name, p in model.named_parameters():
        if p.ndim == 2:
            nn.init.normal_(p, 0.0, 0.02)

    def loss_of(x, y):
        return F.cross_entropy(model(x).flatten(0, 1), y.flatten())

    if args.compile:
        loss_of = torch.compile(loss_of)
    return measure(args, model, loss_of, V, dict(
        peer=f"torch {torch.__version__}", shape=args.shape,
        attention=args.attention))


def add_options(parser):
    parser.add_argument("dtype", choices=("fp32", "bf16"))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--seq", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--unfused", dest="fused", action="store_false")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--verbose", action="store_true")


def finish(args, run):
    """Runs with the options, prints a line to read and one of JSON."""
    args.fused = args.fused and HAS_FUSED
    args.import_rss = rss_mib("VmRSS")
    if args.compile and VERSION < (2, 0):
        sys.exit("torch.compile needs torch 2")
    torch.set_num_threads(args.threads)
    result = run(args)
    print("{peer} {shape} {dtype} B{batch} T{seq}: {ms_median} ms/step "
          "median, {ms_best} best, {tokens_per_s} tok/s, peak "
          "{peak_rss_mib} MiB".format(**result))
    print(json.dumps(result))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("shape", choices=SHAPES)
    add_options(parser)
    parser.add_argument("--attention", choices=("sdpa", "manual"),
                        default="sdpa" if HAS_SDPA else "manual")
    finish(parser.parse_args(), run)


if __name__ == "__main__":
    main()
