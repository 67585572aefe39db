# SPDX-License-Identifier: Apache-2.0

"""An instruction set made by rule from the Python documentation.

  instructions.py OUT [--sources DIR] [--held-out N]

Reads the reStructuredText of the library reference that Debian's package
python3.11-doc installs, and writes OUT/train.jsonl and OUT/held_out.jsonl:
conversations in the "messages" format, one for each function, method, class and
exception that is documented with a text of its own. The question names it, the
answer is its first paragraphs without markup. Every N-th conversation (10), by
a hash of its name, is held out. The same package gives the same files.
"""
import argparse
import glob
import hashlib
import json
import os
import re

DIRECTIVE = re.compile(
    r"^(?P<indent> *)\.\. (?P<kind>function|method|class|exception|attribute|"
    r"classmethod|staticmethod|data):: (?P<name>\S.*)$")
MODULE = re.compile(r"^\.\. (?:module|currentmodule):: (\S+)")
ROLE = re.compile(r":[a-zA-Z:+]+:`([^`]*)`")
QUESTIONS = {
    "function": ["What does the Python function `{}` do?",
                 "Explain `{}`.", "How does `{}` work in Python?"],
    "method": ["What does the method `{}` do?", "Explain `{}`.",
               "When do I call `{}` in Python?"],
    "class": ["What is the Python class `{}` for?", "Explain `{}`."],
    "exception": ["When is the exception `{}` raised?"],
    "attribute": ["What does the attribute `{}` hold?"],
    "data": ["What is `{}` in Python?"],
}
QUESTIONS["classmethod"] = QUESTIONS["staticmethod"] = QUESTIONS["method"]


def digest(text):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def plain(text):
    """Text without roles, references and double backquotes."""
    def role(match):
        inner = match[1]
        target = re.fullmatch(r"(.*?)\s*<[^>]*>", inner, re.S)
        if target:
            return target[1]
        if inner.startswith("~"):
            return "`" + inner[1:].rsplit(".", 1)[-1] + "`"
        return "`" + inner.lstrip("!") + "`"
    text = ROLE.sub(role, text)
    text = text.replace("``", "`")
    text = re.sub(r"`([^`<]+)\s+<[^>`]*>`_+", r"\1", text)
    text = re.sub(r"\|(\w+)\|", r"\1", text)
    text = re.sub(r"\\(.)", r"\1", text)
    return re.sub(r"\s+", " ", text).strip()


def paragraphs(lines, indent):
    """The first paragraphs of a body, up to 700 characters of them."""
    found, current = [], []
    for line in lines + [""]:
        depth = len(line) - len(line.lstrip())
        if line.strip() and depth <= indent:
            break
        if line.strip():
            current.append((depth, line.strip()))
            continue
        if not current:
            continue
        first, text = current[0][0], " ".join(t for _, t in current)
        current = []
        if text.startswith((":", ".. ")):
            continue
        if text.startswith((">>>", "* ", "- ", "+-", "==", "#")) or (
                found and first > found[0][0]):
            break
        found.append((first, plain(text)))
        if sum(len(t) for _, t in found) > 700:
            break
    while found and found[-1][1].endswith(":"):
        last = found.pop()[1]
        if found or not last.rstrip(":"):
            continue
        sentences = re.split(r"(?<=[.!?]) ", last)[:-1]
        return " ".join(sentences)
    return "\n\n".join(t for _, t in found)


def conversations(path):
    module, owner = "", {}
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    for number, line in enumerate(lines):
        named = MODULE.match(line)
        if named:
            module = named[1]
            continue
        match = DIRECTIVE.match(line)
        if not match:
            continue
        indent, kind = len(match["indent"]), match["kind"]
        name = match["name"].split("(")[0].strip()
        signature = plain(match["name"].strip())
        if kind in ("class", "exception"):
            owner = {"indent": indent, "name": name}
        elif owner and indent > owner["indent"] and "." not in name:
            name, signature = (owner["name"] + "." + s
                               for s in (name, signature))
        if module and module != "builtins" and not name.startswith(module):
            name, signature = module + "." + name, module + "." + signature
        # Further signatures of the same text follow, options stand before it.
        body = number + 1
        while body < len(lines) and lines[body].strip() and not re.match(
                r"\s*\.\. ", lines[body]):
            body += 1
        answer = paragraphs(lines[body:], indent)
        if len(answer) < 40 or not answer.endswith("."):
            continue
        ask = QUESTIONS[kind]
        yield name, [
            {"role": "user",
             "content": ask[digest(name) % len(ask)].format(signature)},
            {"role": "assistant", "content": answer}]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument(
        "--sources", default="/usr/share/doc/python3.11/html/_sources/library")
    parser.add_argument("--held-out", type=int, default=10)
    options = parser.parse_args()
    found = {}
    for path in sorted(glob.glob(os.path.join(options.sources, "*.rst.txt"))):
        for name, messages in conversations(path):
            found.setdefault(name, messages)
    if not found:
        raise SystemExit(f"{options.sources}: no documentation; "
                         "apt-get install python3.11-doc")
    os.makedirs(options.out, exist_ok=True)
    names = sorted(found, key=digest)
    for file, keep in (("train", False), ("held_out", True)):
        mine = [n for n in names
                if (digest("held out " + n) % options.held_out == 0) == keep]
        with open(os.path.join(options.out, file + ".jsonl"), "w",
                  encoding="utf-8") as out:
            for name in mine:
                out.write(json.dumps({"id": name, "messages": found[name]},
                                     ensure_ascii=False) + "\n")
        print(f"{file}.jsonl: {len(mine)} conversations")


if __name__ == "__main__":
    main()
