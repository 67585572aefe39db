#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Layouts of loongrun against transformers in one process.

  layouts.py BUILD [--steps N] [--text PATH...] [--models NAME...]
             [--mpirun "COMMAND"]

Small models with weights from transformers, one of them with experts, learn a
real text on 1 to 8 ranks of loongrun in float64, laid out by tensor, sequence,
context, expert, pipeline and data parallelism; transformers with
torch.optim.AdamW does the same on the same samples, alone and in true float64.
Loss and gradient norm of every step must agree to BOUND. The order of the samples and the training are those of
tests/golden/curve.py.
"""
import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

sys.path.append(str(pathlib.Path(__file__).parent.parent / "golden"))
import curve  # noqa: E402
from wide import widened  # noqa: E402

BOUND = 1e-8  # metrics.jsonl has nine digits
curve.SEQ, curve.BATCH = 48, 12

TP, PP = "parallel.tensor_model_parallel_size=", \
    "parallel.pipeline_model_parallel_size="
CP, EP = "parallel.context_parallel_size=", \
    "parallel.expert_model_parallel_size="
ETP, A2A = "parallel.expert_tensor_parallel_size=", \
    "parallel.moe_token_dispatcher_type=alltoall"
SP, MICRO = "parallel.sequence_parallel=true", "train.micro_batch_size="
LAYOUTS = [
    (1, []),
    (2, [MICRO + "2", "parallel.data_parallel_sharding=none"]),
    (4, [TP + "2", SP, MICRO + "3"]),
    (3, [TP + "3", MICRO + "4"]),
    (4, [PP + "2", "schedule=1f1b", MICRO + "1"]),
    (4, [PP + "2", TP + "2", SP, "schedule=zero_bubble_h1", MICRO + "2"]),
    (3, [PP + "3", "schedule=zero_bubble_h1", MICRO + "1",
         "recompute.granularity=full"]),
    (8, [PP + "2", TP + "2", SP, MICRO + "1"]),
    (4, [CP + "2", "parallel.cp_comm_type=p2p", MICRO + "3"]),
    (4, [CP + "2", PP + "2", "parallel.cp_comm_type=a2a", MICRO + "2",
         "schedule=zero_bubble_h1"]),
]
EXPERT_LAYOUTS = [
    (1, []),
    (4, [EP + "2", PP + "2", "schedule=zero_bubble_h1", MICRO + "2"]),
    (4, [EP + "2", PP + "2", A2A, MICRO + "1",
         "parallel.overlap_moe_expert_parallel_comm=true"]),
    (4, [TP + "2", SP, EP + "2", ETP + "2", MICRO + "3"]),
    (4, [CP + "2", EP + "4", A2A, MICRO + "2",
         "parallel.data_parallel_sharding=optim_grads_params"]),
]


def rope(theta):
    return dict(rope_type="default", rope_theta=theta)


MODELS = {
    "qwen3 tied": ("qwen3", dict(
        hidden_size=48, intermediate_size=100, num_hidden_layers=4,
        num_attention_heads=6, num_key_value_heads=3, head_dim=8,
        max_position_embeddings=64, tie_word_embeddings=True,
        rope_parameters=rope(1e4))),
    "llama": ("llama", dict(
        hidden_size=48, intermediate_size=96, num_hidden_layers=3,
        num_attention_heads=6, num_key_value_heads=6,
        max_position_embeddings=64, tie_word_embeddings=False,
        rope_parameters=rope(1e4))),
    "qwen3 experts": ("qwen3_moe", dict(
        hidden_size=48, intermediate_size=100, num_hidden_layers=4,
        num_attention_heads=6, num_key_value_heads=3, head_dim=8,
        num_experts=8, num_experts_per_tok=3, moe_intermediate_size=40,
        norm_topk_prob=True, router_aux_loss_coef=0.0,
        max_position_embeddings=64, tie_word_embeddings=False,
        rope_parameters=rope(1e4))),
    "gpt2": ("gpt2", dict(
        n_embd=48, n_layer=3, n_head=6, n_positions=64, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0)),
}


def layouts_of(name):
    return EXPERT_LAYOUTS if "num_experts" in MODELS[name][1] else LAYOUTS


def make_model(folder, family, config):
    torch.manual_seed(curve.SEED)
    config = AutoConfig.for_model(family, vocab_size=260, **config)
    AutoModelForCausalLM.from_config(
        config, dtype=torch.float32).save_pretrained(folder)


def run_loong(args, work, model, prefix, ranks, overrides):
    """[2, steps]: losses and gradient norms."""
    recipe, log = os.path.join(work, "recipe.yaml"), os.path.join(work, "log")
    with open(recipe, "w") as f:
        f.write(curve.RECIPE.format(
            seed=curve.SEED, model=model, prefix=prefix, seq=curve.SEQ,
            batch=curve.BATCH, steps=args.steps, lr=curve.LR,
            warmup=curve.WARMUP, decay=curve.DECAY, betas=curve.BETAS,
            eps=curve.EPS, clip=curve.CLIP, dtype="fp64", log=log))
    subprocess.run([*shlex.split(args.mpirun), "-n", str(ranks),
                    os.path.join(args.build, "loongrun"), recipe, *overrides],
                   check=True, stdout=subprocess.DEVNULL,
                   env=dict(os.environ, OMP_NUM_THREADS="1"))
    path = pathlib.Path(log, "metrics.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.unlink()
    lines = [x for x in lines if "grad_norm" in x]
    return np.array([[x[k] for x in lines] for k in ("loss", "grad_norm")])


def check_model(args, work, name, prefix, data):
    model = os.path.join(work, "hf")
    make_model(model, *MODELS[name])
    with widened():
        exact = curve.train(model, torch.float64, data)
    failed = 0
    for ranks, overrides in layouts_of(name):
        ours = run_loong(args, work, model, prefix, ranks, overrides)
        assert ours.shape == exact.shape, (ours.shape, exact.shape)
        worst = np.abs(ours / exact - 1).max(axis=1)
        good = (worst <= BOUND).all()
        failed += not good
        print(f"{name:13}  {ranks}  {worst[0]:8.1e}  {worst[1]:8.1e}  "
              f"{'ok  ' if good else 'FAIL'}  {' '.join(overrides)}",
              flush=True)
    learned = exact[0, 0] - exact[0, -1]
    assert learned > 0.05, f"{name} learned only {learned:.3f}"
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", metavar="BUILD")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--text", nargs="+", default=curve.TEXT)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--mpirun", default="mpirun --oversubscribe")
    args = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as work:
        prefix = os.path.join(work, "text")
        subprocess.run([os.path.join(args.build, "loong-data"), "index",
                        "--quiet", "--tokenizer", "bytes", "--append-eod",
                        "--dtype", "uint16", "--output-prefix", prefix,
                        *args.text], check=True)
        data = list(curve.batches(prefix, args.steps))
        print("model      ranks      loss      norm        layout")
        failed = sum(check_model(args, work, name, prefix, data)
                     for name in args.models)
    count = sum(len(layouts_of(name)) for name in args.models)
    print(f"{failed} of {count} beyond {BOUND:g}, "
          f"{args.steps} steps")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
