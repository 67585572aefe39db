#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders every template of directories (*.jinja, and the chat_template of
*.json) over conversations of our own with transformers, and with test_jinja.

usage: jinja_published.py [--table FILE] [--keep FILE] TEST_JINJA DIRECTORY ...

Prints a line for each template and what differs; exits 1 when anything does.
pip install transformers
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

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


def run(program, cases):
    with tempfile.NamedTemporaryFile("w", suffix=".json",
                                     encoding="utf-8") as file:
        json.dump(cases.file(), file, ensure_ascii=False)
        file.flush()
        done = subprocess.run([program, file.name], capture_output=True,
                              text=True)
    return done.returncode == 0, done.stdout + done.stderr


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--table")
    parser.add_argument("--keep", help="all cases as one file")
    parser.add_argument("program")
    parser.add_argument("directory", nargs="+")
    options = parser.parse_args()
    talks = conversations()
    rows, seen, wrong = [], set(), 0
    everything = jinja_oracle.Cases()
    everything.variables = talks
    for directory in options.directory:
        for name, text in templates(directory):
            if text in seen:
                continue
            seen.add(text)
            cases = jinja_oracle.Cases()
            cases.variables = talks
            for number, talk in enumerate(talks):
                for to in [cases] + ([everything] if options.keep else []):
                    to.add(f"{name} {number}", text, talk, number)
            equal, said = run(options.program, cases)
            wrong += not equal
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
    if options.keep:
        everything.write(options.keep)
    print(f"{len(rows)} templates x {len(talks)} conversations: "
          f"{wrong} templates differ")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
