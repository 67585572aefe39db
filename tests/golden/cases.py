# SPDX-License-Identifier: Apache-2.0
"""The golden configurations: what each fixture is meant to catch.

Sizes are odd on purpose (vocabulary 97 is no multiple of anything, sequence
lengths are no multiples of 8) and small enough to be committed.
"""
from dataclasses import dataclass, field

LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=500.0, factor=8.0,
                   low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=32)


@dataclass
class Case:
    name: str
    family: str            # transformers' model_type
    config: dict           # keyword arguments of the config class
    batch: int = 2
    seq: int = 37
    weighted: bool = False  # loss weights other than 0 and 1
    v4: bool = False        # also writes config_v4.json
    v4_type_key: str = "rope_type"  # old files say "type"
    documents: list = field(default_factory=list)  # lengths, row by row
    train: bool = False     # also writes train_golden.safetensors
    embedding_std: float = 0.5
    disguise: str = ""      # of disguise.py
    vision_ids: list = field(default_factory=list)  # tokens of images

    @property
    def routed(self):
        """A rounding error can send a token to another expert."""
        get = self.config.get("text_config", self.config).get
        experts = (get("num_experts") or get("num_local_experts") or
                   get("n_routed_experts") or get("moe_num_experts"))
        chosen = get("num_experts_per_tok") or get("moe_k")
        return chosen is not None and chosen != experts


def _rope(theta, **more):
    return dict(dict(rope_type="default", rope_theta=theta), **more)


def _gpt2(name, heads, width, **more):
    options = {k: more.pop(k) for k in list(more)
               if k in Case.__dataclass_fields__}
    config = dict(vocab_size=97, n_positions=64, n_embd=width, n_layer=2,
                  n_head=heads, resid_pdrop=0.0, embd_pdrop=0.0,
                  attn_pdrop=0.0)
    return Case(name, "gpt2", dict(config, **more), **options)


def _decoder(name, family, heads, kv, width, ffn, **more):
    options = {k: more.pop(k) for k in list(more)
               if k in Case.__dataclass_fields__}
    config = dict(vocab_size=97, hidden_size=width, intermediate_size=ffn,
                  num_hidden_layers=2, num_attention_heads=heads,
                  num_key_value_heads=kv, max_position_embeddings=64,
                  rms_norm_eps=1e-6)
    return Case(name, family, dict(config, **more), **options)


def _all(name, family, **more):
    return _decoder(name, family, 2, 1, 16, 12, **dict(
        dict(vocab_size=53, batch=1, seq=23, num_hidden_layers=1,
             tie_word_embeddings=True), **more))


MLA_EXPERTS = dict(n_routed_experts=8, moe_intermediate_size=12,
                   n_shared_experts=1, first_k_dense_replace=0)


def _mla(name, family, heads, **more):
    """Values are wider than keys without their rotated channels."""
    options = dict(q_lora_rank=20, kv_lora_rank=16, qk_nope_head_dim=6,
                   qk_rope_head_dim=4, v_head_dim=8,
                   rope_parameters=_rope(1e4))
    return _decoder(name, family, heads, heads, 24, 36,
                    **dict(options, **more))


# Small parts that see images, which no text passes through.
VISION = dict(depth=1, hidden_size=4, num_heads=1, patch_size=2,
              intermediate_size=4)


def _ernie_vl(name, heads, kv, sections, **more):
    """The language model stands in a configuration of several parts."""
    case = _decoder(name, "ernie4_5_vl_moe", heads, kv, 16, 20, **dict(
        dict(vocab_size=61, batch=1, pad_token_id=None,
             head_dim=2 * sum(sections),
             rms_norm_eps=1e-5, rope_parameters=_rope(
                 5e5, mrope_section=list(sections))), **more))
    tied = case.config.setdefault("tie_word_embeddings", True)
    case.config = dict(text_config=case.config, vision_config=VISION,
                       tie_word_embeddings=tied)
    return case


CASES = [
    _gpt2("gpt2_tied", 2, 24, v4=True, train=True,
          embedding_std=0.14),
    # head of its own, odd feed-forward width, erf gelu, another epsilon
    _gpt2("gpt2_untied", 3, 24, n_inner=53, seq=29, weighted=True,
          activation_function="gelu", tie_word_embeddings=False,
          layer_norm_epsilon=1e-3),
    # learned positions restart at each document
    _gpt2("gpt2_packed", 3, 24, n_inner=40, documents=[[17, 12], [3, 25, 1]]),

    _decoder("llama2_mha", "llama", 3, 3, 36, 44,
             rope_parameters=_rope(1e4)),
    _decoder("llama3_gqa_tied", "llama", 4, 2, 32, 52, seq=31, weighted=True,
             tie_word_embeddings=True, rms_norm_eps=1e-5,
             rope_parameters=_rope(5e5)),
    # wavelengths fall on both sides of both llama3 thresholds
    _decoder("llama31_rope_mqa", "llama", 2, 1, 32, 44, rms_norm_eps=1e-5,
             v4=True, rope_parameters=LLAMA3_ROPE),
    # biases everywhere, head_dim is not hidden_size / heads
    _decoder("llama_bias_mqa", "llama", 4, 1, 32, 36, head_dim=12, seq=23,
             attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
             rope_parameters=_rope(1e4)),
    _decoder("llama_yarn", "llama", 2, 2, 32, 44, seq=41, v4=True,
             v4_type_key="type", tie_word_embeddings=True,
             rope_parameters=_rope(1e4, rope_type="yarn", factor=2.0,
                                   original_max_position_embeddings=32)),
    _decoder("llama_linear", "llama", 3, 3, 24, 40, seq=33, v4=True,
             v4_type_key="type", tie_word_embeddings=True,
             rope_parameters=_rope(1e4, rope_type="linear", factor=2.5)),

    _decoder("qwen2_gqa", "qwen2", 4, 2, 32, 44, seq=31,
             rope_parameters=_rope(1e6)),
    # as Qwen1.5: every head has its own keys and values
    _decoder("qwen2_mha_tied", "qwen2", 3, 3, 36, 50, seq=29, weighted=True,
             tie_word_embeddings=True, rope_parameters=_rope(1e6)),
    # layer 0 sees everything, layers 1 and 2 the last 7 tokens
    _decoder("qwen2_window", "qwen2", 4, 2, 32, 36, num_hidden_layers=3,
             use_sliding_window=True, sliding_window=7, max_window_layers=1,
             tie_word_embeddings=True, v4=True, rope_parameters=_rope(1e6)),

    _decoder("qwen3_gqa_tied", "qwen3", 4, 2, 32, 52, head_dim=16,
             tie_word_embeddings=True, v4=True, train=True,
             embedding_std=0.1, rope_parameters=_rope(1e6)),
    _decoder("qwen3_mqa_untied", "qwen3", 3, 1, 24, 44, head_dim=12, seq=29,
             attention_bias=True, weighted=True, rope_parameters=_rope(1e6)),
    # explicit yarn options: a fractional ramp, another cos/sin factor
    _decoder("qwen3_yarn", "qwen3", 2, 2, 24, 40, head_dim=16, seq=41,
             tie_word_embeddings=True, v4=True,
             rope_parameters=_rope(
                 1e4, rope_type="yarn", factor=4.0, beta_fast=4.0,
                 beta_slow=0.5, truncate=False, attention_factor=0.9,
                 original_max_position_embeddings=16)),
    _decoder("qwen3_packed", "qwen3", 4, 2, 24, 40, head_dim=16,
             documents=[[20, 17], [5, 31, 1]], tie_word_embeddings=True,
             rope_parameters=_rope(1e6)),
    _decoder("qwen2_window_packed", "qwen2", 2, 1, 24, 36,
             documents=[[23, 14]], batch=1, tie_word_embeddings=True,
             use_sliding_window=True, sliding_window=5, max_window_layers=0,
             rope_parameters=_rope(1e6)),

    # weights of the chosen experts add up to 1, two experts of three tokens
    _decoder("qwen3_moe", "qwen3_moe", 4, 2, 24, 40, head_dim=8, v4=True,
             num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
             norm_topk_prob=True, rope_parameters=_rope(1e6)),
    # weights as the softmax over all gives them; packed
    _decoder("qwen3_moe_packed", "qwen3_moe", 2, 1, 24, 40, head_dim=12,
             documents=[[20, 17], [5, 31, 1]], tie_word_embeddings=True,
             num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12,
             attention_bias=True, rope_parameters=_rope(1e6)),
    # a shared expert behind a gate, biases of q, k and v
    _decoder("qwen2_moe", "qwen2_moe", 2, 2, 24, 40, seq=31, weighted=True,
             num_experts=5, num_experts_per_tok=2, moe_intermediate_size=16,
             shared_expert_intermediate_size=28,
             rope_parameters=_rope(1e6)),
    # layers without experts: by a list, and every other one
    _decoder("qwen3_moe_dense", "qwen3_moe", 2, 1, 24, 40, head_dim=12,
             seq=29, num_hidden_layers=3, mlp_only_layers=[0], num_experts=4,
             num_experts_per_tok=2, moe_intermediate_size=12,
             norm_topk_prob=True, rope_parameters=_rope(1e6)),
    _decoder("qwen2_moe_sparse", "qwen2_moe", 2, 2, 24, 36, seq=31,
             num_hidden_layers=3, decoder_sparse_step=2, num_experts=4,
             num_experts_per_tok=2, moe_intermediate_size=16,
             shared_expert_intermediate_size=20, tie_word_embeddings=True,
             rope_parameters=_rope(1e6)),
    _decoder("mixtral", "mixtral", 3, 1, 24, 32, seq=29, rms_norm_eps=1e-5,
             num_local_experts=4, num_experts_per_tok=2, sliding_window=7,
             rope_parameters=_rope(1e6)),
    # three of five, heads that are wider than hidden_size / heads
    _decoder("mixtral_tied", "mixtral", 4, 2, 16, 12, seq=23, vocab_size=61,
             head_dim=6, num_local_experts=5, num_experts_per_tok=3,
             sliding_window=None, weighted=True, tie_word_embeddings=True,
             rope_parameters=_rope(1e4)),

    # three query heads of each key head alternate with it in wqkv
    _decoder("internlm2_gqa", "llama", 6, 2, 24, 40, seq=31, rms_norm_eps=1e-5,
             rope_parameters=_rope(1e6), disguise="internlm2"),
    # longer than max_position_embeddings: another base; biases
    _decoder("internlm2_dynamic", "llama", 4, 2, 32, 36, seq=41,
             attention_bias=True, weighted=True, rms_norm_eps=1e-5,
             max_position_embeddings=24, tie_word_embeddings=True,
             rope_parameters=_rope(5e4, rope_type="dynamic", factor=2.5),
             disguise="internlm2"),
    _decoder("qwen1_mha", "qwen2", 3, 3, 36, 44, seq=31, rms_norm_eps=1e-6,
             rope_parameters=_rope(1e4), disguise="qwen"),
    _decoder("qwen1_packed", "qwen2", 2, 2, 32, 40, rms_norm_eps=1e-5,
             documents=[[20, 17], [5, 31, 1]], rope_parameters=_rope(1e6),
             disguise="qwen"),
    _decoder("mimo_gqa", "qwen2", 4, 2, 32, 44, seq=31, rms_norm_eps=1e-5,
             rope_parameters=_rope(6.4e5), disguise="mimo"),
    _decoder("mimo_mqa", "qwen2", 3, 1, 24, 40, seq=29, weighted=True,
             num_hidden_layers=3, rms_norm_eps=1e-5,
             rope_parameters=_rope(1e4), disguise="mimo"),
    # neighbouring channels are rotated together
    _decoder("ernie4_5_gqa", "ernie4_5", 4, 2, 32, 44, head_dim=12, seq=31,
             pad_token_id=None,
             rms_norm_eps=1e-5, rope_parameters=_rope(5e5)),
    # queries through a short vector, yarn's mscale in the softmax
    _mla("deepseek_v2_yarn", "deepseek_v2", 4, seq=41, first_k_dense_replace=2,
         rope_parameters=_rope(1e4, rope_type="yarn", factor=4.0, mscale=0.707,
                               mscale_all_dim=0.5,
                               original_max_position_embeddings=16)),
    # V2-Lite: queries straight from the stream, weights of experts as they are
    _mla("deepseek_v2_lite", "deepseek_v2", 2, q_lora_rank=None, seq=31,
         num_experts_per_tok=3, rms_norm_eps=1e-5, **MLA_EXPERTS),
    # groups are chosen by their best expert
    _mla("deepseek_v2_groups", "deepseek_v2", 3, seq=29, weighted=True,
         num_experts_per_tok=3, n_group=4, topk_group=2,
         topk_method="group_limited_greedy", routed_scaling_factor=4.0,
         **MLA_EXPERTS),
    # the bias moves choices, two best experts stand for a group
    _mla("deepseek_v3_groups", "deepseek_v3", 3, seq=31, n_group=4,
         topk_group=2, num_experts_per_tok=3, routed_scaling_factor=2.5,
         num_mtp_layers=0, **dict(MLA_EXPERTS, first_k_dense_replace=1)),
    _mla("deepseek_v3_halves", "deepseek_v3", 2, q_lora_rank=None,
         documents=[[20, 17], [5, 31, 1]], first_k_dense_replace=2,
         rope_interleave=False, num_mtp_layers=0,
         rope_parameters=_rope(1e4, rope_type="yarn", factor=4.0, mscale=1.0,
                               mscale_all_dim=1.0,
                               original_max_position_embeddings=16)),
    # sigmoids that are not divided by their sum, experts in every layer
    _mla("deepseek_v3_plain", "deepseek_v3", 2, q_lora_rank=None, seq=23,
         hidden_size=16, vocab_size=61, n_routed_experts=6, n_group=2,
         topk_group=1, num_experts_per_tok=2, moe_intermediate_size=8,
         n_shared_experts=2, norm_topk_prob=False, first_k_dense_replace=0,
         routed_scaling_factor=1.5, num_mtp_layers=0, weighted=True,
         tie_word_embeddings=True),
    _mla("kimi_k2", "deepseek_v3", 2, seq=29, n_group=1, topk_group=1,
         num_experts_per_tok=4, routed_scaling_factor=2.827,
         num_mtp_layers=0, disguise="kimi_k2", **MLA_EXPERTS),
    _mla("kimi_k2_yarn", "deepseek_v3", 4, seq=41, n_group=1, topk_group=1,
         num_experts_per_tok=2, routed_scaling_factor=2.0, num_mtp_layers=0,
         rope_parameters=_rope(5e4, rope_type="yarn", factor=4.0, mscale=1.0,
                               mscale_all_dim=1.0, beta_fast=1.0,
                               original_max_position_embeddings=16),
         disguise="kimi_k2", **dict(MLA_EXPERTS, n_shared_experts=2)),
    # half of each head is rotated, one norm over all heads
    _decoder("minimax_m2", "minimax_m2", 4, 2, 24, 20, head_dim=8, seq=31,
             num_local_experts=6, num_experts_per_tok=2,
             rope_parameters=_rope(5e6, partial_rotary_factor=0.5)),
    _decoder("minimax_m2_packed", "minimax_m2", 2, 1, 24, 12, head_dim=12,
             documents=[[20, 17], [5, 31, 1]], num_local_experts=5,
             num_experts_per_tok=3,
             rope_parameters=_rope(1e4, partial_rotary_factor=0.34)),
    _decoder("ernie4_5_moe", "ernie4_5_moe", 4, 2, 24, 40, seq=31,
             pad_token_id=None, head_dim=8, rms_norm_eps=1e-5, moe_k=3,
             moe_num_experts=8, moe_intermediate_size=12,
             moe_num_shared_experts=2, moe_layer_start_index=0,
             rope_parameters=_rope(5e5)),
    _decoder("ernie4_5_moe_untied", "ernie4_5_moe", 3, 1, 24, 40, seq=29,
             pad_token_id=None, head_dim=8, rms_norm_eps=1e-5, moe_k=2,
             moe_num_experts=5, moe_intermediate_size=16, weighted=True,
             moe_num_shared_experts=1, moe_layer_start_index=1,
             tie_word_embeddings=False, rope_parameters=_rope(1e4)),
    _decoder("ernie4_5_bias", "ernie4_5", 3, 1, 24, 40, head_dim=8,
             pad_token_id=None,
             rms_norm_eps=1e-5, use_bias=True, weighted=True,
             tie_word_embeddings=False, rope_parameters=_rope(1e4)),
    # tokens of images have experts, a router and a width of their own
    _ernie_vl("ernie4_5_vl_moe", 2, 1, (1, 1, 2), seq=31, moe_k=3,
              moe_num_experts=4, moe_intermediate_size=[8, 4],
              moe_num_shared_experts=2, mlp_layer_types=["sparse", "sparse"],
              vision_ids=[3, 7, 9, 11, 20, 23, 31, 32, 33, 41, 45, 48, 50]),
    # wider ones for images than for texts, and few of them
    _ernie_vl("ernie4_5_vl_moe_untied", 3, 1, (2, 2, 1), seq=27, moe_k=2,
              vocab_size=37,
              moe_num_experts=5, moe_intermediate_size=[4, 8], weighted=True,
              moe_num_shared_experts=1, tie_word_embeddings=False,
              rope_parameters=_rope(1e4, mrope_section=[2, 2, 1]),
              vision_ids=[3, 8, 17, 30, 33]),
    # every expert is chosen, so that no rounding error sends a token to
    # another one: bf16 of what a mixture computes
    _all("mixtral_all", "mixtral", num_local_experts=3, sliding_window=None,
         num_experts_per_tok=3, rope_parameters=_rope(1e4)),
    _all("qwen2_moe_all", "qwen2_moe", num_experts=2, num_experts_per_tok=2,
         moe_intermediate_size=12, shared_expert_intermediate_size=10,
         rope_parameters=_rope(1e6)),
    _all("qwen3_moe_all", "qwen3_moe", num_experts=3, num_experts_per_tok=3,
         moe_intermediate_size=12, head_dim=8, rope_parameters=_rope(1e6)),
    _all("ernie4_5_moe_all", "ernie4_5_moe", moe_num_experts=2, moe_k=2,
         moe_intermediate_size=12, moe_num_shared_experts=1, head_dim=8,
         moe_layer_start_index=0, pad_token_id=None,
         rope_parameters=_rope(5e5)),
    _all("minimax_m2_all", "minimax_m2", num_local_experts=3, head_dim=8,
         num_experts_per_tok=3,
         rope_parameters=_rope(1e4, partial_rotary_factor=0.5)),
    _all("kimi_k2_all", "deepseek_v3", num_key_value_heads=2, q_lora_rank=10,
         kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4,
         v_head_dim=8, n_routed_experts=2, num_experts_per_tok=2,
         moe_intermediate_size=12, n_shared_experts=1, n_group=1,
         topk_group=1, first_k_dense_replace=0, num_mtp_layers=0,
         routed_scaling_factor=1.5, rope_parameters=_rope(5e4),
         disguise="kimi_k2"),
    # biases of the short vectors and of the output
    _mla("deepseek_v3_bias", "deepseek_v3", 2, batch=1, seq=23, vocab_size=53,
         num_hidden_layers=1, first_k_dense_replace=1, attention_bias=True,
         num_mtp_layers=0, tie_word_embeddings=True),
    # a window in all layers; and with heads of a width of their own
    _decoder("mistral_window", "mistral", 2, 1, 16, 12, batch=1, seq=17,
             vocab_size=43, sliding_window=5, num_hidden_layers=1,
             tie_word_embeddings=True, rope_parameters=_rope(1e4)),
    _decoder("mistral_wide", "mistral", 3, 1, 12, 16, head_dim=6, batch=1,
             seq=17, vocab_size=37, sliding_window=9, num_hidden_layers=1,
             weighted=True, rope_parameters=_rope(1e6)),
    # q, k and v of different heights in one tensor, gate and up in another; a
    # part of a head rotated, a window in all layers; and none of both, tied
    _decoder("phi3_window", "phi3", 6, 2, 48, 20, seq=29, pad_token_id=None,
             sliding_window=11, weighted=True,
             rope_parameters=_rope(1e4, partial_rotary_factor=0.75)),
    _decoder("phi3_tied", "phi3", 4, 1, 24, 28, batch=1, seq=21, vocab_size=61,
             pad_token_id=None,
             num_hidden_layers=1, tie_word_embeddings=True,
             rope_parameters=_rope(2.5e5)),
    # norms count from 1, embeddings are times the root of the width, GeGLU
    _decoder("gemma_mqa", "gemma", 4, 1, 16, 28, head_dim=6, seq=31,
             weighted=True, tie_word_embeddings=True, pad_token_id=None,
             hidden_act="gelu_pytorch_tanh", rope_parameters=_rope(1e4)),
    # half a head is rotated by neighbours, biases of q, k and v alone; norms
    # behind attention and feed-forward too
    _decoder("glm_gqa", "glm", 4, 2, 24, 28, head_dim=8, seq=23, batch=1,
             vocab_size=61, num_hidden_layers=1, weighted=True,
             pad_token_id=None,
             rope_parameters=_rope(5e4, partial_rotary_factor=0.5)),
    _decoder("glm_plain", "glm", 3, 1, 20, 16, head_dim=12, batch=1, seq=17,
             vocab_size=43, num_hidden_layers=1, attention_bias=False,
             tie_word_embeddings=True, pad_token_id=None,
             rope_parameters=_rope(1e4, partial_rotary_factor=0.34)),
    _decoder("glm4_gqa", "glm4", 4, 2, 24, 28, head_dim=8, seq=21,
             vocab_size=61, pad_token_id=None, documents=[[9, 12], [4, 11, 6]],
             rope_parameters=_rope(1e4, partial_rotary_factor=0.5)),
    _decoder("glm4_plain", "glm4", 3, 1, 20, 16, head_dim=12, batch=1, seq=17,
             vocab_size=43, num_hidden_layers=1, attention_bias=False,
             tie_word_embeddings=True, pad_token_id=None,
             rope_parameters=_rope(1e4, partial_rotary_factor=0.5)),
]

# A fixture keeps the number that it was made with, wherever its case stands.
SEEDS = dict(gpt2_tied=0, gpt2_untied=1, gpt2_packed=2, llama2_mha=3,
    llama3_gqa_tied=4, llama31_rope_mqa=5, llama_bias_mqa=6, llama_yarn=7,
    llama_linear=8, qwen2_gqa=9, qwen2_mha_tied=10, qwen2_window=11,
    qwen3_gqa_tied=12, qwen3_mqa_untied=13, qwen3_yarn=14, qwen3_packed=15,
    qwen2_window_packed=16, qwen3_moe=17, qwen3_moe_packed=18, qwen2_moe=19,
    qwen3_moe_dense=20, qwen2_moe_sparse=21, mixtral=20, internlm2_gqa=21,
    internlm2_dynamic=22, qwen1_mha=23, qwen1_packed=24, mimo_gqa=25,
    mimo_mqa=26, ernie4_5_gqa=27, deepseek_v2_yarn=28, deepseek_v2_lite=29,
    deepseek_v2_groups=30, deepseek_v3_groups=33, deepseek_v3_halves=32,
    kimi_k2=33, kimi_k2_yarn=34, minimax_m2=35, minimax_m2_packed=36,
    ernie4_5_moe=37, ernie4_5_moe_untied=40, ernie4_5_bias=28,
    ernie4_5_vl_moe=48, ernie4_5_vl_moe_untied=49,
    mixtral_all=42, qwen2_moe_all=43, qwen3_moe_all=44, ernie4_5_moe_all=45,
    minimax_m2_all=46, kimi_k2_all=47, mixtral_tied=50, deepseek_v3_plain=51,
    deepseek_v3_bias=52, mistral_window=53, mistral_wide=54,
    phi3_window=55, phi3_tied=56, gemma_mqa=57,
    glm_gqa=58, glm4_gqa=59, glm4_plain=60, glm_plain=61)
