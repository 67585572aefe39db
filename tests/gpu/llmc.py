#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llmc.py NAME DEPTH SAMPLES STEPS: steps of llm.c's train_gpt2cu, in its
folder, on random weights and tokens. One line of JSON."""
import array
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile

LENGTH, VOCAB, WARM_UP = 1024, 50257, 2


def write_tokens(path, count):
    """llm.c's version 1: a header of 256 whole numbers, then uint16."""
    draw = random.Random(1)
    with open(path, "wb") as f:
        array.array("i", [20240520, 1, count] + [0] * 253).tofile(f)
        array.array("H", (draw.randrange(VOCAB) for _ in range(count))
                    ).tofile(f)


def main():
    name, depth, samples, steps = sys.argv[1], *map(int, sys.argv[2:])
    tokens = samples * LENGTH
    with tempfile.TemporaryDirectory() as work:
        data = os.path.join(work, "tokens.bin")
        write_tokens(data, 2 * tokens + 1)
        command = ["./train_gpt2cu", "-i", data, "-j", data,
                   "-e", f"d{depth}", "-b", str(samples), "-t", str(LENGTH),
                   "-d", str(tokens), "-x", str(steps), "-v", "1000000",
                   "-m", "1", "-s", "0", "-h", "0", "-l", "0.0003",
                   "-c", "0.1"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    times = [float(ms) for ms in re.findall(
        r"^step .*\| ([\d.]+) ms \|", done.stdout, re.M)]
    if done.returncode != 0 or len(times) <= WARM_UP:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}, "
                 f"{len(times)} steps\n{done.stdout[-1500:]}")
    ms = statistics.median(times[WARM_UP:])
    print(json.dumps(dict(step=name, by="llm.c", ms_median=ms,
                          tokens_per_second=tokens / ms * 1e3)))


if __name__ == "__main__":
    main()
