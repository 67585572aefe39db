# SPDX-License-Identifier: Apache-2.0
"""Runs the unmodified transformers code in true float64.

`model.double()` is not a float64 model: RMSNorm, the attention softmax and
the rotary tables name torch.float32 in the source, so about 1e-7 of relative
error stays in every output. Inside `widened()` the model files see a `torch`
whose float32 is float64, and tensors whose float() is double();
`OnlyFloat64` then proves that no narrower tensor is made on the way. Read cases.py and generate.py after this file.
"""
import contextlib
import importlib
import types

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MODULES = ["modeling_rope_utils", "vision_utils"] + [
    f"models.{m}.modeling_{m}" for m in ("gpt2", "llama", "mistral", "phi3",
                                        "qwen2", "qwen3", "mixtral",
                                        "qwen2_moe", "qwen3_moe",
                                        "ernie4_5", "ernie4_5_moe",
                                        "minimax_m2", "deepseek_v2",
                                        "ernie4_5_vl_moe",
                                        "deepseek_v3", "vit", "clip",
                                        "siglip", "siglip2", "llava",
                                        "qwen2_vl",
                                        "qwen2_5_vl", "qwen3_vl",
                                        "qwen3_vl_moe", "qwen3_5", "kimi_k25",
                                        "internvl", "gemma", "glm", "glm4",
                                        "glm4v", "paligemma", "minicpmv4_6",
                                        "idefics2")]


class _WideTorch(types.ModuleType):
    """The torch module, except that its float32 is float64."""

    def __getattr__(self, name):
        return getattr(torch, "float64" if name in ("float", "float32")
                       else name)


@contextlib.contextmanager
def widened():
    modules = [importlib.import_module("transformers." + m) for m in MODULES]
    before = torch.get_default_dtype()
    narrow = torch.Tensor.float
    wide = _WideTorch("torch")
    try:
        torch.set_default_dtype(torch.float64)
        torch.Tensor.float = torch.Tensor.double
        for module in modules:
            module.torch = wide
        yield
    finally:
        for module in modules:
            module.torch = torch
        torch.Tensor.float = narrow
        torch.set_default_dtype(before)


class OnlyFloat64(TorchDispatchMode):
    """Fails on any operation that makes a floating tensor below float64.

    Integers may become float32 (position_ids.float()): exact below 2^24.
    """

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        floating_in = any(t.is_floating_point() for t in tree_leaves(args)
                          if isinstance(t, torch.Tensor))
        for t in tree_leaves(out):
            if (isinstance(t, torch.Tensor) and t.is_floating_point()
                    and t.dtype != torch.float64 and floating_in):
                raise AssertionError(f"{func} made a {t.dtype} tensor")
        return out
