#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a GPU's libraries are, and whether they work at all.

  doctor.py wheels           folders of libraries that Python's packages of
                             NVIDIA have, each behind a ';'
  doctor.py libraries BUILD  one product and one attention, by cuDNN and by our
                             own kernel; what they loaded, and its version; NCCL
"""
import ctypes
import glob
import importlib.util
import json
import os
import re
import subprocess
import sys

WHEELS = ("nvidia.cu13", "nvidia.cublas", "nvidia.cudnn", "nvidia.nccl")
PRODUCT = ("linear", "4096,4096,4096")
ATTENTION = ("attention", "1,4096,32,8,128,128")
FUSED = ("attention_fused", "1,4096,32,8,128,128")


def wheels():
    for name in WHEELS:
        try:
            spec = importlib.util.find_spec(name)
        except ImportError:
            spec = None
        for place in spec and spec.submodule_search_locations or ():
            if glob.glob(os.path.join(place, "lib", "*.so*")):
                yield os.path.join(place, "lib")


def version(path, name, by_pointer):
    """As the library says it."""
    library = ctypes.CDLL(path)
    if by_pointer:
        number = ctypes.c_int()
        getattr(library, name)(ctypes.byref(number))
        return number.value
    call = getattr(library, name)
    call.restype = ctypes.c_size_t
    return call()


def tell(name, path, call, by_pointer=False):
    try:
        print(json.dumps(dict(library=name, path=os.path.realpath(path),
                              version=version(path, call, by_pointer))))
    except (OSError, AttributeError) as error:
        print(json.dumps(dict(library=name, path=path, missing=str(error))))


def bench(build, op, shape):
    """Whether it ran, and the libraries that it loaded."""
    command = [os.path.join(build, "loong-bench"), "op", "--device", "cuda",
               "--op", op, "--shape", shape, "--seconds", "0.2", "--json"]
    said = subprocess.run(command, capture_output=True, text=True,
                          env=dict(os.environ, LD_DEBUG="files"))
    print(said.stdout, end="")
    ran = said.returncode == 0 and '"kernel"' in said.stdout
    if not ran:
        rest = [x for x in said.stderr.splitlines()
                if not re.match(r" *\d+:", x)]
        print(f"{op} {shape}: exit code {said.returncode}: "
              + "\n".join(rest)[-1500:])
    return ran, dict((os.path.basename(path), path) for path in re.findall(
        r"calling init: (\S+)", said.stderr))


def libraries(build):
    good, loaded = True, {}
    for op, shape in (PRODUCT, ATTENTION, FUSED):
        ran, paths = bench(build, op, shape)
        good = good and ran
        loaded.update(paths)
    for name, file, call in (
            ("cuBLASLt", "libcublasLt.so.13", "cublasLtGetVersion"),
            ("cuDNN", "libcudnn.so.9", "cudnnGetVersion")):
        tell(name, loaded.get(file, file), call)
    # One GPU does without.
    places = [os.path.join(place, "libnccl.so.2") for place in wheels()]
    path = next((x for x in places if os.path.exists(x)), "libnccl.so.2")
    tell("NCCL", path, "ncclGetVersion", True)
    try:
        import torch
        print(json.dumps(dict(library="PyTorch", version=torch.__version__,
                              cuda=torch.version.cuda,
                              cudnn=torch.backends.cudnn.version())))
    except ImportError:
        print(json.dumps(dict(library="PyTorch", missing="python3 has none")))
    return 0 if good else 1


if sys.argv[1] == "wheels":
    print("".join(";" + path for path in wheels()))
else:
    sys.exit(libraries(sys.argv[2]))
