#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what str's methods say of every character that Python knows, by
templates that test_jinja renders as well.

usage: jinja_unicode.py TEST_JINJA     (pip install transformers)
"""
import json
import subprocess
import sys
import tempfile
import unicodedata

import jinja_oracle

ASKED = ("isalpha isdigit isnumeric isdecimal isalnum isspace isupper islower"
         " istitle isprintable").split()
TEXT = ("{% for c in s %}{{ c.upper() }}{{ c.lower() }}{{ c.title() }}"
        "{{ c.swapcase() }}{{ c.casefold() }}{{ [c] }}{{ ('a' ~ c) | wordcount"
        " }}" + "".join("{{ c.%s() | int }}" % a for a in ASKED)
        + "\n{% endfor %}")


def main():
    cases = jinja_oracle.Cases()
    points = [p for p in range(1, 0x110000)
              if unicodedata.category(chr(p)) not in ("Cn", "Cs", "Co")]
    for begin in range(0, len(points), 2048):
        text = "".join(map(chr, points[begin:begin + 2048]))
        cases.variables.append({"s": text})
        cases.add(hex(points[begin]), TEXT, {"s": text},
                  len(cases.variables) - 1)
    with tempfile.NamedTemporaryFile("w", suffix=".json",
                                     encoding="utf-8") as file:
        json.dump(cases.file(), file, ensure_ascii=False)
        file.flush()
        done = subprocess.run([sys.argv[1], file.name])
    print(f"{len(points)} characters, Unicode {unicodedata.unidata_version}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
