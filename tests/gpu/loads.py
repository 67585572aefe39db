#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the reads of 16 bytes that memory-bound kernels have under way.

usage: loads.py [--list] TABLE FILE...
       loads.py [--list] --nvcc 'NVCC FLAGS' TABLE FILE...

A read counts while no instruction has used what an earlier one brings, and no
branch or label stands between them: only then do both wait at the same time.
TABLE has lines `SOURCE KERNEL READS`: each kernel of SOURCE whose mangled name
matches the regular expression KERNEL has at least so many in one place, and
at least one does. Lines of sources that are not among the files are passed
over. An object is disassembled by cuobjdump; a source is compiled to PTX by
nvcc, whose branches ptxas may still turn into predicates, not the reverse.
"""
import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile

# Of machine code and of PTX: where a kernel begins, what ends a straight piece
# of code, a read of 16 bytes with what it writes, and a register.
SASS = {
    "kernel": re.compile(r"Function : (\S+)"),
    "end": re.compile(r"\b(BRA|BRX|BSYNC|CALL|RET|EXIT|BAR|WARPSYNC)\b"),
    "read": re.compile(r"\bLDG\.E\.128\S* R(\d+),"),
    "register": re.compile(r"\bR(\d+)\b"),
}
PTX = {
    "kernel": re.compile(r"\.entry (\w+)"),
    "end": re.compile(r"^\s*(@%p\d+ )?bra\b|^\S+:|\b(bar\.|ret;|call)"),
    "read": re.compile(r"\bld\.global(?:\.nc)?\.v4\.\w+\s+\{([^}]*)\}"),
    "register": re.compile(r"%(?:r|f|rd)\d+\b"),
}


def lines_of(path, nvcc):
    if nvcc:
        with tempfile.NamedTemporaryFile("r", suffix=".ptx") as f:
            subprocess.run(nvcc + ["--ptx", "-o", f.name, path], check=True)
            return PTX, f.read().split("\n")
    out = subprocess.run(["cuobjdump", "-sass", path], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    return SASS, [line for line in out.split("\n")
                  if "Function :" in line or re.match(r"\s+/\*[0-9a-f]{4,}\*/",
                                                      line)]


def targets_of(lines):
    """Addresses of SASS that something jumps to."""
    found = re.findall(r"\b(?:BRA|BSSY\s+B\d+,|CALL\S*)\s*(?:\S+,\s*)?(0x\w+)",
                       "\n".join(lines))
    return {int(address, 16) for address in found}


def written_by(words, read):
    if words is PTX:
        return set(words["register"].findall(read.group(1)))
    first = int(read.group(1))
    return {str(first + i) for i in range(4)}


def under_way(words, lines):
    """The most reads under way in one kernel."""
    targets = targets_of(lines) if words is SASS else set()
    most, waited = 0, []
    for line in lines:
        address = re.match(r"\s+/\*([0-9a-f]+)\*/", line)
        if address and int(address.group(1), 16) in targets:
            waited = []
        read = words["read"].search(line)
        if read:
            used = line[read.end():]
            waited = [] if uses(words, used, waited) else waited
            waited.append(written_by(words, read))
            most = max(most, len(waited))
        elif words["end"].search(line) or uses(words, line, waited):
            waited = []
    return most


def uses(words, text, waited):
    found = set(words["register"].findall(text))
    return any(found & registers for registers in waited)


def kernels_of(paths, nvcc):
    """(source, kernel): the most reads under way in it."""
    bodies = {}
    for path in paths:
        words, lines = lines_of(path, nvcc)
        source = os.path.basename(path).split(".")[0]
        body = []
        for line in lines:
            start = words["kernel"].search(line)
            if start:
                body = []
                bodies[source, start.group(1)] = words, body
            body.append(line)
    return {name: under_way(*body) for name, body in bodies.items()}


def checked(line, found):
    """What is wrong with one line of the table."""
    source, pattern, reads = line.split()
    if source not in {s for s, _ in found}:
        return []
    names = [n for s, n in found if s == source and re.search(pattern, n)]
    if not names:
        return [f"{source}: no kernel {pattern}"]
    return [f"{n}: {found[source, n]} reads of 16 bytes under way, wanted "
            f"{reads} ({pattern})" for n in names
            if found[source, n] < int(reads)]


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--list", action="store_true")
    args.add_argument("--nvcc", type=shlex.split)
    args.add_argument("table")
    args.add_argument("file", nargs="+")
    args = args.parse_args()
    found = kernels_of(args.file, args.nvcc)
    if args.list:
        for (source, name), reads in sorted(found.items()):
            print(reads, source, name)
        return 0
    with open(args.table) as f:
        wrong = [w for line in f if line.strip() and line[0] != "#"
                 for w in checked(line, found)]
    print("\n".join(wrong + [f"{len(found)} kernels, {len(wrong)} wrong"]))
    return len(wrong) > 0 or not found


if __name__ == "__main__":
    sys.exit(main())
