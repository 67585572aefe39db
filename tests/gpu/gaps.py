#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What share of a training nothing runs on the GPU, and what runs else.

  gaps.py --build DIR --name NAME RECIPE [KEY=VALUE...]

Traces `loong-bench step`: by nsys where it is on PATH, else by the library of
tests/gpu/trace.c, which needs CUPTI. Of what was traced the first two fifths
are left out: they are the start and the warm-up. One line of JSON; the kernels
that take the most come with their milliseconds and launches of a step.
"""
import argparse
import collections
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile

STEPS, WARM_UP, LEFT_OUT = 12, 2, 0.4
TABLES = ("KERNEL", "MEMCPY", "MEMSET")
SHOWN = 25  # kernels


def run(command, environment=None):
    done = subprocess.run(command, capture_output=True, text=True,
                          env=dict(os.environ, **(environment or {})))
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n"
                 + done.stdout[-1500:] + done.stderr[-1500:])
    return done


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
        if name not in has:
            continue
        what = "select start, end, '' from " + name
        if table == "KERNEL":
            what = (f"select start, end, value from {name} join StringIds "
                    "on mangledName = id")
        spans += [(table == "KERNEL", begin, end, kernel or table.lower())
                  for begin, end, kernel in data.execute(what)]
    return spans


def by_cupti(command, work, library):
    path = os.path.join(work, "trace")
    library = os.path.abspath(library)
    said = run(command, dict(LD_PRELOAD=library, LOONG_TRACE=path))
    if not os.path.exists(path):
        sys.exit(f"gaps.py: there is no trace by {library}: "
                 + said.stderr[-1500:])
    spans = []
    with open(path) as f:
        for line in f:
            kind, begin, end, name = line.rstrip("\n").split(" ", 3)
            if kind == "dropped":
                sys.exit(f"gaps.py: CUPTI dropped {begin} records")
            spans.append((kind == "kernel", int(begin), int(end), name))
    return spans


def measure(spans):
    """Share of the time without work; seconds; kernels; and of each name the
    nanoseconds and the launches."""
    spans.sort(key=lambda span: span[1])
    spans = spans[int(LEFT_OUT * len(spans)):]
    if len(spans) < 2:
        sys.exit(f"gaps.py: {len(spans)} spans were traced")
    first = last = spans[0][1]
    idle = 0
    names = collections.defaultdict(lambda: [0, 0])
    for _, begin, end, name in spans:
        names[name][0] += end - begin
        names[name][1] += 1
        idle += max(begin - last, 0)
        last = max(last, end)
    return idle / (last - first), (last - first) * 1e-9, \
        sum(span[0] for span in spans), names


def plain(names):
    """The functions of mangled names, where there is a tool for it."""
    if shutil.which("c++filt") is None:
        return names
    said = subprocess.run(["c++filt", "-p"], input="\n".join(names),
                          capture_output=True, text=True)
    return said.stdout.splitlines()


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
    share, seconds, kernels, names = measure(spans)
    steps = (STEPS + WARM_UP) * (1.0 - LEFT_OUT)
    most = sorted(names.items(), key=lambda name: -name[1][0])[:SHOWN]
    print(json.dumps(dict(
        gaps=args.name, by=tool, share=share, seconds=seconds,
        kernels_per_step=round(kernels / steps),
        kernels=[(name[:100], round(ns / steps * 1e-6, 2),
                  round(count / steps, 1)) for name, (_, (ns, count))
                 in zip(plain([name for name, _ in most]), most)])))


if __name__ == "__main__":
    main()
