#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders every template of directories (*.jinja, and the chat_template of
*.json) over conversations of our own with transformers, and with test_jinja.

usage: jinja_published.py [--table FILE] [--times N] TEST_JINJA DIRECTORY ...

Prints a line for each template and what differs; exits 1 when anything does.
With --times both render everything N times, one after the other.
pip install transformers
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import jinja_oracle
from jinja_conversations import conversations


def templates(directory):
    """Pairs of a name and a text."""
    for path in sorted(pathlib.Path(directory).rglob("*")):
        if path.suffix == ".jinja":
            yield path.name, path.read_text(encoding="utf-8")
        elif path.suffix == ".json":
            value = json.loads(path.read_text(encoding="utf-8"))
            value = value.get("chat_template") if isinstance(value, dict) else ""
            if isinstance(value, str) and value:
                yield path.name, value
            for one in value if isinstance(value, list) else []:
                yield f"{path.name}:{one['name']}", one["template"]


def run(program, cases, times):
    """Whether all is equal, what was said, and the seconds of renderings."""
    with tempfile.NamedTemporaryFile("w", suffix=".json",
                                     encoding="utf-8") as file:
        json.dump(cases.file(), file, ensure_ascii=False)
        file.flush()
        done = subprocess.run([program, file.name, str(times)],
                              capture_output=True, text=True)
    said = done.stdout + done.stderr
    seconds = [float(line.split()[0]) for line in said.splitlines()
               if line.endswith(" seconds")]
    return done.returncode == 0, said, sum(seconds)


def measure(cases, times):
    """Seconds that jinja2 takes for the same, templates compiled before."""
    seconds = 0.0
    for case in cases.cases:
        if "text" not in case:
            continue
        text = cases.templates[case["template"]]
        compiled = jinja_oracle.chat_template_utils._compile_jinja_template(
            text)
        variables = cases.variables[case["variables"]]
        begin = time.perf_counter()
        for _ in range(times):
            compiled.render(**variables)
        seconds += time.perf_counter() - begin
    return seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--table")
    parser.add_argument("--times", type=int, default=0)
    parser.add_argument("program")
    parser.add_argument("directory", nargs="+")
    options = parser.parse_args()
    talks = conversations()
    rows, seen, wrong = [], set(), 0
    seconds = [0.0, 0.0]
    for directory in options.directory:
        for name, text in templates(directory):
            if text in seen:
                continue
            seen.add(text)
            cases = jinja_oracle.Cases()
            cases.variables = talks
            for number, talk in enumerate(talks):
                cases.add(f"{name} {number}", text, talk, number)
            equal, said, took = run(options.program, cases, options.times)
            wrong += not equal
            seconds[0] += took
            seconds[1] += measure(cases, options.times)
            source = pathlib.Path(directory).name
            rows.append((name, source, len(talks) - cases.refused,
                         cases.refused, "yes" if equal else "no"))
            print(f"{name}: {len(talks)} conversations, {cases.refused} of "
                  f"them refused by both: {'equal' if equal else 'NOT EQUAL'}",
                  flush=True)
            if not equal:
                print(said)
    if options.table:
        with open(options.table, "w", encoding="utf-8") as out:
            for row in rows:
                out.write("| %s | %s | %d | %d | %s |\n" % row)
    if options.times:
        print("seconds: %.3f, jinja2 %.3f, %.1f times as long"
              % (*seconds, seconds[1] / seconds[0]))
    print(f"{len(rows)} templates x {len(talks)} conversations: "
          f"{wrong} templates differ")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
