# SPDX-License-Identifier: Apache-2.0
"""Stands in for the Python file beside a published Qwen of the first
generation: its names and its fused matrix, and what transformers has of the
rest."""
from torch import nn
from transformers.models.qwen2 import modeling_qwen2 as qwen2

from .configuration_qwen import QWenConfig


class Attention(qwen2.Qwen2Attention):
    """c_attn: q, k and v one below the other."""

    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        for name in ("q_proj", "k_proj", "v_proj"):
            del self._modules[name]
        self.c_attn = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.c_proj = self._modules.pop("o_proj")

    def part(self, i):
        return lambda x: self.c_attn(x).chunk(3, dim=-1)[i]

    q_proj = property(lambda self: self.part(0))
    k_proj = property(lambda self: self.part(1))
    v_proj = property(lambda self: self.part(2))
    o_proj = property(lambda self: self.c_proj)


class FeedForward(qwen2.Qwen2MLP):
    def __init__(self, config):
        super().__init__(config)
        for ours, theirs in (("w2", "gate_proj"), ("w1", "up_proj"),
                             ("c_proj", "down_proj")):
            setattr(self, ours, self._modules.pop(theirs))

    gate_proj = property(lambda self: self.w2)
    up_proj = property(lambda self: self.w1)
    down_proj = property(lambda self: self.c_proj)


class Block(qwen2.Qwen2DecoderLayer):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        del self.self_attn
        self.attn = Attention(config, layer_idx)
        self.mlp = FeedForward(config)
        self.ln_1 = self._modules.pop("input_layernorm")
        self.ln_2 = self._modules.pop("post_attention_layernorm")

    self_attn = property(lambda self: self.attn)
    input_layernorm = property(lambda self: self.ln_1)
    post_attention_layernorm = property(lambda self: self.ln_2)


class Model(qwen2.Qwen2Model):
    def __init__(self, config):
        super().__init__(config)
        del self.layers
        self.wte = self._modules.pop("embed_tokens")
        self.ln_f = self._modules.pop("norm")
        self.h = nn.ModuleList(
            Block(config, i) for i in range(config.num_hidden_layers))

    embed_tokens = property(lambda self: self.wte)
    norm = property(lambda self: self.ln_f)
    layers = property(lambda self: self.h)


class QWenLMHeadModel(qwen2.Qwen2ForCausalLM):
    config_class = QWenConfig
    base_model_prefix = "transformer"
    _tied_weights_keys = {"lm_head.weight": "transformer.wte.weight"}

    def __init__(self, config):
        super(qwen2.Qwen2ForCausalLM, self).__init__(config)
        self.transformer = Model(config)
        self.vocab_size = config.vocab_size
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size,
                                 bias=False)
        self.post_init()

    model = property(lambda self: self.transformer)
