#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters of lora.py as files alone.

  lora_files.py BUILD   BUILD/loong-ckpt: adapters to a checkpoint and back,
                        merged, taken out again and added to one another as
                        peft does it
"""
import os
import sys
import tempfile

import peft
import torch
import transformers
from safetensors.torch import load_file

import wide
from lora import (CASES, HERE, OLDER, base, begin, fill, logits, samples,
                  tool)

def same_bytes(a, b):
    with open(a, "rb") as one, open(b, "rb") as other:
        return one.read() == other.read()


def there_and_back(build, start, fixture, place):
    """Files that peft wrote, through a checkpoint: the same bytes."""
    native, back = os.path.join(place, "native"), os.path.join(place, "back")
    tool(build, "verify", start, "--base", fixture)
    tool(build, "import", start, native, "--base", fixture)
    tool(build, "verify", native)
    tool(build, "export", native, back)
    return all(same_bytes(os.path.join(start, f), os.path.join(back, f))
               for f in ("adapter_config.json", "adapter_model.safetensors"))


def values(place):
    with wide.widened():
        return transformers.AutoModelForCausalLM.from_pretrained(
            place, experts_implementation="eager",
            dtype=torch.float64)


def last_bit(t):
    """The value of the last bit of bf16 numbers."""
    _, exponent = torch.frexp(t.abs().clamp_min(2.0 ** -126))
    return torch.ldexp(torch.ones_like(t), exponent - 8)


def rounded(t, dtype):
    """Once, to nearest even: to(bfloat16) goes by way of float32."""
    if dtype == "fp32":
        return t.float().double()
    bits = t.contiguous().view(torch.int64)
    bits = bits + ((1 << 44) - 1) + ((bits >> 45) & 1)
    return (bits >> 45 << 45).view(torch.float64)


def merged(build, start, fixture, place, dtype):
    """The largest difference from peft in float64, rounded once; and of what
    is taken out again from what was there, in last bits of both and of the
    larger one of model and base."""
    plain, made, again = (os.path.join(place, dtype + end)
                          for end in ("", "_made", "_again"))
    tool(build, "convert", fixture, plain, "--dtype", dtype)
    tool(build, "merge", start, plain, made)
    model = peft.PeftModel.from_pretrained(values(plain), start).double()
    theirs = model.merge_and_unload().state_dict()
    ours, before = values(made).state_dict(), values(plain).state_dict()
    worst = max((ours[k] - rounded(t, dtype)).abs().max().item()
                for k, t in theirs.items())
    if any("lora_" not in k or "magnitude" in k for k in load_file(
            os.path.join(start, "adapter_model.safetensors"))):
        return worst, None  # what was there is not known any more
    halves = os.path.join(place, dtype + "_halves")
    tool(build, "merge", start + "=0.25", start + "=0.75", plain, halves)
    worst = max([worst] + [(ours[k] - t).abs().max().item() for k, t in
                           values(halves).state_dict().items()])
    tool(build, "merge", start + "=-1", made, again)
    bits, larger, unequal, count = 0.0, 0.0, 0, 0
    for k, t in values(again).state_dict().items():
        gap = (t - before[k]).abs()
        of_both = torch.maximum(last_bit(ours[k]), last_bit(before[k]))
        bits = max(bits, (gap / last_bit(before[k])).max().item())
        larger = max(larger, (gap / of_both).max().item())
        if not torch.equal(before[k], ours[k]):
            unequal, count = unequal + (gap > 0).sum().item(), count + t.numel()
    return worst, (bits, larger, unequal / count)


def files(build, name):
    fixture = os.path.join(HERE, "fixtures", CASES[name][0])
    with tempfile.TemporaryDirectory() as place:
        start = os.path.join(place, "start")
        begin(name).float().save_pretrained(start, save_embedding_layers=False)
        equal = there_and_back(build, start, fixture, place)
        if name == "llama_ends":  # there is nothing to merge it into
            print(f"{name}: there and back {'equal' if equal else 'DIFFERS'}")
            return equal
        single, _ = merged(build, start, fixture, place, "fp32")
        half, out = merged(build, start, fixture, place, "bf16")
    print(f"{name}: there and back {'equal' if equal else 'DIFFERS'}; merged "
          f"in fp32 {single:.1e}, in bf16 {half:.1e}", end="")
    if out is not None:
        print(f"; taken out again, {out[2]:.1%} of the matrices' elements "
              f"differ, by at most {out[0]:g} last bits, {out[1]:g} of the "
              "larger number", end="")
    print()
    return equal and single < 1e-7 and half == 0 and (
        out is None or out[1] <= 1)


def added(build, place):
    """Two adapters as one, beside the model and in it."""
    fixture = os.path.join(HERE, "fixtures", "llama3_gqa_tied")
    starts = []
    for i, targets in enumerate((["q_proj", "v_proj", "down_proj"],
                                 ["q_proj", "up_proj"])):
        model = peft.get_peft_model(base("llama3_gqa_tied"), peft.LoraConfig(
            task_type="CAUSAL_LM", r=4, lora_alpha=6 + i,
            target_modules=targets))
        fill(model, i)
        starts.append(os.path.join(place, f"start{i}"))
        model.float().save_pretrained(starts[-1])
    worst = []
    for kind in "cat", "linear":
        model = peft.PeftModel.from_pretrained(base("llama3_gqa_tied"),
                                               starts[0], adapter_name="0")
        model.load_adapter(starts[1], adapter_name="1")
        model.double().add_weighted_adapter(
            ["0", "1"], [0.7, -0.3], "sum", combination_type=kind)
        model.set_adapter("sum")
        ids = samples(model.config.vocab_size)[:, :-1]
        wanted = logits(model, ids)
        out, whole = (os.path.join(place, kind + end) for end in ("", "_made"))
        terms = [starts[0] + "=0.7", starts[1] + "=-0.3"]
        terms += ["--linear"] if kind == "linear" else []
        tool(build, "merge", *terms, out)
        tool(build, "merge", *terms, fixture, whole, "--dtype", "fp64")
        ours = peft.PeftModel.from_pretrained(base("llama3_gqa_tied"), out)
        worst += [(logits(m, ids) - wanted).abs().max().item()
                  for m in (ours, values(whole))]
    away = truncated(build, place, starts, fixture)
    print("cat {:.1e}, in the model {:.1e}; linear {:.1e}, in the model {:.1e};"
          " svd {:.1e}".format(*worst, away))
    # an adapter has the float32 of its terms; peft adds by float32 weights
    return worst[1] < 1e-9 and max(worst + [away]) < 1e-5


def truncated(build, place, starts, fixture):
    """How far what an adapter of rank 3 adds is from peft's svd."""
    model = peft.PeftModel.from_pretrained(base("llama3_gqa_tied"), starts[0],
                                           adapter_name="0")
    model.load_adapter(starts[1], adapter_name="1")
    model.double().add_weighted_adapter(
        ["0", "1"], [0.7, -0.3], "sum", combination_type="svd", svd_rank=3)
    out = os.path.join(place, "svd")
    tool(build, "merge", "--svd", "3", starts[0] + "=0.7", starts[1] + "=-0.3",
         out)
    ours = peft.PeftModel.from_pretrained(base("llama3_gqa_tied"), out)
    theirs = dict(model.named_modules())
    return max(
        (module.get_delta_weight("default")
         - theirs[name].get_delta_weight("sum")).abs().max().item()
        for name, module in ours.double().named_modules()
        if hasattr(module, "get_delta_weight") and module.lora_A)


def main():
    build_dir = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as place:
        good = added(build_dir, place)
    # one expert's adapter is no file's here; torch reads no codes
    names = [n for n, (fixture, _) in CASES.items()
             if n != OLDER and not fixture.startswith("../qlora")]
    sys.exit(not all([files(build_dir, n) for n in names] + [good]))


if __name__ == "__main__":
    main()
