#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long the large presets take to be built, planned and predicted, on one
core: the best of several runs of tests/models/test_dry_run.c, in processor
time, so that other work counts little.

  dry_run.py [--runs 3] [--build build]
"""
import argparse
import os
import re
import subprocess
import sys


def run(build):
    """{preset: (ranks, seconds)} of plans.h"""
    command = ["taskset", "-c", "0", os.path.join(build, "test_dry_run")]
    out = subprocess.run(
        command, capture_output=True, text=True,
        env=dict(os.environ, LOONG_PLANS="large", OMP_NUM_THREADS="1"))
    if out.returncode:
        sys.exit(out.stdout[-2000:] + out.stderr[-2000:])
    found = {}
    for block in out.stdout.split("\n\n"):
        name = re.search(r"^(\S+/\S+):\n", block, re.M)
        ranks = re.search(r"^ranks: (\d+)", block, re.M)
        seconds = re.search(r"^([\d.]+) s of one core", block, re.M)
        if name and ranks and seconds:
            found[name[1]] = int(ranks[1]), float(seconds[1])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--build", default="build")
    args = parser.parse_args()
    runs = [run(args.build) for _ in range(args.runs)]
    print("| `model:` | ranks | s of one core |\n|---|---|---|")
    for name, (ranks, _) in runs[0].items():
        print(f"| `{name}` | {ranks} | "
              f"{min(r[name][1] for r in runs):.2f} |")


if __name__ == "__main__":
    main()
