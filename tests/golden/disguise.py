# SPDX-License-Identifier: Apache-2.0
"""Model types that transformers has no class for, in the words of one it has.

InternLM2, the first Qwen and MiMo compute what LlamaForCausalLM and
Qwen2ForCausalLM compute, but their published files name, fuse and configure it
differently. A fixture of theirs is computed by the class that transformers
has; then the files are rewritten here as the publishers' own code reads them:

  internlm2  modeling_internlm2.py of internlm/internlm2_5-7b: wqkv holds, for
             each key head, its query heads, the key head and the value head;
             w1 is the gate, w3 goes up, w2 down
  qwen       modeling_qwen.py of Qwen/Qwen-7B: c_attn is q, k and v one below
             the other; the output is w1(x) * silu(w2(x)); intermediate_size
             states twice the width
  mimo       modeling_mimo.py of XiaomiMiMo/MiMo-7B-Base: Qwen2 with layers
             model.mtp_layers.* behind, which the main model does not use
  kimi_k2    config.json of moonshotai/Kimi-K2-Base: DeepSeek-V3 by another
             name

Gradients in golden.safetensors keep the names of the class that computed them,
under the prefix of the disguise.
"""
import json
import os

import torch
from safetensors.torch import load_file, save_file


def auto_map(kind, config, model):
    return {"AutoConfig": f"configuration_{kind}.{config}",
            "AutoModelForCausalLM": f"modeling_{kind}.{model}"}


def old_rope(config):
    """rope_parameters in the words of transformers 4."""
    rope = config.pop("rope_parameters")
    kind = rope.pop("rope_type")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = (None if kind == "default"
                              else dict(type=kind, **rope))
    return config


def layer_name(name):
    """"model.layers.3.rest" -> ("3", "rest"), else (None, name)."""
    if not name.startswith("model.layers."):
        return None, name
    return name[len("model.layers."):].split(".", 1)


def internlm2(config, tensors):
    heads, groups = (config[k] for k in ("num_attention_heads",
                                         "num_key_value_heads"))
    each = heads // groups
    names = {"model.embed_tokens.weight": "model.tok_embeddings.weight",
             "lm_head.weight": "output.weight"}
    parts = {"self_attn.o_proj": "attention.wo",
             "input_layernorm": "attention_norm",
             "post_attention_layernorm": "ffn_norm",
             "mlp.gate_proj": "feed_forward.w1",
             "mlp.up_proj": "feed_forward.w3",
             "mlp.down_proj": "feed_forward.w2"}
    out = {}
    for name, t in tensors.items():
        layer, rest = layer_name(name)
        stem, kind = rest.rsplit(".", 1)
        if layer is None:
            out[names.get(name, name)] = t
        elif stem in parts:
            out[f"model.layers.{layer}.{parts[stem]}.{kind}"] = t
        elif stem == "self_attn.q_proj":
            q, k, v = (tensors[name.replace("q_proj", p)].unflatten(
                0, (groups, -1, t.shape[0] // heads))
                for p in ("q_proj", "k_proj", "v_proj"))
            assert q.shape[1] == each and k.shape[1] == 1
            fused = torch.cat([q, k, v], 1).flatten(0, 2)
            out[f"model.layers.{layer}.attention.wqkv.{kind}"] = fused
    config = old_rope(dict(config, model_type="internlm2",
                           architectures=["InternLM2ForCausalLM"],
                           auto_map=auto_map("internlm2", "InternLM2Config",
                                             "InternLM2ForCausalLM"),
                           bias=config["attention_bias"],
                           attn_implementation="eager"))
    for key in ("attention_bias", "mlp_bias", "head_dim",
                "attention_dropout"):
        config.pop(key)
    return config, out


def qwen(config, tensors):
    names = {"model.embed_tokens.weight": "transformer.wte.weight",
             "model.norm.weight": "transformer.ln_f.weight",
             "lm_head.weight": "lm_head.weight"}
    parts = {"self_attn.o_proj": "attn.c_proj", "input_layernorm": "ln_1",
             "post_attention_layernorm": "ln_2", "mlp.gate_proj": "mlp.w2",
             "mlp.up_proj": "mlp.w1", "mlp.down_proj": "mlp.c_proj"}
    out = {}
    for name, t in tensors.items():
        layer, rest = layer_name(name)
        stem, kind = rest.rsplit(".", 1)
        if layer is None:
            out[names[name]] = t
        elif stem in parts:
            out[f"transformer.h.{layer}.{parts[stem]}.{kind}"] = t
        elif stem == "self_attn.q_proj":
            out[f"transformer.h.{layer}.attn.c_attn.{kind}"] = torch.cat(
                [tensors[name.replace("q_proj", p)]
                 for p in ("q_proj", "k_proj", "v_proj")])
    limit = config["max_position_embeddings"]
    return dict(
        architectures=["QWenLMHeadModel"], model_type="qwen",
        auto_map=auto_map("qwen", "QWenConfig", "QWenLMHeadModel"),
        attn_dropout_prob=0.0, emb_dropout_prob=0.0, bf16=False, fp16=False,
        fp32=True, hidden_size=config["hidden_size"],
        intermediate_size=2 * config["intermediate_size"],
        initializer_range=0.02, kv_channels=config["hidden_size"]
        // config["num_attention_heads"],
        layer_norm_epsilon=config["rms_norm_eps"],
        max_position_embeddings=4 * limit, seq_length=limit, no_bias=True,
        num_attention_heads=config["num_attention_heads"],
        num_hidden_layers=config["num_hidden_layers"], onnx_safe=None,
        rotary_emb_base=config["rope_parameters"]["rope_theta"],
        rotary_pct=1.0, scale_attn_weights=True,
        tie_word_embeddings=config["tie_word_embeddings"],
        tokenizer_class="QWenTokenizer", use_cache=True,
        use_dynamic_ntk=True, use_flash_attn="auto", use_logn_attn=True,
        vocab_size=config["vocab_size"]), out


def mimo(config, tensors):
    layers = config["num_hidden_layers"] - 1
    last = f"model.layers.{layers}."
    extra = {f"model.mtp_layers.0.{n[len(last):]}": t.clone() for n, t in
             tensors.items() if n.startswith(last)}
    hidden = config["hidden_size"]
    extra["model.mtp_layers.0.input_proj.weight"] = torch.ones(
        hidden, 2 * hidden)
    config = old_rope(dict(config, model_type="mimo", attention_bias=True,
                           architectures=["MiMoForCausalLM"],
                           auto_map=auto_map("mimo", "MiMoConfig",
                                             "MiMoForCausalLM"),
                           num_nextn_predict_layers=1))
    config.pop("layer_types")
    return config, {**tensors, **extra}


def kimi_k2(config, tensors):
    return dict(config, model_type="kimi_k2",
                auto_map=auto_map("deepseek", "DeepseekV3Config",
                                  "DeepseekV3ForCausalLM")), tensors


# ---- and back: written apart from the above, so that a slip in one shows ----

def unfused_internlm2(name, t, config, heads):
    """q, k and v of wqkv: each group is its queries, a key, a value."""
    groups = config["num_key_value_heads"]
    each = heads // groups
    width = config["hidden_size"] // heads
    blocks = t.reshape(groups, each + 2, width, *t.shape[1:])
    tail = t.shape[1:]
    return {"q": blocks[:, :each].reshape(heads * width, *tail),
            "k": blocks[:, each].reshape(groups * width, *tail),
            "v": blocks[:, each + 1].reshape(groups * width, *tail)}


def token_ids(config):
    return {k: config[k] for k in ("bos_token_id", "eos_token_id",
                                   "pad_token_id") if k in config}


def bare_internlm2(config, tensors):
    heads = config["num_attention_heads"]
    names = (("model.tok_embeddings.", "model.embed_tokens."),
             ("output.", "lm_head."), ("attention.wo.", "self_attn.o_proj."),
             ("attention_norm.", "input_layernorm."),
             ("ffn_norm.", "post_attention_layernorm."),
             ("feed_forward.w1.", "mlp.gate_proj."),
             ("feed_forward.w2.", "mlp.down_proj."),
             ("feed_forward.w3.", "mlp.up_proj."))
    out = {}
    for name, t in tensors.items():
        if ".attention.wqkv." in name:
            stem, kind = name.split("attention.wqkv.")
            for part, piece in unfused_internlm2(name, t, config,
                                                 heads).items():
                out[f"{stem}self_attn.{part}_proj.{kind}"] = piece
            continue
        for theirs, ours in names:
            name = name.replace(theirs, ours)
        out[name] = t
    rope = config["rope_scaling"] or dict(type="default")
    kept = {k: config[k] for k in (
        "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "vocab_size",
        "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings",
        "hidden_act")}
    kept.update(token_ids(config))
    return dict(kept, model_type="llama", attention_bias=config["bias"],
                rope_theta=config["rope_theta"], rope_scaling=rope), out


def bare_qwen(config, tensors):
    names = (("transformer.wte.", "model.embed_tokens."),
             ("transformer.ln_f.", "model.norm."),
             ("transformer.h.", "model.layers."),
             (".attn.c_proj.", ".self_attn.o_proj."),
             (".ln_1.", ".input_layernorm."),
             (".ln_2.", ".post_attention_layernorm."),
             (".mlp.w2.", ".mlp.gate_proj."), (".mlp.w1.", ".mlp.up_proj."),
             (".mlp.c_proj.", ".mlp.down_proj."))
    out = {}
    for name, t in tensors.items():
        for theirs, ours in names:
            name = name.replace(theirs, ours)
        if ".attn.c_attn." in name:
            for part, piece in zip("qkv", t.chunk(3)):
                out[name.replace("attn.c_attn", f"self_attn.{part}_proj")
                    ] = piece
        else:
            out[name] = t
    heads = config["num_attention_heads"]
    assert config["kv_channels"] * heads == config["hidden_size"]
    return dict(
        model_type="qwen2", hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"] // 2,
        num_hidden_layers=config["num_hidden_layers"],
        num_attention_heads=heads, num_key_value_heads=heads,
        vocab_size=config["vocab_size"],
        max_position_embeddings=config["seq_length"],
        rms_norm_eps=config["layer_norm_epsilon"],
        rope_theta=config["rotary_emb_base"],
        tie_word_embeddings=config["tie_word_embeddings"],
        **token_ids(config)), out


def bare_mimo(config, tensors):
    dropped = ("num_nextn_predict_layers", "auto_map", "attention_bias")
    return (dict({k: v for k, v in config.items() if k not in dropped},
                 model_type="qwen2", architectures=["Qwen2ForCausalLM"]),
            {n: t for n, t in tensors.items() if ".mtp_layers." not in n})


def bare_kimi_k2(config, tensors):
    config = {k: v for k, v in config.items() if k != "auto_map"}
    return dict(config, model_type="deepseek_v3",
                num_nextn_predict_layers=0), tensors


BARE = dict(internlm2=bare_internlm2, qwen=bare_qwen, mimo=bare_mimo,
            kimi_k2=bare_kimi_k2)


def take_off(kind, config, tensors, folder):
    """Writes a directory that transformers reads."""
    config, tensors = BARE[kind](config, tensors)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    save_file({n: t.contiguous() for n, t in tensors.items()},
              os.path.join(folder, "model.safetensors"),
              metadata={"format": "pt"})


KINDS = dict(internlm2=internlm2, qwen=qwen, mimo=mimo, kimi_k2=kimi_k2)
PREFIX = dict(internlm2="model.", qwen="transformer.", mimo="model.",
              kimi_k2="model.")


def gradient_name(kind, name):
    """The engine's name of a parameter under the prefix of the disguise."""
    if kind in ("mimo", "kimi_k2"):
        return name
    return PREFIX[kind] + name.removeprefix("model.")


def put_on(kind, folder):
    """Rewrites a directory that save_pretrained has written."""
    config_path, path = (os.path.join(folder, n) for n in
                         ("config.json", "model.safetensors"))
    with open(config_path) as f:
        config = json.load(f)
    config, tensors = KINDS[kind](config, load_file(path))
    with open(config_path, "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")
    save_file({n: t.contiguous() for n, t in tensors.items()}, path,
              metadata={"format": "pt"})
