#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the ids of loong-data with those of the `tokenizers` library.

    tokenizer.py LOONG_DATA TOKENIZER... [--text FILE...] [--seed N]

Every tokenizer (a tokenizer.json) encodes: the files, a mix of characters
from all of Unicode (2 MB), invalid UTF-8, and every code point alone, between
letters and behind what it could compose with. Needs `pip install tokenizers`.
"""
import argparse
import pathlib
import random
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

SPACES = [" ", "  ", "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u3000", "\u2028",
          "\x85", "\x1f", "\u200b", "\ufeff", "   \n  ", " \t\r\n \n"]
MARKS = ["\u0301", "\u0308", "\u0323", "\u3099", "\u093c", "\u0345", "\u20d7"]
CONTRACTIONS = ["'s", "'T", "'re", "'VE", "'m", "'lL", "'d", "'\u017f", "'x"]
EMOJI = ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
         "\U0001f1e8\U0001f1f3", "\u2764\ufe0f", "\U0001f44d\U0001f3fd"]
NUMBERS = ["1", "12", "1234567", "\u0663\u0664", "\u00bd", "\u2167", "\u4e94"]
# What a character may compose or change places with, before and behind it.
CONTEXTS = [("e", ""), ("\uac00", ""), ("\u1100", "\u11a8"),
            ("a\u0327", "\u0301"), (" ", " "), ("1", "'s"), ("\r", "\n")]
POINTS = [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]


def mixed(rng, size, special):
    """Text in which everything meets everything."""
    blocks = [(0x20, 0x7F), (0x61, 0x7B), (0xC0, 0x250), (0x370, 0x500),
              (0x5D0, 0x700), (0x900, 0xE00), (0x1100, 0x1200),
              (0x2000, 0x2BFF), (0x3040, 0x3100), (0x4E00, 0x9FFF),
              (0xAC00, 0xD7A4), (0xF900, 0xFB00), (0x1D400, 0x1D800),
              (0x1F300, 0x1FAFF), (0x20000, 0x2A6D0), (0xE000, 0xF8FF)]
    out = []
    total = 0
    while total < size:
        kind = rng.randrange(12)
        if kind < 6:
            low, high = rng.choice(blocks)
            word = "".join(chr(rng.randrange(low, high))
                           for _ in range(rng.randrange(1, 12)))
        elif kind == 6:
            word = chr(rng.choice(POINTS))
        else:
            word = rng.choice((SPACES, MARKS, CONTRACTIONS, EMOJI, NUMBERS,
                               special or SPACES)[kind - 7
                                                  if kind < 12 else 0])
        if rng.random() < 0.05 and special:
            word += rng.choice(special)
        out.append(word)
        if rng.random() < 0.4:
            out.append(rng.choice(SPACES))
        total += len(word.encode())
    return "".join(out).encode()


def broken(rng, data):
    """The same with bytes changed, removed and cut."""
    data = bytearray(data)
    for _ in range(len(data) // 50):
        at = rng.randrange(len(data))
        if rng.random() < 0.5:
            data[at] = rng.randrange(256)
        else:
            del data[at]
    return bytes(data)


def ours(tool, tokenizer, data, add_special):
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        command = [tool, "tokenizer", "encode", "--tokenizer", tokenizer]
        done = subprocess.run(
            command + ["--add-special"] * add_special + [file.name],
            capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit("%s: %s" % (" ".join(command), done.stderr.decode()))
    return [int(line) for line in done.stdout.split()]


def compare(tool, path, name, data, add_special=False):
    library = Tokenizer.from_file(path)
    text = data.decode("utf-8", errors="replace")
    expected = library.encode(text, add_special_tokens=add_special).ids
    found = ours(tool, path, data, add_special)
    if found == expected:
        print("ok: %s, %s: %d bytes, %d ids" % (path, name, len(data),
                                               len(found)))
        return True
    at = next((i for i, (a, b) in enumerate(zip(found, expected)) if a != b),
              min(len(found), len(expected)))
    context = slice(max(0, at - 4), at + 5)
    print("DIFFERENT: %s, %s: from id %d\n  expected %s %r\n  found    %s %r"
          % (path, name, at, expected[context],
             [library.id_to_token(i) for i in expected[context]],
             found[context], [library.id_to_token(i) for i in found[context]]))
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool")
    parser.add_argument("tokenizer", nargs="+")
    parser.add_argument("--text", nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    good = True
    for path in args.tokenizer:
        added = Tokenizer.from_file(path).get_added_tokens_decoder()
        special = [t.content for t in added.values()]
        cases = [(name, pathlib.Path(name).read_bytes())
                 for name in args.text]
        mix = mixed(rng, 2 << 20, special)
        cases += [
            ("mixed text", mix),
            ("broken text", broken(rng, mixed(rng, 1 << 19, special))),
            ("random bytes", rng.randbytes(1 << 18)),
            ("every character",
             "\n".join(chr(c) + " a" + chr(c) + "b1 " + chr(c)
                       for c in POINTS).encode()),
            ("every character in contexts",
             "\n".join(before + chr(c) + after for c in POINTS
                       for before, after in CONTEXTS).encode()),
            ("white space",
             "".join(rng.choice(SPACES + ["a", "1", "!"])
                     for _ in range(100000)).encode()),
        ]
        for name, data in cases:
            good &= compare(args.tool, path, name, data)
        good &= compare(args.tool, path, "special", b" Hello world\n", True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
