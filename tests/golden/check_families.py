#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every fixture through our files and back into transformers.

  check_families.py BUILD            checks; exit code 1 when one fails, or
                                     when exported.json says otherwise
  check_families.py BUILD --write    and writes exported.json beside this file

Each directory of fixtures/ is imported by BUILD/loong-ckpt, exported into
files of at most 8 kB with an index, and then

  - has the tensors it had, bit for bit, and a config.json of the same meaning;
  - is loaded by transformers, every tensor of it and no other, and gives the
    golden logits in f64 (1e-9).

Model types that transformers has no class for (disguise.py) have Python files
beside their fixture, as the published ones do (own_code/): those must come
with the export, which is loaded by them. Without them an export must be
refused, and as the type whose class computes the same (LIKE) it is loaded by
that class, from the tensors that disguise.py makes of the fixture by itself.
"""
import argparse
import filecmp
import json
import os
import shutil
import subprocess
import sys
import tempfile

# where transformers copies Python files of models to before it runs them
MODULES = tempfile.TemporaryDirectory()
os.environ["HF_MODULES_CACHE"] = MODULES.name

import transformers  # noqa: E402
from transformers.utils import logging  # noqa: E402

import check_export  # noqa: E402
import disguise  # noqa: E402
from cases import CASES  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(HERE, "exported.json")
CODE = os.path.join(HERE, "own_code")
SHARD_GB = "0.000008"
LIKE = dict(internlm2="llama", qwen="qwen2", mimo="qwen2",
            kimi_k2="deepseek_v3")
PYTHON_NAME = dict(internlm2="internlm2", qwen="qwen", mimo="mimo",
                   kimi_k2="deepseek")
# of parts that an export of the language model lacks
SEES_IMAGES = ("model.vision_model.", "model.resampler_model.")


def run(*command, code=0):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != code:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}, "
                         f"{code} expected\n{done.stdout}{done.stderr}")
    return done.stderr


def read_json(folder, name):
    with open(os.path.join(folder, name)) as f:
        return json.load(f)


def read_config(folder):
    """With the token ids that the publishers' config.json may leave to the
    file for generation; an export says them in both."""
    ids = read_json(folder, "generation_config.json")
    return {**{k: v for k, v in ids.items() if k.endswith("_token_id")},
            **read_json(folder, "config.json")}


def prepare(case, place):
    """The fixture, with Python files beside it where a user has some."""
    fixture = os.path.join(HERE, "fixtures", case.name)
    if not case.disguise:
        return fixture, []
    source = os.path.join(place, "source")
    shutil.copytree(fixture, source)
    code = [f"{kind}_{PYTHON_NAME[case.disguise]}.py"
            for kind in ("configuration", "modeling")]
    for name in code:
        shutil.copy(os.path.join(CODE, name), source)
    return source, code


def check(case, build, place):
    source, code = prepare(case, place)
    native, folder = (os.path.join(place, n) for n in ("native", "hf"))
    golden = os.path.join(source, "golden.safetensors")
    tool = os.path.join(build, "loong-ckpt")
    run(tool, "import", source, native)
    run(tool, "export", native, folder, "--max-shard-gb", SHARD_GB)
    (before, bad), (after, also) = (check_export.read_tensors(d)
                                    for d in (source, folder))
    before = {n: h for n, h in before.items() if ".mtp_layers." not in n
              and not n.startswith(SEES_IMAGES)}
    problems = bad + also + check_export.compare_tensors(before, after)
    problems += [f"{name}: not as it was" for name in code
                 if not filecmp.cmp(os.path.join(source, name),
                                    os.path.join(folder, name), False)]
    result = dict(model_type=read_config(source)["model_type"],
                  tensors=len(after))
    if case.disguise:
        problems += compare_bare(case, source, folder, place)
        problems += check_like(case, tool, source, place)
        result["like"] = LIKE[case.disguise]
    else:
        problems += check_export.compare_configs(source, folder)
    problems += check_export.compare_logits(folder, golden, None,
                                            bool(code))
    shards = sum(n.endswith(".safetensors") for n in os.listdir(folder))
    if shards < 2:
        problems.append(f"{shards} file, several wanted")
    return problems, dict(result, files=shards)


def check_like(case, tool, source, place):
    """Without Python files, as a type that transformers has a class for."""
    native, folder, bare = (os.path.join(place, n) for n in
                            ("native2", "like", "bare"))
    fixture = os.path.join(HERE, "fixtures", case.name)
    like = LIKE[case.disguise]
    run(tool, "import", fixture, native)
    text = run(tool, "export", native, folder, code=1)
    problems = [] if f"--as {like}" in text else [f"refused with: {text}"]
    run(tool, "export", native, folder, "--as", like, "--max-shard-gb",
        SHARD_GB)
    tensors = {n: h.get_tensor(n) for n, h in
               check_export.read_tensors(source)[0].items()}
    disguise.take_off(case.disguise, read_config(source), tensors, bare)
    if read_config(folder)["model_type"] != like:
        problems.append(f"model_type is not {like}")
    return problems + check_export.compare_folders(
        bare, folder) + check_export.compare_logits(
        folder, os.path.join(source, "golden.safetensors"), None)


def compare_bare(case, source, folder, place):
    """config.json of both, in the words of the class that computes it."""
    folders = [os.path.join(place, n) for n in ("left", "right")]
    for path, bare in zip((source, folder), folders):
        disguise.take_off(case.disguise, read_config(path), {}, bare)
    return check_export.compare_configs(*folders)


def compare_results(results, only):
    with open(PATH) as f:
        known = json.load(f)
    if known["transformers"] != transformers.__version__:
        print(f"exported.json is of transformers {known['transformers']}, "
              f"this is {transformers.__version__}")
    known = {n: r for n, r in known["fixtures"].items() if only in (None, n)}
    if known == results:
        return 0
    print("FAIL exported.json says otherwise: --write renews it")
    return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", metavar="BUILD")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", metavar="NAME")
    args = parser.parse_args()
    if args.write and args.only:
        parser.error("--write needs all")
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
    if not args.write:
        failed += compare_results(results, args.only)
    elif not failed:
        rows = ",\n".join(f" {json.dumps(n)}: {json.dumps(r)}"
                          for n, r in results.items())
        with open(PATH, "w") as f:
            f.write(f'{{"transformers": "{transformers.__version__}",\n'
                    f'"fixtures": {{\n{rows}}}}}\n')
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
