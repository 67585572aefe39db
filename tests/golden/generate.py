#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes or checks the golden fixtures.

  generate.py                    writes fixtures/ beside this file
  generate.py --only NAME        only this fixture
  generate.py --check            regenerates elsewhere and compares
  generate.py --trace NAME DIR   every module's output, in float64, for
                                 finding where a mismatch begins

What the files hold is described in README.md.
"""
import argparse
import json
import os
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers.utils import logging

import disguise
import model as golden
import narrow
import router_losses
import train
from cases import CASES, SEEDS
from wide import widened

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "fixtures")
SEED = 20260101


def relative_error(value, exact):
    exact = exact.double()
    return ((value.double() - exact).norm() / exact.norm()).item()


def narrow_report(wide, narrow):
    """How far a narrower run of the same code lies from float64."""
    pairs = {n: (narrow["grads"][n], g) for n, g in wide["grads"].items()}
    errors = {n: relative_error(*pair) for n, pair in pairs.items()}
    worst = max(errors, key=errors.get)
    flat = [torch.cat([t.double().flatten() for t in side])
            for side in zip(*pairs.values())]
    return dict(
        logits=relative_error(narrow["logits"], wide["logits"]),
        logits_max_abs=(narrow["logits"].double() - wide["logits"]).abs()
        .max().item(),
        loss=relative_error(narrow["loss"], wide["loss"]),
        grads_together=relative_error(*flat),
        grad_worst=dict(name=worst, error=errors[worst]))


def config_v4(config_path, case):
    """The same config as transformers 4 wrote it."""
    with open(config_path) as f:
        config = json.load(f)
    config["transformers_version"] = "4.51.3"
    config["torch_dtype"] = config.pop("dtype")
    config.pop("layer_types", None)
    rope = config.pop("rope_parameters", None)
    if rope is not None:
        config["rope_theta"] = rope.pop("rope_theta")
        kind = rope.pop("rope_type")
        config["rope_scaling"] = (
            None if kind == "default" else {case.v4_type_key: kind, **rope})
    if case.family == "qwen2":
        config["sliding_window"] = config["sliding_window"] or 4096
    if case.family == "llama" and "head_dim" not in case.config:
        config.pop("head_dim")
    return config


def write_config_v4(config, case, folder):
    path = os.path.join(folder, "config_v4.json")
    with open(path, "w") as f:
        json.dump(config_v4(os.path.join(folder, "config.json"), case),
                  f, indent=2)
        f.write("\n")
    read = type(config).from_json_file(path).to_dict()
    written = config.to_dict()
    for key in ("transformers_version", "torch_dtype", "dtype"):
        read.pop(key, None), written.pop(key, None)
    for side in (read, written):  # "type" stays beside "rope_type"
        (side.get("rope_parameters") or {}).pop("type", None)
    assert read == written, (read, written)


def packed_extras(case, wide, config, weights, batch):
    """Bounds and positions; transformers' own packing must agree."""
    spans = golden.document_spans(case)
    bounds = [0]
    for _, begin, end in spans:
        bounds.append(bounds[-1] + end - begin)
    positions = torch.cat([torch.arange(e - b) for _, b, e in spans])
    positions = positions.reshape(batch[0].shape)
    with widened():
        model = golden.build_wide(config, weights)
        packed = model(input_ids=batch[0], position_ids=positions,
                       use_cache=False).logits
    assert relative_error(packed, wide["logits"]) < 1e-13
    return dict(cu_seqlens=torch.tensor(bounds), position_ids=positions)


def check_loading(folder, case, batch, wide):
    """The directory alone gives the same logits, through from_pretrained."""
    with widened():
        model, info = golden.class_for(wide["config"]).from_pretrained(
            folder, dtype=torch.float64, attn_implementation="eager",
            experts_implementation="eager", output_loading_info=True)
        assert not any(info.values()), info
        with torch.no_grad():
            logits = golden.forward(model.eval(), batch[0], case)
    assert torch.equal(logits, wide["logits"])


def generate(case, seed, folder):
    """One fixture directory; returns the table row for README.md."""
    config = golden.make_config(case)
    weights = golden.make_weights(golden.build_skeleton(config), seed,
                                  case.embedding_std)
    plain = golden.build(config, weights, torch.float32)
    plain.save_pretrained(folder)
    batch = golden.make_tokens(case, config.get_text_config().vocab_size, seed)

    wide = golden.run_wide(config, weights, case, batch)
    check_loading(folder, case, batch, dict(wide, config=config))
    f32 = golden.run(plain, case, batch)
    bf16 = golden.run(golden.build(config, weights, torch.bfloat16),
                      case, batch)
    stock = golden.run(
        golden.build(config, weights, torch.float32).double(), case, batch)

    tensors = dict(input_ids=batch[0], labels=batch[1],
                   loss_weights=batch[2])
    if case.vision_ids:
        tensors["token_types"] = golden.token_types(batch[0], case).long()
    if case.documents:
        tensors |= packed_extras(case, wide, config, weights, batch)
    tensors |= {k: wide[k] for k in
                ("logits", "nll", "lse", "loss", "loss_sum")}
    tensors |= {"grad." + named(case, n): g
                for n, g in wide["grads"].items()}
    for suffix, result in (("32", f32), ("_bf16", bf16)):
        tensors |= {"logits" + suffix: result["logits"],
                    "loss" + suffix: result["loss"],
                    "loss" + suffix + "_sum": result["loss_sum"]}
    save(tensors, os.path.join(folder, "golden.safetensors"))

    if case.routed:
        save(router_tensors(case, config, weights, batch[0]),
             os.path.join(folder, "router_losses.safetensors"))
    if case.v4:
        write_config_v4(config, case, folder)
    if case.train:
        save(train.train(config, weights, seed),
             os.path.join(folder, "train_golden.safetensors"))
    if case.disguise:
        disguise.put_on(case.disguise, folder)
    info = dict(float32=narrow_report(wide, f32),
                bfloat16=narrow_report(wide, bf16),
                stock_double=narrow_report(wide, stock))
    with open(os.path.join(folder, "info.json"), "w") as f:
        json.dump(info, f, indent=1)
        f.write("\n")
    lines = [f"{json.dumps(envelope_name(case, n))}: {json.dumps(v)}"
             for n, v in
             narrow.envelope(config, weights, case, batch, wide).items()]
    with open(os.path.join(folder, "bf16.json"), "w") as f:
        f.write("{\n" + ",\n".join(lines) + "\n}\n")
    return info


def named(case, parameter):
    """The name of a parameter's gradient in the files."""
    parameter = parameter.replace("model.language_model.", "model.")
    return (disguise.gradient_name(case.disguise, parameter)
            if case.disguise else parameter)


def router_tensors(case, config, weights, ids):
    tensors = router_losses.run(config, weights, case, ids)
    return {envelope_name(case, n): t for n, t in tensors.items()}


def envelope_name(case, name):
    return ("grad." + named(case, name[5:]) if name.startswith("grad.")
            else name)


def save(tensors, path):
    save_file({k: v.contiguous() for k, v in tensors.items()}, path,
              metadata={"format": "pt"})


def same_config(left, right):
    with open(left) as a, open(right) as b:
        a, b = json.load(a), json.load(b)
    return a == b


# relative error allowed between two machines, by type of the stored tensor
CHECK_BOUNDS = {torch.float64: 1e-11, torch.float32: 1e-4,
                torch.bfloat16: 5e-2}


def compare_tensors(left, right):
    a, b = load_file(left), load_file(right)
    if a.keys() != b.keys():
        return [f"tensors differ: {sorted(a.keys() ^ b.keys())[:5]}"]
    problems = []
    for name, x in a.items():
        y = b[name]
        if x.shape != y.shape or x.dtype != y.dtype:
            problems.append(f"{name}: {x.dtype}{list(x.shape)} became "
                            f"{y.dtype}{list(y.shape)}")
        elif not x.is_floating_point():
            if not torch.equal(x, y):
                problems.append(f"{name}: values differ")
        else:
            # loss*_bf16 is stored wider than it was computed
            bound = CHECK_BOUNDS[torch.bfloat16 if "bf16" in name
                                 else x.dtype]
            error = relative_error(y, x) if x.any() else y.abs().max().item()
            if not error <= bound:
                problems.append(f"{name}: relative error {error:.2e} is "
                                f"above {bound:.0e}")
    return problems


# Two estimates from independent roundings, 32 each, differ by a fifth when
# one direction carries the whole error; the seeds are even the same.
ENVELOPE_BOUND = 0.5


def compare_envelopes(left, right):
    with open(left) as a, open(right) as b:
        a, b = json.load(a), json.load(b)
    if a.keys() != b.keys():
        return [f"tensors differ: {sorted(a.keys() ^ b.keys())[:5]}"]
    routing = a.pop("routing", None), b.pop("routing", None)
    if routing[0] != routing[1]:
        return ["other experts"]
    return [f"{name}: {x} became {b[name]}" for name, x in a.items()
            if any(abs(u - v) > ENVELOPE_BOUND * u
                   for u, v in zip(x, b[name]))]


def compare_folders(committed, fresh):
    problems = []
    names = sorted(set(os.listdir(committed)) | set(os.listdir(fresh)))
    for name in names:
        left, right = (os.path.join(d, name) for d in (committed, fresh))
        if not (os.path.exists(left) and os.path.exists(right)):
            problems.append(f"{name}: only on one side")
        elif name == "model.safetensors":
            with open(left, "rb") as a, open(right, "rb") as b:
                if a.read() != b.read():
                    problems.append(f"{name}: bytes differ")
        elif name.endswith(".safetensors"):
            problems += [f"{name}: {p}" for p in compare_tensors(left, right)]
        elif name == "bf16.json":
            problems += [f"{name}: {p}"
                         for p in compare_envelopes(left, right)]
        elif name != "info.json" and not same_config(left, right):
            problems.append(f"{name}: contents differ")
    return problems


def check(cases):
    failed = 0
    with tempfile.TemporaryDirectory() as fresh:
        for number, case in cases:
            folder = os.path.join(fresh, case.name)
            generate(case, SEED + number, folder)
            problems = compare_folders(
                os.path.join(FIXTURES, case.name), folder)
            print(("FAIL " if problems else "ok   ") + case.name, flush=True)
            for problem in problems:
                print("     " + problem)
            failed += bool(problems)
    print(f"{len(cases) - failed} passed, {failed} failed")
    return failed != 0


def trace(case, folder):
    """Outputs of all modules of a committed fixture, named by module."""
    source = os.path.join(FIXTURES, case.name)
    batch = load_file(os.path.join(source, "golden.safetensors"))
    inputs = {k: batch[k] for k in ("input_ids", "position_ids")
              if k in batch}
    if case.vision_ids:
        inputs["moe_mm_token_type_ids"] = batch["token_types"].int()
    weights = load_file(os.path.join(source, "model.safetensors"))
    outputs = {}

    def hook_for(name):
        def hook(module, args, output):
            output = output[0] if isinstance(output, tuple) else output
            if isinstance(output, torch.Tensor):
                outputs[name] = output.detach().clone()
        return hook

    with widened():
        config = golden.make_config(case)
        model = golden.build_wide(config, weights)
        for name, module in model.named_modules():
            module.register_forward_hook(hook_for(name))
        model(**inputs, use_cache=False)
    os.makedirs(folder, exist_ok=True)
    save(outputs, os.path.join(folder, case.name + ".trace.safetensors"))
    for name, value in outputs.items():
        print(f"{name:50} {list(value.shape)}  norm {value.norm():.15g}")


def print_row(name, info):
    parts = [f"{name:20}"]
    for kind in ("stock_double", "float32", "bfloat16"):
        r = info[kind]
        parts.append(f"{r['logits']:.1e} {r['loss']:.1e} "
                     f"{r['grads_together']:.1e} "
                     f"{r['grad_worst']['error']:.1e}")
    print(" | ".join(parts), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", metavar="NAME")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--trace", nargs=2, metavar=("NAME", "DIR"))
    args = parser.parse_args()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    only = args.trace[0] if args.trace else args.only
    cases = [(SEEDS[c.name], c) for c in CASES if only in (None, c.name)]
    if not cases:
        sys.exit(f"no case is named {only!r}")
    if args.trace:
        return trace(cases[0][1], args.trace[1])
    if args.check:
        return check(cases)
    print("relative errors (logits loss all-gradients worst-gradient) of: "
          "stock .double() | float32 | bfloat16")
    for number, case in cases:
        print_row(case.name, generate(
            case, SEED + number, os.path.join(FIXTURES, case.name)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
