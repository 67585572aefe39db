#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens the event files of a run with TensorBoard itself and compares every
scalar with metrics.jsonl of the same run.

    test_metrics DIR && tests/oracle/tensorboard_read.py DIR

also works on the directory of a real run. Needs the tensorboard package."""
import json
import math
import struct
import sys

from tensorboard.backend.event_processing import event_accumulator

TAGS = {
    "loss": "train/loss",
    "grad_norm": "train/grad_norm",
    "lr": "train/lr",
    "router_loss": "train/router_loss",
    "router_z_loss": "train/router_z_loss",
    "expert_load": "train/expert_load",
    "dropped_tokens": "train/dropped_tokens",
    "overflow_rounds": "train/overflow_rounds",
    "tokens": "train/tokens",
    "tokens_per_second": "perf/tokens_per_s",
    "ms_per_step": "perf/ms_per_step",
    "data_share": "perf/data_share",
    "comm_share": "perf/comm_share",
    "host_share": "perf/host_share",
    "links_ms": "perf/links_ms",
    "links_hidden": "perf/links_hidden",
    "gflops": "perf/gflops",
    "gemm_share": "perf/gemm_share",
    "memory_bytes": "memory/used_bytes",
}


def close(number, event):
    """Events hold single precision, lines nine figures."""
    if number is None:
        return not math.isfinite(event)
    single = struct.unpack("f", struct.pack("f", number))[0]
    return abs(single - event) <= 2e-7 * abs(event)


def expected(path):
    """{tag: {step: value}} of metrics.jsonl."""
    wanted = {}
    with open(path, encoding="utf-8") as lines:
        for text in lines:
            line = json.loads(text)
            if "eval" in line:
                tags = {k: f"eval/{k}/{line['eval']}"
                        for k in ("loss", "perplexity")}
            elif "layer" in line:
                tags = {k: f"{k}/layer_{line['layer']}"
                        for k in ("expert_load", "dropped_tokens",
                                  "overflow_rounds", "router_z_loss")}
            else:
                tags = TAGS
            for key, tag in tags.items():
                if key in line:
                    wanted.setdefault(tag, {})[line["step"]] = line[key]
    return wanted


def main(run):
    board = event_accumulator.EventAccumulator(
        run, size_guidance={event_accumulator.SCALARS: 0})
    board.Reload()
    wanted = expected(f"{run}/metrics.jsonl")
    tags = set(board.Tags()["scalars"])
    bad = [f"tags differ: {sorted(tags ^ set(wanted))}"] \
        if tags != set(wanted) else []
    values = 0
    for tag in tags & set(wanted):
        seen = {e.step: e.value for e in board.Scalars(tag)}
        if set(seen) != set(wanted[tag]):
            bad.append(f"{tag}: steps {sorted(seen)}, "
                       f"wanted {sorted(wanted[tag])}")
            continue
        for step, value in wanted[tag].items():
            values += 1
            if not close(value, seen[step]):
                bad.append(f"{tag} at {step}: {seen[step]}, wanted {value}")
    print("\n".join(bad) or f"{values} values of {len(tags)} tags agree")
    return 1 if bad or values == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
