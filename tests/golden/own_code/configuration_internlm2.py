# SPDX-License-Identifier: Apache-2.0
"""Stands in for the Python file beside a published InternLM2: as strict about
rope_scaling as that is."""
from transformers import LlamaConfig


class InternLM2Config(LlamaConfig):
    model_type = "internlm2"

    def __init__(self, bias=True, rope_scaling=None, **more):
        if rope_scaling is not None and (
                sorted(rope_scaling) != ["factor", "type"]
                or rope_scaling["type"] not in ("linear", "dynamic")):
            raise ValueError(f"rope_scaling: type and factor, not "
                             f"{rope_scaling}")
        super().__init__(attention_bias=bias, rope_scaling=rope_scaling,
                         **more)
        self.bias = bias
