#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/tokenizer: small tokenizers of every supported shape,
and the ids that the `tokenizers` library gives for texts.

    tokenizer_fixtures.py [--check]     (pip install tokenizers)
"""
import argparse
import json
import pathlib
import random
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                        normalizers, pre_tokenizers, processors, trainers)

import tokenizer as mixes

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = ROOT / "tests/fixtures/tokenizer"
TEXT = [(ROOT / p).read_text() for p in ("CONTRIBUTING.md", "docs/data.md")]
TEXT += ["\u4f60\u597d\uff0c\u4e16\u754c\u3002\u8fd9\u662f\u4e00\u4e2a"
         "\u6d4b\u8bd5\u3002 caf\u00e9 na\u00efve \u00fcber 2024 12345 "] * 20

# What they are trained on, and the size of the vocabularies.
corpus = {"texts": TEXT, "size": 420}

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"
            r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(*before, prefix=False, regex=False):
    last = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)
    return pre_tokenizers.Sequence(list(before) + [last]) if before else last


def train(pre_tokenizer, normalizer=None, more=0, special=("<s>", "</s>"),
          alphabet=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(corpus["texts"], trainers.BpeTrainer(
        vocab_size=corpus["size"] + more, special_tokens=list(special), show_progress=False,
        initial_alphabet=(pre_tokenizers.ByteLevel.alphabet()
                          if alphabet is None else alphabet)))
    if alphabet is None:
        tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def sentencepiece(pre_tokenizer, normalizer, decoder):
    """With <0x00> .. <0xFF> in the vocabulary, as converted models have."""
    special = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]
    tokenizer = train(pre_tokenizer, normalizer, 140, special, alphabet=[])
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = state["added_tokens"][:3]
    state["model"].update(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    # Merges as strings: what files of older versions hold.
    state["model"]["merges"] = [" ".join(m) for m in state["model"]["merges"]]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.decoder = decoder
    return tokenizer


def bos(tokenizer, eos=False):
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A" + (" </s>" if eos else ""),
        special_tokens=[(t, tokenizer.token_to_id(t))
                        for t in (("<s>", "</s>") if eos else ("<s>",))])
    return tokenizer


def llama2_decoder():
    return decoders.Sequence([
        decoders.Replace("\u2581", " "), decoders.ByteFallback(),
        decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def added():
    """Every flag of an added token, alone and together."""
    tokenizer = train(byte_level(split(LLAMA3)), normalizers.NFC(), special=())
    tokenizer.add_tokens([
        AddedToken("<left>", lstrip=True, normalized=False),
        AddedToken("<right>", rstrip=True, normalized=False),
        AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
        AddedToken("word", single_word=True, normalized=True),
        AddedToken("words", single_word=True, normalized=False),
        AddedToken("caf\u00e9", normalized=True),
        AddedToken("e\u0301a", normalized=True),
        AddedToken("<a", normalized=False),
        AddedToken("<a>", normalized=False),
        AddedToken("\u00e9\u0301", normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<|im_start|>"),
                                  AddedToken("<|im_start|>!", lstrip=True)])
    return tokenizer


def shapes():
    metaspace = pre_tokenizers.Metaspace
    yield "gpt2", train(byte_level(prefix=True, regex=True))
    llama3 = train(byte_level(split(LLAMA3)), ignore_merges=True)
    yield "llama3", bos(llama3)
    yield "deepseek", train(byte_level(
        split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f"
                                    "\u30a0-\u30ff]+"), split(DEEPSEEK)))
    yield "o200k", train(byte_level(split(O200K, "removed", True)))
    yield "digits", train(byte_level(pre_tokenizers.Digits(False), regex=True))
    yield "added", added()
    yield "llama2", bos(sentencepiece(None, normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]),
        llama2_decoder()), eos=True)
    yield "gemma", sentencepiece(
        pre_tokenizers.Split(" ", "merged_with_previous"),
        normalizers.Replace(" ", "\u2581"), decoders.Sequence(
            [decoders.Replace("\u2581", " "), decoders.ByteFallback(),
             decoders.Fuse()]))
    for scheme in ("first", "always", "never"):
        yield "metaspace_" + scheme, sentencepiece(
            metaspace(prepend_scheme=scheme, split=scheme == "always"), None,
            decoders.Metaspace(prepend_scheme=scheme))


def texts(special):
    rng = random.Random(7)
    fixed = ["", " ", "Hello world", "  two  spaces", "it's we'LL '\u017f x",
             "12345 1/2 \u00bd\u2167 \u0663", "a\r\n\n b \t\n  c  ", "\u00a0x",
             "cafe\u0301 caf\u00e9 e\u0301a \u00e9\u0301 \u212b\u1112\u1161\u11ab",
             "\u4f60\u597d\u4e16\u754c \U0001f468\u200d\U0001f469 \u30ab\u3099",
             "words word sword word_ (word)", "x <left>  <right>  y <both> z",
             "<a<a><ab <|im_start|>! <|im_start|>", " <s>hi</s> there",
             "\u2581under \u2581", "    indented(code[0]) != 'x'; // ok\n"]
    return fixed + [mixes.mixed(rng, 60, special).decode() for _ in range(60)]


def render(tokenizer):
    """The file, and a list of cases: text, ids, with add_special, decoded."""
    special = [t.content for t in
               tokenizer.get_added_tokens_decoder().values()]
    cases = []
    for text in texts(special):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        cases.append({
            "text": text, "ids": ids,
            "special": tokenizer.encode(text).ids,
            "decoded": tokenizer.decode(ids, skip_special_tokens=True)})
    lines = ",\n".join(json.dumps(c) for c in cases)
    return (json.dumps(json.loads(tokenizer.to_str()), indent=None) + "\n",
            "[\n" + lines + "\n]\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true",
                        help="compare the ids of the committed tokenizers "
                        "instead of writing new ones")
    args = parser.parse_args()
    for name, tokenizer in shapes():
        file = TARGET / (name + ".json")
        cases = TARGET / (name + "_cases.json")
        if not args.check:
            file_text, cases_text = render(tokenizer)
            file.write_text(file_text)
            cases.write_text(cases_text)
        elif (render(Tokenizer.from_file(str(file)))[1] != cases.read_text()):
            sys.exit("%s is not what this version gives" % cases)
    print("ok")


if __name__ == "__main__":
    main()
