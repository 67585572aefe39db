#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Directories of model type internvl_chat, as OpenGVLab publishes them.

  internvl_chat.py --write  writes the first of them, and its loss, into
                            vl_from_hf/
  internvl_chat.py --grids  writes the tiles of pictures of many sizes into
                            tests/fixtures/images/internvl_chat.txt
  internvl_chat.py BUILD   makes models of transformers' InternVL before each
                           kind of language model, writes them under the
                           publisher's names and with its config.json, trains a
                           step of learning rate 1e-30 of each with export.hf,
                           also as internvl, and compares: the loss with that of
                           transformers, tensors, config.json, Python files, and
                           the logits of what transformers reads

The pictures of both are cut and scaled by `tiles` below, written by the
publisher's rule; transformers sees its pixels, the engine its own.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file

import internvl_train
import llava_train
import qwen2_vl_train as qwen2
import vl_from_hf

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIDE = internvl_train.SIDE
HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = os.path.join(HERE, "../fixtures/images/internvl_chat.txt")
MOST = 4


def tiles(image, least=1, most=MOST, side=SIDE, thumbnail=True):
    """[tiles, 3, side, side]."""
    columns, rows = grid(*image.size, least, most, side)
    whole = image.resize((columns * side, rows * side))
    parts = [whole.crop((x * side, y * side, (x + 1) * side, (y + 1) * side))
             for y in range(rows) for x in range(columns)]
    if thumbnail and len(parts) > 1:
        parts.append(image.resize((side, side)))
    pixels = np.stack([np.asarray(p, np.float32) / np.float32(255)
                       for p in parts])
    pixels = (pixels - np.float32(MEAN)) / np.float32(DEVIATION)
    return torch.from_numpy(pixels.transpose(0, 3, 1, 2))


def grid(width, height, least, most, side):
    """Columns and rows whose ratio is nearest to the picture's, of equally near
    ones the larger where the picture has half its pixels. Of as many tiles the
    publisher takes them in the order that Python's set has."""
    known = {(a, b) for n in range(least, most + 1) for a in range(1, n + 1)
             for b in range(1, n + 1) if least <= a * b <= most}
    best, near = (1, 1), float("inf")
    for columns, rows in sorted(known, key=lambda r: r[0] * r[1]):
        far = abs(width / height - columns / rows)
        if far < near or (far == near and width * height >
                          0.5 * side * side * columns * rows):
            best, near = (columns, rows), far
    return best


def samples(place):
    with open(os.path.join(place, "tokenizer.json")) as f:
        vocab = json.load(f)["model"]["vocab"]
    with open(os.path.join(place, "texts.jsonl")) as f:
        for record in map(json.loads, f):
            images = [tiles(Image.open(os.path.join(place, name)).convert(
                "RGB")) for name in record["images"]]
            counts = iter([4 * len(image) for image in images])
            ids, learned = [], []
            for part in record["text"].replace("<picture>", "\0"):
                count = next(counts) if part == "\0" else 1
                ids += [qwen2.PICTURE if part == "\0" else vocab[part]] * count
                learned += [part != "\0"] * count
            yield torch.tensor([ids]), dict(
                pixel_values=torch.cat(images).double()) if images else {}, \
                torch.tensor(learned[1:])


# ---- a published directory --------------------------------------------------

TEXTS = {
    "internlm2": dict(model_type="internlm2", architectures=[
        "InternLM2ForCausalLM"], bias=False, attn_implementation="eager",
        auto_map=dict(AutoConfig="configuration_internlm2.InternLM2Config"),
        rope_scaling=dict(type="dynamic", factor=2.0)),
    "qwen2": dict(model_type="qwen2", architectures=["Qwen2ForCausalLM"],
                  use_sliding_window=False, sliding_window=None,
                  max_window_layers=70, moe_config=None),
    "qwen3": dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"],
                  attention_bias=False, head_dim=4, use_sliding_window=False),
    "qwen3_moe": dict(model_type="qwen3_moe", architectures=[
        "Qwen3MoeForCausalLM"], attention_bias=False, head_dim=4,
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
        norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
        use_sliding_window=False),
    "llama": dict(model_type="llama", architectures=["LlamaForCausalLM"],
                  attention_bias=False, mlp_bias=False)}
# Fields that the publisher's files have and no model is computed by.
MORE = dict(_name_or_path="./pretrained", return_dict=True, use_bfloat16=True,
            output_attentions=False, torch_dtype="bfloat16", pruned_heads={},
            id2label={"0": "LABEL_0", "1": "LABEL_1"}, top_k=50, min_length=0)
EXPERTS = dict(use_moe=False, num_experts=8, capacity_factor=1.2,
               laux_allreduce="all_nodes", noisy_gate_policy="RSample_before",
               moe_intermediate_size=768, shared_expert_intermediate_size=3072,
               num_shared_experts=4, use_residual=True, use_rts=False)


def make(kind, norm):
    with llava_train.wide.widened():
        model = internvl_train.make(
            "llama" if kind == "internlm2" else kind,
            more={key: value for key, value in TEXTS[kind].items()
                  if key in ("head_dim", "num_experts", "num_experts_per_tok",
                             "moe_intermediate_size", "norm_topk_prob",
                             "decoder_sparse_step", "mlp_only_layers")},
            vision=dict(use_qk_norm=norm == "rms_norm", norm_type=norm,
                        attention_bias=norm == "layer_norm"),
            **(dict(rope_type="dynamic", factor=2.0) if kind == "internlm2"
               else {}))
    return vl_from_hf.spread(model, torch.float32)


def config(model, kind, norm):
    text, vision = model.config.text_config, model.config.vision_config
    sizes = ("hidden_size", "intermediate_size", "num_hidden_layers",
             "num_attention_heads")
    language = {key: getattr(text, key) for key in (
        *sizes, "num_key_value_heads", "vocab_size", "rms_norm_eps",
        "max_position_embeddings", "hidden_act")}
    return dict(
        MORE, architectures=["InternVLChatModel"], model_type="internvl_chat",
        auto_map=dict(AutoConfig="configuration_internvl_chat."
                      "InternVLChatConfig"), ps_version="v2",
        downsample_ratio=0.5, select_layer=-1, force_image_size=SIDE,
        dynamic_image_size=True, use_thumbnail=True, min_dynamic_patch=1,
        max_dynamic_patch=MOST, pad2square=False, template="internvl2_5",
        use_backbone_lora=0, use_llm_lora=0, hidden_size=text.hidden_size,
        image_fold=None, system_message=None, tie_word_embeddings=False,
        llm_config=dict(MORE, **language, **TEXTS[kind], rope_theta=1e4,
                        tie_word_embeddings=False),
        vision_config=dict(
            MORE, **{key: getattr(vision, key) for key in sizes}, **EXPERTS,
            architectures=["InternVisionModel"], model_type="intern_vit_6b",
            attention_dropout=0.0, dropout=0.0, drop_path_rate=0.1,
            hidden_act="gelu", image_size=SIDE, patch_size=4, num_channels=3,
            initializer_factor=1.0, initializer_range=0.02,
            layer_norm_eps=1e-6, norm_type=norm, use_flash_attn=True,
            qk_normalization=norm == "rms_norm",
            qkv_bias=norm == "layer_norm"))


def rename(tensors, kind, groups):
    """From the names of transformers' modules to the publisher's."""
    out = {}
    for key, value in tensors.items():
        if ".vision_tower." in key:
            key = key.replace("model.vision_tower.", "vision_model.")
            for a, b in (("cls_token", "class_embedding"),
                         ("patch_embeddings.projection", "patch_embedding"),
                         ("position_embeddings", "position_embedding"),
                         ("encoder.layer.", "encoder.layers."),
                         ("layernorm_before", "norm1"),
                         ("layernorm_after", "norm2"), ("lambda_", "ls"),
                         ("attention.projection_layer", "attn.proj"),
                         ("attention.", "attn.")):
                key = key.replace(a, b)
        elif ".multi_modal_projector." in key:
            for a, b in (("layer_norm", "0"), ("linear_1", "1"),
                         ("linear_2", "3")):
                key = key.replace(f"model.multi_modal_projector.{a}",
                                  f"mlp1.{b}")
        elif key.startswith("lm_head"):
            key = "language_model." + key
        else:
            key = key.replace("model.language_model.", "language_model.model.")
        out[key] = value
    for key in [k for k in out if ".attn.q_proj." in k]:
        out[key.replace("q_proj", "qkv")] = torch.cat(
            [out.pop(key.replace("q_proj", part))
             for part in ("q_proj", "k_proj", "v_proj")])
    for key in [k for k in out if k.endswith("experts.gate_up_proj")]:
        base = key.removesuffix("gate_up_proj")
        both, down = out.pop(key), out.pop(base + "down_proj")
        for i in range(len(both)):
            gate, up = both[i].chunk(2)
            out[f"{base}{i}.gate_proj.weight"] = gate
            out[f"{base}{i}.up_proj.weight"] = up
            out[f"{base}{i}.down_proj.weight"] = down[i]
    if kind == "internlm2":
        for key in [k for k in out if ".self_attn.q_proj." in k]:
            parts = [out.pop(key.replace("q_proj", p)).unflatten(
                0, (groups, -1)) for p in ("q_proj", "k_proj", "v_proj")]
            out[key.replace("q_proj", "wqkv")] = torch.cat(parts, 1).flatten(
                0, 1)
        for a, b in (("embed_tokens", "tok_embeddings"), ("lm_head", "output"),
                     ("self_attn.o_proj", "attention.wo"),
                     ("self_attn", "attention"),
                     ("input_layernorm", "attention_norm"),
                     ("post_attention_layernorm", "ffn_norm"),
                     ("mlp.gate_proj", "feed_forward.w1"),
                     ("mlp.up_proj", "feed_forward.w3"),
                     ("mlp.down_proj", "feed_forward.w2")):
            out = {k.replace(a, b) if k.startswith("language_model.") else k: v
                   for k, v in out.items()}
    return {k: v.float().contiguous() for k, v in out.items()}


def write(model, kind, norm, place, to):
    shutil.rmtree(to, ignore_errors=True)
    os.makedirs(to)
    with open(os.path.join(to, "config.json"), "w") as f:
        json.dump(config(model, kind, norm), f, indent=1)
    with open(os.path.join(to, "preprocessor_config.json"), "w") as f:
        json.dump(dict(feature_extractor_type="CLIPFeatureExtractor", size=SIDE,
                       crop_size=SIDE, do_center_crop=True, do_resize=True,
                       do_normalize=True, resample=3, image_mean=MEAN,
                       image_std=DEVIATION), f)
    for name in ("configuration_internvl_chat", "modeling_internvl_chat"):
        with open(os.path.join(to, name + ".py"), "w") as f:
            f.write("# SPDX-License-Identifier: Apache-2.0\n")
    shutil.copy(os.path.join(place, "tokenizer.json"), to)
    tensors = rename(model.state_dict(), kind,
                     model.config.text_config.num_key_value_heads)
    save_file(tensors, os.path.join(to, "model.safetensors"),
              metadata={"format": "pt"})
    return tensors


# ---- checks -----------------------------------------------------------------

def step(build, model, place, out, *keys):
    return vl_from_hf.run(build, model, place, out, [
        "data.seq_length=40", "data.image_token=<picture>", *keys])


def check(build, kind, norm, place):
    model = make(kind, norm)
    batch = list(samples(place))
    to, out = (os.path.join(place, name) for name in ("model", "out"))
    tensors = write(model, kind, norm, place, to)
    wanted = vl_from_hf.loss_of(model, batch)
    ours = step(build, to, place, out)
    again = load_file(os.path.join(out, "model.safetensors"))
    assert again.keys() == tensors.keys(), set(again) ^ set(tensors)
    assert all(torch.equal(again[key], tensors[key]) for key in tensors)
    assert set(os.listdir(to)) <= set(os.listdir(out)), os.listdir(out)
    with open(os.path.join(out, "config.json")) as f:
        written = json.load(f)
    own = config(model, kind, norm)
    for section, ignored in ((None, set(MORE)), ("llm_config", set(MORE)),
                             ("vision_config", {*MORE, *EXPERTS})):
        a, b = ((c[section] if section else c) for c in (own, written))
        for key in a.keys() - ignored - {
                "auto_map", "attn_implementation", "moe_config", "image_fold",
                "drop_path_rate", "use_flash_attn", "llm_config",
                "vision_config", "max_window_layers", "sliding_window",
                "layer_norm_eps", "dropout", "attention_dropout"}:
            assert a[key] == b.get(key), (section, key, a[key], b.get(key))
    assert written["auto_map"] == own["auto_map"]
    same = step(build, to, place, out, "export.as=internvl")
    assert same == ours
    shutil.rmtree(os.path.join(place, "native"), ignore_errors=True)
    for words in (["import", to, place + "/native"],
                  ["export", "--as", "internvl", place + "/native",
                   place + "/by_tool"],
                  ["diff", out, place + "/by_tool"]):
        shutil.rmtree(place + "/by_tool", ignore_errors=words[0] != "diff") \
            if words[0] != "diff" else None
        subprocess.run([os.path.join(build, "loong-ckpt"), *words], check=True,
                       stdout=subprocess.DEVNULL)
    with llava_train.wide.widened():
        back = transformers.AutoModelForImageTextToText.from_pretrained(
            out, dtype=torch.float64, attn_implementation="eager",
            experts_implementation="eager").eval()
    assert back.config.image_token_id == qwen2.PICTURE
    worst = max((a - b).abs().max().item() for a, b in
                zip(vl_from_hf.logits_of(back, batch),
                    vl_from_hf.logits_of(model, batch)))
    print(f"{kind}, {norm}: loss off by {abs(ours - wanted) / wanted:.1e}, "
          f"logits of the internvl by {worst:.1e}")
    assert abs(ours - wanted) < 5e-9 * wanted and worst < 1e-9


def write_sizes():
    """Of each number of tiles: pictures around the ratios and the areas where
    the choice changes, and drawn ones."""
    rng = np.random.default_rng(20261126)
    with open(SIZES, "w") as f:
        for least, most in ((1, 12), (1, 6), (1, 2), (1, 40), (2, 9)):
            sizes = rng.integers(8, 4000, (24, 2)).tolist()
            sizes += [[448 * a, 448 * b] for a, b in ((1, 1), (2, 1), (1, 3))]
            sizes += [[w, w] for w in (317, 633, 634, 900, 951, 1268, 1901)]
            sizes += [[2 * w, w] for w in (448, 634, 950, 1267)]
            f.writelines(f"{least} {most} {w} {h} "
                         f"{' '.join(map(str, grid(w, h, least, most, 448)))}\n"
                         for w, h in sizes)


def write_fixture():
    to = os.path.join(vl_from_hf.FIXTURE, "internvl_chat")
    with tempfile.TemporaryDirectory() as place:
        vl_from_hf.prepare(place)
        model = make("internlm2", "layer_norm")
        write(model, "internlm2", "layer_norm", place, to)
        loss = vl_from_hf.loss_of(model, list(samples(place)))
    with open(to + ".txt", "w") as f:
        f.write(f"{loss!r}\n")


def main():
    if sys.argv[1] == "--grids":
        return write_sizes()
    if sys.argv[1] == "--write":
        return write_fixture()
    with tempfile.TemporaryDirectory() as place:
        vl_from_hf.prepare(place)
        for i, kind in enumerate(TEXTS):
            check(sys.argv[1], kind, ("layer_norm", "rms_norm")[i % 2], place)


if __name__ == "__main__":
    main()
