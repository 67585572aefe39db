# SPDX-License-Identifier: Apache-2.0
"""Stands in for the Python file beside a published MiMo: Qwen2. Layers that
predict further tokens are not in an export."""
from transformers import Qwen2ForCausalLM

from .configuration_mimo import MiMoConfig


class MiMoForCausalLM(Qwen2ForCausalLM):
    config_class = MiMoConfig

    def __init__(self, config):
        if config.num_nextn_predict_layers != 0:
            raise ValueError("layers that predict further tokens")
        super().__init__(config)
