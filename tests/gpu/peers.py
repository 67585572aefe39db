#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch reaches on this GPU, one JSON line each.

  peers.py kernels           the operators of kernels.txt, a copy, a product
  peers.py model NAME        training steps of llama, gpt2_124m or gpt2_1.5b
       [--layers N] [--samples N] [--dtype bf16|fp32] [--steps N]

A step is that of tests/bench/peer_torch.py, whose models these are: compiled,
AdamW fused, attention by cuDNN where it can. bf16 is autocast over fp32
parameters with a bf16 residual stream. Where the layers do not fit, four less
are tried. Without PyTorch, or a GPU that it sees, a line says so.
"""
import argparse
import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "bench"))
# class; its sizes; samples of a micro-batch, micro-batches of a step, length
MODELS = dict(
    llama=("Llama", dict(C=4096, H=32, K=8, ffn=14336, V=128256), 2, 4, 4096),
    gpt2_124m=("GPT2", dict(L=12, C=768, H=12), 64, 1, 1024))
MODELS["gpt2_1.5b"] = ("GPT2", dict(L=48, C=1600, H=25), 16, 1, 1024)
WARM_UP = 3


def say(**record):
    print(json.dumps(record), flush=True)


# ---- kernels ---------------------------------------------------------------


def rate(op, work, flops=0.0, nbytes=0.0, **more):
    """Runs `work` for half a second; prints the median of batches."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    times = []
    stop = time.monotonic() + 0.5
    while time.monotonic() < stop or len(times) < 3:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(5):
            work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 5)
    ms = statistics.median(times)
    say(op=op, by="torch " + torch.__version__, ms_median=ms,
        gflops=flops / ms * 1e-6, gbytes_per_s=nbytes / ms * 1e-6, **more)


def tensor(*shape, grad=False):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16
                       ).requires_grad_(grad)


def backward(op, build, inputs, flops=0.0, nbytes=0.0, **more):
    """The gradient alone: of one forward, again and again."""
    out = build()
    dy = torch.randn_like(out)
    rate(op, lambda: torch.autograd.grad(out, inputs, dy, retain_graph=True),
         flops, nbytes, **more)


def products():
    x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda").random_()
    y = torch.empty_like(x)
    rate("copy", lambda: y.copy_(x), nbytes=2.0 * x.numel())
    a, b = tensor(8192, 8192), tensor(8192, 8192)
    rate("product 8192", lambda: a @ b.t(), flops=2.0 * 8192 ** 3)
    x, dy, w = tensor(16384, 4096), tensor(16384, 14336), tensor(14336, 4096)
    flops = 2.0 * 16384 * 4096 * 14336
    rate("linear", lambda: x @ w.t(), flops)
    rate("linear_dx", lambda: dy @ w, flops)
    rate("linear_dw", lambda: dy.t() @ x, flops)


def grouped():
    experts, rows, n, k = 64, 512, 4096, 2048
    x, dy = tensor(experts * rows, k), tensor(experts * rows, n)
    w = tensor(experts, n, k)
    ends = torch.arange(1, experts + 1, device="cuda", dtype=torch.int32) * rows
    flops = 2.0 * experts * rows * n * k
    rate("grouped_linear",
         lambda: torch._grouped_mm(x, w.transpose(1, 2), ends), flops)
    rate("grouped_linear_dx", lambda: torch._grouped_mm(dy, w, ends), flops)
    rate("grouped_linear_dw", lambda: torch._grouped_mm(dy.t(), x, ends),
         flops)


def backend(q, k, v):
    """The name of what PyTorch takes for these."""
    try:
        from torch.nn.attention import SDPBackend
        number = torch._fused_sdp_choice(q, k, v, is_causal=True,
                                         enable_gqa=q.shape[1] != k.shape[1])
        return SDPBackend(number).name.lower()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        return f"unknown: {type(error).__name__}"


def attention():
    b, t, heads, kv, d = 4, 8192, 32, 8, 128
    q = tensor(b, heads, t, d, grad=True)
    k, v = tensor(b, kv, t, d, grad=True), tensor(b, kv, t, d, grad=True)
    flops = 2.0 * b * heads * t * t * d  # the causal half of two products

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                              enable_gqa=True)
    with best_attention():
        by = backend(q, k, v)
        with torch.no_grad():
            rate("attention", forward, flops, attention=by)
        backward("attention_grad", forward, (q, k, v), 2.5 * flops,
                 attention=by)


def norms():
    x = tensor(65536, 4096, grad=True)
    w, b = tensor(4096, grad=True), tensor(4096, grad=True)
    rms = torch.compile(lambda x, w: F.rms_norm(x, (4096,), w, 1e-6))
    layer = torch.compile(lambda x, w, b: F.layer_norm(x, (4096,), w, b, 1e-6))
    size = 2.0 * x.numel()
    with torch.no_grad():
        rate("rmsnorm", lambda: rms(x, w), nbytes=2 * size)
        rate("layernorm", lambda: layer(x, w, b), nbytes=2 * size)
    backward("rmsnorm_grad", lambda: rms(x, w), (x, w), nbytes=3 * size)
    backward("layernorm_grad", lambda: layer(x, w, b), (x, w, b),
             nbytes=3 * size)


def pointwise():
    y = tensor(16384, 28672, grad=True)

    @torch.compile
    def swiglu(y):
        gate, up = y.chunk(2, -1)
        return F.silu(gate) * up
    size = 2.0 * y.numel()
    with torch.no_grad():
        rate("swiglu", lambda: swiglu(y), nbytes=1.5 * size)
    backward("swiglu_grad", lambda: swiglu(y), (y,), nbytes=2.5 * size)
    x = tensor(16384, 16384, grad=True)
    gelu = torch.compile(lambda x: F.gelu(x, approximate="tanh"))
    size = 2.0 * x.numel()
    with torch.no_grad():
        rate("gelu", lambda: gelu(x), nbytes=2 * size)
    backward("gelu_grad", lambda: gelu(x), (x,), nbytes=3 * size)


def adamw():
    p = torch.zeros(1 << 29, device="cuda", requires_grad=True)
    p.grad = torch.randn_like(p)
    step = torch.optim.AdamW([p], fused=True)
    rate("adamw", step.step, nbytes=7 * 4.0 * p.numel())


def kernels():
    for part in (products, grouped, attention, norms, pointwise, adamw):
        try:
            part()
        except Exception as error:  # the other parts are worth having
            say(op=part.__name__, by="torch " + torch.__version__,
                not_run=f"{type(error).__name__}: {error}"[:300])
        torch.cuda.empty_cache()


# ---- models ----------------------------------------------------------------


def best_attention():
    """cuDNN's before others, where this PyTorch lets one say so."""
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        return sdpa_kernel(
            [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION,
             SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH],
            set_priority=True)
    except (ImportError, TypeError):
        import contextlib
        return contextlib.nullcontext()


def build(args):
    import peer_torch
    kind, sizes, samples, micros, length = MODELS[args.model]
    sizes = dict(sizes, L=args.layers or sizes.get("L", 8))
    args.samples = args.samples or samples
    args.micros, args.length = micros, args.length or length
    args.layers, vocab = sizes["L"], sizes.get("V", 50257)
    torch.manual_seed(0)
    with torch.device(args.device):
        model = getattr(peer_torch, kind)(args.length, False, **sizes)
    for p in model.parameters():
        if p.ndim == 2:
            torch.nn.init.normal_(p, 0.0, 0.02)
    if args.dtype == "bf16":
        model.embed.register_forward_hook(
            lambda module, inputs, out: out.to(torch.bfloat16))
    return model, vocab


def model_backend(args):
    """What the attention of a model's layers is made by."""
    sizes = MODELS[args.model][1]
    heads, kv = sizes["H"], sizes.get("K", sizes["H"])
    q, k = (torch.empty(args.samples, n, args.length, sizes["C"] // heads,
                        device=args.device, requires_grad=True,
                        dtype=torch.float32 if args.dtype == "fp32"
                        else torch.bfloat16) for n in (heads, kv))
    return backend(q, k, k)


def times_of(args, model, vocab):
    """Milliseconds of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4,
                                  betas=(0.9, 0.95), weight_decay=0.1,
                                  fused=True)
    data = torch.randint(0, vocab, (args.micros, args.samples,
                                    args.length + 1), device=args.device)

    @torch.compile
    def loss_of(x, y):
        logits = model(x).flatten(0, 1)
        return F.cross_entropy(logits, y.flatten()) / args.micros

    def step():
        for batch in data:
            with torch.autocast(args.device, torch.bfloat16,
                                enabled=args.dtype == "bf16"):
                loss = loss_of(batch[:, :-1], batch[:, 1:])
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()  # and waits

    times = []
    for _ in range(WARM_UP + args.steps):
        begin = time.perf_counter()
        step()
        times.append((time.perf_counter() - begin) * 1e3)
    return times[WARM_UP:]


def model(args):
    torch.set_float32_matmul_precision("highest")
    args.layers = args.layers or 0
    try:
        with best_attention():
            times = times_of(args, *build(args))
            by = model_backend(args)
    except torch.cuda.OutOfMemoryError as error:
        if args.layers <= 4:
            return say(step=args.model, by="torch", dtype=args.dtype,
                       not_run=str(error)[:200])
        # The memory of a compiled model is not all given back: begin anew.
        keys = [a for a in sys.argv if not a.startswith("--layers")]
        keys = [a for i, a in enumerate(keys)
                if sys.argv[sys.argv.index(a) - 1] != "--layers"]
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *keys,
                                  f"--layers={args.layers - 4}"])
    ms = statistics.median(times)
    tokens = args.samples * args.micros * args.length
    say(step=args.model, by="torch " + torch.__version__, dtype=args.dtype,
        layers=args.layers, attention=by, ms_median=ms, ms_best=min(times),
        tokens_per_second=tokens / ms * 1e3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("kernels")
    one = commands.add_parser("model")
    one.add_argument("model", choices=MODELS)
    one.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    for number in ("layers", "samples", "length"):
        one.add_argument("--" + number, type=int)
    one.add_argument("--steps", type=int, default=10)
    one.add_argument("--device", default="cuda")
    args = parser.parse_args()
    what = dict(op="all") if args.command == "kernels" \
        else dict(step=args.model, dtype=args.dtype)
    if torch is None:
        say(**what, by="torch", not_run="python3 has no PyTorch")
    elif getattr(args, "device", "cuda") == "cuda" \
            and not torch.cuda.is_available():
        say(**what, by="torch", not_run="this PyTorch sees no GPU")
    elif args.command == "kernels":
        kernels()
    else:
        model(args)


try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None
main()
