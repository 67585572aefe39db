#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/jinja/unicode_cases.c: the characters whose upper or title case
Python takes for more than one character, or whose title case is not its upper
case; and the letters that are numbers.

usage: jinja_cases.py [--check]
"""
import pathlib
import sys
import unicodedata

TARGET = (pathlib.Path(__file__).resolve().parents[2]
          / "src/jinja/unicode_cases.c")
HEAD = """/* SPDX-License-Identifier: Apache-2.0
 *
 * Characters with an upper or title case of several characters, and letters
 * that are numbers; written by tests/oracle/jinja_cases.py. Called by
 * unicode_text.c. Read unicode_text.h before. */
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
    spans = []
    for point in range(0x110000):
        c = chr(point)
        if c.isnumeric() and unicodedata.category(c)[0] == "L":
            if spans and spans[-1][1] == point - 1:
                spans[-1][1] = point
            else:
                spans.append([point, point])
    return (HEAD + "".join(rows) + "};\nconst int jinja_num_special_cases ="
            " %d;\n\nconst jinja_span_t jinja_numeric_letters[] = {\n"
            % len(rows) + "".join("    {0x%x, 0x%x},\n" % tuple(s)
                                  for s in spans)
            + "};\nconst int jinja_num_numeric_letters = %d;\n" % len(spans))


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(TARGET.read_text() != table())
    TARGET.write_text(table())
