#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Conversations as tokens and masks: transformers and TRL against libloong.

    chat.py --write          tests/fixtures/chat: small models' tokenizers with
                             templates of our own, conversations, and the ids
                             and masks of transformers
    chat.py --check          the same, compared with what is there
    chat.py --tools BUILD [DIRECTORY...]
                             loong-data with every training template that TRL
                             ships and, without blocks, the model's own, on the
                             tokenizers of tests/fixtures/chat or of
                             directories that are given

Needs transformers, jinja2 and, for --tools, trl. Exit code 0: equal, 1: not.
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = ROOT / "tests/fixtures/chat"
MARKS = ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>",
         "</tool_call>"]

CHATML = """\
{%- if tools %}{{ '<|im_start|>system\\n# Tools' }}
{%- for tool in tools %}{{ '\\n' + tool | tojson }}{% endfor %}
{{- '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.content %}{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>' + (call.function | tojson) + '</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
# The assistant's turn up to its end is marked.
GENERATION = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}
{%- generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}
{{- '\\n' }}
{%- else %}
{{- message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
INST = """\
{%- set ns = namespace(system='') %}
{%- for message in messages %}
{%- if message.role == 'system' %}{% set ns.system = message.content + '\\n' %}
{%- elif message.role == 'user' %}
{{- bos_token + '[INST] ' + ns.system + message.content | trim + ' [/INST]' }}
{%- set ns.system = '' %}
{%- elif message.role == 'assistant' %}
{{- ' ' + message.content | trim + ' ' + eos_token }}
{%- else %}{{ raise_exception('no role ' + message.role) }}
{%- endif %}
{%- endfor %}
"""
# Drops the reasoning of all answers but the last, as some models do.
FORGETS = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' and not loop.last %}
{{- message.content.split('</think>')[-1] }}
{%- else %}{{ message.content }}{% endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
# Directory: shape of tests/fixtures/tokenizer, template, special tokens.
MODELS = {
    "chatml": ("llama3", CHATML, {"eos_token": "<|im_end|>"}),
    "generation": ("added", GENERATION, {"eos_token": "<|im_end|>"}),
    "inst": ("llama2", INST, {"bos_token": "<s>", "eos_token": "</s>"}),
    "forgets": ("deepseek", FORGETS, {"eos_token": "<|im_end|>"}),
}


def say(*turns):
    roles = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
    return [{"role": roles[turn[0]], "content": turn[1:]} for turn in turns]


CALL = {"type": "function",
        "function": {"name": "add", "arguments": {"a": 1, "b": [2, "x"]}}}
CONVERSATIONS = {
    "one": say("uHello there", "aHello, what is it?"),
    "system": say("sYou help.", "uWhat is 2 + 2?", "a4"),
    "several": say("uOne", "a1", "uTwo", "a2 and 22", "uThree", "a3\n\n3"),
    "odd": say("u  blanks \n", "a\n two lines\n\n", "ucafe\u0301 \U0001f600",
               "a\u4f60\u597d \U0001f469\u200d\U0001f680 na\u00efve"),
    "marks": say("usay <|im_end|> please", "aI say </s> or <s> [MASK]"),
    "think": say("uWhy", "a<think>as it is</think>Because", "uAnd so?",
                 "a<think>yes</think>So."),
    "empty": say("u", "a.", "uagain", "a"),
    "question": say("uHello", "aYes?", "uand?"),
}
TOOLS = [{"type": "function", "function": {
    "name": "add", "parameters": {"type": "object", "properties": {}}}}]
WITH_TOOLS = [*say("uadd 1 and 2"),
              {"role": "assistant", "content": "", "tool_calls": [CALL]},
              *say("t3", "aIt is 3.")]


def make_model(name):
    """The tokenizer.json and tokenizer_config.json of a model."""
    shape, template, tokens = MODELS[name]
    path = ROOT / f"tests/fixtures/tokenizer/{shape}.json"
    tokenizer = Tokenizer.from_str(path.read_text())
    tokenizer.add_special_tokens(
        [AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    config = {**tokens, "chat_template": template,
              "tokenizer_class": "PreTrainedTokenizerFast"}
    return tokenizer.to_str(), json.dumps(config, indent=1) + "\n"


def load(directory):
    return PreTrainedTokenizerFast.from_pretrained(directory)


def pick(spans, offsets):
    """1 for tokens of which a character is learned."""
    return [int(any(begin < end and e < b and begin < b and e < end
                    for e, b in spans))
            for begin, end in offsets]


def render(tokenizer, messages, tools, prompt=False):
    return tokenizer.apply_chat_template(
        messages, tools=tools, tokenize=False, add_generation_prompt=prompt)


def span_of(tokenizer, messages, tools, k):
    """Characters that message k adds; None: its beginning is not the text's."""
    whole = render(tokenizer, messages, tools)
    before = render(tokenizer, messages[:k], tools, True)
    after = render(tokenizer, messages[:k + 1], tools)
    if not (whole.startswith(before) and whole.startswith(after)):
        return None
    return len(before), len(after)


def expect(tokenizer, messages, tools, train_on):
    """[ids, mask], or None where the record is to be refused."""
    answers = [k for k, m in enumerate(messages) if m["role"] == "assistant"]
    if train_on == "last":
        answers = answers[-1:]
    if "{%- generation" in tokenizer.chat_template and train_on != "last":
        both = tokenizer.apply_chat_template(
            messages, tools=tools, return_dict=True,
            return_assistant_tokens_mask=True)
        return [both["input_ids"], both["assistant_masks"]]
    text = render(tokenizer, messages, tools)
    both = tokenizer(text, add_special_tokens=False,
                     return_offsets_mapping=True)
    ids = tokenizer.apply_chat_template(messages, tools=tools,
                                        return_dict=True)["input_ids"]
    assert ids == both["input_ids"]
    spans = [span_of(tokenizer, messages, tools, k) for k in answers]
    if None in spans:
        return None
    mask = pick(spans, both["offset_mapping"])
    return [ids, mask] if any(mask[1:]) else None


def trl_last(tokenizer, messages, tools):
    """TRL's mask of a prompt and its completion, the last answer."""
    prompt = tokenizer.apply_chat_template(
        messages[:-1], tools=tools, add_generation_prompt=True,
        return_dict=True)["input_ids"]
    ids = tokenizer.apply_chat_template(messages, tools=tools,
                                        return_dict=True)["input_ids"]
    if ids[:len(prompt)] != prompt:
        return None  # TRL warns and goes on
    return [0] * len(prompt) + [1] * (len(ids) - len(prompt))


PAIRS = [("a b", " c"), ("What is 2 + 2?\nIt is", " 4.\n\nYes"), ("", "x y"),
         ("na\u00efve ", "\u4f60\u597d")]


def trl_pair(tokenizer, prompt, completion):
    """TRL's ids and mask of two texts; None where it would warn."""
    if not completion.endswith(tokenizer.eos_token):
        completion += tokenizer.eos_token
    before = tokenizer(text=prompt)["input_ids"]
    ids = tokenizer(text=prompt + completion)["input_ids"]
    if ids[:len(before)] != before:
        return None
    return [ids, [0] * len(before) + [1] * (len(ids) - len(before))]


def write_cases(directory, name):
    tokenizer = load(directory)
    cases = []
    todo = [(messages, None) for messages in CONVERSATIONS.values()]
    if name == "chatml":
        todo.append((WITH_TOOLS, TOOLS))
    for messages, tools in todo:
        for train_on in ("assistant", "last"):
            if name == "generation" and train_on == "last":
                continue
            expected = expect(tokenizer, messages, tools, train_on)
            if train_on == "last" and expected is not None \
                    and messages[-1]["role"] == "assistant":
                trl = trl_last(tokenizer, messages, tools)
                assert trl in (None, expected[1]), (name, messages, trl)
            cases.append({
                "record": {"messages": messages,
                           **({"tools": tools} if tools else {})},
                "train_on": train_on, "expected": expected})
    for prompt, completion in PAIRS:
        expected = trl_pair(tokenizer, prompt, completion)
        if expected is not None:
            cases.append({
                "record": {"prompt": prompt, "completion": completion},
                "train_on": "pairs", "expected": expected})
    return "[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n"


def files(name):
    tokenizer, config = make_model(name)
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        (place / "tokenizer.json").write_text(tokenizer)
        (place / "tokenizer_config.json").write_text(config)
        cases = write_cases(place, name)
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": config,
            "cases.json": cases}


def write(check):
    bad = []
    for name in MODELS:
        for file, text in files(name).items():
            path = TARGET / name / file
            if check and path.read_text() != text:
                bad.append(str(path))
            elif not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    return bad


# ---- loong-data with the templates of TRL -----------------------------------

def read_inspect(text):
    """[(line, ids, mask)] of `loong-data chat inspect --ids`."""
    samples = []
    for line in text.splitlines():
        head = re.match(r".*:(\d+): \d+ tokens, \d+ learned$", line)
        token = re.match(r"([+ ]) +(\d+) ", line)
        if line == "refused:":
            break
        if head:
            samples.append((int(head[1]), [], []))
        elif token and samples:
            samples[-1][1].append(int(token[2]))
            samples[-1][2].append(int(token[1] == "+"))
    return samples


def difference(mine, theirs):
    if theirs is None:
        return "refused by transformers"
    for what, a, b in zip(("ids", "mask"), mine, theirs):
        if a != b:
            at = next(i for i, (x, y) in enumerate(zip(a + [-1], b + [-1]))
                      if x != y)
            return f"{what} from {at} on: {a[at:at + 8]} and {b[at:at + 8]}"
    return "equal"


def transformers_says(tokenizer, messages, tools):
    """(ids, mask), and the mask of all tokens with a character of a block: of
    those of a block's last character transformers has the first alone, and it
    has one of an empty block. None: it refuses, or nothing is learned."""
    try:
        both = tokenizer.apply_chat_template(
            messages, tools=tools, return_dict=True,
            return_assistant_tokens_mask=True)
        text, blocks = render_jinja_template(
            conversations=[messages], tools=tools,
            chat_template=tokenizer.chat_template,
            return_assistant_tokens_mask=True,
            **tokenizer.special_tokens_map)
    except Exception:  # what a template or jinja2 raises
        return None, None
    ids, mask = both["input_ids"], both["assistant_masks"]
    offsets = tokenizer(text[0], add_special_tokens=False,
                        return_offsets_mapping=True)["offset_mapping"]
    if not any(mask[1:]):
        return None, None
    return (ids, mask), (ids, pick(blocks[0], offsets))


def own_says(tokenizer, messages, tools):
    """The same of a template without blocks."""
    try:
        both = expect(tokenizer, messages, tools, "assistant")
    except Exception:  # what a template or jinja2 raises
        both = None
    return (tuple(both), tuple(both)) if both else (None, None)


def inspect(build, directory, template, place, records):
    """{line: (ids, mask)}, {line: why refused}; template None: its own"""
    path = place / "all.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    found = subprocess.run(
        [str(build / "loong-data"), "chat", "inspect", "--ids", "--count",
         "1000", "--tokenizer", str(directory), "--cache",
         str(place / "cache"), str(path),
         *(["--template", str(template)] if template else [])],
        capture_output=True, text=True, check=False)
    refused = {}
    for file in (place / "cache").glob("chat-*/refused.txt"):
        for line in file.read_text().splitlines():
            number, why = line[len(str(path)) + 1:].split(": ", 1)
            refused[int(number)] = why
    samples = read_inspect(found.stdout) if found.returncode in (0, 1) else []
    assert len(samples) + len(refused) == len(records), found.stderr
    return {line: (ids, mask) for line, ids, mask in samples}, refused


def compare(build, directory, template, place, count):
    tokenizer = load(directory)
    says = transformers_says if template else own_says
    if template:
        tokenizer.chat_template = template.read_text()
    todo = [(messages, None) for messages in CONVERSATIONS.values()]
    todo.append((WITH_TOOLS, TOOLS))
    records = [{"messages": m, **({"tools": t} if t else {})}
               for m, t in todo]
    mine, refused = inspect(build, directory, template, place, records)
    bad = []
    for number, (messages, tools) in enumerate(todo, 1):
        theirs, whole = says(tokenizer, messages, tools)
        if number in refused:
            if theirs is None:
                count["refused by both"] += 1
            elif "leaves out its role" in refused[number]:
                count["refused, as the template leaves out a message"] += 1
            else:
                bad.append((template, directory, number, refused[number]))
        elif mine[number] == theirs:
            count["equal"] += 1
        elif mine[number] == whole:
            count["equal to its blocks, not to its mask, at an end"] += 1
        else:
            bad.append((template, directory, number,
                        difference(mine[number], theirs)))
    return [f"{template and template.stem} {directory.name} line {number}: {why}"
            for template, directory, number, why in bad]


def tools(build, directories):
    import trl
    templates = sorted((pathlib.Path(trl.__file__).parent /
                        "chat_templates").glob("*_training.jinja"))
    bad, count = [], collections.Counter()
    directories = [pathlib.Path(d) for d in directories] or \
        [TARGET / name for name in ("chatml", "inst", "forgets")]
    for directory in directories:
        own = load(directory).chat_template
        for template in templates + [None] * bool(own and
                                                  "generation %" not in own):
            with tempfile.TemporaryDirectory() as place:
                bad += compare(build, directory, template, pathlib.Path(place),
                               count)
    print(f"{len(templates)} templates, {len(directories)} tokenizers:",
          *(f"{n} {what};" for what, n in count.items()),
          f"{len(bad)} different")
    return bad


def main():
    what = sys.argv[1:] or ["--check"]
    os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
    if what[0] == "--tools":
        bad = tools(pathlib.Path(what[1]), what[2:])
    else:
        bad = write(what[0] == "--check")
    for line in bad:
        print(line[:400])
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
