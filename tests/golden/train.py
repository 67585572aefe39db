# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps in float64, written out rather than taken from torch.

Kept explicit so that every convention that a C trainer must share is visible
in one screen; torch.optim.AdamW and clip_grad_norm_ are run beside it and
must agree.
"""
import numpy as np
import torch

import model as golden
from wide import OnlyFloat64, widened

STEPS, BATCH, SEQ = 20, 4, 24
LR, BETA1, BETA2, EPS, DECAY = 1e-3, 0.9, 0.95, 1e-8, 0.1
MAX_NORM = 1.0


def make_batches(vocab, seed):
    """A noisy counting language, so that there is something to learn."""
    rng = np.random.default_rng([seed, 7])
    ids = np.empty((STEPS, BATCH, SEQ + 1), np.int64)
    ids[..., 0] = rng.integers(0, vocab, (STEPS, BATCH))
    for t in range(SEQ):
        step = rng.choice([1, 5, 11], (STEPS, BATCH), p=[0.7, 0.2, 0.1])
        ids[..., t + 1] = (ids[..., t] * 3 + step) % vocab
    labels = ids[..., 1:].copy()
    labels[rng.random(labels.shape) < 0.05] = golden.IGNORED
    return torch.tensor(ids[..., :-1].copy()), torch.tensor(labels)


def mean_loss(model, ids, labels):
    weights = (labels != golden.IGNORED).double()
    logits = golden.forward(model, ids)
    return golden.losses(logits, labels, weights)[2] / weights.sum()


@torch.no_grad()
def adamw(p, grad, m, v, step):
    m.mul_(BETA1).add_(grad, alpha=1 - BETA1)
    v.mul_(BETA2).add_(grad * grad, alpha=1 - BETA2)
    if p.ndim >= 2:  # matrices and embeddings decay, vectors do not
        p.mul_(1 - LR * DECAY)
    m_hat = m / (1 - BETA1 ** step)
    v_hat = v / (1 - BETA2 ** step)
    p.sub_(LR * m_hat / (v_hat.sqrt() + EPS))


def peer_optimizer(model):
    """torch's own AdamW over a second copy of the model."""
    params = list(model.parameters())
    return torch.optim.AdamW(
        [dict(params=[p for p in params if p.ndim >= 2], weight_decay=DECAY),
         dict(params=[p for p in params if p.ndim < 2], weight_decay=0.0)],
        lr=LR, betas=(BETA1, BETA2), eps=EPS, foreach=False)


def train(config, weights, seed):
    """The tensors of train_golden.safetensors."""
    ids, labels = make_batches(config.vocab_size, seed)
    losses, norms = [], []
    with widened():
        model = golden.build_wide(config, weights)
        peer = golden.build_wide(config, weights)
        peer_step = peer_optimizer(peer)
        params = dict(model.named_parameters())
        moments = {n: (torch.zeros_like(p), torch.zeros_like(p))
                   for n, p in params.items()}
        for step in range(STEPS):
            model.zero_grad(set_to_none=True)
            with OnlyFloat64():
                loss = mean_loss(model, ids[step], labels[step])
                loss.backward()
            norm = torch.cat([p.grad.flatten()
                              for p in params.values()]).norm()
            # torch and Megatron add 1e-6; without it the result differs in
            # the seventh digit of a clipped gradient
            factor = min(1.0, MAX_NORM / (norm.item() + 1e-6))
            for name, p in params.items():
                adamw(p, p.grad * factor, *moments[name], step + 1)
            losses.append(loss.item())
            norms.append(norm.item())

            peer_step.zero_grad(set_to_none=True)
            mean_loss(peer, ids[step], labels[step]).backward()
            torch.nn.utils.clip_grad_norm_(peer.parameters(), MAX_NORM)
            peer_step.step()
    # GPT-2's key bias has a gradient of exactly zero; Adam turns its rounding
    # noise into steps of about 1e-12, hence no sharper bound
    for name, p in peer.named_parameters():
        assert (p - params[name]).abs().max() < 1e-11, name
    result = dict(input_ids=ids, labels=labels,
                  loss=torch.tensor(losses, dtype=torch.float64),
                  grad_norm=torch.tensor(norms, dtype=torch.float64))
    result |= {"final." + n: p.detach() for n, p in params.items()}
    return result
