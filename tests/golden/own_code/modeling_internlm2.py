# SPDX-License-Identifier: Apache-2.0
"""Stands in for the Python file beside a published InternLM2: its names and
its fused matrix, and what transformers has of the rest."""
from torch import nn
from transformers.models.llama import modeling_llama as llama

from .configuration_internlm2 import InternLM2Config


class Attention(llama.LlamaAttention):
    """wqkv: for each key head its query heads, itself, its value head."""

    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        rows = sum(self._modules.pop(name).out_features
                   for name in ("q_proj", "k_proj", "v_proj"))
        self.wqkv = nn.Linear(config.hidden_size, rows, bias=config.bias)
        self.wo = self._modules.pop("o_proj")

    def part(self, begin, end):
        each = self.num_key_value_groups

        def project(x):
            heads = self.wqkv(x).unflatten(-1, (-1, each + 2, self.head_dim))
            return heads[..., begin:end or None, :].flatten(-3)
        return project

    q_proj = property(lambda self: self.part(0, -2))
    k_proj = property(lambda self: self.part(-2, -1))
    v_proj = property(lambda self: self.part(-1, 0))
    o_proj = property(lambda self: self.wo)


class FeedForward(llama.LlamaMLP):
    def __init__(self, config):
        super().__init__(config)
        for ours, theirs in (("w1", "gate_proj"), ("w3", "up_proj"),
                             ("w2", "down_proj")):
            setattr(self, ours, self._modules.pop(theirs))

    gate_proj = property(lambda self: self.w1)
    up_proj = property(lambda self: self.w3)
    down_proj = property(lambda self: self.w2)


class DecoderLayer(llama.LlamaDecoderLayer):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        del self.self_attn, self.mlp
        self.attention = Attention(config, layer_idx)
        self.feed_forward = FeedForward(config)
        self.attention_norm = self._modules.pop("input_layernorm")
        self.ffn_norm = self._modules.pop("post_attention_layernorm")

    self_attn = property(lambda self: self.attention)
    mlp = property(lambda self: self.feed_forward)
    input_layernorm = property(lambda self: self.attention_norm)
    post_attention_layernorm = property(lambda self: self.ffn_norm)


class Model(llama.LlamaModel):
    def __init__(self, config):
        super().__init__(config)
        self.tok_embeddings = self._modules.pop("embed_tokens")
        self.layers = nn.ModuleList(
            DecoderLayer(config, i) for i in range(config.num_hidden_layers))

    embed_tokens = property(lambda self: self.tok_embeddings)


class InternLM2ForCausalLM(llama.LlamaForCausalLM):
    config_class = InternLM2Config
    _tied_weights_keys = {"output.weight": "model.tok_embeddings.weight"}

    def __init__(self, config):
        super(llama.LlamaForCausalLM, self).__init__(config)
        self.model = Model(config)
        self.vocab_size = config.vocab_size
        self.output = nn.Linear(config.hidden_size, config.vocab_size,
                                bias=False)
        self.post_init()

    lm_head = property(lambda self: self.output)
