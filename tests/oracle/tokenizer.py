#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the ids of loong-data with those of the `tokenizers` library.

    tokenizer.py LOONG_DATA [TOKENIZER...] [--docs FOLDER] [--text FILE...]
      [--built [NAME...]]

Each TOKENIZER (a tokenizer.json), one of every supported shape that
`tokenizers` trains here, and those that loong-data trains (all, or the NAMEs)
encode: the files,
documents of people (English, Chinese, Japanese, Korean, code), a mix of
characters from all of Unicode, both also as invalid UTF-8, random bytes,
control characters, and every code point of the planes that hold scripts alone,
between letters and behind what it could compose with. Ids are turned back into text as well.

FOLDER holds the documents: the kernel's, with their translations, as the
Debian package linux-doc-6.1 has them. Needs `pip install tokenizers`.
"""
import argparse
import gzip
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer, decoders

SPACES = [" ", "  ", "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u3000", "\u2028",
          "\x85", "\x1f", "\u200b", "\ufeff", "   \n  ", " \t\r\n \n"]
MARKS = ["\u0301", "\u0308", "\u0323", "\u3099", "\u093c", "\u0345", "\u20d7"]
CONTRACTIONS = ["'s", "'T", "'re", "'VE", "'m", "'lL", "'d", "'\u017f", "'x"]
EMOJI = ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
         "\U0001f1e8\U0001f1f3", "\u2764\ufe0f", "\U0001f44d\U0001f3fd"]
CONTROLS = [chr(c) for c in (*range(1, 32), *range(127, 160), 0xad, 0x61c,
                             0x200e, 0x2066, 0xfff9, 0xe0001)]
NUMBERS = ["1", "12", "1234567", "\u0663\u0664", "\u00bd", "\u2167", "\u4e94"]
# What a character may compose or change places with, before and behind it.
CONTEXTS = [("e", ""), ("\uac00", ""), ("\u1100", "\u11a8"),
            ("a\u0327", "\u0301"), (" ", " "), ("1", "'s"), ("\r", "\n")]
ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = "/usr/share/doc/linux-doc-6.1/Documentation"
# Both planes of scripts, the ideographs that compose, tags; of the rest a few.
POINTS = [c for c in range(1, 0x110000)
          if c < 0xD800 or 0xE000 <= c < 0x20000 or 0x2F800 <= c < 0x2FA20
          or 0xE0000 <= c < 0xE0200 or c % 61 == 0 and c > 0x20000]


def read(path):
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def documents(rng, folder):
    """What people write, paragraph by paragraph in any order: 3 MB."""
    folder = pathlib.Path(folder)
    code = [p for p in ROOT.rglob("*.[ch]") if "build" not in p.parts]
    kinds = [("English", 1000, [p for p in folder.rglob("*.rst*")
                                if "translations" not in p.parts]),
             ("code", 600, code + list((ROOT / "tests").rglob("*.py")))]
    kinds += [(name, size, list((folder / "translations" / name)
                                .rglob("*.rst*")))
              for name, size in (("zh_CN", 900), ("zh_TW", 200),
                                 ("ja_JP", 200), ("ko_KR", 200))]
    paragraphs = []
    for name, size, files in kinds:
        if not files:
            sys.exit("no %s under %s" % (name, folder))
        files.sort()
        rng.shuffle(files)
        data = b""
        while files and len(data) < size << 10:
            data += read(files.pop())
        paragraphs += data[:size << 10].split(b"\n\n")
    rng.shuffle(paragraphs)
    return b"\n\n".join(paragraphs)


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


def decoded(tool, tokenizer, ids):
    command = [tool, "tokenizer", "decode", "--tokenizer", tokenizer]
    done = subprocess.run(command, input=" ".join(map(str, ids)).encode(),
                          capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit("%s: %s" % (" ".join(command), done.stderr.decode()))
    return done.stdout.decode("utf-8", errors="replace")


def expected_text(library, ids):
    """`tokenizers` takes the characters of an added token such as "caf\u00e9"
    for bytes of the byte-level alphabet and gives "caf\ufffd"; here it is its
    text. And it drops every mark of the first token where a Metaspace decoder
    drops the one in front: "\u2581a\u2581b" is "a b" here."""
    if (isinstance(library.decoder, decoders.Metaspace)
            and library.decoder.prepend_scheme != "never" and ids):
        first = library.id_to_token(ids[0])
        marks = len(first) - len(first.lstrip("\u2581"))
        other = library.token_to_id("a")
        return library.decode([other] + ids,
                              skip_special_tokens=False)[1 + marks:]
    added = {i: t.content for i, t in
             library.get_added_tokens_decoder().items()
             if not t.content.isascii()}
    text, run = [], []
    for i in ids:
        if i in added:
            text += [library.decode(run, skip_special_tokens=False), added[i]]
            run = []
        else:
            run.append(i)
    return "".join(text) + library.decode(run, skip_special_tokens=False)


def compare(tool, path, name, data, add_special=False):
    library = Tokenizer.from_file(path)
    text = data.decode("utf-8", errors="replace")
    expected = library.encode(text, add_special_tokens=add_special).ids
    found = ours(tool, path, data, add_special)
    if found != expected:
        at = next((i for i, (a, b) in enumerate(zip(found, expected))
                   if a != b), min(len(found), len(expected)))
        context = slice(max(0, at - 4), at + 5)
        print("DIFFERENT: %s, %s: from id %d\n  expected %s %r\n  found    "
              "%s %r" % (path, name, at, expected[context],
                         [library.id_to_token(i) for i in expected[context]],
                         found[context],
                         [library.id_to_token(i) for i in found[context]]))
        return False
    same = decoded(tool, path, found) == expected_text(library, expected)
    print("%s: %s, %s: %d bytes, %d ids"
          % ("ok" if same else "DECODED DIFFERENTLY", path, name, len(data),
             len(found)), flush=True)
    return same


def cases(rng, files, special, docs):
    yield from ((name, pathlib.Path(name).read_bytes()) for name in files)
    yield "documents", docs
    yield "broken documents", broken(rng, docs[:1 << 20])
    yield "mixed text", mixed(rng, 2 << 20, special)
    yield "broken text", broken(rng, mixed(rng, 1 << 19, special))
    yield "random bytes", rng.randbytes(1 << 18)
    yield "every character", "\n".join(
        chr(c) + " a" + chr(c) + "b1 " + chr(c) for c in POINTS).encode()
    yield "every character in contexts", "\n".join(
        before + chr(c) + after for c in POINTS
        for before, after in CONTEXTS).encode()
    for name, extra in (("white space", SPACES), ("control", CONTROLS)):
        yield name, "".join(rng.choice(extra + ["a", "1", "!"])
                            for _ in range(100000)).encode()


def build(tool, docs, folder):
    """Tokenizers of every shape that `tokenizers` and loong-data train."""
    import tokenizer_fixtures as fixtures
    text = folder + "/documents.txt"
    pathlib.Path(text).write_bytes(docs)
    fixtures.corpus.update(
        texts=docs.decode("utf-8", errors="replace").split("\n\n"),
        size=6000)
    for name, tokenizer in fixtures.shapes():
        path = "%s/%s.json" % (folder, name)
        pathlib.Path(path).write_text(json.dumps(json.loads(
            tokenizer.to_str())))
        yield path
    for kind in ("gpt2", "qwen2", "llama3"):
        path = "%s/trained_%s.json" % (folder, kind)
        subprocess.run([tool, "tokenizer", "train", "--output", path,
                        "--pretokenizer", kind, "--vocab-size", "8000",
                        "--special", "<|a|>", "--special", "<|b|>", text],
                       check=True, stdout=subprocess.DEVNULL)
        yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool")
    parser.add_argument("tokenizer", nargs="*")
    parser.add_argument("--text", nargs="*", default=[])
    parser.add_argument("--docs", default=DOCS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--built", nargs="*")
    args = parser.parse_args()
    docs = documents(random.Random(args.seed), args.docs)
    good = count = size = 0
    with tempfile.TemporaryDirectory() as folder:
        built = [path for path in build(args.tool, docs, folder)
                 if args.built is None or pathlib.Path(path).stem in args.built]
        for path in args.tokenizer + built:
            added = Tokenizer.from_file(path).get_added_tokens_decoder()
            special = [t.content for t in added.values()]
            rng = random.Random(args.seed)
            for name, data in cases(rng, args.text, special, docs):
                good += compare(args.tool, path, name, data)
                count += 1
                size += len(data)
            good += compare(args.tool, path, "special", b" Hello world\n", True)
            count += 1
    print("%d of %d comparisons equal, %d tokenizers, %.1f MB"
          % (good, count, len(args.tokenizer + built), 1e-6 * size))
    sys.exit(0 if good == count else 1)


if __name__ == "__main__":
    main()
