#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every fixture through our files and back into transformers.

  check_families.py BUILD            checks; exit code 1 when one fails
  check_families.py BUILD --write    and writes exported.json beside this file

Each directory of fixtures/ is imported by BUILD/loong-ckpt, exported into
files of at most 8 kB with an index, and then

  - has the tensors it had, bit for bit, and a config.json of the same meaning;
  - is loaded by transformers, every tensor of it and no other, and gives the
    golden logits in f64 (1e-9).

Model types that transformers has no class for are renamed into one that it has
(disguise.py) before it loads them: the export, not the fixture.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import transformers
from transformers.utils import logging

import check_export
import disguise
from cases import CASES

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(HERE, "exported.json")
SHARD_GB = "0.000008"


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stdout}{done.stderr}")


def read_config(folder):
    with open(os.path.join(folder, "config.json")) as f:
        return json.load(f)


def check(case, build, place):
    source = os.path.join(HERE, "fixtures", case.name)
    native, folder, bare = (os.path.join(place, n) for n in
                            ("native", "hf", "bare"))
    tool = os.path.join(build, "loong-ckpt")
    run(tool, "import", source, native)
    run(tool, "export", native, folder, "--max-shard-gb", SHARD_GB)
    (before, bad), (after, also) = (check_export.read_tensors(d)
                                    for d in (source, folder))
    before = {n: h for n, h in before.items() if ".mtp_layers." not in n}
    problems = bad + also + check_export.compare_tensors(before, after)
    if case.disguise:
        problems += compare_bare(case, source, folder, place)
        tensors = {n: h.get_tensor(n) for n, h in after.items()}
        disguise.take_off(case.disguise, read_config(folder), tensors, bare)
    else:
        problems += check_export.compare_configs(source, folder)
    loaded = bare if case.disguise else folder
    problems += check_export.compare_logits(
        loaded, os.path.join(source, "golden.safetensors"), None)
    shards = sum(n.endswith(".safetensors") for n in os.listdir(folder))
    if shards < 2:
        problems.append(f"{shards} file, several wanted")
    return problems, dict(model_type=read_config(source)["model_type"],
                          tensors=len(after), files=shards)


def compare_bare(case, source, folder, place):
    """config.json of both, in the words of the class that computes it."""
    folders = [os.path.join(place, n) for n in ("left", "right")]
    for path, bare in zip((source, folder), folders):
        disguise.take_off(case.disguise, read_config(path), {}, bare)
    return check_export.compare_configs(*folders)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", metavar="BUILD")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", metavar="NAME")
    args = parser.parse_args()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    results, failed = {}, 0
    for case in CASES:
        if args.only not in (None, case.name):
            continue
        with tempfile.TemporaryDirectory() as place:
            problems, results[case.name] = check(
                case, os.path.abspath(args.build), place)
        print(("FAIL " if problems else "ok   ") + case.name, flush=True)
        for problem in problems:
            print("     " + problem)
        failed += bool(problems)
    print(f"{len(results) - failed} passed, {failed} failed")
    if args.write and not failed:
        rows = ",\n".join(f" {json.dumps(n)}: {json.dumps(r)}"
                          for n, r in results.items())
        with open(PATH, "w") as f:
            f.write(f'{{"transformers": "{transformers.__version__}",\n'
                    f'"fixtures": {{\n{rows}}}}}\n')
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
