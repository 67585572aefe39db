#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Published vision-language directories, read and written, against transformers.

  vl_from_hf.py BUILD          writes vl_from_hf/: directories as the first
                               publishers wrote them (flat or short config.json,
                               earlier names of tensors) and the loss of
                               transformers on the texts of
                               tests/train/texts_with_pictures.sh
  vl_from_hf.py BUILD --check  makes models, writes each in every layout of
                               config.json and of names, trains a step of
                               learning rate 1e-30 from it with export.hf, and
                               compares loss (to the nine digits of metrics.jsonl), names, tensors and logits
                               of what transformers reads back
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

import ernie4_5_vl_train
import glm4v_train
import internvl_train
import kimi_k25_train
import llava_onevision_train
import llava_train
import llavaonevision1_5_train
import paligemma_train
import qwen2_5_vl_train
import qwen2_vl_train
import qwen3_vl_moe_train
import qwen3_vl_train

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURE = os.path.join(HERE, "vl_from_hf")
MODELS = {"llava": llava_train, "qwen2_vl": qwen2_vl_train,
          "qwen2_5_vl": qwen2_5_vl_train, "qwen3_vl": qwen3_vl_train,
          "qwen3_vl_moe": qwen3_vl_moe_train, "internvl": internvl_train,
          "kimi_k25": kimi_k25_train, "paligemma": paligemma_train,
          "llava_onevision": llava_onevision_train,
          "llavaonevision1_5": llavaonevision1_5_train, "glm4v": glm4v_train,
          "ernie4_5_vl_moe": ernie4_5_vl_train}
# Names of modules, and what files call them.
MODULES = {
    "llava": [(r"^model\.vision_tower\.", "{tower}"),
              (r"^model\.multi_modal_projector\.", "{base}multi_modal_projector."),
              (r"^model\.language_model\.", "{text}"),
              (r"^lm_head\.", "{head}lm_head.")],
    "qwen2_vl": [(r"^model\.visual\.", "{tower}"),
                 (r"^model\.language_model\.", "{text}")]}
NAMES = {
    "llava": [
        dict(tower="vision_tower.vision_model.", base="", head="language_model.",
             text="language_model.model."),
        dict(tower="vision_tower.", base="", head="language_model.",
             text="language_model.model."),
        dict(tower="model.vision_tower.vision_model.", base="model.", head="",
             text="model.language_model."),
        dict(tower="model.vision_tower.", base="model.", head="",
             text="model.language_model.")],
    "qwen2_vl": [dict(tower="visual.", text="model."),
                 dict(tower="model.visual.", text="model.language_model.")]}

MODULES["qwen2_5_vl"], NAMES["qwen2_5_vl"] = (
    MODULES["qwen2_vl"], NAMES["qwen2_vl"])
MODULES["internvl"], NAMES["internvl"] = (
    MODULES["llava"], NAMES["llava"][1::2])
MODULES["paligemma"], NAMES["paligemma"] = MODULES["llava"], NAMES["llava"]
MODULES["llava_onevision"], NAMES["llava_onevision"] = (
    [*MODULES["llava"], (r"^model\.image_newline", "{base}image_newline")],
    NAMES["llava"])
MODULES["llavaonevision1_5"], NAMES["llavaonevision1_5"] = (
    MODULES["qwen2_vl"], NAMES["qwen2_vl"])
for kind in ("qwen3_vl", "qwen3_vl_moe", "glm4v"):
    MODULES[kind], NAMES[kind] = [], [{}]  # as the modules
# The publisher's experts are [experts, in, out], the modules' [experts, out,
# in].
NAMES["qwen3_vl_moe"] = [dict(turned=True), dict(turned=False)]
# What transformers' own saving makes of its modules is the publisher's, but
# for Kimi's names of layers and patches, which it takes for others, and ERNIE's
# encoder, which the publisher has at the top.
SAVED = {"kimi_k25": [lambda key: re.sub(
    r"(vision_tower\.)encoder\.(patch_embed)", r"\1\2",
    key.removeprefix("model.").replace("model.blocks", "model.layers"))],
         "ernie4_5_vl_moe": [
             lambda key: key,
             lambda key: key.replace("model.vision_model", "vision_model")]}
for kind, saved in SAVED.items():
    MODULES[kind], NAMES[kind] = [], [{}] * len(saved)
# Of the fixture.
PUBLISHED = {"llava": torch.float32, "qwen2_vl": torch.float32,
             "qwen3_vl_moe": torch.bfloat16, "glm4v": torch.bfloat16,
             "ernie4_5_vl_moe": torch.bfloat16}
# As transformers saves it: layout 1, new config.json.
RESAVED = {"qwen3_vl_moe"}


def spread(model, dtype):
    torch.manual_seed(20261126)
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.normal_(0.0, 0.3)
            if "norm" in key and key.endswith("weight"):
                p.add_(1.0)
            p.copy_(p.to(dtype))
    return model


def ernie_flat(config):
    """As Baidu wrote it: a number of experts for texts, one for pictures."""
    text, vision = config["text_config"], config["vision_config"]
    rope = text["rope_parameters"]
    same = ("hidden_size", "intermediate_size", "num_hidden_layers",
            "num_attention_heads", "num_key_value_heads", "head_dim",
            "vocab_size", "max_position_embeddings", "rms_norm_eps",
            "hidden_act", "tie_word_embeddings", "moe_k", "use_bias",
            "moe_intermediate_size", "moe_num_shared_experts")
    seen = {k: vision[k] for k in ("depth", "hidden_size", "hidden_act",
                                   "num_heads", "in_channels", "patch_size",
                                   "spatial_merge_size")}
    return dict(
        {k: text[k] for k in same}, architectures=config["architectures"],
        model_type="ernie4_5_moe_vl", rope_theta=rope["rope_theta"],
        freq_allocation=rope["mrope_section"][2], rope_3d=True,
        moe_num_experts=[text["moe_num_experts"]] * 2,
        moe_layer_start_index=[1, 1], moe_layer_end_index=[29, 28],
        moe_layer_interval=1, moe_use_aux_free=True, moe_gate="topk",
        im_patch_id=config["image_token_id"], spatial_conv_size=2,
        temporal_conv_size=2, use_temporal_conv=True,
        pixel_hidden_size=vision["hidden_size"], torch_dtype=config["dtype"],
        vision_config=dict(
            seen, model_type="DFNRope_vision_transformer", attn_sep=True,
            embed_dim=vision["hidden_size"],
            mlp_ratio=vision["intermediate_size"] / vision["hidden_size"]))


def old_config(name, config):
    """As files had it before transformers 5."""
    text = config["text_config"]
    if name.startswith("qwen3_vl"):
        rope = text.pop("rope_parameters")
        text["rope_theta"] = rope.pop("rope_theta")
        text["rope_scaling"] = dict(rope, mrope_interleaved=True)
        config["vision_config"].pop("rope_parameters", None)
        config["vision_config"]["model_type"] = name
    elif name == "glm4v":
        rope = text.pop("rope_parameters")
        text["rope_theta"] = rope["rope_theta"]
        text["partial_rotary_factor"] = rope["partial_rotary_factor"]
        text["rope_scaling"] = dict(rope_type="default",
                                    mrope_section=rope["mrope_section"])
        text.update(attention_bias=True, image_token_id=None,
                    video_end_token_id=config["video_end_token_id"])
        config["vision_config"].pop("rope_parameters", None)
        config["vision_config"].update(model_type="glm4v",
                                       hidden_dropout_prob=0.0)
    elif name == "ernie4_5_vl_moe":
        return ernie_flat(config)
    elif name in ("kimi_k25", "llavaonevision1_5"):
        text["rope_theta"] = text.pop("rope_parameters")["rope_theta"]
        config["vision_config"].pop("rope_parameters", None)
    elif name == "paligemma":  # what its classes have by default is not said
        for key in ("rope_parameters", "head_dim", "rms_norm_eps",
                    "hidden_act", "tie_word_embeddings"):
            text.pop(key, None)
        text["head_dim"] = paligemma_train.HEAD
        config.update(ignore_index=-100, _vocab_size=12)
        config["vision_config"]["projector_hidden_act"] = "gelu_fast"
    elif name in ("llava", "internvl", "llava_onevision"):
        rope = text.pop("rope_parameters")
        text["rope_theta"] = rope["rope_theta"]
        if name == "llava_onevision":
            config["use_image_newline_parameter"] = True
        elif name == "llava":
            config["ignore_index"] = -100
            config["vision_config"]["vocab_size"] = 32000
        else:
            config["vision_config"]["architectures"] = ["InternVisionModel"]
    else:
        text = config.pop("text_config")
        rope = text.pop("rope_parameters")
        vision = config["vision_config"]
        vision.pop("rope_parameters", None)
        vision.pop("model_type")
        vision["in_chans"] = vision.pop("in_channels")
        vision["spatial_patch_size"] = vision["patch_size"]
        text.pop("model_type")
        text.pop("layer_types", None)
        config.update({k: v for k, v in text.items() if k not in config})
        config["rope_theta"] = rope["rope_theta"]
        config["rope_scaling"] = dict(type="mrope",
                                      mrope_section=rope["mrope_section"])
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.45.0"
    return config


def write(model, name, place, to, layout, old):
    """The model, its processor and tokenizer as a directory."""
    shutil.rmtree(to, ignore_errors=True)
    model.save_pretrained(to)
    with open(os.path.join(to, "config.json")) as f:
        config = json.load(f)
    if old:
        with open(os.path.join(to, "config.json"), "w") as f:
            json.dump(old_config(name, config), f, indent=1)
    tensors = {
        SAVED[name][layout](key): p
        for key, p in load_file(os.path.join(to, "model.safetensors")).items()
    } if name in SAVED else {}
    for key, p in () if name in SAVED else model.state_dict().items():
        if key == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        for pattern, text in MODULES[name]:
            key = re.sub(pattern, text.format(**NAMES[name][layout]), key)
        if ".mlp.experts." in key and NAMES[name][layout]["turned"]:
            p = p.transpose(1, 2)
        tensors[key] = p.to(model.dtype).contiguous()
    save_file(tensors, os.path.join(to, "model.safetensors"),
              metadata={"format": "pt"})
    for file in ("tokenizer.json",):
        shutil.copy(os.path.join(place, file), to)
    side = llava_train.SIDE
    processor = dict(
        image_processor_type="CLIPImageProcessor",
        size={"shortest_edge": side}, crop_size=dict(height=side, width=side)
    ) if name == "llava" else dict(
        image_processor_type="SiglipImageProcessor", do_convert_rgb=None,
        image_seq_length=4, size=dict(height=side, width=side)
    ) if name == "paligemma" else dict(
        image_processor_type="LlavaOnevisionImageProcessor", do_pad=True,
        crop_size=None, default_to_square=False, **llava_onevision_train.CUT
    ) if name == "llava_onevision" else dict(
        image_processor_type="GotOcr2ImageProcessorFast", **internvl_train.CUT
    ) if name == "internvl" else dict(
        image_processor_type="Glm4vImageProcessor", size=glm4v_train.PIXELS,
        **qwen2_vl_train.CUT
    ) if name == "glm4v" else dict(
        image_processor_type="Ernie4_5_VLMoeImageProcessor",
        size=ernie4_5_vl_train.PIXELS, **ernie4_5_vl_train.CUT
    ) if name == "ernie4_5_vl_moe" else dict(
        image_processor_type="Qwen2VLImageProcessor",
        size=qwen2_vl_train.PIXELS, **dict(
            qwen2_vl_train.CUT,
            temporal_patch_size=1 if name in (
                "kimi_k25", "llavaonevision1_5") else 2))
    if old:
        file, whole = "preprocessor_config.json", processor
    else:
        file, whole = "processor_config.json", dict(image_processor=processor)
        if name == "internvl":  # whose class cuts tiles all the same
            processor["crop_to_patches"] = False
            whole["processor_class"] = "InternVLProcessor"
    with open(os.path.join(to, file), "w") as f:
        json.dump(whole, f)
    return tensors


def prepare(place):
    llava_train.write_texts(place)
    qwen2_vl_train.prepare(place)


def loss_of(model, batch):
    count = sum(int(learned.sum()) for _, _, learned in batch)
    with torch.no_grad(), llava_train.wide.widened():
        return (sum(llava_train.losses(model, batch)) / count).item()


def logits_of(model, batch):
    with torch.no_grad(), llava_train.wide.widened():
        return [model(input_ids=ids, **extra).logits for ids, extra, _ in batch]


def run(build, model, place, out, keys=()):
    """The loss of a step that changes nothing; the model goes to `out`."""
    log = os.path.join(place, "log")
    shutil.rmtree(log, ignore_errors=True)
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run(
        [os.path.join(build, "loongrun"), os.path.join(HERE, "vl_from_hf.yaml"),
         f"init.from_hf={model}", f"data.train=[{place}/texts.jsonl]",
         f"log.dir={log}", f"checkpoint.save={place}/save", f"export.hf={out}",
         *keys],
        check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(os.path.join(place, "save"))
    with open(os.path.join(log, "metrics.jsonl")) as f:
        return [json.loads(line)["loss"] for line in f if '"loss"' in line][0]


def check(build, name, model, place, batch, loss, layout, old):
    to, out = os.path.join(place, "model"), os.path.join(place, "out")
    tensors = write(model, name, place, to, layout, old)
    length = model.config.text_config.max_position_embeddings
    ours = run(build, to, place, out, [f"data.seq_length={length}", *(
        ["model.foundation.moe_router_bias_update_rate=0",
         *(["data.vision_token_ids=[1, 4]"] if old else [])]
        if name == "ernie4_5_vl_moe" else [])])
    again = load_file(os.path.join(out, "model.safetensors"))
    assert again.keys() == tensors.keys(), set(again) ^ set(tensors)
    assert all(torch.equal(again[key], tensors[key]) for key in tensors)
    files = set(os.listdir(to)) - {"generation_config.json"}
    assert files <= set(os.listdir(out)), files - set(os.listdir(out))
    with llava_train.wide.widened():
        back = transformers.AutoModelForImageTextToText.from_pretrained(
            out, dtype=torch.float64, attn_implementation="eager",
            experts_implementation="eager").eval()
    worst = max((a - b).abs().max().item() for a, b in
                zip(logits_of(back, batch), logits_of(model, batch)))
    print(f"{name}, names {layout}, {'old' if old else 'new'} config.json: "
          f"loss off by {abs(ours - loss) / loss:.1e}, logits by {worst:.1e}")
    assert abs(ours - loss) < 5e-9 * loss and worst < 1e-9


def check_qwen3_5(build, place):
    """Encoder and projector of a Qwen3.5, with the language model of a
    Qwen3-VL: the loss is that of this one with the other's encoder."""
    vision = {k: v for k, v in qwen3_vl_train.VISION.items()
              if k != "deepstack_visual_indexes"}
    text = dict(vocab_size=12, hidden_size=24, intermediate_size=24,
                num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, head_dim=6, linear_num_key_heads=2,
                linear_num_value_heads=2, linear_key_head_dim=4,
                linear_value_head_dim=4, tie_word_embeddings=False,
                layer_types=["linear_attention", "full_attention"])
    with llava_train.wide.widened():
        new = transformers.Qwen3_5ForConditionalGeneration._from_config(
            transformers.Qwen3_5Config(vision_config=vision, text_config=text,
                                       image_token_id=1),
            attn_implementation="eager").double().eval()
        old = transformers.Qwen3VLForConditionalGeneration._from_config(
            transformers.Qwen3VLConfig(
                vision_config=dict(vision, deepstack_visual_indexes=[]),
                text_config=dict(qwen2_vl_train.TEXT, head_dim=6),
                image_token_id=1, tie_word_embeddings=False),
            attn_implementation="eager").double().eval()
    spread(new, torch.float32)
    spread(old, torch.float32).model.visual.load_state_dict(
        new.model.visual.state_dict())
    batch = list(qwen3_vl_train.samples(place))
    loss = loss_of(old, batch)
    with torch.no_grad(), llava_train.wide.widened():
        for extra in (extra for _, extra, _ in batch if extra):
            seen = [m.model.visual(extra["pixel_values"],
                                   extra["image_grid_thw"])
                    for m in (new, old)]
            assert torch.equal(*[s.pooler_output for s in seen])
    MODULES["qwen3_5"], NAMES["qwen3_5"] = [], [{}]
    dirs = [os.path.join(place, name) for name in ("qwen3_5", "qwen3_vl")]
    write(new.float(), "qwen3_5", place, dirs[0], 0, False)
    write(old.float(), "qwen3_vl", place, dirs[1], 0, False)
    ours = run(build, dirs[1], place, os.path.join(place, "out"),
               [f"model.image_{part}.init.from_hf={dirs[0]}"
                for part in ("encoder", "projector")])
    print(f"qwen3_5, its encoder and projector: loss off by "
          f"{abs(ours - loss) / loss:.1e}")
    assert abs(ours - loss) < 5e-9 * loss


def check_square(build, place):
    """Square experts are transformers' own order, or refused."""
    size = qwen2_vl_train.TEXT["hidden_size"]
    for width in size, size // 2:
        model = spread(qwen3_vl_moe_train.make(width), torch.float32)
        batch = list(qwen3_vl_moe_train.samples(place))
        loss = loss_of(model, batch)
        check(build, "qwen3_vl_moe", model, place, batch, loss, 1, False)
        try:
            check(build, "qwen3_vl_moe", model, place, batch, loss, 0, False)
        except subprocess.CalledProcessError:
            continue
        raise AssertionError("square experts of the other order are read")


def check_qianfan(build, place):
    """InternVL before Llama 3.1."""
    model = spread(internvl_train.make(
        "llama", rope_type="llama3", factor=8.0, low_freq_factor=1.0,
        high_freq_factor=4.0, original_max_position_embeddings=16),
        torch.float32)
    batch = list(internvl_train.samples(place))
    check(build, "internvl", model, place, batch, loss_of(model, batch), 1,
          False)


def main():
    build, checks = sys.argv[1], "--check" in sys.argv[2:]
    if checks:
        with tempfile.TemporaryDirectory() as place:
            prepare(place)
            check_qwen3_5(build, place)
            check_square(build, place)
            check_qianfan(build, place)
    for name, of in MODELS.items():
        dtype = torch.float32 if checks else PUBLISHED.get(name)
        if dtype is None:
            continue
        with tempfile.TemporaryDirectory() as place:
            prepare(place)
            model = spread(of.make(), dtype)
            batch = list(of.samples(place))
            loss = loss_of(model, batch)
            if checks:
                for layout in range(len(NAMES[name])):
                    for old in (False, True):
                        check(build, name, model, place, batch, loss, layout,
                              old)
                continue
            os.makedirs(FIXTURE, exist_ok=True)
            model.to(dtype)
            for new in (False, True) if name in RESAVED else (False,):
                to = os.path.join(FIXTURE, name + new * "_resaved")
                write(model, name, place, to, int(new), not new)
                os.remove(os.path.join(to, "generation_config.json"))
                with open(to + ".txt", "w") as f:
                    f.write(f"{loss!r}\n")


if __name__ == "__main__":
    main()
