#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Directories as publishers ship them: tokenized, imported, verified, trained
and exported.

  published_dirs.py BUILD SOURCE [NAME...]

Every directory has all files of a published model, with the fields that its
publisher wrote, known from the publications and the defaults of transformers'
classes; sizes are those of the small models of tests/golden/fixtures, whose
weights are taken with a larger vocabulary, in bf16 and in two shards. The
vocabularies are those of tests/fixtures/tokenizer. What has to hold: every
tool takes the directory as it is; the weights come back bit for bit; the files
that stand beside them come back byte for byte."""
import filecmp
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

# What Python makes of int(1e30): "no limit" in many tokenizer_config.json.
NO_LIMIT = 1000000000000000019884624838656
VOCAB = 640
BOS, EOS, PAD = "BOS", "EOS", "PAD"  # ids of the small vocabulary in configs

BUILD, SOURCE = sys.argv[1:3]
FIXTURES = os.path.join(SOURCE, "tests/golden/fixtures")

# Fields whose values are those of the small weights.
SIZES = """hidden_size intermediate_size num_attention_heads num_hidden_layers
num_key_value_heads head_dim n_embd n_head n_layer n_positions n_ctx
max_position_embeddings moe_intermediate_size shared_expert_intermediate_size
num_experts num_local_experts num_experts_per_tok kv_lora_rank q_lora_rank
qk_nope_head_dim qk_rope_head_dim v_head_dim n_routed_experts n_shared_experts
first_k_dense_replace n_group topk_group moe_num_experts moe_k
moe_num_shared_experts moe_layer_start_index moe_layer_end_index
rotary_dim use_bias bias tie_word_embeddings num_nextn_predict_layers
attention_bias norm_topk_prob""".split()


# ---- tokenizers ------------------------------------------------------------

def token(name, **more):
    return dict(dict(content=name, lstrip=False, normalized=False, rstrip=False,
                     single_word=False), **more)


def special_map(names, plain):
    return {role: name if plain else token(name) for role, name in
            zip(("bos_token", "eos_token", "pad_token"), names)}


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern},
            "behavior": "Isolated", "invert": False}


def byte_level(**more):
    return dict({"type": "ByteLevel", "add_prefix_space": False,
                 "trim_offsets": True, "use_regex": False}, **more)


def template(names, ids):
    """bos in front, as Llama-3 and DeepSeek have it."""
    bos = names[0]
    special = {bos: {"id": bos, "ids": [ids[bos]], "tokens": [bos]}}
    head = {"SpecialToken": {"id": bos, "type_id": 0}}
    return {"type": "TemplateProcessing",
            "single": [head, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [head, {"Sequence": {"id": "A", "type_id": 0}},
                     {"SpecialToken": {"id": bos, "type_id": 1}},
                     {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": special}


QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
DEEPSEEK_V2_PARTS = [
    "[\r\n]",
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u0400-\u0481]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    "\\s+$", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]


def styled(t, style, ids, names):
    """The parts of tokenizer.json that a publisher has of its own."""
    model = t["model"]
    if style == "gpt2":
        # written before the model had a type
        t["model"] = {k: v for k, v in model.items()
                      if k not in ("type", "byte_fallback", "ignore_merges")}
        t["model"].update(continuing_subword_prefix="", end_of_word_suffix="")
        t["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False,
                              "trim_offsets": True}
        t["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True,
                               "trim_offsets": False}
        t["decoder"] = {"type": "ByteLevel", "add_prefix_space": True,
                        "trim_offsets": True}
    elif style == "qwen":
        del model["ignore_merges"]
        model.update(continuing_subword_prefix="", end_of_word_suffix="")
        level = byte_level(trim_offsets=False)
        t["normalizer"] = {"type": "NFC"}
        t["pre_tokenizer"] = {"type": "Sequence",
                              "pretokenizers": [split(QWEN), level]}
        t["post_processor"] = t["decoder"] = level
    elif style == "llama3":
        t["pre_tokenizer"] = {"type": "Sequence",
                              "pretokenizers": [split(LLAMA3), byte_level()]}
        t["post_processor"] = {
            "type": "Sequence",
            "processors": [byte_level(use_regex=True), template(names, ids)]}
        model["ignore_merges"] = True
    elif style == "deepseek_v2":
        t["normalizer"] = {"type": "Sequence", "normalizers": []}
        parts = [split(p) for p in DEEPSEEK_V2_PARTS]
        digits = {"type": "Digits", "individual_digits": True}
        t["pre_tokenizer"] = {"type": "Sequence",
                              "pretokenizers": parts + [digits, byte_level()]}
        t["post_processor"] = byte_level(trim_offsets=False, use_regex=True)
    elif style == "deepseek_v3":
        t["normalizer"] = {"type": "Sequence", "normalizers": []}
        t["post_processor"] = template(names, ids)
    elif style == "smollm2":
        digits = {"type": "Digits", "individual_digits": True}
        t["pre_tokenizer"] = {
            "type": "Sequence",
            "pretokenizers": [digits, byte_level(use_regex=True)]}
    elif style == "o200k":
        t["post_processor"] = byte_level(trim_offsets=False)


BASES = {"gpt2": "gpt2", "qwen": "gpt2", "llama3": "llama3", "o200k": "o200k",
         "deepseek_v2": "deepseek", "deepseek_v3": "deepseek",
         "smollm2": "digits", "llama2": "llama2"}


def write_tokenizer(place, style, names):
    """tokenizer.json with these tokens added, vocab.json and merges.txt;
    returns the ids."""
    with open(os.path.join(SOURCE, "tests/fixtures/tokenizer",
                           BASES[style] + ".json"), encoding="utf-8") as f:
        t = json.load(f)
    vocab = t["model"]["vocab"]
    added, free = [], max(vocab.values()) + 1
    for name in dict.fromkeys(names):
        known = vocab.get(name)
        added.append(dict(token(name), special=True,
                          id=free if known is None else known,
                          normalized=style in ("gpt2", "deepseek_v3")))
        free += known is None
    t["added_tokens"] = sorted(added, key=lambda a: a["id"])
    ids = {a["content"]: a["id"] for a in added}
    styled(t, style, ids, names)
    dump(place, "tokenizer.json", t)
    if style in ("gpt2", "qwen", "smollm2"):
        dump(place, "vocab.json", vocab)
        write(place, "merges.txt", "#version: 0.2\n" + "".join(
            m if isinstance(m, str) else " ".join(m) + "\n"
            for m in t["model"]["merges"]))
    return ids


# ---- weights ---------------------------------------------------------------

def read_weights(path):
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    head.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"],
                   data[8 + size + t["data_offsets"][0]:
                        8 + size + t["data_offsets"][1]])
            for name, t in head.items()}


def narrow(name, tensor, wide):
    """bf16, with a vocabulary of VOCAB where it has one."""
    dtype, shape, data = tensor
    if dtype == "F32" and not name.endswith(wide):
        dtype, data = "BF16", b"".join(
            data[i + 2:i + 4] for i in range(0, len(data), 4))
    if shape[0] == 97:
        shape = [VOCAB] + shape[1:]
        data = (data * 8)[:VOCAB * len(data) // 97]
    return dtype, shape, data


def write_shard(place, name, tensors):
    head, offset = {"__metadata__": {"format": "pt"}}, 0
    for key, (dtype, shape, data) in tensors:
        head[key] = {"dtype": dtype, "shape": shape,
                     "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(place, name), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.writelines(data for _, (_, _, data) in tensors)


def write_weights(place, entry):
    small = read_weights(os.path.join(FIXTURES, entry["fixture"],
                                      "model.safetensors"))
    strip = entry.get("strip", "")
    wide = ("e_score_correction_bias",) + entry.get("wide", ())
    tensors = {name.replace(strip, "", 1) if strip else name:
               narrow(name, t, wide) for name, t in small.items()}
    tensors.update(entry.get("tensors", {}))
    names = list(tensors)
    if entry.get("single"):
        return write_shard(place, "model.safetensors", list(tensors.items()))
    shards = (names[:len(names) // 2], names[len(names) // 2:])
    where = {}
    for i, part in enumerate(shards):
        file = f"model-{i + 1:05}-of-00002.safetensors"
        write_shard(place, file, [(n, tensors[n]) for n in part])
        where.update((n, file) for n in part)
    total = sum(len(t[2]) for t in tensors.values())
    dump(place, "model.safetensors.index.json",
         {"metadata": {"total_size": total}, "weight_map": where})


# ---- directories -----------------------------------------------------------

def write(place, name, text):
    path = os.path.join(place, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def dump(place, name, value):
    write(place, name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def fill(value, ids, names):
    """Ids of tokens in place of BOS, EOS, PAD."""
    if isinstance(value, list):
        return [fill(v, ids, names) for v in value]
    if isinstance(value, dict):
        return {k: fill(v, ids, names) for k, v in value.items()}
    place = {BOS: 0, EOS: 1, PAD: 2}.get(value) \
        if isinstance(value, str) else None
    return value if place is None else ids[names[place]]


def tokenizer_config(entry, ids, names):
    config = dict(entry["tokenizer_config"])
    if config.pop("decoder", False):
        config["added_tokens_decoder"] = {
            str(i): dict(token(n), special=True) for n, i in ids.items()}
    for role, name in zip(("bos_token", "eos_token", "pad_token"), names):
        if role not in config:
            config[role] = dict({"__type": "AddedToken"}, **token(name)) \
                if entry.get("typed") else name
    return config


def make(place, entry):
    os.makedirs(place)
    names = entry["tokens"]
    ids = write_tokenizer(place, entry["style"], names)
    with open(os.path.join(FIXTURES, entry["fixture"], "config.json"),
              encoding="utf-8") as f:
        small = json.load(f)
    small["num_experts"] = small.get("num_experts",
                                     small.get("num_local_experts"))
    config = fill(entry["config"], ids, names)
    for key in SIZES:
        if key in config and key in small:
            config[key] = small[key]
    if small.get("head_dim") is None:
        config.pop("head_dim", None)
    config["vocab_size"] = VOCAB
    dump(place, "config.json", config)
    if "generation_config" in entry:
        dump(place, "generation_config.json",
             fill(entry["generation_config"], ids, names))
    dump(place, "tokenizer_config.json", tokenizer_config(entry, ids, names))
    dump(place, "special_tokens_map.json",
         special_map(names, entry["style"] in ("qwen", "gpt2")))
    write(place, "README.md", "---\nlicense: apache-2.0\n---\n# A model\n")
    write(place, "LICENSE", "Terms.\n")
    write(place, ".gitattributes",
          "*.safetensors filter=lfs diff=lfs merge=lfs -text\n")
    for name in entry.get("files", ()):
        write(place, name, f"# {name}\n")
    write_weights(place, entry)


# ---- what publishers write -------------------------------------------------

def common(kind, cls, **more):
    return dict(dict(
        architectures=[cls], bos_token_id=BOS, eos_token_id=EOS,
        hidden_act="silu", hidden_size=4096, initializer_range=0.02,
        intermediate_size=11008, max_position_embeddings=4096,
        model_type=kind, num_attention_heads=32, num_hidden_layers=32,
        num_key_value_heads=32, rms_norm_eps=1e-5, tie_word_embeddings=False,
        torch_dtype="bfloat16", transformers_version="4.40.0",
        use_cache=True), **more)


def auto_map(module, cls, **more):
    return dict({"AutoConfig": f"configuration_{module}.{cls}Config",
                 "AutoModelForCausalLM": f"modeling_{module}.{cls}ForCausalLM",
                 "AutoModel": f"modeling_{module}.{cls}Model"}, **more)


def generation(**more):
    return dict(dict(_from_model_config=True, bos_token_id=BOS,
                     eos_token_id=EOS, transformers_version="4.40.0"), **more)


CHAT = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + "
        "'\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
        "{% endif %}")
QWEN_TOKENIZER = dict(
    add_prefix_space=False, decoder=True, bos_token=None, errors="replace",
    additional_special_tokens=["<|im_start|>", "<|im_end|>"],
    chat_template=CHAT, clean_up_tokenization_spaces=False,
    model_max_length=131072, split_special_tokens=False, unk_token=None,
    tokenizer_class="Qwen2Tokenizer")
QWEN_TOKENS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
QWEN_GENERATION = dict(bos_token_id=PAD, pad_token_id=PAD, do_sample=True,
                       eos_token_id=[EOS, PAD], repetition_penalty=1.05,
                       temperature=0.7, top_p=0.8, top_k=20,
                       transformers_version="4.37.0")
LLAMA2_TOKENIZER = dict(
    add_bos_token=True, add_eos_token=False, legacy=False, decoder=True,
    clean_up_tokenization_spaces=False, model_max_length=NO_LIMIT,
    pad_token=None, padding_side="right", sp_model_kwargs={},
    tokenizer_class="LlamaTokenizer", use_default_system_prompt=False,
    unk_token=dict({"__type": "AddedToken"}, **token("<unk>")))
LLAMA2_TOKENS = ("<s>", "</s>", "<unk>")
LLAMA3_TOKENS = ("<|begin_of_text|>", "<|end_of_text|>",
                 "<|finetune_right_pad_id|>", "<|eot_id|>", "<|eom_id|>")
DEEPSEEK_TOKENS = ("<\uff5cbegin\u2581of\u2581sentence\uff5c>",
                   "<\uff5cend\u2581of\u2581sentence\uff5c>",
                   "<\uff5c\u2581pad\u2581\uff5c>")
DEEPSEEK_TOKENIZER = dict(
    add_bos_token=True, add_eos_token=False, sp_model_kwargs={}, legacy=True,
    clean_up_tokenization_spaces=False, model_max_length=16384,
    unk_token=None, tokenizer_class="LlamaTokenizerFast",
    chat_template="{{bos_token}}{% for m in messages %}{{m['content']}}"
                  "{% endfor %}")
WINDOW = dict(max_window_layers=21, sliding_window=32768,
              use_sliding_window=False)
DEEPSEEK_V2 = common(
    "deepseek_v2", "DeepseekV2ForCausalLM", attention_bias=False,
    attention_dropout=0.0, auto_map=auto_map("deepseek", "DeepseekV2"),
    aux_loss_alpha=0.001, first_k_dense_replace=1, kv_lora_rank=512,
    max_position_embeddings=163840, moe_intermediate_size=1408,
    moe_layer_freq=1, n_group=1, n_routed_experts=64, n_shared_experts=2,
    norm_topk_prob=False, num_experts_per_tok=6, pretraining_tp=1,
    q_lora_rank=None, qk_nope_head_dim=128, qk_rope_head_dim=64,
    rms_norm_eps=1e-5, rope_scaling=dict(
        beta_fast=32, beta_slow=1, factor=40, mscale=0.707,
        mscale_all_dim=0.707, original_max_position_embeddings=4096,
        type="yarn"),
    rope_theta=10000, routed_scaling_factor=1.0, scoring_func="softmax",
    seq_aux=True, topk_group=1, topk_method="greedy",
    transformers_version="4.33.1", v_head_dim=128)
DEEPSEEK_V3 = dict(
    DEEPSEEK_V2, architectures=["DeepseekV3ForCausalLM"],
    auto_map=auto_map("deepseek", "DeepseekV3"), ep_size=1,
    model_type="deepseek_v3", n_group=8, topk_group=4, n_routed_experts=256,
    norm_topk_prob=True, num_nextn_predict_layers=0, q_lora_rank=1536,
    quantization_config=None, rms_norm_eps=1e-6,
    rope_scaling=dict(beta_fast=32, beta_slow=1, factor=40, mscale=1.0,
                      mscale_all_dim=1.0, type="yarn",
                      original_max_position_embeddings=4096),
    routed_scaling_factor=2.5, scoring_func="sigmoid",
    topk_method="noaux_tc")
for removed in ("aux_loss_alpha", "seq_aux", "pretraining_tp"):
    del DEEPSEEK_V3[removed]


def gpt2_mask(layer):
    """A buffer that stands among the weights: a lower triangle."""
    row = [b"\0\0\x80\x3f" if j <= i else b"\0\0\0\0"
           for i in range(64) for j in range(64)]
    return f"h.{layer}.attn.bias", ("F32", [1, 1, 64, 64], b"".join(row))


def inverse_frequencies(layer):
    data = b"".join(struct.pack("<f", 10000.0 ** (-i / 6)) for i in range(6))
    return (f"model.layers.{layer}.self_attn.rotary_emb.inv_freq",
            ("F32", [6], data))


MODELS = {
    "gpt2": dict(
        fixture="gpt2_tied", style="gpt2", single=True, strip="transformer.",
        tensors=dict(map(gpt2_mask, range(2))),
        tokens=("<|endoftext|>",) * 3, files=("64.tflite", "onnx/README.md"),
        config=dict(
            activation_function="gelu_new", architectures=["GPT2LMHeadModel"],
            attn_pdrop=0.1, bos_token_id=BOS, embd_pdrop=0.1,
            eos_token_id=EOS, initializer_range=0.02, layer_norm_epsilon=1e-5,
            model_type="gpt2", n_ctx=1024, n_embd=768, n_head=12, n_layer=12,
            n_positions=1024, resid_pdrop=0.1, summary_activation=None,
            summary_first_dropout=0.1, summary_proj_to_labels=True,
            summary_type="cls_index", summary_use_proj=True,
            task_specific_params={"text-generation": {
                "do_sample": True, "max_length": 50}}),
        generation_config=generation(transformers_version="4.26.0.dev0"),
        tokenizer_config=dict(model_max_length=1024)),
    "llama2": dict(
        fixture="llama2_mha", style="llama2", typed=True,
        tokens=LLAMA2_TOKENS,
        tensors=dict(map(inverse_frequencies, range(2))),
        files=("tokenizer.model", "USE_POLICY.md"),
        config=common(
            "llama", "LlamaForCausalLM", pretraining_tp=1, rope_scaling=None,
            _name_or_path="meta-llama/Llama-2-7b-hf", torch_dtype="float16",
            transformers_version="4.31.0.dev0"),
        generation_config=generation(
            do_sample=True, max_length=4096, pad_token_id=PAD,
            temperature=0.6, top_p=0.9),
        tokenizer_config=LLAMA2_TOKENIZER),
    "llama3": dict(
        fixture="llama3_gqa_tied", style="llama3", tokens=LLAMA3_TOKENS,
        files=("original/params.json", "original/tokenizer.model"),
        config=common(
            "llama", "LlamaForCausalLM", attention_bias=False,
            attention_dropout=0.0, eos_token_id=[EOS, PAD], mlp_bias=False,
            head_dim=128, max_position_embeddings=131072, pretraining_tp=1,
            rope_theta=500000.0, rope_scaling=dict(
                factor=32.0, high_freq_factor=4.0, low_freq_factor=1.0,
                original_max_position_embeddings=8192, rope_type="llama3")),
        generation_config=generation(do_sample=True, eos_token_id=[EOS, PAD],
                                     temperature=0.6, top_p=0.9),
        tokenizer_config=dict(
            decoder=True, clean_up_tokenization_spaces=True,
            chat_template=CHAT, model_max_length=NO_LIMIT,
            model_input_names=["input_ids", "attention_mask"],
            tokenizer_class="PreTrainedTokenizerFast")),
    "phi3": dict(
        fixture="phi3_window", style="llama2", tokens=LLAMA2_TOKENS,
        files=("configuration_phi3.py", "modeling_phi3.py", "tokenizer.model",
               "added_tokens.json", "sample_finetune.py", "CODE_OF_CONDUCT.md"),
        config=common(
            "phi3", "Phi3ForCausalLM", attention_bias=False,
            attention_dropout=0.0, auto_map=auto_map("phi3", "Phi3"),
            embd_pdrop=0.0, original_max_position_embeddings=4096,
            pad_token_id=PAD, partial_rotary_factor=0.75, resid_pdrop=0.0,
            rope_scaling=None, rope_theta=10000.0, sliding_window=11,
            _name_or_path="Phi-3-mini-4k-instruct"),
        generation_config=generation(eos_token_id=[EOS, PAD],
                                     pad_token_id=PAD),
        tokenizer_config=dict(LLAMA2_TOKENIZER, chat_template=CHAT,
                              add_bos_token=False, model_max_length=4096)),
    "smollm2": dict(
        fixture="llama3_gqa_tied", style="smollm2", single=True,
        tokens=("<|im_start|>", "<|im_end|>", "<|endoftext|>"),
        config=common(
            "llama", "LlamaForCausalLM", attention_bias=False,
            attention_dropout=0.0, is_llama_config=True, mlp_bias=False,
            pad_token_id=PAD, pretraining_tp=1, rope_interleaved=False,
            rope_scaling=None, rope_theta=100000,
            initializer_range=0.041666666666666664,
            **{"transformers.js_config": {"kv_cache_dtype": {
                "q4f16": "float16", "fp16": "float16"}}}),
        generation_config=generation(pad_token_id=PAD),
        tokenizer_config=dict(
            add_prefix_space=False, decoder=True, chat_template=CHAT,
            clean_up_tokenization_spaces=False, model_max_length=8192,
            tokenizer_class="GPT2Tokenizer", unk_token="<|endoftext|>",
            vocab_size=49152)),
    "qwen1.5": dict(
        fixture="qwen2_gqa", style="qwen", tokens=QWEN_TOKENS,
        config=common("qwen2", "Qwen2ForCausalLM", attention_dropout=0.0,
                      rope_theta=1000000.0, rms_norm_eps=1e-6,
                      transformers_version="4.37.0", **WINDOW),
        generation_config=QWEN_GENERATION,
        tokenizer_config=dict(QWEN_TOKENIZER, model_max_length=32768)),
    "qwen2.5": dict(
        fixture="qwen2_mha_tied", style="qwen", tokens=QWEN_TOKENS,
        config=common("qwen2", "Qwen2ForCausalLM", attention_dropout=0.0,
                      rope_theta=1000000.0, rms_norm_eps=1e-6, use_mrope=False,
                      **WINDOW),
        generation_config=QWEN_GENERATION,
        tokenizer_config=dict(QWEN_TOKENIZER, add_bos_token=False)),
    "qwen2_moe": dict(
        fixture="qwen2_moe", style="qwen", tokens=QWEN_TOKENS,
        config=common(
            "qwen2_moe", "Qwen2MoeForCausalLM", attention_dropout=0.0,
            decoder_sparse_step=1, moe_intermediate_size=1408,
            norm_topk_prob=False, num_experts=60, num_experts_per_tok=4,
            output_router_logits=False, rope_theta=1000000.0,
            router_aux_loss_coef=0.001, rms_norm_eps=1e-6,
            shared_expert_intermediate_size=5632, **WINDOW),
        generation_config=QWEN_GENERATION,
        tokenizer_config=QWEN_TOKENIZER),
    "qwen3": dict(
        fixture="qwen3_gqa_tied", style="qwen", tokens=QWEN_TOKENS,
        config=common("qwen3", "Qwen3ForCausalLM", attention_bias=False,
                      attention_dropout=0.0, head_dim=128, rope_scaling=None,
                      rope_theta=1000000, max_window_layers=36,
                      sliding_window=None, use_sliding_window=False,
                      rms_norm_eps=1e-6, transformers_version="4.51.0"),
        generation_config=dict(QWEN_GENERATION, top_p=0.95),
        tokenizer_config=dict(QWEN_TOKENIZER, add_bos_token=False)),
    "qwen3_moe": dict(
        fixture="qwen3_moe", style="qwen", tokens=QWEN_TOKENS,
        config=common(
            "qwen3_moe", "Qwen3MoeForCausalLM", attention_bias=False,
            attention_dropout=0.0, decoder_sparse_step=1, head_dim=128,
            max_window_layers=48, mlp_only_layers=[],
            moe_intermediate_size=768, norm_topk_prob=True, num_experts=128,
            num_experts_per_tok=8, output_router_logits=False,
            rope_scaling=None, rope_theta=1000000.0, rms_norm_eps=1e-6,
            router_aux_loss_coef=0.001, sliding_window=None,
            use_sliding_window=False, transformers_version="4.51.0"),
        generation_config=QWEN_GENERATION,
        tokenizer_config=QWEN_TOKENIZER),
    "mixtral": dict(
        fixture="mixtral", style="llama2", tokens=LLAMA2_TOKENS,
        files=("tokenizer.model",),
        config=common(
            "mixtral", "MixtralForCausalLM", attention_dropout=0.0,
            num_experts_per_tok=2, num_local_experts=8,
            output_router_logits=False, rope_theta=1000000.0,
            router_aux_loss_coef=0.02, sliding_window=None,
            transformers_version="4.36.0.dev0"),
        generation_config=generation(),
        tokenizer_config=dict(LLAMA2_TOKENIZER, legacy=True,
                              additional_special_tokens=[],
                              spaces_between_special_tokens=False)),
    "deepseek_v2": dict(
        fixture="deepseek_v2_lite", style="deepseek_v2", typed=True,
        tokens=DEEPSEEK_TOKENS, config=DEEPSEEK_V2,
        files=("configuration_deepseek.py", "modeling_deepseek.py",
               "tokenization_deepseek_fast.py"),
        generation_config=generation(do_sample=True, temperature=0.3,
                                     top_p=0.95),
        tokenizer_config=dict(DEEPSEEK_TOKENIZER)),
    "deepseek_v3": dict(
        fixture="deepseek_v3_groups", style="deepseek_v3", typed=True,
        tokens=DEEPSEEK_TOKENS, config=DEEPSEEK_V3,
        files=("configuration_deepseek.py", "modeling_deepseek.py",
               "inference/model.py", "figures/benchmark.txt"),
        generation_config=generation(do_sample=True, temperature=0.6,
                                     top_p=0.95),
        tokenizer_config=DEEPSEEK_TOKENIZER),
    "ernie4.5": dict(
        fixture="ernie4_5_gqa", style="llama2", tokens=LLAMA2_TOKENS,
        files=("configuration_ernie4_5.py", "modeling_ernie4_5.py",
               "tokenization_ernie4_5.py", "tokenizer.model",
               "added_tokens.json"),
        config=common(
            "ernie4_5", "Ernie4_5ForCausalLM",
            auto_map=auto_map("ernie4_5", "Ernie4_5"), head_dim=128,
            pad_token_id=PAD, rope_scaling=None, rope_theta=500000.0,
            use_bias=False, use_cache=False, use_flash_attention=False,
            compression_ratio=1.0, pp_seg_method="layer:Ernie4_5",
            tie_word_embeddings=True, max_sequence_length=None),
        generation_config=generation(do_sample=True, pad_token_id=PAD,
                                     top_p=0.8, temperature=0.8),
        tokenizer_config=dict(
            bos_token="<s>", eos_token="</s>", pad_token="<unk>",
            unk_token="<unk>", cls_token="<s>", sep_token="</s>",
            auto_map={"AutoTokenizer": [
                "tokenization_ernie4_5.Ernie4_5_Tokenizer", None]},
            additional_special_tokens=[], model_max_length=NO_LIMIT,
            tokenizer_class="Ernie4_5_Tokenizer", chat_template=CHAT)),
    "ernie4.5_moe": dict(
        fixture="ernie4_5_moe", style="llama2", tokens=LLAMA2_TOKENS,
        wide=("mlp.gate.weight",),
        files=("configuration_ernie4_5_moe.py", "modeling_ernie4_5_moe.py",
               "tokenizer.model"),
        config=common(
            "ernie4_5_moe", "Ernie4_5_MoeForCausalLM",
            auto_map=auto_map("ernie4_5_moe", "Ernie4_5_Moe"),
            moe_capacity=[64, 64, 64], moe_gate="topk", moe_k=6,
            moe_intermediate_size=1536, moe_layer_end_index=27,
            moe_layer_interval=1, moe_layer_start_index=1,
            moe_num_experts=64, moe_num_shared_experts=2, head_dim=128,
            moe_use_aux_free=True, num_nextn_predict_layers=0,
            pad_token_id=PAD, rope_scaling=None, rope_theta=500000.0,
            use_bias=False, use_cache=True, use_flash_attention=False,
            tie_word_embeddings=True),
        generation_config=generation(pad_token_id=PAD),
        tokenizer_config=dict(
            bos_token="<s>", eos_token="</s>", pad_token="<unk>",
            unk_token="<unk>", model_max_length=NO_LIMIT,
            tokenizer_class="LlamaTokenizer")),
    "internlm2.5": dict(
        fixture="internlm2_dynamic", style="llama2", tokens=LLAMA2_TOKENS,
        files=("configuration_internlm2.py", "modeling_internlm2.py",
               "tokenization_internlm2.py", "tokenization_internlm2_fast.py",
               "tokenizer.model"),
        config=common(
            "internlm2", "InternLM2ForCausalLM", attn_implementation="eager",
            auto_map=auto_map("internlm2", "InternLM2"), bias=False,
            pad_token_id=PAD, pretraining_tp=1, rope_theta=1000000,
            rope_scaling=dict(type="dynamic", factor=2.0),
            transformers_version="4.41.0"),
        generation_config=generation(pad_token_id=PAD),
        tokenizer_config=dict(
            auto_map={"AutoTokenizer": [
                "tokenization_internlm2.InternLM2Tokenizer",
                "tokenization_internlm2_fast.InternLM2TokenizerFast"]},
            decoder=True, bos_token="<s>", eos_token="</s>",
            pad_token="</s>", unk_token="<unk>", chat_template=CHAT,
            additional_special_tokens=["<|im_start|>", "<|im_end|>"],
            clean_up_tokenization_spaces=False, sp_model_kwargs=None,
            model_max_length=NO_LIMIT, tokenizer_class="InternLM2Tokenizer")),
    "mimo": dict(
        fixture="mimo_gqa", style="qwen", tokens=QWEN_TOKENS,
        files=("configuration_mimo.py", "modeling_mimo.py"),
        config=common(
            "mimo", "MiMoForCausalLM", attention_bias=True,
            attention_dropout=0.0, auto_map=auto_map("mimo", "MiMo"),
            head_dim=128, num_nextn_predict_layers=0, rope_theta=640000,
            rope_scaling=None, **WINDOW),
        generation_config=QWEN_GENERATION,
        tokenizer_config=QWEN_TOKENIZER),
    "minimax_m2": dict(
        fixture="minimax_m2", style="o200k",
        tokens=("]~!b[", "[e~[", "]!p~["),
        files=("configuration_minimax_m2.py", "modeling_minimax_m2.py",
               "docs/vllm_deploy_guide.md", "chat_template.jinja"),
        config=common(
            "minimax_m2", "MiniMaxM2ForCausalLM", attn_type_list=[1, 1],
            attention_dropout=0.0, head_dim=128, num_experts_per_tok=8,
            auto_map=auto_map("minimax_m2", "MiniMaxM2"), num_local_experts=256,
            output_router_logits=False, qk_norm_type="per_layer",
            rms_norm_eps=1e-6, rope_theta=5000000, rotary_dim=4,
            router_aux_loss_coef=0.001, router_jitter_noise=0.0,
            scoring_func="sigmoid", shared_intermediate_size=0,
            sliding_window=None, use_mtp=False, use_qk_norm=True,
            use_routing_bias=True, num_mtp_modules=0,
            transformers_version="4.46.1"),
        generation_config=generation(do_sample=True, temperature=1.0,
                                     top_p=0.95, top_k=40),
        tokenizer_config=dict(
            decoder=True, add_prefix_space=False, model_max_length=40960000,
            clean_up_tokenization_spaces=False, errors="replace",
            tokenizer_class="GPT2Tokenizer", unk_token="]!d~[")),
}


# ---- what has to hold ------------------------------------------------------

RECIPE = """device: cpu
data: {{train: [{{path: text}}], seq_length: 16, tokenizer: {0}}}
init: {{from_hf: {0}}}
train: {{micro_batch_size: 2, global_batch_size: 2, train_iters: 1}}
optimizer: {{lr: 1e-4}}
checkpoint: {{save: {0}.saved}}
export: {{hf: {0}.trained}}
"""
KEPT = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
        "generation_config.json", "vocab.json", "merges.txt",
        "tokenizer.model")


def run(tool, *arguments):
    done = subprocess.run([os.path.join(BUILD, tool), *arguments],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{tool} {' '.join(arguments)}: exit {done.returncode}\n"
                 f"{done.stdout}{done.stderr}")
    return done.stdout


def weights(place):
    """All tensors of a directory."""
    return {name: tensor for file in sorted(os.listdir(place))
            if file.endswith(".safetensors")
            for name, tensor in read_weights(f"{place}/{file}").items()}


def kept(source, target):
    for name in KEPT + tuple(n for n in os.listdir(source)
                             if n.endswith(".py")):
        if os.path.exists(f"{source}/{name}") and not filecmp.cmp(
                f"{source}/{name}", f"{target}/{name}", shallow=False):
            sys.exit(f"{target}/{name} is not what {source} has")


def check(name, entry):
    make(name, entry)
    run("loong-data", "index", "--tokenizer", name, "--output-prefix", "text",
        "--quiet", "text.txt")
    text = subprocess.run(
        [os.path.join(BUILD, "loong-data"), "tokenizer", "decode",
         "--tokenizer", name],
        input=run("loong-data", "tokenizer", "encode", "--tokenizer", name,
                  "text.txt"), capture_output=True, text=True, check=True)
    with open("text.txt", encoding="utf-8") as f:
        if text.stdout.strip() != f.read().strip():
            sys.exit(f"{name}: other text came back: {text.stdout}")
    run("loong-ckpt", "import", name, f"{name}.native", "--quiet")
    run("loong-ckpt", "verify", f"{name}.native")
    run("loong-ckpt", "export", f"{name}.native", f"{name}.back", "--quiet",
        "--dtype", "bf16")
    run("loong-ckpt", "diff", f"{name}.native", f"{name}.back")
    for tensor, value in weights(name).items():
        back = weights(f"{name}.back").get(entry.get("strip", "") + tensor)
        if tensor not in entry.get("tensors", ()) and back != value and \
                ".mtp_layers." not in tensor:
            sys.exit(f"{name}: another {tensor} came back")
    kept(name, f"{name}.back")
    with open("recipe.yaml", "w", encoding="utf-8") as f:
        f.write(RECIPE.format(name))
    run("loongrun", "recipe.yaml")
    kept(name, f"{name}.trained")
    for end in ("", ".native", ".back", ".saved", ".trained"):
        shutil.rmtree(name + end)


def main():
    wanted = sys.argv[3:] or MODELS
    os.environ["OMP_NUM_THREADS"] = "1"
    global BUILD, SOURCE, FIXTURES
    BUILD, SOURCE = os.path.abspath(BUILD), os.path.abspath(SOURCE)
    FIXTURES = os.path.abspath(FIXTURES)
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        with open("text.txt", "w", encoding="utf-8") as f:
            f.writelines(f"Line {i}: the {i * 7919 % 1000}th caf\u00e9 "
                         f"isn't \u4f60\u597d, said x_{i}.\n"
                         for i in range(60))
        for name in wanted:
            check(name, MODELS[name])
            print("ok", name)
        os.chdir("/")


if __name__ == "__main__":
    main()
