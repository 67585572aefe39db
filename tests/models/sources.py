#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who else says what published.json says of each model?

  sources.py [SOURCE]... [--check]

published.json and the presets are of one hand, so a mistake that both have
would not be found by comparing them. This compares every setting of
published.json with sources that others wrote, and writes sources.json beside
this file (--check compares with it): which settings some source confirms, and
which none does. A source that says otherwise is an error, unless it stands in
KNOWN with the reason. The checksum of published.json tells a test that both
are of one time.

SOURCE is any of
  --transformers       defaults of its configuration classes, where the class
                       says that it is written after that model; they are
                       what the class had first, not a copy: only agreement
                       counts
  --litgpt WHEEL       the table of models in litgpt (0.5.13):
                       pip download --no-deps litgpt==0.5.13
  --table FILE         a Markdown table of models, rows as in TABLE
  --mlc FILE           MLC LLM's copies of config.json
                       (python/mlc_llm/model/model_preset.py, July 2026)
  --maxtext DIR        MaxText's models (configs/models, August 2026; wants
                       PyYAML)
  --pai DIR            Alibaba's scripts for Megatron (Pai-Megatron-Patch,
                       examples, December 2025)
  --llm-analysis DIR   llm-analysis' models (llm_analysis/model_configs)
  --config NAME=DIR    the publisher's own config.json of a preset

With --add sources.json keeps what sources that are not named here confirm.
"""
import argparse
import importlib.util
import json
import os
import re
import sys
import zipfile
import zlib

from published import PATH as PUBLISHED, known_class

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(HERE, "sources.json")
SILENT = {"hidden_act", "architectures"}  # said by the type
SPELLED = {"num_local_experts": "num_experts", "n_routed_experts":
           "num_experts", "moe_num_experts": "num_experts", "moe_k":
           "num_experts_per_tok", "n_layer": "num_hidden_layers",
           "n_embd": "hidden_size", "n_head": "num_attention_heads",
           "n_positions": "max_position_embeddings", "n_inner":
           "intermediate_size", "seq_length": "max_position_embeddings",
           "rotary_emb_base": "rope_theta", "kv_channels": "head_dim",
           "layer_norm_epsilon": "rms_norm_eps"}
# (source, preset): {setting: (what it says, whose value that is)}
KNOWN = {
    ("litgpt", "mixtral/mixtral_8x22b"): dict(
        vocab_size=(32768, "Instruct's, which has 768 tokens more than the "
                           "base model; litgpt gives both the same")),
    ("maxtext", "mixtral/mixtral_8x22b"): dict(
        vocab_size=(32768, "Instruct's, as litgpt")),
    ("maxtext", "qwen2.5/qwen2.5_14b"): dict(
        rms_norm_eps=(1e-6, "Instruct's, which the file says it is; litgpt "
                            "has 1e-5 for the base model")),
    ("maxtext", "qwen3/qwen3_30b_a3b"): dict(
        rope_theta=(10000000, "Qwen3-2507's")),
    ("maxtext", "qwen3/qwen3_235b_a22b"): dict(
        rope_theta=(5000000, "Qwen3-2507's")),
    ("mlc", "qwen1.5/qwen1.5_moe_a2.7b"): dict(
        max_position_embeddings=(32768, "the chat model's")),
    ("mlc", "qwen2/qwen2_0.5b"): dict(
        max_position_embeddings=(32768, "that of the instruct model")),
    ("mlc", "qwen2/qwen2_1.5b"): dict(
        max_position_embeddings=(32768, "that of the instruct model")),
    ("mlc", "qwen2/qwen2_7b"): dict(
        max_position_embeddings=(32768, "that of the instruct model")),
    ("pai", "qwen1.5/qwen1.5_4b"): dict(
        rope_theta=(1e6, "one number for all sizes of a script; nobody else "
                         "says which it is, so look at the publisher's "
                         "file")),
    ("pai", "qwen2.5/qwen2.5_1.5b"): dict(
        max_position_embeddings=(32768, "Instruct's; litgpt has 131072 for "
                                        "the base model")),
    ("table", "qwen/qwen_7b"): dict(
        rope_theta=(1e6, "Qwen1.5's, which is in the same row")),
    ("table", "internlm2.5/internlm2.5_7b"): dict(
        vocab_size=(92553, "InternVL's, which adds 9 tokens; 92544 give the "
                           "7 737 708 544 parameters of the published file")),
    ("table", "ernie4.5/ernie4.5_21b_a3b"): dict(
        rope_theta=(1e4, "a default that the row calls one; Baidu's class in "
                         "transformers has 500000")),
    ("table", "ernie4.5/ernie4.5_28b_a3b"): dict(
        rope_theta=(1e4, "a default that the row calls one; Baidu's class in "
                         "transformers has 500000")),
    ("table", "kimi_k2/kimi_k2_1t"): {
        "rope_scaling.factor": (64, "that of versions with 262144 positions "
                                    "(0905, K2.5); 32 x 4096 are the 131072 "
                                    "here")},
}


def unified(fields):
    """The same names whatever the type calls them."""
    out = {}
    fields = dict(fields, **fields.get("text_config", {}))
    fields.update(fields.pop("rope_parameters", None) or {})
    fields.pop("rope_type", None)
    widths = fields.get("moe_intermediate_size")
    if isinstance(widths, list):  # of texts, of images
        fields.update(moe_intermediate_size=widths[0],
                      moe_vision_intermediate_size=widths[1])
    for key, value in fields.items():
        if key in ("text_config", "vision_config"):
            continue
        key = SPELLED.get(key, key)
        if key == "rope_scaling":
            out.update({f"rope_scaling.{k.replace('rope_type', 'type')}": v
                        for k, v in (value or {"type": None}).items()
                        if k != "rope_theta"})  # transformers puts it there
        elif key not in out and key not in SILENT:
            out[key] = value
    return out


def stated(config):
    """What published.json says, in the words of transformers' class."""
    kind, fields = known_class(config)
    if config["model_type"] == "qwen":  # the limit of its cache says nothing
        fields["max_position_embeddings"] = fields.pop("seq_length")
    for key in ("num_mtp_layers", "num_nextn_predict_layers"):
        fields.pop(key, None)
    return kind, unified(fields)


# ---- transformers ------------------------------------------------------------

AFTER = {"openai-community/gpt2": "gpt2/gpt2_124m",
         "meta-llama/Llama-2-7b-hf": "llama2/llama2_7b",
         "Qwen/Qwen2-7B": "qwen2/qwen2_7b",
         "Qwen/Qwen3-8B": "qwen3/qwen3_8b",
         "Qwen/Qwen3-30B-A3B-Base": "qwen3/qwen3_30b_a3b",
         "Qwen/Qwen1.5-MoE-A2.7B": "qwen1.5/qwen1.5_moe_a2.7b",
         "mistralai/Mixtral-8x7B-v0.1": "mixtral/mixtral_8x7b",
         "deepseek-ai/DeepSeek-V2-Lite": "deepseek_v2/deepseek_v2_lite",
         "baidu/ERNIE-4.5-0.3B-PT": "ernie4.5/ernie4.5_0.3b",
         "baidu/ERNIE-4.5-21B-A3B-PT": "ernie4.5/ernie4.5_21b_a3b",
         "baidu/ERNIE-4.5-VL-28B-A3B-PT": "ernie4.5/ernie4.5_28b_a3b"}


def read_transformers(models):
    import inspect
    import transformers
    from transformers import CONFIG_MAPPING
    out = {}
    for name, config in models.items():
        kind, _ = known_class(config)
        cls = CONFIG_MAPPING[kind]
        with open(inspect.getfile(cls)) as f:
            after = re.search(r'auto_docstring\(checkpoint="([^"]+)"',
                              f.read())
        if after and AFTER.get(after.group(1)) == name:
            values = unified(cls().to_dict())
            out[name] = {k: v for k, v in values.items() if v is not None}
    return f"transformers {transformers.__version__}", out


# ---- litgpt ------------------------------------------------------------------

LITGPT = {"llama2": "Llama-2-{}b-hf", "llama3": "Llama-3-{}B",
          "llama3.1": "Llama-3.1-{}B", "qwen2.5": "Qwen2.5-{}B",
          "qwen3": "Qwen3-{}B", "smollm2": "SmolLM2-{}",
          "mixtral": "Mixtral-{}B-v0.1"}


def litgpt_name(preset):
    family, name = preset.split("/")
    size = name.removeprefix(family + "_")
    if family == "smollm2":
        size = size.upper()
    elif family == "qwen3" and "_a" in size:
        size = size.replace("b_a", "B-A").removesuffix("b")
    elif family == "mixtral":
        size = size.removesuffix("b")
    else:
        size = size.removesuffix("b")
    return LITGPT.get(family, "").format(size)


def litgpt_fields(c):
    width = c.head_size
    out = dict(num_hidden_layers=c.n_layer, hidden_size=c.n_embd,
               num_attention_heads=c.n_head, head_dim=width,
               num_key_value_heads=c.n_query_groups,
               vocab_size=c.padded_vocab_size, rope_theta=c.rope_base,
               rms_norm_eps=c.norm_eps, attention_bias=c.attn_bias,
               max_position_embeddings=c.block_size)
    if c.n_expert:
        out.update(num_experts=c.n_expert,
                   num_experts_per_tok=c.n_expert_per_token)
    if c.n_expert and c.moe_intermediate_size:
        out["moe_intermediate_size"] = c.moe_intermediate_size
    else:
        out["intermediate_size"] = c.intermediate_size
    scaling = c.rope_adjustments
    if scaling:
        out.update({f"rope_scaling.{k}": scaling[k] for k in
                    ("factor", "low_freq_factor", "high_freq_factor")})
        out["rope_scaling.original_max_position_embeddings"] = (
            scaling["original_max_seq_len"])
    return out


def read_litgpt(models, wheel):
    version = os.path.basename(wheel).split("-")[1]
    with zipfile.ZipFile(wheel) as z:
        source = z.read("litgpt/config.py")
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("litgpt_config", None))
    sys.modules["litgpt_config"] = module
    exec(compile(source, "litgpt/config.py", "exec"), module.__dict__)
    known = {c["name"]: c for c in module.configs}
    return f"litgpt {version}", {
        name: litgpt_fields(module.Config(**known[litgpt_name(name)]))
        for name in models if litgpt_name(name) in known}


# ---- a table -----------------------------------------------------------------

# the row that begins so: the presets of its first size, and where in the row
# further sizes stand
TABLE = {"Llama2 7B": ("llama2/llama2_7b", {}),
         "Llama3 8B": ("llama3/llama3_8b", {}),
         "Llama3.1 8B": ("", {"llama3.1/llama3.1_405b":
                              r"405B \((?P<L>\d+)/(?P<h>\d+)/(?P<f>\d+), "
                              r"(?P<H>\d+)h"}),
         "Qwen1 1.8": ("qwen/qwen_7b", {}),
         "Qwen2/2.5": ("qwen2/qwen2_7b", {}),
         "Qwen3 dense": ("qwen3/qwen3_8b", {
             "qwen3/qwen3_0.6b": r"0\.6B h(?P<h>\d+), (?P<H>\d+) heads, "
                                 r"d (?P<d>\d+)"}),
         "Qwen3-MoE 30B": ("qwen3/qwen3_30b_a3b", {
             "qwen3/qwen3_235b_a22b": r"235B: (?P<L>\d+)/(?P<h>\d+), "
             r"(?P<H>\d+)h/(?P<k>\d+)kv, ffn (?P<m>\d+)",
             "qwen3/qwen3_coder_480b_a35b": r"480B coder: (?P<L>\d+)/"
             r"(?P<h>\d+), (?P<H>\d+)h/(?P<k>\d+)kv, (?P<E>\d+) exp, "
             r"ffn (?P<m>\d+)"}),
         "DeepSeek-V2": ("deepseek_v2/deepseek_v2_236b", {
             "deepseek_v2/deepseek_v2_lite":
                 r"Lite (?P<L>\d+)/(?P<h>\d+)/(?P<f>\d+)"}),
         "DeepSeek-V3/3.1": ("deepseek_v3/deepseek_v3_671b", {}),
         "Kimi-K2": ("kimi_k2/kimi_k2_1t", {}),
         "MiniMax-M2": ("minimax_m2/minimax_m2_230b", {}),
         "MiMo-7B": ("mimo/mimo_7b", {}),
         "InternLM2.5": ("internlm2.5/internlm2.5_7b", {
             "internlm2.5/internlm2.5_20b":
                 r"; (?P<L>\d+)/(?P<h>\d+)/(?P<f>\d+).*?, (?P<H>\d+)/"
                 r"(?P<k>\d+) "}),
         "ERNIE-4.5 28B": ("ernie4.5/ernie4.5_21b_a3b "
                           "ernie4.5/ernie4.5_28b_a3b", {})}
LETTERS = dict(L="num_hidden_layers", h="hidden_size", f="intermediate_size",
               H="num_attention_heads", k="num_key_value_heads",
               d="head_dim", E="num_experts", m="moe_intermediate_size",
               t="num_experts_per_tok", V="vocab_size", T="rope_theta",
               e="rms_norm_eps", q="q_lora_rank", c="kv_lora_rank",
               n="qk_nope_head_dim", r="qk_rope_head_dim", v="v_head_dim",
               s="routed_scaling_factor", G="n_group", g="topk_group",
               D="first_k_dense_replace", F="rope_scaling.factor",
               M="rope_scaling.mscale",
               O="rope_scaling.original_max_position_embeddings")
# of the first size, by the cells behind the name of the row
CELLS = {1: [r"(?P<L>\d+)/(?P<h>\d+)(/\(?(?P<f>\d{4,})\)?)?"],
         2: [r"^(?P<H>\d+)/(?P<k>\d+)(/(?P<d>\d+))?",
             r"^MLA (?P<H>\d+)h?:? (?P<q>\d+)/(?P<c>\d+)/(?P<n>\d+)\+"
             r"(?P<r>\d+)/(?P<v>\d+)",
             r"^MLA (?P<H>\d+) \(.*q_lora (?P<q>\d+) .*kv_lora (?P<c>\d+), "
             r"nope (?P<n>\d+), rope (?P<r>\d+), v (?P<v>\d+)",
             r"^MLA (?P<H>\d+)h"],
         3: [r"(?P<e>1e-[56])(?! in script)"],
         4: [r"θ (?P<T>[\d.]+e\d)", r"YaRN ×(?P<F>\d+)",
             r"mscale (?P<M>[\d.]+)", r"orig (?P<O>\d+)"],
         5: [r"^(?P<E>\d+)( \(\d+\))?( \*\*text.*?experts)?( exp)?, ",
             r"top-(?P<t>\d+)", r"ffn (?P<m>\d+)",
             r"scale (?P<s>[\d.]+)", r"(?P<D>\d+) dense",
             r"(?P<G>\d+) groups? ?(top-(?P<g>\d+))?"],
         6: [r"vocab (?P<V>\d+)"]}


def read_row(cells, patterns):
    out = {}
    for cell, pattern in patterns:
        found = re.search(pattern, cells[cell])
        for letter, text in (found.groupdict() if found else {}).items():
            if text is not None and LETTERS[letter] not in out:
                out[LETTERS[letter]] = float(text)
    return out


def read_table(models, path):
    out = {}
    with open(path) as f:
        text = f.read()
    for line in re.split(r"\n## (?!1 )", text)[0].splitlines():
        name = next((n for n in TABLE if line.startswith(f"| {n}")), None)
        if name is None:
            continue
        first, others = TABLE[name]
        cells = [c.strip() for c in line.strip("| \n").split("|")]
        for preset in first.split():
            out[preset] = read_row(cells, [(c, p) for c in CELLS
                                           for p in CELLS[c]])
            tied = re.search(r"\b(un)?tied\b(?! for)", cells[6])
            if tied:
                out[preset]["tie_word_embeddings"] = not tied.group(1)
        for preset, pattern in others.items():
            out[preset] = read_row([line], [(0, pattern)])
    missing = [n for n in TABLE if not any(
        p in out for p in [*TABLE[n][0].split(), *TABLE[n][1]])]
    assert not missing, f"{path}: no rows {missing}"
    return "table", out


# ---- MLC LLM -----------------------------------------------------------------

# base models, and others where they differ in nothing but what KNOWN has
MLC = {"gpt2": "gpt2/gpt2_124m", "gpt2_medium": "gpt2/gpt2_355m",
       "Mixtral-8x7B-v0.1": "mixtral/mixtral_8x7b", "qwen": "qwen/qwen_1.8b",
       "qwen2moe": "qwen1.5/qwen1.5_moe_a2.7b",
       "qwen2_0_5b": "qwen2/qwen2_0.5b", "qwen2_1_5b": "qwen2/qwen2_1.5b",
       "qwen2_7b": "qwen2/qwen2_7b", "qwen2.5_3b": "qwen2.5/qwen2.5_3b",
       "qwen3_0.6b": "qwen3/qwen3_0.6b", "qwen3_1.7b": "qwen3/qwen3_1.7b",
       "internlm2_5_7b": "internlm2.5/internlm2.5_7b",
       "deepseek_v2_lite": "deepseek_v2/deepseek_v2_lite",
       "llama3_1_8b": "llama3.1/llama3.1_8b",
       "llama3_1_70b": "llama3.1/llama3.1_70b",
       "smollm2_135m": "smollm2/smollm2_135m",
       "smollm2_360m": "smollm2/smollm2_360m"}


def read_mlc(models, path):
    spec = importlib.util.spec_from_file_location("mlc_presets", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    out = {}
    for name, preset in MLC.items():
        copy = dict(module.MODEL_PRESETS[name])
        # what its class has by itself, the copy does not say
        said = unified(copy).keys() | {"attention_bias"} & copy.keys()
        if copy["model_type"] == "internlm2":
            copy["auto_map"] = None
            said |= {"attention_bias"}  # its bias
        out[preset] = {k: v for k, v in stated(copy)[1].items() if k in said}
    return "mlc", out


# ---- MaxText -----------------------------------------------------------------

MAXTEXT = {"base_emb_dim": "hidden_size", "base_mlp_dim": "intermediate_size",
           "base_num_query_heads": "num_attention_heads",
           "base_num_kv_heads": "num_key_value_heads",
           "base_moe_mlp_dim": "moe_intermediate_size",
           "base_num_decoder_layers": "num_hidden_layers",
           "first_num_dense_layers": "first_k_dense_replace",
           "normalization_layer_epsilon": "rms_norm_eps",
           "rope_max_timescale": "rope_theta",
           "shared_experts": "n_shared_experts",
           "routed_score_func": "scoring_func",
           "logits_via_embedding": "tie_word_embeddings",
           "n_routing_groups": "n_group", "topk_routing_group": "topk_group",
           "rope_factor": "rope_scaling.factor",
           "beta_fast": "rope_scaling.beta_fast",
           "beta_slow": "rope_scaling.beta_slow",
           "mscale": "rope_scaling.mscale",
           "original_max_position_embeddings":
               "rope_scaling.original_max_position_embeddings"}
MAXTEXT_SAME = ("vocab_size", "head_dim", "num_experts", "num_experts_per_tok",
                "routed_scaling_factor", "kv_lora_rank", "q_lora_rank",
                "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
                "norm_topk_prob", "attention_bias", "max_position_embeddings")
MAXTEXT_NAMES = {"deepseek_v2/deepseek_v2_lite": "deepseek2-16b",
                 "deepseek_v2/deepseek_v2_236b": "deepseek2-236b",
                 "deepseek_v3/deepseek_v3_671b": "deepseek3-671b",
                 "kimi_k2/kimi_k2_1t": "kimi-k2-1t",
                 "qwen3/qwen3_coder_480b_a35b": "qwen3-480b-a35b"}


def maxtext_fields(c):
    mixed = c.get("decoder_block") in ("qwen3_moe", "mixtral")
    latent = "kv_lora_rank" in c
    out = {k: c[k] for k in MAXTEXT_SAME if k in c}
    out.update({v: c[k] for k, v in MAXTEXT.items() if k in c})
    out["rms_norm_eps"] = float(out["rms_norm_eps"])  # YAML: 1e-06 is a text
    if latent:
        out.pop("head_dim", None)
        out["rope_scaling.type"] = c["rope_type"]
        out["q_lora_rank"] = out["q_lora_rank"] or None
    if c.get("decoder_block") == "qwen3_moe":
        del out["intermediate_size"]  # it repeats that of the experts
    if mixed and c["decoder_block"] == "mixtral":
        out.pop("moe_intermediate_size", None)
    return out


def read_maxtext(models, folder):
    import yaml
    out = {}
    for name in models:
        short = MAXTEXT_NAMES.get(name, name.split("/")[1].replace("_", "-"))
        path = os.path.join(folder, short + ".yml")
        if os.path.exists(path):
            with open(path) as f:
                out[name] = maxtext_fields(yaml.safe_load(f))
    return "maxtext", out


# ---- Pai-Megatron-Patch ------------------------------------------------------

PAI = {"qwen": "qwen/run_pretrain_megatron_qwen.sh",
       "qwen1.5": "qwen1_5/run_pretrain_mcore_qwen.sh",
       "qwen2": "qwen2/run_mcore_qwen.sh",
       "qwen2.5": "qwen2_5/run_mcore_qwen.sh"}
PAI_SIZES = {"NUM_LAYERS": "num_hidden_layers", "HIDDEN_SIZE": "hidden_size",
             "NUM_ATTN_HEADS": "num_attention_heads",
             "INTERMEDIATE_SIZE": "intermediate_size",
             "MAX_POSITION_EMBEDDINGS": "max_position_embeddings",
             "NUM_KEY_VALUE_HEADS": "num_key_value_heads",
             "RMS_NORM_EPS": "rms_norm_eps", "NUM_EXPERTS": "num_experts",
             "NUM_EXPERTS_PER_TOPK": "num_experts_per_tok",
             "MOE_INTERMEDIATE_SIZE": "moe_intermediate_size",
             "SHARED_EXPERT_INTERMEDIATE_SIZE":
                 "shared_expert_intermediate_size"}
QWEN_WORDS = 151643  # to which a script adds EXTRA_VOCAB_SIZE


def pai_fields(block, whole):
    """One size; `whole` says what all sizes of the script share."""
    found = dict(re.findall(r"^([A-Z_]+)=([0-9.e-]+)$", block, re.M))
    out = {PAI_SIZES[k]: float(v) for k, v in found.items() if k in PAI_SIZES}
    groups = re.search(r"--num-query-groups (\d+)", block)
    if groups:
        out["num_key_value_heads"] = float(groups.group(1))
    out.setdefault("num_key_value_heads", out["num_attention_heads"])
    if "EXTRA_VOCAB_SIZE" in found:
        out["vocab_size"] = QWEN_WORDS + int(found["EXTRA_VOCAB_SIZE"])
    if "tie_option" in block:
        out["tie_word_embeddings"] = "--untie-embeddings" not in block
    for option, key in (("norm-epsilon", "rms_norm_eps"),
                        ("rotary-base", "rope_theta")):
        value = re.search(rf"--{option} ([0-9.e-]+)", whole)
        if value:
            out.setdefault(key, float(value.group(1)))
    return out


def read_pai(models, folder):
    out = {}
    for family, script in PAI.items():
        with open(os.path.join(folder, script)) as f:
            whole = f.read()
        for size, block in re.findall(
                r"if \[ \$MODEL_SIZE = (\S+) \]; then(.*?)(?=\nelif|\nfi)",
                whole, re.S):
            size = "57b_a14b" if size == "A14B" else size.lower()
            name = f"{family}/{family}_{size}"
            if name in models:
                out[name] = pai_fields(block, whole)
    return "pai", out


# ---- llm-analysis ------------------------------------------------------------

ANALYSIS = {"gpt2": "gpt2_124m", "gpt2-medium": "gpt2_355m",
            "gpt2-large": "gpt2_774m", "gpt2-xl": "gpt2_1.5b"}
ANALYSIS_SIZES = {"num_layers": "num_hidden_layers", "n_head":
                  "num_attention_heads", "hidden_dim": "hidden_size",
                  "max_seq_len": "max_position_embeddings",
                  "vocab_size": "vocab_size"}


def read_analysis(models, folder):
    out = {}
    for short, preset in ANALYSIS.items():
        with open(os.path.join(folder, short + ".json")) as f:
            c = json.load(f)
        out["gpt2/" + preset] = {v: c[k] for k, v in ANALYSIS_SIZES.items()}
    return "llm-analysis", out


# ---- comparison --------------------------------------------------------------

def read_config(models, text):
    name, folder = text.split("=", 1)
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    assert name in models, f"no preset {name}"
    return "config.json", {name: stated(dict(config))[1]}


def compare(models, sources):
    """{preset: {setting: [sources]}} and what is said otherwise, with and
    without a reason."""
    found, problems, excuses = {}, [], []
    for name, config in models.items():
        _, mine = stated(config)
        by = {key: [] for key in mine}
        for source, theirs in sources:
            excused = KNOWN.get((source.split()[0], name), {})
            for key, value in theirs.get(name, {}).items():
                if key not in mine:
                    continue
                if mine[key] == value:
                    by[key].append(source.split()[0])
                    if key in excused:
                        problems.append(f"{name}: {key}: {source} agrees, "
                                        "but KNOWN has it")
                elif source.startswith("transformers"):
                    pass  # a default, not a copy
                elif key in excused and value == excused[key][0]:
                    excuses.append([name, key, mine[key], source,
                                    *excused[key]])
                else:
                    problems.append(f"{name}: {key} is {mine[key]!r}, "
                                    f"{value!r} in {source}")
        found[name] = by
    return found, excuses, problems


def keep(found, excuses, renewed, crc):
    """Adds what sources.json has of other sources; their names."""
    with open(PATH) as f:
        before = json.load(f)
    if before["published_crc32"] != crc:
        sys.exit("sources.json is of another published.json: all sources are "
                 "wanted")
    others = {s for s in before["sources"] if s not in renewed}
    short = {s.split()[0] for s in others}
    for name, by in before["presets"].items():
        for key, sources in by.items():
            found[name][key] = sorted({*found[name][key],
                                       *(short & {*sources})})
    excuses[:0] = [e for e in before["otherwise"] if e[3] in others]
    return others


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--transformers", action="store_true")
    parser.add_argument("--litgpt", metavar="WHEEL")
    parser.add_argument("--table", metavar="FILE")
    parser.add_argument("--mlc", metavar="FILE")
    parser.add_argument("--maxtext", metavar="DIR")
    parser.add_argument("--pai", metavar="DIR")
    parser.add_argument("--llm-analysis", metavar="DIR")
    parser.add_argument("--add", action="store_true")
    parser.add_argument("--config", metavar="NAME=DIR", action="append",
                        default=[])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    with open(PUBLISHED, "rb") as f:
        published = f.read()
    models = {n: e["config"] for n, e in json.loads(published).items()
              if e["published"]}
    sources = [read_transformers(models)] if args.transformers else []
    sources += [read(models, place) for read, place in (
        (read_litgpt, args.litgpt), (read_table, args.table),
        (read_mlc, args.mlc), (read_maxtext, args.maxtext),
        (read_pai, args.pai), (read_analysis, args.llm_analysis)) if place]
    sources += [read_config(models, c) for c in args.config]
    found, excuses, problems = compare(models, sources)
    names = {s for s, _ in sources}
    if args.add:
        names |= keep(found, excuses, names, zlib.crc32(published))
    for problem in problems:
        print("FAIL " + problem)
    lines = [f"{json.dumps(n)}: {json.dumps(by)}" for n, by in found.items()]
    text = (f'{{"published_crc32": {zlib.crc32(published)},\n"sources": ' +
            json.dumps(sorted(names)) +
            ',\n"otherwise": [\n' + ",\n".join(map(json.dumps, excuses)) +
            '],\n"presets": {\n' + ",\n".join(lines) + "}}\n")
    settings = [by for b in found.values() for by in b.values()]
    print(f"{len(settings)} settings of {len(found)} models, "
          f"{sum(map(bool, settings))} confirmed")
    if args.check:
        with open(PATH) as f:
            same = f.read() == text
        print("ok" if same else "FAIL sources.json says otherwise")
        return bool(problems) or not same
    if not problems:
        with open(PATH, "w") as f:
            f.write(text)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
