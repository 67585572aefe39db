#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of adapters of low rank (peft) beside golden models.

  lora.py                  writes lora/CASE/: an adapter that both begin with
                           (adapter_config.json, adapter_model.safetensors),
                           curve.txt: loss and gradient norm of each step, and
                           final.safetensors: the adapter after them; of some
                           kl_curve.txt and kl_final.safetensors with a KL
                           divergence from the model without its adapter, which
                           stands in the third column
                           slow_curve.txt, of a tenth of the rate, is what
                           float32 is compared with
  lora.py --check          computes again and compares
  lora.py --fp32           how far the same steps go astray in PyTorch's float32
  lora.py --export BUILD [CASE ...]
                           takes the same steps with BUILD/loongrun, loads the
                           adapter that it writes with peft and the merged model
                           with transformers: logits are those of peft's own

Every step takes all samples, in float64, without dropout.
"""
import contextlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np
import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

import qlora
import wide

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, LR, BETA1, BETA2, EPS = 20, 1e-2, 0.9, 0.95, 1e-8
SAMPLES, LENGTH = 4, 16

# fixture, and what peft is asked for
CASES = {
    "llama": ("llama3_gqa_tied", dict(
        r=4, lora_alpha=6, target_modules=["q_proj", "v_proj", "down_proj"])),
    "llama_plus": ("llama3_gqa_tied", dict(
        r=2, lora_alpha=4, target_modules=["k_proj", "up_proj"])),
    "qwen2": ("qwen2_gqa", dict(
        r=3, lora_alpha=5, use_rslora=True, target_modules="all-linear",
        rank_pattern={"k_proj": 2}, alpha_pattern={"up_proj": 7},
        bias="all")),
    "phi3": ("phi3_tied", dict(
        r=3, lora_alpha=4, target_modules=["qkv_proj", "o_proj",
                                           "gate_up_proj"])),
    "gpt2": ("gpt2_untied", dict(
        r=2, lora_alpha=3, fan_in_fan_out=True,
        target_modules=["c_attn", "c_proj", "c_fc", "wte"],
        modules_to_save=["ln_f"])),
    # rows of matrices have lengths of their own (DoRA): of some that are one
    # product here, with biases, and of one matrix of the files
    "dora": ("llama3_gqa_tied", dict(
        r=4, lora_alpha=6, use_dora=True,
        target_modules=["q_proj", "v_proj", "gate_proj", "up_proj",
                        "down_proj"])),
    "dora_qwen2": ("qwen2_gqa", dict(
        r=3, lora_alpha=5, use_dora=True, use_rslora=True, bias="all",
        target_modules="all-linear", rank_pattern={"k_proj": 2})),
    "dora_gpt2": ("gpt2_untied", dict(
        r=2, lora_alpha=3, use_dora=True, fan_in_fan_out=True,
        target_modules=["c_attn", "c_proj", "c_fc"])),
    # upon earlier ones, UPON
    "upon": ("llama3_gqa_tied", dict(
        r=3, lora_alpha=5, target_modules=["q_proj", "o_proj", "up_proj"])),
    # heads
    "head": ("llama2_mha", dict(
        r=4, lora_alpha=6, target_modules=["q_proj", "lm_head"],
        rank_pattern={"lm_head": 3})),
    "head_gpt2": ("gpt2_untied", dict(
        r=2, lora_alpha=3, fan_in_fan_out=True, bias="all",
        target_modules=["c_attn", "lm_head"])),
    # an embedding, whose head is the same matrix
    "llama_ends": ("llama3_gqa_tied", dict(
        r=3, lora_alpha=5, target_modules=["embed_tokens", "o_proj"],
        rank_pattern={"embed_tokens": 4})),
    # experts are parameters of three dimensions
    "qwen2_moe": ("qwen2_moe", dict(
        r=3, lora_alpha=4, target_modules=["q_proj", "k_proj", "o_proj",
                                           "shared_expert.gate_proj",
                                           "shared_expert.down_proj"],
        target_parameters=["experts.gate_up_proj"])),
    "mixtral": ("mixtral", dict(
        r=2, lora_alpha=3, target_modules=["q_proj", "v_proj"],
        target_parameters=["experts.gate_up_proj", "experts.down_proj"],
        rank_pattern={"down_proj": 3})),
    # beside what codes stand for, qlora.py
    "nf4": ("../qlora/nf4", dict(r=4, lora_alpha=8,
                                 target_modules="all-linear")),
    "nf4_double": ("../qlora/nf4_double", dict(
        r=4, lora_alpha=8, target_modules="all-linear")),
    "int8": ("../qlora/int8", dict(
        r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])),
    "dora_nf4": ("../qlora/nf4", dict(
        r=4, lora_alpha=8, use_dora=True,
        target_modules=["q_proj", "v_proj", "gate_proj", "up_proj",
                        "down_proj"])),
    "moe_nf4": ("../qlora/moe_nf4", dict(
        r=4, lora_alpha=8, target_modules=["q_proj", "o_proj"],
        target_parameters=["experts.gate_up_proj", "experts.down_proj"])),
    "moe_nf4_double": ("../qlora/moe_nf4_double", dict(
        r=2, lora_alpha=8, target_modules=["v_proj"],
        target_parameters=["experts.down_proj"])),
}
# Upon adapters of other cases, which stay as they begin, and their weights.
UPON = {"upon": (("llama", 0.5), ("llama_plus", 1.0))}
TABLE = "head"  # saved as peft does by default: with the base's table
# Of a tenth of the rate, which float32 follows: at LR PyTorch's own is up to
# 3e-2 away from its float64 by the end.
SLOW = ("llama", "llama_plus", "qwen2", "phi3", "gpt2", "dora", "head",
        "qwen2_moe", "mixtral", "nf4", "nf4_double", "int8", "dora_nf4",
        "moe_nf4")
PLUS = {"llama_plus": 8}  # rate of the second matrices, LoRA+
# Of the divergence in a second training.
KL = {"llama": 0.3, "qwen2_moe": 0.3, "head": 0.3}
# As transformers 4 had experts: a module for each matrix of each.
OLDER = "mixtral_older"
CASES[OLDER] = ("mixtral", dict(
    r=2, lora_alpha=3, target_modules=["w1", "w2", "w3"]))


def write_older(place):
    config = transformers.AutoConfig.from_pretrained(
        os.path.join(HERE, "fixtures", CASES[OLDER][0]))
    rank, hidden, ffn = 2, config.hidden_size, config.intermediate_size
    rng = np.random.default_rng(7)
    tensors = {}
    for layer in range(config.num_hidden_layers):
        for expert in range(config.num_local_experts):
            for name, rows, columns in (("w1", ffn, hidden),
                                        ("w3", ffn, hidden),
                                        ("w2", hidden, ffn)):
                module = (f"base_model.model.model.layers.{layer}."
                          f"block_sparse_moe.experts.{expert}.{name}.lora_")
                tensors[module + "A.weight"] = rng.normal(
                    0, 0.2, (rank, columns)).astype(np.float32)
                tensors[module + "B.weight"] = rng.normal(
                    0, 0.2, (rows, rank)).astype(np.float32)
    save_file({k: torch.tensor(v) for k, v in tensors.items()},
              os.path.join(place, "adapter_model.safetensors"))
    peft.LoraConfig(task_type="CAUSAL_LM", **CASES[OLDER][1]).save_pretrained(
        place)


def base(fixture):
    if fixture.startswith("../qlora/"):
        return qlora.dequantized(os.path.join(HERE, "fixtures", fixture))
    with wide.widened():
        return transformers.AutoModelForCausalLM.from_pretrained(
            os.path.join(HERE, "fixtures", fixture),
            attn_implementation="eager",
            experts_implementation="eager").double().eval()


def samples(vocab):
    i = torch.arange(SAMPLES * LENGTH + 1)
    tokens = (7 * i * i + 3 * i + 1) % vocab
    return torch.stack([tokens[s * LENGTH:(s + 1) * LENGTH + 1]
                        for s in range(SAMPLES)])


def fill(model, seed):
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for key, p in sorted(model.named_parameters()):
            if "lora_" in key:  # float32, so that files hold it
                drawn = rng.normal(0, 0.2, p.shape)
                if "magnitude" in key:
                    drawn = p.detach().numpy() * (1 + drawn)
                p.copy_(torch.tensor(drawn.astype(np.float32)))


def upon(model, adapters):
    for name, weight in adapters:
        tuned = peft.PeftModel.from_pretrained(
            model, os.path.join(HERE, "lora", name)).double()
        for module in tuned.modules():
            if isinstance(module, peft.tuners.lora.LoraLayer):
                module.scaling["default"] *= weight
        model = tuned.merge_and_unload()
    return model


def begin(name):
    fixture, config = CASES[name]
    if name == OLDER:
        return peft.PeftModel.from_pretrained(
            base(fixture), os.path.join(HERE, "lora", name),
            is_trainable=True).double().eval()
    model = peft.get_peft_model(
        upon(base(fixture), UPON.get(name, ())),
        peft.LoraConfig(task_type="CAUSAL_LM", **config))
    fill(model, len(name))
    return model.double().eval()


def logprobs(model, ids):
    logits = model(input_ids=ids[:, :-1]).logits
    return torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None])


def losses(model, ids, kl):
    """The loss, and the estimate of the divergence (kl_train.py)."""
    logp = logprobs(model, ids)
    if kl == 0.0:
        return -logp.mean(), torch.zeros(())
    with model.disable_adapter(), torch.no_grad():
        d = logprobs(model, ids)
    d = d - logp
    return -logp.mean(), (torch.exp(d) - 1 - d).mean()


def train(name, start, dtype=torch.float64, kl=0.0, lr=LR):
    model = begin(name).to(dtype)
    exact = dtype == torch.float64
    if start is not None:
        model.save_pretrained(
            start, save_embedding_layers="auto" if name == TABLE else False)
    ids = samples(model.config.vocab_size)
    params = [p for p in model.parameters() if p.requires_grad]
    second = [p for n, p in model.named_parameters() if "lora_B" in n]
    first = [p for n, p in model.named_parameters()
             if p.requires_grad and "lora_B" not in n]
    optimizer = torch.optim.AdamW(
        [dict(params=first), dict(params=second, lr=lr * PLUS.get(name, 1))],
        lr=lr, betas=(BETA1, BETA2), eps=EPS, weight_decay=0.0, foreach=False)
    lines = []
    for _ in range(STEPS):
        model.zero_grad()
        with wide.widened() if exact else contextlib.nullcontext():
            loss, away = losses(model, ids, kl)
            (loss + kl * away).backward()
        norm = torch.sqrt(sum((p.grad.double() ** 2).sum() for p in params))
        lines.append((loss.item(), norm.item()) +
                     ((away.item(),) if kl > 0 else ()))
        optimizer.step()
    return model, lines


def final(model):
    return {k: v.detach().clone().contiguous()
            for k, v in peft.get_peft_model_state_dict(
                model, save_embedding_layers=False).items()}


def keep(place, which, model, lines):
    if model is not None:
        save_file(final(model),
                  os.path.join(place, which + "final.safetensors"))
    with open(os.path.join(place, which + "curve.txt"), "w") as f:
        f.writelines(" ".join(map(repr, line)) + "\n" for line in lines)


def write(name):
    place = os.path.join(HERE, "lora", name)
    shutil.rmtree(place, ignore_errors=True)
    os.makedirs(place)
    if name == OLDER:
        write_older(place)
    model, lines = train(name, None if name == OLDER else place)
    for file in os.listdir(place):
        if file not in ("adapter_config.json", "adapter_model.safetensors"):
            os.remove(os.path.join(place, file))
    path = os.path.join(place, "adapter_model.safetensors")
    save_file({k: v.float() for k, v in load_file(path).items()}, path)
    with open(os.path.join(place, "adapter_config.json")) as f:
        text = f.read()
    with open(os.path.join(place, "adapter_config.json"), "w") as f:
        f.write(text.replace(os.path.join(HERE, ""), ""))
    keep(place, "", model, lines)
    if name in KL:
        keep(place, "kl_", *train(name, None, kl=KL[name]))
    if name in SLOW:
        keep(place, "slow_", None, train(name, None, lr=LR / 10)[1])


def distance(name, which, model, lines):
    place = os.path.join(HERE, "lora", name, which)
    worst = np.max(np.abs(np.array(lines) - np.loadtxt(place + "curve.txt")))
    if model is None:
        return worst
    there = load_file(place + "final.safetensors")
    here = final(model)
    assert there.keys() == here.keys(), there.keys() ^ here.keys()
    return max([worst] + [(value - there[key]).abs().max().item()
                          for key, value in here.items()])


def check(name):
    worst = distance(name, "", *train(name, None))
    if name in KL:
        worst = max(worst, distance(name, "kl_",
                                    *train(name, None, kl=KL[name])))
    if name in SLOW:
        worst = max(worst, distance(name, "slow_", None,
                                    train(name, None, lr=LR / 10)[1]))
    print(f"{name}: {worst:.1e}")
    return worst < 1e-10


def single(name):
    slow = name in SLOW
    _, lines = train(name, None, torch.float32, lr=LR / 10 if slow else LR)
    wanted = np.loadtxt(os.path.join(HERE, "lora", name,
                                     "slow_curve.txt" if slow else "curve.txt"))
    worst = np.abs(np.array(lines) - wanted) / np.abs(wanted)
    print(f"{name}: relative error of loss {worst[:, 0].max():.1e}, of the "
          f"norm {worst[:, 1].max():.1e}")


# what loongrun is told of each case, beside the fixture and the adapter
KEYS = {
    "llama": "rank: 4, alpha: 6, target_modules: [q_proj, v_proj, down_proj]",
    "llama_plus": "rank: 2, alpha: 4, target_modules: [k_proj, up_proj], "
                  "loraplus_lr_ratio: 8",
    "llama_ends": "rank: 3, alpha: 5, target_modules: [embed_tokens, o_proj], "
                  "rank_pattern: [{scope: embed_tokens, rank: 4}]",
    "qwen2": "rank: 3, alpha: 5, use_rslora: true, bias: all, "
             "rank_pattern: [{scope: k_proj, rank: 2}], "
             "alpha_pattern: [{scope: up_proj, alpha: 7}]",
    "phi3": "rank: 3, alpha: 4, "
            "target_modules: [qkv_proj, o_proj, gate_up_proj]",
    "gpt2": "rank: 2, alpha: 3, "
            "target_modules: [c_attn, c_proj, c_fc, wte], "
            "modules_to_save: [norm]",
    "head": "rank: 4, alpha: 6, target_modules: [q_proj, lm_head], "
            "rank_pattern: [{scope: lm_head, rank: 3}]",
    "head_gpt2": "rank: 2, alpha: 3, bias: all, target_modules: [c_attn, lm_head]",
    "dora": "rank: 4, alpha: 6, use_dora: true, target_modules: "
            "[q_proj, v_proj, gate_proj, up_proj, down_proj]",
    "dora_qwen2": "rank: 3, alpha: 5, use_dora: true, use_rslora: true, "
                  "bias: all, rank_pattern: [{scope: k_proj, rank: 2}]",
    "dora_gpt2": "rank: 2, alpha: 3, use_dora: true, "
                 "target_modules: [c_attn, c_proj, c_fc]",
    OLDER: "rank: 2, alpha: 3, rank_pattern: [{scope: gate_up_proj, rank: 4}]"
           ", alpha_pattern: [{scope: gate_up_proj, alpha: 6}], "
           "target_modules: [gate_up_proj, down_proj]",
    "qwen2_moe": "rank: 3, alpha: 4, target_modules: [q_proj, k_proj, o_proj, "
                 "shared_expert.gate_proj, shared_expert.down_proj, "
                 "experts.gate_up_proj]",
    "mixtral": "rank: 2, alpha: 3, rank_pattern: [{scope: down_proj, rank: 3}]"
               ", target_modules: [q_proj, v_proj, w1, w3, experts.down_proj]",
}
MORE = {**dict.fromkeys(("gpt2", "dora_gpt2", "head_gpt2"),
                        ["foundation.hidden_dropout=0",
                         "foundation.attention_dropout=0",
                         "foundation.embedding_dropout=0"]),
        **dict.fromkeys(("qwen2_moe", "mixtral", OLDER),
                        ["foundation.moe_aux_loss_coeff=0"])}


def write_tokens(prefix, ids):
    """A Megatron data set of one document."""
    np.asarray(ids, np.int32).tofile(prefix + ".bin")
    with open(prefix + ".idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, 1, 2))
        f.write(struct.pack("<iqqq", len(ids), 0, 0, 1))


def run(build, name, place):
    fixture = os.path.join(HERE, "fixtures", CASES[name][0])
    vocab = transformers.AutoConfig.from_pretrained(fixture).vocab_size
    i = np.arange(SAMPLES * LENGTH + 1)
    write_tokens(os.path.join(place, "text"), (7 * i * i + 3 * i + 1) % vocab)
    recipe = os.path.join(place, "recipe.yaml")
    with open(recipe, "w") as f:
        f.write(f"""init: {{from_hf: {fixture}}}
device: cpu
training_phase: pretrain
precision: {{params_dtype: fp64}}
finetune: {{method: lora, adapter: {HERE}/lora/{name}, {KEYS[name]}}}
data: {{seq_length: {LENGTH}, train: [{{path: text}}]}}
train: {{global_batch_size: {SAMPLES}, train_iters: {STEPS}}}
optimizer: {{lr: {LR}, lr_decay_style: constant, clip_grad: 0,
            weight_decay: 0}}
checkpoint: {{save: save}}
export: {{hf: adapter}}
""")
    subprocess.run([os.path.join(build, "loongrun"), recipe,
                    *MORE.get(name, [])], cwd=place, check=True,
                   stdout=subprocess.DEVNULL)


def logits(model, ids):
    with wide.widened(), torch.no_grad():
        return model.double().eval()(input_ids=ids).logits


def exported(build, name):
    """One adapter of an embedding whose head is the same matrix is not
    merged."""
    with tempfile.TemporaryDirectory() as place:
        run(build, name, place)
        tied = name == "llama_ends"
        merge = tool(build, "export", "--merge", "save", "merged", cwd=place,
                     check=not tied)
        assert (merge.returncode != 0) == tied
        own, _ = train(name, None)
        ids = samples(own.config.vocab_size)[:, :-1]
        wanted = logits(own, ids)
        adapter = peft.PeftModel.from_pretrained(
            base(CASES[name][0]), os.path.join(place, "adapter"))
        models = [adapter]
        if not tied:
            with wide.widened():
                models.append(
                    transformers.AutoModelForCausalLM.from_pretrained(
                        os.path.join(place, "merged"),
                        attn_implementation="eager",
                        experts_implementation="eager", dtype=torch.float64))
        worst = [(logits(m, ids) - wanted).abs().max().item() for m in models]
        worst += [0.0] * tied
    print(f"{name}: adapter {worst[0]:.1e}, merged {worst[1]:.1e}")
    # a merged model has the fixture's float32
    return worst[0] < 1e-8 and worst[1] < 1e-5


def tool(build, *arguments, cwd=None, check=True):
    quiet = ["--quiet"] if arguments[0] != "verify" else []
    return subprocess.run(
        [os.path.join(build, "loong-ckpt"), *arguments, *quiet], cwd=cwd,
        check=check, stdout=subprocess.DEVNULL)


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--export"]:
        build_dir = os.path.abspath(arguments[1])
        sys.exit(not all([exported(build_dir, name)
                      for name in arguments[2:] or CASES]))
    if arguments == ["--fp32"]:
        for name in CASES:
            single(name)
        return
    if arguments == ["--check"]:
        sys.exit(not all([check(name) for name in CASES]))
    for name in arguments or CASES:
        write(name)


if __name__ == "__main__":
    main()
