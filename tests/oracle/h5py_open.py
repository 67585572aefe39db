# SPDX-License-Identifier: Apache-2.0
"""Opens a native checkpoint with h5py and compares it with checkpoint.json and
pieces.json.

    h5py_open.py STEP_DIR [HF_DIR]

Every tensor of index.h5 is read whole, through the virtual data sets, and must
have the declared shape and equal the pieces in the rank files at the recorded
offsets. With HF_DIR (the directory that loong-ckpt export wrote from it, or
import read) every plain parameter must equal the safetensors file as well.
Needs h5py, numpy; with HF_DIR also safetensors and torch.
"""
import json
import pathlib
import sys

import h5py
import numpy as np

DTYPES = {"fp64": "<f8", "fp32": "<f4", "fp16": "<f2", "int64": "<i8",
          "int32": "<i4", "int16": "<i2", "int8": "i1", "uint16": "<u2",
          "uint8": "u1", "bool": "?"}


def raw_piece(step, files, piece):
    """The piece's elements from its file, without HDF5."""
    name = files[piece["file"]]["name"]
    count = int(np.prod(piece["count"], dtype=np.int64))
    bf16 = piece["dtype"] == "bf16"
    dtype = np.dtype("<u2" if bf16 else DTYPES[piece["dtype"]])
    values = np.fromfile(step / name, dtype, count, offset=piece["offset"])
    if bf16:
        values = (values.astype("<u4") << 16).view("<f4")
    return values.reshape(piece["count"])


def read_tensors(step, manifest):
    """{(kind, name): [piece]} of checkpoint.json and pieces.json."""
    tensors = {}
    lines = json.loads((step / "pieces.json").read_text())
    assert len(lines) == len(manifest["tensors"])
    for tensor, rows in zip(manifest["tensors"], lines):
        assert len(rows) == tensor["pieces"]
        n = len(tensor["shape"])
        tensors[tensor["kind"], tensor["name"]] = [
            {"file": row[0], "offset": row[1], "dtype": tensor["dtype"],
             "shape": tensor["shape"], "begin": row[3:3 + n],
             "count": row[3 + n:]} for row in rows]
    return tensors


def main():
    step = pathlib.Path(sys.argv[1])
    manifest = json.loads((step / "checkpoint.json").read_text())
    tensors = read_tensors(step, manifest)
    checked = 0
    with h5py.File(step / "index.h5", "r") as index:
        assert index.attrs["step"] == manifest["step"]
        for key, value in manifest["metadata"].items():
            assert index["metadata"][key][()].decode() == value, key
        found = {(kind, name) for kind in index if kind != "metadata"
                 for name in index[kind]}
        assert found == set(tensors), found ^ set(tensors)
        for (kind, name), pieces in tensors.items():
            data = index[kind][name]
            assert list(data.shape) == pieces[0]["shape"], name
            whole = data[()]
            for piece in pieces:
                part = raw_piece(step, manifest["files"], piece)
                place = tuple(slice(b, b + c) for b, c in
                              zip(piece["begin"], piece["count"]))
                assert np.array_equal(np.asarray(whole[place]).view("u1"),
                                      part.view("u1")) or np.array_equal(
                    whole[place], part, equal_nan=True), name
            checked += 1
    print(f"{checked} tensors: h5py agrees")
    if len(sys.argv) > 2:
        compare_hf(step, tensors, sys.argv[2])


def compare_hf(step, tensors, directory):
    from safetensors.torch import load_file
    weights = {}
    for file in pathlib.Path(directory).glob("*.safetensors"):
        if "golden" not in file.name:
            weights.update(load_file(file))
    equal = 0
    with h5py.File(step / "index.h5", "r") as index:
        for kind, name in tensors:
            short = name.removeprefix("foundation.")
            other = weights.get("model." + short, weights.get(short))
            if kind == "param" and other is not None:
                assert np.array_equal(index[kind][name][()],
                                      other.float().numpy()), name
                equal += 1
    print(f"{equal} parameters: equal to {directory}")


main()
