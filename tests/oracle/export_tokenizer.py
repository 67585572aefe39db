#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does AutoTokenizer read an export with the ids of the run's tokenizer?

  export_tokenizer.py BUILD SOURCE TEXT [TOKENIZER]

Trains one step with every family, exports, and compares for TEXT: the ids of
transformers' AutoTokenizer, of `tokenizers` on the same tokenizer.json, and of
loong-data; and the ids that begin, end and pad a text in config.json and
generation_config.json with those of AutoTokenizer. TOKENIZER: a tokenizer.json
or its directory; without one a tokenizer is trained on SOURCE/docs.
Exit code 0 = equal, 1 = not.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tokenizers import Tokenizer
from transformers import AutoTokenizer

FAMILIES = {
    "gpt2": {}, "llama": {}, "qwen2": {}, "qwen3": {"qk_layernorm": True}}


def run(*command, **options):
    return subprocess.run([str(c) for c in command], check=True,
                          capture_output=True, **options).stdout


def export(build, place, tokenizer, vocab, family, keys):
    model = {"family": family, "num_layers": 1, "hidden_size": 32,
             "ffn_hidden_size": 64, "num_attention_heads": 2,
             "vocab_size": vocab, "max_position_embeddings": 64, **keys}
    recipe = {"model": {"foundation": model},
              "data": {"seq_length": 64, "tokenizer": str(tokenizer),
                       "train": [{"path": str(place / "text")}]},
              "train": {"global_batch_size": 1, "train_iters": 1},
              "optimizer": {"lr": 1e-3},
              "checkpoint": {"save": str(place / f"save_{family}")},
              "export": {"hf": str(place / family)}}
    path = place / f"{family}.yaml"
    path.write_text(json.dumps(recipe))
    run(build / "loongrun", path)
    return place / family


def check(folder, text, ours):
    problems = []
    auto = AutoTokenizer.from_pretrained(folder)
    plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = auto(text)["input_ids"]
    if ids != plain.encode(text).ids:
        problems.append("AutoTokenizer and tokenizers differ")
    if ids != ours:
        problems.append("AutoTokenizer and loong-data differ")
    for name in ("config.json", "generation_config.json"):
        config = json.loads((folder / name).read_text())
        for role in ("bos", "eos", "pad"):
            stated = config[f"{role}_token_id"]
            first = stated[0] if isinstance(stated, list) else stated
            known = getattr(auto, f"{role}_token_id")
            allowed = stated if isinstance(stated, list) else [stated]
            if known not in allowed and not (first is None and known is None):
                problems.append(f"{name}: {role}_token_id is {stated}, "
                                f"AutoTokenizer has {known}")
    print(f"{folder.name}: {type(auto).__name__}, {len(ids)} ids, eos "
          f"{auto.eos_token!r} = {auto.eos_token_id}"
          + "".join(f"\n  {p}" for p in problems))
    return problems


def main():
    build, source, text = (Path(a).resolve() for a in sys.argv[1:4])
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        tokenizer = place / "bpe.json"
        if len(sys.argv) > 4:
            tokenizer = Path(sys.argv[4]).resolve()
        else:
            run(build / "loong-data", "tokenizer", "train", "--vocab-size",
                "1000", "--suffixes", ".md", "--output", tokenizer,
                source / "docs")
        file = tokenizer
        if tokenizer.is_dir():
            file = tokenizer / "tokenizer.json"
        vocab = Tokenizer.from_file(str(file)).get_vocab_size()
        run(build / "loong-data", "index", "--tokenizer", tokenizer,
            "--append-eod", "--quiet", "--suffixes", ".md",
            "--output-prefix", place / "text", source / "docs")
        ours = [int(i) for i in
                run(build / "loong-data", "tokenizer", "encode",
                    "--tokenizer", tokenizer, text).split()]
        problems = []
        for family, keys in FAMILIES.items():
            folder = export(build, place, tokenizer, vocab, family, keys)
            problems += check(folder, text.read_text(), ours)
    print("FAIL" if problems else "ok")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
