#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of a Qwen2.5-VL on one processor beside transformers' with torch.

  vl.py [--build build] [--dtype bf16] [--rounds 8] [--pictures 2]
        [--device cuda] [--steps 1] ...

Runs in the environment of tests/golden/README.md. A model of random numbers, cut
to the sizes of the options (all encoder layers but two have windows), and one
text with pictures of 448 x 448 pixels, of which both train all parameters:
forward, backward, clipping to norm 1, AdamW. Theirs has sdpa, fused AdamW, in
bf16 autocast over fp32 parameters, as ours keeps fp32 masters, and its allocator
as tests/bench/peers.md says; it gets its pictures processed, ours reads and
processes their files in each step. Programs take steps in turn on one thread, as
those of lora.py (and on a GPU, too), and their first losses must agree.
"""
import argparse
import json
import os
import random
import string
import sys
import tempfile

import lora

SIDE, PATCH, PICTURE = 448, 14, 1
LETTERS = string.ascii_lowercase


def make_model(place, args):
    import torch
    import transformers
    torch.manual_seed(1)
    hidden, layers, depth, width = map(int, args)
    config = transformers.Qwen2_5_VLConfig(
        vision_config=dict(
            depth=depth, hidden_size=width, out_hidden_size=hidden,
            num_heads=width // 64, intermediate_size=width * 8 // 3 // 64 * 64,
            patch_size=PATCH, spatial_merge_size=2, temporal_patch_size=2,
            window_size=112, fullatt_block_indexes=[depth // 2, depth - 1]),
        text_config=dict(
            vocab_size=8192, hidden_size=hidden, num_hidden_layers=layers,
            intermediate_size=hidden * 8 // 3 // 64 * 64,
            num_attention_heads=hidden // 64,
            num_key_value_heads=hidden // 256, max_position_embeddings=4096,
            rope_parameters=dict(rope_type="default", rope_theta=1e4,
                                 mrope_section=[8, 12, 12])),
        image_token_id=PICTURE, tie_word_embeddings=False)
    transformers.Qwen2_5_VLForConditionalGeneration(config).save_pretrained(
        place)


def processor():
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import \
        Qwen2VLImageProcessorPil
    return Qwen2VLImageProcessorPil(
        patch_size=PATCH, merge_size=2, temporal_patch_size=2,
        size=dict(shortest_edge=3136, longest_edge=12845056))


def write_data(place, pictures, letters):
    """A tokenizer of letters, pictures, and a text of both."""
    import numpy as np
    from PIL import Image
    rng = np.random.default_rng(1)
    for i in range(pictures):
        Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3), np.uint8)).save(
            os.path.join(place, f"{i}.png"))
    special = dict(single_word=False, lstrip=False, rstrip=False,
                   normalized=False, special=True)
    vocab = {"<s>": 0, "<picture>": PICTURE}
    vocab |= {c: i + 2 for i, c in enumerate(LETTERS)}
    with open(os.path.join(place, "tokenizer.json"), "w") as f:
        json.dump(dict(
            version="1.0", truncation=None, padding=None, normalizer=None,
            added_tokens=[dict(id=i, content=c, **special)
                          for c, i in vocab.items() if i < 2],
            pre_tokenizer=None, post_processor=None, decoder=None,
            model=dict(type="BPE", dropout=None, unk_token=None,
                       continuing_subword_prefix=None, fuse_unk=False,
                       end_of_word_suffix=None, byte_fallback=False,
                       vocab=vocab, merges=[])), f)
    letters = random.Random(1).choices(LETTERS, k=letters)
    each = len(letters) // pictures
    record = dict(text="".join("<picture>" + "".join(letters[i * each:][:each])
                               for i in range(pictures)),
                  images=[f"{i}.png" for i in range(pictures)])
    with open(os.path.join(place, "text.jsonl"), "w") as f:
        f.write(json.dumps(record) + "\n")


def write_recipe(place, model, args, length):
    path = os.path.join(place, "ours.yaml")
    processor().save_pretrained(place)
    with open(path, "w") as f:
        f.write(f"""init: {{from_hf: {model}}}
device: {args.device}
precision: {{params_dtype: {args.dtype}}}
data: {{seq_length: {length}, train: [{{path: {place}/text.jsonl}}],
  tokenizer: {place}, image_token: <picture>, max_images: {args.pictures},
  image_processor: {place}/preprocessor_config.json,
  max_patches: {args.pictures * (SIDE // PATCH) ** 2}}}
train: {{global_batch_size: 1, micro_batch_size: 1, train_iters: 1000000}}
optimizer: {{lr: 1e-4, lr_decay_style: constant, clip_grad: 1}}
log: {{dir: {place}/log, interval: 1000000}}
""")
    return path


def theirs(model, place, dtype, device, steps):
    import torch
    import transformers
    from PIL import Image
    torch.set_num_threads(1)
    turns = lora.Turns(device, steps)
    model = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(
        model, dtype=torch.float32, attn_implementation="sdpa").to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4,
                                  betas=(0.9, 0.95), fused=True)
    with open(os.path.join(place, "text.jsonl")) as f:
        record = json.load(f)
    pictures = [Image.open(os.path.join(place, name))
                for name in record["images"]]
    pictures = processor()(pictures, return_tensors="pt").to(device)
    rows = (SIDE // PATCH // 2) ** 2
    ids = torch.tensor([sum(
        ([PICTURE] * rows + [2 + LETTERS.index(c) for c in text]
         for text in record["text"].split("<picture>")[1:]), [])]).to(device)
    labels = ids.masked_fill(ids == PICTURE, -100)
    kinds = (ids == PICTURE).int()
    while True:
        turns.step()
        with torch.autocast(device, torch.bfloat16, enabled=dtype == "bf16"):
            loss = model(input_ids=ids, labels=labels, mm_token_type_ids=kinds,
                         use_cache=False, **pictures).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
        turns.stepped(loss.item())


def compare(args, place):
    model = os.path.join(place, "model")
    length = args.pictures * (SIDE // PATCH // 2) ** 2 + args.letters
    lora.Worker("model", model, args.hidden, args.layers, args.depth,
                args.width).child.wait()
    write_data(place, args.pictures, args.letters)
    recipe = write_recipe(place, model, args, length)
    how = args.device, args.steps
    workers = {
        "ours": lora.Worker("ours", os.path.join(args.build, "libloong.so"),
                            recipe, *how),
        "theirs": lora.Worker("theirs", model, place, args.dtype, *how,
                              env=lora.TUNED)}
    lora.take_turns(workers, args.rounds)
    print(f"Qwen2.5-VL, {args.dtype}, {args.pictures} pictures and "
          f"{args.letters} letters ({length} rows), {args.rounds} rounds")
    lora.tell(workers)
    lora.check_losses(workers, "theirs", 3e-2 if args.dtype == "bf16" else 1e-4)
    lora.check_ratio(workers, "theirs", "ours", least=1.5)


def main():
    if sys.argv[1:2] == ["--worker"]:
        work = {"ours": lora.ours, "theirs": theirs,
                "model": lambda place, *sizes: make_model(place, sizes)}
        work[sys.argv[2]](*sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    for name, value in (("rounds", 8), ("steps", 1), ("pictures", 2), ("letters", 128),
                        ("hidden", 768), ("layers", 8), ("depth", 8),
                        ("width", 512)):
        parser.add_argument("--" + name, type=int, default=value)
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    with tempfile.TemporaryDirectory() as place:
        compare(args, place)


if __name__ == "__main__":
    main()
