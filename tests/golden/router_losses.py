# SPDX-License-Identifier: Apache-2.0
"""Losses of the routers, and what the gradient of every parameter is.

Written down from the formulas, on the logits of the unmodified transformers
model in float64. With E experts, k of them for a token, n tokens, s the scores
of a token (softmax, or sigmoids divided by their sum) and c_e the tokens among
whose k best scores expert e is:

  aux_loss      E / k * sum over e of (c_e / n) * (mean of s_e)
  seq_aux_loss  the same for each sequence; their mean
  z_loss        mean of logsumexp(logits)^2, over the tokens of all sets
  transformers  what transformers adds to its loss, where its class does

Sums over the layers, but for the last, which pools the tokens of all layers
and does not divide by k, of several sets expert e with its namesakes:
load_balancing_loss_func. The first is Switch
Transformers' (equations 4 to 6) with k choices, as in Megatron-Core since
0.12, and sequence by sequence that of DeepSeek-V3 (17 to 20); the third is
ST-MoE's (5). The k best scores are counted without the bias and the groups
that take part in the choice. Tokens of images are balanced by themselves.

Gradients are too large to be committed for every loss. A tensor of n numbers
is kept as its norm and 8 sums with random signs: with d the difference of two
tensors, the mean of the squares of its 8 sums is |d|^2 in the mean, and below
a hundredth of it once in 4e9.
"""
import numpy as np
import torch

import model as golden
from wide import widened

LOSSES = ("aux_loss", "seq_aux_loss", "z_loss", "transformers")
SUMS = 8


def signs(count):
    """[SUMS, count] of 1 and -1: bits of splitmix64 of the place."""
    x = np.arange(1, count + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        x *= np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    bits = [(x >> np.uint64(k)) & np.uint64(1) for k in range(SUMS)]
    return torch.tensor(1.0 - 2.0 * np.stack(bits).astype(np.float64))


def sketch(tensor):
    flat = tensor.double().flatten()
    return torch.cat([flat.norm().reshape(1), signs(flat.numel()) @ flat])


def is_router(module):
    return type(module).__name__.lower().endswith("topkrouter")


def routers(model):
    """By name, so layer by layer."""
    return {n: m for n, m in model.named_modules() if is_router(m)}


def all_logits(model, ids, case):
    """{router: [tokens, E]}; those of a set of experts have its tokens."""
    caught = {n: [] for n in routers(model)}

    def hook_for(name):
        def hook(module, args):
            x = args[0].reshape(-1, module.weight.shape[1])
            caught[name].append(x.to(module.weight.dtype) @ module.weight.T)
        return hook

    hooks = [m.register_forward_pre_hook(hook_for(n))
             for n, m in routers(model).items()]
    golden.forward(model, ids, case)
    for h in hooks:
        h.remove()
    return {n: torch.cat(x) for n, x in caught.items()}


def scores(logits, sigmoid):
    if not sigmoid:
        return torch.softmax(logits, -1)
    s = 1 / (1 + torch.exp(-logits))
    return s / s.sum(-1, keepdim=True)


def balance(logits, k, sigmoid):
    s = scores(logits, sigmoid)
    count = torch.zeros(s.shape[1], dtype=s.dtype)
    for row in s.detach():
        count[row.argsort(descending=True)[:k]] += 1
    n, experts = s.shape
    return experts / k * torch.dot(count / n, s.mean(0))


def each_sequence(logits, k, sigmoid, rows):
    parts = logits.reshape(rows, -1, logits.shape[-1])
    return sum(balance(p, k, sigmoid) for p in parts) / rows


def transformers_own(model, ids, case, logits, k):
    """0 without a class that has it; it must see the logits seen here."""
    text = getattr(model.config, "text_config", model.config)
    if case.documents or not hasattr(text, "router_aux_loss_coef"):
        return None
    module = __import__(type(model).__module__, fromlist=["x"])
    types = golden.token_types(ids, case)
    more = {} if types is None else dict(moe_mm_token_type_ids=types)
    own = model(input_ids=ids, use_cache=False, output_router_logits=True,
                **more).aux_loss
    if more:  # tokens of both sets stand in one table
        return own
    tables = tuple(logits.values())
    again = module.load_balancing_loss_func(tables, tables[0].shape[1], k)
    assert abs(own - again) < 1e-12 * abs(own), (own, again)
    return own


def measure(model, case, ids):
    text = model.config.get_text_config()
    k = next(m for m in routers(model).values()).top_k
    sigmoid = text.model_type in ("deepseek_v3", "minimax_m2")
    logits = all_logits(model, ids, case)
    rows = len(ids)
    assert rows == 1 or not case.vision_ids
    values = list(logits.values())
    own = transformers_own(model, ids, case, logits, k)
    if own is not None and not sigmoid and not case.vision_ids:  # layer by layer it is the same
        module = __import__(type(model).__module__, fromlist=["x"])
        for x in values:
            theirs = module.load_balancing_loss_func((x,), x.shape[1], k) / k
            assert abs(theirs - balance(x, k, False)) < 1e-12 * theirs
    return (sum(balance(x, k, sigmoid) for x in values),
            sum(each_sequence(x, k, sigmoid, rows) for x in values),
            sum(torch.logsumexp(x, -1).square().sum() for x in values)
            / ids.numel(), own)


def run(config, weights, case, ids):
    """The tensors of router_losses.safetensors, by module names."""
    with widened():
        model = golden.build_wide(config, weights)
        losses = measure(model, case, ids)
        named = {n: p for n, p in model.named_parameters()
                 if p.requires_grad and not golden.sees_images(n)}
        tensors = {}
        for name, loss in zip(LOSSES, losses):
            if loss is None:
                continue
            grads = torch.autograd.grad(loss, list(named.values()),
                                        retain_graph=True, allow_unused=True)
            tensors[name] = loss.detach().reshape(1)
            for n, g, p in zip(named, grads, named.values()):
                tensors.setdefault("grad." + n, []).append(
                    sketch(torch.zeros_like(p) if g is None else g))
        return {n: torch.stack(t) if isinstance(t, list) else t
                for n, t in tensors.items()}
