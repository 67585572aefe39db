#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which fields of config.json change what a model computes?

  fields.py            writes fields.json beside this file
  fields.py --check    measures again and compares

Every field that transformers writes for a model type is changed, one at a
time, and made null where its class takes that, in a tiny model whose weights
stay; EXTRA and COMMON add what such files carry besides. "changes" says
whether parameters, logits or (with dropout, seed fixed) training logits became
others; "error" that transformers refuses.
tests/unit/test_hf_fields.c then holds the reader of config.json to it: what
changes something is mapped or refused by name, never ignored.
"""
import argparse
import copy
import json
import os
import sys

import torch
from transformers import AutoConfig
from transformers.utils import logging

import model as golden
from cases import VISION

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fields.json")
ROTARY = dict(vocab_size=29, hidden_size=16, intermediate_size=20,
              num_hidden_layers=3, num_attention_heads=4,
              num_key_value_heads=2, head_dim=4, max_position_embeddings=16,
              tie_word_embeddings=True)
ROUTED = dict(num_experts_per_tok=2)
LATENT = dict({k: v for k, v in ROTARY.items() if k != "head_dim"}, **ROUTED,
              num_key_value_heads=4, q_lora_rank=10, kv_lora_rank=8,
              qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=6,
              n_routed_experts=4, n_shared_experts=1, n_group=2, topk_group=1,
              moe_intermediate_size=12, first_k_dense_replace=1)
BASES = {
    "gpt2": dict(vocab_size=29, n_embd=16, n_layer=3, n_head=4,
                 n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0,
                 attn_pdrop=0.0),
    "llama": ROTARY, "mistral": dict(ROTARY, sliding_window=5),
    "phi3": dict(ROTARY, pad_token_id=None, sliding_window=5),
    "qwen2": {k: v for k, v in ROTARY.items() if k != "head_dim"},
    "qwen3": ROTARY, "gemma": dict(ROTARY, pad_token_id=None),
    "glm": dict(ROTARY, pad_token_id=None),
    "glm4": dict(ROTARY, pad_token_id=None),
    "mixtral": dict(ROTARY, **ROUTED, num_local_experts=4),
    "qwen2_moe": dict({k: v for k, v in ROTARY.items() if k != "head_dim"},
                      **ROUTED, num_experts=4, moe_intermediate_size=12,
                      shared_expert_intermediate_size=8),
    "qwen3_moe": dict(ROTARY, **ROUTED, num_experts=4,
                      moe_intermediate_size=12),
    "ernie4_5": dict(ROTARY, pad_token_id=None),
    "ernie4_5_moe": dict(ROTARY, pad_token_id=None, moe_k=2,
                         moe_num_experts=4, moe_intermediate_size=12,
                         moe_num_shared_experts=1, moe_layer_start_index=1,
                         moe_layer_end_index=-1),
    "ernie4_5_vl_moe": dict(ROTARY, pad_token_id=None, moe_k=2, head_dim=6,
                            moe_num_experts=4, moe_intermediate_size=[12, 8],
                            moe_num_shared_experts=1,
                            rope_parameters=dict(rope_type="default",
                                                 rope_theta=1e4,
                                                 mrope_section=[1, 1, 1])),
    "minimax_m2": dict(ROTARY, **ROUTED, num_local_experts=4,
                       rope_parameters=dict(rope_type="default",
                                            rope_theta=1e4,
                                            partial_rotary_factor=0.5)),
    "deepseek_v2": dict(LATENT, topk_method="greedy"),
    "deepseek_v3": dict(LATENT, num_mtp_layers=0),
}
# types whose language model stands in a part of the file: these are its fields
INSIDE = {"ernie4_5_vl_moe": "text_config"}
# says what the file is, not what the model computes
SKIPPED = {"model_type", "transformers_version", "architectures",
           "return_dict", "layer_types"}  # WINDOWS has those
# values to try where turning a flag or adding to a number will not do
VALUES = {
    "hidden_act": ["relu", "gelu", "swish", "silu"],
    "activation_function": ["relu", "gelu", "gelu_pytorch_tanh", "silu"],
    "num_attention_heads": [2], "n_head": [2], "num_key_value_heads": [4, 1],
    "hidden_size": [24], "n_embd": [24], "head_dim": [6], "n_inner": [24],
    "vocab_size": [31], "id2label": [{"0": "a"}], "label2id": [{"a": 0}],
    "problem_type": ["regression"], "dtype": ["float64"],
    "summary_type": ["mean"], "summary_activation": ["tanh"],
    "_name_or_path": ["x"], "bos_token_id": [5], "eos_token_id": [6, [6, 7]],
    "pad_token_id": [3],
    "rope_parameters": [
        dict(rope_type="default", rope_theta=500.0),
        dict(rope_type="linear", rope_theta=1e4, factor=2.0),
        dict(rope_type="dynamic", rope_theta=1e4, factor=2.0),
        dict(rope_type="yarn", rope_theta=1e4, factor=2.0),
        dict(rope_type="yarn", rope_theta=1e4, factor=2.0,
             original_max_position_embeddings=8, beta_fast=8.0,
             beta_slow=2.0, attention_factor=0.7, truncate=False),
        dict(rope_type="yarn", rope_theta=1e4, factor=2.0, mscale=0.7,
             mscale_all_dim=0.9, original_max_position_embeddings=8),
        dict(rope_type="llama3", rope_theta=1e4, factor=4.0,
             low_freq_factor=1.0, high_freq_factor=4.0,
             original_max_position_embeddings=8),
        dict(rope_type="longrope", rope_theta=1e4, factor=2.0,
             short_factor=[1.5, 2.0], long_factor=[2.0, 3.0],
             original_max_position_embeddings=8),
        dict(rope_type="proportional", rope_theta=1e4,
             partial_rotary_factor=0.5),
        dict(rope_type="yarn", rope_theta=1e4, factor=2.0,
             partial_rotary_factor=0.5),
        dict(rope_type="default", rope_theta=1e4,
             partial_rotary_factor=0.5),
    ],
    "sliding_window": [6], "max_window_layers": [1],
    "use_bidirectional_attention": [True],
    "mlp_only_layers": [[0]], "decoder_sparse_step": [2],
    "num_experts_per_tok": [1, 3], "num_experts": [5],
    "num_local_experts": [5],
    "moe_k": [1, 3], "moe_num_experts": [5], "moe_num_shared_experts": [2],
    "moe_layer_start_index": [0, 2], "moe_layer_end_index": [1, 2],
    "mlp_layer_types": [["sparse"] * 3, ["dense", "sparse", "dense"],
                        ["dense"] * 3, ["sparse", "other", "sparse"]],
    "moe_layer_interval": [2], "first_k_dense_replace": [0, 2],
    "n_routed_experts": [6], "n_group": [1, 4], "topk_group": [2],
    "topk_method": ["group_limited_greedy", "greedy"],
    "q_lora_rank": [None, 12], "qk_head_dim": [9],
}
FULL, SLIDING = "full_attention", "sliding_attention"
OLD = [dict(rope_theta=500.0, rope_parameters=None)] + [
    dict(rope_scaling=s, rope_theta=1e4, rope_parameters=None) for s in (
        dict(type="linear", factor=2.0), dict(type="dynamic", factor=2.0),
        dict(rope_type="yarn", factor=2.0),
        dict(type="longrope", factor=2.0, short_factor=[1.5, 2.0],
             long_factor=[2.0, 3.0], original_max_position_embeddings=8),
        dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0,
             high_freq_factor=4.0, original_max_position_embeddings=8))] + [
    dict(partial_rotary_factor=0.5), dict(pretraining_tp=2),
    dict(quantization_config=dict(quant_method="gptq", bits=4)),
    dict(torch_dtype="float16"), dict(attention_bias=True),
    dict(mlp_bias=True), dict(is_decoder=True), dict(prefix="x"),
    dict(temperature=0.5), dict(pruned_heads={"0": [1]})]
WINDOWS = [
    dict(use_sliding_window=True, sliding_window=5, max_window_layers=1,
         layer_types=None),
    dict(use_sliding_window=True, sliding_window=5, max_window_layers=0,
         layer_types=None),
    dict(use_sliding_window=False, sliding_window=5, layer_types=None),
    dict(use_sliding_window=True, sliding_window=5, max_window_layers=3,
         layer_types=None),
    dict(use_sliding_window=True, sliding_window=5, max_window_layers=1,
         layer_types=[SLIDING, FULL, SLIDING]),
    dict(use_sliding_window=True, sliding_window=5, max_window_layers=1,
         layer_types=[FULL, FULL, FULL]),
    dict(use_sliding_window=True, sliding_window=None, layer_types=None)]
EXTRA = {
    "gpt2": [dict(scale_attn_by_inverse_layer_idx=True,
                  reorder_and_upcast_attn=True), dict(n_ctx=32),
             dict(quantization_config=dict(quant_method="gptq", bits=4)),
             dict(tie_word_embeddings=False), dict(pruned_heads={"0": [1]}),
             dict(summary_type="mean", summary_use_proj=False)],
    "llama": OLD, "mistral": OLD + [dict(sliding_window=None)],
    "gemma": OLD + [dict(hidden_activation="gelu_pytorch_tanh"),
                    dict(hidden_activation="silu")],
    "glm": OLD, "glm4": OLD,
    "phi3": OLD + [dict(sliding_window=None)] + [
        dict(rope_scaling=dict(type="su", short_factor=[1.5, 2.0],
                               long_factor=[2.0, 3.0]),
             original_max_position_embeddings=8, rope_parameters=None)],
    "qwen2": OLD + WINDOWS, "qwen3": OLD + WINDOWS,
    "mixtral": OLD + [dict(sliding_window=5)],
    "qwen2_moe": OLD + WINDOWS, "qwen3_moe": OLD + WINDOWS,
    "ernie4_5": OLD, "ernie4_5_moe": OLD + [
        dict(moe_use_aux_free=False), dict(moe_gate="sigmoid"),
        dict(moe_capacity=[1, 1, 1])],
    "ernie4_5_vl_moe": OLD + [
        dict(rope_parameters=dict(rope_type="default", rope_theta=1e4,
                                  mrope_section=s))
        for s in ([1, 1, 1], [1, 2, 0], [2, 2, 2])] + [
        dict(moe_capacity=[1, 1, 1]), dict(mlp_layer_types=None)],
    "minimax_m2": OLD + [
        dict(rotary_dim=2, rope_parameters=None), dict(scoring_func="softmax"),
        dict(use_qk_norm=False), dict(use_routing_bias=False),
        dict(qk_norm_type="per_head"), dict(shared_intermediate_size=8)],
    "deepseek_v2": OLD + [
        dict(topk_method="group_limited_greedy", norm_topk_prob=True),
        dict(scoring_func="sigmoid"), dict(moe_layer_freq=2),
        dict(ep_size=2), dict(seq_aux=True), dict(aux_loss_alpha=0.1)],
    "deepseek_v3": OLD + [
        dict(topk_method="greedy"), dict(scoring_func="softmax"),
        dict(moe_layer_freq=2), dict(ep_size=2), dict(rope_interleave=False)],
}
# of every class, though none writes it
COMMON = [dict(is_causal=False), dict(is_causal=None)]


def build(family, fields):
    fields = {k: v for k, v in fields.items() if k != "model_type"}
    quantization = fields.pop("quantization_config", None)
    fields = copy.deepcopy(fields)
    if family in INSIDE:
        fields = dict({INSIDE[family]: fields}, vision_config=VISION)
    config = AutoConfig.for_model(family, **fields)
    if quantization is not None:
        raise ValueError("weights of another form")
    torch.manual_seed(0)
    return golden.class_for(config).from_config(
        config, attn_implementation="eager", experts_implementation="eager",
        dtype=torch.float32)


@torch.no_grad()
def measure(family, fields, weights):
    """What the model computes from these weights, as a dict of tensors."""
    model = build(family, fields)
    shapes = {n: p.shape for n, p in model.named_parameters()
              if not golden.sees_images(n)}
    for name, p in model.named_parameters():
        if name in weights and weights[name].shape == p.shape:
            p.copy_(weights[name])
        else:
            p.fill_(0.1)
    ids = torch.arange(13)[None] * 5 % 29
    inputs = dict(input_ids=ids, use_cache=False)
    if family in INSIDE:
        inputs["moe_mm_token_type_ids"] = (ids % 3 == 0).int()
    result = dict(eval=model.eval()(**inputs).logits)
    torch.manual_seed(1)
    result["train"] = model.train()(**inputs).logits
    return shapes, result


def differs(left, right):
    if left[0] != right[0]:
        return True
    return any(a.shape != right[1][n].shape
               or not torch.allclose(a, right[1][n], rtol=1e-5, atol=1e-6)
               for n, a in left[1].items())


def values(name, value):
    if name in VALUES:
        return VALUES[name]
    if name == "moe_intermediate_size" and isinstance(value, list):
        return [[12, 6], [10, 8], 10]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, (int, float)):
        return [value + 1 if isinstance(value, int) else value * 2 + 0.1]
    raise SystemExit(f"no values to try for {name} = {value!r}")


def survey(family):
    base = build(family, BASES[family]).config.get_text_config()
    base = {k: v for k, v in json.loads(base.to_json_string(False)).items()
            if k not in SKIPPED}
    # a class may say "the last layer" by its number
    base |= {k: v for k, v in BASES[family].items() if v == -1}
    model = build(family, base)
    generator = torch.Generator().manual_seed(2)
    weights = {n: torch.randn(p.shape, generator=generator)
               for n, p in model.named_parameters()}
    reference = measure(family, base, weights)
    cases = [dict({name: v}) for name, value in base.items()
             for v in values(name, value) if v != value]
    cases += [{name: None} for name, value in base.items()
              if value is not None and {name: None} not in cases]
    result = []
    for case in cases + EXTRA[family] + COMMON:
        try:
            changes = differs(reference, measure(
                family, {**base, **case}, weights))
        except Exception as error:  # whatever transformers raises
            print(f"{family} {case}: {type(error).__name__}: "
                  f"{str(error)[:70]}")
            changes = "error"
            if None in case.values() and case not in EXTRA[family]:
                continue  # no class reads that null
        result.append(dict(set=case, changes=changes))
    return dict(model_type=family, inside=INSIDE.get(family, ""), base=base,
                cases=result)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    families = [survey(f) for f in BASES]
    lines = []
    for f in families:
        cases = ",\n".join("  " + json.dumps(c) for c in f["cases"])
        inside = f'"inside": "{f["inside"]}",\n' if f["inside"] else ""
        lines.append(f'{{"model_type": "{f["model_type"]}",\n{inside}"base": '
                     f'{json.dumps(f["base"])},\n"cases": [\n{cases}]}}')
    text = "[" + ",\n".join(lines) + "]\n"
    if args.check:
        with open(PATH) as f:
            same = json.load(f) == json.loads(text)
        print("ok" if same else "FAIL: fields.json is not what was measured")
        return not same
    with open(PATH, "w") as f:
        f.write(text)
    print({f["model_type"]: len(f["cases"]) for f in families})
    return 0


if __name__ == "__main__":
    sys.exit(main())
