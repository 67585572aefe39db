#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small llama as bitsandbytes quantises it, and what its codes stand for.

  qlora.py          writes qlora/plain (bf16) and, with transformers and
                    bitsandbytes on the processor, qlora/nf4, qlora/nf4_double
                    and qlora/int8 of it; lora.py takes steps beside them
"""
import json
import os
import shutil

import bitsandbytes.functional as functional
import torch
import transformers
from safetensors.torch import load_file

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
    """The model of a directory of codes, in float64."""
    with open(os.path.join(path, "config.json")) as f:
        config = json.load(f)
    config.pop("quantization_config")
    config = transformers.LlamaConfig.from_dict(config)
    config._attn_implementation = "eager"
    model = transformers.LlamaForCausalLM(config).double()
    tensors = load_file(os.path.join(path, "model.safetensors"))
    state = {}
    for name in model.state_dict():
        if name in tensors:
            state[name] = (
                tensors[name] if tensors[name].is_floating_point()
                else numbers_of(tensors, name)).double()
    model.load_state_dict(state, strict=False)
    model.tie_weights()
    return model.eval()


if __name__ == "__main__":
    write()
