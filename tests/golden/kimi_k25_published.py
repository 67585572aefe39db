#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A directory as Kimi-K2.5 is published, from its weights to an export.

  kimi_k25_published.py BUILD            compares; with --videos texts with videos
                                         too (wants av)
  kimi_k25_published.py BUILD --fixture  writes vl_from_hf/kimi_k25 and its loss

Names of fields and tensors, the processor's media_proc_cfg, tiktoken.model and
experts of int4 (group_size 32, compressed-tensors' pack-quantized) are those of
moonshotai/Kimi-K2.5; sizes are small, one layer of two has experts. Pictures go
through the publisher's rule, by PIL and numpy. The loss of a step on texts and
pictures is that of transformers' class with the products, and so are the
logits of the export, which transformers reads.
"""
import base64
import json
import os
import shutil
import sys
import tempfile
import time
import types

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file

import kimi_k25_train as kimi
import llava_train
import vl_from_hf

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS = os.path.join(llava_train.SOURCE, "tests/fixtures/tokenizer/kimi")
PICTURES = os.path.join(llava_train.SOURCE, "tests/fixtures/images")
FILMS = os.path.join(llava_train.SOURCE, "tests/fixtures/videos")
PAD, BETWEEN, GROUP = "<|media_pad|>", "<|im_middle|>", 32
VIDEO = "<|kimi_k25_video_placeholder|>"
TEXTS = [(f"a{PAD}b", ["rgb.png"], []), (f"c{BETWEEN}d{BETWEEN}e", [], []),
         (f"{PAD}k{PAD}n", ["tall.jpg", "rgb.png"], []),
         (f"x{BETWEEN}y", [], [])]
VIDEOS = [(f"a{VIDEO}b{PAD}c", ["rgb.png"], ["wide.mov"]),
          (f"{VIDEO}x", [], ["clip.mov"])]
MEDIA = dict(
    in_patch_limit=25, patch_size=4, image_mean=[0.5] * 3, image_std=[0.5] * 3,
    merge_kernel_size=2, fixed_output_tokens=None, patch_limit_on_one_side=16,
    in_patch_limit_each_frame=10, in_patch_limit_video=None, sample_fps=2.0,
    max_num_frames_each_video=None, temporal_merge_kernel_size=4,
    timestamp_mode="hh:mm:ss.fff")
ROPE = dict(beta_fast=32.0, beta_slow=1.0, factor=64.0, mscale=1.0,
            mscale_all_dim=1.0, original_max_position_embeddings=4096)
TEXT = dict(
    hidden_size=32, intermediate_size=24, moe_intermediate_size=32,
    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
    q_lora_rank=10, kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4,
    v_head_dim=6, first_k_dense_replace=1, n_routed_experts=4,
    num_experts_per_tok=2, n_shared_experts=1, n_group=1, topk_group=1,
    norm_topk_prob=True, routed_scaling_factor=2.827, rms_norm_eps=1e-5,
    max_position_embeddings=160, tie_word_embeddings=False)
QUANTIZED = dict(
    config_groups=dict(group_0=dict(
        input_activations=None, output_activations=None, targets=["Linear"],
        weights=dict(actorder=None, block_structure=None, dynamic=False,
                     group_size=GROUP, num_bits=4, observer="minmax",
                     observer_kwargs={}, strategy="group", symmetric=True,
                     type="int"))),
    format="pack-quantized", ignore=["lm_head", "re:.*self_attn.*"],
    kv_cache_scheme=None, quant_method="compressed-tensors",
    quantization_status="compressed")


def vocabulary():
    with open(os.path.join(TOKENS, "tokenizer_config.json")) as f:
        special = {v["content"]: int(k) for k, v in
                   json.load(f)["added_tokens_decoder"].items()}
    with open(os.path.join(TOKENS, "tiktoken.model")) as f:
        ranks = {base64.b64decode(a).decode("latin-1"): int(b) for a, b in
                 (line.split() for line in f if line.strip())}
    return ranks, special


def make(special, vocab):
    text = dict(TEXT, model_type="deepseek_v3", vocab_size=vocab,
                num_mtp_layers=0, rope_parameters=dict(
                    ROPE, rope_type="yarn", rope_theta=5e4))
    config = transformers.Kimi_K25Config(
        vision_config=kimi.VISION, text_config=text, projection_hidden_size=16,
        image_token_id=special[PAD], tie_word_embeddings=False)
    with llava_train.wide.widened():
        return vl_from_hf.spread(
            transformers.Kimi_K25ForConditionalGeneration._from_config(
                config, attn_implementation="eager",
                experts_implementation="eager").double().eval(),
            torch.bfloat16)


def pack(weight):
    """Words, scales and shape of an expert, and the products."""
    rows, cols = weight.shape
    parts = weight.float().reshape(rows, -1, GROUP)
    scale = (parts.abs().amax(2, keepdim=True) / 7.5).bfloat16()
    codes = (parts / scale.float()).round().clamp(-8, 7).long()
    product = (codes.to(torch.bfloat16) * scale).reshape(rows, cols)
    words = ((codes.reshape(rows, -1, 8) + 8) <<
             (4 * torch.arange(8))).sum(2)
    return dict(weight_packed=(words - (words >> 31 << 32)).to(torch.int32),
                weight_scale=scale[..., 0].contiguous(),
                weight_shape=torch.tensor([rows, cols], dtype=torch.int32)), \
        product


def published(model, special, to):
    """Writes the directory; the model's experts become the products."""
    shutil.rmtree(to, ignore_errors=True)
    model.save_pretrained(to)  # whose numbers are those of bf16
    rename = vl_from_hf.SAVED["kimi_k25"][0]
    tensors, products = {}, {}
    for key, p in load_file(os.path.join(to, "model.safetensors")).items():
        key = rename(key)
        if ".mlp.experts." in key:
            parts, product = pack(p)
            products[key] = product
            tensors.update({key[:-6] + k: v for k, v in parts.items()})
        else:
            wide = "e_score_correction_bias" in key
            tensors[key] = p.to(torch.float32 if wide else torch.bfloat16)
    for file in os.listdir(to):
        os.remove(os.path.join(to, file))
    save_file(tensors, os.path.join(to, "model.safetensors"),
              metadata={"format": "pt"})
    with torch.no_grad():
        experts = model.model.language_model.layers[1].mlp.experts
        of = "language_model.model.layers.1.mlp.experts.{}.{}_proj.weight"
        for k in range(TEXT["n_routed_experts"]):
            experts.gate_up_proj[k] = torch.cat(
                [products[of.format(k, part)] for part in ("gate", "up")])
            experts.down_proj[k] = products[of.format(k, "down")]
    text = dict(
        TEXT, model_type="kimi_k2", architectures=["DeepseekV3ForCausalLM"],
        auto_map=dict(AutoModel="modeling_deepseek.DeepseekV3Model"),
        vocab_size=model.config.text_config.vocab_size, hidden_act="silu",
        scoring_func="sigmoid", topk_method="noaux_tc", moe_layer_freq=1,
        num_nextn_predict_layers=0, aux_loss_alpha=0.001, seq_aux=True,
        ep_size=1, pretraining_tp=1, attention_bias=False, rope_theta=50000.0,
        rope_scaling=dict(ROPE, type="yarn"), tf_legacy_loss=False,
        quantization_config=QUANTIZED, torch_dtype="bfloat16")
    config = dict(
        architectures=["KimiK25ForConditionalGeneration"],
        auto_map=dict(AutoConfig="configuration_kimi_k25.KimiK25Config"),
        model_type="kimi_k25", media_placeholder_token_id=special[PAD],
        ignore_index=-100, bos_token_id=special["[BOS]"],
        eos_token_id=special["[EOS]"], pad_token_id=special["[PAD]"],
        tie_word_embeddings=False, use_unified_vision_chunk=True,
        video_placeholder="<|kimi_k25_video_placeholder|>",
        torch_dtype="bfloat16", text_config=text, vision_config=dict(
            _attn_implementation="flash_attention_2",
            init_pos_emb_height=5, init_pos_emb_width=5, init_pos_emb_time=4,
            merge_kernel_size=[2, 2], merge_type="sd2_tpool", mm_hidden_size=16,
            mm_projector_type="patchmerger", patch_size=4,
            pos_emb_type="divided_fixed", projector_hidden_act="gelu",
            projector_ln_eps=1e-5, text_hidden_size=TEXT["hidden_size"],
            video_attn_type="spatial_temporal", vt_hidden_size=16,
            vt_intermediate_size=20, vt_num_attention_heads=2,
            vt_num_hidden_layers=2))
    names = dict(AutoImageProcessor=("kimi_k25_vision_processing."
                                     "KimiK25VisionProcessor"))
    for file, of in (("config", config), ("preprocessor_config", dict(
            auto_map=names, media_proc_cfg=MEDIA))):
        with open(os.path.join(to, file + ".json"), "w") as f:
            json.dump(of, f, indent=1)
    with open(os.path.join(to, "configuration_kimi_k25.py"), "w") as f:
        f.write("# SPDX-License-Identifier: Apache-2.0\n"
                "# The publisher's Python stands here.\n")
    for file in ("tiktoken.model", "tokenizer_config.json"):
        shutil.copy(os.path.join(TOKENS, file), to)
    return products


def pixels(image, limit="in_patch_limit"):
    """Patches and their grid, by the publisher's rule."""
    image = image.convert("RGB")
    patch, side = MEDIA["patch_size"], MEDIA["patch_limit_on_one_side"]
    w, h = image.size
    count = max(1.0, w // patch) * max(1.0, h // patch)
    scale = min(1.0, (MEDIA[limit] / count) ** 0.5,
                side * patch / w, side * patch / h)
    w, h = (min(max(1, int(s * scale)), side * patch) for s in (w, h))
    x = np.asarray(image.resize((w, h), Image.Resampling.BICUBIC))
    block = patch * MEDIA["merge_kernel_size"]
    x = np.pad(x, ((0, -h % block), (0, -w % block), (0, 0)))
    x = ((x / 255.0).astype(np.float32) - np.float32(0.5)) * np.float32(2)
    rows, cols = x.shape[0] // patch, x.shape[1] // patch
    x = x.reshape(rows, patch, cols, patch, 3).transpose(0, 2, 4, 1, 3)
    return torch.from_numpy(x.reshape(-1, 3, patch, patch).copy()), [
        1, rows, cols]


def chunks(path):
    """Patches, grid and time of each chunk of frames, by that rule."""
    import av
    with av.open(path) as container:
        fps = float(container.streams.video[0].average_rate)
        frames = [f.to_image() for f in container.decode(video=0)]
    count = round(len(frames) * min(MEDIA["sample_fps"], fps) / fps)
    at = np.linspace(0, len(frames) - 1, max(count, 1)).round().astype(int)
    each = MEDIA["temporal_merge_kernel_size"]
    for k in range(0, len(at), each):
        read = [pixels(frames[i], "in_patch_limit_each_frame")
                for i in at[k:k + each]]
        yield (torch.cat([r[0] for r in read]), [len(read), *read[0][1][1:]],
               float(at[k] / fps))


def samples(ranks, special, texts):
    for text, images, videos in texts:
        pictures = iter([pixels(Image.open(os.path.join(PICTURES, name)))
                         for name in images])
        films = iter([list(chunks(os.path.join(FILMS, name)))
                      for name in videos])
        read, ids, learned = [], [], []

        def put(text, learns):
            for token, word in ((PAD, "\0"), (BETWEEN, "\1"), (VIDEO, "\3"),
                                *((f"<|media_{w}|>", c) for w, c in
                                  (("begin", "\4"), ("content", "\5"),
                                   ("end", "\6")))):
                text = text.replace(token, word)
            for part in text:
                if part == "\3":
                    for of in next(films):
                        clock = time.strftime("%H:%M:%S", time.gmtime(of[2]))
                        put(f"{clock}.{int(of[2] % 1 * 1000):03d}"
                            "<|media_begin|>video<|media_content|>", False)
                        read.append(of[:2])
                        put("\7<|media_end|>", False)
                    continue
                if part == "\0":
                    read.append(next(pictures))
                rows = part in "\0\7"
                token = {"\0": PAD, "\1": BETWEEN, "\2": "[EOS]",
                         "\4": "<|media_begin|>", "\5": "<|media_content|>",
                         "\6": "<|media_end|>", "\7": PAD}.get(part)
                count = int(np.prod(read[-1][1][1:])) // 4 if rows else 1
                ids.extend([special[token] if token else ranks[part]] * count)
                learned.extend([learns and not rows] * count)

        put(text + "\2", True)  # a text ends
        extra = dict(pixel_values=torch.cat([r[0] for r in read]).double(),
                     image_grid_thw=torch.tensor([r[1] for r in read])
                     ) if read else {}
        yield torch.tensor([ids]), extra, torch.tensor(learned[1:])


def by_chunk(model, pixels, grids, **_):
    """The class' own splits by all frames, of which a chunk has one row."""
    rows = []
    for x, grid in zip(pixels.split(grids.prod(1).tolist()), grids):
        pooled = model.vision_tower(x, grid_thw=grid[None]).pooler_output
        rows.append(model.mm_projector(pooled).squeeze(1))
    return types.SimpleNamespace(pooler_output=rows)


def take_chunks(model):
    model.model.get_image_features = lambda *of, **more: by_chunk(
        model.model, *of, **more)


def check(build, to, place, model, texts, batch, loss, products):
    chat = any(videos for _, _, videos in texts)
    with open(os.path.join(place, "texts.jsonl"), "w") as f:
        for text, images, videos in texts:
            films = [os.path.join(FILMS, name) for name in videos]
            f.write(json.dumps(dict(text=text, images=images, **(
                dict(videos=films) if films else {}))) + "\n")
    out = os.path.join(place, "out")
    ours = vl_from_hf.run(build, to, place, out, [
        "~data.image_token", f"data.image_root={PICTURES}",
        "data.seq_length=64", f"train.global_batch_size={len(texts)}",
        f"data.chat.cache={place}/cache", *(
            [f"data.train=[{{path: {place}/texts.jsonl, source: chat}}]",
             "data.seq_length=160", "data.max_patches=256"] if chat else []),
        "model.foundation.moe_router_bias_update_rate=0"])
    again = load_file(os.path.join(out, "model.safetensors"))
    for key, product in products.items():
        assert torch.allclose(again[key], product.double(), 0, 1e-29), key
    with open(os.path.join(out, "config.json")) as f:
        assert "quantization_config" not in f.read()
    for file in ("tiktoken.model", "preprocessor_config.json"):
        with open(os.path.join(to, file), "rb") as a, \
                open(os.path.join(out, file), "rb") as b:
            assert a.read() == b.read(), file
    with llava_train.wide.widened():
        back = transformers.AutoModelForImageTextToText.from_pretrained(
            out, dtype=torch.float64, attn_implementation="eager",
            experts_implementation="eager").eval()
    take_chunks(back)
    worst = max((a - b).abs().max().item() for a, b in
                zip(vl_from_hf.logits_of(back, batch),
                    vl_from_hf.logits_of(model, batch)))
    print(f"kimi_k25, as published{', videos' if chat else ''}: loss off by {abs(ours - loss) / loss:.1e}"
          f", logits of the export by {worst:.1e}")
    assert abs(ours - loss) < 5e-9 * loss and worst < 1e-9


def main():
    ranks, special = vocabulary()
    model = make(special, max(special.values()) + 1)
    take_chunks(model)
    texts = TEXTS + (VIDEOS if "--videos" in sys.argv else [])
    batch = list(samples(ranks, special, texts))
    with tempfile.TemporaryDirectory() as place:
        to = os.path.join(place, "model")
        if "--fixture" in sys.argv[2:]:
            to = os.path.join(HERE, "vl_from_hf/kimi_k25")
        products = published(model, special, to)
        loss = vl_from_hf.loss_of(model, batch)
        check(sys.argv[1], to, place, model, texts, batch, loss, products)
    if "--fixture" in sys.argv[2:]:
        with open(to + ".txt", "w") as f:
            f.write(f"{loss!r}\n")


if __name__ == "__main__":
    main()
