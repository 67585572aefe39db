# SPDX-License-Identifier: Apache-2.0
"""Builds the golden models and computes logits, loss and gradients."""
import zlib

import numpy as np
import torch
from transformers import (AutoConfig, AutoModelForCausalLM,
                          AutoModelForImageTextToText)

from wide import OnlyFloat64, widened

IGNORED = -100
CORRECTION = "e_score_correction_bias"


def make_config(case):
    return AutoConfig.for_model(case.family, bos_token_id=0, eos_token_id=1,
                                **case.config)


def class_for(config):
    """The class with a head on the language model."""
    return (AutoModelForImageTextToText if hasattr(config, "vision_config")
            else AutoModelForCausalLM)


def sees_images(name):
    """A parameter that no text passes through."""
    return name.startswith(("model.vision_tower.", "model.resampler_model."))


def tensors_of(model):
    """Parameters, and the router's bias, which may be called a buffer."""
    return dict(model.named_parameters()) | {
        n: b for n, b in model.named_buffers() if n.endswith(CORRECTION)}


def token_types(ids, case):
    """1 where a token is of an image; None where all are text."""
    if case is None or not case.vision_ids:
        return None
    return torch.isin(ids, torch.tensor(case.vision_ids)).int()


def make_weights(model, seed, embedding_std):
    """float32 values in which every parameter matters and none is trivial."""
    weights = {}
    for name, p in tensors_of(model).items():
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        if name.endswith(CORRECTION):
            value = rng.uniform(-0.2, 0.2, p.shape)
        elif p.ndim == 1:
            low, high = (-0.5, 0.5) if name.endswith("bias") else (0.4, 1.6)
            value = rng.uniform(low, high, p.shape)
        else:
            embedding = "embed" in name or "wte" in name or "wpe" in name
            conv1d = ".c_" in name  # GPT-2 stores [in, out]
            fan_in = p.shape[0] if conv1d else p.shape[-1]
            scale = embedding_std if embedding else 1.2 / fan_in ** 0.5
            value = rng.normal(0.0, scale, p.shape)
        weights[name] = torch.tensor(value.astype(np.float32))
    return weights


def build_skeleton(config):
    """Only names and shapes of the parameters."""
    with torch.device("meta"):
        return class_for(config).from_config(config)


def build(config, weights, dtype, attention="eager"):
    """The model in `dtype`; weights are given as named_parameters names."""
    with torch.random.fork_rng():
        model = class_for(config).from_config(
            config, attn_implementation=attention,
            experts_implementation="eager", dtype=dtype)
    state = tensors_of(model)
    assert state.keys() == weights.keys(), state.keys() ^ weights.keys()
    with torch.no_grad():
        for name, p in state.items():
            p.copy_(weights[name])
    return model.eval()


def build_wide(config, weights):
    """As build() in float64; call and use it inside widened()."""
    model = build(config, weights, torch.float64)
    for name, buffer in model.named_buffers():
        assert buffer.dtype in (torch.float64, torch.bool), name
    return model


def make_tokens(case, vocab, seed):
    """input_ids, labels [B,T] and loss weights; labels are shifted."""
    rng = np.random.default_rng(seed)
    shape = (case.batch, case.seq)
    if case.documents:
        shape = (len(case.documents), sum(case.documents[0]))
    ids = rng.integers(0, vocab, (shape[0], shape[1] + 1))
    labels = ids[:, 1:].copy()
    labels[rng.random(shape) < 0.12] = IGNORED
    weights = np.ones(shape)
    if case.weighted:
        weights = rng.choice([0.0, 0.25, 0.5, 1.0, 3.0], shape)
    for row, lengths in enumerate(case.documents):
        labels[row, np.cumsum(lengths) - 1] = IGNORED
    weights[labels == IGNORED] = 0.0
    return (torch.tensor(ids[:, :-1].copy()), torch.tensor(labels),
            torch.tensor(weights))


def document_spans(case):
    """(row, begin, end) of each document; whole rows when not packed."""
    if not case.documents:
        return [(row, 0, case.seq) for row in range(case.batch)]
    spans = []
    for row, lengths in enumerate(case.documents):
        ends = np.cumsum(lengths)
        spans += [(row, int(e - n), int(e)) for e, n in zip(ends, lengths)]
    return spans


def forward(model, ids, case=None):
    """Logits [B,T,V]; packed documents are run one by one."""
    if case is None or not case.documents:
        types = token_types(ids, case)
        more = {} if types is None else dict(moe_mm_token_type_ids=types)
        return model(input_ids=ids, use_cache=False, **more).logits
    rows = [[] for _ in case.documents]
    for row, begin, end in document_spans(case):
        rows[row].append(forward(model, ids[row:row + 1, begin:end])[0])
    return torch.stack([torch.cat(row) for row in rows])


def losses(logits, labels, weights):
    """Token losses, log-sum-exp and the weighted sum.

    float64 logits stay float64, all others are widened to float32 first, as
    transformers' own loss does.
    """
    if logits.dtype != torch.float64:
        logits = logits.float()
    lse = torch.logsumexp(logits, -1)
    target = labels.clamp(min=0)
    nll = lse - logits.gather(-1, target[..., None])[..., 0]
    nll = torch.where(labels == IGNORED, torch.zeros_like(nll), nll)
    return nll, lse, (nll * weights.to(nll.dtype)).sum()


def run(model, case, batch):
    """Everything a golden file holds, as a dict, in the model's type."""
    ids, labels, weights = batch
    model.zero_grad(set_to_none=True)
    logits = forward(model, ids, case)
    nll, lse, total = losses(logits, labels, weights)
    mean = total / weights.sum().to(total.dtype)
    mean.backward()
    grads = {n: p.grad.detach().clone() for n, p in model.named_parameters()
             if p.requires_grad and not sees_images(n)}
    return dict(logits=logits.detach(), nll=nll.detach(), lse=lse.detach(),
                loss=mean.detach().reshape(1), grads=grads,
                loss_sum=total.detach().reshape(1))


def run_wide(config, weights, case, batch):
    """run() in true float64, proven so operation by operation."""
    with widened():
        model = build_wide(config, weights)
        with OnlyFloat64():
            return run(model, case, batch)
