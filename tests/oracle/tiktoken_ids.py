#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ids of a tiktoken.model of Kimi's class against the library tiktoken.

    tests/oracle/tiktoken_ids.py BUILD [TEXTS]   ranks learned here, drawn texts
    tests/oracle/tiktoken_ids.py --fixture       writes
                                                 tests/fixtures/tokenizer/kimi

Words are those of the class's pattern: runs of Han characters alone, other
letters in words that go from upper to lower case, three digits. Needs tiktoken.
"""
import base64
import collections
import ctypes
import json
import os
import random
import sys
import tempfile

import regex
import tiktoken

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
FIXTURE = os.path.join(ROOT, "tests/fixtures/tokenizer/kimi")
NAMES = ["[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>",
         "<|im_system|>", "<|im_middle|>", "<|media_begin|>",
         "<|media_content|>", "<|media_end|>", "<|media_pad|>", "[PAD]"]


def pattern():
    upper, lower = (rf"[{kinds}\p{{Lm}}\p{{Lo}}\p{{M}}&&[^\p{{Han}}]]"
                    for kinds in (r"\p{Lu}\p{Lt}", r"\p{Ll}"))
    before, behind = r"[^\r\n\p{L}\p{N}]?", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    return "|".join([
        r"[\p{Han}]+", f"{before}{upper}*{lower}+{behind}",
        f"{before}{upper}+{lower}*{behind}", r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


PIECES = ["don't", "IT'S", "camelCase", "HTTPServer", " The", "中文", "日本語です",
          "漢字かな交じり", "한국어", "русский", "Ünïcödé", "a\u0301", "々〇", "１２３",
          "1234567", " ", "  ", "\n", "\r\n\n", "\t", "!?", " ...", "\u3000",
          "\u00a0", "😀", "👩\u200d💻", "Ǆungla", "ǅ", "ʰx", "'ſ", "I'LL", "x'",
          "२३", "ⅷ", "𠀀𠮟", "﨑", "㐀", "\U0001f1e8", "foo_bar", "a-b", "e=mc²"]


def drawn(rng):
    return "".join(
        rng.choice(PIECES) if rng.random() < .8 else
        chr(rng.choice([rng.randrange(32, 0x3000), rng.randrange(0x3000, 0xd800),
                        rng.randrange(0xf900, 0xfb00)]))
        for _ in range(rng.randrange(1, 30)))


def learn(count, rng):
    """Ranks by what stands side by side most often in such words."""
    words = collections.Counter()
    split = regex.compile(pattern(), flags=regex.V1)
    for _ in range(400):
        words.update(split.findall(drawn(rng)))
    parts = {w: [bytes([b]) for b in w.encode()] for w in words}
    ranks = {bytes([b]): b for b in range(256)}
    while len(ranks) < count:
        pairs = collections.Counter()
        for w, n in words.items():
            for pair in zip(parts[w], parts[w][1:]):
                pairs[pair] += n
        pair = max(pairs, key=lambda p: (pairs[p], p))
        ranks.setdefault(b"".join(pair), len(ranks))
        for w, own in parts.items():
            at = 0
            while at + 1 < len(own):
                if (own[at], own[at + 1]) == pair:
                    own[at:at + 2] = [b"".join(pair)]
                at += 1
    return ranks


def special(ranks):
    names = dict(enumerate(NAMES, len(ranks)))
    return {names.get(i, f"<|reserved_token_{i}|>"): i
            for i in range(len(ranks), len(ranks) + 256)}


def write(place, ranks):
    os.makedirs(place, exist_ok=True)
    with open(os.path.join(place, "tiktoken.model"), "w") as f:
        f.writelines(f"{base64.b64encode(token).decode()} {rank}\n"
                     for token, rank in ranks.items())
    added = {str(len(ranks) + i): dict(content=name, special=True)
             for i, name in enumerate(NAMES)}
    with open(os.path.join(place, "tokenizer_config.json"), "w") as f:
        json.dump(dict(tokenizer_class="TikTokenTokenizer", bos_token="[BOS]",
                       eos_token="[EOS]", pad_token="[PAD]",
                       added_tokens_decoder=added), f, indent=1)


def theirs(ranks):
    return tiktoken.Encoding("kimi", pat_str=pattern(), mergeable_ranks=ranks,
                             special_tokens=special(ranks))


def check(build, count):
    rng = random.Random(seed := random.randrange(1 << 30))
    print(f"{count} texts, seed {seed}")
    ranks = learn(900, rng)
    own = theirs(ranks)
    lib = ctypes.CDLL(os.path.join(build, "libloong.so"))
    lib.loong_context_error.restype = ctypes.c_char_p
    ctx, tokenizer, encoder = (ctypes.c_void_p() for _ in range(3))
    ids, length = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_int64()

    def call(name, *arguments):
        if getattr(lib, name)(*arguments):
            raise SystemExit(lib.loong_context_error(ctx).decode())
    call("loong_context_create", None, ctypes.byref(ctx))
    with tempfile.TemporaryDirectory() as place:
        write(place, ranks)
        call("loong_tokenizer_load", ctx, place.encode(),
             ctypes.byref(tokenizer))
    call("loong_text_encoder_create", ctx, tokenizer, ctypes.byref(encoder))
    for _ in range(count):
        text = drawn(rng)
        if rng.random() < .3:
            text += rng.choice(NAMES + ["<|reserved_token_1000|>"]) + drawn(rng)
        data = text.encode()
        call("loong_text_encode", encoder, data, ctypes.c_size_t(len(data)),
             ctypes.c_bool(True), ctypes.byref(ids), ctypes.byref(length))
        want = own.encode(text, allowed_special="all")
        assert ids[:length.value] == want, (text, ids[:length.value], want)
    print("all ids are tiktoken's")


def fixture():
    rng = random.Random(5)
    ranks = learn(560, rng)
    write(FIXTURE, ranks)
    own = theirs(ranks)
    texts = [*PIECES, *(drawn(rng) for _ in range(40)),
             "<|im_user|>user<|im_middle|>看图<|media_pad|>?<|im_end|>",
             "<|reserved_token_600|>"]
    with open(os.path.join(FIXTURE, "ids.txt"), "w") as f:
        for text in texts:  # bytes in hexadecimal, then ids
            ids = own.encode(text, allowed_special="all")
            f.write(text.encode().hex() + " " + " ".join(map(str, ids)) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--fixture":
        fixture()
    else:
        check(sys.argv[1], int((sys.argv[2:] + [20000])[0]))
