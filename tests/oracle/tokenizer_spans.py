#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/tokenizer/spans.json: where the `tokenizers` library
says that the tokens of texts stand, for every shape of tokenizer_fixtures.py.

    tokenizer_spans.py [--check]     (pip install tokenizers)

An entry is [text, [begin, end, begin, end ...]] in characters. A post-processor
that trims blanks from spans is left out.
"""
import json
import pathlib
import sys

from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/fixtures/tokenizer"
SHAPES = ("gpt2 llama3 deepseek o200k digits added llama2 gemma metaspace_first "
          "metaspace_always metaspace_never").split()
TEXTS = [
    "", " ", "a", " Two  blanks\n\n and\tmore ", "na\u00efve caf\u00e9",
    "nai\u0308ve cafe\u0301 a\u0301\u0323b", "\u1100\u1161\u11a8 \uac01",
    "\U0001f600 \U0001f469\u200d\U0001f680", "\u4f60\u597d\uff0c\u4e16\u754c",
    "<s>one</s> two<s> \u0301three</s>", "x</s>\n</s>  y", "2024 12345 .?!",
    "[mask] [MASK] x[sep]y", "\u2581marked \u2581\u2581 text", "a\x00b",
]


def spans(shape):
    tokenizer = json.loads((FIXTURES / f"{shape}.json").read_text())
    tokenizer["post_processor"] = None
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer))
    result = []
    for text in TEXTS:
        offsets = tokenizer.encode(text, add_special_tokens=False).offsets
        result.append([text, [at for span in offsets for at in span]])
    return result


def main():
    text = json.dumps({shape: spans(shape) for shape in SHAPES}) + "\n"
    path = FIXTURES / "spans.json"
    if "--check" not in sys.argv[1:]:
        path.write_text(text)
    elif path.read_text() != text:
        sys.exit(f"{path} is not what the library gives")


if __name__ == "__main__":
    main()
