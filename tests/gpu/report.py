#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""report.py DEVICE DIR: makes report.json and report.md of the logs that
tests/gpu/run.sh left in DIR."""
import datetime
import json
import os
import re
import subprocess
import sys

device, out = sys.argv[1:]


def lines(name):
    path = os.path.join(out, name)
    return open(path, errors="replace").read().splitlines() \
        if os.path.exists(path) else []


def records(name):
    return [json.loads(line) for line in lines(name) if line.startswith("{")]


def commit():
    here = os.path.dirname(os.path.abspath(__file__))
    made = subprocess.run(["git", "-C", here, "rev-parse", "--short", "HEAD"],
                          capture_output=True, text=True)
    return made.stdout.strip() or "unknown"


steps = [dict(zip(("step", "code", "seconds"), line.split("\t")))
         for line in lines("steps.tsv")]
ours, peers = records("bench.log"), records("peers.log")
peer = {r["op"]: r for r in peers}
copy = peer.get("roof copy", {}).get("gbytes_per_s")
product = peer.get("roof product", {}).get("gflops")
report = dict(device=device, commit=commit(), steps=steps, ours=ours,
              peers=peers, date=datetime.date.today().isoformat(),
              tests=[line.strip() for line in lines("ops.log")
                     if re.search(r"Test +#", line)],
              sanitizer=[line for line in lines("sanitizer.log")
                         if "ERROR SUMMARY" in line or line[:2] == "=="
                         and line[2:3] == " "])
with open(os.path.join(out, "report.json"), "w") as f:
    json.dump(report, f, indent=1)
    f.write("\n")


def share(value, roof):
    return f"{100 * value / roof:.0f} %" if roof and value else ""


def row(r):
    bound = r["gflops"] / product if product else 0.0
    moved = r["gbytes_per_s"] / copy if copy else 0.0
    of = share(r["gflops"], product) + " of the product" if bound > moved \
        else share(r["gbytes_per_s"], copy) + " of the copy"
    other = peer.get(r["op"])
    return "| {} | {} | {} | {:.3f} | {:.1f} | {:.0f} | {} | {} |".format(
        r["op"], r["kernel"], "x".join(map(str, r["shape"])), r["ms_median"],
        r["gflops"] * 1e-3, r["gbytes_per_s"], of if copy else "",
        f"{other['ms_median'] / r['ms_median']:.2f}" if other else "")


with open(os.path.join(out, "report.md"), "w") as f:
    print(f"# {device}\n\n{report['date']}, commit {report['commit']}, by "
          "`tests/gpu/run.sh`.\n\n| step | result | seconds |\n|---|---|---|",
          file=f)
    for s in steps:
        print(f"| {s['step']} | {'passed' if s['code'] == '0' else 'FAILED'} "
              f"| {s['seconds']} |", file=f)
    if copy:
        print(f"\nRoofs, by PyTorch: copy {copy:.0f} GB/s, product of 8192 "
              f"{product * 1e-3:.0f} TFLOP/s.", file=f)
    print("\n| op | kernel | shape | ms | TFLOP/s | GB/s | of the roof "
          "| PyTorch's time / ours |\n|---|---|---|---|---|---|---|---|",
          file=f)
    for r in ours:
        print(row(r), file=f)
