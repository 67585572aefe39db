#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch reaches on this GPU: the roofs (a copy, a large product) and
the same operators that tests/gpu/run.sh times of ours, one JSON line each."""
import json
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    sys.exit(f"peers.py: {error}: the table has no roofs")
if not torch.cuda.is_available():
    sys.exit("peers.py: this PyTorch sees no GPU")


def rate(op, work, flops=0.0, nbytes=0.0):
    """Runs `work` for a second; prints the median of batches."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    times = []
    stop = time.monotonic() + 1.0
    while time.monotonic() < stop or len(times) < 3:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(5):
            work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 5)
    ms = sorted(times)[len(times) // 2]
    print(json.dumps(dict(op=op, kernel="torch " + torch.__version__,
                          ms_median=ms, gflops=flops / ms * 1e-6,
                          gbytes_per_s=nbytes / ms * 1e-6)), flush=True)


def tensor(*shape, grad=False):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16
                       ).requires_grad_(grad)


def backward(op, build, inputs, flops=0.0, nbytes=0.0):
    """The gradient alone: of one forward, again and again."""
    out = build()
    dy = torch.randn_like(out)
    rate(op, lambda: torch.autograd.grad(out, inputs, dy, retain_graph=True),
         flops, nbytes)


def roofs():
    x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    rate("roof copy", lambda: y.copy_(x), nbytes=2.0 * x.numel())
    a, b = tensor(8192, 8192), tensor(8192, 8192)
    rate("roof product", lambda: a @ b, flops=2.0 * 8192 ** 3)


def attention():
    b, t, heads, kv, d = 4, 8192, 32, 8, 128
    q = tensor(b, heads, t, d, grad=True)
    k, v = tensor(b, kv, t, d, grad=True), tensor(b, kv, t, d, grad=True)
    flops = 2.0 * b * heads * t * t * d  # the causal half of two products

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                              enable_gqa=True)
    with torch.no_grad():
        rate("attention", forward, flops)
    backward("attention_grad", forward, (q, k, v), 2.5 * flops)


def pointwise():
    x, w = tensor(65536, 4096, grad=True), tensor(4096, grad=True)
    norm = torch.compile(lambda x, w: F.rms_norm(x, (4096,), w, 1e-6))
    size = 2.0 * x.numel()
    with torch.no_grad():
        rate("rmsnorm", lambda: norm(x, w), nbytes=2 * size)
    backward("rmsnorm_grad", lambda: norm(x, w), (x, w), nbytes=3 * size)
    y = tensor(16384, 28672, grad=True)

    @torch.compile
    def swiglu(y):
        gate, up = y.chunk(2, -1)
        return F.silu(gate) * up
    size = 2.0 * y.numel()
    with torch.no_grad():
        rate("swiglu", lambda: swiglu(y), nbytes=1.5 * size)
    backward("swiglu_grad", lambda: swiglu(y), (y,), nbytes=2.5 * size)


def adamw():
    p = torch.zeros(1 << 29, device="cuda", requires_grad=True)
    p.grad = torch.randn_like(p)
    step = torch.optim.AdamW([p], fused=True)
    rate("adamw", step.step, nbytes=7 * 4.0 * p.numel())


for part in (roofs, attention, pointwise, adamw):
    part()
    torch.cuda.empty_cache()
