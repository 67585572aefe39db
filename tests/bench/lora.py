#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of adapters of low rank on one processor: ours, peft's with
transformers, and what ours cannot be faster than.

  lora.py [--build build] [--model DIR | --layers N ...] [--dtype bf16]
          [--length 512] [--rounds 8] [--device cuda] [--steps 1]

Runs in the environment of tests/golden/README.md. All programs are there at
once and take a step in turn, on one thread; a figure is the median over the
rounds of the ratio within a round, in processor time, since a busy machine
stretches seconds. Without --model there is a LLaMA of random numbers with the
shape of the other options (default: LLaMA-2 7B's layers).

  ours       adapters of rank 16 beside all linear layers, AdamW
  bare       ours without adapters, one norm of the first layer trained: the
             forward and the gradients of all activations
  peft       transformers' model and peft's adapters, as peft makes them: of a
             model in bf16 in fp32
  peft bf16  the same with adapters in the model's type
  floor      `loong-bench floor`: the products of our step alone

With --device cuda a turn is of --steps steps, seconds are those of the clock, and
there is no floor. The first losses of ours and peft's must agree. Memory is a
process' largest resident set, beside it what the process had before the model.
"""
import argparse
import ctypes
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np

TARGETS = "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj".split()
RANK = 16
TUNED = {"OMP_NUM_THREADS": "1", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:"
         "glibc.malloc.mmap_threshold=8589934592:"
         "glibc.malloc.trim_threshold=17179869184:"
         "glibc.malloc.top_pad=268435456"}


def resident():
    """MiB, the most so far of this program; getrusage's begins with that of
    the process that started it."""
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024


class Turns:
    """A worker's side: waits for its turn, tells what its steps took."""

    def __init__(self, device="cpu", steps=1):
        self.clock = time.monotonic if device == "cuda" else time.process_time
        self.steps = int(steps)
        self.base = resident()
        self.done = 0

    def step(self):
        """Before each step."""
        if self.done % self.steps == 0:
            if not sys.stdin.readline():
                sys.exit()
            self.begin = self.clock()

    def stepped(self, loss):
        """Behind each step; the loss told is that of the first of a turn."""
        if self.done % self.steps == 0:
            self.loss = loss
        self.done += 1
        if self.done % self.steps == 0:
            line = dict(s=(self.clock() - self.begin) / self.steps,
                        loss=self.loss, mib=resident(), base=self.base)
            print("turn " + json.dumps(line), flush=True)


# ---- ours ------------------------------------------------------------------

class Progress(ctypes.Structure):
    _fields_ = [("step", ctypes.c_int64), ("total", ctypes.c_int64),
                ("loss", ctypes.c_double), ("left", ctypes.c_double)]


Called = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Progress))


class TrainerParams(ctypes.Structure):  # loong/trainer.h
    _fields_ = [("comm", ctypes.c_void_p), ("recipe", ctypes.c_void_p),
                ("plan_only", ctypes.c_bool), ("judge", ctypes.c_bool),
                ("reads_data", ctypes.c_bool), ("evaluate_only", ctypes.c_bool),
                ("progress", Called), ("user", ctypes.c_void_p),
                ("plan_ranks", ctypes.c_int)]


def ours(library, recipe, *how):
    lib = ctypes.CDLL(library)
    lib.loong_context_error.restype = ctypes.c_char_p
    turns = Turns(*how)
    ctx, comm, made, trainer = (ctypes.c_void_p() for _ in range(4))

    def call(name, *arguments):
        if getattr(lib, name)(*arguments) != 0:
            sys.exit(lib.loong_context_error(ctx).decode())

    def stepped(_, now):
        turns.stepped(now.contents.loss)
        turns.step()

    call("loong_context_create", None, ctypes.byref(ctx))
    call("loong_register_builtin", ctx)
    call("loong_comm_create_self", ctx, None, ctypes.byref(comm))
    call("loong_recipe_load", ctx, recipe.encode(), None, ctypes.byref(made))
    params = TrainerParams(comm=comm, recipe=made, progress=Called(stepped))
    call("loong_trainer_create", ctx, ctypes.byref(params),
         ctypes.byref(trainer))
    turns.step()
    call("loong_trainer_run", trainer)


def write_recipe(place, name, args, trained):
    path = os.path.join(place, name + ".yaml")
    with open(path, "w") as f:
        f.write(f"""model: {{from_hf: {args.model}{trained[0]}}}
init: {{from_hf: {args.model}}}
device: {args.device}
training_phase: pretrain
precision: {{params_dtype: {args.dtype}}}
{trained[1]}data: {{seq_length: {args.length}, train: [{{path: {place}/text}}]}}
train: {{global_batch_size: 1, micro_batch_size: 1, train_iters: 1000000}}
optimizer: {{lr: 1e-4, lr_decay_style: constant}}
log: {{dir: {place}/{name}, interval: 1000000}}
""")
    return path


# ---- theirs ----------------------------------------------------------------

def theirs(model, text, dtype, adapters, device, steps):
    import peft
    import torch
    import transformers
    torch.set_num_threads(1)
    turns = Turns(device, steps)
    base = transformers.AutoModelForCausalLM.from_pretrained(
        model, dtype=torch.bfloat16 if dtype == "bf16" else torch.float32)
    model = peft.get_peft_model(base, peft.LoraConfig(
        r=RANK, lora_alpha=2 * RANK, target_modules=TARGETS),
        autocast_adapter_dtype=adapters == "fp32").to(device)
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=1e-4)
    ids = np.fromfile(text, np.int32).astype(np.int64)
    ids = torch.from_numpy(ids)[None].to(device)
    model.train()
    while True:
        turns.step()
        loss = model(input_ids=ids[:, :-1], labels=ids[:, :-1],
                     shift_labels=ids[:, 1:], use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
        turns.stepped(loss.item())


# ---- together --------------------------------------------------------------

class Worker:
    def __init__(self, *arguments, env=None):
        self.child = subprocess.Popen(
            [sys.executable, os.path.abspath(sys.argv[0]), "--worker",
             *map(str, arguments)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, **(env or {"OMP_NUM_THREADS": "1"})))
        self.turns = []

    def turn(self):
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        for line in self.child.stdout:
            if line.startswith("turn "):
                self.turns.append(json.loads(line[5:]))
                return
        sys.exit("a program ended: " + " ".join(self.child.args[3:]))

    def end(self):
        self.child.kill()
        self.child.wait()


class Floor:
    def __init__(self, build, recipe):
        self.command = [os.path.join(build, "loong-bench"), "floor",
                        "--threads", "1", "--steps", "1", "--seconds", "0",
                        "--cpu-time", "--json", recipe]
        self.turns = []

    def turn(self):
        run = subprocess.run(self.command, capture_output=True, text=True,
                             env=dict(os.environ, OMP_NUM_THREADS="1"))
        if run.returncode:
            sys.exit(run.stderr)
        line = json.loads(run.stdout)
        self.turns.append(dict(s=line["ms_median"] / 1e3))

    def end(self):
        pass


def make_model(place, *sizes):
    import torch
    import transformers
    torch.manual_seed(1)
    layers, hidden, ffn, heads, vocab, length = map(int, sizes)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=vocab, hidden_size=hidden, intermediate_size=ffn,
        num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=heads, max_position_embeddings=length,
        tie_word_embeddings=False,
    )).to(torch.bfloat16).save_pretrained(place)


def write_text(place, vocab, length):
    ids = np.random.default_rng(1).integers(0, vocab, length + 1)
    ids.astype(np.int32).tofile(os.path.join(place, "text.bin"))
    with open(os.path.join(place, "text.idx"), "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, 1, 2))
        f.write(struct.pack("<iqqq", len(ids), 0, 0, 1))


def take_turns(workers, rounds):
    """One round more, of which the losses alone are kept, warms up."""
    try:
        for number in range(rounds + 1):
            for worker in workers.values():
                worker.turn()
            print(f"{number}/{rounds}", file=sys.stderr, flush=True)
    finally:
        for worker in workers.values():
            worker.end()
    for worker in workers.values():
        worker.first_loss = worker.turns[0].get("loss")
        worker.turns = worker.turns[1:]


def tell(workers):
    """Medians, and of the ratios to ours within a round."""
    mine = workers["ours"].turns
    for name, worker in workers.items():
        ratios = [a["s"] / b["s"] for a, b in zip(worker.turns, mine)]
        memory = ("" if "mib" not in worker.turns[-1] else
                  "  {mib:6.0f} MiB, {base:.0f} before the model".format(
                      **worker.turns[-1]))
        print(f"{name:10} {statistics.median(t['s'] for t in worker.turns):8.3f}"
              f" s  {statistics.median(ratios):6.3f} of ours "
              f"({min(ratios):.3f} to {max(ratios):.3f}){memory}")


def check_losses(workers, name, most):
    mine, other = workers["ours"].first_loss, workers[name].first_loss
    if abs(other - mine) > most:
        sys.exit(f"first losses: {name} {other}, ours {mine}")


def check_ratio(workers, over, under, least=0.0, most=float("inf")):
    ratio = statistics.median(a["s"] / b["s"] for a, b in zip(
        workers[over].turns, workers[under].turns))
    bound = f"<= {most}" if least == 0.0 else f">= {least}"
    print(f"{over} / {under:5} {ratio:6.3f}  {bound}  "
          f"{'reached' if least <= ratio <= most else 'MISSED'}")


def compare(args, place):
    if args.model is None:
        args.model = os.path.join(place, "model")
        Worker("model", args.model, args.layers, args.hidden, args.ffn,
               args.heads, args.vocab, args.length).child.wait()
    with open(os.path.join(args.model, "config.json")) as f:
        write_text(place, json.load(f)["vocab_size"], args.length)
    library = os.path.join(args.build, "libloong.so")
    adapted = write_recipe(place, "ours", args, (
        "", f"finetune: {{method: lora, rank: {RANK}, alpha: {2 * RANK}}}\n"))
    bare = write_recipe(place, "bare", args, (
        ", trainable: [layers.0.input_layernorm.*]", ""))
    text, how = os.path.join(place, "text.bin"), (args.device, args.steps)
    workers = {"ours": Worker("ours", library, adapted, *how),
               "bare": Worker("ours", library, bare, *how),
               "peft": Worker("theirs", args.model, text, args.dtype, "fp32",
                              *how, env=TUNED)}
    if args.device == "cpu":
        workers["floor"] = Floor(args.build, adapted)
    if args.dtype == "bf16":
        workers["peft bf16"] = Worker("theirs", args.model, text, args.dtype,
                                      "bf16", *how, env=TUNED)
    take_turns(workers, args.rounds)
    print(f"{args.model}, {args.dtype}, {args.length} tokens, "
          f"{args.rounds} rounds")
    tell(workers)
    for name in workers:
        if name.startswith("peft"):
            check_losses(workers, name, 3e-2 if args.dtype == "bf16" else 1e-4)
    if "floor" in workers:
        check_ratio(workers, "ours", "floor", most=1.25)
    check_ratio(workers, "ours", "bare", most=1.10)


def main():
    if sys.argv[1:2] == ["--worker"]:
        work = {"ours": ours, "theirs": theirs, "model": make_model}
        work[sys.argv[2]](*sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--model", help="a LLaMA's directory")
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    for name, value in (("length", 512), ("rounds", 8), ("layers", 2),
                        ("hidden", 4096), ("ffn", 11008), ("heads", 32),
                        ("vocab", 8192), ("steps", 1)):
        parser.add_argument("--" + name, type=int, default=value)
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    args.model = args.model and os.path.abspath(args.model)
    with tempfile.TemporaryDirectory() as place:
        compare(args, place)


if __name__ == "__main__":
    main()
