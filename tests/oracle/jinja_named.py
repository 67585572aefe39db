#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the built-in templates (src/jinja/named) with published ones, by
what transformers renders of both, and writes tests/fixtures/jinja/named.json:
conversations, and for each name digests of what the published template gives,
or of what ours gives where there is none.

usage: jinja_named.py [--check] DIRECTORY ...     (pip install transformers)

The directories hold the published templates of PUBLISHED.
"""
import json
import pathlib
import sys

import jinja_oracle
from jinja_conversations import conversations

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "src/jinja/named"
TARGET = ROOT / "tests/fixtures/jinja/named.json"
# A name, the file of its published template, variables for both.
PUBLISHED = {
    "qwen2.5": "Qwen-Qwen2.5-7B-Instruct.jinja",
    "mimo": "MiMo-VL.jinja",
    "qwen3": "qwen3.jinja",
    "qwen3-instruct": "qwen3_instruct_2507.jinja",
    "qwen3-next": "qwen3_instruct_2507.jinja",
    "qwen3-coder": "Qwen3-Coder.jinja",
    "qwen3.5-think": "qwen3_5_think.jinja",
    "qwen3.5": "qwen3_5_think.jinja",
    "qwen3.5-nothink": "qwen3_5_nothink.jinja",
    "qwen3.6": "qwen3_6.jinja",
    "qwen2.5-vl": "qwen2_5_vl.jinja",
    "qwen3-vl": "qwen3_vl.jinja",
    "llama3": "llama3.jinja",
    "llama3.1": "meta-llama-Llama-3.1-8B-Instruct.jinja",
    "deepseek3": "deepseekv3.jinja",
    "deepseek3.1": "deepseek-ai-DeepSeek-V3.1.jinja",
    "deepseek4": "deepseek-ai-DeepSeek-V4.jinja",
    "minimax-m2": "MiniMax-M2.jinja",
    "kimi-k2": "moonshotai-Kimi-K2.jinja",
    "glm4.7": "GLM-4.7-Flash.jinja",
    "kimi-k2-thinking": "Kimi-K2-Thinking.jinja",
    "deepseek": "DeepSeek-V2-Lite-Chat.jinja",
    "deepseek-v2": "DeepSeek-V2-Lite-Chat.jinja",
    "deepseek-v3": "deepseekv3.jinja",
    "deepseek3.1-nothink": "deepseek-ai-DeepSeek-V3.1.jinja",
    "llama2": "llama-2-chat.jinja",
    "mistral": "mistral-instruct.jinja",
    "minicpm-v-4.6": "minicpm_v_4_6_hf_training.jinja",
}


def names():
    """Names and their texts, in the order of names.txt."""
    found = {}
    for line in (FOLDER / "names.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, file, *before = line.split(" ", 2)
            text = (FOLDER / f"{file}.jinja").read_text(encoding="utf-8")
            found[name] = "".join(before) + text
    return found


def digest(text):
    """FNV-1a of 64 bits, as 16 hexadecimal digits."""
    value = 0xcbf29ce484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001b3 % 2 ** 64
    return "%016x" % value


def rendered(text, talks):
    cases = jinja_oracle.Cases()
    return [cases.add("", text, talk) for talk in talks]


def main():
    directories = [a for a in sys.argv[1:] if not a.startswith("--")]
    talks = conversations()
    rows, wrong = [], 0
    for name, text in names().items():
        ours = rendered(text, talks)
        paths = [pathlib.Path(d) / PUBLISHED.get(name, "?")
                 for d in directories]
        path = next((p for p in paths if p.exists()), None)
        theirs = rendered(path.read_text(encoding="utf-8"),
                          talks) if path else ours
        equal = both = 0
        for number, (a, b) in enumerate(zip(ours, theirs)):
            both += "text" in b
            same = a.get("text") == b.get("text") or "text" not in b
            equal += same and "text" in b
            if not same:
                print(f"  {name} {number}\n    theirs {b['text']!r}\n"
                      f"    ours   {a.get('text', a.get('why'))!r}")
        wrong += equal != both
        print(f"{name}: {path.name if path else 'none published here'}, "
              f"{equal} of {both} equal")
        rows.append({"name": name, "published": path.name if path else None,
                     "digests": [digest(b["text"]) if "text" in b else None
                                 for b in theirs],
                     "spans": [len(a.get("spans", [])) for a in ours]})
    made = {"variables": talks, "names": rows}
    if "--check" in sys.argv:
        return wrong or json.loads(TARGET.read_text()) != made
    with open(TARGET, "w", encoding="utf-8") as out:
        json.dump(made, out, ensure_ascii=False, indent=None)
        out.write("\n")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
