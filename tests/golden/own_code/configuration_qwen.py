# SPDX-License-Identifier: Apache-2.0
"""Stands in for the Python file beside a published Qwen of the first
generation."""
from transformers import Qwen2Config


class QWenConfig(Qwen2Config):
    model_type = "qwen"

    def __init__(self, intermediate_size=22016, num_attention_heads=32,
                 seq_length=8192, max_position_embeddings=8192,
                 layer_norm_epsilon=1e-6, rotary_emb_base=10000, **more):
        super().__init__(intermediate_size=intermediate_size // 2,
                         num_attention_heads=num_attention_heads,
                         num_key_value_heads=num_attention_heads,
                         max_position_embeddings=seq_length,
                         rms_norm_eps=layer_norm_epsilon,
                         rope_theta=rotary_emb_base, **more)
