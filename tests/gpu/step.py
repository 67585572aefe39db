#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of a recipe on the GPU, by loong-bench, and the memory they take.

  step.py --build DIR --name NAME RECIPE [KEY=VALUE...]
  step.py --build DIR --layers-that-fit RECIPE [KEY=VALUE...]

The first prints one line of JSON: what `loong-bench step --json` says, the
memory that nvidia-smi saw at most less what was taken before, and the memory
that `loongrun --dry-run` plans. The second prints how many layers of the model
this GPU has room for, by that plan.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import threading

UNITS = {"B": 1, "KiB": 2 ** 10, "MiB": 2 ** 20, "GiB": 2 ** 30,
         "TiB": 2 ** 40}
ROOM = 0.92  # of the free memory: the rest is for the context and libraries
STEPS = 8
# What a line says of the recipe.
KEYS = dict(layers="model.foundation.num_layers", seq_length="data.seq_length",
            attention="train.attention_backend")


def device():
    """As nvidia-smi and CUDA_VISIBLE_DEVICES name it."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"


def query(what):
    """Bytes of memory on the GPU: `what` is memory.used or memory.free."""
    said = subprocess.run(
        ["nvidia-smi", "-i", device(), "--query-gpu=" + what,
         "--format=csv,noheader,nounits"], capture_output=True, text=True)
    number = said.stdout.strip()
    if said.returncode != 0 or not number.isdigit():
        sys.exit(f"step.py: nvidia-smi does not tell {what} of GPU "
                 f"{device()}: {(said.stdout + said.stderr).strip()}")
    return int(number) * 2 ** 20


def planned(args, keys):
    """Bytes that --dry-run plans, and what it expects beside them."""
    command = [os.path.join(args.build, "loongrun"), "--dry-run",
               "--elsewhere", args.recipe, "device=cuda",
               "data.train=[{path: none}]", *keys]
    said = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"^ *on the device +([\d.]+) (\w+)$", said.stdout, re.M)
    if said.returncode != 0 or not found:
        sys.exit(f"{' '.join(command)}: exit code {said.returncode}\n"
                 + said.stdout[-2000:] + said.stderr[-2000:])
    return float(found[1]) * UNITS[found[2]]


def layers_that_fit(args):
    """Memory grows with layers by equal parts."""
    few, more = (planned(args, [*args.keys,
                                f"model.foundation.num_layers={n}"])
                 for n in (2, 4))
    free = query("memory.free") * ROOM
    layers = int(2 + (free - few) / ((more - few) / 2)) if more > few else 0
    if layers < 1:
        sys.exit(f"step.py: not one layer fits: 2 need {few / 2 ** 30:.1f} "
                 f"GiB, {free / 2 ** 30:.1f} are free")
    return min(layers, 32)


class Watch(threading.Thread):
    """The most memory that is taken while something runs."""

    def __init__(self):
        super().__init__(daemon=True)
        self.before = self.most = query("memory.used")
        self.over = threading.Event()

    def run(self):
        while not self.over.wait(0.2):
            self.most = max(self.most, query("memory.used"))

    def taken(self):
        self.over.set()
        self.join()
        return self.most - self.before


def step(args):
    plan = planned(args, args.keys)
    watch = Watch()
    watch.start()
    command = [os.path.join(args.build, "loong-bench"), "step", "--json",
               "--floor-seconds", "0", "--steps", str(STEPS), args.recipe,
               "device=cuda", *args.keys]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    taken = watch.taken()
    lines = [line for line in said.stdout.splitlines()
             if line.startswith('{"bench"')]
    if said.returncode != 0 or not lines:
        sys.exit(f"{' '.join(command)}: exit code {said.returncode}\n"
                 + said.stdout[-2000:])
    record = json.loads(lines[-1])
    keys = dict(key.split("=", 1) for key in args.keys)
    record.update(step=args.name, by="libloong", planned_bytes=plan,
                  taken_bytes=taken)
    for name, key in KEYS.items():
        if key in keys:
            value = keys[key]
            record[name] = int(value) if value.isdigit() else value
    print(json.dumps(record), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--name")
    parser.add_argument("--layers-that-fit", action="store_true")
    parser.add_argument("recipe")
    parser.add_argument("keys", nargs="*")
    args = parser.parse_args()
    if args.layers_that_fit:
        print(layers_that_fit(args))
    else:
        step(args)


if __name__ == "__main__":
    main()
