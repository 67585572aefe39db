# SPDX-License-Identifier: Apache-2.0
"""Stands in for the Python file beside a published MiMo."""
from transformers import Qwen2Config


class MiMoConfig(Qwen2Config):
    model_type = "mimo"

    def __init__(self, num_nextn_predict_layers=0, **more):
        super().__init__(**more)
        self.num_nextn_predict_layers = num_nextn_predict_layers
