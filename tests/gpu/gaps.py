#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What share of a training nothing runs on the GPU.

  gaps.py --build DIR --name NAME RECIPE [KEY=VALUE...]

Traces `loong-bench step`: by nsys where it is on PATH, else by the library of
tests/gpu/trace.c, which needs CUPTI. Of what was traced the first two fifths
are left out: they are the start and the warm-up. One line of JSON.
"""
import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile

STEPS, WARM_UP, LEFT_OUT = 12, 2, 0.4
TABLES = ("KERNEL", "MEMCPY", "MEMSET")


def run(command, environment=None):
    done = subprocess.run(command, capture_output=True, text=True,
                          env=dict(os.environ, **(environment or {})))
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n"
                 + done.stdout[-1500:] + done.stderr[-1500:])


def by_nsys(command, work):
    base = os.path.join(work, "trace")
    run(["nsys", "profile", "-t", "cuda", "-s", "none", "--cpuctxsw=none",
         "--cuda-graph-trace=node", "-o", base, *command])
    run(["nsys", "export", "-t", "sqlite", "-o", base + ".sqlite",
         base + ".nsys-rep"])
    data = sqlite3.connect(base + ".sqlite")
    has = {name for name, in data.execute(
        "select name from sqlite_master where type = 'table'")}
    spans = []
    for table in TABLES:
        name = "CUPTI_ACTIVITY_KIND_" + table
        if name in has:
            spans += [(table == "KERNEL", begin, end) for begin, end
                      in data.execute(f"select start, end from {name}")]
    return spans


def by_cupti(command, work, library):
    path = os.path.join(work, "trace")
    run(command, dict(CUDA_INJECTION64_PATH=library, LOONG_TRACE=path))
    if not os.path.exists(path):
        sys.exit("gaps.py: the driver did not load " + library)
    spans = []
    with open(path) as f:
        for line in f:
            kind, begin, end = line.split()
            if kind == "dropped":
                sys.exit(f"gaps.py: CUPTI dropped {begin} records")
            spans.append((kind == "kernel", int(begin), int(end)))
    return spans


def measure(spans):
    """Share of the time without work; seconds; kernels."""
    spans.sort(key=lambda span: span[1])
    spans = spans[int(LEFT_OUT * len(spans)):]
    if len(spans) < 2:
        sys.exit(f"gaps.py: {len(spans)} spans were traced")
    first = last = spans[0][1]
    idle = 0
    for _, begin, end in spans:
        idle += max(begin - last, 0)
        last = max(last, end)
    return idle / (last - first), (last - first) * 1e-9, \
        sum(span[0] for span in spans)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("recipe")
    parser.add_argument("keys", nargs="*")
    args = parser.parse_args()
    command = [os.path.join(args.build, "loong-bench"), "step", "--json",
               "--floor-seconds", "0", "--steps", str(STEPS), args.recipe,
               "device=cuda", *args.keys]
    library = os.path.join(args.build, "libloong_trace.so")
    with tempfile.TemporaryDirectory() as work:
        if shutil.which("nsys"):
            tool, spans = "nsys", by_nsys(command, work)
        elif os.path.exists(library):
            tool, spans = "CUPTI", by_cupti(command, work, library)
        else:
            print(json.dumps(dict(
                gaps=args.name, not_run="no nsys on PATH, and no CUPTI when "
                "libloong_trace was to be built")))
            return
    share, seconds, kernels = measure(spans)
    steps = (STEPS + WARM_UP) * (1.0 - LEFT_OUT)
    print(json.dumps(dict(
        gaps=args.name, by=tool, share=share, seconds=seconds,
        kernels_per_step=round(kernels / steps))))


if __name__ == "__main__":
    main()
