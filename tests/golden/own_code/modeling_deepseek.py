# SPDX-License-Identifier: Apache-2.0
"""Stands in for the Python file beside a published Kimi-K2: each expert has
matrices of its own."""
from torch import nn
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek

from .configuration_deepseek import DeepseekV3Config


class Experts(nn.ModuleList):
    def __init__(self, config):
        super().__init__(
            deepseek.DeepseekV3MLP(config, config.moe_intermediate_size)
            for _ in range(config.n_routed_experts))

    def forward(self, x, chosen, weights):
        out = x.new_zeros(x.shape)
        for number, expert in enumerate(self):
            row, slot = (chosen == number).nonzero(as_tuple=True)
            out.index_add_(0, row, expert(x[row]) * weights[row, slot, None])
        return out


class DeepseekV3ForCausalLM(deepseek.DeepseekV3ForCausalLM):
    config_class = DeepseekV3Config

    def __init__(self, config):
        super().__init__(config)
        for layer in self.model.layers[config.first_k_dense_replace:]:
            layer.mlp.experts = Experts(config)
        self.post_init()
