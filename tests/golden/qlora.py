#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small models as bitsandbytes quantises them, and what their codes stand for.

  qlora.py          writes qlora/plain (a llama in bf16) and, with transformers
                    and bitsandbytes on the processor, qlora/nf4,
                    qlora/nf4_double and qlora/int8 of it; qlora/moe (experts)
                    and qlora/moe_nf4_double as transformers 4 had it, with
                    codes of each matrix of each expert and of the router;
                    lora.py takes steps beside them
"""
import json
import os
import shutil
import tempfile

import bitsandbytes.functional as functional
import torch
import transformers
from safetensors.torch import load_file, save_file

import wide

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = {
    "nf4": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4"),
    "nf4_double": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                       bnb_4bit_use_double_quant=True),
    "int8": dict(load_in_8bit=True),
}


def place(kind):
    return os.path.join(HERE, "qlora", kind)


def keep(kind, model):
    shutil.rmtree(place(kind), ignore_errors=True)
    model.save_pretrained(place(kind))
    for file in os.listdir(place(kind)):
        if file not in ("config.json", "model.safetensors"):
            os.remove(os.path.join(place(kind), file))


def write():
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, vocab_size=97,
        max_position_embeddings=64, tie_word_embeddings=True,
        initializer_range=0.2)
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    with torch.no_grad():  # a block without a number other than 0
        model.model.layers[0].mlp.up_proj.weight[3, :64] = 0
    keep("plain", model)
    for kind, how in KINDS.items():
        keep(kind, transformers.LlamaForCausalLM.from_pretrained(
            place("plain"), device_map="cpu", dtype=torch.bfloat16,
            quantization_config=transformers.BitsAndBytesConfig(**how)))


def write_experts():
    torch.manual_seed(8)
    keep("moe", transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
        hidden_size=64, moe_intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32,
        num_experts=4, num_experts_per_tok=2, norm_topk_prob=True,
        vocab_size=97, max_position_embeddings=64, tie_word_embeddings=True,
        initializer_range=0.2)).to(torch.bfloat16))
    shutil.rmtree(place("moe_nf4_double"), ignore_errors=True)
    shutil.copytree(place("moe"), place("moe_nf4_double"))
    path = os.path.join(place("moe_nf4_double"), "model.safetensors")
    save_file(encoded(load_file(path), "nf4_double", ()), path,
              metadata={"format": "pt"})
    path = os.path.join(place("moe_nf4_double"), "config.json")
    with open(path) as f:
        config = json.load(f)
    config["quantization_config"] = dict(KINDS["nf4_double"],
                                         quant_method="bitsandbytes")
    with open(path, "w") as f:
        json.dump(config, f, indent=2)


def encoded(tensors, kind, kept):
    """Codes of each matrix of the files, without those whose names end so."""
    out = {}
    for name, t in tensors.items():
        if t.dim() < 2 or name.endswith(("embed_tokens.weight", *kept)):
            out[name] = t
            continue
        out[name], state = functional.quantize_4bit(
            t, blocksize=64, quant_type="nf4",
            compress_statistics=kind == "nf4_double")
        for key, value in state.as_dict(packed=True).items():
            out[f"{name}.{key}"] = value
    return out


def numbers_of(tensors, name):
    """The fp32 that the codes of a matrix stand for."""
    end = len(".weight")
    if name[:-end] + ".SCB" in tensors:
        return torch.ops.bitsandbytes.int8_vectorwise_dequant(
            tensors[name], tensors[name[:-end] + ".SCB"])
    beside = {k[len(name) + 1:]: v for k, v in tensors.items()
              if k.startswith(name + ".")}
    state = functional.QuantState.from_dict(beside, torch.device("cpu"))
    if state.nested:
        absmax = state.state2.code[state.absmax.int()] * \
            state.state2.absmax.repeat_interleave(256)[:len(state.absmax)] + \
            state.offset
    else:
        absmax = state.absmax
    codes = tensors[name].reshape(-1)
    both = torch.stack([codes >> 4, codes & 15], 1).reshape(-1)
    return (state.code[both.int()].reshape(-1, 64) *
            absmax[:, None]).reshape(state.shape)


def dequantized(path):
    """The model of a directory of codes, in float64; of one that is not kept,
    as moe_nf4, that of the plain one quantised here, but for the router."""
    kind = None
    if not os.path.isdir(path):
        path, kind = path.rsplit("_", 1)
    tensors = load_file(os.path.join(path, "model.safetensors"))
    if kind is not None:
        tensors = encoded(tensors, kind, ("mlp.gate.weight",))
    with open(os.path.join(path, "config.json")) as f:
        config = json.load(f)
    config.pop("quantization_config", None)
    numbers = {
        name: (t if t.is_floating_point() else numbers_of(tensors, name))
        .double() for name, t in tensors.items()
        if name.endswith(".weight")}
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "config.json"), "w") as f:
            json.dump(config, f)
        save_file(numbers, os.path.join(directory, "model.safetensors"),
                  metadata={"format": "pt"})
        with wide.widened():
            model = transformers.AutoModelForCausalLM.from_pretrained(
                directory, dtype=torch.float64, attn_implementation="eager",
                experts_implementation="eager")
    model.name_or_path = model.config.name_or_path = ""
    return model.eval()


if __name__ == "__main__":
    write()
    write_experts()
