#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""report.py DEVICE DIR: makes report.json and report.md of the logs that
tests/gpu/run.sh left in DIR. The targets are those for one H200."""
import datetime
import json
import os
import re
import subprocess
import sys

# Of tests/gpu/recipes: parameters of the products of a layer, of the head;
# layers (0: as run), heads x their width, length, parameters by llm.c's count.
LAYER_8B = 4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336
MODELS = {
    "llama": (LAYER_8B, 4096 * 128256, 0, 4096, 4096, 0),
    "gpt2_124m": (12 * 768 ** 2, 768 * 50257, 12, 768, 1024, 124475904),
    "gpt2_1.5b": (12 * 1600 ** 2, 1600 * 50257, 48, 1600, 1024, 1557686400)}
DATASHEET = 989e12  # bf16 FLOP/s of an H200
BANDWIDTH_BOUND = ("rmsnorm", "add_rmsnorm", "rmsnorm_grad", "layernorm",
                   "add_layernorm", "layernorm_grad", "rope", "swiglu",
                   "swiglu_grad", "gelu", "gelu_grad", "adamw", "adamw_bf16",
                   "adamw_stochastic", "cast", "add")
LLAMA, LARGE, SMALL = "llama", "gpt2_1.5b", "gpt2_124m"


def lines(name):
    path = os.path.join(out, name)
    if not os.path.exists(path):
        return []
    with open(path, errors="replace") as f:
        return f.read().splitlines()


def records(name):
    found = []
    for line in lines(name):
        if line.startswith("{"):
            try:
                record = json.loads(line)
                if "recipe" in record:  # not where it lay
                    record["recipe"] = os.path.basename(record["recipe"])
                found.append(record)
            except ValueError:
                print(f"report.py: {name}: not JSON: {line[:100]}",
                      file=sys.stderr)
    return found


def commit():
    here = os.path.dirname(os.path.abspath(__file__))
    try:
        made = subprocess.run(["git", "-C", here, "rev-parse", "--short",
                               "HEAD"], capture_output=True, text=True)
    except FileNotFoundError:  # a bare machine has no git
        return "unknown"
    return made.stdout.strip() or "unknown"


def flops(record):
    """Operations a token of a training step: products, and the causal half of
    attention, forward and twice that backward; and by llm.c's count, or 0."""
    layer, head, layers, width, length, theirs = MODELS[record["step"]]
    layers = layers or record["layers"]
    length = record.get("seq_length", length)
    mine = 6.0 * (layers * layer + head + layers * width * length)
    return mine, 6.0 * theirs + 6.0 * layers * width * length if theirs else 0


class Results:
    def __init__(self):
        self.stages = [dict(zip(("stage", "result", "seconds", "reason"),
                                line.split("\t"))) for line in
                       lines("stages.tsv")]
        self.kernels = records("kernels.log")
        self.steps = records("llama.log") + records("gpt2.log")
        trained = records("training.log")
        self.training = [r for r in trained if "training" in r]
        self.graphs = [r for r in trained if "graphs" in r]
        self.libraries = [r for r in records("doctor.log") if "library" in r]
        self.gaps = [r for r in records("gaps.log") if "gaps" in r]
        for r in self.steps:
            if "tokens_per_second" in r:
                mine, theirs = flops(r)
                r["tflops"] = mine * r["tokens_per_second"] * 1e-12
                r["share_by_llmc"] = theirs * r["tokens_per_second"] \
                    / DATASHEET

    def why(self, stage):
        """Why a stage has no result."""
        for s in self.stages:
            if s["stage"] == stage:
                return s.get("reason") or s["result"]
        return f"stage {stage} was not asked for"

    def ours(self, op):
        found = [r for r in self.kernels if r.get("op") == op
                 and "kernel" in r and r["ms_median"] > 0]
        return min(found, key=lambda r: r["ms_median"]) if found else None

    def peer(self, op):
        for r in self.kernels:
            if r.get("op") == op and "kernel" not in r and "ms_median" in r:
                return r
        return None

    def roof(self, op, key):
        """The better of PyTorch's and ours in this run."""
        return max([r[key] for r in (self.ours(op), self.peer(op)) if r],
                   default=None)

    def step(self, name, by, layers=None, dtype="bf16"):
        for r in self.steps:
            if r.get("step") == name and r.get("by", "").startswith(by) \
                    and r.get("dtype", dtype) == dtype \
                    and layers in (None, r.get("layers")) \
                    and r.get("seq_length", MODELS[name][4]) \
                    == MODELS[name][4]:
                return r
        return None


# ---- the table of targets ----------------------------------------------------


def against(r, name, by, target, stage):
    """Our rate over a peer's, with as many layers where both ran so."""
    other = r.step(name, by)
    ours = other and r.step(name, "libloong", other.get("layers")) \
        or r.step(name, "libloong")
    what = f"{name}: against {by}"
    if not ours or "tflops" not in ours:
        return what, target, None, r.why(stage)
    if not other or "tflops" not in other:
        return what, target, None, (other or {}).get(
            "not_run", f"no step of {by} in {stage}.log")
    ratio = ours["tflops"] / other["tflops"]
    return what, target, ratio, "{:.2f} x ({:.0f} and {:.0f} TFLOP/s)".format(
        ratio, ours["tflops"], other["tflops"])


def of_step(r, name, key, target, stage, scale, unit):
    ours = r.step(name, "libloong")
    what = f"{name}: {unit}"
    if not ours or key not in ours:
        return what, target, None, r.why(stage)
    return what, target, ours[key] * scale, f"{ours[key] * scale:.1f}"


def bandwidth(r):
    copy = r.roof("copy", "gbytes_per_s")
    for op in BANDWIDTH_BOUND:
        ours = r.ours(op)
        what = f"{op}: share of a copy, %"
        if not ours or not copy:
            yield what, 85.0, None, r.why("kernels") if not r.kernels \
                else f"no figure of {op if copy else 'a copy'}"
        else:
            share = 100.0 * ours["gbytes_per_s"] / copy
            yield what, 85.0, share, f"{share:.0f} ({ours['gbytes_per_s']:.0f}"\
                " GB/s)"


def attention(r):
    for op in ("attention", "attention_grad"):
        ours, peer = r.ours(op), r.peer(op)
        what = f"{op}, S 8192 causal d128: share of PyTorch's rate, %"
        if not ours or not peer:
            yield what, 50.0, None, "no figure of " + (
                "PyTorch" if ours else op)
        else:
            share = 100.0 * peer["ms_median"] / ours["ms_median"]
            yield what, 50.0, share, "{:.0f} ({:.0f} TFLOP/s; {})".format(
                share, ours["gflops"] * 1e-3, peer.get("attention", "unknown"))


def fused(r):
    for op, by in (("attention", "attention_fused"),
                   ("attention_grad", "attention_fused_grad")):
        ours, cudnn = r.ours(op), r.ours(by)
        what = f"{op}, S 8192 causal d128: share of cuDNN's rate, %"
        if not ours or not cudnn:
            yield what, 50.0, None, f"no figure of {by if ours else op}"
        else:
            share = 100.0 * ours["gflops"] / cudnn["gflops"]
            yield what, 50.0, share, "{:.0f} ({:.0f} of {:.0f} TFLOP/s)"\
                .format(share, ours["gflops"] * 1e-3, cudnn["gflops"] * 1e-3)


def gaps(r):
    for name in (SMALL, LARGE, LLAMA):
        found = [g for g in r.gaps if g["gaps"] == name]
        what = f"{name}: time between kernels, % of a step"
        if not found or "share" not in found[0]:
            yield what, -3.0, None, found[0]["not_run"] if found \
                else r.why("gaps")
        else:
            share = 100.0 * found[0]["share"]
            yield what, -3.0, share, "{:.2f} (by {}, {} kernels)".format(
                share, found[0]["by"], found[0]["kernels_per_step"])


def memory(r):
    for name, stage in ((LLAMA, "llama"), (LARGE, "gpt2")):
        ours = r.step(name, "libloong")
        what = f"{name}: memory above --dry-run, %"
        if not ours or not ours.get("planned_bytes"):
            yield what, -2.0, None, r.why(stage)
        else:
            over = 100.0 * (ours["taken_bytes"] / ours["planned_bytes"] - 1)
            yield what, -2.0, over, "{:+.2f} ({:.2f} of {:.2f} GiB)".format(
                over, ours["taken_bytes"] / 2 ** 30,
                ours["planned_bytes"] / 2 ** 30)


def targets(r):
    """(what, target, reached or None, text); below 0: at most so much."""
    yield of_step(r, LLAMA, "tflops", 480.0, "llama", 1.0, "TFLOP/s")
    yield against(r, LLAMA, "torch", 1.05, "llama")
    yield of_step(r, LARGE, "share_by_llmc", 48.0, "gpt2", 100.0,
                  "% of 989 TFLOP/s by llm.c's formula")
    yield against(r, LARGE, "llm.c", 1.05, "gpt2")
    yield against(r, SMALL, "llm.c", 1.05, "gpt2")
    yield against(r, LARGE, "torch", 1.05, "gpt2")
    yield against(r, SMALL, "torch", 1.05, "gpt2")
    yield from bandwidth(r)
    yield from attention(r)
    yield from fused(r)
    yield from gaps(r)
    yield from memory(r)


def verdict(target, reached):
    if reached is None:
        return ""
    met = reached <= -target if target < 0 else reached >= target
    return "met" if met else "**missed**"


# ---- the other tables --------------------------------------------------------


def shown(target):
    return f"<= {-target:g}" if target < 0 else f">= {target:g}"


def kernel_row(r, k):
    product = max((x["gflops"] for x in r.kernels if "ms_median" in x
                   and x["op"].startswith(("linear", "product"))), default=0)
    copy = r.roof("copy", "gbytes_per_s")
    bound = k["gflops"] / product if product else 0.0
    moved = k["gbytes_per_s"] / copy if copy else 0.0
    share = ""
    if bound or moved:
        share = f"{100 * max(bound, moved):.0f} % of the " \
            + ("product" if bound > moved else "copy")
    peer = r.peer(k["op"])
    return "| {} | {} | {} | {:.3f} | {:.1f} | {:.0f} | {} | {} |".format(
        k["op"], k["kernel"], "x".join(map(str, k["shape"])), k["ms_median"],
        k["gflops"] * 1e-3, k["gbytes_per_s"], share,
        f"{peer['ms_median'] / k['ms_median']:.2f}" if peer else "")


def write_tables(r, put):
    put("\n## Stages\n\n| stage | result | seconds |\n|---|---|---|")
    for s in r.stages:
        reason = f": {s['reason']}" if s.get("reason") else ""
        put(f"| {s['stage']} | {s['result']}{reason} | {s['seconds']} |")
    put("\n## Libraries\n\n| library | version | from |\n|---|---|---|")
    for x in r.libraries:
        put(f"| {x['library']} | {x.get('version', 'not found')} | "
            f"{x.get('path', '')} |")
    put("\n## Training beside the processor\n\n| type | result | steps | loss: "
        "distance, allowed, processor's | norm: the same | loss at the end |"
        "\n|---|---|---|---|---|---|")
    for t in r.training:
        far = [f"{t['distance'][k]:.2e}, {t['allowed'][k]:.2e}, "
               f"{t['processor'][k]:.2e}" for k in (0, 1)]
        end = t["loss_at_end"]
        put(f"| {t['training']} | {'passed' if t['passed'] else 'FAILED'} | "
            f"{t['steps']} | {far[0]} | {far[1]} | "
            f"{'' if end is None else f'{end:.4f}'} |")
    put("\n## The same training as CUDA graphs\n\n| type | bits of a training "
        "without | steps | graphs |\n|---|---|---|---|")
    for g in r.graphs:
        put(f"| {g['graphs']} | {'equal' if g['equal'] else '**DIFFERENT**'} "
            f"| {g['steps']} | {g['count']} |")
    put("\n## Steps\n\n| model | by | type | layers | length | attention | ms "
        "| tokens/s | TFLOP/s |\n|---|---|---|---|---|---|---|---|---|")
    for s in r.steps:
        if "tflops" in s:
            put("| {} | {} | {} | {} | {} | {} | {:.1f} | {:.0f} | {:.1f} |"
                .format(
                s["step"], s["by"], s.get("dtype", "bf16"),
                s.get("layers") or MODELS[s["step"]][2],
                s.get("seq_length", MODELS[s["step"]][4]),
                s.get("attention", ""), s["ms_median"],
                s["tokens_per_second"], s["tflops"]))
        else:
            put(f"| {s.get('step')} | {s.get('by')} | {s.get('dtype', '')} | "
                f"not run: {s.get('not_run')} | | | | | |")
    put("\n## Kernels of a step\n\n| model | kernel | ms | launches |\n"
        "|---|---|---|---|")
    for g in r.gaps:
        for name, ms, launches in g.get("kernels", ()):
            put(f"| {g['gaps']} | `{name}` | {ms} | {launches} |")
    put("\n## Kernels\n\n| op | kernel | shape | ms | TFLOP/s | GB/s | of the "
        "roof | PyTorch's time / ours |\n|---|---|---|---|---|---|---|---|")
    for k in r.kernels:
        if "kernel" in k:
            put(kernel_row(r, k))
        elif "not_run" in k:
            put(f"| {k['op']} | {k['by']} | not run: {k['not_run']} "
                "| | | | | |")


def main():
    r = Results()
    rows = list(targets(r))
    report = dict(
        device=device, commit=commit(),
        date=datetime.date.today().isoformat(), stages=r.stages,
        targets=[dict(what=w, target=t, reached=v, text=x)
                 for w, t, v, x in rows],
        training=r.training, graphs=r.graphs, steps=r.steps, gaps=r.gaps,
        kernels=r.kernels, libraries=r.libraries,
        tests=[line.strip() for name in ("ops.log", "golden.log")
               for line in lines(name) if re.search(r"Test +#", line)],
        sanitizer=[line for line in lines("sanitizer.log")
                   if "ERROR SUMMARY" in line or "RACECHECK SUMMARY" in line
                   or line.startswith("== ")])
    with open(os.path.join(out, "report.json"), "w") as f:
        json.dump(report, f, indent=1)
        f.write("\n")
    with open(os.path.join(out, "report.md"), "w") as f:
        def put(line):
            print(line, file=f)
        put(f"# {device}\n\n{report['date']}, commit {report['commit']}, by "
            "`tests/gpu/run.sh`.\n\n| what | target | reached | reached / "
            "target | |\n|---|---|---|---|---|")
        for what, target, value, text in rows:
            said = text if value is not None else f"not run: {text}"
            ratio = f"{value / abs(target):.2f}" if value is not None else ""
            put(f"| {what} | {shown(target)} | {said} | {ratio} | "
                f"{verdict(target, value)} |")
        write_tables(r, put)


device, out = sys.argv[1:]
main()
