#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many parameters has each component of the published models that see?

  published_vl.py            writes published_vl.json beside this file
  published_vl.py --check    counts again and compares

As published.py, of models of several components: config.json as far as it says
what the model is, written down from what is publicly known of it, and
transformers' own class of it, built on the meta device and counted. A tied
output matrix is the embedding and counts once.
"""
import argparse
import json
import os
import sys

import published

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                    "published_vl.json")
IMAGE, VIDEO = 151655, 151656


def text(kind, sizes, vocab, positions, theta, eps=1e-6, sections=None,
         **more):
    layers, width, ffn, heads, groups = sizes
    rope = dict(rope_type="default", rope_theta=theta)
    if sections:
        rope["mrope_section"] = sections
    return dict(model_type=kind, num_hidden_layers=layers, hidden_size=width,
                intermediate_size=ffn, num_attention_heads=heads,
                num_key_value_heads=groups, vocab_size=vocab,
                max_position_embeddings=positions, rms_norm_eps=eps,
                hidden_act="silu", rope_parameters=rope, **more)


def whole(kind, vision, language, tied=False, **more):
    return dict(model_type=kind, vision_config=vision, text_config=language,
                tie_word_embeddings=tied, **more)


def qwen2_vl(sizes, vocab, tied=False):
    vision = dict(model_type="qwen2_vl_vision", depth=32, embed_dim=1280,
                  mlp_ratio=4, num_heads=16, hidden_size=sizes[1],
                  patch_size=14, spatial_merge_size=2, temporal_patch_size=2)
    return whole("qwen2_vl", vision, text(
        "qwen2_vl_text", sizes, vocab, 32768, 1e6, sections=[16, 24, 24],
        use_sliding_window=False, tie_word_embeddings=tied), tied,
        image_token_id=IMAGE, video_token_id=VIDEO)


def qwen2_5_vl(sizes, vocab, ffn=3420, tied=False):
    vision = dict(model_type="qwen2_5_vl_vision", depth=32, hidden_size=1280,
                  intermediate_size=ffn, num_heads=16,
                  out_hidden_size=sizes[1], patch_size=14, window_size=112, tokens_per_second=2,
                  fullatt_block_indexes=[7, 15, 23, 31], spatial_merge_size=2,
                  temporal_patch_size=2)
    return whole("qwen2_5_vl", vision, text(
        "qwen2_5_vl_text", sizes, vocab, 128000, 1e6, sections=[16, 24, 24],
        use_sliding_window=False, tie_word_embeddings=tied), tied,
        image_token_id=IMAGE, video_token_id=VIDEO)


def qwen3_vision(kind, width, large):
    sizes = (27, 1152, 4304, [8, 16, 24]) if large else (
        24, 1024, 4096, [5, 11, 17])
    return dict(model_type=kind, depth=sizes[0], hidden_size=sizes[1],
                intermediate_size=sizes[2], num_heads=16,
                out_hidden_size=width, patch_size=16, spatial_merge_size=2,
                temporal_patch_size=2, num_position_embeddings=2304,
                deepstack_visual_indexes=sizes[3])


def qwen3_vl(sizes, large, tied=False):
    return whole("qwen3_vl", qwen3_vision("qwen3_vl_vision", sizes[1], large),
                 text("qwen3_vl_text", sizes, 151936, 262144, 5e6,
                      sections=[24, 20, 20], head_dim=128,
                      attention_bias=False), tied, image_token_id=IMAGE,
                 video_token_id=VIDEO)


def qwen3_vl_moe(sizes, width):
    return whole("qwen3_vl_moe",
                 qwen3_vision("qwen3_vl_moe_vision", sizes[1], True),
                 text("qwen3_vl_moe_text", sizes, 151936, 262144, 5e6,
                      sections=[24, 20, 20], head_dim=128, num_experts=128,
                      num_experts_per_tok=8, moe_intermediate_size=width,
                      norm_topk_prob=True, decoder_sparse_step=1,
                      mlp_only_layers=[], attention_bias=False),
                 image_token_id=IMAGE, video_token_id=VIDEO)


def internvl3_5(large, language):
    sizes = (45, 3200, 12800, 25) if large else (24, 1024, 4096, 16)
    vision = dict(model_type="internvl_vision", num_hidden_layers=sizes[0],
                  hidden_size=sizes[1], intermediate_size=sizes[2],
                  num_attention_heads=sizes[3], image_size=[448, 448],
                  patch_size=[14, 14], attention_bias=not large,
                  use_qk_norm=large, layer_scale_init_value=0.1,
                  norm_type="rms_norm" if large else "layer_norm")
    return whole("internvl", vision, language, image_token_id=151671)


def internvl2_5(large, language):
    """As published: a type of its own, whose class is not transformers'."""
    vision = internvl3_5(large, {})["vision_config"]
    sizes = {key: vision[key] for key in (
        "num_hidden_layers", "hidden_size", "intermediate_size",
        "num_attention_heads", "norm_type")}
    return dict(model_type="internvl_chat", ps_version="v2", select_layer=-1,
                downsample_ratio=0.5, force_image_size=448,
                dynamic_image_size=True, use_thumbnail=True,
                min_dynamic_patch=1, max_dynamic_patch=12,
                template="internvl2_5", tie_word_embeddings=False,
                llm_config=language, vision_config=dict(
                    sizes, model_type="intern_vit_6b", image_size=448,
                    patch_size=14, num_channels=3, qkv_bias=not large,
                    qk_normalization=large, layer_norm_eps=1e-6,
                    initializer_factor=0.1 if large else 1.0))


def known_class(config):
    """The same model in the words of a class that transformers has."""
    key = "llm_config" if "llm_config" in config else "text_config"
    kind, language = published.known_class(config[key])
    language["model_type"] = kind
    if config["model_type"] == "internvl_chat":
        return internvl3_5(config["vision_config"]["qk_normalization"],
                           language)
    return dict(config, text_config=language)


def internlm2(sizes, theta, factor):
    return dict(published.internlm2(sizes, theta, factor), vocab_size=92553)


def qwen2_5(sizes):
    return text("qwen2", sizes, 151674, 32768, 1e6, use_sliding_window=False,
                tie_word_embeddings=False)


def kimi_k25():
    language = dict(
        published.MODELS["kimi_k2/kimi_k2_1t"], rms_norm_eps=1e-5,
        max_position_embeddings=262144, rope_scaling=published.yarn(64.0, 1.0))
    return whole("kimi_k25", dict(
        model_type="kimi_k25_vision", num_hidden_layers=27, hidden_size=1152,
        intermediate_size=4304, num_attention_heads=16, patch_size=14,
        pos_emb_height=64, pos_emb_width=64, pos_emb_time=4), language,
        projection_hidden_size=1152, image_token_id=163605)


def qwen3(sizes):
    return text("qwen3", sizes, 151936, 40960, 1e6, head_dim=128,
                attention_bias=False, use_sliding_window=False,
                tie_word_embeddings=False)


def qwen3_moe(sizes, width):
    return text("qwen3_moe", sizes, 151936, 40960, 1e6, head_dim=128,
                num_experts=128, num_experts_per_tok=8,
                moe_intermediate_size=width, norm_topk_prob=True,
                decoder_sparse_step=1, mlp_only_layers=[],
                attention_bias=False, use_sliding_window=False,
                tie_word_embeddings=False)


def llava(sizes, vocab):
    vision = dict(model_type="clip_vision_model", hidden_size=1024,
                  intermediate_size=4096, num_hidden_layers=24,
                  num_attention_heads=16, image_size=336, patch_size=14,
                  projection_dim=768)
    return whole("llava", vision, text("llama", sizes, vocab, 4096, 1e4, 1e-5,
                                       tie_word_embeddings=False),
                 image_token_index=32000, vision_feature_layer=-2,
                 vision_feature_select_strategy="default")


def paligemma(side):
    vision = dict(model_type="siglip_vision_model", hidden_size=1152,
                  intermediate_size=4304, num_hidden_layers=27,
                  num_attention_heads=16, image_size=side, patch_size=14,
                  vision_use_head=False)
    language = dict(model_type="gemma", hidden_size=2048,
                    intermediate_size=16384, num_attention_heads=8,
                    num_hidden_layers=18, num_key_value_heads=1,
                    vocab_size=257216)
    return whole("paligemma", vision, language, True, projection_dim=2048,
                 image_token_index=257152)


def llava_onevision(sizes, vocab, tied=False):
    """Qwen2 with three more tokens, rows in multiples of 64."""
    vision = dict(model_type="siglip_vision_model", hidden_size=1152,
                  intermediate_size=4304, num_hidden_layers=26,
                  num_attention_heads=16, image_size=384, patch_size=14,
                  vision_use_head=False)
    return whole("llava_onevision", vision, text(
        "qwen2", sizes, -(-(vocab + 3) // 64) * 64, 32768, 1e6,
        use_sliding_window=False, tie_word_embeddings=tied), tied,
        image_token_index=151646, video_token_index=151647,
        vision_feature_layer=-1, vision_feature_select_strategy="full",
        vision_aspect_ratio="anyres_max_9")


def llava_onevision1_5(sizes, positions, theta):
    """Counted by tests/golden/own_code: transformers has no class of it."""
    vision = dict(model_type="rice_vit", depth=24, embed_dim=1024,
                  hidden_size=1024, hidden_act="gelu", intermediate_size=4096,
                  num_heads=16, in_channels=3, patch_size=14,
                  spatial_merge_size=2, temporal_patch_size=1,
                  layer_norm_eps=1e-5, text_hidden_size=sizes[1])
    return whole("llavaonevision1_5", vision, text(
        "LLaVAOneVision1_5_text", sizes, 151936, positions, theta,
        head_dim=128, attention_bias=False, use_sliding_window=False,
        tie_word_embeddings=False), image_token_id=IMAGE, video_token_id=VIDEO,
        vocab_size=151936)


def qianfan_vl(kind, sizes, vocab, theta, eps, tied=False, **more):
    """Table 2 and 3 of the report (arXiv 2509.18189)."""
    return dict(internvl3_5(False, text(
        kind, sizes, vocab, 32768, theta, eps, tie_word_embeddings=tied,
        **more)), tie_word_embeddings=tied)


def llama3(sizes):
    """Llama 3.1's positions."""
    config = qianfan_vl("llama", sizes, 182025, 5e5, 1e-5, head_dim=128)
    config["text_config"]["rope_parameters"].update(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0,
        high_freq_factor=4.0, original_max_position_embeddings=8192)
    return config


def glm4v(sizes):
    vision = dict(model_type="glm4v_vision", depth=24, hidden_size=1536,
                  out_hidden_size=sizes[1], intermediate_size=sizes[2],
                  num_heads=12, image_size=336, patch_size=14,
                  spatial_merge_size=2, temporal_patch_size=2,
                  attention_bias=False, rms_norm_eps=1e-5)
    language = text("glm4v_text", sizes, 151552, 65536, 1e4, 1e-5,
                    sections=[8, 12, 12])
    language["rope_parameters"]["partial_rotary_factor"] = 0.5
    return whole("glm4v", vision, language, image_token_id=151343,
                 video_token_id=151344)


def ernie4_5_vl():
    vision = dict(model_type="ernie4_5_vl_moe_vision", depth=32,
                  hidden_size=1280, intermediate_size=5120, num_heads=16,
                  patch_size=14, spatial_merge_size=2, temporal_merge_size=2,
                  rms_norm_eps=1e-6)
    language = published.MODELS["ernie4.5/ernie4.5_28b_a3b"]["text_config"]
    return whole("ernie4_5_vl_moe", vision, language, True,
                 image_token_id=100295, video_token_id=103367)


def composed(seen, language):
    """No class of its own: the encoder and merger of one model before the
    language model of another, each with its own config.json."""
    return dict(image_encoder=seen, image_projector=seen, foundation=language)


MODELS = {
    "kimi_k2.5/kimi_k2.5_1t": kimi_k25(),
    "internvl2.5/internvl2.5_8b": internvl2_5(False, internlm2(
        (32, 4096, 14336, 32, 8), 1e6, 2.0)),
    "internvl2.5/internvl2.5_26b": internvl2_5(True, internlm2(
        (48, 6144, 16384, 48, 8), 5e7, 2.5)),
    "internvl2.5/internvl2.5_38b": internvl2_5(True, qwen2_5(
        (64, 5120, 27648, 40, 8))),
    "internvl2.5/internvl2.5_78b": internvl2_5(True, qwen2_5(
        (80, 8192, 29568, 64, 8))),
    "qwen_vit_llama3/qwen_vit_llama3_8b": composed(
        qwen2_5_vl((1, 4096, 64, 32, 8), 8),
        text("llama", (32, 4096, 14336, 32, 8), 128256, 8192, 5e5, 1e-5,
             head_dim=128, tie_word_embeddings=False)),
    "llava_onevision/llava_onevision_0.5b": llava_onevision(
        (24, 896, 4864, 14, 2), 151936, True),
    "llava_onevision/llava_onevision_7b": llava_onevision(
        (28, 3584, 18944, 28, 4), 152064),
    "llava_onevision/llava_onevision_72b": llava_onevision(
        (80, 8192, 29568, 64, 8), 152064),
    "llava_onevision1.5/llava_onevision1.5_4b": llava_onevision1_5(
        (36, 2560, 9728, 32, 8), 262144, 5e6),
    "llava_onevision1.5/llava_onevision1.5_8b": llava_onevision1_5(
        (36, 4096, 12288, 32, 8), 32768, 1e6),
    "qianfan_vl/qianfan_vl_3b": qianfan_vl(
        "qwen2", (36, 2048, 11008, 16, 2), 151673, 1e6, 1e-6, True,
        use_sliding_window=False),
    "qianfan_vl/qianfan_vl_8b": llama3((32, 4096, 14336, 32, 8)),
    "qianfan_vl/qianfan_vl_70b": llama3((80, 8192, 28672, 64, 8)),
    "paligemma/paligemma_3b_224": paligemma(224),
    "paligemma/paligemma_3b_448": paligemma(448),
    "paligemma/paligemma_3b_896": paligemma(896),
    "glm4.1v/glm4.1v_9b": glm4v((40, 4096, 13696, 32, 2)),
    "ernie4.5_vl/ernie4.5_vl_28b_a3b": ernie4_5_vl(),
    "llava1.5/llava1.5_7b": llava((32, 4096, 11008, 32, 32), 32064),
    "llava1.5/llava1.5_13b": llava((40, 5120, 13824, 40, 40), 32064),
    "qwen2_vl/qwen2_vl_2b": qwen2_vl((28, 1536, 8960, 12, 2), 151936, True),
    "qwen2_vl/qwen2_vl_7b": qwen2_vl((28, 3584, 18944, 28, 4), 152064),
    "qwen2_vl/qwen2_vl_72b": qwen2_vl((80, 8192, 29568, 64, 8), 152064),
    "qwen2.5_vl/qwen2.5_vl_3b": qwen2_5_vl((36, 2048, 11008, 16, 2), 151936,
                                           tied=True),
    "qwen2.5_vl/qwen2.5_vl_7b": qwen2_5_vl((28, 3584, 18944, 28, 4), 152064),
    "qwen2.5_vl/qwen2.5_vl_32b": qwen2_5_vl((64, 5120, 27648, 40, 8), 152064,
                                            3456),
    "qwen2.5_vl/qwen2.5_vl_72b": qwen2_5_vl((80, 8192, 29568, 64, 8), 152064,
                                            3456),
    "qwen3_vl/qwen3_vl_2b": qwen3_vl((28, 2048, 6144, 16, 8), False, True),
    "qwen3_vl/qwen3_vl_4b": qwen3_vl((36, 2560, 9728, 32, 8), False, True),
    "qwen3_vl/qwen3_vl_8b": qwen3_vl((36, 4096, 12288, 32, 8), True),
    "qwen3_vl/qwen3_vl_32b": qwen3_vl((64, 5120, 25600, 64, 8), True),
    "qwen3_vl/qwen3_vl_30b_a3b": qwen3_vl_moe((48, 2048, 6144, 32, 4), 768),
    "qwen3_vl/qwen3_vl_235b_a22b": qwen3_vl_moe((94, 4096, 12288, 64, 4),
                                                1536),
    "internvl3.5/internvl3.5_8b": internvl3_5(
        False, qwen3((36, 4096, 12288, 32, 8))),
    "internvl3.5/internvl3.5_14b": internvl3_5(
        False, qwen3((40, 5120, 17408, 40, 8))),
    "internvl3.5/internvl3.5_38b": internvl3_5(
        True, qwen3((64, 5120, 25600, 64, 8))),
    "internvl3.5/internvl3.5_30b_a3b": internvl3_5(
        False, qwen3_moe((48, 2048, 6144, 32, 4), 768)),
    "internvl3.5/internvl3.5_241b_a28b": internvl3_5(
        True, qwen3_moe((94, 4096, 12288, 64, 4), 1536)),
}
PROJECTORS = ("multi_modal_projector.", "image_newline", "mm_projector.",
              "visual.merger.", "visual.deepstack_merger_list.",
              "visual.downsample.", "resampler_model.")
ENCODERS = ("visual.", "vision_tower.")


def component(name):
    name = name.removeprefix("model.")
    return ("image_projector" if name.startswith(PROJECTORS) else
            "image_encoder" if name.startswith(ENCODERS) else "foundation")


def count_composed(config):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    language = dict(config["foundation"])
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(
            language.pop("model_type"), **language), dtype=torch.float32)
    own = count(config["image_encoder"])
    own["parameters"]["foundation"] = sum(
        p.numel() for p in model.parameters())
    own["counted_by"] += ", " + type(model).__name__
    return own


def count(config):
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText
    sys.path.insert(0, os.path.join(os.path.dirname(PATH), os.pardir, "golden",
                                    "own_code"))
    import llavaonevision1_5  # noqa: F401
    if "model_type" not in config:
        return count_composed(config)
    if config["model_type"] in ("internvl_chat", "kimi_k25"):
        config = known_class(config)
    fields = {k: v for k, v in config.items() if k != "model_type"}
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(
            AutoConfig.for_model(config["model_type"], **fields),
            dtype=torch.float32)
    shared = set(model._tied_weights_keys) if config["tie_word_embeddings"] \
        else set()
    counts = dict(image_encoder=0, image_projector=0, foundation=0)
    biases = [(name, p) for name, p in model.named_buffers()
              if name.endswith("e_score_correction_bias")]
    for name, p in [*model.named_parameters(remove_duplicate=False), *biases]:
        if name not in shared:
            counts[component(name)] += p.numel()
    return dict(parameters=counts, counted_by=type(model).__name__)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    lines = [f"{json.dumps(name)}: {json.dumps(dict(count(c), config=c))}"
             for name, c in MODELS.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    if args.check:
        with open(PATH) as f:
            same = f.read() == text
        print(f"ok: {len(MODELS)} models" if same
              else "FAIL: published_vl.json is not what was counted")
        return not same
    with open(PATH, "w") as f:
        f.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
