#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One training step of a mixture of experts in transformers, on the CPU.

  peer_moe.py EXPERTS fp32|bf16 [--steps N] [--threads N] ...

The model of configs/recipes/bench_moe.yaml as a Mixtral of transformers, with
one of its implementations of the experts: eager (a product for each expert),
grouped_mm, batched_mm (which copies an expert's weights for every row). A step
is that of peer_torch.py, which times it; see peers.md.
"""
import argparse

import torch
import torch.nn.functional as F
import transformers

import peer_torch


def make_model(args):
    config = transformers.MixtralConfig(
        vocab_size=8192, hidden_size=512, intermediate_size=768,
        num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4,
        num_local_experts=8, num_experts_per_tok=2,
        max_position_embeddings=512, rope_theta=1e4, rms_norm_eps=1e-5,
        tie_word_embeddings=False, use_cache=False, sliding_window=None)
    config._attn_implementation = "sdpa"
    config._experts_implementation = args.experts
    model = transformers.MixtralForCausalLM(config)
    return model.train()


def run(args):
    args.batch, args.seq = args.batch or 1, args.seq or 256
    torch.manual_seed(0)
    model = make_model(args)

    def loss_of(x, y):
        logits = model(x).logits
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())

    if args.compile:
        loss_of = torch.compile(loss_of)
    return peer_torch.measure(args, model, loss_of, 8192, dict(
        peer=f"transformers {transformers.__version__}, torch "
             f"{torch.__version__}", shape="moe, " + args.experts))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("experts",
                        choices=("eager", "grouped_mm", "batched_mm"))
    peer_torch.add_options(parser)
    peer_torch.finish(parser.parse_args(), run)


if __name__ == "__main__":
    main()
