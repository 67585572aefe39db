#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/jinja/unicode_cases.c: the characters whose upper or title case
Python takes for more than one character, or whose title case is not its upper
case.

usage: jinja_cases.py [--check]
"""
import pathlib
import sys

TARGET = (pathlib.Path(__file__).resolve().parents[2]
          / "src/jinja/unicode_cases.c")
HEAD = """/* SPDX-License-Identifier: Apache-2.0
 *
 * Characters with an upper or title case of several characters; written by
 * tests/oracle/jinja_cases.py. Called by unicode_text.c. Read unicode_text.h
 * before. */
#include "unicode_text.h"

const jinja_special_case_t jinja_special_cases[] = {
"""


def literal(text):
    return '"' + "".join("\\x%02x" % b for b in text.encode()) + '"'


def table():
    rows = []
    for point in range(0x110000):
        if 0xD800 <= point < 0xE000:
            continue
        c = chr(point)
        upper, title = c.upper(), c.title()
        if len(upper) > 1 or len(title) > 1 or upper != title:
            rows.append("    {0x%x, %s, %s},\n"
                        % (point, literal(upper), literal(title)))
    return (HEAD + "".join(rows) + "};\nconst int jinja_num_special_cases ="
            " %d;\n" % len(rows))


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(TARGET.read_text() != table())
    TARGET.write_text(table())
