#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many parameters does each published model have?

  published.py            writes published.json beside this file
  published.py --check    counts again and compares

Every entry is the config.json of the published model, as far as it says what
the model is, written down from what is publicly known of it: the files
themselves were not at hand. transformers' own class of that type, built on the
meta device, is counted: all tensors of its state_dict, those that share memory
once;
"active" leaves out the experts that a token does not meet. Types that
transformers has no class for are counted by the class that computes the same
(CLASSES). tests/models/test_presets.c holds the presets to both: their counts,
and what they say of the model, key by key. The count is independent of the C
code; the settings are not of the presets, which their author had seen: a wrong
one that both share would not be found: sources.py says which of them others
confirm. Compare the rest with the publisher's file.

MODELS are the presets that follow a publication, in the order of their
families; sizes without a published config.json are marked PAPER.
"""
import argparse
import json
import os
import sys

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                    "published.json")
PAPER = "_no_config_json"


def gpt2(layers, width, heads, positions=1024, **more):
    return dict(model_type="gpt2", architectures=["GPT2LMHeadModel"],
                vocab_size=50257, n_positions=positions, n_embd=width,
                n_layer=layers, n_head=heads, activation_function="gelu_new",
                layer_norm_epsilon=1e-5, attn_pdrop=0.1, embd_pdrop=0.1,
                resid_pdrop=0.1, **more)


def rotary(kind, sizes, vocab, positions, theta, eps, tied=False, **more):
    layers, width, ffn, heads, groups = sizes
    return dict(model_type=kind, num_hidden_layers=layers, hidden_size=width,
                intermediate_size=ffn, num_attention_heads=heads,
                num_key_value_heads=groups, vocab_size=vocab,
                max_position_embeddings=positions, rope_theta=theta,
                rms_norm_eps=eps, hidden_act="silu", tie_word_embeddings=tied,
                **more)


def llama(sizes, vocab=32000, positions=4096, theta=10000.0, **more):
    return rotary("llama", sizes, vocab, positions, theta, 1e-5, **more)


LLAMA31_ROPE = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                    high_freq_factor=4.0,
                    original_max_position_embeddings=8192)


def llama3(sizes, **more):
    return llama(sizes, 128256, 8192, 5e5, **more)


def llama31(sizes):
    return dict(llama3(sizes, rope_scaling=LLAMA31_ROPE),
                max_position_embeddings=131072)


def smollm2(sizes, theta):
    return llama(sizes, 49152, 8192, theta, tied=True)


def qwen(layers, width, twice, heads, vocab, length, base, limit=None):
    return dict(model_type="qwen", num_hidden_layers=layers,
                hidden_size=width, intermediate_size=twice,
                num_attention_heads=heads, vocab_size=vocab, kv_channels=128,
                seq_length=length, max_position_embeddings=limit or length,
                layer_norm_epsilon=1e-6, rotary_emb_base=base, no_bias=True,
                rotary_pct=1.0, tie_word_embeddings=False)


def qwen2(sizes, vocab, positions, eps=1e-6, tied=False, theta=1e6):
    return rotary("qwen2", sizes, vocab, positions, theta, eps, tied,
                  use_sliding_window=False)


def qwen3(sizes, tied=False):
    return rotary("qwen3", sizes, 151936, 40960, 1e6, 1e-6, tied,
                  head_dim=128, attention_bias=False,
                  use_sliding_window=False)


def qwen3_moe(sizes, experts, width, positions=40960, theta=1e6, **more):
    return rotary("qwen3_moe", sizes, 151936, positions, theta, 1e-6,
                  head_dim=128, num_experts=experts, num_experts_per_tok=8,
                  moe_intermediate_size=width, norm_topk_prob=True,
                  decoder_sparse_step=1, mlp_only_layers=[],
                  attention_bias=False, use_sliding_window=False, **more)


def qwen2_moe(sizes, positions, experts, chosen, width, shared):
    return rotary("qwen2_moe", sizes, 151936, positions, 1e6, 1e-6,
                  num_experts=experts, num_experts_per_tok=chosen,
                  moe_intermediate_size=width, norm_topk_prob=False,
                  shared_expert_intermediate_size=shared,
                  decoder_sparse_step=1, use_sliding_window=False)


def internlm2(sizes, theta, factor):
    return rotary("internlm2", sizes, 92544, 32768, theta, 1e-5, bias=False,
                  rope_scaling=dict(type="dynamic", factor=factor))


def glm(kind, sizes, positions, eps, bias=True):
    return rotary(kind, sizes, 151552, positions, 1e4, eps, head_dim=128,
                  attention_bias=bias, partial_rotary_factor=0.5)


def mixtral(sizes, positions):
    return rotary("mixtral", sizes, 32000, positions, 1e6, 1e-5,
                  num_local_experts=8, num_experts_per_tok=2,
                  sliding_window=None)


def yarn(factor, mscale, fast=32):
    return dict(type="yarn", factor=factor, beta_fast=fast, beta_slow=1,
                original_max_position_embeddings=4096, mscale=mscale,
                mscale_all_dim=mscale)


def deepseek(kind, sizes, vocab, positions, rope, theta=10000, **more):
    layers, width, ffn, heads = sizes
    return dict(rotary(kind, (layers, width, ffn, heads, heads), vocab,
                       positions, theta, 1e-6, rope_scaling=rope),
                kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
                v_head_dim=128, moe_layer_freq=1, attention_bias=False,
                **more)


def deepseek_v3(kind, sizes, vocab, positions, rope, **more):
    return deepseek(kind, sizes, vocab, positions, rope, q_lora_rank=1536,
                    n_shared_experts=1, num_experts_per_tok=8,
                    moe_intermediate_size=2048, norm_topk_prob=True,
                    scoring_func="sigmoid", topk_method="noaux_tc", **more)


def ernie(sizes, **more):
    return rotary("ernie4_5", sizes, 103424, 131072, 5e5, 1e-5, True,
                  head_dim=128, use_bias=False, **more)


def ernie_vl(sizes, **more):
    """The language model of a file of several parts."""
    text = rotary("ernie4_5_vl_moe", sizes, 103424, 131072, 5e5, 1e-5, True,
                  use_bias=False, **more)
    del text["model_type"], text["rope_theta"]
    text["rope_parameters"] = dict(rope_type="default", rope_theta=5e5,
                                   mrope_section=[22, 22, 20])
    return dict(model_type="ernie4_5_vl_moe", text_config=text,
                tie_word_embeddings=True)


V2_ROPE, V3_ROPE = yarn(40, 0.707), yarn(40, 1.0)
QWEN15, QWEN2 = 32768, 131072
MODELS = {
    "gpt2/gpt2_124m": gpt2(12, 768, 12),
    "gpt2/gpt2_355m": gpt2(24, 1024, 16),
    "gpt2/gpt2_774m": gpt2(36, 1280, 20),
    "gpt2/gpt2_1.5b": gpt2(48, 1600, 25),
    "gpt3/gpt3_175b": gpt2(96, 12288, 96, 2048, **{PAPER: True}),
    "llama2/llama2_7b": llama((32, 4096, 11008, 32, 32)),
    "llama2/llama2_13b": llama((40, 5120, 13824, 40, 40)),
    "llama2/llama2_70b": llama((80, 8192, 28672, 64, 8)),
    "llama3/llama3_8b": llama3((32, 4096, 14336, 32, 8)),
    "llama3/llama3_70b": llama3((80, 8192, 28672, 64, 8)),
    "llama3.1/llama3.1_8b": llama31((32, 4096, 14336, 32, 8)),
    "llama3.1/llama3.1_70b": llama31((80, 8192, 28672, 64, 8)),
    "llama3.1/llama3.1_405b": llama31((126, 16384, 53248, 128, 8)),
    "smollm2/smollm2_135m": smollm2((30, 576, 1536, 9, 3), 1e5),
    "smollm2/smollm2_360m": smollm2((32, 960, 2560, 15, 5), 1e5),
    "smollm2/smollm2_1.7b": smollm2((24, 2048, 8192, 32, 32), 1.3e5),
    "qwen/qwen_1.8b": qwen(24, 2048, 11008, 16, 151936, 8192, 1e4),
    "qwen/qwen_7b": qwen(32, 4096, 22016, 32, 151936, 8192, 1e4, 32768),
    "qwen/qwen_14b": qwen(40, 5120, 27392, 40, 152064, 2048, 1e4, 8192),
    "qwen/qwen_72b": qwen(80, 8192, 49152, 64, 152064, 32768, 1e6),
    "qwen1.5/qwen1.5_0.5b": qwen2((24, 1024, 2816, 16, 16), 151936, QWEN15,
                                  tied=True),
    "qwen1.5/qwen1.5_1.8b": qwen2((24, 2048, 5504, 16, 16), 151936, QWEN15),
    "qwen1.5/qwen1.5_4b": qwen2((40, 2560, 6912, 20, 20), 151936, QWEN15,
                                theta=5e6),
    "qwen1.5/qwen1.5_7b": qwen2((32, 4096, 11008, 32, 32), 151936, QWEN15),
    "qwen1.5/qwen1.5_14b": qwen2((40, 5120, 13696, 40, 40), 152064, QWEN15),
    "qwen1.5/qwen1.5_32b": qwen2((64, 5120, 27392, 40, 8), 152064, QWEN15),
    "qwen1.5/qwen1.5_72b": qwen2((80, 8192, 24576, 64, 64), 152064, QWEN15),
    "qwen1.5/qwen1.5_110b": qwen2((80, 8192, 49152, 64, 8), 152064, QWEN15),
    "qwen1.5/qwen1.5_moe_a2.7b": qwen2_moe((24, 2048, 5632, 16, 16), 8192, 60,
                                           4, 1408, 5632),
    "qwen2/qwen2_0.5b": qwen2((24, 896, 4864, 14, 2), 151936, QWEN2,
                              tied=True),
    "qwen2/qwen2_1.5b": qwen2((28, 1536, 8960, 12, 2), 151936, QWEN2,
                              tied=True),
    "qwen2/qwen2_7b": qwen2((28, 3584, 18944, 28, 4), 152064, QWEN2),
    "qwen2/qwen2_72b": qwen2((80, 8192, 29568, 64, 8), 152064, QWEN2, 1e-5),
    "qwen2/qwen2_57b_a14b": qwen2_moe((28, 3584, 18944, 28, 4), QWEN2, 64, 8,
                                      2560, 20480),
    "qwen2.5/qwen2.5_0.5b": qwen2((24, 896, 4864, 14, 2), 151936, 32768,
                                  tied=True),
    "qwen2.5/qwen2.5_1.5b": qwen2((28, 1536, 8960, 12, 2), 151936, QWEN2,
                                  tied=True),
    "qwen2.5/qwen2.5_3b": qwen2((36, 2048, 11008, 16, 2), 151936, 32768,
                                tied=True),
    "qwen2.5/qwen2.5_7b": qwen2((28, 3584, 18944, 28, 4), 152064, QWEN2),
    "qwen2.5/qwen2.5_14b": qwen2((48, 5120, 13824, 40, 8), 152064, QWEN2,
                                 1e-5),
    "qwen2.5/qwen2.5_32b": qwen2((64, 5120, 27648, 40, 8), 152064, QWEN2,
                                 1e-5),
    "qwen2.5/qwen2.5_72b": qwen2((80, 8192, 29568, 64, 8), 152064, QWEN2,
                                 1e-5),
    "qwen3/qwen3_0.6b": qwen3((28, 1024, 3072, 16, 8), tied=True),
    "qwen3/qwen3_1.7b": qwen3((28, 2048, 6144, 16, 8), tied=True),
    "qwen3/qwen3_4b": qwen3((36, 2560, 9728, 32, 8), tied=True),
    "qwen3/qwen3_8b": qwen3((36, 4096, 12288, 32, 8)),
    "qwen3/qwen3_14b": qwen3((40, 5120, 17408, 40, 8)),
    "qwen3/qwen3_32b": qwen3((64, 5120, 25600, 64, 8)),
    "qwen3/qwen3_30b_a3b": qwen3_moe((48, 2048, 6144, 32, 4), 128, 768),
    "qwen3/qwen3_235b_a22b": qwen3_moe((94, 4096, 12288, 64, 4), 128, 1536),
    "qwen3/qwen3_coder_30b_a3b": qwen3_moe((48, 2048, 5472, 32, 4), 128, 768,
                                           262144, 1e7),
    "qwen3/qwen3_coder_480b_a35b": qwen3_moe((62, 6144, 8192, 96, 8), 160,
                                             2560, 262144, 1e7),
    "internlm2.5/internlm2.5_1.8b": internlm2((24, 2048, 8192, 16, 8), 1e6,
                                              2.0),
    "internlm2.5/internlm2.5_7b": internlm2((32, 4096, 14336, 32, 8), 1e6,
                                            2.0),
    "internlm2.5/internlm2.5_20b": internlm2((48, 6144, 16384, 48, 8), 5e7,
                                             2.5),
    "mimo/mimo_7b": rotary("mimo", (36, 4096, 11008, 32, 8), 151680, 32768,
                           640000, 1e-5, head_dim=128, attention_bias=True,
                           use_sliding_window=False,
                           num_nextn_predict_layers=1),
    "ernie4.5/ernie4.5_0.3b": ernie((18, 1024, 3072, 16, 2)),
    "ernie4.5/ernie4.5_21b_a3b": dict(
        ernie((28, 2560, 12288, 20, 4), moe_num_experts=64, moe_k=6,
              moe_intermediate_size=1536, moe_num_shared_experts=2,
              moe_layer_start_index=1, moe_layer_end_index=27,
              moe_layer_interval=1), model_type="ernie4_5_moe"),
    "ernie4.5/ernie4.5_28b_a3b": ernie_vl(
        (28, 2560, 12288, 20, 4), moe_num_experts=64, moe_k=6,
        moe_intermediate_size=[1536, 512], moe_num_shared_experts=2),
    "glm4/glm4_9b": glm("glm", (40, 4096, 13696, 32, 2), 8192, 1.5625e-7),
    "glm4/glm4_9b_0414": glm("glm4", (40, 4096, 13696, 32, 2), 32768, 1e-5),
    "glm4/glm4_32b_0414": glm("glm4", (61, 6144, 23040, 48, 2), 32768, 1e-5,
                              bias=False),
    "mixtral/mixtral_8x7b": mixtral((32, 4096, 14336, 32, 8), 32768),
    "mixtral/mixtral_8x22b": mixtral((56, 6144, 16384, 48, 8), 65536),
    "deepseek_v2/deepseek_v2_lite": deepseek(
        "deepseek_v2", (27, 2048, 10944, 16), 102400, 163840, V2_ROPE,
        q_lora_rank=None, n_routed_experts=64, n_shared_experts=2,
        num_experts_per_tok=6, moe_intermediate_size=1408,
        first_k_dense_replace=1, routed_scaling_factor=1.0, n_group=1,
        topk_group=1, topk_method="greedy", norm_topk_prob=False,
        scoring_func="softmax"),
    "deepseek_v2/deepseek_v2_236b": deepseek(
        "deepseek_v2", (60, 5120, 12288, 128), 102400, 163840, V2_ROPE,
        q_lora_rank=1536, n_routed_experts=160, n_shared_experts=2,
        num_experts_per_tok=6, moe_intermediate_size=1536,
        first_k_dense_replace=1, routed_scaling_factor=16.0, n_group=8,
        topk_group=3, topk_method="group_limited_greedy",
        norm_topk_prob=False, scoring_func="softmax"),
    "deepseek_v3/deepseek_v3_671b": deepseek_v3(
        "deepseek_v3", (61, 7168, 18432, 128), 129280, 163840, V3_ROPE,
        n_routed_experts=256, first_k_dense_replace=3, n_group=8,
        topk_group=4, routed_scaling_factor=2.5, num_nextn_predict_layers=1),
    "kimi_k2/kimi_k2_1t": deepseek_v3(
        "kimi_k2", (61, 7168, 18432, 64), 163840, 131072, yarn(32.0, 1.0, 1.0),
        theta=50000.0, n_routed_experts=384, first_k_dense_replace=1,
        n_group=1, topk_group=1, routed_scaling_factor=2.827,
        num_nextn_predict_layers=0),
    "minimax_m2/minimax_m2_230b": rotary(
        "minimax_m2", (62, 3072, 1536, 48, 8), 200064, 196608, 5000000, 1e-6,
        head_dim=128, rotary_dim=64, num_local_experts=256,
        num_experts_per_tok=8, scoring_func="sigmoid", use_qk_norm=True,
        qk_norm_type="per_layer", use_routing_bias=True),
    "moe/moe_1t_64e": dict(mixtral((60, 8192, 10496, 64, 8), 8192),
                           num_local_experts=64, vocab_size=128256,
                           rope_theta=5e5, **{PAPER: True}),
}
# parts of a model that no token passes through
SEES_IMAGES = ("model.vision_tower.", "model.resampler_model.")
# the class that computes the same, and what it calls a field
CLASSES = {
    "internlm2": ("llama", dict(bias="attention_bias")),
    "mimo": ("qwen2", {}),
    "qwen": ("qwen2", dict(layer_norm_epsilon="rms_norm_eps")),
    "kimi_k2": ("deepseek_v3", {}),
}


def known_class(config):
    """The same model in the words of a class that transformers has."""
    kind, names = CLASSES.get(config["model_type"], (config["model_type"], {}))
    out = {names.get(k, k): v for k, v in config.items()
           if k not in ("model_type", PAPER, "architectures")}
    if config["model_type"] == "qwen":
        out["intermediate_size"] //= 2
        out["num_key_value_heads"] = out["num_attention_heads"]
    if kind == "deepseek_v3":
        out["num_mtp_layers"] = 0  # the main model
        out.pop("num_nextn_predict_layers")
    return kind, out


def count(config):
    import torch
    from transformers import (AutoConfig, AutoModelForCausalLM,
                              AutoModelForImageTextToText)
    kind, fields = known_class(config)
    whole = "text_config" in fields
    auto = AutoModelForImageTextToText if whole else AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(
            AutoConfig.for_model(kind, **fields), dtype=torch.float32)
    shared = set()
    if model.config.tie_word_embeddings:
        shared = set(model._tied_weights_keys)
    total = idle = 0
    part = 1.0
    fields = fields.get("text_config", fields)
    if "num_experts_per_tok" in fields or "moe_k" in fields:
        chosen = fields.get("num_experts_per_tok", fields.get("moe_k"))
        part = chosen / next(fields[k] for k in (
            "num_experts", "num_local_experts", "n_routed_experts",
            "moe_num_experts") if k in fields)
    for name, tensor in model.state_dict().items():
        if name in shared or name.startswith(SEES_IMAGES):
            continue
        total += tensor.numel()
        if ".mlp.vision_moe.experts." in name:  # no token of a text
            idle += tensor.numel()
        elif ".experts." in name:
            idle += round(tensor.numel() * (1 - part))
    return dict(parameters=total, active=total - idle,
                counted_by=type(model).__name__)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    lines = []
    for name, config in MODELS.items():
        entry = dict(count(config), published=PAPER not in config,
                     config={k: v for k, v in config.items() if k != PAPER})
        lines.append(f"{json.dumps(name)}: {json.dumps(entry)}")
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    if args.check:
        with open(PATH) as f:
            same = f.read() == text
        print(f"ok: {len(MODELS)} models" if same
              else "FAIL: published.json is not what was counted")
        return not same
    with open(PATH, "w") as f:
        f.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
