#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Indexed data sets by an independent writer, compared with loong-data.

    python3 tests/oracle/mmididx.py build/loong-data

Needs numpy. Where the package megatron-core is importable as well
(`pip install megatron-core`, with torch), its IndexedDatasetBuilder writes
the same documents and its IndexedDataset reads the result of loong-data.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5,
         "float64": 6, "float32": 7, "uint16": 8}
EOD = 256


def write(prefix, documents, dtype):
    """documents: lists of sequences, a sequence is a list of ids."""
    sequences = [s for d in documents for s in d]
    lengths = np.array([len(s) for s in sequences], dtype="<i4")
    size = np.dtype(dtype).itemsize
    ends = np.cumsum(lengths, dtype=np.int64)
    offsets = (ends - lengths) * size
    starts = np.cumsum([0] + [len(d) for d in documents], dtype=np.int64)
    flat = [i for s in sequences for i in s]
    np.array(flat, dtype=dtype).tofile(f"{prefix}.bin")
    with open(f"{prefix}.idx", "wb") as f:
        f.write(b"MMIDIDX\x00\x00")
        f.write(np.uint64(1).tobytes())
        f.write(np.uint8(CODES[dtype]).tobytes())
        f.write(np.uint64(len(lengths)).tobytes())
        f.write(np.uint64(len(starts)).tobytes())
        f.write(lengths.tobytes())
        f.write(offsets.astype("<i8").tobytes())
        f.write(starts.astype("<i8").tobytes())


def texts():
    rng = np.random.default_rng(7)
    for i in range(2000):
        n = int(rng.integers(1, 400))
        yield f"{i} " + "".join(chr(c) for c in rng.integers(32, 0x2000, n))


def same(a, b):
    assert pathlib.Path(a).read_bytes() == pathlib.Path(b).read_bytes(), \
        f"{a} and {b} differ"


def check_megatron(folder, documents):
    try:
        import torch
        from megatron.core.datasets import indexed_dataset as mega
    except ImportError as error:
        print(f"not compared with megatron-core: {error}")
        return
    for dtype in ("uint16", "int32"):
        builder = mega.IndexedDatasetBuilder(f"{folder}/m.bin",
                                             dtype=np.dtype(dtype).type)
        for d in documents:
            builder.add_item(torch.tensor(d[0], dtype=torch.int64))
            builder.end_document()
        builder.finalize(f"{folder}/m.idx")
        for suffix in (".bin", ".idx"):
            same(f"{folder}/m{suffix}", f"{folder}/{dtype}{suffix}")
        read = mega.IndexedDataset(f"{folder}/{dtype}", mmap=True)
        assert len(read) == len(documents)
        assert all((read[i] == documents[i][0]).all()
                   for i in range(0, len(documents), 37))
    print("megatron-core writes the same bytes and reads ours")


def main(tool):
    with tempfile.TemporaryDirectory() as folder:
        documents = []
        with open(f"{folder}/in.jsonl", "w", encoding="utf-8") as f:
            for text in texts():
                f.write(json.dumps({"text": text}) + "\n")
                documents.append([list(text.encode()) + [EOD]])
        for dtype in ("uint16", "int32"):
            subprocess.run([tool, "index", "--tokenizer", "bytes",
                            "--append-eod", "--dtype", dtype,
                            "--output-prefix", f"{folder}/{dtype}",
                            f"{folder}/in.jsonl"], check=True)
            write(f"{folder}/oracle", documents, dtype)
            for suffix in (".bin", ".idx"):
                same(f"{folder}/oracle{suffix}", f"{folder}/{dtype}{suffix}")
        print("the independent writer writes the same bytes")
        several = [[[1, 2, 3], [4]], [], [[5, 6]], [[]], [[7], [8, 9]]]
        for dtype in CODES:
            write(f"{folder}/several", several, dtype)
            out = subprocess.run([tool, "inspect", "--validate",
                                  "--documents", "5", f"{folder}/several"],
                                 check=True, capture_output=True, text=True)
            for line in ("5 documents, 6 sequences, 9 tokens",
                         "document 0 (4 tokens): 1 2 3 4 ",
                         "document 1 (0 tokens): ",
                         "document 4 (3 tokens): 7 8 9 ",
                         "ids: 1 to 9, 9 different"):
                assert line in out.stdout, (dtype, line, out.stdout)
        print("all types of the independent writer are read")
        check_megatron(folder, documents)


if __name__ == "__main__":
    main(sys.argv[1])
