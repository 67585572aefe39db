#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a mixture of experts costs on two threads, each figure beside its
target: configs/recipes/bench_moe.yaml, 8 experts, top-2, 64 rows an expert.

  moe.py --python VENV/bin/python [--launches 9] [--build build]
         [--dtype bf16] [--threads 2]

Everything that is compared is launched in turn, in one run: the grouped
products and dense ones of as many rows, our step, transformers' own step with
each of its implementations of the experts (peer_moe.py; the fastest counts),
and a profiled training. Medians are taken. Without --python (the environment
of tests/golden/README.md) the third figure is left out. Exit code 1 when a
target is missed; use a quiet machine: the last line tells how busy it was with
other work.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile

import interleave
from parallel import HERE, RECIPES, output, reached, routing_share

RECIPE = os.path.join(RECIPES, "bench_moe.yaml")
PRODUCTS = {"linear": "forward", "linear_dx": "gradient of x",
            "linear_dw": "gradient of w"}
PEERS = ("eager", "grouped_mm")
TUNED = ("env OMP_WAIT_POLICY=passive GLIBC_TUNABLES="
         "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=8589934592:"
         "glibc.malloc.trim_threshold=17179869184:"
         "glibc.malloc.top_pad=1073741824")


class Bench:
    def __init__(self, args, place):
        self.args = args
        self.times = {}
        self.others = []
        self.text = os.path.join(place, "text")
        self.profile = os.path.join(place, "profile")
        output(f"{self.tool('loong-data')} index --tokenizer bytes "
               f"--append-eod --quiet --output-prefix {self.text} {HERE}")

    def tool(self, name):
        path = os.path.join(self.args.build, name)
        return f"OMP_NUM_THREADS={self.args.threads} {path}"

    def note(self, name, value):
        self.times.setdefault(name, []).append(value)

    def median(self, name):
        return statistics.median(self.times[name])

    def product(self, op, shape):
        """The fastest of its kernels, which is the one that runs take."""
        lines = output(f"{self.tool('loong-bench')} op --op {op} --shape "
                       f"{shape} --threads {self.args.threads} --dtype "
                       f"{self.args.dtype} --json").splitlines()
        self.note(op, min(json.loads(line)["ms_median"] for line in lines))

    def step(self, name, command):
        result = interleave.launch(command)
        self.note(name, result["ms"])
        self.others.append(result["others"] + result["steal"])

    def routing(self):
        table = output(
            f"{self.tool('loongrun')} {RECIPE} train.train_iters=12 "
            f"precision.params_dtype={self.args.dtype} "
            f"'data.train=[{{path: {self.text}}}]' "
            f"--profile {self.profile} 2>&1")
        self.note("routing", routing_share(table))

    def turn(self):
        for op in PRODUCTS:
            self.product(op, "512,1536,512")
            self.product("grouped_" + op, "8,64,1536,512")
        self.step("ours", f"{self.tool('loong-bench')} step --json "
                  f"--floor-seconds 0 {RECIPE} "
                  f"precision.params_dtype={self.args.dtype}")
        for peer in PEERS if self.args.python else ():
            self.step(peer, f"{TUNED} {self.args.python} "
                      f"{os.path.join(HERE, 'peer_moe.py')} {peer} "
                      f"{self.args.dtype} --threads {self.args.threads}")
        self.routing()

    def tell(self):
        good = True
        for op, name in PRODUCTS.items():
            ratio = self.median(op) / self.median("grouped_" + op)
            good &= reached(name, "rate of grouped / dense, 64 rows", ratio,
                            0.80, None)
        good &= reached("routing", "router and moving rows / computation",
                        self.median("routing"), None, 0.10)
        if self.args.python:
            best = min(map(self.median, PEERS))
            good &= reached("step", f"transformers' best, {best:.0f} ms, / "
                            f"ours, {self.median('ours'):.0f}",
                            best / self.median("ours"), 1.3, None)
        print(f"{self.args.dtype}, {self.args.threads} threads, "
              f"{self.args.launches} launches of each; other work "
              f"{statistics.median(self.others):.1%} of the machine")
        return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", help="that has transformers")
    parser.add_argument("--launches", type=int, default=9)
    parser.add_argument("--build", default="build")
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(args, place)
        for number in range(args.launches):
            bench.turn()
            print(f"{number + 1}/{args.launches}", file=sys.stderr)
        sys.exit(0 if bench.tell() else 1)


if __name__ == "__main__":
    main()
