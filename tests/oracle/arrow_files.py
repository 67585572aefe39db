#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parquet and Arrow files of conversations, and their rows as `datasets` has
them.

usage: arrow_files.py OUT

writes ten files of OUT/*.{parquet,arrow,feather} with pyarrow, and beside each a
.jsonl: its rows, without members of types that JSON has not. They are the
fixtures of the test chat_arrow (tests/fixtures/chat/arrow).
"""
import json
import math
import pathlib
import sys
import tempfile

import datasets
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

CALL = {"id": "x", "function": {"name": "add", "arguments": '{"a": 1}'}}


def conversation(n):
    """Of several turns; some members are null, texts are of any kind."""
    message = [
        {"role": "user", "content": f"What is {n} + {n}?", "tool_calls": None},
        {"role": "assistant", "content": None if n % 3 == 0 else f"{2 * n}, é\t\"{n}\"\\",
         "tool_calls": [CALL] * (n % 3) if n % 3 else None},
    ]
    return message * (n % 4) if n % 5 else None


def texts(rows, kind=pa.string()):
    role = pa.struct([("role", kind), ("content", kind),
                      ("tool_calls", pa.list_(pa.struct([
                          ("id", kind), ("function", pa.struct([("name", kind), ("arguments", kind)]))])))])
    lists = pa.list_(role) if kind == pa.string() else pa.large_list(role)
    return pa.table({"messages": pa.array([conversation(n) for n in range(rows)], lists),
                     "source": pa.array([None if n % 7 == 0 else f"s{n}" for n in range(rows)], kind)})


def numbers(rows):
    columns = {}
    for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()):
        most = 2 ** (kind.bit_width - (0 if "u" in str(kind) else 1)) - 1
        columns[str(kind)] = pa.array([None if n % 4 == 0 else most - n for n in range(rows)], kind)
    columns["bool"] = pa.array([None if n % 5 == 0 else n % 2 == 0 for n in range(rows)])
    columns["float"] = pa.array([n / 3 if n % 6 else None for n in range(rows)], pa.float32())
    columns["double"] = pa.array([math.exp(n - 9) for n in range(rows)], pa.float64())
    columns["none"] = pa.nulls(rows)
    columns["fixed"] = pa.array([[n, n + 1] if n % 3 else None for n in range(rows)], pa.list_(pa.int32(), 2))
    columns["text"] = pa.array([f"zero\0{n}" for n in range(rows)])
    return pa.table(columns)


def others(rows):
    """With what JSON has not, in a column and inside of one."""
    return pa.table({
        "text": pa.array([f"t{n}" for n in range(rows)]),
        "created": pa.array(range(rows), pa.timestamp("us", tz="UTC")),
        "bytes": pa.array([b"\0"] * rows, pa.binary()),
        "conversation": pa.array([[{"role": "user", "at": n}] for n in range(rows)],
                                 pa.list_(pa.struct([("role", pa.string()), ("at", pa.date32())])))})


def words(rows):
    column = pa.array([None if n % 4 == 0 else "ab"[n % 2] for n in range(rows)])
    return pa.table({"label": column.dictionary_encode(), "text": pa.array([str(n) for n in range(rows)])})


def plain(value):
    """JSON as this library writes it: no types that it has not."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in ("created", "bytes", "at")}
    return [plain(v) for v in value] if isinstance(value, list) else value


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    pq.write_table(texts(20), out / "snappy.parquet", compression="snappy")
    pq.write_table(texts(20), out / "zstd.parquet", compression="zstd", data_page_version="2.0")
    pq.write_table(texts(30), out / "groups.parquet", row_group_size=7, compression="gzip")
    pq.write_table(texts(12, pa.large_string()), out / "large.parquet", compression="none")
    pq.write_table(numbers(13), out / "numbers.parquet")
    pq.write_table(words(11), out / "dictionary.parquet")
    pq.write_table(others(5), out / "others.parquet")
    pq.write_table(texts(300).slice(3, 290), out / "batches.parquet", compression="zstd")
    with pa.OSFile(str(out / "stream.arrow"), "wb") as f, pa.ipc.new_stream(f, texts(1).schema) as w:
        w.write_table(texts(40).slice(9, 21), max_chunksize=5)
    pyarrow.feather.write_feather(words(9), str(out / "file.feather"), compression="zstd")
    with tempfile.TemporaryDirectory() as cache:
        for path in sorted(out.iterdir()):
            if path.suffix == ".parquet":
                rows = datasets.Dataset.from_parquet(str(path), cache_dir=cache)
            elif path.suffix == ".arrow":
                rows = datasets.Dataset.from_file(str(path))
            elif path.suffix == ".feather":
                rows = datasets.Dataset(pyarrow.feather.read_table(path))
            else:
                continue
            names = rows.features
            with open(path.with_suffix(".jsonl"), "w") as f:
                for row in rows:
                    row = {k: names[k].int2str(v) if isinstance(names[k], datasets.ClassLabel) and v is not None
                           else v for k, v in row.items()}
                    print(json.dumps(plain(row), ensure_ascii=False), file=f)


main()
