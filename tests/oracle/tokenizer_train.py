#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the same tokenizer with loong-data and with the `tokenizers` library
and compares vocabularies and merges.

    tokenizer_train.py LOONG_DATA TEXT...

Needs `pip install tokenizers`.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

TAIL = (r"[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
HEAD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
SPECIAL = ["<|endoftext|>", "<|pad|>"]


def split(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


CUTS = {
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "qwen2": split(HEAD + r"\p{N}| ?" + TAIL),
    "llama3": split(HEAD + r"\p{N}{1,3}| ?" + TAIL),
}


def library(kind, texts, size, frequency):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = CUTS[kind]
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=frequency, special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())


def ours(tool, kind, files, size, frequency):
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/tokenizer.json"
        command = [tool, "tokenizer", "train", "--output", path,
                   "--vocab-size", str(size), "--min-frequency",
                   str(frequency), "--pretokenizer", kind]
        for token in SPECIAL:
            command += ["--special", token]
        subprocess.run(command + files, check=True, stdout=subprocess.DEVNULL)
        Tokenizer.from_file(path)
        return json.loads(pathlib.Path(path).read_text())


def main():
    tool, files = sys.argv[1], sys.argv[2:]
    texts = [pathlib.Path(f).read_bytes().decode("utf-8", errors="replace")
             for f in sorted(files)]
    good = True
    for kind in CUTS:
        for size, frequency in ((1000, 2), (16000, 2), (200000, 3)):
            a = library(kind, texts, size, frequency)["model"]
            b = ours(tool, kind, files, size, frequency)["model"]
            same = a["vocab"] == b["vocab"] and a["merges"] == b["merges"]
            good &= same
            first = next((i for i, (x, y) in
                          enumerate(zip(a["merges"], b["merges"])) if x != y),
                         None)
            print("%s: %s, vocabulary %d: %d and %d tokens, %d and %d merges%s"
                  % ("ok" if same else "DIFFERENT", kind, size,
                     len(a["vocab"]), len(b["vocab"]), len(a["merges"]),
                     len(b["merges"]), "" if same else
                     ", from merge %s: %s" % (first, first is not None and (
                         a["merges"][first], b["merges"][first]))))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
