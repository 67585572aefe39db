# SPDX-License-Identifier: Apache-2.0
"""Stands in for the Python file beside a published Kimi-K2: as strict about
the name in rope_scaling as that is."""
from transformers.models import deepseek_v3


class DeepseekV3Config(deepseek_v3.DeepseekV3Config):
    model_type = "kimi_k2"

    def __init__(self, rope_scaling=None, **more):
        if rope_scaling is not None:
            rope_scaling["type"]
        super().__init__(rope_scaling=rope_scaling, **more)
