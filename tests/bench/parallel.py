#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What parallelism costs on two ranks, each figure beside its target.

  parallel.py [--launches 9] [--build build] [--set a.b=c]... [FIGURE]...

Launches of what is compared alternate, medians are taken (interleave.py). Keys
behind --set change all recipes. Exit code 1 when a target is missed; use a
quiet machine with two cores.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import interleave

HERE = os.path.dirname(os.path.abspath(__file__))
RECIPES = os.path.join(HERE, "..", "..", "configs", "recipes")
PIPELINE = ("train.micro_batch_size=1 train.global_batch_size=8 "
            "parallel.pipeline_model_parallel_size=2 ")
INTERLEAVED = ("schedule=interleaved "
               "parallel.num_layers_per_virtual_pipeline_stage=")
SHARDING = "train.micro_batch_size=2 parallel.data_parallel_sharding="


def reached(name, what, ratio, least, most):
    """Prints a figure beside its target; is it within?"""
    good = ((least is None or ratio >= least) and
            (most is None or ratio <= most))
    target = " and ".join(([f">= {least}"] if least else []) +
                          ([f"<= {most}"] if most else []))
    print(f"{name:16} {what:38} {ratio:6.3f}  {target:18} "
          f"{'reached' if good else 'MISSED'}", flush=True)
    return good


def routing_share(table):
    """What --profile tells of routers and moving rows, of the computation."""
    line = re.search(r"of which routing.*", table)[0]
    return sum(map(float, re.findall(r"([\d.]+)%", line))) / 100


def output(command):
    run = subprocess.run(command, shell=True, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{command}\n{run.stdout}{run.stderr}")
    return run.stdout


class Bench:
    def __init__(self, args):
        self.args = args
        self.keys = " " + " ".join(f"'{key}'" for key in args.set)

    def tool(self, name, ranks=1, threads=1):
        path = os.path.join(self.args.build, name)
        place = ("--bind-to core" if os.cpu_count() >= ranks else
                 "--oversubscribe")
        launcher = f"mpirun {place} -n {ranks} " if ranks > 1 else ""
        return f"OMP_NUM_THREADS={threads} {launcher}{path}"

    def step(self, keys, ranks=2, threads=1):
        recipe = os.path.join(RECIPES, "bench_llama.yaml")
        return (f"{self.tool('loong-bench', ranks, threads)} step --steps 4 "
                f"--floor-seconds 0 --json {recipe} {keys}{self.keys}")

    def medians(self, *commands):
        times = [[] for _ in commands]
        for _ in range(self.args.launches):
            for i, command in enumerate(commands):
                times[i].append(interleave.launch(command)["ms"])
        return [statistics.median(t) for t in times]

    def predicted(self, keys):
        recipe = os.path.join(RECIPES, "bench_llama.yaml")
        text = output(f"{self.tool('loongrun')} {recipe} --dry-run --ranks 2 "
                      f"{keys}{self.keys}")
        return float(re.search(r"predicted step: ([\d.]+) ms", text)[1])

    def rate(self, op, shape):
        lines = output(f"{self.tool('loong-bench')} op --op {op} --shape "
                       f"{shape} --threads 1 --cpu-time --json").splitlines()
        return max(json.loads(line)["gflops"] for line in lines)

    # ---- figures ----------------------------------------------------------

    def weak_scaling(self):
        one, two = self.medians(
            self.step("train.micro_batch_size=2 train.global_batch_size=2", 1),
            self.step("train.micro_batch_size=2"))
        return one / two

    def zero_3(self):
        one, three = self.medians(self.step(SHARDING + "optim"),
                                  self.step(SHARDING + "optim_grads_params"))
        return three / one

    def tensor_parallel(self):
        one, two = self.medians(
            self.step("", 1, 2),
            self.step("parallel.tensor_model_parallel_size=2"))
        return one / two

    def pipeline(self, schedule):
        keys = PIPELINE + schedule
        predicted = statistics.median(self.predicted(keys) for _ in range(3))
        return self.medians(self.step(keys))[0] / predicted

    def interleaved(self):
        return self.pipeline(INTERLEAVED + self.args.chunk)

    def zero_bubble(self):
        return self.pipeline("schedule=zero_bubble_h1")

    def dispatch(self):
        recipe = os.path.join(RECIPES, "bench_moe.yaml")
        shares = []
        with tempfile.TemporaryDirectory() as place:
            text = os.path.join(place, "text")
            output(f"{self.tool('loong-data')} index --tokenizer bytes "
                   f"--append-eod --quiet --output-prefix {text} {HERE}")
            for _ in range(self.args.launches):
                table = output(
                    f"{self.tool('loongrun', 2)} {recipe} train.train_iters=12 "
                    f"train.micro_batch_size=4 train.global_batch_size=8 "
                    f"'data.train=[{{path: {text}}}]' "
                    "parallel.expert_model_parallel_size=2 "
                    "parallel.moe_token_dispatcher_type=alltoall "
                    "model.foundation.moe_router_force_load_balancing=true "
                    f"--profile {place}/profile{self.keys} 2>&1")
                shares.append(routing_share(table))
        return statistics.median(shares)

    def grouped(self):
        ratios = [self.rate("grouped_linear", "8,64,1536,512") /
                  self.rate("linear", "512,1536,512")
                  for _ in range(self.args.launches)]
        return statistics.median(ratios)


# name, what the figure is, smallest, largest
FIGURES = [
    ("weak_scaling", "tokens/s of a rank, 2 ranks / 1", 0.92, None),
    ("zero_3", "step of ZeRO-3 / ZeRO-1", None, 1.15),
    ("tensor_parallel", "tokens/s, TP 2 / 1 rank of 2 threads", 0.85, None),
    ("interleaved", "interleaved: step / simulated", 0.85, 1.15),
    ("zero_bubble", "zero bubble H1: step / simulated", 0.85, 1.15),
    ("dispatch", "routing, moving, waiting / MoE step", None, 0.10),
    ("grouped", "rate of grouped / dense, 64 rows", 0.70, None),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--launches", type=int, default=9)
    parser.add_argument("--build", default="build")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--chunk", default="2", help="layers of a chunk")
    parser.add_argument("figures", nargs="*", metavar="FIGURE",
                        help=", ".join(f[0] for f in FIGURES))
    args = parser.parse_args()
    names = [figure[0] for figure in FIGURES]
    for name in args.figures:
        if name not in names:
            parser.error(f"no figure {name}; there are {', '.join(names)}")
    missed = False
    for name, what, least, most in FIGURES:
        if args.figures and name not in args.figures:
            continue
        ratio = getattr(Bench(args), name)()
        missed = not reached(name, what, ratio, least, most) or missed
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
