#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs several benchmark commands in turn, many times, and compares them.

  interleave.py [--launches 9] LABEL 'COMMAND' LABEL 'COMMAND' ...

Each command must print a JSON line with ms_median, or llm.c's lines "took
... ms" (the first is dropped). Launches alternate (A B C A B C ...), so that
a slow minute of the machine hits all of them. Prints median, best and worst
over the launches, the ratio to the first label, peak memory, and how busy the
machine was with other work.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time


def machine_seconds():
    """(busy, stolen) CPU seconds of the whole machine since boot."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, soft, steal = map(
            int, f.readline().split()[1:9])
    tick = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + soft) / tick, steal / tick


def step_ms(text):
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            return json.loads(line)["ms_median"]
    times = [float(t) for t in re.findall(r"took ([\d.]+) ms", text)]
    if len(times) < 2:
        raise ValueError("the output has no step times:\n" + text)
    return statistics.median(times[1:])


def launch(command):
    busy, stolen = machine_seconds()
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen(command, shell=True, stdout=output)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit(f"{command}\nfailed with {child.returncode}")
        output.seek(0)
        ms = step_ms(output.read())
    wall = (time.monotonic() - start) * os.cpu_count()
    busy_after, stolen_after = machine_seconds()
    others = busy_after - busy - usage.ru_utime - usage.ru_stime
    return dict(ms=ms, mib=usage.ru_maxrss / 1024,
                others=max(0.0, others) / wall,
                steal=(stolen_after - stolen) / wall)


def report(runs):
    base = None
    print(f"{'':24} {'median':>9} {'best':>9} {'worst':>9} {'ratio':>6} "
          f"{'MiB':>7} {'others':>7} {'steal':>6}")
    for label, results in runs.items():
        times = [r["ms"] for r in results]
        median = statistics.median(times)
        base = base or median
        mib, others, steal = (statistics.median(r[k] for r in results)
                              for k in ("mib", "others", "steal"))
        print(f"{label:24} {median:9.1f} {min(times):9.1f} "
              f"{max(times):9.1f} {median / base:6.2f} {mib:7.0f} "
              f"{others:7.1%} {steal:6.1%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--launches", type=int, default=9)
    parser.add_argument("pairs", nargs="+", metavar="LABEL COMMAND")
    args = parser.parse_args()
    if len(args.pairs) % 2:
        parser.error("every label needs a command")
    commands = dict(zip(args.pairs[::2], args.pairs[1::2]))
    runs = {label: [] for label in commands}
    for turn in range(args.launches):
        for label, command in commands.items():
            result = launch(command)
            runs[label].append(result)
            print(f"{turn + 1}/{args.launches} {label}: "
                  f"{result['ms']:.1f} ms", file=sys.stderr)
    report(runs)


if __name__ == "__main__":
    main()
