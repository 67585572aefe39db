# SPDX-License-Identifier: Apache-2.0
"""What bfloat16 does to a model: the scale of its errors, tensor by tensor.

The unmodified bfloat16 model of transformers runs RUNS times. Each operation
that makes bfloat16 is computed in float64 and then rounded up or down by
chance, with the odds that make the mean exact (stochastic rounding). So every
run commits other rounding errors of the size that the type imposes, at the
places where a bfloat16 model rounds; their spread is what the type allows,
whoever writes the kernels. Nothing here knows of the C code.

One place is not transformers': attention. Its eager form rounds the scores and
keeps a sum exact that no form without the T x T matrix can keep, the row sums
of P * dP. So attention is the published one (Dao et al. 2022, algorithms 1
and 4), in a dozen lines below: scores and softmax in float32; P, the output
and dS in bfloat16; row sums taken from the rounded output.

Where a rounding error could send a token to another expert, the experts are
those of the exact run: every torch.topk gives again what it gave there, and the
weights are gathered from the scores that the run computes.

For each tensor two scales are kept, both in the unit of the tensor:

  error   root of the mean, over the runs, of |e|^2, where e = run - exact
  along   the same of <e, exact> / |exact|: errors that agree with the tensor
          itself. Roundings cancel in it, wrong factors do not, so it is the
          sharper of the two by about the root of the number of elements.
"""
from contextlib import nullcontext

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

import model as golden

RUNS = 32


class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, mask, scale):
        scores = q.float() @ k.float().mT * scale
        if mask is not None:
            scores = scores + mask.float()
        p = scores.softmax(-1)
        out = p.to(v.dtype) @ v
        ctx.save_for_backward(q, k, v, p, out)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, p, out = ctx.saved_tensors
        rows = (dout.float() * out.float()).sum(-1, keepdim=True)
        ds = p * (dout.float() @ v.float().mT - rows) * ctx.scale
        ds = ds.to(q.dtype)
        return ds @ k, ds.mT @ q, p.to(v.dtype).mT @ dout, None, None


def attention(module, q, k, v, mask=None, scaling=None, attention_mask=None,
              **unused):
    mask = attention_mask if mask is None else mask
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    return FlashAttention.apply(q, k, v, mask, scaling).transpose(1, 2), None


AttentionInterface.register("spelled_out", attention)
AttentionMaskInterface.register("spelled_out", eager_mask)


def stochastic(x, generator):
    """float64 -> bfloat16, up or down with odds by distance."""
    bits = x.float().contiguous().view(torch.int32)
    noise = torch.randint(0, 1 << 16, bits.shape, dtype=torch.int32,
                          generator=generator)
    return ((bits + noise) & -65536).view(torch.float32).bfloat16()


def is_bf16(x):
    return isinstance(x, torch.Tensor) and x.dtype == torch.bfloat16


def widen(x):
    if x is torch.bfloat16 or x is torch.float32:
        return torch.float64
    if isinstance(x, torch.Tensor) and x.is_floating_point():
        return x.double()
    return x


class StochasticBfloat16(TorchDispatchMode):
    def __init__(self, seed):
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        narrow = func(*args, **kwargs)
        aliases = any(r.alias_info for r in func._schema.returns)
        outputs = narrow if isinstance(narrow, tuple) else (narrow,)
        if aliases or not any(map(is_bf16, outputs)):
            return narrow  # views and in-place sums; other types
        wide = func(*tree_map(widen, args), **tree_map(widen, kwargs))
        wides = wide if isinstance(wide, tuple) else (wide,)
        # keeps strides: views of the result must stay possible
        for n, w in zip(outputs, wides):
            if is_bf16(n):
                n.copy_(stochastic(w, self.generator))
        return narrow


class ReplayTopk(TorchFunctionMode):
    """Records the indices of all calls of topk; again() gives them back."""

    def __init__(self):
        super().__init__()
        self.indices, self.next = [], None

    def again(self):
        self.next = 0
        return self

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func not in (torch.topk, torch.Tensor.topk):
            return func(*args, **kwargs)
        if self.next is None:
            result = func(*args, **kwargs)
            self.indices.append(result.indices)
            return result
        indices = self.indices[self.next]
        self.next += 1
        assert kwargs.get("dim", -1) == -1
        return torch.return_types.topk((args[0].gather(-1, indices), indices))


def routing_of_types(replay, model, case, types):
    """The same where each layer calls topk for tokens of texts and then for
    those of images, whose experts are numbered behind the others."""
    layers = [n.split(".")[-4] for n, _ in model.named_modules()
              if n.endswith(".mlp.text_moe.experts")]
    experts = model.config.text_config.moe_num_experts
    vision = types.reshape(-1).bool()
    assert len(replay.indices) == 2 * len(layers) and not case.documents
    result = {}
    for i, name in enumerate(layers):
        text, image = replay.indices[2 * i:2 * i + 2]
        chosen = torch.empty(len(vision), text.shape[-1], dtype=torch.long)
        chosen[~vision], chosen[vision] = text, image + experts
        result[name] = chosen.tolist()
    return result


def routing(replay, model, case):
    """{layer: [token][choice]}: the last topk of each layer with experts,
    document by document."""
    layers = [n.split(".")[-3] for n, _ in model.named_modules()
              if n.endswith(".mlp.experts")]
    runs = len(golden.document_spans(case)) if case.documents else 1
    calls, rest = divmod(len(replay.indices), runs * len(layers))
    assert rest == 0 and calls > 0
    chosen = replay.indices[calls - 1::calls]
    return {name: torch.cat([x.reshape(-1, x.shape[-1]) for x in
                             chosen[i::len(layers)]]).tolist()
            for i, name in enumerate(layers)}


def split(name, grad, config):
    """The parts of a fused matrix: q, k and v, or gate and up."""
    if ".c_attn." in name:
        return grad.chunk(3, -1)
    if ".qkv_proj." in name:
        width = config.hidden_size // config.num_attention_heads
        return grad.split([n * width for n in (
            config.num_attention_heads, config.num_key_value_heads,
            config.num_key_value_heads)])
    return grad.chunk(2) if ".gate_up_proj." in name else [grad]


def parts(results, config):
    """{name: tensor} of what is compared, of fused matrices each part."""
    tensors = {n: results[n].double() for n in ("logits", "loss_sum")}
    for name, grad in results["grads"].items():
        pieces = split(name, grad.double(), config)
        for i, piece in enumerate(pieces):
            tensors[f"grad.{name}" + f"#{i}" * (len(pieces) > 1)] = piece
    return tensors


def envelope(config, weights, case, batch, wide):
    """{name: [error, along]}, and under "routing" the experts if routed."""
    exact = parts(wide, config)
    squares = {n: [0.0, 0.0] for n in exact}
    replay = ReplayTopk()
    if case.routed:
        with replay:
            golden.run_wide(config, weights, case, batch)
    for seed in range(RUNS):
        mode = StochasticBfloat16(seed)
        rounded = {n: stochastic(w, mode.generator).float()
                   for n, w in weights.items()}
        model = golden.build(config, rounded, torch.bfloat16,
                             "spelled_out")
        with mode, replay.again() if case.routed else nullcontext():
            run = parts(golden.run(model, case, batch), config)
        for name, x in exact.items():
            e = (run[name] - x).flatten()
            norm = x.norm().item()
            along = (e @ x.flatten()).item() / norm if norm > 1e-12 else 0.0
            squares[name][0] += e.square().sum().item() / RUNS
            squares[name][1] += along ** 2 / RUNS
    scales = {n: [float(f"{v ** 0.5:.4g}") for v in pair]
              for n, pair in squares.items()}
    if case.routed:
        types = golden.token_types(batch[0], case)
        scales["routing"] = (
            routing(replay, model, case) if types is None
            else routing_of_types(replay, model, case, types))
    return scales
